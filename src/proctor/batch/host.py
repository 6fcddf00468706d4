"""The driver's side of a batch while its items run: queue, store, ledger, merges and people.

Workers call it, directly or by messages from other processes. Whoever follows a run learns of a step or an
item only once its rows are committed.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from proctor.batch.engines.messages import AttemptEnd, RowBatch
from proctor.batch.queue import PAGE_SIZE, WorkItem, WorkQueue
from proctor.context import People, RunContext, WorkerContext, people_of_run
from proctor.errors import AgentNotStarted, NotFound, ProctorError
from proctor.item import RUNNING
from proctor.job import ItemFinished, RunHooks, StepFinished
from proctor.json_values import JsonObject
from proctor.models.rate_limits import PoolState
from proctor.processes import undisturbed
from proctor.runner import MergeRequest, MergeResult
from proctor.store import Drawn, MoneyLimits, Store, Writer, ledger, timestamp
from proctor.store.batches import queue_lost
from proctor.store.database import Connection
from proctor.store.reader import QueuedItem
from proctor.store.tables import PoolRow, SessionRow
from proctor.store.writer import RowGroups

if TYPE_CHECKING:
    from proctor.batch.agent_starts import AgentStarts
    from proctor.cache import LruCache
    from proctor.evaluator import Evidence, FindReference
    from proctor.results.stopping import StopMonitor
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
        for entry in work:
            session_id = entry.item.settings.get("session")
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
        for upcoming in ids[1:]:
            del self._upcoming[upcoming]
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


class DriverHost:
    """The host of a run's workers, in the driver's process, on the store: calls go straight through."""

    def __init__(
        self,
        hooks: RunHooks,
        run_id: str,
        ctx: RunContext,
        context: WorkerContext,
        writer: Writer,
        *,
        watch: Callable[[ItemFinished], None],
        watch_step: Callable[[StepFinished], None] | None,
        stopping: "StopMonitor | None",
    ) -> None:
        """`watch` and `watch_step` are called with each finished item and step after its commit; `stopping`
        says when the run may stop early."""
        store = ctx.store
        self.context = context
        """Dependencies of attempts, for a worker in this process."""
        self.batch = store.read.batch(run_id, ctx.now())
        self.limits = MoneyLimits(
            run_usd=self.batch["budgetUsd"], store_usd=context.settings.store_budget_usd
        )
        self.writer = writer
        # A run that may stop early learns of its results as soon as possible; other observers can wait for a
        # full commit, which takes less time than several small ones.
        self._notifier = CommitNotifier(writer, at_once=stopping is not None)
        self.rows: Writer | StepRows = writer
        """Takes what attempts record, from a worker in this process directly."""
        self.halted_by = ""
        """What halts the batch: `budget`, `store_budget`, `cost_limit` of one item, or `agent_start`."""
        self._keeps_going = ctx.engine.keep_going
        self._note = ctx.note
        self.money_holders = {ctx.owner}
        """Workers that may have drawn money."""
        self._store = store
        self._hooks = hooks
        self._run_id = run_id
        self._watch = watch
        self._last_steps: dict[str, StepFinished] = {}
        """The last step of each running item."""
        self._stopping = stopping
        self._ctx = ctx
        self._pace = WriterPace(writer)
        self._limit_holders: set[str] = set()
        sessions = SessionCache(store, hooks.ground_truth())
        self.load_session = sessions.load
        self.queue = WorkQueue(
            self._load_page,
            self._load_checkpoint if hooks.implements("checkpoint") else None,
            stopping.wants if stopping else None,
            sessions.announce,
            self._may_start,
        )
        if watch_step:
            self.rows = StepRows(writer, partial(self._step_finished, watch_step))
        if stopping and stopping.is_decided:
            self.queue.stop()

    async def all_notified(self) -> None:
        """Wait until everything that has ended is committed and passed on."""
        if not self._notifier.idle.is_set():
            self.writer.flush()
        await self._notifier.idle.wait()

    def _step_finished(self, watch: Callable[[StepFinished], None], step: StepFinished) -> None:
        """Pass a step on after its commit, unless something of its item has followed by then."""
        self._last_steps[step.item_id] = step

        def notify() -> None:
            if self._last_steps.get(step.item_id) is step:
                watch(step)

        self._notifier.announce(notify)

    def _item_finished(self, item: ItemFinished) -> None:
        self._last_steps.pop(item.id, None)
        self._notifier.announce(partial(self._item_committed, item))

    def _item_committed(self, item: ItemFinished) -> None:
        """Follow a committed item, and end the queue once everything is decided."""
        if self._stopping:
            self._stopping.finished(item.id, item.outcome.status, item.outcome.reason, item.session_id)
        self._watch(item)
        if self._stopping and self._stopping.is_decided:
            self.queue.stop()

    async def _load_page(self, after: int) -> Sequence[QueuedItem]:
        return await asyncio.to_thread(self._store.read.queued, self._run_id, after=after, limit=PAGE_SIZE)

    async def _load_checkpoint(self, item_id: str) -> object | None:
        # The last attempt may have been made by this run: its rows must be committed.
        await self.committed()
        return await asyncio.to_thread(self._hooks.checkpoint, item_id)

    async def _may_start(self) -> None:
        await self._pace.caught_up()
        # What a run may stop after is not overtaken by items that it would no longer need.
        if self._stopping:
            await self._notifier.caught_up()

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
            self.queue.stop()
        if end.finished:
            self._follow_start(end.finished)
            if end.finished.work_seconds > LONG_ITEM_SECONDS:
                self.writer.hurry()
            self._item_finished(end.finished)
        if end.delay_seconds is None:
            self.queue.done()
        else:
            self.queue.retry(end.work, end.delay_seconds)

    def _follow_start(self, end: ItemFinished) -> None:
        """Halt the batch when an agent starts in none of its first items."""
        if not end.item.agent or self._keeps_going or self.halted_by:
            return
        if problem := self._starts.follow(end):
            self._note(problem)
            self.halted_by = AgentNotStarted.reason
            self.queue.stop()

    @cached_property
    def _starts(self) -> "AgentStarts":
        # Loaded with the first agent.
        from proctor.batch.agent_starts import AgentStarts

        return AgentStarts()

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        """Draw money from the ledger."""
        self.money_holders.add(holder)
        return await asyncio.to_thread(
            self._store.change,
            ledger.draw,
            self._run_id,
            holder,
            wanted_usd=wanted_usd,
            least_usd=least_usd,
            limits=self.limits,
            now=self.context.now(),
        )

    async def give_back(self, holder: str, usd: float) -> None:
        """Return drawn money to the ledger."""
        await asyncio.to_thread(
            self._store.change, ledger.give_back, self._run_id, holder, usd, self.context.now()
        )

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

        context = self.context
        return await merge(
            request,
            home=context.home,
            environment=context.git_environment,
            sandbox=context.settings.confinement,
        )

    @cached_property
    def _people(self) -> People:
        return people_of_run(self._run_id, self._ctx)

    async def ask_person(self, item_id: str, actor: str, prompt: str) -> str:
        """The answer of the person who plays an actor; empty: there is none."""
        return await self._people.ask(item_id, actor, prompt)

    async def copy_files(self, path: Path) -> "FileCopy":
        """A file or folder as data, for a worker that does not share this machine's disk."""
        from proctor.workspace.transfer import copy_files

        return await asyncio.to_thread(copy_files, path)

    async def copy_repository(self, path: Path, base: str, have: Collection[str]) -> "RepositoryCopy":
        """What a session that starts from `base` needs of a repository, without the commits `have`."""
        from proctor.workspace.transfer import copy_repository

        return await asyncio.to_thread(copy_repository, path, base, have, self.context.git_environment)

    async def starting_repository(self, files: "Files | None", digest: str) -> Path:
        """The repository of a task's starting files."""
        from proctor.workspace.starting_files import starting_repository

        return await starting_repository(self.context.home, files, digest, self.context.git_environment)

    async def publish_branch(self, repository: Path, branch: str, sha: str, bundle: bytes) -> None:
        """Fetch a session's branch into a repository; empty `bundle`: it adds no commit."""
        from proctor.workspace.source_repository import open_source
        from proctor.workspace.transfer import receive_branch

        source = await asyncio.to_thread(open_source, repository, self.context.git_environment)
        await undisturbed(asyncio.to_thread(receive_branch, source, branch, sha, bundle))

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


