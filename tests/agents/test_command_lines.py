"""The command line, variables and files of each agent that reaches its model through the gateway.

They are recorded in `command_lines.txt`.
"""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from proctor.agent import Access, Assignment
from proctor.agents import find_agent
from proctor.agents._program import ProgramRun, as_argument, read_text, with_loopback
from proctor.agents._stream_json import StreamJson
from proctor.agents.command import _Lines
from proctor.agents.scripted import ScriptStep, Stage, perform
from proctor.errors import WorkspaceError
from proctor.session import Message, ModelCall, ToolCall
from recorded_files import check

AGENTS = (
    *("aider", "claude", "cline", "codex", "continue", "copilot", "gemini", "mini-swe-agent", "opencode"),
    *("openhands", "pi", "qwen"),
)
RECORDED = Path(__file__).with_name("command_lines.txt")
VALUES: dict[str, Any] = {"int": 7, "float": 1.5, "str": "some", "bool": True, "list[str]": ["--more"]}


def call_of(agent: Any, home: Path, model: str) -> dict[str, Any]:
    assignment = Assignment(
        prompt="- Repair it.",
        folder=home.parent / "tree",
        home=home,
        environment={"PATH": "/bin", "HOME": str(home)},
        attempt="a1",
        model=model,
        access=Access(url="http://127.0.0.1:81", token="the-token"),
    )
    (home.parent / "tree").mkdir(exist_ok=True)
    home.mkdir(exist_ok=True)
    assert assignment.access is not None
    call = agent.call(ProgramRun(assignment, assignment.access, lambda event: None))
    files = {
        str(file.relative_to(home)): file.read_text() for file in sorted(home.rglob("*")) if file.is_file()
    }
    described = {
        "arguments": list(call.arguments),
        "variables": dict(call.variables),
        "typed": call.typed,
        "files": files,
    }
    return json.loads(json.dumps(described).replace(str(home), "HOME").replace(str(home.parent), "FOLDER"))


def described(name: str, folder: Path) -> dict[str, Any]:
    """The calls of an agent as it is, and with each of its settings."""
    usual = find_agent(name, {})
    settings: dict[str, dict[str, Any]] = {"": {}}
    for each in fields(type(usual)):
        kind = str(each.type).removesuffix(" | None")
        if kind in VALUES and each.name not in ("unanswered_seconds", "login") and each.init:
            value = not getattr(usual, each.name) if kind == "bool" else VALUES[kind]
            settings[each.name] = {each.name: value}
    calls = {}
    for setting, values in settings.items():
        for model in ("provider/some-model", ""):
            if model or not setting:
                home = folder / f"home-{setting}-{bool(model)}"
                key = f"{setting or 'as it is'}{'' if model else ', no model'}"
                try:
                    calls[key] = call_of(type(usual)(**values), home, model)
                except (WorkspaceError, ValueError) as error:
                    calls[key] = {"refused": str(error)}
    plain = {
        each.name: each.default for each in fields(type(usual)) if each.default is not MISSING and each.init
    }
    return {"calls": calls, "defaults": json.loads(json.dumps(plain, default=str))}


def test_how_agents_are_called(tmp_path: Path) -> None:
    found = {}
    for name in AGENTS:
        (tmp_path / name).mkdir()
        found[name] = described(name, tmp_path / name)
    check(RECORDED, found)


# --- What they share ---


@pytest.mark.parametrize(
    ("prompt", "argument"),
    [("x", "x"), ("-x", "\n-x"), ("@x", "\n@x"), ("a\0b", "ab"), ("", ""), ("é" * 60_000, "é" * 60_000)],
)
def test_a_prompt_as_an_argument(prompt: str, argument: str) -> None:
    assert as_argument(prompt) == argument


def test_a_prompt_that_is_too_long_for_an_argument_is_refused() -> None:
    with pytest.raises(WorkspaceError, match="the prompt has more than 120000 bytes"):
        as_argument("é" * 60_000 + "x")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "127.0.0.1,localhost"),
        ({"NO_PROXY": "a", "no_proxy": "b"}, "a,127.0.0.1,localhost"),
        ({"no_proxy": "b"}, "b,127.0.0.1,localhost"),
    ],
)
def test_the_gateway_is_reached_without_a_proxy(environment: dict[str, str], expected: str) -> None:
    assert with_loopback({"A": "1", **environment}, {"A": "2"}) == {
        "A": "2",
        "NO_PROXY": expected,
        "no_proxy": expected,
    }


