"""`proctor runs`, `show`, `watch`, `abort-run` and `delete`."""

import asyncio
import json
import queue
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from proctor.api import runs as run_verbs
from proctor.api.failures import failures_of
from proctor.api.following import SessionFollower, SessionUpdate, send_message, stop_session
from proctor.api.run_list import RunLine, list_runs, run_sizes
from proctor.api.run_state import RunningRuns, RunState, rates_over_tasks
from proctor.api.runs import status_of
from proctor.api.sessions import RunItem, RunSession, find_item, find_session, items
from proctor.cli import output
from proctor.cli.live import REFRESH_SECONDS, TOP_HEADS, LiveView, show_running, top_cells
from proctor.cli.output import (
    Json,
    Run,
    comma_separated,
    count,
    is_sure,
    money,
    print_json,
    print_next,
    print_note,
    print_table,
    printable,
    seconds,
)
from proctor.cli.run import completed_code, terminal_context
from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.formatting import UNKNOWN, age, interval, percent, size
from proctor.item import RUNNING, SUCCESS, shown_status
from proctor.json_values import JsonObject, camel_document
from proctor.stop_rule import stop_lines

MOST_ANSWERED = 20_000
"""Items of a run whose answer `show` computes; reports have that of larger ones."""
WIDE = 100
"""Columns of a terminal from which on times are written in full."""
SHORT_ID = 8
"""Characters of an item's id on narrow terminals; commands accept a prefix."""
runs_app = typer.Typer(add_completion=False)
abort_app = typer.Typer(add_completion=False)
delete_app = typer.Typer(add_completion=False)
show_app = typer.Typer(add_completion=False)
watch_app = typer.Typer(add_completion=False)
top_app = typer.Typer(add_completion=False)
attach_app = typer.Typer(add_completion=False)
apps = {
    "runs": runs_app,
    "abort-run": abort_app,
    "delete": delete_app,
    "show": show_app,
    "attach": attach_app,
    "watch": watch_app,
    "top": top_app,
}


@runs_app.command()
def runs(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of runs to list, newest first.", metavar="N")
    ] = 50,
    with_size: Annotated[
        bool, typer.Option("--size", help="Show how much each run takes in the store.")
    ] = False,
    as_json: Json = False,
) -> int:
    """List runs, newest first.

    Example:  proctor runs --limit 10
    """
    with terminal_context(context.obj) as ctx:
        lines = list_runs(ctx, limit=limit)
        sizes = run_sizes(ctx, [line.run_id for line in lines]) if with_size else {}
        room = (output.terminal_width() or 1000) - len("Next:  proctor show ")
        newest = run_verbs.short_id(ctx, lines[0].run_id, room) if lines else ""
    if as_json:
        more = [{"bytes": sizes[line.run_id]} if with_size else {} for line in lines]
        print_json({"runs": [_run_document(line) | extra for line, extra in zip(lines, more, strict=True)]})
    elif not lines:
        print_note("No runs yet. Start one:  proctor batch plan.yaml")
    else:
        age_at = ctx.now() if _is_narrow() else None
        created = "AGE" if age_at else "CREATED"
        heads = ["RUN", created, "JOB", "STATUS", "DONE", "PASSED", "TOKENS", "COST"]
        cells = [_run_cells(line, age_at=age_at) for line in lines]
        if with_size:
            heads.append("SIZE")
            cells = [(*row, size(sizes[line.run_id])) for row, line in zip(cells, lines, strict=True)]
        print_table(heads, cells, drop=("TOKENS", "JOB"))
        print_next([f"proctor show {newest}", "proctor top"])
    return output.SUCCEEDED


@abort_app.command()
def abort(context: typer.Context, run: Run, as_json: Json = False) -> int:
    """Stop a run, including one started by another process. Running items stop within seconds.

    Example:  proctor abort-run nightly-42
    """
    with terminal_context(context.obj) as ctx:
        run_id, _ = status_of(ctx, run)
        status = run_verbs.abort(ctx, run_id)
    if as_json:
        print_json({"runId": run_id, "status": status})
    print_note(f"{printable(run_id)} {status}")
    return output.SUCCEEDED if status == "aborted" else output.CUT_SHORT


