"""`proctor report` and `proctor analyze`: reports of runs, and analyses of output folders."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from proctor.api.reports import FORMATS, make_report
from proctor.cli import output
from proctor.cli.output import (
    Json,
    RunOption,
    SessionsOption,
    SinceOption,
    UntilOption,
    Working,
    count,
    print_json,
    print_note,
    printable,
    scope_of,
    write_file,
)
from proctor.cli.run import terminal_context
from proctor.errors import UsageError
from proctor.report.as_markdown import PLOTS
from proctor.report.render import FIGURES

report_app = typer.Typer(add_completion=False)


@report_app.command()
def report(
    context: typer.Context,
    run: RunOption = "",
    sessions: SessionsOption = "",
    start_date: SinceOption = "",
    end_date: UntilOption = "",
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="md, html, portable (HTML with all items), or json (default: by the name of FILE, else md).",
            metavar="FORMAT",
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="Output file (default: standard output).", metavar="FILE")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document that contains the report.")
    ] = False,
) -> int:
    """Write a report of a run, of sessions, or of days, in Markdown, HTML, or JSON.

    Example:  proctor report --run nightly-42 --format html --out report.html
    """
    format_ = format_ or _format_of(out)
    if format_ not in (*FORMATS, "markdown"):
        raise UsageError(f"there is no report format {format_}\nThere are: md, html, portable, json.")
    with terminal_context(context.obj) as ctx:
        scope = scope_of(ctx.store, run, sessions, start_date, end_date)
        with Working("making the report"):
            ctx.note_foreign_results([scope.run_id] if scope.run_id else [], unsigned=True)
            text = make_report(ctx, scope, "md" if format_ == "markdown" else format_)
    if out is not None:
        write_file(out, text)
        print_note(f"wrote {printable(out)}")
    if as_json:
        print_json({"format": format_, "file": None if out is None else str(out), "report": text})
    elif out is None:
        print(text)
    return output.SUCCEEDED


def _format_of(out: Path | None) -> str:
    """The format that the name of a file stands for."""
    return {".html": "html", ".htm": "html", ".json": "json"}.get(out.suffix.lower() if out else "", "md")


analyze_app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeRequest:
    """Options of `proctor analyze`."""

    report: bool
    metric: str
    as_json: bool
    by: str = ""
    against: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOutput:
    """The result of an analysis."""

    document: object
    """All of it, for `--json`."""
    text: str
    """The summary that is printed."""
    files: Sequence[Path] = ()


Analyze = Callable[[Path, AnalyzeRequest], AnalysisOutput]
ANALYSES: dict[str, tuple[Sequence[str], str]] = {
    "experiment": (("runs/var-*", "batch-state.json"), "proctor.cli.scenario:analyze_experiment"),
    "simulation": (("batch_summary.json", "*_run[0-9]*.json"), "proctor.cli.simulate:analyze_simulation"),
}
"""Each kind of folder: files that only such a folder has, and the function that analyzes it."""


@analyze_app.command()
def analyze(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of an experiment or a simulation.")],
    report: Annotated[
        bool, typer.Option("--report", help="Also write a report in Markdown and HTML.")
    ] = False,
    metric: Annotated[str, typer.Option("--metric", help="Analyze only this metric.")] = "",
    by: Annotated[
        str,
        typer.Option(
            "--by", help="Dialogues: factor whose effect is estimated, such as client (default: therapist)."
        ),
    ] = "",
    against: Annotated[str, typer.Option("--against", help="Dialogues: baseline level of --by.")] = "",
    as_json: Json = False,
) -> int:
    """Analyze the runs in DIR: statistics, comparisons, effects and patterns, written to DIR/analysis.

    Example:  proctor analyze experiments/my-experiment --report
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}\nGive the folder of an experiment or a simulation.")
    request = AnalyzeRequest(report=report, metric=metric, as_json=as_json, by=by, against=against)
    with Working("analyzing"):
        analysis = _find_analysis(folder)(folder, request)
    if as_json:
        print_json(analysis.document)
    else:
        print(printable(analysis.text, lines=True))
    folders = Counter(path.parent for path in analysis.files if path.parent.name in (PLOTS, FIGURES))
    for path in analysis.files:
        if path.parent not in folders:
            print_note(f"wrote {printable(path)}")
    for each, number in folders.items():
        print_note(f"wrote {printable(each)}: {count(number, 'file')}")
    return output.SUCCEEDED


def _find_analysis(folder: Path) -> Analyze:
    for patterns, function in ANALYSES.values():
        if any(next(folder.glob(pattern), None) for pattern in patterns):
            # Each kind needs libraries of its own; only the one in use is loaded.
            module, _, name = function.partition(":")
            analysis: Analyze = getattr(import_module(module), name)
            return analysis
    raise UsageError(f"{folder} holds nothing to analyze\nIt must be the folder of: {', '.join(ANALYSES)}.")


apps = {"report": report_app, "analyze": analyze_app}
