"""Scenarios: experiments with variations of one, single scenarios, branches of their runs, and estimates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.api.runs import DryRun, ReadPlan, read_plan
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.job import PlanText
from proctor.jobs.scenario.estimate import estimate_document
from proctor.jobs.scenario.experiment import CONFIG, Experiment, read_config
from proctor.jobs.scenario.job import (
    JOB,
    ScenarioPlan,
    as_experiment,
    branch_plan,
    config_of,
    find_branch_point,
    parse_changes,
)
from proctor.jobs.scenario.reader import LoadedScenario, read_scenario

__all__ = ["Experiment", "LoadedScenario", "read_scenario"]


def read_experiment(
    ctx: RunContext, config: Path, overrides: Mapping[str, object], *, resume: bool = False
) -> ReadPlan:
    """Read the config of an experiment, a file or in its folder; with `resume`, with its earlier run."""
    path = (config / CONFIG if config.is_dir() else config).absolute()
    return _read(ctx, read_config(config), path, overrides, resume=resume)


def _read(
    ctx: RunContext, text: str | bytes, path: Path, overrides: Mapping[str, object], *, resume: bool
) -> ReadPlan:
    source = PlanText(text=text, path=path, folder=Path.cwd())
    return read_plan(ctx, source, job=JOB.name, overrides=overrides, resume="" if resume else None)


def experiment_of(expected: DryRun) -> Experiment:
    """The experiment of a dry run, its variations with the numbers that they would get."""
    assert isinstance(expected.plan, ScenarioPlan)
    return expected.plan.experiment.renumbered(expected.plan.numbers)


def read_single(
    ctx: RunContext,
    folder: Path,
    overrides: Mapping[str, object],
    *,
    output: Path | None = None,
    changes: Sequence[str] = (),
    max_turns: int | None = None,
    runs: int = 1,
    seed: int = 0,
    timeout_seconds: float | None = None,
    resume: bool = False,
) -> ReadPlan:
    """Read a scenario as an experiment with one variation: `changes`, each `PATH=VALUE`.

    `resume`: the experiment that `output` holds instead.
    """
    target = (output or _new_folder(ctx, folder.resolve().name)).absolute()
    path = target / CONFIG
    if resume:
        if output is None:
            raise UsageError("--resume needs --output\nGive the folder of the runs to resume.")
        return _read(ctx, read_config(path), path, overrides, resume=True)
    # Read first, so that errors name the scenario's own files and not the generated config.
    read_scenario(folder)
    changed = parse_changes(changes) | ({"turns": max_turns} if max_turns else {})
    text = config_of(folder.resolve(), target, changed, runs=runs, seed=seed, timeout=timeout_seconds)
    return _read(ctx, text, path, overrides, resume=False)


def branch(
    ctx: RunContext,
    source: str,
    *,
    turn: int,
    output: Path | None = None,
    changes: Sequence[str] = (),
    seed: int | None = None,
) -> ReadPlan:
    """The plan that continues a run, in a folder or of an item, after a turn, with changes from then on."""
    point = find_branch_point(ctx.store, source)
    target = (output or _new_folder(ctx, f"{point.run.label}-branch")).absolute()
    plan = branch_plan(point, target, turn=turn, changes=parse_changes(changes), seed=seed)
    return ReadPlan(job=JOB, plan=plan, imported_ids=plan.imported_ids)


def _new_folder(ctx: RunContext, name: str) -> Path:
    return Path("runs") / f"{name}-{ctx.now():%Y%m%d-%H%M%S}"


async def estimate(ctx: RunContext, target: Path) -> dict[str, Any]:
    """Calls, tokens and cost of a scenario's folder or an experiment's config, by variation and in total."""
    experiment = as_experiment(target)
    models = ctx.models(ScenarioPlan(experiment=experiment).model_options())
    return await estimate_document(experiment, models, ctx.store.read)
