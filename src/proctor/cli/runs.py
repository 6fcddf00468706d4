"""`proctor runs`, `show`, `watch`, `abort-run` and `delete`."""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from proctor.api.failures import failures_of
from proctor.api.run_state import RunningRuns, RunState, rates_over_tasks
from proctor.api.runs import status_of
from proctor.batch.deletion import delete_run
from proctor.batch.lifecycle import abort_run, run_summary
from proctor.bootstrap import now
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
from proctor.cli.run import has_failures, terminal_context
from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.formatting import UNKNOWN, age, interval, percent, size
from proctor.item import RUNNING, STATUSES, SUCCESS, UNCHECKED, shown_status
from proctor.job import stop_lines
from proctor.json_values import JsonObject
from proctor.store import ItemFilter, Store
from proctor.store.batches import ABORTED
from proctor.store.reader import BatchWithTotals
from proctor.store.runs import cut_off_counts
from proctor.store.tables import BatchRow, ItemRow, SessionRow

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
apps = {
    "runs": runs_app,
    "abort-run": abort_app,
    "delete": delete_app,
    "show": show_app,
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
        rows = ctx.store.read.batches(ctx.now(), limit=limit)
        sizes = ctx.store.run_sizes([row["runId"] for row in rows]) if with_size else {}
        of_unchecked = ItemFilter(statuses=(SUCCESS,), reasons=(UNCHECKED,))
        aborted = cut_off_counts(ctx.store.read, [row["runId"] for row in rows if row["status"] == ABORTED])
        unchecked = {row["runId"]: ctx.store.read.count_items(row["runId"], of_unchecked) for row in rows}
        room = (output.terminal_width() or 1000) - len("Next:  proctor show ")
        newest = output.run_prefix(ctx.store, rows[0]["runId"], room) if rows else ""
    if as_json:
        more = [{"bytes": sizes[row["runId"]]} if with_size else {} for row in rows]
        print_json({"runs": [_run_document(row) | extra for row, extra in zip(rows, more, strict=True)]})
    elif not rows:
        print_note("No runs yet. Start one:  proctor batch plan.yaml")
    else:
        is_narrow = _is_narrow()
        heads: tuple[str, ...] = (
            "RUN",
            "AGE" if is_narrow else "CREATED",
            "JOB",
            "STATUS",
            "DONE",
            "PASSED",
            "TOKENS",
            "COST",
        )
        cells = [
            _run_cells(
                row,
                unchecked[row["runId"]],
                aborted.get(row["runId"], 0),
                age_at=ctx.now() if is_narrow else None,
            )
            for row in rows
        ]
        if with_size:
            heads = (*heads, "SIZE")
            cells = [(*line, size(sizes[row["runId"]])) for line, row in zip(cells, rows, strict=True)]
        print_table(heads, cells, drop=("TOKENS", "JOB"))
        print_next([f"proctor show {newest}", "proctor top"])
    return output.SUCCEEDED


@abort_app.command()
def abort(context: typer.Context, run: Run, as_json: Json = False) -> int:
    """Stop a run, including one started by another process. Running items stop within seconds.

    Example:  proctor abort-run nightly-42
    """
    with terminal_context(context.obj) as ctx:
        run_id = ctx.store.read.batch(run, ctx.now())["runId"]
        status = abort_run(ctx.store, run_id, now=ctx.now, pause=time.sleep)
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
        batch = ctx.store.read.batch(run, ctx.now())
        run_id = batch["runId"]
        if batch["status"] == RUNNING:
            raise UsageError(f"run {run_id} is still running\nStop it first:  proctor abort-run {run_id}")
        items = ctx.store.read.totals(run_id)["items"]
        if not yes and not is_sure(f"Delete {printable(run_id)} with {count(items, 'item')}?"):
            return output.SOME_DID_NOT
        deletion = delete_run(
            ctx.store, run_id, ctx.home, ctx.settings.user_environment, branches=not keep_branches
        )
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


def _run_document(row: BatchWithTotals) -> JsonObject:
    totals = row["totals"]
    return {
        "runId": row["runId"],
        "createdAt": row["createdAt"],
        "finishedAt": row["finishedAt"],
        "job": row["job"],
        "status": row["status"],
        "reason": row["reason"],
        "itemCount": totals["items"],
        "counts": totals["counts"],
        "tokensTotal": totals["tokens"],
        "costUsd": totals["costUsd"],
        **({"costIsLowerBound": True} if row["crashes"] and totals["costUsd"] else {}),
        "planPath": row["planPath"],
    }


def _run_cells(
    row: BatchWithTotals, unchecked: int, aborted: int, *, age_at: datetime | None
) -> tuple[str, ...]:
    totals = row["totals"]
    created = row["createdAt"][:19].replace("T", " ")
    if age_at:
        created = age(age_at - datetime.fromisoformat(row["createdAt"]))
    done = f"{totals['finished'] - aborted}/{totals['items']}"
    cost = "" if totals["costUsd"] is None else money(totals["costUsd"])
    cost = f"≥ {cost}" if row["crashes"] and totals["costUsd"] else cost
    passed = str(totals["counts"][SUCCESS] - unchecked)
    return row["runId"], created, row["job"], row["status"], done, passed, f"{totals['tokens']:,}", cost


# `proctor show`


CUT = 2000
"""Characters of a text that are printed without `--full`."""


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
    as_json: Json = False,
) -> int:
    """Show a run with its items, an item with its attempts, or a session with its transcript.

    Example:  proctor show nightly-42 --status fail,timeout
    """
    if not prefix:
        raise UsageError("no run, item or session was named\nGive an ID, or the start of one.")
    with terminal_context(context.obj) as ctx:
        store = ctx.store
        try:
            batch = store.read.batch(prefix, now())
        except NotFound:
            if items := store.read.item(prefix):
                _show_item(store, items[0], as_json)
            else:
                show_session(store, _session(store, prefix), full, as_json)
        else:
            _show_run(store, batch, ItemFilter(statuses=_statuses(status), search=search), limit, as_json)
    return output.SUCCEEDED


