"""Post a body to a provider and get the answer, waiting and trying again as far as that is sensible.

One session with many connections serves a whole batch. What a provider refuses, breaks off or
garbles becomes a `ModelError` whose reason says what to do about it; no key is in its words.

Knows nothing of wire formats, prices or records.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from proctor.errors import ModelError, RateLimited
from proctor.lazy_import import load
from proctor.models.errors import RetryableError, clean, parsed, refusal
from proctor.models.providers import Endpoint
from proctor.models.rate_limits import UNTOLD_TRIES, RatePools, spent_window_seconds

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")


Waited = Callable[[float], None]
"""Called with the seconds about to be waited, so that a time limit can be put off by them."""


# The longest whole answer worth reading; a million tokens of text stay below it.
LARGEST_ANSWER_BYTES = 32 * 1024 * 1024


# Each token of a stream comes in a wrapping of a hundred bytes and more.
LARGEST_FLOW_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRetryPolicy:
    """How long a provider is waited for, and how often it is asked again."""

    total_seconds: float = 1800
    connect_seconds: float = 30
    silence_seconds: float = 600
    """Without a byte. A model that reasons for long sends nothing until it has finished."""
    tries: int = 5
    most_waiting_seconds: float = 60
    """For all pauses of one call together; a longer `Retry-After` is for the batch to sit out."""
    first_pause_seconds: float = 0.5


QUOTA_HEADERS = (
    *("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"),
    *("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-tokens-remaining"),
    *("ratelimit-remaining", "x-ratelimit-remaining"),
)
"""Looked for before all headers are read: most answers have none of them."""


class HttpResponse(NamedTuple):
    """An answer as it came, and what it took."""

    answer: Mapping[str, Any]
    body: bytes
    latency_ms: float
    """Of the try that succeeded."""
    waiting_ms: float


class CallTarget(NamedTuple):
    """Everything about a call that is the same for all calls of one model."""

    endpoint: Endpoint
    url: str
    headers: Mapping[str, str]
    is_near: bool = False
    """Whether it is on this machine."""

    @property
    def pool(self) -> str:
        """What its calls are limited together with."""
        return f"{self.endpoint.provider}/{self.endpoint.model}"


class Client:
    """The connections of one batch. Use it on one event loop; close it at the end."""

    def __init__(
        self,
        patience: CallRetryPolicy | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        jitter: Callable[[], float] = random.random,
        pools: RatePools | None = None,
    ) -> None:
        """With `pools`, all calls to one model share a limit that is found out, and a provider that
        says 429 is waited for as long as it takes; without them such a call fails after a while."""
        self._patience = patience or CallRetryPolicy()
        self._clock = clock
        self._jitter = jitter
        self._pools = pools
        self._session: aiohttp.ClientSession | None = None
        self._malformed: tuple[type[Exception], ...] = ()
        self._failures: tuple[type[Exception], ...] = ()

    async def post(self, target: CallTarget, body: bytes, waited: Waited | None = None) -> HttpResponse:
        """Get the answer to `body`, or raise the `ModelError` that says why there is none."""
        (answer, raw), tries = await self._patiently(self._once, target, body, waited)
        self._leave(target, tries)
        return HttpResponse(answer, raw, (self._clock() - tries.started) * 1000, tries.waited_seconds * 1000)

    async def open(self, target: CallTarget, body: bytes, waited: Waited | None = None) -> "ResponseStream":
        """Have `body` answered piece by piece; whoever calls this closes the flow.

        As patient as `post` before the first byte, and not after it. A refusal that stands is a
        flow too, with its status; a `ModelError` is raised when there was no answer at all.
        """
        flow, tries = await self._patiently(self._begin, target, body, waited)
        flow.started, flow.waited_seconds = tries.started, tries.waited_seconds
        if flow.refusal:
            self._leave(target, tries)
        else:
            flow.leave = partial(self._leave, target, tries)
        return flow

    def _leave(self, target: CallTarget, tries: "_Tries") -> None:
        if self._pools and tries.has_place:
            tries.has_place = False
            self._pools.pool(target.pool).answered()

    async def _patiently(
        self,
        once: Callable[["aiohttp.ClientSession", CallTarget, bytes], Awaitable[T]],
        target: CallTarget,
        body: bytes,
        waited: Waited | None,
    ) -> "tuple[T, _Tries]":
        session = self._session or self._open()
        tries = _Tries()
        pool = self._pools.pool(target.pool, is_near=target.is_near) if self._pools else None
        number = 1
        while True:
            if pool:
                place = await pool.enter(waited)
                tries.waited_seconds += place.waited_seconds
                tries.has_place = True
            tries.started = self._clock()
            try:
                return await once(session, target, body), tries
            except RetryableError as again:
                tries.has_place = False
                if pool and isinstance(again.error, RateLimited):
                    pool.refused(place, again.retry_after_seconds)
                    tries.untold += again.retry_after_seconds is None
                    if tries.untold < UNTOLD_TRIES:
                        continue
                elif pool:
                    pool.failed()
                pause = self._pause(number, again.retry_after_seconds)
                most = self._patience.most_waiting_seconds
                if number == self._patience.tries or tries.paused_seconds + pause > most:
                    if again.standing is not None:
                        return again.standing, tries
                    raise again.error from again.__cause__
            except BaseException:
                tries.has_place = False
                if pool:
                    pool.failed()
                raise
            if waited is not None:
                waited(pause)
            await asyncio.sleep(pause)
            tries.paused_seconds += pause
            tries.waited_seconds += pause
            number += 1

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @staticmethod
    def get_ready() -> None:
        """Load the library for HTTP before the first call, which else waits for it with all beside it."""
        load("aiohttp")

    def _open(self) -> "aiohttp.ClientSession":
        self.get_ready()
        # Imported here because it costs a tenth of a second that scripted batches need not pay.
        import aiohttp

        patience = self._patience
        self._malformed = (ValueError, aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)
        self._failures = (aiohttp.ClientError, OSError, TimeoutError)
        self._session = aiohttp.ClientSession(
            # How much runs at once is for the batch to decide, so no limit here.
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(
                total=patience.total_seconds,
                sock_connect=patience.connect_seconds,
                sock_read=patience.silence_seconds,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self._session

    async def _once(
        self, session: "aiohttp.ClientSession", target: CallTarget, body: bytes
    ) -> tuple[Mapping[str, Any], bytes]:
        with self._told(target.endpoint):
            # A redirect would carry the key to an address nobody has agreed to.
            async with session.post(
                target.url, data=body, headers=target.headers, allow_redirects=False
            ) as response:
                raw = await _read(response, target.endpoint)
                self._heed(target, response.headers)
                if response.status == 200:
                    return parsed(raw, target.endpoint), raw
                raise refusal(response.status, response.headers, raw, target.endpoint)

    async def _begin(
        self, session: "aiohttp.ClientSession", target: CallTarget, body: bytes
    ) -> "ResponseStream":
        with self._told(target.endpoint):
            response = await session.post(
                target.url, data=body, headers=target.headers, allow_redirects=False
            )
            self._heed(target, response.headers)
            try:
                if response.status == 200:
                    return ResponseStream(self, target.endpoint, response)
                raw = await _read(response, target.endpoint)
            except BaseException:
                response.close()
                raise
            response.release()
        refused = ResponseStream(self, target.endpoint, response, raw)
        error = refusal(response.status, response.headers, raw, target.endpoint)
        if isinstance(error, RetryableError):
            error.standing = refused
            raise error
        return refused

    def _heed(self, target: CallTarget, headers: Mapping[str, str]) -> None:
        """Hold the pool when an answer says that a usage window is spent."""
        if self._pools and any(name in headers for name in QUOTA_HEADERS):
            pause = spent_window_seconds(headers, datetime.now(UTC))
            if pause:
                self._pools.pool(target.pool).hold(pause)

    @contextmanager
    def _told(self, endpoint: Endpoint) -> Iterator[None]:
        """Say what went wrong with a connection in words that hold no key."""
        try:
            yield
        except self._malformed:
            # An address or a header that cannot be sent. Its text may hold the key, so it is not shown.
            said = f"{endpoint.provider} cannot be asked: its base URL or its key is malformed"
            raise ModelError(said, reason="bad_request") from None
        except self._failures as failure:
            said = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
            error = ModelError(f"{endpoint.provider} did not answer: {clean(said, endpoint)}")
            raise RetryableError(error) from failure

    def _pause(self, number: int, retry_after_seconds: float | None) -> float:
        """Twice as long each time, and spread out so that a thousand calls do not return at once."""
        if retry_after_seconds is not None:
            return retry_after_seconds + 0.1 * self._jitter() * retry_after_seconds
        return self._patience.first_pause_seconds * 2.0 ** (number - 1) * (0.5 + self._jitter())


@dataclass(slots=True)
class _Tries:
    """How a call went until it was answered."""

    started: float = 0.0
    """When the last try began."""
    waited_seconds: float = 0.0
    """For a place, and between tries."""
    has_place: bool = False
    """Whether a place in the pool is still to be given back."""
    paused_seconds: float = 0.0
    """Between tries alone."""
    untold: int = 0
    """How often it was refused without a word about when to come back."""


class ResponseStream:
    """An answer that is still arriving, or a refusal that has arrived whole."""

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
        """When the try that is being answered began, on the client's clock."""
        self.waited_seconds = 0.0
        self.leave: Callable[[], None] | None = None
        """Gives its place in the pool back, once."""

    @property
    def refusal(self) -> bytes:
        """The body of a refusal; empty while an answer is arriving."""
        return self._refused or b""

    @property
    def latency_ms(self) -> float:
        """The time the try has taken so far."""
        return (self._client._clock() - self.started) * 1000

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes as they arrive; a `ModelError` when they stop too early or never end."""
        if self._refused is not None:
            yield self._refused
            return
        size = 0
        try:
            with self._client._told(self._endpoint):
                while chunk := await self._response.content.readany():
                    size += len(chunk)
                    if size > LARGEST_FLOW_BYTES:
                        sent = f"{self._endpoint.provider} sent more than {LARGEST_FLOW_BYTES >> 20} MiB"
                        raise ModelError(sent)
                    yield chunk
        except RetryableError as broken:
            raise ModelError(str(broken.error).replace("did not answer", "broke off")) from broken

    def close(self) -> None:
        """Be done with it. What has not arrived is not waited for: the connection is closed."""
        if self._refused is None:
            self._response.close()
        if self.leave:
            self.leave()
            self.leave = None


async def _read(response: "aiohttp.ClientResponse", endpoint: Endpoint) -> bytes:
    """The whole body, unless it is larger than any answer could be."""
    read = response.content.readany
    body = await read()
    if response.content.at_eof():
        return body
    chunks, size = [body], len(body)
    while chunk := await read():
        chunks.append(chunk)
        size += len(chunk)
        if size > LARGEST_ANSWER_BYTES:
            raise ModelError(f"{endpoint.provider} sent more than {LARGEST_ANSWER_BYTES >> 20} MiB")
    return b"".join(chunks)
