"""The money of one attempt: what it has reserved and spent, and the worst case of its running calls."""

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from proctor.errors import NOT_SENT, CostLimit, ModelError
from proctor.model import Answer, Model, Request
from proctor.models.prices import ESTIMATED, Grant, SpendingRequest, with_output_limit
from proctor.models.rate_limits import one_call, pause_before_retry
from proctor.session import Event
from proctor.store.ledger import ROUNDING_USD

if TYPE_CHECKING:
    from proctor.budget.allocation import BatchBudget

MIN_OUTPUT_TOKENS = 256
"""Shorter answers are useless to agents, which would only request a continuation."""
USUAL_CALLS = 20
"""Calls within their limits after which a server is taken to bill no reasoning beyond them."""
OVERRUN_FACTOR = 1.5
"""How many times the highest excess so far a call may cost in addition, after one has exceeded its limits."""
SMALL_EXCESS = 0.1
"""Part of its worst case by which a call may exceed it without having exceeded its limits: tokens of the
prompt are estimated, and providers add some of their own."""
UNKNOWN_PRICE = (
    "the price of {model} is unknown, so the budget cannot be enforced: declare it under `prices` in the plan"
)


class CallHabits:
    """What the calls to one model have shown about its provider's bills."""

    def __init__(self) -> None:
        self.running = 0
        """Calls under way."""
        self.calls_within = 0
        """Calls that cost at most what their requests allow."""
        self.highest_excess_usd = 0.0
        self.has_overrun = False
        """Whether a call has cost clearly more than its request allows."""

    @property
    def is_known(self) -> bool:
        """Whether enough calls have stayed within their limits to need no margin, or one has not."""
        return self.has_overrun or self.calls_within >= USUAL_CALLS

    def margin_usd(self, worst: SpendingRequest) -> float:
        """What a call may cost beyond what its request allows."""
        margin = 0.0 if self.is_known and not self.has_overrun else worst.margin_usd
        return max(margin, OVERRUN_FACTOR * self.highest_excess_usd)

    def learn(self, allowed_usd: float, cost_usd: float) -> bool:
        """Learn from the cost of a call; whether it is the first clearly beyond what its request allows."""
        excess = cost_usd - allowed_usd
        if excess > ROUNDING_USD:
            self.highest_excess_usd = max(self.highest_excess_usd, excess)
        if excess <= SMALL_EXCESS * allowed_usd + ROUNDING_USD:
            self.calls_within += 1
            return False
        is_first, self.has_overrun = not self.has_overrun, True
        return is_first


@dataclass(frozen=True, slots=True)
class Hold:
    """Money set aside for one call."""

    usd: float
    output_limit: int | None = None
    """Tokens each answer may have, to be sent with the request; None: as requested."""
    is_short: bool = field(default=False, compare=False)
    """Whether that is less than was requested, because there is not enough money for more."""
    model: str = field(default="", compare=False)
    habits: "CallHabits | None" = field(default=None, compare=False)
    """What is known of calls to the same model."""
    plain_usd: float = field(default=0.0, compare=False)
    """The part of `usd` for what the request allows, without a margin."""


NOTHING_HELD = Hold(0.0)


