"""The ways a model can be asked: over the wire, from a script, a recording, a server of ours, or litellm.

Each answers a request in our own words and prices the call; the model's name has been resolved.

Knows nothing of names, environments or the store.
"""

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Protocol

from proctor.errors import ModelError, RateLimited, UsageError
from proctor.model import Answer, Request, ToolRequest
from proctor.models import openai
from proctor.models.client import CallTarget, Client, Waited
from proctor.models.errors import clean
from proctor.models.local import LocalServer
from proctor.models.prices import FREE, Price
from proctor.models.providers import Endpoint
from proctor.models.recording import IN_PROCESS, Exchange, RecordedTake, Replay, ReplayedTake
from proctor.models.scripted import ScriptedModel
from proctor.models.wire import WireAnswer, WireFormat
from proctor.session import ModelCall, Usage

# Ask the long tail of providers through litellm, for those who have installed it.


PREFIX = "litellm/"
PYTHON_PREFIX = "python/"
"""Models that are Python functions."""


def load() -> Any:
    """The library itself; a `UsageError` says how to get it when it is missing."""
    try:
        # Imported here because it takes more than four seconds and is an extra.
        return import_module("litellm")
    except ImportError as cause:
        raise UsageError("`litellm/…` models need the library litellm: install `proctor[litellm]`") from cause


async def ask(library: Any, request: Request) -> WireAnswer:
    """Ask, and read the answer, which comes in the shape of chat completions."""
    asked: dict[str, Any] = {key: value for key, value in request.parameters.items() if key != "stream"}
    asked |= {"model": request.model.removeprefix(PREFIX), "messages": list(request.messages)}
    if request.tools:
        asked["tools"] = list(request.tools)
    if request.seed is not None:
        asked["seed"] = request.seed
    try:
        answer = await library.acompletion(**asked)
    except asyncio.CancelledError:
        raise
    except Exception as failure:
        raise _attributed(failure) from failure
    try:
        return openai.read(answer.model_dump())
    except (LookupError, TypeError, AttributeError) as cause:
        raise ModelError("litellm answered in no known shape") from cause


def _attributed(failure: Exception) -> ModelError:
    """Its errors carry the provider's status; its words may carry a key, so only the type is said."""
    status = getattr(failure, "status_code", None)
    said = f"litellm: {type(failure).__name__}" + (f" ({status})" if status else "")
    if status == 429:
        return RateLimited(said)
    reasons = {400: "bad_request", 401: "auth", 403: "auth", 404: "bad_request", 422: "bad_request"}
    return ModelError(said, reason=reasons.get(status or 0))


# Compact and with letters as they are: half the bytes of the default for most languages.
encode = partial(json.dumps, separators=(",", ":"), ensure_ascii=False)


class Route(Protocol):
    """How one model is asked."""

    provider: str
    endpoint: Endpoint | None
    """Where it is asked over HTTP; None when it is not."""

    @property
    def price(self) -> Price | None:
        """What its calls cost; None: nobody knows. May take a moment the first time."""

    async def answer(self, request: Request, waited: Waited | None) -> Answer: ...

    def not_sent(self, request: Request) -> tuple[str, ...]:
        """Which of the request's parameters will not be sent."""


class ScriptedRoute:
    """Asks the rules of a file."""

    provider = "scripted"
    endpoint: Endpoint | None = None

    def __init__(self, script: ScriptedModel, price: Price | None) -> None:
        self._script = script
        self.price = price

    async def answer(self, request: Request, waited: Waited | None) -> Answer:  # noqa: ARG002 (it never waits)
        started = time.perf_counter()
        reading = await self._script.read(request)
        latency = (time.perf_counter() - started) * 1000
        return priced(request.model, self, reading, latency, 0.0)

    def not_sent(self, request: Request) -> tuple[str, ...]:  # noqa: ARG002 (nothing is sent at all)
        return ()


