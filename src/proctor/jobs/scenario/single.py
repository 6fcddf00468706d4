"""One scenario by itself: as an experiment with one variation, as a branch of an earlier run, or estimated.

An estimate counts the calls of a run with a mock model, and uses earlier runs where there are any.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from proctor.errors import UsageError
from proctor.formatting import plural
from proctor.item import SCENARIO
from proctor.jobs.scenario.experiment import (
    CONFIG,
    KEPT_SCENARIO,
    STATE,
    Experiment,
    read_config,
    read_experiment,
)
from proctor.jobs.scenario.folder import ImportedRuns, run_from_store
from proctor.jobs.scenario.job import ScenarioPlan
from proctor.json_values import without_none
from proctor.plan.yaml_loader import read_source
from proctor.scenario.run_files import read_run
from proctor.scenario.state import HALTED, ScenarioRun
from proctor.store import Store

DECISION_WORDS, WORLD_WORDS = 150, 250
"""Typical length of a model's decision and of its world state, in words."""


def config_of(
    folder: Path,
    output: Path,
    changes: dict[str, Any],
    *,
    runs: int = 1,
    seed: int = 0,
    timeout: float | None = None,
    branch: dict[str, Any] | None = None,
) -> str:
    """The config of an experiment that is one variation of a scenario."""
    config = {
        "experiment_name": folder.name if folder.name != KEPT_SCENARIO else output.name,
        "base_scenario": str(folder),
        "output_dir": str(output),
        "runs_per_variation": runs,
        "seed": seed,
        "timeout_per_run": timeout,
        "branch": branch,
        "variations": [
            {"type": "scenario_parameter", "parameter": path, "values": [value]}
            for path, value in changes.items()
        ],
    }
    settings = without_none(config)
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def parse_changes(arguments: Sequence[str]) -> dict[str, Any]:
    """The changes of `PATH=VALUE` arguments, by path; values are read as YAML."""
    changes: dict[str, Any] = {}
    for argument in arguments:
        path, equals, value = argument.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"`{argument}` is not a change\nWrite PATH=VALUE, such as turns=5.")
        changes[path.strip()] = read_source(value, file="--set").data if value else ""
    return changes


def as_experiment(target: Path) -> Experiment:
    """A scenario's folder, an experiment's folder or a config, as an experiment."""
    path = target.absolute()
    if not path.exists():
        raise UsageError(
            f"there is no {target}\nGive the folder of a scenario or of an experiment, or a config."
        )
    if path.is_dir() and not (path / CONFIG).is_file():
        text: str | bytes = config_of(path, path / "runs", {})
        return read_experiment(text, path=path / CONFIG, working_folder=Path.cwd())
    config = path / CONFIG if path.is_dir() else path
    return read_experiment(read_config(config), path=config, working_folder=Path.cwd())


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPoint:
    """A run to branch from."""

    run: ScenarioRun
    changes: dict[str, Any]
    """What its variation changes in the scenario, by path."""
    scenario_folder: Path


def find_branch_point(store: Store, source: str) -> BranchPoint:
    """The run in a folder, or of an item id."""
    folder = Path(source).absolute()
    if folder.is_dir():
        run = read_run(folder)
        if run is None:
            raise UsageError(f"{source} holds no run\nGive a folder such as …/runs/var-001-run-001.")
        root = folder.parent.parent
        changes = _changes_of(root, run.variation_id)
        return BranchPoint(run=run, changes=changes, scenario_folder=root / KEPT_SCENARIO)
    rows = [row for row in store.read.item(source) if row["runner"] == SCENARIO]
    if not rows:
        raise UsageError(f"there is no run {source}\nGive its folder, or the id that `proctor show` prints.")
    settings = json.loads(rows[0]["settings"])
    return BranchPoint(
        run=run_from_store(store.read, rows[0]),
        changes=settings.get("changes") or {},
        scenario_folder=Path(settings["scenario"]).parent / KEPT_SCENARIO,
    )


def branch_plan(
    point: BranchPoint, output: Path, *, turn: int, changes: dict[str, Any], seed: int | None = None
) -> ScenarioPlan:
    """The plan of one run that continues an earlier one after `turn`, with changes from then on."""
    if turn > len(point.run.turns):
        finished = plural(len(point.run.turns), "turn")
        raise UsageError(f"that run has finished {finished}, so it cannot branch at turn {turn}")
    run = point.run.until(turn)
    branch = {
        "turn": turn,
        "seed": run.seed if seed is None else seed,
        "of": f"{run.item_id}:{run.label}",
    }
    text = config_of(point.scenario_folder, output, point.changes | changes, branch=branch)
    experiment = read_experiment(text, path=output / CONFIG, working_folder=Path.cwd())
    items = list(experiment.items())
    # The original run has paid for these turns.
    turns = tuple(replace(turn, calls=()) for turn in run.turns)
    start = replace(run, item_id=items[0].id, label="var-001-run-001", turns=turns, status=HALTED)
    imported = ImportedRuns(items=items, runs={start.item_id: start}, source="branch", folder=output)
    return ScenarioPlan(experiment=experiment, imported=imported)


def _changes_of(root: Path, variation: int) -> dict[str, Any]:
    try:
        state = json.loads((root / STATE).read_text(encoding="utf-8"))
        (entry,) = [each for each in state["variations"] if each["variation_id"] == variation]
        changes = entry["modifications"]
        models = {f"actors.{short}.llm_model": model for short, model in changes["actor_models"].items()}
        return {**models, **changes["scenario_overrides"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{root} is not the folder of an experiment: {error}") from error
