"""The gateway: a local HTTP endpoint through which agents reach models.

It supports four API formats. Each attempt has a token of its own, so that calls are recorded with it and
subject to its limits; keys of providers are only sent to providers. Closing an access invalidates its token
and ends its calls.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiohttp import web

from proctor.agent import Access
from proctor.errors import ModelError, ProctorError, UsageError
from proctor.json_values import JsonMap, JsonObject, parse_json
from proctor.models.gateway import call as paths
from proctor.models.gateway.access import Accesses, Caller, OpenAccess
from proctor.models.gateway.call import DIALECTS, Delivery, GatewayCall, GatewayRoute
from proctor.models.gateway.dispatch import JSON, STATUSES, Dispatcher, GatewayRefusal
from proctor.models.router import ModelRouter
from proctor.models.routes import encode

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

LONGEST_INPUT = 1_000_000


def listed(model: str, one: str, wire: str) -> JsonObject:
    """The caller's model under its full and short name, or the model `one`."""
    if one:
        return _entry(one, wire)
    names = list(dict.fromkeys([model, model.partition("/")[2] or model])) if model else []
    entries = [_entry(name, wire) for name in names]
    if wire == "gemini":
        return {"models": entries}
    if wire == "messages":
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return {"data": entries, "has_more": False, **ends}
    return {"object": "list", "data": entries}


