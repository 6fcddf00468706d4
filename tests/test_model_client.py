"""The one way to ask a model: each exchange is recorded, however it ends."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from proctor.errors import ModelError, TimeLimit
from proctor.model import Answer, Request
from proctor.model_client import ModelClient
from proctor.session import Event, Message, ModelCall, Note, Usage

REQUEST = Request(
    model="m", messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
)
USAGE = Usage(input_tokens=10, output_tokens=2, cached_tokens=3)


class OneAnswer:
    """Answers everything alike, and counts how many calls run at the same time."""

    def __init__(self, text: str = "Hello", *, finish_reason: str = "stop", cost: float | None = 0.5) -> None:
        self._answer = Answer(
            text=text, call=ModelCall(model="m", usage=USAGE, cost_usd=cost), finish_reason=finish_reason
        )
        self.running = self.most_running = 0

    async def answer(self, request: Request) -> Answer:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return self._answer


class Failing:
    async def answer(self, request: Request) -> Answer:
        raise ModelError("no", reason="auth")


class Hanging:
    async def answer(self, request: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError


async def test_prompt_call_and_answer_are_recorded_in_this_order() -> None:
    events: list[Event] = []

    await ModelClient(OneAnswer(), events.append).ask(REQUEST)

    assert events == [
        Message(role="system", content="Be brief."),
        Message(role="user", content="Hi"),
        ModelCall(model="m", usage=USAGE, cost_usd=0.5),
        Message(role="assistant", content="Hello"),
    ]


async def test_with_a_speaker_the_call_is_recorded_last_since_it_may_end_the_attempt() -> None:
    events: list[Event] = []
    calls: list[ModelCall] = []
    client = ModelClient(OneAnswer(), events.append)

    await client.ask(REQUEST, speaker="port", purpose="decision", on_call=calls.append)

    assert [getattr(event, "name", "call") for event in events] == [
        "port: decision",
        "port: decision",
        "port",
        "call",
    ]
    assert calls == [events[-1]]


@pytest.mark.parametrize(
    ("text", "keep", "has_bodies"),
    [("Hello", "call", False), ("<think>hm</think>Hello", "call", True), ("Hello", "bodies", True)],
)
async def test_bodies_are_kept_with_the_call_on_request_and_where_there_is_reasoning(text, keep, has_bodies):
    events: list[Event] = []

    answer = await ModelClient(OneAnswer(text, finish_reason="length"), events.append, keep=keep).answer(
        REQUEST
    )

    call, note = events
    assert answer.text == text
    assert isinstance(call, ModelCall)
    assert call.response == (text if has_bodies else "")
    assert (json.loads(call.request) if has_bodies else call.request) == (
        list(REQUEST.messages) if has_bodies else ""
    )
    assert note == Note(text="an answer of m was cut off at its length limit")


async def test_a_failed_call_is_recorded_with_its_reason_and_not_counted() -> None:
    events: list[Event] = []
    client = ModelClient(Failing(), events.append, keep="call")

    with pytest.raises(ModelError):
        await client.ask(REQUEST)

    assert events == [ModelCall(model="m", status="auth", error="no")]
    assert (client.calls, client.cost_usd) == (0, None)


async def test_a_cancelled_call_is_recorded_as_cancelled() -> None:
    events: list[Event] = []
    call = asyncio.create_task(ModelClient(Hanging(), events.append, keep="call").ask(REQUEST))
    await asyncio.sleep(0)
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert events == [ModelCall(model="m", status="cancelled")]


async def test_a_call_for_a_speaker_names_speaker_and_purpose_however_it_ends() -> None:
    events: list[Event] = []

    await ModelClient(OneAnswer(), events.append).ask(REQUEST, speaker="port", purpose="decision")
    with pytest.raises(ModelError):
        await ModelClient(Failing(), events.append).ask(REQUEST, speaker="port", purpose="decision")

    calls = [event for event in events if isinstance(event, ModelCall)]
    assert [(call.status, call.speaker, call.purpose) for call in calls] == [
        ("ok", "port", "decision"),
        ("auth", "port", "decision"),
    ]


async def test_a_call_beyond_its_time_limit_is_recorded_as_that_and_not_as_cancelled() -> None:
    events: list[Event] = []

    @asynccontextmanager
    async def limit():
        yield
        raise TimeLimit("too long")

    with pytest.raises(TimeLimit):
        await ModelClient(OneAnswer(), events.append, keep="call").ask(REQUEST, time_limit=limit())
    assert events == [ModelCall(model="m", status=TimeLimit.reason, error="too long")]


async def test_usage_adds_up_and_an_unknown_cost_stays_unknown() -> None:
    client = ModelClient(OneAnswer(cost=None), lambda _: None)
    await client.ask(REQUEST)
    assert client.cost_usd is None

    client = ModelClient(OneAnswer(cost=0.5), lambda _: None)
    await client.ask(REQUEST)
    await client.ask(REQUEST)
    resumed = ModelClient(OneAnswer(cost=0.5), lambda _: None)
    resumed.restore(json.loads(json.dumps(client.totals())))
    await resumed.ask(REQUEST)

    assert (resumed.calls, resumed.cost_usd, resumed.usage) == (3, 1.5, USAGE + USAGE + USAGE)


@pytest.mark.parametrize(("at_once", "most"), [(1, 1), (2, 2), (None, 5)])
async def test_calls_at_once_are_limited(at_once: int | None, most: int) -> None:
    model = OneAnswer()
    client = ModelClient(model, lambda _: None, at_once=at_once)

    await asyncio.gather(*(client.ask(REQUEST) for _ in range(5)))

    assert model.most_running == most
