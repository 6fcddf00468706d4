"""Pages of batches, filtered and counted in the database, and single batches.

A batch whose process died still has `running` in its row. Few do: the dead ones are looked up first, and
the query names them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, TypeVar, cast

from proctor.formatting import elapsed
from proctor.item import ERROR, EVALUATION, FAIL, RUNNING, SUCCESS, TIMEOUT, UNCHECKED
from proctor.json_values import as_map, as_text
from proctor.store.batches import ABORTED, INTERRUPTED, moment, with_current_status
from proctor.store.codec import contains
from proctor.store.database import id_pages, places, substring_pattern
from proctor.store.reader import ItemTotals, StatusSums, StoreReader, summed
from proctor.store.tables import BatchRow
from proctor.store.writer import is_alive, timestamp

SEARCHED = ("runId", "planPath", "planText")
SHOWN = ", ".join(
    f'"{name}"'
    for name in (
        "runId",
        "createdAt",
        "finishedAt",
        "job",
        "status",
        "reason",
        "planPath",
        "budgetUsd",
        "crashes",
        "owner",
        "heartbeatAt",
    )
)


class _Liveness(TypedDict):
    runId: str
    owner: str
    heartbeatAt: str | None


class _BatchState(_Liveness):
    status: str
    finishedAt: str | None


S = TypeVar("S", bound=_BatchState)


class ListedBatch(_BatchState):
    """A batch in a list."""

    createdAt: str
    job: str
    reason: str
    planPath: str
    budgetUsd: float | None
    crashes: int


class _RunStatusSums(StatusSums):
    runId: str
    judged: int | None
    unchecked: int | None


class RunTotals(ItemTotals):
    """The items of one batch, with how many of them were checked."""

    judged: int
    """Items that succeeded, failed or timed out, unchecked ones and evaluations excluded."""
    passed: int
    """Of them, those that succeeded."""
    unchecked: int
    """Successes that nothing checked."""


class LastChange(TypedDict):
    """When the newest batch was created, and when the last one ended; None: never."""

    at: str | None
    end: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """A filter on batches; an empty member matches all."""

    statuses: Sequence[str] = ()
    jobs: Sequence[str] = ()
    search: str = ""
    """Text that occurs in the id, the plan's path or its text."""


def count_batches(read: StoreReader, selection: RunFilter, now: datetime) -> int:
    """Count the batches that match a filter."""
    where, parameters = _where(read, selection, now)
    return read.count(f'"batches" WHERE {where}', parameters)


def page_of_batches(
    read: StoreReader, selection: RunFilter, now: datetime, *, limit: int, offset: int = 0
) -> list[ListedBatch]:
    """Batches, the newest first, with their current status."""
    where, parameters = _where(read, selection, now)
    rows = read.rows(
        ListedBatch,
        f'SELECT {SHOWN} FROM "batches" WHERE {where} ORDER BY "createdAt" DESC, "runId" LIMIT ? OFFSET ?',
        (*parameters, limit, offset),
    )
    return [_current(read, row, now) for row in rows]


def batches_by_id(read: StoreReader, run_ids: Sequence[str], now: datetime) -> list[ListedBatch]:
    """Batches by id, with their current status; deleted ones are missing."""
    if not run_ids:
        return []
    rows = read.rows(
        ListedBatch, f'SELECT {SHOWN} FROM "batches" WHERE {_is_one_of("runId", run_ids)}', run_ids
    )
    return [_current(read, row, now) for row in rows]


def batch_states(read: StoreReader, now: datetime) -> dict[str, tuple[str, str]]:
    """Current status and end of every batch, by id, to detect changes."""
    rows = read.rows(
        _BatchState, 'SELECT "runId", "status", "finishedAt", "owner", "heartbeatAt" FROM "batches"'
    )
    return {row["runId"]: (_current(read, row, now)["status"], row["finishedAt"] or "") for row in rows}


