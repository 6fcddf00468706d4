"""`proctor import`: sessions from traces, log groups, and files of other tools; tables of results.

`proctor export`: tables of a run, sessions in the format of other tools, or dialogues as one table.
"""

from pathlib import Path
from typing import Annotated

import typer

from proctor.api import exports, intake
from proctor.api.exports import PREDICTIONS, SESSION_FORMATS, Scope
from proctor.api.intake import AUTO, OTLP, ImportResult, LogGroupQuery
from proctor.cli import output as codes
from proctor.cli.output import (
    Json,
    RunOption,
    SessionsOption,
    SinceOption,
    UntilOption,
    Working,
    comma_separated,
    count,
    print_json,
    print_note,
    printable,
    scope_of,
)
from proctor.cli.run import terminal_context
from proctor.cli.simulate import export_dialogues
from proctor.errors import UsageError
from proctor.formatting import moment_of
from proctor.json_values import camel_document
from proctor.records import find_kind, kind_names
from proctor.session import DEFAULT_LOG_GROUP

import_app = typer.Typer(add_completion=False, no_args_is_help=True)
MOST_PRINTED = 20
"""Unreadable records that are printed; `--json` has more."""
MOST_SKIPPED = 5
Paths = Annotated[list[Path], typer.Argument(help="Files or folders.", metavar="PATH…")]
Service = Annotated[str, typer.Option(help="Service of sessions that don't name one.", metavar="NAME")]
LogGroup = Annotated[
    str, typer.Option("--log-group", help="Log group of sessions that don't name one.", metavar="NAME")
]

RunName = Annotated[
    str,
    typer.Option(
        "--run", help="Make the sessions items of this run, for reports and comparisons.", metavar="NAME"
    ),
]


@import_app.callback()
def import_() -> None:
    """Import sessions or tables of results from other tools. Importing again replaces.

    Exit codes: 0 everything was read · 1 some records are unreadable · 2 nothing was imported.

    Example:  proctor import otlp traces.jsonl
    """


def _command(kind: str, summary: str) -> None:
    def command(
        context: typer.Context,
        paths: Paths,
        service: Service = "",
        log_group: LogGroup = DEFAULT_LOG_GROUP,
        run: RunName = "",
        as_json: Json = False,
    ) -> int:
        with terminal_context(context.obj) as ctx:
            with Working("importing") as working:
                done = intake.import_files(
                    ctx,
                    paths,
                    kind,
                    service=service,
                    log_group=log_group,
                    run_id=run,
                    on_progress=working.update,
                )
        return _print_result(done, as_json=as_json)

    command.__doc__ = f"{summary}\n\n    Example:  proctor import {kind} recorded/"
    import_app.command(kind)(command)


_command(AUTO, "Import files and folders; detects the format of each file.")


_command(
    OTLP,
    "Import spans: OTLP as JSON lines or protobuf, as collectors write them, and CloudWatch exports; "
    "compressed or not.",
)


@import_app.command()
def cloudwatch(
    context: typer.Context,
    log_group: Annotated[
        list[str] | None, typer.Option("--log-group", help="Log group. Repeatable.", metavar="NAME")
    ] = None,
    log_group_prefix: Annotated[
        list[str] | None,
        typer.Option("--log-group-prefix", help="Prefix of log groups. Repeatable.", metavar="PREFIX"),
    ] = None,
    service: Annotated[str, typer.Option(help="Only this service.", metavar="NAME")] = "",
    session_id: Annotated[
        list[str] | None, typer.Option("--session-id", help="Only this session. Repeatable.", metavar="ID")
    ] = None,
    start: Annotated[
        str, typer.Option(help="Start time, e.g. 2024-01-31 or 2024-01-31T14:00.", metavar="TIME")
    ] = "",
    end: Annotated[str, typer.Option(help="End time, exclusive.", metavar="TIME")] = "",
    region: Annotated[str, typer.Option(help="AWS region (default: from boto3).", metavar="REGION")] = "",
    endpoint_url: Annotated[str, typer.Option(help="Endpoint instead of AWS.", metavar="URL")] = "",
    run: RunName = "",
    as_json: Json = False,
) -> int:
    """Import sessions from CloudWatch Logs with the credentials of boto3; requires the extra `aws`.

    Example:  proctor import cloudwatch --log-group /aws/bedrock-agentcore/runtimes/Calc-1-DEFAULT
    """
    if not log_group and not log_group_prefix:
        raise UsageError("no log groups selected\nPass --log-group NAME or --log-group-prefix PREFIX.")
    query = LogGroupQuery(
        names=log_group or (),
        prefixes=log_group_prefix or (),
        service=service,
        session_ids=session_id or (),
        start=moment_of(start),
        end=moment_of(end),
    )
    with terminal_context(context.obj) as ctx:
        with Working("importing log groups"):
            done = intake.import_cloudwatch(ctx, query, region=region, endpoint_url=endpoint_url, run_id=run)
    return _print_result(done, as_json=as_json)


