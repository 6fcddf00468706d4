"""Session files of Copilot CLI and transcripts of Cursor's agent as sessions."""

from records_by_hand import lines_of, only, problems, tool_calls, write_lines


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


def test_a_transcript_of_cursor_without_messages_is_named(tmp_path):
    empty = write_lines(tmp_path / "agent-transcripts" / "empty.jsonl", lines_of("cursor")[3:])
    assert "it has no messages" in problems("cursor", empty)[0]
