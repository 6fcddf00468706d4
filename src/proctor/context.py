"""What attempts stand on, and what those who watch are told of them.

Knows nothing of queues, or of what an attempt does.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from proctor.agent import Agent
from proctor.errors import NotFound
from proctor.evaluator import Evaluator, FindEvaluator
from proctor.model import Model, Request
from proctor.models.gateway.access import LazyGateway
from proctor.models.prices import SpendingRequest
from proctor.models.rate_limits import RatePools
from proctor.runner import Runner

# Whether a failed attempt is tried again, and when.


HOPELESS = frozenset(
    {"aborted", "interrupted", "halted", "cost_limit", "auth", "bad_request", "merge_failed"}
)
"""Reasons that a second try cannot mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRetryPolicy:
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


class ModelsForAttempt(Protocol):
    """Gives the models to one attempt."""

    def __call__(
        self,
        waited: Callable[[float], None],
        *,
        item_id: str,
        volatile: Sequence[str],
        say: Callable[[str], None],
    ) -> Model:
        """`waited` is told before each pause for how many seconds the attempt is held back, `say` what a
        reader should know; recordings know the attempt by `item_id`, and overlook `volatile` texts."""


def no_evaluators(name: str, settings: Mapping[str, Any], models: Model) -> Evaluator:  # noqa: ARG001
    """For batches in which nothing is judged by evaluators."""
    raise NotFound(f"there is no evaluator {name} here")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptContext:
    """What attempts stand on, wherever they run: the outside world, handed in from the edge."""

    home: Path
    environment: Mapping[str, str]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    find_agent: Callable[[str, Mapping[str, Any]], Agent]
    """Find an agent by name, with its settings and the keys of its own service."""
    find_runner: Callable[[str], Runner]
    models: ModelsForAttempt
    worst_case: Callable[[Request], SpendingRequest]
    """What a call could cost at most."""
    pools: RatePools
    """How much may be asked of each provider at once."""
    door: LazyGateway
    """The way to models for agents that reach them over HTTP."""
    is_stand_in: Callable[[str], bool]
    """Whether a model only rehearses."""
    store_budget_usd: float | None = None
    """What all batches on the store may spend together; None: no limit."""
    retry: ItemRetryPolicy = field(default_factory=ItemRetryPolicy)
    find_evaluator: FindEvaluator = no_evaluators
