"""The one order of events of a run: start, resume, preview and abort, for every job.

read → preflight → create, or claim → clear leftovers → extend → `begin` → execute → `finish`.
The command line, the web server, the library and a detached process call these functions.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from proctor import __version__
from proctor.batch.engines import Engine
from proctor.batch.executor import SILENT, Executor, Observer, RunResult, batches_folder
from proctor.batch.host import clear_leftovers
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.formatting import plural
from proctor.item import QUEUED, RUNNING, Item
from proctor.job import BatchChanges, Job, JobPlan, ResumedPlan, check_run_id
from proctor.json_values import JsonMap
from proctor.models import ModelRouter
from proctor.stop_rule import STOP_RULE, StopRule
from proctor.store import ItemFilter, Resource, RetrySelection, Scope, Store, StoreReader, batches, timestamp
from proctor.store.batches import moment
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from proctor.batch.engines.ray import RayEngine
    from proctor.batch.extend import Extension

PATIENCE_SECONDS = 60
"""Items have some seconds to end well before they are killed, and a merge is never interrupted."""
MANY_RESULTS = 100_000
"""Items of a run whose signatures take seconds to check."""
NO_CHANGES = BatchChanges()
UNFINISHED = RetrySelection()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What starting a plan, or resuming a run with it, would do."""

    plan: JobPlan
    """As it would be executed: in a resumed run, with what depends on that run."""
    remarks: Sequence[str] = ()
    extension: "Extension | None" = None
    """The changes of a resume; None: a new run."""


async def start(
    job: Job,
    plan: JobPlan,
    ctx: RunContext,
    *,
    run_id: str = "",
    engine: Engine | None = None,
    workers: int | None = None,
    observer: Observer = SILENT,
    rule: StopRule | None = None,
) -> RunResult:
    """Create a run of a plan and execute it to its end.

    `workers`: how many processes execute its items; None: as the plan says, or as many as are worth it.
    `engine` runs its items in their place. `rule` says when it stops early; None: as the plan says.
    """
    rule = rule or plan.stop_rule
    models = _checked_models(plan, ctx, rule)
    if run_id := run_id or plan.run_id:
        check_run_id(run_id)
    new = plan.begin_run(run_id, ctx)
    run_id = new.run_id
    if new.plan is None:
        return await resume(job, run_id, ctx, engine=engine, workers=workers, observer=observer)
    plan = new.plan
    items, resources = _in_order(plan, rule, ctx.store.read)
    async with _connected(engine, workers, ctx, models) as engine:
        create(
            ctx.store,
            job.name,
            plan.columns(),
            items,
            resources=resources,
            run_id=run_id,
            owner=ctx.owner,
            version=__version__,
            now=ctx.now(),
        )
        executor = Executor(job, plan, run_id, ctx, models, engine=engine, workers=workers, observer=observer)
        return await executor.run()


