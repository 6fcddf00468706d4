"""`proctor export`: a run's tables as files, sessions for other tools, or dialogues as one table."""

from pathlib import Path
from typing import Annotated

import typer

from proctor.bootstrap import places
from proctor.cli import output as codes
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
from proctor.cli.simulate import export_dialogues
from proctor.errors import UsageError
from proctor.export import SESSION_FORMATS, export_sessions, export_tables
from proctor.store import Scope

FORMATS_HELP = f"Tables: json, ndjson, csv or parquet. Sessions: {', '.join(SESSION_FORMATS)}."


export_app = typer.Typer(add_completion=False)


apps = {"export": export_app}


@export_app.command()
def export(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write to; made if it is not there.")
    ] = None,
    run: RunOption = "",
    sessions: SessionsOption = "",
    start_date: SinceOption = "",
    end_date: UntilOption = "",
    tables: Annotated[str, typer.Option(help="Only these tables, with commas between.")] = "",
    format_: Annotated[str, typer.Option("--format", help=FORMATS_HELP)] = "json",
    everything: Annotated[bool, typer.Option("--all", help="Every session there is.")] = False,
    input_dir: Annotated[
        Path | None, typer.Option(help="The output folder of a simulation, in place of a run.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="The CSV file to write, with --input-dir.")] = None,
    level: Annotated[
        str, typer.Option(help="With --input-dir: a row for each session, or turn.")
    ] = "session",
    stats: Annotated[
        bool, typer.Option("--stats", help="With --input-dir: print statistics of the sessions.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Write the rows of a run, of some sessions or of some days, and exactly those; or the sessions
    themselves, in the format of another tool.

    Example:  proctor export --run nightly-42 --out tables --format ndjson --tables sessions,iterations
    """
    if input_dir is not None:
        return export_dialogues(input_dir, output, level=level, stats=stats, as_json=as_json)
    if out is None:
        raise UsageError("say where the tables go\nGive --out FOLDER.")
    with places(context.obj).open_store() as store:
        scope = Scope() if everything else scope_of(store, run, sessions, start_date, end_date)
        wanted = [name.strip() for name in tables.split(",") if name.strip()] or None
        label = scope.run_id or "export"
        if format_ in SESSION_FORMATS:
            written = export_sessions(store.read, scope, out=out, form=format_, label=label)
        else:
            written = export_tables(store.read, scope, out=out, format=format_, tables=wanted, label=label)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    for path in written:
        print_note(f"wrote {printable(path)}")
    return codes.SUCCEEDED
