"""The life of a batch in the store: made, owned, asked to stop, taken over, deleted.

Every function is one transaction's worth of work on a connection that has begun one.

Knows nothing of how items are carried out.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proctor.errors import UsageError
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, TIMEOUT, Item
from proctor.session import Merge
from proctor.store.database import Connection, Row, insertion
from proctor.store.owner import is_alive
from proctor.store.rows import how_of, merge_row, row_of
from proctor.store.tables import COLUMNS, OF_A_SESSION
from proctor.store.writer import timestamp

UNFINISHED_REASONS = ("aborted", "interrupted", "halted")
"""Reasons of items that ended without anyone having tried; resuming takes them up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Which finished items a resumed batch takes up again, besides the unfinished ones."""

    errors: bool = False
    """Items that we or the infrastructure failed."""
    failures: bool = False
    """Items whose work did not pass or ran out of time."""


def create(connection: Connection, batch: Mapping[str, Any], items: Iterable[Item]) -> int:
    """Make a batch with its items, all or nothing; the number of items."""
    if connection.rows('SELECT 1 FROM "batches" WHERE "runId" = ?', (batch["runId"],)):
        raise UsageError(
            f"there is already a run called {batch['runId']}\n"
            "Go on with it (--resume), delete it (proctor delete), or give the plan another runId."
        )
    connection.run(insertion("batches", batch), tuple(batch.values()))
    return add_items(connection, batch["runId"], items)


def add_items(connection: Connection, run_id: str, items: Iterable[Item], *, first: int = 0) -> int:
    """Append items to a batch, the first at position `first`; how many there were."""
    statement = insertion("batch_items", COLUMNS["batch_items"])
    count = itertools.count(first)
    rows = (row_of(run_id, next(count), item) for item in items)
    # In pages, so that a hundred thousand items never stand in memory at once.
    while page := list(itertools.islice(rows, 1000)):
        connection.run_many(statement, page)
    return next(count) - first


def change(connection: Connection, run_id: str, values: Mapping[str, Any]) -> None:
    """Change some columns of a batch."""
    if values:
        columns = ", ".join(f'"{name}" = ?' for name in values)
        connection.run(f'UPDATE "batches" SET {columns} WHERE "runId" = ?', (*values.values(), run_id))


def extend(
    connection: Connection,
    run_id: str,
    batch: Mapping[str, Any],
    *,
    add: Iterable[Item],
    settle: Iterable[Item],
    drop: Iterable[str],
) -> None:
    """Bring a batch up to its plan: new items, new settings of unfinished ones, some no more."""
    change(connection, run_id, batch)
    mine = '"runId" = ? AND "id" = ?'
    connection.run_many(f'DELETE FROM "batch_items" WHERE {mine}', [(run_id, item_id) for item_id in drop])
    connection.run_many(
        f'UPDATE "batch_items" SET "settings" = ?, "factors" = ?, "repo" = ? WHERE {mine} AND "status" = ?',
        [(*how_of(item), run_id, item.id, QUEUED) for item in settle],
    )
    (last,) = connection.rows(
        'SELECT COALESCE(MAX("position"), -1) AS "n" FROM "batch_items" WHERE "runId" = ?', (run_id,)
    )
    add_items(connection, run_id, add, first=last["n"] + 1)


def claim(connection: Connection, run_id: str, owner: str, now: datetime) -> None:
    """Take a batch that nobody carries out; raises when somebody does."""
    (found,) = connection.rows(
        'SELECT "status", "owner", "heartbeatAt" FROM "batches" WHERE "runId" = ?', (run_id,)
    )
    if found["status"] == RUNNING and is_alive(found["owner"], moment(found["heartbeatAt"]), now):
        raise UsageError(
            f"run {run_id} is being carried out by process {found['owner'].split(':')[-3]}\n"
            f"Look at it (proctor watch {run_id}) or stop it (proctor abort-run {run_id})."
        )
    connection.run(
        'UPDATE "batches" SET "status" = ?, "reason" = ?, "owner" = ?, "heartbeatAt" = ?, '
        '"abortRequestedAt" = NULL, "finishedAt" = NULL WHERE "runId" = ?',
        (RUNNING, "", owner, timestamp(now), run_id),
    )


def take_up(connection: Connection, run_id: str, again: Again, now: datetime) -> list[Row]:
    """Queue what is not finished; the sessions that were cut off, which may have left things behind."""
    cut_off = connection.rows(
        'SELECT * FROM "sessions" WHERE "runId" = ? AND "status" = ?', (run_id, RUNNING)
    )
    connection.run(
        'UPDATE "sessions" SET "status" = ?, "endReason" = ?, "finishedAt" = ?, '
        '"error" = ? WHERE "runId" = ? AND "status" = ?',
        (ERROR, "interrupted", timestamp(now), "its process went away", run_id, RUNNING),
    )
    reasons = ", ".join("?" * len(UNFINISHED_REASONS))
    wanted = f'"status" = ? OR ("status" = ? AND "reason" IN ({reasons}))'
    parameters: list[Any] = [QUEUED, "", "", run_id, RUNNING, ERROR, *UNFINISHED_REASONS]
    if again.errors:
        wanted += ' OR "status" = ?'
        parameters.append(ERROR)
    if again.failures:
        wanted += ' OR "status" IN (?, ?)'
        parameters += [FAIL, TIMEOUT]
    connection.run(
        'UPDATE "batch_items" SET "status" = ?, "reason" = ?, "error" = ?, "finishedAt" = NULL '
        f'WHERE "runId" = ? AND ({wanted})',
        parameters,
    )
    _settle_leftovers(connection, run_id, now)
    return cut_off


def request_abort(connection: Connection, run_id: str, now: datetime) -> None:
    """Ask whoever carries the batch out to stop."""
    connection.run(
        'UPDATE "batches" SET "abortRequestedAt" = ? WHERE "runId" = ? AND "abortRequestedAt" IS NULL',
        (timestamp(now), run_id),
    )


def end_items(connection: Connection, run_id: str, reason: str, error: str, now: datetime) -> int:
    """Give every item that was not finished the status `error`; how many those were."""
    when = timestamp(now)
    connection.run(
        'UPDATE "sessions" SET "status" = ?, "endReason" = ?, "error" = ?, "finishedAt" = ? '
        'WHERE "runId" = ? AND "status" = ?',
        (ERROR, reason, error, when, run_id, RUNNING),
    )
    return connection.run(
        'UPDATE "batch_items" SET "status" = ?, "reason" = ?, "error" = ?, "finishedAt" = ? '
        'WHERE "runId" = ? AND "status" IN (?, ?)',
        (ERROR, reason, error, when, run_id, QUEUED, RUNNING),
    )


def finish(connection: Connection, run_id: str, status: str, reason: str, now: datetime) -> None:
    """Write how a batch ended."""
    connection.run(
        'UPDATE "batches" SET "status" = ?, "reason" = ?, "finishedAt" = ? WHERE "runId" = ?',
        (status, reason, timestamp(now), run_id),
    )


def keep_merge(connection: Connection, session_id: str, merge: Merge, now: datetime) -> None:
    """Keep a try to merge that was made after the session had ended."""
    (last,) = connection.rows(
        'SELECT COALESCE(MAX("position"), 0) AS "n" FROM "merge_history" WHERE "sessionId" = ?', (session_id,)
    )
    row = merge_row(session_id, last["n"] + 1, timestamp(now), merge)
    connection.run(insertion("merge_history", COLUMNS["merge_history"]), row)


def delete(connection: Connection, run_id: str) -> None:
    """Remove a batch and every row that belongs to it, and nothing else."""
    mine = 'SELECT "id" FROM "sessions" WHERE "runId" = ?'
    for table in (*OF_A_SESSION, "ledger"):
        connection.run(f'DELETE FROM "{table}" WHERE "sessionId" IN ({mine})', (run_id,))
    for table in ("sessions", "batch_items", "batches"):
        connection.run(f'DELETE FROM "{table}" WHERE "runId" = ?', (run_id,))
    held = " UNION ALL ".join(
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
        for table in OF_A_SESSION
        for column in COLUMNS[table]
        if column.endswith("Blob")
    )
    connection.run(f'DELETE FROM "blobs" WHERE "digest" NOT IN ({held})')


def _settle_leftovers(connection: Connection, run_id: str, now: datetime) -> None:
    """Free the money of attempts that were cut off, charging what they are known to have spent."""
    open_ones = connection.rows(
        'SELECT "sessionId", "itemId", MAX("position") AS "last", SUM("reservedUsd") AS "held" FROM "ledger" '
        'WHERE "runId" = ? GROUP BY "sessionId", "itemId" HAVING SUM("reservedUsd") > 0',
        (run_id,),
    )
    for row in open_ones:
        (spent,) = connection.rows(
            'SELECT COALESCE(SUM("costUsd"), 0) AS "usd" FROM "model_calls" WHERE "sessionId" = ?',
            (row["sessionId"],),
        )
        connection.run(
            insertion("ledger", COLUMNS["ledger"]),
            (
                *(row["sessionId"], row["last"] + 1, run_id, row["itemId"], timestamp(now), "settle"),
                *(-row["held"], spent["usd"]),
            ),
        )


def moment(text: str | None) -> datetime | None:
    """The moment a store's timestamp stands for."""
    return None if text is None else datetime.fromisoformat(text)