@import_app.command()
def table(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Tables, or folders of tables.", metavar="PATH…")],
    run: Annotated[str, typer.Option("--run", help="Run that the rows become items of.", metavar="NAME")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help="Column of the table: task=instance_id. @file is the file name; NAME= ignores a column. "
            "Repeatable.",
            metavar="NAME=COLUMN",
        ),
    ] = None,
    pass_score: Annotated[
        float | None,
        typer.Option(
            "--pass-score",
            help="Lowest score that counts as success in a table without success or status (default: 1).",
            metavar="SCORE",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Import a table of results as a run: CSV, JSON lines, JSON, or Parquet, one row per attempt at a task.

    Columns: task · model, agent, or any other factor · repeat · success, score, or status (success, fail,
    error, timeout) · cost (USD) · seconds · tokens · error. Rows that were imported before are replaced.

    Example:  proctor import table results.csv --run leaderboard --column task=instance_id
    """
    with terminal_context(context.obj) as ctx:
        with Working("importing rows"):
            done = intake.import_table(ctx, paths, run, columns=column, pass_score=pass_score)
    if as_json:
        print_json(camel_document(done))
    for note in done.notes:
        print_note(f"note: {printable(note)}")
    changes = f"{done.added:,} new, {done.replaced:,} replaced, {done.unchanged:,} unchanged"
    removed = f", {done.removed:,} removed" if done.removed else ""
    print_note(
        f"{count(done.rows, 'row')} of {count(done.files, 'file')} imported into the run {done.run_id} "
        f"({changes}{removed})"
    )
    return codes.SUCCEEDED


@import_app.command()
def deposit(
    file: Annotated[
        Path, typer.Argument(help="Archive that `proctor export --deposit` wrote.", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option("--out", help="New folder to unpack it to.", metavar="DIR")],
    as_json: Json = False,
) -> int:
    """Check the checksums of a deposit and unpack it, to analyze it again.

    Example:  proctor import deposit study.zip --out study
    """
    done = exports.unpack_deposit(file, out)
    if as_json:
        print_json({"folder": str(done.path), "runId": done.run_id, "count": done.files})
    print_note(
        f"{printable(exports.deposit_text(done))} unpacked to {printable(out)}; all checksums are right"
    )
    print_note(f"Next:  proctor analyze {printable(out / 'output')}")
    return codes.SUCCEEDED


def _print_result(done: ImportResult, *, as_json: bool) -> int:
    if as_json:
        print_json(
            {
                **({"runId": done.run_id, "added": done.added} if done.run_id else {}),
                "sessions": done.session_ids,
                "documents": done.documents,
                "unreadable": done.unreadable_count,
                "passedOver": done.passed_over,
                "problems": [
                    {"path": record.path, "line": record.line or None, "problem": record.problem}
                    for record in done.unreadable
                ],
            }
        )
    for problem in done.unreadable[:MOST_PRINTED]:
        print_note(f"skipped {printable(problem, width=300)}")
    if done.unreadable_count > MOST_PRINTED:
        print_note(f"… and {done.unreadable_count - MOST_PRINTED:,} more (--json)")
    if done.passed_over:
        named = ", ".join(Path(path).name for path in done.passed_over[:MOST_SKIPPED])
        more = ", …" if done.passed_over_count > MOST_SKIPPED else ""
        print_note(f"skipped {count(done.passed_over_count, 'other file')}: {printable(named)}{more}")
    source = f" from {count(done.documents, 'span or record', 'spans and records')}" if done.documents else ""
    into = ""
    if done.run_id and done.session_ids:
        replaced = len(done.session_ids) - done.added
        into = f" into the run {done.run_id} ({done.added:,} new, {replaced:,} replaced)"
    print_note(f"{count(len(done.session_ids), 'session')} imported{source}{into}")
    if not done.session_ids:
        return codes.BAD_USAGE
    return codes.SOME_DID_NOT if done.unreadable_count else codes.SUCCEEDED


def _about(kind: str) -> str:
    docstring = find_kind(kind).__doc__
    return str(docstring or f"Import sessions recorded by {kind}.").strip().splitlines()[0]


for _kind in kind_names():
    _command(_kind, _about(_kind))


FORMATS_HELP = (
    f"Tables: json, ndjson, csv, or parquet. Sessions: {', '.join(SESSION_FORMATS)}. Patches: {PREDICTIONS}."
)
export_app = typer.Typer(add_completion=False)


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
    deposit: Annotated[
        Path | None,
        typer.Option(
            help="Write all of --run to one archive for a journal: tidy tables, codebook, config, checksums.",
            metavar="FILE.zip",
        ),
    ] = None,
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
    if deposit is not None:
        if not run:
            raise UsageError("a deposit is made of a run\nPass --run RUN.")
        with terminal_context(context.obj) as ctx, Working("exporting"):
            done = exports.deposit(ctx, run, deposit)
        if as_json:
            print_json({"files": [str(done.path)], "runId": done.run_id, "count": done.files})
        print_note(f"wrote {printable(done.path)}: {printable(exports.deposit_text(done))}")
        return codes.SUCCEEDED
    if out is None:
        raise UsageError("--out is required\nPass --out DIR.")
    with terminal_context(context.obj) as ctx:
        scope = Scope() if everything else scope_of(ctx, run, sessions, start_date, end_date)
        with Working("checking signatures"):
            ctx.note_foreign_results([scope.run_id] if scope.run_id else [])
        with Working("exporting") as working:
            written = exports.export(
                ctx,
                scope,
                out=out,
                format_=format_,
                tables=comma_separated(tables) or None,
                on_progress=working.update,
            )
    if as_json:
        print_json({"files": [str(path) for path in written]})
    for path in written:
        print_note(f"wrote {printable(path)}")
    return codes.SUCCEEDED


apps = {"import": import_app, "export": export_app}
