"""`proctor sessions`: inspect, merge, clean up, and delete sessions and their branches; `proctor search`."""

import asyncio
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from proctor.batch.deletion import delete_sessions, imported_sessions
from proctor.batch.session_branch import (
    SessionBranch,
    clean_up_session,
    find_branch,
    merge_branch,
    merge_problem,
    sessions_to_clean,
)
from proctor.cli import output
from proctor.cli.output import (
    Json,
    RunOption,
    count,
    is_sure,
    moment_of,
    print_json,
    print_note,
    print_table,
    printable,
)
from proctor.cli.run import terminal_context
from proctor.cli.runs import show_session
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.json_values import JsonObject
from proctor.store import Scope
from proctor.store.search import IndexState, SnippetPart, TranscriptHit, parse_query
from proctor.store.tables import SessionRow
from proctor.workspace import merge_queue


def delete(
    context: typer.Context,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(help="Session IDs, prefixes, or names in their source.", metavar="SESSION…"),
    ] = None,
    log_group: Annotated[
        str, typer.Option("--log-group", help="Sessions received under this log group.", metavar="NAME")
    ] = "",
    before: Annotated[
        str, typer.Option(help="Only sessions without events since, e.g. 2026-01-31.", metavar="DATE")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> int:
    """Delete imported sessions and the spans they were built from. Their scores stay.

    Example:  proctor sessions delete --log-group /agents/travel --before 2026-01-31
    """
    if not (sessions or log_group or before):
        raise UsageError("no sessions selected\nPass session IDs, --log-group NAME, or --before DATE.")
    with terminal_context(context.obj) as ctx:
        session_ids = imported_sessions(
            ctx.store, ctx.now(), session_ids=sessions or (), log_group=log_group, before=moment_of(before)
        )
        imported = count(len(session_ids), "imported session")
        if session_ids and not yes and not is_sure(f"Delete {imported}?"):
            return output.SOME_DID_NOT
        delete_sessions(ctx.store, session_ids)
    if as_json:
        print_json({"sessions": session_ids})
    print_note(f"deleted {imported}")
    return output.SUCCEEDED


sessions_app = typer.Typer(add_completion=False, help="Inspect, merge, and clean up sessions.")
Session = Annotated[
    str, typer.Argument(help="Session ID, an unambiguous prefix, its name, or its branch.", metavar="SESSION")
]
Message = Annotated[
    str, typer.Option("--message", "-m", help="Commit message (default: the prompt).", metavar="TEXT")
]


@sessions_app.command("list")
def list_sessions(
    context: typer.Context,
    run: RunOption = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of sessions, newest first.", metavar="N")
    ] = 50,
    as_json: Json = False,
) -> int:
    """List sessions, newest first.

    Example:  proctor sessions list --run nightly-42
    """
    with terminal_context(context.obj) as ctx:
        run_id = ctx.store.read.batch(run, ctx.now())["runId"] if run else ""
        rows = ctx.store.read.sessions(Scope(run_id=run_id), limit=limit)
    if as_json:
        print_json({"sessions": rows})
    else:
        heads = ("SESSION", "STATUS", "REASON", "AGENT", "MODEL", "STARTED", "BRANCH", "NAME")
        print_table(heads, map(_cells, rows))
    return output.SUCCEEDED


@sessions_app.command()
def show(
    context: typer.Context,
    session: Session,
    full: Annotated[bool, typer.Option("--full", help="Print long texts in full.")] = False,
    as_json: Json = False,
) -> int:
    """Show the transcript, tool calls, changes, and check of a session.

    Example:  proctor sessions show 019a8c --full
    """
    with terminal_context(context.obj) as ctx:
        show_session(ctx.store, ctx.store.read.session(session), full, as_json)
    return output.SUCCEEDED


@sessions_app.command()
def diff(
    context: typer.Context,
    session: Session,
    name_only: Annotated[bool, typer.Option("--name-only", help="Print only the file names.")] = False,
    stat: Annotated[bool, typer.Option("--stat", help="Print only the changed lines per file.")] = False,
    as_json: Json = False,
) -> int:
    """Print the changes of a session as a patch.

    Example:  proctor sessions diff 019a8c | git apply
    """
    flags = [flag for flag, enabled in (("--name-only", name_only), ("--stat", stat)) if enabled]
    with terminal_context(context.obj) as ctx:
        match = _find(ctx, session)
        text = merge_queue.diff(match.source, match.branch, match.base_branch, *flags)
    _print_text(text, {"sessionId": match.row["id"], "branch": match.branch, "diff": text}, as_json)
    return output.SUCCEEDED


