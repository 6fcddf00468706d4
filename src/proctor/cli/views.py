"""What is shown while a batch runs: a live picture, lines, JSON records, or nothing."""

import json
import sys
from types import TracebackType
from typing import Protocol, Self

from proctor.batch.house import ItemEnd
from proctor.cli.words import count, money, printable, say, seconds
from proctor.item import SUCCESS
from proctor.store import Store

LINE_EACH = 2000
"""In a larger batch only what did not succeed gets a line, and every hundredth item."""


class View(Protocol):
    """Shows a batch while it runs."""

    def item(self, end: ItemEnd) -> None:
        """An item has ended, and that is committed."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def view_for(store: Store, run_id: str, *, as_json: bool, as_jsonl: bool) -> View:
    """The view that fits: records if asked for, a live picture on a terminal, else lines."""
    if as_jsonl:
        return JsonLines(run_id, store.read.totals(run_id)["items"])
    if sys.stderr.isatty():
        # Drawing takes libraries that a run in a script need not load.
        from proctor.cli.live import LiveView

        return LiveView(store, run_id)
    totals = store.read.totals(run_id)
    return Lines(run_id, totals["items"], totals["finished"], quiet=as_json)


def beginning(run_id: str, all_of_it: str, finished: int) -> str:
    """What is to be done, and how much of it a run that goes on has done already."""
    so_far = f", {finished:,} finished already" if finished else ""
    return f"{printable(run_id)}: {all_of_it}{so_far}"


class _Plain:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Lines(_Plain):
    """One line for each item, on standard error."""

    def __init__(self, run_id: str, items: int, finished: int, *, quiet: bool) -> None:
        self._items = items
        self._finished = finished
        self._quiet = quiet
        if not quiet:
            say(beginning(run_id, count(items, "item"), finished))

    def item(self, end: ItemEnd) -> None:
        self._finished += 1
        dull = end.outcome.status == SUCCESS and self._items > LINE_EACH and self._finished % 100
        if not self._quiet and not dull:
            say(f"[{self._finished}/{self._items}] {line_of(end)}")


class JsonLines(_Plain):
    """One JSON record for the launch and for each item, on standard output."""

    def __init__(self, run_id: str, items: int) -> None:
        self._run_id = run_id
        print(json.dumps({"type": "launch", "runId": run_id, "itemCount": items}), flush=True)

    def item(self, end: ItemEnd) -> None:
        record = {
            "type": "item",
            "runId": self._run_id,
            "id": end.id,
            "status": end.outcome.status,
            "reason": end.outcome.reason,
            "error": end.outcome.error,
            "sessionId": end.session_id,
            "repo": end.item.settings.get("repo"),
            "prompt": end.item.prompt,
            "agent": end.item.agent or None,
            "model": end.item.model or None,
            "attempts": end.attempts,
            "tokensTotal": end.tokens,
            "costUsd": end.cost_usd,
            "workSeconds": round(end.work_seconds, 3),
        }
        print(json.dumps(record, ensure_ascii=False), flush=True)


def line_of(end: ItemEnd) -> str:
    """One finished item in one line."""
    item, outcome = end.item, end.outcome
    who = " ".join(part for part in (item.agent, item.model) if part)
    where = str(item.settings.get("label") or item.details.get("repository", ""))
    parts = [f"{outcome.status:<7}", end.id[:8], where, who, printable(item.prompt, width=50)]
    parts.append(seconds(end.work_seconds))
    if end.cost_usd is not None:
        parts.append(money(end.cost_usd))
    line = "  ".join(printable(part) for part in parts if part)
    return (
        line
        if outcome.status == SUCCESS
        else f"{line}  {outcome.reason}: {printable(outcome.error, width=160)}"
    )
