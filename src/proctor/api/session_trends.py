"""Sessions of a service over time, and two selections compared: failures, cost, duration and scores."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from proctor.api.session_search import SessionFilter, SessionSearch
from proctor.context import RunContext
from proctor.document import CaptionedChart, Figure
from proctor.errors import UsageError
from proctor.formatting import seconds as seconds_text
from proctor.formatting import usd
from proctor.json_values import CamelJson
from proctor.store.session_search import PeriodScores, PeriodSums, SessionQuery, period_scores, period_sums
from proctor.store.writer import timestamp

By = Literal["", "version", "prompt", "agent", "service", "model"]
USUAL = "30d"
"""How far back, unless a filter says."""
PERIODS = {13: "hour", 10: "day", 7: "month"}
"""By how many characters of a time are the same in one."""
MOST_HOURS, MOST_DAYS = timedelta(days=3), timedelta(days=92)
MOST_GROUPS = 8
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodPoint(CamelJson):
    """The sessions of one period."""

    start: str
    end: str
    """Exclusive."""
    sessions: int
    value: float | None
    low: float | None
    high: float | None
    """Band in which the mean of sessions like these lies: at 95% for all points of the line together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendLine(CamelJson):
    """One metric of one group over time."""

    metric: str
    """`sessions`, `errors` (a share), `cost` and `seconds` (means), or `score:EVALUATOR`; of an evaluator
    with several versions, `score:EVALUATOR (VERSION)` for each."""
    points: Sequence[PeriodPoint]
    """Oldest first; periods without sessions are left out."""
    chart: CaptionedChart


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendGroup(CamelJson):
    """The sessions of one version, prompt, agent, service or model; of all, if they are not divided."""

    name: str
    sessions: int
    failed: int
    cost_usd: float | None
    tokens: int
    lines: Sequence[TrendLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTrend(CamelJson):
    """Sessions over time."""

    by: str
    period: str
    """`hour`, `day` or `month`, in UTC."""
    since: str
    groups: Sequence[TrendGroup]
    """The largest first."""
    omitted: int
    """Further groups."""


def session_trend(ctx: RunContext, wanted: SessionFilter, *, by: By = "") -> SessionTrend:
    """The finished sessions of a filter over time, divided by `by`."""
    wanted = wanted if wanted.since else replace(wanted, since=USUAL)
    query, _ = SessionSearch(ctx).query(wanted)
    begin = query.start or ctx.now()
    span = (query.end or ctx.now()) - begin
    characters = 13 if span <= MOST_HOURS else 10 if span <= MOST_DAYS else 7
    sums: dict[str, list[PeriodSums]] = {}
    for row in period_sums(ctx.store.read, query, by, characters):
        sums.setdefault(row["name"], []).append(row)
    scores: dict[str, dict[str, list[PeriodScores]]] = {}
    rows = period_scores(ctx.store.read, query, by, characters)
    metric_of = _score_metrics(rows)
    for score in rows:
        scores.setdefault(score["name"], {}).setdefault(metric_of(score), []).append(score)
    groups = [_group(name, rows, scores.get(name, {})) for name, rows in sums.items()]
    groups.sort(key=lambda group: (-group.sessions, group.name))
    return SessionTrend(
        by=by,
        period=PERIODS[characters],
        since=timestamp(begin),
        groups=groups[:MOST_GROUPS],
        omitted=max(0, len(groups) - MOST_GROUPS),
    )


def _score_metrics(scores: Sequence[PeriodScores]) -> Callable[[PeriodScores], str]:
    """Names the metric of each of these scores: those of different versions are not comparable."""
    versions = Counter(name for name, _ in {(each["evaluator"], each["evaluatorDigest"]) for each in scores})

    def metric_of(score: PeriodScores) -> str:
        name = "/".join(filter(None, (score["evaluator"], score["dimension"])))
        version = f" ({score['evaluatorDigest'][:6]})" if versions[score["evaluator"]] > 1 else ""
        return f"score:{name}{version}"

    return metric_of


def _group(name: str, rows: Sequence[PeriodSums], scores: Mapping[str, Sequence[PeriodScores]]) -> TrendGroup:
    from proctor.stats.intervals import wilson_limits

    level = 1 - (1 - CONFIDENCE) / len(rows)
    counts = [_point(row["period"], row["sessions"], float(row["sessions"])) for row in rows]
    shares = [row["failed"] / row["sessions"] for row in rows]
    errors = [
        _point(row["period"], row["sessions"], share, *wilson_limits(share, row["sessions"], level))
        for row, share in zip(rows, shares, strict=True)
    ]
    costs = [
        _mean_point(row["period"], row["priced"], row["cost"] or 0.0, row["costSquares"] or 0.0, level)
        for row in rows
        if row["priced"]
    ]
    times = [
        _mean_point(row["period"], row["timed"], row["seconds"] or 0.0, row["secondsSquares"] or 0.0, level)
        for row in rows
        if row["timed"]
    ]
    lines = {"sessions": counts, "errors": errors, "cost": costs, "seconds": times}
    lines |= {metric: _score_points(points) for metric, points in scores.items()}
    known = [row["cost"] for row in rows if row["cost"] is not None]
    return TrendGroup(
        name=name,
        sessions=sum(row["sessions"] for row in rows),
        failed=sum(row["failed"] for row in rows),
        cost_usd=sum(known) if known else None,
        tokens=sum(row["tokens"] for row in rows),
        lines=[
            TrendLine(metric=metric, points=points, chart=_chart(name, metric, points))
            for metric, points in lines.items()
            if points
        ],
    )


def _score_points(rows: Sequence[PeriodScores]) -> list[PeriodPoint]:
    level = 1 - (1 - CONFIDENCE) / len(rows)
    low, high = min(0.0, *(row["low"] for row in rows)), max(1.0, *(row["high"] for row in rows))
    return [
        _mean_point(row["period"], row["sessions"], row["total"], row["squares"], level, ends=(low, high))
        for row in rows
    ]


def _mean_point(
    period: str,
    count: int,
    total: float,
    squares: float,
    level: float,
    ends: tuple[float, float] | None = None,
) -> PeriodPoint:
    """A mean with a t interval from sums; on a scale with one more value at each of its ends, so that few or
    equal values do not pass for certainty."""
    from proctor.stats.intervals import sample_std
    from proctor.stats.samples import t_quantile

    value, size = total / count, count
    if ends:
        size, total = count + 2, total + sum(ends)
        squares += sum(end * end for end in ends)
    spread = sample_std(size, total, squares)
    if spread is None or count < 2:
        return _point(period, count, value)
    reach = float(t_quantile(0.5 + level / 2, count - 1)) * spread / math.sqrt(size)
    low, high = total / size - reach, total / size + reach
    limits = ends or (0.0, math.inf)
    return _point(period, count, value, max(limits[0], min(low, value)), min(limits[1], max(high, value)))


def _point(
    period: str, sessions: int, value: float | None, low: float | None = None, high: float | None = None
) -> PeriodPoint:
    full = {7: f"{period}-01T00", 10: f"{period}T00", 13: period}[len(period)]
    start = datetime.fromisoformat(f"{full}:00:00+00:00")
    if len(period) == 7:
        end = (start + timedelta(days=32)).replace(day=1)
    else:
        end = start + (timedelta(days=1) if len(period) == 10 else timedelta(hours=1))
    return PeriodPoint(
        start=timestamp(start), end=timestamp(end), sessions=sessions, value=value, low=low, high=high
    )


def _text(metric: str, value: float | None) -> str:
    if value is None:
        return "–"
    if metric == "errors":
        return f"{value:.1%}"
    if metric == "cost":
        return usd(value)
    if metric == "seconds":
        return seconds_text(value)
    return f"{value:,.0f}" if metric == "sessions" else f"{value:.2f}"


def _chart(name: str, metric: str, points: Sequence[PeriodPoint]) -> CaptionedChart:
    # The library itself draws nothing.
    from proctor.document import FigureList
    from proctor.report.charts import Point, trend

    marks = FigureList()
    drawn = [
        Point.of(
            Figure(
                label=point.start,
                text=_text(metric, point.value),
                value=point.value,
                low=point.low,
                high=point.high,
                n=point.sessions,
                unit="session",
            ),
            marks,
            x=float(number),
            label=f"{point.start[:16].replace('T', ' ')}: {_text(metric, point.value)}",
        )
        for number, point in enumerate(points)
    ]
    names = [point.start[11:16] if _is_hourly(points) else point.start[5:10] for point in points]
    title = f"{metric} {name}".strip()
    plot = trend(
        title,
        drawn,
        names,
        [0] * len(drawn),
        say_y=lambda value: _text(metric, value),
        is_share=False if metric in ("sessions", "errors", "cost", "seconds") else None,
    )
    return CaptionedChart(caption=metric, svg=plot, marks=marks.figures)


def _is_hourly(points: Sequence[PeriodPoint]) -> bool:
    return points[0].start[11:13] != points[0].end[11:13]


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
    queries = [search.query(each)[0] for each in (first, second)]
    scores = [period_scores(ctx.store.read, query, "", 0) for query in queries]
    metric_of = _score_metrics([*scores[0], *scores[1]])
    sides = [_sums(ctx, query) for query in queries]
    if not all(sides):
        raise UsageError("one of the selections has no finished session\nLoosen its filter.")
    for side, rows in zip(sides, scores, strict=True):
        side |= {metric_of(row): _Sums(row["sessions"], row["total"], row["squares"]) for row in rows}
    left, right = sides
    names = [name for name in left if name in right]
    level = 1 - (1 - CONFIDENCE) / len(names)
    return SelectionComparison(
        first_sessions=left["errors"].count,
        second_sessions=right["errors"].count,
        metrics=tuple(_metric(name, left[name], right[name], level) for name in names),
    )


def _sums(ctx: RunContext, query: SessionQuery) -> dict[str, _Sums]:
    """Count, total and squares of each metric but scores; empty: no session."""
    sums: dict[str, _Sums] = {}
    # A period of no characters is all time.
    for row in period_sums(ctx.store.read, query, "", 0):
        failed = float(row["failed"])
        sums["errors"] = _Sums(row["sessions"], failed, failed)
        if row["priced"]:
            sums["cost"] = _Sums(row["priced"], row["cost"] or 0.0, row["costSquares"] or 0.0)
        if row["timed"]:
            sums["seconds"] = _Sums(row["timed"], row["seconds"] or 0.0, row["secondsSquares"] or 0.0)
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
    from proctor.stats.classical import newcombe

    counts = round(second.total), second.count, round(first.total), first.count
    return newcombe(*counts, level=level)[1:]


def _welch(first: _Sums, second: _Sums, level: float) -> tuple[float | None, float | None]:
    from proctor.stats.intervals import sample_std
    from proctor.stats.samples import t_quantile

    parts: list[tuple[float, int]] = []
    for sums in (first, second):
        spread = sample_std(sums.count, sums.total, sums.squares)
        if spread is None:
            return None, None
        parts.append((spread**2 / sums.count, sums.count - 1))
    variance = sum(part for part, _ in parts)
    if not variance:
        return None, None
    freedom = variance**2 / sum(part**2 / df for part, df in parts)
    reach = float(t_quantile(0.5 + level / 2, freedom)) * math.sqrt(variance)
    difference = first.mean - second.mean
    return difference - reach, difference + reach
