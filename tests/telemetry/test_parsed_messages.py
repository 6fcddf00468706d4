"""Messages, tool calls and results in every form that frameworks write them, and exports by their members."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from proctor.errors import NotFound, UsageError
from proctor.session import Unreadable
from proctor.telemetry import exports, otlp, sources
from proctor.telemetry.dialects import PROMPT, RESPONSE, is_transport, read_span
from proctor.telemetry.documents import has_messages
from proctor.telemetry.messages import (
    DEEPEST,
    args_of,
    as_text,
    calls_of,
    is_block,
    literal_of,
    message_of_blocks,
    parse_messages,
)
from proctor.telemetry.sources import documents_in, logs_client, read_documents
from proctor.telemetry.span import Span, _error


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
                "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {}}],
                "tool_calls": [{"id": "c", "name": "run"}, {"id": "d", "name": "run"}],
            },
            [("assistant", "", [("c", "run", {}), ("d", "run", {})], [])],
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


# Exports


def record(**value):
    return list(exports._from_snake({"trace_id": "t", "span_id": "s", **value}))


def test_a_record_has_the_first_of_its_names_and_times():
    (one,) = record(event_name="e", name="n", time_unix_nano=5, timestamp=6, body="b", attributes={"a": 1})
    assert one["attributes"] == {"a": 1, "event.name": "e"} and one["body"] == "b"
    assert (one["traceId"], one["spanId"]) == ("t", "s")
    (other,) = record(name="n", body="b")
    assert (other["attributes"], other["timeUnixNano"]) == ({"event.name": "n"}, 0)
    (named,) = record(attributes={"event.name": "x"}, body="b")
    assert named["attributes"] == {"event.name": "x"}


def test_events_with_a_body_are_records_of_their_span():
    events = [
        {"name": "plain"},
        {"name": "said", "body": "b"},
        {"name": "other", "body": "c", "span_id": "o"},
    ]
    spans = record(
        start_time=1, end_time=2, events=events, status_code="ERROR", status_message="m", scope="lib"
    )
    assert [each["spanId"] for each in spans] == ["s", "s", "o"]
    assert [event["name"] for event in spans[0]["events"]] == ["plain"]
    assert (spans[0]["status"], spans[0]["scope"]) == ({"code": "ERROR", "message": "m"}, {"name": "lib"})
    (own,) = record(
        start_time=1, status={"code": "OK"}, status_code="ERROR", parent_id="p", scope={"name": "x"}
    )
    assert (own["status"], own["parentSpanId"], own["scope"]) == ({"code": "OK"}, "p", {"name": "x"})
    (first,) = record(start_time=None, parent_span_id="a", parent_id="b")
    assert first["parentSpanId"] == "a"


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"choices": [{"message": {"content": "a"}}, {"message": "b"}]}, {"content": "a"}),
        ({"choices": [{"text": "a"}]}, {"text": "a"}),
        ({"generations": [[{"message": "a", "text": "b"}]]}, "a"),
        ({"generations": [{"text": "b"}]}, "b"),
        ({"output": "a", "more": 1}, "a"),
        ({"more": 1}, {"more": 1}),
        ({}, None),
    ],
)
def test_the_answer_of_a_langsmith_run(outputs, expected):
    assert exports._langsmith_answer(outputs) == expected


def langfuse(**value):
    (one,) = exports._from_langfuse({"type": "SPAN", "traceId": "t", "id": "s", **value})
    return one["attributes"], one["status"]


def test_an_observation_of_langfuse_is_an_agent_a_tool_or_a_call():
    assert langfuse(name="invoke_agent x")[0]["gen_ai.operation.name"] == "invoke_agent"
    assert langfuse(name="execute_tool x")[0]["gen_ai.operation.name"] == "execute_tool"
    assert langfuse(type="CHAIN")[0]["gen_ai.operation.name"] == "invoke_workflow"
    assert "gen_ai.operation.name" not in langfuse(type="CHAIN", parentObservationId="p")[0]
    attributes, status = langfuse(
        type="GENERATION",
        model="m",
        usageDetails={"input": 3, "output": 2, "input_cached_tokens": 1},
        totalCost=0,
    )
    assert (attributes["gen_ai.request.model"], attributes["gen_ai.usage.input_tokens"]) == ("m", 3)
    assert (attributes["gen_ai.usage.output_tokens"], attributes["operation.cost"]) == (2, 0)
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 1 and status == {"code": "OK"}
    older, _ = langfuse(type="GENERATION", promptTokens=3, completionTokens=2, calculatedTotalCost=0.5)
    assert (older["gen_ai.usage.input_tokens"], older["operation.cost"]) == (3, 0.5)
    detailed, failed = langfuse(
        type="GENERATION", costDetails={"total": 0.25}, level="error", statusMessage="m"
    )
    assert (detailed["operation.cost"], failed) == (0.25, {"code": "ERROR", "message": "m"})
    assert "operation.cost" not in langfuse(totalCost=1)[0]


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
    ("code", "error", "problem"),
    [
        ("ResourceNotFoundException", NotFound, "there is no log group g"),
        ("Denied", UsageError, "refuses to show the log group g: no"),
    ],
)
def test_what_cloudwatch_refuses_is_told(code, error, problem):
    class Client:
        def get_paginator(self, operation):
            return self

        def paginate(self, **parameters):
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "FilterLogEvents")

    with pytest.raises(error, match=problem):
        list(sources._paged(Client(), "filter_log_events", "events", {}, "the log group g"))


def test_two_attributes_say_what_an_agent_was_asked_and_answered():
    base = {"trace_id": "t", "span_id": "s", "parent_id": "", "scope": "x", "name": "n"}
    fields = {name: base.get(name) for name in Span.__dataclass_fields__}

    def read(**attributes):
        given = {**fields, "attributes": attributes, "has_failed": False, "records": (), "events": ()}
        return read_span(Span(**{name: given[name] for name in Span.__dataclass_fields__}))

    reading = read(**{PROMPT: "hi", RESPONSE: "ho"})
    assert (reading.kind, reading.inputs[0].text, reading.outputs[0].text) == ("agent", "hi", "ho")
    assert read(**{PROMPT: "hi"}).outputs == []
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": "own"}
    both = read(**agent, **{PROMPT: "hi", RESPONSE: "ho"})
    assert (both.inputs[0].text, both.outputs[0].text) == ("hi", "own")
    chat = read(**{"gen_ai.operation.name": "chat", PROMPT: "hi"})
    assert (chat.kind, chat.inputs) == ("inference", [])
    assert read() is None


def test_a_trace_of_langfuse_lasts_as_long_as_its_observations():
    observations = [
        {"id": "a", "type": "SPAN", "startTime": 5, "endTime": 9},
        {"id": "b", "type": "SPAN", "startTime": 7, "parentObservationId": "a"},
        {"id": "c", "type": "SPAN"},
    ]
    trace = {"id": "t", "name": "n", "sessionId": "s", "input": "hi", "observations": observations}
    root, first, second = exports._from_langfuse_trace(trace)
    assert (root["startTimeUnixNano"], root["endTimeUnixNano"]) == (
        *(exports.time_of(5), exports.time_of(9)),
    )
    assert (root["spanId"], first["parentSpanId"], second["parentSpanId"]) == ("t", "t", "a")
    assert root["attributes"]["gen_ai.operation.name"] == "invoke_workflow"
    assert first["attributes"]["session.id"] == "s"
    (alone,) = exports._from_langfuse_trace({"id": "t", "timestamp": 5})
    assert alone["startTimeUnixNano"] == alone["endTimeUnixNano"] == exports.time_of(5)


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


@pytest.mark.parametrize(
    ("status", "events", "attributes", "expected"),
    [
        ({"message": "m"}, [], {"error.type": "T"}, "m"),
        ({}, [("exception", "boom")], {"error.type": "T"}, "boom"),
        ({}, [("other", "boom")], {"error.type": "T"}, "T"),
        ({}, [], {}, "it failed"),
    ],
)
def test_the_error_of_a_span_is_the_first_that_is_named(status, events, attributes, expected):
    named = [{"name": name, "attributes": {"exception.message": text}} for name, text in events]
    assert _error({"status": status, "events": named, "attributes": attributes}) == expected


def test_rejected_parts_of_lists_in_lists_are_added_up():
    found = documents_in([3, {"spans": [3, 4]}])
    assert (found.documents, found.rejected) == ([], 3)


def test_a_table_that_is_no_csv_says_so(monkeypatch):
    monkeypatch.setattr(sources, "MOST_CELL", 10)
    text = b"context.span_id,name\n" + b"x" * 100 + b",n\n"
    with pytest.raises(ValueError, match="it is not CSV: "):
        list(sources.rows_of_csv(io.BytesIO(text)))


def test_messages_that_are_wrapped_too_often_are_left_out():
    value = {"lc": 1, "id": ["HumanMessage"], "kwargs": {"content": "deep"}}
    assert [message.text for message in parse_messages(value, "user")] == ["deep"]
    assert parse_messages(value, "user", DEEPEST) == []
    for _ in range(DEEPEST + 2):
        value = {"messages": [value]}
    assert parse_messages(value, "user") == []


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("double_value", 1.5, 1.5),
        ("double_value", float("nan"), None),
        ("double_value", float("inf"), None),
        ("string_value", "x", "x"),
        ("int_value", 3, 3),
        ("bool_value", False, False),
        ("bytes_value", b"x", "eA=="),
        (None, 3, None),
    ],
)
def test_values_of_protobuf_are_plain(kind, content, expected):
    message = SimpleNamespace(WhichOneof=lambda name: kind, **{kind or "none": content})
    assert otlp._value(message) == expected
