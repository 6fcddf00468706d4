"""Claude Code's session files as sessions."""

import pytest
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
    tool_calls,
    write_lines,
)

from proctor.session import Message


def read(tmp_path, lines, name=SESSION):
    return only("claude-code", write_lines(tmp_path / f"{name}.jsonl", lines))


def answered(text, number, at, **more):
    return claude_answer(number, {"type": "text", "text": text}, at, 1, **more)


ASKED = claude_entry("user", "q", "00.500")
NOISE = [
    claude_entry("user", "Caveat: …", "00.500", isMeta=True),
    claude_entry("user", "<local-command-stdout></local-command-stdout>", "00.600"),
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
    {"type": "attachment", "attachment": {"type": "skill_listing", "content": "…"}},
]
CALLS = [answered(text, number, "02.000") for text, number in zip("abcd", "zzyx", strict=True)]


@pytest.mark.parametrize(
    ("lines", "turns"),
    [
        ([*claude_lines(), claude_entry("user", "And now?", "06.000"), CALLS[0]], ["uMaTMa", "uMa"]),
        (NOISE + claude_lines(), ["uMaTMa"]),
        # A call of a model stands where its first message does.
        ([ASKED, *CALLS], ["uMaaMaMa"]),
    ],
    ids=["each prompt begins one", "what the program says to itself is left out", "calls of models"],
)
def test_the_turns_of_a_session(tmp_path, lines, turns):
    assert order(read(tmp_path, lines)) == turns


def test_a_summary_in_place_of_a_long_conversation_is_no_prompt(tmp_path):
    compacted = {"type": "system", "subtype": "compact_boundary", "timestamp": "2026-03-01T10:00:00Z"}
    summary = claude_entry("user", "So far: …", "00.500", isCompactSummary=True)

    session = read(tmp_path, [compacted, summary, *claude_lines()])

    assert order(session) == ["suMaTMa"]
    assert session.notes == ["the conversation was summarized to save room"]


def test_results_costs_and_names_of_calls_and_messages(tmp_path):
    lines = claude_lines()
    lines[3]["costUSD"] = 0.25
    lines[4]["message"]["content"][0] |= {"is_error": True, "content": [{"type": "text", "text": "exit 1"}]}
    asked = {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}}
    gave = {"type": "web_search_tool_result", "tool_use_id": "srv", "content": "found"}
    lines += [claude_answer("msg_3", asked, "06.000", 2), claude_answer("msg_3", gave, "07.000", 2)]
    lines.append(answered("Aside.", "msg_4", "08.000", isSidechain=True))

    session = read(tmp_path, lines)

    failed, searched = tool_calls(session)
    assert (failed.success, failed.result) == (False, "exit 1")
    assert (searched.name, searched.args, searched.result) == ("web_search", {"query": "x"}, "found")
    costs = [(call.cost_usd, call.price_source) for call in model_calls(session)]
    assert costs == [(0.25, "agent"), (None, ""), (None, ""), (None, "")], "old files name it"
    said = [event for event in events(session) if isinstance(event, Message)]
    assert [message.name for message in said] == ["", "", "", "subagent"]


def test_a_model_that_refused_at_the_end_is_an_error_and_no_word_or_call_of_the_model(tmp_path):
    about = {"id": "x", "model": "<synthetic>", "usage": {"input_tokens": 0, "output_tokens": 0}}
    text = {"type": "text", "text": "API Error: 500 away"}
    refused = claude_entry("assistant", [text], "09.000", message=about, isApiErrorMessage=True)

    session = read(tmp_path, [*claude_lines(), refused])

    ending = (session.status, session.end_reason, session.error)
    assert ending == ("error", "model_failed", "API Error: 500 away")
    assert order(session) == ["uMaTMa"]


def test_a_session_the_user_broke_off_is_aborted(tmp_path):
    stopped = claude_entry("user", [{"type": "text", "text": "[Request interrupted by user]"}], "09.000")

    session = read(tmp_path, [*claude_lines(), stopped])

    assert (session.status, session.end_reason) == ("error", "aborted")
    assert order(session) == ["uMaTMa"] and "the user interrupted it" in session.notes
    again = [claude_entry("user", "And now?", "10.000"), answered("Well.", "msg_3", "11.000")]
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
    assert {event.name for event in events(session) if isinstance(event, Message)} == {""}
