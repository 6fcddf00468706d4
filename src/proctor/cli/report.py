"""`proctor report`: what a run came to, in Markdown or HTML."""

from pathlib import Path
from typing import Annotated

import typer

from proctor.analyse.summary import summarise
from proctor.cli import ending as codes
from proctor.cli.house import now, places
from proctor.cli.scope import RunOption, SessionsOption, SinceOption, UntilOption, scope_of
from proctor.cli.words import print_json, printable, say
from proctor.errors import UsageError
from proctor.report import html, markdown

report_app = typer.Typer(add_completion=False)
apps = {"report": report_app}

FORMATS = {"md": markdown, "markdown": markdown, "html": html}


@report_app.command()
def report(
    context: typer.Context,
    run: RunOption = "",
    sessions: SessionsOption = "",
    start_date: SinceOption = "",
    end_date: UntilOption = "",
    format_: Annotated[str, typer.Option("--format", help="md or html.")] = "md",
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write; standard output without it.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document with the report in it.")
    ] = False,
) -> int:
    """Write a report of a run, of some sessions or of some days: a page to read, to mail or to print.

    Example:  proctor report --run nightly-42 --format html --out report.html
    """
    if format_ not in FORMATS:
        raise UsageError(f"there is no report format {format_}\nThere are: md, html.")
    with places(context.obj).open_store() as store:
        scope = scope_of(store, run, sessions, start_date, end_date)
        job = store.read.batch(scope.run_id, now())["job"] if scope.run_id else ""
        if job == "evaluation":
            # Has a page of its own; what that takes, other reports need not load.
            from proctor.cli.evaluation_report import evaluation_report

            text = evaluation_report(store, scope.run_id, format_)
        else:
            text = FORMATS[format_](summarise(store.read, scope, now()))
    if out is not None:
        _write(out, text)
        say(f"wrote {printable(out)}")
    if as_json:
        print_json({"format": format_, "file": None if out is None else str(out), "report": text})
    elif out is None:
        print(text)
    return codes.SUCCEEDED


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}\nGive --out the path of a file.") from error
