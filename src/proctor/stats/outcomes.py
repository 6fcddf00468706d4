"""Outcomes of items: success rates with confidence intervals, by factor.

A rate is the successes among the items that passed, failed or timed out. Infrastructure errors are excluded
from the rate and counted; the rate with them as failures is given beside it.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proctor.item import ERROR, FAIL, STATUSES, SUCCESS, TIMEOUT
from proctor.stats.intervals import Estimate, Rate, mean_from_sums, wilson
from proctor.store.aggregates import (
    FailedItem,
    ItemSums,
    LevelSums,
    MockSessions,
    OutcomeSums,
    Selection,
    SessionSums,
    count_of_items,
    outcome_sums,
    sampled_factors,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An item that did not succeed."""

    item_id: str
    run_id: str
    repo: str
    prompt: str
    model: str
    agent: str
    status: str
    reason: str
    error: str
    """Its first line."""
    session_id: str
    """Of the last attempt; empty when there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MockUsage:
    """A mock agent or model."""

    agent: str
    model: str
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCounts:
    """All sessions, whatever their result."""

    sessions: int
    retried_items: int
    """Items that needed more than one attempt."""
    work_seconds: float
    waiting_seconds: float
    """Time queued or paused for a rate limit."""
    interventions: int
    """How often an agent stopped to ask a human."""
    sessions_with_notes: int
    by_stand_ins: int
    """Sessions of mock agents or models."""


def failures(rows: Iterable[FailedItem]) -> tuple[Failure, ...]:
    """The items that did not succeed, in the order of the plan."""
    return tuple(_failure(row) for row in rows)


def _failure(row: FailedItem) -> Failure:
    return Failure(
        item_id=row["id"],
        run_id=row["runId"],
        repo=row["repo"],
        prompt=row["prompt"],
        model=row["model"],
        agent=row["agent"],
        status=row["status"],
        reason=row["reason"],
        error=first_line(row["error"]),
        session_id=row["sessionId"] or "",
    )


def stand_ins(rows: Iterable[MockSessions]) -> tuple[MockUsage, ...]:
    """The mock agents and models, and how many sessions each had."""
    return tuple(MockUsage(agent=row["agent"], model=row["model"], sessions=row["n"]) for row in rows)


def attempts(sums: SessionSums) -> AttemptCounts:
    """The number of sessions, retries, notes and interventions, and their time."""
    return AttemptCounts(
        sessions=sums["n"],
        retried_items=sums["retried"] or 0,
        work_seconds=sums["work"] or 0.0,
        waiting_seconds=sums["waiting"] or 0.0,
        interventions=sums["interventions"] or 0,
        sessions_with_notes=sums["noted"] or 0,
        by_stand_ins=sums["mocks"] or 0,
    )


def first_line(text: str) -> str:
    """The first non-empty line."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


JUDGED = (SUCCESS, FAIL, TIMEOUT)
MOST_LEVELS = 50
"""A factor with more levels than this is a list of tasks, not a comparison; it is named, not drawn."""