@sessions_app.command()
def log(context: typer.Context, session: Session, as_json: Json = False) -> int:
    """Print the commits of a session, newest first.

    Example:  proctor sessions log 019a8c
    """
    with terminal_context(context.obj) as ctx:
        match = _find(ctx, session)
        text = merge_queue.log(match.source, match.branch, match.base_branch)
    _print_text(text, {"sessionId": match.row["id"], "branch": match.branch, "log": text}, as_json)
    return output.SUCCEEDED


@sessions_app.command()
def squash(context: typer.Context, session: Session, message: Message = "", as_json: Json = False) -> int:
    """Squash the commits of a session into one.

    Example:  proctor sessions squash 019a8c -m "Fix the parser"
    """
    with terminal_context(context.obj) as ctx:
        match = _find(ctx, session)
        sha = merge_queue.squash(match.source, match.branch, match.base_branch, message or match.title)
    return _print_result(match, {"commitSha": sha}, f"{match.branch} is now one commit, {sha[:12]}", as_json)


@sessions_app.command()
def rebase(
    context: typer.Context,
    session: Session,
    onto: Annotated[
        str, typer.Option(help="Target branch (default: its base branch).", metavar="BRANCH")
    ] = "",
    as_json: Json = False,
) -> int:
    """Rebase the commits of a session onto the current base branch.

    Example:  proctor sessions rebase 019a8c
    """
    with terminal_context(context.obj) as ctx:
        match = _find(ctx, session)
    base = onto or match.base_branch
    sha, conflicts = asyncio.run(merge_queue.rebase(match.source, match.branch, base, ctx.home))
    if conflicts:
        message = f"{match.branch} conflicts with {base} in {', '.join(conflicts)}; nothing was changed"
        _print_result(match, {"conflictFiles": list(conflicts)}, message, as_json)
        return output.SOME_DID_NOT
    return _print_result(
        match, {"commitSha": sha}, f"{match.branch} is rebased onto {base}, at {sha[:12]}", as_json
    )


@sessions_app.command()
def merge(
    context: typer.Context,
    session: Session,
    message: Message = "",
    onto: Annotated[
        str, typer.Option(help="Target branch (default: its base branch).", metavar="BRANCH")
    ] = "",
    check: Annotated[bool, typer.Option(help="Rerun the check if the base branch has moved.")] = True,
    as_json: Json = False,
) -> int:
    """Squash a session onto its base branch and fast-forward; never pushes. Reruns the check if needed.

    Example:  proctor sessions merge 019a8c
    """
    with terminal_context(context.obj) as ctx:
        match = _find(ctx, session)
        merged = asyncio.run(
            merge_branch(ctx.store, ctx.settings, match, ctx.now, message=message, onto=onto, check=check)
        )
    end = merged.result
    for text in merged.notes:
        print_note(f"note: {printable(text)}")
    document: JsonObject = {
        "result": end.result,
        "conflictFiles": list(end.conflict_files),
        "commitSha": end.after_sha,
    }
    if end.result == "success":
        return _print_result(
            match, document, f"{match.branch} is merged to {end.base_branch}, {end.after_sha[:12]}", as_json
        )
    why = merge_problem(merged)
    _print_result(match, document | {"error": why}, f"{match.branch} is not merged: {why}", as_json)
    return output.SOME_DID_NOT


