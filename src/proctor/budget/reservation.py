"""The money of one attempt: what it holds, what it has spent, what its calls under way may come to.

Knows nothing of models or prices, or of where the money comes from.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from proctor.errors import CostLimit
from proctor.store.ledger import ROUNDING_USD

if TYPE_CHECKING:
    from proctor.budget.allocation import BatchBudget


class Reservation:
    """The money of one attempt."""

    def __init__(
        self,
        budget: "BatchBudget",
        session_id: str,
        item_id: str,
        kind: str,
        cap_usd: float | None,
        *,
        is_blind: bool,
    ) -> None:
        self.session_id = session_id
        self.item_id = item_id
        self.kind = kind
        self.cap_usd = cap_usd
        self.is_blind = is_blind
        """Whether it may spend without asking first."""
        self.stop: Callable[[CostLimit], None] = _nothing
        """Called when it has spent what is not there."""
        self.waited: Callable[[float], None] | None = None
        """Called with the seconds before each pause that waiting for money makes."""
        self._budget = budget
        self._held = 0.0
        self._cost = 0.0
        self._owed = 0.0
        """What calls came to that are not recorded yet."""
        self._promised = 0.0
        """What calls under way could come to at most."""
        self._lost = 0.0
        """What calls could have come to that were cut off before anyone said what they cost."""
        self.calls_lost = 0
        self._waiting = 0
        """Calls that look for money."""
        self._entries = 0

    @property
    def is_limited(self) -> bool:
        """Whether anything at all keeps it from spending."""
        return self.cap_usd is not None or self._budget.is_limited

    @property
    def overdrawn_usd(self) -> float:
        """What it has spent beyond what it holds."""
        return self._cost - self._held

    @property
    def _bound_usd(self) -> float:
        """What is spent, or may be yet by calls that were let through."""
        return self._cost + self._owed + self._promised + self._lost

    def hold(self, usd: float, kind: str) -> None:
        """Set so much more aside."""
        self._held += usd
        self._entries += 1
        self._budget.held(usd)
        self._budget.enter(self, self._entries, kind, usd, 0.0)

    def trim(self) -> bool:
        """Give back what is held for no call in particular; whether that was anything."""
        slack = self._held - self._bound_usd
        if self.is_blind or self.cap_usd is not None or slack <= ROUNDING_USD:
            return False
        self.hold(-slack, "return")
        return True

    def may_give_back(self, asking: "Reservation") -> bool:
        """Whether it holds something that it may not need. Two that wait would wait for each other."""
        if self._promised > ROUNDING_USD:
            return True
        return self is not asking and not self._waiting and (self.is_blind or self.cap_usd is not None)

    async def promise(self, most_usd: float) -> float:
        """Set aside what a call could come to at most; how much of that there is.

        Waits for calls under way that may turn out cheaper.
        """
        if self.cap_usd is None and self._budget.is_limited:
            self._waiting += 1
            try:
                with self._budget.before_newcomers():
                    await self._hold_enough(most_usd)
            finally:
                self._waiting -= 1
            self._budget.asked_for(self.kind, most_usd)
            free = self._held - self._bound_usd
        elif self.cap_usd is not None:
            free = self.cap_usd - self._bound_usd
        else:
            free = most_usd
        promised = most_usd if free >= most_usd - ROUNDING_USD else max(0.0, free)
        self._promised += promised
        return promised

    def too_little(self, most_usd: float) -> CostLimit:
        """Why a call that could come to so much cannot be made."""
        if self.cap_usd is None:
            return self._budget.spent()
        spent = f"it has spent ${self._cost:.4f} of its ${self.cap_usd:.4f}"
        return CostLimit(f"{spent}, and a call could cost ${most_usd:.4f}")

    @property
    def surprise_usd(self) -> float:
        """The dearest call of its kind that came to more than it should have been able to."""
        return self._budget.experience(self.kind).surprise_usd

    def redeem(self, promised_usd: float, *, cost_usd: float = 0.0, is_charged: bool = True) -> None:
        """A call has ended, and came to so much, which is charged already or is going to be."""
        self._promised = max(0.0, self._promised - promised_usd)
        if cost_usd > promised_usd + ROUNDING_USD:
            known = self._budget.experience(self.kind)
            known.surprise_usd = max(known.surprise_usd, cost_usd)
        if not is_charged:
            self._owed += cost_usd
        self._budget.let_look()

    def lose(self, promised_usd: float) -> None:
        """A call was cut off under way: what it could have come to at most counts as spent."""
        self._promised = max(0.0, self._promised - promised_usd)
        if promised_usd > ROUNDING_USD:
            self._lost += promised_usd
            self.calls_lost += 1
        self._budget.let_look()

    def charge(self, cost_usd: float) -> CostLimit | None:
        """Say what it has cost in all; why it must stop now, None when it may go on."""
        call = cost_usd - self._cost
        self._cost = cost_usd
        self._owed = max(0.0, self._owed - call)
        self._budget.paid_a_call(self.kind, call)
        if self.cap_usd is not None:
            if cost_usd <= self.cap_usd + ROUNDING_USD:
                return None
            return CostLimit(f"it has spent ${cost_usd:.4f} of the ${self.cap_usd:.4f} an item may spend")
        if self._budget.is_limited and not self.cover():
            self._budget.top_up(self)
        return None

    def cover(self) -> bool:
        """Hold what it has spent; False when this process has not drawn so much."""
        missing, free = self.overdrawn_usd, self._budget.free_usd
        if missing <= ROUNDING_USD:
            return True
        if missing > free + ROUNDING_USD:
            return False
        # Twice as much each time, so that a long session does not ask at every call.
        self.hold(min(max(missing, self._held if self.is_blind else 0.0), free), "extend")
        return True

    def settle(self, cost_usd: float | None) -> None:
        """Give back what was not used. None: it is not known what was spent, so all of it counts.

        What calls that were cut off could have come to is added.
        """
        if not self._budget.is_limited:
            return
        held, self._held = self._held, 0.0
        spent = held if cost_usd is None else cost_usd + self._lost
        self._entries += 1
        self._budget.enter(self, self._entries, "settle", -held, spent)
        self._budget.held(-held)
        self._budget.close(self, spent, is_known=cost_usd is not None)

    async def _hold_enough(self, most_usd: float) -> None:
        def short() -> float:
            missing = self._bound_usd + most_usd - self._held
            return missing if missing > ROUNDING_USD else 0.0

        budget = self._budget
        while missing := short():
            seen = budget.times_freed
            if missing <= budget.free_usd + ROUNDING_USD:
                self.hold(missing, "extend")
            elif await budget.draw(lambda: short() - budget.free_usd) or budget.reclaim():
                continue
            elif budget.is_anything_under_way(self):
                await budget.freed(seen, self.waited)
            elif budget.times_freed == seen:
                await budget.draw(lambda: short() - budget.free_usd, takes_less=True)
                if budget.is_anything_under_way(self):
                    continue
                self.hold(max(0.0, min(short(), budget.free_usd)), "extend")
                return


def _nothing(_: CostLimit) -> None:
    return None
