"""Shared rate limits: one pool for all calls to a provider and model."""

import asyncio
from datetime import UTC, datetime

import pytest

from proctor.errors import RateLimited
from proctor.models.rate_limits import RatePolicy, RatePool, RatePools, Slot, spent_window_seconds

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Provider:
    """Answers after a moment, and remembers how many it was answering at once."""

    def __init__(self, *, seconds: float = 0.01, most: int = 10**9, retry_after: float | None = 0.05) -> None:
        self.seconds, self.most, self.retry_after = seconds, most, retry_after
        self.now = self.peak = self.refused = self.answered = 0

    async def __call__(self) -> str:
        if self.now >= self.most:
            self.refused += 1
            raise RateLimited("429", retry_after_seconds=self.retry_after)
        self.now += 1
        self.peak = max(self.peak, self.now)
        await asyncio.sleep(self.seconds)
        self.now -= 1
        self.answered += 1
        return "yes"


async def call(pool: RatePool, send, waited=None) -> str:
    """Call in a slot, as clients of providers do, again after each 429."""
    while True:
        slot = await pool.enter(waited)
        try:
            answer = await send()
        except RateLimited as error:
            pool.refused(slot, error.retry_after_seconds)
        else:
            pool.answered()
            return answer


async def ask(pool: RatePool, provider: Provider, times: int, waited=None) -> list[str]:
    return await asyncio.gather(*(call(pool, provider, waited) for _ in range(times)))


async def test_a_429_cuts_the_pool_to_less_than_what_was_in_use_and_every_call_still_gets_its_answer():
    pool, provider = RatePool("p", RatePolicy(first=40)), Provider(most=10, seconds=0.005)
    assert await ask(pool, provider, 120) == ["yes"] * 120
    assert provider.refused > 0
    assert pool.limit < 40


async def test_waiting_is_told_and_adds_up_to_the_time_really_waited():
    moment = 0.0
    told: dict[int, list[float]] = {number: [] for number in range(4)}
    pool = RatePool("p", RatePolicy(first=1, most=1), clock=lambda: moment)

    async def provider() -> str:
        nonlocal moment
        await asyncio.sleep(0)
        moment += 0.05
        return "yes"

    await asyncio.gather(*(call(pool, provider, reports.append) for reports in told.values()))

    assert [sum(reports) for reports in told.values()] == pytest.approx([0, 0.05, 0.1, 0.15])
    assert pool.state.waited_seconds == pytest.approx(0.3)


async def test_a_long_wait_is_told_while_it_lasts_and_corrected_when_it_is_over():
    moment, told = 0.0, []
    pool = RatePool("p", RatePolicy(first=1, most=1), clock=lambda: moment)
    slot = await pool.enter(told.append)
    waiting = asyncio.create_task(pool.enter(told.append))
    await asyncio.sleep(0)
    assert (slot.waited_seconds, told) == (0.0, [1.0]), "a second of it, in advance"

    moment = 0.25
    pool.answered()

    assert (await waiting).waited_seconds == 0.25
    assert told == [1.0, -0.75]
    assert (pool.state.waited_seconds, pool.state.calls) == (0.25, 2)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360),
        ({"X-RateLimit-Remaining-Tokens": "0", "X-RateLimit-Reset-Tokens": "120ms"}, 0.12),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-01-01T00:01:00Z",
            },
            60,
        ),
        ({"x-ratelimit-remaining-requests": "12", "x-ratelimit-reset-requests": "6m0s"}, None),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "12.5"}, 12.5),
        ({"ratelimit-remaining": "0", "ratelimit-reset": str(int(NOW.timestamp()) + 30)}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{int(NOW.timestamp()) + 30}000"}, 30),
        # From the year 2000 on a number is a time, in seconds or milliseconds; before, it is a duration.
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "946684799"}, 946_684_799),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "946684800"}, 0.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "946684800000"}, 0.0),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "inf"}, None),
        ({"x-ratelimit-remaining-requests": "0"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}, None),
        ({"x-remaining": "0", "x-reset": "2s"}, None),
        # The latest reset of the windows that are spent.
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-tokens": " 0 ",
                "x-ratelimit-reset-tokens": "7s",
                "x-ratelimit-remaining-images": "1",
                "x-ratelimit-reset-images": "90s",
            },
            7,
        ),
        ({}, None),
    ],
)
def test_a_spent_usage_window_is_read_from_the_headers(headers, seconds):
    assert spent_window_seconds(headers, NOW) == seconds


async def test_calls_refused_together_without_a_word_about_when_hold_the_pool_as_long_as_one():
    moment, pauses = 0.0, []
    pool = RatePool("p", RatePolicy(first=40), clock=lambda: moment)
    for together in (20, 5, 1):
        for place in [await pool.enter() for _ in range(together)]:
            pool.refused(place, None)
        pauses.append(pool.state.held_seconds)
        moment += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0]


