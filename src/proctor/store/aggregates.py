"""Aggregate queries: the sums, counts and samples that statistics are computed from.

A scope names sessions; its items are those of its run, or else those that have one of its sessions. What
SQLite and PostgreSQL spell differently is here. The query plans of these statements were measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from proctor.item import ERROR, FAIL, FINISHED, QUEUED, RUNNING, SUCCESS, TIMEOUT, UNCHECKED
from proctor.store.codec import cut, head
from proctor.store.database import R, Row, literals, places
from proctor.store.items import SHOWN_CHARACTERS
from proctor.store.reader import (
    Scope,
    StoreReader,
    seconds_between,
    session_where,
    uses_postgres,
)
from proctor.store.recorder import FREE
from proctor.store.tables import IMPORTED, TABLE

KEPT_RANKS = 1000
"""How many durations of a large batch are read, evenly spaced by rank."""
SLOWEST = 10
LISTED_FAILURES = 200
LISTED_MOCKS = 100
SHOWN_RUNNING = 10
MOST_SESSIONS, SESSIONS_AT_ONCE = 20_000, 500
"""Earlier sessions that an estimate reads, the latest first, and how many by one query."""
MOST_RUNS = 200
"""Earlier runs of a scenario that are read, the latest first: more would not change the estimate."""
_NOT_PASSED = literals((FAIL, TIMEOUT, ERROR))
_FINISHED = literals(FINISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The items and sessions of a scope, as conditions in SQL."""

    read: StoreReader
    is_postgres: bool
    items: str
    """A condition on `"batch_items" i`."""
    item_parameters: tuple[object, ...]
    sessions: str
    """A condition on `"sessions" s`."""
    session_parameters: tuple[object, ...]
    events: str
    """A condition on the `sessionId` of `t`, with the same parameters as `sessions`."""
    has_loose: bool = False
    """Whether imported sessions that belong to no run may be among the sessions; each counts as an item."""

    def of_items(self, shape: type[R], columns: str, rest: str = "") -> list[R]:
        """Query the items, `i`."""
        sql = f'SELECT {columns} FROM "batch_items" i WHERE {self.items} {rest}'
        return self.read.rows(shape, sql, self.item_parameters)

    def of_sessions(self, shape: type[R], columns: str, rest: str = "") -> list[R]:
        """Query the sessions, `s`."""
        sql = f'SELECT {columns} FROM "sessions" s WHERE {self.sessions} {rest}'
        return self.read.rows(shape, sql, self.session_parameters)

    def of_events(self, shape: type[R], table: str, columns: str, rest: str = "") -> list[R]:
        """Query a table of the sessions, `t`: their tool calls, model calls and so on."""
        sql = f'SELECT {columns} FROM "{table}" t WHERE {self.events} {rest}'
        return self.read.rows(shape, sql, self.session_parameters)

    def of_few_events(self, shape: type[R], table: str, columns: str, rest: str = "") -> list[R]:
        """Like `of_events`, for a table with far fewer rows than there are sessions."""
        mine = f'SELECT 1 FROM "sessions" s WHERE {self.sessions} AND s."id" = t."sessionId"'
        sql = f'SELECT {columns} FROM "{table}" t WHERE EXISTS ({mine}) {rest}'
        return self.read.rows(shape, sql, self.session_parameters)

    def of_loose_sessions(self, shape: type[R], columns: str, rest: str = "") -> list[R]:
        """Query the sessions that belong to no run, `s`."""
        return self.of_sessions(shape, columns, f'AND s."runId" IS NULL {rest}') if self.has_loose else []

    def seconds(self, start: str, end: str) -> str:
        """The seconds between two columns of timestamps, as an expression; 0 where the clock was set back."""
        return seconds_between(start, end, is_postgres=self.is_postgres)


