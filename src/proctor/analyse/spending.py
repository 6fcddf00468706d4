"""What the work used: tokens, calls and money, by model.

These are sums over every model call of every attempt, failed and repeated ones too: all of them were
paid for. A call without a known price is counted and said, never taken for free.

Knows nothing of what the work came to.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.analyse.selection import Selection
from proctor.store.recorder import FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUsage:
    """All calls of one model."""

    model: str
    calls: int
    failed_calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cost_usd: float | None
    """The sum of the calls whose price is known; None when none is."""
    unpriced_calls: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def average_tokens(self) -> float:
        """Per call."""
        return self.total_tokens / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of all calls together."""

    prompt: int
    cached: int
    completion: int
    reasoning: int
    calls: int

    @property
    def total(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The money spent on model calls."""

    known_usd: float | None
    """The sum of the calls whose price is known; None when none is."""
    unpriced_calls: int
    judging_usd: float | None
    """What evaluators say their judgements cost; not part of `known_usd`."""

    @property
    def is_complete(self) -> bool:
        """Whether the price of every call is known."""
        return self.unpriced_calls == 0

    def per_success_usd(self, successes: int) -> float | None:
        """What one success cost, everything paid for; None when that cannot be said."""
        if self.known_usd is None or not self.is_complete or not successes:
            return None
        return self.known_usd / successes


def model_usage(selection: Selection) -> tuple[ModelUsage, ...]:
    """What each model was used for, the one with most tokens first."""
    free = ", ".join(f"'{status}'" for status in sorted(FREE))
    found = selection.of_events(
        "model_calls",
        't."model" AS "model", COUNT(*) AS "calls", '
        'SUM(CASE WHEN t."status" = \'ok\' THEN 0 ELSE 1 END) AS "failed", '
        'SUM(t."promptTokens") AS "prompt", SUM(t."cachedTokens") AS "cached", '
        'SUM(t."completionTokens") AS "completion", SUM(t."reasoningTokens") AS "reasoning", '
        'SUM(t."costUsd") AS "cost", '
        f'SUM(CASE WHEN t."costUsd" IS NULL AND t."status" NOT IN ({free}) THEN 1 ELSE 0 END) AS "unpriced"',
        'GROUP BY t."model"',
    )
    used = [
        ModelUsage(
            model=row["model"],
            calls=row["calls"],
            failed_calls=row["failed"],
            prompt_tokens=row["prompt"],
            cached_tokens=row["cached"],
            completion_tokens=row["completion"],
            reasoning_tokens=row["reasoning"],
            cost_usd=row["cost"],
            unpriced_calls=row["unpriced"],
        )
        for row in found
    ]
    return tuple(sorted(used, key=lambda usage: (-usage.total_tokens, usage.model)))


def tokens_of(models: Sequence[ModelUsage]) -> Tokens:
    """The tokens of all models together."""
    return Tokens(
        prompt=sum(usage.prompt_tokens for usage in models),
        cached=sum(usage.cached_tokens for usage in models),
        completion=sum(usage.completion_tokens for usage in models),
        reasoning=sum(usage.reasoning_tokens for usage in models),
        calls=sum(usage.calls for usage in models),
    )


def cost_of(models: Sequence[ModelUsage], judging_usd: float | None) -> Cost:
    """The money of all models together."""
    known = [usage.cost_usd for usage in models if usage.cost_usd is not None]
    return Cost(
        known_usd=sum(known) if known else None,
        unpriced_calls=sum(usage.unpriced_calls for usage in models),
        judging_usd=judging_usd,
    )


def judging_cost(selection: Selection) -> float | None:
    """What evaluators say that judging these sessions cost; None when none said."""
    (found,) = selection.of_few_events("scores", 'SUM(t."costUsd") AS "usd"')
    return None if found["usd"] is None else float(found["usd"])
