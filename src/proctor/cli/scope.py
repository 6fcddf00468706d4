"""Which sessions a command is about: a run, some sessions, or some days."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from proctor.cli.house import now
from proctor.errors import UsageError
from proctor.store import Scope, Store

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
