"""One call over its tries: what is waited, what a pool learns, and when it is given up."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from proctor.errors import RateLimited
from proctor.models import rate_limits
from proctor.models.client import (
    CallRetryPolicy,
    CallTarget,
    Client,
    RetryableError,
    error_of,
)
from proctor.models.providers import Endpoint
from proctor.models.rate_limits import RatePolicy, RatePool, RatePools

ENDPOINT = Endpoint(provider="openai", model="tiny", base_url="http://127.0.0.1:1", key="k", wire="openai")
TARGET = CallTarget(ENDPOINT, "http://127.0.0.1:1/v1", {})
QUICK = CallRetryPolicy(first_pause_seconds=0.002, most_waiting_seconds=10)


def failing(*failures: BaseException) -> Callable[..., Any]:
    left = list(failures)

    async def send(target: CallTarget, body: bytes) -> str:
        assert (target, body) == (TARGET, b"{}")
        if left:
            raise left.pop(0)
        return "answer"

    return send


def limited(seconds: float | None = None) -> RetryableError:
    return RetryableError(RateLimited("429", retry_after_seconds=seconds), seconds)


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"retry-after-ms": "1500", "Retry-After": "9"}, 1.5),
        (429, {"Retry-After": "9"}, 9.0),
        (500, {"Retry-After": "9"}, 9.0),
        (408, {}, None),
        (
            503,
            {
                "Retry-After": "Thu, 01 Jan 2026 00:00:20 GMT",
                "Date": "Thu, 01 Jan 2026 00:00:05 GMT",
            },
            15.0,
        ),
        (503, {"Retry-After": "Thu, 01 Jan 2026 00:00:20 GMT"}, None),
        (
            503,
            {
                "Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT",
                "Date": "Thu, 01 Jan 2026 00:00:05 GMT",
            },
            0.0,
        ),
    ],
)
def test_statuses_after_which_a_call_is_repeated(status, headers, seconds):
    error = error_of(status, headers, b"", ENDPOINT)

    assert isinstance(error, RetryableError)
    assert error.retry_after_seconds == seconds
    assert isinstance(error.error, RateLimited) is (status == 429)
    assert str(error.error) == f"openai answered {status} for tiny: no details"


@pytest.mark.parametrize(
    ("status", "raw", "reason"),
    [
        (402, b"", "quota"),
        (429, b'{"error": {"code": "insufficient_quota"}}', "quota"),
        (500, b'{"error": {"code": "insufficient_quota"}}', None),
        (401, b"", "auth"),
        (403, b"", "auth"),
        (400, b"", "bad_request"),
        (404, b"", "bad_request"),
        (499, b"", "bad_request"),
    ],
)
def test_statuses_after_which_a_call_has_failed(status, raw, reason):
    error = error_of(status, {}, raw, ENDPOINT)

    assert isinstance(error, RetryableError) is (reason is None)
    if reason:
        assert error.reason == reason


# --- The pool of a provider ---


def policy(**more: Any) -> RatePolicy:
    return RatePolicy(**{"first": 10, "most": 100} | more)


async def test_a_pool_begins_with_200_calls_and_has_at_most_10000():
    pool = RatePools().pool("openai/a")
    assert pool.limit == 200

    pool.agree(20_000, 1.0)
    assert pool.limit == 10_000
    pool.agree(0.5, 1.0)
    assert pool.limit == 1


def use(pool: RatePool, calls: int, *, answered: int | None = None) -> None:
    """Begin some calls at once, and end some of them."""
    for _ in range(calls):
        assert pool.enter_at_once() is not None
    for _ in range(calls if answered is None else answered):
        pool.answered()


@pytest.mark.parametrize(("calls", "limit"), [(7, 10), (8, 40), (10, 40)])
async def test_a_pool_grows_fourfold_when_four_fifths_of_it_are_in_use(calls, limit):
    pool = RatePool("p", policy())
    use(pool, calls)

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
    pool.refused(rate_limits.Slot(0.0, 1), 0.01)
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


async def test_an_outage_is_probed_after_pauses_that_double_up_to_half_a_minute():
    moment = 0.0
    pool = RatePool("p", policy(), clock=lambda: moment, outage_patience_seconds=1800)
    for call in range(3):
        slot = pool.enter_at_once()
        assert not slot.is_probe
        assert pool.unreachable(slot, call, "down", is_connected=False) is (call == 2)
    pauses = []
    for call in range(7):
        assert pool.enter_at_once() is None, "nothing is sent before the probe"
        pauses.append(pool.state.held_seconds)
        moment += pauses[-1]
        probe = pool.enter_at_once()
        assert probe.is_probe and pool.enter_at_once() is None, "one probe at a time"
        assert pool.unreachable(probe, call, "down", is_connected=False)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert pool.state.outage == "down" and pool.state.in_use == 0


async def test_an_answer_ends_an_outage_and_tells_how_long_it_lasted():
    moment, messages = 10.0, list[str]()
    pool = RatePool("p", policy(), clock=lambda: moment, outage_patience_seconds=90, notify=messages.append)
    for _ in range(3):
        pool.unreachable(pool.enter_at_once(), object(), "down", is_connected=True)
    waiting = asyncio.ensure_future(pool.enter())
    await asyncio.sleep(0)
    moment = 17.4
    pool.reached()

    assert not (await waiting).is_probe
    assert messages[1:] == ["p answers again after 7 s"]
    assert (pool.state.outage, pool.state.in_use) == ("", 1)


async def test_a_call_that_is_cancelled_while_it_waits_for_a_slot_was_not_sent():
    pools = RatePools(RatePolicy(first=1, most=1))
    client = Client(QUICK, pools=pools)
    held = pools.pool("openai/tiny").enter_at_once()
    task = asyncio.ensure_future(client._with_retries(failing(), TARGET, b"{}", None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    assert held is not None and raised.value.args
