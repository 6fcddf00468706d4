"""OTLP receiver: `POST /v1/traces`, `/v1/logs`, `/v1/metrics`, and on request the same over gRPC.

A response of 200 means that the data is committed. Sessions are built shortly after, when no more data
arrives, by a process that ends with the server: in this one, building would take the interpreter from
requests. Bodies that are too large or malformed are rejected in the encoding of the request.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from proctor.api.intake import (
    LOGS,
    METRICS,
    SIGNALS,
    DecodedSpans,
    TooLarge,
    UnknownCompression,
    has_new_spans,
    receive_telemetry,
)
from proctor.api.launch import SessionBuilder
from proctor.errors import StoreError, UsageError
from proctor.json_values import JsonObject
from proctor.lazy_import import load
from proctor.web.access import RECORD, RUN
from proctor.web.state import AppState

MOST_BODY_BYTES = 64 * 1024 * 1024
"""Maximum body, compressed and decompressed. Exporters send about 512 spans at a time."""
MOST_BYTES_IN_FLIGHT = 4 * MOST_BODY_BYTES
"""Maximum of all concurrent requests; beyond it the response is 503."""
QUIET_SECONDS, PATIENCE_SECONDS = 0.5, 5.0
"""Sessions are built when nothing arrived for the first, and after the second at the latest."""
AT_ONCE = 2
"""Requests decoded and stored in parallel."""
PROTOBUF, JSON = "application/x-protobuf", "application/json"
LONGEST_LOG_GROUP = 512
_INVALID, _DENIED, _EXHAUSTED, _UNAVAILABLE, _UNAUTHENTICATED = 3, 7, 8, 14, 16
"""gRPC status codes, as the protocol requires in errors."""


class RejectedRequest(Exception):
    """A rejected request, with its HTTP status and gRPC status code."""

    def __init__(self, status: int, code: int, problem: str) -> None:
        super().__init__(problem)
        self.status, self.code = status, code


def router(site: AppState) -> APIRouter:
    """The routes of the receiver."""
    intake = Intake(site)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        intake.wake()
        async with AsyncExitStack() as stack:
            if site.grpc_address:
                grpc = grpc_receiver(intake, site.grpc_address, site.grpc_tls, MOST_BODY_BYTES)
                await stack.enter_async_context(grpc)
            yield
        await intake.close()

    routes = APIRouter(lifespan=lifespan, include_in_schema=False)
    for signal in SIGNALS:
        routes.add_api_route(f"/v1/{signal}", _endpoint(intake, signal), methods=["POST"])
    return routes


def _endpoint(intake: "Intake", signal: str) -> Callable[[Request], Awaitable[Response]]:
    async def receive(request: Request) -> Response:
        return await intake.receive(request, signal)

    return receive


class Intake:
    """Stores received data and has sessions built from it."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="otlp")
        self._in_flight = 0
        self._arrived = asyncio.Event()
        self._building: asyncio.Task[None] | None = None
        self._builder: SessionBuilder | None = None

    async def receive(self, request: Request, signal: str) -> Response:
        """Handle a request."""
        encoding = PROTOBUF if _media_type(request) != JSON else JSON
        try:
            self._check(request)
            decoded = await self._receive_body(request, signal, encoding)
        except RejectedRequest as refusal:
            return _refusal(refusal, encoding)
        except ClientDisconnect:
            return Response(status_code=499)
        if decoded.documents:
            self.wake()
        return _accepted(decoded, signal, encoding)

    def wake(self) -> None:
        """Build sessions soon: data may have arrived."""
        self._arrived.set()
        if self._building is None or self._building.done():
            self._building = asyncio.get_running_loop().create_task(self._build())

    async def close(self) -> None:
        """Stop. Data without a session is processed when sessions are next read."""
        if self._building is not None:
            self._building.cancel()
            await asyncio.gather(self._building, return_exceptions=True)
        if self._builder is not None:
            await self._builder.close()
        self._threads.shutdown()

    async def receive_message(self, message: bytes, headers: Mapping[str, str], signal: str) -> bytes:
        """Handle a message that is in memory: the response. Raises `RejectedRequest`."""
        if self._in_flight + len(message) > MOST_BYTES_IN_FLIGHT:
            raise RejectedRequest(503, _UNAVAILABLE, "too much is arriving at once; send it again")
        self._in_flight += len(message)
        # gRPC has unpacked it, whatever this header says.
        known = {name: value for name, value in headers.items() if name != "content-encoding"}
        try:
            decoded = await self._in_thread(message, known, signal, PROTOBUF)
        finally:
            self._in_flight -= len(message)
        if decoded.documents:
            self.wake()
        return bytes(_accepted(decoded, signal, PROTOBUF).body)

    def _check(self, request: Request) -> None:
        authorization = request.headers.get("authorization", "")
        self.check_token(authorization, request.scope[RECORD].address, request.url.path)
        if _media_type(request) not in (PROTOBUF, JSON):
            raise RejectedRequest(415, _INVALID, f"the body should be {PROTOBUF} or {JSON}")
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BODY_BYTES:
            raise RejectedRequest(413, _EXHAUSTED, f"a body may have {MOST_BODY_BYTES:,} bytes")

    def check_token(self, authorization: str, address: str, where: str) -> None:
        """Raise `RejectedRequest` unless the caller at this address may send."""
        access = self._site.access
        if access.is_open:
            return
        if access.guesses.seconds_to_wait(address):
            raise RejectedRequest(429, _EXHAUSTED, "too many wrong tokens from this address")
        bearer = authorization.removeprefix("Bearer ").strip()
        principal = access.find_token(bearer)
        if principal is None:
            if bearer:
                access.note_wrong(address, bearer, f"token for {where}")
            raise RejectedRequest(
                401, _UNAUTHENTICATED, "this server wants a token: Authorization: Bearer TOKEN"
            )
        if not principal.has(RUN):
            raise RejectedRequest(403, _DENIED, f"sending traces needs the role `{RUN}`")

    async def _receive_body(self, request: Request, signal: str, encoding: str) -> DecodedSpans:
        body = bytearray()
        try:
            async for chunk in request.stream():
                self._in_flight += len(chunk)
                body += chunk
                if len(body) > MOST_BODY_BYTES:
                    raise RejectedRequest(413, _EXHAUSTED, f"a body may have {MOST_BODY_BYTES:,} bytes")
                if self._in_flight > MOST_BYTES_IN_FLIGHT:
                    raise RejectedRequest(503, _UNAVAILABLE, "too much is arriving at once; send it again")
            return await self._in_thread(bytes(body), dict(request.headers), signal, encoding)
        finally:
            self._in_flight -= len(body)

    def _store(self, body: bytes, headers: Mapping[str, str], signal: str, encoding: str) -> DecodedSpans:
        """Decode and commit; in a thread."""
        try:
            return receive_telemetry(
                self._site.context,
                body,
                signal,
                is_json=encoding == JSON,
                compression=headers.get("content-encoding", ""),
                most_bytes=MOST_BODY_BYTES,
                log_group=headers.get("x-aws-log-group", "").strip()[:LONGEST_LOG_GROUP],
                fallback=self._site.log_group,
            )
        except UnknownCompression as error:
            raise RejectedRequest(415, _INVALID, str(error)) from error
        except TooLarge as error:
            raise RejectedRequest(413, _EXHAUSTED, str(error)) from error
        except ValueError as error:
            raise RejectedRequest(400, _INVALID, str(error)) from error
        except StoreError as error:
            raise RejectedRequest(503, _UNAVAILABLE, "it cannot be kept now; send it again") from error

    async def _in_thread(
        self, body: bytes, headers: Mapping[str, str], signal: str, encoding: str
    ) -> DecodedSpans:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._store, body, headers, signal, encoding)

    async def _build(self) -> None:
        loop = asyncio.get_running_loop()
        while self._arrived.is_set():
            patience = loop.time() + PATIENCE_SECONDS
            while self._arrived.is_set() and loop.time() < patience:
                self._arrived.clear()
                await asyncio.sleep(QUIET_SECONDS)
            self._arrived.clear()
            try:
                is_built = await self._build_once()
            except StoreError:
                is_built = False
            if not is_built:
                # The store is locked, or the process was killed: retry later.
                await asyncio.sleep(PATIENCE_SECONDS)
                self._arrived.set()

    async def _build_once(self) -> bool:
        """Have the other process build sessions, which is started for the first; whether it has."""
        loop = asyncio.get_running_loop()
        if not await loop.run_in_executor(self._threads, has_new_spans, self._site.context):
            return True
        if self._builder is None or not self._builder.is_running:
            self._builder = await self._site.launcher.start_builder()
        return await self._builder.build()


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _accepted(decoded: DecodedSpans, signal: str, encoding: str) -> Response:
    why = decoded.why
    if signal == METRICS:
        why = "metrics are taken and not kept: sessions are made of traces and logs"
    counted = "rejectedLogRecords" if signal == LOGS else "rejectedSpans"
    counted = "rejectedDataPoints" if signal == METRICS else counted
    partial: JsonObject = {counted: str(decoded.rejected)} if decoded.rejected else {}
    partial |= {"errorMessage": why} if why else {}
    if encoding == JSON:
        return Response(json.dumps({"partialSuccess": partial} if partial else {}), media_type=JSON)
    # All three responses have the same two fields under the same numbers.
    inner = (b"\x08" + _varint(decoded.rejected) if decoded.rejected else b"") + _text_field(why)
    return Response(b"\x0a" + _varint(len(inner)) + inner if inner else b"", media_type=PROTOBUF)


