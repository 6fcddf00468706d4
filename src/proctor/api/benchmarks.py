"""Benchmarks: read tasks and models as a plan, by themselves or as the `tasks` of a plan."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.api.runs import ReadPlan, read_plan
from proctor.context import RunContext
from proctor.item import Item
from proctor.job import PlanText, make_overrides
from proctor.jobs import job_of_items
from proctor.jobs.benchmark import plan as task_plan
from proctor.jobs.benchmark.job import JOB, BenchmarkJobPlan, no_task
from proctor.jobs.benchmark.leaderboard import ModelStanding, standing
from proctor.jobs.benchmark.models import BatchSettings
from proctor.jobs.benchmark.plan import BenchmarkOverrides
from proctor.store.items import benchmark_items
from proctor.tasks.task import models_with_agents, ranked_name

__all__ = ["BatchSettings", "BenchmarkOverrides", "ModelStanding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkPlan(ReadPlan):
    """A benchmark that was read."""

    plan: BenchmarkJobPlan


def read_benchmark(
    ctx: RunContext, tasks: Path | None, options: Mapping[str, object], *, resume: str = "", run_id: str = ""
) -> BenchmarkPlan:
    """Read the benchmark of a task file, or of a folder or dataset of tasks, with these overrides.

    `resume` is the run ID or the folder of an earlier benchmark, whose options count where none is set.
    """
    if tasks is None and not resume:
        raise no_task()
    source = PlanText(text="", path=tasks, folder=tasks.parent if tasks else Path.cwd())
    read = read_plan(ctx, source, job=JOB.name, overrides=options, resume=resume or None, run_id=run_id)
    assert isinstance(read.plan, BenchmarkJobPlan)
    return BenchmarkPlan(job=read.job, plan=read.plan, earlier=read.earlier, run_id=read.run_id)


def read_task_plan(
    ctx: RunContext, source: PlanText, options: Mapping[str, object], *, run_id: str = ""
) -> BenchmarkPlan:
    """Read a plan with `tasks`. `options` are those of plans without, with the same limits."""
    make_overrides(job_of_items(), options)
    path, settings, name = task_plan.read_task_plan(source, options)
    return read_benchmark(ctx, path, settings, run_id=run_id or name)


class ModelStandings:
    """The models of a benchmark while it is executed."""

    def __init__(self, ctx: RunContext, run_id: str) -> None:
        self._ctx, self._run_id = ctx, run_id
        rows = benchmark_items(ctx.store.read, run_id)
        self._models_with_agents = models_with_agents(json.loads(row["factors"]) for row in rows)

    def look(self) -> list[ModelStanding]:
        """Every model as it stands now, in the order in which they were listed."""
        return standing(self._ctx.store.read, self._run_id, self._ctx.now())

    def name_of(self, item: Item) -> str:
        """The name under which an item is ranked: its model, with the agent if the model has several."""
        return ranked_name(item.factors, self._models_with_agents)
