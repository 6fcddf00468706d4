"""One call of a client: request, response and record, however it ends.

A call is recorded before its client has the last byte, or at the latest when its access is closed: the
session of the attempt may end right after.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, NamedTuple

from aiohttp import web

from proctor.json_values import JsonMap
from proctor.model import NOT_SAID, ServedBy, WireAnswer
from proctor.models.client import KEY_SHAPES, request_id_in
from proctor.models.gateway import chat, gemini, messages, responses
from proctor.models.gateway.access import OpenAccess
from proctor.models.gateway.dialect import CONTENT_TYPE, NOTHING, ClientRequest, WireDialect
from proctor.models.gateway.parameters import allowed
from proctor.models.key_filter import NO_KEYS
from proctor.models.prices import ESTIMATED, Grant, Price
from proctor.models.recording import Exchange, RecordedTake
from proctor.models.routes import Route, encode, sent_parameters
from proctor.models.worst_case import answer_tokens, billed_usage, estimated_tokens
from proctor.session import ModelCall, Usage

NO_BUFFERING = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
PASSED_HEADERS = (
    "content-type",
    "retry-after",
    "retry-after-ms",
    "request-id",
    "x-request-id",
    "x-should-retry",
    "openai-model",
    "openai-processing-ms",
    "openai-version",
)
"""Headers of a provider's response that clients need, besides the families below."""
PASSED_HEADER_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-")
LONGEST_HEADER = 200
RECORDED_HEADERS = ("content-type", "retry-after", "retry-after-ms", "request-id", "x-request-id")
"""Headers that a recorded response needs, or that identify it."""


class ClientGone(Exception):
    """The client has closed its connection, so that nothing more can be sent."""


@contextmanager
def _to_client() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise ClientGone from error


class Delivery:
    """The response to one request of a client. Sending it raises `ClientGone`."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None
        self.status = 0
        """0: not sent."""
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.hidden: list[bytes] = []
        """Token counts that the gateway requested and the client did not."""

    @property
    def has_begun(self) -> bool:
        return self._response is not None and self._response.prepared

    @property
    def is_stream(self) -> bool:
        return CONTENT_TYPE in self.headers.get("content-type", "")

    def prepare(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Set a complete response; `send` sends it, so that it can be recorded before."""
        self.status, self.headers, self.chunks = status, recorded_headers(headers), [body]
        self._response = web.Response(status=status, headers=dict(headers), body=body)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Start a streamed response."""
        self.status, self.headers = status, recorded_headers(headers)
        self._response = web.StreamResponse(status=status, headers={**headers, **NO_BUFFERING})
        with _to_client():
            await self._response.prepare(self._request)

    async def write(self, chunk: bytes) -> None:
        """Send the next chunk."""
        assert self._response is not None
        self.chunks.append(chunk)
        with _to_client():
            await self._response.write(chunk)

    async def send(self) -> web.StreamResponse:
        """End the response and return it."""
        assert self._response is not None
        if self._response.prepared:
            with _to_client():
                await self._response.write_eof()
        return self._response

    def break_off(self) -> web.StreamResponse:
        """Abort a response, so that the client does not consider it complete."""
        assert self._response is not None
        if self._request.transport:
            self._request.transport.close()
        self._response.force_close()
        return self._response


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The provider's headers that are passed to the client."""
    return {
        name.lower(): value
        for name, value in headers.items()
        if (name.lower() in PASSED_HEADERS or name.lower().startswith(PASSED_HEADER_PREFIXES))
        and len(value) <= LONGEST_HEADER
    }


def recorded_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that a recording stores."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in RECORDED_HEADERS}


Kind = Literal["answer", "count", "models", "health"]


class GatewayRoute(NamedTuple):
    """One operation of the gateway."""

    kind: Kind
    wire: str
    """Format of the request and of errors."""
    operation: str
    model: str = ""
    """From the path; empty when it has none."""


HEALTH = GatewayRoute("health", "chat", "health")
POSTED: Mapping[str, GatewayRoute] = {
    "/chat/completions": GatewayRoute("answer", "chat", "chat/completions"),
    "/responses": GatewayRoute("answer", "responses", "responses"),
    "/messages": GatewayRoute("answer", "messages", "messages"),
    "/messages/count_tokens": GatewayRoute("count", "messages", "messages/count_tokens"),
}
_VERSIONS = re.compile(r"(?:/(?:v1beta|v1alpha|v1))+(?=/|$)")
_GEMINI = re.compile(r"/models/(?P<model>.+):(?P<operation>\w+)")
GEMINI_KINDS: Mapping[str, Kind] = {
    "generateContent": "answer",
    "streamGenerateContent": "answer",
    "countTokens": "count",
}


