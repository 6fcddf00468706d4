"""Finished items as statistics read them: streamed, without texts that no figure needs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, TypedDict, cast

from proctor.item import FINISHED, QUEUED
from proctor.metric import METRICS
from proctor.store.batches import RetrySelection, executed_again
from proctor.store.database import literals
from proctor.store.reader import StoreReader

if TYPE_CHECKING:
    from proctor.store.aggregates import Selection

_FINISHED = literals(FINISHED)
WORK_SECONDS = 'COALESCE(s."agentSeconds", s."workSeconds")'
"""Work time that is compared: of a coding session the agent's own, without setup and checks."""
_MEASURED = [metric for metric in METRICS.values() if metric.item_column]


def _value(table: str, column: str) -> str:
    return WORK_SECONDS if column == "workSeconds" else f'{table}."{column}"'


_OF_ITEMS = ", ".join(f'{_value("i", each.item_column)} AS "{each.name}"' for each in _MEASURED)
_OF_SESSIONS = ", ".join(f'{_value("s", each.session_column)} AS "{each.name}"' for each in _MEASURED)
_COLUMNS = (
    'i."id", i."digest", i."repeat", i."runner", i."agent", i."model", '
    'i."prompt", i."factors", i."details", i."status", i."reason", '
    f'{_OF_ITEMS}, s."isMock", s."answeredModel", s."servedModels", s."agentVersion", '
    # The times are of use only where no session recorded the work. One column, since each takes its time.
    'CASE WHEN i."sessionId" IS NULL THEN i."startedAt" || \' \' || i."finishedAt" END AS "times" '
    'FROM "batch_items" i '
    'LEFT JOIN "sessions" s ON s."id" = i."sessionId" '
)
_OF_RUN = f'SELECT i."position" AS "key", {_COLUMNS}'
"""Without the ID of the run, which is the same in all rows."""


class InputColumns(TypedDict):
    """The inputs of some items, as columns of equal length."""

    digest: Sequence[str]
    """Of the inputs: the same for repeats."""
    runner: Sequence[str]
    agent: Sequence[str]
    model: Sequence[str]
    prompt: Sequence[str]
    details: Sequence[str]


class RunColumns(InputColumns):
    """Some finished items of a run, as columns of equal length; `metric_values` has what they measured."""

    key: Sequence[object]
    """What scores name the item by: its position in the run, or the session of its last attempt."""
    id: Sequence[str]
    repeat: Sequence[int]
    factors: Sequence[str]
    status: Sequence[str]
    reason: Sequence[str]
    isMock: Sequence[int | None]
    answeredModel: Sequence[str | None]
    """The models that answered in the last attempts; empty: the requested one, or unknown."""
    servedModels: Sequence[str | None]
    """By requested model, how many calls each model answered: JSON; None: no session."""
    agentVersion: Sequence[str | None]
    """The versions of the agents; empty: unknown."""
    times: Sequence[str | None]
    """Start and end, with a space between them. None: there is a session, or the times are unknown."""


class ResultColumns(RunColumns):
    """The same of several runs."""

    runId: Sequence[str]


class PlannedColumns(InputColumns):
    """Some items of a run, finished or not, as columns of equal length."""

    id: Sequence[str]
    repeat: Sequence[int]
    factors: Sequence[str]


class FinishedColumns(TypedDict):
    """How some items ended, as columns of equal length; `metric_values` has what they measured."""

    id: Sequence[str]
    status: Sequence[str]
    reason: Sequence[str]
    sessionId: Sequence[str | None]


def metric_values(page: RunColumns | FinishedColumns) -> dict[str, Sequence[float | None]]:
    """The values of each metric that is a column of items, by its name; times are of the last attempts."""
    columns = cast("Mapping[str, Sequence[float | None]]", page)
    return {metric.name: columns[metric.name] for metric in _MEASURED}


class ScoreColumns(TypedDict):
    """Some scores of sessions, as columns of equal length."""

    key: Sequence[object]
    """What names the item whose session was scored."""
    evaluator: Sequence[str]
    evaluatorDigest: Sequence[str]
    dimension: Sequence[str]
    value: Sequence[float]


class TimedScoreColumns(ScoreColumns):
    """The same with their times and authors."""

    judgingSessionId: Sequence[str]
    """The session that gave the score: of an evaluation, or the same one."""
    timestamp: Sequence[str | None]


class MetricColumns(TypedDict):
    """Some numbers measured in sessions, as columns of equal length."""

    key: Sequence[object]
    """What names the item of the session."""
    name: Sequence[str]
    value: Sequence[float]


class _LooseSession(TypedDict):
    """A finished session that belongs to no run."""

    id: str
    name: str
    agent: str
    model: str
    status: str
    reason: str
    isMock: int
    agentVersion: str


def result_columns(read: StoreReader, run_ids: Sequence[str]) -> Iterator[ResultColumns]:
    """The finished items of runs, run by run, in plan order."""
    for run_id in run_ids:
        pages = read.columns(
            RunColumns,
            f'{_OF_RUN}WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) ORDER BY i."position"',
            (run_id,),
        )
        yield from (_of_run(page, run_id) for page in pages)


