"""Carry out one batch, from its first item to its last, or to the moment someone stops it.

Introduces runners to the store, neither of which has heard of the other. Whatever ends the batch,
its rows say the truth: what is finished is finished, what was under way is known to have been, and
what has not begun is still in the queue.

Knows nothing of plans, or of how anything is shown.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proctor.batch.attempt import Attempts
from proctor.batch.engines import Engine, LocalEngine
from proctor.batch.events import CommitNotifier, tell
from proctor.batch.queue import PAGE, WorkQueue
from proctor.batch.rate_limit_sync import hear_of_pools, share_pools
from proctor.budget.allocation import BatchBudget
from proctor.budget.ledger_client import LedgerClient
from proctor.context import AttemptContext
from proctor.errors import Aborted, AttemptError, Interrupted, StoreError
from proctor.evaluator import Evidence, FindReference
from proctor.job import BatchEnd, ItemFinished
from proctor.store import MoneyLimits, Ownership, Store, Writer, ledger
from proctor.store.batches import end_items, finish
from proctor.store.database import Connection

MOST_KEPT = 8
"""Cached sessions: as many as are evaluated in parallel by default. A long one may take many megabytes."""


class SessionCache:
    """Loads the sessions that the items of one batch evaluate, with their ground truth."""

    def __init__(self, store: Store, find_reference: FindReference | None = None) -> None:
        self._store = store
        self._find_reference = find_reference
        self._kept: OrderedDict[str, Evidence] = OrderedDict()

    async def show(self, session_id: str, traces: Sequence[str] = (), scenario: str = "") -> Evidence:
        """A session with its ground truth; of some `traces` alone, if any are named."""
        evidence = self._kept.get(session_id)
        if evidence is None:
            evidence = await asyncio.to_thread(self._store.read.evidence, session_id)
            self._kept[session_id] = evidence
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        if self._find_reference:
            evidence = replace(evidence, reference=self._find_reference(evidence.session_id, scenario))
        return narrowed(evidence, traces) if traces else evidence


def narrowed(evidence: Evidence, traces: Sequence[str]) -> Evidence:
    """The same session, of which only these traces, and the tool calls in them, are judged."""
    wanted = set(traces)
    calls = {
        call.call_id
        for trace in evidence.traces
        if trace.id in wanted
        for call in trace.tool_calls
        if call.call_id
    }
    return replace(evidence, targets=frozenset(wanted | calls))


BACKLOG = 10_000
"""Rows that may wait for the writer before new work waits too: some 10 MB."""


class Executor:
    """Carries out a batch that this process owns. Use once."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        owner: str,
        context: AttemptContext,
        *,
        engine: Engine | None = None,
        watch: Callable[[ItemFinished], None] | None = None,
        find_reference: FindReference | None = None,
    ) -> None:
        """`watch` is called with each item that ended, once that is committed; `find_reference` adds the
        ground truth to the sessions that items evaluate."""
        self._store = store
        self._run_id = run_id
        self._owner = owner
        self._context = context
        self._engine = engine or LocalEngine()
        self._watch = watch
        self._find_reference = find_reference
        self._stopping: AttemptError | None = None
        self._failure: StoreError | None = None
        self._attempts: Attempts | None = None
        self._work: asyncio.Task[None] | None = None

    async def run(self) -> BatchEnd:
        """Work until nothing is left, money is spent, or someone stops it."""
        loop = asyncio.get_running_loop()
        ownership = Ownership(
            run_id=self._run_id,
            owner=self._owner,
            aborted=lambda: tell(loop, self.abort),
            failed=lambda error: tell(loop, lambda: self._lose(error)),
        )
        writer = self._store.writer(ownership)
        context = self._context
        sharing = asyncio.create_task(
            share_pools(context.pools, writer, self._run_id, self._owner, context.now)
        )
        try:
            await hear_of_pools(context.pools, writer, self._owner, context.now)
            await self._work_through(writer)
            ending = self._ending()
            await asyncio.wrap_future(writer.ask(lambda connection: self._close(connection, ending)))
        finally:
            sharing.cancel()
            await asyncio.wait([sharing])
            await asyncio.to_thread(writer.close)
        return ending

    def abort(self) -> None:
        """Stop everything for good; what has not begun is not going to."""
        self._stop(Aborted("the batch was aborted"))

    def interrupt(self) -> None:
        """Stop everything for now; the batch can be resumed."""
        self._stop(Interrupted("the batch was interrupted"))

    async def _work_through(self, writer: Writer) -> None:
        batch = self._store.read.batch(self._run_id, self._context.now())
        announcer = CommitNotifier(self._watch, writer) if self._watch else None
        queue = WorkQueue(lambda after: self._queued(after, writer))
        budget = self._budget(batch, writer)
        attempts = self._attempts = Attempts(
            run_id=self._run_id,
            job=batch["job"],
            seed=batch["seed"] or 0,
            context=self._context,
            writer=writer,
            budget=budget,
            stop_queue=queue.stop,
            finished=announcer.announce if announcer else None,
            evidence=SessionCache(self._store, self._find_reference).show,
        )
        attempts.stopping = self._stopping
        self._work = asyncio.create_task(self._engine.run(queue, attempts.run, batch["concurrency"]))
        if self._stopping:
            self._work.cancel()
        try:
            await self._work
        except asyncio.CancelledError:
            if self._stopping is None and self._failure is None:
                self._stop(Interrupted("the batch was interrupted"))
                await asyncio.wait([self._work])
                raise
        except BaseExceptionGroup as group:
            raise self._failure or _first(group) from group
        if self._failure:
            raise self._failure
        await budget.idle()
        if announcer:
            await announcer.idle.wait()

    def _budget(self, batch: Mapping[str, Any], writer: Writer) -> BatchBudget:
        limits = MoneyLimits(run_usd=batch["budgetUsd"], store_usd=self._context.store_budget_usd)
        now = self._context.now
        till = LedgerClient(self._store, self._run_id, self._owner, limits, now)
        return BatchBudget(till=till, places=batch["concurrency"], writer=writer, now=now)

    async def _queued(self, after: int, writer: Writer) -> Sequence[Mapping[str, Any]]:
        # Asking for the next page is the moment to let the writer catch up.
        if writer.backlog > BACKLOG:
            await asyncio.wrap_future(writer.flush())
        return await asyncio.to_thread(self._store.read.queued, self._run_id, after=after, limit=PAGE)

    def _stop(self, why: AttemptError) -> None:
        if self._stopping is None:
            self._stopping = why
            if self._attempts:
                self._attempts.stopping = why
            if self._work:
                self._work.cancel()

    def _lose(self, error: StoreError) -> None:
        self._failure = error
        if self._work:
            self._work.cancel()

    def _ending(self) -> BatchEnd:
        if isinstance(self._stopping, Aborted):
            return BatchEnd(status="aborted", reason="aborted")
        if self._stopping:
            return BatchEnd(status="interrupted", reason="interrupted")
        if self._attempts and self._attempts.halted_by:
            return BatchEnd(status="halted", reason=self._attempts.halted_by)
        return BatchEnd(status="completed")

    def _close(self, connection: Connection, ending: BatchEnd) -> None:
        now = self._context.now()
        if ending.status == "aborted":
            end_items(connection, self._run_id, "aborted", "the batch was aborted", now)
        finish(connection, self._run_id, ending.status, ending.reason, now)
        ledger.close(connection, self._run_id, self._owner, now)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
