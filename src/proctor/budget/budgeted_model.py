"""Let an attempt's calls through only as far as its money goes, whichever way they come.

Before each call what it could cost at most is set aside. What cannot be paid in full is answered more
shortly; what cannot be paid at all ends the attempt, in the middle of its run. An answer that broke
off because of that is no result of the model's: it is paid for, and the attempt waits for more money.

Knows nothing of HTTP, or of how prices are found.
"""

from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import replace

from proctor.budget.reservation import Reservation
from proctor.errors import CostLimit
from proctor.model import Answer, Model, Request
from proctor.models.prices import Grant, SpendingRequest, with_output_limit
from proctor.session import Event
from proctor.store.ledger import ROUNDING_USD

SHORTEST_ANSWER_TOKENS = 256
"""An agent that gets less than this can do nothing with it, and would only be asked to go on."""


BROKEN_OFF = "length"


class SpendGuard:
    """What one attempt may still spend."""

    def __init__(self, account: Reservation, cut_off: Callable[[CostLimit], None]) -> None:
        """`cut_off` ends the attempt."""
        self._account = account
        self._cut_off = cut_off

    async def grant(self, asked: SpendingRequest) -> Grant:
        """As `ask`, for a call that comes from outside: what cannot be paid ends the attempt."""
        try:
            promised, limit = await self.ask(asked)
        except CostLimit as over:
            self._cut_off(over)
            return Grant(refused=str(over))
        return Grant(most_output_tokens=limit, settle=lambda cost: self.settle(promised, cost))

    async def ask(self, asked: SpendingRequest) -> tuple[float, int | None]:
        """Set aside what a call could cost: how much that is, and how long its answer may be.

        None: as long as was asked for. Raises a `CostLimit` when there is too little for any answer.
        """
        most, each, account = asked.cost_usd, asked.output_usd_per_token, self._account
        if not account.is_limited or most is None or asked.input_usd is None:
            return 0.0, None
        # Where our worst case was not bad enough before, it is what was seen.
        is_surprising, most = account.surprise_usd > most, max(most, account.surprise_usd)
        promised = await account.promise(most)
        if promised + ROUNDING_USD >= most:
            return promised, None
        tokens = int((promised - asked.input_usd) / each) if each else 0
        if is_surprising or tokens < SHORTEST_ANSWER_TOKENS:
            account.redeem(promised)
            raise account.too_little(most)
        return promised, tokens

    def settle(self, promised_usd: float, cost_usd: float | None, *, is_charged: bool = True) -> None:
        """A call has ended and came to so much, which is charged already or is going to be."""
        self._account.redeem(promised_usd, cost_usd=cost_usd or 0.0, is_charged=is_charged)

    def lose(self, promised_usd: float) -> None:
        """A call was cut off, and nobody is going to say what it came to."""
        self._account.lose(promised_usd)

    def too_little(self, asked: SpendingRequest) -> CostLimit:
        """Why an answer had to be broken off."""
        return self._account.too_little(asked.cost_usd or 0.0)


class BudgetedModel:
    """The models of one attempt, behind its purse."""

    def __init__(
        self,
        models: Model,
        purse: SpendGuard,
        *,
        worst_case: Callable[[Request], SpendingRequest],
        record: Callable[[Event], None],
    ) -> None:
        self._models = models
        self._purse = purse
        self._worst_case = worst_case
        self._record = record

    async def answer(self, request: Request) -> Answer:
        """Answer, or raise a `CostLimit` when the call could not be paid."""
        asked = self._worst_case(request)
        promised, limit = await self._purse.ask(asked)
        if limit is not None:
            request = replace(request, parameters=with_output_limit(request.parameters, limit))
        try:
            answer = await self._models.answer(request)
        except CancelledError:
            self._purse.lose(promised)
            raise
        except BaseException:
            self._purse.settle(promised, None)
            raise
        # It is charged when it is recorded, which is for whoever asked.
        self._purse.settle(promised, answer.call.cost_usd, is_charged=False)
        if limit is not None and answer.finish_reason == BROKEN_OFF:
            self._record(answer.call)
            raise self._purse.too_little(asked)
        return answer
