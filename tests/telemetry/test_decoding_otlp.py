"""OTLP in both encodings comes to the same documents, and what is broken is refused."""

import gzip
import json
import zlib

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from proctor.telemetry.documents import any_value
from proctor.telemetry.otlp import TooLarge, decode_json, decode_protobuf, unpacked

TRACE, SPAN = "69e9cc4771d7cabe0d8e8cea33b6b338", "d24936b8989b6d42"
SPAN_FIELDS = {
    "traceId": TRACE.upper(),
    "spanId": SPAN.upper(),
    "parentSpanId": "",
    "name": "chat",
    "kind": 3,
    "startTimeUnixNano": "1776929864011990383",
    "endTimeUnixNano": "1776929869634304466",
    "attributes": [
        {"key": "count", "value": {"intValue": "983"}},
        {"key": "list", "value": {"arrayValue": {"values": [{"boolValue": True}, {}]}}},
    ],
    "events": [{"timeUnixNano": "1776929864011990383", "name": "e", "attributes": []}],
    "status": {"code": 2, "message": "broken"},
}
CALC = {"attributes": [{"key": "service.name", "value": {"stringValue": "Calc"}}]}
SCOPE = {"name": "my.agent", "version": "1"}
SPANS = {
    "resourceSpans": [{"resource": CALC, "scopeSpans": [{"scope": SCOPE, "spans": [SPAN_FIELDS]}]}],
}


def keyed(name, value):
    """A map of one member, as OTLP writes it."""
    return {"kvlistValue": {"values": [{"key": name, "value": value}]}}


OF_A_SPAN = {"timeUnixNano": "1776929869634304466", "traceId": TRACE, "spanId": SPAN}
RECORDS = [
    OF_A_SPAN | {"body": keyed("input", keyed("n", {"intValue": "1"}))},
    {"timeUnixNano": "1", "body": {"stringValue": "just a line"}},
    OF_A_SPAN | {"body": {"stringValue": "a line"}},
]
LOGS = {
    "resourceLogs": [
        {"resource": {"attributes": []}, "scopeLogs": [{"scope": SCOPE, "logRecords": RECORDS}]},
    ],
}


def as_protobuf(message, kind):
    # Protobuf's own JSON has ids in base64, OTLP's in hexadecimal.
    found = Parse(json.dumps(message), kind(), ignore_unknown_fields=True)
    groups = found.resource_spans if kind is ExportTraceServiceRequest else found.resource_logs
    for resource in groups:
        for scope in resource.scope_spans if kind is ExportTraceServiceRequest else resource.scope_logs:
            for leaf in scope.spans if kind is ExportTraceServiceRequest else scope.log_records:
                if leaf.trace_id:
                    leaf.trace_id, leaf.span_id = bytes.fromhex(TRACE), bytes.fromhex(SPAN)
    return found.SerializeToString()


def test_a_span_is_flattened_with_its_resource_and_scope():
    (document,) = decode_json(json.dumps(SPANS)).documents

    assert (document["traceId"], document["spanId"], document["parentSpanId"]) == (TRACE, SPAN, None)
    assert document["resource"]["attributes"] == {"service.name": "Calc"}
    assert document["attributes"] == {"count": 983, "list": [True, None]}
    assert (document["kind"], document["status"]) == ("CLIENT", {"code": "ERROR", "message": "broken"})
    assert document["durationNano"] == 5622314083


def test_protobuf_and_json_are_the_same():
    (from_json,) = decode_json(json.dumps(SPANS)).documents
    (from_protobuf,) = decode_protobuf(as_protobuf(SPANS, ExportTraceServiceRequest), "traces").documents

    assert {key: from_protobuf[key] for key in from_json} == from_json


def test_records_of_a_span_are_kept_and_mere_lines_of_a_log_are_not():
    from_json = decode_json(json.dumps(LOGS))
    from_protobuf = decode_protobuf(as_protobuf(LOGS, ExportLogsServiceRequest), "logs")

    for found in (from_json, from_protobuf):
        (document,) = found.documents
        assert document["body"] == {"input": {"n": 1}}
        assert found.rejected == 0


