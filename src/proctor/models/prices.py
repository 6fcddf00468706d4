"""What a call costs, and where that price came from.

A price the user declared wins; names that cost nothing are free; the rest is looked up in the
table of genai-prices that is installed. A model nobody has a price for costs *unknown*, never 0.

Knows nothing of providers' answers or of budgets.
"""

from collections.abc import Mapping
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
