"""Rate limits that the processes of a run share through the store."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest
from work_items import NOW, pool

from proctor.batch.rate_limit_sync import (
    limit_and_share,
    pool_row,
    pool_state,
    share_limits,
)
from proctor.store import timestamp


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
    assert (row["heldUntil"], row["cutAt"]) == (
        timestamp(NOW + timedelta(seconds=5)),
        timestamp(NOW - timedelta(seconds=4)),
    )
    assert pool_state(row, NOW) == state
    later = pool_state(row, NOW + timedelta(seconds=7))
    assert (later.held_seconds, later.cut_seconds_ago) == (0.0, 11.0)
    free = pool_row(pool(), "run", NOW) | {"owner": ""}
    assert (free["heldUntil"], free["cutAt"], free["runId"]) == (None, None, "run")
    assert (pool_state(free, NOW).held_seconds, pool_state(free, NOW).cut_seconds_ago) == (0.0, None)


class Pool:
    """Keeps what it is told."""

    def __init__(self):
        self.limit, self.agreed, self.holds = 8.0, [], []

    def agree(self, *limit_and_share):
        self.agreed.append(limit_and_share)

    def hold(self, seconds):
        self.holds.append(seconds)


async def test_limits_are_shared_every_second_while_there_are_any(monkeypatch):
    pauses, asked, made = [], [], {"p": Pool()}
    states = [[], [pool()]]

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    async def exchange(holder, given):
        asked.append((holder, given))
        return [pool()]

    class Pools:
        pool = made.__getitem__

        @property
        def states(self):
            return states.pop(0)

    monkeypatch.setattr("proctor.batch.rate_limit_sync.asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(asyncio.CancelledError):
        await share_limits(Pools(), SimpleNamespace(share_limits=exchange), "me")
    assert (pauses, asked) == ([1.0, 1.0, 1.0], [("me", [pool()])])
    assert made["p"].agreed == [(8.0, 0.5)]
