"""Shares what is known of providers' rate limits with every other process on the store.

Once a second each process publishes its demand and its rejected calls, and takes its share of the common
limit: more demand gives a larger share, and the latest 429 counts for all.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from proctor.json_values import JsonObject
from proctor.models.rate_limits import PoolState, RatePools
from proctor.store import timestamp
from proctor.store.tables import PoolRow

INTERVAL_SECONDS = 1.0


class LimitExchange(Protocol):
    """Where the processes on a store exchange their rate limits."""

    async def share_limits(self, holder: str, states: Sequence[PoolState]) -> Sequence[PoolState]:
        """Replace what `holder` has published; what all others have."""


async def adopt_limits(pools: RatePools, exchange: LimitExchange, holder: str) -> None:
    """Adopt what others on the store know, before this process sends its first request."""
    others = await exchange.share_limits(holder, ())
    names = {
        other.name
        for other in others
        if other.cut_seconds_ago is not None or other.held_seconds or pools.declared(other.name)
    }
    apply_shares(pools, [pools.pool(name).state for name in sorted(names)], others)


async def share_limits(pools: RatePools, exchange: LimitExchange, holder: str) -> None:
    """Share rate limits until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        if states := pools.states:
            apply_shares(pools, states, await exchange.share_limits(holder, states))


def apply_shares(pools: RatePools, states: Sequence[PoolState], others: Sequence[PoolState]) -> None:
    """Give each pool its share of the common limit."""
    for state in states:
        rest = [other for other in others if other.name == state.name]
        pool = pools.pool(state.name)
        pool.agree(*limit_and_share(pool.limit, state, rest))
        for other in rest:
            if other.held_seconds > 0:
                pool.hold(other.held_seconds)


def limit_and_share(limit: float, state: PoolState, rest: Sequence[PoolState]) -> tuple[float, float]:
    """The common limit of all processes, and the share of the one whose state this is."""
    demand = state.in_use + state.waiting + 1
    share = demand / (demand + sum(other.in_use + other.waiting + 1 for other in rest))
    limit = _latest_limit(limit, state, rest)
    # Processes above their share release it only when their calls end.
    unused = max(0.0, limit - sum(other.in_use for other in rest))
    return limit, min(share, unused / limit)


def _latest_limit(limit: float, state: PoolState, rest: Sequence[PoolState]) -> float:
    """The limit of the process whose call was rejected last: earlier knowledge is out of date."""
    rejected = [
        (-other.cut_seconds_ago, other.limit_of_all) for other in rest if other.cut_seconds_ago is not None
    ]
    if state.cut_seconds_ago is not None:
        rejected.append((-state.cut_seconds_ago, limit))
    return max(rejected)[1] if rejected else limit


def pool_row(state: PoolState, run_id: str, now: datetime) -> JsonObject:
    """The row of a pool in the store."""
    held_until = timestamp(now + timedelta(seconds=state.held_seconds)) if state.held_seconds else None
    ago = state.cut_seconds_ago
    return {
        "name": state.name,
        "runId": run_id,
        "limit": state.limit_of_all,
        "inUse": state.in_use,
        "waiting": state.waiting,
        "calls": state.calls,
        "limited": state.limited,
        "waitedSeconds": state.waited_seconds,
        "heldUntil": held_until,
        "cutAt": None if ago is None else timestamp(now - timedelta(seconds=ago)),
    }


def pool_state(row: PoolRow, now: datetime) -> PoolState:
    """A pool of another process, from its row."""

    def seconds_until(moment: str) -> float:
        return (datetime.fromisoformat(moment) - now).total_seconds()

    return PoolState(
        name=row["name"],
        limit=int(row["limit"]),
        limit_of_all=float(row["limit"]),
        in_use=row["inUse"],
        waiting=row["waiting"],
        calls=row["calls"],
        limited=row["limited"],
        waited_seconds=row["waitedSeconds"],
        held_seconds=max(0.0, seconds_until(row["heldUntil"])) if row["heldUntil"] else 0.0,
        cut_seconds_ago=-seconds_until(row["cutAt"]) if row["cutAt"] else None,
        holder=row["owner"],
    )
