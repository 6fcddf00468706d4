"""Whether a failed attempt is tried again, and when.

By default what we or the infrastructure failed is tried again, work that did not pass is not: a
second throw of the dice would only flatter the agent.

Knows nothing of queues or stores.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

HOPELESS = frozenset(
    {"aborted", "interrupted", "halted", "cost_limit", "auth", "bad_request", "merge_failed"}
)
"""Reasons that a second try cannot mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how soon to try again."""

    first_seconds: float = 1.0
    longest_seconds: float = 60.0

    def delay(
        self,
        *,
        status: str,
        reason: str,
        tries: int,
        retries: int,
        retry_on: Sequence[str],
        chance: random.Random,
    ) -> float | None:
        """Seconds until the next attempt; None when this one was the last.

        The delay doubles with each try and is drawn at random between half and all of that, so
        that items which failed together do not come back together.
        """
        if tries > retries or status not in retry_on or reason in HOPELESS:
            return None
        longest: float = min(self.longest_seconds, self.first_seconds * 2.0 ** (tries - 1))
        return longest * chance.uniform(0.5, 1.0)
