"""Output of commands: errors and exit codes, tables, JSON, and the options many commands share.

The library raises; only this module turns an error into a message and an exit code.
"""

import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, get_type_hints

import typer
from typer.exceptions import TyperException

from proctor import formatting
from proctor.context import EngineName, RunContext
from proctor.errors import PlanError, ProctorError, StoreError, StoreUnavailable, UsageError
from proctor.formatting import moment_of
from proctor.json_values import JsonMap

if TYPE_CHECKING:
    from proctor.api.sessions import Scope
    from proctor.document import Document
    from proctor.plan.validate import Flag


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


NEXT_WIDTH = 72
"""Characters of the commands on one line; longer ones stand below each other."""


def write_file(path: Path, text: str) -> None:
    """Write a text to a file; its folder is created if missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}\nChoose the path of a file that can be written."
        ) from error


def print_next(commands: Sequence[str], *, run_id: str = "", ctx: RunContext | None = None) -> None:
    """Print the next commands to standard error.

    Commands with a long `run_id` that do not fit in the terminal name the run by a prefix that no other run
    in the store has.
    """
    if run_id and ctx and (width := terminal_width()):
        # An error needs no library, and is printed by this module.
        from proctor.api.runs import short_id

        room = width - len("Next:  ") - max(len(command) for command in commands) + len(run_id)
        typed = short_id(ctx, run_id, room)
        commands = [command.replace(run_id, typed) for command in commands]
    line = "  ·  ".join(map(printable, commands))
    is_long = len(line) > NEXT_WIDTH
    print_note("Next:  " + ("\n       ".join(map(printable, commands)) if is_long else line))


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
    except (UsageError, StoreUnavailable, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        end.code = _print_error(message, BAD_USAGE, as_json=as_json)
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
    except OSError as error:
        # Any argument may be a path; a text in its place is longer than one can be.
        if error.errno != errno.ENAMETOOLONG:
            raise
        message = f"{str(error.filename)[:60]}… is too long for the path of a file"
        end.code = _print_error(message, BAD_USAGE, as_json=as_json)


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
                param.get_usage_pieces = partial(_without_braces, param.get_usage_pieces)
    return command


def _no_type(ctx: typer.Context) -> None:  # noqa: ARG001
    return None


def _without_braces(pieces: Callable[[typer.Context], list[str]], ctx: typer.Context) -> list[str]:
    """`{RUN|FILE…}...` in the usage line as `RUN|FILE…`."""
    return [piece.replace("{", "").replace("}", "").replace("…...", "…") for piece in pieces(ctx)]


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
        "--workers", min=1, max=1000, help="Processes that share the work (default: as many as are worth it)."
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
KeepGoing = Annotated[
    bool,
    typer.Option("--keep-going", help="Run all items, even if an agent starts in none of the first."),
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


def scope_of(ctx: RunContext, run: str, sessions: str, start_date: str, end_date: str) -> "Scope":
    """The scope of the options. Raises when they select nothing, or a run or session does not exist."""
    # Two commands have these options.
    from proctor.api.sessions import select_sessions

    if not (run or sessions or start_date or end_date):
        raise UsageError(
            "no sessions selected\nPass --run RUN, --sessions ID,ID, or --start-date and --end-date."
        )
    start, end = moment_of(start_date), moment_of(end_date)
    # A date without a time includes the whole day.
    if end is not None and len(end_date.strip()) == len("2024-01-31"):
        end += timedelta(days=1)
    return select_sessions(ctx, run=run, session_ids=comma_separated(sessions), start=start, end=end)


def comma_separated(text: str) -> list[str]:
    """The names in a comma-separated option."""
    return [name.strip() for name in text.split(",") if name.strip()]


STATUS_COLORS = {
    "success": 32, "completed": 32, "pass": 32,
    "fail": 31, "aborted": 31,
    "timeout": 33, "halted": 33,
    "error": 35, "interrupted": 35,
    "running": 36, "unchecked": 34,
}  # fmt: skip
"""Terminal colors of the statuses of items and runs."""


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is, or `COLUMNS`; None: a file or a pipe."""
    if (columns := os.environ.get("COLUMNS", "")).isdecimal() and int(columns):
        return int(columns)
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None


