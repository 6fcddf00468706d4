"""One page of the batches there are, filtered and counted in the database.

A batch whose process died still says `running` in its row. Those that say so are few: who of them really
runs is looked up first, and the rest of the question is put with their names.

Knows nothing of how a list is shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proctor.item import RUNNING
from proctor.store.batches import INTERRUPTED, moment, with_true_status
from proctor.store.database import Row, containing, places
from proctor.store.items import StoreReader, summed
from proctor.store.writer import is_alive

SEARCHED = ("runId", "planPath", "planText")


SHOWN = ", ".join(
    f'"{name}"'
    for name in (
        *("runId", "createdAt", "finishedAt", "job", "status", "reason", "planPath"),
        *("budgetUsd", "owner", "heartbeatAt"),
    )
)


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
    (found,) = read.query(f'SELECT COUNT(*) AS "n" FROM "batches" WHERE {where}', parameters)
    return int(found["n"])


def page_of_batches(
    read: StoreReader, wanted: RunFilter, now: datetime, *, limit: int, offset: int = 0
) -> list[Row]:
    """Batches, the newest first, with their status as it is now."""
    where, parameters = _where(read, wanted, now)
    rows = read.query(
        f'SELECT {SHOWN} FROM "batches" WHERE {where} ORDER BY "createdAt" DESC, "runId" LIMIT ? OFFSET ?',
        (*parameters, limit, offset),
    )
    return [with_true_status(row, now) for row in rows]


def batches_named(read: StoreReader, run_ids: Sequence[str], now: datetime) -> list[Row]:
    """These batches, with their status as it is now; those that are gone are left out."""
    if not run_ids:
        return []
    rows = read.query(f'SELECT {SHOWN} FROM "batches" WHERE {_among("runId", run_ids)}', run_ids)
    return [with_true_status(row, now) for row in rows]


def standing_of_all(read: StoreReader, now: datetime) -> dict[str, tuple[str, str]]:
    """Every batch there is, by id, with what tells whether it has changed: its status, when it ended."""
    rows = read.query('SELECT "runId", "status", "finishedAt", "owner", "heartbeatAt" FROM "batches"')
    return {row["runId"]: (with_true_status(row, now)["status"], row["finishedAt"] or "") for row in rows}


def totals_of(read: StoreReader, run_ids: Sequence[str]) -> dict[str, Row]:
    """How many items of each batch are in each status, and what they took together."""
    if not run_ids:
        return {}
    rows = read.query(
        'SELECT "runId", "status", COUNT(*) AS "items", SUM("tokensTotal") AS "tokens", '
        f'SUM("costUsd") AS "cost" FROM "batch_items" WHERE {_among("runId", run_ids)} '
        'GROUP BY "runId", "status"',
        run_ids,
    )
    return {run_id: summed([row for row in rows if row["runId"] == run_id]) for run_id in run_ids}


def jobs_there_are(read: StoreReader) -> list[str]:
    """The jobs that batches were made for."""
    return [row["job"] for row in read.query('SELECT DISTINCT "job" FROM "batches" ORDER BY "job"')]


def batch_from(read: StoreReader, plan_path: str) -> str | None:
    """The batch that was made from the plan in this file; None while there is none."""
    rows = read.query('SELECT "runId" FROM "batches" WHERE "planPath" = ? LIMIT 1', (plan_path,))
    return str(rows[0]["runId"]) if rows else None


def _where(read: StoreReader, wanted: RunFilter, now: datetime) -> tuple[str, list[Any]]:
    parts, parameters = ["1 = 1"], list[Any]()
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


def _status_where(read: StoreReader, statuses: Sequence[str], now: datetime) -> tuple[str, list[Any]]:
    rows = read.query('SELECT "runId", "owner", "heartbeatAt" FROM "batches" WHERE "status" = ?', (RUNNING,))
    dead = [row["runId"] for row in rows if not is_alive(row["owner"], moment(row["heartbeatAt"]), now)]
    parts, parameters = [_among("status", statuses)], list[Any](statuses)
    if not dead:
        return parts[0], parameters
    if RUNNING in statuses and INTERRUPTED not in statuses:
        return f"({parts[0]} AND NOT {_among('runId', dead)})", parameters + dead
    if INTERRUPTED in statuses and RUNNING not in statuses:
        return f"({parts[0]} OR {_among('runId', dead)})", parameters + dead
    return parts[0], parameters


def _among(column: str, values: Sequence[Any]) -> str:
    return f'"{column}" IN ({places(values)})'
