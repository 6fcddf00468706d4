"""One scenario as an experiment of its own: the config that stands for it, and what is changed in it."""

from pathlib import Path
from typing import Any

import yaml

from proctor.errors import UsageError
from proctor.plan.experiment import Experiment, read_config, read_experiment
from proctor.plan.reading import read_source


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