def _session(store: Store, prefix: str) -> SessionRow:
    try:
        return store.read.session(prefix)
    except NotFound:
        raise NotFound(f"there is no run, item or session {prefix}\n`proctor runs` lists the runs.") from None


def _statuses(text: str) -> list[str]:
    statuses = comma_separated(text)
    for status in statuses:
        if status not in STATUSES:
            raise NotFound(f"there is no status {status}\nThere are: {', '.join(STATUSES)}.")
    return statuses


def _show_run(store: Store, batch: BatchRow, item_filter: ItemFilter, limit: int, as_json: bool) -> None:
    items = store.read.items(batch["runId"], item_filter, limit=limit)
    document = run_summary(store, batch, now())
    if as_json:
        print_json({**document, "items": [_item_document(row) for row in items]})
        return
    took, cost = seconds(document["durationSec"]), document["costUsd"]
    bound = "≥ " if document.get("costIsLowerBound") else ""
    spent = "" if cost is None else f"{bound}{money(cost)}"
    run_id, status = batch["runId"], batch["status"]
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
    if not item_filter.search and not item_filter.statuses:
        _print_agents_and_models(store, run_id, is_running=status == RUNNING)
    if items:
        print()
        heads = ("ITEM", "STATUS", "REASON", "WHAT", "AGENT", "MODEL", "PROMPT", "ERROR")
        cells = [_cells(row, is_narrow=_is_narrow()) for row in items]
        print_table(heads, cells, drop=("REASON", "AGENT", "WHAT"))
    total = store.read.count_items(run_id, item_filter)
    if total > len(items):
        print(f"… and {total - len(items):,} more (--limit)")
        if not item_filter.search and not item_filter.statuses:
            _print_failures(store, run_id)
    _print_next_commands(store, run_id, status, counts)


MOST_FAILURES = 5
"""Kinds of failures that `show` lists of a run with more items than it prints."""


def _print_failures(store: Store, run_id: str) -> None:
    """The largest groups of failures with alike messages, each with an example."""
    failures = failures_of(store.read, run_id)
    groups = failures.of(failures.group_of)
    if not groups:
        return
    print()
    cells = [(f"{group.items:,}", group.reason, group.example) for group in groups[:MOST_FAILURES]]
    print_table(("FAILURES", "REASON", "FOR EXAMPLE"), cells)
    if len(groups) > MOST_FAILURES:
        print(f"… and {count(len(groups) - MOST_FAILURES, 'more kind')}")


def _print_agents_and_models(store: Store, run_id: str, *, is_running: bool) -> None:
    """The success rate of each agent and model over tasks, if there are several."""
    rates = rates_over_tasks(store.read, run_id, is_running=is_running)
    if len(rates) < 2:
        return
    rows = [
        (
            progress.name,
            f"{progress.finished:,}/{progress.items:,}",
            f"{progress.rate.successes:,}/{progress.rate.trials:,}",
            percent(rate.value),
            interval(rate.low, rate.high) if rate.low is not None else UNKNOWN,
            "" if progress.cost_usd is None else money(progress.cost_usd),
        )
        for progress, rate in rates
    ]
    print()
    print_table(("MODEL", "DONE", "PASSED", "RATE", "95% CI", "COST"), rows, drop=("COST", "DONE"))


def _print_next_commands(store: Store, run_id: str, status: str, counts: Mapping[str, int]) -> None:
    if status == RUNNING:
        commands = [f"proctor watch {run_id}", f"proctor abort-run {run_id}"]
    elif status != "completed":
        commands = [f"proctor resume {run_id}", f"proctor report --run {run_id}"]
    else:
        failed = [name for name in ("fail", "timeout", "error") if counts[name]]
        look = [f"proctor show {run_id} --status {','.join(failed)}"] if failed else []
        commands = [*look, f"proctor report --run {run_id}"]
    print_next(commands, run_id=run_id, store=store)


