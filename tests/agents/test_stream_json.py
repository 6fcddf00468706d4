"""Stream JSON as Claude Code and its relatives print it."""

import json

import pytest

from proctor.agents._stream_json import StreamJson
from proctor.session import Message, ModelCall, ToolCall


def read(*events, **settings):
    recorded = []
    reader = StreamJson(record=recorded.append, **settings)
    for event in events:
        reader.feed(json.dumps(event))
    reader.finish()
    reader.finish()
    return reader, recorded


def calls(recorded):
    return [event for event in recorded if isinstance(event, ModelCall)]


USED = {"input_tokens": 2468, "output_tokens": 112, "cache_read_input_tokens": 400}


@pytest.mark.parametrize(("has_cached", "total"), [(False, 2868), (True, 2468)])
def test_input_is_counted_with_the_cached_part_however_the_agent_counts(has_cached, total):
    _, recorded = read({"type": "result", "usage": USED}, input_has_cached=has_cached, model="asked")
    assert [(call.model, call.usage.input_tokens) for call in calls(recorded)] == [("asked", total)]


def test_the_duration_of_a_tool_is_the_time_from_its_use_to_its_result():
    use = {"type": "tool_use", "id": "u1", "name": "Read", "input": {"path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "u1", "content": "x = 1"}
    events = [
        {"type": "assistant", "message": {"content": [use]}},
        {"type": "user", "message": {"content": [result]}},
    ]
    _, recorded = read(*events, clock=iter([10.0, 10.25]).__next__)
    assert recorded == [
        ToolCall(name="Read", args={"path": "a.py"}, success=True, result="x = 1", duration_ms=250.0)
    ]


def test_a_cost_the_agent_invented_is_not_believed():
    _, recorded = read({"type": "result", "usage": USED, "total_cost_usd": 3.5})
    assert calls(recorded)[0].cost_usd is None


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        ({"subtype": "success", "is_error": True, "result": "401"}, "401"),
        ({"subtype": "error_max_turns"}, "error_max_turns"),
        ({"is_error": True}, "it reported an error"),
        ({"subtype": "success", "is_error": False, "result": "fine"}, ""),
    ],
)
def test_an_error_is_a_failure_even_when_it_is_called_a_success(event, failure):
    reader, _ = read({"type": "result", **event})
    assert reader.failure == failure


def test_the_thread_is_known_from_whatever_names_it_first():
    started = {"type": "system", "subtype": "init", "session_id": "T-1", "claude_code_version": "2.1"}
    for events in (
        [started, {"type": "result", "session_id": "T-1"}],
        [{"type": "result", "session_id": "T-1"}],
    ):
        _, recorded = read(*events)
        assert [event.thread for event in recorded] == ["T-1"]
    _, recorded = read(started)
    assert recorded[0].agent_version == "2.1"


def test_half_characters_and_giant_numbers_cannot_reach_a_record():
    recorded = []
    reader = StreamJson(record=recorded.append)
    reader.feed(
        '{"type": "assistant", "message": {"content":'
        ' [{"type": "text", "text": "a\\ud800b \\ud83d\\ude00"}]}}'
    )
    reader.feed('{"type": "result", "usage": {"input_tokens": 1e400, "output_tokens": 99999999999999999999}}')
    reader.finish()
    assert recorded == [Message(role="assistant", content="a?b 😀")]


@pytest.mark.parametrize(
    ("result", "models", "tokens"),
    [
        ({"usage": {"input_tokens": 3, "output_tokens": 1}}, ["a", "b"], [("b", 4)]),
        ({"usage": {"input_tokens": 3}}, [], [("given", 3)]),
        ({"usage": {}}, ["a"], [("a", 7)]),
        (
            {"modelUsage": {"x": {"inputTokens": 1}, "y": {"outputTokens": 2}}, "usage": {"input_tokens": 9}},
            ["a"],
            [("x", 1), ("y", 2)],
        ),
        ({"modelUsage": {"x": {}}, "usage": {"input_tokens": 9}}, ["a"], [("a", 9)]),
    ],
)
def test_tokens_are_those_of_the_end_or_of_the_messages(result, models, tokens):
    messages = [{"id": name, "model": name, "content": [], "usage": {"input_tokens": 7}} for name in models]
    said = [{"type": "assistant", "message": message} for message in messages]
    _, recorded = read(*said, {"type": "result", "result": "", **result}, model="given")
    assert [(call.model, call.usage.total_tokens) for call in calls(recorded)] == tokens


def test_the_model_of_a_stream_is_that_of_its_beginning():
    for subtype, model in (("init", "told"), ("other", "given")):
        reader, _ = read({"type": "system", "subtype": subtype, "model": "told"}, model="given")
        assert reader.model == model
