"""Money: set aside before an attempt starts, settled when it ended, never more than there is.

The batch belongs to one process at a time, so the sums are kept here; every reservation and
settlement is also a row in the ledger, from which the next process takes them up.

Knows nothing of models or prices.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

from proctor.errors import CostLimit
from proctor.store import Writer, timestamp

ROUNDING_USD = 1e-9
"""A billionth of a dollar must not refuse the last item of a budget that fits exactly."""


class Budget:
    """What one batch may spend. Without a limit everything is granted and nothing is written."""

    def __init__(
        self,
        *,
        run_id: str,
        limit_usd: float | None,
        spent_usd: float,
        places: int,
        writer: Writer,
        now: Callable[[], datetime],
    ) -> None:
        self._run_id = run_id
        self._limit = limit_usd
        self._spent = spent_usd
        self._held: dict[str, float] = {}
        self._entries: dict[str, int] = {}
        """How many rows of the ledger each attempt under way has."""
        self._places = places
        self._finished = 0
        self._writer = writer
        self._now = now
        self._freed = asyncio.Event()

    @property
    def remaining_usd(self) -> float:
        """What is neither spent nor set aside."""
        assert self._limit is not None
        return self._limit - self._spent - sum(self._held.values())

    async def reserve(self, session_id: str, item_id: str, cap_usd: float | None) -> bool:
        """Set money aside for an attempt, waiting for others to settle; False when it is spent."""
        if self._limit is None:
            return True
        while (amount := self._grant(cap_usd)) is None:
            if not self._held:
                return False
            self._freed.clear()
            await self._freed.wait()
        self._held[session_id] = amount
        self._enter(session_id, item_id, "reserve", amount, 0.0)
        return True

    def check(
        self, session_id: str, item_id: str, cost_usd: float, cap_usd: float | None
    ) -> CostLimit | None:
        """Why an attempt that has spent so much must stop now; None when it may go on."""
        if cap_usd is not None and cost_usd > cap_usd + ROUNDING_USD:
            return CostLimit(f"it has spent ${cost_usd:.4f} of the ${cap_usd:.4f} an item may spend")
        if self._limit is None or session_id not in self._held:
            return None
        held, remaining = self._held[session_id], self.remaining_usd
        missing = cost_usd - held
        if missing > remaining + ROUNDING_USD:
            # Not the item's fault: it is taken up again once there is money.
            return CostLimit(f"the budget of ${self._limit:.2f} is spent", reason="halted")
        if missing > 0:
            # Twice as much each time, so that a long session does not ask at every call.
            more = min(max(missing, held), remaining)
            self._held[session_id] += more
            self._enter(session_id, item_id, "extend", more, 0.0)
        return None

    def settle(self, session_id: str, item_id: str, cost_usd: float | None) -> None:
        """Replace what was set aside by what the attempt cost. None: unknown, so all of it counts."""
        held = self._held.pop(session_id, None)
        if held is None:
            return
        spent = held if cost_usd is None else cost_usd
        self._spent += spent
        self._finished += 1
        self._enter(session_id, item_id, "settle", -held, spent)
        del self._entries[session_id]
        self._freed.set()

    def _grant(self, cap_usd: float | None) -> float | None:
        remaining = self.remaining_usd
        if cap_usd is not None:
            return cap_usd if cap_usd <= remaining + ROUNDING_USD else None
        # No cap of its own: it begins with a fair share, or twice what an item has cost so far, and
        # `check` lets that grow. With less than an item usually costs it would only be cut off.
        usual = self._spent / self._finished if self._finished else 0.0
        share = remaining / max(1, self._places - len(self._held))
        if remaining <= ROUNDING_USD or remaining < usual:
            return None
        return min(remaining, max(share, 2 * usual))

    def _enter(self, session_id: str, item_id: str, kind: str, reserved: float, spent: float) -> None:
        position = self._entries[session_id] = self._entries.get(session_id, 0) + 1
        row = (self._run_id, item_id, timestamp(self._now()), kind, reserved, spent)
        self._writer.append("ledger", (session_id, position, *row))
