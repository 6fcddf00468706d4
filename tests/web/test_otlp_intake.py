"""OpenTelemetry's own exporters send straight to the server; whatever else comes is refused."""

import gzip
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from databases import query
from proctor.batch.ingest import keep_arrivals
from proctor.errors import StoreError
from proctor.processes import warden
from proctor.telemetry.otlp import decode_json
from proctor.testing import eventually
from proctor.web import otlp
from waiting import TIME_LIMIT_SECONDS, is_running, while_running

PROTOBUF = {"Content-Type": "application/x-protobuf"}
PARTS = [{"type": "text", "content": "hi"}]
SPAN = {
    "traceId": "ab" * 16,
    "spanId": "cd" * 8,
    "name": "invoke_agent A",
    "startTimeUnixNano": "1776929864011990383",
    "endTimeUnixNano": "1776929869634304466",
    "attributes": [
        {"key": "session.id", "value": {"stringValue": "s-json"}},
        {"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}},
    ],
}


def message(*spans: Any) -> dict[str, Any]:
    return {
        "resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]
    }


@pytest.fixture
def served(serve: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    # White box: every test would wait half a second for its spans.
    monkeypatch.setattr(otlp, "QUIET_SECONDS", 0.05)
    return serve()


def sessions(served: Any, count: int) -> list[dict[str, Any]]:
    """The sessions in the store, once there are so many."""
    store = served.site.context.store

    def look() -> list[dict[str, Any]] | None:
        rows = query(store, 'SELECT * FROM "sessions" ORDER BY "externalId"')
        return rows if len(rows) >= count and not store.arrivals.has_new() else None

    return eventually(look) or []


def tracer(served: Any, **more: Any) -> TracerProvider:
    provider = TracerProvider(resource=Resource({"service.name": "Calc.DEFAULT"}))
    exporter = OTLPSpanExporter(f"{served.url}/v1/traces", **more)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def talk(provider: TracerProvider, session: str, **attributes: str) -> None:
    spans = provider.get_tracer("my.agent")
    about = {"gen_ai.operation.name": "invoke_agent", "session.id": session, **attributes}
    with spans.start_as_current_span("invoke_agent A", attributes=about):
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}
        with spans.start_as_current_span("execute_tool add", attributes=tool):
            pass


def talk_apart(traces: TracerProvider, logs: LoggerProvider) -> None:
    """A span of the session `split` whose content is in a log record."""
    about = {"gen_ai.operation.name": "invoke_agent", "session.id": "split"}
    tracer = traces.get_tracer("strands.telemetry.tracer")
    with tracer.start_as_current_span("invoke_agent A", attributes=about) as span:
        where = span.get_span_context()
        body = {
            "input": {"messages": [{"role": "user", "content": "two and two?"}]},
            "output": {"messages": [{"role": "assistant", "content": "four"}]},
        }
        logs.get_logger("strands.telemetry.tracer").emit(
            LogRecord(
                timestamp=time.time_ns(),
                trace_id=where.trace_id,
                span_id=where.span_id,
                severity_number=SeverityNumber.INFO,
                body=body,
                attributes={"event.name": "strands.telemetry.tracer"},
            )
        )


@pytest.mark.parametrize("packing", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
def test_the_stock_exporter_sends_and_sessions_appear(served: Any, packing: Compression) -> None:
    provider = tracer(served, compression=packing)
    for number in range(3):
        talk(
            provider,
            f"s-{number}",
            **{"gen_ai.input.messages": json.dumps([{"role": "user", "parts": PARTS}])},
        )
    assert provider.force_flush()

    rows = sessions(served, 3)
    assert [row["externalId"] for row in rows] == ["s-0", "s-1", "s-2"]
    assert {(row["service"], row["logGroup"]) for row in rows} == {("Calc.DEFAULT", "/proctor/sessions")}
    evidence = served.site.context.store.read.evidence(rows[0]["id"])
    assert evidence.traces[0].prompt == "hi"
    assert [call.name for call in evidence.tool_calls] == ["add"]


def test_content_may_come_apart_as_log_records_with_the_log_group_in_a_header(served: Any) -> None:
    provider = tracer(served)
    logs = LoggerProvider(resource=Resource({"service.name": "Calc.DEFAULT"}))
    headers = {"x-aws-log-group": "/aws/runtimes/calc", "x-aws-log-stream": "otel-rt-logs"}
    exporter = OTLPLogExporter(f"{served.url}/v1/logs", headers=headers)
    logs.add_log_record_processor(BatchLogRecordProcessor(exporter))
    talk_apart(provider, logs)
    assert logs.force_flush() and provider.force_flush()

    sessions(served, 1)

    def in_its_group() -> dict[str, Any] | None:
        (row, *_) = sessions(served, 1)
        return row if row["logGroup"] == "/aws/runtimes/calc" else None

    row = eventually(in_its_group)
    assert row
    (turn,) = served.site.context.store.read.evidence(row["id"]).traces
    assert (turn.prompt, turn.answer) == ("two and two?", "four")


def test_answers_are_in_the_encoding_of_the_request(shared: Any) -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name="lost")
    reply = shared.ask("POST", "/v1/traces", request.SerializeToString(), PROTOBUF)
    told = ExportTraceServiceResponse.FromString(reply.body)

    assert (reply.status, reply.headers["content-type"]) == (200, "application/x-protobuf")
    assert told.partial_success.rejected_spans == 1
    assert "traceId" in told.partial_success.error_message
    assert span.name == "lost"
    as_json = shared.post("/v1/traces", message(SPAN, {"name": "lost"}))
    assert as_json.json["partialSuccess"]["rejectedSpans"] == "1"


def test_metrics_are_taken_and_not_kept(shared: Any) -> None:
    reply = shared.post("/v1/metrics", {"resourceMetrics": []})

    assert reply.status == 200
    assert "not kept" in reply.json["partialSuccess"]["errorMessage"]


def bomb() -> bytes:
    """A small body that is larger than allowed when it is unpacked. Packing it takes half a second."""
    return gzip.compress(b"\0" * (otlp.MOST_BODY_BYTES + 1), compresslevel=1)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff" * 100, PROTOBUF, 400),
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b'{"resourceSpans": 5}', {}, 400),
        (b'{"resourceLogs": []}', {}, 400),
        (b"[" * 200_000, {}, 400),
        (b'{"resourceSpans":' * 100_000, {}, 400),
        (b"not gzip", {**PROTOBUF, "Content-Encoding": "gzip"}, 400),
        (b"x", {**PROTOBUF, "Content-Encoding": "br"}, 415),
        (b"x", {"Content-Type": "text/plain"}, 415),
        (b"", {"Content-Type": "application/x-protobuf", "Content-Length": "99999999999"}, 413),
        (bomb, {**PROTOBUF, "Content-Encoding": "gzip"}, 413),
    ],
    ids=[
        "protobuf",
        "json",
        "list",
        "number",
        "signal",
        "deep",
        "deeper",
        "gzip",
        "packing",
        "type",
        "large",
        "bomb",
    ],
)
def test_what_is_broken_or_hostile_is_refused_and_the_server_goes_on(
    shared: Any, body: bytes | Callable[[], bytes], headers: dict[str, str], status: int
) -> None:
    reply = shared.ask("POST", "/v1/traces", body() if callable(body) else body, headers)

    assert reply.status == status
    if headers:
        # Whoever does not send JSON is answered in protobuf.
        assert reply.body[:1] == b"\x08"
    else:
        assert reply.json["message"]
    assert shared.post("/v1/traces", message(SPAN)).status == 200


