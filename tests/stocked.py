"""Batches and sessions put into a store by hand, for tests that look at the store alone."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from proctor.item import Item
from proctor.score import Score
from proctor.session import Event
from proctor.store import Ownership, Recorder, Store, Writer, timestamp

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LONG = "long text " * 1000
"""Longer than a row holds."""


def at(seconds: float) -> str:
    """A time, as it is written in a store."""
    return timestamp(NOW + timedelta(seconds=seconds))


def items(count: int, **more: Any) -> list[Item]:
    given: dict[str, Any] = {"runner": "prompt", "model": "scripted/echo", **more}
    return [Item(prompt=f"question {number}", **given) for number in range(count)]


def add_batch(
    store: Store, run_id: str = "run", count: int | Sequence[Item] = 0, *, owner: str = "", **more: Any
) -> None:
    """A batch of so many items, or of these."""
    row = {"runId": run_id, "createdAt": timestamp(NOW), "job": "coding", "status": "running", "owner": owner}
    batch_items = items(count) if isinstance(count, int) else count
    store.create_batch({**row, "heartbeatAt": timestamp(NOW), **more}, batch_items)


def owned(run_id: str, owner: str, **calls: Any) -> Ownership:
    return Ownership(
        run_id=run_id,
        owner=owner,
        aborted=calls.get("aborted", lambda: None),
        failed=calls.get("failed", lambda error: None),
    )


def session(
    writer: Writer, session_id: str, run_id: str = "run", item_id: str = "item", **more: Any
) -> Recorder:
    """A recorder whose session has begun."""
    row = {"runId": run_id, "itemId": item_id, "job": "coding", "status": "running"}
    redact = more.pop("redact", str)
    return Recorder(writer, session_id, row | {"startedAt": timestamp(NOW)} | more, lambda: NOW, redact)


def record(store: Store, session_id: str, *events: Event | Score, ends: bool = False, **more: Any) -> None:
    """Write a session with these events and scores; `ends`: with success."""
    writer = store.writer()
    recorder = session(writer, session_id, **more)
    for event in events:
        recorder.score(event) if isinstance(event, Score) else recorder.record(event)
    if ends:
        recorder.end("success", "completed", "", work_seconds=1.0, waiting_seconds=0.0)
    writer.close()


def finish_item(
    writer: Writer,
    item_id: str,
    session_id: str,
    *events: Event | Score,
    run_id: str = "run",
    status: str = "success",
    seconds: float = 1.0,
    columns: Mapping[str, object] = {},
    **more: Any,
) -> None:
    """A session of an item with these events and scores, ended, and the item with its outcome."""
    recorder = session(writer, session_id, run_id, item_id, **more)
    for event in events:
        recorder.score(event) if isinstance(event, Score) else recorder.record(event)
    recorder.end(status, "completed", "", work_seconds=seconds, waiting_seconds=0.0)
    writer.change("batch_items", (run_id, item_id), {"status": status, "sessionId": session_id, **columns})


def change_items(store: Store, changes: Mapping[int, Mapping[str, object]], run_id: str = "run") -> None:
    """Change items of a run, by their position."""
    ids = {row["position"]: row["id"] for row in store.read.items(run_id)}
    writer = store.writer()
    for position, values in changes.items():
        writer.change("batch_items", (run_id, ids[position]), dict(values))
    writer.close()
