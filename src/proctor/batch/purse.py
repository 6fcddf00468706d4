"""Let an agent's calls through only as far as its money goes.

The gateway asks before each call what it may cost at most. What cannot be paid in full is answered
more shortly; what cannot be paid at all ends the attempt, in the middle of its run.

Knows nothing of HTTP, or of how prices are found.
"""

from collections.abc import Callable

from proctor.batch.budget import ROUNDING_USD, Account
from proctor.errors import CostLimit
from proctor.models.gateway.access import Grant, SpendingRequest

SHORTEST_ANSWER_TOKENS = 256
"""An agent that gets less than this can do nothing with it, and would only be asked to go on."""


class Purse:
    """What one attempt may still spend."""

    def __init__(self, account: Account, cut_off: Callable[[CostLimit], None]) -> None:
        """`cut_off` ends the attempt."""
        self._account = account
        self._cut_off = cut_off

    def grant(self, asked: SpendingRequest) -> Grant:
        """Whether a call may be made, and how long its answer may be."""
        most, each = asked.cost_usd, asked.output_usd_per_token
        if not self._account.is_limited or most is None or asked.input_usd is None:
            return Grant()
        promised = self._account.promise(most)
        if promised + ROUNDING_USD >= most:
            return Grant(settle=lambda _: self._account.redeem(promised))
        tokens = int((promised - asked.input_usd) / each) if each else 0
        if tokens < SHORTEST_ANSWER_TOKENS:
            self._account.redeem(promised)
            over = self._account.too_little(most)
            self._cut_off(over)
            return Grant(refused=str(over))
        return Grant(most_output_tokens=tokens, settle=lambda _: self._account.redeem(promised))
