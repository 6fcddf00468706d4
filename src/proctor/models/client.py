"""HTTP client of model providers, with retries and rate limits.

One session with many connections serves a whole batch. Every failure is a `ModelError` whose reason says what
to do about it; error messages contain no keys.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

from proctor.errors import CONTEXT_OVERFLOW, NOT_SENT, ModelError, RateLimited
from proctor.json_values import JsonMap, parse_json, require_map
from proctor.lazy_import import load
from proctor.model import is_overflow
from proctor.models.providers import Endpoint
from proctor.models.rate_limits import (
    TRIES_WITHOUT_HINT,
    RatePool,
    RatePools,
    Slot,
    repeated_call,
    spent_window_seconds,
)

CLIPPED_ERROR_CHARACTERS = 500

# Keys as common providers shape them, and partly masked ones; not the words "key provided".
KEY_SHAPES = re.compile(
    r"\b(?:sk|pk|gsk|xai|rk|key)[-_][\w*.-]{6,}|\bBearer [\w*.-]{6,}|(?<![\w.-])[\w.-]+\*{3,}[\w*.-]*"
)

# OpenAI sends these with status 429, Anthropic with 400; other providers use 402.
EMPTY_ACCOUNT = (b"insufficient_quota", b"credit balance is too low")
NUMBER = re.compile(r"\s*\d{1,9}(\.\d{0,9})?\s*")


class RetryableError(Exception):
    """A failed try that may succeed when repeated."""

    def __init__(
        self,
        error: ModelError,
        retry_after_seconds: float | None = None,
        *,
        is_connected: bool = True,
        may_be_billed: bool = False,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_connected = is_connected
        """Whether there was a connection, so that the request itself may be the cause."""
        error.may_be_billed = may_be_billed
        self.retry_after_seconds = retry_after_seconds
        self.response: Any = None
        """Response to return when no try is left; None: raise `error`."""


def parse_answer(raw: bytes, endpoint: Endpoint) -> JsonMap:
    """The JSON object of an answer.

    Raises a `RetryableError` when it is no JSON, a `ModelError` when it is an error or no object. Whatever it
    is, the provider has answered, and may bill it.
    """
    try:
        answer = parse_json(raw)
    except ValueError as cause:
        began = clean(raw[:200].decode(errors="replace"), endpoint)
        # A page of a proxy, or a server that is starting.
        raise RetryableError(
            ModelError(f"{endpoint.provider} did not answer with JSON; the answer began {began!r}"),
            may_be_billed=True,
        ) from cause
    if not isinstance(answer, dict):
        raise unreadable(f"{endpoint.provider} answered with JSON that is not an object")
    # OpenRouter reports some failures of upstream providers with status 200.
    if (error := answer.get("error")) and not (answer.get("choices") or answer.get("content")):
        details = clean(json.dumps(error, ensure_ascii=False), endpoint)
        raise unreadable(f"{endpoint.provider} answered with an error: {details}")
    return answer


def request_id_in(headers: Mapping[str, str]) -> str:
    """The provider's id of a request; empty: it sent none."""
    names = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid")
    return next((value for name in names if (value := headers.get(name))), "")


def unreadable(message: str) -> ModelError:
    """The error of an answer that is complete and cannot be used: it may be billed, and another try would
    most likely be the same."""
    error = ModelError(message)
    error.may_be_billed, error.is_repeatable = True, False
    return error


def error_of(status: int, headers: Mapping[str, str], raw: bytes, endpoint: Endpoint) -> Exception:
    """The exception for an unsuccessful status: a `RetryableError` when another try may succeed."""
    message = (
        f"{endpoint.provider} answered {status} for {endpoint.model}: {_provider_message(raw, endpoint)}"
    )
    if status == 402 or (status < 500 and any(word in raw for word in EMPTY_ACCOUNT)):
        # An empty account does not fill by waiting.
        return ModelError(message, reason="quota")
    if status == 429:
        wait = _retry_after(headers)
        return RetryableError(RateLimited(message, retry_after_seconds=wait), wait)
    if status in (401, 403):
        hint = f" (the key is taken from {endpoint.key_variable})" if endpoint.key_variable else ""
        return ModelError(message + hint, reason="auth")
    if status >= 500 or status == 408:
        return RetryableError(ModelError(message), _retry_after(headers), may_be_billed=True)
    if may_be_billed(status):
        return unreadable(message)
    return ModelError(
        message, reason=CONTEXT_OVERFLOW if _is_overflow(message, raw, status) else "bad_request"
    )


