"""A provider that goes away: calls wait for it, single ones probe it, and no item is lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from proctor.errors import ModelError
from proctor.model import Request
from proctor.models import ModelRouter, rate_limits
from proctor.models.client import CallRetryPolicy, Client
from proctor.models.rate_limits import RatePool, RatePools, pause_before_retry
from proctor.testing import eventually_async
from proctor.testing.model_server import ModelServer, ServerReply, failure, reply

QUICK = CallRetryPolicy(first_pause_seconds=0.001, most_waiting_seconds=2)
GARBAGE = ServerReply(raw=b"<html>Bad gateway</html>")


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch):
    """Probes every few milliseconds instead of seconds."""
    monkeypatch.setattr(rate_limits, "FIRST_PROBE_SECONDS", 0.005)
    monkeypatch.setattr(rate_limits, "LONGEST_PROBE_SECONDS", 0.02)
    monkeypatch.setattr(rate_limits, "SLICE_SECONDS", 0.02)


class Calls:
    """Models behind a server, which wait for it."""

    def __init__(self, url: str, patience: float = 30.0) -> None:
        self.pools = RatePools(outage_patience_seconds=patience)
        self.pools.waits_for_outages = True
        self.messages = list[str]()
        self.pools.notify = self.messages.append
        environment = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k"}
        self.models = ModelRouter(environment, client=Client(QUICK, pools=self.pools), pools=self.pools)
        self.waited = list[float]()
        self.waiting_ms = 0.0

    async def ask(self, text: str = "hello") -> str:
        request = Request(model="openai/tiny", messages=[{"role": "user", "content": text}])
        answer = await self.models.for_attempt(self.waited.append).answer(request)
        self.waiting_ms += answer.call.waiting_ms
        return answer.text


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def calls(server) -> AsyncIterator[Calls]:
    made = Calls(server.url)
    yield made
    await made.models.close()


@pytest.mark.parametrize("fault", [failure(503), failure(500), GARBAGE, ServerReply(hangs_up=True)])
async def test_calls_wait_for_a_provider_that_answers_only_with_faults(server, calls, fault):
    server.answers = [fault]
    asking = [asyncio.create_task(calls.ask(str(number))) for number in range(10)]
    await eventually_async(lambda: len(server.requests) > 40)
    assert not any(task.done() for task in asking)
    assert server.at_once <= 1, "single calls probe it"

    server.answers = [reply("back")]

    assert await asyncio.gather(*asking) == ["back"] * 10
    assert calls.messages[0].startswith("openai/tiny is unreachable, probing: ")
    assert calls.messages[1].startswith("openai/tiny answers again after ")
    assert sum(calls.waited) > 0
    # The answers tell it too, with the duration of the tries that failed.
    assert calls.waiting_ms > 0.9999 * 1000 * sum(calls.waited)


async def test_calls_wait_for_a_server_that_is_not_there(server):
    async with ModelServer() as gone:
        url = gone.url
    calls = Calls(url)
    asking = [asyncio.create_task(calls.ask(str(number))) for number in range(5)]
    await eventually_async(lambda: bool(calls.messages))
    assert "unreachable, probing" in calls.messages[0]
    await eventually_async(lambda: calls.pools.states[0].waiting + calls.pools.states[0].in_use == 5)
    assert calls.pools.states[0].outage
    port = int(url.rpartition(":")[2].partition("/")[0])
    async with ModelServer([reply("back")], port=port):
        assert await asyncio.gather(*asking) == ["back"] * 5
    await calls.models.close()


async def test_one_request_that_the_provider_cannot_take_holds_nobody_up(server, calls):
    """The others are answered: it fails after its tries, as it would without outages."""
    server.answers = lambda body: failure(500) if body["messages"][0]["content"] == "poison" else reply("ok")
    poisoned = asyncio.create_task(calls.ask("poison"))
    answers = [await calls.ask() for _ in range(50)]
    with pytest.raises(ModelError, match="answered 500"):
        await poisoned
    assert answers == ["ok"] * 50


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_request_that_is_refused_is_no_outage(server, calls, status):
    server.answers = [failure(status)]
    for _ in range(10):
        with pytest.raises(ModelError, match=f"answered {status}"):
            await calls.ask()
    assert calls.messages == [] and len(server.requests) == 10


async def test_a_refusal_ends_an_outage_since_the_provider_has_answered(server, calls):
    server.answers = [failure(503)]
    asking = [asyncio.create_task(calls.ask(str(number))) for number in range(4)]
    await eventually_async(lambda: bool(calls.messages))
    server.answers = [failure(401)]
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(error, ModelError) and error.reason == "auth" for error in outcomes)


async def test_an_outage_longer_than_the_patience_fails_the_calls_that_wait(server):
    calls = Calls(server.url, patience=0.2)
    server.answers = [failure(503)]
    outcomes = await asyncio.gather(*(calls.ask(str(number)) for number in range(10)), return_exceptions=True)
    assert all(isinstance(error, ModelError) and error.reason == "model_failed" for error in outcomes)
    assert "longer than outage_patience" in calls.messages[1]
    with pytest.raises(ModelError, match="answered 503"):
        await calls.ask()
    server.answers = [reply("back")]
    assert await calls.ask() == "back"
    await calls.models.close()


async def test_a_cancelled_probe_leaves_the_probing_to_the_next_call(server, calls):
    server.answers = [failure(503)]
    asking = [asyncio.create_task(calls.ask(str(number))) for number in range(4)]
    await eventually_async(lambda: bool(calls.messages))
    server.answers = [ServerReply(delay_seconds=60)]
    await eventually_async(lambda: server.at_once == 1)
    server.answers = [reply("back")]
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert await calls.ask() == "back"


async def test_requests_that_failed_while_others_were_answered_are_given_up_soon(monkeypatch):
    """Several of them are left at the end of a run: their requests may be the cause, not the provider."""

    class Call:
        pass

    now, poisoned = 0.0, [Call() for _ in range(3)]
    pool = RatePool("openai/tiny", clock=lambda: now, outage_patience_seconds=1800)
    # The clock of the pool is turned by hand; timers of the loop would go by another one.
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda *_: None)
    for call in poisoned:
        assert not pool.unreachable(await pool.enter(), call, "answered 500", is_connected=True)
        await pool.enter()
        pool.answered()
    waits = [
        pool.unreachable(await pool.enter(), call, "answered 500", is_connected=True) for call in poisoned
    ]
    assert waits == [False, False, True], "this may be an outage that begins"
    now = rate_limits.PATIENCE_WITH_ONE_CALL_SECONDS - 1
    assert pool.unreachable(await pool.enter(), poisoned[0], "answered 500", is_connected=True)
    now += 31
    assert not pool.unreachable(await pool.enter(), poisoned[0], "answered 500", is_connected=True)

    now += 100
    for _ in range(3):
        pool.unreachable(await pool.enter(), Call(), "answered 500", is_connected=True)
    now += rate_limits.PATIENCE_WITH_ONE_CALL_SECONDS
    assert pool.unreachable(await pool.enter(), Call(), "answered 500", is_connected=True), "others fail, too"


async def test_an_outage_is_probed_after_pauses_that_double_up_to_half_a_minute(monkeypatch):
    monkeypatch.undo()
    moment, messages = 0.0, list[str]()
    pool = RatePool("p", clock=lambda: moment, outage_patience_seconds=1800, notify=messages.append)
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
    assert (pool.state.outage, pool.state.in_use) == ("down", 0)
    pool.reached()
    assert messages[1:] == ["p answers again after 91 s"]
    assert (pool.state.outage, pool.state.held_seconds) == ("", 0)


@pytest.mark.parametrize(
    ("seconds", "tries", "pause"),
    [(2.0, 1, 2.0), (2.0, 3, 8.0), (30.0, 2, 60.0), (30.0, 3, None), (2.0, 5, None)],
)
def test_pauses_before_a_call_that_may_be_billed_double_up_to_a_minute(seconds, tries, pause):
    error = ModelError("broke off")
    error.may_be_billed, error.pause_seconds = True, seconds

    assert pause_before_retry(error, tries) == pause
