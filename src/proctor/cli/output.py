"""Output of commands: errors and exit codes, tables, JSON, and the options many commands share.

The library raises; only this module turns an error into a message and an exit code.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from proctor import formatting
from proctor.bootstrap import now
from proctor.context import EngineName
from proctor.errors import PlanError, ProctorError, StoreError, StoreUnavailable, UsageError
from proctor.json_values import JsonMap
from proctor.store import Scope, Store


def is_sure(question: str) -> bool:
    """Ask for confirmation. Raises without a terminal."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise KeyboardInterrupt from None
        raise UsageError(f"confirmation required: {question}\nPass --yes to skip it.") from None


printable, seconds, count = formatting.printable, formatting.seconds, formatting.plural


def money(usd: float | None) -> str:
    """An amount in US dollars; None is an unknown price."""
    return formatting.usd(usd, unknown="unknown")


def print_json(document: object) -> None:
    """Print the JSON document of a command."""
    print(json.dumps(document, ensure_ascii=False, indent=2, default=str))


def print_note(text: str) -> None:
    """Print a message to standard error."""
    print(text, file=sys.stderr, flush=True)


SUCCEEDED, SOME_DID_NOT, BAD_USAGE, CUT_SHORT, INCONCLUSIVE, CTRL_C = 0, 1, 2, 3, 4, 130


@dataclass(slots=True)
class ExitReason:
    """The exit code of a command."""

    code: int | None = None


@contextmanager
def exit_on_error(*, as_json: bool) -> Iterator[ExitReason]:
    """Turn errors into a message and an exit code."""
    end = ExitReason()
    try:
        yield end
    except PlanError as error:
        problems = [
            {
                "file": p.at.file,
                "line": p.at.line,
                "column": p.at.column,
                "problem": p.problem,
                "remedy": p.remedy,
            }
            for p in error.problems
        ]
        end.code = _print_error(str(error), BAD_USAGE, as_json=as_json, problems=problems)
    except (UsageError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        end.code = _print_error(message, BAD_USAGE, as_json=as_json)
    except StoreUnavailable as error:
        end.code = _print_error(str(error), BAD_USAGE, as_json=as_json)
    except StoreError as error:
        end.code = _print_error(str(error), CUT_SHORT, as_json=as_json)
    except ProctorError as error:
        end.code = _print_error(str(error), SOME_DID_NOT, as_json=as_json)
    except json.JSONDecodeError as error:
        # Files of the user are checked where they are read: this was in the store.
        message = f"a value that should be JSON cannot be read: {error}\n"
        end.code = _print_error(
            message + "See whether the store is damaged: proctor store check", CUT_SHORT, as_json=as_json
        )
    except KeyboardInterrupt:
        end.code = CTRL_C
    except (BrokenPipeError, SystemExit):
        # The reader of the output has closed it (`| head`), so typer exits; Python would report it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        end.code = SUCCEEDED


PLACEHOLDERS = {"int": "N", "float": "N", "Path": "PATH"}
"""Placeholder of an option's value in help, by type; TEXT for all others."""


def placeholder(param: Any) -> str:
    """Placeholder of an option's value in help: its metavar, or one by its type; empty for a flag."""
    if param.is_flag:
        return ""
    annotation = param.type_descriptor.annotation
    return str(param.metavar or PLACEHOLDERS.get(getattr(annotation, "__name__", ""), "TEXT"))


def with_placeholders(app: typer.Typer) -> Callable[..., int]:
    """The command of an app, whose help shows placeholders in place of type names."""
    command = typer.main.get_command(app)
    commands = [command]
    while commands:
        one: Any = commands.pop()
        commands += getattr(one, "commands", {}).values()
        for param in (*one.params, one.get_help_option(typer.Context(one))):
            if param is None:
                continue
            if param.param_type_name == "option":
                param.metavar = placeholder(param)
            else:
                # The name of an argument says enough.
                param.display_type_rich = _no_type
    return command


def _no_type(ctx: typer.Context) -> None:  # noqa: ARG001
    return None


def unknown_command(name: str, commands: JsonMap) -> UsageError:
    """The error for an unknown command, with the most similar one."""
    near = get_close_matches(name, commands, n=1)
    remedy = f"Did you mean `{near[0]}`?" if near else "`proctor --help` lists them."
    return UsageError(f"there is no command `{name}`\n{remedy}")


def _print_error(message: str, code: int, *, as_json: bool, **more: object) -> int:
    if as_json:
        print(json.dumps({"error": message, **more}, ensure_ascii=False))
    print(printable(f"proctor: {message}", lines=True), file=sys.stderr)
    return code


# Options that many commands share


Run = Annotated[str, typer.Argument(help="Run ID, or an unambiguous prefix.", metavar="RUN")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonAtEnd = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")]
Jsonl = Annotated[
    bool, typer.Option("--jsonl", help="Print a JSON record for the launch, each item, and the end.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Processes that share the work (default: as many as are worth it)."
    ),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="Where items run: on this machine (local), or on the nodes of a Ray cluster (ray).",
    ),
]
RayAddress = Annotated[
    str,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        help="With --engine ray: address of the cluster; auto: the one that this machine is part of; "
        "local: one on this machine alone, for this run.",
    ),
]
RetryErrors = Annotated[bool, typer.Option("--retry-errors", help="Also retry items that ended in `error`.")]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Also retry items that ended in `fail` or `timeout`.")
]

# Which sessions a command selects: a run, some sessions, or some days


RunOption = Annotated[str, typer.Option("--run", help="Run ID, or an unambiguous prefix.", metavar="RUN")]
SessionsOption = Annotated[
    str, typer.Option("--sessions", help="Comma-separated session IDs.", metavar="ID,ID")
]
SinceOption = Annotated[
    str,
    typer.Option("--start-date", help="Sessions from this day on (UTC), e.g. 2024-01-31.", metavar="DATE"),
]
UntilOption = Annotated[
    str, typer.Option("--end-date", help="Sessions up to and including this day (UTC).", metavar="DATE")
]


def scope_of(store: Store, run: str, sessions: str, start_date: str, end_date: str) -> Scope:
    """The scope of the options. Raises when they select nothing, or a run or session does not exist."""
    if not (run or sessions or start_date or end_date):
        raise UsageError(
            "no sessions selected\nPass --run RUN, --sessions ID,ID, or --start-date and --end-date."
        )
    ids = [part.strip() for part in sessions.split(",") if part.strip()]
    start, end = moment_of(start_date), moment_of(end_date)
    # A date without a time includes the whole day.
    if end is not None and len(end_date.strip()) == len("2024-01-31"):
        end += timedelta(days=1)
    return Scope(
        run_id=store.read.batch(run, now())["runId"] if run else "",
        session_ids=[store.read.session(session_id)["id"] for session_id in ids],
        start=start,
        end=end,
    )


def moment_of(text: str) -> datetime | None:
    """Parse a date or time of the command line; None when it is empty."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"`{text}` is not a valid date\nWrite it like 2024-01-31 or 2024-01-31T14:00."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


WIDEST = 60


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows with their column headings, each column as wide as its longest cell."""
    cells = [[printable(cell, width=WIDEST) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for row in [list(heads), *cells]:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Column of a file: task=instance_id. Repeatable.", metavar="NAME=COLUMN"),
]
