"""The gateway: a local HTTP endpoint through which agents reach models.

It supports four API formats. Each attempt has a token of its own, so that calls are recorded with it and
subject to its limits; keys of providers are only sent to providers. Closing an access invalidates its token
and ends its calls.

A call is answered from a recording, by pass-through, or translated. A provider that supports the client's
format gets what passes of the request, and its response is passed back byte for byte as it arrives, but for
keys.
"""

import asyncio
import ipaddress
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from proctor.agent import Access
from proctor.errors import CONTEXT_OVERFLOW, ModelError, ProctorError, StoreError, UsageError
from proctor.json_values import JsonMap, JsonObject, as_map, parse_json
from proctor.model import Answer, ServedBy, ToolRequest, WireAnswer
from proctor.models import anthropic, openai
from proctor.models.client import CallTarget, ResponseStream, may_be_billed
from proctor.models.gateway import call as paths
from proctor.models.gateway import chat
from proctor.models.gateway.access import Accesses, Caller, OpenAccess
from proctor.models.gateway.call import (
    DIALECTS,
    ClientGone,
    Delivery,
    GatewayCall,
    GatewayRoute,
    passed_headers,
    redacted_error,
)
from proctor.models.gateway.dialect import CONTENT_TYPE, ClientRequest, CollectedStream, Frame, read_events
from proctor.models.gateway.parameters import ParameterRefused, library_parameters, passed_up
from proctor.models.key_filter import FilteredStream, KeyFilter
from proctor.models.prices import ESTIMATED, FREE, Grant, positive
from proctor.models.providers import Endpoint
from proctor.models.rate_limits import one_call, pause_before_retry
from proctor.models.recording import NotRecorded, ReplayedTake
from proctor.models.router import ModelRouter, short_names
from proctor.models.routes import ReplayRoute, Route, encode
from proctor.models.worst_case import BYTES_PER_TOKEN, estimated_tokens, with_tool_limits, worst_case_of
from proctor.secrets import is_loopback

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader
    from aiohttp.web_protocol import RequestHandler

JSON = {"content-type": "application/json"}
STREAM = {"content-type": CONTENT_TYPE}
LONG_CONTEXT = "context-1m"
"""In Anthropic's beta header: the model reads longer prompts."""
STATUSES = {
    "auth": 401,
    "bad_request": 400,
    CONTEXT_OVERFLOW: 400,
    "quota": 429,
    "rate_limit": 429,
    "not_recorded": 409,
}
"""HTTP status by reason of a `ModelError`; 502 for the rest."""


