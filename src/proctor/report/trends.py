"""Trends of a plan's runs as a chart and in words."""

from collections.abc import Mapping, Sequence

from proctor.formatting import plural
from proctor.report.charts import Point, trend
from proctor.report.comparison import around, figure, is_better, size
from proctor.results_view import FigureList, ResultFigure
from proctor.stats.comparison import Contrast
from proctor.stats.trends import TrendPoint


def is_regression(contrast: Contrast) -> bool | None:
    """Whether a significant change is for the worse; None: it has no direction."""
    better = is_better(contrast)
    return None if better is None else not better


def change_words(contrast: Contrast) -> str:
    """A change from one run to the next: its size, its interval and how many tasks."""
    tasks = f", {plural(contrast.pairs, 'paired task')}" if contrast.pairs else ""
    return f"{size(contrast)} (95% CI {around(contrast)}{tasks})"


def trend_plot(
    name: str, points: Sequence[TrendPoint], metric: str, at: Mapping[str, str]
) -> tuple[str, list[ResultFigure]]:
    """The chart of a trend, and the figures of its marks; `at` are the times of the runs.

    The first run of a day has its date below it, the others their time.
    """
    marks = FigureList()
    drawn, names, changes = list[Point](), list[str](), list[int]()
    last_day = ""
    for each in points:
        if each.estimate.value is None:
            continue
        one = ResultFigure(
            label=each.run_id,
            text=figure(each.estimate.value, metric),
            value=each.estimate.value,
            low=each.estimate.low,
            high=each.estimate.high,
            n=each.estimate.n,
            note=_against(each.change),
        )
        drawn.append(
            Point(
                label=f"{each.run_id}: {one.text}",
                x=float(len(drawn)),
                y=each.estimate.value,
                low=each.estimate.low,
                high=each.estimate.high,
                mark=marks.add(one),
            )
        )
        day, time = at[each.run_id][5:10], at[each.run_id][11:16]
        names.append(time if day == last_day else day)
        last_day = day
        changes.append(_sign(each.change))
    title = f"{name}: {metric} of each run, with 95% CI"
    return trend(title, drawn, names, changes, say_y=lambda value: figure(value, metric)), marks.figures


def _against(contrast: Contrast | None) -> str:
    if contrast is None or contrast.difference is None:
        return ""
    verdict = "" if contrast.is_significant else ", not significant"
    return f"{size(contrast)} against {contrast.baseline}{verdict}"


def _sign(contrast: Contrast | None) -> int:
    """1 for a significant change for the better, -1 for the worse, 0 otherwise."""
    if contrast is None or not contrast.is_significant:
        return 0
    better = is_better(contrast)
    return 0 if better is None else 1 if better else -1


def trend_summary(points: Sequence[TrendPoint], metric: str) -> str:
    """The last value and the latest significant change, in a sentence."""
    last = points[-1]
    text = f"{figure(last.estimate.value, metric)} in the last of {plural(len(points), 'run')}"
    signs = [(each, _sign(each.change)) for each in points]
    latest = next((each for each, sign in reversed(signs) if sign), None)
    if latest is None or latest.change is None:
        return f"{text}; no significant change from run to run."
    what = "regression" if _sign(latest.change) < 0 else "improvement"
    return f"{text}; latest {what}: {latest.run_id}, {change_words(latest.change)}."
