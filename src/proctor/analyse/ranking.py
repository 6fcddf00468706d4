"""Put contestants in order by a number of which less is better, and say who cannot be told apart.

A rank is one more than the number of contestants that are better beyond doubt, so those that cannot
be told apart share one. Two are told apart when the difference of their means is unlikely to be
chance (5 %, Holm's correction over all pairs): over tasks that both have solved when there are
several, over runs otherwise. One run each tells nobody apart.

Knows nothing of models, stores or what the numbers stand for.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from proctor.analyse.contrasts import LEVEL, Difference, holm, paired, welch
from proctor.analyse.intervals import Estimate, mean_of

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
            estimate=mean_of([value for values in samples.values() for value in values]),
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


def _is_below(one: Estimate, other: Estimate) -> bool:
    if one.n < 2 or other.n < 2 or one.high is None or other.low is None:
        return False
    return one.high < other.low


def _better(contestants: Mapping[str, Samples]) -> set[tuple[str, str]]:
    """The pairs of which the first is better beyond doubt."""
    pairs = list(itertools.combinations(contestants, 2))
    found = [_difference(contestants[one], contestants[other]) for one, other in pairs]
    corrected = holm([_chance(difference) for difference in found])
    return {
        (one, other) if difference.value < 0 else (other, one)
        for (one, other), difference, p in zip(pairs, found, corrected, strict=True)
        if p is not None and p <= LEVEL
    }


def _difference(one: Samples, other: Samples) -> Difference:
    both = [task for task in one if one[task] and other.get(task)]
    if len(both) > 1:
        return paired([fmean(one[task]) for task in both], [fmean(other[task]) for task in both])
    first = [value for values in one.values() for value in values]
    return welch(first, [value for values in other.values() for value in values])


def _chance(difference: Difference) -> float:
    """How likely it is by chance alone. What cannot be tested counts as tested and found to be nothing."""
    if difference.low is None:
        return 1.0
    # Without a chance but with an interval, every run gave the same number: the difference is what it is.
    return 0.0 if difference.p is None else difference.p