def select(read: StoreReader, scope: Scope) -> Selection:
    """The selection of a scope."""
    sessions, parameters = session_where(scope)
    of_them = f'SELECT 1 FROM "sessions" s WHERE {sessions} AND s."runId" = i."runId" AND s."itemId" = i."id"'
    # An evaluation that succeeded says nothing about the agent whose session it evaluated.
    of_agents = f"i.\"runner\" <> 'evaluation' AND EXISTS ({of_them})"
    items = 'i."runId" = ?' if scope.run_id else of_agents
    return Selection(
        read=read,
        is_postgres=uses_postgres(read),
        items=items,
        item_parameters=(scope.run_id,) if scope.run_id else tuple(parameters),
        sessions=sessions,
        session_parameters=tuple(parameters),
        events=_of_sessions(read, sessions, tuple(parameters)),
        has_loose=not scope.run_id,
    )


def _of_sessions(read: StoreReader, sessions: str, parameters: tuple[object, ...]) -> str:
    """A condition that selects by the sessions in the scope, or by those outside it.

    A set of ids has to be built either way, so it is the smaller one: a large run that is most of the
    store is then read straight through, in a third of the time.
    """
    selected = read.count(f'"sessions" s WHERE {sessions}', parameters)
    if read.count('"sessions"') < selected * 1.5:
        outside = f'SELECT s."id" FROM "sessions" s WHERE ({sessions}) IS NOT TRUE'
        return f't."sessionId" NOT IN ({outside})'
    return f't."sessionId" IN (SELECT s."id" FROM "sessions" s WHERE {sessions})'


# Time, tokens, money and tools.


class RankedDuration(TypedDict):
    """The duration of a finished item in seconds, its rank from 1, and the sums over all of them."""

    v: float
    rank: int
    n: int
    total: float
    squares: float


def ranked_durations(selection: Selection) -> list[RankedDuration]:
    """Durations of finished items, shortest first; of many items, some, with the first and the last."""
    seconds = selection.seconds('i."startedAt"', 'i."finishedAt"')
    loose = (
        f'UNION ALL SELECT s."workSeconds" FROM "sessions" s WHERE {selection.sessions} '
        'AND s."runId" IS NULL AND s."workSeconds" IS NOT NULL'
    )
    # Materialized: the time between two texts costs more than all the rest, and is needed three times.
    return selection.read.rows(
        RankedDuration,
        f'WITH "d" AS MATERIALIZED (SELECT {seconds} AS "v" FROM "batch_items" i WHERE {selection.items} '
        'AND i."startedAt" IS NOT NULL AND i."finishedAt" IS NOT NULL '
        f"{loose if selection.has_loose else ''}), "
        '"sums" AS (SELECT COUNT(*) AS "n", SUM("v") AS "total", SUM("v" * "v") AS "squares" FROM "d"), '
        '"ordered" AS (SELECT "v", ROW_NUMBER() OVER (ORDER BY "v") AS "rank" FROM "d") '
        'SELECT "v", "rank", "n", "total", "squares" FROM "ordered", "sums" WHERE "rank" = 1 '
        f'OR "rank" = "n" OR "rank" % (("n" + {KEPT_RANKS - 1}) / {KEPT_RANKS}) = 0 ORDER BY "rank"',
        (*selection.item_parameters, *(selection.session_parameters if selection.has_loose else ())),
    )


class ModelSums(TypedDict):
    """The calls of one model."""

    model: str
    calls: int
    failed: int
    prompt: int
    cached: int
    completion: int
    reasoning: int
    total: int
    """Prompt and completion together."""
    cost: float | None
    """Of the calls whose price is known; None when none is."""
    unpriced: int


def model_sums(selection: Selection) -> list[ModelSums]:
    """The calls, tokens and cost of each model, the one with most tokens first."""
    return selection.of_events(
        ModelSums,
        "model_calls",
        't."model" AS "model", COUNT(*) AS "calls", '
        'SUM(CASE WHEN t."status" = \'ok\' THEN 0 ELSE 1 END) AS "failed", '
        'SUM(t."promptTokens") AS "prompt", SUM(t."cachedTokens") AS "cached", '
        'SUM(t."completionTokens") AS "completion", SUM(t."reasoningTokens") AS "reasoning", '
        'SUM(t."promptTokens") + SUM(t."completionTokens") AS "total", SUM(t."costUsd") AS "cost", '
        f'SUM(CASE WHEN t."costUsd" IS NULL AND t."status" NOT IN ({literals(sorted(FREE))}) '
        'THEN 1 ELSE 0 END) AS "unpriced"',
        'GROUP BY t."model" ORDER BY "total" DESC, "model"',
    )


