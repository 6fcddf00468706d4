"""Async work queue, read from the store in pages so that a batch of any size takes little memory."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proctor.item import Item
from proctor.store import item_of
from proctor.store.reader import QueuedItem

PAGE_SIZE = 500


@dataclass(slots=True, kw_only=True)
class WorkItem:
    """An item with the sums of its attempts so far."""

    item: Item
    id: str
    attempts: int
    """All attempts so far; the next one has the next number."""
    tries: int
    """Attempts so far that were not cut off: those that count against `retries`."""
    tokens: int = 0
    tool_calls: int = 0
    cost_usd: float | None = None
    spent_usd: float = 0.0
    """What its attempts have spent, or may have spent, by the ledger; 0 where nothing limits its spending."""
    started_at: str | None = None
    checkpoint: object | None = None
    """Where its earlier attempts were interrupted, for its runner; None: it starts over."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of its agent: the resources of the machine that it may use."""

    @classmethod
    def of(cls, row: QueuedItem) -> "WorkItem":
        """The work item of a queued row."""
        return cls(
            item=item_of(row),
            id=row["id"],
            attempts=row["attempts"],
            tries=row["tries"],
            tokens=row["tokensTotal"],
            tool_calls=row["toolCalls"],
            cost_usd=row["costUsd"],
            spent_usd=row.get("spentUsd", 0.0),
            started_at=row["startedAt"],
        )


class WorkQueue:
    """Returns items until none is left and none can be queued for another attempt."""

    def __init__(
        self,
        load: Callable[[int], Awaitable[Sequence[QueuedItem]]],
        load_checkpoint: Callable[[str], Awaitable[object | None]] | None = None,
        is_needed: Callable[[str], bool] | None = None,
        announce: Callable[[Iterable[WorkItem]], None] | None = None,
        caught_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`load(after)` returns the next page of queued rows after a position, `load_checkpoint(item_id)`
        where an item that was attempted before goes on. Items for which `is_needed(item_id)` is false are
        skipped; they stay queued in the store. `announce` is called with the items of each page, and
        `caught_up` before each item: it waits until one may start."""
        self._caught_up = caught_up
        self._is_needed = is_needed
        self._announce = announce
        self.skipped = 0
        """Items that were not needed."""
        self._load_page = load
        self._load_checkpoint = load_checkpoint
        self._attempted_before: set[str] = set()
        """Items with earlier attempts whose checkpoint is not loaded yet."""
        self._after = -1
        self._ready: deque[WorkItem] = deque()
        self._exhausted = False
        self._stopped = False
        self._in_progress = 0
        """Items that are running, or wait for another attempt."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loading = asyncio.Lock()
        self._next_page: asyncio.Future[Sequence[QueuedItem]] | None = None
        """The page after the one that is being run, read meanwhile."""

    async def next(self) -> WorkItem | None:
        """The next item, waiting for it if necessary; None when all is done or the queue is stopped."""
        while not self._stopped:
            if self._caught_up:
                await self._caught_up()
                if self._stopped:
                    break
            if work := self._pop_needed():
                if work.id in self._attempted_before:
                    await self._add_checkpoint(work)
                return work
            if not self._exhausted:
                await self._load()
            elif self._in_progress:
                await self._wait()
            else:
                break
        return None

    @property
    def ready(self) -> int:
        """Items that `next` returns without waiting, some of which may turn out not to be needed."""
        return 0 if self._stopped else len(self._ready)

    async def chunk(self, limit: int) -> list[WorkItem]:
        """The next items, as many as are ready and at most `limit`; empty when `next` would return None."""
        first = await self.next()
        items = [first] if first else []
        # Not `next`: where the others turn out not to be needed, it would wait for the first one to end.
        while items and len(items) < limit and (work := self._pop_needed()):
            if work.id in self._attempted_before:
                await self._add_checkpoint(work)
            items.append(work)
        return items

    def _pop_needed(self) -> WorkItem | None:
        """Take the first item that is ready and needed; None: there is none, or the queue is stopped."""
        while self._ready and not self._stopped:
            work = self._ready.popleft()
            if not self._is_needed or self._is_needed(work.id):
                self._in_progress += 1
                return work
            self.skipped += 1
        return None

    async def _add_checkpoint(self, work: WorkItem) -> None:
        # One at a time, not with the page: a checkpoint may be large.
        assert self._load_checkpoint
        self._attempted_before.remove(work.id)
        work.checkpoint = await self._load_checkpoint(work.id)

    def done(self) -> None:
        """Mark an item that `next` returned as finished."""
        self._in_progress -= 1
        if not self._in_progress and self._exhausted:
            self._wake_all()

    def retry(self, work: WorkItem, delay_seconds: float) -> None:
        """Queue an item again for another attempt after a delay."""
        if self._load_checkpoint:
            self._attempted_before.add(work.id)
        asyncio.get_running_loop().call_later(delay_seconds, self._return, work)

    def stop(self) -> None:
        """Return no more items; those in the store stay queued."""
        self._stopped = True
        if self._next_page:
            self._next_page.cancel()
        self._wake_all()

    def _return(self, work: WorkItem) -> None:
        self._in_progress -= 1
        # Ahead of new items: an item that is half done is worth more finished.
        self._ready.appendleft(work)
        self._wake_one()

    async def _load(self) -> None:
        async with self._loading:
            if self._ready or self._exhausted or self._stopped:
                return
            page, self._next_page = self._next_page or self._start_loading(), None
            rows = await page
            self._ready.extend(map(WorkItem.of, rows))
            if self._announce:
                self._announce(self._ready)
            if self._load_checkpoint:
                self._attempted_before.update(row["id"] for row in rows if row["attempts"])
            if rows:
                self._after = rows[-1]["position"]
                # Short items would otherwise all end, and wait, whenever a page has been used up.
                self._next_page = self._start_loading()
            else:
                self._exhausted = True
                if not self._in_progress:
                    self._wake_all()

    def _start_loading(self) -> "asyncio.Future[Sequence[QueuedItem]]":
        return asyncio.ensure_future(self._load_page(self._after))

    async def _wait(self) -> None:
        # One future per waiter, so that an item that comes back wakes one task and not a thousand.
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._waiters:
            self._wake_one()
