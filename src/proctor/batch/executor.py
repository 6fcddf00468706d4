"""The run loop of one batch: owns store, writer, queue, ownership and ledger; an engine runs the items.

However the batch ends, its rows are true: finished items are finished, cut-off attempts are known as such,
and items that have not started are still queued.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from proctor.batch.engines import Engine, LocalEngine
from proctor.batch.engines.messages import AttemptEnd, RowBatch, WorkerSpec
from proctor.batch.queue import PAGE_SIZE, WorkItem, WorkQueue
from proctor.batch.rate_limit_sync import pool_row, pool_state
from proctor.context import AttemptContext, Functions, ModelOptions, People, Settings
from proctor.errors import (
    Aborted,
    AttemptError,
    Interrupted,
    NotFound,
    ProctorError,
    StoreError,
    first_error,
)
from proctor.item import RUNNING
from proctor.job import BatchEnd, ItemFinished, StepFinished
from proctor.models.rate_limits import PoolState
from proctor.processes import undisturbed
from proctor.runner import MergeRequest, MergeResult
from proctor.store import Drawn, MoneyLimits, Ownership, Store, Writer, ledger
from proctor.store.batches import end_items, finish, queue_lost
from proctor.store.database import Connection
from proctor.store.reader import QueuedItem
from proctor.store.tables import BatchRow, SessionRow
from proctor.store.writer import RowGroups

if TYPE_CHECKING:
    from proctor.cache import LruCache
    from proctor.evaluator import Evidence, FindReference
    from proctor.stats.stopping import StopMonitor
    from proctor.workspace.starting_files import Files
    from proctor.workspace.transfer import FileCopy, RepositoryCopy

LONG_ITEM_SECONDS = 1.0
"""An item that took longer is committed at once: it costs more to repeat than a commit."""
CACHED_SESSIONS, CACHED_CHARACTERS, LEAST_CACHED = 128, 8_000_000, 8
"""Sessions kept in memory: those read ahead, but not more than take about 30 MB; of long ones as many as are
usually evaluated at once."""
READ_AHEAD = 32
"""Sessions read together: the queries of one take as long as those of ten."""
READ_AHEAD_CHARACTERS = 2_000_000
"""A session is read ahead only while the sessions read together are not longer: they take a few megabytes."""


class SessionCache:
    """Loads recorded sessions for evaluators with their ground truth, and keeps the most recent ones.

    Sessions that were announced are read ahead, several at a time; a session that several evaluators need at
    once is read once.
    """

    def __init__(self, store: Store, find_reference: "FindReference | None" = None) -> None:
        self._store = store
        self._find_reference = find_reference
        self._upcoming: dict[str, None] = {}
        """Announced sessions that were not read yet, in order."""
        self._loading: dict[str, asyncio.Task[None]] = {}

    @cached_property
    def _sessions(self) -> "LruCache[str, tuple[Evidence, str | None]]":
        """With the scenario whose ground truth the session has; None: it has none yet."""
        # Loaded with the first session; few batches load any.
        from proctor.cache import LruCache

        return LruCache(CACHED_SESSIONS, most_weight=CACHED_CHARACTERS, least=LEAST_CACHED)

    def announce(self, work: Iterable[WorkItem]) -> None:
        """Items that will be executed next, in this order."""
        for each in work:
            session_id = each.item.settings.get("session")
            if session_id and self._sessions.get(session_id) is None:
                self._upcoming[session_id] = None

    async def load(self, session_id: str, traces: Sequence[str] = (), scenario: str = "") -> "Evidence":
        """A session with its ground truth; with `traces`, only these are targets."""
        evidence, known_scenario = self._sessions.get(session_id) or (await self._read(session_id), None)
        if self._find_reference and known_scenario != scenario:
            evidence = replace(evidence, reference=self._find_reference(evidence.session_id, scenario))
            # For the other evaluators of this session, which follow.
            self._keep(session_id, evidence, scenario)
        return narrowed(evidence, traces) if traces else evidence

    async def _read(self, session_id: str) -> "Evidence":
        while True:
            is_first = session_id not in self._loading
            if is_first:
                self._start_reading(session_id)
            # Other items may wait for the same task: cancelling one of them must not cancel it.
            await asyncio.shield(self._loading[session_id])
            if kept := self._sessions.get(session_id):
                return kept[0]
            if is_first:
                # One of those read together could not be read: whether it is this one, this shows.
                evidence = await asyncio.to_thread(self._store.read.evidence, session_id)
                self._keep(session_id, evidence)
                return evidence

    def _start_reading(self, session_id: str) -> None:
        self._upcoming.pop(session_id, None)
        ids = [session_id, *islice(self._upcoming, READ_AHEAD - 1)]
        for each in ids[1:]:
            del self._upcoming[each]
        task = asyncio.create_task(self._read_ahead(ids))
        self._loading.update(dict.fromkeys(ids, task))
        task.add_done_callback(lambda _: self._forget(task))

    async def _read_ahead(self, ids: Sequence[str]) -> None:
        # An error belongs to the session that cannot be read, which is read again alone.
        with suppress(Exception):
            sessions = await asyncio.to_thread(self._store.read.evidence_of_first, ids, READ_AHEAD_CHARACTERS)
            for session_id, evidence in sessions.items():
                self._keep(session_id, evidence)
            unread = (session_id for session_id in ids[1:] if session_id not in sessions)
            self._upcoming = dict.fromkeys([*unread, *self._upcoming])

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._loading = {session: each for session, each in self._loading.items() if each is not task}

    def _keep(self, session_id: str, evidence: "Evidence", scenario: str | None = None) -> None:
        characters = sum(len(message.content) for message in evidence.messages)
        characters += sum(len(call.result) for call in evidence.tool_calls)
        self._sessions.put(session_id, (evidence, scenario), characters)


def narrowed(evidence: "Evidence", traces: Sequence[str]) -> "Evidence":
    """The same session with these traces, and the tool calls in them, as its only targets."""
    targets = set(traces)
    calls = {
        call.call_id
        for trace in evidence.traces
        if trace.id in targets
        for call in trace.tool_calls
        if call.call_id
    }
    return replace(evidence, targets=frozenset(targets | calls))


class StoreHost:
    """The host of a batch's workers, on the store: calls go straight through."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        queue: WorkQueue,
        *,
        run_id: str,
        context: AttemptContext,
        limits: MoneyLimits,
        rows: "Writer | StepRows",
        finished: Callable[[ItemFinished], None] | None,
        sessions: SessionCache,
        people: People | None,
        pace: "WriterPace",
    ) -> None:
        """`rows` takes what attempts record; `finished` is called with each item that has reached its final
        status."""
        self._pace = pace
        self.context = context
        self.writer = writer
        self.rows = rows
        self.halted_by = ""
        """The limit that halts the batch: `budget`, `store_budget`, or `cost_limit` of one item."""
        self._store = store
        self._queue = queue
        self._run_id = run_id
        self._limits = limits
        self._finished = finished
        self._people = people
        self._limit_holders: set[str] = set()
        self.money_holders: set[str] = set()
        """Workers that have drawn money."""
        self.load_session = sessions.load

    async def write(self, batch: RowBatch) -> None:
        """Write rows, in order, then finish or requeue the items whose attempts have ended."""
        self.rows.merge(batch.rows)
        for end in batch.ends:
            self.attempt_ended(end)
        await self._pace.caught_up()

    async def committed(self) -> None:
        """Wait until all rows so far are committed."""
        await asyncio.wrap_future(self.writer.flush())

    def attempt_ended(self, end: AttemptEnd) -> None:
        """Finish or requeue an item whose rows were handed to the writer."""
        if end.halted_by:
            self.halted_by = self.halted_by or end.halted_by
            self._queue.stop()
        if end.finished:
            if end.finished.work_seconds > LONG_ITEM_SECONDS:
                self.writer.hurry()
            if self._finished:
                self._finished(end.finished)
        if end.delay_seconds is None:
            self._queue.done()
        else:
            self._queue.retry(end.work, end.delay_seconds)

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        """Draw money from the ledger."""
        self.money_holders.add(holder)
        return await asyncio.to_thread(
            self._store.draw_money,
            self._run_id,
            holder,
            wanted_usd=wanted_usd,
            least_usd=least_usd,
            limits=self._limits,
            now=self.context.now(),
        )

    async def give_back(self, holder: str, usd: float) -> None:
        """Return drawn money to the ledger."""
        await asyncio.to_thread(self._store.return_money, self._run_id, holder, usd, self.context.now())

    async def share_limits(self, holder: str, states: Sequence[PoolState]) -> Sequence[PoolState]:
        """Publish the rate limits of a worker; those of all others on the store."""
        if states:
            self._limit_holders.add(holder)

        def exchange(connection: Connection) -> list[PoolState]:
            now = connection.server_time(self.context.now())
            rows = [pool_row(state, self._run_id, now) for state in states]
            return [pool_state(row, now) for row in ledger.exchange(connection, holder, rows, now)]

        return await asyncio.wrap_future(self.writer.submit(exchange))

    async def resource(self, digest: str) -> str:
        """The text of a resource of the run."""
        content = await asyncio.to_thread(self._store.read.resource, self._run_id, digest)
        if content is None:
            raise NotFound(f"run {self._run_id} has no resource {digest}")
        return content

    async def merge(self, request: MergeRequest) -> MergeResult:
        """Merge a session: the merge queue of a repository is in the driver's home."""
        # Loaded with the first merge; few batches merge anything.
        from proctor.workspace.merge_queue import merge

        home, sandbox = self.context.home, self.context.sandbox
        return await merge(request, home=home, environment=self._git_environment, sandbox=sandbox)

    async def ask_person(self, item_id: str, actor: str, prompt: str) -> str:
        """The answer of the person who plays an actor; empty: there is none."""
        return await self._people.ask(item_id, actor, prompt) if self._people else ""

    async def copy_files(self, path: Path) -> "FileCopy":
        """A file or folder as data, for a worker that does not share this machine's disk."""
        from proctor.workspace.transfer import copy_files

        return await asyncio.to_thread(copy_files, path)

    async def copy_repository(self, path: Path, base: str, have: Collection[str]) -> "RepositoryCopy":
        """What a session that starts from `base` needs of a repository, without the commits `have`."""
        from proctor.workspace.transfer import copy_repository

        return await asyncio.to_thread(copy_repository, path, base, have, self._git_environment)

    async def starting_repository(self, files: "Files | None", digest: str) -> Path:
        """The repository of a task's starting files."""
        from proctor.workspace.starting_files import starting_repository

        return await starting_repository(self.context.home, files, digest, self._git_environment)

    async def publish_branch(self, repository: Path, branch: str, sha: str, bundle: bytes) -> None:
        """Fetch a session's branch into a repository; empty `bundle`: it adds no commit."""
        from proctor.workspace.source_repository import open_source
        from proctor.workspace.transfer import receive_branch

        source = await asyncio.to_thread(open_source, repository, self._git_environment)
        await undisturbed(asyncio.to_thread(receive_branch, source, branch, sha, bundle))

    @cached_property
    def _git_environment(self) -> Mapping[str, str]:
        from proctor import secrets

        return secrets.visible(self.context.environment, named={"HOME"})

    async def worker_lost(
        self, holder: str, session_ids: Sequence[str]
    ) -> tuple[Sequence[SessionRow], Mapping[str, float]]:
        """End the sessions of a worker process that died, and everything they had started.

        Their items are queued in the store. Charges the known cost and returns the rest of what the worker
        had drawn. Returns the sessions, and what each has spent or may have spent.
        """
        now = self.context.now()

        def work(connection: Connection) -> tuple[list[SessionRow], dict[str, float]]:
            sessions = queue_lost(connection, self._run_id, session_ids, now)
            ledger.release(connection, self._run_id, holder, now)
            ledger.withdraw(connection, holder)
            return sessions, {row["id"]: ledger.spent_by(connection, row["id"]) for row in sessions}

        sessions, spent = await asyncio.wrap_future(self.writer.submit(work))
        left = [cast("SessionRow", {**session, "status": RUNNING}) for session in sessions]
        await asyncio.to_thread(clear_leftovers, left, self.context.home, self.context.environment)
        return sessions, spent

    def withdraw_limits(self) -> None:
        """Remove the published rate limits of all workers."""
        for holder in self._limit_holders:
            self.writer.submit(partial(ledger.withdraw, owner=holder))


