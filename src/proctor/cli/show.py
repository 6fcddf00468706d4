"""`proctor show`: a run, an item or a session, whichever the id belongs to."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from proctor.cli import ending as codes
from proctor.cli.carry_out import summary
from proctor.cli.house import now, places
from proctor.cli.options import Json
from proctor.cli.tables import print_table
from proctor.cli.words import money, print_json, printable, seconds
from proctor.errors import NotFound
from proctor.item import STATUSES
from proctor.store import ItemFilter, Store

show_app = typer.Typer(add_completion=False)
apps = {"show": show_app}

CUT = 2000
"""Characters of a message or an output that are printed; `--full` prints all."""


@show_app.command()
def show(
    context: typer.Context,
    thing: Annotated[str, typer.Argument(metavar="RUN|ITEM|SESSION", help="An id, or its beginning.")],
    status: Annotated[
        str, typer.Option(help="Of a run: only items of this status; several with commas.")
    ] = "",
    search: Annotated[str, typer.Option(help="Of a run: only items that hold this text.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Of a run: at most so many items.")] = 50,
    full: Annotated[bool, typer.Option("--full", help="Of a session: print long texts whole.")] = False,
    as_json: Json = False,
) -> int:
    """Show a run with its items, an item with its attempts, or a session with its transcript.

    Example:  proctor show nightly-42 --status fail,timeout
    """
    with places(context.obj).open_store() as store:
        found = _find(store, thing)
        if found[0] == "run":
            _show_run(store, found[1], ItemFilter(statuses=_statuses(status), search=search), limit, as_json)
        elif found[0] == "item":
            _show_item(store, found[1], as_json)
        else:
            show_session(store, found[1], full, as_json)
    return codes.SUCCEEDED


def _find(store: Store, thing: str) -> tuple[str, dict[str, Any]]:
    try:
        return "run", store.read.batch(thing, now())
    except NotFound:
        pass
    if items := store.read.item(thing):
        return "item", items[0]
    try:
        return "session", store.read.session(thing)
    except NotFound:
        raise NotFound(f"there is no run, item or session {thing}\n`proctor runs` lists the runs.") from None


def _statuses(text: str) -> list[str]:
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    for status in wanted:
        if status not in STATUSES:
            raise NotFound(f"there is no status {status}\nThere are: {', '.join(STATUSES)}.")
    return wanted


def _show_run(store: Store, batch: Mapping[str, Any], wanted: ItemFilter, limit: int, as_json: bool) -> None:
    items = store.read.items(batch["runId"], wanted, limit=limit)
    document = summary(store, batch)
    if as_json:
        print_json(document | {"items": [_item_document(row) for row in items]})
        return
    took, cost = seconds(document["durationSec"]), document["costUsd"]
    spent = "" if cost is None else money(cost)
    print(f"{printable(batch['runId'])}  {batch['status']}  {took}  {spent}".rstrip())
    names = ("successCount", "failCount", "timeoutCount", "errorCount", "unfinishedCount")
    print("  ".join(f"{document[name]} {name.removesuffix('Count')}" for name in names))
    if items:
        print()
        print_table(
            ("ITEM", "STATUS", "REASON", "WHAT", "AGENT", "MODEL", "PROMPT", "ERROR"), map(_cells, items)
        )
    shown = store.read.count_items(batch["runId"], wanted)
    if shown > len(items):
        print(f"… and {shown - len(items):,} more (--limit)")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    # What an item is called where it has no repository: a scenario's variation, an evaluator.
    called = json.loads(row["settings"]).get("label") or ""
    where = printable(called or row["repo"].rstrip("/").rpartition("/")[2], width=40)
    prompt, error = printable(row["prompt"], width=40), printable(row["error"], width=60)
    return row["id"], row["status"], row["reason"], where, row["agent"], row["model"], prompt, error


def _show_item(store: Store, row: Mapping[str, Any], as_json: bool) -> None:
    attempts = store.read.attempts(row["runId"], row["id"])
    if as_json:
        print_json(_item_document(row) | {"attempts": attempts})
        return
    print(f"item {row['id']} of {printable(row['runId'])}  {row['status']}  {printable(row['reason'])}")
    print(printable(row["prompt"][:CUT], lines=True))
    if row["error"]:
        print(f"error: {printable(row['error'], lines=True)}")
    print()
    heads = ("ATTEMPT", "SESSION", "STATUS", "REASON", "WORK", "TOKENS", "COST", "BRANCH")
    print_table(heads, map(_attempt_cells, attempts))


def _attempt_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
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


def _item_document(row: Mapping[str, Any]) -> dict[str, Any]:
    opened = {name: json.loads(row[name]) for name in ("factors", "details", "settings")}
    return {**row, **opened}


def show_session(store: Store, row: Mapping[str, Any], full: bool, as_json: bool) -> None:
    """Print a session: what was said and done, what it changed, how it was judged."""
    tables = ("iterations", "messages", "tool_calls", "model_calls", "metrics", "scores", "merge_history")
    parts = {table: store.read.of_session(table, row["id"]) for table in tables}
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


def _print_head(row: Mapping[str, Any]) -> None:
    print(f"session {row['id']}  {row['status']}  {printable(row['endReason'])}  {printable(row['name'])}")
    facts = {
        "agent": row["agent"],
        "model": row["model"],
        "repo": row["repo"],
        "branch": row["branch"],
        "work tree": row["worktree"],
        "worked": seconds(row["workSeconds"]),
        "tokens": f"{row['totalTokens']:,}",
        "cost": "" if row["costUsd"] is None else money(row["costUsd"]),
        "error": row["error"],
    }
    for name, value in facts.items():
        if value:
            print(f"  {name:<9}  {printable(value)}")
    if row["standIn"]:
        print("  a stand-in: this was a rehearsal")
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