@delete_app.command()
def delete(
    context: typer.Context,
    run: Run,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    keep_branches: Annotated[bool, typer.Option(help="Keep the branches of its sessions.")] = False,
    as_json: Json = False,
) -> int:
    """Delete a run with its rows, worktrees, and session branches.

    Example:  proctor delete nightly-42
    """
    with terminal_context(context.obj) as ctx:
        run_id, _ = status_of(ctx, run)
        deletion = run_verbs.delete(
            ctx,
            run_id,
            branches=not keep_branches,
            is_sure=lambda number: (
                yes or is_sure(f"Delete {printable(run_id)} with {count(number, 'item')}?")
            ),
        )
    if deletion is None:
        return output.SOME_DID_NOT
    if as_json:
        print_json(
            {"runId": run_id, "status": "deleted", "branches": deletion.branches, "kept": deletion.problems}
        )
    branches = count(deletion.branches, "session branch", "session branches")
    print_note(f"{printable(run_id)} deleted; {branches} removed")
    for remark in deletion.problems:
        print_note(f"note: {printable(remark)}")
    return output.SUCCEEDED


def _is_narrow() -> bool:
    return (output.terminal_width() or WIDE) < WIDE


def _run_document(line: RunLine) -> JsonObject:
    return {
        "runId": line.run_id,
        "createdAt": line.created_at,
        "finishedAt": line.finished_at,
        "job": line.job,
        "status": line.status,
        "reason": line.reason,
        "itemCount": line.item_count,
        "counts": line.counts,
        "tokensTotal": line.tokens_total,
        "costUsd": line.cost_usd,
        **({"costIsLowerBound": True} if line.cost_is_lower_bound else {}),
        "planPath": line.plan_path,
    }


def _run_cells(line: RunLine, *, age_at: datetime | None) -> tuple[str, ...]:
    created = line.created_at[:19].replace("T", " ")
    if age_at:
        created = age(age_at - datetime.fromisoformat(line.created_at))
    done = f"{line.finished_count - line.aborted_count}/{line.item_count}"
    passed = str(line.counts[SUCCESS] - line.unchecked_count)
    cost = _cost(line.cost_usd, is_lower_bound=line.cost_is_lower_bound)
    return line.run_id, created, line.job, line.status, done, passed, f"{line.tokens_total:,}", cost


def _cost(usd: float | None, *, is_lower_bound: bool = False) -> str:
    return "" if usd is None else f"≥ {money(usd)}" if is_lower_bound else money(usd)


# `proctor show`


CUT = 2000
"""Characters of a text that are printed without `--full`."""
LAST_LINES = 12
"""Lines of an agent's output that are printed under the error of its session."""
Output = Annotated[
    bool,
    typer.Option("--output", help="Print all that the programs of a session printed: setup, agent, check."),
]


@show_app.command()
def show(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(metavar="RUN|ITEM|SESSION", help="ID, or an unambiguous prefix.")],
    status: Annotated[
        str, typer.Option(help="Items of a run with these statuses, comma-separated.", metavar="STATUS")
    ] = "",
    search: Annotated[str, typer.Option(help="Items of a run that contain this text.", metavar="TEXT")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of items.", metavar="N")] = 50,
    full: Annotated[bool, typer.Option("--full", help="Print long texts of a session in full.")] = False,
    all_output: Output = False,
    as_json: Json = False,
) -> int:
    """Show a run with its items, an item with its attempts and transcript, or a session with its transcript.

    Example:  proctor show nightly-42 --status fail,timeout
    """
    if not prefix:
        raise UsageError("no run, item or session was named\nGive an ID, or the start of one.")
    with terminal_context(context.obj) as ctx:
        try:
            run_id, _ = status_of(ctx, prefix)
        except NotFound:
            item = find_item(ctx, prefix)
            if item and not all_output:
                _show_item(item, full, as_json)
            else:
                session = item.attempts[-1] if item and item.attempts else _session(ctx, prefix)
                show_session(session, full, as_json, all_output=all_output)
        else:
            if all_output:
                raise UsageError("--output needs an item or a session\n`proctor show RUN` lists the items.")
            _show_run(ctx, run_id, comma_separated(status), search, limit, as_json)
    return output.SUCCEEDED


def _session(ctx: RunContext, prefix: str) -> RunSession:
    try:
        return find_session(ctx, prefix)
    except NotFound:
        raise NotFound(f"there is no run, item or session {prefix}\n`proctor runs` lists the runs.") from None