def _refusal(refusal: RejectedRequest, encoding: str) -> Response:
    headers = {"retry-after": "5"} if refusal.status == 503 else {}
    if encoding == JSON:
        body = json.dumps({"code": refusal.code, "message": str(refusal)}).encode()
    else:
        body = b"\x08" + _varint(refusal.code) + _text_field(str(refusal))
    return Response(body, status_code=refusal.status, media_type=encoding, headers=headers)


def _text_field(text: str) -> bytes:
    data = text.encode()
    return b"\x12" + _varint(len(data)) + data if data else b""


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
GRACE_SECONDS = 1.0
"""For requests in progress when the server stops."""


def check_grpc_installed() -> None:
    """Raise a `UsageError` if gRPC is not installed."""
    try:
        load("grpc")
    except ImportError as error:
        raise UsageError(
            "OTLP over gRPC needs the package grpcio\nInstall it:  pip install 'proctor[otlp]'"
        ) from error


@asynccontextmanager
async def grpc_receiver(
    intake: Intake, address: str, tls: tuple[Path, Path] | None, most_bytes: int
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


def _handler(intake: Intake, signal: str) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
    async def export(messages: AsyncIterator[bytes], context: Any) -> bytes:
        # Declared as a stream of one message, so that nothing is read of callers without a token.

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