def find(method: str, path: str, headers: Mapping[str, str]) -> GatewayRoute | None:
    """The operation of a request; None: there is none."""
    bare = _VERSIONS.sub("", path, count=1).rstrip("/")
    if method == "POST":
        if known := POSTED.get(bare):
            return known
        if (match := _GEMINI.fullmatch(bare)) and (kind := GEMINI_KINDS.get(match["operation"])):
            return GatewayRoute(kind, "gemini", match["operation"], match["model"])
        return None
    if method not in ("GET", "HEAD"):
        return None
    if not bare or bare == "/health":
        return HEALTH
    if bare == "/models" or bare.startswith("/models/"):
        return GatewayRoute(
            "models", wire_of(path, headers), "models", bare.removeprefix("/models").lstrip("/")
        )
    return None


def wire_of(path: str, headers: Mapping[str, str]) -> str:
    """The format of a client, from path and headers."""
    if "/v1beta" in path or "x-goog-api-key" in headers:
        return "gemini"
    if "anthropic-version" in headers or path.endswith("/messages"):
        return "messages"
    return "chat"


DIALECTS: Mapping[str, WireDialect] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}
CUT_OFF = ("", "cut_off")
STREAM_ENDED = "the stream ended before the answer did"
CLIENT_HUNG_UP = "the client hung up before the answer had ended; its tokens are estimated"


