"""What a provider's refusal means: wait and ask again, or an error with the reason of it.

Providers repeat keys in their errors, whole or half hidden; no word that leaves here holds one.

Knows nothing of connections, nor how often anything is tried.
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


# Keys as the usual providers shape them, and what is half hidden by asterisks; not the words "key provided".
KEY_SHAPES = re.compile(
    r"\b(?:sk|pk|gsk|xai|rk|key)[-_][\w*.-]{6,}|\bBearer [\w*.-]{6,}|[\w.-]+\*{3,}[\w*.-]*"
)


# As OpenAI says it with status 429, and Anthropic with 400; others have status 402.
EMPTY_ACCOUNT = (b"insufficient_quota", b"credit balance is too low")


NUMBER = re.compile(r"\s*\d{1,9}(\.\d{0,9})?\s*")


class RetryableError(Exception):
    """This try failed in a way that another may not."""

    def __init__(self, error: ModelError, retry_after_seconds: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after_seconds = retry_after_seconds
        self.standing: Any = None
        """What to hand on instead of the error when there is no other try; None: the error it is."""


def parsed(raw: bytes, endpoint: Endpoint) -> Mapping[str, Any]:
    """An answer's JSON object; a `ModelError` when it is none, or only looks like an answer."""
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


def refusal(status: int, headers: Mapping[str, str], raw: bytes, endpoint: Endpoint) -> Exception:
    """What to raise for a status that is no success: `Again` when another try may fare better."""
    said = f"{endpoint.provider} answered {status} for {endpoint.model}: {_said(raw, endpoint)}"
    if status == 402 or (status < 500 and any(word in raw for word in EMPTY_ACCOUNT)):
        # Waiting does not fill it.
        return ModelError(said, reason="quota")
    if status == 429:
        wait = _retry_after(headers)
        return RetryableError(RateLimited(said, retry_after_seconds=wait), wait)
    if status in (401, 403):
        hint = f" (the key is taken from {endpoint.key_variable})" if endpoint.key_variable else ""
        return ModelError(said + hint, reason="auth")
    if status >= 500 or status == 408:
        return RetryableError(ModelError(said), _retry_after(headers))
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


def without_key(raw: bytes, endpoint: Endpoint) -> bytes:
    """A body that may be handed on: whole, but without the key it was asked with."""
    key = endpoint.key.encode()
    return raw.replace(key, b"[key]") if key and key in raw else raw


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