class Reservation:
    """The money of one attempt: `hold` before each call, `settle` or `lose` after it, `close` at the end."""

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
        """`cap_usd` is what the attempt may spend; None: as much as the batch has."""
        self.session_id = session_id
        self.item_id = item_id
        self.kind = kind
        self.cap_usd = cap_usd
        self.is_blind = is_blind
        """Whether it spends without asking first: its agent calls the provider directly."""
        self.stop: Callable[[CostLimit], None] = _ignore
        """Called when it has spent more than there is."""
        self.waited: Callable[[float], None] | None = None
        """Called with the seconds of each pause, before it starts."""
        self.note: Callable[[str], None] = _ignore_text
        """Called with what the user should know."""
        self.calls_lost = 0
        self.is_limited = cap_usd is not None or budget.is_limited
        """Whether there is any limit to its spending."""
        self._budget = budget
        self._reserved = 0.0
        self._cost = 0.0
        self._unrecorded = 0.0
        """Cost of calls that have ended and are not recorded yet."""
        self._held = 0.0
        """Worst case of the running calls."""
        self._lost = 0.0
        """Worst case of calls that were cut off before their cost was known."""
        self._running_usd = 0.0
        """What the ledger knows of the three amounts above."""
        self._waiting = 0
        """Calls that wait for money."""
        self._entries = 0

    async def hold(self, worst: SpendingRequest) -> Hold:
        """Set aside the worst-case cost of a call before it is sent.

        Waits for running calls that may turn out cheaper, then shortens the answer. Raises a `CostLimit` when
        the money left pays no useful answer, and a `ModelError` when the cost of the request has no bound.

        A server that may bill reasoning beyond the limit gets a margin for it until its answers have shown
        that it does not. Where there is too little for that, its first calls go one at a time, each with all
        that is left. Once a call has cost more than its request allows, the margin is required.
        """
        most = worst.cost_usd
        if not self.is_limited or most == 0:
            return NOTHING_HELD
        if most is None:
            raise ModelError(UNKNOWN_PRICE.format(model=worst.model), reason="bad_request")
        if worst.refusal:
            raise ModelError(worst.refusal, reason="bad_request")
        habits = self._budget.habits(worst.model)
        margin = habits.margin_usd(worst)
        usd = await self._hold_up_to(most, margin, habits)
        # What others have learned meanwhile counts, also in other processes.
        habits = self._budget.habits(worst.model)
        needed = most + (habits.margin_usd(worst) if habits.has_overrun else 0.0)
        limit, is_short = worst.output_tokens if worst.sets_limit else None, False
        hold = Hold(usd, limit, is_short, worst.model, habits, min(usd, most))
        if usd + ROUNDING_USD < needed:
            tokens = 0 if habits.has_overrun else worst.affordable_tokens(usd)
            if tokens < MIN_OUTPUT_TOKENS:
                self._return(usd)
                raise self.shortage(needed)
            hold = Hold(usd, tokens, True, worst.model, habits, usd)
        habits.running += 1
        try:
            # Committed before the call is sent: should this process die, it stays charged.
            if self._enter_running():
                await self._budget.commit()
        except BaseException:
            self._release(hold)
            raise
        return hold

    def settle(self, hold: Hold, cost_usd: float | None, *, is_recorded: bool = True) -> None:
        """Release the hold of a call that has ended. None: it cost nothing, or the cost is unknown.

        `is_recorded`: its cost is part of what was charged; otherwise it counts until it is charged.
        """
        cost = cost_usd or 0.0
        if cost_usd is not None:
            self._learn(hold, cost)
        if not is_recorded:
            self._unrecorded += cost
        self._release(hold, enters=is_recorded)

    def lose(self, hold: Hold, recorded_usd: float = 0.0, *, is_recorded: bool = True) -> None:
        """Release the hold of a call whose cost is unknown: its worst case counts as spent.

        `recorded_usd` is the part of it that was charged already, or, unless it `is_recorded`, will be.
        """
        if recorded_usd > hold.plain_usd:
            self._learn(hold, recorded_usd)
        # What its request allows; more where the provider has billed more before.
        has_margin = hold.habits is None or hold.habits.has_overrun
        worst_usd = hold.usd if has_margin else hold.plain_usd
        if worst_usd > ROUNDING_USD:
            self._lost += max(0.0, worst_usd - recorded_usd)
            self.calls_lost += 1
        if not is_recorded:
            self._unrecorded += recorded_usd
        self._release(hold)

    def charge(self, total_usd: float) -> CostLimit | None:
        """Set the total cost of the recorded calls; why the attempt must stop, None: it may continue."""
        call = total_usd - self._cost
        self._cost = total_usd
        if not self.is_limited:
            return None
        self._unrecorded = max(0.0, self._unrecorded - call)
        self._enter_running()
        self._budget.learn_cost(self.kind, call)
        if self.cap_usd is not None:
            if total_usd <= self.cap_usd + ROUNDING_USD:
                return None
            return CostLimit(f"it has spent ${total_usd:.4f} of the ${self.cap_usd:.4f} an item may spend")
        if not self.reserve_cost():
            self._budget.cover_cost(self)
        return None

    def close(self, spent_usd: float | None) -> float:
        """Replace what is reserved by what was spent, plus the worst case of calls that were cut off.

        None: the cost is unknown, so everything reserved counts as spent. Returns what counts as spent.
        """
        if not self.is_limited:
            return 0.0
        reserved, self._reserved = self._reserved, 0.0
        spent = reserved if spent_usd is None else spent_usd + self._lost
        self._entries += 1
        self._budget.enter(self, self._entries, "settle", -reserved, spent)
        self._budget.close(self, spent, is_known=spent_usd is not None)
        return spent

    def shortage(self, most_usd: float) -> CostLimit:
        """Why a call that could cost so much cannot be paid."""
        if self.cap_usd is None:
            return self._budget.shortage()
        spent = f"it has spent ${self._cost:.4f} of its ${self.cap_usd:.4f}"
        return CostLimit(f"{spent}, and a call could cost ${most_usd:.4f}")

    # For the budget of the batch.

    @property
    def overdrawn_usd(self) -> float:
        """What it has spent beyond what it has reserved."""
        return self._cost - self._reserved

    def missing_usd(self, most_usd: float) -> float:
        """What has to be reserved in addition, so that a call of this worst case can be held."""
        missing = self._committed_usd + most_usd - self._reserved
        return missing if missing > ROUNDING_USD else 0.0

    def reserve(self, usd: float, kind: str) -> None:
        """Reserve so much more, or less when negative, with a ledger row of this kind."""
        self._reserved += usd
        self._entries += 1
        self._budget.enter(self, self._entries, kind, usd, 0.0)

    def reserve_cost(self) -> bool:
        """Reserve what it has spent already; False when this process has not drawn that much."""
        missing, free = self.overdrawn_usd, self._budget.free_usd
        if missing <= ROUNDING_USD:
            return True
        if missing > free + ROUNDING_USD:
            return False
        # Twice as much each time, so that a long session does not write a row at every call.
        self.reserve(min(max(missing, self._reserved if self.is_blind else 0.0), free), "extend")
        return True

    def trim(self) -> bool:
        """Return what is reserved for no call in particular; whether there was any."""
        slack = self._reserved - self._committed_usd
        if self.is_blind or self.cap_usd is not None or slack <= ROUNDING_USD:
            return False
        self.reserve(-slack, "return")
        return True

    def may_return_money(self, to: "Reservation") -> bool:
        """Whether it has reserved something that it may not need. Two that wait would wait for each other."""
        if self._held > ROUNDING_USD:
            return True
        return self is not to and not self._waiting and (self.is_blind or self.cap_usd is not None)

    @property
    def _committed_usd(self) -> float:
        """Money spent, or reserved by running calls."""
        return self._cost + self._unrecorded + self._held + self._lost

    def _learn(self, hold: Hold, cost_usd: float) -> None:
        """Remember what a call has cost, and say when that is clearly more than it may."""
        if hold.habits and hold.habits.learn(hold.plain_usd, cost_usd):
            self._budget.report_overrun(hold.model)
            self.note(
                f"a call cost ${cost_usd:.4f}, more than the ${hold.plain_usd:.4f} that its limits allow: "
                "the provider bills reasoning or tokens beyond them; further calls reserve for that"
            )

    def _release(self, hold: Hold, *, enters: bool = True) -> None:
        """Release a hold. Without `enters`, the ledger learns of it when the cost of the call is recorded."""
        if hold.habits:
            hold.habits.running -= 1
        self._return(hold.usd, enters=enters)

    def _return(self, usd: float, *, enters: bool = True) -> None:
        self._held = max(0.0, self._held - usd)
        if enters:
            self._enter_running()
        self._budget.notify()

    def _enter_running(self) -> bool:
        """Write to the ledger what calls may cost whose cost is not recorded; whether it has changed."""
        change = self._held + self._unrecorded + self._lost - self._running_usd
        if not self.is_limited or abs(change) <= ROUNDING_USD:
            return False
        self._running_usd += change
        self._entries += 1
        self._budget.enter(self, self._entries, "call", change, 0.0)
        return True

    async def _hold_up_to(self, worst_usd: float, margin_usd: float, habits: CallHabits) -> float:
        most_usd, may_exceed = worst_usd + margin_usd, margin_usd > 0 and not habits.is_known
        if self.cap_usd is not None:
            # With less than the margin, a call of unknown habits goes alone.
            while (
                (free := self.cap_usd - self._committed_usd) < most_usd - ROUNDING_USD
                and habits.running
                and may_exceed
            ):
                await self._budget.wait_for_change(self.waited)
                may_exceed = not habits.is_known
        else:
            self._waiting += 1
            try:
                await self._budget.cover(self, most_usd, insists=may_exceed)
            finally:
                self._waiting -= 1
            free = self._reserved - self._committed_usd
        usd = most_usd if free >= most_usd - ROUNDING_USD else max(0.0, free)
        self._held += usd
        return usd


