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
}
"""Parameters for faster answers, and how many times the usual price these cost at most."""
_ABOUT_SPEED = frozenset(FASTER)


class Rates(NamedTuple):
    """USD per million tokens."""

    input: float
    cached: float
    cache_write: float
    output: float


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a model."""

    source: str
    """`plan`, `free`, or the table and its version."""
    rates: Rates
    dearer: tuple[tuple[int, Rates], ...] = ()
    """(input tokens, rates of calls with more), smallest first."""

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
        return cost * PER_TOKEN, {"input": rates.input, "cached": rates.cached, "output": rates.output}

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

    def for_request(self, body: JsonMap) -> "Price":
        """The price of a request, in any format: providers charge more for faster answers."""
        # Looks before it reads: called for every call, of which few have any of these.
        if _ABOUT_SPEED.isdisjoint(body):
            return self
        factor = 1.0
        for name, factors in FASTER.items():
            if name in body:
                factor *= factors.get(as_text(body, name).lower(), 1.0)
        if factor == 1.0:
            return self
        dearer = tuple((start, _multiplied(rates, factor)) for start, rates in self.dearer)
        return replace(self, rates=_multiplied(self.rates, factor), dearer=dearer)


def _multiplied(rates: Rates, factor: float) -> Rates:
    return Rates(*(rate * factor for rate in rates))


FREE = Price("free", Rates(0.0, 0.0, 0.0, 0.0))


def price_of(name: str, declared: Mapping[str, Mapping[str, float]], *, at: datetime) -> Price | None:
    """The price of `provider/model` at a date; None: unknown."""
    provider, _, model = name.partition("/")
    for each in (name, model):
        if each in declared:
            return _declared(declared[each])
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
    if not provider and "/" in model:
        return price_of(model, {}, at=at)
    return price_of(f"{provider}/{model}", {}, at=at)


def _declared(rates: Mapping[str, float]) -> Price:
    full = float(rates["input"])
    cached = float(rates.get("cached", full))
    return Price("plan", Rates(full, cached, float(rates.get("cache_write", full)), float(rates["output"])))


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
    """A rate may rise with the prompt size; the highest tier reached applies to all tokens."""
    rate = getattr(price, "base", price)
    for tier in getattr(price, "tiers", ()):
        if input_tokens > tier.start:
            rate = tier.price
    return float(rate)


# English has four letters per token, source code three, and Chinese one character of three bytes.
BYTES_PER_TOKEN = 3

# Highest cost of an image observed; it does not depend on the size in bytes.
TOKENS_PER_IMAGE = 2000
IMAGE_KEYS = ("data", "image_url", "url")
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
"""Maximum answer length of model families, for requests without a limit."""
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
HOSTED_TOOL_USES = 3
"""Uses of tools that the provider runs itself, for requests that do not limit them."""
HOSTED_RESULT_TOKENS = 8000
"""Size of a result of such a tool, which the model reads in addition to the prompt."""

# No model reads or writes as many tokens in one call.
MOST_TOKENS = 4_000_000
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
    """None: the price is unknown."""
    output_usd_per_token: float | None
    answers: int = 1
    """Answers that the request makes the provider generate."""

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
    """Lowered maximum length of the answer. None: as requested."""
    settle: Callable[[float | None], None] | None = None
    """Called once with the call's cost after it was recorded; None: the price is unknown."""
    lose: Callable[[float | None], None] | None = None
    """Called instead of `settle` when the call broke off, with the part of its cost that was recorded."""


def usual_limit(model: str) -> int:
    """Maximum answer length of `model` when the request sets none."""
    name = model.rpartition("/")[2]
    return next(limit for family, limit in USUAL_LIMITS if re.match(family, name))


def worst_case_of(
    model: str, body: JsonMap, output_limit: int | None, price: Price | None
) -> SpendingRequest:
    """The worst case of one call; `body` is the request in any format."""
    tokens = estimated_tokens(body)
    if uses := _hosted_tool_uses(body):
        # The model reads the prompt again after each use.
        tokens = tokens * (1 + uses) + HOSTED_RESULT_TOKENS * uses * (uses + 1) // 2
    input_usd = output_usd = None
    if price is not None:
        price = price.for_request(body)
        # Writing to the cache has the highest rate.
        cached = price.for_call(Usage(input_tokens=tokens, cache_write_tokens=tokens))[0]
        input_usd = max(cached, price.for_call(Usage(input_tokens=tokens))[0])
        rates = price.for_call(Usage(input_tokens=tokens))[1]
        output_usd = rates["output"] / 1e6
    return SpendingRequest(
        model=model,
        input_tokens=tokens,
        output_tokens=output_limit or usual_limit(model),
        input_usd=input_usd,
        output_usd_per_token=output_usd,
        answers=answer_count(body),
    )


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


