"""A plain prompt, carried out."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.errors import ModelError, TimeLimit
from proctor.item import Item
from proctor.model import Answer
from proctor.runner import Services
from proctor.runners.prompt import PromptRunner
from proctor.session import Iteration, Message, ModelCall, Note, Usage
from proctor.testing import eventually_async


class Said:
    """A model that says one thing and keeps what it was asked."""

    def __init__(self, text, finish_reason="stop"):
        self.text, self.finish_reason, self.requests = text, finish_reason, []

    async def answer(self, request):
        self.requests.append(request)
        if isinstance(self.text, Exception):
            raise self.text
        if self.text is None:
            await asyncio.sleep(60)
        call = ModelCall(model=request.model, usage=Usage(input_tokens=10, output_tokens=2))
        return Answer(text=self.text, call=call, finish_reason=self.finish_reason)


@asynccontextmanager
async def limited(seconds, what):
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeLimit(f"{what} took longer than {seconds} s") from None


async def carried_out(answering, /, events=None, **asked):
    events, scores = [] if events is None else events, []
    services = Services(
        session_id="a",
        attempt=1,
        record=events.append,
        score=scores.append,
        models=answering,
        access=lambda agent: pytest.fail("a prompt needs no gateway"),
        agent=lambda name, settings: pytest.fail("a prompt needs no agent"),
        home=Path("/nowhere"),
        environment={},
        now=lambda: datetime.now(UTC),
        time_limit=limited,
    )
    asked = {"prompt": "Capital of France?", "model": "m", "runner": "prompt"} | asked
    try:
        outcome = await PromptRunner().run(Item(**asked), services)
    except Exception as error:
        outcome = error
    return outcome, events, scores


async def test_question_call_and_answer_are_recorded_in_their_order():
    outcome, events, scores = await carried_out(Said("Paris"), details={"system": "Be brief."})
    assert (outcome.status, outcome.reason, outcome.error) == ("success", "completed", "")
    assert events == [
        Message(role="system", content="Be brief."),
        Message(role="user", content="Capital of France?"),
        ModelCall(model="m", usage=Usage(input_tokens=10, output_tokens=2)),
        Message(role="assistant", content="Paris"),
        Iteration(model="m"),
    ]
    assert scores == []


async def test_settings_and_seed_reach_the_model_and_each_repeat_draws_anew():
    model = Said("x")
    details = {"seed": 40, "settings": {"temperature": 1, "max_tokens": 5}}
    await carried_out(model, details=details)
    await carried_out(model, details=details, repeat=3)
    await carried_out(model)
    assert [request.seed for request in model.requests] == [40, 42, None]
    assert model.requests[0].parameters == {"temperature": 1, "max_tokens": 5}


async def test_an_answer_that_does_not_fails_and_says_why():
    expect = {"contains": "PARIS", "regex": "think"}
    outcome, events, scores = await carried_out(Said("I think Paris"), details={"expect": expect})
    assert (outcome.status, outcome.reason) == ("fail", "checks_failed")
    assert outcome.error == "answer does not contain 'PARIS'; it began 'I think Paris'"
    assert [score.value for score in scores] == [0.0, 1.0]
    assert isinstance(events[-1], Iteration)


async def test_a_model_that_fails_is_an_error_and_the_call_is_recorded():
    outcome, events, _ = await carried_out(Said(ModelError("away", reason="auth")))
    assert isinstance(outcome, ModelError)
    assert events[-1] == ModelCall(model="m", status="auth", error="away")


async def test_a_cancelled_call_is_recorded_as_one():
    events, model = [], Said(None)
    running = asyncio.create_task(carried_out(model, events))
    await eventually_async(lambda: model.requests)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert events[-1] == ModelCall(model="m", status="cancelled")


async def test_an_answer_cut_off_at_its_length_is_noted():
    _, events, _ = await carried_out(Said("Par", finish_reason="length"))
    assert any(isinstance(event, Note) for event in events)
