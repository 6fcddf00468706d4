"""Messages, tool calls and results in every form that frameworks write them, and exports by their members."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.session import Unreadable
from proctor.telemetry import sources
from proctor.telemetry.dialects import is_transport
from proctor.telemetry.documents import has_messages
from proctor.telemetry.messages import (
    DEEPEST,
    ParsedMessage,
    args_of,
    as_text,
    calls_of,
    is_block,
    literal_of,
    message_of_blocks,
    parse_messages,
    payload_of,
)
from proctor.telemetry.sources import documents_in, logs_client, read_documents


def told(message):
    """A message as a short tuple: role, text, calls, results."""
    calls = [(call.id, call.name, call.args) for call in message.calls]
    results = [(result.id, result.text, result.is_error) for result in message.results]
    return message.role, message.text, calls, results


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": "hi"}, ("user", "hi", [], [])),
        ({"text": "hi"}, ("user", "hi", [], [])),
        ({"type": "output_text", "content": "hi"}, ("user", "hi", [], [])),
        ({"type": "refusal", "refusal": "no"}, ("user", "no", [], [])),
        ({"type": "thinking", "thinking": "hm"}, ("user", "", [], [])),
        ({"reasoningContent": {"text": "hm"}}, ("user", "", [], [])),
        ({"cachePoint": {}}, ("user", "", [], [])),
        ({"type": "image", "text": "x"}, ("user", "[image]", [], [])),
        ({"type": "blob", "modality": "audio"}, ("user", "[audio]", [], [])),
        ({"type": "text"}, ("user", "", [], [])),
        ({"odd": 1}, ("user", '{"odd": 1}', [], [])),
        (None, ("user", "", [], [])),
        (3, ("user", "3", [], [])),
        (
            {"toolUse": {"toolUseId": "c", "name": "run", "input": {"a": 1}}},
            ("user", "", [("c", "run", {"a": 1})], []),
        ),
        (
            {"type": "function_call", "call_id": "c", "id": "i", "name": "run", "arguments": '{"a": 1}'},
            ("user", "", [("c", "run", {"a": 1})], []),
        ),
        ({"function_call": {"name": "run"}}, ("user", "", [("", "run", {})], [])),
        (
            {"toolResult": {"toolUseId": "c", "content": [{"text": "ok"}], "status": "error"}},
            ("tool", "", [], [("c", "ok", True)]),
        ),
        (
            {"type": "tool_result", "tool_use_id": "c", "content": "ok", "is_error": True},
            ("tool", "", [], [("c", "ok", True)]),
        ),
        (
            {"type": "tool-result", "toolCallId": "c", "result": {"result": "ok"}},
            ("tool", "", [], [("c", "ok", False)]),
        ),
        (
            {"functionResponse": {"id": "c", "response": {"n": 1}}},
            ("tool", "", [], [("c", '{"n": 1}', False)]),
        ),
        ({"type": "function_call_output", "call_id": "c"}, ("tool", "", [], [("c", "", False)])),
    ],
)
def test_a_part_of_a_message_is_a_text_a_call_or_a_result(block, expected):
    assert told(message_of_blocks([block], "user")) == expected


def test_parts_are_joined_and_results_with_a_text_stay_with_their_speaker():
    result = {"type": "tool_result", "tool_use_id": "c", "content": "ok"}
    message = message_of_blocks([{"text": "a"}, {"text": ""}, {"text": "b"}, result], "user")
    assert told(message) == ("user", "a\nb", [], [("c", "ok", False)])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"type": "text"}, True),
        ({"type": "image"}, True),
        ({"type": "odd"}, False),
        ({"text": "x"}, True),
        ({"text": "x", "more": 1}, False),
        ({"toolUse": {}}, True),
        ({"toolUse": {}, "role": "user"}, False),
        ("text", False),
    ],
)
def test_parts_are_told_from_messages(value, expected):
    assert is_block(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"id": "c", "function": {"name": "run", "arguments": "{}"}}], [("c", "run", {})]),
        ([{"toolCallId": "c", "toolName": "run", "args": {"a": 1}}], [("c", "run", {"a": 1})]),
        ([{"functionCall": {"id": "c", "name": "run", "args": {"a": 1}}}], [("c", "run", {"a": 1})]),
        ([{"name": "run", "input": "x"}, {"id": "nameless"}, 3], [("", "run", {"input": "x"})]),
        ("none", []),
    ],
)
def test_calls_beside_the_content_are_read(value, expected):
    assert [(call.id, call.name, call.args) for call in calls_of(value)] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("{'a': 1}", {"a": 1}),
        ("plain", {"input": "plain"}),
        ([1], {"input": [1]}),
        ({1: 2}, {"1": 2}),
        (None, {}),
        ("", {}),
        ([], {}),
    ],
)
def test_arguments_are_an_object(value, expected):
    assert args_of(value) == expected


def test_literals_of_python_are_read_unless_they_are_long_or_no_data():
    assert literal_of(" {'a': (1,)} ") == {"a": (1,)}
    for text in ("{1, 2}", "[open('x')]", "[", "x", "{'a': " + "1" * 2_000_000 + "}"):
        assert literal_of(text) == text
    assert (as_text("x"), as_text({"a": "ü"})) == ("x", '{"a": "ü"}')


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hi", [("user", "hi", [], [])]),
        (None, []),
        ([{"role": "assistant", "content": "hi"}], [("assistant", "hi", [], [])]),
        ({"messages": [{"type": "human", "content": "hi"}]}, [("user", "hi", [], [])]),
        ({"role": "model", "parts": [{"text": "hi"}]}, [("assistant", "hi", [], [])]),
        ({"role": "developer", "content": "rules"}, [("system", "rules", [], [])]),
        ({"role": "tool-call", "content": "x"}, []),
        (
            {"role": "tool", "tool_call_id": "c", "id": "m", "content": "ok", "name": "n"},
            [("tool", "", [], [("c", "ok", False)])],
        ),
        ({"role": "tool", "toolCallId": "c", "content": "ok"}, [("tool", "", [], [("c", "ok", False)])]),
        (
            {"role": "tool", "id": "m", "content": "ok", "status": "error"},
            [("tool", "", [], [("m", "ok", True)])],
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]},
            [("tool", "", [], [("c", "ok", False)])],
        ),
        (
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {"x": 1}}],
                "tool_calls": [{"id": "d", "name": "run"}, {"id": "c", "name": "run", "args": {"y": 2}}],
            },
            [("assistant", "", [("c", "run", {"x": 1}), ("d", "run", {})], [])],
        ),
        ({"role": "assistant", "content": {"content": [{"text": "hi"}]}}, [("assistant", "hi", [], [])]),
        ({"role": "assistant", "content": {"messages": "hi"}}, [("assistant", "hi", [], [])]),
        ("AIMessage(content='hi', tool_calls=None)", [("assistant", "hi", [], [])]),
        (
            "[HumanMessage(content='hi'), AIMessage(content='ho')]",
            [("user", "hi", [], []), ("assistant", "ho", [], [])],
        ),
        (
            "ResponseFunctionToolCall(call_id='c', name='run', arguments='{\"a\": 1}')",
            [("assistant", "", [("c", "run", {"a": 1})], [])],
        ),
        (
            "[ResponseOutputMessage(content=[ResponseOutputText(text='hi', type='output_text')])]",
            [("assistant", "hi", [], [])],
        ),
        ("ActionStep(step=1)", []),
        (["assistant", "hello"], [("assistant", "hello", [], [])]),
    ],
)
def test_messages_are_read_in_any_usual_form(value, expected):
    found = [told(message) for message in parse_messages(value, "user")]
    assert found == expected


def test_names_are_those_of_speakers_and_not_of_tools():
    (ann,) = parse_messages({"role": "user", "name": "Ann", "content": "hi"}, "user")
    (tool,) = parse_messages({"role": "tool", "name": "run", "content": "ok"}, "user")
    assert (ann.name, tool.name) == ("Ann", "")


# Spans


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("opentelemetry.instrumentation.httpx", True),
        ("opentelemetry.instrumentation.HTTPX.client", True),
        ("opentelemetry.instrumentation.httpxy", False),
        ("httpx", False),
    ],
)
def test_scopes_that_only_carry_requests_are_known(scope, expected):
    assert is_transport(scope) is expected


# Files


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (3, "it is not a JSON object"),
        ({}, "neither spans nor records: .* but nothing"),
        ({"b": 1, "a": 2}, "but a, b"),
    ],
)
def test_values_without_spans_say_why(value, problem):
    with pytest.raises(ValueError, match=problem):
        documents_in(value)


def test_what_is_rejected_of_a_list_is_counted_with_the_first_reason():
    found = documents_in(
        [3, {"x": 1}, {"traceId": "t" * 32, "spanId": "s", "startTimeUnixNano": 1, "name": "n"}]
    )
    assert (len(found.documents), found.rejected, found.why) == (1, 2, "it is not a JSON object")
    assert documents_in({"message": "plain text"}).documents == []
    assert documents_in({"message": "[1]"}).documents == []


def test_the_session_of_an_envelope_is_that_of_spans_that_name_none():
    one = {"traceId": "t" * 32, "spanId": "s", "startTimeUnixNano": 1, "name": "n"}
    (document,) = documents_in({"session_id": 7, "spans": [one]}).documents
    assert document["attributes"]["session.id"] == "7"
    named = one | {"attributes": {"session.id": "own"}}
    documents = documents_in({"session_id": 7, "spans": [named, one]}).documents
    assert [each["attributes"].get("session.id") for each in documents] == ["own", None]


def test_indented_values_between_other_output_are_read(tmp_path: Path):
    one = {"traceId": "t" * 32, "spanId": "s", "startTimeUnixNano": 1, "name": "n"}
    text = (
        f"starting\n{json.dumps(one, indent=4)}\nmore output\n{json.dumps(one)}\n" + '{\n    "traceId": 1\n'
    )
    path = tmp_path / "out.log"
    path.write_text(text)
    found = list(read_documents(path))
    assert [isinstance(each, Unreadable) for each in found] == [False, False, True]
    assert (found[2].problem, found[2].line) == ("it is not JSON: it breaks off", 10)


def test_cloudwatch_needs_a_region(monkeypatch):
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(
        UsageError, match=r"CloudWatch Logs cannot be reached: .*\nName a region with --region"
    ):
        logs_client()
    assert logs_client(region="us-east-1") is not None
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(UsageError, match=r"pip install 'proctor\[aws\]'"):
        logs_client(region="us-east-1")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"body": {}}, True),
        ({"body": []}, True),
        ({"body": "line"}, False),
        ({"eventName": "gen_ai.choice"}, True),
        ({"eventName": "other", "attributes": {"event.name": "gen_ai.choice"}}, False),
        ({"attributes": {"event.name": "gen_ai.choice"}}, True),
        ({"attributes": {"gen_ai.system": "x"}}, True),
        ({"attributes": {"other": "x"}}, False),
    ],
)
def test_ordinary_log_lines_are_told_from_records(document, expected):
    assert has_messages(document) is expected


def test_rejected_parts_of_lists_in_lists_are_added_up():
    found = documents_in([3, {"spans": [3, 4]}])
    assert (found.documents, found.rejected) == ([], 3)


def test_a_table_that_is_no_csv_says_so(monkeypatch):
    # White box: the real limit is many megabytes.
    monkeypatch.setattr(sources, "MOST_CELL", 10)
    text = b"context.span_id,name\n" + b"x" * 100 + b",n\n"
    limit_of_process = csv.field_size_limit()
    with pytest.raises(ValueError, match="it is not CSV: "):
        list(sources.rows_of_csv(io.BytesIO(text)))
    csv.field_size_limit(limit_of_process)


def test_messages_that_are_wrapped_too_often_are_left_out():
    value = {"lc": 1, "id": ["HumanMessage"], "kwargs": {"content": "deep"}}
    assert [message.text for message in parse_messages(value, "user")] == ["deep"]
    assert parse_messages(value, "user", DEEPEST) == []
    for _ in range(DEEPEST + 2):
        value = {"messages": [value]}
    assert parse_messages(value, "user") == []


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
