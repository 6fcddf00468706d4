"""Put contestants in order by a number of which less is better, and say who cannot be told apart.

A rank is one more than the number of contestants that are better beyond doubt, so those that cannot
be told apart share one. Two are told apart when the difference of their means is unlikely to be
chance (5 %, Holm's correction over all pairs): over tasks that both have solved when there are
several, over runs otherwise. One run each tells nobody apart.

Knows nothing of models, stores or what the numbers stand for.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.analyse.intervals import CONFIDENCE, Estimate, mean, student_cdf

Samples = Mapping[str, Sequence[float]]
"""The numbers of one contestant, by task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One contestant's place."""

    name: str
    rank: int
    """1 is best. Shared by those that cannot be told apart from each other."""
    worst_rank: int
    """The last place that is still possible."""
    estimate: Estimate


def ranked(contestants: Mapping[str, Samples]) -> tuple[Rank, ...]:
    """Everyone who has a number, best mean first."""
    known = {name: samples for name, samples in contestants.items() if any(samples.values())}
    better = _better(known)
    placed = [
        Rank(
            name=name,
            rank=1 + sum((other, name) in better for other in known),
            worst_rank=len(known) - sum((name, other) in better for other in known),
            estimate=estimate_of([value for values in samples.values() for value in values]),
        )
        for name, samples in known.items()
    ]
    return tuple(sorted(placed, key=lambda one: (one.estimate.value or 0.0, one.name)))


def ranked_by_interval(estimates: Mapping[str, Estimate]) -> tuple[Rank, ...]:
    """The same for numbers that come with intervals: those that overlap cannot be told apart."""
    known = {name: one for name, one in estimates.items() if one.value is not None}
    placed = [
        Rank(
            name=name,
            rank=1 + sum(_is_below(other, one) for other in known.values()),
            worst_rank=len(known) - sum(_is_below(one, other) for other in known.values()),
            estimate=one,
        )
        for name, one in known.items()
    ]
    return tuple(sorted(placed, key=lambda one: (one.estimate.value or 0.0, one.name)))


def estimate_of(values: Sequence[float]) -> Estimate:
    """The mean of some numbers with its interval."""
    return mean(len(values), math.fsum(values), math.fsum(value * value for value in values))


def _is_below(one: Estimate, other: Estimate) -> bool:
    if one.n < 2 or other.n < 2 or one.high is None or other.low is None:
        return False
    return one.high < other.low


def _better(contestants: Mapping[str, Samples]) -> set[tuple[str, str]]:
    """The pairs of which the first is better beyond doubt."""
    chances = [
        (_chance(contestants[one], contestants[other]), one, other)
        for one, other in itertools.combinations(contestants, 2)
    ]
    certain = set[tuple[str, str]]()
    for number, (chance, one, other) in enumerate(sorted(chances, key=lambda entry: abs(entry[0]))):
        # Holm: the smallest must pass the strictest limit, and the first that fails ends it.
        if abs(chance) > (1 - CONFIDENCE) / (len(chances) - number):
            break
        certain.add((one, other) if math.copysign(1, chance) < 0 else (other, one))
    return certain


def _chance(one: Samples, other: Samples) -> float:
    """How likely a difference this large is by chance alone; negative when the first has less."""
    both = [task for task in one if one[task] and other.get(task)]
    if len(both) > 1:
        gaps = [_middle(one[task]) - _middle(other[task]) for task in both]
        return _two_sided(_middle(gaps), _variance(gaps) / len(gaps), len(gaps) - 1)
    first = [value for values in one.values() for value in values]
    second = [value for values in other.values() for value in values]
    if len(first) < 2 or len(second) < 2:
        return 1.0
    parts = (_variance(first) / len(first), _variance(second) / len(second))
    spread = sum(parts)
    weights = parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1)
    # Welch's degrees of freedom: the two need not vary equally much.
    freedom = spread**2 / weights if weights else len(first) + len(second) - 2
    return _two_sided(_middle(first) - _middle(second), spread, freedom)


def _two_sided(gap: float, squared_error: float, freedom: float) -> float:
    if gap == 0:
        return 1.0
    if squared_error <= 0:
        # Every run gave the same number: the difference is what it is.
        return math.copysign(0.0, gap)
    tail = 2 * (1 - student_cdf(abs(gap) / math.sqrt(squared_error), freedom))
    return math.copysign(tail, gap)


def _middle(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    middle = _middle(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)
