"""What the agents did: tools they used, what they changed, checks that ran, merges that were tried.

Sums over every attempt, also those that were repeated.

Knows nothing of money or of how results are shown.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.stats.intervals import Estimate, mean, median_ranks, sample_std
from proctor.store.aggregates import Row, Selection
from proctor.store.recorder import FREE

# How long items took.


KEPT_RANKS = 1000


WANTED_BINS = 12


# A tail longer than this many times the 99th percentile would squeeze everything else into one bar.
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
    """From the start of an item to its end, in seconds, over the items that ended."""

    items: int
    mean: Estimate
    std: float | None
    median: Estimate
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
        return self.values[bisect.bisect_left(self.ranks, min(max(rank, 1), self.n))]

    def below(self, value: float) -> int:
        """How many of the `n` are smaller."""
        index = bisect.bisect_left(self.values, value)
        return self.ranks[index - 1] if index else 0


def durations(selection: Selection) -> Durations:
    """How long the finished items took, from first to last."""
    rows = _ordered(selection)
    if not rows:
        return Durations(
            items=0,
            mean=Estimate(value=None),
            std=None,
            median=Estimate(value=None),
            p90=None,
            longest=None,
            bins=(),
        )
    n, total, squares = rows[0]["n"], rows[0]["total"], rows[0]["squares"]
    ranked = _Ranked(n, [row["rank"] for row in rows], [max(0.0, row["v"]) for row in rows])
    return Durations(
        items=n,
        mean=mean(n, total, squares),
        std=sample_std(n, total, squares),
        median=_median(ranked),
        p90=ranked.at(math.ceil(0.9 * n)),
        longest=ranked.values[-1],
        bins=_bins(ranked),
    )


def _ordered(selection: Selection) -> list[Row]:
    """Some durations with their ranks, shortest first, each with the sums over all of them."""
    seconds = selection.seconds('i."startedAt"', 'i."finishedAt"')
    # Materialized: the time between two texts costs more than all the rest, and is needed three times.
    return selection.read.query(
        f'WITH "d" AS MATERIALIZED (SELECT {seconds} AS "v" FROM "batch_items" i WHERE {selection.items} '
        'AND i."startedAt" IS NOT NULL AND i."finishedAt" IS NOT NULL), '
        '"sums" AS (SELECT COUNT(*) AS "n", SUM("v") AS "total", SUM("v" * "v") AS "squares" FROM "d"), '
        '"ordered" AS (SELECT "v", ROW_NUMBER() OVER (ORDER BY "v") AS "rank" FROM "d") '
        'SELECT "v", "rank", "n", "total", "squares" FROM "ordered", "sums" WHERE "rank" = 1 '
        f'OR "rank" = "n" OR "rank" % (("n" + {KEPT_RANKS - 1}) / {KEPT_RANKS}) = 0 ORDER BY "rank"',
        selection.item_parameters,
    )


def _median(ranked: _Ranked) -> Estimate:
    n = ranked.n
    middle = (ranked.at((n + 1) // 2) + ranked.at(n // 2 + 1)) / 2
    ranks = median_ranks(n)
    if ranks is None:
        return Estimate(value=middle, n=n)
    return Estimate(value=middle, low=ranked.at(ranks[0]), high=ranked.at(ranks[1]), n=n)


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


# What the work used: tokens, calls and money, by model.


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


SLOWEST = 10


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


def tool_usage(selection: Selection) -> tuple[tuple[ToolUsage, ...], tuple[SlowCall, ...]]:
    """How often each tool was used and how that went, the most used first; and the slowest calls."""
    rows = _calls(selection)
    usage = tuple(
        ToolUsage(
            tool=row["tool"],
            calls=row["calls"],
            succeeded=row["succeeded"] or 0,
            judged=row["judged"],
            average_ms=row["ms"] / row["measured"] if row["measured"] else None,
        )
        for row in rows
        if row["session"] is None
    )
    slow = [row for row in rows if row["session"] is not None]
    return (
        tuple(sorted(usage, key=lambda tool: (-tool.calls, tool.tool))),
        tuple(_slow_call(selection, row) for row in sorted(slow, key=_slowest_first)),
    )


def _slowest_first(row: Row) -> tuple[float, str, int]:
    return -row["ms"], row["session"], row["position"]


def _calls(selection: Selection) -> list[Row]:
    """One row for each tool, then one for each of the slowest calls, which also has a session."""
    # Finding the calls costs more than counting them, so both answers come from one search.
    return selection.read.query(
        'WITH "c" AS MATERIALIZED (SELECT "toolName" AS "tool", "success", "durationMs" AS "ms", '
        f'"sessionId" AS "session", "position" FROM "tool_calls" t WHERE {selection.events}), '
        '"slow" AS (SELECT * FROM "c" WHERE "ms" IS NOT NULL '
        f'ORDER BY "ms" DESC, "session", "position" LIMIT {SLOWEST}) '
        'SELECT "tool", COUNT(*) AS "calls", SUM("success") AS "succeeded", COUNT("success") AS "judged", '
        'SUM("ms") AS "ms", COUNT("ms") AS "measured", CAST(NULL AS TEXT) AS "session", '
        'CAST(NULL AS BIGINT) AS "position" FROM "c" GROUP BY "tool" UNION ALL '
        'SELECT "tool", 1, "success", COUNT("success"), "ms", 1, "session", "position" FROM "slow" '
        'GROUP BY "tool", "success", "ms", "session", "position"',
        selection.session_parameters,
    )


def _slow_call(selection: Selection, row: Row) -> SlowCall:
    return SlowCall(
        tool=row["tool"],
        duration_ms=row["ms"],
        success=bool(row["succeeded"]) if row["judged"] else None,
        session_id=row["session"],
        arguments=_arguments(selection, row),
    )


def steps(selection: Selection) -> Steps:
    """Count the iterations, their checks and their changes."""
    (found,) = selection.of_events(
        "iterations",
        'COUNT(*) AS "n", SUM(CASE WHEN t."testResult" = \'\' THEN 0 ELSE 1 END) AS "checks", '
        'SUM(CASE WHEN t."testResult" = \'pass\' THEN 1 ELSE 0 END) AS "passed", '
        'SUM(t."changedFiles") AS "files", SUM(t."linesAdded") AS "added", '
        'SUM(t."linesRemoved") AS "removed"',
    )
    return Steps(
        iterations=found["n"],
        checks=found["checks"] or 0,
        checks_passed=found["passed"] or 0,
        changed_files=found["files"] or 0,
        lines_added=found["added"] or 0,
        lines_removed=found["removed"] or 0,
    )


def merges(selection: Selection) -> Mapping[str, int]:
    """How many tries to merge ended how."""
    found = selection.of_few_events(
        "merge_history",
        't."result" AS "result", COUNT(*) AS "n"',
        'GROUP BY t."result" ORDER BY "n" DESC, "result"',
    )
    return {row["result"]: row["n"] for row in found}


def _arguments(selection: Selection, row: Row) -> str:
    (found,) = selection.read.query(
        'SELECT SUBSTR("argsJson", 1, 200) AS "args", "argsJsonBlob" AS "blob" FROM "tool_calls" '
        'WHERE "sessionId" = ? AND "position" = ?',
        (row["session"], row["position"]),
    )
    return str(selection.read.blob(found["blob"])[:200] if found["blob"] else found["args"])
