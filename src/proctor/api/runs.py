"""Runs: read a plan, preview and start it; resume, abort, delete and prune runs; answer their questions."""

import asyncio
import contextvars
import json
import re
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from proctor.batch import lifecycle
from proctor.batch.engines import loop_factory
from proctor.batch.executor import SILENT, Observer, RunControl, RunResult, RunSummary, run_summary
from proctor.batch.lifecycle import NO_CHANGES, UNFINISHED
from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, TIMEOUT, Item
from proctor.job import BatchChanges, Job, JobPlan, PlanEstimate, PlanText, ReadPlan, Work, make_overrides
from proctor.jobs import FIRST, find_job, job_of_run, recognize
from proctor.json_values import CamelJson, JsonObject
from proctor.stop_rule import StopRule
from proctor.store import RetrySelection, batches
from proctor.store.batches import LONGEST_ANSWER
from proctor.store.tables import QuestionRow

if TYPE_CHECKING:
    from proctor.batch.deletion import PrunedRun, PrunedRuns, Removal
    from proctor.batch.estimate import Forecast
    from proctor.batch.extend import Extension
    from proctor.plan.validate import Flag

__all__ = [
    "LONGEST_ANSWER",
    "SILENT",
    "DryRun",
    "Extension",
    "Forecast",
    "Observer",
    "PrunedRun",
    "PrunedRuns",
    "QuestionRow",
    "ReadPlan",
    "Removal",
    "RetrySelection",
    "RunControl",
    "RunResult",
    "RunSummary",
    "find_job",
]
COMMANDS = {"benchmark": "bench", "dialogue": "simulate", "evaluation": "evaluate", "scenario": "scenario"}
"""The modules of the commands of jobs that have one of their own."""
SHORTEST_PREFIX = 12
"""Of a run ID in a command to type: shorter ones would soon be those of other runs, too."""
P = ParamSpec("P")
T = TypeVar("T")
NO_OVERRIDES: Mapping[str, object] = MappingProxyType({})


def flags(job: str) -> Mapping[str, tuple["Flag", str]]:
    """The settings of a job's plans that are flags of its command as well, each with its help."""
    settings: Mapping[str, tuple[Flag, str]] = find_job(job).overrides.flags
    return settings


def job_of_batch(text: str) -> str:
    """The job of a plan of `proctor batch`: coding, unless it has keys of another package's job alone."""
    if find_job(FIRST).recognizes(text):
        return FIRST
    job = recognize(text).name
    return FIRST if job in COMMANDS else job


