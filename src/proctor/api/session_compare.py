"""Two selections of sessions compared: failures, cost, duration and scores, with intervals."""

import math
from dataclasses import dataclass

from proctor.api.session_search import SessionFilter, SessionSearch
from proctor.api.session_trends import CONFIDENCE
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.json_values import CamelJson
from proctor.store.session_search import SessionQuery, period_scores, period_sums


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionMetric(CamelJson):
    """One metric of two selections."""

    metric: str
    """`errors` (a share), `cost`, `seconds` (means), or `score:EVALUATOR`."""
    first: float
    first_sessions: int
    second: float
    second_sessions: int
    difference: float
    """First minus second."""
    low: float | None
    high: float | None
    """All intervals hold together at 95%; null: fewer than two sessions."""
    is_significant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionComparison(CamelJson):
    """Two selections of sessions; they should not share sessions."""

    first_sessions: int
    second_sessions: int
    metrics: tuple[SelectionMetric, ...]


@dataclass(frozen=True, slots=True)
class _Sums:
    count: int
    total: float
    squares: float

    @property
    def mean(self) -> float:
        return self.total / self.count


def compare_selections(ctx: RunContext, first: SessionFilter, second: SessionFilter) -> SelectionComparison:
    """Compare the finished sessions of two filters: Newcombe's interval for shares, Welch's for means."""
    search = SessionSearch(ctx)
    sides = [_sums(ctx, search.query(each)[0]) for each in (first, second)]
    if not all(sides):
        raise UsageError("one of the selections has no finished session\nLoosen its filter.")
    left, right = sides
    names = [name for name in left if name in right]
    level = 1 - (1 - CONFIDENCE) / len(names)
    return SelectionComparison(
        first_sessions=left["errors"].count,
        second_sessions=right["errors"].count,
        metrics=tuple(_metric(name, left[name], right[name], level) for name in names),
    )


def _sums(ctx: RunContext, query: SessionQuery) -> dict[str, _Sums]:
    """Count, total and squares of each metric; empty: no session."""
    sums: dict[str, _Sums] = {}
    # A period of no characters is all time.
    for row in period_sums(ctx.store.read, query, "", 0):
        failed = float(row["failed"])
        sums["errors"] = _Sums(row["sessions"], failed, failed)
        if row["priced"]:
            sums["cost"] = _Sums(row["priced"], row["cost"] or 0.0, row["costSquares"] or 0.0)
        if row["timed"]:
            sums["seconds"] = _Sums(row["timed"], row["seconds"] or 0.0, row["secondsSquares"] or 0.0)
    for score in period_scores(ctx.store.read, query, "", 0):
        name = "/".join(filter(None, (score["evaluator"], score["dimension"])))
        sums[f"score:{name}"] = _Sums(score["sessions"], score["total"], score["squares"])
    return sums


def _metric(name: str, first: _Sums, second: _Sums, level: float) -> SelectionMetric:
    low, high = (_newcombe if name == "errors" else _welch)(first, second, level)
    return SelectionMetric(
        metric=name,
        first=first.mean,
        first_sessions=first.count,
        second=second.mean,
        second_sessions=second.count,
        difference=first.mean - second.mean,
        low=low,
        high=high,
        is_significant=low is not None and high is not None and (low > 0 or high < 0),
    )


def _newcombe(first: _Sums, second: _Sums, level: float) -> tuple[float | None, float | None]:
    from proctor.stats.intervals import wilson_limits

    (low_1, high_1), (low_2, high_2) = (
        wilson_limits(each.mean, each.count, level) for each in (first, second)
    )
    difference = first.mean - second.mean
    below = math.hypot(first.mean - low_1, high_2 - second.mean)
    above = math.hypot(high_1 - first.mean, second.mean - low_2)
    return difference - below, difference + above


def _welch(first: _Sums, second: _Sums, level: float) -> tuple[float | None, float | None]:
    from proctor.stats.intervals import sample_std
    from proctor.stats.samples import t_quantile

    parts: list[tuple[float, int]] = []
    for each in (first, second):
        spread = sample_std(each.count, each.total, each.squares)
        if spread is None:
            return None, None
        parts.append((spread**2 / each.count, each.count - 1))
    variance = sum(part for part, _ in parts)
    if not variance:
        return None, None
    freedom = variance**2 / sum(part**2 / df for part, df in parts)
    reach = float(t_quantile(0.5 + level / 2, freedom)) * math.sqrt(variance)
    difference = first.mean - second.mean
    return difference - reach, difference + reach
