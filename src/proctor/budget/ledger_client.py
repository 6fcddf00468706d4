"""Draws the money of a batch from the store's ledger, in pieces, before it is spent.

Each process that spends for a batch has its own client. The sum of all draws exceeds no limit, and a call
seldom costs a transaction.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from proctor.store import Drawn

RETRY_SECONDS = 0.25
"""Pause after a refused draw: many attempts wait at once, and each draw is a transaction."""


class Ledger(Protocol):
    """The ledger of a batch, as its processes see it."""

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        """Draw about `wanted_usd`; nothing when not even `least_usd` is left."""

    async def give_back(self, holder: str, usd: float) -> None:
        """Return drawn money that was not spent."""


class LedgerClient:
    """The money that one process has drawn for a batch. Use it on one event loop."""

    def __init__(self, ledger: Ledger, holder: str, *, is_limited: bool) -> None:
        """`holder` names the process; no two processes have the same. `is_limited`: there is a budget."""
        self.holder = holder
        self.is_limited = is_limited
        self.drawn_usd = 0.0
        """Total drawn by this process, including what it has spent."""
        self.refusal = Drawn(usd=0.0, short_of="budget")
        """The last draw that got nothing."""
        self._ledger = ledger
        self._lock = asyncio.Lock()
        self._refused_usd = 0.0
        self._refused_until = 0.0
        self._running: set[asyncio.Task[None]] = set()

    async def draw(self, missing: Callable[[], float], *, takes_less: bool = False) -> bool:
        """Draw what is missing, or with `takes_less` what is left of it; whether there is any now.

        `missing` is called while no other draw is running: that draw may have brought enough for both.
        """
        async with self._lock:
            wanted, before = missing(), self.drawn_usd
            if wanted <= 0:
                return True
            if not takes_less and wanted >= self._refused_usd and self._time() < self._refused_until:
                return False
            await self._to_the_end(self._draw(wanted, 0.0 if takes_less else wanted))
            return self.drawn_usd > before

    async def give_back(self, free: Callable[[], float]) -> None:
        """Return what is free, for other processes."""
        async with self._lock:
            usd = free()
            if usd > 0:
                self.drawn_usd -= usd
                await self._to_the_end(self._ledger.give_back(self.holder, usd))

    async def idle(self) -> None:
        """Wait for running transactions, so that closing the ledger does not overtake them."""
        while self._running:
            await asyncio.wait(self._running)

    async def _draw(self, wanted: float, least: float) -> None:
        drawn = await self._ledger.draw(self.holder, wanted_usd=wanted, least_usd=least)
        self.drawn_usd += drawn.usd
        if not drawn.usd:
            self.refusal = drawn
            self._refused_usd, self._refused_until = wanted, self._time() + RETRY_SECONDS

    async def _to_the_end(self, transaction: Coroutine[Any, Any, None]) -> None:
        # The transaction commits even when the attempt that needs the money is cancelled meanwhile; without
        # the shield this process would not know of the money it has drawn.
        task = asyncio.create_task(transaction)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
