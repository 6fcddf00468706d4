"""Model wrapper that enforces the budget of an attempt, and the same guard for the gateway.

Before each call its worst-case cost is held. A call that cannot be paid in full gets a shorter answer; one
that cannot be paid at all ends the attempt. A call that broke off may be billed: its worst case counts as
spent, and another try holds its own. An answer that was cut off because of that is no result of the
model: it is paid for, and the attempt waits for more money.
"""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import replace

from proctor.budget.reservation import Reservation
from proctor.errors import NOT_SENT, CostLimit, ModelError
from proctor.model import Answer, Model, Request
from proctor.models.prices import Grant, SpendingRequest, with_output_limit
from proctor.session import Event

CUT_OFF = "length"
TRIES = 5
"""Tries of a call that breaks off, each paid for."""


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
        tries = 1
        while True:
            try:
                if not self._reservation.is_limited:
                    return await self._models.answer(request)
                return await self._answer_once(request)
            except ModelError as error:
                if not error.may_be_billed or tries == TRIES:
                    raise
                tries += not error.is_outage

    async def _answer_once(self, request: Request) -> Answer:
        reservation = self._reservation
        worst = self._worst_case(request)
        hold = await reservation.hold(worst)
        limit = hold.output_limit
        if limit is not None:
            request = replace(request, parameters=with_output_limit(request.parameters, limit))
        try:
            answer = await self._models.answer(request)
        except CancelledError as cancelled:
            if cancelled.args == (NOT_SENT,):
                reservation.settle(hold, None)
            else:
                reservation.lose(hold)
            raise
        except ModelError as error:
            if error.may_be_billed:
                reservation.lose(hold)
            else:
                reservation.settle(hold, None)
            raise
        except BaseException:
            reservation.settle(hold, None)
            raise
        # The caller records the call, and with that it is charged.
        reservation.settle(hold, answer.call.cost_usd, is_recorded=False)
        if limit is not None and answer.finish_reason == CUT_OFF:
            self._record(answer.call)
            raise reservation.shortage(worst.cost_usd or 0.0)
        return answer


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
        except CostLimit as error:
            cut_off(error)
            return Grant(refused=str(error))
        return Grant(
            most_output_tokens=hold.output_limit,
            settle=lambda cost: reservation.settle(hold, cost),
            lose=lambda cost: reservation.lose(hold, cost or 0.0),
        )

    return grant