def create(
    store: Store,
    job: str,
    columns: JsonMap,
    items: Iterable[Item],
    *,
    resources: Iterable[Resource] = (),
    run_id: str,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its items and their resources; how many items those are.

    `columns` record the plan: its text and path, and the options.
    """
    row = {
        "runId": run_id,
        "createdAt": timestamp(now),
        "job": job,
        "status": RUNNING,
        "owner": owner,
        "heartbeatAt": timestamp(now),
        "proctorVersion": version,
        **columns,
    }
    return store.create_batch(row, items, resources)


def _in_order(
    plan: JobPlan, rule: StopRule | None, read: StoreReader
) -> tuple[Iterable[Item], Iterable[Resource]]:
    """The items of a plan and its resources; with a rule to stop early, in random order and with the rule."""
    if rule is None:
        return plan.items(), plan.resources()
    # Loads numpy, which no other run needs.
    from proctor.results.stopping import arranged, rule_resource

    seed = plan.columns().get("seed")
    items, rule = arranged(plan.items(), rule, seed if isinstance(seed, int) else 0, read)
    return items, [*plan.resources(), rule_resource(rule)]


async def resume(
    job: Job,
    run_id: str,
    ctx: RunContext,
    *,
    plan: JobPlan | None = None,
    changes: BatchChanges = NO_CHANGES,
    retry: RetrySelection = UNFINISHED,
    engine: Engine | None = None,
    workers: int | None = None,
    observer: Observer = SILENT,
) -> RunResult:
    """Execute what is left of a run. With a plan, the run is first extended to what the plan asks for now.

    `workers` and `engine`: as in `start`.
    """
    retry = job.retried(run_id, retry, ctx)
    batch = ctx.store.read.batch(run_id, ctx.now())
    if ctx.store.read.count_items(run_id, ItemFilter()) >= MANY_RESULTS:
        ctx.info("checking the signatures of its results")
    ctx.note_foreign_results([batch["runId"]])
    resumed = plan.for_run(batch, ctx) if plan else None
    plan = resumed.plan if resumed else _restored(job, batch, ctx)
    models = _checked_models(plan, ctx)
    _check_rule(ctx.store.read, run_id, resumed, retry)
    async with _connected(engine, workers, ctx, models) as engine:
        interrupted = ctx.store.resume_batch(run_id, ctx.owner, retry, ctx.now())
        if resumed is None:
            _note_sandbox(run_id, ctx)
        clear_leftovers(interrupted, ctx.home, ctx.settings.environment, ctx.note)
        if engine:
            engine.add_lost(interrupted)
        ctx.store.change(batches.add_resources, run_id, plan.resources())
        if resumed is not None and not resumed.is_unchanged:
            # Most resumed runs have the plan that they began with.
            from proctor.batch.extend import extend

            extension = extend(
                ctx.store, run_id, plan.columns(), plan.items(), derived_fields=resumed.derived_fields
            )
            for sentence in extension.sentences(job.view.noun):
                ctx.info(sentence)
        ctx.store.change(batches.change, run_id, changes.columns())
        executor = Executor(job, plan, run_id, ctx, models, engine=engine, workers=workers, observer=observer)
        finished_at = moment(batch["finishedAt"])
        return await executor.run(resumed=True, stops_early=changes.stops_early, finished_at=finished_at)


def _note_sandbox(run_id: str, ctx: RunContext) -> None:
    """Say how the agents of a run are confined, as its start did: this may be another machine."""
    for row in ctx.store.read.items(run_id, ItemFilter(statuses=(QUEUED,)), limit=1):
        if row["agent"]:
            ctx.note(ctx.settings.confinement.summary(json.loads(row["settings"]).get("sandbox")))


def _check_rule(
    read: StoreReader, run_id: str, resumed: ResumedPlan | None, retry: RetrySelection = UNFINISHED
) -> None:
    """Raise `UsageError` for what would make the intervals of a run with `stop_when` wrong.

    They hold because order, number of repeats, levels and goals were fixed before the first result.
    """
    has_rule = read.resource(run_id, STOP_RULE) is not None
    rule = resumed.plan.stop_rule if resumed else None
    if not has_rule and rule is None:
        return
    # Loads numpy, which no other run needs.
    from proctor.results.stopping import is_same_rule, stored_rule

    if resumed is not None and not is_same_rule(rule, stored_rule(read, run_id)):
        before = "another" if has_rule else "no"
        raise UsageError(
            f"`stop_when`: run {run_id} was started with {before} rule, and results are known by now\n"
            "Start a new run; or restore the rule, and run the rest with: "
            f"proctor resume {run_id} --no-stop"
        )
    if retry.failures:
        raise UsageError(
            f"`stop_when`: run {run_id} stops early by its results, so failed items cannot be repeated: "
            "its intervals would be wrong\nRetry errors only (--retry-errors), or start a new run."
        )
    if resumed is None:
        return
    from proctor.batch.extend import diff

    change = diff(read, run_id, resumed.plan.items(), derived_fields=resumed.derived_fields)
    changes = []
    if change.added:
        changes.append(f"{plural(change.added, 'new item')} ({change.reasons_text('item')})")
    if missing := change.dropped + change.retained:
        changes.append(f"{missing} fewer")
    if changes:
        raise UsageError(
            f"`stop_when`: the plan has {' and '.join(changes)} than run {run_id}: tasks, repeats and levels "
            "of a run that stops early are fixed before its first result\n"
            "Start a new run with the changed plan."
        )


def _restored(job: Job, batch: BatchRow, ctx: RunContext) -> JobPlan:
    """The stored plan of a run. Without one, resuming would execute something else than what was started."""
    try:
        return job.restore(batch, ctx)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"the plan of run {batch['runId']} is not in the store, or cannot be read: {error!r}\n"
            "Start a new run from its plan file."
        ) from error


def preview(
    plan: JobPlan, ctx: RunContext, *, run_id: str = "", imported_ids: Collection[str] | None = None
) -> Preview:
    """Check a plan, and compute what it would change in a run; writes nothing.

    `imported_ids`: items whose results a new run would begin with.
    """
    models = ctx.models(plan.model_options(), records=False)
    try:
        remarks = (*_remarks(plan, ctx), *plan.check(models, ctx))
    finally:
        models.close_files()
        if models.recording:
            models.recording.close()
    # An earlier run keeps what its rule found at its start, such as the results of a baseline run.
    remarks = remarks if run_id else (*remarks, *_check_levels(plan, plan.stop_rule, ctx))
    extension = None
    # Started runs load none of this.
    from proctor.batch.extend import diff, importing

    if run_id:
        resumed = plan.for_run(ctx.store.read.batch(run_id, ctx.now()), ctx)
        plan = resumed.plan
        _check_rule(ctx.store.read, run_id, resumed)
        extension = diff(ctx.store.read, run_id, plan.items(), derived_fields=resumed.derived_fields)
    elif imported_ids is not None:
        extension = importing(plan.items(), imported_ids)
    return Preview(plan=plan, remarks=remarks, extension=extension)


def _checked_models(plan: JobPlan, ctx: RunContext, rule: StopRule | None = None) -> ModelRouter:
    models = ctx.models(plan.model_options())
    for remark in (*_remarks(plan, ctx), *plan.check(models, ctx)):
        ctx.note(remark)
    for sentence in _check_levels(plan, rule, ctx):
        ctx.info(sentence)
    return models


def _remarks(plan: JobPlan, ctx: RunContext) -> tuple[str, ...]:
    """Remarks on the settings of a plan's folders."""
    return ctx.settings_for(plan.model_options().folders).remarks


def _check_levels(plan: JobPlan, rule: StopRule | None, ctx: RunContext) -> Sequence[str]:
    """What `stop_when` needs, as sentences. Raise `UsageError` where the items cannot decide it."""
    if rule is None:
        return ()
    # Loads numpy, which no other plan needs.
    from proctor.results.stopping import check_items

    try:
        return check_items(plan.items(), rule, ctx.store.read)
    except UsageError as error:
        raise plan.refusal((STOP_RULE,), error) from error


@asynccontextmanager
async def _connected(
    engine: Engine | None, workers: int | None, ctx: RunContext, models: ModelRouter
) -> AsyncIterator[Engine | None]:
    """The engine that the caller gave, or that of a Ray cluster, connected before the run is created or
    claimed, and disconnected however the run ends."""
    cluster = None if engine else await _ray_engine(workers, ctx, models)
    try:
        yield engine or cluster
    finally:
        if cluster:
            await asyncio.to_thread(cluster.close)


async def _ray_engine(workers: int | None, ctx: RunContext, models: ModelRouter) -> "RayEngine | None":
    """The connected engine of a run on a Ray cluster; None: the run is executed on this machine."""
    if ctx.engine.name != "ray":
        return None
    if workers:
        raise UsageError(
            "`--workers` counts processes on this machine; with `--engine ray` each node has a worker\n"
            "Leave out one of them."
        )
    # Loaded here: it imports what starts processes, and Ray itself takes a second.
    from proctor.batch.engines.processes import can_be_sent
    from proctor.batch.engines.ray import RayEngine

    reason = models.single_process_reason
    if not can_be_sent(ctx.functions):
        reason = "its Python functions cannot be imported on other machines"
    if reason:
        raise UsageError(f"the run cannot be executed on a Ray cluster: {reason}\nUse --engine local.")
    engine = RayEngine(ctx.engine.ray_address, note=ctx.note, info=ctx.info, most_nodes=models.lowest_limit)
    await asyncio.to_thread(engine.connect)
    return engine


def abort_run(
    store: Store,
    run_id: str,
    *,
    now: Callable[[], datetime],
    pause: Callable[[float], None],
    ended: Callable[[], None] = lambda: None,
) -> str:
    """Stop a run for good, wherever it is executed; its status afterward. Waits for its process.

    `ended` is called after a run was ended that had no process.
    """
    batch = store.read.batch(run_id, now())
    if batch["status"] in ("completed", "aborted"):
        raise UsageError(f"run {run_id} is already {batch['status']}\nThere is nothing left to stop.")
    store.change(batches.request_abort, run_id, now())
    # Counted in pauses: the clock may be set meanwhile.
    for _ in range(PATIENCE_SECONDS * 10):
        if batch["status"] != RUNNING:
            break
        pause(0.1)
        batch = store.read.batch(run_id, now())
    if batch["status"] in ("interrupted", "halted"):
        from proctor.processes import end_attempt

        for session in store.read.sessions(Scope(run_id=run_id), limit=100_000):
            if session["status"] == RUNNING:
                end_attempt(session["id"])
        store.end_batch(run_id, "aborted", "aborted", "the batch was aborted", now())
        ended()
    return str(store.read.batch(run_id, now())["status"])


def cancel_batches(job: Job, run_id: str, ctx: RunContext) -> None:
    """Cancel at the providers what an earlier process of a run had sent as batches."""
    folder = batches_folder(ctx, run_id)
    if not folder.is_dir():
        return
    plan = _restored(job, ctx.store.read.batch(run_id, ctx.now()), ctx)

    async def cancel() -> None:
        models = ctx.models(plan.model_options(), records=False)
        models.batches_folder = folder
        try:
            for problem in await models.cancel_batches():
                ctx.note(problem)
        finally:
            await models.close()

    asyncio.run(cancel())
    shutil.rmtree(folder, ignore_errors=True)