# Enough to tell two levels from fifty; reading the factors of every item would dominate the run time.
SAMPLED_ITEMS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A group of items and what they came to."""

    counts: Mapping[str, int]
    """By status; every status is there."""
    tokens: int = 0
    cost_usd: float | None = None
    """None: no item of the group has a known cost."""
    priced_items: int = 0
    """How many items `cost_usd` is the sum of."""

    @property
    def items(self) -> int:
        return sum(self.counts.values())

    @property
    def rate(self) -> Rate:
        """Successes among the items that were judged."""
        return wilson(self.counts[SUCCESS], sum(self.counts[status] for status in JUDGED))

    @property
    def rate_with_errors(self) -> Rate:
        """What the rate would be if every error counted as a failure."""
        judged = sum(self.counts[status] for status in JUDGED)
        return wilson(self.counts[SUCCESS], judged + self.counts[ERROR])

    @property
    def cost_per_item_usd(self) -> float | None:
        """The mean over the items whose cost is known."""
        return None if self.cost_usd is None else self.cost_usd / self.priced_items


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The items that have one value of a factor."""

    name: str
    """Empty: the items that do not have the factor at all."""
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Something that differs between items, with the items of each of its levels."""

    name: str
    levels: tuple[Level, ...]
    """Best success rate first. Empty when there are too many to compare."""
    is_too_many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why items ended as they did."""

    status: str
    reason: str
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What all items of a scope came to."""

    tally: Tally
    reasons: tuple[Reason, ...]
    factors: tuple[Factor, ...]
    """Only those that vary."""


def outcomes_of(selection: Selection) -> Outcomes:
    """The outcomes of the selected items."""
    every = max(1, count_of_items(selection) // SAMPLED_ITEMS)
    many = with_many_levels(sampled_factors(selection, every))
    return outcomes(outcome_sums(selection, many), many)


def outcomes(sums: Sequence[OutcomeSums], many: Sequence[str] = ()) -> Outcomes:
    """Count the items by status, reason and the levels of every factor that varies.

    `many` are the factors with too many levels, which the sums leave out.
    """
    rows = [(levels_of(row["levels"]), row) for row in sums]
    names = sorted({name for levels, _ in rows for name in levels})
    factors = [_factor(name, rows) for name in names]
    varying = [factor for factor in factors if len(factor.levels) > 1 or factor.is_too_many]
    listed = [Factor(name=name, levels=(), is_too_many=True) for name in many if name not in names]
    return Outcomes(tally=tally_of(sums), reasons=_reasons(sums), factors=(*varying, *listed))


def with_many_levels(sample: Iterable[str]) -> list[str]:
    """The factors that have too many levels to compare; `sample` are factors of items as JSON."""
    levels: dict[str, set[str]] = defaultdict(set)
    for factors in sample:
        for name, level in levels_of(factors).items():
            levels[name].add(level)
    return sorted(name for name, values in levels.items() if len(values) > MOST_LEVELS)


def levels_of(factors: str) -> dict[str, str]:
    """The factors of an item, given as JSON, with their levels as text."""
    return {
        name: level if isinstance(level, str) else json.dumps(level)
        for name, level in json.loads(factors).items()
    }


def tally_of(rows: Iterable[ItemSums]) -> Tally:
    """The sum of rows that each are of one status."""
    counts, tokens, costs, priced = dict.fromkeys(STATUSES, 0), 0, list[float](), 0
    for row in rows:
        counts[row["status"]] += row["items"]
        tokens += row["tokens"]
        costs.append(row["cost"] or 0.0)
        priced += row["priced"]
    # Exactly summed, so that the order in which the database answers makes no difference.
    cost = math.fsum(costs) if priced else None
    return Tally(counts=counts, tokens=tokens, cost_usd=cost, priced_items=priced)


def _reasons(rows: Iterable[OutcomeSums]) -> tuple[Reason, ...]:
    counted: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["reason"]:
            counted[row["status"], row["reason"]] += row["items"]
    ordered = sorted(counted.items(), key=lambda entry: (STATUSES.index(entry[0][0]), -entry[1], entry[0]))
    return tuple(Reason(status=status, reason=reason, items=n) for (status, reason), n in ordered)


def _factor(name: str, rows: Iterable[tuple[Mapping[str, str], OutcomeSums]]) -> Factor:
    by_level: dict[str, list[OutcomeSums]] = defaultdict(list)
    for levels_of_row, row in rows:
        by_level[levels_of_row.get(name, "")].append(row)
    if len(by_level) > MOST_LEVELS:
        return Factor(name=name, levels=(), is_too_many=True)
    levels = [Level(name=level, tally=tally_of(mine)) for level, mine in by_level.items()]
    levels.sort(key=lambda level: best_first(level.name, level.tally))
    return Factor(name=name, levels=tuple(levels))


def best_first(name: str, tally: Tally) -> tuple[float, int, str]:
    """What levels are sorted by: the best success rate first, those that nobody judged yet last."""
    rate = tally.rate.value
    return (1.0 if rate is None else -rate), -tally.items, name


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFigures:
    """The items of one level."""

    name: str
    """Empty: the items that do not have the factor at all."""
    tally: Tally
    cost_usd: Estimate
    """Of an item."""
    seconds: Estimate
    """From the start of an item to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByFactor:
    """The levels of one factor, best success rate first."""

    name: str
    levels: tuple[LevelFigures, ...]
    """Empty when there are too many to compare, or no items."""
    is_too_many: bool = False

    def as_factor(self) -> Factor:
        """The same, as far as outcomes go."""
        levels = tuple(Level(name=level.name, tally=level.tally) for level in self.levels)
        return Factor(name=self.name, levels=levels, is_too_many=self.is_too_many)


def by_factor(name: str, rows: Iterable[LevelSums]) -> ByFactor:
    """The figures of each level of a factor."""
    by_level: dict[str, list[LevelSums]] = defaultdict(list)
    for row in rows:
        by_level[row["level"] or ""].append(row)
    if len(by_level) > MOST_LEVELS:
        return ByFactor(name=name, levels=(), is_too_many=True)
    levels = [_figures(level, mine) for level, mine in by_level.items()]
    levels.sort(key=lambda level: best_first(level.name, level.tally))
    return ByFactor(name=name, levels=tuple(levels))


def _figures(name: str, rows: Sequence[LevelSums]) -> LevelFigures:
    cost = sum(row["cost"] or 0 for row in rows)
    seconds = sum(row["seconds"] or 0 for row in rows)
    return LevelFigures(
        name=name,
        tally=tally_of(rows),
        cost_usd=mean_from_sums(
            sum(row["priced"] for row in rows), cost, sum(row["costSquares"] or 0 for row in rows)
        ),
        seconds=mean_from_sums(
            sum(row["timed"] for row in rows), seconds, sum(row["secondsSquares"] or 0 for row in rows)
        ),
    )
