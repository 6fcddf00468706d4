"""What the items came to: how many passed, with intervals, by every factor that varies.

A rate is successes among the items that were judged: passed, failed or out of time. Errors are ours,
not the agent's; they are left out of the rate, counted, and the rate with them as failures is given
beside it.

Knows nothing of sessions, money or how results are shown.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proctor.item import ERROR, FAIL, STATUSES, SUCCESS, TIMEOUT
from proctor.stats.intervals import Estimate, Rate, mean, wilson
from proctor.store.aggregates import Row, Selection
from proctor.store.items import level_of

JUDGED = (SUCCESS, FAIL, TIMEOUT)


MOST_LEVELS = 50
"""A factor with more levels than this is a list of tasks, not a comparison; it is named, not drawn."""


# Enough to tell two levels from fifty; reading every item's factors would take longer than all else.
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


def outcomes(selection: Selection) -> Outcomes:
    """Count the items by status, reason and the levels of every factor that varies."""
    many = _with_many_levels(selection)
    rows = _grouped_outcomes(selection, many)
    names = sorted({name for row in rows for name in row["levels"]})
    factors = [_factor(name, rows) for name in names]
    varying = [factor for factor in factors if len(factor.levels) > 1 or factor.is_too_many]
    listed = [Factor(name=name, levels=(), is_too_many=True) for name in many if name not in names]
    return Outcomes(tally=tally_of(rows), reasons=_reasons(rows), factors=(*varying, *listed))


def _with_many_levels(selection: Selection) -> list[str]:
    """The factors that have too many levels to compare, judged by a sample of the items."""
    (count,) = selection.of_items('COUNT(*) AS "n"')
    every = max(1, count["n"] // SAMPLED_ITEMS)
    sample = selection.of_items('i."factors" AS "factors"', f'AND i."position" % {every} = 0')
    levels: dict[str, set[str]] = defaultdict(set)
    for row in sample:
        for name, level in _levels(row["factors"]).items():
            levels[name].add(level)
    return sorted(name for name, found in levels.items() if len(found) > MOST_LEVELS)


def _grouped_outcomes(selection: Selection, left_out: Sequence[str]) -> list[Row]:
    """One pass over the items: every combination of levels, status and reason, with its sums."""
    factors, parameters = selection.factors_without(left_out)
    rows = selection.of_items(
        f'{factors} AS "levels", i."status" AS "status", i."reason" AS "reason", COUNT(*) AS "items", '
        'SUM(i."tokensTotal") AS "tokens", SUM(i."costUsd") AS "cost", COUNT(i."costUsd") AS "priced"',
        "GROUP BY 1, 2, 3",
        parameters=parameters,
    )
    return [row | {"levels": _levels(row["levels"])} for row in rows]


def _levels(factors: str) -> dict[str, str]:
    return {
        name: level if isinstance(level, str) else json.dumps(level)
        for name, level in json.loads(factors).items()
    }


def tally_of(rows: Iterable[Row]) -> Tally:
    """Rows of sums, each of some items in one status, put together."""
    counts, tokens, costs, priced = dict.fromkeys(STATUSES, 0), 0, list[float](), 0
    for row in rows:
        counts[row["status"]] += row["items"]
        tokens += row["tokens"]
        costs.append(row["cost"] or 0.0)
        priced += row["priced"]
    # Exactly summed, so that the order in which the database answers makes no difference.
    cost = math.fsum(costs) if priced else None
    return Tally(counts=counts, tokens=tokens, cost_usd=cost, priced_items=priced)


def _reasons(rows: Iterable[Row]) -> tuple[Reason, ...]:
    counted: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["reason"]:
            counted[row["status"], row["reason"]] += row["items"]
    ordered = sorted(counted.items(), key=lambda entry: (STATUSES.index(entry[0][0]), -entry[1], entry[0]))
    return tuple(Reason(status=status, reason=reason, items=n) for (status, reason), n in ordered)


def _factor(name: str, rows: Iterable[Row]) -> Factor:
    by_level: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_level[row["levels"].get(name, "")].append(row)
    if len(by_level) > MOST_LEVELS:
        return Factor(name=name, levels=(), is_too_many=True)
    levels = [Level(name=level, tally=tally_of(mine)) for level, mine in by_level.items()]
    levels.sort(key=lambda level: best_first(level.name, level.tally))
    return Factor(name=name, levels=tuple(levels))


def best_first(name: str, tally: Tally) -> tuple[float, int, str]:
    """What levels are sorted by: the best success rate first, those that nobody judged yet last."""
    rate = tally.rate.value
    return (1.0 if rate is None else -rate), -tally.items, name


# What the levels of one factor came to, beside each other: outcomes, money and time.


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


def by_factor(selection: Selection, name: str) -> ByFactor:
    """Put the levels of a factor beside each other."""
    rows = _grouped(selection, name)
    by_level: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_level[row["level"] or ""].append(row)
    if len(by_level) > MOST_LEVELS:
        return ByFactor(name=name, levels=(), is_too_many=True)
    levels = [_figures(level, mine) for level, mine in by_level.items()]
    levels.sort(key=lambda level: best_first(level.name, level.tally))
    return ByFactor(name=name, levels=tuple(levels))


def _grouped(selection: Selection, name: str) -> list[Row]:
    level, named = level_of(name, is_postgres=selection.is_postgres, items="i")
    seconds = selection.seconds('i."startedAt"', 'i."finishedAt"')
    inner = (
        f'SELECT CAST({level} AS TEXT) AS "level", i."status" AS "status", i."tokensTotal" AS "tokens", '
        f'i."costUsd" AS "cost", {seconds} AS "seconds" FROM "batch_items" i WHERE {selection.items}'
    )
    # Materialized: the time between two texts costs more than all the rest, and is needed three times.
    return selection.read.query(
        f'WITH "each" AS MATERIALIZED ({inner}) '
        'SELECT "level", "status", COUNT(*) AS "items", SUM("tokens") AS "tokens", SUM("cost") AS "cost", '
        'SUM("cost" * "cost") AS "costSquares", COUNT("cost") AS "priced", SUM("seconds") AS "seconds", '
        'SUM("seconds" * "seconds") AS "secondsSquares", COUNT("seconds") AS "timed" '
        'FROM "each" GROUP BY "level", "status"',
        (*named, *selection.item_parameters),
    )


def _figures(name: str, rows: Sequence[Row]) -> LevelFigures:
    return LevelFigures(
        name=name,
        tally=tally_of(rows),
        cost_usd=mean(int(_sum(rows, "priced")), _sum(rows, "cost"), _sum(rows, "costSquares")),
        seconds=mean(int(_sum(rows, "timed")), _sum(rows, "seconds"), _sum(rows, "secondsSquares")),
    )


def _sum(rows: Sequence[Row], name: str) -> float:
    return sum(row[name] or 0 for row in rows)
