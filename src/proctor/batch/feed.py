"""What is to be done next.

Reads the queue from the store in pages, so that a batch of any size takes little memory, and
keeps the few items that are to be tried again later.

Knows nothing of how items are carried out.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.item import Item
from proctor.store import item_of

PAGE = 500


@dataclass(slots=True, kw_only=True)
class Work:
    """An item on its way through the batch, with what its attempts came to so far."""

    item: Item
    id: str
    attempts: int
    """All attempts so far; the next one has the next number."""
    tries: int
    """Attempts so far that ended by themselves: those that count against `retries`."""
    tokens: int = 0
    tool_calls: int = 0
    cost_usd: float | None = None
    started_at: str | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Work":
        return cls(
            item=item_of(row),
            id=row["id"],
            attempts=row["attempts"],
            tries=row["tries"],
            tokens=row["tokensTotal"],
            tool_calls=row["toolCalls"],
            cost_usd=row["costUsd"],
            started_at=row["startedAt"],
        )


class Feed:
    """Hands out work until there is none left and none can come back."""

    def __init__(self, load: Callable[[int], Awaitable[Sequence[Mapping[str, Any]]]]) -> None:
        """`load(after)` gives the next page of queued rows behind a position."""
        self._load_page = load
        self._after = -1
        self._page: deque[Work] = deque()
        self._exhausted = False
        self._stopped = False
        self._out = 0
        self._later: list[tuple[float, int, Work]] = []
        self._ties = itertools.count()
        self._changed = asyncio.Event()
        self._loading = asyncio.Lock()

    async def next(self) -> Work | None:
        """The next piece of work, waiting for it if need be; None when all is done or stopped."""
        while not self._stopped:
            if work := self._take():
                self._out += 1
                return work
            if not self._exhausted:
                await self._load()
            elif self._out or self._later:
                await self._wait()
            else:
                break
        return None

    def done(self) -> None:
        """A piece of work that was handed out is finished."""
        self._out -= 1
        if self._exhausted or self._stopped:
            self._changed.set()

    def again(self, work: Work, delay_seconds: float) -> None:
        """A piece of work that was handed out comes back after a while."""
        due = asyncio.get_running_loop().time() + delay_seconds
        heapq.heappush(self._later, (due, next(self._ties), work))
        self._out -= 1
        self._changed.set()

    def stop(self) -> None:
        """Hand out nothing more; what is queued stays queued."""
        self._stopped = True
        self._changed.set()

    def _take(self) -> Work | None:
        if self._later and self._later[0][0] <= asyncio.get_running_loop().time():
            return heapq.heappop(self._later)[2]
        return self._page.popleft() if self._page else None

    async def _load(self) -> None:
        async with self._loading:
            if self._page or self._exhausted:
                return
            rows = await self._load_page(self._after)
            self._page.extend(map(Work.of, rows))
            if rows:
                self._after = rows[-1]["position"]
            else:
                self._exhausted = True
                self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        loop = asyncio.get_running_loop()
        pause = max(0.0, self._later[0][0] - loop.time()) if self._later else None
        try:
            await asyncio.wait_for(self._changed.wait(), pause)
        except TimeoutError:
            pass
