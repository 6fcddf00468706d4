"""Executes a run that this process owns: its items with an engine, the files of its job, an observer.

However the run ends, its rows are true: finished items are finished, cut-off attempts are known as such, and
items that have not started are still queued.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict

from proctor.batch.engines import Engine, LocalEngine, automatic_workers
from proctor.batch.engines.messages import WorkerSpec
from proctor.batch.host import DriverHost, call_on_loop
from proctor.context import RunContext
from proctor.errors import Aborted, AgentNotStarted, AttemptError, Interrupted, StoreError, first_error
from proctor.formatting import elapsed
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, TIMEOUT, UNCHECKED
from proctor.job import BATCHED_AT_ONCE, BatchEnd, ItemFinished, Job, JobPlan, RunHooks, StepFinished
from proctor.json_values import as_whole_number
from proctor.models import ModelRouter
from proctor.stop_rule import STOP_RULE, StopState, stop_lines
from proctor.store import ItemFilter, Ownership, Store, ledger
from proctor.store.batches import ABORTED, end_items, finish, moment
from proctor.store.database import Connection
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from proctor.batch.engines.processes import ProcessEngine
    from proctor.results.stopping import StopMonitor

MOST_FAILURES = 1000
"""Failures listed in the summary; all of them are in the store."""
PROCESSES_PER_CORE = 8
"""Worker processes for which a core has work, with calls that wait."""


class RunControl(Protocol):
    """Stops a run that is being executed."""

    def interrupt(self) -> None:
        """Stop all running items; the run can be resumed."""

    def abort(self) -> None:
        """Stop all running items for good."""


class Observer:
    """Follows a run. The base class ignores everything."""

    def watch(self, run_id: str, control: RunControl) -> AbstractAsyncContextManager[object]:  # noqa: ARG002
        """Entered before the first item starts and left after the last has finished."""
        return nullcontext()

    def item_finished(self, item: ItemFinished) -> None:
        """An item has finished, and that is committed."""


SILENT = Observer()


class RunSummary(TypedDict):
    """The documented JSON summary of a run."""

    runId: str
    status: str
    reason: str
    itemCount: int
    successCount: int
    uncheckedCount: NotRequired[int]
    """Successes that nothing checked; missing: none."""
    unmergedCount: NotRequired[int]
    """Successes of a run that merges whose work git could not merge; missing: none."""
    abortedCount: NotRequired[int]
    """Errors of an aborted run that are items it was aborted in."""
    failCount: int
    timeoutCount: int
    errorCount: int
    unfinishedCount: int
    tokensTotal: int
    toolCalls: int
    costUsd: float | None
    costIsLowerBound: NotRequired[bool]
    """Whether a process of the run died, so that calls may have cost money that is not recorded."""
    durationSec: float | None
    failures: list[dict[str, str]]
    """The first failed items: their ids, inputs, statuses and errors."""
    validity: NotRequired[dict[str, dict[str, int]]]
    """By kind of what makes sessions less valid as data, such as refusals: `events` and `sessions`."""
    servedModels: NotRequired[dict[str, dict[str, int]]]
    """By requested model, the calls that each model answered, as the providers say; missing: unknown."""
    stopWhen: NotRequired[StopState]
    """What `stop_when` has decided, with valid intervals; missing: the plan has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that has ended."""

    run_id: str
    end: BatchEnd
    summary: Mapping[str, Any]
    """The documented JSON summary, with the members the job adds."""
    executed: bool = True
    """Whether any item was executed; a resumed run may have none left."""


class Executor:
    """Executes a run that this process owns, with the files of its job. Use once."""

    def __init__(
        self,
        job: Job,
        plan: JobPlan,
        run_id: str,
        ctx: RunContext,
        models: ModelRouter,
        *,
        engine: Engine | None = None,
        workers: int | None = None,
        observer: Observer = SILENT,
    ) -> None:
        """Without `engine`: worker processes if they are worth it or `workers` asks for them, otherwise this
        process."""
        self._job, self._plan, self._run_id, self._ctx, self._models = job, plan, run_id, ctx, models
        models.batches_folder = batches_folder(ctx, run_id)
        self._engine = engine
        self._workers = workers
        self._observer = observer
        self._hooks: RunHooks
        self._stopping: StopMonitor | None = None
        """What decides when the run may stop early."""
        self._stop_reason: AttemptError | None = None
        self._failure: StoreError | None = None
        self._running: asyncio.Task[None] | None = None

    async def run(
        self, *, resumed: bool = False, stops_early: bool = True, finished_at: datetime | None = None
    ) -> RunResult:
        """Execute everything that is queued. Raises a `StoreError` when nothing can be written any more.

        `finished_at` is when a resumed run had ended; it stays so if no item is left to execute.
        """
        run_id, ctx = self._run_id, self._ctx
        self._hooks = self._job.hooks(self._plan, run_id, ctx)
        end = self._hooks.begin(resumed=resumed)
        totals = ctx.store.read.totals(run_id)
        has_work = totals["finished"] < totals["items"]
        if end is None:
            self._stopping = _stopping(run_id, ctx) if stops_early else None
            self._advise(totals["items"] - totals["finished"])
            has_work = has_work and not (self._stopping is not None and self._stopping.is_decided)
            async with self._opened() as (host, engine):
                self._running = asyncio.create_task(engine.run(host, self._worker_spec(host, engine)))
                if self._stop_reason:
                    self._running.cancel()
                try:
                    await self._running
                except asyncio.CancelledError:
                    if self._stop_reason is None and self._failure is None:
                        self._stop(Interrupted("the batch was interrupted"))
                        await asyncio.wait([self._running])
                        raise
                except BaseExceptionGroup as group:
                    raise self._failure or first_error(group) from group
                finally:
                    host.queue.stop()
                if self._failure:
                    raise self._failure
                await host.all_notified()
                end = self._end(host)
                ended_at = None if has_work else finished_at
                await asyncio.wrap_future(host.writer.submit(partial(self._close, host, end, ended_at)))
        extra = self._hooks.finish(end)
        summary = run_summary(ctx.store, ctx.store.read.batch(run_id, ctx.now()), ctx.now())
        if state := summary.get("stopWhen"):
            for line in stop_lines(state):
                ctx.info(line)
        is_executed = has_work or not resumed
        return RunResult(run_id=run_id, end=end, summary={**summary, **extra}, executed=is_executed)

    def abort(self) -> None:
        """Stop everything for good; items that have not started never will."""
        self._stop(Aborted("the batch was aborted"))

    def interrupt(self) -> None:
        """Stop everything for now; the batch can be resumed."""
        self._stop(Interrupted("the batch was interrupted"))

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[DriverHost, Engine]]:
        """What items need while they are executed: models, an engine, the observer, the store's writer."""
        run_id, ctx, models = self._run_id, self._ctx, self._models
        attempts = self._job.attempts(self._plan, run_id, ctx, models)
        models.get_ready()
        processes = None if self._engine else _process_engine(self._workers, run_id, ctx, models)
        engine = self._engine = self._engine or processes or LocalEngine()
        if self._stop_reason:
            engine.stop(self._stop_reason)
        try:
            async with self._observer.watch(run_id, self):
                loop = asyncio.get_running_loop()
                ownership = Ownership(
                    run_id=run_id,
                    owner=ctx.owner,
                    aborted=lambda: call_on_loop(loop, self.abort),
                    failed=lambda error: call_on_loop(loop, lambda: self._fail(error)),
                )
                writer = ctx.store.writer(ownership)
                host = None
                try:
                    host = DriverHost(
                        self._hooks,
                        run_id,
                        ctx,
                        attempts,
                        writer,
                        watch=self._item_finished,
                        watch_step=self._step_finished if self._hooks.implements("step_finished") else None,
                        stopping=self._stopping,
                    )
                    yield host, engine
                finally:
                    if host:
                        host.withdraw_limits()
                    await asyncio.to_thread(writer.close)
        finally:
            if processes:
                processes.close()
            if isinstance(self._stop_reason, Aborted):
                for problem in await models.cancel_batches():
                    ctx.note(problem)
            await models.close()
            self._forget_batches()
            if models.recording:
                models.recording.close()

    def _advise(self, items: int) -> None:
        """Note when provider batches will be small only because few items are executed at once."""
        at_once = self._ctx.store.read.batch(self._run_id, self._ctx.now())["concurrency"]
        if self._plan.model_options().service and at_once < min(items, BATCHED_AT_ONCE):
            self._ctx.note(
                f"`service: batch`: batches have at most {at_once:,} calls, the concurrency of this run; "
                f"with `concurrency: {min(items, BATCHED_AT_ONCE)}` they have {min(items, BATCHED_AT_ONCE):,}"
            )

    def _forget_batches(self) -> None:
        """Delete what is kept of provider batches when no item is left that may ask for their answers."""
        folder = self._models.batches_folder
        if folder and folder.is_dir():
            counts = self._ctx.store.read.totals(self._run_id)["counts"]
            if not (counts[QUEUED] or counts[RUNNING]):
                shutil.rmtree(folder, ignore_errors=True)

    def _item_finished(self, item: ItemFinished) -> None:
        self._write_files(partial(self._hooks.item_finished, item))
        self._observer.item_finished(item)

    def _step_finished(self, step: StepFinished) -> None:
        self._write_files(partial(self._hooks.step_finished, step))

    def _write_files(self, follow: Callable[[], None]) -> None:
        try:
            follow()
        except OSError as error:
            # The session is in the store; missing files are written again at the end.
            self._ctx.note(f"could not write a file: {error}")

    def _worker_spec(self, host: DriverHost, engine: Engine) -> WorkerSpec:
        settings = self._ctx.settings_for(self._models.folders)
        options = self._plan.model_options()
        if not engine.shares_disk:
            # Workers that do not see our files get the scripts of models as data.
            options = replace(options, scripts=self._models.scripts)
        return WorkerSpec(
            run_id=self._run_id,
            job=host.batch["job"],
            seed=host.batch["seed"] or 0,
            holder=self._ctx.owner,
            concurrency=host.batch["concurrency"],
            is_budgeted=host.limits.are_any,
            # The store, its password and the keys of the server's callers stay with the driver.
            settings=replace(
                settings,
                store_url="",
                hidden_files=settings.store_files,
                serve={},
                access_keys={},
                tokens={},
                watches=(),
            ),
            models=options,
            evaluators=host.context.evaluators,
            functions=self._ctx.functions,
        )

    def _stop(self, reason: AttemptError) -> None:
        if self._stop_reason is None:
            self._stop_reason = reason
            if self._engine:
                self._engine.stop(reason)
            if self._running:
                self._running.cancel()

    def _fail(self, error: StoreError) -> None:
        self._failure = error
        if self._running:
            self._running.cancel()

    def _end(self, host: DriverHost) -> BatchEnd:
        if isinstance(self._stop_reason, Aborted):
            return BatchEnd(status="aborted", reason="aborted")
        if self._stop_reason:
            return BatchEnd(status="interrupted", reason="interrupted")
        if host.halted_by and not (host.halted_by == AgentNotStarted.reason and self._is_all_finished()):
            return BatchEnd(status="halted", reason=host.halted_by)
        if self._stopping and self._stopping.is_decided:
            return BatchEnd(status="completed", reason="decided")
        return BatchEnd(status="completed", reason="undecided" if host.queue.skipped else "")

    def _is_all_finished(self) -> bool:
        totals = self._ctx.store.read.totals(self._run_id)
        return totals["finished"] == totals["items"]

    def _close(
        self, host: DriverHost, end: BatchEnd, finished_at: datetime | None, connection: Connection
    ) -> None:
        now = self._ctx.now()
        if end.status == "aborted":
            end_items(connection, self._run_id, "aborted", "the batch was aborted", now)
        finish(connection, self._run_id, end.status, end.reason, finished_at or now)
        for holder in host.money_holders:
            ledger.close(connection, self._run_id, holder, now)


