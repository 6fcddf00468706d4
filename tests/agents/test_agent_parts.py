"""Parts of agents on their own: which output is an event, the events of opencode, paths of scripts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.agent import Access
from proctor.agents.opencode import _duration, _OpencodeReader
from proctor.agents.scripted import ScriptEnd, ScriptStep, Stage
from proctor.session import Intervention, Message, ToolCall


def tool(**state: Any) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "part": {"callID": "c", "tool": "bash", "state": {"input": {"a": 1}, **state}},
    }


@pytest.mark.parametrize(
    ("event", "is_event"),
    [
        ({"type": "text", "part": {"text": "Hi"}}, True),
        ({"type": "step_start"}, True),
        ({"type": "reasoning"}, True),
        ({"type": "step_finish"}, True),
        ({"type": "error", "error": {}}, True),
        (tool(), True),
        ({"type": "other"}, False),
        ({}, False),
    ],
)
def test_which_objects_are_events_of_opencode(event: dict[str, Any], is_event: bool) -> None:
    assert _OpencodeReader(record=lambda _: None).read_event(event) is is_event


@pytest.mark.parametrize(
    ("state", "success", "result", "duration"),
    [
        ({"status": "completed", "output": "out", "time": {"start": 5, "end": 9}}, True, "out", 4.0),
        ({"status": "completed", "metadata": {"exit": 0}, "output": "out"}, True, "out", None),
        ({"status": "completed", "metadata": {"exit": 2}, "output": "bad"}, False, "bad", None),
        ({"status": "error", "error": "why"}, False, "why", None),
        (
            {"status": "error", "error": "The user rejected permission"},
            False,
            "The user rejected permission",
            None,
        ),
    ],
)
def test_tools_of_opencode(state: dict[str, Any], success: bool, result: str, duration: float | None) -> None:
    events = list[Any]()
    _OpencodeReader(record=events.append).read_event(tool(**state))
    (call,) = [event for event in events if isinstance(event, ToolCall)]
    assert (call.name, dict(call.args)) == ("bash", {"a": 1})
    assert (call.success, call.result, call.duration_ms) == (success, result, duration)
    interventions = [event for event in events if isinstance(event, Intervention)]
    assert [event.kind for event in interventions] == (["permission"] if "rejected" in result else [])


def test_messages_and_errors_of_opencode() -> None:
    events = list[Any]()
    reader = _OpencodeReader(record=events.append)
    reader.read_event({"type": "text", "sessionID": "s1", "part": {"text": "Hi"}})
    assert [event.content for event in events if isinstance(event, Message)] == ["Hi"]
    reader.read_event({"type": "error", "error": {"name": "Odd", "data": {"message": "broken"}}})
    assert reader.failure == "broken"


@pytest.mark.parametrize(
    ("time", "duration"),
    [
        ({"start": 5, "end": 9}, 4.0),
        ({"start": 9, "end": 5}, 0.0),
        ({"start": 5}, None),
        ({"end": 5}, None),
        ({}, None),
    ],
)
def test_how_long_a_tool_took(time: dict[str, Any], duration: float | None) -> None:
    assert _duration(time) == duration


def test_a_script_stays_in_its_tree_unless_a_step_may_leave_it(tmp_path: Path) -> None:
    assignment: Any = SimpleNamespace(folder=tmp_path, prompt="say {model}", model="m", seed=None)
    stage = Stage(assignment, print)
    step = ScriptStep(kind="write", value="x")
    assert stage.path("a/{model}.txt", step) == tmp_path / "a" / "m.txt"
    assert stage.filled("{prompt} {seed} {other}") == "say {model} 0 {other}"
    with pytest.raises(ScriptEnd) as raised:
        stage.path("../b", step)
    assert (raised.value.how.exit_code, raised.value.how.failure) == (1, "../b is outside the tree")
    assert stage.path("../b", ScriptStep(kind="write", value="x", outside=True)) == tmp_path.parent / "b"


@pytest.mark.parametrize(
    ("url", "is_served", "ports"),
    [("http://127.0.0.1:81", True, [81]), ("http://127.0.0.1:81", False, []), ("http://127.0.0.1", True, [])],
)
def test_the_port_of_the_gateway_is_served_where_it_can_be(
    url: str, is_served: bool, ports: list[int]
) -> None:
    serve: Any = (lambda *_: None) if is_served else None
    assert Access(url=url, token="t", serve=serve).ports == dict.fromkeys(ports, serve)