def _ignore(_: CostLimit) -> None:
    return None


def _ignore_text(_: str) -> None:
    return None


# Model wrapper that enforces the budget of an attempt, and the same guard for the gateway.


CUT_OFF = "length"


class BudgetedModel:
    """The models of one attempt, within its reservation."""

    def __init__(
        self,
        models: Model,
        reservation: Reservation,
        *,
        worst_case: Callable[[Request], SpendingRequest],
        record: Callable[[Event], None],
    ) -> None:
        self._models = models
        self._reservation = reservation
        self._worst_case = worst_case
        self._record = record

    async def answer(self, request: Request) -> Answer:
        """Answer, or raise a `CostLimit` when the call cannot be paid."""
        reservation, tries = self._reservation, 1
        with one_call():
            while True:
                try:
                    if not reservation.is_limited:
                        return await self._models.answer(request)
                    worst = self._worst_case(request)
                    hold = await reservation.hold(worst)
                    try:
                        answer = await self._models.answer(_limited(request, hold))
                    except BaseException as error:
                        self._settle_failed(hold, error)
                        raise
                    return self._settled(answer, hold, worst)
                except ModelError as error:
                    if error.is_to_be_sent_alone and not request.alone:
                        request = replace(request, alone=True)
                        continue
                    pause = pause_before_retry(error, tries)
                    if pause is None:
                        raise
                    tries += not error.is_outage
                if pause:
                    if reservation.waited:
                        reservation.waited(pause)
                    await asyncio.sleep(pause)

    def _settle_failed(self, hold: Hold, error: BaseException) -> None:
        is_sent = isinstance(error, CancelledError) and error.args != (NOT_SENT,)
        if is_sent or (isinstance(error, ModelError) and error.may_be_billed):
            self._reservation.lose(hold)
        else:
            self._reservation.settle(hold, None)

    def _settled(self, answer: Answer, hold: Hold, worst: SpendingRequest) -> Answer:
        """The answer, paid. Raises the shortage for which it was cut off."""
        reservation = self._reservation
        # The caller records the call, and with that it is charged.
        if answer.call.price_source.endswith(ESTIMATED):
            reservation.lose(hold, answer.call.cost_usd or 0.0, is_recorded=False)
        else:
            reservation.settle(hold, answer.call.cost_usd, is_recorded=False)
        if hold.is_short and answer.finish_reason == CUT_OFF:
            self._record(answer.call)
            raise reservation.shortage(worst.cost_usd or 0.0)
        return answer