def _show_run(
    ctx: RunContext, run_id: str, statuses: Sequence[str], search: str, limit: int, as_json: bool
) -> None:
    page = items(ctx, run_id, statuses=statuses, search=search, limit=limit)
    document = run_verbs.summary(ctx, run_id)
    if as_json:
        print_json({**document, "items": [item.document() for item in page.items]})
        return
    took, status = seconds(document["durationSec"]), document["status"]
    spent = _cost(document["costUsd"], is_lower_bound=document.get("costIsLowerBound", False))
    facts = f"{output.colored(status, status)}  {took}  {spent}".rstrip()
    is_long = len(f"{run_id}  {status}  {took}  {spent}") > (output.terminal_width() or 1000)
    print(f"{printable(run_id)}\n{facts}" if is_long else f"{printable(run_id)}  {facts}")
    unchecked, aborted = document.get("uncheckedCount", 0), document.get("abortedCount", 0)
    counts = {
        "success": document["successCount"] - unchecked,
        **({"unchecked": unchecked} if unchecked else {}),
        "fail": document["failCount"],
        "timeout": document["timeoutCount"],
        "error": document["errorCount"] - aborted,
        **({"aborted": aborted} if aborted else {}),
        "unfinished": document["unfinishedCount"],
    }
    parts = (output.colored(f"{number} {name}", name if number else "") for name, number in counts.items())
    print("  ".join(parts))
    if not search and not statuses:
        _print_agents_and_models(ctx, run_id, is_running=status == RUNNING)
        _print_answer(ctx, run_id, counts)
    if page.items:
        print()
        heads = ("ITEM", "STATUS", "REASON", "WHAT", "AGENT", "MODEL", "PROMPT", "ERROR")
        cells = [_cells(item, is_narrow=_is_narrow()) for item in page.items]
        print_table(heads, cells, drop=("REASON", "AGENT", "WHAT"))
    if page.total > len(page.items):
        print(f"… and {page.total - len(page.items):,} more (--limit)")
        if not search and not statuses:
            _print_failures(ctx, run_id)
    _print_next_commands(ctx, run_id, status, counts)


MOST_FAILURES = 5
"""Kinds of failures that `show` lists of a run with more items than it prints."""


def _print_failures(ctx: RunContext, run_id: str) -> None:
    """The largest groups of failures with alike messages, each with an example."""
    failures = failures_of(ctx.store.read, run_id)
    groups = failures.of(failures.group_of)
    if not groups:
        return
    print()
    cells = [(f"{group.items:,}", group.reason, group.example) for group in groups[:MOST_FAILURES]]
    print_table(("FAILURES", "REASON", "FOR EXAMPLE"), cells)
    if len(groups) > MOST_FAILURES:
        print(f"… and {count(len(groups) - MOST_FAILURES, 'more kind')}")


def _print_agents_and_models(ctx: RunContext, run_id: str, *, is_running: bool) -> None:
    """The success rate of each agent and model over tasks, if there are several."""
    rates = rates_over_tasks(ctx.store.read, run_id, is_running=is_running)
    if len(rates) < 2:
        return
    rows = [
        (
            progress.name,
            f"{progress.finished:,}/{progress.items:,}",
            f"{progress.rate.successes:,}/{progress.rate.trials:,}",
            percent(rate.value),
            interval(rate.low, rate.high) if rate.low is not None else UNKNOWN,
            _cost(progress.cost_usd),
        )
        for progress, rate in rates
    ]
    print()
    print_table(("MODEL", "DONE", "PASSED", "RATE", "95% CI", "COST"), rows, drop=("COST", "DONE"))


def _print_answer(ctx: RunContext, run_id: str, counts: Mapping[str, int]) -> None:
    """Which model or agent to use, or what a race or a check has decided."""
    # Loads the figures of a run, which lists of runs do not need.
    from proctor.api.run_results import answer_of_run

    if sum(counts.values()) <= MOST_ANSWERED and (answer := answer_of_run(ctx, run_id)):
        print(f"\n{printable(answer.text)}")


def _print_next_commands(ctx: RunContext, run_id: str, status: str, counts: Mapping[str, int]) -> None:
    if status == RUNNING:
        commands = [f"proctor watch {run_id}", f"proctor abort-run {run_id}"]
    elif status != "completed":
        commands = [f"proctor resume {run_id}", f"proctor report --run {run_id}"]
    else:
        failed = [name for name in ("fail", "timeout", "error") if counts[name]]
        look = [f"proctor show {run_id} --status {','.join(failed)}"] if failed else []
        commands = [*look, f"proctor report --run {run_id}"]
    print_next(commands, run_id=run_id, ctx=ctx)


