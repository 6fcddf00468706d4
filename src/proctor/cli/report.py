"""`proctor report` and `proctor analyze`: reports of runs, and analyses of output folders."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.bootstrap import now, places
from proctor.cli import output
from proctor.cli.output import (
    Json,
    RunOption,
    SessionsOption,
    SinceOption,
    UntilOption,
    print_json,
    print_note,
    printable,
    scope_of,
)
from proctor.errors import UsageError
from proctor.report import html, markdown
from proctor.stats.summary import summarise

report_app = typer.Typer(add_completion=False)


FORMATS = {"md": markdown, "markdown": markdown, "html": html}


@report_app.command()
def report(
    context: typer.Context,
    run: RunOption = "",
    sessions: SessionsOption = "",
    start_date: SinceOption = "",
    end_date: UntilOption = "",
    format_: Annotated[str, typer.Option("--format", help="md or html.", metavar="FORMAT")] = "md",
    out: Annotated[
        Path | None, typer.Option("--out", help="Output file (default: standard output).", metavar="FILE")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document that contains the report.")
    ] = False,
) -> int:
    """Write a report of a run, of sessions, or of days, in Markdown or HTML.

    Example:  proctor report --run nightly-42 --format html --out report.html
    """
    if format_ not in FORMATS:
        raise UsageError(f"there is no report format {format_}\nThere are: md, html.")
    with places(context.obj).open_store() as store:
        scope = scope_of(store, run, sessions, start_date, end_date)
        job = store.read.batch(scope.run_id, now())["job"] if scope.run_id else ""
        if job == "evaluation":
            # Loaded here: other reports do not need it.
            from proctor.cli.evaluation_report import evaluation_report

            text = evaluation_report(store, scope.run_id, format_)
        else:
            text = FORMATS[format_](summarise(store.read, scope, now()))
    if out is not None:
        _write(out, text)
        print_note(f"wrote {printable(out)}")
    if as_json:
        print_json({"format": format_, "file": None if out is None else str(out), "report": text})
    elif out is None:
        print(text)
    return output.SUCCEEDED


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}\nPass the path of a file to --out."
        ) from error


# `proctor analyze`: say what the runs in a folder show, whatever kind of runs they are.


analyze_app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeRequest:
    """What the command line says."""

    report: bool
    metric: str
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOutput:
    """What an analysis came to."""

    document: Any
    """All of it, for `--json`."""
    words: str
    """For people."""
    files: Sequence[Path] = ()


Analyse = Callable[[Path, AnalyzeRequest], AnalysisOutput]


KINDS: dict[str, tuple[Sequence[str], str]] = {
    "experiment": (("runs/var-*", "batch-state.json"), "proctor.cli.analyze_experiment"),
    "simulation": (("batch_summary.json", "*_run[0-9]*.json"), "proctor.cli.analyze_dialogues"),
}
"""Each kind of folder: what is found in it (any of these), and the module whose `analyse` knows it."""


@analyze_app.command()
def analyze(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of an experiment or a simulation.")
    ],
    report: Annotated[
        bool, typer.Option("--report", help="Also write the report, in Markdown and HTML.")
    ] = False,
    metric: Annotated[str, typer.Option("--metric", help="Only this metric.")] = "",
    as_json: Json = False,
) -> int:
    """Say what the runs in DIR show: statistics, comparisons, effects and patterns, written to its analysis/.

    Example:  proctor analyze experiments/my-experiment --report
    """
    if not folder.is_dir():
        remedy = "Give the folder that an experiment or a simulation was written to."
        raise UsageError(f"there is no folder {folder}\n{remedy}")
    told = _analyse_of(folder)(folder, AnalyzeRequest(report=report, metric=metric, as_json=as_json))
    if as_json:
        print_json(told.document)
    else:
        print(printable(told.words, lines=True))
    for path in told.files:
        print_note(f"wrote {printable(path)}")
    return output.SUCCEEDED


def _analyse_of(folder: Path) -> Analyse:
    for marks, module in KINDS.values():
        if any(next(folder.glob(mark), None) for mark in marks):
            # Each kind brings its own libraries; only the one that is needed is loaded.
            found: Analyse = import_module(module).analyse
            return found
    kinds = ", ".join(KINDS)
    raise UsageError(f"nothing in {folder} can be analysed\nIt knows the folders of: {kinds}.")


apps = {"report": report_app, "analyze": analyze_app}