class CallableRoute:
    """Calls a Python function: `function(request)` returns the text of the answer, or an `Answer`."""

    provider = "python"
    endpoint: Endpoint | None = None

    def __init__(self, function: Callable[[Request], Any]) -> None:
        self._function = function
        self.price: Price | None = FREE

    async def answer(self, request: Request, waited: Waited | None) -> Answer:  # noqa: ARG002 (it never waits)
        """Call the function; a synchronous one runs in a thread. An exception is a `ModelError`."""
        started = time.perf_counter()
        try:
            if inspect.iscoroutinefunction(self._function):
                result = await self._function(request)
            else:
                result = await asyncio.to_thread(self._function, request)
                if inspect.isawaitable(result):
                    result = await result
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"{request.model}: {type(error).__name__}: {error}") from error
        if isinstance(result, Answer):
            return result
        latency = (time.perf_counter() - started) * 1000
        call = ModelCall(model=request.model, provider=self.provider, cost_usd=0.0, latency_ms=latency)
        return Answer(text="" if result is None else str(result), call=call)

    def not_sent(self, request: Request) -> tuple[str, ...]:  # noqa: ARG002 (it is handed everything)
        return ()


def imported_function(name: str) -> Callable[[Request], Any]:
    """The function that `python/module:function` names."""
    module, colon, path = name.removeprefix(PYTHON_PREFIX).partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"there is no model {name}: {error}\nWrite python/module:function.") from error
    if not colon or not callable(found):
        raise UsageError(f"{name} is not a function\nWrite python/module:function.")
    function: Callable[[Request], Any] = found
    return function


class LitellmRoute:
    """Asks whoever litellm knows."""

    provider = "litellm"
    endpoint: Endpoint | None = None

    def __init__(self, library: Any, price: Price | None) -> None:
        self._library = library
        self.price = price

    async def answer(self, request: Request, waited: Waited | None) -> Answer:  # noqa: ARG002 (it waits by itself)
        started = time.perf_counter()
        reading = await ask(self._library, request)
        latency = (time.perf_counter() - started) * 1000
        return priced(request.model, self, reading, latency, 0.0)

    def not_sent(self, request: Request) -> tuple[str, ...]:  # noqa: ARG002 (it is handed everything)
        return ()


class ReplayRoute:
    """Asks a recording, whoever made it."""

    provider = "replay"
    endpoint: Endpoint | None = None

    def __init__(self, replay: Replay, price: Price | None) -> None:
        self.replay = replay
        self._take = replay.take("", "process")
        self.price = price

    async def answer(self, request: Request, waited: Waited | None) -> Answer:  # noqa: ARG002 (it never waits)
        return replayed(self._take, request, _nothing)

    def not_sent(self, request: Request) -> tuple[str, ...]:  # noqa: ARG002 (nothing is sent at all)
        return ()


class LocalRoute:
    """Asks a server of ours on this machine, which is started first."""

    provider = "local"
    endpoint: Endpoint | None = None

    def __init__(
        self, server: LocalServer, remote: "Callable[[str], RemoteRoute]", price: Price | None
    ) -> None:
        """`remote` makes the route to its address."""
        self._server = server
        self._remote = remote
        self._made: RemoteRoute | None = None
        self.price = price

    async def reached(self) -> "RemoteRoute":
        """The way to it, once it answers."""
        url = await self._server.url()
        if self._made is None:
            self._made = self._remote(url)
        return self._made

    async def answer(self, request: Request, waited: Waited | None) -> Answer:
        return await (await self.reached()).answer(request, waited)

    def not_sent(self, request: Request) -> tuple[str, ...]:  # noqa: ARG002 (it takes everything)
        return ()