def _cells(row: ItemRow, *, is_narrow: bool) -> tuple[str, ...]:
    # Items without a repository have a label: the variation of a scenario, an evaluator.
    label = json.loads(row["settings"]).get("label") or ""
    where = printable(label or row["repo"].rstrip("/").rpartition("/")[2], width=40)
    prompt, error = printable(row["prompt"], width=40), printable(row["error"], width=60)
    status = shown_status(row["status"], row["reason"])
    item_id = row["id"][:SHORT_ID] if is_narrow else row["id"]
    return item_id, status, row["reason"], where, row["agent"], row["model"], prompt, error


def _show_item(store: Store, row: ItemRow, as_json: bool) -> None:
    attempts = store.read.attempts(row["runId"], row["id"])
    if as_json:
        print_json(_item_document(row) | {"attempts": attempts})
        return
    print(f"item {row['id']} of {printable(row['runId'])}  {row['status']}  {printable(row['reason'])}")
    print(printable(row["prompt"][:CUT], lines=True))
    if row["error"]:
        print(f"error: {printable(row['error'], lines=True)}")
    if row["merge"]:
        print(f"merge: {row['merge']}")
    print()
    heads = ("ATTEMPT", "SESSION", "STATUS", "REASON", "WORK", "TOKENS", "COST", "BRANCH")
    print_table(heads, map(_attempt_cells, attempts))


def _attempt_cells(row: SessionRow) -> tuple[object, ...]:
    cost = "" if row["costUsd"] is None else money(row["costUsd"])
    took = seconds(row["workSeconds"])
    return (
        row["attempt"],
        row["id"],
        row["status"],
        row["endReason"],
        took,
        row["totalTokens"],
        cost,
        row["branch"],
    )


def _item_document(row: ItemRow) -> JsonObject:
    factors, details, settings = (json.loads(row[name]) for name in ("factors", "details", "settings"))
    return {**row, "factors": factors, "details": details, "settings": settings}


def show_session(store: Store, row: SessionRow, full: bool, as_json: bool) -> None:
    """Print a session: transcript, tool calls, changes, and scores."""
    parts = store.read.parts_of_session(row["id"])
    if as_json:
        print_json({**row, "notes": json.loads(row["notes"]), **parts})
        return
    _print_head(row)
    events = [("message", part) for part in parts["messages"]] + [
        ("tool", part) for part in parts["tool_calls"]
    ]
    for kind, part in sorted(events, key=lambda event: event[1]["position"]):
        print()
        print(_message(part, full) if kind == "message" else _tool(part, full))
    for step in parts["iterations"]:
        _print_step(step, full)
    for score in parts["scores"]:
        value = score["label"] if score["value"] is None else f"{score['value']:g}"
        print(f"score {printable(score['evaluator'])}: {printable(value)}  {printable(score['explanation'])}")


def _parts(row: SessionRow) -> str:
    """The parts of a coding session's time; empty: it has none."""
    times = {
        "checkout": row["checkoutSeconds"],
        "setup": row["setupSeconds"],
        "agent": row["agentSeconds"],
        "check": row["checkSeconds"],
    }
    known = ", ".join(f"{name} {seconds(time)}" for name, time in times.items() if time is not None)
    return f" ({known})" if known else ""


def _print_head(row: SessionRow) -> None:
    print(f"session {row['id']}  {row['status']}  {printable(row['endReason'])}  {printable(row['name'])}")
    facts = {
        "agent": row["agent"],
        "model": row["model"],
        "answered": row["answeredModel"],
        "baseline": row["baseline"],
        "repo": row["repo"],
        "branch": row["branch"],
        "worktree": row["worktree"],
        "worked": seconds(row["workSeconds"]) + _parts(row),
        "tokens": f"{row['totalTokens']:,}",
        "cost": "" if row["costUsd"] is None else money(row["costUsd"]),
        "error": row["error"],
    }
    for name, value in facts.items():
        if value:
            print(f"  {name:<9}  {printable(value)}")
    if row["standIn"]:
        print("  mock session (scripted or replayed)")
    for note in json.loads(row["notes"]):
        print(f"  note       {printable(note)}")


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
        run_id = ctx.store.read.batch(run, ctx.now())["runId"]
        asyncio.run(_watch(ctx, run_id, as_json=as_json))
        batch = ctx.store.read.batch(run_id, ctx.now())
        document = run_summary(ctx.store, batch, ctx.now())
    if as_json:
        print_json(document)
    print_note(
        f"{printable(run_id)} {batch['status']}: {document['successCount']} of {document['itemCount']} passed"
    )
    for line in stop_lines(document["stopWhen"]) if "stopWhen" in document else ():
        print_note(printable(line))
    if batch["status"] != "completed":
        return output.CUT_SHORT
    return output.SOME_DID_NOT if has_failures(document) else output.SUCCEEDED


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