def test_both_spellings_and_the_old_names_are_read():
    old = json.dumps(SPANS).replace("scopeSpans", "instrumentationLibrarySpans")
    old = old.replace('"scope"', '"instrumentationLibrary"')
    snake = json.dumps(SPANS).replace("resourceSpans", "resource_spans").replace("scopeSpans", "scope_spans")
    snake = snake.replace("traceId", "trace_id").replace("startTimeUnixNano", "start_time_unix_nano")

    for text in (old, snake):
        (document,) = decode_json(text).documents
        assert document["scope"]["name"] == "my.agent"
        assert document["startTimeUnixNano"] == 1776929864011990383


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ({"stringValue": "x"}, "x"),
        ({"string_value": "x"}, "x"),
        ({"boolValue": False}, False),
        ({"intValue": "9007199254740993"}, 9007199254740993),
        ({"intValue": 7}, 7),
        ({"doubleValue": 0.5}, 0.5),
        ({"doubleValue": "NaN"}, None),
        ({"doubleValue": "Infinity"}, None),
        ({"bytesValue": "aGk="}, "aGk="),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "a", "value": {}}]}}, {"a": None}),
        ({}, None),
    ],
    ids=str,
)
def test_values_become_plain_data(value, plain):
    assert any_value(value) == plain


def test_a_span_without_ids_is_counted_and_the_others_are_kept():
    message = json.loads(json.dumps(SPANS))
    spans = message["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append({"name": "lost"})
    spans.append({"name": "zeros", "traceId": "0" * 32, "spanId": "0" * 16})

    found = decode_json(json.dumps(message))

    assert (len(found.documents), found.rejected) == (1, 2)
    assert "no traceId" in found.why


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        '{"a": 1}',
        "[" * 100_000,
        '{"a":' * 100_000,
        b"\xff\xfe",
        '{"resourceSpans": 7}',
        '{"resourceSpans": [7]}',
        '{"resourceSpans": [{"scopeSpans": [{"spans": "x"}]}]}',
    ],
)
def test_what_is_no_message_is_refused(text):
    with pytest.raises(ValueError):
        decode_json(text)


@pytest.mark.parametrize(
    "message",
    [
        {"resourceSpans": []},
        {"resourceSpans": [{"scopeSpans": None}]},
        {
            "resourceSpans": [
                {"resource": 3, "scopeSpans": [{"scope": 4, "spans": [{"traceId": 5, "spanId": []}]}]}
            ]
        },
    ],
    ids=str,
)
def test_members_of_the_wrong_type_are_as_good_as_none(message):
    assert decode_json(json.dumps(message)).documents == []


def test_one_signal_is_not_taken_for_another():
    with pytest.raises(ValueError, match="logs, not traces"):
        decode_json(json.dumps(LOGS), "traces")


@pytest.mark.parametrize("data", [b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"not protobuf at all"])
def test_broken_protobuf_is_refused(data):
    with pytest.raises(ValueError, match="not OTLP"):
        decode_protobuf(data, "traces")


def field(number, data):
    length, size = bytearray(), len(data)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + data


def test_values_nested_without_end_are_refused_by_the_wire_itself():
    value = field(1, b"deep")
    for _ in range(300):
        value = field(5, field(1, value))
    pair = field(1, b"x") + field(2, value)
    request = field(1, field(2, field(2, field(9, pair))))

    with pytest.raises(ValueError, match="not OTLP"):
        decode_protobuf(request, "traces")


def test_several_members_of_gzip_are_one_text_and_data_is_unpacked_up_to_a_size():
    assert unpacked(gzip.compress(b"one ") + gzip.compress(b"two"), most=100) == b"one two"
    assert unpacked(zlib.compress(b"x" * 100), most=100) == b"x" * 100
    with pytest.raises(TooLarge, match="more than 99 bytes"):
        unpacked(zlib.compress(b"x" * 100), most=99)


def test_a_bomb_is_refused_before_it_goes_off():
    bomb = gzip.compress(b"\0" * 50_000_000)

    with pytest.raises(TooLarge):
        unpacked(bomb, most=1_000_000)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"plain text", "Error -3"),
        (gzip.compress(b"text" * 100, mtime=0)[:-9], "it breaks off"),
        (b"\x1f\x8b", "it breaks off"),
    ],
    ids=["text", "cut", "head"],
)
def test_what_is_not_gzip_is_refused(data, problem):
    with pytest.raises(ValueError, match=f"it is not gzip: {problem}"):
        unpacked(data, most=1_000)


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
