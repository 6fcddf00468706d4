"""`proctor report` and `proctor analyze`: reports of runs, and analyses of output folders."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from proctor.api.reports import FORMATS, analyze_folder, make_report
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
        scope = scope_of(ctx, run, sessions, start_date, end_date)
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
    codes: Annotated[
        Path | None,
        typer.Option(help="Experiments: CSV with human codes of manual metrics: run_id, metric, value, who."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Analyze the runs in DIR: statistics, comparisons, effects and patterns, written to DIR/analysis.

    Example:  proctor analyze experiments/my-experiment --report
    """
    with Working("analyzing"):
        analysis = analyze_folder(folder, report=report, metric=metric, by=by, against=against, codes=codes)
    print_skipped(analysis.skipped)
    if as_json:
        print_json(analysis.document)
    else:
        print(printable(analysis.text, lines=True))
    folders = Counter(path.parent for path in analysis.files if path.parent.name in (PLOTS, FIGURES))
    for path in analysis.files:
        if path.parent not in folders:
            print_note(f"wrote {printable(path)}")
    for written, number in folders.items():
        print_note(f"wrote {printable(written)}: {count(number, 'file')}")
    return output.SUCCEEDED


NAMED = 10
"""Unreadable files that are named; the others are only counted."""


def print_skipped(skipped: Mapping[str, str]) -> None:
    """Print which files could not be read."""
    for path, why in list(skipped.items())[:NAMED]:
        print_note(f"skipped {printable(path)}: {printable(why, width=200)}")
    if skipped:
        print_note(f"{count(len(skipped), 'file')} in the folder could not be read and were skipped.")


apps = {"report": report_app, "analyze": analyze_app}
