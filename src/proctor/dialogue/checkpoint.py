"""A conversation as it stood behind its last finished turn, so that one that was cut off can go on.

What was said is in the record as messages, what the roles remembered in their own state; luck has a source
of its own for each turn, and needs no keeping. A role whose state cannot be written down and read back
equal has no checkpoints: its conversations begin anew, and it is said which role that is.

Knows nothing of files or stores.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side has kept."""

    state: Mapping[str, Any]
    usage: Mapping[str, Any]
    """What it has used so far, as its seat counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What has to be known behind a turn besides what was said."""

    turns: int
    seed: int
    sides: Mapping[str, Side]
    end_reason: str = ""
    ended_by: str = ""

    def written(self) -> str:
        """As one line of JSON."""
        sides = {name: {"state": side.state, "usage": side.usage} for name, side in self.sides.items()}
        return json.dumps(
            {
                "turn": self.turns,
                "seed": self.seed,
                "sides": sides,
                "end_reason": self.end_reason,
                "ended_by": self.ended_by,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that a conversation goes on from."""

    item_id: str
    standing: Standing
    messages: Sequence[Mapping[str, str]]
    """Everything said until then, by whom and in what role, the moderator's and instructions included."""
    metrics: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """What was measured at each turn: name, value, step."""

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "item_id": self.item_id,
            "standing": self.standing.written(),
            "messages": list(self.messages),
            "metrics": list(self.metrics),
        }


def checkpoint_of(document: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint of its document. Raises `ValueError`, `KeyError` or `TypeError` when it is none."""
    return Checkpoint(
        item_id=document["item_id"],
        standing=standing_of(document["standing"]),
        messages=document["messages"],
        metrics=document["metrics"],
    )


def standing_of(written: str) -> Standing:
    """What was written behind a turn. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
    plain = json.loads(written)
    return Standing(
        turns=plain["turn"],
        seed=plain["seed"],
        sides={name: Side(state=side["state"], usage=side["usage"]) for name, side in plain["sides"].items()},
        end_reason=plain["end_reason"],
        ended_by=plain["ended_by"],
    )


def can_be_kept(state: Mapping[str, Any]) -> bool:
    """Whether a state comes back from JSON as it was."""
    if not state:
        return True
    try:
        return bool(json.loads(json.dumps(state)) == state)
    except (TypeError, ValueError):
        return False
