"""Runs and sessions put into a store by hand, for tests of the pages that show them."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from proctor.item import Item
from proctor.score import Score
from proctor.session import Event
from proctor.store import Recorder, Store, Writer, timestamp
from proctor.store.tables import COLUMNS

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MODELS = ("openai/gpt-5", "anthropic/claude-opus", "qwen3:8b")
REPOS = ("shop", "blog")
OUTCOMES = (
    ("success", "completed", ""),
    ("success", "completed", ""),
    ("fail", "checks_failed", "exited with 1"),
    ("timeout", "timeout", ""),
    ("error", "setup_failed", "no such branch"),
)
"""What the items come to, over and over in the order of the plan; the last tenth is queued."""

HOSTILE = (
    "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00\x08 \u202egnp.exe\u202c ]]> {{7*7}} javascript:alert(1)"
)


def items(count: int) -> Iterator[Item]:
    for number in range(count):
        model, repo = MODELS[number % 3], REPOS[number % 2]
        yield Item(
            runner="worktree",
            prompt=f"Mend test {number} of {repo}",
            agent="claude",
            model=model,
            details={"repository": repo},
            settings={"repo": f"/projects/{repo}"},
            factors={"model": model, "agent": "claude", "repository": repo, "temper": "abc"[number % 3]},
        )


def stock(store: Store, run_id: str = "stocked", count: int = 60, **batch: Any) -> list[Item]:
    """A run whose items have come to all kinds of ends; its items."""
    made = list(items(count))
    row = {"finishedAt": timestamp(NOW), "planPath": "/plans/all.yaml", "planText": "matrix: []\n"}
    add_run(store, run_id, made, **{**row, "budgetUsd": 500.0, **batch})
    changes = {}
    for number, item in enumerate(made[: count - count // 10]):
        status, reason, error = OUTCOMES[number % len(OUTCOMES)]
        start = NOW + timedelta(seconds=number)
        changes[item.id] = {
            "status": status,
            "reason": reason,
            "error": error,
            "startedAt": timestamp(start),
            "finishedAt": timestamp(start + timedelta(seconds=1 + number % 7)),
            "tokensTotal": 100 + number,
            # One price in four is not known, which is not the same as free.
            "costUsd": None if number % 4 == 3 else (number * 7919 % 1000) / 1000,
        }
    change_items(store, run_id, changes)
    return made


def add_run(store: Store, run_id: str, items: Sequence[Item] = (), **columns: Any) -> None:
    """A run that has ended, whose items are queued."""
    row = {"runId": run_id, "createdAt": timestamp(NOW), "job": "coding", "status": "completed"}
    store.create_batch({**row, **columns}, items)


def change_items(store: Store, run_id: str, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Give items, by their ids, other values."""
    writer = store.writer()
    for item_id, values in changes.items():
        writer.change("batch_items", (run_id, item_id), values)
    writer.close()


def add_session(
    store: Store, session_id: str, events: Sequence[Event], run_id: str | None = None, **row: Any
) -> Recorder:
    """A session in which these events have happened, a second after each other; it has ended well."""
    writer, moments = store.writer(), iter(range(1_000_000))
    given = {
        "runId": run_id,
        "itemId": None,
        "job": "coding",
        "status": "running",
        "startedAt": timestamp(NOW),
    }
    recorder = Recorder(writer, session_id, {**given, **row}, lambda: NOW + timedelta(seconds=next(moments)))
    for event in events:
        recorder.record(event)
    recorder.end("success", "completed", "", work_seconds=12.5, waiting_seconds=2.0)
    writer.close()
    return recorder


_positions = itertools.count(100_000)


def add_score(writer: Writer, session_id: str, minute: int = 0, **members: Any) -> None:
    """A score of a session that has ended."""
    score = Score(**members)
    row = dict.fromkeys(COLUMNS["scores"], "") | {
        "sessionId": session_id, "position": next(_positions), "level": "session",
        "timestamp": timestamp(NOW + timedelta(minutes=minute)), "evaluator": score.evaluator,
        "evaluatorDigest": score.evaluator_digest,
        "dimension": score.dimension, "value": score.value, "label": score.label,
        "scoredSessionId": score.judged_session, "explanationBlob": None, "costUsd": None,
        "inputTokens": 0, "outputTokens": 0, "ignored": "[]", "votes": "[]",
    }  # fmt: skip
    writer.append("scores", tuple(row.values()))


def finish(store: Store, run_id: str, items: Sequence[Item], is_success: Callable[[int, Item], bool]) -> None:
    """Give items their results."""
    changes = {}
    for number, item in enumerate(items):
        ok = is_success(number, item)
        start = NOW + timedelta(seconds=number)
        changes[item.id] = {
            "status": "success" if ok else "fail",
            "reason": "completed" if ok else "checks_failed",
            "startedAt": timestamp(start),
            "finishedAt": timestamp(start + timedelta(seconds=2)),
            "costUsd": 0.01 if item.model == "dear/model" else 0.001,
        }
    change_items(store, run_id, changes)


def duel(count: int) -> list[Item]:
    """Two models on the same tasks."""
    return [
        Item(runner="prompt", prompt=f"Task {n}", model=model, agent="", factors={"model": model})
        for n in range(count)
        for model in ("dear/model", "cheap/model")
    ]


def add_duel(
    store: Store,
    run_id: str,
    count: int,
    is_success: Callable[[int, Item], bool],
    *,
    finished: int | None = None,
    **batch: Any,
) -> None:
    """A run of two models, of whose tasks the first ones have finished."""
    items = duel(count)
    add_run(store, run_id, items, **{"finishedAt": timestamp(NOW), **batch})
    finish(store, run_id, items[: 2 * (count if finished is None else finished)], is_success)


def positions(served, query=""):
    """Positions of the items of the run `stocked` that a query has."""
    reply = served.get(f"/api/runs/stocked/items?limit=500&{query}")
    assert reply.status == 200, reply.text
    return [item["position"] for item in reply.json["items"]]
