"""Conversations that are sent again and again, and the smaller parts of reading and writing spans."""

import hashlib

import pytest

from proctor.session import Message, ModelCall, Session, Step, TimedEvent, ToolCall
from proctor.telemetry.dialects import google_adk
from proctor.telemetry.dialects import proctor as own_dialect
from proctor.telemetry.dialects.genai import content_of
from proctor.telemetry.documents import KINDS, any_value, named, nanoseconds
from proctor.telemetry.exports import time_of
from proctor.telemetry.log_query import _FUNCTIONS, at_path
from proctor.telemetry.messages import (
    ParsedMessage,
    ParsedToolCall,
    ParsedToolResult,
    _is_message_like,
    parse_messages,
    payload_of,
)
from proctor.telemetry.otlp import _marks, _span
from proctor.telemetry.sessions import NANOSECONDS_PER_MILLISECOND, SpanTranscript
from proctor.telemetry.sources import _rows
from proctor.telemetry.span import Span
from proctor.telemetry.span_writer import _event, documents_of


def said(transcript, *messages, owner=""):
    """What is new in a conversation: texts, names of calls, results."""
    new = []
    for _, item in transcript.add_conversation(messages, 1, "t", owner):
        if isinstance(item, Message):
            new.append(item.content)
        elif hasattr(item, "call"):
            new.append(f"{item.call.name}()")
        else:
            new.append(f"={item.result.text}")
    return new


def user(text):
    return ParsedMessage("user", text)


def calling(name, call_id="", **args):
    return ParsedMessage("assistant", calls=(ParsedToolCall(call_id, name, args),))


def result(text, call_id=""):
    return ParsedMessage("tool", results=(ParsedToolResult(call_id, text),))


def test_of_a_conversation_that_is_sent_again_only_the_rest_is_new():
    transcript = SpanTranscript()
    assert said(transcript, user("a"), user("b")) == ["a", "b"]
    assert said(transcript, user("a"), user("b"), user("a")) == ["a"]
    assert said(transcript, user("a"), user("b"), user("a"), user(" ")) == []
    assert said(transcript, user("a"), user("b "), user("a"), user("c")) == ["c"]


def test_calls_in_a_history_are_new_as_often_as_they_stand_there():
    transcript = SpanTranscript()
    look, again = calling("look", at=1), calling("look", at=2)
    assert said(transcript, look) == ["look()"]
    assert said(transcript, look) == []
    assert said(transcript, look, look, again) == ["look()", "look()"]
    assert said(transcript, look, again, look) == []
    # Under its id a call is known even with other arguments.
    assert said(transcript, calling("find", "c1", x=1)) == ["find()"]
    assert said(transcript, calling("find", "c1", x=2)) == []
    assert said(transcript, calling("find", "c2", x=2)) == ["find()"]


def test_results_in_a_history_are_new_as_often_as_they_stand_there():
    transcript = SpanTranscript()
    assert said(transcript, result("x"), result("y", "c1")) == ["=x", "=y"]
    assert said(transcript, result("x"), result("y", "c1")) == []
    assert said(transcript, result("x"), result(" x "), result("other", "c1")) == ["= x "]
    assert said(transcript, result("x"), result("x"), result("x")) == ["=x"]


def test_what_an_agent_whose_model_has_answered_said_is_not_taken_from_its_inputs():
    transcript = SpanTranscript()
    answered = ParsedMessage("assistant", "yes")
    assert said(transcript, answered, owner="a") == ["yes"]
    assert [item.content for _, item in transcript.add_output(answered, 1, "t", "a")] == ["yes"]
    assert said(transcript, ParsedMessage("assistant", "no"), user("hm"), owner="a") == ["hm"]
    assert said(transcript, ParsedMessage("assistant", "no"), owner="b") == ["no"]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (0, "UNSPECIFIED"),
        (1, "INTERNAL"),
        ("3", "CLIENT"),
        (5, "CONSUMER"),
        (6, "UNSPECIFIED"),
        (-1, "UNSPECIFIED"),
        (None, "UNSPECIFIED"),
        ("SPAN_KIND_SERVER", "SERVER"),
        ("SpanKind.client", "CLIENT"),
        ("x" * 50, "X" * 40),
    ],
)
def test_the_name_of_a_kind(value, name):
    assert named(value, KINDS, "SPAN_KIND_") == name