def _entry(name: str, wire: str) -> JsonObject:
    if wire == "gemini":
        return {
            "name": f"models/{name}",
            "displayName": name,
            "inputTokenLimit": LONGEST_INPUT,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
        }
    if wire == "messages":
        return {"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 1_735_689_600, "owned_by": "proctor"}


LARGEST_REQUEST_BYTES = 64 * 1024 * 1024
"""Images make requests large; no model reads more."""

# Agents keep connections open between calls while their tools run, for minutes.
KEEPALIVE_SECONDS = 3600

# Long enough for the bytes of cancelled answers, short enough to end a batch at once.
SHUTDOWN_SECONDS = 0.5


class Gateway:
    """Use it on the event loop of the batch; close it at the end. The caller closes the models."""

    def __init__(
        self, models: ModelRouter, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._models = models
        self._accesses = Accesses()
        self._answering = Dispatcher(models, now)
        self._runner: web.ServerRunner | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, once it has been started."""
        return self._url

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes any that is free."""
        loop = asyncio.get_running_loop()

        def request_of(
            message: "RawRequestMessage",
            payload: "StreamReader",
            protocol: "RequestHandler",
            writer: "AbstractStreamWriter",
            task: asyncio.Task[None],
        ) -> web.BaseRequest:
            return web.BaseRequest(
                message, payload, protocol, writer, task, loop, client_max_size=LARGEST_REQUEST_BYTES
            )

        server = web.Server(
            self._handle,
            request_factory=request_of,
            # A client that disconnects cancels its call and the one to the provider.
            handler_cancellation=True,
            keepalive_timeout=KEEPALIVE_SECONDS,
            access_log=None,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=4096).start()
        except OSError as error:
            await self._runner.cleanup()
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UsageError(
                f"the gateway cannot listen on {host}:{port}: {why}\nPort 0 is any that is free."
            ) from error
        address, chosen = self._runner.addresses[0][:2]
        self._url = f"http://[{address}]:{chosen}" if ":" in address else f"http://{address}:{chosen}"

    async def close(self) -> None:
        """Close every access, end running calls, and stop listening."""
        self._accesses.shut_all()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def open(self, caller: Caller) -> Access:
        """Open the access of an attempt."""
        return self._accesses.open(self._url, caller, self._models.recording, self.serve)

    @asynccontextmanager
    async def serve(self, listener: socket.socket) -> AsyncIterator[None]:
        """Also listen on this socket, which may be in the network of a sandbox; closes it at the end."""
        assert self._runner is not None
        listener.setblocking(False)
        site = web.SockSite(self._runner, listener)
        await site.start()
        try:
            yield
        finally:
            await site.stop()
            listener.close()

    def shut(self, token: str) -> None:
        """Close it. On return, all calls of the attempt have been recorded."""
        self._accesses.shut(token)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        gateway_route = paths.find(request.method, request.path, request.headers)
        wire = gateway_route.wire if gateway_route else paths.wire_of(request.path, request.headers)
        if gateway_route is None:
            return _error(wire, 404, f"there is no {request.method} {request.path[:200]} here")
        if gateway_route.kind == "health":
            return _json({"status": "ok", "service": "proctor gateway"})
        access = self._accesses.find(_token(request))
        if access is None:
            return _error(wire, 401, "this token is not valid: it is unknown, or its attempt is over")
        if gateway_route.kind == "models":
            return _json(listed(access.caller.model, gateway_route.model, wire))
        try:
            body = parse_json(await request.read())
        except web.HTTPRequestEntityTooLarge:
            return _error(wire, 413, f"the request has more than {LARGEST_REQUEST_BYTES >> 20} MiB")
        except ValueError as cause:
            return _error(wire, 400, f"the request is not JSON: {cause}")
        if not isinstance(body, dict):
            return _error(wire, 400, "the request is not a JSON object")
        return await self._answer(request, access, gateway_route, body)

    async def _answer(
        self, request: web.BaseRequest, access: OpenAccess, gateway_route: GatewayRoute, body: JsonMap
    ) -> web.StreamResponse:
        name = gateway_route.model or str(body.get("model") or "")
        _note_other_model(access, name)
        delivery = Delivery(request)
        call = GatewayCall(access, gateway_route, body, name or access.caller.model, delivery)
        try:
            await self._answering.answer(call, request.headers)
        except (GatewayRefusal, ModelError) as error:
            _fail(call, error)
        except ProctorError as error:
            _fail(call, GatewayRefusal(500, str(error)))
        except Exception as error:
            # An internal error ends one call, with an error its client understands.
            _fail(call, GatewayRefusal(500, f"the gateway failed: {type(error).__name__}", "internal_error"))
        finally:
            call.finish()
        return delivery.break_off() if call.is_broken else await delivery.send()


def _fail(call: GatewayCall, error: GatewayRefusal | ModelError) -> None:
    """End a call with an error in its client's format."""
    call.error = str(error)
    if call.delivery.has_begun:
        call.status, call.is_broken = "cut_off", True
        call.error = f"the provider cut the stream; its tokens are estimated: {error}"
        return
    if isinstance(error, GatewayRefusal):
        status, call.status = error.status, error.condition
    else:
        status = STATUSES.get(error.reason, 502)
        call.status = "not_recorded" if error.reason == "not_recorded" else str(status)
    body = encode(call.dialect.error(status, str(error))).encode("utf-8", "replace")
    call.delivery.prepare(status, JSON, body)


def _note_other_model(access: OpenAccess, name: str) -> None:
    """Note once that an agent requested another model than the item's, which it gets."""
    model = access.caller.model
    known = {model, model.partition("/")[2], model.rpartition("/")[2], ""}
    if model and name not in known:
        access.note_once(f"asked for the model `{name[:200]}`, was given `{model}`")


def _token(request: web.BaseRequest) -> str:
    """The token, wherever clients of the formats put their keys."""
    kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer" and bearer.strip():
        return bearer.strip()
    for name in ("x-api-key", "x-goog-api-key", "api-key"):
        if value := request.headers.get(name):
            return value
    return request.query.get("key", "")


def _error(wire: str, status: int, message: str) -> web.Response:
    return _json(DIALECTS[wire].error(status, message), status)


def _json(document: JsonMap, status: int = 200) -> web.Response:
    body = encode(document).encode("utf-8", "replace")
    return web.Response(body=body, status=status, content_type="application/json")
