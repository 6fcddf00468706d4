"""`proctor sessions delete`: take away sessions that came from elsewhere."""

from typing import Annotated

import typer

from proctor.batch.forgetting import forget_sessions, imported_sessions
from proctor.cli import ending as codes
from proctor.cli.asking import is_sure
from proctor.cli.house import now, places
from proctor.cli.options import Json
from proctor.cli.scope import moment_of
from proctor.cli.words import count, print_json, say
from proctor.errors import UsageError


def delete(
    context: typer.Context,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(help="Sessions: an id or its beginning, or its source's name for it."),
    ] = None,
    log_group: Annotated[str, typer.Option("--log-group", help="All that arrived for this log group.")] = "",
    before: Annotated[str, typer.Option(help="Only those in which nothing happened since: 2026-01-31.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> int:
    """Delete imported sessions, with the spans they were told from. What was judged about them stays.

    Example:  proctor sessions delete --log-group /agents/travel --before 2026-01-31
    """
    if not (sessions or log_group or before):
        raise UsageError("say which sessions\nGive their ids, --log-group NAME or --before DATE.")
    with places(context.obj).open_store() as store:
        found = imported_sessions(
            store, now(), session_ids=sessions or (), log_group=log_group, before=moment_of(before)
        )
        words = count(len(found), "imported session")
        if found and not yes and not is_sure(f"Delete {words}?"):
            return codes.SOME_DID_NOT
        forget_sessions(store, found)
    if as_json:
        print_json({"sessions": found})
    say(f"deleted {words}")
    return codes.SUCCEEDED