def _cells(item: RunItem, *, is_narrow: bool) -> tuple[str, ...]:
    row = item.row
    # Items without a repository have a label: the variation of a scenario, an evaluator.
    label = json.loads(row["settings"]).get("label") or ""
    where = printable(label or row["repo"].rstrip("/").rpartition("/")[2], width=40)
    prompt, error = printable(row["prompt"], width=40), printable(row["error"], width=60)
    status = shown_status(row["status"], row["reason"])
    item_id = row["id"][:SHORT_ID] if is_narrow else row["id"]
    return item_id, status, row["reason"], where, row["agent"], row["model"], prompt, error


def _show_item(item: RunItem, full: bool, as_json: bool) -> None:
    if as_json:
        print_json(item.document() | {"attempts": [session.to_dict() for session in item.attempts]})
        return
    row = item.row
    print(f"item {row['id']} of {printable(row['runId'])}  {row['status']}  {printable(row['reason'])}")
    print(printable(row["prompt"][:CUT], lines=True))
    if row["error"]:
        print(f"error: {printable(row['error'], lines=True)}")
    if row["merge"]:
        print(f"merge: {row['merge']}")
    print()
    heads = ("ATTEMPT", "SESSION", "STATUS", "REASON", "WORK", "TOKENS", "COST", "BRANCH")
    attempts = item.attempts
    print_table(heads, map(_attempt_cells, attempts))
    if attempts:
        print()
        show_session(attempts[-1], full, as_json=False)


def _attempt_cells(session: RunSession) -> tuple[object, ...]:
    ended = (session.status, session.end_reason)
    worked = (seconds(session.work_seconds), session.total_tokens, _cost(session.cost_usd))
    return session.attempt, session.id, *ended, *worked, session.branch


def show_session(session: RunSession, full: bool, as_json: bool, *, all_output: bool = False) -> None:
    """Print a session: transcript, tool calls, changes, and scores; or `all_output` of its programs."""
    record = session.record()
    if as_json:
        print_json(record)
        return
    _print_head(record)
    if all_output:
        _print_outputs(record)
        return
    if record["error"]:
        _print_last_lines(record)
    events = [(_message, message) for message in record["messages"]]
    events += [(_tool, tool_call) for tool_call in record["tool_calls"]]
    for text_of, event in sorted(events, key=lambda event: event[1]["position"]):
        print()
        print(text_of(event, full))
    for step in record["iterations"]:
        _print_step(step, full)
    for score in record["scores"]:
        value = score["label"] if score["value"] is None else f"{score['value']:g}"
        print(f"score {printable(score['evaluator'])}: {printable(value)}  {printable(score['explanation'])}")


def _parts(row: Mapping[str, Any]) -> str:
    """The parts of a coding session's time; empty: it has none."""
    times = {
        "checkout": row["checkoutSeconds"],
        "setup": row["setupSeconds"],
        "agent": row["agentSeconds"],
        "check": row["checkSeconds"],
    }
    known = ", ".join(f"{name} {seconds(time)}" for name, time in times.items() if time is not None)
    return f" ({known})" if known else ""


def _print_head(row: Mapping[str, Any]) -> None:
    print(f"session {row['id']}  {row['status']}  {printable(row['endReason'])}  {printable(row['name'])}")
    version = row["agentVersion"]
    facts = {
        "agent": " ".join(filter(None, (row["agent"], version and f"({version})"))),
        "model": row["model"],
        "answered": row["answeredModel"],
        "baseline": row["baseline"],
        "continues": row["continues"],
        "repo": row["repo"],
        "branch": row["branch"],
        "worktree": row["worktree"],
        "worked": seconds(row["workSeconds"]) + _parts(row),
        "tokens": f"{row['totalTokens']:,}",
        "cost": _cost(row["costUsd"]),
        "error": row["error"],
    }
    for name, value in facts.items():
        if value:
            print(f"  {name:<9}  {printable(value)}")
    if row["isMock"]:
        print("  mock session (scripted or replayed)")
    for note in row["notes"]:
        print(f"  note       {printable(note)}")


