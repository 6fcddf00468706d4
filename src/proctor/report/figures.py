"""The plots of a report: which figures of a summary are drawn, and how.

Knows nothing of pages; computes nothing.
"""

from collections.abc import Sequence

from proctor.analyse.durations import Durations
from proctor.analyse.intervals import Rate
from proctor.analyse.outcomes import Factor, Tally
from proctor.analyse.spending import ModelUsage
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, TIMEOUT
from proctor.report.charts import Bar, Point, bars, histogram, scatter, stacked
from proctor.report.words import UNKNOWN, interval, percent, seconds, short, usd

ORDER = (SUCCESS, FAIL, TIMEOUT, ERROR, RUNNING, QUEUED)
DRAWN_MODELS = 15


def outcome_bar(tally: Tally) -> str:
    """How many items ended how, as one bar."""
    parts = [Bar(label=status, value=tally.counts[status], kind=status) for status in ORDER]
    said = ", ".join(f"{part.label} {part.value:.0f}" for part in parts if part.value)
    return stacked(f"Items by status: {said or 'none'}", parts)


def rates(factor: Factor) -> str:
    """The success rate of each level with its interval."""
    entries = [
        Bar(
            label=level.name or "(none)",
            value=level.tally.rate.value,
            low=level.tally.rate.low,
            high=level.tally.rate.high,
            note=_rate(level.tally.rate),
        )
        for level in factor.levels
    ]
    return bars(f"Success rate by {factor.name}, with 95 % intervals", entries, top=1.0, say=percent)


def _rate(rate: Rate) -> str:
    return f"{percent(rate.value)} ({interval(rate.low, rate.high)})" if rate.trials else UNKNOWN


def duration_histogram(durations: Durations) -> str:
    """How long items took."""
    return histogram(
        "How many items took how long",
        [(one.low, one.high) for one in durations.bins],
        [one.count for one in durations.bins],
        say=seconds,
        axis="from start to end of an item",
    )


def cost_against_success(factor: Factor) -> str:
    """What an item cost against how often it succeeded; empty unless two levels know both."""
    points = [
        Point(
            label=level.name or "(none)",
            x=level.tally.cost_per_item_usd,
            y=level.tally.rate.value,
            low=level.tally.rate.low,
            high=level.tally.rate.high,
        )
        for level in factor.levels
        if level.tally.cost_per_item_usd is not None and level.tally.rate.value is not None
    ]
    if len(points) < 2:
        return ""
    return scatter(
        f"Mean cost of an item against success rate, by {factor.name}",
        points,
        x_axis="mean cost of an item",
        y_axis="success rate",
        say_x=usd,
        say_y=percent,
        y_top=1.0,
    )


def tokens_by_model(models: Sequence[ModelUsage]) -> str:
    """How many tokens each model used."""
    entries = [Bar(label=usage.model, value=usage.total_tokens) for usage in models[:DRAWN_MODELS]]
    return bars("Tokens by model", entries, say=short)
