"""Money: set aside before an attempt starts, settled when it ended, never more than there is.

One rule for every call that is asked for first, by a runner or over the gateway: what it could cost
at most is set aside before it is made. When there is not enough for that, it waits until calls under
way have turned out cheaper; when there are none, it gets what is left. An agent that calls its model
behind our back can be stopped only afterwards: it holds twice what its kind has usually cost, goes
ahead alone while that is not known, and may pass the limit by one call.

Each reservation and settlement is a row in the ledger, from which the next process takes them up.

Knows nothing of models or prices.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from proctor.budget.ledger_client import LOOK_AGAIN_SECONDS, LedgerClient
from proctor.budget.reservation import Reservation
from proctor.errors import CostLimit, StoreError
from proctor.store import Writer, timestamp
from proctor.store.ledger import ROUNDING_USD

SLICE_SECONDS = 1.0
"""A wait of unknown length is told in slices, and corrected when it is over."""


SPENT = {
    "budget": "the budget is spent",
    "store_budget": "the budget of the store is spent ([budget] in proctor.toml)",
}


class BatchBudget:
    """What one batch may spend. Without a limit everything is granted and nothing is written."""

    def __init__(
        self, *, till: LedgerClient, places: int, writer: Writer, now: Callable[[], datetime]
    ) -> None:
        """`places` is how many attempts there may be at once."""
        self._till = till
        self._places = places
        self._writer = writer
        self._now = now
        self._spent = 0.0
        self._held = 0.0
        self._open: set[Reservation] = set()
        self._experience: dict[str, _PastCosts] = {}
        self._calls_short = 0
        self._freed = asyncio.Event()
        self.times_freed = 0
        """How often money was given back. Who saw less of them has something new to look at."""
        self._topping_up: set[asyncio.Task[None]] = set()

    @property
    def is_limited(self) -> bool:
        return self._till.is_limited

    @property
    def short_of(self) -> str:
        """The limit that was reached last: `budget`, or `store_budget`."""
        return self._till.refusal.short_of

    @property
    def free_usd(self) -> float:
        """What was drawn and is neither spent nor set aside."""
        return self._till.drawn_usd - self._spent - self._held

    async def open(
        self, session_id: str, item_id: str, *, kind: str, cap_usd: float | None, asks_first: bool = False
    ) -> Reservation | None:
        """Set money aside for an attempt, waiting for others to settle; None when it is spent.

        Attempts of one `kind` are expected to cost about the same. Of one that `asks_first` before
        each of its calls, nothing is to be feared.
        """
        account = Reservation(self, session_id, item_id, kind, cap_usd, is_blind=not asks_first)
        while self.is_limited:
            seen = self.times_freed
            if self._may_go_ahead(account):
                if self._set_aside(account, self._opening_usd(account)):
                    break
                if await self.draw(lambda: self._short_of(self._opening_usd(account))) or self.reclaim():
                    continue
            if self._open or self.times_freed > seen:
                await self.freed(seen)
            elif self._till.refusal.others_hold:
                await self._till.give_back(lambda: self.free_usd)
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            elif await self._open_with_less(account):
                break
            elif not self._open and self.times_freed == seen and not self._till.refusal.others_hold:
                return None
        return account

    async def draw(self, short: Callable[[], float], *, takes_less: bool = False) -> bool:
        """Bring so much more into this process; whether there was any."""
        return await self._till.draw(short, takes_less=takes_less)

    def reclaim(self) -> bool:
        """Take back what attempts hold for calls they have not asked for; whether there was any."""
        given_back = [account.trim() for account in self._open]
        return any(given_back)

    def is_anything_under_way(self, but: Reservation) -> bool:
        """Whether money may yet come back without anyone asking for it."""
        return any(account.may_give_back(but) for account in self._open)

    @contextmanager
    def before_newcomers(self) -> Iterator[None]:
        """Let no attempt begin while one that has begun looks for money: it would only starve it."""
        self._calls_short += 1
        try:
            yield
        finally:
            self._calls_short -= 1
            self.let_look()

    async def freed(self, seen: int, waited: Callable[[float], None] | None = None) -> None:
        """Wait until money was given back more often than was `seen`."""
        loop = asyncio.get_running_loop()
        began, told = loop.time(), 0.0
        try:
            while self.times_freed == seen:
                if waited:
                    waited(SLICE_SECONDS)
                    told += SLICE_SECONDS
                self._freed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SLICE_SECONDS):
                        await self._freed.wait()
        finally:
            if waited and told:
                waited(loop.time() - began - told)

    def spent(self) -> CostLimit:
        """Why an attempt cannot go on. Not its fault: it is taken up again once there is money."""
        return CostLimit(SPENT[self.short_of], reason="halted")

    def experience(self, kind: str) -> "_PastCosts":
        """What attempts of this kind have cost so far."""
        return self._experience.setdefault(kind, _PastCosts())

    def asked_for(self, kind: str, most_usd: float) -> None:
        """Remember what a call might cost, for those who are to begin with one like it."""
        known = self.experience(kind)
        known.asked_usd = most_usd
        self._know(known)

    def paid_a_call(self, kind: str, cost_usd: float) -> None:
        """Remember what a call cost."""
        known = self.experience(kind)
        known.dearest_call_usd = max(known.dearest_call_usd, cost_usd)
        self._know(known)

    def _know(self, known: "_PastCosts") -> None:
        is_first, known.is_any = not known.is_any, True
        if is_first:
            self.let_look()

    def held(self, usd: float) -> None:
        """So much more is set aside, or less."""
        self._held += usd

    def let_look(self) -> None:
        """Let those who wait look whether there is something for them now."""
        self.times_freed += 1
        self._freed.set()

    def close(self, account: Reservation, spent_usd: float, *, is_known: bool) -> None:
        """Replace what was set aside by what was spent."""
        self._open.discard(account)
        self._spent += spent_usd
        known = self.experience(account.kind)
        known.is_any = True
        if is_known:
            known.attempts += 1
            known.spent_usd += spent_usd
        self.let_look()

    def top_up(self, account: Reservation) -> None:
        """Draw what an attempt has spent already and did not hold; stop it when that cannot be had."""
        task = asyncio.create_task(self._top_up(account))
        self._topping_up.add(task)
        task.add_done_callback(self._topping_up.discard)

    async def _top_up(self, account: Reservation) -> None:
        while account in self._open and not account.cover():
            try:
                drawn = await self.draw(lambda: account.overdrawn_usd - self.free_usd)
            except StoreError:
                # Nothing more can be written, which ends the batch anyway.
                return
            if not drawn and not self.reclaim():
                account.stop(self.spent())
                return

    async def idle(self) -> None:
        """Wait until no money is asked for any more."""
        while self._topping_up:
            await asyncio.wait(self._topping_up)
        await self._till.idle()

    def enter(self, account: Reservation, position: int, kind: str, reserved: float, spent: float) -> None:
        """Write a row of the ledger."""
        when, till = timestamp(self._now()), self._till
        row = (till.run_id, account.item_id, when, kind, reserved, spent, till.holder)
        self._writer.append("ledger", (account.session_id, position, *row))

    def _may_go_ahead(self, account: Reservation) -> bool:
        """Whether it is known what it may cost, or it is to find out: the first goes ahead alone.

        Whoever has begun comes first.
        """
        if self._calls_short:
            return False
        if account.cap_usd is not None or self.experience(account.kind).is_any:
            return True
        return all(other.kind != account.kind for other in self._open)

    async def _open_with_less(self, account: Reservation) -> bool:
        """Nobody is going to give anything back: let it have the rest, if that is what it usually costs."""
        if account.cap_usd is not None:
            return False
        usual = self.experience(account.kind).expected_usd
        await self.draw(lambda: self._short_of(usual), takes_less=True)
        return self._set_aside(account, usual)

    def _opening_usd(self, account: Reservation) -> float:
        """What is to be there for its first call. With less it would only have to wait for that."""
        if account.cap_usd is not None:
            return account.cap_usd
        known = self.experience(account.kind)
        return max(known.expected_usd, known.asked_usd)

    def _short_of(self, wanted: float) -> float:
        # Something has to be left, even for one that has cost nothing so far.
        return max(wanted, 2 * ROUNDING_USD) - self.free_usd

    def _set_aside(self, account: Reservation, wanted: float) -> bool:
        free = self.free_usd
        if free <= ROUNDING_USD or free < wanted - ROUNDING_USD:
            return False
        if account.is_blind and account.cap_usd is None:
            wanted = min(free, max(free / max(1, self._places - len(self._open)), 2 * wanted))
        self._open.add(account)
        account.hold(wanted, "reserve")
        return True


class _PastCosts:
    """What attempts of one kind have cost."""

    def __init__(self) -> None:
        self.is_any = False
        self.attempts = 0
        self.spent_usd = 0.0
        self.dearest_call_usd = 0.0
        self.asked_usd = 0.0
        """What the last call could have cost at most."""
        self.surprise_usd = 0.0
        """The dearest call that came to more than it should have been able to."""

    @property
    def expected_usd(self) -> float:
        usual = self.spent_usd / self.attempts if self.attempts else 0.0
        return max(usual, self.dearest_call_usd)
