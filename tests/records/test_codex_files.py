"""Codex' session files as sessions."""

import json

import pytest
from records_by_hand import (
    THREAD,
    codex_line,
    codex_lines,
    codex_said,
    only,
    order,
    told,
    tool_calls,
    write_lines,
)

from proctor.session import ModelCall

EXITED = "\nExit code: 0"


def read(tmp_path, lines, name=f"rollout-2026-03-01T10-00-00-{THREAD}"):
    return only("codex", write_lines(tmp_path / f"{name}.jsonl", lines))


def test_each_turn_is_a_step_and_an_error_at_its_end_says_why(tmp_path):
    lines = codex_lines()
    lines[-1]["payload"]["error"] = {"message": "unexpected status 401"}
    more = [
        codex_line("event_msg", {"type": "task_started", "turn_id": "turn-b"}, "10.000"),
        codex_said("user", "Delete it.", "10.100"),
        codex_said("assistant", "No.", "10.200"),
        codex_line("event_msg", {"type": "task_complete", "turn_id": "turn-b"}, "10.300"),
    ]

    broken, session = read(tmp_path, lines), read(tmp_path, codex_lines() + more)

    ending = (broken.status, broken.end_reason, broken.error)
    assert ending == ("error", "model_failed", "unexpected status 401")
    assert [step.trace_id for step in session.steps] == ["turn-a", "turn-b"]


def test_old_files_without_envelopes_are_read_too(tmp_path):
    packed = json.dumps({"output": "no such file", "metadata": {"exit_code": 2, "duration_seconds": 0.1}})
    lines = [
        {"id": THREAD, "timestamp": "2025-06-01T10:00:00Z", "instructions": "Be brief."},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "ls"}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": packed},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Gone."}]},
    ]

    session = read(tmp_path, lines)

    assert session.external_id == THREAD
    assert order(session) == ["suTa"]
    (call,) = tool_calls(session)
    assert (call.result, call.success) == ("no such file", False)


@pytest.mark.parametrize(
    ("output", "result", "success"),
    [
        ('{"output": "made", "metadata": {"exit_code": 0}}', "made", True),
        ('{"output": "no rule", "metadata": {"exit_code": 2}}', "no rule", False),
        ('{"output": "made"}', '{"output": "made"}', None),
        ('{"output": "made", "metadata": {"exit_code": "0"}}', None, None),
        ('{"output": 3, "metadata": {"exit_code": 0}}', None, None),
        ("{broken", "{broken", None),
        ("Process exited with code 1", None, False),
        # The exit code stands in the first 2000 characters.
        ("x" * (2000 - len(EXITED)) + EXITED, None, True),
        ("x" * (2001 - len(EXITED)) + EXITED, None, None),
    ],
)
def test_an_output_in_json_is_unpacked_when_it_has_text_and_an_exit_code(tmp_path, output, result, success):
    made = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "s"}
    done = {"type": "function_call_output", "call_id": "s", "output": output}
    items = [codex_line("response_item", item, "02.500") for item in (made, done)]

    calls = tool_calls(read(tmp_path, codex_lines()[:10] + items + codex_lines()[10:]))

    assert [(call.result, call.success) for call in calls if call.name == "shell"] == [
        (output if result is None else result, success)
    ]


def test_its_other_tools_are_calls_as_well(tmp_path):
    patch = {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "p"}
    done = {"type": "custom_tool_call_output", "call_id": "p", "output": "Exit code: 0\nDone"}
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "x"}}
    local = {"type": "local_shell_call", "id": "l", "action": {"command": ["ls"]}}
    ended = {"type": "exec_command_end", "call_id": "l", "exit_code": 1, "duration": {"secs": 2}}
    items = [codex_line("response_item", item, "02.500") for item in (patch, done, search, local)]
    gone = {"type": "local_shell_call_output", "call_id": "l", "output": "gone"}
    items += [codex_line("event_msg", ended, "02.600"), codex_line("response_item", gone, "02.700")]
    items.append(codex_line("compacted", {}, "02.800"))

    session = read(tmp_path, codex_lines()[:10] + items + codex_lines()[10:])

    assert session.notes == ["the conversation was summarized to save room"]
    calls = tool_calls(session)

    assert [call.name for call in calls] == ["exec_command", "apply_patch", "web_search", "shell"]
    assert [call.success for call in calls] == [True, True, True, False]
    assert (calls[3].args, calls[3].duration_ms) == ({"command": ["ls"]}, 2000)
    assert calls[1].args == {"input": "*** Begin Patch"}