def test_a_body_that_grows_without_end_is_refused(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from http.client import HTTPConnection

    # White box: the real limit is many megabytes.
    monkeypatch.setattr(otlp, "MOST_BODY_BYTES", 100_000)
    connection = HTTPConnection("127.0.0.1", served.port, timeout=TIME_LIMIT_SECONDS)
    chunks = iter([b"x" * 50_000] * 20)
    try:
        connection.request("POST", "/v1/traces", chunks, PROTOBUF, encode_chunked=True)
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        # It has not even listened to the end.
        status = 413
    finally:
        connection.close()
    assert status == 413
    assert served.post("/v1/traces", message(SPAN)).status == 200
    assert len(query(served.site.context.store, 'SELECT "spanId" FROM "arrivals"')) == 1


def test_with_a_token_only_those_who_show_it_may_send(serve: Any) -> None:
    served = serve(token="open sesame")
    refused = served.post("/v1/traces", message(SPAN))
    wrong = served.post("/v1/traces", message(SPAN), Authorization="Bearer open")
    right = served.post("/v1/traces", message(SPAN), Authorization="Bearer open sesame")

    assert [refused.status, wrong.status, right.status] == [401, 401, 200]
    assert refused.json["code"] == 16
    assert len(query(served.site.context.store, 'SELECT 1 FROM "arrivals"')) == 1


def test_what_cannot_be_kept_now_is_to_be_sent_again(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked() -> Any:
        raise StoreError("store error: database is locked")

    refused = serve(now=locked).post("/v1/traces", message(SPAN))
    body = json.dumps(message(SPAN)).encode()
    # White box: the real limit is many megabytes.
    monkeypatch.setattr(otlp, "MOST_BYTES_IN_FLIGHT", len(body) - 1)
    busy = serve().ask("POST", "/v1/traces", body)
    monkeypatch.setattr(otlp, "MOST_BYTES_IN_FLIGHT", len(body))

    for reply in (refused, busy):
        assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert refused.json == {"code": 14, "message": "it cannot be kept now; send it again"}
    assert busy.json == {"code": 14, "message": "too much is arriving at once; send it again"}
    assert serve().ask("POST", "/v1/traces", body).status == 200


def test_many_who_send_at_once_lose_nothing(served: Any) -> None:
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    providers = [tracer(served) for _ in range(4)]

    def send(number: int) -> None:
        for turn in range(25):
            talk(providers[number], f"s-{number}-{turn:02}")
        assert providers[number].force_flush()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    rows = sessions(served, 100)
    assert len(rows) == 100
    assert all(row["toolCalls"] == 1 for row in rows)


def test_what_arrived_before_a_server_stopped_is_told_when_one_starts(site: Any, serve: Any) -> None:
    keep_arrivals(site.context.store, decode_json(json.dumps(message(SPAN))).documents, site.now())

    assert [row["externalId"] for row in sessions(serve(), 1)] == ["s-json"]


def test_a_killed_server_has_committed_what_it_took_and_leaves_no_process(proctor: Any) -> None:
    server = proctor.start("serve", "--no-token", "--port", "0", "--json")
    printed = ""
    while not printed.rstrip().endswith("}"):
        printed += server.stdout.readline()
    address = json.loads(printed)["url"].rstrip("/")
    body = json.dumps(message(SPAN)).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{address}/v1/traces", body, headers)) as answer:
        assert answer.status == 200
    (builder,) = eventually(while_running(server, lambda: warden.children_of(server.pid)))
    server.kill()

    eventually(lambda: not is_running(builder))
    with proctor.open_store() as store:
        assert [row["spanId"] for row in query(store, 'SELECT "spanId" FROM "arrivals"')] == ["cd" * 8]
