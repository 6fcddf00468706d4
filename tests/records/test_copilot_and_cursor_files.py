"""Session files of Copilot CLI and transcripts of Cursor's agent as sessions."""

from records_by_hand import SESSION, lines_of, only, problems, told, tool_calls, write_every_kind, write_lines


def test_a_session_of_copilot_has_each_call_once_with_its_result(tmp_path):
    session = only("copilot", write_every_kind(tmp_path, "copilot")["copilot"])

    assert (session.external_id, session.agent, session.agent_version) == (SESSION, "copilot", "1.0.102")
    assert (session.model, session.status, session.attributes) == ("gpt-5", "success", {"cwd": "/shop"})
    assert told(session) == [
        ("user", "Add a line."),
        ("model", "gpt-5"),
        ("call", "bash", "done", True),
        ("model", "gpt-5"),
        ("assistant", "Done."),
    ]
    assert tool_calls(session)[0].args == {"command": "echo hi >> hello.txt"}


def test_a_session_of_copilot_that_failed_or_stopped_says_so(tmp_path):
    start, asked, answered, *_ = lines = lines_of("copilot")
    failed_tool = {"toolCallId": "call_1", "success": False, "error": {"message": "no shell"}}
    failed = [{"type": "tool.execution_complete", "data": failed_tool}]
    failed += [{"type": "session.error", "data": {"message": "401"}}]

    first = only("copilot", write_lines(tmp_path / "a.jsonl", [start, asked, answered, *failed]))
    second = only("copilot", write_lines(tmp_path / "b.jsonl", lines[:4]))

    assert (first.status, first.end_reason, first.error) == ("error", "model_failed", "401")
    assert (tool_calls(first)[0].result, tool_calls(first)[0].success) == ("no shell", False)
    assert (second.status, second.end_reason) == ("error", "interrupted")


def test_a_transcript_of_cursor_has_the_questions_without_its_instructions(tmp_path):
    session = only("cursor", write_every_kind(tmp_path, "cursor")["cursor"])

    assert (session.external_id, session.agent, session.status) == (SESSION, "cursor", "success")
    assert told(session) == [
        ("user", "Fix it."),
        ("assistant", "Editing."),
        ("call", "edit_file", "", None),
        ("assistant", "Fixed."),
    ]
    empty = write_lines(tmp_path / "agent-transcripts" / "empty.jsonl", lines_of("cursor")[3:])
    assert "it has no messages" in problems("cursor", empty)[0]
