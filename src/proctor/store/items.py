"""Items of a batch: rows of a page; states, results and outcomes of all of them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from typing_extensions import TypedDict

from proctor.item import FINISHED, QUEUED, RUNNING, STATUSES
from proctor.json_values import CamelJson, JsonObject, as_map, as_number
from proctor.store.codec import cut, head
from proctor.store.database import extended, id_pages, literals, places
from proctor.store.reader import StoreReader, uses_postgres

SHOWN_CHARACTERS = 300
"""Of a prompt or an error in a list."""
PLAIN = (
    "id",
    "position",
    "repeat",
    "repo",
    "agent",
    "model",
    "factors",
    "status",
    "reason",
    "startedAt",
    "finishedAt",
    "sessionId",
    "iterSha",
    "tokensTotal",
    "toolCalls",
    "costUsd",
)
CUT = ("prompt", "error")
PAGE_COLUMNS = ", ".join([f'"{name}"' for name in PLAIN] + [head(name, SHOWN_CHARACTERS) for name in CUT])
_IN_A_PATH = re.compile(r'[^"\\\x00-\x1f]+')
"""Names that can be quoted in a JSON path."""


class _ItemPageColumns(TypedDict):
    id: str
    position: int
    repeat: int
    repo: str
    agent: str
    model: str
    status: str
    reason: str
    startedAt: str | None
    finishedAt: str | None
    sessionId: str | None
    iterSha: str | None
    tokensTotal: int
    toolCalls: int
    costUsd: float | None
    prompt: str
    error: str


class _StoredPageItem(_ItemPageColumns):
    factors: str


class OutcomeScore(TypedDict):
    """The result of one evaluator for an item."""

    value: float | None
    """Mean, if it gave several."""
    label: str
    """Empty: none, or several different ones."""


@dataclass(slots=True)
class ItemOutcome(CamelJson):
    """What came out of the last session of an item."""

    answer: str = ""
    """The start of the last answer."""
    check_output: str = ""
    """The end of the output of the last check."""
    scores: dict[str, OutcomeScore] = field(default_factory=dict)
    """By evaluator, or evaluator/dimension."""
    tags: list[str] = field(default_factory=list)
    notes: int = 0
    """Number of notes."""
    is_starred: bool = False


class PageItem(_ItemPageColumns):
    """An item in a list: its factors read, its prompt and its error cut."""

    factors: JsonObject
    seconds: float | None
    """Duration."""
    outcome: ItemOutcome | None
    """Null: not requested, or not started."""


class AgentModelCount(TypedDict):
    """The items of one pair of agent and model."""

    agent: str
    model: str
    items: int


def rows_at(read: StoreReader, run_id: str, positions: Sequence[int]) -> list[PageItem]:
    """The items at these positions of the plan, in the order given."""
    if not positions:
        return []
    rows = read.rows(
        _StoredPageItem,
        f'SELECT {PAGE_COLUMNS} FROM "batch_items" WHERE "runId" = ? AND "position" IN ({places(positions)})',
        (run_id, *positions),
    )
    items = {row["position"]: _opened(row) for row in rows}
    return [items[position] for position in positions if position in items]


def first_rows(read: StoreReader, run_id: str, *, offset: int, limit: int) -> list[PageItem]:
    """One page of all items in plan order; needs no listing."""
    rows = read.rows(
        _StoredPageItem,
        f'SELECT {PAGE_COLUMNS} FROM "batch_items" WHERE "runId" = ? ORDER BY "position" LIMIT ? OFFSET ?',
        (run_id, limit, offset),
    )
    return [_opened(row) for row in rows]


def items_by_id(read: StoreReader, run_id: str, ids: Sequence[str]) -> list[PageItem]:
    """Items by their whole ids, in plan order."""
    if not ids:
        return []
    rows = read.rows(
        _StoredPageItem,
        f'SELECT {PAGE_COLUMNS} FROM "batch_items" WHERE "runId" = ? AND "id" IN ({places(ids)})',
        (run_id, *ids),
    )
    # Not sorted by SQLite, which would read all items in the order of the plan.
    return [_opened(row) for row in sorted(rows, key=lambda row: row["position"])]


def running_ids(read: StoreReader, run_id: str, *, limit: int) -> set[str]:
    """Ids of running items."""
    sql = 'SELECT "id" FROM "batch_items" WHERE "runId" = ? AND "status" = ? LIMIT ?'
    return set(read.values(str, sql, (run_id, RUNNING, limit)))


def items_started_since(read: StoreReader, run_id: str, moment: str, *, limit: int) -> set[str]:
    """Ids of items with an attempt that started at or after a time."""
    sql = 'SELECT "itemId" FROM "sessions" WHERE "startedAt" >= ? AND "runId" = ? LIMIT ?'
    return set(filter(None, read.values(str, sql, (moment, run_id, limit))))


def status_counts(read: StoreReader, run_id: str) -> dict[str, int]:
    """How many items there are in each status; every status is there."""
    sql = 'SELECT "status", COUNT(*) FROM "batch_items" WHERE "runId" = ? GROUP BY "status"'
    return dict.fromkeys(STATUSES, 0) | dict(read.pairs(sql, (run_id,)))


def unfinished_count(read: StoreReader, run_id: str) -> int:
    """How many items have no result yet. The index by status has them together: others are not read."""
    return read.count(
        f'"batch_items" WHERE "runId" = ? AND "status" IN ({literals([QUEUED, RUNNING])})', (run_id,)
    )


def agent_model_counts(read: StoreReader, run_id: str) -> list[AgentModelCount]:
    """Number of items by agent and model, largest first."""
    return read.rows(
        AgentModelCount,
        'SELECT "agent", "model", COUNT(*) AS "items" FROM "batch_items" WHERE "runId" = ? '
        'GROUP BY "agent", "model" ORDER BY "items" DESC, "agent", "model" LIMIT 200',
        (run_id,),
    )


class ItemSettings(TypedDict):
    """The settings of the items with one digest, as JSON."""

    digest: str
    settings: str


def item_settings(read: StoreReader, run_id: str) -> list[ItemSettings]:
    """The distinct settings of the items of a batch."""
    return read.rows(
        ItemSettings, 'SELECT DISTINCT "digest", "settings" FROM "batch_items" WHERE "runId" = ?', (run_id,)
    )


WHOLLY_LIMITED = ("prompt", "function", "scenario", "dialogue")
"""Runners whose time limit is that of all work on an item; others also check out, set up and check."""
MOST_LIMITS = 5000


class _LimitedItems(TypedDict):
    runner: str
    settings: str


def time_limit(read: StoreReader, run_id: str) -> float | None:
    """The longest that an attempt of a run may work, in seconds; None: not every item has a limit, or too
    many have settings of their own to look at."""
    rows = read.rows(
        _LimitedItems,
        'SELECT DISTINCT "runner", "settings" FROM "batch_items" WHERE "runId" = ? LIMIT ?',
        (run_id, MOST_LIMITS + 1),
    )
    limits = [as_number(as_map(json.loads(row["settings"])), "timeoutSec") for row in rows]
    is_known = rows and len(rows) <= MOST_LIMITS and all(row["runner"] in WHOLLY_LIMITED for row in rows)
    known = [limit for limit in limits if limit]
    return max(known) if is_known and len(known) == len(limits) else None


class ItemState(TypedDict):
    """An item without its prompt and details, which are most of its row."""

    id: str
    status: str
    reason: str
    error: str
    settings: str
    factors: str
    model: str
    costUsd: float | None
    sessionId: str | None
    startedAt: str | None
    finishedAt: str | None


def item_states(read: StoreReader, run_id: str) -> list[ItemState]:
    """Every item of a batch in plan order, without its prompt and details: there may be many."""
    columns = ", ".join(f'"{name}"' for name in ItemState.__annotations__)
    return read.rows(
        ItemState, f'SELECT {columns} FROM "batch_items" WHERE "runId" = ? ORDER BY "position"', (run_id,)
    )


class ItemResult(TypedDict):
    """Where the result of an item is."""

    id: str
    runner: str
    settings: str
    sessionId: str | None
    status: str


def item_results(read: StoreReader, run_id: str, ids: Sequence[str]) -> list[ItemResult]:
    """Items of a batch by their whole ids, with their sessions."""
    results = list[ItemResult]()
    for part in id_pages(ids):
        results += read.rows(
            ItemResult,
            'SELECT "id", "runner", "settings", "sessionId", "status" FROM "batch_items" '
            f'WHERE "runId" = ? AND "id" IN ({places(part)})',
            (run_id, *part),
        )
    return results


class LevelStatusCount(TypedDict):
    """The items of one agent or model in one status."""

    level: str
    status: str
    n: int


def status_counts_by(
    read: StoreReader, run_id: str, column: Literal["agent", "model"]
) -> list[LevelStatusCount]:
    """How many items of each agent or model are in which status."""
    return read.rows(
        LevelStatusCount,
        f'SELECT "{column}" AS "level", "status", COUNT(*) AS "n" FROM "batch_items" '
        f'WHERE "runId" = ? GROUP BY "{column}", "status"',
        (run_id,),
    )


class ChangeSize(TypedDict):
    """How much the last session of an item changed."""

    id: str
    files: int
    added: int
    removed: int


def change_sizes(read: StoreReader, run_id: str, ids: Sequence[str]) -> list[ChangeSize]:
    """What items changed, by their whole ids; those without a step are missing."""
    sizes = list[ChangeSize]()
    for part in id_pages(ids):
        sizes += read.rows(
            ChangeSize,
            'SELECT i."id", SUM(t."changedFiles") AS "files", SUM(t."linesAdded") AS "added", '
            'SUM(t."linesRemoved") AS "removed" FROM "batch_items" i '
            'JOIN "iterations" t ON t."sessionId" = i."sessionId" '
            f'WHERE i."runId" = ? AND i."id" IN ({places(part)}) GROUP BY i."id"',
            (run_id, *part),
        )
    return sizes


def mock_models(read: StoreReader, run_id: str) -> list[str]:
    """The models of the sessions of a batch that were mocks."""
    sql = 'SELECT DISTINCT "model" FROM "sessions" WHERE "runId" = ? AND "isMock" = 1'
    return sorted(read.values(str, sql, (run_id,)))


def factor_names(read: StoreReader, run_id: str) -> list[str]:
    """The factors of the first thousand items."""
    texts = read.values(
        str,
        'SELECT DISTINCT "factors" FROM (SELECT "factors" FROM "batch_items" WHERE "runId" = ? '
        'ORDER BY "position" LIMIT 1000) AS "some"',
        (run_id,),
    )
    return sorted({name for text in texts for name in json.loads(text)})


def level_of(factor: str, *, is_postgres: bool, items: str = '"batch_items"') -> tuple[str, list[object]]:
    """SQL expression of an item's level of a factor, and its parameters."""
    if is_postgres:
        return f'CAST({items}."factors" AS jsonb) ->> CAST(? AS TEXT)', [factor]
    if _IN_A_PATH.fullmatch(factor):
        return f'json_extract({items}."factors", ?)', [f'$."{factor}"']
    # Slower, but works for any name.
    return f'(SELECT "value" FROM json_each({items}."factors") WHERE "key" = ?)', [factor]


