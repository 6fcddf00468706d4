"""Processes on one store tell each other what providers have told them."""

import asyncio
from datetime import UTC, datetime

from proctor.batch.rate_limit_sync import hear_of_pools, share_pools, take_part
from proctor.models.rate_limits import RatePools
from proctor.testing import eventually_async


def now():
    return datetime.now(UTC)


async def began_beside(store, first, second, act):
    """`second` begins while `first` is at work and has shared what `act` did to it."""
    elsewhere, here = store.writer(), store.writer()
    try:
        await act(first)
        sharing = asyncio.create_task(share_pools(first, elsewhere, "first", "one", now))
        await eventually_async(lambda: store.read.pools("first"))
        await hear_of_pools(second, here, "two", now)
        sharing.cancel()
        await asyncio.wait([sharing])
    finally:
        elsewhere.close()
        here.close()


async def test_who_begins_while_a_provider_has_asked_for_rest_asks_nobody_before(store):
    async def refused(pools):
        pool = pools.pool("openai/big")
        pool.refused(await pool.enter(), 30)

    second = RatePools()
    await began_beside(store, RatePools(), second, refused)

    (known,) = second.states
    assert known.name == "openai/big"
    assert 20 < known.held_seconds <= 30


async def test_who_begins_while_a_limit_of_ones_own_is_used_up_gets_a_part_of_it(store):
    async def full(pools):
        for _ in range(4):
            await pools.pool("openai/big").enter()

    second = RatePools(most={"openai": 4})
    await began_beside(store, RatePools(most={"openai": 4}), second, full)

    assert [(known.limit, known.limit_of_all) for known in second.states] == [(1, 4)]


async def test_of_a_provider_that_complained_to_nobody_nothing_is_to_be_known(store):
    async def at_work(pools):
        await pools.pool("openai/big").enter()

    second = RatePools()
    await began_beside(store, RatePools(), second, at_work)

    assert second.states == []


async def test_what_others_still_use_of_a_limit_is_not_used_twice():
    pools = RatePools(most={"openai": 8})
    pool = pools.pool("openai/big")
    row = {"name": "openai/big", "cutAt": None, "heldUntil": None, "limit": 8.0, "waiting": 0}

    take_part(pools, pools.states, [{**row, "inUse": 6}], now())
    assert pool.state.limit == 1
    waiting = [asyncio.create_task(pool.enter()) for _ in range(9)]
    await asyncio.sleep(0)
    take_part(pools, pools.states, [{**row, "inUse": 6}], now())
    assert pool.state.limit == 2
    take_part(pools, pools.states, [{**row, "inUse": 3}], now())
    assert pool.state.limit == 5

    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)