class GatewayRefusal(Exception):
    """The call is answered with an error: its HTTP `status`, and the `condition` in the record."""

    def __init__(self, status: int, message: str, condition: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.condition = condition or str(status)


class Dispatcher:
    """Answers calls of all accesses of a gateway."""

    def __init__(self, models: ModelRouter, now: Callable[[], datetime]) -> None:
        self._models = models
        self._now = now
        self._unsupported: set[tuple[Endpoint, str]] = set()
        """Formats that a provider turned out not to support."""

    async def answer(self, call: GatewayCall, headers: Mapping[str, str]) -> None:
        """Answer a call into its delivery, or raise `GatewayRefusal` or `ModelError`."""
        take = call.access.take
        if isinstance(take, ReplayedTake):
            await _replay(call, take)
            return
        if not call.access.caller.model:
            call.model = self._requested(call)
        call.route = route = await self._models.reached(call.model)
        call.provider, call.price = route.provider, route.price
        call.keys = self._models.keys_of(route)
        if isinstance(route, ReplayRoute):
            await _replay(call, call.access.replayed_by(route.replay))
            return
        try:
            call.restrict()
        except ParameterRefused as refused:
            raise GatewayRefusal(400, str(refused)) from refused
        # As it is passed on: a client may repeat the header.
        call.has_long_context = LONG_CONTEXT in passed_up(headers)[0].get("anthropic-beta", "")
        await _ask_to_spend(call, route)
        if self._supports(route, call) and await self._relay(call, route, headers):
            return
        if call.gateway_route.kind == "count":
            _estimate(call)
        else:
            await _translate(call, route, self._now())

    def _requested(self, call: GatewayCall) -> str:
        """The model that a caller without one may have by the name it uses."""
        if model := self._models.requested(call.name):
            return model
        call.access.note_once(f"asked for the model `{call.name}`, which the plan does not allow")
        allowed = self._models.agent_models
        if allowed is None:
            why = "it is not of a provider that can be requested here"
        elif allowed:
            why = f"allowed: {', '.join(allowed)}"
        else:
            why = "the plan names no `model` for this agent, and no `models` that it may request"
        raise GatewayRefusal(403, f"the model `{call.name}` may not be requested: {why}")

    def _supports(self, route: Route, call: GatewayCall) -> bool:
        endpoint = route.endpoint
        if endpoint is None or call.gateway_route.wire not in endpoint.speaks:
            return False
        return (endpoint, call.gateway_route.wire) not in self._unsupported

    async def _relay(self, call: GatewayCall, route: Route, headers: Mapping[str, str]) -> bool:
        """Pass the call through; False when the provider does not support its format."""
        endpoint = route.endpoint
        assert endpoint is not None
        if missing := endpoint.missing_key:
            raise ModelError(f"{call.model} needs a key: set {missing}", reason="auth")
        streams = call.dialect.wants_stream(call.body, call.gateway_route.operation)
        target = _target(call, endpoint, headers, streams)
        hides_usage = call.gateway_route.wire == "chat" and streams and not chat.wants_usage(call.body)
        flow = await self._open(call, endpoint, target, asks_usage=hides_usage)
        if hides_usage and flow.status in (400, 422) and b"stream_options" in flow.refusal:
            # An older server: better no count than no answer.
            hides_usage = False
            flow = await self._open(call, endpoint, target, asks_usage=False)
        try:
            if flow.status in (404, 405) and call.gateway_route.wire != endpoint.speaks[0]:
                self._unsupported.add((endpoint, call.gateway_route.wire))
                call.sent = ""
                return False
            await _pass_on(call, flow, hides_usage=hides_usage)
        finally:
            call.latency_ms = flow.latency_ms
            flow.close()
        return True

    async def _open(
        self, call: GatewayCall, endpoint: Endpoint, target: CallTarget, *, asks_usage: bool
    ) -> ResponseStream:
        tries = 1
        with one_call():
            while True:
                flow: ResponseStream | None = None
                sent = self._sent_body(call, endpoint, asks_usage=asks_usage)
                try:
                    flow = await self._models.client.open(target, sent, call.waited, call.mark_sent)
                    if flow.error is None:
                        return flow
                    error = flow.error
                except ModelError as failure:
                    error = failure
                pause = None if call.delivery.has_begun else pause_before_retry(error, tries)
                if pause is None:
                    if flow is not None:
                        return flow
                    raise error
                tries += not error.is_outage
                # It may be billed: another try is reserved again, maybe for a shorter answer.
                if call.grant.lose:
                    call.grant.lose(None)
                call.grant, call.is_sent = Grant(), False
                if pause:
                    call.waited(pause)
                    await asyncio.sleep(pause)
                if call.route:
                    await _ask_to_spend(call, call.route)

    @staticmethod
    def _sent_body(call: GatewayCall, endpoint: Endpoint, *, asks_usage: bool) -> bytes:
        """The request as the provider gets it."""
        body = dict(call.body)
        if call.gateway_route.wire != "gemini":
            body["model"] = endpoint.model
        if (
            call.gateway_route.wire == "chat"
            and "max_tokens" in body
            and openai.wants_renamed_limit(endpoint)
        ):
            # Agents know the model by a name that does not show this.
            limit = body.pop("max_tokens")
            if positive(body.get("max_completion_tokens")) is None:
                # One without a value would be sent as no limit at all.
                body["max_completion_tokens"] = limit
        if asks_usage:
            body["stream_options"] = {**as_map(body, "stream_options"), "include_usage": True}
        sent = encode(body).encode("utf-8", "replace")
        call.sent = sent.decode()
        return sent


async def _pass_on(call: GatewayCall, flow: ResponseStream, *, hides_usage: bool) -> None:
    if 300 <= flow.status < 400:
        raise GatewayRefusal(
            502, f"{call.provider} answered with a redirect ({flow.status}), which is not followed"
        )
    headers = call.keys.clean_headers(passed_headers(flow.headers))
    if flow.status != 200 or CONTENT_TYPE not in headers.get("content-type", ""):
        raw = call.keys.clean(b"".join([chunk async for chunk in flow.chunks()]))
        if flow.status == 200:
            call.status = "ok"
        else:
            raw = redacted_error(raw)
            call.mark_sent(may_be_billed(flow.status))
            call.status, call.error = str(flow.status), raw[:500].decode("utf-8", "replace")
        call.delivery.prepare(flow.status, headers, raw)
        return
    await call.delivery.begin(flow.status, headers)
    gathered, filtered = CollectedStream() if hides_usage else None, FilteredStream(call.keys)
    async for chunk in flow.chunks():
        if passed := filtered.add(chunk):
            await _write(call, gathered.add(passed) if gathered else (passed,), hides_usage=hides_usage)
    last = filtered.end()
    await _write(call, gathered.add(last) if gathered else (last,), hides_usage=hides_usage)
    if gathered:
        await _write(call, (gathered.rest,), hides_usage=False)
    call.status = "ok"


async def _write(call: GatewayCall, pieces: Sequence[bytes], *, hides_usage: bool) -> None:
    for piece in pieces:
        if hides_usage and _is_usage_alone(piece):
            call.delivery.hidden.append(piece)
        elif piece:
            await call.delivery.write(piece)


def _is_usage_alone(event: bytes) -> bool:
    """Whether an event only contains token counts, which OpenAI sends on request."""
    if b'"usage"' not in event:
        return False
    return any(document.get("usage") and document.get("choices") == [] for document in read_events(event))


def _estimate(call: GatewayCall) -> None:
    """Estimate tokens from the size of the request."""
    tokens = estimated_tokens(call.body) * BYTES_PER_TOKEN // 4
    name = "input_tokens" if call.gateway_route.wire == "messages" else "totalTokens"
    call.delivery.prepare(200, JSON, encode({name: tokens}).encode())
    call.status = "ok"


async def _translate(call: GatewayCall, route: Route, now: datetime) -> None:
    """Translate the request and the answer."""
    try:
        request = call.parse_request()
    except ValueError as cause:
        raise GatewayRefusal(400, str(cause)) from cause
    if route.endpoint is None:
        parameters, dropped = library_parameters(request.request.parameters)
        request = request._replace(request=replace(request.request, parameters=parameters))
        call.note_dropped(dropped)
    _note_left_out(call, request, route)
    call.mark_sent(True)
    try:
        answer = await route.answer(request.request, call.waited)
    except ModelError as error:
        call.mark_sent(error.may_be_billed)
        raise
    call.waiting_ms, call.latency_ms = answer.call.waiting_ms, answer.call.latency_ms
    call.reading = reading = _reading(answer, request, call.keys)
    call.priced = answer.call
    call.is_estimated = answer.call.price_source.endswith(ESTIMATED)
    call.access.answers += 1
    answer_id = f"{call.access.name}{call.access.answers:05d}"
    frame = Frame(id=answer_id, model=call.name, created=int(now.timestamp()), body=call.body)
    call.status = "ok"
    if not call.dialect.wants_stream(call.body, call.gateway_route.operation):
        body = json.dumps(call.dialect.answer(reading, frame), ensure_ascii=False)
        call.delivery.prepare(200, JSON, body.encode("utf-8", "replace"))
        return
    await call.delivery.begin(200, STREAM)
    for chunk in call.dialect.stream(reading, frame):
        await call.delivery.write(chunk)


async def _replay(call: GatewayCall, take: ReplayedTake) -> None:
    """Answer with the recorded bytes."""
    call.provider, call.price = "replay", FREE
    try:
        matched = take.find(call.gateway_route.wire, call.gateway_route.operation, call.model, call.original)
    except NotRecorded as missing:
        call.access.note_once(str(missing))
        raise
    if matched.mismatch:
        call.access.note_once(matched.mismatch)
    exchange = matched.exchange
    call.served = ServedBy(**exchange.served)
    call.status = "ok" if exchange.status == 200 else str(exchange.status)
    if CONTENT_TYPE in exchange.headers.get("content-type", ""):
        await call.delivery.begin(exchange.status, exchange.headers)
        call.delivery.hidden += exchange.hidden
        for chunk in exchange.chunks:
            await call.delivery.write(chunk)
        if not exchange.whole:
            raise ModelError("the recording was broken off here as well", reason="cut_off")
        return
    if not exchange.whole:
        raise GatewayRefusal(502, "the recorded call was broken off before it was answered", "cancelled")
    call.delivery.prepare(exchange.status, exchange.headers, b"".join(exchange.chunks))


async def _ask_to_spend(call: GatewayCall, route: Route) -> None:
    spend = call.access.caller.spend
    if spend is None or call.gateway_route.kind != "answer":
        return
    request = worst_case_of(
        call.model,
        call.body,
        call.dialect.output_limit(call.body),
        route.price,
        endpoint=route.endpoint,
        has_long_context=call.has_long_context,
    )
    call.grant = grant = await spend(request)
    if grant.refused and not grant.is_refusal_final:
        call.access.note_once(f"a request was refused: {grant.refused}")
        raise GatewayRefusal(400, grant.refused, "not_priced")
    if grant.refused:
        raise GatewayRefusal(402, grant.refused, "cost_limit")
    if grant.is_limited:
        call.body = with_tool_limits(call.body)
    most = grant.most_output_tokens
    if most is not None and (most < request.output_tokens or request.sets_limit):
        call.body = call.dialect.with_output_limit(call.body, most)
    if most is not None and most < request.output_tokens:
        call.access.note_once("answers were kept shorter than was asked for, to stay within the cost limit")


def _note_left_out(call: GatewayCall, request: ClientRequest, route: Route) -> None:
    call.not_sent += request.left_out
    for what in (*request.left_out, *(f"`{name}`" for name in route.not_sent(request.request))):
        call.access.note_once(f"{call.model} was not sent {what}: {route.provider} does not take it")


def _reading(answer: Answer, request: ClientRequest, keys: KeyFilter) -> WireAnswer:
    """The answer without keys; ids are unique in the conversation, since agents match tool calls by them."""
    used = {
        call.get("id") for message in request.request.messages for call in message.get("tool_calls") or ()
    }
    number = len(request.request.messages)
    requests = tuple(
        ToolRequest(
            id=f"{request.id or 'call'}_{number}_{index}", name=request.name, arguments=request.arguments
        )
        if not request.id or request.id in used
        else request
        for index, request in enumerate(answer.tool_requests)
    )
    requests = tuple(replace(each, arguments=keys.clean_text(each.arguments)) for each in requests)
    return WireAnswer(keys.clean_text(answer.text), answer.call.usage, requests, answer.finish_reason)


def _target(call: GatewayCall, endpoint: Endpoint, headers: Mapping[str, str], streams: bool) -> CallTarget:
    """Where the call goes, with the provider's key instead of the client's token."""
    wire = call.gateway_route.wire
    passed, dropped = passed_up(headers)
    call.note_dropped(f"anthropic-beta: {feature}" for feature in dropped)
    if wire == "messages":
        own = anthropic.headers(endpoint)
        url = f"{endpoint.base_url}/v1/{call.gateway_route.operation}"
    elif wire == "gemini":
        own = {"Content-Type": "application/json"} | (
            {"x-goog-api-key": endpoint.key} if endpoint.key else {}
        )
        base = endpoint.base_url.removesuffix("/openai")
        url = f"{base}/models/{endpoint.model}:{call.gateway_route.operation}{'?alt=sse' if streams else ''}"
    else:
        own = openai.headers(endpoint)
        url = openai.url(endpoint) if wire == "chat" else f"{endpoint.base_url}/responses"
    accepted = {"Accept": CONTENT_TYPE if streams else "application/json", "Accept-Encoding": "identity"}
    own = {name: value for name, value in own.items() if name.lower() not in passed}
    return CallTarget(endpoint, url, {**passed, **own, **accepted}, is_loopback(endpoint.base_url))


LONGEST_INPUT = 1_000_000


def listed(models: Sequence[str], requested: str, wire: str) -> JsonObject:
    """The caller's models under their full and short names, or the model `requested`."""
    if requested:
        return _entry(requested, wire)
    names = list(dict.fromkeys(name for model in models for name in short_names(model)[:2]))
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


LONGEST_MODEL = 200
"""Characters of a model's name that a client chooses."""

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
        try:
            return await self._response_to(request)
        except ConnectionError:
            # The client has gone while it sent its request. The server would print a stack trace; a response
            # that nobody receives ends the connection.
            return web.Response()

    async def _response_to(self, request: web.BaseRequest) -> web.StreamResponse:
        if _is_from_page(request.headers):
            return _error("chat", 403, "web pages cannot use the gateway")
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
            model = access.caller.model
            names = [model] if model else self._models.agent_models or ()
            return _json(listed(names, gateway_route.model, wire))
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
        name = (gateway_route.model or str(body.get("model") or ""))[:LONGEST_MODEL]
        delivery = Delivery(request)
        call = GatewayCall(access, gateway_route, body, name or access.caller.model, delivery)
        try:
            _note_other_model(access, name)
            await self._answering.answer(call, request.headers)
        except (GatewayRefusal, ModelError) as error:
            _fail(call, error)
        except ProctorError as error:
            _fail(call, GatewayRefusal(500, str(error)))
        except ClientGone:
            # As for a client whose end cancels its call: what is known of the answer is recorded.
            call.is_broken = True
        except Exception as error:
            # An internal error ends one call, with an error its client understands.
            _fail(call, GatewayRefusal(500, f"the gateway failed: {type(error).__name__}", "internal_error"))
        finally:
            try:
                call.finish()
            except StoreError as error:
                # The run ends for the same cause, and says so; what was not recorded is not delivered.
                _fail(call, GatewayRefusal(500, str(error)))
        if not call.is_broken:
            with suppress(ClientGone):
                return await delivery.send()
        return delivery.break_off()


def _fail(call: GatewayCall, error: GatewayRefusal | ModelError) -> None:
    """End a call with an error in its client's format."""
    call.error = call.keys.clean_text(str(error))
    if call.delivery.has_begun:
        call.status, call.is_broken = "cut_off", True
        call.error = f"the provider cut the stream; its tokens are estimated: {call.error}"
        return
    if isinstance(error, GatewayRefusal):
        status, call.status = error.status, error.condition
    else:
        status = STATUSES.get(error.reason, 502)
        call.status = "not_recorded" if error.reason == "not_recorded" else str(status)
    body = encode(call.dialect.error(status, call.error)).encode("utf-8", "replace")
    call.delivery.prepare(status, JSON, body)


def _note_other_model(access: OpenAccess, name: str) -> None:
    """Note once that an agent requested another model than the item's, which it gets."""
    model = access.caller.model
    if model and name and name not in short_names(model):
        access.note_once(f"asked for the model `{name}`, was given `{model}`")


def _is_from_page(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from a page in a browser, also one whose own name leads here now.

    A token is required in any case; such a page learns not even that a gateway is here.
    """
    if headers.get("Origin") or headers.get("Sec-Fetch-Site", "none") != "none":
        return True
    name = ""
    try:
        name = urlsplit(f"//{headers.get('Host', '')}").hostname or "localhost"
        ipaddress.ip_address(name)
    except ValueError:
        return name != "localhost" and not name.endswith((".localhost", ".internal"))
    return False


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
