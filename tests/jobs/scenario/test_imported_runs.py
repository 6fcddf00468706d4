"""Runs of an experiment that were made elsewhere are imported into the store and read from it again."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.batch.lifecycle import create
from proctor.item import Item
from proctor.jobs.scenario.folder import ImportedRuns, import_runs, run_from_store
from proctor.scenario.run_files import turn_as_plain
from proctor.scenario.state import ScenarioCall, ScenarioRun, ScenarioTurn
from proctor.store import Store

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def call(who: str = "port", **changes: Any) -> ScenarioCall:
    usual: dict[str, Any] = {"who": who, "purpose": "decision", "model": "a/b", "turn": 1}
    return ScenarioCall(**usual | {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25} | changes)


def turn(number: int, **changes: Any) -> ScenarioTurn:
    usual: dict[str, Any] = {"number": number, "world_state": f"w{number}", "decisions": {}}
    return ScenarioTurn(**usual | {"calls": (call(turn=number),), "metrics": {"trust": number}} | changes)


ITEM = Item(
    runner="scenario",
    prompt="Fees",
    model="scripted/x",
    details={"turns": 3, "seed": 1},
    settings={"label": "var-001-run-001", "variationId": 1, "variation": "fee=1"},
)


@pytest.fixture
def store(proctor_store: Store) -> Store:
    columns = {"concurrency": 1}
    create(proctor_store, "scenario", columns, iter([ITEM]), run_id="r", owner="o", version="0", now=NOW)
    return proctor_store


def imported(store: Store, **changes: Any) -> ScenarioRun:
    run = ScenarioRun(
        **{
            "item_id": ITEM.id,
            "label": "var-001-run-001",
            "seed": 5,
            "total_turns": 3,
            "turns": (turn(1), turn(2)),
            "lost_calls": (call(turn=3),),
            "scores": {"Help": 0.5, "Tone": "kind", "None": None},
            "started_at": "2026-02-01T00:00:00.000Z",
            "ended_at": "2026-02-01T00:01:00.000Z",
            **changes,
        }
    )
    import_runs(
        store, "r", ImportedRuns(items=[ITEM], runs={ITEM.id: run}, source="import", folder=Path()), NOW
    )
    (found,) = store.read.exact_item("r", ITEM.id)
    return found  # type: ignore[return-value]


def test_a_finished_run_is_imported_with_its_turns_scores_and_cost(store: Store) -> None:
    found: Any = imported(store, status="completed")
    assert (found["status"], found["reason"], found["tokensTotal"]) == ("success", "completed", 45)
    assert found["startedAt"] == "2026-02-01T00:00:00.000Z"
    assert (found["finishedAt"], found["costUsd"]) == ("2026-02-01T00:01:00.000Z", 0.75)
    session = store.read.session(found["sessionId"])
    assert (session["status"], session["endReason"], session["source"]) == ("success", "completed", "import")
    assert session["isMock"] == 1
    scores = store.read.of_session("scores", session["id"])
    values = [(each["evaluator"], each["value"], each["label"]) for each in scores]
    assert values == [("Help", 0.5, ""), ("Tone", None, "kind"), ("None", None, "")]
    metrics = store.read.of_session("metrics", session["id"])
    assert [(each["name"], each["value"], each["step"]) for each in metrics] == [
        ("trust", 1.0, 1),
        ("trust", 2.0, 2),
    ]
    run = run_from_store(store.read, found)
    assert (run.status, run.reason, run.label, run.total_turns) == ("completed", "", "var-001-run-001", 3)
    assert [turn_as_plain(each) for each in run.turns] == [turn_as_plain(turn(1)), turn_as_plain(turn(2))]
    assert (run.variation_id, run.variation, run.cost_usd) == (1, "fee=1", 0.75)
    assert run.scores == {"Help": 0.5, "Tone": "kind", "None": None}


def test_an_unfinished_run_is_imported_to_be_resumed(store: Store) -> None:
    found: Any = imported(store, status="halted", started_at="", ended_at="")
    assert (found["status"], found["reason"], found["finishedAt"]) == ("queued", "", None)
    assert found["startedAt"] == "2026-03-01T12:00:00.000Z"
    assert store.read.session(found["sessionId"])["endReason"] == "interrupted"
