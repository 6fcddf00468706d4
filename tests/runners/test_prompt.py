"""A plain prompt, carried out."""

from coding_sessions import time_limit
from plain_services import plain_services

from proctor.item import Item
from proctor.model import Answer
from proctor.runners.prompt import PromptRunner
from proctor.session import Iteration, Message, ModelCall, Usage


class Said:
    """A model that says one thing and keeps what it was asked."""

    def __init__(self, text):
        self.text, self.requests = text, []

    async def answer(self, request):
        self.requests.append(request)
        call = ModelCall(model=request.model, usage=Usage(input_tokens=10, output_tokens=2))
        return Answer(text=self.text, call=call)


async def carried_out(answering, /, **asked):
    events, scores = [], []
    # Neither a gateway nor an agent.
    services = plain_services(
        record=events.append, score=scores.append, models=answering, time_limit=time_limit
    )
    asked = {"prompt": "Capital of France?", "model": "m", "runner": "prompt"} | asked
    return await PromptRunner().run(Item(**asked), services), events, scores


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
