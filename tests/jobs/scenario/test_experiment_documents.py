"""Files of an experiment, computed from rows of the store, and runs that are read from it or imported."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.batch.create import create
from proctor.item import Item
from proctor.jobs.scenario import folder
from proctor.jobs.scenario.folder import ImportedRuns, import_runs, run_from_store
from proctor.scenario.run_files import turn_as_plain
from proctor.scenario.state import CheckCounts, ScenarioCall, ScenarioRun, ScenarioTurn
from proctor.store import Store

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def row(number: int, run: int, status: str = "success", **changes: Any) -> dict[str, Any]:
    settings = {
        "label": f"var-{number:03d}-run-{run:03d}",
        "variationId": number,
        "variation": f"fee={number}",
        "scenarioDigest": "d",
        "changes": {"actors.port.llm_model": "a/b", "turns": number},
    }
    usual: dict[str, Any] = {"id": f"i{number}{run}", "status": status, "reason": "completed", "error": ""}
    usual |= {"settings": json.dumps(settings), "factors": json.dumps({"fee": str(number), "variation": "v"})}
    usual |= {"startedAt": "s", "finishedAt": "f", "costUsd": 0.5, "model": "a/b, scripted/x"}
    return {**usual, **changes}


BATCH = {"runId": "r", "status": "completed", "reason": "why", "planPath": "/p", "seed": 7}
BATCH |= {"createdAt": "begin", "finishedAt": "end", "budgetUsd": 2.0}
OPTIONS: dict[str, Any] = {"experiment": "Fees", "description": "About.", "baseScenario": "harbour"}
OPTIONS |= {"runsPerVariation": 2, "scenario": {}, "costPerRunUsd": 0.75}
ROWS = [
    row(2, 1, costUsd=1.0),
    row(1, 1),
    row(1, 2, "fail", reason="checks_failed", error="no", costUsd=None),
    row(2, 2, "queued", reason="cost_limit"),
    row(1, 3, "running", reason="", costUsd=None, finishedAt=None),
    row(1, 4, "error", reason="halted", error="budget", costUsd=0.25),
    row(9, 9, reason="removed"),
    row(1, 5, "queued", reason="", startedAt=None, finishedAt=None, costUsd=None),
]


def documents(rows: list[Any] = ROWS, **changes: Any) -> Any:
    checks = CheckCounts(run=3, issues=1, unread=0)
    return folder._ExperimentDocuments(
        BATCH | changes, OPTIONS | changes.get("options", {}), rows, seconds=9.5, checks=checks
    )


FAILED = [
    {"run_id": "var-001-run-002", "error": "no", "status": "failed", "reason": "checks_failed"},
    {
        "run_id": "var-002-run-002",
        "error": "its cost limit was reached",
        "status": "cost_limit_exceeded",
        "reason": "cost_limit",
    },
    {"run_id": "var-001-run-004", "error": "budget", "status": "error", "reason": "halted"},
]


def variation(number: int) -> dict[str, Any]:
    return {
        "variation_id": number,
        "description": f"fee={number}",
        "scenario_digest": "d",
        "modifications": {"actor_models": {"port": "a/b"}, "scenario_overrides": {"turns": number}},
        "factors": {"fee": str(number)},
    }


def test_the_state_of_an_experiment() -> None:
    assert documents().state() == {
        "experiment_name": "Fees",
        "run_id": "r",
        "status": "completed",
        "reason": "why",
        "config_path": "/p",
        "runs_per_variation": 2,
        "seed": 7,
        "completed_runs": ["var-002-run-001", "var-001-run-001"],
        "failed_runs": FAILED,
        "pending_runs": ["var-002-run-002", "var-001-run-003", "var-001-run-005"],
        "variations": [variation(1), variation(2)],
        "start_time": "begin",
        "end_time": "end",
    }
    assert documents().over_limit() == ["var-002-run-002"]


COSTS = {
    "total_spent": 2.25,
    "budget_limit": 2.0,
    "cost_per_run_limit": 0.75,
    "remaining_budget": 0.0,
    "runs_completed": 2,
    "runs_failed": 3,
    "runs_budget_exceeded": 2,
    "avg_cost_per_run": pytest.approx(1.75 / 3),
    "duration_seconds": 9.5,
    "start_time": "begin",
    "end_time": "end",
}


def test_the_summary_of_an_experiment() -> None:
    assert documents().summary() == {
        "experiment_name": "Fees",
        "description": "About.",
        "run_id": "r",
        "status": "completed",
        "reason": "why",
        "base_scenario": "harbour",
        "total_variations": 2,
        "runs_per_variation": 2,
        "total_runs_planned": 7,
        "runs_completed": 2,
        "runs_failed": 3,
        "runs_pending": 2,
        "duration_seconds": 9.5,
        "cost_summary": COSTS,
        "failed_runs": FAILED,
        "stand_ins": ["scripted/x"],
    }
    checked = documents(options={"scenario": {"validation": {"checks": {}}}}).summary()
    assert checked["checks"] == {"run": 3, "issues": 1, "unread": 0}


def test_the_costs_of_an_experiment() -> None:
    found = documents(budgetUsd=3.0).costs()
    assert found["summary"] == {**COSTS, "budget_limit": 3.0, "remaining_budget": 0.75}
    assert documents(budgetUsd=None).costs()["summary"]["remaining_budget"] is None
    assert [each["run_id"][-11:] for each in found["run_costs"]] == [
        "002-run-001",
        "001-run-001",
        "001-run-002",
        "002-run-002",
        "001-run-003",
        "001-run-004",
    ]
    assert found["run_costs"][2] == {
        "run_id": "var-001-run-002",
        "variation_id": 1,
        "cost": None,
        "success": False,
        "timestamp": "f",
    }
    assert found["variation_statistics"] == {
        "1": {"total_cost": 0.75, "num_runs": 4, "successful_runs": 1, "avg_cost_per_run": 0.375},
        "2": {"total_cost": 1.5, "num_runs": 2, "successful_runs": 1, "avg_cost_per_run": 0.75},
    }


def test_what_was_spent_is_unknown_if_no_started_run_has_a_price() -> None:
    unknown = [row(1, 1, costUsd=None)]
    assert documents(unknown).costs()["summary"]["total_spent"] is None
    assert documents(unknown).costs()["summary"]["remaining_budget"] == 2.0
    new = [row(1, 1, "queued", startedAt=None, costUsd=None)]
    assert documents(new).costs()["summary"]["total_spent"] == 0
    assert documents(new).costs()["summary"]["avg_cost_per_run"] is None


# --- Runs of the store ---


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
def store(tmp_path: Path) -> Any:
    with Store(str(tmp_path / "store.db")) as opened:
        create(
            opened, "scenario", {"concurrency": 1}, iter([ITEM]), run_id="r", owner="o", version="0", now=NOW
        )
        yield opened


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
    assert (found["startedAt"], found["finishedAt"], found["costUsd"]) == (
        "2026-02-01T00:00:00.000Z",
        "2026-02-01T00:01:00.000Z",
        0.75,
    )
    session = store.read.session(found["sessionId"])
    assert (session["status"], session["endReason"], session["source"], session["standIn"]) == (
        "success",
        "completed",
        "import",
        1,
    )
    scores = store.read.of_session("scores", session["id"])
    assert [(each["evaluator"], each["value"], each["label"]) for each in scores] == [
        ("Help", 0.5, ""),
        ("Tone", None, "kind"),
        ("None", None, ""),
    ]
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


def attempt(name: str, status: str = "error", reason: str = "") -> dict[str, Any]:
    return {"id": name, "status": status, "endReason": reason, "finishedAt": f"end of {name}"}


def step(number: int) -> dict[str, str]:
    return {"output": json.dumps(turn_as_plain(turn(number)))}


def read_run(
    attempts: list[Any], steps: dict[str, list[Any]], calls: list[Any], scores: Any = (), **changes: Any
) -> ScenarioRun:
    """A run of attempts with their steps; `calls` follow the last step of each attempt."""
    tables = {"iterations": steps, "scores": dict.fromkeys(steps, scores)}
    read: Any = SimpleNamespace(
        attempts=lambda run_id, item_id: attempts,
        of_session=lambda table, name: list(tables[table].get(name, ())),
    )
    whole = {
        "id": "i",
        "runId": "r",
        "runner": "scenario",
        "prompt": "p",
        "agent": "",
        "model": "m",
        "details": json.dumps({"turns": 3, "seed": 1}),
        "settings": json.dumps(dict(ITEM.settings)),
        "factors": "{}",
        "repeat": 1,
        "status": "error",
        "reason": "interrupted",
        "error": "oops",
        "startedAt": None,
        "finishedAt": None,
        **changes,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "calls_after_step", lambda read, name, steps: calls)
        return run_from_store(read, whole)


def after(speaker: str, purpose: str = "judging") -> dict[str, Any]:
    usual = {"model": "a/b", "promptTokens": 1, "completionTokens": 2, "costUsd": 0.5}
    return {"speaker": speaker, "purpose": purpose, **usual}


def test_turns_that_were_repeated_are_lost_calls() -> None:
    steps = {"a": [step(1), step(2), {"output": "{"}], "b": [step(2), step(3)]}
    run = read_run([attempt("a"), attempt("b")], steps, [after("ferry", "")])
    assert [each.number for each in run.turns] == [1, 2, 3]
    assert [(each.who, each.purpose, each.turn) for each in run.lost_calls] == [
        ("ferry", "a turn that was not finished", 3),
        ("port", "decision", 2),
        ("ferry", "a turn that was not finished", 4),
    ]
    assert (run.status, run.reason, run.error, run.ended_at) == ("halted", "interrupted", "oops", "end of b")
    assert run.judge_calls == () and run.scores == {}


def test_a_running_attempt_has_no_lost_calls_yet() -> None:
    run = read_run([attempt("a", "running")], {"a": [step(1)]}, [after("ferry")], status="running")
    assert (run.status, run.lost_calls, len(run.turns)) == ("running", (), 1)


@pytest.mark.parametrize(
    ("status", "reason", "is_judged"),
    [("success", "", True), ("fail", "checks_failed", True), ("fail", "other", False), ("error", "", False)],
)
def test_calls_of_evaluators_are_told_from_those_of_turns(status: str, reason: str, is_judged: bool) -> None:
    calls = [after("evaluators"), after(""), after("ferry")]
    run = read_run([attempt("a", status, reason)], {"a": [step(1)]}, calls)
    judged = [(each.who, each.purpose, each.turn) for each in run.judge_calls]
    lost = [(each.who, each.turn) for each in run.lost_calls]
    own = ("evaluators", "judging", 0)
    assert judged == ([own, own] if is_judged else [own])
    assert lost == ([("ferry", 2)] if is_judged else [("", 2), ("ferry", 2)])


def test_scores_name_their_judges() -> None:
    judges = [{"name": "Help", "judging": {"judge": "j/h"}}, {"name": "Tone", "judging": {"judge": "j/t"}}]
    tokens = {"inputTokens": 4, "outputTokens": 2, "costUsd": 0.5}
    scores: Any = [
        {"evaluator": "Tone", "value": 0.5, "label": "", **tokens},
        {"evaluator": "Other", "value": None, "label": "kind", **tokens},
        {"evaluator": "Free", "value": 1.0, "label": "", **tokens, "inputTokens": 0},
    ]
    settings = json.dumps({**ITEM.settings, "evaluators": judges})
    run = read_run([attempt("a", "success")], {"a": [step(1)]}, [after("")], scores, settings=settings)
    assert [(each.who, each.purpose, each.model, each.turn) for each in run.judge_calls] == [
        ("evaluators", "Tone", "j/t", 0),
        ("evaluators", "Other", "j/h", 0),
    ]
    assert (run.judge_calls[0].input_tokens, run.judge_calls[0].output_tokens) == (4, 2)
    assert run.scores == {"Tone": 0.5, "Other": "kind", "Free": 1.0}
