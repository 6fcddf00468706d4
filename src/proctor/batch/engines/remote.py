"""The driver's side of workers in other processes, on this machine or on others.

The driver stays the only owner of queue, store, ledger, merges and people. It exchanges messages with each
worker over a channel: items in chunks, recorded rows and ended attempts many at a time. The items of a worker
that dies are queued again.
"""

import asyncio
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, cast

from proctor.batch.engines import Engine
from proctor.batch.engines.messages import (
    AttemptEnd,
    Ended,
    Finish,
    HostCall,
    HostCancel,
    HostReply,
    Ready,
    Report,
    ReturnMoney,
    RowBatch,
    Stop,
    UserMessage,
    WorkChunk,
    WorkerSpec,
)
from proctor.batch.engines.worker import limit_and_share
from proctor.batch.engines.worker_process import picklable
from proctor.batch.queue import WorkItem, WorkQueue
from proctor.errors import Interrupted, StoreError
from proctor.formatting import plural
from proctor.models.rate_limits import PoolState
from proctor.processes import undisturbed
from proctor.store import Drawn
from proctor.store.tables import SessionRow

if TYPE_CHECKING:
    from proctor.batch.host import DriverHost

AHEAD_SECONDS = 0.1
"""A worker has as many items ahead as it finishes in this time: longer than a message takes both ways."""
RATE_SECONDS = 0.1
"""Window in which finished items are counted. A shorter one would mistake two ends of long items for many."""
HOST_METHODS = frozenset(
    {"committed", "draw", "give_back", "share_limits", "load_session", "resource", "merge", "ask_person"}
)
"""What a worker may call on the driver."""


class MessageChannel(Protocol):
    """The driver's end of the connection to a worker."""

    def send(self, message: object) -> None:
        """Send a message; to a worker that has died, nothing is sent."""

    async def receive(self) -> object | None:
        """The next message; None when the worker has died."""

    def close(self) -> None:
        """Close this end."""


@dataclass(slots=True, eq=False)
class Link:
    """A worker, as the driver sees it."""

    channel: MessageChannel
    concurrency: int
    now: Callable[[], float]
    holder: str = ""
    """Its name in the ledger; empty until it has started."""
    items: dict[str, WorkItem] = field(default_factory=dict)
    """Items that it has and has not finished."""
    sessions: dict[str, str] = field(default_factory=dict)
    """Sessions of its running attempts, by item."""
    calls: dict[int, asyncio.Task[object]] = field(default_factory=dict)
    """Its calls that are being answered."""
    slots: dict[str, int] = field(default_factory=dict)
    """Concurrent calls that it may make, by rate limit; none: as many as each worker begins with."""
    ahead: int = 0
    """Items beyond its concurrency that it has while it finishes many."""
    _ends: int = 0
    _counted_at: float = 0.0

    @property
    def room(self) -> int:
        """How many more items it can have."""
        return max(0, self.concurrency + self.ahead - len(self.items))

    def give(self, items: Sequence[WorkItem]) -> None:
        """Send it items."""
        for work in items:
            self.items[work.id] = work
        self.channel.send(WorkChunk(tuple(items)))

    def take_back(self, item_id: str) -> WorkItem:
        """An item whose attempt there has ended."""
        return self.items.pop(item_id)

    def count_ends(self, ends: int) -> None:
        """Have as many items ahead as it finishes while a message is under way; none when they take long."""
        self._ends += ends
        seconds = self.now() - self._counted_at
        if seconds >= RATE_SECONDS:
            self.ahead = int(self._ends / seconds * AHEAD_SECONDS)
            self._ends, self._counted_at = 0, self.now()