def pool_row(state: PoolState, run_id: str, now: datetime) -> JsonObject:
    """The row of a pool in the store."""
    held_until = timestamp(now + timedelta(seconds=state.held_seconds)) if state.held_seconds else None
    ago = state.cut_seconds_ago
    return {
        "name": state.name,
        "runId": run_id,
        "limit": state.limit_of_all,
        "inUse": state.in_use,
        "waiting": state.waiting,
        "calls": state.calls,
        "limited": state.limited,
        "waitedSeconds": state.waited_seconds,
        "heldUntil": held_until,
        "cutAt": None if ago is None else timestamp(now - timedelta(seconds=ago)),
    }


def pool_state(row: PoolRow, now: datetime) -> PoolState:
    """A pool of another process, from its row."""

    def seconds_until(moment: str) -> float:
        return (datetime.fromisoformat(moment) - now).total_seconds()

    return PoolState(
        name=row["name"],
        limit=int(row["limit"]),
        limit_of_all=float(row["limit"]),
        in_use=row["inUse"],
        waiting=row["waiting"],
        calls=row["calls"],
        limited=row["limited"],
        waited_seconds=row["waitedSeconds"],
        held_seconds=max(0.0, seconds_until(row["heldUntil"])) if row["heldUntil"] else 0.0,
        cut_seconds_ago=-seconds_until(row["cutAt"]) if row["cutAt"] else None,
        holder=row["owner"],
    )


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
