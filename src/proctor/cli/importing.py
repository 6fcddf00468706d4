"""`proctor import`: sessions that were recorded elsewhere, brought into the store."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from proctor.batch.ingest import AUTO, OTLP, ImportResult, import_log_groups, import_paths
from proctor.bootstrap import now, places
from proctor.cli import output
from proctor.cli.output import Json, count, moment_of, print_json, print_note, printable
from proctor.errors import UsageError
from proctor.records import find_kind, kind_names
from proctor.session import DEFAULT_LOG_GROUP
from proctor.telemetry.sources import LogGroupQuery, logs_client

import_app = typer.Typer(add_completion=False, no_args_is_help=True)


apps = {"import": import_app}


MOST_SAID = 20
"""Unreadable records that are named on the screen; `--json` names more."""


MOST_PASSED_OVER = 5


Paths = Annotated[list[Path], typer.Argument(help="Files or folders.", metavar="PATH…")]


Service = Annotated[str, typer.Option(help="The service of sessions that name none.")]


LogGroup = Annotated[str, typer.Option("--log-group", help="The log group of sessions that name none.")]


@import_app.callback()
def import_() -> None:
    """Bring in sessions that were recorded elsewhere. Importing one again replaces it.

    Exit codes: 0 all was read · 1 something could not be read, and is named · 2 nothing was imported.

    Example:  proctor import otlp traces.jsonl
    """


def _command(kind: str, told: str) -> None:
    def command(
        context: typer.Context,
        paths: Paths,
        service: Service = "",
        log_group: LogGroup = DEFAULT_LOG_GROUP,
        as_json: Json = False,
    ) -> int:
        with places(context.obj).open_store() as store:
            done = import_paths(store, paths, kind, now(), service=service, log_group=log_group)
        return _ending(done, as_json=as_json)

    command.__doc__ = f"{told}\n\n    Example:  proctor import {kind} recorded/"
    import_app.command(kind)(command)


_command(AUTO, "Import files and folders of any kind, finding out what each of them is.")


_command(
    OTLP,
    "Import spans: OTLP in JSON lines or protobuf, as collectors write them, and what CloudWatch exports; "
    "compressed or not.",
)


@import_app.command()
def cloudwatch(
    context: typer.Context,
    log_group: Annotated[
        list[str] | None, typer.Option("--log-group", help="A log group; may be given several times.")
    ] = None,
    log_group_prefix: Annotated[
        list[str] | None, typer.Option("--log-group-prefix", help="Every log group whose name begins so.")
    ] = None,
    service: Annotated[str, typer.Option(help="Only this service.")] = "",
    session_id: Annotated[
        list[str] | None, typer.Option("--session-id", help="Only this session; may be given several times.")
    ] = None,
    start: Annotated[str, typer.Option(help="From this moment on: 2024-01-31 or 2024-01-31T14:00.")] = "",
    end: Annotated[str, typer.Option(help="Before this moment.")] = "",
    region: Annotated[str, typer.Option(help="The AWS region; otherwise as boto3 finds it.")] = "",
    endpoint_url: Annotated[str, typer.Option(help="Another address than AWS's own.")] = "",
    as_json: Json = False,
) -> int:
    """Import sessions from CloudWatch Logs, with the credentials boto3 finds; needs the extra `aws`.

    Example:  proctor import cloudwatch --log-group /aws/bedrock-agentcore/runtimes/Calc-1-DEFAULT
    """
    if not log_group and not log_group_prefix:
        raise UsageError("say which log groups\nGive --log-group NAME or --log-group-prefix BEGINNING.")
    wanted = LogGroupQuery(
        names=log_group or (),
        prefixes=log_group_prefix or (),
        service=service,
        session_ids=session_id or (),
        start=moment_of(start),
        end=moment_of(end),
    )
    client = logs_client(region=region, endpoint_url=endpoint_url)
    with places(context.obj).open_store() as store:
        done = import_log_groups(store, client, wanted, now())
    return _ending(done, as_json=as_json)


def _ending(done: ImportResult, *, as_json: bool) -> int:
    if as_json:
        print_json(
            {
                "sessions": done.session_ids,
                "documents": done.documents,
                "unreadable": done.unreadable_count,
                "passedOver": done.passed_over,
                "problems": [
                    {"path": each.path, "line": each.line or None, "problem": each.problem}
                    for each in done.unreadable
                ],
            }
        )
    for each in done.unreadable[:MOST_SAID]:
        print_note(f"left out {printable(each, width=300)}")
    if done.unreadable_count > MOST_SAID:
        print_note(f"… and {done.unreadable_count - MOST_SAID:,} more; --json names them")
    if done.passed_over:
        named = ", ".join(Path(path).name for path in done.passed_over[:MOST_PASSED_OVER])
        more = ", …" if done.passed_over_count > MOST_PASSED_OVER else ""
        print_note(f"passed over {count(done.passed_over_count, 'other file')}: {printable(named)}{more}")
    found = f" from {count(done.documents, 'span or record', 'spans and records')}" if done.documents else ""
    print_note(f"{count(len(done.session_ids), 'session')} imported{found}")
    if not done.session_ids:
        return output.BAD_USAGE
    return output.SOME_DID_NOT if done.unreadable_count else output.SUCCEEDED


def _about(kind: str) -> str:
    said: Callable[..., object] | str | None = find_kind(kind).__doc__
    return str(said or f"Import sessions that {kind} recorded.").strip().splitlines()[0]


for _kind in kind_names():
    _command(_kind, _about(_kind))
