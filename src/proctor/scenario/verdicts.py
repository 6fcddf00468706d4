"""What evaluators said of a run, in one value each.

Knows nothing of evaluators or of how they came to it.
"""

from collections.abc import Iterable
from statistics import fmean

from proctor.scenario.state import Value
from proctor.score import Score


def verdicts_of(scores: Iterable[Score]) -> dict[str, Value]:
    """By evaluator the mean of its numbers, else its first word, else None: it could not judge."""
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score.evaluator, []).append(score)
    return {name: _in_one(said) for name, said in found.items()}


def _in_one(scores: list[Score]) -> Value:
    numbers = [score.value for score in scores if score.value is not None]
    if numbers:
        return fmean(numbers)
    return next((score.label for score in scores if score.label), None)
