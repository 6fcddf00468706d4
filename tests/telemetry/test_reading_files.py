"""Files of spans as collectors and CloudWatch write them; what cannot be read is named."""

import json

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spans_by_hand import agent, chat, record, text

from proctor.session import Unreadable
from proctor.telemetry import sources
from proctor.telemetry.otlp import encode_spans
from proctor.telemetry.sources import files_in, read_documents, recognizes

ONE = agent()
TWO = chat("chat", [text("user", "hi")], trace="t2")
OTLP = json.dumps(encode_spans([ONE]))
OTHER = json.dumps(encode_spans([TWO]))
FLAT = json.dumps(ONE)
RECORD = record("invoke_agent A", body={"input": "hi"})


def read(path):
    found = list(read_documents(path))
    documents = [each for each in found if not isinstance(each, Unreadable)]
    return documents, [each for each in found if isinstance(each, Unreadable)]


def names(path):
    documents, unreadable = read(path)
    assert unreadable == []
    return [document.get("name", "record") for document in documents]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (f"{OTLP}\n{OTHER}\n", ["invoke_agent A", "chat"]),
        (f"\n{OTLP}\n\n{OTHER}", ["invoke_agent A", "chat"]),
        (json.dumps(json.loads(OTLP), indent=2), ["invoke_agent A"]),
        (FLAT, ["invoke_agent A"]),
        (json.dumps([ONE, RECORD]), ["invoke_agent A", "record"]),
        (json.dumps([ONE, TWO], indent=1), ["invoke_agent A", "chat"]),
        (
            json.dumps({"events": [{"timestamp": 1, "message": FLAT}, {"message": "started"}]}),
            ["invoke_agent A"],
        ),
        (
            json.dumps({"timestamp": 1, "message": FLAT}) + "\n" + json.dumps({"@message": FLAT}),
            ["invoke_agent A"] * 2,
        ),
        (f"2026-04-23T07:37:44.011Z {FLAT}\n", ["invoke_agent A"]),
        (json.dumps({"results": [[{"field": "@message", "value": FLAT}]]}), ["invoke_agent A"]),
        (json.dumps({"resourceMetrics": []}), []),
    ],
    ids=[
        "lines",
        "gaps",
        "pretty",
        "flat",
        "list",
        "pretty list",
        "events",
        "event",
        "stamped",
        "insights",
        "metrics",
    ],
)
def test_every_form_of_file_is_read(tmp_path, content, found):
    file = tmp_path / "spans.json"
    file.write_text(content)

    assert names(file) == found


def protobuf():
    message = Parse(json.dumps(encode_spans([ONE])), ExportTraceServiceRequest(), ignore_unknown_fields=True)
    span = message.resource_spans[0].scope_spans[0].spans[0]
    span.trace_id, span.span_id = bytes.fromhex(ONE["traceId"]), bytes.fromhex(ONE["spanId"])
    return message.SerializeToString()


def test_protobuf_is_read_as_one_message_or_with_lengths_before_each(tmp_path):
    one, several = tmp_path / "one.pb", tmp_path / "several.binpb"
    one.write_bytes(protobuf())
    several.write_bytes((len(protobuf()).to_bytes(4, "big") + protobuf()) * 2)

    assert names(one) == ["invoke_agent A"]
    assert names(several) == ["invoke_agent A"] * 2


def test_lines_that_cannot_be_read_are_named_by_their_number(tmp_path):
    file = tmp_path / "spans.jsonl"
    file.write_text(f'{OTLP}\n{{"broken\n{{"what": "else"}}\n{OTHER}\n{"[" * 50_000}\n')

    documents, unreadable = read(file)

    assert [document["name"] for document in documents] == ["invoke_agent A", "chat"]
    assert [each.line for each in unreadable] == [2, 3, 5]
    assert str(unreadable[1]).startswith(f"{file}:3: it holds neither spans nor records")


def test_the_good_spans_of_a_line_are_kept_and_the_bad_ones_counted(tmp_path):
    message = json.loads(OTLP)
    message["resourceSpans"][0]["scopeSpans"][0]["spans"].append({"name": "lost"})
    (tmp_path / "a.json").write_text(json.dumps(message))

    documents, (unreadable,) = read(tmp_path / "a.json")

    assert len(documents) == 1
    assert "1 spans or records could not be read" in unreadable.problem


@pytest.mark.parametrize(
    "content", [b"hello\nworld\n", b"\x0a\xff\xff\xff", b"\x00\x01\x02\x03", b"\x1f\x8bnot gzip"]
)
def test_a_file_that_is_something_else_is_named(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)

    documents, unreadable = read(tmp_path / "a.json")

    assert documents == [] and unreadable


def test_an_empty_file_holds_nothing(tmp_path):
    (tmp_path / "a.json").write_bytes(b"")

    assert read(tmp_path / "a.json") == ([], [])


def test_a_folder_is_read_with_what_is_below_it(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("a.jsonl", "b/c.json.gz", "readme.md"):
        (tmp_path / name).write_text(OTLP)

    assert [file.name for file in files_in(tmp_path)] == ["a.jsonl", "c.json.gz"]


def test_only_files_of_spans_are_recognized(tmp_path):
    for name, content in (
        ("a.jsonl", OTLP),
        ("b.json", FLAT),
        ("c.json", '{"messages": []}'),
        ("d.md", "# text"),
    ):
        (tmp_path / name).write_text(content)

    found = [file.name for file in sorted(tmp_path.iterdir()) if recognizes(file)]

    assert found == ["a.jsonl", "b.json"]
    assert not recognizes(tmp_path / "missing")


@pytest.mark.parametrize("form", ["one value", "protobuf"])
def test_a_file_of_one_value_that_is_too_large_is_said_to_be_read_in_part(tmp_path, monkeypatch, form):
    file = tmp_path / ("spans.binpb" if form == "protobuf" else "spans.json")
    if form == "protobuf":
        file.write_bytes(Parse(OTLP, ExportTraceServiceRequest()).SerializeToString())
    else:
        file.write_text(json.dumps(json.loads(OTLP), indent=2))
    assert names(file) == ["invoke_agent A"]

    # White box: the real limit is hundreds of megabytes.
    monkeypatch.setattr(sources, "MOST_BYTES", file.stat().st_size - 40)

    part = Unreadable(path=str(file), problem="only its first 0 MiB were read: it is one value")
    assert read(file)[1][-1] == part
