"""A store with a batch in it, made through the same doors the engine uses.

Thirty-six items: three repositories, two agents, three models, two repeats. What each came to follows
from its place in the plan, so that tests can count by hand.
"""

import itertools
import shutil
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clocks import Clock
from proctor.item import Item
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.score import Score
from proctor.session import (
    Intervention,
    Iteration,
    Merge,
    Message,
    ModelCall,
    Note,
    ToolCall,
    Usage,
    Workspace,
)
from proctor.store import Ownership, Recorder, RetrySelection, Store, timestamp

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MODELS = ("gpt-5", "claude-opus", "qwen3:8b")
AGENTS = ("amp", "scripted")
REPOS = ("shop", "blog|wiki", "=cmd()")
HOSTILE = "<script>alert(1)</script> | `rm -rf` \u202eevil\x07 **bold** [x](javascript:alert(1))\nsecond line"
OUTCOMES = (
    ("success", "completed"),
    ("success", "completed"),
    ("fail", "checks_failed"),
    ("success", "completed"),
    ("timeout", "timeout"),
    ("error", "setup_failed"),
)
"""What the items come to, over and over in the order of the plan."""


def items() -> list[Item]:
    return [
        Item(
            runner="worktree",
            prompt=HOSTILE if repo == "=cmd()" else f"Fix the tests of {repo}",
            agent=agent,
            model=model,
            details={"repo": repo},
            settings={"repo": f"/projects/{repo}"},
            factors={"repo": repo, "agent": agent, "model": model, "task": "fix"},
            repeat=repeat,
        )
        for repo, agent, model, repeat in itertools.product(REPOS, AGENTS, MODELS, (1, 2))
    ]


def ended(item: Item, status: str = "success", reason: str = "completed", **more: object) -> ItemFinished:
    """An item that has ended, as observers hear of it."""
    known = {"session_id": "", "attempts": 1, "tokens": 0, "cost_usd": None, "work_seconds": 0.0}
    return ItemFinished(id=item.id, item=item, outcome=Outcome(status=status, reason=reason), **known | more)  # type: ignore[arg-type]


def task_items(
    levels: Iterable[str] = "ab", tasks: int = 3, repeats: int = 1, missing: Collection[tuple[str, int]] = ()
) -> list[Item]:
    """Every task with every model, a task at a time; `missing` are pairs of a model and a task."""
    return [
        Item(
            runner="prompt",
            prompt=f"task {task}",
            model=level,
            factors={"model": level, "task": f"task {task}"},
            repeat=repeat,
        )
        for task in range(tasks)
        for level in levels
        for repeat in range(1, repeats + 1)
        if (level, task) not in missing
    ]


def new_store(folder: Path, run_id: str = "compare", batch_items: list[Item] | None = None) -> Store:
    """A store with one batch, nothing of it carried out."""
    store = Store(str(folder / "proctor.db"))
    add_batch(store, run_id, items() if batch_items is None else batch_items)
    return store


def add_batch(store: Store, run_id: str, batch_items: list[Item]) -> None:
    batch = {"runId": run_id, "createdAt": timestamp(NOW), "job": "coding", "status": "running"}
    batch |= {"planPath": "plans/compare.yaml", "budgetUsd": 5.0, "concurrency": 4}
    batch |= {"defaultsJson": '{"baseBranch":"main"}', "proctorVersion": "0.1.0"}
    store.create_batch(batch, batch_items)


def filled_store(folder: Path, *, finished: int | None = None, run_id: str = "compare") -> Store:
    """A store with a batch, whole or with only the first items carried out and the next under way."""
    store = new_store(folder, run_id)
    carry_out(store, run_id, finished=finished)
    return store