def judging_cost(selection: Selection) -> float | None:
    """The cost of evaluators; None when none is known."""
    (row,) = selection.of_few_events(Row, "scores", 'SUM(t."costUsd") AS "usd"')
    return None if row["usd"] is None else float(row["usd"])


class ToolSums(TypedDict):
    """The calls of one tool, or one of the slowest calls."""

    tool: str
    calls: int
    succeeded: int | None
    judged: int
    ms: float | None
    measured: int
    session: str | None
    """None: all calls of the tool."""
    position: int | None


def tool_sums(selection: Selection) -> list[ToolSums]:
    """One row for each tool, then one for each of the slowest calls, which also has a session."""
    # Finding the calls costs more than counting them, so both answers come from one search.
    return selection.read.rows(
        ToolSums,
        'WITH "c" AS MATERIALIZED (SELECT "toolName" AS "tool", "success", "durationMs" AS "ms", '
        f'"sessionId" AS "session", "position" FROM "tool_calls" t WHERE {selection.events}), '
        '"slow" AS (SELECT * FROM "c" WHERE "ms" IS NOT NULL '
        f'ORDER BY "ms" DESC, "session", "position" LIMIT {SLOWEST}) '
        'SELECT "tool", COUNT(*) AS "calls", SUM("success") AS "succeeded", COUNT("success") AS "judged", '
        'SUM("ms") AS "ms", COUNT("ms") AS "measured", CAST(NULL AS TEXT) AS "session", '
        'CAST(NULL AS BIGINT) AS "position" FROM "c" GROUP BY "tool" UNION ALL '
        'SELECT "tool", 1, "success", COUNT("success"), "ms", 1, "session", "position" FROM "slow" '
        'GROUP BY "tool", "success", "ms", "session", "position"',
        selection.session_parameters,
    )


def call_arguments(read: StoreReader, session_id: str, position: int) -> str:
    """The first 200 characters of a tool call's arguments, as JSON."""
    ((text, blob),) = read.pairs(
        f'SELECT {head("argsJson", 200)}, "argsJsonBlob" FROM "tool_calls" '
        'WHERE "sessionId" = ? AND "position" = ?',
        (session_id, position),
    )
    return str(read.blob(blob) if blob else text)[:200]


class StepSums(TypedDict):
    """The iterations of all sessions: how many were checked, and what they changed."""

    n: int
    checks: int
    passed: int
    files: int
    added: int
    removed: int


def step_sums(selection: Selection) -> StepSums:
    """The iterations, their checks and their changes."""
    (row,) = selection.of_events(
        StepSums,
        "iterations",
        'COUNT(*) AS "n", COUNT(CASE WHEN t."testResult" <> \'\' THEN 1 END) AS "checks", '
        'COUNT(CASE WHEN t."testResult" = \'pass\' THEN 1 END) AS "passed", '
        'COALESCE(SUM(t."changedFiles"), 0) AS "files", COALESCE(SUM(t."linesAdded"), 0) AS "added", '
        'COALESCE(SUM(t."linesRemoved"), 0) AS "removed"',
    )
    return row


class MergeCount(TypedDict):
    """How many attempts to merge had one result."""

    result: str
    n: int


def merge_counts(selection: Selection) -> list[MergeCount]:
    """Attempts to merge by result, the most frequent first."""
    return selection.of_few_events(
        MergeCount,
        "merge_history",
        't."result" AS "result", COUNT(*) AS "n"',
        'GROUP BY t."result" ORDER BY "n" DESC, "result"',
    )


# Failures, mocks and attempts.


class FailedItem(TypedDict):
    """An item that did not succeed; its long texts are cut."""

    id: str
    runId: str
    repo: str
    prompt: str
    model: str
    agent: str
    error: str
    status: str
    reason: str
    sessionId: str | None