def totals_of(read: StoreReader, run_ids: Sequence[str]) -> dict[str, RunTotals]:
    """Totals of the items of each batch."""
    if not run_ids:
        return {}
    rows = read.rows(
        _RunStatusSums,
        'SELECT "runId", "status", COUNT(*) AS "items", SUM("tokensTotal") AS "tokens", '
        f"""SUM("costUsd") AS "cost", SUM(CASE WHEN "status" IN ('{SUCCESS}', '{FAIL}', '{TIMEOUT}') """
        f"""AND "reason" <> '{UNCHECKED}' AND "runner" <> '{EVALUATION}' THEN 1 ELSE 0 END) AS "judged", """
        f"""SUM(CASE WHEN "status" = '{SUCCESS}' AND "reason" = '{UNCHECKED}' THEN 1 ELSE 0 END) """
        'AS "unchecked" '
        f'FROM "batch_items" WHERE {_is_one_of("runId", run_ids)} GROUP BY "runId", "status"',
        run_ids,
    )
    of_runs: dict[str, list[_RunStatusSums]] = {run_id: [] for run_id in run_ids}
    for row in rows:
        of_runs[row["runId"]].append(row)
    return {run_id: _run_totals(own) for run_id, own in of_runs.items()}


def _run_totals(rows: Sequence[_RunStatusSums]) -> RunTotals:
    return {
        **summed(rows),
        "judged": sum(row["judged"] or 0 for row in rows),
        "passed": sum(row["judged"] or 0 for row in rows if row["status"] == SUCCESS),
        "unchecked": sum(row["unchecked"] or 0 for row in rows),
    }


class TrendRun(_BatchState):
    """A run with results, for its plan's trend."""

    createdAt: str
    job: str
    planPath: str
    planDigest: str
    evaluation: str | None
    """The name of the evaluation; None: the run is not an evaluation."""
    items: int


def trend_runs(read: StoreReader, now: datetime, *, limit: int = 2000) -> list[TrendRun]:
    """The latest runs that are not running, newest first. Deleted evaluations are missing."""
    rows = read.rows(
        TrendRun,
        'SELECT b."runId", b."status", b."finishedAt", b."owner", b."heartbeatAt", b."createdAt", b."job", '
        'b."planPath", b."planDigest", e."name" AS "evaluation", '
        '(SELECT COUNT(*) FROM "batch_items" i WHERE i."runId" = b."runId") AS "items" '
        'FROM "batches" b LEFT JOIN "evaluations" e ON e."id" = b."runId" '
        'WHERE e."deletedAt" IS NULL ORDER BY b."createdAt" DESC, b."runId" LIMIT ?',
        (limit,),
    )
    current = [_current(read, row, now) for row in rows]
    return [row for row in current if row["status"] != RUNNING and row["items"]]


class _ItemFactors(TypedDict):
    runId: str
    factors: str


