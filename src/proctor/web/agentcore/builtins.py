"""The evaluators that come with the service, as callers see them.

Knows nothing of how they are asked.
"""

from dataclasses import dataclass
from functools import cache

from proctor.evaluators.builtins import JUDGED, PREFIX, question_of
from proctor.evaluators.scale import Rating
from proctor.evaluators.trajectory import MATCHINGS
from proctor.score import Level

MATCHING_WORDS = {
    "Builtin.TrajectoryExactOrderMatch": "whether exactly the expected tools were called, in their order",
    "Builtin.TrajectoryInOrderMatch": "whether the expected tools were called in their order, among others",
    "Builtin.TrajectoryAnyOrderMatch": "whether every expected tool was called, in whatever order",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """One evaluator that comes with the service."""

    level: Level
    judges: str
    instructions: str = ""
    """What the judge is told. Empty: it is a program."""
    ratings: tuple[Rating, ...] = ()
    needs_ground_truth: bool = False


@cache
def managed(harmful_value: float = 1.0) -> dict[str, Managed]:
    """All of them, by id."""
    found = {
        name: Managed(level="session", judges=MATCHING_WORDS[name], needs_ground_truth=True)
        for name in MATCHINGS
    }
    for name, one in JUDGED.items():
        question, _ = question_of(name, harmful_value)
        found[f"{PREFIX}{name}"] = Managed(
            level=one.level,
            judges=one.judges,
            instructions=question.instructions,
            ratings=question.dimensions[0].scale.ratings,
        )
    return found
