"""Pages of batches, filtered and counted in the database, and single batches.

A batch whose process died still has `running` in its row. Few do: the dead ones are looked up first, and
the rest of the query names them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, TypeVar, cast

from proctor.item import RUNNING
from proctor.store.batches import INTERRUPTED, moment, with_true_status
from proctor.store.database import containing, places
from proctor.store.items import CountRow, ItemTotals, RunIdRow, StatusSums, StoreReader, summed
from proctor.store.tables import BatchRow
from proctor.store.writer import is_alive

SEARCHED = ("runId", "planPath", "planText")


SHOWN = ", ".join(
    f'"{name}"'
    for name in (
        *("runId", "createdAt", "finishedAt", "job", "status", "reason", "planPath"),
        *("budgetUsd", "owner", "heartbeatAt"),
    )
)


class _Liveness(TypedDict):
    runId: str
    owner: str
    heartbeatAt: str | None


class _Standing(_Liveness):
    status: str
    finishedAt: str | None


S = TypeVar("S", bound=_Standing)


class ListedBatch(_Standing):
    """A batch in a list."""

    createdAt: str
    job: str
    reason: str
    planPath: str
    budgetUsd: float | None


class _RunStatusSums(StatusSums):
    runId: str


class _Job(TypedDict):
    job: str


class LastChange(TypedDict):
    """When the newest batch was created, and when the last one ended; None: never."""

    at: str | None
    end: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which batches to look at. What is empty leaves all."""

    statuses: Sequence[str] = ()
    jobs: Sequence[str] = ()
    search: str = ""
    """Text that occurs in the id, the plan's path or its text."""


def count_batches(read: StoreReader, wanted: RunFilter, now: datetime) -> int:
    """How many batches a filter leaves."""
    where, parameters = _where(read, wanted, now)
    (found,) = read.rows(CountRow, f'SELECT COUNT(*) AS "n" FROM "batches" WHERE {where}', parameters)
    return int(found["n"])


def page_of_batches(
    read: StoreReader, wanted: RunFilter, now: datetime, *, limit: int, offset: int = 0
) -> list[ListedBatch]:
    """Batches, the newest first, with their current status."""
    where, parameters = _where(read, wanted, now)
    rows = read.rows(
        ListedBatch,
        f'SELECT {SHOWN} FROM "batches" WHERE {where} ORDER BY "createdAt" DESC, "runId" LIMIT ? OFFSET ?',
        (*parameters, limit, offset),
    )
    return [_current(row, now) for row in rows]


def batches_named(read: StoreReader, run_ids: Sequence[str], now: datetime) -> list[ListedBatch]:
    """These batches, with their status as it is now; those that are gone are left out."""
    if not run_ids:
        return []
    rows = read.rows(ListedBatch, f'SELECT {SHOWN} FROM "batches" WHERE {_among("runId", run_ids)}', run_ids)
    return [_current(row, now) for row in rows]


def standing_of_all(read: StoreReader, now: datetime) -> dict[str, tuple[str, str]]:
    """Every batch there is, by id, with what tells whether it has changed: its status, when it ended."""
    rows = read.rows(
        _Standing, 'SELECT "runId", "status", "finishedAt", "owner", "heartbeatAt" FROM "batches"'
    )
    return {row["runId"]: (_current(row, now)["status"], row["finishedAt"] or "") for row in rows}


def totals_of(read: StoreReader, run_ids: Sequence[str]) -> dict[str, ItemTotals]:
    """How many items of each batch are in each status, and what they took together."""
    if not run_ids:
        return {}
    rows = read.rows(
        _RunStatusSums,
        'SELECT "runId", "status", COUNT(*) AS "items", SUM("tokensTotal") AS "tokens", '
        f'SUM("costUsd") AS "cost" FROM "batch_items" WHERE {_among("runId", run_ids)} '
        'GROUP BY "runId", "status"',
        run_ids,
    )
    return {run_id: summed([row for row in rows if row["runId"] == run_id]) for run_id in run_ids}


def jobs_there_are(read: StoreReader) -> list[str]:
    """The jobs that batches were made for."""
    return [row["job"] for row in read.rows(_Job, 'SELECT DISTINCT "job" FROM "batches" ORDER BY "job"')]


def batch_from(read: StoreReader, plan_path: str) -> str | None:
    """The batch that was made from the plan in this file; None while there is none."""
    rows = read.rows(RunIdRow, 'SELECT "runId" FROM "batches" WHERE "planPath" = ? LIMIT 1', (plan_path,))
    return str(rows[0]["runId"]) if rows else None


def batches_of_job(read: StoreReader, job: str) -> list[BatchRow]:
    """The batches of one job as they were written, the newest first."""
    return read.rows(
        BatchRow, 'SELECT * FROM "batches" WHERE "job" = ? ORDER BY "createdAt" DESC, "runId" DESC', (job,)
    )


def run_ids_of_job(read: StoreReader, job: str) -> list[str]:
    """The ids of the batches of one job, the newest first."""
    rows = read.rows(
        RunIdRow, 'SELECT "runId" FROM "batches" WHERE "job" = ? ORDER BY "createdAt" DESC', (job,)
    )
    return [row["runId"] for row in rows]


def last_change(read: StoreReader) -> LastChange:
    """What differs whenever a batch was created or has ended."""
    (row,) = read.rows(
        LastChange, 'SELECT MAX("createdAt") AS "at", MAX("finishedAt") AS "end" FROM "batches"'
    )
    return row


def _current(row: S, now: datetime) -> S:
    """A part of a batch's row with its current status."""
    return cast(S, with_true_status(cast(BatchRow, row), now))


def _where(read: StoreReader, wanted: RunFilter, now: datetime) -> tuple[str, list[object]]:
    parts, parameters = ["1 = 1"], list[object]()
    if wanted.statuses:
        part, values = _status_where(read, wanted.statuses, now)
        parts.append(part)
        parameters += values
    if wanted.jobs:
        parts.append(_among("job", wanted.jobs))
        parameters += wanted.jobs
    if wanted.search:
        parts.append("(" + " OR ".join(f"LOWER(\"{name}\") LIKE ? ESCAPE '!'" for name in SEARCHED) + ")")
        parameters += [containing(wanted.search)] * len(SEARCHED)
    return " AND ".join(parts), parameters


def _status_where(read: StoreReader, statuses: Sequence[str], now: datetime) -> tuple[str, list[object]]:
    rows = read.rows(
        _Liveness, 'SELECT "runId", "owner", "heartbeatAt" FROM "batches" WHERE "status" = ?', (RUNNING,)
    )
    dead = [row["runId"] for row in rows if not is_alive(row["owner"], moment(row["heartbeatAt"]), now)]
    parts, parameters = [_among("status", statuses)], list[object](statuses)
    if not dead:
        return parts[0], parameters
    if RUNNING in statuses and INTERRUPTED not in statuses:
        return f"({parts[0]} AND NOT {_among('runId', dead)})", parameters + dead
    if INTERRUPTED in statuses and RUNNING not in statuses:
        return f"({parts[0]} OR {_among('runId', dead)})", parameters + dead
    return parts[0], parameters


def _among(column: str, values: Sequence[object]) -> str:
    return f'"{column}" IN ({places(values)})'
