"""Classify a provider's error responses: retry, or a `ModelError` with its reason.

Providers repeat keys in their errors, whole or partly masked; no message from here contains one.
"""

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from proctor.errors import ModelError, RateLimited
from proctor.json_values import parse_json
from proctor.models.providers import Endpoint

CLIPPED_ERROR_CHARACTERS = 500


# Keys as common providers shape them, and partly masked ones; not the words "key provided".
KEY_SHAPES = re.compile(
    r"\b(?:sk|pk|gsk|xai|rk|key)[-_][\w*.-]{6,}|\bBearer [\w*.-]{6,}|[\w.-]+\*{3,}[\w*.-]*"
)


# OpenAI sends these with status 429, Anthropic with 400; other providers use 402.
EMPTY_ACCOUNT = (b"insufficient_quota", b"credit balance is too low")


NUMBER = re.compile(r"\s*\d{1,9}(\.\d{0,9})?\s*")


class RetryableError(Exception):
    """A failed try that may succeed when repeated."""

    def __init__(self, error: ModelError, retry_after_seconds: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after_seconds = retry_after_seconds
        self.response: Any = None
        """Response to return when no try is left; None: raise `error`."""


def parse_answer(raw: bytes, endpoint: Endpoint) -> Mapping[str, Any]:
    """The JSON object of an answer; a `ModelError` when it is not an object, or is an error in disguise."""
    try:
        answer = parse_json(raw)
    except ValueError as cause:
        began = clean(raw[:200].decode(errors="replace"), endpoint)
        raise ModelError(
            f"{endpoint.provider} did not answer with JSON; the answer began {began!r}"
        ) from cause
    if not isinstance(answer, dict):
        raise ModelError(f"{endpoint.provider} answered with JSON that is not an object")
    # OpenRouter reports some failures of upstream providers with status 200.
    if (error := answer.get("error")) and not (answer.get("choices") or answer.get("content")):
        details = clean(json.dumps(error, ensure_ascii=False), endpoint)
        raise ModelError(f"{endpoint.provider} answered with an error: {details}")
    return answer


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
        return RetryableError(ModelError(message), _retry_after(headers))
    return ModelError(message, reason="bad_request")


def _provider_message(raw: bytes, endpoint: Endpoint) -> str:
    """The provider's own message where the body has the usual shape, else how the body begins."""
    text = raw[: 64 * 1024].decode(errors="replace")
    try:
        error = parse_json(text)["error"]
        text = error if isinstance(error, str) else str(error["message"])
    except (ValueError, LookupError, TypeError):
        pass
    return clean(text, endpoint) or "no details"


def clean(text: str, endpoint: Endpoint) -> str:
    """Text for an error message: one line, clipped, without keys."""
    if endpoint.key:
        text = text.replace(endpoint.key, "[key]")
    text = KEY_SHAPES.sub("[key]", " ".join(text[: 4 * CLIPPED_ERROR_CHARACTERS].split()))
    return text if len(text) <= CLIPPED_ERROR_CHARACTERS else text[:CLIPPED_ERROR_CHARACTERS] + "…"


def without_key(raw: bytes, endpoint: Endpoint) -> bytes:
    """A response body without the key it was requested with."""
    key = endpoint.key.encode()
    return raw.replace(key, b"[key]") if key and key in raw else raw


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds until a retry, from `retry-after-ms` or `Retry-After` (seconds or date); None: not given."""
    try:
        milliseconds, value = headers.get("retry-after-ms", ""), headers.get("Retry-After", "")
        if NUMBER.fullmatch(milliseconds):
            return float(milliseconds) / 1000
        if NUMBER.fullmatch(value):
            return float(value)
        # Relative to the provider's clock: ours may be wrong.
        until, now = parsedate_to_datetime(value), parsedate_to_datetime(headers["Date"])
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError, KeyError):
        return None
