"""The plots of one factor: how often its levels succeeded, what an item of each cost, how long it took.

Knows nothing of pages; computes nothing.
"""

from collections.abc import Callable, Sequence

from proctor.analyse.intervals import Estimate
from proctor.analyse.levels import ByFactor
from proctor.report import figures
from proctor.report.charts import Bar, bars
from proctor.report.words import seconds, usd


def plots(factor: ByFactor) -> list[tuple[str, str]]:
    """Each plot with its caption; only those there are figures for."""
    if not factor.levels:
        return []
    drawn = [("Success rate", figures.rates(factor.as_factor()))]
    costs = [(level.name, level.cost_usd) for level in factor.levels]
    times = [(level.name, level.seconds) for level in factor.levels]
    drawn += _means("Mean cost of an item", factor.name, costs, usd)
    drawn += _means("Mean time of an item", factor.name, times, seconds)
    return drawn


def _means(
    caption: str, factor: str, levels: Sequence[tuple[str, Estimate]], say: Callable[[float], str]
) -> list[tuple[str, str]]:
    if all(estimate.value is None for _, estimate in levels):
        return []
    entries = [
        Bar(
            label=name or "(none)",
            value=estimate.value,
            # Of money and time there is none below 0, whatever the interval says.
            low=None if estimate.low is None else max(0.0, estimate.low),
            high=estimate.high,
            note="" if estimate.value is None else say(estimate.value),
        )
        for name, estimate in levels
    ]
    return [(caption, bars(f"{caption} by {factor}, with 95 % intervals", entries, say=say))]