async def test_the_users_own_limit_for_a_provider_or_a_model_is_never_passed():
    pools = RatePools(most={"openai": 3, "openai/big": 1})
    small, big = Provider(), Provider()
    await ask(pools.pool("openai/small"), small, 20)
    await ask(pools.pool("openai/big"), big, 5)
    assert (small.peak, big.peak) == (3, 1)


async def test_a_server_on_this_machine_and_a_declared_limit_need_no_slow_start():
    pools = RatePools(RatePolicy(first=2, most=50, growth_seconds=60), most={"openai": 20})
    near, declared, unknown = Provider(seconds=0.05), Provider(seconds=0.05), Provider(seconds=0.05)
    await ask(pools.pool("local/a", is_local=True), near, 40)
    await ask(pools.pool("openai/a"), declared, 40)
    await ask(pools.pool("groq/a"), unknown, 2)
    assert (near.peak, declared.peak) == (40, 20)
    assert pools.pool("groq/a").limit < 50


async def test_a_full_pool_that_nobody_refuses_grows_before_the_first_answer():
    pool, provider = RatePool("p", RatePolicy(first=2, most=50, growth_seconds=0.02)), Provider(seconds=0.3)
    await ask(pool, provider, 50)
    assert provider.peak == 50


async def test_waiting_calls_that_are_cancelled_leave_their_place_and_their_slot():
    pool, gate = RatePool("p", RatePolicy(first=1, most=1)), asyncio.Event()

    async def held() -> str:
        await gate.wait()
        return "yes"

    first = asyncio.create_task(call(pool, held))
    await asyncio.sleep(0)
    second, third = asyncio.create_task(call(pool, held)), asyncio.create_task(call(pool, held))
    await asyncio.sleep(0)
    assert (pool.state.in_use, pool.state.waiting) == (1, 2)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (pool.state.in_use, pool.state.waiting) == (1, 1)
    # Cancelled after it was given the slot, before it could use it.
    gate.set()
    assert await first == "yes"
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    assert (pool.state.in_use, pool.state.waiting) == (0, 0)
    assert await call(pool, held) == "yes"
    assert pool.state.held_seconds == 0 and pool.state.waited_seconds >= 0


def policy(**more) -> RatePolicy:
    return RatePolicy(**{"first": 10, "most": 100} | more)


async def test_a_pool_begins_with_200_calls_and_has_at_most_10000():
    pool = RatePools().pool("openai/a")
    limits = [pool.limit]
    for limit in (20_000, 0.5):
        pool.agree(limit, 1.0)
        limits.append(pool.limit)
    assert limits == [200, 10_000, 1]


@pytest.mark.parametrize(("calls", "limit"), [(7, 10), (8, 40), (10, 40)])
async def test_a_pool_grows_fourfold_when_four_fifths_of_it_are_in_use(calls, limit):
    pool = RatePool("p", policy())
    for _ in range(calls):
        assert pool.enter_at_once() is not None
    for _ in range(calls):
        pool.answered()
    assert pool.limit == limit


async def test_a_refusal_cuts_a_pool_to_four_fifths_of_what_was_in_use():
    pool = RatePool("p", policy(), clock=lambda: 5.0)
    slots = [pool.enter_at_once() for _ in range(10)]
    pool.share = 0.5
    pool.refused(slots[0], 0.01)
    assert pool.limit == 8, "of the limit, where more is in use than the share of this process"
    pool.share = 1.0
    pool.refused(slots[1], 0.01)
    assert pool.limit == 8, "calls of one time cut it once"
    assert (pool.state.limited, pool.state.in_use, pool.state.cut_seconds_ago) == (2, 8, 0.0)
    pool.refused(Slot(0.0, 1), 0.01)
    assert pool.limit == pytest.approx(6.4)


async def test_a_process_has_its_share_of_each_limit():
    pools = RatePools(policy(first=10), share=0.25)
    assert (pools.pool("a/b").state.limit, pools.pool("a/b").share) == (2, 0.25)


async def test_a_longer_hold_replaces_a_shorter_one_and_not_the_other_way_around():
    pool = RatePool("p", policy(), clock=lambda: 0.0)
    for seconds, held in ((5.0, 5.0), (3.0, 5.0), (7.0, 7.0)):
        pool.hold(seconds)
        assert pool.state.held_seconds == held
    assert pool.enter_at_once() is None


async def test_a_pool_grows_by_one_after_a_round_of_answers_that_no_failure_interrupts():
    pool = RatePool("p", RatePolicy(first=200))
    pool.agree(10, 1.0)

    def end(count, how):
        for _ in range(count):
            how()
        return pool.limit

    for _ in range(10):
        pool.enter_at_once()
    assert end(9, pool.answered) == end(1, pool.failed) == 10
    for _ in range(10):
        pool.enter_at_once()
    assert [end(9, pool.answered), end(1, pool.answered)] == [10, 11]