def _opened(row: _StoredPageItem) -> PageItem:
    (shown,) = cut([row], SHOWN_CHARACTERS, *CUT)
    seconds = _seconds(row["startedAt"], row["finishedAt"])
    return extended(PageItem, shown, factors=json.loads(row["factors"]), seconds=seconds, outcome=None)


def _seconds(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


class BenchmarkItem(TypedDict):
    """An item of a benchmark without its inputs."""

    factors: str
    repeat: int
    status: str
    reason: str
    startedAt: str | None
    finishedAt: str | None
    tokensTotal: int
    costUsd: float | None
    sessionId: str | None


def benchmark_items(read: StoreReader, run_id: str) -> list[BenchmarkItem]:
    """The items of a benchmark in the order of the plan."""
    return read.rows(
        BenchmarkItem,
        'SELECT "factors", "repeat", "status", "reason", "startedAt", "finishedAt", "tokensTotal", '
        '"costUsd", "sessionId" FROM "batch_items" WHERE "runId" = ? ORDER BY "position"',
        (run_id,),
    )


class TaskResult(TypedDict):
    """Finished items of one task, model and status in one run."""

    task: str
    model: str
    status: str
    runId: str
    items: int


TASK = "task"
"""The factor that names the task of an item."""
MOST_TASK_RUNS = 200
"""The newest runs that the results of tasks are taken from."""


def task_results(read: StoreReader, jobs: Sequence[str]) -> list[TaskResult]:
    """Finished items by task, model and status, of the newest runs of these jobs, the newest first."""
    level, named = level_of(TASK, is_postgres=uses_postgres(read), items="i")
    return read.rows(
        TaskResult,
        'SELECT "task", "model", "status", "runId", COUNT(*) AS "items" FROM ('
        f'SELECT {level} AS "task", i."model" AS "model", i."status" AS "status", b."runId" AS "runId", '
        'b."createdAt" AS "createdAt" FROM "batch_items" i '
        'JOIN (SELECT "runId", "createdAt" FROM "batches" '
        f'WHERE "job" IN ({places(jobs)}) ORDER BY "createdAt" DESC LIMIT {MOST_TASK_RUNS}) b '
        'ON b."runId" = i."runId" '
        f'WHERE i."status" IN ({literals(FINISHED)})) AS "each" WHERE "task" IS NOT NULL '
        'GROUP BY "task", "model", "status", "runId", "createdAt" ORDER BY "createdAt" DESC, "runId"',
        (*named, *jobs),
    )


class DialogueItem(TypedDict):
    """A dialogue and how it ended."""

    id: str
    factors: str
    settings: str
    status: str
    reason: str
    error: str
    turns: float | None
    ended: str | None
    caused: str | None


def dialogue_items(read: StoreReader, run_id: str) -> list[DialogueItem]:
    """The dialogues of a batch in the order of the plan."""
    return read.rows(
        DialogueItem,
        'SELECT i."id", i."factors", i."settings", i."status", i."reason", i."error", '
        'MAX(CASE WHEN m."name" = \'num_turns\' THEN m."value" END) AS "turns", '
        'MAX(CASE WHEN m."name" = \'end_reason\' THEN m."label" END) AS "ended", '
        'MAX(CASE WHEN m."name" = \'caused_by\' THEN m."label" END) AS "caused" '
        'FROM "batch_items" i LEFT JOIN "metrics" m ON m."sessionId" = i."sessionId" AND m."step" = 0 '
        'WHERE i."runId" = ? GROUP BY i."runId", i."id", i."factors", i."settings", i."status", '
        'i."reason", i."error", i."position" ORDER BY i."position"',
        (run_id,),
    )
