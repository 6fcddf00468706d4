"""Where one batch gets its money: drawn on the store's ledger before it is spent, in pieces.

Every process that spends for a batch has a till of its own; what all of them have drawn together
passes no limit.

Knows nothing of attempts, or of what is done with the money.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from proctor.store import Drawn, MoneyLimits, Store

LOOK_AGAIN_SECONDS = 0.25
"""How soon to ask again after a refusal: many wait at once, and the store is not to be asked by all."""


class LedgerClient:
    """The money of one batch in one process. Use it on one event loop."""

    def __init__(
        self, store: Store, run_id: str, holder: str, limits: MoneyLimits, now: Callable[[], datetime]
    ) -> None:
        """`holder` is the process, by a name that is never given twice."""
        self.run_id = run_id
        self.holder = holder
        self.drawn_usd = 0.0
        """By this process, what it has spent by now included."""
        self.refusal = Drawn(usd=0.0, short_of="budget")
        """What was said when there was last too little."""
        self._store = store
        self._limits = limits
        self._now = now
        self._turn = asyncio.Lock()
        self._refused_usd = 0.0
        self._refused_until = 0.0
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to keep to."""
        return self._limits.are_any

    async def draw(self, short: Callable[[], float], *, takes_less: bool = False) -> bool:
        """Draw what is short by now, or with `takes_less` what there is of it; whether there was any.

        `short` is asked once it is our turn: someone else's draw may have brought enough for both.
        """
        async with self._turn:
            wanted, before = short(), self.drawn_usd
            if wanted <= 0:
                return True
            if not takes_less and wanted >= self._refused_usd and self._time() < self._refused_until:
                return False
            await self._finished(self._draw(wanted, 0.0 if takes_less else wanted))
            return self.drawn_usd > before

    async def give_back(self, free: Callable[[], float]) -> None:
        """Leave to other processes what is free by now."""
        async with self._turn:
            usd = free()
            if usd > 0:
                self.drawn_usd -= usd
                await self._finished(
                    asyncio.to_thread(self._store.give_money_back, self.run_id, self.holder, usd, self._now())
                )

    async def idle(self) -> None:
        """Wait until nothing is being asked of the store: what comes after that is not to be overtaken."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _draw(self, wanted: float, least: float) -> None:
        drawn = await asyncio.to_thread(
            self._store.draw_money,
            self.run_id,
            self.holder,
            wanted_usd=wanted,
            least_usd=least,
            limits=self._limits,
            now=self._now(),
        )
        self.drawn_usd += drawn.usd
        if not drawn.usd:
            self.refusal = drawn
            self._refused_usd, self._refused_until = wanted, self._time() + LOOK_AGAIN_SECONDS

    async def _finished(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it to its end, also when whoever wanted it has gone: the store does so too."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.shield(task)

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
