"""Time, tokens, cost and tools, summed over every attempt, including retries."""

import bisect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from proctor.stats.intervals import sample_std
from proctor.store.aggregates import MergeCount, ModelSums, RankedDuration, StepSums, ToolSums

WANTED_BINS = 12

# A longer tail, in 99th percentiles, would compress everything else into one bar.
LONG_TAIL = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One bar of a histogram."""

    low: float
    high: float
    """Not part of the bar, but for the last one."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """From the start of an item to its end, in seconds, over the items that ended. It describes these items;
    what tasks like these take is in the figures of the run."""

    items: int
    mean: float | None
    std: float | None
    median: float | None
    p90: float | None
    longest: float | None
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Some of `n` ordered values, each with its rank, counted from 1. The last is always there."""

    n: int
    ranks: Sequence[int]
    values: Sequence[float]

    def at(self, rank: int) -> float:
        """The value of a rank from 1; ranks beyond the ends give the first or last value."""
        return self.values[bisect.bisect_left(self.ranks, min(max(rank, 1), self.n))]

    def below(self, value: float) -> int:
        """How many of the `n` are smaller."""
        index = bisect.bisect_left(self.values, value)
        return self.ranks[index - 1] if index else 0


def durations(rows: Sequence[RankedDuration]) -> Durations:
    """How long the finished items took; `rows` are ordered, and the first and last are among them."""
    if not rows:
        return Durations(
            items=0,
            mean=None,
            std=None,
            median=None,
            p90=None,
            longest=None,
            bins=(),
        )
    n, total, squares = rows[0]["n"], rows[0]["total"], rows[0]["squares"]
    ranked = _Ranked(n, [row["rank"] for row in rows], [max(0.0, row["v"]) for row in rows])
    return Durations(
        items=n,
        mean=total / n,
        std=sample_std(n, total, squares),
        median=(ranked.at((n + 1) // 2) + ranked.at(n // 2 + 1)) / 2,
        p90=ranked.at(math.ceil(0.9 * n)),
        longest=ranked.values[-1],
        bins=_bins(ranked),
    )


def _bins(ranked: _Ranked) -> tuple[Bin, ...]:
    longest, usual = ranked.values[-1], ranked.at(math.ceil(0.99 * ranked.n))
    top = usual if longest > LONG_TAIL * usual > 0 else longest
    width = nice_step(top / WANTED_BINS) if top > 0 else 1.0
    edges = [index * width for index in range(int(top / width) + 2)]
    counts = [ranked.below(edge) for edge in edges[1:]]
    bins = [
        Bin(low=low, high=high, count=until - before)
        for low, high, before, until in zip(edges, edges[1:], [0, *counts], counts, strict=False)
    ]
    if counts[-1] < ranked.n:
        bins.append(Bin(low=edges[-1], high=longest, count=ranked.n - counts[-1]))
    return tuple(bins)


def nice_step(rough: float) -> float:
    """The next 1, 2 or 5 times a power of ten: steps that people count in."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))


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


def model_usage(rows: Iterable[ModelSums]) -> tuple[ModelUsage, ...]:
    """The usage of each model, the one with most tokens first."""
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
        for row in rows
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsage:
    """All calls of one tool."""

    tool: str
    calls: int
    succeeded: int
    judged: int
    """Calls of which it is known how they ended."""
    average_ms: float | None
    """Over the calls that were measured; None when none was."""

    @property
    def success_rate(self) -> float | None:
        return self.succeeded / self.judged if self.judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCall:
    """One of the longest tool calls."""

    tool: str
    duration_ms: float
    success: bool | None
    session_id: str
    arguments: str
    """As JSON, the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the iterations of all sessions amount to."""

    iterations: int
    checks: int
    """How many were checked."""
    checks_passed: int
    changed_files: int
    lines_added: int
    lines_removed: int


def tool_usage(
    rows: Sequence[ToolSums], arguments: Callable[[str, int], str]
) -> tuple[tuple[ToolUsage, ...], tuple[SlowCall, ...]]:
    """How often each tool was used and succeeded, the most used first; and the slowest calls.

    `arguments` returns those of the call at a position of a session.
    """
    usage = tuple(
        ToolUsage(
            tool=row["tool"],
            calls=row["calls"],
            succeeded=row["succeeded"] or 0,
            judged=row["judged"],
            average_ms=row["ms"] / row["measured"] if row["ms"] is not None else None,
        )
        for row in rows
        if row["session"] is None
    )
    slow = [
        (row["ms"], row["session"], row["position"], row)
        for row in rows
        if row["ms"] is not None and row["session"] is not None and row["position"] is not None
    ]
    slow.sort(key=lambda call: (-call[0], call[1], call[2]))
    return (
        tuple(sorted(usage, key=lambda tool: (-tool.calls, tool.tool))),
        tuple(
            SlowCall(
                tool=row["tool"],
                duration_ms=ms,
                success=bool(row["succeeded"]) if row["judged"] else None,
                session_id=session,
                arguments=arguments(session, position),
            )
            for ms, session, position, row in slow
        ),
    )


def steps(sums: StepSums) -> Steps:
    """The iterations, their checks and their changes."""
    return Steps(
        iterations=sums["n"],
        checks=sums["checks"] or 0,
        checks_passed=sums["passed"] or 0,
        changed_files=sums["files"] or 0,
        lines_added=sums["added"] or 0,
        lines_removed=sums["removed"] or 0,
    )


def merges(rows: Iterable[MergeCount]) -> Mapping[str, int]:
    """How many attempts to merge had each result."""
    return {row["result"]: row["n"] for row in rows}