def evaluators_of(read: StoreReader, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """The evaluators of evaluations, by run."""
    evaluators: dict[str, dict[str, None]] = {}
    for part in id_pages(list(run_ids)):
        sql = f'SELECT DISTINCT "runId", "factors" FROM "batch_items" WHERE {_is_one_of("runId", part)}'
        for run_id, factors in read.pairs(sql, part):
            if name := as_text(as_map(json.loads(factors)), "evaluator"):
                evaluators.setdefault(run_id, {})[name] = None
    return {run_id: list(names) for run_id, names in evaluators.items()}


def cut_off_counts(read: StoreReader, run_ids: Sequence[str]) -> dict[str, int]:
    """How many items of each batch an abort ended before they finished; batches without any are missing."""
    if not run_ids:
        return {}
    counts = read.pairs(
        f'SELECT "runId", COUNT(*) FROM "batch_items" WHERE {_is_one_of("runId", run_ids)} '
        'AND "status" = ? AND "reason" = ? GROUP BY "runId"',
        (*run_ids, ERROR, ABORTED),
    )
    return dict(counts)


def distinct_jobs(read: StoreReader) -> list[str]:
    """The job types of all batches."""
    return read.values(str, 'SELECT DISTINCT "job" FROM "batches" ORDER BY "job"')


def batch_of_plan_file(read: StoreReader, plan_path: str) -> str | None:
    """A batch created from this plan file; None: there is none."""
    return read.value(str, 'SELECT "runId" FROM "batches" WHERE "planPath" = ? LIMIT 1', (plan_path,))


def batches_of_job(read: StoreReader, job: str) -> list[BatchRow]:
    """The batches of one job type as written, newest first."""
    return read.rows(
        BatchRow, 'SELECT * FROM "batches" WHERE "job" = ? ORDER BY "createdAt" DESC, "runId" DESC', (job,)
    )


def run_ids_of_job(read: StoreReader, job: str) -> list[str]:
    """Ids of the batches of one job type, newest first."""
    return read.values(str, 'SELECT "runId" FROM "batches" WHERE "job" = ? ORDER BY "createdAt" DESC', (job,))


def last_change(read: StoreReader) -> LastChange:
    """Times of the last creation and end of a batch, to detect changes."""
    (row,) = read.rows(
        LastChange, 'SELECT MAX("createdAt") AS "at", MAX("finishedAt") AS "end" FROM "batches"'
    )
    return row


def _current(read: StoreReader, row: S, now: datetime) -> S:
    """A part of a batch's row with its current status."""
    return cast(S, with_current_status(cast(BatchRow, row), read.server_time(now)))


def _where(read: StoreReader, selection: RunFilter, now: datetime) -> tuple[str, list[object]]:
    parts, parameters = ["1 = 1"], list[object]()
    if selection.statuses:
        part, values = _status_where(read, selection.statuses, now)
        parts.append(part)
        parameters += values
    if selection.jobs:
        parts.append(_is_one_of("job", selection.jobs))
        parameters += selection.jobs
    if selection.search:
        parts.append("(" + " OR ".join(contains(name) for name in SEARCHED) + ")")
        parameters += [substring_pattern(selection.search)] * len(SEARCHED)
    return " AND ".join(parts), parameters


def _status_where(read: StoreReader, statuses: Sequence[str], now: datetime) -> tuple[str, list[object]]:
    rows = read.rows(
        _Liveness, 'SELECT "runId", "owner", "heartbeatAt" FROM "batches" WHERE "status" = ?', (RUNNING,)
    )
    now = read.server_time(now)
    dead = [row["runId"] for row in rows if not is_alive(row["owner"], moment(row["heartbeatAt"]), now)]
    parts, parameters = [_is_one_of("status", statuses)], list[object](statuses)
    if not dead:
        return parts[0], parameters
    if RUNNING in statuses and INTERRUPTED not in statuses:
        return f"({parts[0]} AND NOT {_is_one_of('runId', dead)})", parameters + dead
    if INTERRUPTED in statuses and RUNNING not in statuses:
        return f"({parts[0]} OR {_is_one_of('runId', dead)})", parameters + dead
    return parts[0], parameters


def _is_one_of(column: str, values: Sequence[object]) -> str:
    return f'"{column}" IN ({places(values)})'


class _Interval(TypedDict):
    startedAt: str | None
    finishedAt: str | None


def active_seconds(read: StoreReader, run_id: str, now: datetime) -> float:
    """Seconds in which an item of a run was executed: pauses between executions do not count."""
    rows = read.rows(
        _Interval,
        'SELECT "startedAt", "finishedAt" FROM "sessions" WHERE "runId" = ? AND "source" = ? '
        'ORDER BY "startedAt"',
        (run_id, "batch"),
    )
    seconds, until = 0.0, ""
    for row in rows:
        began, ended = row["startedAt"] or "", row["finishedAt"] or timestamp(now)
        # Timestamps of the store sort by time.
        if began and ended > max(began, until):
            seconds += elapsed(moment(max(began, until)), moment(ended)) or 0.0
            until = ended
    return seconds
