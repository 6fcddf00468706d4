"""OTLP/gRPC receiver: the trace, log and metric services, with the same intake as OTLP/HTTP.

Messages are received as bytes and decoded as those over HTTP. The token is checked before a message is read.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.errors import UsageError
from proctor.lazy_import import load

if TYPE_CHECKING:
    from proctor.web.otlp import Intake

SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
GRACE_SECONDS = 1.0
"""For requests in progress when the server stops."""


def check_installed() -> None:
    """Raise a `UsageError` if gRPC is not installed."""
    try:
        load("grpc")
    except ImportError as error:
        raise UsageError(
            "OTLP over gRPC needs the package grpcio\nInstall it:  pip install 'proctor[otlp]'"
        ) from error


@asynccontextmanager
async def receiver(
    intake: "Intake", address: str, tls: tuple[Path, Path] | None, most_bytes: int
) -> AsyncIterator[None]:
    """Listen on an address while the block runs. Messages above `most_bytes`, unpacked, are refused."""
    grpc, aio = load("grpc"), load("grpc.aio")
    options = [("grpc.max_receive_message_length", most_bytes), ("grpc.so_reuseport", 0)]
    server = aio.server(options=options)
    handlers = [
        grpc.method_handlers_generic_handler(
            name, {"Export": grpc.stream_unary_rpc_method_handler(_handler(intake, signal))}
        )
        for signal, name in SERVICES.items()
    ]
    server.add_generic_rpc_handlers(handlers)
    if tls:
        pair = (tls[1].read_bytes(), tls[0].read_bytes())
        server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    else:
        server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(GRACE_SECONDS)


def _handler(intake: "Intake", signal: str) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
    async def export(messages: AsyncIterator[bytes], context: Any) -> bytes:
        # Declared as a stream of one message, so that nothing is read of callers without a token.
        from proctor.web.otlp import RejectedRequest

        codes = {code.value[0]: code for code in load("grpc").StatusCode}
        try:
            headers = _headers(context)
            intake.check_token(headers.get("authorization", ""), _host(context.peer()), f"gRPC {signal}")
            async for message in messages:
                return await intake.receive_message(message, headers, signal)
        except RejectedRequest as refusal:
            await context.abort(codes[refusal.code], str(refusal))
        return b""

    return export


def _headers(context: Any) -> Mapping[str, str]:
    pairs = context.invocation_metadata() or ()
    return {name.lower(): value for name, value in pairs if isinstance(value, str)}


def _host(peer: str) -> str:
    """The address of a caller, from `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    return peer.partition(":")[2].rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
