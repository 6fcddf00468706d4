"""Share what is known of providers' limits with every other process on the store.

Once a second each process tells how much it asks for and what it was refused, and takes its part of
what they found out together: who asks for more gets more, and the last 429 counts for all.

Knows nothing of providers, or of how a pool finds its limit.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from proctor.models.rate_limits import PoolState, RatePools
from proctor.store import Writer, timestamp
from proctor.store.ledger import exchange, withdraw

EVERY_SECONDS = 1.0


async def hear_of_pools(pools: RatePools, writer: Writer, owner: str, now: Callable[[], datetime]) -> None:
    """Take over what others on the store have been told, before this process asks anyone anything."""
    heard = await asyncio.wrap_future(writer.ask(partial(exchange, owner=owner, rows=(), now=now())))
    names = {row["name"] for row in heard if row["cutAt"] or row["heldUntil"] or pools.declared(row["name"])}
    take_part(pools, [pools.pool(name).state for name in sorted(names)], heard, now())


async def share_pools(
    pools: RatePools, writer: Writer, run_id: str, owner: str, now: Callable[[], datetime]
) -> None:
    """Go on sharing until cancelled; then withdraw."""
    told = False
    try:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            states = pools.states
            if states:
                told = True
                rows = [_row(state, run_id, now()) for state in states]
                asked = writer.ask(partial(exchange, owner=owner, rows=rows, now=now()))
                others = await asyncio.wrap_future(asked)
                take_part(pools, states, others, now())
    finally:
        if told:
            writer.ask(lambda connection: withdraw(connection, owner))


def take_part(
    pools: RatePools, states: Sequence[PoolState], others: Sequence[Mapping[str, Any]], now: datetime
) -> None:
    """Give each pool its part of what the processes have found out together."""
    for state in states:
        rest = [row for row in others if row["name"] == state.name]
        mine = state.in_use + state.waiting + 1
        share = mine / (mine + sum(row["inUse"] + row["waiting"] + 1 for row in rest))
        pool = pools.pool(state.name)
        limit = _latest_limit(pool.limit, state, rest, now)
        # Those who are to make room do so when their calls have ended.
        unused = max(0.0, limit - sum(row["inUse"] for row in rest))
        pool.agree(limit, min(share, unused / limit))
        for row in rest:
            if row["heldUntil"] and row["heldUntil"] > timestamp(now):
                pool.hold((datetime.fromisoformat(row["heldUntil"]) - now).total_seconds())


def _latest_limit(mine: float, state: PoolState, rest: Sequence[Mapping[str, Any]], now: datetime) -> float:
    """The limit of whoever was refused last: what anyone knew before that is out of date."""
    refused = [(row["cutAt"], float(row["limit"])) for row in rest if row["cutAt"]]
    if state.cut_seconds_ago is not None:
        refused.append((timestamp(now - timedelta(seconds=state.cut_seconds_ago)), mine))
    return max(refused)[1] if refused else mine


def _row(state: PoolState, run_id: str, now: datetime) -> dict[str, Any]:
    held = timestamp(now + timedelta(seconds=state.held_seconds)) if state.held_seconds else None
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
        "heldUntil": held,
        "cutAt": None if ago is None else timestamp(now - timedelta(seconds=ago)),
    }
