"""The model of one side of a dialogue: what it is asked, what is recorded, and when it is given up."""

from types import SimpleNamespace
from typing import Any

import pytest

from proctor.dialogue.participant import BrokenRole, RolePrompt, SideClient
from proctor.model import Answer, Request, ToolRequest
from proctor.session import Message, ModelCall

CALL = (ToolRequest(id="c", name="look", arguments="{}"),)


class Models:
    """Answers with tool calls so many times, then with words."""

    def __init__(self, rounds: int = 0) -> None:
        self.rounds, self.requests, self.events = rounds, list[Request](), list[Any]()

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        is_call = len(self.requests) <= self.rounds
        call = ModelCall(model=request.model)
        return Answer(text="<think>hm</think> Hi", call=call, tool_requests=CALL if is_call else ())

    def client(self) -> SideClient:
        services = SimpleNamespace(models=self, record=self.events.append)
        return SideClient("guide", "m", {"top_p": 1, "temperature": 1}, services, 7)

    @property
    def instructions(self) -> list[tuple[str, str]]:
        messages = [event for event in self.events if isinstance(event, Message)]
        return [(event.name, event.content) for event in messages if event.role == "system"]


class Tools:
    def definitions(self) -> list[dict[str, str]]:
        return [{"name": "look"}]

    async def exchange(self, text: str, requests: Any, number: int) -> list[dict[str, Any]]:
        return [{"role": "tool", "content": f"{len(requests)} in {number}"}]


def prompt(system: str = "Rules", *, inner: bool = False, **more: Any) -> RolePrompt:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Hello"}]
    return RolePrompt(messages=messages, parameters={"temperature": 0}, is_inner=inner, **more)


async def test_instructions_are_recorded_once_and_when_they_change() -> None:
    models = Models()
    client = models.client()
    for system in ("Rules", "Rules", "Other", ""):
        assert await client.ask(prompt(system)) == "Hi"
    await client.ask(prompt("Inner", inner=True))

    assert models.instructions == [
        ("instructions of the guide", "Rules"),
        ("instructions of the guide", "Other"),
    ]
    (first, *_) = models.requests
    assert (first.model, first.seed, first.tools) == ("m", 7, ())
    assert first.parameters == {"top_p": 1, "temperature": 0}


async def test_instructions_of_a_resumed_dialogue_are_not_recorded_again() -> None:
    models = Models()
    client = models.client()
    client.restore_instructions("Rules")
    await client.ask(prompt())
    assert models.instructions == []


@pytest.mark.parametrize(("rounds", "is_answered"), [(29, True), (30, False)])
async def test_a_model_may_call_tools_in_thirty_answers(rounds: int, is_answered: bool) -> None:
    models = Models(rounds)
    asked = models.client().ask(prompt(tools=Tools(), number=4))
    if is_answered:
        assert await asked == "Hi"
        assert models.requests[0].tools == [{"name": "look"}]
        assert models.requests[-1].messages[-1] == {"role": "tool", "content": "1 in 4"}
        assert len(models.requests[-1].messages) == 2 + rounds
    else:
        with pytest.raises(BrokenRole, match="the guide called tools in 30 successive answers"):
            await asked


async def test_a_model_without_tools_calls_none() -> None:
    models = Models(rounds=5)
    assert await models.client().ask(prompt()) == "Hi"
    assert len(models.requests) == 1
