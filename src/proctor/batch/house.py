"""What attempts stand on, and what those who watch are told of them.

Knows nothing of queues, or of what an attempt does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from proctor.agent import Agent
from proctor.batch.retry import RetryPolicy
from proctor.errors import NotFound
from proctor.evaluator import Evaluator
from proctor.item import Item
from proctor.model import Model, Request
from proctor.models.gateway.door import Door
from proctor.models.limits import Pools
from proctor.models.spending import SpendingRequest
from proctor.runner import Outcome, Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnd:
    """An item that has come to its end, for those who watch."""

    id: str
    item: Item
    session_id: str
    outcome: Outcome
    attempts: int
    tokens: int
    cost_usd: float | None
    work_seconds: float


class ModelsForOne(Protocol):
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


FindEvaluator = Callable[[str, Mapping[str, Any], Model], Evaluator]
"""Finds an evaluator by name for one attempt, whose models it asks; settings say which, and how."""


def no_evaluators(name: str, settings: Mapping[str, Any], models: Model) -> Evaluator:  # noqa: ARG001
    """For batches in which nothing is judged by evaluators."""
    raise NotFound(f"there is no evaluator {name} here")


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What attempts stand on, wherever they run: the outside world, handed in from the edge."""

    home: Path
    environment: Mapping[str, str]
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    find_agent: Callable[[str, Mapping[str, Any]], Agent]
    """Find an agent by name, with its settings and the keys of its own service."""
    find_runner: Callable[[str], Runner]
    models: ModelsForOne
    worst_case: Callable[[Request], SpendingRequest]
    """What a call could cost at most."""
    pools: Pools
    """How much may be asked of each provider at once."""
    door: Door
    """The way to models for agents that reach them over HTTP."""
    is_stand_in: Callable[[str], bool]
    """Whether a model only rehearses."""
    store_budget_usd: float | None = None
    """What all batches on the store may spend together; None: no limit."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    find_evaluator: FindEvaluator = no_evaluators
