"""Money that the processes on one store share: who has drawn on it, and what is left.

Whoever spends for a batch draws first, in a transaction that only one can be in at a time: what all
have drawn together passes neither the batch's limit nor the store's. One draw is enough for many
calls, so that spending does not wait for the store. At its end a process leaves what it has not
spent; for one that died, the next who needs the money does that, or whoever takes its batch over.

Every function is one transaction's worth of work on a connection that has begun one.

Knows nothing of attempts, or of what the money is spent on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from proctor.errors import OwnershipLost
from proctor.item import RUNNING
from proctor.store.database import Connection, Row, insertion
from proctor.store.tables import COLUMNS, PoolRow
from proctor.store.writer import is_alive, timestamp

ROUNDING_USD = 1e-9
"""A billionth of a dollar must not refuse the last item of a budget that fits exactly."""


PIECES = 8
"""A draw takes at least this part of what is left: few draws, and something left for others."""


OF_THE_STORE = ("draw", "close")
"""The kinds of rows that tell what a process has drawn; the others tell what it does with it."""


_DRAWN = "\"kind\" IN ('draw', 'close')"


_SPENT = "\"kind\" NOT IN ('draw', 'close')"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyLimits:
    """What may be spent at most, in USD. None: no limit."""

    run_usd: float | None = None
    store_usd: float | None = None
    """By all batches on the store together."""

    @property
    def are_any(self) -> bool:
        return self.run_usd is not None or self.store_usd is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What a draw came to."""

    usd: float
    short_of: str = ""
    """The limit that had not enough left: `budget` is the batch's, `store_budget` the store's."""
    others_hold: bool = False
    """Whether another process has drawn money that it may yet give back."""


def draw(
    connection: Connection,
    run_id: str,
    holder: str,
    *,
    wanted_usd: float,
    least_usd: float,
    limits: MoneyLimits,
    now: datetime,
) -> Drawn:
    """Draw about what is wanted; nothing when not even the least is there."""
    # Before anything else is touched: two that waited for each other's rows would never go on.
    connection.take_turn()
    _still_owned(connection, run_id, holder, now)
    _count_what_nobody_drew(connection, run_id, now)
    left, short_of = _left(connection, run_id, limits)
    if left < least_usd - ROUNDING_USD and _release_the_dead(connection, holder, now):
        left, short_of = _left(connection, run_id, limits)
    if _is_short(left, least_usd):
        # Others return money without taking a turn, and each statement sees what is committed by then. A
        # holder that returns its money between the two is counted in both; in the other order, in neither.
        others_hold = _others_hold(connection, holder)
        left, short_of = _left(connection, run_id, limits)
        if _is_short(left, least_usd):
            return Drawn(usd=0.0, short_of=short_of, others_hold=others_hold)
    usd = min(left, max(wanted_usd, left / PIECES))
    _enter(connection, run_id, holder, "draw", usd, now)
    return Drawn(usd=usd)


def _is_short(left_usd: float, least_usd: float) -> bool:
    return left_usd <= ROUNDING_USD or left_usd < least_usd - ROUNDING_USD


def give_back(connection: Connection, run_id: str, holder: str, usd: float, now: datetime) -> None:
    """Leave to others what was drawn and is not needed for now."""
    _enter(connection, run_id, holder, "draw", -usd, now)


def close(connection: Connection, run_id: str, holder: str, now: datetime) -> None:
    """A process spends nothing more: what it has drawn becomes what it has spent."""
    drawn = _sum(connection, "reservedUsd", f'"runId" = ? AND "holder" = ? AND {_DRAWN}', run_id, holder)
    spent = _sum(connection, "spentUsd", f'"runId" = ? AND "holder" = ? AND {_SPENT}', run_id, holder)
    if abs(spent - drawn) > ROUNDING_USD or (drawn and not _is_closed(connection, run_id, holder)):
        _enter(connection, run_id, holder, "close", spent - drawn, now)


def release(connection: Connection, run_id: str, holder: str, now: datetime) -> None:
    """Do for a process that went away what it can no longer do: settle its attempts, and close."""
    settle_leftovers(connection, run_id, holder, now)
    close(connection, run_id, holder, now)


def settle_leftovers(connection: Connection, run_id: str, holder: str, now: datetime) -> None:
    """Free the money of attempts that were cut off, charging what they are known to have spent."""
    open_ones = connection.rows(
        'SELECT "sessionId", "itemId", MAX("position") AS "last", SUM("reservedUsd") AS "held" FROM "ledger" '
        f'WHERE "runId" = ? AND "holder" = ? AND {_SPENT} GROUP BY "sessionId", "itemId" '
        "HAVING SUM(CASE WHEN \"kind\" = 'settle' THEN 1 ELSE 0 END) = 0",
        (run_id, holder),
    )
    for row in open_ones:
        (spent,) = connection.rows(
            'SELECT COALESCE(SUM("costUsd"), 0) AS "usd" FROM "model_calls" WHERE "sessionId" = ?',
            (row["sessionId"],),
        )
        what = (row["itemId"], timestamp(now), "settle", -row["held"], spent["usd"], holder)
        connection.run(
            insertion("ledger", COLUMNS["ledger"]), (row["sessionId"], row["last"] + 1, run_id, *what)
        )


def _still_owned(connection: Connection, run_id: str, holder: str, now: datetime) -> None:
    """Refuse one whose batch was taken over, and keep it from being taken over meanwhile."""
    changed = connection.run(
        'UPDATE "batches" SET "heartbeatAt" = ? WHERE "runId" = ? AND "owner" = ?',
        (timestamp(now), run_id, holder),
    )
    if not changed and _is_closed(connection, run_id, holder):
        raise OwnershipLost(f"the batch {run_id} was taken over by another process")


