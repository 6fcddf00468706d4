"""The report of an experiment as a document, and its files."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.document import (
    Chart,
    Column,
    Details,
    Document,
    Fact,
    Figure,
    FigureList,
    ItemSelection,
    Section,
    Sentence,
    Table,
    numeric,
    prose,
    table,
)
from proctor.formatting import chance, figure, interval, percent, plural, short, usd, whole
from proctor.jobs.scenario.analysis import (
    BatchAnalyzer,
    around,
    around_g,
    association_text,
    cost_limits,
    exclusions_text,
)
from proctor.metric import measure_title
from proctor.report.charts import Bar, Point, scatter
from proctor.report.panels import (
    HeatCell,
    Panel,
    Strip,
    TableRow,
    dot_table,
    dots,
    interaction,
    small_multiples,
    strips,
)
from proctor.report.render import document_html, method_text, report_files, sample_text, write_pages
from proctor.report.run_charts import estimate_figure
from proctor.stats import experiment
from proctor.stats.intervals import Estimate
from proctor.validity import served_text, sum_counts, sum_served, validity_text

if TYPE_CHECKING:
    from proctor.jobs.scenario.analysis import BatchAnalyzer

MOCK_DATA = "Mock data: uses scripted or replayed models"


def write_reports(analyzer: BatchAnalyzer, target: Path) -> list[Path]:
    """Write the report in Markdown and HTML, and its figures for print; the files."""
    files = report_files(report_document(analyzer), methods=methods_paragraph(analyzer))
    return write_pages(target, files)


def experiment_html(analyzer: BatchAnalyzer) -> str:
    """The report as one self-contained HTML file."""
    return document_html(report_document(analyzer))


def report_document(analyzer: BatchAnalyzer) -> Document:
    """The report: success, metrics, variations, each metric in full, cost, and patterns."""
    study, documents, plots = analyzer.study, analyzer.documents(), charts_of(analyzer)
    patterns, metrics = documents["patterns.json"], documents["metrics-analysis.json"]
    variations = list(documents["variation-statistics.json"].values())
    mocks = "; ".join(patterns["stand_ins"])
    mock = f"{MOCK_DATA} ({mocks}). Draw no conclusions about real models."
    excluded = f"{plural(patterns['errors'], 'run')} excluded because of infrastructure errors"
    counted = percent(patterns["success_rate_if_errors_failed"])
    errors = f"{excluded}. Counted as failures, the success rate would be {counted}."
    checks = f"Checks of the scenario: {analyzer.checks}." if analyzer.checks.run else ""
    excluded_runs = patterns.get("excluded_runs") or {}
    texts = [
        study.description,
        errors if patterns["errors"] else "",
        checks,
        exclusions_text(excluded_runs, analyzed=patterns["successful_runs"]) if excluded_runs else "",
    ]
    return Document(
        title=study.name,
        subtitle=f"{plural(len(variations), 'variation')} · {plural(patterns['total_runs'], 'run')} of "
        f"{whole(study.planned)} planned",
        warnings=[*([mock] if mocks else []), *([checks] if analyzer.checks.unread else [])],
        facts=_facts(patterns, metrics),
        sections=[
            *(Sentence(text=text) for text in texts if text),
            *plots[""],
            *_metrics_table(metrics),
            _variations_table(variations),
            *(_metric(name, analyzer, documents, plots.get(name, ())) for name in metrics),
            *_success_tests(documents["tests.json"]["metrics"]["success"]),
            *(_category(name, each) for name, each in documents["tests.json"]["categories"].items() if each),
            *_cost_table(patterns["cost_efficiency"], study.descriptions),
            _patterns(patterns),
        ],
        method=methods_paragraph(analyzer),
    )


def _facts(patterns: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[Fact]:
    low, high = patterns["success_rate_interval"]
    counts = f"{whole(patterns['successful_runs'])} of {whole(patterns['total_runs'])}"
    rate = percent(patterns["success_rate"])
    known = [(name, one) for name, one in metrics.items() if one["n"]]
    return [
        Fact(rate, f"of runs completed, {counts}; 95% CI {interval(low, high)}"),
        *(Fact(figure(one["mean"]), f"{name}; 95% CI {around(one)}") for name, one in known[:MOST_FACTS]),
    ]


MOST_FACTS = 4
"""Metrics in the summary of a report."""
NOTE = prose("Note")


def _metrics_table(metrics: Mapping[str, Any]) -> list[Section]:
    if not metrics:
        return [Sentence(text="No completed run reported a metric.")]
    figures = ("mean", "95% CI", "stdev", "median", "min", "max")
    rows = [
        (
            name,
            statistics["n"],
            statistics["missing"],
            *(around(statistics) if column == "95% CI" else figure(statistics[column]) for column in figures),
            statistics["note"],
        )
        for name, statistics in metrics.items()
    ]
    titles = ("n", "Missing", "Mean", "95% CI", "Std", "Median", "Min", "Max")
    about = (
        "Computed over all completed runs, from the last value of each run. Confidence intervals are for "
        "runs like these: of this scenario, with these variations."
    )
    return [table(["Metric", *numeric(*titles), NOTE], rows, "Metrics", about)]


def _variations_table(variations: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            variation["variation_id"],
            variation["description"],
            f"{variation['successful_runs']} of {variation['total_runs']}",
            f"{percent(variation['success_rate'])} ({interval(*variation['success_rate_interval'])})",
            usd(variation["cost"]["mean"]),
        )
        for variation in variations
    ]
    columns: list[Column | str] = [
        *numeric("No."),
        "Variation",
        *numeric("Completed", "Success rate", "Mean cost"),
    ]
    return table(columns, rows, "Variations")


def _metric(
    name: str, analyzer: BatchAnalyzer, documents: Mapping[str, Any], plots: Sequence[Chart]
) -> Details:
    """Everything about one metric: plots, ranking, comparisons of variations, factors and levels."""
    descriptions = analyzer.study.descriptions
    by_number = documents["variation-statistics.json"]
    ranked = [
        (number, descriptions[number], figure(value), by_number[str(number)]["metrics"][name]["n"])
        for number, value in analyzer.compare_variations(name)
    ]
    tested = [one for one in documents["patterns.json"]["tested_metric_levels"] if one["metric"] == name]
    compared = [
        (
            " − ".join(comparison["descriptions"]),
            figure(comparison["value"]),
            around(comparison),
            chance(comparison["p_corrected"]),
            _test(comparison),
            *(figure(comparison[key]) for key in ("effect_size", "smallest_detectable", "runs_needed")),
            comparison["note"],
        )
        for comparison in documents["comparisons.json"][name]
    ]
    factors = [
        (one["factor"], percent(one["explained"]), chance(one["p_corrected"]), one["test"], one["note"])
        for one in documents["effects.json"][name]
    ]
    levels = [
        (
            f"{test['factor']} = {test['level']}",
            figure(test["value"]),
            around(test),
            chance(test["p_corrected"]),
            _test(test),
            around_g(test),
            test["note"],
        )
        for test in tested
    ]
    change = numeric("Difference", "95% CI", "p (Bonferroni)")
    power = numeric("Effect size", "Min. detectable effect", "Runs needed")
    about = "Each level against the others, in runs of equal seed and equal other factors."
    return Details(
        title=name,
        sections=[
            *plots,
            table([*numeric("No."), "Variation", *numeric("Mean", "n")], ranked if len(ranked) > 1 else ()),
            table(["Comparison", *change, "Test", *power, NOTE], compared),
            table(["Factor", *numeric("Variance explained", "p (Bonferroni)"), "Test", NOTE], factors),
            table(["Level", *change, "Test", *numeric(G), NOTE], levels, caption=about),
            *_test_sections(documents["tests.json"]["metrics"][name]),
        ],
    )


G = "Hedges g (95% CI)"


def _test_sections(tests: Mapping[str, Any]) -> list[Section]:
    """The analysis of variance, contrasts of levels, and odds ratios of one metric."""
    variance = [
        (
            row["source"],
            figure(row["sum_of_squares"]),
            f"{row['df']}, {row['df_error']}" if row["df_error"] else row["df"],
            figure(row["f"]),
            chance(row["p"]),
            chance(row["p_corrected"]),
            _eta(row),
            f"{row['rank_test']}: {chance(row['rank_p'])}" if row["rank_p"] is not None else "–",
            row["note"] or ("" if row["error"] in ("", "residual") else f"error: {row['error']}"),
        )
        for row in tests["anova"]
    ]
    contrasts = [
        (
            f"{each['factor']}: {each['level']}" + (f" − {each['against']}" if each["against"] else ""),
            figure(each["value"]),
            around(each),
            chance(each["p_corrected"]),
            _test(each),
            around_g(each),
            each["note"],
        )
        for each in tests["contrasts"]
    ]
    model = tests["model"] or {"ratios": (), "method": ""}
    odds = [
        (
            f"{each['factor']}: {each['level']} against {each['baseline']}",
            figure(each["value"]),
            around(each),
            chance(each["p"]),
            chance(each["p_corrected"]),
            each["note"],
        )
        for each in model["ratios"]
    ]
    titles = ("Sum of squares", "df", "F", "p", "p (Bonferroni)", "Partial η² (90% CI)")
    change = numeric("Difference", "95% CI", "p (Bonferroni)")
    ratio = numeric("Odds ratio", "95% CI", "p", "p (Bonferroni)")
    return [
        table(
            ["Source", *numeric(*titles), "Rank test", NOTE],
            variance,
            caption="Type II sums of squares, seeds as blocks. The second df is that of the error.",
        ),
        table(["Contrast", *change, "Test", *numeric(G), NOTE], contrasts),
        table(
            ["Effect", *ratio, NOTE], odds, caption=f"{model['method'].capitalize()}, without interactions."
        ),
    ]


def _eta(row: Mapping[str, Any]) -> str:
    if row["partial_eta_squared"] is None:
        return "–"
    return f"{row['partial_eta_squared']:.2f} ({row['low']:.2f} to {row['high']:.2f})"


def _category(name: str, by_factor: Mapping[str, Any]) -> Details:
    """How often each label of a categorical metric occurs at each level of each factor."""
    sections = list[Section]()
    for factor, each in by_factor.items():
        labels = list(dict.fromkeys(label for counts in each["counts"].values() for label in counts))
        rows = [
            (level, *(counts.get(label, 0) for label in labels)) for level, counts in each["counts"].items()
        ]
        sections.append(table([factor, *numeric(*labels)], rows, caption=association_text(factor, each)))
    return Details(title=name, sections=sections)


def _success_tests(tests: Mapping[str, Any]) -> list[Section]:
    sections = _test_sections(tests)
    return [Details(title="Success rate", sections=sections)] if tests["contrasts"] or tests["model"] else []


def _test(test: Mapping[str, Any]) -> str:
    sizes = " and ".join(str(n) for n in dict.fromkeys(test["n"]))
    return f"{test['test']}, n = {sizes}"


def _cost_table(rows: Sequence[Mapping[str, Any]], descriptions: Mapping[int, str]) -> list[Section]:
    if not rows:
        return [Sentence(text="No priced model calls were recorded.")]
    titles = ("Spent", "Completed runs per dollar", "Cost per completed run", "95% CI")
    columns: list[Column | str] = [*numeric("No."), "Variation", *numeric(*titles)]
    texts = [
        (
            row["variation_id"],
            descriptions[row["variation_id"]],
            usd(row["total_cost"]),
            figure(row["runs_per_dollar"]),
            usd(row["cost_per_success"]),
            cost_limits(row),
        )
        for row in rows
    ]
    return [table(columns, texts, "Cost efficiency")]


FAMILY = (
    "{comparisons} of levels are corrected together (Bonferroni): each interval, p, and verdict allows for "
    "all of them. Comparisons of variations, F tests, contrasts of levels, odds ratios, and tests of labels "
    "are families of their own: each has a false finding in at most 5% of studies without effects."
)


def _patterns(patterns: Mapping[str, Any]) -> Details:
    family = FAMILY.format(comparisons=plural(patterns["family"], "comparison")) if patterns["family"] else ""
    kinds = {
        "Success factors": ("success_factors", "None significant."),
        "Failure modes": ("failure_modes", "None."),
        "Effects on metrics": ("metric_effects", "None significant."),
    }
    found = [
        Details(
            title=title,
            sections=[Sentence(text=one["statement"]) for one in patterns[key]] or [Sentence(text=nothing)],
        )
        for title, (key, nothing) in kinds.items()
    ]
    texts = [*patterns["notes"], *([family] if family else [])]
    return Details(title="Patterns", sections=[*(Sentence(text=text) for text in texts), *found])


# Figures of an experiment's analysis with their captions, and the paragraph about its methods.


StatisticsRow = Mapping[str, Any]
"""Statistics of one variation or metric, as the analyzer has them."""
DRAWN_VARIATIONS = 60
DRAWN_PANELS = 30
DRAWN_METRICS = 12
DRAWN_PAIRS = 6
"""Maximum number of figures of two factors for each metric."""
MOST_COLUMNS = 4
LONGEST_HEADING = 30
"""Columns of a grid of panels, and letters of a level above one."""
MOST_STRIPS = 8
"""Levels of a factor that have room beside each other, with a point for each run."""
DRAWN_SERIES = 6
"""Maximum number of levels with a line of their own in a figure of two factors."""
SHOWN_METRICS, SHOWN_VARIABLES, SHOWN_EFFECTS = 6, 12, 4
"""Metrics, further variables of the world, and sentences on the page of a run; the analysis has all."""
LAST_VALUE = "the last value of each completed run"


def charts_of(analyzer: "BatchAnalyzer") -> dict[str, list[Chart]]:
    """The charts of each metric by its name; those of success rates under the empty name."""
    statistics = list(analyzer.calculate_variation_statistics().values())
    charts = {"": _success(statistics)}
    for name in analyzer.metrics[:DRAWN_METRICS]:
        charts[name] = [
            *_by_variation(name, statistics),
            *_main_effects(name, analyzer),
            *_interactions(name, analyzer),
            *_over_turns(name, analyzer),
            *_against_cost(name, statistics),
        ]
    return charts


def _label(row: StatisticsRow) -> str:
    return f"{row['variation_id']}: {row['description']}"


def _omission_note(number: int, most: int) -> str:
    """A sentence on the variations that a figure leaves out; empty: none."""
    return f" The first {most} of {number} variations." if number > most else ""


def _success(statistics: Sequence[StatisticsRow]) -> list[Chart]:
    known = [one for one in statistics if one["total_runs"]]
    marks = FigureList()
    entries = [
        Bar.of(
            _figure(_label(row), _success_rate(row), say=percent, items=_of_variation(row)),
            marks,
            note=f"{row['successful_runs']}/{row['judged_runs']}",
        )
        for row in known[:DRAWN_VARIATIONS]
    ]
    if not entries:
        return []
    title = "Completed runs by variation"
    caption = (
        "Share of the runs that completed, without infrastructure errors; 95% CI: Wilson; "
        f"{sample_text([one['judged_runs'] for one in known], 'run', 'variation')}."
        f"{_omission_note(len(known), DRAWN_VARIATIONS)}"
    )
    svg = _variation_plot(title, known, entries, say=percent, axis="completed", limits=(0.0, 1.0))
    return [Chart(title=title, svg=svg, marks=marks.figures, caption=caption)]


def _success_rate(row: StatisticsRow) -> StatisticsRow:
    low, high = row["success_rate_interval"]
    return {"mean": row["success_rate"], "low": low, "high": high, "n": row["judged_runs"]}


def _figure(
    label: str,
    row: StatisticsRow,
    *,
    say: Callable[[float], str] = figure,
    items: ItemSelection | None = None,
) -> Figure:
    """A mean over runs as a figure."""
    mean, low, high, n = (row[key] for key in ("mean", "low", "high", "n"))
    return Figure(label=label, text=say(mean), value=mean, low=low, high=high, n=n, unit="run", items=items)


def _of_variation(row: StatisticsRow) -> ItemSelection:
    return {"factor": [f"variation=var-{row['variation_id']:03d}"]}


def _variation_plot(
    title: str,
    variations: Sequence[StatisticsRow],
    entries: Sequence[Bar],
    *,
    say: Callable[[float], str],
    axis: str,
    limits: tuple[float, float] | None = None,
) -> str:
    """Estimates by variation: beside columns of factors where all have the same, else beside their names."""
    factors = list(variations[0]["factors"])
    if not factors or any(list(one["factors"]) != factors for one in variations):
        return dots(title, {"": entries}, say=say, axis=axis, limits=limits)
    rows = [
        TableRow(cells=[*map(str, one["factors"].values()), str(one["variation_id"])], entry=entry)
        for one, entry in zip(variations, entries, strict=False)
    ]
    return dot_table(title, [*factors, "no."], rows, say=say, axis=axis, limits=limits)


def _by_variation(metric: str, statistics: Sequence[StatisticsRow]) -> list[Chart]:
    known = [one for one in statistics if metric in one["metrics"]]
    marks = FigureList()
    entries = [
        Bar.of(_figure(_label(one), one["metrics"][metric], items=_of_variation(one)), marks)
        for one in known[:DRAWN_VARIATIONS]
    ]
    if not entries:
        return []
    title = f"{measure_title(metric)} by variation"
    caption = (
        f"Mean of {LAST_VALUE}; {_sample([one['metrics'][metric] for one in known])}."
        f"{_omission_note(len(known), DRAWN_VARIATIONS)}"
    )
    svg = _variation_plot(title, known, entries, say=short, axis=measure_title(metric))
    return [Chart(title=title, svg=svg, marks=marks.figures, caption=caption)]


def _sample(means: Sequence[StatisticsRow]) -> str:
    """The methods and the sample sizes of the means of variations."""
    methods = method_text(one["method"] for one in means if _has_ci(one))
    return f"{methods}; {sample_text([one['n'] for one in means], 'run', 'variation')}"


def _has_ci(row: StatisticsRow) -> bool:
    return row["low"] is not None and row["high"] is not None


def _main_effects(metric: str, analyzer: "BatchAnalyzer") -> list[Chart]:
    """The runs and their mean at each level of each factor."""
    study, runs = analyzer.study, analyzer.study.measured(metric)
    groups: dict[str, list[Strip]] = {}
    many: dict[str, list[Bar]] = {}
    estimates: list[Estimate] = []
    marks = FigureList()
    for factor, levels in study.levels.items():
        for level in levels:
            chosen = [run for run in runs if study.level(run, factor) == level]
            if not chosen:
                continue
            estimate = study.estimate(chosen, metric)
            estimates.append(estimate)
            items = {"factor": [f"{factor}={level}"]}
            mean = estimate_figure(f"{factor} = {level}", estimate, figure, items=items, unit="run")
            bar = Bar.of(mean, marks, label=level or "(empty)")
            if len(levels) > MOST_STRIPS:
                many.setdefault(factor, []).append(bar)
            else:
                values = study.values(chosen, metric)
                groups.setdefault(factor, []).append(Strip(mean=bar, values=values))
    if not estimates:
        return []
    title = f"{measure_title(metric)}: main effects"
    overall = sum(run.metrics[metric] for run in runs) / len(runs)
    caption = (
        f"Each point is a run. Mean of {LAST_VALUE} at each level of each factor, over all levels of the "
        "other factors; "
        f"{method_text(one.method for one in estimates if one.low is not None)}; "
        f"{sample_text([one.runs for one in estimates], 'run', 'level', total=False)}. "
        f"Dashed line: mean of all {plural(len(runs), 'run')}. Differences are tested in the table of levels."
    )
    charts = list[Chart]()
    if groups:
        joined = {factor for factor, levels in study.levels.items() if _is_ordered(levels)}
        svg = strips(title, groups, axis=measure_title(metric), joined=joined, reference=overall)
        charts.append(Chart(title=title, svg=svg, marks=marks.figures, caption=caption))
    if many:
        svg = dots(title, many, say=short, axis=measure_title(metric), reference=overall)
        caption = caption.removeprefix("Each point is a run. ")
        charts.append(Chart(title=title, svg=svg, marks=marks.figures, caption=caption))
    return charts


def _is_ordered(levels: Sequence[str]) -> bool:
    """Whether levels are numbers in ascending order: only then a line between them says something."""
    try:
        numbers = [float(level) for level in levels]
    except ValueError:
        return False
    return numbers == sorted(numbers)


def _interactions(metric: str, analyzer: "BatchAnalyzer") -> list[Chart]:
    """The means of the cells of two factors."""
    study, runs, charts = analyzer.study, analyzer.study.measured(metric), list[Chart]()
    factors = study.levels
    tested = {one["factor"]: one for one in analyzer.factor_effects(metric)}
    for first, second in list(combinations(factors, 2))[:DRAWN_PAIRS]:
        # The factor with fewer levels has the lines.
        rows, by = (first, second) if len(factors[first]) >= len(factors[second]) else (second, first)
        if len(factors[by]) > DRAWN_SERIES:
            continue
        cells: dict[str, dict[str, HeatCell]] = {}
        estimates: list[Estimate] = []
        for level in factors[rows]:
            for other in factors[by]:
                levels = (level, other)
                chosen = [run for run in runs if (study.level(run, rows), study.level(run, by)) == levels]
                if chosen:
                    estimate = study.estimate(chosen, metric)
                    estimates.append(estimate)
                    assert estimate.value is not None
                    cells.setdefault(level, {})[other] = HeatCell(
                        value=estimate.value, low=estimate.low, high=estimate.high, n=len(chosen)
                    )
        if not estimates:
            continue
        title = f"{measure_title(metric)}: {rows} by {by}"
        test = tested.get(f"{first} × {second}", {}).get("p_corrected")
        p = "" if test is None else f" Interaction: F test, p = {test:.2g} (Bonferroni)."
        caption = (
            f"Mean of {LAST_VALUE} in each combination of levels; "
            f"{method_text(one.method for one in estimates if one.low is not None)}; "
            f"{sample_text([one.runs for one in estimates], 'run', 'combination')}. "
            f"Differences that change from level to level show an interaction.{p}"
        )
        svg = interaction(
            title, rows, cells, by=by, axis=measure_title(metric), joined=_is_ordered(factors[rows])
        )
        charts.append(Chart(title=title, svg=svg, caption=caption))
    return charts


def _over_turns(metric: str, analyzer: "BatchAnalyzer") -> list[Chart]:
    descriptions = analyzer.study.descriptions
    numbers = list(descriptions)
    rows = {number: analyzer.turns_of(metric, number) for number in numbers[:DRAWN_PANELS]}
    places = _places(analyzer, numbers)
    marks = FigureList()
    panels = [
        Panel(
            row=places[number][0],
            column=places[number][1],
            label=f"{number}: {descriptions[number]}" if len(numbers) > 1 else "all runs",
            points=[
                Point.of(
                    _figure(f"{number}: {descriptions[number]}, turn {turn['turn']}", turn),
                    marks,
                    x=turn["turn"],
                    label=f"turn {turn['turn']}",
                )
                for turn in turns
            ],
        )
        for number, turns in rows.items()
        if len(turns) > 1
    ]
    if not panels:
        return []
    counts = [turn["n"] for turns in rows.values() for turn in turns]
    title = f"{measure_title(metric)} over the turns"
    caption = (
        "Mean over the completed runs of a variation after each turn, with its 95% CI; "
        f"{sample_text(counts, 'run', 'turn and variation', total=False)}. All panels have the same axes."
        f"{_omission_note(len(numbers), DRAWN_PANELS)}"
    )
    svg = small_multiples(title, panels, x_axis="turn", y_axis=measure_title(metric))
    return [Chart(title=title, svg=svg, marks=marks.figures, caption=caption)]


def _places(analyzer: "BatchAnalyzer", numbers: Sequence[int]) -> dict[int, tuple[str, str]]:
    """The row and column of each variation in a grid of panels; empty: they make no grid."""
    study = analyzer.study
    factors = study.levels
    columns = [name for name, levels in factors.items() if len(levels) <= MOST_COLUMNS]
    known = all(set(factors) <= set(study.factors.get(number, {})) for number in numbers)
    if not columns or not known:
        return dict.fromkeys(numbers, ("", ""))
    # The factor with the longest texts has no room above the panels.
    by = min(columns, key=lambda name: (max(map(len, factors[name])) > LONGEST_HEADING, -len(factors[name])))
    places = {}
    for number in numbers:
        levels = study.factors[number]
        others = ", ".join(f"{name} = {levels[name]}" for name in factors if name != by)
        places[number] = others, f"{by} = {levels[by]}"
    return places if len(set(places.values())) == len(places) else dict.fromkeys(numbers, ("", ""))


def results_view(analyzer: "BatchAnalyzer") -> Document:
    """Metrics by factor and over the turns, with the clearest effects as sentences."""
    patterns = analyzer.identify_patterns()
    sections: list[Section] = [
        Sentence(text=one["statement"], tone="good")
        for one in (*patterns["success_factors"], *patterns["metric_effects"])[:SHOWN_EFFECTS]
    ]
    statistics = list(analyzer.calculate_variation_statistics().values())
    if patterns["successful_runs"] < patterns["judged_runs"]:
        sections += _success(statistics)
    for name in analyzer.metrics[:SHOWN_METRICS]:
        sections += _main_effects(name, analyzer) or _by_variation(name, statistics)
        sections += _over_turns(name, analyzer)
    others = analyzer.metrics[SHOWN_METRICS:]
    # What becomes of the world is of interest, however many metrics there are.
    for name in [name for name in others if name in analyzer.study.variables][:SHOWN_VARIABLES]:
        sections += _over_turns(name, analyzer)
    remarks = [f"The analysis has {plural(len(others), 'more metric')}."] if others else []
    return Document(sections=sections, remarks=[*patterns["notes"], *remarks])


def _against_cost(metric: str, statistics: Sequence[StatisticsRow]) -> list[Chart]:
    known = [one for one in statistics if metric in one["metrics"] and one["cost"]["mean"]]
    marks = FigureList()
    points = [
        Point.of(
            _figure(_label(row), row["metrics"][metric], items=_of_variation(row)),
            marks,
            x=row["cost"]["mean"],
        )
        for row in known[:DRAWN_PANELS]
    ]
    if len(points) < 2:
        return []
    title = f"What a run costs against {measure_title(metric)}"
    caption = (
        f"Mean of {LAST_VALUE} and mean cost of all runs, by variation; "
        f"{_sample([one['metrics'][metric] for one in known])}.{_omission_note(len(known), DRAWN_PANELS)}"
    )
    svg = scatter(
        title, points, x_axis="mean cost of a run", y_axis=measure_title(metric), say_x=usd, say_y=short
    )
    return [Chart(title=title, svg=svg, marks=marks.figures, caption=caption)]


def methods_paragraph(analyzer: "BatchAnalyzer") -> str:
    """How the experiment was made and analyzed, as a paragraph for a paper."""
    from proctor import __version__

    study = analyzer.study
    runs, done = study.runs, len(study.completed)
    failed = sum(run.is_judged and not run.is_success for run in runs)
    errors = sum(run.is_error for run in runs)
    factors = study.levels
    design = "The scenario was run without variations"
    if factors:
        named = "; ".join(f"{name} ({', '.join(map(str, levels))})" for name, levels in factors.items())
        design = (
            f"We varied {plural(len(factors), 'factor')} of a multi-actor scenario: {named}, which makes "
            f"{plural(len(study.descriptions), 'variation')}"
        )
    per_variation = [len(study.of(number)) for number in study.descriptions]
    excluded = len(study.excluded)
    by_rule = f", {excluded} of {done + excluded} completed runs excluded by exclude_when" if excluded else ""
    left_out = f", {failed} failed, and {errors} ended in infrastructure errors" if failed or errors else ""
    seeds = any(run.seed is not None for run in runs)
    sentences = [
        f"{design} ({sample_text(per_variation, 'run', 'variation')}). {done} runs completed{left_out}"
        f"{by_rule}; metrics are the last values of completed runs.",
        "Runs of equal number have the same random seed in every variation, and comparisons are paired by "
        "seed where both runs completed."
        if seeds and factors
        else "",
        _interval_sentence(analyzer),
        _comparison_sentence(analyzer) if factors else "",
        _tests_sentence(analyzer) if factors else "",
        _models_sentence(analyzer),
        f"The runs used mock models ({', '.join(study.stand_ins)}): they say nothing about real ones."
        if study.stand_ins
        else "",
        f"Runs and analysis: Proctor {__version__}.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _models_sentence(analyzer: "BatchAnalyzer") -> str:
    """Which models answered, and what made completed runs less valid as data; empty: nothing is known."""
    ended = [*analyzer.study.completed, *analyzer.study.excluded]
    served = served_text(sum_served(run.served for run in ended))
    counts = [{kind: count for kind, count in run.invalid.items() if count} for run in ended]
    invalid = validity_text(sum_counts(counts))
    sentences = [
        f"Models as served: {served}." if served else "",
        f"Completed runs had {invalid}." if invalid else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _tests_sentence(analyzer: "BatchAnalyzer") -> str:
    """Which models the tables of tests are of."""
    tests = analyzer.tests
    rows = [row for table in tests.anova.values() for row in table]
    blocks = " with seeds as blocks" if any(row.source == "seed" for row in rows) else ""
    ranked = list(dict.fromkeys(row.rank_test for row in rows if row.rank_p is not None))
    methods = list(dict.fromkeys(model.method for model in tests.odds.values()))
    parts = [
        f"Factors and interactions of two were tested with analyses of variance{blocks} (type II; partial "
        f"eta squared with 90% CI{'; rank tests: ' + ', '.join(ranked) if ranked else ''})"
        if rows
        else "",
        f"odds ratios are from {' and '.join(methods)}" if methods else "",
        "categorical metrics were tested by permutation of Pearson's chi-squared"
        if any(tests.associations.values())
        else "",
    ]
    text = "; ".join(part for part in parts if part)
    return (
        f"{text[0].upper()}{text[1:]}; each of these is Bonferroni-corrected over all metrics."
        if text
        else ""
    )


def _comparison_sentence(analyzer: "BatchAnalyzer") -> str:
    levels = _tests(experiment.statement(one) for one in analyzer.level_contrasts if one.metric)
    pairs = _tests(one for metric in analyzer.metrics for one in analyzer.compare_pairs(metric))
    return (
        "Levels of factors were compared within blocks of equal seed and equal other factors"
        f"{levels}, variations pair by pair{pairs}; intervals and p values of each family are "
        "Bonferroni-corrected, with a significance level of 0.05."
    )


def _tests(rows: Iterable[StatisticsRow]) -> str:
    names = list(dict.fromkeys(str(row["test"]) for row in rows if row["test"]))
    return f" ({'; '.join(names)})" if names else ""


def _interval_sentence(analyzer: "BatchAnalyzer") -> str:
    statistics = analyzer.calculate_metric_statistics()
    by_method: dict[str, list[str]] = {}
    for name, statistic in statistics.items():
        if _has_ci(statistic):
            by_method.setdefault(statistic["method"], []).append(name)
    parts = [
        f"{method_text([method], prefix='')} for {', '.join(names)}" for method, names in by_method.items()
    ]
    success = "Wilson's method for success rates"
    return f"95% confidence intervals are for runs like these: {'; '.join([success, *parts])}."
