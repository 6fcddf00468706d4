"""Where work is done: in this process, many pieces at once.

This is the seam for a cluster: an engine is given a feed and told how to carry out one piece of
work, and both are plain enough to stand on another machine.

Knows nothing of items, agents or stores.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from proctor.batch.queue import WorkItem, WorkQueue

CarryOut = Callable[[WorkItem], Awaitable[float | None]]
"""Does one attempt; the seconds until the next one, None when the work is finished."""


class Engine(Protocol):
    """Someone who works through a feed."""

    async def run(self, feed: WorkQueue, carry_out: CarryOut, concurrency: int) -> None:
        """Carry out all of it, at most `concurrency` pieces at a time.

        When cancelled, stop what is under way before letting the cancellation pass.
        """


class LocalEngine:
    """This process."""

    async def run(self, feed: WorkQueue, carry_out: CarryOut, concurrency: int) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(_work(feed, carry_out))


async def _work(feed: WorkQueue, carry_out: CarryOut) -> None:
    while work := await feed.next():
        delay = await carry_out(work)
        if delay is None:
            feed.done()
        else:
            feed.again(work, delay)