def failed_items(selection: Selection) -> list[FailedItem]:
    """The first of the items that did not succeed, in the order of the plan; loose sessions come last."""
    text = ", ".join(
        head(f"i.{name}", SHOWN_CHARACTERS) for name in ("repo", "prompt", "model", "agent", "error")
    )
    items = selection.of_items(
        FailedItem,
        f'i."id" AS "id", i."runId" AS "runId", {text}, i."status" AS "status", i."reason" AS "reason", '
        'i."sessionId" AS "sessionId"',
        f'AND i."status" IN ({_NOT_PASSED}) ORDER BY i."runId", i."position" LIMIT {LISTED_FAILURES}',
    )
    if len(items) == LISTED_FAILURES:
        return list(cut(items, SHOWN_CHARACTERS, "prompt", "error"))
    loose = selection.of_loose_sessions(
        FailedItem,
        "'' AS \"id\", '' AS \"runId\", '' AS \"repo\", "
        f"{head('s.name', SHOWN_CHARACTERS, 'prompt')}, {head('s.error', SHOWN_CHARACTERS)}, "
        's."model" AS "model", s."agent" AS "agent", '
        's."status" AS "status", s."endReason" AS "reason", s."id" AS "sessionId"',
        f'AND s."status" IN ({_NOT_PASSED}) ORDER BY s."startedAt", s."id" LIMIT {LISTED_FAILURES}',
    )
    return list(cut([*items, *loose][:LISTED_FAILURES], SHOWN_CHARACTERS, "prompt", "error"))


def unchecked_successes(selection: Selection) -> int:
    """Imported sessions with the status `success` and no score: their source only says that they ended."""
    return selection.read.count(
        f'"sessions" s WHERE {selection.sessions} '
        f"AND s.\"job\" = '{IMPORTED}' AND s.\"status\" = '{SUCCESS}' AND s.\"source\" <> '{TABLE}' "
        'AND NOT EXISTS (SELECT 1 FROM "scores" t WHERE t."sessionId" = s."id" AND t."value" IS NOT NULL)',
        selection.session_parameters,
    )


class MockSessions(TypedDict):
    """The sessions of one mock agent or model."""

    agent: str
    model: str
    n: int


def mock_sessions(selection: Selection) -> list[MockSessions]:
    """The sessions of mocks by agent and model, the most frequent first."""
    return selection.of_sessions(
        MockSessions,
        's."agent" AS "agent", s."model" AS "model", COUNT(*) AS "n"',
        f'AND s."isMock" = 1 GROUP BY s."agent", s."model" ORDER BY "n" DESC, 1, 2 LIMIT {LISTED_MOCKS}',
    )


class SessionSums(TypedDict):
    """All sessions, whatever their result."""

    n: int
    work: float
    waiting: float
    """Seconds queued or paused for a rate limit."""
    interventions: int
    """How often an agent stopped to ask a human."""
    noted: int
    retried: int
    """Items that needed more than one attempt."""
    mocks: int
    """Sessions of mock agents or models."""


def session_sums(selection: Selection) -> SessionSums:
    """Sessions, their time, and how many were retried, noted or run by mocks."""
    (row,) = selection.of_sessions(
        SessionSums,
        'COUNT(*) AS "n", COALESCE(SUM(s."workSeconds"), 0.0) AS "work", '
        'COALESCE(SUM(s."waitingSeconds"), 0.0) AS "waiting", '
        'COALESCE(SUM(s."interventions"), 0) AS "interventions", '
        'COALESCE(SUM(CASE WHEN s."notes" = \'[]\' THEN 0 ELSE 1 END), 0) AS "noted", '
        # Attempts are numbered from 1, so each item that was retried has exactly one second attempt.
        'COUNT(CASE WHEN s."attempt" = 2 THEN 1 END) AS "retried", '
        'COALESCE(SUM(s."isMock"), 0) AS "mocks"',
    )
    return row


