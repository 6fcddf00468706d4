"""Benchmarks whose agents are scripts, carried out in the process of the test."""

from dataclasses import dataclass, field
from typing import Any

from proctor.batch.lifecycle import create
from proctor.jobs.benchmark.models import Candidate
from proctor.jobs.benchmark.plan import BenchmarkDefinition, agent_choices
from proctor.store.writer import this_process
from proctor.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class _Scripted(BenchmarkDefinition):
    """The same items, done by a script instead of a model."""

    script: Any = field(default_factory=list)

    def _details(self, *arguments: Any) -> dict[str, Any]:
        return {**super()._details(*arguments), "script": self.script}


async def run_scripted(
    workshop: Any, task: Task, script: object, *, run_id: str = "run", models: int = 1
) -> None:
    """Give a task to models whose agents follow a script."""
    owner = this_process()
    candidates = tuple(Candidate(name=f"m{number}", model=f"m{number}") for number in range(models))
    benchmark = _Scripted(tasks=(task,), models=candidates, agents=agent_choices("scripted"), script=script)
    create(
        workshop.store,
        "benchmark",
        {"concurrency": models},
        benchmark.items(),
        run_id=run_id,
        owner=owner,
        version="0",
        now=workshop.context.now(),
    )
    await workshop.executor(owner, run_id).run()
