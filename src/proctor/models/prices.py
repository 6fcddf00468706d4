"""What a call costs, and where that price came from.

A price the user declared wins; names that cost nothing are free; the rest is looked up in the
table of genai-prices that is installed. A model nobody has a price for costs *unknown*, never 0.

Knows nothing of providers' answers or of budgets.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any, NamedTuple

from proctor.session import Usage

FREE_PROVIDERS = frozenset({"scripted", "replay", "ollama", "local", "lmstudio", "vllm"})


TABLE_PROVIDERS = {"gemini": "google", "xai": "x-ai"}
"""Our name of a provider → the table's, where they differ."""


PER_TOKEN = 1e-6


class Rates(NamedTuple):
    """USD per million tokens."""

    input: float
    cached: float
    cache_write: float
    output: float


@dataclass(frozen=True, slots=True)
class Price:
    """What a model's tokens cost."""

    source: str
    """`plan`, `free`, or the table and its version."""
    rates: Rates
    dearer: tuple[tuple[int, Rates], ...] = ()
    """(input tokens, the rates for a call with more than that), smallest first."""

    def for_call(self, usage: Usage) -> tuple[float, Mapping[str, float]]:
        """The cost of one call in USD, and the rates that made it."""
        rates = self.rates
        for start, higher in self.dearer:
            if usage.input_tokens > start:
                rates = higher
        plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        cost = (
            max(0, plain) * rates.input
            + usage.cached_tokens * rates.cached
            + usage.cache_write_tokens * rates.cache_write
            + usage.output_tokens * rates.output
        )
        return cost * PER_TOKEN, {"input": rates.input, "cached": rates.cached, "output": rates.output}


FREE = Price("free", Rates(0.0, 0.0, 0.0, 0.0))


def price_call(
    name: str, usage: Usage, declared: Mapping[str, Mapping[str, float]], *, at: datetime
) -> tuple[float | None, str, Mapping[str, float]]:
    """Say what a call of `provider/model` cost: USD (None: unknown), the source, the rates used."""
    price = price_of(name, declared, at=at)
    if price is None:
        return None, "", {}
    cost, rates = price.for_call(usage)
    return cost, price.source, rates


def price_of(name: str, declared: Mapping[str, Mapping[str, float]], *, at: datetime) -> Price | None:
    """The price of `provider/model` at a moment; None when nobody knows it."""
    provider, _, model = name.partition("/")
    for each in (name, model):
        if each in declared:
            return _declared(declared[each])
    if provider in FREE_PROVIDERS or name.endswith(":free"):
        return FREE
    return _from_table(provider, model, at)


def listed_price(provider: str, model: str, *, at: datetime) -> Price | None:
    """The price of a model that somebody else asked, under the names they have; None when nobody knows it.

    Without a provider the model's name may hold it (`openai/gpt-4o`), or be one that only one provider has.
    """
    if not provider and "/" in model:
        return price_of(model, {}, at=at)
    return price_of(f"{provider}/{model}", {}, at=at)


def _declared(rates: Mapping[str, float]) -> Price:
    full = float(rates["input"])
    cached = float(rates.get("cached", full))
    return Price("plan", Rates(full, cached, float(rates.get("cache_write", full)), float(rates["output"])))


@lru_cache(maxsize=1024)
def _from_table(provider: str, model: str, at: datetime) -> Price | None:
    # Imported here because the table takes a third of a second to load, and most commands price nothing.
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, found = get_snapshot().find_provider_model(
            model, None, TABLE_PROVIDERS.get(provider, provider) or None, None
        )
    except LookupError:
        return None
    listed = found.get_prices(at)
    if getattr(listed, "input_mtok", None) is None or getattr(listed, "output_mtok", None) is None:
        return None
    starts = sorted({tier.start for price in vars(listed).values() for tier in getattr(price, "tiers", ())})
    return Price(
        f"genai-prices {version('genai-prices')}",
        _rates(listed, 0),
        tuple((start, _rates(listed, start + 1)) for start in starts),
    )


def _rates(listed: Any, input_tokens: int) -> Rates:
    full = _rate(listed.input_mtok, input_tokens)
    cached, written = getattr(listed, "cache_read_mtok", None), getattr(listed, "cache_write_mtok", None)
    return Rates(
        full,
        full if cached is None else _rate(cached, input_tokens),
        full if written is None else _rate(written, input_tokens),
        _rate(listed.output_mtok, input_tokens),
    )


def _rate(price: Any, input_tokens: int) -> float:
    """A rate may rise with the size of the prompt; the highest step reached holds for every token."""
    rate = getattr(price, "base", price)
    for tier in getattr(price, "tiers", ()):
        if input_tokens > tier.start:
            rate = tier.price
    return float(rate)


# What a call could cost at most, before anyone has counted its tokens.


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