def newest_run_ids(selection: Selection) -> list[str]:
    """The batches of the selected sessions, the newest first."""
    return selection.read.values(
        str,
        'SELECT "runId" FROM "batches" WHERE "runId" IN '
        f'(SELECT s."runId" FROM "sessions" s WHERE {selection.sessions}) ORDER BY "createdAt" DESC, "runId"',
        selection.session_parameters,
    )


# Outcomes.


class OutcomeSums(TypedDict):
    """The items with the same status and reason."""

    status: str
    reason: str
    items: int


def outcome_sums(selection: Selection) -> list[OutcomeSums]:
    """The items by status and reason, finished or not; sessions of no run count as items."""
    items = selection.of_items(
        OutcomeSums, 'i."status" AS "status", i."reason" AS "reason", COUNT(*) AS "items"', "GROUP BY 1, 2"
    )
    loose = selection.of_loose_sessions(
        OutcomeSums,
        's."status" AS "status", s."endReason" AS "reason", COUNT(*) AS "items"',
        "GROUP BY 1, 2",
    )
    return [*items, *loose]


# Progress of one batch.


class UsageSums(TypedDict):
    """Tokens and money; None: no row, or no known price."""

    tokens: int | None
    cost: float | None
    unchecked: int | None


class RunningItemRow(TypedDict):
    """A running item; its prompt is cut."""

    id: str
    repo: str
    prompt: str
    model: str
    agent: str
    repeat: int
    startedAt: str | None
    sessionId: str | None
    tokens: int | None
    toolName: str | None
    """Its last tool call."""
    speaker: str | None
    """Who wrote its last message."""
    isTool: int | None
    """1: the tool call is newer than the message."""


class MakerSums(TypedDict):
    """Items of one agent, model and status."""

    agent: str
    model: str
    status: str
    items: int
    unchecked: int
    tokens: int | None
    cost: float | None
    repeats: int
    """The highest number of a repeat among them; 1: no task is repeated."""


class TaskSums(TypedDict):
    """Tasks of one agent and model with the same results."""

    agent: str
    model: str
    passed: int
    judged: int
    """Items of each task that passed, and that passed, failed or timed out."""
    tasks: int


_UNCHECKED_ITEMS = f'SUM(CASE WHEN "reason" = \'{UNCHECKED}\' THEN 1 ELSE 0 END) AS "unchecked"'


def finished_prefix(read: StoreReader, run_id: str) -> int:
    """The position of the first item that has not ended; of a finished batch, the one after its last."""
    first = read.value(
        int,
        'SELECT MIN("first") FROM ('
        'SELECT MIN("position") AS "first" FROM "batch_items" WHERE "runId" = ? AND "status" = ? UNION ALL '
        'SELECT MIN("position") FROM "batch_items" WHERE "runId" = ? AND "status" = ?) AS "firsts"',
        (run_id, QUEUED, run_id, RUNNING),
    )
    if first is None:
        last = read.value(int, 'SELECT MAX("position") FROM "batch_items" WHERE "runId" = ?', (run_id,))
        return 0 if last is None else last + 1
    return first


def sums_between(read: StoreReader, run_id: str, start: int, end: int) -> UsageSums:
    """The sums of the items from one position up to another, which is left out."""
    (row,) = read.rows(
        UsageSums,
        f'SELECT SUM("tokensTotal") AS "tokens", SUM("costUsd") AS "cost", {_UNCHECKED_ITEMS} '
        'FROM "batch_items" '
        'WHERE "runId" = ? AND "position" >= ? AND "position" < ?',
        (run_id, start, end),
    )
    return row


def finished_sums(read: StoreReader, run_id: str, start: int) -> UsageSums:
    """The sums of the finished items from a position on."""
    (row,) = read.rows(
        UsageSums,
        f'SELECT SUM("tokensTotal") AS "tokens", SUM("costUsd") AS "cost", {_UNCHECKED_ITEMS} '
        'FROM "batch_items" '
        f'WHERE "runId" = ? AND "status" IN ({_FINISHED}) AND "position" >= ?',
        (run_id, start),
    )
    return row


