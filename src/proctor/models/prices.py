"""Price of a call, with its source.

A declared price wins; free providers cost nothing; the rest is looked up in the installed genai-prices table.
The cost of a model without a known price is unknown (None), never 0.

That table is one Python module of 1.5 MB. Where Python may not write compiled files, importing it takes 0.4 s
and 58 MB; reading only the requested provider takes some milliseconds.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from proctor.json_values import JsonMap, JsonObject, as_map, as_text, maps_in, member, parsed_integer
from proctor.model import WireAnswer
from proctor.session import Usage

FREE_PROVIDERS = frozenset({"scripted", "replay", "ollama", "local", "lmstudio", "vllm"})
TABLE_PROVIDERS = {"gemini": "google", "xai": "x-ai"}
"""Proctor's name of a provider → the table's, where they differ."""
FRAMEWORKS = frozenset(("strands-agents", "strands", "autogen", "langchain", "crewai", "smolagents"))
"""Agent frameworks that their telemetry names where the provider belongs."""
# An id of Bedrock: a region or none, the vendor, the model, its version.
_BEDROCK = re.compile(
    r"(?:[a-z]{2,6}\.)?(?:anthropic|amazon|meta|mistral|cohere|ai21|deepseek|openai|qwen)\.\S"
)
PER_TOKEN = 1e-6
FASTER: Mapping[str, Mapping[str, float]] = {
    "service_tier": {"priority": 2.0},
    "serviceTier": {"priority": 2.0},
    "speed": {"fast": 6.0},
    "inference_geo": {"us": 1.1},
}
"""Parameters for faster answers, or for a region, and how many times the usual price these cost at most."""
_ABOUT_PRICE = frozenset((*FASTER, "tools"))


class Rates(NamedTuple):
    """USD per million tokens."""

    input: float
    cached: float
    cache_write: float
    output: float
    long_cache_write: float = 0.0
    """Of tokens that the cache keeps for an hour; 0: as `cache_write`."""


WRITE_FACTOR, LONG_WRITE_FACTOR = 1.25, 2.0
"""What Anthropic charges for writing to the cache for 5 minutes and for an hour, as multiples of the input
price (its pricing page, November 2026)."""
SEARCH_USD = 0.01
"""Fee of one web search by the provider: $10 per 1,000 at Anthropic and OpenAI (November 2026)."""
PREVIEW_SEARCH_USD = 0.025
"""The same for `web_search_preview` at OpenAI, where the model does not reason."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a model."""

    source: str
    """`plan`, `free`, or the table and its version."""
    rates: Rates
    dearer: tuple[tuple[int, Rates], ...] = ()
    """(input tokens, rates of calls with more), smallest first."""
    search_usd: float = SEARCH_USD
    """Fee of one web search by the provider."""

    def for_call(self, usage: Usage) -> tuple[float, Mapping[str, float]]:
        """Cost of one call in USD, and the rates used."""
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
        if usage.long_cache_write_tokens and rates.long_cache_write:
            cost += usage.long_cache_write_tokens * (rates.long_cache_write - rates.cache_write)
        cost = cost * PER_TOKEN + usage.web_searches * self.search_usd
        return cost, {"input": rates.input, "cached": rates.cached, "output": rates.output}

    def for_calls(self, calls: int, usage: Usage) -> float:
        """Approximate cost in USD of calls that use these tokens together.

        The average call is priced: rates rise with the size of a call, not with their number.
        """
        if not calls:
            return 0.0
        average = Usage(
            input_tokens=round(usage.input_tokens / calls),
            cached_tokens=round(usage.cached_tokens / calls),
            output_tokens=round(usage.output_tokens / calls),
        )
        return self.for_call(average)[0] * calls

    def for_answer(self, body: JsonMap, answer: WireAnswer) -> "Price":
        """The price of an answered request: what the provider says it applied counts, where that is more."""
        asked = self.for_request(body)
        if not answer.billed_as:
            return asked
        applied = self.for_request({**body, **answer.billed_as})
        return applied if applied.rates.output > asked.rates.output else asked

    def for_request(self, body: JsonMap) -> "Price":
        """The price of a request, in any format: providers charge more for faster answers."""
        # Looks before it reads: called for every call, of which few have any of these.
        if _ABOUT_PRICE.isdisjoint(body):
            return self
        kinds = [as_text(tool, "type") for tool in maps_in(body, "tools")]
        if any(kind.startswith("web_search_preview") for kind in kinds):
            return replace(self, search_usd=max(self.search_usd, PREVIEW_SEARCH_USD))._faster(body)
        return self._faster(body)

    def _faster(self, body: JsonMap) -> "Price":
        factor = 1.0
        for name, factors in FASTER.items():
            if name in body:
                factor *= factors.get(as_text(body, name).lower(), 1.0)
        return self if factor == 1.0 else self.times(factor)

    def times(self, factor: float) -> "Price":
        """The price with all rates multiplied."""
        dearer = tuple((start, _multiplied(rates, factor)) for start, rates in self.dearer)
        return replace(self, rates=_multiplied(self.rates, factor), dearer=dearer)


