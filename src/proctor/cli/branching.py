"""Go on with a run from one of its earlier turns: find it, and begin a batch that starts there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor import __version__
from proctor.batch.experiment import create_experiment, run_from_store, take_in
from proctor.cli.experiment_run import new_run_id, refuse_taken
from proctor.cli.house import now
from proctor.cli.one_scenario import config_of
from proctor.errors import UsageError
from proctor.export.experiment import ExperimentFolder
from proctor.plan.experiment import Experiment, read_experiment
from proctor.scenario.folder import read_run
from proctor.scenario.state import HALTED, Run
from proctor.store import Store
from proctor.store.owner import this_process


def begin_branch(store: Store, read: Experiment, kept: Run) -> tuple[ExperimentFolder, str]:
    """The batch of a branch, with the turns it goes on from."""
    refuse_taken(read.output, "Name another folder with --output.")
    owner, run_id = this_process(), new_run_id(read)
    items = list(read.items())
    create_experiment(store, read, items, run_id=run_id, owner=owner, version=__version__, now=now())
    folder = ExperimentFolder(store, run_id, read.output)
    folder.prepare(read.loaded.folder)
    # What those turns cost was paid for by the run they come from.
    free = tuple(replace(turn, calls=()) for turn in kept.turns)
    before = replace(kept, item_id=items[0].id, label="var-001-run-001", turns=free, status=HALTED)
    take_in(store, run_id, items, {items[0].id: before}, source="branch", now=now())
    return folder, owner


def branched(
    base: Path,
    target: Path,
    plain: dict[str, Any],
    kept: Run,
    wanted: dict[str, Any],
    at_turn: int,
    seed: int | None,
) -> Experiment:
    """The experiment that a branch is: one run, with a mark of where it comes from."""
    luck = kept.seed if seed is None else seed
    mark = {"turn": at_turn, "seed": luck, "of": f"{kept.item_id}:{kept.label}"}
    text = config_of(base, target, plain | wanted, branch=mark)
    return read_experiment(text, path=target / "batch-config.yaml", working_folder=Path.cwd())


def original_of(store: Store, source: str) -> tuple[Run, dict[str, Any], Path]:
    """The run to branch from, what was varied in it, and the scenario's folder."""
    folder = Path(source).absolute()
    if folder.is_dir():
        found = read_run(folder)
        if found is None:
            raise UsageError(f"{source} holds no run\nGive a folder such as …/runs/var-001-run-001.")
        root = folder.parent.parent
        return found, _changes_of(root, found.variation_id), root / "base-scenario"
    items = [row for row in store.read.item(source) if row["runner"] == "scenario"]
    if not items:
        raise UsageError(f"there is no run {source}\nGive its folder, or the id that `proctor show` prints.")
    settings = json.loads(items[0]["settings"])
    base = Path(settings["scenario"]).parent / "base-scenario"
    return run_from_store(store.read, items[0]), settings.get("changes") or {}, base


def _changes_of(root: Path, variation: int) -> dict[str, Any]:
    try:
        state = json.loads((root / "batch-state.json").read_text(encoding="utf-8"))
        (found,) = [one for one in state["variations"] if one["variation_id"] == variation]
        made = found["modifications"]
        found = {f"actors.{short}.llm_model": model for short, model in made["actor_models"].items()}
        return {**found, **made["scenario_overrides"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{root} is no experiment's folder: {error}") from error
