"""Budgets shared by the processes on one store, and their shared rate limits.

A process draws money before it spends it, in serialized transactions, so that all draws together exceed
neither the batch's limit nor the store's. One draw covers many calls, so that calls rarely wait for the
store. When a process ends, it returns the rest; for one that died, the next process that needs the money or
claims its batch does so.

Every function runs inside a transaction that its caller has begun.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from proctor.errors import OwnershipLost
from proctor.item import RUNNING
from proctor.store.database import Connection, Row
from proctor.store.tables import COLUMNS, LedgerRow, ModelCallRow, PoolRow
from proctor.store.writer import RowGroups, is_alive, timestamp

ROUNDING_USD = 1e-9
"""Tolerance, so that a budget that fits exactly is not exceeded by rounding."""
PIECES = 8
"""A draw takes at least this fraction of the rest: few draws, and something left for others."""
_DRAWN = "\"kind\" IN ('draw', 'close')"
SPENT = (
    "\"kind\" NOT IN ('draw', 'close', 'call') AND NOT (\"kind\" = 'estimate' AND EXISTS (SELECT 1 "
    'FROM "ledger" late WHERE late."sessionId" = "ledger"."sessionId" AND late."kind" = \'settle\'))'
)
"""Rows about reservations and costs of attempts. A `call` row has the change of what running calls may cost,
which is part of a reservation. The `estimate` of an attempt whose process died counts until it is settled."""
ESTIMATE_POSITION, LATE_POSITION = -1, -2
"""Rows that a process has written and not yet committed have positive ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyLimits:
    """Spending limits in USD. None: no limit."""

    run_usd: float | None = None
    store_usd: float | None = None
    """By all batches on the store together."""

    @property
    def are_any(self) -> bool:
        return self.run_usd is not None or self.store_usd is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Result of a draw."""

    usd: float
    short_of: str = ""
    """The exhausted limit: `budget` (of the batch) or `store_budget`."""
    others_hold: bool = False
    """Whether another process has drawn money that it may return."""
    overrun_models: tuple[str, ...] = ()
    """Models of which a call has cost more than its request allows, in any process; only with too little."""


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
    """Draw about `wanted_usd`; nothing if less than `least_usd` is left."""
    now = connection.server_time(now)
    # Before any row is locked, to prevent a deadlock.
    connection.take_turn_lock()
    _check_not_closed(connection, run_id, holder, now)
    _correct_closed(connection, run_id, now)
    left, short_of = _left(connection, run_id, limits)
    if left < least_usd - ROUNDING_USD and _release_dead_holders(connection, holder, now):
        left, short_of = _left(connection, run_id, limits)
    if _is_short(left, least_usd):
        # Others return money without taking a turn, and each statement sees what is committed by then. A
        # holder that returns its money between the two is counted in both; in the other order, in neither.
        others_hold = _others_hold(connection, holder)
        left, short_of = _left(connection, run_id, limits)
        if _is_short(left, least_usd):
            overruns = _overrun_models(connection)
            return Drawn(usd=0.0, short_of=short_of, others_hold=others_hold, overrun_models=overruns)
    usd = min(left, max(wanted_usd, left / PIECES))
    _enter(connection, run_id, holder, "draw", usd, now)
    return Drawn(usd=usd, overrun_models=_overrun_models(connection) if usd < wanted_usd else ())


def overrun_row(run_id: str, holder: str, model: str, now: datetime) -> tuple[object, ...]:
    """The row that tells other processes, and the next one of this batch, that calls to a model have cost
    more than their requests allow. It has no amounts."""
    return (f"overrun:{holder}:{model}", 1, run_id, model, timestamp(now), "overrun", 0.0, 0.0, holder)


def _overrun_models(connection: Connection) -> tuple[str, ...]:
    # By the prefix of the key, in any collation: the ledger has no index of kinds.
    sql = 'SELECT DISTINCT "itemId" FROM "ledger" WHERE "sessionId" >= ? AND "sessionId" < ? AND "kind" = ?'
    return tuple(connection.values(str, sql, ("overrun", "overruo", "overrun")))


def _is_short(left_usd: float, least_usd: float) -> bool:
    return left_usd <= ROUNDING_USD or left_usd < least_usd - ROUNDING_USD


def give_back(connection: Connection, run_id: str, holder: str, usd: float, now: datetime) -> None:
    """Return drawn money that is not needed now."""
    _enter(connection, run_id, holder, "draw", -usd, now)


def close(connection: Connection, run_id: str, holder: str, now: datetime) -> None:
    """End the spending of a process: return what it has drawn and not spent."""
    drawn = _sum(connection, "reservedUsd", f'"runId" = ? AND "holder" = ? AND {_DRAWN}', run_id, holder)
    spent = _sum(connection, "spentUsd", f'"runId" = ? AND "holder" = ? AND {SPENT}', run_id, holder)
    if abs(spent - drawn) > ROUNDING_USD or (drawn and not _is_closed(connection, run_id, holder)):
        _enter(connection, run_id, holder, "close", spent - drawn, now)


def release(connection: Connection, run_id: str, holder: str, now: datetime) -> None:
    """Settle the attempts of a dead process and close its account."""
    settle_open_attempts(connection, run_id, holder, now)
    close(connection, run_id, holder, now)


def holders(connection: Connection, run_id: str) -> list[str]:
    """The processes that have spent money of a batch, or of its items, and have not closed their accounts."""
    return connection.values(
        str,
        'SELECT "holder" FROM "ledger" WHERE "runId" = ? GROUP BY "holder" '
        "HAVING SUM(CASE WHEN \"kind\" = 'close' THEN 1 ELSE 0 END) = 0",
        (run_id,),
    )


def settle_open_attempts(connection: Connection, run_id: str, holder: str, now: datetime) -> None:
    """Settle interrupted attempts: charge the known cost and the worst case of running calls, which their
    provider may bill, and release the rest."""
    attempts = connection.rows(
        'SELECT "sessionId", "itemId", '
        'SUM(CASE WHEN "kind" = \'call\' THEN 0 ELSE "reservedUsd" END) AS "reserved", '
        'SUM(CASE WHEN "kind" = \'call\' THEN "reservedUsd" ELSE 0 END) AS "running" FROM "ledger" '
        "WHERE \"runId\" = ? AND \"holder\" = ? AND \"kind\" NOT IN ('draw', 'close', 'overrun') "
        'GROUP BY "sessionId", "itemId" '
        "HAVING SUM(CASE WHEN \"kind\" IN ('settle', 'estimate') THEN 1 ELSE 0 END) = 0",
        (run_id, holder),
    )
    for row in attempts:
        sql = 'SELECT SUM("costUsd") FROM "model_calls" WHERE "sessionId" = ?'
        known_usd = connection.value(float, sql, (row["sessionId"],)) or 0.0
        running = row["running"] if row["running"] > ROUNDING_USD else 0.0
        amounts = ("estimate", -row["reserved"], known_usd + running, holder)
        connection.insert(
            "ledger",
            (row["sessionId"], ESTIMATE_POSITION, run_id, row["itemId"], timestamp(now), *amounts),
        )


def spent_by(connection: Connection, session_id: str) -> float:
    """What an attempt has spent, or may have spent."""
    return _sum(connection, "spentUsd", f'"sessionId" = ? AND {SPENT}', session_id)


def settle_late(connection: Connection, rows: RowGroups, now: datetime) -> None:
    """Settle attempts that another process took for interrupted, from rows that could not be written.

    The process that made them was only cut off from the store: calls that were running then have ended
    since, and what they cost replaces the estimate.
    """
    entries = cast("list[LedgerRow]", rows.of_table("ledger", COLUMNS["ledger"]))
    calls = cast("list[ModelCallRow]", rows.of_table("model_calls", COLUMNS["model_calls"]))
    for session_id in {row["sessionId"] for row in (*entries, *calls)}:
        mine = [entry for entry in entries if entry["sessionId"] == session_id]
        costs = [call["costUsd"] or 0.0 for call in calls if call["sessionId"] == session_id]
        settled = [entry["spentUsd"] for entry in mine if entry["kind"] == "settle"]
        running = [entry["reservedUsd"] for entry in mine if entry["kind"] == "call"]
        estimates = connection.rows(
            f'SELECT * FROM "ledger" WHERE "sessionId" = ? AND "kind" = \'estimate\' AND {SPENT}',
            (session_id,),
        )
        for estimate in cast("list[LedgerRow]", estimates):
            # Calls that still run are charged as before.
            spent = settled[-1] if settled else estimate["spentUsd"] + sum(running) + sum(costs)
            amounts = ("settle", estimate["reservedUsd"], max(0.0, spent), estimate["holder"])
            row = (session_id, LATE_POSITION, estimate["runId"], estimate["itemId"], timestamp(now))
            connection.insert("ledger", (*row, *amounts))


def _check_not_closed(connection: Connection, run_id: str, holder: str, now: datetime) -> None:
    """Raise if another process has claimed the batch; lock the batch against claims."""
    changed = connection.run(
        'UPDATE "batches" SET "heartbeatAt" = ? WHERE "runId" = ? AND "owner" = ?',
        (timestamp(now), run_id, holder),
    )
    if not changed and _is_closed(connection, run_id, holder):
        raise OwnershipLost(f"the batch {run_id} was taken over by another process")


def _is_closed(connection: Connection, run_id: str, holder: str) -> bool:
    sql = 'SELECT 1 FROM "ledger" WHERE "runId" = ? AND "holder" = ? AND "kind" = ? LIMIT 1'
    return connection.value(int, sql, (run_id, holder, "close")) is not None


def _left(connection: Connection, run_id: str, limits: MoneyLimits) -> tuple[float, str]:
    """The smallest remainder of any limit, and the name of that limit."""
    left = list[tuple[float, str]]()
    if limits.run_usd is not None:
        drawn = _sum(connection, "reservedUsd", f'"runId" = ? AND {_DRAWN}', run_id)
        left.append((limits.run_usd - drawn, "budget"))
    if limits.store_usd is not None:
        left.append((limits.store_usd - _sum(connection, "reservedUsd", _DRAWN), "store_budget"))
    return min(left)


def _correct_closed(connection: Connection, run_id: str, now: datetime) -> None:
    """Count the costs of imported results, which no process has drawn, and of late settlements."""
    sql = 'SELECT DISTINCT "holder" FROM "ledger" WHERE "runId" = ? AND "kind" = ?'
    for holder in {"", *connection.values(str, sql, (run_id, "estimate"))}:
        drawn = _sum(connection, "reservedUsd", f'"runId" = ? AND "holder" = ? AND {_DRAWN}', run_id, holder)
        spent = _sum(connection, "spentUsd", f'"runId" = ? AND "holder" = ? AND {SPENT}', run_id, holder)
        is_closed = not holder or _is_closed(connection, run_id, holder)
        if is_closed and abs(spent - drawn) > ROUNDING_USD:
            _enter(connection, run_id, holder, "close", spent - drawn, now)


def _release_dead_holders(connection: Connection, holder: str, now: datetime) -> bool:
    gone = [row for row in _open_holders(connection, holder) if not _is_holder_alive(row, now)]
    for row in gone:
        # A process that has just claimed the batch does this itself.
        owned = connection.run(
            'UPDATE "batches" SET "owner" = "owner" WHERE "runId" = ? AND "owner" = ?',
            (row["runId"], row["owner"]),
        )
        if owned:
            release(connection, row["runId"], row["holder"], now)
    return bool(gone)


def _is_holder_alive(row: Row, now: datetime) -> bool:
    if row["holder"] != row["owner"]:
        # A further process of this batch; on another machine its state is unknown.
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
            f'"runId" = ? AND "holder" = ? AND {SPENT}',
            row["runId"],
            row["holder"],
        )
        for row in _open_holders(connection, holder)
    )


def _open_holders(connection: Connection, but: str) -> list[Row]:
    """All other holders that have drawn and not closed, with their batches."""
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
    last = connection.value(int, 'SELECT MAX("position") FROM "ledger" WHERE "sessionId" = ?', (session_id,))
    row = (session_id, (last or 0) + 1, run_id, "", timestamp(now), kind, usd, 0.0, holder)
    connection.insert("ledger", row)


def _sum(connection: Connection, column: str, where: str, *parameters: str) -> float:
    return connection.value(float, f'SELECT SUM("{column}") FROM "ledger" WHERE {where}', parameters) or 0.0


# Rate limits shared by the processes on one store.

FRESH = timedelta(seconds=5)
"""Rows are renewed every second; an older one belongs to a dead process."""


def exchange(
    connection: Connection, owner: str, rows: Iterable[Mapping[str, object]], now: datetime
) -> list[PoolRow]:
    """Write the rate limits of this process; return those of the others."""
    connection.run(
        'DELETE FROM "pools" WHERE "owner" = ? OR "heartbeatAt" < ?', (owner, timestamp(now - FRESH))
    )
    own = [{**row, "owner": owner, "heartbeatAt": timestamp(now)} for row in rows]
    columns = COLUMNS["pools"]
    connection.insert_many("pools", [tuple(row[name] for name in columns) for row in own])
    others = connection.rows('SELECT * FROM "pools" WHERE "owner" <> ?', (owner,))
    return cast("list[PoolRow]", others)


def withdraw(connection: Connection, owner: str) -> None:
    """Delete the rate limits of this process."""
    connection.run('DELETE FROM "pools" WHERE "owner" = ?', (owner,))