class GatewayCall:
    """A running call."""

    def __init__(
        self, access: OpenAccess, operation: GatewayRoute, body: JsonMap, name: str, delivery: Delivery
    ) -> None:
        self.access = access
        self.gateway_route = operation
        self.dialect = DIALECTS[operation.wire]
        self.body: JsonMap = body
        """As sent to the provider, with what passes, and possibly a lower output limit."""
        self.name = name
        """The model, as the client named it."""
        self.model = access.caller.model or name
        self.delivery = delivery
        self.route: Route | None = None
        self.keys = NO_KEYS
        """Removes the keys it may be answered with."""
        self.provider = ""
        self.price: Price | None = None
        self.sent = ""
        """The request as the provider got it; empty: as the client sent it."""
        self.reading: WireAnswer | None = None
        """The parsed answer. None: it is parsed from the response."""
        self.priced: ModelCall | None = None
        """The call as its route priced it. None: it is priced here."""
        self.latency_ms: float | None = None
        self.waiting_ms = 0.0
        self.status = "cancelled"
        """`cancelled` until the call has ended otherwise."""
        self.error = ""
        self.is_broken = False
        """Whether the response broke off after the client got a part of it."""
        self.is_sent = False
        """Whether the provider may bill it."""
        self.is_estimated = False
        """Whether its tokens are an estimate."""
        self.has_long_context = False
        """Whether a beta header lets the model read longer prompts."""
        self.grant = Grant()
        self.original = body
        """As the client sent it, which recordings contain."""
        self._task = asyncio.current_task()
        self._began = time.perf_counter()
        self._finished = False
        self.not_sent: list[str] = []
        """What of the request was not sent."""
        self.served = NOT_SAID
        """Who answered, according to a recording, or once it has been recorded."""
        self._number = access.take.begin() if isinstance(access.take, RecordedTake) else 0
        access.calls.add(self)

    def parse_request(self) -> ClientRequest:
        """The parsed request; a `ValueError` when it is not valid."""
        try:
            return self.dialect.parse_request(self.body, self.model)
        except (LookupError, TypeError, AttributeError) as cause:
            raise ValueError(
                f"the request is not as {self.gateway_route.operation} wants it: {cause!r}"
            ) from cause

    def restrict(self) -> None:
        """Leave out of the request what may not be sent; `ParameterRefused`: it may not be sent at all."""
        self.body, dropped = allowed(self.gateway_route.wire, self.body)
        self.note_dropped(dropped)

    def note_dropped(self, names: Iterable[str]) -> None:
        """Note once each what was not sent."""
        for name in names:
            self.not_sent.append(name)
            self.access.note_once(f"{self.model} was not sent `{name}`: the gateway does not pass it on")

    def waited(self, seconds: float) -> None:
        """Report a pause for a rate limit."""
        self.waiting_ms += seconds * 1000
        if self.access.caller.waited:
            self.access.caller.waited(seconds)

    def stop(self) -> None:
        """Record it as far as it has come, and end it."""
        self.finish()
        if self._task:
            self._task.cancel()

    def finish(self) -> None:
        """Record the call, once."""
        if self._finished:
            return
        self._finished = True
        self.access.calls.discard(self)
        received = b"".join([*self.delivery.chunks, *self.delivery.hidden])
        if self.gateway_route.kind == "answer":
            reading = self._read(received)
            call = self._recorded(reading, received)
            self._record_request()
            self.access.caller.record(call)
            if self.access.transcript:
                self.access.transcript.record_answer(reading)
            self._settle(call)
        if isinstance(self.access.take, RecordedTake):
            try:
                self._write_exchange(self.access.take)
            except OSError as error:
                self.access.note_once(f"the traffic could not be recorded: {error.strerror}")

    def _settle(self, call: ModelCall) -> None:
        """Settle its reservation; with the worst case when it was sent and no usage says what it cost.

        The received part of an answer does not bound its cost: the model may have reasoned, or continue.
        """
        is_unknown = self.status != "ok" or self.is_estimated
        if self.is_sent and self.grant.lose and is_unknown:
            self.grant.lose(call.cost_usd)
        elif self.grant.settle:
            self.grant.settle(call.cost_usd)

    def mark_sent(self, is_sent: bool) -> None:
        """Remember whether the provider may bill it."""
        self.is_sent = is_sent

    def _read(self, received: bytes) -> WireAnswer:
        if self.reading is not None:
            return self.reading
        if self.delivery.status != 200:
            return NOTHING
        reading = self.dialect.read(received, streamed=self.delivery.is_stream)
        if self.status == "cancelled" and reading.finish_reason not in CUT_OFF:
            # The client disconnected once it had everything, before the provider closed.
            self.status = "ok"
        if self.status == "ok" and reading.finish_reason in CUT_OFF:
            self.status = "cut_off"
            self.error = STREAM_ENDED if self.delivery.is_stream else "what came is no answer"
        return reading._replace(usage=self._counted(reading))

    def _counted(self, reading: WireAnswer) -> Usage:
        """Token counts; estimated where the provider sends none, since they are billed nevertheless."""
        usage = reading.usage
        billed = usage
        if self.price and any(self.price.rates):
            billed, self.is_estimated = billed_usage(reading, self.body)
        if self.status != "ok":
            # Counts before a stream broke off cover its beginning only.
            self.error = self.error or CLIENT_HUNG_UP
            self.is_estimated = True
        elif self.is_estimated or (usage.total_tokens == 0 and (reading.text or reading.tool_requests)):
            if self.provider != "replay":
                self.access.note_once(
                    f"{self.model} does not say how many tokens it used: they are estimated"
                )
            if self.is_estimated:
                return billed
        else:
            return usage
        return replace(
            billed,
            input_tokens=billed.input_tokens or estimated_tokens(self.body),
            output_tokens=max(billed.output_tokens, answer_tokens(reading, self.body)),
        )

    def _recorded(self, reading: WireAnswer, received: bytes) -> ModelCall:
        price = self.price.for_answer(self.body, reading) if self.price else None
        cost, rates = price.for_call(reading.usage) if price else (None, {})
        if self.priced:
            cost, rates = self.priced.cost_usd, self.priced.price
        if cost is None and reading.usage.total_tokens == 0 and self.status != "ok":
            cost = 0.0
        source = price.source if price else ""
        known = self.priced
        served = self.served = self._served(reading)
        elapsed_ms = (time.perf_counter() - self._began) * 1000 - self.waiting_ms
        return ModelCall(
            model=self.model,
            usage=reading.usage,
            provider=self.provider,
            cost_usd=cost,
            price_source=source + ESTIMATED if source and self.is_estimated else source,
            price=rates,
            latency_ms=max(0.0, elapsed_ms) if self.latency_ms is None else self.latency_ms,
            waiting_ms=self.waiting_ms,
            status=self.status,
            error=self.error,
            request=self.sent or encode(self.body),
            response=received.decode("utf-8", "replace"),
            served_model=served.model,
            fingerprint=served.fingerprint,
            request_id=served.request_id,
            finish_reason=reading.finish_reason if self.status == "ok" else "",
            parameters=known.parameters if known else sent_parameters(self.body),
            not_sent=(*self.not_sent, *(known.not_sent if known else ())),
        )

    def _served(self, reading: WireAnswer) -> ServedBy:
        """Who answered: as its route says, as the recording says, or as the response does."""
        if self.priced:
            call = self.priced
            return ServedBy(call.served_model, call.fingerprint, call.request_id)
        if self.served != NOT_SAID:
            return self.served
        request_id = request_id_in(self.delivery.headers)
        return reading.served._replace(request_id=request_id) if request_id else reading.served

    def _record_request(self) -> None:
        if not self.access.transcript:
            return
        try:
            self.access.transcript.record_request(self.parse_request())
        except ValueError:
            # An unparsable request is not in the transcript; the call contains it verbatim.
            pass

    def _write_exchange(self, take: RecordedTake) -> None:
        take.write(
            self._number,
            Exchange(
                wire=self.gateway_route.wire,
                operation=self.gateway_route.operation,
                model=self.model,
                request=self.original,
                status=self.delivery.status or 499,
                headers=self.delivery.headers,
                chunks=self.delivery.chunks,
                hidden=self.delivery.hidden,
                whole=self.status != "cancelled" and not self.is_broken,
                served=self.served._asdict(),
            ),
        )


def redacted_error(raw: bytes) -> bytes:
    """A provider's error for the client, with keys removed, also masked ones."""
    text = raw.decode("utf-8", "replace")
    return KEY_SHAPES.sub("[key]", text).encode("utf-8", "replace")
