"""Agents in this process: one call whose answer becomes a file, functions, and keys of agents."""

import asyncio
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from proctor.agents import _only_adapter
from proctor.agents._function import AgentContext, FunctionAgent, _positional, as_answer
from proctor.agents.aider import _AiderReader
from proctor.agents.answer import AnswerAgent
from proctor.agents.scripted import ScriptedAgent
from proctor.errors import AgentError, UsageError
from proctor.model import Answer
from proctor.session import Intervention, Message, ModelCall, ToolCall, Usage


class Models:
    """Answers every request with a text; keeps the requests."""

    def __init__(self, text: str = "answer") -> None:
        self.text, self.requests = text, list[Any]()

    async def answer(self, request: Any) -> Answer:
        self.requests.append(request)
        return Answer(text=self.text, call=ModelCall(model=request.model, usage=Usage(input_tokens=1)))


CODE = "Here:\n```python\ndef f():\n    return 1\n```\n"


async def test_the_code_of_one_answer_becomes_a_file(place: Any) -> None:
    models = Models(CODE)
    done = await place.work(
        AnswerAgent(file="below/f.py", entry_point="f", prefix="import os\n"),
        "Write f.",
        models=models,
        model="m",
        seed=7,
    )
    assert (place.folder / "below/f.py").read_text() == "def f():\n    return 1\n"
    (request,) = models.requests
    assert (request.model, request.seed, request.parameters) == ("m", 7, {})
    assert request.messages == [{"role": "user", "content": "Write f."}]
    assert done.output == CODE
    assert [(event.role, event.content) for event in place.recorded(Message)] == [("assistant", CODE)]
    await place.work(AnswerAgent(), models=Models("plain"), model="m")
    await place.work(AnswerAgent(file="below/f.py"), models=Models("again"), model="m")
    assert (place.folder / "solution.py").read_text() == "plain"
    assert (place.folder / "below/f.py").read_text() == "again"


async def test_an_answer_needs_a_model_and_stays_in_the_folder(place: Any) -> None:
    for given in ({}, {"model": "m"}, {"models": Models()}):
        with pytest.raises(AgentError, match="the agent `answer` has no model to call"):
            await place.work(AnswerAgent(), **given)
    for file in ("../x.py", "/etc/x.py"):
        with pytest.raises(UsageError, match="leads out of the task's folder"):
            await place.work(AnswerAgent(file=file), models=Models(), model="m")
    assert AnswerAgent().availability({}).ready is True


async def test_a_function_asks_models_through_proctor(place: Any) -> None:
    models = Models()

    async def agent(prompt: str, context: AgentContext) -> str:
        first = await context.ask(prompt, temperature=0)
        second = await context.ask([{"role": "system", "content": "s"}], model="other")
        return f"{first.text} {second.text} {context.folder.name} {context.model}"

    done = await place.work(FunctionAgent(agent), "Do it.", models=models, model="m", seed=3)
    assert done.output == "answer answer tree m"
    first, second = models.requests
    assert (first.model, first.messages) == ("m", [{"role": "user", "content": "Do it."}])
    assert (first.parameters, first.seed) == ({"temperature": 0}, 3)
    assert (second.model, second.messages) == ("other", [{"role": "system", "content": "s"}])
    assert len(place.recorded(ModelCall)) == 2
    with pytest.raises(UsageError, match="this run has no models to call"):
        await place.work(FunctionAgent(agent), "Do it.", model="m")


async def test_what_a_function_returns_is_the_answer(place: Any) -> None:
    def later(prompt: str) -> Any:
        async def answer() -> str:
            return f"later {prompt}"

        return answer()

    for function, answer in (
        (lambda prompt: prompt, "Fix it."),
        (lambda: {"a": "ü", "b": Path("/x")}, '{"a": "ü", "b": "/x"}'),
        (later, "later Fix it."),
        (lambda prompt: None, ""),
    ):
        place.events.clear()
        assert (await place.work(FunctionAgent(function))).output == answer
        assert [event.content for event in place.recorded(Message)] == ([answer] if answer else [])


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda: 0, 0),
        (lambda prompt: 0, 1),
        (lambda prompt, context: 0, 2),
        (lambda prompt, context, more=1: 0, 2),
        (lambda *all_: 0, 2),
        (lambda prompt, *rest: 0, 2),
        (lambda prompt, *, context=None: 0, 1),
        (lambda prompt, /: 0, 1),
    ],
)
def test_how_many_arguments_a_function_takes(function: Any, count: int) -> None:
    assert _positional(function) == count