def _outputs(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The programs of a session that printed anything, with their output."""
    for step in record["iterations"]:
        code = "" if step["exitCode"] is None else f" (exit code {step['exitCode']})"
        if step["setupOutput"]:
            yield "setup", step["setupOutput"]
        if step["output"]:
            yield f"agent{code}", step["output"]
        if step["testOutput"]:
            yield f"check (exit code {step['testExitCode']})", step["testOutput"]


def _print_outputs(record: Mapping[str, Any]) -> None:
    outputs = list(_outputs(record))
    for name, text in outputs:
        print(f"\n── output of the {name}\n{printable(text, lines=True).rstrip()}")
    if not outputs:
        print_note("No program of this session printed anything.")


def _print_last_lines(record: Mapping[str, Any]) -> None:
    """The end of the output of the program that failed; that of a check is printed with its step."""
    name, text = next(iter(reversed(list(_outputs(record)))), ("", ""))
    if not name or name.startswith("check") or (name == "setup" and record["agentSeconds"] is not None):
        return
    lines = text.strip().splitlines()
    left_out = len(lines) - LAST_LINES
    print(f"\n── output of the {name}")
    if left_out > 0:
        print(f"… {count(left_out, 'more line')} (--output)")
    print("\n".join(printable(line, width=CUT) for line in lines[-LAST_LINES:]))


def _print_step(step: Mapping[str, Any], full: bool) -> None:
    changed = f"{step['changedFiles']} files, +{step['linesAdded']} −{step['linesRemoved']}"
    print(f"\nstep {step['step']}: {changed}  {printable(step['commitSha'][:12])}")
    if step["testResult"]:
        took = seconds((step["testDurationMs"] or 0) / 1000)
        print(f"check: {step['testResult']} (exit code {step['testExitCode']}, {took})")
        print(_cut(step["testOutput"], full))


def _message(row: Mapping[str, Any], full: bool) -> str:
    return f"── {printable(row['name'] or row['role'])}\n{_cut(row['content'], full)}"


def _tool(row: Mapping[str, Any], full: bool) -> str:
    ended = {1: "ok", 0: "failed", None: "?"}[row["success"]]
    took = "" if row["durationMs"] is None else f", {row['durationMs']:.0f} ms"
    args = printable(row["argsJson"], width=None if full else 200)
    return (
        f"── tool {printable(row['toolName'])} ({ended}{took})  {args}\n{_cut(row['result'], full)}".rstrip()
    )


def _cut(text: str, full: bool) -> str:
    left_out = "" if full or len(text) <= CUT else f"\n… {len(text) - CUT:,} more characters (--full)"
    return printable(text if full else text[:CUT], lines=True) + left_out


# `proctor attach`

FOLLOW_SECONDS = 0.3
"""Between two looks at a session: quick enough to read along."""


@attach_app.command()
def attach(
    context: typer.Context,
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="ID of a session or an item, its branch, or a prefix.")
    ],
    message: Annotated[
        str, typer.Option("--message", "-m", help="Send the agent a message, which it reads while it works.")
    ] = "",
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the agent; its changes are committed to its branch.")
    ] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print each event as a JSON record.")] = False,
) -> int:
    """Follow a session while its agent works: messages, tool calls, and output. Ctrl-C stops only following.

    In a terminal, each line that you type is a message to the agent, if it reads messages while it works.

    Example:  proctor attach 019a8c --message 'Leave the public names as they are'
    """
    with terminal_context(context.obj) as ctx, suppress(KeyboardInterrupt):
        follower = SessionFollower(ctx, session)
        found = follower.session
        if message:
            send_message(ctx, found.id, message)
        if stop:
            stop_session(ctx, found.id)
        if not as_jsonl:
            _print_head(found.record())
        typed = _TypedLines()
        while True:
            update = follower.look()
            if update.takes_messages and not stop:
                typed.begin()
            for line in typed.lines():
                try:
                    send_message(ctx, found.id, line)
                except UsageError as error:
                    # The agent has ended, and its check may run: following goes on.
                    print_note(error.problem)
            if as_jsonl:
                for event in update.events:
                    print(json.dumps(event, default=camel_document, ensure_ascii=False), flush=True)
            else:
                _print_update(update)
            if not update.is_running:
                break
            time.sleep(FOLLOW_SECONDS)
        ended = find_session(ctx, found.id)
        if not as_jsonl:
            for step in ended.steps:
                _print_step(step.to_dict(), full=False)
        reason = ended.error or ended.end_reason
        print_note(f"session {ended.id} {shown_status(ended.status, ended.end_reason)}: {printable(reason)}")
        if stop and ended.branch:
            print_next(
                [
                    f"git -C {shlex.quote(ended.repo)} worktree add FOLDER {ended.branch}",
                    f"proctor sessions continue {ended.id} --message TEXT",
                ]
            )
        return output.SUCCEEDED if ended.status == SUCCESS else output.SOME_DID_NOT
    return output.SUCCEEDED


class _TypedLines:
    """Lines that are typed in the terminal, read by a thread."""

    def __init__(self) -> None:
        self._lines = queue.SimpleQueue[str]()
        self._has_begun = not sys.stdin.isatty()

    def begin(self) -> None:
        """Read the terminal, if there is one."""
        if not self._has_begun:
            self._has_begun = True
            print_note("Type a line to send it to the agent. Ctrl-C stops only following.")
            # It waits for a line; the program does not wait for it.
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)

    def lines(self) -> Iterator[str]:
        """Those typed since the last call that are not blank."""
        while not self._lines.empty():
            if line := self._lines.get().strip():
                yield line


def _print_update(update: SessionUpdate) -> None:
    for event in update.events:
        if event["kind"] == "message":
            print("\n" + _message({**event, "content": event["content"].text}, full=False), flush=True)
        elif event["kind"] == "tool_call":
            known = {"success": event.get("success"), "durationMs": event.get("durationMs")}
            texts = {"argsJson": event["argsJson"].text, "result": event["result"].text}
            print("\n" + _tool({**event, **known, **texts}, full=False), flush=True)
    if update.output:
        print(printable(update.output.rstrip("\n"), lines=True), flush=True)


# `proctor watch` and `proctor top`


@watch_app.command()
def watch(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(metavar="[RUN]", help="Run ID, or an unambiguous prefix (default: all live runs)."),
    ] = "",
    as_json: Json = False,
) -> int:
    """Watch a run until it ends, including one started by another process. Ctrl-C stops only the watching.

    Without a run: all live runs, as `proctor top`.

    Example:  proctor watch nightly-42
    """
    with terminal_context(context.obj) as ctx:
        if not run:
            return _top(ctx, as_json=as_json)
        run_id, _ = status_of(ctx, run)
        asyncio.run(_watch(ctx, run_id, as_json=as_json))
        document = run_verbs.summary(ctx, run_id)
    if as_json:
        print_json(document)
    print_note(
        f"{printable(run_id)} {document['status']}: "
        f"{document['successCount']} of {document['itemCount']} passed"
    )
    for line in stop_lines(document["stopWhen"]) if "stopWhen" in document else ():
        print_note(printable(line))
    if document["status"] != "completed":
        return output.CUT_SHORT
    return completed_code(document)


async def _watch(ctx: RunContext, run_id: str, *, as_json: bool) -> None:
    if as_json or not sys.stderr.isatty():
        while status_of(ctx, run_id)[1] == RUNNING:
            await asyncio.sleep(REFRESH_SECONDS)
        return
    async with LiveView(ctx, run_id) as view:
        while (await view.refresh()).status == RUNNING:
            await asyncio.sleep(REFRESH_SECONDS)


@top_app.command()
def top(context: typer.Context, as_json: Json = False) -> int:
    """Show all live runs of the store, until Ctrl-C; once with --json or without a terminal.

    Example:  proctor top
    """
    with terminal_context(context.obj) as ctx:
        return _top(ctx, as_json=as_json)


def _top(ctx: RunContext, *, as_json: bool) -> int:
    running = RunningRuns(ctx)
    if as_json:
        print_json({"runs": [_live_document(run) for run in running.look()]})
    elif sys.stderr.isatty():
        with suppress(KeyboardInterrupt):
            asyncio.run(show_running(running))
    elif live := running.look():
        print_table(TOP_HEADS, map(top_cells, live))
    else:
        print_note("No live runs. Start one:  proctor batch plan.yaml")
    return output.SUCCEEDED


def _live_document(run: RunState) -> JsonObject:
    return {
        "runId": run.run_id,
        "status": run.status,
        "itemCount": run.item_count,
        "counts": dict(run.counts),
        "itemsPerMinute": run.items_per_minute,
        "etaSeconds": run.eta_seconds,
        "tokensTotal": run.tokens,
        "costUsd": run.cost_usd,
        "running": [asdict(item) for item in run.running],
    }
