"""Ask models only while there is money for it.

Knows nothing of prices.
"""

from proctor.batch.budget import Account
from proctor.model import Answer, Model, Request


class Metered:
    """The models of one attempt, behind its account."""

    def __init__(self, models: Model, account: Account) -> None:
        self._models = models
        self._account = account

    async def answer(self, request: Request) -> Answer:
        """Answer, or raise a `CostLimit` when another call could not be paid."""
        if over := self._account.before_call():
            raise over
        return await self._models.answer(request)
