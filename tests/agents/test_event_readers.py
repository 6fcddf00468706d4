"""What readers of agents' output record of single events, questions and failures."""

from pathlib import Path
from typing import Any

import pytest

from proctor.agents._program import SHORT, _possible_questions, model_failure
from proctor.agents._stream_json import StreamJson
from proctor.agents.aider import _AiderReader, _no_command
from proctor.agents.answer import completed
from proctor.agents.gemini import _GeminiReader
from proctor.agents.openhands import _OpenhandsReader
from proctor.agents.pi import _PiReader
from proctor.errors import RateLimited
from proctor.session import Intervention, Message, ModelCall, ToolCall, Workspace


def told(events: list[Any]) -> list[tuple[Any, ...]]:
    """Events in short."""
    short = list[tuple[Any, ...]]()
    for event in events:
        if isinstance(event, Message):
            short.append(("says", event.content))
        elif isinstance(event, ToolCall):
            short.append(("tool", event.name, event.args, event.success, event.result))
        elif isinstance(event, Workspace):
            short.append(("thread", event.thread))
        elif isinstance(event, Intervention):
            short.append((event.kind, event.text))
        elif isinstance(event, ModelCall):
            short.append(("model", event.model, event.usage.total_tokens))
    return short


def test_events_of_pi() -> None:
    events: list[Any] = []
    reader = _PiReader(record=events.append)
    text = [{"type": "text", "text": "hi"}]
    for event in (
        {"type": "session", "id": "s"},
        {"type": "message_end", "message": {"role": "user", "content": text}},
        {"type": "message_end", "message": {"role": "assistant", "content": text}},
        {"type": "tool_execution_start", "toolCallId": "1", "toolName": "bash", "args": {"a": 1}},
        {"type": "tool_execution_end", "toolCallId": "1", "toolName": "x", "result": {"content": text}},
        {"type": "tool_execution_end", "toolCallId": "2", "toolName": "read", "isError": True},
    ):
        assert reader.read_event(event)
    assert told(events) == [
        ("thread", "s"),
        ("says", "hi"),
        ("tool", "bash", {"a": 1}, True, "hi"),
        ("tool", "read", {}, False, ""),
    ]
    assert reader.failure == "" and not reader.read_event({"type": "unheard"})
    ended = {"role": "assistant", "content": []}
    reader.read_event({"type": "message_end", "message": {**ended, "stopReason": "aborted"}})
    assert (reader.failure, reader.model_error) == ("it was interrupted", None)
    failed = {**ended, "stopReason": "error", "errorMessage": "500 no"}
    reader.read_event({"type": "message_end", "message": failed})
    assert reader.failure == "500 no" and reader.model_error is not None
    reader.read_event({"type": "message_end", "message": ended})
    assert (reader.failure, reader.model_error) == ("", None)


def test_events_of_openhands() -> None:
    events: list[Any] = []
    reader = _OpenhandsReader(record=events.append)
    text = [{"type": "text", "text": "hi"}]
    for event in (
        {"kind": "MessageEvent", "source": "agent", "llm_message": {"content": text}},
        {"kind": "MessageEvent", "source": "user", "llm_message": {"content": text}},
        {
            "kind": "ActionEvent",
            "thought": text,
            "tool_call_id": "1",
            "tool_name": "sh",
            "action": {"kind": "Run", "c": 1},
        },
        {
            "kind": "ObservationEvent",
            "tool_call_id": "1",
            "observation": {"content": text, "exit_code": 1},
        },
        {"kind": "ActionEvent", "tool_call_id": "2", "tool_name": "b", "action": {"kind": "Run"}},
        {"kind": "AgentErrorEvent", "tool_call_id": "2", "error": "broken"},
        {"kind": "ActionEvent", "tool_call_id": "3", "tool_name": "c", "action": {"kind": "Run"}},
        {"kind": "ObservationEvent", "tool_call_id": "3", "observation": {"content": text, "exit_code": 0}},
        {"kind": "ActionEvent", "tool_call_id": "4", "tool_name": "d", "action": {"kind": "Run"}},
        {"kind": "ObservationEvent", "tool_call_id": "4", "observation": {"is_error": True}},
        {"kind": "ActionEvent", "tool_call_id": "5", "action": {"kind": "FinishAction", "message": "done"}},
        {"kind": "ObservationEvent", "tool_call_id": "5", "observation": {"kind": "FinishObservation"}},
        {"kind": "OtherEvent"},
    ):
        assert reader.read_event(event)
    assert told(events) == [
        ("says", "hi"),
        ("says", "hi"),
        ("tool", "sh", {"c": 1}, False, "hi"),
        ("tool", "b", {}, False, "broken"),
        ("tool", "c", {}, True, "hi"),
        ("tool", "d", {}, False, ""),
        ("says", "done"),
    ]
    assert not reader.read_event({"kind": "Other"})
    reader.read_event({"kind": "ConversationErrorEvent", "code": "Own", "detail": "why"})
    assert (reader.failure, reader.model_error) == ("why", None)
    reader.read_event({"kind": "ConversationErrorEvent", "code": "LLMTimeoutError", "detail": "why"})
    assert reader.failure == "LLMTimeoutError: why" and reader.model_error is not None


