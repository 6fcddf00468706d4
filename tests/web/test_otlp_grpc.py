"""OpenTelemetry's own exporters send over gRPC; what comes there is taken in as over HTTP."""

import json
import socket
import sys
from typing import Any

import grpc
import pytest
from calling import serving
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from test_otlp_intake import sessions, talk, talk_apart

from databases import query
from proctor.errors import UsageError
from proctor.web import otlp
from proctor.web.otlp import check_grpc_installed
from waiting import TIME_LIMIT_SECONDS

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
RESOURCE = Resource({"service.name": "Calc.DEFAULT"})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture
def serve_grpc(serve: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    # White box: every test would wait half a second for its spans.
    monkeypatch.setattr(otlp, "QUIET_SECONDS", 0.05)
    return lambda **options: serve(grpc_address=f"127.0.0.1:{free_port()}", **options)


def endpoint(served: Any) -> dict[str, Any]:
    return {"endpoint": f"http://{served.site.grpc_address}", "insecure": True}


def call(served: Any, body: bytes, **metadata: str) -> Any:
    """One message as it is: the response, or the status code of the error."""
    with grpc.insecure_channel(served.site.grpc_address) as channel:
        try:
            return channel.unary_unary(EXPORT)(
                body, metadata=list(metadata.items()), timeout=TIME_LIMIT_SECONDS
            )
        except grpc.RpcError as error:
            return error.code()


@pytest.mark.parametrize("packing", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_traces_logs_and_metrics_arrive_by_the_stock_exporters(serve_grpc: Any, packing: Any) -> None:
    served = serve_grpc()
    options = {**endpoint(served), "compression": packing}
    traces = TracerProvider(resource=RESOURCE)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**options)))
    logs = LoggerProvider(resource=RESOURCE)
    group = {"x-aws-log-group": "/aws/runtimes/calc"}
    logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(**options, headers=group)))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(**options))
    meters = MeterProvider(resource=RESOURCE, metric_readers=[reader])

    talk(traces, "plain")
    talk_apart(traces, logs)
    meters.get_meter("m").create_counter("calls").add(1)
    assert logs.force_flush() and traces.force_flush() and meters.force_flush()

    plain, split = sessions(served, 2)
    assert (plain["externalId"], plain["service"], plain["toolCalls"]) == ("plain", "Calc.DEFAULT", 1)
    assert split["logGroup"] == "/aws/runtimes/calc"
    (turn,) = served.site.context.store.read.evidence(split["id"]).traces
    assert turn.prompt == "two and two?"
    for provider in (traces, logs, meters):
        provider.shutdown()


def test_a_token_is_shown_in_the_metadata(serve_grpc: Any) -> None:
    served = serve_grpc(token="open sesame")
    empty = ExportTraceServiceRequest().SerializeToString()

    codes = [
        call(served, empty),
        call(served, empty, authorization="Bearer open"),
        call(served, empty, authorization="Bearer open sesame"),
    ]
    provider = TracerProvider(resource=RESOURCE)
    exporter = OTLPSpanExporter(**endpoint(served), headers={"authorization": "Bearer open sesame"})
    provider.add_span_processor(BatchSpanProcessor(exporter))
    talk(provider, "mine")
    assert provider.force_flush()

    assert codes == [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAUTHENTICATED, b""]
    assert [row["externalId"] for row in sessions(served, 1)] == ["mine"]
    provider.shutdown()


def test_what_is_broken_or_too_large_is_refused_and_the_server_goes_on(
    serve_grpc: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # White box: the real limit is many megabytes.
    monkeypatch.setattr(otlp, "MOST_BODY_BYTES", 100_000)
    served = serve_grpc()
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.spans.add(name="without ids")
    zeros = b"\x0a" + b"\0" * 1_000_000

    assert call(served, b"\xff\xff not protobuf") == grpc.StatusCode.INVALID_ARGUMENT
    assert call(served, zeros) == grpc.StatusCode.RESOURCE_EXHAUSTED
    with grpc.insecure_channel(served.site.grpc_address, compression=grpc.Compression.Gzip) as channel:
        # A few hundred bytes that unpack to a megabyte.
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(EXPORT)(zeros, timeout=TIME_LIMIT_SECONDS)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.RpcError) as unknown:
            channel.unary_unary(EXPORT.replace("Export", "Import"))(b"", timeout=TIME_LIMIT_SECONDS)
        assert unknown.value.code() == grpc.StatusCode.UNIMPLEMENTED
    partial = ExportTraceServiceResponse.FromString(call(served, request.SerializeToString())).partial_success
    assert partial.rejected_spans == 1
    assert query(served.site.context.store, 'SELECT 1 FROM "arrivals"') == []


def test_callers_without_a_token_cannot_make_the_server_read(serve_grpc: Any) -> None:
    served = serve_grpc(token="open sesame")

    def endless() -> Any:
        while True:
            yield b"\x0a" + b"\0" * 1_000_000

    with grpc.insecure_channel(served.site.grpc_address) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.stream_unary(EXPORT)(endless(), timeout=TIME_LIMIT_SECONDS)

    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_the_command_listens_for_grpc_and_says_where(proctor: Any) -> None:
    with serving(proctor, "--otlp-grpc", "0", "--json") as (server, line):
        told = json.loads(line)
        while "OTLP_PROTOCOL=grpc" not in line:
            line = server.stdout.readline()
        address = f"127.0.0.1:{told['grpcPort']}"
        with grpc.insecure_channel(address) as channel:
            token = [("authorization", f"Bearer {told['token']}")]
            answer = channel.unary_unary(EXPORT)(b"", metadata=token, timeout=TIME_LIMIT_SECONDS)
        taken = proctor("serve", "--port", "0", "--otlp-grpc", str(told["grpcPort"]))

    assert answer == b""
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT=http://{address} " in line
    assert taken.returncode == 2
    assert "already in use" in taken.stderr


def test_without_the_package_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)

    with pytest.raises(UsageError, match=r"pip install 'proctor\[otlp\]'"):
        check_grpc_installed()
