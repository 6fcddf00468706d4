"""`proctor sessions`: inspect, merge, clean up, and delete sessions and their branches; `proctor search`."""

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from proctor.api.branches import SessionBranch, clean_up, find_branch, merge_problem
from proctor.api.review import Comment, Feedback, WaitingSession, read_feedback, waiting
from proctor.api.runs import start
from proctor.api.search import StoreSearch
from proctor.api.session_search import SessionFilter, SessionSearch, save_filter, saved_filter
from proctor.api.session_trends import By, compare_selections, session_trend
from proctor.api.sessions import RunSession, delete_imported, find_session
from proctor.cli import output
from proctor.cli.output import (
    Json,
    JsonAtEnd,
    RunOption,
    count,
    is_sure,
    money,
    print_json,
    print_next,
    print_note,
    print_table,
    printable,
)
from proctor.cli.run import OutputOptions, TerminalObserver, run_command, terminal_context
from proctor.cli.runs import Output, show_session
from proctor.errors import UsageError
from proctor.formatting import moment_of
from proctor.item import shown_status
from proctor.json_values import JsonObject, camel_document
from proctor.plan.source import bytes_of


def delete(
    context: typer.Context,
    session_ids: Annotated[
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
    if not (session_ids or log_group or before):
        raise UsageError("no sessions selected\nPass session IDs, --log-group NAME, or --before DATE.")
    with terminal_context(context.obj) as ctx:
        deleted = delete_imported(
            ctx,
            session_ids or (),
            log_group=log_group,
            before=moment_of(before),
            is_sure=lambda number: yes or is_sure(f"Delete {count(number, 'imported session')}?"),
        )
    if deleted is None:
        return output.SOME_DID_NOT
    if as_json:
        print_json({"sessions": deleted})
    print_note(f"deleted {count(len(deleted), 'imported session')}")
    return output.SUCCEEDED


sessions_app = typer.Typer(add_completion=False, help="Inspect, merge, and clean up sessions.")
Session = Annotated[
    str, typer.Argument(help="Session ID, an unambiguous prefix, its name, or its branch.", metavar="SESSION")
]
Message = Annotated[
    str, typer.Option("--message", "-m", help="Commit message (default: the prompt).", metavar="TEXT")
]


Values = list[str] | None


@sessions_app.command("list")
def list_sessions(
    context: typer.Context,
    run: Annotated[Values, typer.Option(help="Run ID or prefix. Repeatable.", metavar="RUN")] = None,
    service: Annotated[Values, typer.Option(help="Service. Repeatable.", metavar="NAME")] = None,
    agent: Annotated[Values, typer.Option(help="Agent. Repeatable.", metavar="NAME")] = None,
    version: Annotated[
        Values,
        typer.Option("--agent-version", help="Version of the agent. Repeatable.", metavar="NAME"),
    ] = None,
    prompt: Annotated[
        Values, typer.Option(help="Named prompt, e.g. greet@3. Repeatable.", metavar="NAME")
    ] = None,
    model: Annotated[Values, typer.Option(help="Model, as served. Repeatable.", metavar="NAME")] = None,
    status: Annotated[Values, typer.Option(help="Status. Repeatable.", metavar="STATUS")] = None,
    job: Annotated[Values, typer.Option(help="Job type. Repeatable.", metavar="JOB")] = None,
    since: Annotated[
        str, typer.Option(help="Started at or after: 7d, 36h, or 2026-01-31.", metavar="WHEN")
    ] = "",
    until: Annotated[str, typer.Option(help="Started before.", metavar="WHEN")] = "",
    cost: Annotated[str, typer.Option(help="Cost in USD, e.g. 0.5.. or 0..2.", metavar="LOW..HIGH")] = "",
    tokens: Annotated[str, typer.Option(help="Tokens.", metavar="LOW..HIGH")] = "",
    seconds: Annotated[str, typer.Option(help="Seconds from start to end.", metavar="LOW..HIGH")] = "",
    tool: Annotated[Values, typer.Option(help="Called this tool. Repeatable.", metavar="NAME")] = None,
    score: Annotated[
        Values, typer.Option(help="Has a score. Repeatable.", metavar="EVALUATOR[=LOW..HIGH]")
    ] = None,
    label: Annotated[
        Values,
        typer.Option(help="Has a human label. Repeatable.", metavar="EVALUATOR[=LOW..HIGH]"),
    ] = None,
    tag: Annotated[Values, typer.Option(help="Tag. Repeatable.", metavar="TAG")] = None,
    text: Annotated[
        str, typer.Option(help='Words, "phrases", and beginnings (begin*) of the transcript.', metavar="TEXT")
    ] = "",
    judges: Annotated[bool, typer.Option("--judges", help="Only sessions of judges.")] = False,
    saved: Annotated[str, typer.Option(help="Start from this saved filter.", metavar="NAME")] = "",
    save: Annotated[str, typer.Option(help="Save the filter under this name.", metavar="NAME")] = "",
    facets: Annotated[
        bool,
        typer.Option("--facets", help="Also count by service, agent, version, prompt, model, status."),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of sessions, newest first.", metavar="N")
    ] = 50,
    as_json: Json = False,
) -> int:
    """List sessions of any origin that match all filters, newest first. Judge sessions are left out.

    Example:  proctor sessions list --service shop --since 7d --status fail
    """
    given = {
        "run": run, "service": service, "agent": agent, "version": version, "prompt": prompt, "model": model,
        "status": status,
        "job": job, "since": since, "until": until, "cost": cost, "tokens": tokens, "seconds": seconds,
        "tool": tool, "score": score, "label": label, "tag": tag, "text": text, "judges": judges or None,
    }  # fmt: skip
    with terminal_context(context.obj) as ctx:
        start = asdict(saved_filter(ctx, saved)) if saved else {}
        wanted = SessionFilter.make(**start | {name: value for name, value in given.items() if value})
        search = SessionSearch(ctx, on_progress=_IndexingNotes())
        if save:
            save_filter(ctx, save, wanted)
        page = search.page(wanted, limit=limit)
        listed = search.rows(page)
        if as_json:
            rows = [session.to_dict() for session in listed]
            counts = {key: getattr(page, key) for key in ("total", "is_cut", "facets", "next")}
            print_json({"sessions": rows, **camel_document(counts)})
            return output.SUCCEEDED
        if not listed:
            print_note("No session matches." if any(given.values()) or saved else "No sessions yet.")
            return output.SUCCEEDED
        heads = ("SESSION", "STATUS", "REASON", "AGENT", "MODEL", "STARTED", "BRANCH", "NAME")
        print_table(heads, map(_cells, listed))
    if facets:
        cells = [
            (name, value.value or "–", f"{value.sessions:,}")
            for name, values in page.facets.items()
            for value in values
        ]
        print()
        print_table(("FACET", "VALUE", "SESSIONS"), cells)
    if page.total > len(listed):
        more = "at least " if page.is_cut else ""
        print_note(f"{len(listed):,} of {more}{count(page.total, 'session')}; --limit N shows more")
    return output.SUCCEEDED


@sessions_app.command()
def trend(
    context: typer.Context,
    service: Annotated[Values, typer.Option(help="Service. Repeatable.", metavar="NAME")] = None,
    since: Annotated[
        str, typer.Option(help="Started at or after: 7d, 36h, or 2026-01-31 (default: 30d).", metavar="WHEN")
    ] = "",
    until: Annotated[str, typer.Option(help="Started before.", metavar="WHEN")] = "",
    by: Annotated[By, typer.Option(help="Divide by service, agent, version, prompt, or model.")] = "",
    saved: Annotated[str, typer.Option(help="Sessions of this saved filter.", metavar="NAME")] = "",
    as_json: Json = False,
) -> int:
    """Show sessions over time: number, errors, cost, duration, and scores, with 95% bands.

    Example:  proctor sessions trend --service shop --since 30d --by version
    """
    given = {"service": service, "since": since, "until": until}
    with terminal_context(context.obj) as ctx:
        start = asdict(saved_filter(ctx, saved)) if saved else {}
        wanted = SessionFilter.make(**start | {name: value for name, value in given.items() if value})
        found = session_trend(ctx, wanted, by=by)
    if as_json:
        print_json(camel_document(found))
        return output.SUCCEEDED
    rows = [
        (
            group.name or "–",
            line.metric,
            point.start[:16].replace("T", " "),
            f"{point.sessions:,}",
            f"{point.value:.4g}" if point.value is not None else "–",
            "" if point.low is None else f"{point.low:.4g} to {point.high:.4g}",
        )
        for group in found.groups
        for line in group.lines
        for point in line.points
    ]
    print_table(
        (by.upper() or "SESSIONS", "METRIC", f"{found.period.upper()} (UTC)", "N", "VALUE", "BAND"), rows
    )
    if found.omitted:
        print_note(f"{count(found.omitted, 'smaller group')} left out")
    return output.SUCCEEDED


@sessions_app.command()
def compare(
    context: typer.Context,
    first: Annotated[str, typer.Argument(help="Saved filter.", metavar="FILTER")],
    second: Annotated[str, typer.Argument(help="Another one.", metavar="OTHER")],
    as_json: Json = False,
) -> int:
    """Compare the sessions of two saved filters: failures, cost, duration, and scores.

    Example:  proctor sessions compare new-prompt old-prompt
    """
    with terminal_context(context.obj) as ctx:
        found = compare_selections(ctx, saved_filter(ctx, first), saved_filter(ctx, second))
    if as_json:
        print_json(camel_document(found))
        return output.SUCCEEDED
    rows = [
        (
            row.metric,
            f"{row.first:.4g}",
            f"{row.second:.4g}",
            f"{row.difference:+.4g}".replace("-", "−"),
            "–" if row.low is None else f"{row.low:.4g} to {row.high:.4g}".replace("-", "−"),
            "yes" if row.is_significant else "no",
        )
        for row in found.metrics
    ]
    heads = ("METRIC", first.upper(), second.upper(), "DIFFERENCE", "95% CI", "SIGNIFICANT")
    print_table(heads, rows)
    print_note(f"{count(found.first_sessions, 'session')} and {count(found.second_sessions, 'session')}")
    return output.SUCCEEDED


@sessions_app.command()
def show(
    context: typer.Context,
    session: Session,
    full: Annotated[bool, typer.Option("--full", help="Print long texts in full.")] = False,
    all_output: Output = False,
    as_json: Json = False,
) -> int:
    """Show the transcript, tool calls, changes, and check of a session.

    Example:  proctor sessions show 019a8c --full
    """
    with terminal_context(context.obj) as ctx:
        show_session(find_session(ctx, session), full, as_json, all_output=all_output)
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
        match = find_branch(ctx, session)
        text = match.diff(*flags)
    _print_text(text, {"sessionId": match.session_id, "branch": match.branch, "diff": text}, as_json)
    return output.SUCCEEDED


@sessions_app.command()
def log(context: typer.Context, session: Session, as_json: Json = False) -> int:
    """Print the commits of a session, newest first.

    Example:  proctor sessions log 019a8c
    """
    with terminal_context(context.obj) as ctx:
        match = find_branch(ctx, session)
        text = match.log()
    _print_text(text, {"sessionId": match.session_id, "branch": match.branch, "log": text}, as_json)
    return output.SUCCEEDED


@sessions_app.command()
def squash(context: typer.Context, session: Session, message: Message = "", as_json: Json = False) -> int:
    """Squash the commits of a session into one.

    Example:  proctor sessions squash 019a8c -m "Fix the parser"
    """
    with terminal_context(context.obj) as ctx:
        match = find_branch(ctx, session)
        sha = match.squash(message)
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
        match = find_branch(ctx, session)
    base = onto or match.base_branch
    sha, conflicts = asyncio.run(match.rebase(onto))
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
        match = find_branch(ctx, session)
        merged = asyncio.run(match.merge(message=message, onto=onto, check=check))
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
def discard(
    context: typer.Context,
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> int:
    """Delete the branch and the worktree of a session. Its record stays.

    Example:  proctor sessions discard 019a8c
    """
    with terminal_context(context.obj) as ctx:
        found = find_session(ctx, session)
        found.require_branch()
        cleaned = clean_up(
            ctx,
            session=found.id,
            branches=True,
            is_sure=lambda _: yes or is_sure(f"Delete the branch {found.branch}?"),
        )
    if cleaned is None:
        return output.SOME_DID_NOT
    if as_json:
        print_json({"sessionId": found.id, "branch": found.branch, "kept": cleaned.problems})
    print_note(f"discarded {printable(found.branch)}")
    for problem in cleaned.problems:
        print_note(f"note: {printable(problem)}")
    return output.SUCCEEDED


@sessions_app.command("continue")
def continue_session(
    context: typer.Context,
    session: Session,
    comment: Annotated[
        list[str] | None,
        typer.Option(
            help="Comment on a line, or without LINE on a file. Repeatable.", metavar="FILE:LINE:TEXT"
        ),
    ] = None,
    message: Annotated[
        str, typer.Option("--message", "-m", help="Comment on the whole.", metavar="TEXT")
    ] = "",
    from_: Annotated[
        Path | None, typer.Option("--from", help="File with the comment on the whole.", metavar="FILE")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Budget of the next iteration in USD.", metavar="USD")
    ] = None,
    run_id: Annotated[str, typer.Option(help="ID of the new run.", metavar="ID")] = "",
    as_json: JsonAtEnd = False,
) -> int:
    """Send comments back to the agent of a session, which continues on top of its branch.

    Example:  proctor sessions continue 019a8c --comment 'shop.py:14:Use a decimal' -m 'Add a test'
    """
    text = bytes_of(from_, "the comments", remedy="Give the path of a text file.").decode() if from_ else ""
    feedback = Feedback(
        session=session,
        message="\n\n".join(part for part in (message, text) if part),
        comments=[Comment.parse(each) for each in comment or ()],
        budget_usd=budget,
    )
    options = OutputOptions(as_json=as_json)
    with terminal_context(context.obj) as ctx:
        read = read_feedback(ctx, feedback, run_id=run_id)
        print_note(f"continuing {session} as {read.run_id}")
        return run_command(ctx, start(ctx, read, observer=TerminalObserver(ctx, options)), options)


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
        cleaned = clean_up(
            ctx,
            session=session,
            run=run,
            branches=branches,
            is_sure=lambda number: yes or is_sure(f"Remove the branches of {number} sessions?"),
        )
    if cleaned is None:
        return output.SOME_DID_NOT
    if as_json:
        print_json({"sessions": cleaned.session_ids, "kept": cleaned.problems})
    print_note(f"cleaned up {len(cleaned.session_ids)} sessions")
    for problem in cleaned.problems:
        print_note(f"note: {printable(problem)}")
    return output.SUCCEEDED


sessions_app.command("delete")(delete)


def _cells(session: RunSession) -> tuple[str, ...]:
    started = (session.started_at or "")[:19].replace("T", " ")
    # Imported sessions show the name they have in their source.
    name = session.external_id or ""
    ended = (session.status, session.end_reason)
    return session.id, *ended, session.agent, session.model, started, session.branch, name


def _print_result(match: SessionBranch, document: JsonObject, message: str, as_json: bool) -> int:
    if as_json:
        print_json({"sessionId": match.session_id, "branch": match.branch, **document})
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


review_app = typer.Typer(add_completion=False)


@review_app.command()
def review(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Only sessions of this run.", metavar="RUN")] = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of sessions, newest first.", metavar="N")
    ] = 50,
    as_json: Json = False,
) -> int:
    """List finished sessions whose changes were not merged, discarded, or sent back.

    Example:  proctor review nightly-42
    """
    with terminal_context(context.obj) as ctx:
        listed = waiting(ctx, run=run, limit=limit)
    if as_json:
        print_json({"sessions": camel_document(listed)})
    elif not listed:
        print_note("No sessions to review.")
    else:
        heads = ("SESSION", "STATUS", "CHECK", "FILES", "LINES", "ITERATION", "COST", "AGENT", "RUN", "TASK")
        print_table(heads, map(_review_cells, listed))
        first = listed[0].session_id
        print_next(
            [
                f"proctor sessions diff {first}",
                f"proctor sessions merge {first}",
                f"proctor sessions continue {first} --message TEXT",
                f"proctor sessions discard {first}",
            ]
        )
    return output.SUCCEEDED


def _review_cells(session: WaitingSession) -> tuple[str, ...]:
    return (
        session.session_id,
        shown_status(session.status, session.reason),
        session.check or "–",
        f"{session.files:,}",
        f"+{session.lines_added:,} −{session.lines_removed:,}",
        str(session.iteration),
        money(session.cost_usd),
        session.agent,
        session.run_id,
        session.task,
    )


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
    with terminal_context(context.obj) as ctx:
        search = StoreSearch(ctx, on_progress=_IndexingNotes())
        found = search.transcripts(query, run=run, offset=offset, limit=limit)
    if as_json:
        hits = camel_document(found.hits)
        print_json({"text": query, "hits": hits, "hasMore": found.has_more, "indexedSessions": found.indexed})
    else:
        for hit in found.hits:
            facts = (hit.session_id, hit.run_id, hit.status, hit.model, f"{hit.name} #{hit.position}")
            print(" · ".join(printable(fact) for fact in facts if fact))
            print("    " + "".join(_marked(part.text, part.is_match) for part in hit.snippet))
        if not found.hits:
            print_note(f"No match in {count(found.indexed, 'session')}.")
        elif found.has_more:
            print_note(f"More:  --offset {offset + limit}")
    return output.SUCCEEDED if found.hits else output.SOME_DID_NOT


class _IndexingNotes:
    """Notes on the indexing of many sessions."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, indexed: int, sessions: int) -> None:
        if indexed >= self._next:
            self._next = indexed + NOTE_EVERY
            print_note(f"indexing transcripts: {indexed:,} of {count(sessions, 'session')}")


def _marked(text: str, is_match: bool) -> str:
    text = printable(text)
    return f"{BOLD}{text}{PLAIN}" if is_match and sys.stdout.isatty() else text


apps = {"sessions": sessions_app, "search": search_app, "review": review_app}
