"""Time that counts: limits and measurements that leave out what an attempt had to wait for.

An attempt held back by a rate limit is not working; its time limit is put off by as much, and its
waiting is reported apart from its work.

Knows nothing of what is being timed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from proctor.errors import TimeLimit


class WorkClock:
    """Measures one attempt."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._started = monotonic()
        self._limits: list[asyncio.Timeout] = []
        self.waiting_seconds = 0.0
        """How long the attempt was held back so far."""

    @property
    def work_seconds(self) -> float:
        """How long it worked so far."""
        return max(0.0, self._monotonic() - self._started - self.waiting_seconds)

    @asynccontextmanager
    async def time_limit(self, seconds: float | None, what: str) -> AsyncIterator[None]:
        """End what is inside with a `TimeLimit` once it has worked so long. None: no limit."""
        if seconds is None:
            yield
            return
        try:
            async with asyncio.timeout(seconds) as limit:
                self._limits.append(limit)
                try:
                    yield
                finally:
                    self._limits.remove(limit)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeLimit(f"{what} did not finish within {seconds:g} s") from error

    def waited(self, seconds: float) -> None:
        """Say, before it begins, that the attempt is going to be held back for so long."""
        self.waiting_seconds += seconds
        for limit in self._limits:
            ends = limit.when()
            if ends is not None and not limit.expired():
                limit.reschedule(ends + seconds)