@pytest.mark.parametrize(
    ("value", "number"),
    [(None, 0), ("x", 0), (0, 0), (1, 1), ("7", 7), (2**63 - 1, 2**63 - 1), (2**63, 0), (-1, 0)],
)
def test_a_time_in_nanoseconds(value, number):
    assert nanoseconds(value) == number
    assert NANOSECONDS_PER_MILLISECOND == 10**6
    assert time_of(1) == 10**9


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", 1),
        ("a.c", 3),
        (".a.b", 1),
        ("x.y.z", 5),
        ("l.0", "first"),
        ("l.2", None),
        ("none", None),
        (".b.c", 4),
    ],
)
def test_a_path_with_dots_in_its_keys(path, value):
    document = {"a.b": 1, "a": {"b": 2, "c": 3}, "x.y": {"z": 5}, "l": ["first", "second"], "b": {"c": 4}}
    assert at_path(document, path) == value


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        ({"content": "x"}, "x"),
        ({"content": "x", "other": 1}, {"content": "x", "other": 1}),
        ({"content": "x", "role": "tool"}, "x"),
        ({"content": "x", "id": "1", "more": 2}, "x"),
        ({"message": "x"}, "x"),
        ({"message": "x", "finish_reason": "stop"}, "x"),
        ({"message": "x", "other": 1}, {"message": "x", "other": 1}),
        ({"messages": [{"role": "a", "content": "x"}, {"role": "b", "content": "y"}], "other": 1}, "y"),
        ([1, 2], [1, 2]),
        ([1], 1),
        ([], []),
        ("x", "x"),
    ],
)
def test_the_payload_of_a_message_about_a_tool(value, payload):
    assert payload_of(value) == payload


@pytest.mark.parametrize(
    ("value", "role"),
    [
        ({"type": "human", "data": {"content": "x"}}, "user"),
        ({"type": "ai", "data": {"content": "x"}}, "assistant"),
        ({"type": "unknown", "data": {"content": "x"}}, "system"),
        ({"lc": 1, "id": ["langchain", "AIMessage"], "kwargs": {"content": "x"}}, "assistant"),
        ({"lc": 1, "id": [], "kwargs": {"content": "x"}}, "system"),
    ],
)
def test_the_role_of_a_message_of_langchain(value, role):
    assert parse_messages(value, "system") == [ParsedMessage(role, "x")]


def test_calls_in_the_blocks_come_before_those_beside_them():
    value = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "1", "name": "a", "input": {"x": 1}}],
        "tool_calls": [
            {"id": "2", "type": "function", "function": {"name": "b", "arguments": "{}"}},
            {"id": "1", "type": "function", "function": {"name": "a", "arguments": '{"y": 2}'}},
        ],
    }
    (message,) = parse_messages(value, "user")
    assert [(call.id, call.args) for call in message.calls] == [("1", {"x": 1}), ("2", {})]


@pytest.mark.parametrize(
    ("value", "is_message"),
    [
        ([], False),
        ([{"role": "user"}], True),
        ([{"role": "user"}, {"x": 1}], False),
        ([{"x": 1}], False),
        ([1], False),
        ({"parts": []}, True),
        ({"x": 1}, False),
        (1, False),
    ],
)
def test_what_looks_like_messages(value, is_message):
    assert _is_message_like(value) is is_message


def span(name="n", *, scope="", events=(), records=(), **attributes):
    return Span(
        trace_id="t",
        span_id="s",
        parent_id="",
        scope=scope,
        name=name,
        started=1,
        ended=2,
        has_failed=False,
        error="",
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
        events=events,
        records=records,
    )


def test_events_on_a_span_count_only_where_no_record_says_anything():
    event = {"name": "gen_ai.user.message", "attributes": {"content": "from the event"}}
    user_record = {"eventName": "gen_ai.user.message", "attributes": {}, "body": {"content": "recorded"}}
    choice = {"attributes": {"event.name": "gen_ai.choice"}, "body": {"message": {"content": "answer"}}}
    for records, inputs, outputs in (
        ((), ["from the event"], []),
        ((user_record,), ["recorded"], []),
        ((choice,), [], ["answer"]),
        ((user_record, choice), ["recorded"], ["answer"]),
    ):
        content = content_of(span(events=(event,), records=records))
        assert [message.text for message in content.inputs] == inputs
        assert [message.text for message in content.outputs] == outputs


def test_a_tool_without_a_name_has_none():
    for given, name in (({"gen_ai__tool__name": "look"}, "look"), ({}, "")):
        reading = own_dialect.read(span(gen_ai__operation__name="execute_tool", **given))
        assert reading is not None and (reading.kind, reading.tool) == ("tool", name)
    agent = own_dialect.read(span(gen_ai__operation__name="invoke_agent", gen_ai__agent__name="a"))
    assert agent is not None and (agent.agent, agent.trace_id) == ("a", "")


def test_spans_of_google_adk_that_are_no_tools():
    agent = google_adk._read_native(span(gen_ai__operation__name="invoke_agent", gen_ai__agent__name="a"))
    assert agent is not None and (agent.kind, agent.agent) == ("agent", "a")
    assert google_adk._read_native(span("other")) is None
    assert google_adk._read_native(span("(merged tools)", gen_ai__operation__name="execute_tool")) is None
    whole = google_adk._read_native(span("invocation"))
    assert whole is not None and whole.kind == "agent"


