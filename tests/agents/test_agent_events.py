"""What is recorded of the events that each agent prints, and how it says that it failed."""

import json

import pytest
from recordings import ACCESS

from proctor.agents import find_agent
from proctor.errors import ModelError
from proctor.session import Intervention, Message, ToolCall, Workspace

TEXT = [{"type": "text", "text": "hi"}]
CONTENT = {"content": TEXT}


def told(events):
    """Events in short."""
    short = []
    for event in events:
        match event:
            case Message():
                short.append(("says", event.content))
            case ToolCall():
                short.append((event.name, event.args, event.success, event.result))
            case Workspace():
                short.append(("thread", event.thread))
            case Intervention():
                short.append((event.kind, event.text))
    return short


def opencode(number, **state):
    part = {"callID": number, "tool": "bash", "state": {"input": {"a": 1}, **state}}
    return {"type": "tool_use", "sessionID": "s", "part": part}


def pi(kind, **more):
    return {"type": f"tool_execution_{kind}", **more}


def cline(kind, **more):
    about = {"type": kind, "contentType": "tool", "toolCallId": "1", "toolName": "run", **more}
    return {"type": "agent_event", "event": about}


def copilot(number, **data):
    start = {"toolCallId": number, "toolName": "sh", "arguments": {"a": number}}
    return [
        {"type": "tool.execution_start", "data": start},
        {"type": "tool.execution_complete", "data": {"toolCallId": number, **data}},
    ]


def openhands(number, **observation):
    action = {"kind": "Run", "n": number}
    return [
        {"kind": "ActionEvent", "tool_call_id": number, "tool_name": "sh", "action": action},
        {"kind": "ObservationEvent", "tool_call_id": number, "observation": observation},
    ]


def codex(kind, **item):
    return {"type": "item.completed", "item": {"type": kind, **item}}


