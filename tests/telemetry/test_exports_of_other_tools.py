"""One conversation in the files of other tools: every shape gives the same story."""

import gzip
import json
import sys
from datetime import UTC, datetime

import pytest
from spans_by_hand import as_json, said
from written_dialects import ANSWERED, ASKED, genai_inline

from proctor.session import ModelCall, ToolCall, Unreadable
from proctor.store.sessions import evidence_of_session
from proctor.telemetry import sessions_of
from proctor.telemetry.sources import files_in, read_documents, recognizes, rows_of_parquet


def iso(nanoseconds):
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat().replace("+00:00", "Z")


def snake(document):
    return {
        "trace_id": document["traceId"],
        "span_id": document["spanId"],
        "parent_span_id": document["parentSpanId"],
        "name": document["name"],
        "start_time": document["startTimeUnixNano"],
        "end_time": document["endTimeUnixNano"],
        "attributes": document["attributes"],
        "scope": document["scope"],
        "status": {"code": "UNSET"},
        "span_events": [],
    }


def console(document):
    return {
        "name": document["name"],
        "context": {
            "trace_id": f"0x{document['traceId']}",
            "span_id": f"0x{document['spanId']}",
            "trace_state": "[]",
        },
        "kind": "SpanKind.CLIENT",
        "parent_id": f"0x{document['parentSpanId']}" if document["parentSpanId"] else None,
        "start_time": iso(document["startTimeUnixNano"]),
        "end_time": iso(document["endTimeUnixNano"]),
        "status": {"status_code": "UNSET"},
        "attributes": document["attributes"],
        "events": [],
        "links": [],
        "resource": {"attributes": {"service.name": "Calc.DEFAULT"}, "schema_url": ""},
    }


def console_output(documents):
    printed = [json.dumps(console(document), indent=4) for document in documents]
    return "INFO starting up\n" + "\nsome line between\n".join(printed) + "\n"


def rows(documents):
    inside = [*reversed(documents), {"timestamp": 1, "level": "INFO", "sessionId": "s-1", "message": "up"}]
    return [
        {
            "timestamp": "2026-04-23 07:37:44.011",
            "raw_otel_json": as_json(each) if position % 2 else each,
        }
        for position, each in enumerate(inside)
    ]


def shapes():
    documents = genai_inline()
    flat = [snake(document) for document in documents]
    unnamed = [
        {**each, "attributes": {k: v for k, v in each["attributes"].items() if k != "session.id"}}
        for each in flat
    ]
    return {
        "snake_case": as_json(flat),
        "snake_case lines": "\n".join(map(as_json, flat)),
        "envelope": as_json({"session_id": "s-1", "span_count": 3, "spans": unnamed}),
        "grouped": as_json({"trace_1": flat}),
        "grouped list": as_json([{"trace_id": flat[0]["trace_id"], "spans": flat}]),
        "raw_otel_json": as_json(rows(documents)),
        "console": console_output(documents),
    }


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("shape", shapes())
def test_every_shape_of_one_conversation_tells_the_same(tmp_path, shape, packed):
    file = tmp_path / "export.json"
    text = shapes()[shape].encode()
    file.write_bytes(gzip.compress(text) if packed else text)

    assert recognizes(file)
    documents = list(read_documents(file))
    assert [each for each in documents if isinstance(each, Unreadable)] == []
    (session,) = sessions_of(documents)
    assert session.external_id == "s-1"
    told = [text for text in said(evidence_of_session(session)) if text[0] != "system"]
    assert told == [("user", ASKED), ("assistant", ANSWERED)]
    events = [timed.event for step in session.steps for timed in step.events]
    (call,) = [event for event in events if isinstance(event, ToolCall)]
    assert (call.name, dict(call.args), call.result) == ("weather", {"city": "Bonn"}, "sunny")
    (model,) = [event for event in events if isinstance(event, ModelCall)]
    assert (model.model, model.usage.input_tokens, model.usage.output_tokens) == ("large-2026", 100, 20)


def test_tables_of_spans_are_found_in_a_folder_and_other_tables_are_left_alone(tmp_path):
    header = "context.trace_id,context.span_id,name,start_time,attributes.openinference.span.kind\n"
    row = f"{'ab' * 16},{'cd' * 8},run,2026-04-23 07:37:44.011000+00:00,AGENT\n"
    (tmp_path / "spans.csv").write_text(header + row)
    (tmp_path / "spans.csv.gz").write_bytes(gzip.compress((header + row).encode()))
    (tmp_path / "results.csv").write_text("task,score\na,1\n")
    (tmp_path / "results.parquet").write_bytes(b"PAR1 of something else PAR1")

    assert [file.name for file in files_in(tmp_path)] == ["spans.csv", "spans.csv.gz"]
    for file in files_in(tmp_path):
        (document,) = read_documents(file)
        assert (document["spanId"], document["startTimeUnixNano"]) == ("cd" * 8, 1776929864011000000)


def test_values_of_parquet_that_json_does_not_have_are_left_out(tmp_path):
    path = tmp_path / "spans.parquet"
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.execute(
            'COPY (SELECT \'ab\' AS "context.trace_id", \'infinity\'::DOUBLE AS "a""; DROP", '
            "[1.5, 'nan'::DOUBLE] AS b, [TIMESTAMP '2026-01-01 00:00:00'] AS c, DATE 'infinity' AS d) "
            f"TO '{path}' (FORMAT parquet)"
        )
    (row,) = rows_of_parquet(path)

    assert row == {
        "context.trace_id": "ab", "b": [1.5, None], "c": ["2026-01-01T00:00:00"], "d": "9999-12-31"
    }  # fmt: skip


def test_a_table_that_cannot_be_read_says_why(tmp_path, monkeypatch):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 context.trace_id PAR1")
    (tmp_path / "spans.csv").write_text('context.trace_id,context.span_id,start_time\n"ab\n')

    (broken,) = read_documents(tmp_path / "broken.parquet")
    (cut,) = read_documents(tmp_path / "spans.csv")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    (missing,) = read_documents(tmp_path / "broken.parquet")

    assert isinstance(broken, Unreadable) and "not Parquet that can be read" in broken.problem
    assert isinstance(cut, Unreadable) and cut.line == 2
    assert isinstance(missing, Unreadable) and "pip install 'proctor[parquet]'" in missing.problem