def _hosted_tool_uses(body: JsonMap) -> int:
    """How often tools that the provider runs itself, such as a web search, may be used."""
    hosted = [tool for tool in maps_in(body, "tools") if _is_hosted(tool)]
    if not hosted:
        return 0
    declared = [positive(tool.get("max_uses")) for tool in hosted]
    uses = sum(HOSTED_TOOL_USES if limit is None else limit for limit in declared)
    return min(uses, positive(body.get("max_tool_calls")) or uses)


def _is_hosted(tool: JsonMap) -> bool:
    if "functionDeclarations" in tool or "function" in tool or "input_schema" in tool:
        return False
    if "type" not in tool:
        # Gemini names its own tools by the member that configures them.
        return any(name in tool for name in ("googleSearch", "googleSearchRetrieval", "urlContext"))
    return str(tool["type"]).startswith(("web_search", "web_fetch", "file_search", "code_execution", "mcp"))


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


def billed_usage(
    answer: WireAnswer, body: JsonMap, limit: int | None, price: Price | None
) -> tuple[Usage, bool]:
    """The tokens to charge for an answer, and whether they are an estimate.

    `limit` is the maximum length of one answer; None: not set. Counts that are missing, or higher than the
    request allows, are replaced by an estimate from the texts: no answer of a model with a price is free.
    """
    usage = answer.usage
    if price is None or not any(price.rates):
        return usage, False
    answers = answer_count(body)
    input_tokens, output_tokens, reasoning = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    # A provider may count hidden reasoning beyond the limit, and stop tokens; never a longer text.
    allowed = MOST_TOKENS if limit is None else limit + limit // 4 + 256
    visible = output_tokens - reasoning
    if not 0 < input_tokens <= MOST_TOKENS:
        input_tokens = estimated_tokens(body)
    is_wrong = visible < 0 or visible > allowed * answers or output_tokens > MOST_TOKENS * answers
    if is_wrong or not output_tokens:
        written_tokens = answer_tokens(answer, body)
        if is_wrong or written_tokens:
            output_tokens, reasoning = written_tokens, 0
    cached = usage.cached_tokens if usage.cached_tokens <= input_tokens else 0
    written = usage.cache_write_tokens if cached + usage.cache_write_tokens <= input_tokens else 0
    counts = (input_tokens, cached, output_tokens, reasoning, written)
    if counts == (
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.cache_write_tokens,
    ):
        return usage, False
    return (
        Usage(
            input_tokens=input_tokens,
            cached_tokens=cached,
            output_tokens=output_tokens,
            reasoning_tokens=reasoning,
            cache_write_tokens=written,
        ),
        True,
    )


def answer_tokens(answer: WireAnswer, body: JsonMap) -> int:
    """Estimated tokens of all answers to a request."""
    texts = [answer.text, *(each.arguments for each in answer.tool_requests), answer.other_text]
    tokens = -(-len("".join(texts).encode("utf-8", "replace")) // BYTES_PER_TOKEN)
    # Where only one answer was read, the others are taken to be as long.
    return tokens if answer.other_text else tokens * answer_count(body)


def estimated_tokens(body: object) -> int:
    """Estimated tokens of a request, rather too many than too few."""
    return _size(body) // BYTES_PER_TOKEN + 1


def _size(value: object) -> int:
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            size += len(each.encode("utf-8", "replace")) if not each.isascii() else len(each)
        elif isinstance(each, Mapping):
            for key, below in each.items():
                size += len(key) + 4
                if key in IMAGE_KEYS and isinstance(below, str) and _is_image(below):
                    size += TOKENS_PER_IMAGE * BYTES_PER_TOKEN
                else:
                    waiting.append(below)
        elif isinstance(each, list | tuple):
            waiting += each
        else:
            size += 4
    return size


def _is_image(text: str) -> bool:
    return text.startswith("data:") or (len(text) > 1000 and " " not in text[:1000])


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
