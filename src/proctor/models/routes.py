"""The ways to call a model: over HTTP, from a script, a recording, a local server, or litellm.

Each answers a `Request` and prices the call; the name of the model has been resolved.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from proctor.errors import ModelError, RateLimited, UsageError
from proctor.json_values import JsonMap, JsonObject, compact_encoder
from proctor.model import Answer, Request, ToolRequest, WireAnswer
from proctor.models.prices import ESTIMATED, FREE, Price, expected_limit, output_limit
from proctor.session import ModelCall, Usage, provenance_of

if TYPE_CHECKING:
    from proctor.models.client import CallTarget, Client, Waited
    from proctor.models.local import LocalServer
    from proctor.models.providers import Endpoint, WireFormat
    from proctor.models.recording import RecordedTake, Replay, ReplayedTake
    from proctor.models.scripted import ScriptedModel

PREFIX = "litellm/"
PYTHON_PREFIX = "python/"
"""Models that are Python functions."""


LIBRARY_PAUSE_SECONDS = 0.5
"""Before a failed call of litellm is tried again; twice as long each time."""


class _Completion(Protocol):
    def model_dump(self) -> JsonObject:
        """The response as plain data."""


class LiteLLM(Protocol):
    """What Proctor uses of the module `litellm`."""

    async def acompletion(self, **arguments: object) -> _Completion:
        """A chat completion."""


def load_litellm() -> LiteLLM:
    """The library; a `UsageError` says how to install it."""
    try:
        # Imported here: it takes more than four seconds, and is an optional dependency.
        return import_module("litellm")
    except ImportError as cause:
        raise UsageError("`litellm/…` models need the library litellm: install `proctor[litellm]`") from cause


async def _call_litellm(library: LiteLLM, request: Request) -> WireAnswer:
    """Send a request; litellm answers in the shape of chat completions."""
    # Each try may be billed, and is reserved on its own: the library makes none of its own.
    arguments: JsonObject = {"max_retries": 0, "num_retries": 0}
    arguments |= {key: value for key, value in request.parameters.items() if key != "stream"}
    arguments |= {"model": request.model.removeprefix(PREFIX), "messages": list(request.messages)}
    if request.tools:
        arguments["tools"] = list(request.tools)
    if request.seed is not None:
        arguments["seed"] = request.seed
    try:
        answer = await library.acompletion(**arguments)
    except asyncio.CancelledError:
        raise
    except Exception as failure:
        raise _attributed(failure) from failure
    try:
        # Loaded here, as everything that calls providers: a run on scripted models needs none of it.
        from proctor.models import openai

        return openai.read(answer.model_dump())
    except (LookupError, TypeError, AttributeError) as cause:
        unknown = ModelError("litellm answered in an unknown format")
        unknown.may_be_billed, unknown.is_repeatable = True, False
        raise unknown from cause


def _attributed(failure: Exception) -> ModelError:
    """A litellm error as a `ModelError`. Its message may contain a key, so only its type is shown."""
    status = getattr(failure, "status_code", None)
    message = f"litellm: {type(failure).__name__}" + (f" ({status})" if status else "")
    if status == 429:
        return RateLimited(message)
    reasons = {400: "bad_request", 401: "auth", 403: "auth", 404: "bad_request", 422: "bad_request"}
    error = ModelError(message, reason=reasons.get(status or 0))
    # A failure of the connection has no status.
    error.may_be_billed, error.pause_seconds = status not in reasons, LIBRARY_PAUSE_SECONDS
    return error


# Compact and unescaped: half the bytes of the default for most languages.
encode = compact_encoder()


class Route(Protocol):
    """How one model is called."""

    provider: str
    endpoint: Endpoint | None
    """Its HTTP endpoint; None when it has none."""

    @property
    def price(self) -> Price | None:
        """Price of its calls; None: unknown. May take a moment the first time."""

    async def answer(self, request: Request, waited: Waited | None) -> Answer:
        """Answer a request; `waited` gets the seconds of each pause before it starts. Raises `ModelError`."""

    def not_sent(self, request: Request) -> tuple[str, ...]:
        """Names of parameters of the request that will not be sent."""


class _OwnRoute(ABC):
    """A route without an HTTP endpoint: it is handed every parameter."""

    provider = ""
    endpoint: Endpoint | None = None
    price: Price | None = None

    def not_sent(self, request: Request) -> tuple[str, ...]:  # noqa: ARG002 (it is handed everything)
        return ()

    @abstractmethod
    def answer(self, request: Request, waited: Waited | None) -> Coroutine[Any, Any, Answer]: ...

    async def _timed(self, request: Request, reading: Awaitable[WireAnswer]) -> Answer:
        started = time.perf_counter()
        answer = await reading
        return priced(request, self, answer, (time.perf_counter() - started) * 1000, 0.0)


class ScriptedRoute(_OwnRoute):
    """Answers from the rules of a script."""

    provider = "scripted"

    def __init__(self, script: ScriptedModel, price: Price | None) -> None:
        self.script = script
        self.price = price

    def answer(self, request: Request, waited: Waited | None) -> Coroutine[Any, Any, Answer]:  # noqa: ARG002 (it never waits)
        return self._timed(request, self.script.read(request))


class CallableRoute(_OwnRoute):
    """Calls a Python function: `function(request)` returns the text of the answer, or an `Answer`."""

    provider = "python"

    def __init__(self, function: Callable[[Request], object]) -> None:
        self._function = function
        self.price = FREE

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
        except (Exception, SystemExit) as error:
            # A function that exits ends its call, not the batch.
            raise ModelError(f"{request.model}: {type(error).__name__}: {error}") from error
        if isinstance(result, Answer):
            return result
        if result is None:
            raise ModelError(f"{request.model}: the function returned None; return the text of the answer")
        latency = (time.perf_counter() - started) * 1000
        call = ModelCall(model=request.model, provider=self.provider, cost_usd=0.0, latency_ms=latency)
        return Answer(text=str(result), call=call)


def imported_function(name: str) -> Callable[[Request], object]:
    """The function that `python/module:function` names."""
    module, colon, path = name.removeprefix(PYTHON_PREFIX).partition(":")
    # As `python -m` does, but last: a file of the working folder shadows no installed package.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        attribute: object = import_module(module)
        for part in path.split("."):
            attribute = getattr(attribute, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"there is no model {name}: {error}\nWrite python/module:function.") from error
    if not colon or not callable(attribute):
        raise UsageError(f"{name} is not a function\nWrite python/module:function.")
    function: Callable[[Request], object] = attribute
    return function


class LitellmRoute(_OwnRoute):
    """Calls a provider through litellm."""

    provider = "litellm"

    def __init__(self, library: LiteLLM, price: Price | None) -> None:
        self._library = library
        self.price = price

    def answer(self, request: Request, waited: Waited | None) -> Coroutine[Any, Any, Answer]:  # noqa: ARG002 (it waits by itself)
        return self._timed(request, _call_litellm(self._library, with_answer_limit(request)))


class ReplayRoute(_OwnRoute):
    """Answers from a recording."""

    provider = "replay"

    def __init__(self, replay: Replay, price: Price | None) -> None:
        self.replay = replay
        self._take = replay.take("", "process")
        self.price = price

    def answer(self, request: Request, waited: Waited | None) -> Coroutine[Any, Any, Answer]:  # noqa: ARG002 (it never waits)
        return answer_replayed(self._take, request, lambda _: None)


class LocalRoute(_OwnRoute):
    """Calls a local server, which it starts first."""

    provider = "local"

    def __init__(
        self, server: LocalServer, remote: Callable[[str], RemoteRoute], price: Price | None
    ) -> None:
        """`remote` makes the route to its address."""
        self._server = server
        self._remote = remote
        self._made: RemoteRoute | None = None
        self.price = price

    async def reached(self) -> RemoteRoute:
        """The route to the server, once it answers."""
        url = await self._server.url()
        if self._made is None:
            self._made = self._remote(url)
        return self._made

    async def answer(self, request: Request, waited: Waited | None) -> Answer:
        return await (await self.reached()).answer(request, waited)


class RemoteRoute:
    """Calls a provider over HTTP."""

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
        self.is_local = target.is_local

    @cached_property
    def price(self) -> Price | None:
        return self._find_price()

    @property
    def expected_price(self) -> Price | None:
        """The price of most requests."""
        return self.price

    def price_of(self, request: Request) -> Price | None:  # noqa: ARG002 (all cost the same)
        """The price of a request."""
        return self.price

    def answer_item(
        self,
        item_id: str,  # noqa: ARG002 (no matter whose it is)
        request: Request,
        waited: Waited | None,
    ) -> Coroutine[Any, Any, Answer]:
        """Answer a request of an item."""
        return self.answer(request, waited)

    async def close(self) -> None:
        """Nothing is open."""

    async def answer(self, request: Request, waited: Waited | None) -> Answer:
        if self._pricing is None:
            # The price table takes a third of a second to load: done while the first call is running.
            self._pricing = asyncio.create_task(asyncio.to_thread(lambda: self.price))
        endpoint = self._target.endpoint
        if missing := endpoint.missing_key:
            raise ModelError(f"{request.model} needs a key: set {missing}", reason="auth")
        try:
            # Lone surrogates, which a model or a file may contain, do not stop a request.
            body = self._wire.body(with_answer_limit(request), endpoint)
            sent = encode(body).encode("utf-8", "replace")
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            raise ModelError(f"the request cannot be sent: {cause!r}", reason="bad_request") from cause
        posted = await self._client.post(self._target, sent, waited)
        try:
            reading = self._wire.read(posted.answer)
        except (LookupError, TypeError, AttributeError) as cause:
            from proctor.models.client import clean, unreadable

            began = clean(posted.body[:200].decode(errors="replace"), endpoint)
            raise unreadable(
                f"{self.provider} answered in an unknown format; the answer began {began!r}"
            ) from cause
        if not self._pricing.done():
            await asyncio.wait([self._pricing])
        if posted.request_id:
            reading = reading._replace(served=reading.served._replace(request_id=posted.request_id))
        bodies = (sent.decode(), posted.body.decode(errors="replace")) if self._keep_bodies else ("", "")
        parameters = sent_parameters(body)
        return priced(request, self, reading, posted.latency_ms, posted.waiting_ms, *bodies, parameters)

    def not_sent(self, request: Request) -> tuple[str, ...]:
        return self._wire.not_sent(request)


def request_body(request: Request, route: Route) -> JsonMap:
    """What a request sends, in the shape of chat completions: enough to bound its cost."""
    body: JsonObject = {"messages": request.messages, "tools": list(request.tools)}
    if request.parameters:
        left_out = route.not_sent(request)
        body |= {name: value for name, value in request.parameters.items() if name not in left_out}
    return body


_CONTENT = frozenset(
    ("model", "messages", "system", "tools", "input", "instructions", "contents", "systemInstruction",
     "system_instruction", "stream", "stream_options")
)  # fmt: skip
"""Members of requests that are no parameters."""


def sent_parameters(body: JsonMap) -> str:
    """The parameters in the body of a request, as JSON; empty: it has none."""
    parameters = {name: value for name, value in body.items() if name not in _CONTENT}
    return encode(parameters) if parameters else ""


def with_answer_limit(request: Request) -> Request:
    """The request with its `answer_tokens` as a parameter, unless it sets a limit itself."""
    tokens, parameters = request.answer_tokens, request.parameters
    if tokens is None or output_limit(parameters) is not None:
        return request
    return replace(
        request, parameters={**parameters, "max_tokens": expected_limit(request.model, parameters, tokens)}
    )


def answer_limit(request: Request, route: Route) -> int | None:
    """Maximum length of one answer; None: neither the request nor the route sets one."""
    limit = output_limit(with_answer_limit(request).parameters)
    if limit is None and route.endpoint and route.endpoint.wire == "anthropic":
        from proctor.models import anthropic

        return anthropic.DEFAULT_MAX_TOKENS
    return limit


def priced(
    request: Request,
    route: Route,
    reading: WireAnswer,
    latency_ms: float,
    waiting_ms: float,
    sent: str = "",
    received: str = "",
    parameters: str = "",
) -> Answer:
    """An answer with its call, at the price of the route; `parameters` are those sent, if it has its own."""
    price = route.price
    body = request_body(request, route)
    price = price.for_answer(body, reading) if price else None
    usage, is_estimated = reading.usage, False
    if price is not None and any(price.rates):
        # Loaded here: a run on scripted models needs none of it.
        from proctor.models.worst_case import billed_usage

        usage, is_estimated = billed_usage(reading, body)
    cost, rates = price.for_call(usage) if price else (None, {})
    source = price.source if price else ""
    if not parameters and (request.parameters or request.seed is not None):
        seed = {} if request.seed is None else {"seed": request.seed}
        parameters = encode({**request.parameters, **seed})
    served = reading.served
    call = ModelCall(
        model=request.model,
        usage=usage,
        provider=route.provider,
        cost_usd=cost,
        price_source=source + ESTIMATED if is_estimated else source,
        price=rates,
        latency_ms=latency_ms,
        waiting_ms=waiting_ms,
        request=sent,
        response=received,
        served_model=served.model,
        fingerprint=served.fingerprint,
        request_id=served.request_id,
        finish_reason=reading.finish_reason,
        parameters=parameters,
        not_sent=route.not_sent(request),
    )
    return Answer(
        text=reading.text, call=call, tool_requests=reading.tool_requests, finish_reason=reading.finish_reason
    )


async def answer_recorded(
    take: RecordedTake, request: Request, route: Route, waited: Waited | None
) -> Answer:
    """Send the request and record the exchange, also when it fails."""
    from proctor.models.recording import IN_PROCESS, Exchange

    number = take.begin()
    outcome: JsonObject = {}
    try:
        answer = await route.answer(request, waited)
        outcome = _plain_answer(answer)
        return answer
    except ModelError as error:
        outcome = {"error": str(error), "reason": error.reason}
        raise
    except asyncio.CancelledError:
        outcome = {"error": "it was cancelled", "reason": "cancelled"}
        raise
    finally:
        take.write(
            number,
            Exchange(
                wire=IN_PROCESS,
                operation="answer",
                model=request.model,
                request=_plain_request(request),
                status=200 if "text" in outcome else 502,
                chunks=(encode(outcome).encode("utf-8", "replace"),),
                whole=outcome.get("reason") != "cancelled",
            ),
        )


async def answer_replayed(take: ReplayedTake, request: Request, note: Callable[[str], None]) -> Answer:
    """The recorded answer; `note` receives a mismatch with the recording."""
    from proctor.models.recording import IN_PROCESS

    match = take.find(IN_PROCESS, "answer", request.model, _plain_request(request))
    if match.mismatch:
        note(match.mismatch)
    outcome = json.loads(b"".join(match.exchange.chunks))
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
        **provenance_of(outcome),
    )
    tool_requests = tuple(ToolRequest(**each) for each in outcome["tool_requests"])
    return Answer(
        text=outcome["text"], call=call, tool_requests=tool_requests, finish_reason=outcome["finish_reason"]
    )


def _plain_request(request: Request) -> JsonMap:
    """A request as JSON, as recordings store it."""
    return {
        "model": request.model,
        "messages": list(request.messages),
        "tools": list(request.tools),
        "parameters": dict(request.parameters),
        "seed": request.seed,
    }


def _plain_answer(answer: Answer) -> JsonObject:
    usage = answer.call.usage
    return {
        "text": answer.text,
        "tool_requests": [
            {"id": each.id, "name": each.name, "arguments": each.arguments} for each in answer.tool_requests
        ],
        "finish_reason": answer.finish_reason,
        "usage": {name: getattr(usage, name) for name in Usage.__slots__},
        **answer.call.provenance,
    }