def _is_overflow(message: str, raw: bytes, status: int) -> bool:
    """Whether a prompt was too long: by the words of the provider, or by the code beside them."""
    return is_overflow(message, status) or b"context_length_exceeded" in raw[: 64 * 1024]


def may_be_billed(status: int) -> bool:
    """Whether a request may be billed that got this status: only refusals and redirects are free.

    No provider documents that its own failures are: they may come after the work.
    """
    return status < 300 or status >= 500 or status == 408


def _provider_message(raw: bytes, endpoint: Endpoint) -> str:
    """The provider's own message where the body has the usual shape, else how the body begins."""
    text = raw[: 64 * 1024].decode(errors="replace")
    try:
        error = require_map(parse_json(text))["error"]
        text = error if isinstance(error, str) else str(require_map(error)["message"])
    except (ValueError, LookupError, TypeError):
        pass
    return clean(text, endpoint) or "no details"


def clean(text: str, endpoint: Endpoint) -> str:
    """Text for an error message: one line, clipped, without keys."""
    if endpoint.key:
        text = text.replace(endpoint.key, "[key]")
    text = KEY_SHAPES.sub("[key]", " ".join(text[: 4 * CLIPPED_ERROR_CHARACTERS].split()))
    return text if len(text) <= CLIPPED_ERROR_CHARACTERS else text[:CLIPPED_ERROR_CHARACTERS] + "…"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds until a retry, from `retry-after-ms` or `Retry-After` (seconds or date); None: not given."""
    try:
        milliseconds, value = headers.get("retry-after-ms", ""), headers.get("Retry-After", "")
        if NUMBER.fullmatch(milliseconds):
            return float(milliseconds) / 1000
        if NUMBER.fullmatch(value):
            return float(value)
        # Relative to the provider's clock: the local one may be wrong.
        until, now = parsedate_to_datetime(value), parsedate_to_datetime(headers["Date"])
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError, KeyError):
        return None


if TYPE_CHECKING:
    import aiohttp

    from proctor.models.http import HttpClient, PostTarget

T = TypeVar("T")
Waited = Callable[[float], None]
"""Called with the seconds about to be waited, so that a time limit can be extended by them."""


def _ignore(_: bool) -> None:
    return None


# Maximum size of an answer; a million tokens of text stay below it.
LARGEST_ANSWER_BYTES = 32 * 1024 * 1024

# Each token of a stream is wrapped in a hundred bytes or more.
LARGEST_STREAM_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetryPolicy:
    """Timeouts and retries of one call."""

    total_seconds: float = 1800
    connect_seconds: float = 30
    silence_seconds: float = 600
    """Without a byte. A model that reasons for long sends nothing until it has finished."""
    tries: int = 5
    most_waiting_seconds: float = 60
    """Sum of the pauses of one call; the batch waits out a longer `Retry-After`."""
    first_pause_seconds: float = 0.5


QUOTA_HEADERS = frozenset(
    (
        "x-ratelimit-remaining-requests",
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-tokens-remaining",
        "ratelimit-remaining",
        "x-ratelimit-remaining",
    )
)
"""Checked before all headers are parsed: most responses have none of them."""


class HttpResponse(NamedTuple):
    """A parsed answer, its body and its timing."""

    answer: JsonMap
    body: bytes
    latency_ms: float
    """Of the successful try."""
    waiting_ms: float
    request_id: str
    """From its headers; empty: they have none."""


class CallTarget(NamedTuple):
    """What all calls of one model have in common."""

    endpoint: Endpoint
    url: str
    headers: Mapping[str, str]
    is_local: bool = False
    """Whether it is on this machine."""


class Client:
    """The connections of one batch. Use it on one event loop; close it at the end."""

    def __init__(
        self,
        policy: CallRetryPolicy | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        jitter: Callable[[], float] = random.random,
        pools: RatePools | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """With `pools`, all calls to one model share an adaptive rate limit, and a 429 is waited out;
        without, such a call fails after its retries. `environment` may name proxies.
        """
        self._policy = policy or CallRetryPolicy()
        self._clock = clock
        self._jitter = jitter
        self._pools = pools
        self._environment = environment or {}
        self._http: HttpClient | None = None
        self._prepared: dict[str, PostTarget] = {}
        self._pool_of: dict[str, tuple[Endpoint, RatePool]] = {}
        """By URL, of the endpoint called last."""
        self._proxies: dict[str, str | None] = {}
        self._session: aiohttp.ClientSession | None = None
        """For streams, and for calls through a proxy."""
        self._malformed: tuple[type[Exception], ...] = (ValueError,)
        self._failures: tuple[type[Exception], ...] = (OSError,)
        self._too_large: tuple[type[Exception], ...] = ()
        self._no_connection: tuple[type[Exception], ...] = ()

    async def post(self, target: CallTarget, body: bytes, waited: Waited | None = None) -> HttpResponse:
        """Send `body` and return the answer, or raise a `ModelError`."""
        (answer, raw, request_id), progress = await self._with_retries(self._post_once, target, body, waited)
        self._release_slot(progress)
        latency_ms = (self._clock() - progress.started) * 1000
        return HttpResponse(answer, raw, latency_ms, progress.waited_seconds * 1000, request_id)

    async def open(
        self,
        target: CallTarget,
        body: bytes,
        waited: Waited | None = None,
        sent: Callable[[bool], None] = _ignore,
    ) -> "ResponseStream":
        """Send `body` and return the response as a stream, which the caller closes.

        Retries like `post` before the first byte, not after it. A final error response is a stream too, with
        its status; a `ModelError` is raised when there was no response at all. `sent` is called with True
        when a try begins and with False when it has failed without being billed.
        """
        stream, progress = await self._with_retries(self._post_stream, target, body, waited, sent)
        stream.started, stream.waited_seconds = progress.started, progress.waited_seconds
        if stream.is_refused:
            self._release_slot(progress)
        else:
            if progress.pool:
                progress.pool.reached()
            stream.release = partial(self._release_slot, progress)
        return stream

    @staticmethod
    def _release_slot(progress: "_CallProgress", error: str = "") -> None:
        """Return the slot of a call that was answered; `error`: its answer broke off."""
        if not progress.has_slot or not progress.pool:
            return
        progress.has_slot = False
        if error:
            progress.pool.unreachable(progress.held_slot, progress.call, error, is_connected=True)
        else:
            progress.pool.answered()

    def _pool(self, target: CallTarget) -> RatePool | None:
        """The rate limit pool of its calls; None: there are no pools."""
        if self._pools is None:
            return None
        known = self._pool_of.get(target.url)
        if known is not None and known[0] is target.endpoint:
            return known[1]
        endpoint = target.endpoint
        pool = self._pools.pool(f"{endpoint.provider}/{endpoint.model}", is_local=target.is_local)
        self._pool_of[target.url] = endpoint, pool
        return pool

    async def _with_retries(
        self,
        send: Callable[[CallTarget, bytes], Awaitable[T]],
        target: CallTarget,
        body: bytes,
        waited: Waited | None,
        sent: Callable[[bool], None] = _ignore,
    ) -> "tuple[T, _CallProgress]":
        pool = self._pool(target)
        progress = _CallProgress(pool)
        attempt = 1
        while True:
            if pool:
                progress.slot = slot = pool.enter_at_once() or await _wait_for_slot(pool, progress, waited)
                progress.has_slot = True
            progress.started = self._clock()
            try:
                sent(True)
                return await send(target, body), progress
            except RetryableError as failure:
                progress.has_slot = False
                error = failure.error
                progress.is_billed |= error.may_be_billed
                sent(error.may_be_billed)
                if pool and isinstance(failure.error, RateLimited):
                    pool.refused(progress.held_slot, failure.retry_after_seconds)
                    progress.without_hint += failure.retry_after_seconds is None
                    if progress.without_hint < TRIES_WITHOUT_HINT:
                        continue
                elif pool and (
                    pool.unreachable(
                        progress.held_slot, progress.call, str(error), is_connected=failure.is_connected
                    )
                    or (error.may_be_billed and not self._repeats_billed)
                ):
                    if error.may_be_billed and not self._repeats_billed:
                        error.is_outage = pool.is_in_outage
                        error.pause_seconds = self._pause(1, failure.retry_after_seconds)
                        if failure.response is not None:
                            failure.response.error = error
                            return failure.response, progress
                        raise error from failure.__cause__
                    # It waits for a slot until the outage is over, and uses up no try.
                    lasted = self._clock() - progress.started
                    progress.waited_seconds += lasted
                    if waited is not None:
                        waited(lasted)
                    continue
                pause = self._pause(attempt, failure.retry_after_seconds)
                most = self._policy.most_waiting_seconds
                if attempt == self._policy.tries or progress.paused_seconds + pause > most:
                    if failure.response is not None:
                        return failure.response, progress
                    raise failure.error from failure.__cause__
            except ModelError:
                if pool:
                    pool.failed()
                raise
            except BaseException:
                if pool:
                    pool.failed(slot)
                raise
            if waited is not None:
                waited(pause)
            try:
                await asyncio.sleep(pause)
            except asyncio.CancelledError as cancelled:
                _raise_not_sent(progress, cancelled)
            progress.paused_seconds += pause
            progress.waited_seconds += pause
            attempt += 1

    @property
    def _repeats_billed(self) -> bool:
        return self._pools is None or self._pools.repeats_billed

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None
            self._prepared.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None

    @staticmethod
    def get_ready() -> None:
        """Load the HTTP library ahead of the first call, which would block the event loop for it."""
        load("proctor.models.http")

    def _open(self) -> "aiohttp.ClientSession":
        load("aiohttp")
        # Imported here: it takes a tenth of a second that batches without streams need not spend.
        import aiohttp

        policy = self._policy
        self._malformed = (ValueError, aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)
        self._failures = (*self._failures, aiohttp.ClientError)
        self._no_connection = (
            *self._no_connection,
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
        )
        self._session = aiohttp.ClientSession(
            # No limit here: the pools and the batch limit concurrency.
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(
                total=policy.total_seconds,
                sock_connect=policy.connect_seconds,
                sock_read=policy.silence_seconds,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._session

    def session_for(self, target: CallTarget) -> "tuple[aiohttp.ClientSession, str | None]":
        """The session for other requests to the provider of a target, and the proxy to use, if any."""
        return self._session or self._open(), self._proxy(target)

    async def _post_once(self, target: CallTarget, body: bytes) -> tuple[JsonMap, bytes, str]:
        try:
            prepared = self._prepared.get(target.url)
            if prepared is None or prepared.headers is not target.headers:
                prepared = self._prepare(target)
            if prepared is None:
                async with await self._send(target, body, self._proxy(target)) as streamed:
                    status, headers = streamed.status, cast("Mapping[str, str]", streamed.headers)
                    raw = await _read(streamed, target.endpoint)
            else:
                assert self._http is not None
                status, headers, raw = await self._http.post(prepared, body)
            self._apply_quota_headers(target, headers)
            if status == 200:
                return parse_answer(raw, target.endpoint), raw, request_id_in(headers)
            raise error_of(status, headers, raw, target.endpoint)
        except (*self._malformed, *self._failures) as failure:
            self._raise_translated(failure, target.endpoint)

    def _prepare(self, target: CallTarget) -> "PostTarget | None":
        """The target as our own client takes it, which is made with the first; None: it is called through a
        proxy."""
        if self._proxy(target):
            return None
        from proctor.models.http import HttpClient, NoConnection, PostTarget, ResponseTooLarge, TimeLimits

        if self._http is None:
            self._no_connection = (*self._no_connection, NoConnection)
            self._failures = (*self._failures, ResponseTooLarge)
            self._too_large = (ResponseTooLarge,)
            policy = self._policy
            limits = TimeLimits(
                total=policy.total_seconds, connect=policy.connect_seconds, silence=policy.silence_seconds
            )
            self._http = HttpClient(limits, largest_body_bytes=LARGEST_ANSWER_BYTES)
        prepared = self._prepared[target.url] = PostTarget(target.url, target.headers)
        return prepared

    def _proxy(self, target: CallTarget) -> str | None:
        """The proxy to use, if any."""
        if not self._environment or target.is_local:
            return None
        if target.url not in self._proxies:
            from proctor.models.http import proxy_of

            self._proxies[target.url] = proxy_of(target.url, self._environment)
        return self._proxies[target.url]

    async def _send(self, target: CallTarget, body: bytes, proxy: str | None) -> "aiohttp.ClientResponse":
        session = self._session or self._open()
        # A redirect would send the key to an unknown address.
        return await session.post(
            target.url, data=body, headers=target.headers, allow_redirects=False, proxy=proxy
        )

    async def _post_stream(self, target: CallTarget, body: bytes) -> "ResponseStream":
        try:
            response = await self._send(target, body, self._proxy(target))
            self._apply_quota_headers(target, response.headers)
            try:
                if response.status == 200:
                    return ResponseStream(self, target.endpoint, response)
                raw = await _read(response, target.endpoint)
            except BaseException:
                response.close()
                raise
            response.release()
        except (*self._malformed, *self._failures) as failure:
            self._raise_translated(failure, target.endpoint)
        refused = ResponseStream(self, target.endpoint, response, raw)
        error = error_of(response.status, response.headers, raw, target.endpoint)
        if isinstance(error, RetryableError):
            error.response = refused
            raise error
        return refused

    def _apply_quota_headers(self, target: CallTarget, headers: Mapping[str, str]) -> None:
        """Hold the pool when the headers report an exhausted usage window."""
        # `HttpClient` has their names in lower case already.
        names = map(str.lower, headers) if self._session is not None else headers
        if self._pools and not QUOTA_HEADERS.isdisjoint(names):
            pause = spent_window_seconds(headers, datetime.now(UTC))
            pool = self._pool(target)
            if pause and pool:
                pool.hold(pause)

    def _raise_translated(self, failure: Exception, endpoint: Endpoint) -> NoReturn:
        """Raise a connection error as an error whose message contains no key."""
        if isinstance(failure, self._malformed):
            # An invalid address or header. Its message may contain the key, so it is not shown.
            message = f"{endpoint.provider} cannot be called: its base URL or its key is malformed"
            raise ModelError(message, reason="bad_request") from None
        if isinstance(failure, self._too_large):
            raise _too_large(endpoint) from failure
        message = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
        error = ModelError(f"{endpoint.provider} did not answer: {clean(message, endpoint)}")
        is_connected = not isinstance(failure, self._no_connection)
        raise RetryableError(error, is_connected=is_connected, may_be_billed=is_connected) from failure

    def _pause(self, attempt: int, retry_after_seconds: float | None) -> float:
        """Exponential backoff with jitter, so that a thousand calls do not return at once."""
        if retry_after_seconds is not None:
            return retry_after_seconds + 0.1 * self._jitter() * retry_after_seconds
        return self._policy.first_pause_seconds * 2.0 ** (attempt - 1) * (0.5 + self._jitter())


@dataclass(slots=True, eq=False, weakref_slot=True)
class _CallProgress:
    """Timing and state of one call over its tries."""

    pool: RatePool | None
    started: float = 0.0
    """When the last try began."""
    waited_seconds: float = 0.0
    """For a slot, and between tries."""
    slot: Slot | None = None
    """The slot of the last try; None: there are no pools."""
    has_slot: bool = False
    """Whether it has to be released."""
    paused_seconds: float = 0.0
    """Between tries only."""
    is_billed: bool = False
    """Whether a try may be billed although it failed."""
    without_hint: int = 0
    """Number of 429 responses without a `Retry-After`."""

    @property
    def call(self) -> object:
        """What the pool takes for the same call when it fails again."""
        return repeated_call() or self

    @property
    def held_slot(self) -> Slot:
        """The slot of the last try, where there is a pool."""
        assert self.slot is not None
        return self.slot


async def _wait_for_slot(pool: RatePool, progress: _CallProgress, waited: Waited | None) -> Slot:
    try:
        slot = await pool.enter(waited)
    except asyncio.CancelledError as cancelled:
        _raise_not_sent(progress, cancelled)
    progress.waited_seconds += slot.waited_seconds
    return slot


def _raise_not_sent(progress: _CallProgress, cancelled: asyncio.CancelledError) -> NoReturn:
    """Pass on a cancellation while the call waited, marked: there is nothing to bill."""
    if progress.is_billed:
        raise cancelled
    raise asyncio.CancelledError(NOT_SENT) from cancelled


class ResponseStream:
    """A response that is still arriving, or a complete error response."""

    def __init__(
        self,
        client: Client,
        endpoint: Endpoint,
        response: "aiohttp.ClientResponse",
        refused: bytes | None = None,
    ) -> None:
        self._client = client
        self._endpoint = endpoint
        self._response = response
        self._refused = refused
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.started = 0.0
        """Start of the answered try, on the client's clock."""
        self.waited_seconds = 0.0
        self.release: Callable[[str], None] | None = None
        """Releases its slot of the pool, once, with the error when the stream broke off."""
        self._error = ""
        self.error: ModelError | None = None
        """Of an error response that may be billed, and after which the caller may try again."""

    @property
    def is_refused(self) -> bool:
        return self._refused is not None

    @property
    def refusal(self) -> bytes:
        """The body of an error response; empty while an answer is arriving."""
        return self._refused or b""

    @property
    def latency_ms(self) -> float:
        """Duration of the try so far."""
        return (self._client._clock() - self.started) * 1000

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes as they arrive; a `ModelError` when the stream breaks off or exceeds its maximum size."""
        if self._refused is not None:
            yield self._refused
            return
        size = 0
        client = self._client
        try:
            try:
                while chunk := await self._response.content.readany():
                    size += len(chunk)
                    if size > LARGEST_STREAM_BYTES:
                        sent = f"{self._endpoint.provider} sent more than {LARGEST_STREAM_BYTES >> 20} MiB"
                        raise unreadable(sent)
                    yield chunk
            except (*client._malformed, *client._failures) as failure:
                client._raise_translated(failure, self._endpoint)
        except RetryableError as broken:
            self._error = str(broken.error)
            raise ModelError(str(broken.error).replace("did not answer", "broke off")) from broken

    def close(self) -> None:
        """Close it, without waiting for what has not arrived."""
        if self._refused is None:
            self._response.close()
        if self.release:
            self.release(self._error)
            self.release = None


async def _read(response: "aiohttp.ClientResponse", endpoint: Endpoint) -> bytes:
    """The whole body, up to the maximum size of an answer."""
    read = response.content.readany
    body = await read()
    if response.content.at_eof():
        return body
    chunks, size = [body], len(body)
    while chunk := await read():
        chunks.append(chunk)
        size += len(chunk)
        if size > LARGEST_ANSWER_BYTES:
            raise _too_large(endpoint)
    return b"".join(chunks)


def _too_large(endpoint: Endpoint) -> ModelError:
    return unreadable(f"{endpoint.provider} sent more than {LARGEST_ANSWER_BYTES >> 20} MiB")