def _is_closed(connection: Connection, run_id: str, holder: str) -> bool:
    return bool(
        connection.rows(
            'SELECT 1 FROM "ledger" WHERE "runId" = ? AND "holder" = ? AND "kind" = ? LIMIT 1',
            (run_id, holder, "close"),
        )
    )


def _left(connection: Connection, run_id: str, limits: MoneyLimits) -> tuple[float, str]:
    """The least that any limit leaves, and which that is."""
    left = list[tuple[float, str]]()
    if limits.run_usd is not None:
        drawn = _sum(connection, "reservedUsd", f'"runId" = ? AND {_DRAWN}', run_id)
        left.append((limits.run_usd - drawn, "budget"))
    if limits.store_usd is not None:
        left.append((limits.store_usd - _sum(connection, "reservedUsd", _DRAWN), "store_budget"))
    return min(left)


def _count_what_nobody_drew(connection: Connection, run_id: str, now: datetime) -> None:
    """Money that came with results from elsewhere is spent all the same."""
    drawn = _sum(connection, "reservedUsd", f'"runId" = ? AND "holder" = ? AND {_DRAWN}', run_id, "")
    spent = _sum(connection, "spentUsd", f'"runId" = ? AND "holder" = ? AND {_SPENT}', run_id, "")
    if abs(spent - drawn) > ROUNDING_USD:
        _enter(connection, run_id, "", "close", spent - drawn, now)


def _release_the_dead(connection: Connection, holder: str, now: datetime) -> bool:
    gone = [row for row in _open_holders(connection, holder) if not _lives(row, now)]
    for row in gone:
        # Whoever has taken its batch over in this moment does it there.
        kept = connection.run(
            'UPDATE "batches" SET "owner" = "owner" WHERE "runId" = ? AND "owner" = ?',
            (row["runId"], row["owner"]),
        )
        if kept:
            release(connection, row["runId"], row["holder"], now)
    return bool(gone)


def _lives(row: Row, now: datetime) -> bool:
    if row["holder"] != row["owner"]:
        # Someone else who spends for this batch. On another machine nobody can tell.
        return is_alive(row["holder"], now, now)
    heartbeat = None if row["heartbeatAt"] is None else datetime.fromisoformat(row["heartbeatAt"])
    return row["status"] == RUNNING and is_alive(row["owner"], heartbeat, now)


def _others_hold(connection: Connection, holder: str) -> bool:
    return any(
        row["drawn"]
        > ROUNDING_USD
        + _sum(
            connection,
            "spentUsd",
            f'"runId" = ? AND "holder" = ? AND {_SPENT}',
            row["runId"],
            row["holder"],
        )
        for row in _open_holders(connection, holder)
    )


def _open_holders(connection: Connection, but: str) -> list[Row]:
    """All others who have drawn and not closed, each with its batch."""
    return connection.rows(
        'SELECT l."runId", l."holder", SUM(l."reservedUsd") AS "drawn", b."owner", b."status", '
        'b."heartbeatAt" FROM "ledger" l JOIN "batches" b ON b."runId" = l."runId" '
        "WHERE l.\"kind\" IN ('draw', 'close') AND l.\"holder\" NOT IN (?, ?) "
        'GROUP BY l."runId", l."holder", b."owner", b."status", b."heartbeatAt" '
        "HAVING SUM(CASE WHEN l.\"kind\" = 'close' THEN 1 ELSE 0 END) = 0",
        (but, ""),
    )


def _enter(connection: Connection, run_id: str, holder: str, kind: str, usd: float, now: datetime) -> None:
    session_id = holder or f"earlier:{run_id}"
    (last,) = connection.rows(
        'SELECT COALESCE(MAX("position"), 0) AS "n" FROM "ledger" WHERE "sessionId" = ?', (session_id,)
    )
    row = (session_id, last["n"] + 1, run_id, "", timestamp(now), kind, usd, 0.0, holder)
    connection.run(insertion("ledger", COLUMNS["ledger"]), row)


def _sum(connection: Connection, column: str, where: str, *parameters: str) -> float:
    (found,) = connection.rows(
        f'SELECT COALESCE(SUM("{column}"), 0) AS "usd" FROM "ledger" WHERE {where}', parameters
    )
    return float(found["usd"])


# Let the processes on one store tell each other what they found out about providers' limits.


FRESH = timedelta(seconds=5)
"""Rows are renewed every second; one that is older belongs to nobody who is still asking."""


def exchange(
    connection: Connection, owner: str, rows: Iterable[Mapping[str, object]], now: datetime
) -> list[PoolRow]:
    """Write what this process knows; what the others know."""
    connection.run(
        'DELETE FROM "pools" WHERE "owner" = ? OR "heartbeatAt" < ?', (owner, timestamp(now - FRESH))
    )
    told = [{**row, "owner": owner, "heartbeatAt": timestamp(now)} for row in rows]
    columns = COLUMNS["pools"]
    connection.run_many(insertion("pools", columns), [tuple(row[name] for name in columns) for row in told])
    others = connection.rows('SELECT * FROM "pools" WHERE "owner" <> ?', (owner,))
    return cast("list[PoolRow]", others)


def withdraw(connection: Connection, owner: str) -> None:
    """This process asks nobody any more."""
    connection.run('DELETE FROM "pools" WHERE "owner" = ?', (owner,))
