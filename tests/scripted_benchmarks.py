"""Benchmarks whose agents are scripts, carried out in the process of the test."""

from dataclasses import dataclass, field
from typing import Any

from proctor.batch.lifecycle import create
from proctor.jobs.benchmark.models import Candidate
from proctor.jobs.benchmark.plan import BenchmarkDefinition, agent_choices
from proctor.store.writer import this_process
from proctor.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Scripted(BenchmarkDefinition):
    """The same items, done by a script instead of a model."""

    script: Any = field(default_factory=list)

    def _details(self, *arguments: Any) -> dict[str, Any]:
        return {**super()._details(*arguments), "script": self.script}


async def run_scripted(
    workshop: Any, task: Task, script: object, *, run_id: str = "run", models: int = 1
) -> None:
    """Give a task to models whose agents follow a script."""
    candidates = tuple(Candidate(name=f"m{number}", model=f"m{number}") for number in range(models))
    benchmark = Scripted(tasks=(task,), models=candidates, agents=agent_choices("scripted"), script=script)
    await run_benchmark(workshop, benchmark, run_id)


async def run_benchmark(workshop: Any, benchmark: BenchmarkDefinition, run_id: str) -> None:
    """Carry out all items of a benchmark, those of its models side by side."""
    owner = this_process()
    create(
        workshop.store,
        "benchmark",
        {"concurrency": len(benchmark.models)},
        benchmark.items(),
        run_id=run_id,
        owner=owner,
        version="0",
        now=workshop.context.now(),
    )
    await workshop.executor(owner, run_id).run()
