"""Claude Code's session files as sessions."""

from records_by_hand import (
    SESSION,
    claude_answer,
    claude_entry,
    claude_lines,
    events,
    model_calls,
    only,
    order,
    problems,
    spoken,
    tool_calls,
    write_lines,
)

from proctor.session import Message, ToolCall, Usage

TEXT = {"type": "text", "text": "Well."}


def read(tmp_path, lines, name=SESSION):
    return only("claude-code", write_lines(tmp_path / f"{name}.jsonl", lines))


def test_what_was_said_and_done_is_told_in_order_with_results_beside_their_calls(tmp_path):
    session = read(tmp_path, claude_lines())

    said = [("user", "Run the tests"), ("assistant", "I will."), ("assistant", "They pass.")]
    assert spoken(session) == said
    ran = {"args": {"command": "make test"}, "success": True, "result": "2 passed"}
    assert tool_calls(session) == [ToolCall(name="Bash", call_id="toolu_1", **ran)]
    assert order(session) == ["uMaTMa"]
    assert (session.external_id, session.agent, session.agent_version) == (SESSION, "claude", "2.1.197")
    assert session.model == "claude-sonnet-4-5"
    assert session.attributes == {"cwd": "/code/shop", "gitBranch": "main"}
    assert (session.status, session.end_reason) == ("success", "completed")
    assert (session.finished_at - session.started_at).total_seconds() == 4.5
    # An answer on several lines is one call with its last count.
    first, second = model_calls(session)
    assert first.usage == Usage(input_tokens=240, cached_tokens=200, cache_write_tokens=30, output_tokens=40)
    assert (second.usage.output_tokens, second.cost_usd) == (7, None)


def test_each_prompt_begins_a_turn(tmp_path):
    more = [claude_entry("user", "And now?", "06.000"), claude_answer("msg_3", TEXT, "07.000", 2)]

    assert order(read(tmp_path, claude_lines() + more)) == ["uMaTMa", "uMa"]


def test_a_tool_that_failed_is_told_as_failed(tmp_path):
    lines = claude_lines()
    lines[4]["message"]["content"][0] |= {"is_error": True, "content": [{"type": "text", "text": "exit 1"}]}

    (call,) = tool_calls(read(tmp_path, lines))

    assert (call.success, call.result) == (False, "exit 1")


def test_a_tool_that_the_models_server_ran_has_its_result(tmp_path):
    asked = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}
    gave = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": "found"}
    more = [claude_answer("msg_3", asked, "06.000", 2), claude_answer("msg_3", gave, "07.000", 2)]

    call = tool_calls(read(tmp_path, claude_lines() + more))[-1]

    assert (call.name, call.args, call.result) == ("web_search", {"query": "x"}, "found")


def test_what_the_program_says_to_itself_is_left_out(tmp_path):
    noise = [
        claude_entry("user", "Caveat: …", "00.500", isMeta=True),
        claude_entry("user", "<local-command-stdout></local-command-stdout>", "00.600"),
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        {"type": "attachment", "attachment": {"type": "skill_listing", "content": "…"}},
    ]

    assert order(read(tmp_path, noise + claude_lines())) == ["uMaTMa"]


def test_a_summary_in_place_of_a_long_conversation_is_no_prompt(tmp_path):
    lines = claude_lines()
    lines.insert(1, claude_entry("user", "So far: …", "00.500", isCompactSummary=True))
    lines.insert(1, {"type": "system", "subtype": "compact_boundary", "timestamp": "2026-03-01T10:00:00Z"})

    session = read(tmp_path, lines)

    assert order(session) == ["suMaTMa"]
    assert session.notes == ["the conversation was summarized to save room"]


def test_a_model_that_refused_at_the_end_is_an_error_and_no_word_or_call_of_the_model(tmp_path):
    refused = claude_entry(
        "assistant",
        [{"type": "text", "text": "API Error: 500 away"}],
        "09.000",
        message={"id": "x", "model": "<synthetic>", "usage": {"input_tokens": 0, "output_tokens": 0}},
        isApiErrorMessage=True,
    )

    session = read(tmp_path, [*claude_lines(), refused])

    assert (session.status, session.end_reason, session.error) == (
        "error",
        "model_failed",
        "API Error: 500 away",
    )
    assert order(session) == ["uMaTMa"]


def test_a_session_the_user_broke_off_is_aborted(tmp_path):
    stopped = claude_entry("user", [{"type": "text", "text": "[Request interrupted by user]"}], "09.000")

    session = read(tmp_path, [*claude_lines(), stopped])

    assert (session.status, session.end_reason) == ("error", "aborted")
    assert order(session) == ["uMaTMa"] and "the user interrupted it" in session.notes
    again = [claude_entry("user", "And now?", "10.000"), claude_answer("msg_3", TEXT, "11.000", 2)]
    assert read(tmp_path, [*claude_lines(), stopped, *again]).end_reason == "completed"


def test_a_file_that_is_still_being_written_is_read_as_far_as_it_goes(tmp_path):
    path = write_lines(tmp_path / f"{SESSION}.jsonl", claude_lines()[:4])
    with path.open("a") as file:
        file.write('{"type":"user","message":{"role":"us')

    session = only("claude-code", path)

    assert tool_calls(session)[0].success is None
    assert (session.status, session.end_reason) == ("error", "interrupted")
    assert session.notes == ["the last line is not finished: the file was being written"]


def test_a_broken_line_in_the_middle_is_named_and_the_rest_is_told(tmp_path):
    path = write_lines(tmp_path / f"{SESSION}.jsonl", claude_lines())
    path.write_text(path.read_text().replace('{"parentUuid"', "{broken", 1))

    assert [str(path) + ":2:" in problem for problem in problems("claude-code", path)] == [True]


def test_an_agent_within_the_agent_is_a_session_of_its_own_beside_the_main_one(tmp_path):
    aside = [{**line, "isSidechain": True, "agentId": "a17"} for line in claude_lines()[1:-1]]

    session = read(tmp_path, aside, name="agent-a17")

    assert session.external_id == f"{SESSION}/a17"
    assert session.attributes["is_sidechain"] is True


def test_old_files_name_what_a_call_cost(tmp_path):
    lines = claude_lines()
    lines[3]["costUSD"] = 0.25

    first, _ = model_calls(read(tmp_path, lines))

    assert (first.cost_usd, first.price_source) == (0.25, "agent")


def test_another_agent_is_named_in_the_middle_of_a_session(tmp_path):
    aside = claude_answer("msg_3", TEXT, "06.000", 2, isSidechain=True)

    session = read(tmp_path, [*claude_lines(), aside])

    said = [event for event in events(session) if isinstance(event, Message)]
    assert [message.name for message in said] == ["", "", "", "subagent"]


def test_model_calls_stand_where_their_messages_begin(tmp_path):
    def answered(text, number, at):
        return claude_answer(number, {"type": "text", "text": text}, at, 1)

    lines = [
        claude_entry("user", "q", "01.000"),
        answered("a", "z", "02.000"),
        answered("b", "z", "03.000"),
        answered("c", "y", "04.000"),
        answered("d", "x", "05.000"),
    ]

    assert order(read(tmp_path, lines)) == ["uMaaMaMa"]