class RemoteRoute:
    """Asks a provider over HTTP."""

    def __init__(
        self,
        client: Client,
        wire: WireFormat,
        target: CallTarget,
        find_price: Callable[[], Price | None],
        keep_bodies: bool,
    ) -> None:
        self._client = client
        self._wire = wire
        self._target = target
        self._find_price = find_price
        self._pricing: asyncio.Task[Price | None] | None = None
        self._keep_bodies = keep_bodies
        self.endpoint: Endpoint | None = target.endpoint
        self.provider = target.endpoint.provider

    @cached_property
    def price(self) -> Price | None:
        return self._find_price()

    async def answer(self, request: Request, waited: Waited | None) -> Answer:
        if self._pricing is None:
            # The table of prices takes a third of a second to load: time that the first call has anyway.
            self._pricing = asyncio.create_task(asyncio.to_thread(lambda: self.price))
        endpoint = self._target.endpoint
        if missing := endpoint.missing_key:
            raise ModelError(f"{request.model} needs a key: set {missing}", reason="auth")
        try:
            # Half characters, which a model or a file may hold, are no reason not to ask.
            sent = encode(self._wire.body(request, endpoint)).encode("utf-8", "replace")
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            raise ModelError(f"the request cannot be sent: {cause!r}", reason="bad_request") from cause
        posted = await self._client.post(self._target, sent, waited)
        try:
            reading = self._wire.read(posted.answer)
        except (LookupError, TypeError, AttributeError) as cause:
            began = clean(posted.body[:200].decode(errors="replace"), endpoint)
            raise ModelError(f"{self.provider} answered in no known shape; it began {began!r}") from cause
        if not self._pricing.done():
            await asyncio.wait([self._pricing])
        bodies = (sent.decode(), posted.body.decode(errors="replace")) if self._keep_bodies else ("", "")
        return priced(request.model, self, reading, posted.latency_ms, posted.waiting_ms, *bodies)

    def not_sent(self, request: Request) -> tuple[str, ...]:
        return self._wire.not_sent(request)


def priced(
    model: str,
    route: Route,
    reading: WireAnswer,
    latency_ms: float,
    waiting_ms: float,
    request: str = "",
    response: str = "",
) -> Answer:
    """An answer with the record of its call, at the price of its route."""
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


async def recorded(take: RecordedTake, request: Request, route: Route, waited: Waited | None) -> Answer:
    """Ask, and keep the exchange, also when it fails."""
    number = take.begin()
    outcome: dict[str, Any] = {}
    try:
        answer = await route.answer(request, waited)
        outcome = _plain(answer)
        return answer
    except ModelError as error:
        outcome = {"error": str(error), "reason": error.reason}
        raise
    except asyncio.CancelledError:
        outcome = {"error": "it was cancelled", "reason": "cancelled"}
        raise
    finally:
        take.keep(
            number,
            Exchange(
                wire=IN_PROCESS,
                operation="answer",
                model=request.model,
                request=_asked(request),
                status=200 if "text" in outcome else 502,
                chunks=(encode(outcome).encode("utf-8", "replace"),),
                whole=outcome.get("reason") != "cancelled",
            ),
        )


def replayed(take: ReplayedTake, request: Request, say: Callable[[str], None]) -> Answer:
    """The answer that was recorded; `say` is told where the attempt departs from the recording."""
    found = take.find(IN_PROCESS, "answer", request.model, _asked(request))
    if found.departure:
        say(found.departure)
    outcome = json.loads(b"".join(found.exchange.chunks))
    if "text" not in outcome:
        if outcome["reason"] == RateLimited.reason:
            raise RateLimited(outcome["error"])
        raise ModelError(outcome["error"], reason=outcome["reason"])
    call = ModelCall(
        model=request.model,
        usage=Usage(**outcome["usage"]),
        provider="replay",
        cost_usd=0.0,
        price_source="free",
        latency_ms=0.0,
    )
    wanted = tuple(ToolRequest(**each) for each in outcome["tool_requests"])
    return Answer(
        text=outcome["text"], call=call, tool_requests=wanted, finish_reason=outcome["finish_reason"]
    )


def _asked(request: Request) -> Mapping[str, Any]:
    """A request as plain data, as it will be read back."""
    return {
        "model": request.model,
        "messages": list(request.messages),
        "tools": list(request.tools),
        "parameters": dict(request.parameters),
        "seed": request.seed,
    }


def _plain(answer: Answer) -> dict[str, Any]:
    usage = answer.call.usage
    return {
        "text": answer.text,
        "tool_requests": [
            {"id": each.id, "name": each.name, "arguments": each.arguments} for each in answer.tool_requests
        ],
        "finish_reason": answer.finish_reason,
        "usage": {name: getattr(usage, name) for name in Usage.__slots__},
    }


def _nothing(_: str) -> None:
    return None