def test_events_of_gemini() -> None:
    events: list[Any] = []
    reader = _GeminiReader(record=events.append)
    for event in (
        {"type": "init", "session_id": "s"},
        {"type": "message", "role": "user", "content": "q"},
        {"type": "message", "role": "assistant", "content": "a", "delta": True},
        {"type": "message", "role": "assistant", "content": "b", "delta": True},
        {"type": "tool_use", "tool_id": "1", "tool_name": "read", "parameters": {"x": 1}},
        {"type": "tool_result", "tool_id": "1", "status": "success", "output": "r"},
        {"type": "tool_use", "tool_id": "2", "tool_name": "run_shell_command", "parameters": {}},
        {"type": "tool_result", "tool_id": "2", "status": "success", "output": "r"},
        {"type": "tool_result", "tool_id": "3", "status": "error", "error": "no"},
        {"type": "message", "role": "assistant", "content": "c"},
        {"type": "message", "role": "assistant", "content": "d", "delta": True},
        {"type": "result", "status": "success"},
    ):
        assert reader.read_event(event)
    reader.finish()
    assert told(events) == [
        ("thread", "s"),
        ("says", "ab"),
        ("tool", "read", {"x": 1}, True, "r"),
        ("tool", "run_shell_command", {}, None, "r"),
        ("tool", "", {}, False, "no"),
        ("says", "c"),
        ("says", "d"),
    ]
    assert not reader.read_event({"type": "unheard"})
    reader.read_event({"type": "result", "status": "error", "error": {}})
    assert (reader.failure, reader.model_error) == ("it reported an error", None)
    reader.read_event({"type": "result", "status": "error", "error": {"message": "[API Error: 500]"}})
    assert reader.model_error is not None


def aider(tmp_path: Path, events: list[Any], *log: str) -> _AiderReader:
    (tmp_path / "log").write_text("".join(f"{line}\n" for line in log))
    return _AiderReader(record=events.append, log=tmp_path / "log", token="the-token")


STARTS, SENT = '{"event": "message_send_starting"}', '{"event": "message_send"}'


@pytest.mark.parametrize(
    ("log", "failure", "has_failed"),
    [
        ((STARTS, SENT), "", False),
        ((STARTS,), "its last message was not answered", True),
        ((STARTS, SENT, STARTS, "no event"), "its last message was not answered", True),
        (('{"event": "launched"}',), "it asked its model nothing", False),
        ((), "", False),
        (("nothing",), "", False),
    ],
)
def test_the_log_of_aider_says_what_was_answered(
    tmp_path: Path, log: tuple[str, ...], failure: str, has_failed: bool
) -> None:
    reader = aider(tmp_path, [], *log)
    reader.finish()
    assert (reader.failure, reader.model_error is not None) == (failure, has_failed)


def test_a_complaint_of_aider_has_so_many_lines(tmp_path: Path) -> None:
    reader = aider(tmp_path, [], STARTS)
    reader.feed_text("litellm.AuthenticationError: first\n")
    for number in range(40):
        reader.feed_text(f"line {number}\n")
    reader.finish()
    lines = reader.failure.replace("litellm.AuthenticationError: first", "").split("line ")
    assert len(lines) == 4
    assert _no_command("/x") == "\n/x" and _no_command("!x") == "\n!x" and _no_command("x/") == "x/"


@pytest.mark.parametrize(
    ("answer", "entry_point", "prefix", "program"),
    [
        ("x = 1", "", "", "x = 1"),
        ("```\na\n```\ntext\n```python\nb\n```", "", "", "a\n\nb\n"),
        ("```\na\n```\n```\ndef f():\n    pass\n```", "f", "", "def f():\n    pass\n"),
        ("```\na\n```\n```\nb\n```", "f", "def f():\n", "def f():\n    a\n"),
        ("def f(): pass", "f", "import os\n\ndef f():\n", "import os\n\ndef f(): pass"),
        ("async def f(): pass", "f", "import os\n", "async def f(): pass"),
        ("    return 1", "f", "def f():\n", "def f():\n    return 1"),
        ("return 1\n\nx", "f", "def f():\n", "def f():\n    return 1\n\n    x"),
        ("", "f", "def f():\n", "def f():\n"),
    ],
)
def test_the_program_in_an_answer(answer: str, entry_point: str, prefix: str, program: str) -> None:
    assert completed(answer, entry_point, prefix) == program