def _multiplied(rates: Rates, factor: float) -> Rates:
    return Rates(*(rate * factor for rate in rates))


BATCH_FACTOR = 0.5
"""What calls in a batch of their provider cost of those that are sent alone, at all that have batches."""
FREE = Price("free", Rates(0.0, 0.0, 0.0, 0.0))


def price_of(name: str, declared: Mapping[str, Mapping[str, float]], *, at: datetime) -> Price | None:
    """The price of `provider/model` at a date; None: unknown."""
    provider, _, model = name.partition("/")
    for known_as in (name, model):
        if known_as in declared:
            return _declared(declared[known_as], name)
    # The name alone proves nothing: only OpenRouter defines this ending.
    if provider in FREE_PROVIDERS or (provider == "openrouter" and name.endswith(":free")):
        return FREE
    return _table_price(provider, model, at)


def listed_price(provider: str, model: str, *, at: datetime) -> Price | None:
    """The list price of a model that another tool called; None: unknown.

    Without a provider, or with a framework in its place, the name may contain it (`openai/gpt-4o`, or the
    vendor in an id of Bedrock), or be one that only one provider has.
    """
    if provider in FRAMEWORKS:
        provider = ""
    if not provider and _BEDROCK.match(model):
        provider = "aws"
    if "/publishers/" in model and "/models/" in model:
        # The full name of a model of Vertex AI.
        provider, model = "google", model.rpartition("/")[2]
    if "/" in model and provider in ("", model.partition("/")[0]):
        return price_of(model, {}, at=at)
    return price_of(f"{provider}/{model}", {}, at=at)


def _declared(rates: Mapping[str, float], name: str) -> Price:
    full = float(rates["input"])
    cached = float(rates.get("cached", full))
    charges_writes = name.startswith("anthropic/") or "claude" in name
    written = float(rates.get("cache_write", full * WRITE_FACTOR if charges_writes else full))
    long = max(written, full * LONG_WRITE_FACTOR) if charges_writes else written
    return Price("plan", Rates(full, cached, written, float(rates["output"]), long))


@lru_cache(maxsize=1024)
def _table_price(provider: str, model: str, at: datetime) -> Price | None:
    model_info = find_model(TABLE_PROVIDERS.get(provider, provider), model)
    if model_info is None:
        return None
    listed = model_info.get_prices(at)
    if getattr(listed, "input_mtok", None) is None or getattr(listed, "output_mtok", None) is None:
        return None
    starts = sorted({tier.start for price in vars(listed).values() for tier in getattr(price, "tiers", ())})
    return Price(
        f"genai-prices {version('genai-prices')}",
        _rates(listed, 0),
        tuple((start, _rates(listed, start + 1)) for start in starts),
        max(SEARCH_USD, float(getattr(listed, "web_searches_kcount", None) or 0.0) / 1000),
    )


def _rates(listed: Any, input_tokens: int) -> Rates:
    full = _rate(listed.input_mtok, input_tokens)
    cached, written = getattr(listed, "cache_read_mtok", None), getattr(listed, "cache_write_mtok", None)
    hourly = getattr(listed, "cache_write_1h_mtok", None)
    # Only Anthropic has a price for writing; older tables lack that of an hour.
    long = 0.0 if written is None else full * LONG_WRITE_FACTOR
    return Rates(
        full,
        full if cached is None else _rate(cached, input_tokens),
        full if written is None else _rate(written, input_tokens),
        _rate(listed.output_mtok, input_tokens),
        long if hourly is None else _rate(hourly, input_tokens),
    )


def _rate(price: Any, input_tokens: int) -> float:
    """A rate may rise with the prompt size; the highest tier reached applies to all tokens."""
    rate = getattr(price, "base", price)
    for tier in getattr(price, "tiers", ()):
        if input_tokens > tier.start:
            rate = tier.price
    return float(rate)


OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")
USUAL_LIMITS = (
    (r"claude-3-(opus|haiku|sonnet)", 4096),
    (r"claude-3-5", 8192),
    (r"claude-(opus-4(-0|-1|-2025|$)|4-opus)", 32_000),
    (r"claude", 64_000),
    (r"gpt-5-chat|gpt-4o-2024-0[8-9]|gpt-4o-2024-1|gpt-4o(?!-2024)|chatgpt-4o", 16_384),
    (r"gpt-3|gpt-4(?!\.)", 4096),
    (r"gpt-5", 128_000),
    (r"o1-preview", 32_768),
    (r"o1-mini", 65_536),
    (r"o[1-9]", 100_000),
    (r"gpt-4\.1", 32_768),
    (r"gemini-(1|2\.0)", 8192),
    (r"gemini-[2-9]", 65_536),
    (r"deepseek-(chat|v)", 8192),
    (r"", 16_384),
)
"""Maximum answer length of model families, for requests without a limit: where there is a budget, the limit
that is reserved and sent. Providers reject one that is higher than the model's own."""
REASONING = re.compile(
    r"o[1-9]|gpt-5(?!-chat)|gpt-oss|gemini-(2\.5|[3-9])|deepseek-(reasoner|r)|grok-[34]|magistral|qwq|qwen-?3"
    r"|.*(thinking|reasoning)"
)
"""Models that reason before each answer, which counts for its length."""
COMPLETION_COUNTS = ("n", "best_of", "num_return_sequences", "candidateCount", "candidate_count")
"""Parameters that make the provider generate, and bill, several answers to one request."""
PARAMETER_GROUPS = ("generationConfig", "generation_config", "extra_body")
"""Members of a request that hold parameters."""
_ABOUT_ANSWERS = frozenset((*COMPLETION_COUNTS, *PARAMETER_GROUPS))
THINKING_BUDGETS = (
    ("thinking", "budget_tokens"),
    ("reasoning", "max_tokens"),
    ("thinking_budget",),
    ("extra_body", "google", "thinking_config", "thinking_budget"),
)
"""Where requests set how long a model may reason."""
SMALLEST_THINKING_BUDGET = 1024
"""Anthropic takes none below it."""
ESTIMATED = " (estimated)"
"""Ends the source of a price when the tokens, and so the cost, are an estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingRequest:
    """Worst-case cost of a call, before it is made."""

    model: str
    input_tokens: int
    """Estimated from the size of the request, rather too high than too low."""
    output_tokens: int
    """The maximum of one answer: as requested, or as such models allow."""
    input_usd: float | None
    """Everything but the answers: the prompt, and the fees of tools. None: the price is unknown."""
    output_usd_per_token: float | None
    answers: int = 1
    """Answers that the request makes the provider generate."""
    margin_usd: float = 0.0
    """Cost of reasoning beyond the limit, for servers that are not known to count it in the limit."""
    sets_limit: bool = False
    """Whether the request has no limit, so that `output_tokens` must be sent with it."""
    refusal: str = ""
    """Why the cost has no bound, and what to do about it; empty: it has one."""

    @property
    def cost_usd(self) -> float | None:
        """The total; None: the price is unknown."""
        if self.input_usd is None or self.output_usd_per_token is None:
            return None
        return self.input_usd + self.answers * self.output_tokens * self.output_usd_per_token

    def affordable_tokens(self, usd: float) -> int:
        """Length of each answer that `usd` pays for; 0 when the answers cost nothing."""
        if not self.output_usd_per_token or self.input_usd is None:
            return 0
        return int((usd - self.input_usd) / self.output_usd_per_token / self.answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The response to a `SpendingRequest`."""

    refused: str = ""
    """Why the call may not be made; empty: it may."""
    most_output_tokens: int | None = None
    """Maximum length of the answer to send. None: as requested."""
    is_limited: bool = False
    """Whether there is a budget, so that every limit that was reserved must be sent."""
    is_refusal_final: bool = True
    """Whether no other call may be made either."""
    settle: Callable[[float | None], None] | None = None
    """Called once with the call's cost after it was recorded; None: the price is unknown."""
    lose: Callable[[float | None], None] | None = None
    """Called instead of `settle` when the call broke off, with the part of its cost that was recorded."""


def usual_limit(model: str) -> int:
    """Maximum answer length of `model` when the request sets none."""
    name = model.rpartition("/")[2]
    return next(limit for family, limit in USUAL_LIMITS if re.match(family, name))