def _limited(request: Request, hold: Hold) -> Request:
    """The request with the limits for which money is held."""
    if hold.output_limit is not None:
        request = replace(request, parameters=with_output_limit(request.parameters, hold.output_limit))
    if "tools" in request.parameters:
        # Loaded here, as all that is about worst cases: a run without a budget needs none of it.
        from proctor.models.worst_case import with_tool_limits

        request = replace(request, parameters=with_tool_limits(request.parameters))
    return request


def spend_guard(
    reservation: Reservation, cut_off: Callable[[CostLimit], None]
) -> Callable[[SpendingRequest], Awaitable[Grant]]:
    """The guard of an attempt's calls through the gateway; `cut_off` ends the attempt."""

    async def grant(worst: SpendingRequest) -> Grant:
        if worst.cost_usd is None and reservation.is_limited:
            problem = f"the price of {worst.model} is unknown, so the budget cannot be enforced"
            return Grant(refused=f"{problem}: declare it under `prices`")
        try:
            hold = await reservation.hold(worst)
        except ModelError as error:
            return Grant(refused=str(error), is_refusal_final=False)
        except CostLimit as error:
            cut_off(error)
            return Grant(refused=str(error))
        return Grant(
            most_output_tokens=hold.output_limit,
            is_limited=reservation.is_limited,
            settle=lambda cost: reservation.settle(hold, cost),
            lose=lambda cost: reservation.lose(hold, cost or 0.0),
        )

    return grant
