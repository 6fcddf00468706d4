"""What an experiment shows, as a page: Markdown to read anywhere, HTML with its plots to hand around.

Metrics by variation, over the turns, and against what they cost; the comparisons, effects and patterns
of the analysis, and its honest words.

Knows nothing of folders or stores; computes nothing.
"""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from proctor.analyse.experiment import BatchAnalyzer
from proctor.figures import figure
from proctor.report.charts import Bar, Point, bars, line, scatter
from proctor.report.plot_files import Drawn, filed
from proctor.report.render import page, text
from proctor.report.words import percent, short, usd

DRAWN_VARIATIONS = 30
DRAWN_METRICS = 12
DRAWN_LINES = 6
"""Variations that get a line of their own; more would be small and many."""


def experiment_html(analyzer: BatchAnalyzer) -> str:
    """The report as one HTML file that needs nothing else."""
    plots = {
        name: [(caption, Markup(plot)) for caption, plot in drawn] for name, drawn in _plots(analyzer).items()
    }
    return page("experiment.html.j2", plots=plots, **_values(analyzer))


def experiment_markdown(analyzer: BatchAnalyzer) -> tuple[str, dict[str, str]]:
    """The report as Markdown, and the plots it shows: SVG files by the names it looks for them under."""
    plots, files = filed(_plots(analyzer))
    return text("experiment.md.j2", plots=plots, **_values(analyzer)), files


def _values(analyzer: BatchAnalyzer) -> dict[str, Any]:
    documents = analyzer.documents()
    metrics, by_number = analyzer.metrics, documents["variation-statistics.json"]
    return {
        "name": analyzer.study.name,
        "description": analyzer.study.description,
        "planned": analyzer.study.planned,
        "metrics": documents["metrics-analysis.json"],
        "variations": list(documents["variation-statistics.json"].values()),
        "patterns": documents["patterns.json"],
        "comparisons": documents["comparisons.json"],
        "effects": documents["effects.json"],
        "ranked": {
            name: [
                (number, value, by_number[str(number)]["metrics"][name]["n"])
                for number, value in analyzer.compare_variations(name)
            ]
            for name in metrics
        },
        "turns": {name: analyzer.turns_of(name) for name in metrics},
        "descriptions": analyzer.study.descriptions,
        "figure": figure,
        "chance": chance,
    }


def chance(p: float | None) -> str:
    """A p-value as people write it."""
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _plots(analyzer: BatchAnalyzer) -> dict[str, list[Drawn]]:
    """The plots of each metric by its name; under the empty name, that of the success rates."""
    statistics = analyzer.calculate_variation_statistics()
    drawn: dict[str, list[Drawn]] = {"": [_success(statistics)]}
    for name in analyzer.metrics[:DRAWN_METRICS]:
        drawn[name] = [
            *_by_variation(name, statistics),
            *_over_turns(name, analyzer),
            *_against_cost(name, statistics),
        ]
    return drawn


def _label(one: Mapping[str, Any]) -> str:
    """A variation's name in a plot. Its number first: of long names only the beginning fits."""
    return f"{one['variation_id']}: {one['description']}"


def _success(statistics: Mapping[int, Mapping[str, Any]]) -> Drawn:
    rates = [
        Bar(
            label=_label(one),
            value=one["success_rate"],
            low=one["success_rate_interval"][0],
            high=one["success_rate_interval"][1],
            note=f"{one['successful_runs']}/{one['total_runs']}",
        )
        for one in list(statistics.values())[:DRAWN_VARIATIONS]
        if one["total_runs"]
    ]
    title = "Completed runs by variation, with 95 % intervals"
    return title, bars(title, rates, top=1.0, say=percent)


def _by_variation(metric: str, statistics: Mapping[int, Mapping[str, Any]]) -> list[Drawn]:
    entries = [
        Bar(
            label=_label(one),
            value=one["metrics"][metric]["mean"],
            low=one["metrics"][metric]["low"],
            high=one["metrics"][metric]["high"],
            note=f"{figure(one['metrics'][metric]['mean'])} (n = {one['metrics'][metric]['n']})",
        )
        for one in list(statistics.values())[:DRAWN_VARIATIONS]
        if metric in one["metrics"]
    ]
    # A bar begins at 0; what lies below it cannot be drawn as one.
    if not entries or any((entry.value or 0) < 0 for entry in entries):
        return []
    title = f"{metric} by variation: means with 95 % intervals"
    return [(title, bars(title, entries, say=short))]


def _over_turns(metric: str, analyzer: BatchAnalyzer) -> list[Drawn]:
    numbers = list(analyzer.study.descriptions)
    chosen: list[int | None] = [*numbers] if 1 < len(numbers) <= DRAWN_LINES else [None]
    lines = {
        number: [
            Point(label=f"turn {one['turn']}", x=one["turn"], y=one["mean"], low=one["low"], high=one["high"])
            for one in analyzer.turns_of(metric, number)
        ]
        for number in chosen
    }
    everywhere = [point for points in lines.values() for point in points]
    plots: list[Drawn] = []
    for number, points in lines.items():
        if len(points) > 1:
            who = "all runs" if number is None else analyzer.study.descriptions[number]
            title = f"{metric} over the turns: {who}"
            plots.append((title, line(title, points, x_axis="turn", say_y=short, fits=everywhere)))
    return plots


def _against_cost(metric: str, statistics: Mapping[int, Mapping[str, Any]]) -> list[Drawn]:
    points = [
        Point(
            label=_label(one),
            x=one["cost"]["mean"],
            y=one["metrics"][metric]["mean"],
            low=one["metrics"][metric]["low"],
            high=one["metrics"][metric]["high"],
        )
        for one in list(statistics.values())[:DRAWN_VARIATIONS]
        if metric in one["metrics"] and one["cost"]["mean"]
    ]
    if len(points) < 2 or any(point.y < 0 for point in points):
        return []
    title = f"What a run costs against {metric}"
    plot = scatter(title, points, x_axis="mean cost of a run", y_axis=metric, say_x=usd, say_y=short)
    return [(title, plot)]