EVENTS = {
    "codex": (
        [
            {"type": "thread.started", "thread_id": "s"},
            {"type": "turn.failed", "error": {"message": "500"}},
            {"type": "item.started", "item": {"id": "1", "type": "command_execution", "command": "ls"}},
            codex("command_execution", id="1", aggregated_output="a.py", exit_code=1),
            codex("file_change", id="2", changes=[{"path": "a"}], status="failed"),
            codex(
                "mcp_tool_call", id="3", server="s", tool="t", arguments={"a": 1}, result={"content": TEXT}
            ),
            codex("mcp_tool_call", id="4", server="s", tool="t", status="failed", error={"message": "no"}),
            codex("web_search", id="5", query="q"),
            codex("agent_message", text="Hi"),
            {"type": "turn.completed"},
        ],
        [
            ("thread", "s"),
            ("shell", {"command": "ls"}, False, "a.py"),
            ("apply_patch", {"changes": [{"path": "a"}]}, False, ""),
            ("s.t", {"a": 1}, True, "hi"),
            ("s.t", {}, False, "no"),
            ("web_search", {"query": "q"}, True, ""),
            ("says", "Hi"),
        ],
    ),
    "opencode": (
        [
            {"type": "step_start"},
            {"type": "reasoning"},
            opencode("1", status="completed", output="out", metadata={"exit": 0}),
            opencode("2", status="completed", output="bad", metadata={"exit": 2}),
            opencode("3", status="error", error="The user rejected permission"),
            {"type": "text", "part": {"text": "Hi"}},
            {"type": "error", "error": {"name": "Odd", "data": {"message": "broken"}}},
            {"type": "step_finish"},
        ],
        [
            ("thread", "s"),
            ("bash", {"a": 1}, True, "out"),
            ("bash", {"a": 1}, False, "bad"),
            ("bash", {"a": 1}, False, "The user rejected permission"),
            ("permission", "bash: The user rejected permission"),
            ("says", "Hi"),
        ],
    ),
    "pi": (
        [
            {"type": "session", "id": "s"},
            {"type": "message_end", "message": {"role": "user", "content": TEXT}},
            {"type": "message_end", "message": {"role": "assistant", "content": TEXT}},
            pi("start", toolCallId="1", toolName="bash", args={"a": 1}),
            pi("end", toolCallId="1", toolName="x", result={"content": TEXT}),
            pi("end", toolCallId="2", toolName="read", isError=True),
            pi("start", toolCallId="3", toolName="edit", args={}),
            {"type": "message_end", "message": {"role": "assistant", "content": [], "stopReason": "error"}},
            {"type": "message_end", "message": {"role": "assistant", "content": []}},
        ],
        [
            ("thread", "s"),
            ("says", "hi"),
            ("bash", {"a": 1}, True, "hi"),
            ("read", {}, False, ""),
            ("edit", {}, None, ""),
        ],
    ),
    "openhands": (
        [
            {"kind": "MessageEvent", "source": "agent", "llm_message": {"content": TEXT}},
            {"kind": "MessageEvent", "source": "user", "llm_message": {"content": TEXT}},
            *openhands("1", content=TEXT, exit_code=1),
            *openhands("2", content=TEXT, exit_code=0),
            *openhands("3", is_error=True),
            {"kind": "ActionEvent", "tool_call_id": "4", "thought": TEXT, "action": {"kind": "Run"}},
            {"kind": "AgentErrorEvent", "tool_call_id": "4", "error": "broken"},
            {
                "kind": "ActionEvent",
                "tool_call_id": "5",
                "action": {"kind": "FinishAction", "message": "done"},
            },
            {"kind": "ObservationEvent", "tool_call_id": "5", "observation": {"kind": "FinishObservation"}},
            {"kind": "OtherEvent"},
        ],
        [
            ("says", "hi"),
            ("sh", {"n": "1"}, False, "hi"),
            ("sh", {"n": "2"}, True, "hi"),
            ("sh", {"n": "3"}, False, ""),
            ("says", "hi"),
            ("", {}, False, "broken"),
            ("says", "done"),
        ],
    ),
    "gemini": (
        [
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
        ],
        [
            ("thread", "s"),
            ("says", "ab"),
            ("read", {"x": 1}, True, "r"),
            ("run_shell_command", {}, None, "r"),
            ("", {}, False, "no"),
            ("says", "c"),
            ("says", "d"),
        ],
    ),
    "cline": (
        [
            {"type": "hook_event", "taskId": "t"},
            cline("content_start", input={"a": 1}),
            cline("content_end", output=[{"success": True, "result": "x"}, {"error": "y"}], durationMs=5),
            cline("content_end", output=[{"success": False, "result": "z"}]),
            cline("content_end", output="plain"),
            cline("content_end", error="broken"),
            {"type": "agent_event", "event": {"type": "content_end", "contentType": "text", "text": "Hi"}},
            {"type": "run_result", "finishReason": "completed", "text": "Hi"},
            {"type": "run_result", "finishReason": "completed", "text": "Done"},
        ],
        [
            ("thread", "t"),
            ("run", {"a": 1}, True, "x\ny"),
            ("run", {}, False, "z"),
            ("run", {}, True, "plain"),
            ("run", {}, False, "broken"),
            ("says", "Hi"),
            ("says", "Done"),
        ],
    ),
    "copilot": (
        [
            {"type": "assistant.message", "data": {"content": "Hi"}},
            *copilot("1", success=True, result={"content": "x"}),
            *copilot("2", success=True, shellExecution={"exitCode": 1}),
            *copilot("3", success=True, shellExecution={"exitCode": 0}),
            *copilot("4", success=False, error={"code": "denied", "message": "no"}),
            *copilot("5", error={"code": "other", "message": "no"}),
            {"type": "result", "sessionId": "s"},
            {"type": "some.thing"},
        ],
        [
            ("says", "Hi"),
            ("sh", {"a": "1"}, True, "x"),
            ("sh", {"a": "2"}, False, ""),
            ("sh", {"a": "3"}, True, ""),
            ("sh", {"a": "4"}, False, "no"),
            ("permission", "sh: no"),
            ("sh", {"a": "5"}, False, "no"),
            ("thread", "s"),
        ],
    ),
    "aider": (
        ["Applied edit to a b.py", "The LLM did not conform to the edit format.", "Hello"],
        [
            ("edit", {"path": "a b.py"}, True, ""),
            ("edit", {}, False, "The LLM did not conform to the edit format."),
        ],
    ),
}


def printed(*events):
    return "".join(f"{event if isinstance(event, str) else json.dumps(event)}\n" for event in events)


@pytest.mark.parametrize("name", EVENTS)
async def test_events_are_recorded_and_what_is_no_event_is_output(place, stage, name):
    events, expected = EVENTS[name]
    stage.play(name, printed=printed(*events, {"type": "unheard"}))

    done = await place.work(find_agent(name, {}), access=ACCESS, keep_events=False)

    assert (done.exit_code, done.failure) == (0, "")
    assert told(place.events) == expected
    plain = [event for event in events if isinstance(event, str)]
    assert done.output == printed(*plain, {"type": "unheard"})


STARTS, SENT = {"event": "message_send_starting"}, {"event": "message_send"}
ENDED = {"role": "assistant", "content": []}
UNANSWERED = "its last message was not answered"


