"""What `proctor analyze` says of an experiment."""

from pathlib import Path
from typing import Any

from proctor.cli.report import AnalysisOutput, AnalyzeRequest
from proctor.formatting import figure, interval, percent
from proctor.jobs.scenario.analysis import (
    BatchAnalyzer,
    analysis_folder,
    chance,
    experiment_html,
    experiment_markdown,
    write_pages,
)


def analyse(folder: Path, asked: AnalyzeRequest) -> AnalysisOutput:
    """Analyse an experiment, write its files, and say the main things."""
    analyzer = BatchAnalyzer(folder, metric=asked.metric)
    analyzer.collect_run_data()
    documents = analyzer.documents()
    target = analysis_folder(folder, asked.metric)
    files = analyzer.save(target)
    if asked.report:
        files += _reports(analyzer, target)
    document = {name.removesuffix(".json").replace("-", "_"): one for name, one in documents.items()}
    return AnalysisOutput(document=document, words=_words(document), files=files)


def _reports(analyzer: BatchAnalyzer, target: Path) -> list[Path]:
    markdown, plots = experiment_markdown(analyzer)
    pages = {"analysis-report.md": markdown, "analysis-report.html": experiment_html(analyzer)}
    return write_pages(target, pages | plots)


def _words(document: dict[str, Any]) -> str:
    patterns = document["patterns"]
    low, high = patterns["success_rate_interval"]
    lines = [
        f"{patterns['successful_runs']} of {patterns['total_runs']} runs completed: "
        f"{percent(patterns['success_rate'])} (95% CI {interval(low, high)})"
    ]
    if patterns["errors"]:
        would_be = percent(patterns["success_rate_if_errors_failed"])
        lines.append(
            f"{patterns['errors']} left out of that rate, ended by an error of ours or of a provider; "
            f"counted as failures, it would be {would_be}."
        )
    if patterns["stand_ins"]:
        lines.append("Rehearsal: stand-ins took part; these figures say nothing about real models.")
    for name, one in document["metrics_analysis"].items():
        if one["n"]:
            spread = f"{figure(one['low'])} to {figure(one['high'])}"
            lines.append(f"{name}: {figure(one['mean'])} (95% CI {spread}, n = {one['n']})")
        for pair in document["comparisons"].get(name, ())[:10]:
            first, second = pair["descriptions"]
            p = chance(pair["p_corrected"])
            said = f"p {p}" if p.startswith("<") else f"p = {p}"
            lines.append(f"  {first} − {second}: {figure(pair['value'])} ({said}, corrected; {pair['test']})")
    statements = [*patterns["success_factors"], *patterns["failure_modes"], *patterns["metric_effects"]]
    lines += [one["statement"] for one in statements[:20]]
    return "\n".join([*lines, *patterns["notes"]])
