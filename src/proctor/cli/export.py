"""`proctor export`: tables of a run, sessions in the format of other tools, or dialogues as one table."""

from pathlib import Path
from typing import Annotated

import typer

from proctor.cli import output as codes
from proctor.cli.output import (
    Json,
    RunOption,
    SessionsOption,
    SinceOption,
    UntilOption,
    Working,
    print_json,
    print_note,
    printable,
    scope_of,
)
from proctor.cli.run import terminal_context
from proctor.cli.simulate import export_dialogues
from proctor.errors import UsageError
from proctor.export import SESSION_FORMATS, export_sessions, export_tables
from proctor.store import Scope

PREDICTIONS = "swe-bench"
FORMATS_HELP = (
    f"Tables: json, ndjson, csv, or parquet. Sessions: {', '.join(SESSION_FORMATS)}. Patches: {PREDICTIONS}."
)
export_app = typer.Typer(add_completion=False)
apps = {"export": export_app}


@export_app.command()
def export(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option("--out", help="Output folder; created if missing.", metavar="DIR")
    ] = None,
    run: RunOption = "",
    sessions: SessionsOption = "",
    start_date: SinceOption = "",
    end_date: UntilOption = "",
    tables: Annotated[
        str,
        typer.Option(
            help="Comma-separated tables (default for CSV: iterations,tool_calls; otherwise all).",
            metavar="TABLES",
        ),
    ] = "",
    format_: Annotated[str, typer.Option("--format", help=FORMATS_HELP, metavar="FORMAT")] = "json",
    everything: Annotated[bool, typer.Option("--all", help="Export all sessions.")] = False,
    input_dir: Annotated[
        Path | None, typer.Option(help="Output folder of a simulation, instead of a run.", metavar="DIR")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="With --input-dir: CSV file to write.", metavar="FILE")
    ] = None,
    level: Annotated[
        str, typer.Option(help="With --input-dir: one row per `session` or `turn`.", metavar="LEVEL")
    ] = "session",
    stats: Annotated[
        bool, typer.Option("--stats", help="With --input-dir: print statistics of the sessions.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Export the tables of a run, of sessions, or of days; or sessions in the format of another tool.

    Example:  proctor export --run nightly-42 --out tables --format ndjson --tables sessions,iterations
    """
    if input_dir is not None:
        return export_dialogues(input_dir, output, level=level, stats=stats, as_json=as_json)
    if out is None:
        raise UsageError("--out is required\nPass --out DIR.")
    with terminal_context(context.obj) as ctx:
        scope = Scope() if everything else scope_of(ctx.store, run, sessions, start_date, end_date)
        ctx.note_foreign_results([scope.run_id] if scope.run_id else [])
        names = [name.strip() for name in tables.split(",") if name.strip()] or None
        label = scope.run_id or "export"
        if format_ == PREDICTIONS:
            # Loaded here: few exports need it.
            from proctor.tasks.predictions import export_predictions

            if not scope.run_id:
                raise UsageError("patches are exported of a run\nPass --run RUN.")
            written = export_predictions(ctx.store, scope.run_id, out, ctx.settings.user_environment)
        elif format_ in SESSION_FORMATS:
            with Working("exporting sessions"):
                written = export_sessions(ctx.store.read, scope, out=out, form=format_, label=label)
        else:
            with Working("exporting rows") as working:
                written = export_tables(
                    ctx.store.read,
                    scope,
                    out=out,
                    format=format_,
                    tables=names,
                    label=label,
                    on_progress=working.update,
                )
    if as_json:
        print_json({"files": [str(path) for path in written]})
    for path in written:
        print_note(f"wrote {printable(path)}")
    return codes.SUCCEEDED