@sessions_app.command()
def cleanup(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="The session; or pass --run.", metavar="SESSION")] = "",
    run: RunOption = "",
    branches: Annotated[bool, typer.Option("--branches", help="Also remove the branches.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> int:
    """Remove the kept worktrees of a session or of a run.

    Example:  proctor sessions cleanup --run nightly-42
    """
    if bool(session) == bool(run):
        raise UsageError("nothing selected to clean up\nPass a session, or --run RUN.")
    with terminal_context(context.obj) as ctx:
        rows = sessions_to_clean(ctx.store, ctx.now(), session=session, run=run)
        if branches and not yes and not is_sure(f"Remove the branches of {len(rows)} sessions?"):
            return output.SOME_DID_NOT
        problems = [
            problem for row in rows if (problem := clean_up_session(ctx.settings, row, branch=branches))
        ]
    if as_json:
        print_json({"sessions": [row["id"] for row in rows], "kept": problems})
    print_note(f"cleaned up {len(rows)} sessions")
    for problem in problems:
        print_note(f"note: {printable(problem)}")
    return output.SUCCEEDED


sessions_app.command("delete")(delete)


def _find(ctx: RunContext, session: str) -> SessionBranch:
    return find_branch(ctx.store, ctx.settings, session)


def _cells(row: SessionRow) -> tuple[str, ...]:
    started = (row["startedAt"] or "")[:19].replace("T", " ")
    ended = (row["status"], row["endReason"])
    # Imported sessions show the name they have in their source.
    named = row["externalId"] or ""
    return row["id"], *ended, row["agent"], row["model"], started, row["branch"], named


def _print_result(match: SessionBranch, document: JsonObject, message: str, as_json: bool) -> int:
    if as_json:
        print_json({"sessionId": match.row["id"], "branch": match.branch, **document})
    print_note(printable(message))
    return output.SUCCEEDED


def _print_text(text: str, document: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(document)
    elif sys.stdout.isatty():
        print(printable(text, lines=True))
    else:
        # A patch must be written unchanged.
        sys.stdout.write(text)


search_app = typer.Typer(add_completion=False)
NOTE_EVERY = 5000
"""Sessions between two notes about indexing."""
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


@search_app.command()
def search(
    context: typer.Context,
    text: Annotated[
        list[str],
        typer.Argument(
            help='Words that must all occur in one message or tool call, "phrases", and beginnings (begin*).',
            metavar="TEXT…",
        ),
    ],
    run: RunOption = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of results.", metavar="N")] = 20,
    offset: Annotated[int, typer.Option(min=0, help="Results to skip, best first.", metavar="N")] = 0,
    as_json: Json = False,
) -> int:
    """Search the messages and tool calls of all sessions, best match first. Exit code 1: nothing matches.

    Example:  proctor search '"permission denied" pip*' --run nightly-42
    """
    query = " ".join(text)
    if not parse_query(query):
        raise UsageError("the search text has no words\nPass words, phrases in quotation marks, or begin*.")
    with terminal_context(context.obj) as ctx:
        run_id = ctx.store.read.batch(run, ctx.now())["runId"] if run else ""
        state = ctx.store.search_index.update(on_progress=_IndexingNotes())
        page = ctx.store.search_index.search(query, run_id=run_id, offset=offset, limit=limit)
    if as_json:
        hits = [_document(hit) for hit in page.hits]
        print_json({"text": query, "hits": hits, "hasMore": page.has_more, "indexedSessions": state.indexed})
    else:
        for hit in page.hits:
            print(_lines(hit))
        if not page.hits:
            print_note(f"No match in {count(state.indexed, 'session')}.")
        elif page.has_more:
            print_note(f"More:  --offset {offset + limit}")
    return output.SUCCEEDED if page.hits else output.SOME_DID_NOT


class _IndexingNotes:
    """Notes on the indexing of many sessions."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, state: IndexState) -> None:
        if state.pending and state.indexed >= self._next:
            self._next = state.indexed + NOTE_EVERY
            every = count(state.indexed + state.pending, "session")
            print_note(f"indexing transcripts: {state.indexed:,} of {every}")


def _document(hit: TranscriptHit) -> JsonObject:
    names = {"session_id": "sessionId", "run_id": "runId", "item_id": "itemId", "started_at": "startedAt"}
    document: JsonObject = {names.get(name, name): value for name, value in asdict(hit).items()}
    return document | {"snippet": [{"text": part.text, "isMatch": part.is_match} for part in hit.snippet]}


def _lines(hit: TranscriptHit) -> str:
    facts = (hit.session_id, hit.run_id, hit.status, hit.model, f"{hit.name} #{hit.position}")
    head = " · ".join(printable(fact) for fact in facts if fact)
    return f"{head}\n    {''.join(map(_marked, hit.snippet))}"


def _marked(part: SnippetPart) -> str:
    text = printable(part.text)
    return f"{BOLD}{text}{PLAIN}" if part.is_match and sys.stdout.isatty() else text


apps = {"sessions": sessions_app, "search": search_app}