def clear_leftovers(
    sessions: Iterable[SessionRow],
    home: Path,
    environment: Mapping[str, str],
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Clear up after attempts of a killed process: kill their processes and remove their worktrees.

    Their changes are committed to their branches first, like those of attempts that were stopped; a worktree
    whose changes cannot be committed stays.
    """
    # Loaded here: only a process that was killed has left anything.
    from proctor import secrets
    from proctor.processes import end_attempt
    from proctor.workspace.commit import rescue
    from proctor.workspace.folders import remove_abandoned, remove_folder
    from proctor.workspace.source_repository import SESSION_REFS, open_source
    from proctor.workspace.worktree import session_folder

    visible = secrets.visible(environment, named={"HOME"})
    for session in sessions:
        folder = session_folder(home, session["id"])
        if session["status"] != RUNNING and not folder.exists():
            continue
        end_attempt(session["id"])
        if folder.exists() and f"refs/heads/{session['branch']}".startswith(SESSION_REFS):
            try:
                source = open_source(Path(session["repo"]), visible)
                rescue(folder, source, session["branch"], session["baseSha"])
            except (ProctorError, OSError) as error:
                # They exist nowhere else.
                place = f"could not be committed, and stay in {folder}"
                note(f"the changes of session {session['id']} {place}: {error}")
                continue
        if problem := remove_folder(folder):
            note(f"the worktree of session {session['id']} could not be removed: {problem}")
    for problem in remove_abandoned(home):
        note(f"a folder that another process left could not be removed: {problem}")


class WriterPace:
    """Lets items wait while the writer is behind, so that what has ended is committed soon.

    A busy event loop holds the interpreter, which the writer's thread needs: without pauses, commits took
    0.3 s and longer.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._flushing: asyncio.Future[None] | None = None

    async def caught_up(self) -> None:
        """Wait until nothing waits for longer than it should."""
        if not self._writer.is_behind:
            return
        if self._flushing is None:
            self._flushing = asyncio.wrap_future(self._writer.flush())
            self._flushing.add_done_callback(self._flushed)
        await asyncio.shield(self._flushing)

    def _flushed(self, flushing: "asyncio.Future[None]") -> None:
        self._flushing = None
        # Known to whoever waits; all of them may have been cancelled.
        if not flushing.cancelled():
            flushing.exception()


MOST_BEHIND = 16
"""Steps and items that have ended and are not yet passed on, before a run that may stop early waits."""


class CommitNotifier:
    """Collects finished steps and items and passes them on after their commit, in order, many at a time."""

    def __init__(self, writer: Writer, *, at_once: bool) -> None:
        """`at_once`: commits do not wait for further rows, so that notifications come earlier."""
        self._writer = writer
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._pending: list[Callable[[], None]] = []
        self._has_failed = False
        self.idle = asyncio.Event()
        """Set while there is nothing left to pass on."""
        self.idle.set()

    async def caught_up(self) -> None:
        """Wait while many notifications are behind, as they are when the disk is slow."""
        if len(self._pending) > MOST_BEHIND:
            await self.idle.wait()

    def announce(self, notify: Callable[[], None]) -> None:
        """Call a function as soon as all rows so far are committed."""
        self._pending.append(notify)
        if self.idle.is_set():
            self.idle.clear()
            self._flush()

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        committed = self._writer.flush(at_once=self._at_once)
        committed.add_done_callback(
            lambda future: call_on_loop(self._loop, lambda: self._deliver(future, pending))
        )

    def _deliver(self, committed: "Future[None]", pending: list[Callable[[], None]]) -> None:
        if committed.exception():
            # The commit failed: do not notify. The executor receives the error too.
            self._pending.clear()
            pending = []
        try:
            for notify in pending:
                if not self._has_failed:
                    notify()
        except Exception:
            # The run continues without its observer: a closed terminal must not stop it.
            self._has_failed = True
        if self._pending:
            self._flush()
        else:
            self.idle.set()


class StepRows:
    """Passes the rows of attempts on to the writer, and announces the steps among them."""

    def __init__(self, writer: Writer, announce: Callable[[StepFinished], None]) -> None:
        self._writer = writer
        self._announce = announce
        self._items: dict[str, str] = {}
        """Items of the running sessions."""
        self.add = writer.add

    def append(self, table: str, row: tuple[object, ...]) -> None:
        """Pass a row on; an iteration is a finished step."""
        self._writer.append(table, row)
        if table == "iterations":
            self._follow_step(row)

    def change(self, table: str, key: tuple[str, ...], values: Mapping[str, object]) -> None:
        """Pass a change on; an item begins an attempt with a new session."""
        self._writer.change(table, key, values)
        self._follow_change(table, key, values)

    def merge(self, rows: RowGroups) -> None:
        """Pass the rows of another process on, and announce its steps."""
        items = [(key, values) for (table, key), values in rows.changed.items() if table == "batch_items"]
        sessions = [(key, values) for (table, key), values in rows.changed.items() if table == "sessions"]
        sessions += [(key, values) for (_, key), values in rows.added.items()]
        steps = list(rows.appended.get("iterations", ()))
        self._writer.merge(rows)
        for key, values in items:
            self._follow_change("batch_items", key, values)
        for row in steps:
            self._follow_step(row)
        for key, values in sessions:
            self._follow_change("sessions", key, values)

    def _follow_step(self, row: tuple[object, ...]) -> None:
        session_id, number = str(row[0]), int(str(row[1]))
        self._announce(StepFinished(item_id=self._items[session_id], session_id=session_id, number=number))

    def _follow_change(self, table: str, key: tuple[str, ...], values: Mapping[str, object]) -> None:
        if table == "batch_items" and "sessionId" in values:
            session_id, item_id = str(values["sessionId"]), key[1]
            self._items[session_id] = item_id
            self._announce(StepFinished(item_id=item_id, session_id=session_id, number=0))
        elif table == "sessions" and "finishedAt" in values:
            self._items.pop(key[0], None)


def call_on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Call a function on a loop from another thread, unless the loop has ended."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        pass


class Executor:
    """Executes a batch that this process owns. Use once."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        owner: str,
        context: AttemptContext,
        *,
        engine: Engine | None = None,
        watch: Callable[[ItemFinished], None] | None = None,
        watch_step: Callable[[StepFinished], None] | None = None,
        settings: Settings | None = None,
        models: ModelOptions | None = None,
        functions: Functions | None = None,
        find_reference: "FindReference | None" = None,
        load_checkpoint: Callable[[str], object | None] | None = None,
        people: People | None = None,
        stopping: "StopMonitor | None" = None,
        finished_at: datetime | None = None,
    ) -> None:
        """`watch` and `watch_step` are called with each finished item and step after its commit. Workers in
        other processes build their context from `settings`, `models` and `functions`. `find_reference` adds
        the ground truth to evaluated sessions, `load_checkpoint(item_id)` says where an item that was
        attempted before goes on, `people` are asked for the actors they play. `stopping` says when the run
        may stop early. `finished_at` is when a batch without items left had ended; None: it ends now."""
        self._stopping = stopping
        self._finished_at = finished_at
        self._skipped = 0
        self._store = store
        self._run_id = run_id
        self._owner = owner
        self._context = context
        self._engine = engine or LocalEngine()
        self._watch = watch
        self._watch_step = watch_step
        self._find_reference = find_reference
        self._load_checkpoint = load_checkpoint
        self._people = people
        self._settings = settings
        self._models = models or ModelOptions()
        self._functions = functions or Functions()
        self._stop_reason: AttemptError | None = None
        self._failure: StoreError | None = None
        self._host: StoreHost | None = None
        self._running: asyncio.Task[None] | None = None
        self._last_steps: dict[str, StepFinished] = {}
        """The last step of each running item."""

    async def run(self) -> BatchEnd:
        """Execute everything that is queued. Raises a `StoreError` when nothing can be written any more."""
        loop = asyncio.get_running_loop()
        ownership = Ownership(
            run_id=self._run_id,
            owner=self._owner,
            aborted=lambda: call_on_loop(loop, self.abort),
            failed=lambda error: call_on_loop(loop, lambda: self._fail(error)),
        )
        writer = self._store.writer(ownership)
        try:
            await self._run_items(writer)
            end = self._end()
            await asyncio.wrap_future(writer.submit(lambda connection: self._close(connection, end)))
        finally:
            if self._host:
                self._host.withdraw_limits()
            await asyncio.to_thread(writer.close)
        return end

    def abort(self) -> None:
        """Stop everything for good; items that have not started never will."""
        self._stop(Aborted("the batch was aborted"))

    def interrupt(self) -> None:
        """Stop everything for now; the batch can be resumed."""
        self._stop(Interrupted("the batch was interrupted"))

    async def _run_items(self, writer: Writer) -> None:
        batch = self._store.read.batch(self._run_id, self._context.now())
        # A run that may stop early learns of its results as soon as possible; other observers can wait for a
        # full commit, which takes less time than several small ones.
        notifier = CommitNotifier(writer, at_once=self._stopping is not None)
        watch, watch_step = self._watch, self._watch_step
        rows: Writer | StepRows = writer
        if watch_step:
            rows = StepRows(writer, partial(self._announce_step, notifier, watch_step))
        sessions = SessionCache(self._store, self._find_reference)
        pace = WriterPace(writer)

        async def may_start() -> None:
            await pace.caught_up()
            # What a run may stop after is not overtaken by items that it would no longer need.
            if self._stopping:
                await notifier.caught_up()

        queue = WorkQueue(
            self._load_page,
            (lambda item_id: self._checkpoint(item_id, writer)) if self._load_checkpoint else None,
            self._stopping.wants if self._stopping else None,
            sessions.announce,
            may_start,
        )
        if self._stopping:
            watch = self._watch_until_decided(self._stopping, queue, watch)
        limits = MoneyLimits(run_usd=batch["budgetUsd"], store_usd=self._context.store_budget_usd)
        self._host = StoreHost(
            self._store,
            writer,
            queue,
            run_id=self._run_id,
            context=self._context,
            limits=limits,
            rows=rows,
            finished=partial(self._announce_item, notifier, watch) if watch else None,
            sessions=sessions,
            people=self._people,
            pace=pace,
        )
        spec = self._worker_spec(batch, limits)
        self._running = asyncio.create_task(self._engine.run(queue, self._host, spec))
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
            queue.stop()
        if self._failure:
            raise self._failure
        if not notifier.idle.is_set():
            writer.flush()
        await notifier.idle.wait()
        self._skipped = queue.skipped

    def _announce_step(
        self, notifier: CommitNotifier, watch: Callable[[StepFinished], None], step: StepFinished
    ) -> None:
        """Pass a step on after its commit, unless something of its item has followed by then."""
        self._last_steps[step.item_id] = step

        def notify() -> None:
            if self._last_steps.get(step.item_id) is step:
                watch(step)

        notifier.announce(notify)

    def _announce_item(
        self, notifier: CommitNotifier, watch: Callable[[ItemFinished], None], item: ItemFinished
    ) -> None:
        self._last_steps.pop(item.id, None)
        notifier.announce(partial(watch, item))

    @staticmethod
    def _watch_until_decided(
        stopping: "StopMonitor", queue: WorkQueue, watch: Callable[[ItemFinished], None] | None
    ) -> Callable[[ItemFinished], None]:
        """Follow each committed item, and end the queue once everything is decided."""

        def finished(item: ItemFinished) -> None:
            stopping.finished(item)
            if watch:
                watch(item)
            if stopping.is_decided:
                queue.stop()

        if stopping.is_decided:
            queue.stop()
        return finished

    def _worker_spec(self, batch: BatchRow, limits: MoneyLimits) -> WorkerSpec:
        # The store, its password and the keys of the server's callers stay with the driver.
        settings = self._settings and replace(
            self._settings,
            store_url="",
            hidden_files=self._settings.store_files,
            serve={},
            access_keys={},
            tokens={},
            watches=(),
        )
        return WorkerSpec(
            run_id=self._run_id,
            job=batch["job"],
            seed=batch["seed"] or 0,
            holder=self._owner,
            concurrency=batch["concurrency"],
            is_budgeted=limits.are_any,
            retry=self._context.retry,
            settings=settings,
            models=self._models,
            evaluators=self._context.evaluators,
            functions=self._functions,
        )

    async def _load_page(self, after: int) -> Sequence[QueuedItem]:
        return await asyncio.to_thread(self._store.read.queued, self._run_id, after=after, limit=PAGE_SIZE)

    async def _checkpoint(self, item_id: str, writer: Writer) -> object | None:
        assert self._load_checkpoint
        # The last attempt may have been made by this run: its rows must be committed.
        await asyncio.wrap_future(writer.flush())
        return await asyncio.to_thread(self._load_checkpoint, item_id)

    def _stop(self, reason: AttemptError) -> None:
        if self._stop_reason is None:
            self._stop_reason = reason
            self._engine.stop(reason)
            if self._running:
                self._running.cancel()

    def _fail(self, error: StoreError) -> None:
        self._failure = error
        if self._running:
            self._running.cancel()

    def _end(self) -> BatchEnd:
        if isinstance(self._stop_reason, Aborted):
            return BatchEnd(status="aborted", reason="aborted")
        if self._stop_reason:
            return BatchEnd(status="interrupted", reason="interrupted")
        if self._host and self._host.halted_by:
            return BatchEnd(status="halted", reason=self._host.halted_by)
        if self._stopping and self._stopping.is_decided:
            return BatchEnd(status="completed", reason="decided")
        return BatchEnd(status="completed", reason="undecided" if self._skipped else "")

    def _close(self, connection: Connection, end: BatchEnd) -> None:
        now = self._context.now()
        if end.status == "aborted":
            end_items(connection, self._run_id, "aborted", "the batch was aborted", now)
        finish(connection, self._run_id, end.status, end.reason, self._finished_at or now)
        for holder in (self._owner, *(self._host.money_holders if self._host else ())):
            ledger.close(connection, self._run_id, holder, now)
