"""Money: set aside before an attempt starts, settled when it ended, never more than there is.

The batch belongs to one process at a time, so the sums are kept here; every reservation and
settlement is also a row in the ledger, from which the next process takes them up.

What a call costs is known only afterwards. So the first attempt of a kind goes ahead alone until
its first call is paid; from then on each attempt holds enough for another call like the dearest seen,
and one that cannot have that is stopped before the call, not after. An agent that calls its model
behind our back can be stopped only afterwards: it may pass the limit by one call.

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
        """`places` is how many attempts there may be at once."""
        self._run_id = run_id
        self._limit = limit_usd
        self._spent = spent_usd
        self._places = places
        self._writer = writer
        self._now = now
        self._open: set[Account] = set()
        self._experience: dict[str, _Experience] = {}
        self._freed = asyncio.Event()

    @property
    def is_limited(self) -> bool:
        return self._limit is not None

    @property
    def remaining_usd(self) -> float:
        """What is neither spent nor set aside."""
        assert self._limit is not None
        return self._limit - self._spent - sum(account.held_usd for account in self._open)

    async def open(
        self, session_id: str, item_id: str, *, kind: str, cap_usd: float | None
    ) -> "Account | None":
        """Set money aside for an attempt, waiting for others to settle; None when it is spent.

        Attempts of one `kind` are expected to cost about the same.
        """
        account = Account(self, session_id, item_id, kind, cap_usd)
        if self._limit is None:
            return account
        while (amount := self._grant(kind, cap_usd)) is None:
            if not self._open:
                return None
            self._freed.clear()
            await self._freed.wait()
        self._open.add(account)
        account.hold(amount, "reserve")
        return account

    def experience(self, kind: str) -> "_Experience":
        """What attempts of this kind have cost so far."""
        return self._experience.setdefault(kind, _Experience())

    def paid_a_call(self, kind: str, cost_usd: float) -> None:
        """Remember what a call cost; the first one lets those go ahead who waited to know."""
        known = self.experience(kind)
        if not known.is_any:
            self._freed.set()
        known.is_any = True
        known.dearest_call_usd = max(known.dearest_call_usd, cost_usd)

    def close(self, account: "Account", spent_usd: float, *, is_known: bool) -> None:
        """Replace what was set aside by what was spent."""
        self._open.discard(account)
        self._spent += spent_usd
        known = self.experience(account.kind)
        known.is_any = True
        if is_known:
            known.attempts += 1
            known.spent_usd += spent_usd
        self._freed.set()

    def enter(self, account: "Account", position: int, kind: str, reserved: float, spent: float) -> None:
        """Write a row of the ledger."""
        row = (self._run_id, account.item_id, timestamp(self._now()), kind, reserved, spent)
        self._writer.append("ledger", (account.session_id, position, *row))

    def _grant(self, kind: str, cap_usd: float | None) -> float | None:
        remaining = self.remaining_usd
        if cap_usd is not None:
            return cap_usd if cap_usd <= remaining + ROUNDING_USD else None
        known = self.experience(kind)
        if not known.is_any and any(account.kind == kind for account in self._open):
            return None
        # With less than it usually costs it would only be cut off.
        if remaining <= ROUNDING_USD or remaining < known.expected_usd - ROUNDING_USD:
            return None
        share = remaining / max(1, self._places - len(self._open))
        return min(remaining, max(share, 2 * known.expected_usd))


class _Experience:
    """What attempts of one kind have cost."""

    def __init__(self) -> None:
        self.is_any = False
        self.attempts = 0
        self.spent_usd = 0.0
        self.dearest_call_usd = 0.0

    @property
    def expected_usd(self) -> float:
        usual = self.spent_usd / self.attempts if self.attempts else 0.0
        return max(usual, self.dearest_call_usd)


class Account:
    """The money of one attempt."""

    def __init__(
        self, budget: Budget, session_id: str, item_id: str, kind: str, cap_usd: float | None
    ) -> None:
        self.session_id = session_id
        self.item_id = item_id
        self.kind = kind
        self.held_usd = 0.0
        self._budget = budget
        self._cap = cap_usd
        self._cost = 0.0
        self._dearest_call = 0.0
        self._promised = 0.0
        """What calls under way could come to at most."""
        self._entries = 0

    @property
    def is_limited(self) -> bool:
        """Whether anything at all keeps it from spending."""
        return self._cap is not None or self._budget.is_limited

    def hold(self, amount_usd: float, kind: str) -> None:
        """Set so much more aside."""
        self.held_usd += amount_usd
        self._entries += 1
        self._budget.enter(self, self._entries, kind, amount_usd, 0.0)

    def before_call(self) -> CostLimit | None:
        """Why another call like the dearest so far cannot be paid; None when it can."""
        if self._cap is not None:
            if self._cost + self._dearest_call <= self._cap + ROUNDING_USD:
                return None
            return CostLimit(
                f"it has spent ${self._cost:.4f}, and another call would pass its ${self._cap:.4f}"
            )
        return self._cover(self._cost + self._budget.experience(self.kind).dearest_call_usd)

    def promise(self, most_usd: float) -> float:
        """Set aside what a call could come to at most; how much of that there is."""
        if self._cap is not None:
            free = self._cap - self._cost - self._promised
        elif self._budget.is_limited:
            wanted = self._cost + self._promised + most_usd - self.held_usd
            if wanted > ROUNDING_USD:
                self.hold(max(0.0, min(wanted, self._budget.remaining_usd)), "extend")
            free = self.held_usd - self._cost - self._promised
        else:
            free = most_usd
        promised = max(0.0, min(most_usd, free))
        self._promised += promised
        return promised

    def too_little(self, most_usd: float) -> CostLimit:
        """Why a call that could come to so much cannot be made."""
        if self._cap is not None:
            spent = f"it has spent ${self._cost:.4f} of its ${self._cap:.4f}"
            return CostLimit(f"{spent}, and a call could cost ${most_usd:.4f}")
        return CostLimit("the budget is spent", reason="halted")

    def redeem(self, promised_usd: float) -> None:
        """A call has ended, and what it cost is charged: nothing more can come of it."""
        self._promised = max(0.0, self._promised - promised_usd)

    def charge(self, cost_usd: float) -> CostLimit | None:
        """Say what it has cost in all; why it must stop now, None when it may go on."""
        call = cost_usd - self._cost
        self._cost = cost_usd
        self._dearest_call = max(self._dearest_call, call)
        self._budget.paid_a_call(self.kind, call)
        if self._cap is not None:
            if cost_usd <= self._cap + ROUNDING_USD:
                return None
            return CostLimit(f"it has spent ${cost_usd:.4f} of the ${self._cap:.4f} an item may spend")
        return self._cover(cost_usd)

    def settle(self, cost_usd: float | None) -> None:
        """Give back what was not used. None: it is not known what was spent, so all of it counts."""
        if not self._budget.is_limited:
            return
        spent = self.held_usd if cost_usd is None else cost_usd
        held, self.held_usd = self.held_usd, 0.0
        self._entries += 1
        self._budget.enter(self, self._entries, "settle", -held, spent)
        self._budget.close(self, spent, is_known=cost_usd is not None)

    def _cover(self, cost_usd: float) -> CostLimit | None:
        missing = cost_usd - self.held_usd
        if not self._budget.is_limited or missing <= ROUNDING_USD:
            return None
        remaining = self._budget.remaining_usd
        if missing > remaining + ROUNDING_USD:
            # Not the item's fault: it is taken up again once there is money.
            return CostLimit("the budget is spent", reason="halted")
        # Twice as much each time, so that a long session does not ask at every call.
        self.hold(min(max(missing, self.held_usd), remaining), "extend")
        return None
