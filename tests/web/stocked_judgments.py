"""Recorded sessions, checks that judge them, and runs to compare, for tests of the pages about them."""

import shutil
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from stocked_runs import NOW, add_session

from proctor.item import Item
from proctor.score import Score
from proctor.session import Message, ToolCall
from proctor.store import Recorder, Store, timestamp
from proctor.testing import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "evaluation"
CHECK = "checks:names_a_price@trace"
MATCH = "Builtin.TrajectoryInOrderMatch"


def bring_sessions(proctor: Any) -> None:
    """Import the six sessions of the travel agent, with the code that checks them beside."""
    for name in ("sessions.jsonl", "checks.py", "truth.yaml", "judge.yaml"):
        shutil.copy(EXAMPLE / name, proctor.folder)
    done = proctor("import", "otlp", "sessions.jsonl")
    assert done.returncode == 0, done.stderr


def wanted(**changes: Any) -> dict[str, Any]:
    """A job that needs no model, as the page sends it."""
    source = {"kind": "arrived", "logGroups": ["/agents/travel"]}
    truth = (EXAMPLE / "truth.yaml").read_text()
    job = {"name": "travel", "source": source, "evaluators": [MATCH, CHECK], "groundTruth": truth}
    return {**job, **changes}


def ended(served: Any, evaluation: str) -> dict[str, Any]:
    """A job, once it is at its end."""

    def look() -> Any:
        found = served.get(f"/api/evaluations/{evaluation}").json
        return found if found["state"] not in ("PENDING", "IN_PROGRESS", "STOPPING") else None

    return eventually(look)


def compared_run(
    store: Store, run_id: str, outcomes: Mapping[str, str], *, model: str = "", score: str = ""
) -> list[str]:
    """A run with an item for each task, which came to this; the ids of its sessions."""
    items = [
        Item(runner="prompt", prompt=task, model=model or run_id, factors={"model": model or run_id})
        for task in outcomes
    ]
    row = {"runId": run_id, "createdAt": timestamp(NOW), "finishedAt": timestamp(NOW), "job": "prompts"}
    store.create_batch({**row, "status": "completed"}, items)
    writer = store.writer()
    for item, status in zip(items, outcomes.values(), strict=True):
        session = f"{run_id}-{item.id}"
        said = [
            Message(role="user", content=item.prompt),
            Message(role="assistant", content=f"{run_id} thinks about it."),
            ToolCall(name="look", args={"at": item.prompt}, success=True, result="seen"),
            Message(role="assistant", content="Done." if status == "success" else "I could not."),
        ]
        add_session(store, session, said, run_id, itemId=item.id, model=item.model)
        ends = {"startedAt": timestamp(NOW), "finishedAt": timestamp(NOW + timedelta(seconds=3))}
        values = {"status": status, "sessionId": session, "tokensTotal": 100, "costUsd": 0.01, **ends}
        writer.change("batch_items", (run_id, item.id), values)
    writer.close()
    if score:
        _score(store, run_id, [f"{run_id}-{item.id}" for item in items], score)
    return [f"{run_id}-{item.id}" for item in items]


def _score(store: Store, run_id: str, sessions: list[str], evaluator: str) -> None:
    writer = store.writer()
    for session in sessions:
        row = {"job": "prompts", "status": "running", "startedAt": timestamp(NOW)}
        recorder = Recorder(writer, f"{session}-judged", row, lambda: NOW)
        recorder.score(Score(evaluator=evaluator, value=float(run_id != "before"), judged_session=session))
        recorder.end("success", "completed", "", work_seconds=1, waiting_seconds=0)
    writer.close()
