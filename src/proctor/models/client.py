"""Post a body to a provider and get the answer, waiting and trying again as far as that is sensible.

One session with many connections serves a whole batch. What a provider refuses, breaks off or
garbles becomes a `ModelError` whose reason says what to do about it; no key is in its words.

Knows nothing of wire formats, prices or records.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.errors import ModelError, RateLimited
from proctor.models.providers import Endpoint
from proctor.untrusted import parse_json

if TYPE_CHECKING:
    import aiohttp

Waited = Callable[[float], None]
"""Called with the seconds about to be waited, so that a time limit can be put off by them."""

# The longest whole answer worth reading; a million tokens of text stay below it.
LARGEST_ANSWER_BYTES = 32 * 1024 * 1024
CLIPPED_ERROR_CHARACTERS = 500
# Keys as the usual providers shape them, also when half hidden by asterisks.
KEY_SHAPES = re.compile(r"\b(?:sk|pk|gsk|xai|rk|key|Bearer)[-_ ][\w*.-]{6,}")

NUMBER = re.compile(r"\s*\d{1,9}(\.\d{0,9})?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a provider is waited for, and how often it is asked again."""

    total_seconds: float = 1800
    connect_seconds: float = 30
    silence_seconds: float = 600
    """Without a byte. A model that reasons for long sends nothing until it has finished."""
    tries: int = 5
    most_waiting_seconds: float = 60
    """For all pauses of one call together; a longer `Retry-After` is for the batch to sit out."""
    first_pause_seconds: float = 0.5


class Posted(NamedTuple):
    """An answer as it came, and what it took."""

    answer: Mapping[str, Any]
    body: bytes
    latency_ms: float
    """Of the try that succeeded."""
    waiting_ms: float


class Target(NamedTuple):
    """Everything about a call that is the same for all calls of one model."""

    endpoint: Endpoint
    url: str
    headers: Mapping[str, str]


class Client:
    """The connections of one batch. Use it on one event loop; close it at the end."""

    def __init__(
        self,
        patience: Patience | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._patience = patience or Patience()
        self._clock = clock
        self._jitter = jitter
        self._session: aiohttp.ClientSession | None = None
        self._malformed: tuple[type[Exception], ...] = ()
        self._failures: tuple[type[Exception], ...] = ()

    async def post(self, target: Target, body: bytes, waited: Waited | None = None) -> Posted:
        """Get the answer to `body`, or raise the `ModelError` that says why there is none."""
        session = self._session or self._open()
        waiting = 0.0
        for number in range(1, self._patience.tries + 1):
            started = self._clock()
            try:
                answer, raw = await self._once(session, target, body)
                return Posted(answer, raw, (self._clock() - started) * 1000, waiting * 1000)
            except _Again as again:
                pause = self._pause(number, again.retry_after_seconds)
                if number == self._patience.tries or waiting + pause > self._patience.most_waiting_seconds:
                    raise again.error from again.__cause__
            if waited is not None:
                waited(pause)
            await asyncio.sleep(pause)
            waiting += pause
        raise AssertionError("the last try either answers or raises")

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> "aiohttp.ClientSession":
        # Imported here because it costs a quarter of a second that scripted batches need not pay.
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
        self, session: "aiohttp.ClientSession", target: Target, body: bytes
    ) -> tuple[Mapping[str, Any], bytes]:
        try:
            # A redirect would carry the key to an address nobody has agreed to.
            async with session.post(
                target.url, data=body, headers=target.headers, allow_redirects=False
            ) as response:
                raw = await _read(response, target.endpoint)
                if response.status == 200:
                    return _parsed(raw, target.endpoint), raw
                raise _refusal(response.status, response.headers, raw, target.endpoint)
        except self._malformed:
            # An address or a header that cannot be sent. Its text may hold the key, so it is not shown.
            said = f"{target.endpoint.provider} cannot be asked: its base URL or its key is malformed"
            raise ModelError(said, reason="bad_request") from None
        except self._failures as failure:
            said = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
            error = ModelError(f"{target.endpoint.provider} did not answer: {clean(said, target.endpoint)}")
            raise _Again(error) from failure

    def _pause(self, number: int, retry_after_seconds: float | None) -> float:
        """Twice as long each time, and spread out so that a thousand calls do not return at once."""
        if retry_after_seconds is not None:
            return retry_after_seconds + 0.1 * self._jitter() * retry_after_seconds
        return self._patience.first_pause_seconds * 2.0 ** (number - 1) * (0.5 + self._jitter())


class _Again(Exception):
    """This try failed in a way that another may not."""

    def __init__(self, error: ModelError, retry_after_seconds: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after_seconds = retry_after_seconds


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


def _parsed(raw: bytes, endpoint: Endpoint) -> Mapping[str, Any]:
    try:
        answer = parse_json(raw)
    except ValueError as cause:
        began = clean(raw[:200].decode(errors="replace"), endpoint)
        raise ModelError(f"{endpoint.provider} answered no JSON; it began {began!r}") from cause
    if not isinstance(answer, dict):
        raise ModelError(f"{endpoint.provider} answered JSON that is no object")
    # OpenRouter reports some failures of the provider behind it with status 200.
    if (error := answer.get("error")) and not (answer.get("choices") or answer.get("content")):
        said = clean(json.dumps(error, ensure_ascii=False), endpoint)
        raise ModelError(f"{endpoint.provider} answered with an error: {said}")
    return answer


def _refusal(status: int, headers: Mapping[str, str], raw: bytes, endpoint: Endpoint) -> Exception:
    said = f"{endpoint.provider} answered {status} for {endpoint.model}: {_said(raw, endpoint)}"
    if status == 429:
        if b"insufficient_quota" in raw:
            # The account is empty. Waiting does not fill it.
            return ModelError(said, reason="quota")
        wait = _retry_after(headers)
        return _Again(RateLimited(said, retry_after_seconds=wait), wait)
    if status in (401, 403):
        hint = f" (the key is taken from {endpoint.key_variable})" if endpoint.key_variable else ""
        return ModelError(said + hint, reason="auth")
    if status >= 500 or status == 408:
        return _Again(ModelError(said), _retry_after(headers))
    return ModelError(said, reason="bad_request")


def _said(raw: bytes, endpoint: Endpoint) -> str:
    """The provider's own words, where the body has the usual shape; else how the body begins."""
    text = raw[: 64 * 1024].decode(errors="replace")
    try:
        error = parse_json(text)["error"]
        text = error if isinstance(error, str) else str(error["message"])
    except (ValueError, LookupError, TypeError):
        pass
    return clean(text, endpoint) or "nothing said"


def clean(text: str, endpoint: Endpoint) -> str:
    """Short enough for a table, one line, and without the key, which some providers repeat."""
    if endpoint.key:
        text = text.replace(endpoint.key, "[key]")
    text = KEY_SHAPES.sub("[key]", " ".join(text[: 4 * CLIPPED_ERROR_CHARACTERS].split()))
    return text if len(text) <= CLIPPED_ERROR_CHARACTERS else text[:CLIPPED_ERROR_CHARACTERS] + "…"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait as the provider wants it, given in seconds or as a date; None: not said."""
    try:
        milliseconds, wanted = headers.get("retry-after-ms", ""), headers.get("Retry-After", "")
        if NUMBER.fullmatch(milliseconds):
            return float(milliseconds) / 1000
        if NUMBER.fullmatch(wanted):
            return float(wanted)
        # Counted on the provider's own clock: ours may be wrong.
        until, now = parsedate_to_datetime(wanted), parsedate_to_datetime(headers["Date"])
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError, KeyError):
        return None
