"""Results of tasks over the newest runs of the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from proctor.context import RunContext
from proctor.item import ERROR, FAIL, SUCCESS, TIMEOUT
from proctor.jobs import jobs
from proctor.json_values import CamelJson
from proctor.store.items import TaskResult, task_results

ORACLE, NOOP = "oracle", "noop"
"""Models that check a task: its reference solution, and one that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHistory(CamelJson):
    """Results of a task over the newest runs of the store."""

    task: str
    items: int
    """Finished items of models and agents; oracle and noop are not counted."""
    passed: int
    failed: int
    """Including timeouts."""
    errors: int
    runs: int
    last_run: str
    """The newest run with the task."""
    oracle: str
    """Status of its reference solution in the newest run; empty if not run."""
    noop: str
    """Status of an agent that does nothing; empty if not run."""


def task_history(ctx: RunContext) -> list[TaskHistory]:
    """The results of every task, by its name."""
    rows = task_results(
        ctx.store.read, [job.name for job in jobs() if "factor:task" in job.view.item_columns]
    )
    # Stable: the rows of a task stay the newest first.
    grouped = groupby(sorted(rows, key=lambda row: row["task"]), key=lambda row: row["task"])
    return [_history(task, list(results)) for task, results in grouped]


def _history(task: str, rows: Sequence[TaskResult]) -> TaskHistory:
    own = [row for row in rows if row["model"] not in (ORACLE, NOOP)]

    def count(*statuses: str) -> int:
        return sum(row["items"] for row in own if row["status"] in statuses)

    def newest(model: str) -> str:
        return next((row["status"] for row in rows if row["model"] == model), "")

    return TaskHistory(
        task=task,
        items=sum(row["items"] for row in own),
        passed=count(SUCCESS),
        failed=count(FAIL, TIMEOUT),
        errors=count(ERROR),
        runs=len({row["runId"] for row in rows}),
        last_run=rows[0]["runId"],
        oracle=newest(ORACLE),
        noop=newest(NOOP),
    )