@pytest.mark.parametrize(
    ("result", "text"), [(None, ""), ("a", "a"), (1, "1"), (["ü"], '["ü"]'), (Path("/x"), '"/x"')]
)
def test_a_result_as_text(result: object, text: str) -> None:
    assert as_answer(result) == text


def module(**members: Any) -> ModuleType:
    made = ModuleType("agents.some")
    for name, value in members.items():
        if isinstance(value, type):
            value.__module__ = "agents.some"
        setattr(made, name, value)
    return made


def adapters() -> tuple[type, type, type, type]:
    @dataclass
    class One:
        def work(self) -> None: ...

    @dataclass
    class _Hidden:
        def work(self) -> None: ...

    @dataclass
    class Idle:
        pass

    class Plain:
        def work(self) -> None: ...

    return One, _Hidden, Idle, Plain


def test_the_file_of_an_agent_holds_one_adapter() -> None:
    one, hidden, idle, plain = adapters()
    other = adapters()[0]
    assert _only_adapter(module(One=one, _Hidden=hidden, Idle=idle, Plain=plain, asyncio=asyncio)) is one
    for number, members in ((0, {"Idle": idle}), (2, {"One": one, "Two": other})):
        with pytest.raises(
            TypeError, match=f"^agents.some holds {number} adapters; an agent's file holds one"
        ):
            _only_adapter(module(**members))


def test_the_rules_of_a_script_are_a_list() -> None:
    with pytest.raises(UsageError, match=r"^script: `rules` is a list$"):
        ScriptedAgent(script={"rules": {"match": "x"}})._rules  # noqa: B018
    with pytest.raises(UsageError, match="it is empty"):
        ScriptedAgent(script={})._rules  # noqa: B018
    with pytest.raises(UsageError, match="there is no `other`"):
        ScriptedAgent(script={"other": 1})._rules  # noqa: B018
    assert ScriptedAgent(script=[])._rules == ()


def test_edits_that_aider_applied_or_refused(tmp_path: Path) -> None:
    events = list[Any]()
    reader = _AiderReader(record=events.append, log=tmp_path / "log", token="t")
    for line in ("Applied edit to a b.py", "The LLM did not conform to the edit format.", "Hello"):
        assert reader.feed(line) is False
    tools = [
        (each.name, each.args, each.success, each.result) for each in events if isinstance(each, ToolCall)
    ]
    assert tools == [
        ("edit", {"path": "a b.py"}, True, ""),
        ("edit", {}, False, "The LLM did not conform to the edit format."),
    ]


def reader_of(agent: str, name: str, events: list[Any]) -> Any:
    return getattr(import_module(f"proctor.agents.{agent}"), name)(record=events.append)


