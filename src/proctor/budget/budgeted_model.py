"""Model wrapper that enforces the budget of an attempt, and the same guard for the gateway.

Before each call its worst-case cost is held, and the limits for which it is held are sent. A call that cannot
be paid in full gets a shorter answer; one that cannot be paid at all ends the attempt. A call that broke off,
failed at the provider or has no readable usage may be billed: its worst case counts as spent, and another try
holds its own. An answer that was cut off for lack of money is no result of the model: it is paid for, and the
attempt waits for more money.
"""

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from dataclasses import replace

from proctor.budget.reservation import Hold, Reservation
from proctor.errors import NOT_SENT, CostLimit, ModelError
from proctor.model import Answer, Model, Request
from proctor.models.prices import ESTIMATED, Grant, SpendingRequest, with_output_limit
from proctor.models.rate_limits import one_call, pause_before_retry
from proctor.session import Event

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