def test_a_table_that_breaks_off_is_named_by_the_row(tmp_path):
    def rows(count):
        for number in range(count):
            yield {"traceId": "a" * 32, "spanId": f"{number:016x}", "name": "n", "startTimeUnixNano": 5}
        raise ValueError("broken")

    for count, line in ((0, 1), (1, 2), (3, 4)):
        *_, problem = _rows(rows(count), tmp_path)
        assert (problem.line, problem.problem) == (line, "broken")


def test_a_span_without_a_beginning_begins_at_no_time():
    assert _marks({}, "traces") == {"startTimeUnixNano": 0}
    assert _marks({"start_time_unix_nano": 5}, "traces") == {"startTimeUnixNano": 5}
    assert _marks({"body": "x"}, "logs") == {"body": "x"}


def test_calls_with_one_id_in_a_step_become_spans_with_different_ids():
    calls = [
        ToolCall(name="a", args={}, call_id="same"),
        ToolCall(name="b", args={}, call_id="same"),
        ModelCall(model="m"),
        ModelCall(model="m"),
    ]
    steps = [Step(trace_id="t", events=[TimedEvent(event=call) for call in calls])] * 2
    documents = documents_of(Session(external_id="s", source="x", steps=steps))
    ids = [(document["traceId"], document["spanId"]) for document in documents]
    assert len(ids) == 10 and len(set(ids)) == 10
    assert ids[1][1] == "same" and ids[2][1] != "same"
    first, *others = documents[:5]
    assert all(other["parentSpanId"] == first["spanId"] for other in others)
    times = [document["startTimeUnixNano"] for document in others]
    assert times == sorted(times) and times[0] > first["startTimeUnixNano"]
    assert first["endTimeUnixNano"] > others[-1]["endTimeUnixNano"]


def nested(depth):
    value = {"stringValue": "x"}
    for _ in range(depth):
        value = {"arrayValue": {"values": [value]}}
    return value


def unwrapped(value):
    depth = 0
    while isinstance(value, list):
        value, depth = value[0], depth + 1
    return value, depth


def test_values_nest_sixty_deep():
    assert unwrapped(any_value(nested(60))) == ("x", 60)
    assert unwrapped(any_value(nested(61)))[0] is None
    assert any_value(True) is True and any_value([1]) is None and any_value({}) is None


def test_a_message_becomes_an_event_with_its_content_even_if_that_is_empty():
    assert _event(Message(role="user", content=""), 5) == {
        "name": "gen_ai.user.message",
        "timeUnixNano": 5,
        "attributes": {"role": "user", "content": ""},
    }
    named_message = _event(Message(role="tool", content="x", name="n"), 5)
    assert named_message["attributes"] == {"role": "tool", "content": "x", "name": "n"}


def test_ids_that_are_not_hexadecimal_are_digests_of_where_they_stand():
    document = {
        "traceId": "turn-1",
        "spanId": "call-1",
        "parentSpanId": "call-0",
        "name": "n",
        "kind": "CLIENT",
        "startTimeUnixNano": 1,
        "endTimeUnixNano": 2,
        "attributes": {"session.id": "s"},
        "status": {"code": "ERROR", "message": "m"},
    }

    def digest(digits, *parts):
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:digits]

    span = _span(document)
    assert span["traceId"] == digest(32, "s", "turn-1")
    assert span["spanId"] == digest(16, "s", "turn-1", "call-1")
    assert span["parentSpanId"] == digest(16, "s", "turn-1", "call-0")
    assert (span["kind"], span["status"]) == (3, {"code": 2, "message": "m"})
    known = {"traceId": "0af" + "1" * 29, "spanId": "f" * 16, "parentSpanId": "", "kind": "x", "status": {}}
    span = _span(document | known)
    assert (span["traceId"], span["spanId"], span["parentSpanId"]) == ("0af" + "1" * 29, "f" * 16, "")
    assert (span["kind"], span["status"]) == (0, {"code": 0})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ceil", 1.2, 2),
        ("ceil", -1.2, -1),
        ("ceil", "word", 0),
        ("floor", 1.8, 1),
        ("floor", -1.2, -2),
        ("floor", "word", 0),
        ("abs", -3, 3),
        ("abs", "word", 0),
    ],
)
def test_functions_of_numbers_take_a_word_as_zero(name, value, expected):
    assert _FUNCTIONS[name]([value]) == expected
    assert _FUNCTIONS[name]([]) is None


def test_a_pair_of_role_and_text_is_a_message_of_that_role():
    assert parse_messages(["user", "hello"], "assistant") == [ParsedMessage("user", "hello")]