def _of_run(page: RunColumns, run_id: str) -> ResultColumns:
    return {**page, "runId": (run_id,) * len(page["id"])}


class FirstPosition(TypedDict):
    """Where the items of an agent and model begin in a run."""

    agent: str
    model: str
    position: int


def first_positions(read: StoreReader, run_id: str) -> list[FirstPosition]:
    """The agents and models of a run in plan order; at most 50."""
    return read.rows(
        FirstPosition,
        'SELECT "agent", "model", MIN("position") AS "position" FROM "batch_items" WHERE "runId" = ? '
        'GROUP BY "agent", "model" ORDER BY "position" LIMIT 50',
        (run_id,),
    )


def first_columns(
    read: StoreReader, run_id: str, start: FirstPosition, limit: int
) -> Iterator[ResultColumns]:
    """The first finished items of an agent and model of a run, in plan order."""
    pages = read.columns(
        RunColumns,
        f'{_OF_RUN}WHERE i."runId" = ? AND i."position" >= ? AND i."agent" = ? AND i."model" = ? '
        f'AND i."status" IN ({_FINISHED}) ORDER BY i."position" LIMIT ?',
        (run_id, start["position"], start["agent"], start["model"], limit),
    )
    yield from (_of_run(page, run_id) for page in pages)


def without_digest(page: ResultColumns, digest: str) -> ResultColumns:
    """The rows of a page that have another digest."""
    chosen = [each != digest for each in page["digest"]]
    # Columns have the types they had.
    return cast(
        "ResultColumns",
        {name: tuple(compress(cast("Sequence[object]", values), chosen)) for name, values in page.items()},
    )


def selected_columns(selection: "Selection") -> Iterator[ResultColumns]:
    """The finished items of a selection, and its finished sessions that belong to no run, as items."""
    # The condition on items has sessions of its own, called `s` inside.
    yield from selection.read.columns(
        ResultColumns,
        f'SELECT i."runId", i."sessionId" AS "key", {_COLUMNS}'
        f'WHERE ({selection.items}) AND i."status" IN ({_FINISHED}) '
        'ORDER BY i."runId", i."position"',
        selection.item_parameters,
    )
    loose = selection.of_loose_sessions(
        _LooseSession,
        's."id", s."name", s."agent", s."model", s."status", s."endReason" AS "reason", '
        f'{_OF_SESSIONS}, s."isMock", s."agentVersion"',
        f'AND s."status" IN ({_FINISHED}) ORDER BY s."startedAt", s."id"',
    )
    if loose:
        yield _as_items(loose)


def _as_items(sessions: Sequence[_LooseSession]) -> ResultColumns:
    """Sessions without a run as items; the name of each is its task."""
    count = len(sessions)
    tasks = [each["name"] or each["id"] for each in sessions]
    levels = [{"agent": each["agent"], "model": each["model"]} for each in sessions]
    columns: ResultColumns = {
        "runId": [""] * count,
        "id": [each["id"] for each in sessions],
        "digest": [
            json.dumps([session["agent"], session["model"], task])
            for session, task in zip(sessions, tasks, strict=True)
        ],
        "repeat": [1] * count,
        "runner": [""] * count,
        "agent": [each["agent"] for each in sessions],
        "model": [each["model"] for each in sessions],
        "prompt": tasks,
        "factors": [json.dumps({name: level for name, level in each.items() if level}) for each in levels],
        "details": ["{}"] * count,
        "status": [each["status"] for each in sessions],
        "reason": [each["reason"] for each in sessions],
        "key": [each["id"] for each in sessions],
        "isMock": [each["isMock"] for each in sessions],
        "answeredModel": [None] * count,
        "servedModels": [None] * count,
        "agentVersion": [each["agentVersion"] for each in sessions],
        "times": [None] * count,
    }
    values = [cast("Mapping[str, float | None]", each) for each in sessions]
    amounts = {metric.name: [each[metric.name] for each in values] for metric in _MEASURED}
    return cast("ResultColumns", {**columns, **amounts})


def planned_columns(read: StoreReader, run_id: str) -> Iterator[PlannedColumns]:
    """All items of a run in plan order."""
    return read.columns(
        PlannedColumns,
        'SELECT "id", "digest", "repeat", "runner", "agent", "model", "prompt", "factors", "details" '
        'FROM "batch_items" WHERE "runId" = ? ORDER BY "position"',
        (run_id,),
    )


def finished_columns(read: StoreReader, run_id: str, item_id: str = "") -> Iterator[FinishedColumns]:
    """How the finished items of a run ended, or one of them, in plan order, without their inputs."""
    of_item = ' AND i."id" = ?' if item_id else ""
    return read.columns(
        FinishedColumns,
        'SELECT i."id", i."status", i."reason", i."sessionId", '
        f"{_OF_ITEMS} "
        'FROM "batch_items" i '
        'LEFT JOIN "sessions" s ON s."id" = i."sessionId" '
        f'WHERE i."runId" = ?{of_item} AND i."status" IN ({_FINISHED}) ORDER BY i."position"',
        (run_id, item_id) if item_id else (run_id,),
    )