def colored(text: str, status: str) -> str:
    """A text in the color of a status, if standard output is a terminal that shows colors."""
    code = STATUS_COLORS.get(status)
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if code is None or is_plain else f"\x1b[{code}m{text}\x1b[0m"


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, drop: Sequence[str] = ()) -> None:
    """Print rows with their column headings, each column as wide as its longest cell.

    On a terminal no line wraps: columns without a value and then those of `drop` are left out, in this
    order, and then the widest columns are cut. A file or a pipe gets everything.
    """
    # Most commands that run something print no table.
    from proctor.report.as_text import WIDEST, padded_cells

    cells = ([printable(cell, width=WIDEST) for cell in row] for row in rows)
    for line in padded_cells(heads, cells, terminal_width(), drop):
        print("  ".join(colored(cell, cell.strip()) for cell in line).rstrip())


def print_result(document: "Document", *, has_details: bool = False) -> None:
    """Print a document on standard output, and what is said around it on standard error."""
    from proctor.report.as_text import body, notes

    for line in body(document, terminal_width(), has_details=has_details):
        print(line)
    for note in notes(document):
        print_note(note)


# Progress of commands that are not runs


SHOWN_AFTER_SECONDS = 2
"""A command that ends sooner shows no progress bar."""


class Working:
    """Shows on a terminal how far a command is, once it has taken two seconds."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._done: int | None = None
        self._total: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def update(self, done: int, total: int | None = None, *, title: str = "") -> None:
        """Say how far it is; without a total, how much was done."""
        self._done, self._total = done, total
        self._title = title or self._title

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._ended.wait(SHOWN_AFTER_SECONDS):
            return
        # Loaded here: most commands end sooner.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            line = bar.add_task("", total=None)
            while not self._ended.wait(0.1):
                bar.update(
                    line, description=self._description(), completed=self._done or 0, total=self._total
                )

    def _description(self) -> str:
        if self._done is None:
            return printable(self._title)
        of = "" if self._total is None else f" of {self._total:,}"
        return f"{printable(self._title)}: {self._done:,}{of}"


Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Column of a file: task=instance_id. Repeatable.", metavar="NAME=COLUMN"),
]


def option(name: str, kind: Any, default: object = None, *names: str, **settings: Any) -> Parameter:
    """An option of a command, for `takes_options`. `settings` are those of `typer.Option`."""
    annotation = Annotated[kind, typer.Option(*names, **settings)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def setting_options(flags: Mapping[str, tuple["Flag", str]]) -> list[Parameter]:
    """The options of the settings of a plan that are flags, for `takes_options`."""
    return [
        option(name, flag.type | None, None, *flag.names, help=text, min=flag.minimum, metavar=flag.metavar)
        for name, (flag, text) in flags.items()
    ]


def field_options(record: type) -> list[Parameter]:
    """The options of a dataclass whose fields describe them, for `takes_options`."""
    kinds, options = get_type_hints(record), list[Parameter]()
    # Its own fields before those it inherits.
    for setting in sorted(fields(record), key=lambda setting: setting.name not in record.__annotations__):
        settings = dict(setting.metadata)
        names, kind = settings.pop("names"), settings.pop("type", kinds[setting.name])
        default = None if kind == list[str] else setting.default
        kind = kind | None if default is None else kind
        options.append(option(setting.name, kind, default, *names, **settings))
    return options


def takes_options(
    parameter: str, options: Sequence[Parameter]
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command these options in place of its `parameter`, which gets their values by name."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def wrapper(**arguments: Any) -> int:
            values = {each.name: arguments.pop(each.name) for each in options}
            return command(**arguments, **{parameter: values})

        own = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in signature(command).parameters.values()]
        index = [each.name for each in own].index(parameter)
        parameters = [*own[:index], *options, *own[index + 1 :]]
        wrapper.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
        return wrapper

    return decorate
