"""How a command ends: what went wrong as words and an exit code.

The library raises; this is the one place that turns an error into a line.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from proctor import formatting
from proctor.bootstrap import now
from proctor.errors import PlanError, ProctorError, StoreError, StoreUnavailable, UsageError
from proctor.store import Scope, Store

# Ask whether the user is sure.


def is_sure(question: str) -> bool:
    """Whether the user says yes. Where nobody can answer, say how to answer beforehand."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise KeyboardInterrupt from None
        raise UsageError(f"nobody answered: {question}\nSay it beforehand:  --yes") from None


printable, seconds, count = formatting.printable, formatting.seconds, formatting.plural


def money(usd: float | None) -> str:
    """An amount in dollars; a price that is not known is not 0."""
    return formatting.usd(usd, unknown="unknown")


def print_json(document: Any) -> None:
    """The one JSON document of a command that was asked for one."""
    print(json.dumps(document, ensure_ascii=False, indent=2, default=str))


def print_note(words: str) -> None:
    """Something for people, on standard error, where it never mixes with what programs read."""
    print(words, file=sys.stderr, flush=True)


SUCCEEDED, SOME_DID_NOT, BAD_USAGE, CUT_SHORT, CTRL_C = 0, 1, 2, 3, 130


@dataclass(slots=True)
class ExitReason:
    """The exit code a command comes to."""

    code: int | None = None


@contextmanager
def told(*, as_json: bool) -> Iterator[ExitReason]:
    """Turn whatever goes wrong inside into words and an exit code."""
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
        end.code = _say(str(error), BAD_USAGE, as_json=as_json, problems=problems)
    except (UsageError, TyperException) as error:
        words = error.format_message() if isinstance(error, TyperException) else str(error)
        end.code = _say(words, BAD_USAGE, as_json=as_json)
    except StoreUnavailable as error:
        end.code = _say(str(error), BAD_USAGE, as_json=as_json)
    except StoreError as error:
        end.code = _say(str(error), CUT_SHORT, as_json=as_json)
    except ProctorError as error:
        end.code = _say(str(error), SOME_DID_NOT, as_json=as_json)
    except KeyboardInterrupt:
        end.code = CTRL_C
    except (BrokenPipeError, SystemExit):
        # The reader of our output has gone (`| head`), at which typer exits; Python would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        end.code = SUCCEEDED


def unknown_command(name: str, commands: Mapping[str, Any]) -> UsageError:
    """The error for a command there is none of, with the nearest there is."""
    near = get_close_matches(name, commands, n=1)
    remedy = f"Did you mean `{near[0]}`?" if near else "`proctor --help` lists them."
    return UsageError(f"there is no command `{name}`\n{remedy}")


def _say(words: str, code: int, *, as_json: bool, **more: Any) -> int:
    if as_json:
        print(json.dumps({"error": words, **more}, ensure_ascii=False))
    print(printable(f"proctor: {words}", lines=True), file=sys.stderr)
    return code


# Options that many commands have, each with one meaning and one wording.


Run = Annotated[str, typer.Argument(help="The run's id, or an unambiguous beginning of it.")]


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


JsonAtEnd = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")]


Jsonl = Annotated[
    bool, typer.Option("--jsonl", help="Print a JSON record for the launch, each item and the end.")
]


RetryErrors = Annotated[bool, typer.Option("--retry-errors", help="Also repeat items that ended in `error`.")]


RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Also repeat items that ended in `fail` or `timeout`.")
]


# Which sessions a command is about: a run, some sessions, or some days.


RunOption = Annotated[str, typer.Option("--run", help="A run's id, or its beginning.")]


SessionsOption = Annotated[str, typer.Option("--sessions", help="Session ids, with commas between.")]


SinceOption = Annotated[
    str, typer.Option("--start-date", help="Sessions from this day on (UTC): 2024-01-31.")
]


UntilOption = Annotated[str, typer.Option("--end-date", help="Sessions up to and with this day (UTC).")]


def scope_of(store: Store, run: str, sessions: str, start_date: str, end_date: str) -> Scope:
    """The scope that options stand for; raises when they name nothing, or what there is not."""
    if not (run or sessions or start_date or end_date):
        raise UsageError(
            "say which sessions\nGive --run RUN, --sessions ID,ID or --start-date and --end-date."
        )
    ids = [part.strip() for part in sessions.split(",") if part.strip()]
    start, end = moment_of(start_date), moment_of(end_date)
    # A day without a time of day counts whole.
    if end is not None and len(end_date.strip()) == len("2024-01-31"):
        end += timedelta(days=1)
    return Scope(
        run_id=store.read.batch(run, now())["runId"] if run else "",
        session_ids=[store.read.session(session_id)["id"] for session_id in ids],
        start=start,
        end=end,
    )


def moment_of(text: str) -> datetime | None:
    """The moment a date or time on the command line stands for; None when it is empty."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"`{text}` is no date\nWrite it like 2024-01-31 or 2024-01-31T14:00.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# Tables for people, on standard output: aligned columns, nothing a terminal would obey.


WIDEST = 60


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their heads, each column as wide as its longest cell."""
    cells = [[printable(cell, width=WIDEST) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for row in [list(heads), *cells]:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