def item(kind, **more):
    return {"type": "response_item", "payload": {"type": kind, **more}}


def happened(kind, **more):
    return {"type": "event_msg", "payload": {"type": kind, **more}}


ASKED = item("message", role="user", content="q")
ANSWERED = item("message", role="assistant", content="a")
CALLED = item("function_call", name="f", arguments="{}", call_id="1")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([ASKED, ANSWERED], "completed"),
        ([ASKED], "interrupted"),
        ([ASKED, CALLED], "interrupted"),
        ([ASKED, CALLED, item("function_call_output", call_id="1", output="r")], "completed"),
        ([happened("task_started"), ASKED, ANSWERED], "interrupted"),
        ([happened("task_started"), ASKED, ANSWERED, happened("task_complete")], "completed"),
        ([ASKED, ANSWERED, happened("turn_aborted")], "aborted"),
        ([ASKED, ANSWERED, happened("error", message="no")], "model_failed"),
        ([ASKED, happened("error", message="no"), happened("task_started"), ANSWERED], "interrupted"),
    ],
)
def test_how_a_session_of_codex_ended(tmp_path, lines, reason):
    session = read(tmp_path, lines)
    assert (session.end_reason, session.status) == (reason, "success" if reason == "completed" else "error")


def counted(total):
    info = {"total_token_usage": {"input_tokens": total}, "last_token_usage": {"input_tokens": total}}
    return happened("token_count", info=info)


def test_running_counts_and_those_of_responses_tell_of_the_same_calls(tmp_path):
    recorded = {"type": "token_usage_record", "payload": {"usage": {"input_tokens": 9}}}
    running = read(tmp_path, [ASKED, ANSWERED, counted(3), counted(3), counted(5)])
    both = read(tmp_path, [ASKED, ANSWERED, counted(3), recorded, recorded])

    def tokens(session):
        events = (each.event for step in session.steps for each in step.events)
        return [event.usage.input_tokens for event in events if isinstance(event, ModelCall)]

    assert sorted(tokens(running)) == [3, 5]
    assert tokens(both) == [9, 9]
    assert [kind for kind, *_ in told(running)][:2] == ["user", "model"]


def test_a_session_without_an_id_has_that_of_its_file(tmp_path):
    assert read(tmp_path, [ASKED, ANSWERED]).external_id == THREAD
    assert read(tmp_path, [ASKED, ANSWERED], name="rollout-y").external_id == "rollout-y"
    meta = {"type": "session_meta", "payload": {"id": "own"}}
    assert read(tmp_path, [meta, ASKED, ANSWERED]).external_id == "own"


def test_small_and_first_rollouts_are_read_from_their_events_and_items(tmp_path):
    events = [
        {"type": "session_meta", "timestamp": "2026-03-01T10:00:00Z", "payload": {"id": THREAD}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": "Hello?"}},
        {"type": "event_msg", "payload": {"type": "agent_message", "message": "Hello!"}},
    ]
    messages = (("user", "input_text", "Hello?"), ("assistant", "output_text", "Hello!"))
    items = [
        {"type": "message", "role": role, "content": [{"type": part, "text": text}]}
        for role, part, text in messages
    ]
    whole = tmp_path / f"rollout-2025-05-07-{THREAD}.json"
    whole.write_text(json.dumps({"session": {"id": THREAD, "instructions": ""}, "items": items}))

    for session in (read(tmp_path, events), only("codex", whole)):
        assert session.external_id == THREAD
        assert told(session) == [("user", "Hello?"), ("assistant", "Hello!")]