def test_files_of_an_agent_are_read_without_the_token_and_not_through_links(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a the-token b")
    (tmp_path / "link").symlink_to(file)
    assert read_text(file, "the-token") == "a [key] b"
    assert read_text(tmp_path / "link", "the-token") == read_text(tmp_path / "none", "x") == ""


# --- Events of single agents ---


def test_the_model_of_a_stream_is_that_of_its_beginning() -> None:
    for subtype, model in (("init", "told"), ("other", "given")):
        stream = StreamJson(record=lambda event: None, model="given")
        assert stream.read_event({"type": "system", "subtype": subtype, "model": "told"})
        assert stream.model == model
    assert not StreamJson(record=lambda event: None, model="").read_event({"type": "unknown"})


@pytest.mark.parametrize(
    ("blocks", "last"),
    [
        (["a\nb\n"], "a\nb"),
        (["a\n\nb\n"], "b"),
        (["a\n", "b\n"], "a\nb"),
        (["a\n\n", "b\n"], "b"),
        (["a\n", "\n", "b\n"], "b"),
        (["a\n", "b\n\nc\nd\n"], "c\nd"),
        (["a\n \nb\n", "c\n"], "b\nc"),
        (["a\n\n"], "a"),
        (["\n"], None),
    ],
)
def test_the_last_paragraph_of_an_output_is_the_answer(blocks: list[str], last: str | None) -> None:
    events: list[Any] = []
    lines = _Lines(events.append, "m")
    for block in blocks:
        lines.feed_text(block)
    lines.finish()
    assert [event.content for event in events] == ([] if last is None else [last])


def test_events_of_our_own_format() -> None:
    events: list[Any] = []
    lines = _Lines(events.append, "given")
    assert not lines.feed("plain") and not lines.feed('{"type": "other"}')
    assert lines.feed('{"type": "message", "role": "user", "content": "q"}')
    assert lines.feed('{"type": "message", "role": "nobody", "text": "a", "content": "b"}')
    assert lines.feed('{"type": "tool", "name": "f", "args": [1], "success": 1, "duration_ms": 2}')
    assert lines.feed('{"type": "usage", "input_tokens": 3, "cached_tokens": 1, "output_tokens": 2}')
    assert lines.feed('{"type": "usage", "model": "own", "cost_usd": 0.5}')
    lines.finish()
    assert events[0] == Message(role="user", content="q")
    assert events[1] == Message(role="assistant", content="a")
    assert events[2] == ToolCall(name="f", args={}, success=None, result="", duration_ms=2.0)
    first, second = events[3:]
    assert isinstance(first, ModelCall) and (first.model, first.cost_usd, first.price_source) == (
        "given",
        None,
        "",
    )
    counts = first.usage.input_tokens, first.usage.cached_tokens, first.usage.output_tokens
    assert counts == (3, 1, 2)
    assert (second.model, second.cost_usd, second.price_source) == ("own", 0.5, "agent")


@pytest.mark.parametrize(
    ("event", "is_answer"),
    [
        ('{"type": "tool", "name": "f"}', False),
        ('{"type": "message", "role": "user", "content": "q"}', False),
        ('{"type": "message", "role": "assistant", "content": "a"}', True),
    ],
)
def test_the_last_paragraph_is_the_answer_unless_an_event_was(event: str, is_answer: bool) -> None:
    events: list[Any] = []
    lines = _Lines(events.append, "m")
    assert lines.feed(event)
    lines.feed_text("first\n\nlast\n")
    lines.finish()
    said = [each.content for each in events[1:]]
    assert said == ([] if is_answer else ["last"])


@pytest.mark.parametrize(("chance", "count"), [(1, 20), (0, 0), (None, 0), (-1, 0)])
async def test_steps_of_chance(tmp_path: Path, chance: object, count: int) -> None:
    said: list[Any] = []
    stage = Stage(
        assignment=Assignment(prompt="", folder=tmp_path, home=tmp_path, environment={}, attempt="a", seed=3),
        record=said.append,
    )
    inner = ScriptStep(kind="say", value="x")
    step = ScriptStep(kind="chance", value=chance, steps=(inner,))
    await perform([step] * 20, stage)
    assert len(said) == count


async def test_an_edit_replaces_the_first_place(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a a a")
    stage = Stage(
        assignment=Assignment(prompt="", folder=tmp_path, home=tmp_path, environment={}, attempt="a"),
        record=lambda event: None,
    )
    step = ScriptStep(kind="edit", value={"path": "f", "find": "a", "replace": "b"})
    await perform([step], stage)
    assert (tmp_path / "f").read_text() == "b a a"