@dataclass(frozen=True, slots=True)
class ScoredSessions:
    """The last attempts of items, or sessions of no run, as the middle of a query."""

    tables: str
    session: str
    """The column with the session."""
    key: str
    """The column by which rows are named: `key` in what is read."""
    condition: str
    parameters: tuple[object, ...]
    run_id: str = ""
    """The run whose positions the keys are. Empty: keys are sessions."""


def of_runs(run_ids: Sequence[str]) -> list[ScoredSessions]:
    """The last attempts of runs."""
    return [
        ScoredSessions(
            '"batch_items" i', 'i."sessionId"', 'i."position"', 'i."runId" = ?', (run_id,), run_id=run_id
        )
        for run_id in run_ids
    ]


def of_selection(selection: "Selection") -> list[ScoredSessions]:
    """The last attempts of the items of a selection, and its sessions that belong to no run."""
    # The condition on items has sessions of its own, called `s` inside.
    sources = [
        ScoredSessions(
            '"batch_items" i',
            'i."sessionId"',
            'i."sessionId"',
            f"({selection.items})",
            tuple(selection.item_parameters),
        )
    ]
    if selection.has_loose:
        loose = f'({selection.sessions}) AND s."runId" IS NULL'
        parameters = tuple(selection.session_parameters)
        sources.append(ScoredSessions('"sessions" s', 's."id"', 's."id"', loose, parameters))
    return sources


def settled_items(read: StoreReader, run_id: str, again: RetrySelection) -> set[str]:
    """The ids of the items that resuming a run does not execute."""
    condition, parameters = executed_again(again)
    sql = f'SELECT "id" FROM "batch_items" WHERE "runId" = ? AND "status" <> ? AND NOT ({condition})'
    return set(read.values(str, sql, (run_id, QUEUED, *parameters)))


_SCORE = 'sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."value"'


def own_score_columns(read: StoreReader, source: ScoredSessions) -> Iterator[ScoreColumns]:
    """The scores of sessions that their own runs gave, without times."""
    return read.columns(
        ScoreColumns,
        f'SELECT {source.key} AS "key", {_SCORE} '
        f'FROM {source.tables} JOIN "scores" sc ON sc."sessionId" = {source.session} '
        f'WHERE {source.condition} AND sc."value" IS NOT NULL',
        source.parameters,
    )


def timed_score_columns(
    read: StoreReader, source: ScoredSessions, *, of_evaluations: bool
) -> Iterator[TimedScoreColumns]:
    """The scores that later evaluations gave to sessions, or the sessions' own ones."""
    column, condition = (
        ("scoredSessionId", 'sc."sessionId" <> sc."scoredSessionId"')
        if of_evaluations
        else ("sessionId", "1 = 1")
    )
    return read.columns(
        TimedScoreColumns,
        f'SELECT {source.key} AS "key", {_SCORE}, sc."sessionId" AS "judgingSessionId", sc."timestamp" '
        f'FROM {source.tables} JOIN "scores" sc ON sc."{column}" = {source.session} '
        f'WHERE {source.condition} AND sc."value" IS NOT NULL AND {condition}',
        source.parameters,
    )


def has_evaluations(read: StoreReader) -> bool:
    """Whether any session of the store was scored later: if not, no item has to be looked up."""
    return read.value(int, 'SELECT 1 FROM "scores" WHERE "scoredSessionId" > \'\' LIMIT 1') is not None


def has_metrics(read: StoreReader) -> bool:
    """Whether any session of the store measured numbers."""
    return read.value(int, 'SELECT 1 FROM "metrics" LIMIT 1') is not None


def metric_columns(read: StoreReader, source: ScoredSessions) -> Iterator[MetricColumns]:
    """The numbers measured in sessions, in the order of their steps."""
    return read.columns(
        MetricColumns,
        f'SELECT {source.key} AS "key", m."name", m."value" FROM {source.tables} '
        f'JOIN "metrics" m ON m."sessionId" = {source.session} '
        f'WHERE {source.condition} AND m."value" IS NOT NULL ORDER BY m."step", m."position"',
        source.parameters,
    )


class EvaluatorSource(TypedDict):
    """What declares the evaluators that a session applied."""

    settings: str
    """Of its item: the criteria of a dialogue or scenario are there."""
    definitionsJson: str | None
    """Of its evaluation, by the names of the request. None: it is no evaluation."""


def evaluator_source(read: StoreReader, judging_session: str) -> EvaluatorSource | None:
    """What declares the evaluators that a session applied; None: it is of no run."""
    rows = read.rows(
        EvaluatorSource,
        'SELECT i."settings", e."definitionsJson" FROM "sessions" s '
        'JOIN "batch_items" i ON i."runId" = s."runId" AND i."id" = s."itemId" '
        'LEFT JOIN "evaluations" e ON e."id" = s."runId" WHERE s."id" = ?',
        (judging_session,),
    )
    return rows[0] if rows else None
