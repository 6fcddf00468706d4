"""The folder of one run: written as turns finish, and read back when the run is taken up again.

Each file is whole or not there at all: whoever kills the process at any moment finds the state as it
was after the last finished turn.

Knows nothing of models or of how a turn is played.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proctor.scenario.definition import Scenario
from proctor.scenario.documents import LOG, actors_of, as_json, documents
from proctor.scenario.state import COMPLETED, Run, Turn, calls_of, turn_as_plain, turn_of

STATE = "scenario-state.json"
FIGURES = ("metrics.json", "metrics.csv", "costs.json", LOG)
"""What is kept of a run where texts are not."""
VERSION = 1
MOST_BYTES = 512 * 1024 * 1024
_TEXTS = ("talks", "key_changes", "consequences", "summary")


def write_run(folder: Path, scenario: Scenario, run: Run, *, since: int = 0, whole: bool = True) -> None:
    """Write a run's files; of its turns only those from `since` on.

    Without `whole` only figures and the state are kept, and of a run that is over the state without
    its texts.
    """
    made = documents(scenario, run, since=since)
    if not whole:
        made = {name: text for name, text in made.items() if name in FIGURES}
    slim = not whole and run.status == COMPLETED
    # Last: what the state speaks of is there.
    made[STATE] = as_json(state_document(scenario, run, slim=slim))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        write_whole(folder / name, text)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8", errors="replace")
    beside.replace(path)


def read_run(folder: Path) -> Run | None:
    """The run whose state stands in a folder; None when there is none that can be read."""
    path = folder / STATE
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        return run_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # A state that someone else wrote, or broke, is none to go on from.
        return None


def state_document(scenario: Scenario, run: Run, *, slim: bool = False) -> dict[str, Any]:
    """`scenario-state.json`."""
    names = {short: actor.name for short, actor in scenario.actors.items()}
    states = {"0": scenario.initial_world_state} | {str(t.number): t.world_state for t in run.turns}
    last = run.turns[-1].number if run.turns else 0
    return {
        "scenario_name": scenario.name,
        "run_id": run.label,
        "status": run.status,
        "halt_reason": run.reason or None,
        "error": run.error or None,
        "current_turn": last,
        "total_turns": run.total_turns,
        "completed_turns": [turn.number for turn in run.turns],
        "world_state": {
            "current_state": states[str(last)],
            "current_turn": last,
            "turn_duration": scenario.turn_duration,
            "states": {} if slim else states,
            "actor_decisions": {}
            if slim
            else {
                str(turn.number): {names[short]: asdict(made) for short, made in turn.decisions.items()}
                for turn in run.turns
            },
        },
        "actors": actors_of(scenario),
        "metrics_tracker_state": {
            "metrics_by_turn": {str(turn.number): dict(turn.metrics) for turn in run.turns},
            "final_metrics": run.final_metrics,
        },
        "cost_tracker_state": {"total_cost": run.cost_usd, "calls": len(run.calls)},
        "execution_metadata": {
            "format": VERSION,
            "item_id": run.item_id,
            "seed": run.seed,
            "variation_id": run.variation_id,
            "variation": run.variation,
            "started_at": run.started_at,
            "ended_at": run.ended_at or None,
            "is_whole": not slim,
        },
        "turns": [_without_texts(turn, slim=slim) for turn in run.turns],
        "lost_calls": [asdict(call) for call in run.lost_calls],
        "judge_calls": [asdict(call) for call in run.judge_calls],
        "scores": dict(run.scores),
    }


def run_of(state: Mapping[str, Any]) -> Run:
    """The run of a `scenario-state.json`. Raises `KeyError`, `TypeError` or `ValueError` when it is none."""
    about, world = state["execution_metadata"], state["world_state"]
    if about["format"] != VERSION:
        raise ValueError(f"the format {about['format']} is not known")
    shorts = {actor["name"]: short for short, actor in state["actors"].items()}
    return Run(
        item_id=about["item_id"],
        label=state["run_id"],
        seed=about["seed"],
        total_turns=state["total_turns"],
        turns=tuple(_with_texts(plain, world, shorts) for plain in state["turns"]),
        lost_calls=calls_of(state["lost_calls"]),
        judge_calls=calls_of(state.get("judge_calls", ())),
        scores=dict(state.get("scores") or {}),
        status=state["status"],
        reason=state["halt_reason"] or "",
        error=state["error"] or "",
        variation_id=about["variation_id"],
        variation=about["variation"],
        started_at=about["started_at"],
        ended_at=about["ended_at"] or "",
    )


def _without_texts(turn: Turn, *, slim: bool) -> dict[str, Any]:
    """The long texts of a turn stand in the state once, where other programs look for them."""
    left_out = {"world_state", "decisions", *(_TEXTS if slim else ())}
    return {name: value for name, value in turn_as_plain(turn).items() if name not in left_out}


def _with_texts(plain: Mapping[str, Any], world: Mapping[str, Any], shorts: Mapping[str, str]) -> Turn:
    number = str(plain["number"])
    decisions = {shorts[name]: made for name, made in world["actor_decisions"].get(number, {}).items()}
    return turn_of({**plain, "world_state": world["states"].get(number, ""), "decisions": decisions})
