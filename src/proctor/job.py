"""Carry out one batch, from its first item to its last, or to the moment someone stops it.

Introduces runners to the store, neither of which has heard of the other. Whatever ends the batch,
its rows say the truth: what is finished is finished, what was under way is known to have been, and
what has not begun is still in the queue.

Knows nothing of plans, or of how anything is shown.
"""

from dataclasses import dataclass

from proctor.item import Item
from proctor.runner import Outcome

# What attempts stand on, and what those who watch are told of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFinished:
    """An item that has come to its end, for those who watch."""

    id: str
    item: Item
    session_id: str
    outcome: Outcome
    attempts: int
    tokens: int
    cost_usd: float | None
    work_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnd:
    """How a batch ended."""

    status: str
    """`completed`, `aborted`, `halted` or `interrupted`."""
    reason: str = ""
