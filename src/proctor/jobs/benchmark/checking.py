"""Checks of tasks before models are measured with them: oracle, no-op, flaky checks, duplicates."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.batch import lifecycle
from proctor.context import RunContext
from proctor.item import FAIL, SUCCESS, digest_of
from proctor.jobs.benchmark.job import JOB, BenchmarkJobPlan
from proctor.jobs.benchmark.plan import NOOP, ORACLE, BenchmarkOverrides
from proctor.json_values import JsonObject
from proctor.tasks.formats import read_task_set
from proctor.tasks.task import NotRead, ReadOverrides, Task

PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTask:
    """How the oracle and the no-op ended on a task."""

    task: str
    oracle: str
    """`pass`, `fail`, `flaky`, or `none`: there is no reference solution."""
    noop: str
    """`fail` is well; `pass`: the task needs no work; `flaky`."""
    duplicate_of: str = ""
    error: str = ""
    """Why the reference solution did not pass."""

    @property
    def is_ok(self) -> bool:
        """Whether the task measures something."""
        return self.oracle in ("pass", "none") and self.noop == "fail" and not self.duplicate_of

    @property
    def note(self) -> str:
        """What is wrong with it, in one line."""
        notes = {
            "the reference solution does not pass": self.oracle == "fail",
            "the check is flaky": "flaky" in (self.oracle, self.noop),
            "passes without any work": self.noop == "pass",
            f"the same as {self.duplicate_of}": bool(self.duplicate_of),
            "no reference solution": self.oracle == "none",
        }
        text = "; ".join(note for note, holds in notes.items() if holds)
        return f"{text}: {self.error}" if self.error else text


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChecks:
    """The checks of all tasks at a path."""

    tasks: tuple[CheckedTask, ...]
    not_read: tuple[NotRead, ...]
    run_id: str

    @property
    def is_ok(self) -> bool:
        """Whether every task is."""
        return all(one.is_ok for one in self.tasks)

    def document(self) -> JsonObject:
        """As JSON."""
        return {
            "runId": self.run_id,
            "tasks": [
                {
                    "id": task.task,
                    "oracle": task.oracle,
                    "noop": task.noop,
                    "duplicateOf": task.duplicate_of or None,
                    "ok": task.is_ok,
                    "note": task.note,
                }
                for task in self.tasks
            ],
            "skipped": [each.document() for each in self.not_read],
        }


def check_tasks(
    ctx: RunContext,
    path: Path,
    reading: ReadOverrides,
    *,
    repeats: int = 3,
    parallel: int = 2,
    task_network: bool = False,
) -> TaskChecks:
    """Run the reference solution and a no-op on every task: one must pass, the other must fail."""
    with tempfile.TemporaryDirectory(prefix="proctor-check-") as folder:
        overrides = BenchmarkOverrides(
            oracle=True,
            noop=True,
            runs=repeats,
            parallel=parallel,
            output=Path(folder),
            task_network=task_network,
        ).with_reading(reading.texts())
        task_set = read_task_set(path, overrides.reading())
        # One without a solution has no oracle.
        tasks = tuple(task if task.has_solution else replace(task, models=(NOOP,)) for task in task_set.tasks)
        plan = BenchmarkJobPlan(replace(task_set, tasks=tasks), overrides, ctx, path=path)
        finished = asyncio.run(lifecycle.start(JOB, plan, ctx))
    ends = _ends(ctx, finished.run_id)
    seen: dict[str, str] = {}
    return TaskChecks(
        tasks=tuple(_checked(task, ends, seen) for task in task_set.tasks),
        not_read=task_set.not_read,
        run_id=finished.run_id,
    )


def _ends(ctx: RunContext, run_id: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Status and error of all runs, by task and model."""
    ends: dict[tuple[str, str], list[tuple[str, str]]] = {}
    after = 0
    while items := ctx.store.read.items(run_id, limit=PAGE, offset=after):
        after += len(items)
        for item in items:
            factors = json.loads(item["factors"])
            ends.setdefault((factors["task"], factors["model"]), []).append(
                (item["status"], item["error"] or "")
            )
    return ends


def _checked(
    task: Task, ends: dict[tuple[str, str], list[tuple[str, str]]], seen: dict[str, str]
) -> CheckedTask:
    oracle, noop = ends.get((task.name, ORACLE), []), ends.get((task.name, NOOP), [])
    content = digest_of([task.prompt, task.start_digest, str(task.repo), task.ref])
    first = seen.setdefault(content, task.name)
    result = _summary(oracle)
    error = next((why for status, why in oracle if status != SUCCESS), "")
    return CheckedTask(
        task=task.name,
        oracle=result if task.has_solution else "none",
        noop=_summary(noop),
        duplicate_of="" if first == task.name else first,
        error=error if result in ("fail", "flaky") else "",
    )


def _summary(runs: Sequence[tuple[str, str]]) -> str:
    passed = {status == SUCCESS for status, _ in runs}
    if len(passed) > 1:
        return "flaky"
    return "pass" if passed == {True} else FAIL