def batches_folder(ctx: RunContext, run_id: str) -> Path:
    """Keeps what a run sent as provider batches."""
    return ctx.home / "provider-batches" / run_id


def _process_engine(
    workers: int | None,
    run_id: str,
    ctx: RunContext,
    models: ModelRouter,
) -> "ProcessEngine | None":
    """The worker processes of a run, started; None: its items run in this process."""
    batch = ctx.store.read.batch(run_id, ctx.now())
    concurrency = batch["concurrency"]
    requested = workers or as_whole_number(json.loads(batch["optionsJson"]).get("workers")) or None
    if requested is None and ctx.functions:
        return None
    totals = ctx.store.read.totals(run_id)
    items = totals["items"] - totals["finished"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    workers = requested or automatic_workers(items=items, concurrency=concurrency, models=models, cores=cores)
    if workers == 1:
        return None
    # Loaded here: most runs are small.
    from proctor.batch.engines.processes import ProcessEngine, can_be_sent

    reason = models.single_process_reason
    if concurrency == 1:
        reason = "its concurrency is 1"
    elif not can_be_sent(ctx.functions):
        reason = "worker processes cannot import its Python functions"
    elif models.lowest_limit == 1:
        reason = "only one call at a time is allowed"
    if reason:
        if requested:
            ctx.note(f"the run has one worker process: {reason}")
        return None
    # Each worker may make at least one call of each limit. A process takes 40 MB: a plan that asks for
    # thousands would take all memory of the machine.
    count = min(workers, concurrency, models.lowest_limit or workers, items, PROCESSES_PER_CORE * cores)
    if count <= 1:
        return None
    engine = ProcessEngine(count, note=ctx.note, info=ctx.info)
    engine.launch()
    return engine


def _stopping(run_id: str, ctx: RunContext) -> "StopMonitor | None":
    """What decides when a run may stop early; None: it runs to its end."""
    if ctx.store.read.resource(run_id, STOP_RULE) is None:
        return None
    from proctor.results.stopping import StopMonitor, stored_rule

    rule = stored_rule(ctx.store.read, run_id)
    return StopMonitor(rule, ctx.store.read, run_id) if rule else None


def run_summary(store: Store, batch: BatchRow, now: datetime) -> RunSummary:
    """The documented JSON summary of a run."""
    totals = store.read.totals(batch["runId"])
    counts = totals["counts"]
    unchecked = store.read.count_items(batch["runId"], ItemFilter(statuses=(SUCCESS,), reasons=(UNCHECKED,)))
    failures = store.read.items(
        batch["runId"], ItemFilter(statuses=(FAIL, TIMEOUT, ERROR)), limit=MOST_FAILURES
    )
    took = elapsed(moment(batch["createdAt"]), moment(batch["finishedAt"]) or now)
    summary: RunSummary = {
        "runId": batch["runId"],
        "status": batch["status"],
        "reason": batch["reason"],
        "itemCount": totals["items"],
        "successCount": counts[SUCCESS],
        "failCount": counts[FAIL],
        "timeoutCount": counts[TIMEOUT],
        "errorCount": counts[ERROR],
        "unfinishedCount": totals["items"] - totals["finished"],
        "tokensTotal": totals["tokens"],
        "toolCalls": totals["toolCalls"],
        "costUsd": totals["costUsd"],
        "durationSec": None if took is None else round(took, 3),
        "failures": [
            {
                "id": row["id"],
                "repo": row["repo"],
                "prompt": row["prompt"],
                "agent": row["agent"],
                "model": row["model"],
                "status": row["status"],
                "reason": row["reason"],
                "error": row["error"],
            }
            for row in failures
        ],
    }
    if batch["crashes"] and totals["costUsd"]:
        summary["costIsLowerBound"] = True
    if unchecked:
        summary["uncheckedCount"] = unchecked
    unmerged = ItemFilter(statuses=(SUCCESS,), merges=("conflict", "error"))
    if count := store.read.count_items(batch["runId"], unmerged):
        summary["unmergedCount"] = count
    if batch["status"] == ABORTED:
        # They count as errors, but none of them failed.
        ended = ItemFilter(statuses=(ERROR,), reasons=(ABORTED,))
        summary["abortedCount"] = store.read.count_items(batch["runId"], ended)
    if invalid := store.read.last_sessions(batch["runId"], "validity"):
        # Loaded where there is something to count.
        from proctor.validity import sum_counts

        summary["validity"] = sum_counts(invalid)
    if served := store.read.last_sessions(batch["runId"], "servedModels"):
        from proctor.validity import sum_served

        summary["servedModels"] = sum_served(served)
    if store.read.resource(batch["runId"], STOP_RULE) is not None:
        from proctor.results.stopping import stop_document

        if document := stop_document(store.read, batch["runId"]):
            summary["stopWhen"] = document
    return summary