def running_sums(read: StoreReader, run_id: str) -> UsageSums:
    """The sums of the model calls of running items."""
    (row,) = read.rows(
        UsageSums,
        'SELECT SUM("promptTokens" + "completionTokens") AS "tokens", SUM("costUsd") AS "cost", '
        '0 AS "unchecked" FROM "model_calls" WHERE "sessionId" IN '
        '(SELECT "sessionId" FROM "batch_items" WHERE "runId" = ? AND "status" = ?)',
        (run_id, RUNNING),
    )
    return row


def running_items(read: StoreReader, run_id: str) -> list[RunningItemRow]:
    """The items that have been running longest."""

    def last(column: str, table: str) -> str:
        return (
            f'(SELECT {column} FROM "{table}" t WHERE t."sessionId" = i."sessionId" '
            'ORDER BY t."position" DESC LIMIT 1)'
        )

    speaker = 'CASE WHEN t."name" = \'\' THEN t."role" ELSE t."name" END'
    position, tool = 't."position"', 't."toolName"'
    rows = read.rows(
        RunningItemRow,
        f'SELECT "id", "repo", {head("prompt", SHOWN_CHARACTERS)}, "model", "agent", '
        '"repeat", "startedAt", "sessionId", '
        '(SELECT SUM(t."promptTokens" + t."completionTokens") FROM "model_calls" t '
        'WHERE t."sessionId" = i."sessionId") AS "tokens", '
        f'{last(tool, "tool_calls")} AS "toolName", {last(speaker, "messages")} AS "speaker", '
        f"CASE WHEN {last(position, 'tool_calls')} > COALESCE({last(position, 'messages')}, -1) "
        'THEN 1 ELSE 0 END AS "isTool" FROM "batch_items" i '
        f'WHERE "runId" = ? AND "status" = ? ORDER BY "startedAt", "position" LIMIT {SHOWN_RUNNING}',
        (run_id, RUNNING),
    )
    return list(cut(rows, SHOWN_CHARACTERS, "prompt"))


def maker_sums(read: StoreReader, run_id: str) -> list[MakerSums]:
    """Items, tokens and cost by agent, model and status."""
    return read.rows(
        MakerSums,
        f'SELECT "agent", "model", "status", COUNT(*) AS "items", {_UNCHECKED_ITEMS}, '
        'SUM("tokensTotal") AS "tokens", SUM("costUsd") AS "cost", MAX("repeat") AS "repeats" '
        'FROM "batch_items" '
        'WHERE "runId" = ? GROUP BY "agent", "model", "status" ORDER BY "agent", "model", "status"',
        (run_id,),
    )


def task_sums(read: StoreReader, run_id: str) -> list[TaskSums]:
    """How many tasks have which results, by agent and model. Repeats of a task are one task; unchecked
    successes and infrastructure errors are excluded."""
    return read.rows(
        TaskSums,
        'SELECT "agent", "model", "passed", "judged", COUNT(*) AS "tasks" FROM ('
        f"""SELECT "agent", "model", SUM(CASE WHEN "status" = '{SUCCESS}' THEN 1 ELSE 0 END) AS "passed", """
        'COUNT(*) AS "judged" FROM "batch_items" WHERE "runId" = ? '
        f"""AND "status" IN ('{SUCCESS}', '{FAIL}', '{TIMEOUT}') """
        f"""AND NOT ("status" = '{SUCCESS}' AND "reason" = '{UNCHECKED}') """
        'GROUP BY "agent", "model", "digest") AS "tasks" '
        'GROUP BY "agent", "model", "passed", "judged" ORDER BY "agent", "model", "passed", "judged"',
        (run_id,),
    )


# Cost and time of earlier work, for estimates.


class ScenarioTotals(TypedDict):
    """Tokens, cost and calls of one completed run of a scenario."""

    tokensTotal: int
    costUsd: float | None
    calls: int | None


class ItemKey(TypedDict):
    """An item of a batch."""

    runId: str
    id: str


class PastSession(TypedDict):
    """A session that ended, with the item it was an attempt of. `factors` is a JSON text."""

    id: str
    agent: str
    model: str
    isMock: int
    workSeconds: float | None
    prompt: str | None
    factors: str | None