def read_plan(
    ctx: RunContext,
    source: PlanText,
    *,
    job: str = "",
    overrides: Mapping[str, object] = NO_OVERRIDES,
    resume: str | None = None,
    run_id: str = "",
) -> ReadPlan:
    """Read and check a plan. Raises `PlanError` or `UsageError` with every problem; starts nothing.

    `job` is its job; empty: recognized by its keys. `overrides` are settings of the job that take precedence,
    by any of their names; None: not set. `resume` is the run that the plan extends; empty: its latest run;
    None: a new run, called `run_id`.
    """
    kind = find_job(job) if job else recognize(source.decoded)
    values = make_overrides(kind, overrides)
    if resume is not None:
        return kind.read_to_resume(source, values, ctx, resume)
    return ReadPlan(job=kind, plan=kind.read(source, values, ctx), run_id=run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What starting a plan, or resuming a run with it, would do."""

    job: Job
    plan: JobPlan
    """As it would be executed: in a resumed run, with what depends on that run."""
    earlier: str
    """The run that would be resumed; empty: none in the store."""
    remarks: Sequence[str]
    """Remarks on the plan that do not prevent a start."""
    extension: "Extension | None"
    """What resuming would change; None: a new run without earlier results."""
    estimate: PlanEstimate | None
    """Size and cost from the plan alone; None: unknown."""
    forecast: "Forecast"
    """Cost and time, from like sessions in the store; in a resumed run, of what is left."""

    @property
    def items(self) -> Sequence[Item]:
        """The items of the plan, in order."""
        return list(self.plan.items())

    @property
    def item_count(self) -> int:
        """Number of items."""
        count = self.estimate.item_count if self.estimate else self.plan.item_count
        return sum(1 for _ in self.plan.items()) if count is None else count


def dry_run(ctx: RunContext, read: ReadPlan, *, retry: RetrySelection = UNFINISHED) -> DryRun:
    """Check everything that a plan names, and predict its run; writes nothing and calls no model."""
    preview = lifecycle.preview(read.plan, ctx, run_id=read.earlier, imported_ids=read.imported_ids)
    estimate = read.plan.estimate(ctx)
    return DryRun(
        job=read.job,
        plan=preview.plan,
        earlier=read.earlier,
        remarks=preview.remarks,
        extension=preview.extension,
        estimate=estimate,
        forecast=forecast(ctx, read, work=estimate.workload if estimate else None, retry=retry),
    )


def forecast(
    ctx: RunContext,
    read: ReadPlan,
    *,
    work: Mapping[Work, int] | None = None,
    retry: RetrySelection = UNFINISHED,
) -> "Forecast":
    """Predict cost and time of a plan, or of what is left of its earlier run, from like sessions.

    `work`: its items, where they are known already.
    """
    # Loaded by dry runs only.
    from proctor.batch.estimate import forecast_plan, remaining_work

    if read.earlier:
        work = remaining_work(read.plan, read.earlier, ctx, retry)
    return forecast_plan(read.job.name, read.plan, ctx, work=work)


async def start(
    ctx: RunContext,
    read: ReadPlan,
    *,
    retry: RetrySelection = UNFINISHED,
    workers: int | None = None,
    observer: Observer = SILENT,
    rule: StopRule | None = None,
) -> RunResult:
    """Create the run of a plan, or extend the earlier one it was read for, and execute it to its end.

    `workers`: how many processes execute its items; None: as the plan says, or as many as are worth it.
    `retry`: finished items of an earlier run to repeat. `rule`: when a new run stops early; None: as the plan
    says.
    """
    job, plan = read.job, read.plan
    if read.earlier:
        return await lifecycle.resume(
            job, read.earlier, ctx, plan=plan, retry=retry, workers=workers, observer=observer
        )
    return await lifecycle.start(
        job, plan, ctx, run_id=read.run_id, workers=workers, observer=observer, rule=rule
    )


async def resume(
    ctx: RunContext,
    run_id: str,
    *,
    changes: BatchChanges = NO_CHANGES,
    retry: RetrySelection = UNFINISHED,
    workers: int | None = None,
    observer: Observer = SILENT,
) -> RunResult:
    """Execute what is left of a run of any job, from the store alone. `workers`: as in `start`."""
    batch = ctx.store.read.batch(run_id, ctx.now())
    return await lifecycle.resume(
        find_job(batch["job"]),
        batch["runId"],
        ctx,
        changes=changes,
        retry=retry,
        workers=workers,
        observer=observer,
    )


def event_loop() -> asyncio.Runner:
    """An event loop for a run: `with event_loop() as loop: loop.run(start(…))`."""
    return asyncio.Runner(loop_factory=loop_factory())


def outside_of_any_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end; inside a running event loop in a thread with a loop of its own."""
    if not _is_in_loop():
        return asyncio.run(make())
    results: list[T] = []
    errors: list[BaseException] = []

    def in_thread() -> None:
        try:
            results.append(asyncio.run(make()))
        except BaseException as error:
            errors.append(error)

    # With the context of the caller: a notebook knows by it which cell shows the output.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(in_thread,), name="proctor")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def waited(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """The same function without `_async` in its name, which waits for the end."""

    @wraps(function)
    def wait(*args: P.args, **settings: P.kwargs) -> T:
        return outside_of_any_loop(lambda: function(*args, **settings))

    wait.__name__ = wait.__qualname__ = function.__name__.removesuffix("_async")
    return wait


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# Runs in the store


def job_of(ctx: RunContext, run_id: str) -> Job:
    """The job of a run."""
    return find_job(ctx.store.read.batch(run_id, ctx.now())["job"])


def options_of(ctx: RunContext, run_id: str) -> JsonObject:
    """The options that a run was started with."""
    options: JsonObject = json.loads(ctx.store.read.batch(run_id, ctx.now())["optionsJson"] or "{}")
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run in the store."""

    id: str
    job_name: str
    job: Job
    """With the defaults of `Job` if its job is no longer installed."""


def find_run(ctx: RunContext, run_id: str) -> FoundRun:
    """A run, by its ID or an unambiguous prefix."""
    batch = ctx.store.read.batch(run_id, ctx.now())
    return FoundRun(id=batch["runId"], job_name=batch["job"], job=job_of_run(batch["job"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan(CamelJson):
    """The plan of a run."""

    path: str
    text: str


def plan_of(ctx: RunContext, run_id: str) -> StoredPlan:
    """The plan that a run was made from."""
    batch = ctx.store.read.batch(run_id, ctx.now())
    return StoredPlan(path=batch["planPath"], text=batch["planText"])


def paused_providers(ctx: RunContext, run_id: str) -> dict[str, float]:
    """Seconds for which the calls of a run still wait for rate limits, by provider; empty: none wait."""
    now = ctx.now()
    ends = {row["name"]: row["heldUntil"] for row in ctx.store.read.pools(run_id) if row["heldUntil"]}
    left = {name: (datetime.fromisoformat(end) - now).total_seconds() for name, end in ends.items()}
    return {name: remaining for name, remaining in left.items() if remaining > 0}


def progress_of(ctx: RunContext, run_id: str) -> tuple[int, int]:
    """The number of items of a run, and of those that are finished."""
    totals = ctx.store.read.totals(run_id)
    return totals["items"], totals["finished"]


def status_of(ctx: RunContext, run_id: str) -> tuple[str, str]:
    """The whole ID of a run, and its status."""
    batch = ctx.store.read.batch(run_id, ctx.now())
    return batch["runId"], batch["status"]


def is_known(ctx: RunContext, run_id: str) -> bool:
    """Whether a run has exactly this ID."""
    # Commands that run a plan load no queries of runs, here and below.
    from proctor.store.runs import batches_by_id

    return bool(batches_by_id(ctx.store.read, [run_id], ctx.now()))


def resumable_run(ctx: RunContext, run_id: str) -> str:
    """The whole ID of a run with items left. Raises `UsageError` for one that is running, or has none."""
    from proctor.store.items import status_counts

    run_id, status = _stopped_run(ctx, run_id)
    if status == "completed" and not status_counts(ctx.store.read, run_id)[QUEUED]:
        # Resuming would end at once and only change its duration.
        raise UsageError(f"run {run_id} is completed\nRetry its failed items instead.")
    return run_id


def items_to_retry(
    ctx: RunContext, run_id: str, *, errors: bool, failures: bool, item_ids: Sequence[str] = ()
) -> tuple[str, RetrySelection]:
    """The whole ID of a run, and its items to execute again: of `item_ids`, or all that ended so.

    Raises `UsageError` when there are none, or the run is running.
    """
    from proctor.store.items import item_results, status_counts

    run_id, _ = _stopped_run(ctx, run_id)
    if item_ids:
        results = item_results(ctx.store.read, run_id, item_ids)
        retried = tuple(row["id"] for row in results if row["status"] in (ERROR, FAIL, TIMEOUT))
        if not retried:
            raise UsageError("none of these items can be retried\nSuccessful items stay as they are.")
        return run_id, RetrySelection(item_ids=retried)
    counts = status_counts(ctx.store.read, run_id)
    if not counts[ERROR] * errors + (counts[FAIL] + counts[TIMEOUT]) * failures:
        raise UsageError(f"{run_id} has no items to retry\nSuccessful items stay as they are.")
    return run_id, RetrySelection(errors=errors, failures=failures)


def _stopped_run(ctx: RunContext, run_id: str) -> tuple[str, str]:
    run_id, status = status_of(ctx, run_id)
    if status == RUNNING:
        raise UsageError(f"run {run_id} is already running\nWait for it, or abort it first.")
    return run_id, status


def summary(ctx: RunContext, run_id: str) -> RunSummary:
    """Counts, tokens, cost and failures of a run so far."""
    now = ctx.now()
    return run_summary(ctx.store, ctx.store.read.batch(run_id, now), now)


def short_id(ctx: RunContext, run_id: str, room: int) -> str:
    """An unambiguous prefix of a run ID of at most this many characters; the whole ID if there is none."""
    if len(run_id) <= room or room < SHORTEST_PREFIX:
        return run_id
    # To the end of a word, if that is not much shorter.
    match = re.match(rf".{{{SHORTEST_PREFIX},{room}}}(?=[-_.])", run_id)
    for prefix in (match.group() if match else "", run_id[:room]):
        try:
            if prefix and status_of(ctx, prefix)[0] == run_id:
                return prefix
        except NotFound:
            continue
    return run_id


def abort(ctx: RunContext, run_id: str) -> str:
    """Stop a run for good, wherever it is executed, and wait for its process; its status afterward."""

    def ended() -> None:
        lifecycle.cancel_batches(find_run(ctx, run_id).job, run_id, ctx)

    return lifecycle.abort_run(ctx.store, run_id, now=ctx.now, pause=time.sleep, ended=ended)


def delete(
    ctx: RunContext, run_id: str, *, branches: bool = True, is_sure: Callable[[int], bool] = lambda _: True
) -> "Removal | None":
    """Delete a run, by its whole ID, with its rows and worktrees, and with the branches of its sessions.

    `is_sure` is asked with the number of its items before it is deleted; None: it was not. Raises for a run
    that is running.
    """
    # Loads git and folders; commands that run a plan delete nothing.
    from proctor.batch.deletion import delete_run

    if not is_known(ctx, run_id):
        raise NotFound(f"there is no run {run_id}\nIt may have been deleted already.")
    if status_of(ctx, run_id)[1] == RUNNING:
        raise UsageError(f"run {run_id} is still running\nStop it first:  proctor abort-run {run_id}")
    if not is_sure(progress_of(ctx, run_id)[0]):
        return None
    return delete_run(ctx.store, run_id, ctx.home, ctx.settings.user_environment, branches=branches)


def prune(
    ctx: RunContext, before: datetime, *, keep_scores: bool = False, dry_run: bool = False
) -> "PrunedRuns":
    """Delete runs that ended before a time, or with `keep_scores` only their texts; branches stay."""
    from proctor.batch.deletion import prune_runs

    return prune_runs(ctx, before, keep_scores=keep_scores, dry_run=dry_run)


def open_questions(ctx: RunContext, run_id: str = "") -> Sequence[QuestionRow]:
    """The open questions to people who play an actor, oldest first; empty `run_id`: of all runs."""
    return ctx.store.open_questions(run_id)


def answer_question(ctx: RunContext, run_id: str, question_id: str, text: str) -> None:
    """Answer a question, once."""
    ctx.store.change(batches.answer, run_id, question_id, text, ctx.now())
