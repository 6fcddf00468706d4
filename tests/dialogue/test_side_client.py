"""The model of one side of a dialogue: what it is asked, what is recorded, and when it is given up."""

from types import SimpleNamespace
from typing import Any

import pytest

from proctor.dialogue import participant, steps, tools
from proctor.dialogue.participant import BrokenRole, RolePrompt, SideClient
from proctor.dialogue.task import check_task
from proctor.dialogue.tools import ToolRefusal, WorldError
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


def test_a_copied_state_shares_nothing() -> None:
    state = {"a": [{"b": 1}], "c": "d"}
    copied = participant._copied(state)
    assert copied == state
    copied["a"][0]["b"] = 2  # type: ignore[index]
    assert state == {"a": [{"b": 1}], "c": "d"}


@pytest.mark.parametrize(
    ("status", "text", "result"),
    [
        (200, '{"a": 1}', {"a": 1}),
        (299, "plain", "plain"),
        (199, "odd", (WorldError, "the tool t: the server answered 199: odd")),
        (300, "x" * 300, (WorldError, f"the tool t: the server answered 300: {'x' * 200}")),
        (400, " no \n", (ToolRefusal, "no")),
        (404, "", (ToolRefusal, "the server answered 404")),
        (499, "y" * 2000, (ToolRefusal, "y" * 1000)),
        (500, "down", (WorldError, "the tool t: the server answered 500: down")),
    ],
)
async def test_the_answers_of_a_server_of_tools(
    status: int, text: str, result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[Any]()

    async def send(url: str, body: Any, **more: Any) -> tuple[int, str]:
        sent.append((url, body, more["method"]))
        return status, text

    monkeypatch.setattr(tools, "send", send)
    side = SimpleNamespace(
        _world=SimpleNamespace(state={"s": 1}),
        _services=SimpleNamespace(environment={}),
        _result_of=lambda spec, value: ("result", value),
    )
    for shares in (False, True):
        asked = tools.SideTools._call_server(
            side, {"name": "t"}, {"url": "http://x/{{ a }}", "shares_state": shares}, {"a": "b/c"}
        )
        if isinstance(result, tuple):
            with pytest.raises(result[0]) as raised:
                await asked
            assert str(raised.value) == result[1]
        else:
            assert await asked == (("result", result) if shares else result)
    assert sent == [
        ("http://x/b%2Fc", {"a": "b/c"}, "POST"),
        ("http://x/b%2Fc", {"tool": "t", "arguments": {"a": "b/c"}, "state": {"s": 1}}, "POST"),
    ]


@pytest.mark.parametrize(
    ("url", "text", "passages", "is_asked"),
    [
        ("http://x", "word", {"a": "word"}, True),
        ("", "word", {"a": "word"}, False),
        ("http://x", " ", {"a": "word"}, False),
        ("http://x", "word", {}, False),
    ],
)
async def test_passages_are_ranked_by_a_server_where_there_is_one(
    url: str, text: str, passages: dict[str, str], is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, notes = list[Any](), list[str]()

    async def best_passage(*arguments: Any) -> str:
        asked.append(arguments)
        if "fail" in url:
            raise WorldError("down")
        return "ranked"

    monkeypatch.setattr(steps, "best_passage", best_passage)
    monkeypatch.setattr(steps, "nearest", lambda text, passages: "by words")
    turn = SimpleNamespace(_value=lambda value, _: value, participant=SimpleNamespace(note=notes.append))
    step: Any = {"text": text, "passages": passages, "url": url, "model": "m"}
    ranked = steps._Turn._ranked

    assert await ranked(turn, step) == ("ranked" if is_asked else "by words")
    assert asked == ([(url, "m", text, passages)] if is_asked else [])
    url = "http://fail"
    if is_asked:
        assert await ranked(turn, step) == "by words"
        assert notes == ["down; passages were compared by their words"]


@pytest.mark.parametrize(("under_test", "own", "users"), [("guide", True, False), ("client", False, True)])
def test_checks_are_of_the_side_under_test_and_those_of_the_user_of_the_other(
    under_test: str, own: bool, users: bool
) -> None:
    action = tools.Action(side="guide", tool="look", arguments={}, success=True, result="")
    world: Any = SimpleNamespace(actions=[action], state={})
    checks = {"actions": ["look"], "says": ["hello"], "user": {"actions": ["look"], "says": ["hello"]}}
    results = check_task(checks, world, [("guide", "hello")], under_test, None)
    holds = {result.kind: not result.failures for result in results}
    assert holds == {"actions": own, "says": own, "user.actions": users, "user.says": users}
