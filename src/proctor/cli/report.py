"""`proctor report` and `proctor analyze`: reports of runs, and analyses of output folders."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

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
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.jobs import job_of_run
from proctor.report import html, markdown
from proctor.report.render import FIGURES, PLOTS, portable
from proctor.stats.summary import summarise
from proctor.store import Scope

report_app = typer.Typer(add_completion=False)
PORTABLE = "portable"
FORMATS = {"md": markdown, "markdown": markdown, "html": html}
JSON = "json"


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
    if format_ not in (*FORMATS, JSON, PORTABLE):
        raise UsageError(f"there is no report format {format_}\nThere are: md, html, portable, json.")
    with terminal_context(context.obj) as ctx:
        scope = scope_of(ctx.store, run, sessions, start_date, end_date)
        with Working("making the report"):
            ctx.note_foreign_results([scope.run_id] if scope.run_id else [], unsigned=True)
            if format_ == JSON:
                text = _json_report(ctx, scope)
            else:
                text = _report(ctx, scope, format_)
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
    return {".html": "html", ".htm": "html", ".json": JSON}.get(out.suffix.lower() if out else "", "md")


def _report(ctx: RunContext, scope: Scope, format_: str) -> str:
    is_portable = format_ == PORTABLE
    if is_portable and not scope.run_id:
        raise UsageError("a portable report is about one run\nPass --run RUN.")
    kind = "html" if is_portable else format_
    of_job = _report_of_job(ctx, scope.run_id, kind) if scope.run_id else None
    text = of_job or FORMATS[kind](summarise(ctx.store.read, scope, ctx.now()))
    return portable(text, ctx.store.read, scope.run_id) if is_portable else text


def _json_report(ctx: RunContext, scope: Scope) -> str:
    """The figures of a run as the documented JSON."""
    if not scope.run_id:
        raise UsageError("a JSON report is about one run\nPass --run RUN.")
    # Loads numpy, which other reports of jobs may not need.
    from proctor.report.render import figures_document

    document = figures_document(summarise(ctx.store.read, scope, ctx.now()))
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _report_of_job(ctx: RunContext, run_id: str, format_: str) -> str | None:
    """The report that the job of a run makes; None: the one that every run has."""
    return job_of_run(ctx.store.read.batch(run_id, ctx.now())["job"]).report(run_id, format_, ctx)


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