class CallSums(TypedDict):
    """Tokens of the calls of one model in a session."""

    sessionId: str
    provider: str
    model: str
    priceSource: str
    calls: int
    promptTokens: int
    cachedTokens: int
    completionTokens: int
    cost: float | None


def scenario_totals(read: StoreReader, scenario: str) -> list[ScenarioTotals]:
    """Tokens, cost and calls of the completed runs of a scenario."""
    is_scenario, prompts = read.is_one_of("i.prompt", "batch_items.prompt", [scenario])
    return read.rows(
        ScenarioTotals,
        'SELECT i."tokensTotal", i."costUsd", '
        '(SELECT SUM(s."modelCalls") FROM "sessions" s WHERE s."runId" = i."runId" AND s."itemId" = i."id") '
        'AS "calls" FROM "batch_items" i JOIN "batches" b ON b."runId" = i."runId" '
        f'WHERE b."job" = ? AND i."status" = ? AND {is_scenario}',
        ("scenario", SUCCESS, *prompts),
    )


def scenario_items(read: StoreReader, scenario: str) -> list[ItemKey]:
    """The completed runs of a scenario, the latest first."""
    is_scenario, prompts = read.is_one_of("i.prompt", "batch_items.prompt", [scenario])
    return read.rows(
        ItemKey,
        'SELECT i."runId", i."id" FROM "batch_items" i JOIN "batches" b ON b."runId" = i."runId" '
        f'WHERE b."job" = ? AND i."status" = ? AND {is_scenario} ORDER BY i."finishedAt" DESC LIMIT ?',
        ("scenario", SUCCESS, *prompts, MOST_RUNS),
    )


def past_sessions(
    read: StoreReader, job: str, models: Sequence[str], statuses: Sequence[str]
) -> list[PastSession]:
    """The latest sessions of a job with some models that ended in some statuses."""
    rows = read.rows(
        PastSession,
        'SELECT s."id", s."agent", s."model", s."isMock", s."workSeconds", '
        f'{head("i.prompt", SHOWN_CHARACTERS)}, i."factors" FROM "sessions" s '
        'LEFT JOIN "batch_items" i ON i."runId" = s."runId" AND i."id" = s."itemId" '
        f'WHERE s."job" = ? AND s."model" IN ({places(models)}) AND s."status" IN ({places(statuses)}) '
        f'ORDER BY s."startedAt" DESC LIMIT {MOST_SESSIONS}',
        (job, *models, *statuses),
    )
    return list(cut(rows, SHOWN_CHARACTERS, "prompt"))


def call_sums(read: StoreReader, session_ids: Sequence[str]) -> Iterator[CallSums]:
    """The tokens of sessions, by provider, model and source of the price."""
    for start in range(0, len(session_ids), SESSIONS_AT_ONCE):
        some = session_ids[start : start + SESSIONS_AT_ONCE]
        yield from read.rows(
            CallSums,
            'SELECT "sessionId", "provider", "model", "priceSource", COUNT(*) AS "calls", '
            'SUM("promptTokens") AS "promptTokens", SUM("cachedTokens") AS "cachedTokens", '
            'SUM("completionTokens") AS "completionTokens", SUM("costUsd") AS "cost" FROM "model_calls" '
            f'WHERE "sessionId" IN ({places(some)}) '
            'GROUP BY "sessionId", "provider", "model", "priceSource"',
            some,
        )


class SessionUsage(TypedDict):
    """Tokens and money of a running session."""

    id: str
    tokens: int | None
    cost: float | None


def running_usage(read: StoreReader, run_id: str) -> list[SessionUsage]:
    """What the running sessions of a batch have used so far."""
    return read.rows(
        SessionUsage,
        'SELECT c."sessionId" AS "id", SUM(c."promptTokens" + c."completionTokens") AS "tokens", '
        'SUM(c."costUsd") AS "cost" FROM "model_calls" c WHERE c."sessionId" IN '
        '(SELECT s."id" FROM "sessions" s WHERE s."runId" = ? AND s."status" = ?) GROUP BY c."sessionId"',
        (run_id, RUNNING),
    )