@pytest.mark.parametrize(
    ("report", "status", "reason"),
    [
        ("context window", None, "context_overflow"),
        ("context window", 400, "context_overflow"),
        ("context window", 413, "context_overflow"),
        ("context window", 422, "context_overflow"),
        ("context window", 500, "failed"),
        ("prompt is too long (429)", None, "rate"),
        ("rate limit", None, "rate"),
        ("rate limit", 500, "failed"),
        ("x", 429, "rate"),
        ("error 429", None, "rate"),
        ("x", 401, "auth"),
        ("x", 403, "auth"),
        ("x", 402, "failed"),
        ("invalid api key", None, "auth"),
        ("invalid api key", 500, "failed"),
        ("error 4290", None, "failed"),
    ],
)
def test_why_a_model_failed(report: str, status: int | None, reason: str) -> None:
    error = model_failure(report, status)
    if reason == "rate":
        assert isinstance(error, RateLimited)
    else:
        assert not isinstance(error, RateLimited)
        assert (error.reason if error.reason in ("context_overflow", "auth") else "failed") == reason
    assert str(error) == f"the agent's model call failed: {report}"


def test_the_report_of_a_failed_model_is_short() -> None:
    assert str(model_failure("  ")) == "the agent's model call failed: the model failed, without details"
    assert str(model_failure("x" * (SHORT + 9))).endswith(f" {'x' * SHORT}")


@pytest.mark.parametrize(
    ("block", "starts"),
    [
        ("Continue? [y/n]\n", [0]),
        ("a\nContinue? (Yes/No)\nb\n", [2]),
        ("waiting for\ninput\n", [12]),
        ("input\n", []),
        ("Waiting for approval\nPress enter\n", [0, 21]),
        ("é\n[Y/N]\nx y/n y/n\n", [2, 8]),
        ("", []),
    ],
)
def test_where_questions_may_be(block: str, starts: list[int]) -> None:
    assert _possible_questions(block) == starts


def test_questions_in_text_are_recorded_and_the_last_is_waited_for() -> None:
    events: list[Any] = []
    reader = _PiReader(record=events.append)
    reader.feed_text("Continue? [y/n]\nyes\n")
    assert told(events) == [("question", "Continue? [y/n]")] and not reader.awaiting
    reader.feed_text("Continue? [y/n]\n\n")
    assert len(events) == 2 and reader.awaiting
    reader.feed_text("\n")
    assert reader.awaiting
    reader.feed_text("going on\n")
    assert not reader.awaiting
    reader.feed_partial("  Proceed? (y/n) ")
    assert told(events)[2:] == [("question", "Proceed? (y/n)")] and reader.awaiting
    # The same line, complete: it is not asked again.
    reader.feed_text("  Proceed? (y/n) yes\n")
    assert len(events) == 3
    reader.feed_partial('{"a": "[y/n]"')
    reader.feed_partial("x" * SHORT + " [y/n]")
    reader.feed_text("x" * SHORT + " [y/n]\n")
    assert len(events) == 3
    assert not reader.feed("waiting for your approval") and reader.awaiting and len(events) == 4
    assert reader.feed('{"type": "agent_start"}') in (True, False) and not reader.awaiting


def test_tools_without_a_result_are_recorded_once_at_the_end() -> None:
    events: list[Any] = []
    times = [1.0, 2.0, 5.0]
    reader = _PiReader(record=events.append, clock=lambda: times.pop(0))
    reader.begin_tool("1", "a", {"x": 1})
    reader.begin_tool("2", "b", {})
    assert reader.end_tool("1", success=True, result="r", name="other", args={"y": 2}) == "a"
    assert reader.end_tool("9", success=None, result="", name="c", args={"y": 2}, duration_ms=7) == "c"
    reader.finish()
    reader.finish()
    assert [(event.name, event.args, event.success, event.duration_ms) for event in events] == [
        ("a", {"x": 1}, True, 4000.0),
        ("c", {"y": 2}, None, 7),
        ("b", {}, None, None),
    ]
    reader.record_thread("")
    reader.record_thread("t1")
    reader.record_thread("t2")
    reader.record_message("  ")
    assert told(events)[3:] == [("thread", "t1")] and reader.last_text == ""


@pytest.mark.parametrize(
    ("result", "models", "calls"),
    [
        ({"usage": {"input_tokens": 3, "output_tokens": 1}}, ["a", "b"], [("model", "b", 4)]),
        ({"usage": {"input_tokens": 3}}, [], [("model", "given", 3)]),
        ({"usage": {}}, ["a"], [("model", "a", 7)]),
        (
            {"modelUsage": {"x": {"inputTokens": 1}, "y": {"outputTokens": 2}}, "usage": {"input_tokens": 9}},
            ["a"],
            [("model", "x", 1), ("model", "y", 2)],
        ),
        ({"modelUsage": {"x": {}}, "usage": {"input_tokens": 9}}, ["a"], [("model", "a", 9)]),
    ],
)
def test_the_tokens_of_a_stream(result: dict[str, Any], models: list[str], calls: list[Any]) -> None:
    events: list[Any] = []
    stream = StreamJson(record=events.append, model="given")
    for model in models:
        message = {"id": model, "model": model, "content": [], "usage": {"input_tokens": 7}}
        stream.read_event({"type": "assistant", "message": message})
    stream.read_event({"type": "result", "result": "", **result})
    stream.finish()
    stream.finish()
    assert told(events) == calls
