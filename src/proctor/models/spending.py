"""What a call could cost at most, before anyone has counted its tokens.

Knows nothing of budgets: whoever is asked decides.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.models.prices import Price
from proctor.session import Usage

# English has four letters a token, program text three, and Chinese one character of three bytes.
BYTES_A_TOKEN = 3
# The most that a picture has been seen to cost; its bytes say nothing about it.
TOKENS_A_PICTURE = 2000
PICTURE_KEYS = ("data", "image_url", "url")

OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")
USUAL_LIMITS = (
    (r"claude-3-(opus|haiku|sonnet)", 4096),
    (r"claude-3", 8192),
    (r"claude", 64_000),
    (r"gpt-5|o[1-9]", 128_000),
    (r"gpt-4\.1", 32_768),
    (r"gemini-[2-9]", 65_536),
    (r"", 16_384),
)
"""The longest answers of families of models, for requests that name no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRequest:
    """What a call could cost at most, asked before it is made."""

    model: str
    input_tokens: int
    """Estimated from the size of the request, rather too many than too few."""
    output_tokens: int
    """The most the answer may have: as the client said, or as such models usually allow."""
    input_usd: float | None
    """None: nobody knows the price."""
    output_usd_per_token: float | None

    @property
    def cost_usd(self) -> float | None:
        """All of it together; None: nobody knows the price."""
        if self.input_usd is None or self.output_usd_per_token is None:
            return None
        return self.input_usd + self.output_tokens * self.output_usd_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The answer to a `SpendingRequest`."""

    refused: str = ""
    """Why the call may not be made; empty: it may."""
    most_output_tokens: int | None = None
    """The answer may have so many tokens at most. None: as many as were asked for."""
    settle: Callable[[float | None], None] | None = None
    """Called once with what the call came to, after it was recorded; None: the price is unknown."""


def usual_limit(model: str) -> int:
    """How many tokens an answer of `model` has at most, when nobody said."""
    name = model.rpartition("/")[2]
    return next(limit for family, limit in USUAL_LIMITS if re.match(family, name))


def most_it_can_cost(model: str, body: Any, output_limit: int | None, price: Price | None) -> SpendingRequest:
    """The worst case of one call."""
    tokens = estimated_tokens(body)
    spent_on_input = spent_on_output = None
    if price is not None:
        # A cache is written at the dearest rate of all.
        written = price.for_call(Usage(input_tokens=tokens, cache_write_tokens=tokens))[0]
        spent_on_input = max(written, price.for_call(Usage(input_tokens=tokens))[0])
        rates = price.for_call(Usage(input_tokens=tokens))[1]
        spent_on_output = rates["output"] / 1e6
    return SpendingRequest(
        model=model,
        input_tokens=tokens,
        output_tokens=output_limit or usual_limit(model),
        input_usd=spent_on_input,
        output_usd_per_token=spent_on_output,
    )


def output_limit(parameters: Mapping[str, Any]) -> int | None:
    """How many tokens the parameters of a request allow its answer; None: they do not say."""
    found = [parameters.get(name) for name in OUTPUT_LIMITS]
    return next((limit for limit in found if isinstance(limit, int) and limit > 0), None)


def with_output_limit(parameters: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The same parameters with a shorter answer."""
    name = next((name for name in OUTPUT_LIMITS if parameters.get(name)), OUTPUT_LIMITS[-1])
    return {**parameters, name: limit}


def estimated_tokens(body: Any) -> int:
    """About how many tokens a request has, rather too many than too few."""
    return _size(body) // BYTES_A_TOKEN + 1


def _size(value: Any) -> int:
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            size += len(each.encode("utf-8", "replace")) if not each.isascii() else len(each)
        elif isinstance(each, Mapping):
            for key, below in each.items():
                size += len(key) + 4
                if key in PICTURE_KEYS and isinstance(below, str) and _is_picture(below):
                    size += TOKENS_A_PICTURE * BYTES_A_TOKEN
                else:
                    waiting.append(below)
        elif isinstance(each, list | tuple):
            waiting += each
        else:
            size += 4
    return size


def _is_picture(text: str) -> bool:
    return text.startswith("data:") or (len(text) > 1000 and " " not in text[:1000])