def copilot_error(**data):
    return [{"type": "session.error", "data": data}]


@pytest.mark.parametrize(
    ("name", "events", "failure", "reason"),
    [
        ("pi", [{"type": "message_end", "message": ENDED | {"stopReason": "aborted"}}], "it was int", None),
        (
            "pi",
            [{"type": "message_end", "message": ENDED | {"stopReason": "error", "errorMessage": "500 no"}}],
            "500 no",
            "model_failed",
        ),
        ("openhands", [{"kind": "ConversationErrorEvent", "code": "Own", "detail": "why"}], "why", None),
        (
            "openhands",
            [{"kind": "ConversationErrorEvent", "code": "LLMTimeoutError", "detail": "why"}],
            "LLMTimeoutError: why",
            "model_failed",
        ),
        ("gemini", [{"type": "result", "status": "error", "error": {}}], "it reported an error", None),
        (
            "gemini",
            [{"type": "result", "status": "error", "error": {"message": "[API Error: 500]"}}],
            "500",
            "model_failed",
        ),
        ("opencode", [{"type": "error", "error": {"name": "Odd", "data": {"message": "x"}}}], "x", None),
        (
            "opencode",
            [{"type": "error", "error": {"name": "APIError", "data": {"message": "x", "statusCode": 500}}}],
            "failed: x",
            "model_failed",
        ),
        ("cline", [{"type": "run_result", "finishReason": "aborted"}], "it ended with `aborted`", None),
        ("cline", [{"type": "run_result", "finishReason": "error", "text": "no"}], "no", None),
        (
            "cline",
            [
                {
                    "type": "agent_event",
                    "event": {"type": "error", "errorClass": "Api", "error": {"message": "500 no"}},
                },
                {"type": "run_result", "finishReason": "error", "text": "no"},
            ],
            "Api: 500 no",
            "model_failed",
        ),
        ("continue", [{"status": "error", "message": "no config"}], "no config", None),
        ("continue", [{"status": "error", "message": "503 busy"}], "503 busy", "model_failed"),
        ("continue", [{"status": "error", "message": "Connection error."}], "Connection", "model_failed"),
        ("copilot", copilot_error(message="500 no", statusCode=500), "500 no", "model_failed"),
        ("copilot", copilot_error(message="no", errorType="quota"), "no", "model_failed"),
        ("copilot", copilot_error(message="x", errorType="context", statusCode=400), "x", "model_failed"),
        ("copilot", copilot_error(statusCode=500), '"statusCode": 500', "model_failed"),
        ("aider", [STARTS], UNANSWERED, "model_failed"),
        ("aider", [STARTS, SENT, STARTS, "no event"], UNANSWERED, "model_failed"),
        ("aider", [{"event": "launched"}], "it asked its model nothing", None),
        ("aider", [STARTS, SENT], "", None),
        ("aider", ["nothing"], "", None),
    ],
)
async def test_how_an_agent_says_that_it_failed(place, stage, name, events, failure, reason):
    files = {"--analytics-log": printed(*events)} if name == "aider" else {}
    shown = "" if name == "aider" else printed(*events)
    stage.play(name, printed=shown, files=files)
    working = place.work(find_agent(name, {}), access=ACCESS)
    if reason is None:
        done = await working
        assert done.failure.startswith(failure) and bool(done.failure) is bool(failure)
    else:
        with pytest.raises(ModelError, match=failure) as raised:
            await working
        assert raised.value.reason == reason


async def test_the_duration_of_a_tool_is_the_one_that_the_agent_tells(place, stage):
    times = [{"start": 5, "end": 9}, {"start": 9, "end": 5}, {"start": 5}, {"end": 5}]
    stage.play("opencode", printed=printed(*(opencode(f"{n}", time=time) for n, time in enumerate(times))))
    stage.play("cline", printed=printed(cline("content_end", output="x", durationMs=5)))

    for name in ("opencode", "cline"):
        await place.work(find_agent(name, {}), access=ACCESS)

    assert [tool.duration_ms for tool in place.recorded(ToolCall)] == [4.0, 0.0, None, None, 5.0]


async def test_a_complaint_of_aider_is_its_first_lines(place, stage):
    lines = ["litellm.AuthenticationError: first", *(f"line {number}" for number in range(40))]
    stage.play("aider", printed=printed(*lines), files={"--analytics-log": printed(STARTS)})
    with pytest.raises(ModelError) as raised:
        await place.work(find_agent("aider", {}), access=ACCESS)
    assert raised.value.reason == "auth"
    assert "line 2" in str(raised.value) and "line 3" not in str(raised.value)