class RemoteEngine(Engine):
    """Runs the items of a batch with workers in other processes. Use once.

    Subclasses start the workers in `_start_workers` and follow each with `_follow_worker`.
    """

    worker_noun = "worker process"

    def __init__(
        self,
        *,
        note: Callable[[str], None] = lambda _: None,
        info: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`note` and `info` receive messages for the user."""
        super().__init__()
        self._note = note
        self._info = info
        self._last_text = ""
        self._links: set[Link] = set()
        self._has_room = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._ending = False
        """Whether workers have been told to finish or to stop."""
        self._lost_sessions = list[SessionRow]()

    @abstractmethod
    def close(self) -> None:
        """End all workers. Blocks."""

    async def run(self, host: "DriverHost", spec: WorkerSpec) -> None:
        """Run everything in the queue."""
        running = asyncio.create_task(self._run(host, spec))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop_workers()
            with suppress(Exception):
                await undisturbed(_result(running))
            raise
        finally:
            await undisturbed(asyncio.to_thread(self.close))

    def add_lost(self, sessions: Iterable[SessionRow]) -> None:
        """Add attempts that were cut off, whose files may be on the machines of workers."""
        self._lost_sessions += sessions

    async def _run(self, host: "DriverHost", spec: WorkerSpec) -> None:
        if self._ending:
            return
        self._feeding = asyncio.create_task(self._feed(host.queue))
        await self._wait_for({self._feeding, *await self._start_workers(host, spec)})

    @abstractmethod
    async def _start_workers(self, host: "DriverHost", spec: WorkerSpec) -> "set[asyncio.Task[None]]":
        """Start the workers; the tasks that follow them."""

    async def _wait_for(self, tasks: "set[asyncio.Task[None]]") -> None:
        """Wait for all tasks; when one fails, stop the workers, and raise its error once all have ended."""
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if pending:
            self._stop_workers()
            done |= (await asyncio.wait(pending))[0]
        for task in done:
            if not task.cancelled():
                task.result()

    async def _feed(self, queue: WorkQueue) -> None:
        """Send items to the workers until there are none."""
        while True:
            link = await self._link_with_room()
            share = math.ceil(queue.ready / len(self._links))
            items = await queue.chunk(min(link.room, max(1, share)))
            if not items:
                break
            while items:
                link = await self._link_with_room()
                room = link.room
                link.give(items[:room])
                items = items[room:]
        self._end_workers(Finish())

    async def _link_with_room(self) -> Link:
        while True:
            if (link := max(self._links, key=lambda link: link.room, default=None)) and link.room:
                return link
            self._has_room.clear()
            await self._has_room.wait()

    async def _follow_worker(self, link: Link, spec: WorkerSpec, host: "DriverHost") -> bool:
        """Follow a worker to its end. False: it died, and its items are queued again."""
        link.channel.send(spec)
        self._links.add(link)
        self._has_room.set()
        if self._ending:
            link.channel.send(self._last_message())
        try:
            ended = await self._follow(link, host)
        finally:
            self._links.discard(link)
            for call in link.calls.values():
                call.cancel()
            link.channel.close()
        if ended is None:
            await self._recover(link, host)
            return False
        if ended.error:
            raise ended.error
        return True

    async def _follow(self, link: Link, host: "DriverHost") -> Ended | None:
        """Handle the messages of a worker; its last one, or None when it died."""
        while (message := await link.channel.receive()) is not None:
            if isinstance(message, Report):
                await self._write(link, message, host)
            elif isinstance(message, HostCall):
                self._start_call(link, message, host)
            elif isinstance(message, HostCancel):
                if call := link.calls.get(message.number):
                    call.cancel()
            elif isinstance(message, UserMessage):
                if message.text != self._last_text:
                    # Workers notice the same thing at the same time.
                    self._last_text = message.text
                    self._info(message.text)
            elif isinstance(message, Ready):
                link.holder = message.holder
            elif isinstance(message, Ended):
                return message
        return None

    async def _write(self, link: Link, report: Report, host: "DriverHost") -> None:
        for (table, key), row in report.rows.added.items():
            if table == "sessions":
                link.sessions[str(row["itemId"])] = key[0]
        ends = list[AttemptEnd]()
        for packed in report.ends:
            link.sessions.pop(packed[0], None)
            ends.append(AttemptEnd.unpack(packed, link.take_back(packed[0])))
        await host.write(RowBatch(report.rows, tuple(ends)))
        link.count_ends(len(ends))
        if ends:
            self._has_room.set()

    def _start_call(self, link: Link, call: HostCall, host: "DriverHost") -> None:
        task = asyncio.create_task(self._call_host(link, call, host))
        link.calls[call.number] = task
        # Not in the task: one that is cancelled before its first step does nothing at all.
        task.add_done_callback(lambda _: self._reply(link, call.number, task))

    @staticmethod
    def _reply(link: Link, number: int, task: "asyncio.Task[object]") -> None:
        """Answer a call that has ended; a cancelled one too, because the worker waits for its end."""
        link.calls.pop(number, None)
        if task.cancelled():
            link.channel.send(HostReply(number))
        elif error := task.exception():
            link.channel.send(HostReply(number, error=picklable(error)))
        else:
            link.channel.send(HostReply(number, task.result()))

    async def _call_host(self, link: Link, call: HostCall, host: "DriverHost") -> object:
        """Call a method of the host for a worker."""
        if call.method not in HOST_METHODS:
            raise TypeError(f"workers cannot call {call.method}")
        value: object = await getattr(host, call.method)(*call.arguments, **call.options)
        if call.method == "share_limits":
            states, others = (
                cast("Sequence[PoolState]", call.arguments[1]),
                cast("Sequence[PoolState]", value),
            )
            return self._split_limits(link, states, others)
        if isinstance(value, Drawn) and value.others_hold:
            self._reclaim_money(link)
        return value

    def _split_limits(
        self, link: Link, states: Sequence[PoolState], others: Sequence[PoolState]
    ) -> Sequence[PoolState]:
        """What a worker needs to know of the limits of others, so that all workers together keep them.

        Another worker counts with the calls that it may make, also while it makes fewer.
        """
        workers = {each.holder: each for each in self._links if each is not link}
        counted = [
            other if other.holder not in workers else _with_slots(other, workers[other.holder].slots)
            for other in others
        ]
        for state in states:
            published = {other.holder for other in others if other.name == state.name}
            first = max(1, int(state.limit_of_all / len(self._links)))
            counted += [
                replace(
                    state, holder=holder, in_use=first, waiting=-first, held_seconds=0.0, cut_seconds_ago=None
                )
                for holder in workers.keys() - published
            ]
            rest = [other for other in counted if other.name == state.name]
            limit, share = limit_and_share(state.limit_of_all, state, rest)
            link.slots[state.name] = max(1, int(limit * share))
        return counted

    def _reclaim_money(self, short: Link) -> None:
        """Another worker may have drawn what this one needs and reserved it for nothing."""
        for link in self._links - {short}:
            link.channel.send(ReturnMoney())

    async def _recover(self, link: Link, host: "DriverHost") -> None:
        """Queue the items of a worker that died."""
        if link.items and not self._ending:
            again = plural(len(link.items), "item")
            self._note(f"a {self.worker_noun} died; {again} that it had will be run again")
        sessions = {}
        if link.holder:
            try:
                rows, spent = await host.worker_lost(link.holder, list(link.sessions.values()))
            except StoreError:
                # Nothing more can be written, which ends the batch anyway.
                return
            self.add_lost(rows)
            sessions = {row["itemId"]: row for row in rows}
        for work in link.items.values():
            if row := sessions.get(work.id):
                work.attempts = row["attempt"]
                work.tokens += row["totalTokens"]
                work.tool_calls += row["toolCalls"]
                if row["costUsd"] is not None:
                    work.cost_usd = (work.cost_usd or 0.0) + row["costUsd"]
                work.spent_usd += spent[row["id"]]
                work.started_at = work.started_at or row["startedAt"]
            host.queue.retry(work, 0.0)

    def _stop_workers(self) -> None:
        if self._feeding:
            self._feeding.cancel()
        self._stop_reason = self._stop_reason or Interrupted("the batch was stopped")
        self._end_workers(self._last_message())

    def _last_message(self) -> Stop | Finish:
        return Stop(self._stop_reason) if self._stop_reason else Finish()

    def _end_workers(self, message: Stop | Finish) -> None:
        # Also sent to workers that start later.
        self._ending = True
        for link in self._links:
            link.channel.send(message)


def _with_slots(other: PoolState, slots: Mapping[str, int]) -> PoolState:
    allowed = slots.get(other.name, other.in_use)
    return replace(other, in_use=allowed, waiting=other.in_use + other.waiting - allowed)


async def _result(task: "asyncio.Task[None]") -> None:
    await task
