"""Go on with a run from one of its earlier turns: find it, and begin a batch that starts there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from proctor import __version__
from proctor.bootstrap import now
from proctor.cli.experiment_run import new_run_id, refuse_taken
from proctor.errors import UsageError
from proctor.jobs.scenario.experiment import Experiment, read_config, read_experiment
from proctor.jobs.scenario.folder import ExperimentFolder, create_experiment, run_from_store, take_in
from proctor.plan.yaml_loader import read_source
from proctor.scenario.run_files import read_run
from proctor.scenario.state import HALTED, ScenarioRun
from proctor.store import Store
from proctor.store.writer import this_process

# One scenario as an experiment of its own: the config that stands for it, and what is changed in it.


def config_of(folder: Path, target: Path, changes: dict[str, Any], **more: Any) -> str:
    """The config of an experiment that is one variation of a scenario."""
    config = {
        "experiment_name": folder.name if folder.name != "base-scenario" else target.name,
        "base_scenario": str(folder),
        "output_dir": str(target),
        "runs_per_variation": more.get("runs") or 1,
        "seed": more.get("seed") or 0,
        "timeout_per_run": more.get("timeout"),
        "branch": more.get("branch"),
        "variations": [
            {"type": "scenario_parameter", "parameter": path, "values": [value]}
            for path, value in changes.items()
        ],
    }
    kept = {name: value for name, value in config.items() if value is not None}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)


def values_of(changes: list[str] | None) -> dict[str, Any]:
    """What `--set PATH=VALUE` says, by path; values are read as YAML."""
    found: dict[str, Any] = {}
    for change in changes or ():
        path, equals, value = change.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"`{change}` changes nothing\nWrite PATH=VALUE, such as turns=5.")
        found[path.strip()] = read_source(value, file="--set").data if value else ""
    return found


def as_experiment(target: Path) -> Experiment:
    """A scenario's folder or a config, as an experiment."""
    folder = target.absolute()
    if not folder.exists():
        remedy = "Give the folder of a scenario or of an experiment, or a config."
        raise UsageError(f"there is no {target}\n{remedy}")
    if folder.is_dir() and not (folder / "batch-config.yaml").is_file():
        text = config_of(folder, folder / "runs", {})
        return read_experiment(text, path=folder / "batch-config.yaml", working_folder=Path.cwd())
    path = folder / "batch-config.yaml" if folder.is_dir() else folder
    return read_experiment(read_config(path), path=path, working_folder=Path.cwd())


def begin_branch(store: Store, read: Experiment, kept: ScenarioRun) -> tuple[ExperimentFolder, str]:
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
    kept: ScenarioRun,
    wanted: dict[str, Any],
    at_turn: int,
    seed: int | None,
) -> Experiment:
    """The experiment that a branch is: one run, with a mark of where it comes from."""
    luck = kept.seed if seed is None else seed
    mark = {"turn": at_turn, "seed": luck, "of": f"{kept.item_id}:{kept.label}"}
    text = config_of(base, target, plain | wanted, branch=mark)
    return read_experiment(text, path=target / "batch-config.yaml", working_folder=Path.cwd())


def original_of(store: Store, source: str) -> tuple[ScenarioRun, dict[str, Any], Path]:
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
