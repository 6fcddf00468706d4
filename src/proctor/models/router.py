"""Ask any model by name: find who has it, ask, price the call, and record it.

The one place where a model's name, its key, its price and its wire format meet. Keys come in with
the environment and go out in request headers; they are in no record.

Knows nothing of batches, budgets or the store.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from proctor.errors import ModelError, UsageError
from proctor.model import Answer, Model, Request
from proctor.models import anthropic, openai
from proctor.models.client import Client, Target, Waited
from proctor.models.prices import Price, price_of
from proctor.models.providers import find_endpoint
from proctor.models.refusals import clean
from proctor.models.scripted import PREFIX, Scripted, find_script
from proctor.models.wire import Reading, WireFormat
from proctor.session import ModelCall

WIRES: Mapping[str, WireFormat] = {"openai": openai, "anthropic": anthropic}

# Compact and with letters as they are: half the bytes of the default for most languages.
encode = partial(json.dumps, separators=(",", ":"), ensure_ascii=False)


def is_stand_in(model: str) -> bool:
    """Whether `model` only rehearses; a report that shows its results must say so."""
    return model.startswith(PREFIX)


class Route(Protocol):
    """How one model is asked."""

    provider: str
    price: Price | None

    async def answer(self, request: Request, waited: Waited | None) -> Answer: ...


class Models:
    """Every model there is, for one batch. Use it on one event loop; close it at the end."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        folders: Iterable[Path] = (),
        prices: Mapping[str, Mapping[str, float]] | None = None,
        client: Client | None = None,
        keep_bodies: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`folders` are searched for scripts; `prices` are the user's own; `keep_bodies` records
        what went over the wire word for word, which repeats what the messages say."""
        self._environment = environment
        self._folders = tuple(folders)
        self._declared = prices or {}
        self._client = client or Client()
        self._keep_bodies = keep_bodies
        # Prices depend on the day; one batch has the prices of the day it began.
        self._priced_at = now()
        self._routes: dict[str, Route] = {}

    async def answer(self, request: Request) -> Answer:
        """Answer, or raise a `ModelError`. When cancelled, close the connection."""
        return await self._found(request.model).answer(request, None)

    def watched(self, waited: Waited) -> Model:
        """The same models, for one attempt that wants to know how long it is made to wait.

        `waited` is called with the seconds before each pause begins, in time to put off a limit.
        """
        return _Watched(self, waited)

    def check(self, model: str) -> None:
        """Raise `NotFound` or `UsageError` when `model` cannot be asked at all; ask nothing."""
        self._route(model)

    def missing_key(self, model: str) -> str | None:
        """The variable that has to be set before `model` can be asked; None when nothing is missing."""
        if is_stand_in(model):
            return None
        return find_endpoint(model, self._environment).missing_key

    def has_price(self, model: str) -> bool:
        """Whether calls of `model` can be priced, without which no budget can be kept."""
        return self._route(model).price is not None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    def _found(self, model: str) -> Route:
        """As `_route`, for someone who is already at work and cannot be told to write it differently."""
        route = self._routes.get(model)
        if route is not None:
            return route
        try:
            return self._route(model)
        except UsageError as cause:
            raise ModelError(str(cause), reason="bad_request") from cause

    def _route(self, model: str) -> Route:
        route = self._routes.get(model)
        if route is None:
            route = self._routes[model] = self._made(model)
        return route

    def _made(self, model: str) -> Route:
        if is_stand_in(model):
            price = price_of(model, self._declared, at=self._priced_at)
            return _ScriptedRoute(find_script(model, self._folders), price)
        endpoint = find_endpoint(model, self._environment)
        declared = self._declared
        if model in declared:
            declared = {f"{endpoint.provider}/{endpoint.model}": declared[model]}
        price = price_of(f"{endpoint.provider}/{endpoint.model}", declared, at=self._priced_at)
        wire = WIRES[endpoint.wire]
        target = Target(endpoint, wire.url(endpoint), wire.headers(endpoint))
        return _RemoteRoute(self._client, wire, target, price, self._keep_bodies)


class _Watched:
    def __init__(self, models: Models, waited: Waited) -> None:
        self._models = models
        self._waited = waited

    async def answer(self, request: Request) -> Answer:
        return await self._models._found(request.model).answer(request, self._waited)


class _ScriptedRoute:
    provider = "scripted"

    def __init__(self, script: Scripted, price: Price | None) -> None:
        self._script = script
        self.price = price

    async def answer(self, request: Request, waited: Waited | None) -> Answer:  # noqa: ARG002 (it never waits)
        started = time.perf_counter()
        reading = await self._script.read(request)
        latency = (time.perf_counter() - started) * 1000
        return _answer(request.model, self, reading, latency, 0.0)


class _RemoteRoute:
    def __init__(
        self, client: Client, wire: WireFormat, target: Target, price: Price | None, keep_bodies: bool
    ) -> None:
        self._client = client
        self._wire = wire
        self._target = target
        self._keep_bodies = keep_bodies
        self.price = price
        self.provider = target.endpoint.provider

    async def answer(self, request: Request, waited: Waited | None) -> Answer:
        endpoint = self._target.endpoint
        if missing := endpoint.missing_key:
            raise ModelError(f"{request.model} needs a key: set {missing}", reason="auth")
        try:
            # Half characters, which a model or a file may hold, are no reason not to ask.
            sent = encode(self._wire.body(request, endpoint)).encode("utf-8", "replace")
        except (ValueError, TypeError, KeyError) as cause:
            raise ModelError(f"the request cannot be sent: {cause!r}", reason="bad_request") from cause
        posted = await self._client.post(self._target, sent, waited)
        try:
            reading = self._wire.read(posted.answer)
        except (LookupError, TypeError, AttributeError) as cause:
            began = clean(posted.body[:200].decode(errors="replace"), endpoint)
            raise ModelError(f"{self.provider} answered in no known shape; it began {began!r}") from cause
        bodies = (sent.decode(), posted.body.decode(errors="replace")) if self._keep_bodies else ("", "")
        return _answer(request.model, self, reading, posted.latency_ms, posted.waiting_ms, *bodies)


def _answer(
    model: str,
    route: Route,
    reading: Reading,
    latency_ms: float,
    waiting_ms: float,
    request: str = "",
    response: str = "",
) -> Answer:
    price = route.price
    cost, rates = price.for_call(reading.usage) if price else (None, {})
    call = ModelCall(
        model=model,
        usage=reading.usage,
        provider=route.provider,
        cost_usd=cost,
        price_source=price.source if price else "",
        price=rates,
        latency_ms=latency_ms,
        waiting_ms=waiting_ms,
        request=request,
        response=response,
    )
    return Answer(
        text=reading.text,
        call=call,
        tool_requests=reading.tool_requests,
        finish_reason=reading.finish_reason,
    )
