"""Processes on one store tell each other what providers have told them."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from work_items import NOW, pool

from proctor.batch.engines.worker import adopt_limits, apply_shares, limit_and_share, share_limits
from proctor.batch.host import pool_row, pool_state
from proctor.models.rate_limits import PoolState, RatePools
from proctor.store import timestamp
from proctor.store.ledger import exchange
from proctor.testing import eventually_async


def now():
    return datetime.now(UTC)


class Sharing:
    """Rate limits of one run, exchanged over its writer."""

    def __init__(self, writer, run_id):
        self.writer, self.run_id = writer, run_id

    async def share_limits(self, holder, states):
        moment = now()
        rows = [pool_row(state, self.run_id, moment) for state in states]
        others = self.writer.submit(lambda connection: exchange(connection, holder, rows, moment))
        return [pool_state(row, moment) for row in await asyncio.wrap_future(others)]


async def test_who_begins_beside_others_knows_the_limits_that_they_met_and_no_others(store):
    first, second = RatePools(most={"anthropic": 4}), RatePools(most={"anthropic": 4})
    refused = first.pool("openai/big")
    refused.refused(await refused.enter(), 30)
    for _ in range(4):
        await first.pool("anthropic/full").enter()
    await first.pool("groq/calm").enter()
    elsewhere, here = store.writer(), store.writer()
    try:
        sharing = asyncio.create_task(share_limits(first, Sharing(elsewhere, "first"), "one"))
        await eventually_async(lambda: store.read.pools("first"))
        await adopt_limits(second, Sharing(here, "second"), "two")
        sharing.cancel()
        await asyncio.wait([sharing])
    finally:
        elsewhere.close()
        here.close()

    known = {state.name: state for state in second.states}
    assert known.keys() == {"openai/big", "anthropic/full"}, "who complained to nobody is not known"
    assert 20 < known["openai/big"].held_seconds <= 30
    full = known["anthropic/full"]
    assert (full.limit, full.limit_of_all) == (1, 4)


def elsewhere(in_use=0, limit=8, cut_seconds_ago=None, held_seconds=0.0):
    """The pool of another process."""
    return PoolState(
        name="openai/big",
        limit=limit,
        limit_of_all=float(limit),
        in_use=in_use,
        waiting=0,
        calls=0,
        limited=0,
        waited_seconds=0.0,
        held_seconds=held_seconds,
        cut_seconds_ago=cut_seconds_ago,
    )


async def test_the_limit_of_who_was_refused_last_counts():
    moment = 100.0
    pools = RatePools(clock=lambda: moment)
    pool = pools.pool("openai/big")

    apply_shares(pools, pools.states, [elsewhere(limit=30, cut_seconds_ago=9), elsewhere(limit=50)])
    assert pool.limit == 30, "of those who were refused at all"
    apply_shares(
        pools, pools.states, [elsewhere(limit=40, cut_seconds_ago=5), elsewhere(limit=20, cut_seconds_ago=7)]
    )
    assert pool.limit == 40

    pool.refused(await pool.enter(), 0)
    refused_here = pool.limit
    moment += 2
    apply_shares(pools, pools.states, [elsewhere(limit=40, cut_seconds_ago=5)])
    assert pool.limit == refused_here < 40
    apply_shares(pools, pools.states, [elsewhere(limit=40, cut_seconds_ago=1)])
    assert pool.limit == 40


async def test_a_pool_is_held_as_long_as_any_process_was_told():
    pools = RatePools(clock=lambda: 0.0)
    pool = pools.pool("openai/big")

    apply_shares(pools, pools.states, [elsewhere(held_seconds=30), elsewhere(held_seconds=12), elsewhere()])

    assert pool.state.held_seconds == 30


async def test_what_others_still_use_of_a_limit_is_not_used_twice():
    pools = RatePools(most={"openai": 8})
    pool = pools.pool("openai/big")

    def others(in_use):
        return [elsewhere(in_use)]

    apply_shares(pools, pools.states, others(6))
    assert pool.state.limit == 1
    waiting = [asyncio.create_task(pool.enter()) for _ in range(9)]
    await asyncio.sleep(0)
    apply_shares(pools, pools.states, others(6))
    assert pool.state.limit == 2
    apply_shares(pools, pools.states, others(3))
    assert pool.state.limit == 5

    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)


async def test_the_limits_of_a_run_are_those_of_all_its_workers_together(store):
    writer = store.writer()
    for holder, calls in (("one", 3), ("two", 4)):
        pools = RatePools(most={"openai": 10})
        for _ in range(calls):
            await pools.pool("openai/big").enter()
        await Sharing(writer, "run").share_limits(holder, pools.states)
    writer.close()

    (pool,) = store.read.pools("run")

    assert (pool["limit"], pool["inUse"], pool["calls"], pool["waiting"]) == (10, 7, 7, 0)


@pytest.mark.parametrize(
    ("mine", "rest", "limit", "share"),
    [
        (pool(), [], 8, 1.0),
        (pool(in_use=1), [pool()], 8, 2 / 3),
        (pool(waiting=2), [pool(in_use=1, waiting=1), pool()], 8, 3 / 7),
        (pool(), [pool(in_use=7)], 8, 1 / 9),
        (pool(waiting=9), [pool(in_use=7)], 8, 1 / 8),
        (pool(waiting=9), [pool(in_use=9)], 8, 0.0),
        (pool(), [pool(limit=4, ago=1)], 4, 0.5),
        (pool(ago=1), [pool(limit=4, ago=2)], 8, 0.5),
    ],
)
def test_a_limit_is_shared_by_demand_and_what_is_in_use_is_not_given_twice(mine, rest, limit, share):
    assert limit_and_share(8.0, mine, rest) == (limit, pytest.approx(share))


def test_the_row_of_a_pool_is_read_as_it_was_written():
    state = pool(in_use=1, waiting=2, limit=8.0, ago=4.0, held=5.0, holder="me")
    row = pool_row(state, "run", NOW) | {"owner": "me"}
    assert row["heldUntil"] == timestamp(NOW + timedelta(seconds=5))
    assert row["cutAt"] == timestamp(NOW - timedelta(seconds=4))
    assert pool_state(row, NOW) == state
    later = pool_state(row, NOW + timedelta(seconds=7))
    assert (later.held_seconds, later.cut_seconds_ago) == (0.0, 11.0)
    free = pool_row(pool(), "run", NOW) | {"owner": ""}
    assert (free["heldUntil"], free["cutAt"], free["runId"]) == (None, None, "run")
    assert (pool_state(free, NOW).held_seconds, pool_state(free, NOW).cut_seconds_ago) == (0.0, None)