@pytest.fixture(scope="session")
def filled_store_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store with a finished batch, made once."""
    folder = tmp_path_factory.mktemp("filled")
    filled_store(folder).close()
    return folder / "proctor.db"


@pytest.fixture
def store(tmp_path: Path, filled_store_file: Path) -> Iterator[Store]:
    """A finished batch of thirty-six items, for folders whose tests look at one."""
    with Store(str(shutil.copy(filled_store_file, tmp_path / "proctor.db"))) as filled:
        yield filled


def carry_out(store: Store, run_id: str, *, finished: int | None = None) -> None:
    store.resume_batch(run_id, "nowhere:1:1:x", RetrySelection(), NOW)
    ownership = Ownership(run_id=run_id, owner="nowhere:1:1:x", aborted=lambda: None, failed=print)
    writer, clock = store.writer(ownership), Clock(NOW)
    rows = store.read.queued(run_id, after=-1, limit=1000)
    wanted = len(rows) if finished is None else finished
    for index, row in enumerate(rows[: wanted + 1]):
        _attempt(writer, clock, run_id, index, row, ends=index < wanted)
    writer.flush().result()
    writer.close()
    if finished is None:
        store.end_batch(run_id, "completed", "", "", clock.now)


def _attempt(writer, clock, run_id, index, row, *, ends):
    status, reason = OUTCOMES[index % len(OUTCOMES)]
    if status == "error":
        # Errors were tried twice.
        _session(writer, clock, run_id, index, row, number=1, status=status, reason=reason)
    number = 2 if status == "error" else 1
    started = clock.now
    changes = {
        "status": "running",
        "startedAt": timestamp(started),
        "sessionId": f"{run_id}-{row['id']}-{number}",
    }
    writer.change("batch_items", (run_id, row["id"]), changes)
    recorder = _session(
        writer, clock, run_id, index, row, number=number, status=status if ends else "", reason=reason
    )
    if ends:
        totals = recorder.totals
        changes = {"status": status, "reason": reason, "finishedAt": timestamp(clock.now)}
        changes |= {"error": "" if status == "success" else f"it did not work: {HOSTILE}"}
        changes |= {"tokensTotal": totals.usage.total_tokens, "toolCalls": totals.tool_calls}
        writer.change("batch_items", (run_id, row["id"]), changes | {"costUsd": totals.cost_usd})


def _session(writer, clock, run_id, index, row, *, number, status, reason):
    session = {"runId": run_id, "itemId": row["id"], "attempt": number, "job": "coding", "status": "running"}
    session |= {"agent": row["agent"], "model": row["model"], "isMock": int(row["agent"] == "scripted")}
    recorder = Recorder(
        writer, f"{run_id}-{row['id']}-{number}", session | {"startedAt": timestamp(clock.now)}, clock
    )
    recorder.record(Workspace(name=f"batch/fix/{index}", branch=f"batch-{index}", repo=row["repo"]))
    recorder.record(Message(role="user", content=row["prompt"]))
    # Nobody knows the price of the local model.
    cost = None if row["model"] == "qwen3:8b" else 0.01
    usage = Usage(input_tokens=1000 + index, cached_tokens=500, output_tokens=100, reasoning_tokens=20)
    recorder.record(ModelCall(model=row["model"], usage=usage, cost_usd=cost, latency_ms=900.0))
    recorder.record(
        ToolCall(name="bash", args={"command": HOSTILE}, success=index % 4 != 0, duration_ms=100.0 * index)
    )
    recorder.record(ToolCall(name="edit", args={"text": "x" * 5000}, success=None))
    if status == "":
        return recorder
    seconds = 10 + index
    clock.now += timedelta(seconds=seconds)
    if index == 0:
        recorder.record(Note(text="wrote outside its tree"))
        recorder.record(Intervention(kind="permission", text="may I?"))
    if status in ("success", "fail"):
        result = "pass" if status == "success" else "fail"
        recorder.record(
            Iteration(changed_files=2, lines_added=10, lines_removed=3, test_result=result, commit_sha="abc")
        )
    if status == "success":
        merged = "conflict" if index % 2 else "success"
        recorder.record(Merge(base_branch="main", result=merged))
        recorder.score(Score(evaluator="tidy", value=0.5, explanation=HOSTILE))
    recorder.end(status, reason, "", work_seconds=seconds - 2.0, waiting_seconds=2.0)
    return recorder
