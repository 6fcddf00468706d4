"""The budget of a batch: reserved before an attempt starts, settled when it ends, never exceeded.

Every call that asks first, by a runner or through the gateway, holds its worst-case cost before it is sent.
When there is too little, it waits until running calls have turned out cheaper; when there are none, it gets
what is left. An agent that calls its provider directly can be stopped only afterward: it reserves twice what
its kind has usually cost, starts alone while that is unknown, and may exceed the limit by one call.

Each reservation and settlement is a row of the ledger, from which the next process continues. What a call may
cost is committed before it is sent: should this process die meanwhile, the call stays charged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Protocol

from proctor.budget.reservation import CallHabits, Reservation
from proctor.errors import CostLimit, StoreError
from proctor.store import Drawn, timestamp
from proctor.store.ledger import ROUNDING_USD, overrun_row

SLICE_SECONDS = 1.0
"""A wait of unknown length is reported in slices, and corrected when it is over."""
RETRY_SECONDS = 0.25
"""Pause after a refused draw: many attempts wait at once, and each draw is a transaction."""
INSISTING_ROUNDS = 40
"""Of `RETRY_SECONDS`: how long a call of unknown cost waits for the money of other processes."""
SHORTAGE = {
    "budget": "the budget is spent",
    "store_budget": "the budget of the store is spent ([budget] in proctor.toml)",
}


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
        self.overrun_models = set[str]()
        """Models of which other processes know that calls cost more than their requests allow."""
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
            missing_usd, before = missing(), self.drawn_usd
            if missing_usd <= 0:
                return True
            if not takes_less and missing_usd >= self._refused_usd and self._time() < self._refused_until:
                return False
            await self._to_the_end(self._draw(missing_usd, 0.0 if takes_less else missing_usd))
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

    async def _draw(self, usd: float, least: float) -> None:
        drawn = await self._ledger.draw(self.holder, wanted_usd=usd, least_usd=least)
        self.drawn_usd += drawn.usd
        self.overrun_models |= set(drawn.overrun_models)
        if not drawn.usd:
            self.refusal = drawn
            self._refused_usd, self._refused_until = usd, self._time() + RETRY_SECONDS

    async def _to_the_end(self, transaction: Coroutine[Any, Any, None]) -> None:
        # The transaction commits even when the attempt that needs the money is cancelled meanwhile; without
        # the shield this process would not know of the money it has drawn.
        task = asyncio.create_task(transaction)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    def _time(self) -> float:
        return asyncio.get_running_loop().time()


class LedgerRows(Protocol):
    """Where rows of the ledger go."""

    def append(self, table: str, row: tuple[object, ...]) -> None:
        """Write a row."""


class PastCosts:
    """What attempts of one kind have cost so far."""

    def __init__(self) -> None:
        self.is_known = False
        self.attempts = 0
        self.spent_usd = 0.0
        self.highest_call_usd = 0.0
        self.worst_case_usd = 0.0
        """The worst case of the latest call."""

    @property
    def expected_usd(self) -> float:
        mean = self.spent_usd / self.attempts if self.attempts else 0.0
        return max(mean, self.highest_call_usd)


class BatchBudget:
    """What one batch may spend in this process. Without a limit everything is granted and nothing written."""

    def __init__(
        self,
        ledger: LedgerClient,
        *,
        run_id: str,
        concurrency: int,
        rows: LedgerRows,
        now: Callable[[], datetime],
        commit: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`commit` waits until all `rows` so far are committed."""
        self._ledger = ledger
        self.is_limited = ledger.is_limited
        """Whether there is a budget."""
        self._run_id = run_id
        self._concurrency = concurrency
        self._rows = rows
        self._now = now
        self._commit = commit
        self._spent = 0.0
        self._reserved = 0.0
        self._open: set[Reservation] = set()
        self._past_costs: dict[str, PastCosts] = {}
        self._habits: dict[str, CallHabits] = {}
        self._has_news = False
        """Whether a row about an overrun may not be committed yet."""
        self._calls_waiting = 0
        self._changed = asyncio.Event()
        self._changes = 0
        """How often money was returned: a waiter that has seen fewer has something new to look at."""
        self._covering: set[asyncio.Task[None]] = set()

    @property
    def short_of(self) -> str:
        """The limit that was reached last: `budget` or `store_budget`."""
        return self._ledger.refusal.short_of

    @property
    def free_usd(self) -> float:
        """What was drawn and is neither spent nor reserved."""
        return self._ledger.drawn_usd - self._spent - self._reserved

    async def open(
        self, session_id: str, item_id: str, *, kind: str, cap_usd: float | None, asks_first: bool = False
    ) -> Reservation | None:
        """Reserve money for an attempt, waiting for others to settle; None when the budget is spent.

        Attempts of one `kind` are expected to cost about the same. `asks_first`: it holds the worst case of
        each call before sending it.
        """
        reservation = Reservation(self, session_id, item_id, kind, cap_usd, is_blind=not asks_first)
        while self.is_limited:
            changes = self._changes
            if self._may_start(reservation):
                if self._reserve(reservation, self._opening_usd(reservation)):
                    break
                drawn = await self._ledger.draw(lambda: self._missing_usd(self._opening_usd(reservation)))
                if drawn or self._reclaim():
                    continue
            if self._open or self._changes > changes:
                await self._wait(changes)
            elif self._ledger.refusal.others_hold:
                await self.return_free()
                await asyncio.sleep(RETRY_SECONDS)
            elif await self._open_with_less(reservation):
                break
            elif not self._open and self._changes == changes and not self._ledger.refusal.others_hold:
                return None
        return reservation

    async def cover(self, reservation: Reservation, most_usd: float, *, insists: bool = False) -> None:
        """Reserve enough for a call of this worst case, or everything that is left.

        Waits while running calls may return money; with `insists`, also those of other processes.
        """
        if not self.is_limited:
            return
        with self._before_new_attempts():
            await self._cover(reservation, most_usd, insists)
        past = self.past_costs(reservation.kind)
        past.worst_case_usd = most_usd
        self._now_known(past)

    async def _cover(self, reservation: Reservation, most_usd: float, insists: bool) -> None:
        def missing() -> float:
            return reservation.missing_usd(most_usd)

        def undrawn() -> float:
            return missing() - self.free_usd

        # Not for ever: two processes with running attempts would wait for each other.
        rounds = INSISTING_ROUNDS if insists else 0
        while usd := missing():
            changes = self._changes
            if usd <= self.free_usd + ROUNDING_USD:
                reservation.reserve(usd, "extend")
            elif await self._ledger.draw(undrawn) or self._reclaim():
                continue
            elif self._may_return_money(reservation):
                await self._wait(changes, reservation.waited)
            elif rounds and self._ledger.refusal.others_hold:
                rounds -= 1
                await self.return_free()
                if reservation.waited:
                    reservation.waited(RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
            elif self._changes == changes:
                await self._ledger.draw(undrawn, takes_less=True)
                if self._may_return_money(reservation):
                    continue
                reservation.reserve(max(0.0, min(missing(), self.free_usd)), "extend")
                return

    def cover_cost(self, reservation: Reservation) -> None:
        """Draw what an attempt has spent already and not reserved; stop it when there is too little."""
        task = asyncio.create_task(self._cover_cost(reservation))
        self._covering.add(task)
        task.add_done_callback(self._covering.discard)

    async def _cover_cost(self, reservation: Reservation) -> None:
        while reservation in self._open and not reservation.reserve_cost():
            try:
                drawn = await self._ledger.draw(lambda: reservation.overdrawn_usd - self.free_usd)
            except StoreError:
                # Nothing more can be written, which ends the batch anyway.
                return
            if not drawn and not self._reclaim():
                reservation.stop(self.shortage())
                return

    def close(self, reservation: Reservation, spent_usd: float, *, is_known: bool) -> None:
        """Count what a closed reservation has spent."""
        self._open.discard(reservation)
        self._spent += spent_usd
        past = self.past_costs(reservation.kind)
        past.is_known = True
        if is_known:
            past.attempts += 1
            past.spent_usd += spent_usd
        self.notify()

    async def return_free(self) -> None:
        """Return what is neither spent nor reserved, for other processes."""
        if self._has_news:
            self._has_news = False
            await self.commit()
        await self._ledger.give_back(lambda: self.free_usd)

    async def idle(self) -> None:
        """Wait until no more money is being drawn."""
        while self._covering:
            await asyncio.wait(self._covering)
        await self._ledger.idle()

    def enter(
        self, reservation: Reservation, position: int, kind: str, reserved_usd: float, spent_usd: float
    ) -> None:
        """Count what a reservation reserves in addition, and write its row of the ledger."""
        if kind != "call":
            # What running calls may cost is reserved already.
            self._reserved += reserved_usd
        amounts = (kind, reserved_usd, spent_usd, self._ledger.holder)
        row = (reservation.session_id, position, self._run_id, reservation.item_id)
        self._rows.append("ledger", (*row, timestamp(self._now()), *amounts))

    async def commit(self) -> None:
        """Wait until the rows of the ledger so far are committed."""
        if self._commit:
            await self._commit()

    def notify(self) -> None:
        """Wake all calls that wait for money."""
        self._changes += 1
        self._changed.set()

    def shortage(self) -> CostLimit:
        """Why an attempt cannot continue. Not its fault: it is retried once there is money."""
        return CostLimit(SHORTAGE[self.short_of], reason="halted")

    def habits(self, model: str) -> CallHabits:
        """What the calls to a model have shown so far, here and in other processes."""
        habits = self._habits.setdefault(model, CallHabits())
        habits.has_overrun |= model in self._ledger.overrun_models
        return habits

    def report_overrun(self, model: str) -> None:
        """Tell other processes, before they can have the money, that a call to a model has cost too much."""
        if self.is_limited:
            row = overrun_row(self._run_id, self._ledger.holder, model, self._now())
            self._rows.append("ledger", row)
            self._has_news = True

    async def wait_for_change(self, waited: Callable[[float], None] | None) -> None:
        """Wait until money was returned, or a call has ended."""
        await self._wait(self._changes, waited)

    def past_costs(self, kind: str) -> PastCosts:
        """What attempts of this kind have cost so far."""
        return self._past_costs.setdefault(kind, PastCosts())

    def learn_cost(self, kind: str, usd: float) -> None:
        """Remember the cost of a call."""
        past = self.past_costs(kind)
        past.highest_call_usd = max(past.highest_call_usd, usd)
        self._now_known(past)

    def _now_known(self, past: PastCosts) -> None:
        is_first, past.is_known = not past.is_known, True
        if is_first:
            self.notify()

    def _reclaim(self) -> bool:
        """Take back what attempts have reserved for no call; whether there was any."""
        returned = [reservation.trim() for reservation in self._open]
        return any(returned)

    def _may_return_money(self, to: Reservation) -> bool:
        """Whether money may come back without anyone asking for it."""
        return any(reservation.may_return_money(to) for reservation in self._open)

    @contextmanager
    def _before_new_attempts(self) -> Iterator[None]:
        """Start no attempt while a running one needs money: it would only take it away."""
        self._calls_waiting += 1
        try:
            yield
        finally:
            self._calls_waiting -= 1
            self.notify()

    async def _wait(self, changes: int, waited: Callable[[float], None] | None = None) -> None:
        """Wait until money was returned more than `changes` times."""
        loop = asyncio.get_running_loop()
        started, reported = loop.time(), 0.0
        try:
            while self._changes == changes:
                if waited:
                    waited(SLICE_SECONDS)
                    reported += SLICE_SECONDS
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SLICE_SECONDS):
                        await self._changed.wait()
        finally:
            if waited and reported:
                waited(loop.time() - started - reported)

    def _may_start(self, reservation: Reservation) -> bool:
        """Whether the cost of its kind is known, or it is the first of its kind, which starts alone.

        Running attempts come first.
        """
        if self._calls_waiting:
            return False
        if reservation.cap_usd is not None or self.past_costs(reservation.kind).is_known:
            return True
        return all(other.kind != reservation.kind for other in self._open)

    async def _open_with_less(self, reservation: Reservation) -> bool:
        """No money will be returned: grant the rest if that covers the usual cost of its kind."""
        if reservation.cap_usd is not None:
            return False
        expected = self.past_costs(reservation.kind).expected_usd
        await self._ledger.draw(lambda: self._missing_usd(expected), takes_less=True)
        return self._reserve(reservation, expected)

    def _opening_usd(self, reservation: Reservation) -> float:
        """What its first call needs. With less it would only have to wait for that."""
        if reservation.cap_usd is not None:
            return reservation.cap_usd
        past = self.past_costs(reservation.kind)
        return max(past.expected_usd, past.worst_case_usd)

    def _missing_usd(self, usd: float) -> float:
        # Something has to be left, even for a kind that has cost nothing so far.
        return max(usd, 2 * ROUNDING_USD) - self.free_usd

    def _reserve(self, reservation: Reservation, usd: float) -> bool:
        free = self.free_usd
        if free <= ROUNDING_USD or free < usd - ROUNDING_USD:
            return False
        if reservation.is_blind and reservation.cap_usd is None:
            usd = min(free, max(free / max(1, self._concurrency - len(self._open)), 2 * usd))
        self._open.add(reservation)
        reservation.reserve(usd, "reserve")
        return True
