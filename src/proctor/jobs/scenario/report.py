"""The report of an experiment as a document, and its files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.document import (
    Chart,
    Column,
    Details,
    Document,
    Fact,
    Section,
    Sentence,
    Table,
    numeric,
    prose,
    table,
)
from proctor.formatting import chance, figure, interval, percent, plural, usd, whole
from proctor.jobs.scenario.analysis import BatchAnalyzer, around, cost_limits
from proctor.jobs.scenario.figures import charts_of, methods_paragraph
from proctor.report.render import document_html, report_files, write_pages

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
    texts = [
        study.description,
        errors if patterns["errors"] else "",
        checks,
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
            table(["Level", *change, "Test", NOTE], levels, caption=about),
        ],
    )


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
    "all of them. The comparisons of variations above are a family of their own: a false finding in either "
    "may be twice as likely as in one."
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