def test_events_of_cline() -> None:
    events = list[Any]()
    reader = reader_of("cline", "_ClineReader", events)

    def tool(kind: str, **more: Any) -> dict[str, Any]:
        about = {"type": kind, "contentType": "tool", "toolCallId": "1", "toolName": "run", **more}
        return {"type": "agent_event", "event": about}

    for event in (
        {"type": "hook_event", "taskId": "t"},
        tool("content_start", input={"a": 1}),
        tool("content_end", output=[{"success": True, "result": "x"}, {"error": "y"}], durationMs=5),
        tool("content_end", output=[{"success": False, "result": "z"}]),
        tool("content_end", output="plain"),
        tool("content_end", error="broken"),
        {"type": "agent_event", "event": {"type": "content_end", "contentType": "text", "text": "Hi"}},
        {"type": "run_result", "finishReason": "completed", "text": "Hi"},
        {"type": "run_result", "finishReason": "completed", "text": "Done"},
    ):
        assert reader.read_event(event)
    assert not reader.read_event({"type": "other"}) and reader.failure == ""
    tools = [
        (each.name, each.args, each.success, each.result) for each in events if isinstance(each, ToolCall)
    ]
    assert tools == [
        ("run", {"a": 1}, True, "x\ny"),
        ("run", {}, False, "z"),
        ("run", {}, True, "plain"),
        ("run", {}, False, "broken"),
    ]
    assert [each.content for each in events if isinstance(each, Message)] == ["Hi", "Done"]
    reader.read_event({"type": "run_result", "finishReason": "aborted"})
    assert (reader.failure, reader.model_error) == ("it ended with `aborted`", None)
    reader.read_event({"type": "run_result", "finishReason": "error", "text": "no"})
    assert (reader.failure, reader.model_error) == ("no", None)
    error = {"type": "error", "errorClass": "Api", "error": {"message": "500 no"}}
    reader.read_event({"type": "agent_event", "event": error})
    reader.read_event({"type": "run_result", "finishReason": "error", "text": "no"})
    assert reader.model_error is not None and "Api: 500 no" in reader.failure


@pytest.mark.parametrize(
    ("event", "is_event", "failure", "is_of_model"),
    [
        ({"status": "error", "message": "no config"}, True, "no config", False),
        ({"status": "error", "message": "503 busy"}, True, "503 busy", True),
        ({"status": "error", "message": "Connection error."}, True, "Connection error.", True),
        ({"status": "success"}, True, "", False),
        ({"response": "x"}, False, "", False),
    ],
)
def test_events_of_continue(event: dict[str, Any], is_event: bool, failure: str, is_of_model: bool) -> None:
    reader = reader_of("continue", "_ContinueReader", [])
    assert reader.read_event(event) is is_event
    assert failure in reader.failure and bool(reader.failure) is bool(failure)
    assert (reader.model_error is not None) is is_of_model
    again = reader_of("continue", "_ContinueReader", [])
    again.read_stderr(f"a line\n{json.dumps(event)}\n")
    assert again.failure == reader.failure


def test_events_of_copilot() -> None:
    events = list[Any]()
    reader = reader_of("copilot", "_CopilotReader", events)

    def tool(number: str, **data: Any) -> list[dict[str, Any]]:
        start = {"toolCallId": number, "toolName": "sh", "arguments": {"a": number}}
        return [
            {"type": "tool.execution_start", "data": start},
            {"type": "tool.execution_complete", "data": {"toolCallId": number, **data}},
        ]

    for event in (
        {"type": "assistant.message", "data": {"content": "Hi"}},
        *tool("1", success=True, result={"content": "x"}),
        *tool("2", success=True, shellExecution={"exitCode": 1}),
        *tool("3", success=True, shellExecution={"exitCode": 0}),
        *tool("4", success=False, error={"code": "denied", "message": "no"}),
        *tool("5", error={"code": "other", "message": "no"}),
        {"type": "result", "sessionId": "s"},
        {"type": "some.thing"},
    ):
        assert reader.read_event(event)
    assert not reader.read_event({"type": "other"})
    tools = [(each.args["a"], each.success, each.result) for each in events if isinstance(each, ToolCall)]
    assert tools == [
        ("1", True, "x"),
        ("2", False, ""),
        ("3", True, ""),
        ("4", False, "no"),
        ("5", False, "no"),
    ]
    assert [each.text for each in events if isinstance(each, Intervention)] == ["sh: no"]
    reader.read_event({"type": "session.error", "data": {"message": "500 no", "statusCode": 500}})
    assert reader.model_error is not None
    own = sorted(import_module("proctor.agents.copilot")._OWN_ERRORS)[0]
    other = reader_of("copilot", "_CopilotReader", [])
    other.read_event({"type": "session.error", "data": {"message": "no", "errorType": own}})
    assert (other.failure, other.model_error) == ("no", None)
    other.read_event({"type": "session.error", "data": {"message": "x", "errorType": own, "statusCode": 400}})
    assert other.model_error is not None