def answer_count(body: JsonMap) -> int:
    """How many answers a request, in any format, makes the provider generate."""
    # Looks before it reads: called for every call, of which few have any of these.
    if _ABOUT_ANSWERS.isdisjoint(body):
        return 1
    groups = (body, *(as_map(body, name) for name in PARAMETER_GROUPS if name in body))
    counts = [group[name] for group in groups for name in COMPLETION_COUNTS if name in group]
    return max(positive(count) or 1 for count in counts) if counts else 1


def thinking_budget(body: JsonMap) -> int:
    """How many tokens a request lets the model reason; 0: it does not say."""
    return max(positive(member(body, *path)) or 0 for path in THINKING_BUDGETS)


def positive(value: object) -> int | None:
    """A positive integer, also one that is written as text or with a decimal point; None otherwise."""
    number = None if isinstance(value, bool) else parsed_integer(value)
    return number if number is not None and number > 0 else None


def output_limit(parameters: JsonMap) -> int | None:
    """Maximum length of one answer that the parameters set; None: they do not.

    Which name a server obeys is unknown: the highest counts. A reasoning budget is part of the limit, unless
    it is as high.
    """
    if not parameters:
        return None
    limits = [limit for name in OUTPUT_LIMITS if name in parameters and (limit := positive(parameters[name]))]
    if not limits:
        return None
    budget = thinking_budget(parameters)
    return max(limits) + (budget if budget >= max(limits) else 0)


def expected_limit(model: str, parameters: JsonMap, tokens: int) -> int:
    """The limit to send for an answer of `tokens`: what the model reasons before it comes on top."""
    name, most = model.rpartition("/")[2], usual_limit(model)
    if REASONING.match(name) or {"reasoning_effort", "reasoning"} & parameters.keys():
        return most
    return min(tokens, most) + thinking_budget(parameters)


def with_output_limit(parameters: JsonMap, limit: int) -> JsonObject:
    """The parameters with a lower maximum answer length, and a reasoning budget below it."""
    names = [name for name in OUTPUT_LIMITS if parameters.get(name)] or OUTPUT_LIMITS[-1:]
    lowered = {**parameters, **dict.fromkeys(names, limit)}
    for group, name in (("thinking", "budget_tokens"), ("reasoning", "max_tokens")):
        settings = as_map(parameters, group)
        if (positive(settings.get(name)) or 0) >= limit:
            off: JsonObject = {"type": "disabled"} if group == "thinking" else {"enabled": False}
            fits = limit > SMALLEST_THINKING_BUDGET
            lowered[group] = {**settings, name: limit - 1} if fits else off
    return lowered


PROVIDER_START = "\n    Provider(\n        id='"
"""How the source of a provider begins in the module of the table."""


def find_model(provider: str, model: str) -> Any:
    """The entry of a model, as the library finds it; None: there is none. Without a provider, of any."""
    # Imported here: it takes a tenth of a second, and most commands price nothing.
    from genai_prices import data_snapshot

    snapshot = None
    if data_snapshot._custom_snapshot is None and provider in _sources():
        snapshot = _snapshot(provider)
    try:
        return (snapshot or data_snapshot.get_snapshot()).find_provider_model(
            model, None, provider or None, None
        )[1]
    except LookupError:
        return None


@cache
def _snapshot(provider: str) -> Any:
    """A table with one provider, and those whose models it offers as well."""
    from genai_prices.data_snapshot import DataSnapshot

    first = _provider(provider)
    others = [_provider(name) for name in first.fallback_model_providers or () if name in _sources()]
    return DataSnapshot(providers=[first, *others], from_auto_update=False)


@cache
def _provider(name: str) -> Any:
    import datetime
    from decimal import Decimal

    from genai_prices import types

    # The library's own source, which importing the table would execute as a whole.
    names = {**vars(types), "datetime": datetime, "Decimal": Decimal}
    return eval(compile(_sources()[name], "genai_prices/data.py", "eval"), names)


@lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    """The source of each provider by its name; empty when the module looks different from what is known."""
    spec = find_spec("genai_prices")
    if spec is None or not spec.submodule_search_locations:
        return {}
    try:
        text = (Path(spec.submodule_search_locations[0]) / "data.py").read_text(encoding="utf-8")
    except OSError:
        return {}
    _, *parts = text.split(PROVIDER_START)
    sources = dict[str, str]()
    for part in parts:
        name, _, _ = part.partition("'")
        body = part.rstrip().removesuffix("]").rstrip().removesuffix(",")
        sources[name] = f"{PROVIDER_START.strip()}{body}"
    return sources
