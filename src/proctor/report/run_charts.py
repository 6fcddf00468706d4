"""Charts of a run and of its factors, with the figures behind their marks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from proctor.document import Chart, Figure, FigureList, ItemSelection
from proctor.formatting import UNKNOWN, interval, percent, plural, seconds, short, usd
from proctor.formatting import rank as rank_text
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, TIMEOUT
from proctor.report.charts import LOG_FROM, Bar, Point, bars, curves, histogram, scatter, stacked
from proctor.results.summary import Durations
from proctor.stats.intervals import Estimate
from proctor.store.aggregates import ModelSums

if TYPE_CHECKING:
    from proctor.stats.figures import FactorFigures, Figures
    from proctor.stats.ranking import Rank

ORDER = (SUCCESS, FAIL, TIMEOUT, ERROR, RUNNING, QUEUED)
DRAWN_MODELS = 15


def outcome_bar(counts: Mapping[str, int], marks: FigureList | None = None) -> str:
    """How many items ended how, as one bar."""
    total = sum(counts.values())
    figures = [
        Figure(
            label=status,
            text=percent(counts[status] / total) if total else UNKNOWN,
            value=float(counts[status]),
            n=counts[status],
            unit="item",
            items={"status": [status]},
        )
        for status in ORDER
    ]
    parts = [replace(Bar.of(one, marks), kind=one.label) for one in figures]
    description = ", ".join(f"{part.label} {part.value:.0f}" for part in parts if part.value)
    return stacked(f"Items by status: {description or 'none'}", parts)


def rates(factor: "FactorFigures", marks: FigureList | None = None) -> str:
    """The success rate of each level with its interval."""
    entries = [
        Bar.of(level_figure(factor.name, level.name, level.success, percent), marks, note=rate(level.success))
        for level in factor.levels
    ]
    return bars(f"Success rate by {factor.name}, with 95% CI", entries, top=1.0, say=percent)


def rate(estimate: Estimate) -> str:
    """A success rate with its interval: `61% (48% to 72%)`."""
    ends = f" ({interval(estimate.low, estimate.high)})" if estimate.low is not None else ""
    return f"{percent(estimate.value)}{ends}"


def pass_curves(figures: "Figures") -> str:
    """pass@k and pass^k for each k; empty without repeats."""
    series = {
        name: [
            Point(
                label=f"{name.replace('k', str(entry.k))}",
                x=entry.k,
                y=entry.estimate.value,
                low=entry.estimate.low,
                high=entry.estimate.high,
            )
            for entry in entries
            if entry.estimate.value is not None
        ]
        for name, entries in (("pass@k", figures.pass_at), ("pass^k", figures.pass_hat))
    }
    if not all(series.values()):
        return ""
    title = "pass@k and pass^k by the number of runs k, with 95% CI"
    return curves(title, series, x_axis="k", say_y=percent)


def duration_histogram(durations: Durations, marks: FigureList | None = None) -> str:
    """How long items took. `marks` gets the figures of the bars, which open the items behind them."""
    bins = durations.bins
    figures = [
        Figure(
            label=f"{seconds(bar.low)} to {seconds(bar.high)}",
            text=plural(bar.count, "item"),
            value=float(bar.count),
            n=bar.count,
            unit="item",
            items=_lasting(bar.low, None if bar is bins[-1] else bar.high) if bar.count else None,
        )
        for bar in bins
    ]
    return histogram(
        "How many items took how long",
        [(one.low, one.high) for one in bins],
        [one.count for one in bins],
        say=seconds,
        axis="from start to end of an item",
        marks=[marks.add(one) for one in figures] if marks else (),
    )


def _lasting(low: float, high: float | None) -> ItemSelection:
    """The items that took at least `low` and less than `high` seconds; None: any longer time."""
    # Edges are multiples of a step. Not in exponential notation, which filters do not read.
    ends = ["" if end is None else f"{Decimal(repr(round(end, 9))):f}" for end in (low, high)]
    return {"duration": ["..".join(ends)]}


def cost_against_success(factor: "FactorFigures", marks: FigureList | None = None) -> str:
    """What an item cost against how often it succeeded; empty unless two levels know both.

    Levels that no other one beats in both have a ring, and a line through them.
    """
    from proctor.stats.ranking import undominated

    known = [
        (level, cost, rate)
        for level in factor.levels
        if (cost := level.cost_usd.value) is not None and (rate := level.success.value) is not None
    ]
    is_tiny = is_tiny_cost(factor.levels)
    front = undominated({level.name: (-rate, cost) for level, cost, rate in known})
    points = [
        Point.of(
            level_figure(factor.name, level.name, level.success, percent, f"{usd(cost)} per item"),
            marks,
            x=1000 * cost if is_tiny else cost,
            is_marked=level.name in front,
        )
        for level, cost, _ in known
    ]
    if len(points) < 2:
        return ""
    costs = [point.x for point in points]
    many = "1,000 items" if is_tiny else "an item"
    return scatter(
        f"Mean cost of {many} against success rate, by {factor.name}",
        points,
        x_axis=f"mean cost of {many}",
        y_axis="success rate",
        say_x=usd,
        say_y=percent,
        y_top=1.0,
        is_log=min(costs) > 0 and max(costs) >= LOG_FROM * min(costs),
    )


TINY_USD = 0.01


def is_tiny_cost(levels: "Sequence[Figures]") -> bool:
    """Whether items cost so little that the cost of a thousand says more."""
    return any(level.cost_usd.value and level.cost_usd.value < TINY_USD for level in levels)


def tokens_by_model(models: Sequence[ModelSums]) -> str:
    """How many tokens each model used."""
    entries = [Bar(label=usage["model"], value=usage["total"]) for usage in models[:DRAWN_MODELS]]
    return bars("Tokens by model", entries, say=short)


def plots(factor: "FactorFigures") -> list[Chart]:
    """The plots that there are figures for."""
    if not factor.levels:
        return []
    marks = FigureList()
    drawn = [Chart(title="Success rate", svg=rates(factor, marks), marks=marks.figures)]
    costs = [(level.name, level.cost_usd) for level in factor.levels]
    times = [(level.name, level.seconds) for level in factor.levels]
    drawn += _means("Mean cost of an item", factor.name, costs, usd)
    drawn += _means("Mean time of an item", factor.name, times, seconds)
    return drawn


def _means(
    caption: str, factor: str, levels: Sequence[tuple[str, Estimate]], say: Callable[[float | None], str]
) -> list[Chart]:
    if all(estimate.value is None for _, estimate in levels):
        return []
    marks = FigureList()
    entries = [
        # Money and time are never negative, whatever the interval.
        replace(bar, low=None if bar.low is None else max(0.0, bar.low))
        for name, estimate in levels
        for bar in [Bar.of(level_figure(factor, name, estimate, say), marks, note=say(estimate.value))]
    ]
    svg = bars(f"{caption} by {factor}, with 95% CI", entries, say=say)
    return [Chart(title=caption, svg=svg, marks=marks.figures)]


def estimate_figure(
    label: str,
    estimate: Estimate,
    say: Callable[[float | None], str],
    *,
    items: ItemSelection | None = None,
    unit: str = "task",
) -> Figure:
    """An estimate as a figure."""
    return Figure(
        label=label,
        text=say(estimate.value),
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        n=estimate.n,
        unit=unit,
        note=estimate.note,
        items=items,
    )


def level_figure(
    factor: str, level: str, estimate: Estimate, say: Callable[[float | None], str], note: str = ""
) -> Figure:
    """The figure of one level of a factor, with its items; no filter selects those without a level."""
    items = {"factor": [f"{factor}={level}"]} if level else None
    named = estimate_figure(level or "(none)", estimate, say, items=items)
    return replace(named, note=note) if note else named


def limits(estimate: Estimate, say: Callable[[float | None], str] = percent) -> str:
    """The confidence interval of an estimate as text."""
    if estimate.low is None and estimate.high is None:
        return UNKNOWN
    if estimate.high is None:
        return f"from {say(estimate.low)}, no upper limit"
    if say is percent:
        return interval(estimate.low, estimate.high)
    low, high = say(estimate.low), say(estimate.high)
    if low == high and estimate.low is not None:
        # No interval has zero width: not on the page either.
        return f"{say(estimate.value)} ± {(estimate.high - estimate.low) / 2:.1g}"
    return f"{low} to {high}"


def places(rank: "Rank | None") -> str:
    """A rank with its interval: `2`, or `2 (1 to 3)`."""
    if rank is None or rank.value is None:
        return UNKNOWN
    return rank_text(rank.rank, rank.rank_low, rank.rank_high)
