"""Benchmarks: read tasks and models as a plan, by themselves or as the `tasks` of a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from proctor.api.runs import ReadPlan, read_plan
from proctor.context import RunContext
from proctor.job import PlanText, make_overrides
from proctor.jobs import job_of_items
from proctor.jobs.benchmark import plan as task_plan
from proctor.jobs.benchmark.job import JOB, BenchmarkJobPlan, no_task
from proctor.tasks.task import MARKDOWN, commands_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkPlan(ReadPlan):
    """A benchmark that was read."""

    plan: BenchmarkJobPlan

    @property
    def shows_progress(self) -> bool:
        """`show_progress` of models_config.yaml."""
        return self.plan.settings.show_progress

    @property
    def is_verbose(self) -> bool:
        """`verbose` of models_config.yaml."""
        return self.plan.settings.verbose

    @property
    def commands(self) -> Sequence[str]:
        """The commands that its tasks run."""
        return commands_of(self.plan.tasks, with_solutions=self.plan.overrides.oracle)

    @property
    def has_foreign_tasks(self) -> bool:
        """Whether tasks are in the format of another tool."""
        return bool(self.plan.task_set.formats.keys() - {MARKDOWN})


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
    ctx: RunContext, source: PlanText, options: Mapping[str, Any], *, run_id: str = ""
) -> BenchmarkPlan:
    """Read a plan with `tasks`. `options` are those of plans without, with the same limits."""
    make_overrides(job_of_items(), options)
    chosen = task_plan.TaskPlanOverrides(
        model=options.get("model"),
        agent=options.get("agent"),
        concurrency=options.get("concurrency"),
        budget=options.get("budget_usd"),
        timeout_seconds=options.get("timeout_sec"),
    )
    path, overrides, name = task_plan.read_task_plan(source, chosen)
    settings = {each.name: getattr(overrides, each.name) for each in fields(overrides)}
    return read_benchmark(ctx, path, settings, run_id=run_id or name)
