"""Where attempts run. `LocalEngine` runs them in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from proctor.batch.queue import WorkItem, WorkQueue

RunAttempt = Callable[[WorkItem], Awaitable[float | None]]
"""Makes one attempt; the seconds until the next one, None when the item is finished."""


class Engine(Protocol):
    """Works through a queue."""

    async def run(self, queue: WorkQueue, run_attempt: RunAttempt, concurrency: int) -> None:
        """Run all of it, at most `concurrency` items at a time.

        When cancelled, stop what is running before the cancellation is passed on.
        """


class LocalEngine:
    """Runs attempts in this process and event loop."""

    async def run(self, queue: WorkQueue, run_attempt: RunAttempt, concurrency: int) -> None:
        """Run all of it, at most `concurrency` items at a time."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(_work(queue, run_attempt))


async def _work(queue: WorkQueue, run_attempt: RunAttempt) -> None:
    while work := await queue.next():
        delay = await run_attempt(work)
        if delay is None:
            queue.done()
        else:
            queue.again(work, delay)
