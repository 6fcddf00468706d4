"""How far two who judged the same things agree, beyond what chance would give.

Cohen's kappa for two judges, weighted where labels have an order; Krippendorff's alpha for any number of
judges and gaps between them. Written with the standard library, as all statistics here.

Knows nothing of evaluators, people or where labels come from.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal

from proctor.analyse.intervals import CONFIDENCE, Estimate

Metric = Literal["nominal", "ordinal", "interval"]
Pair = tuple[str, str]

RESAMPLES = 2000


def kappa(pairs: Sequence[Pair], order: Sequence[str] = ()) -> float | None:
    """Cohen's kappa of pairs of labels; quadratic weights when `order` gives the labels theirs.

    None: too few to say, or both said the same word always, when chance explains everything.
    """
    if not pairs:
        return None
    rank = {label: float(number) for number, label in enumerate(order)}
    weigh = _squared(rank) if len(order) > 2 else _differs
    firsts, seconds = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    n = len(pairs)
    seen = sum(weigh(a, b) for a, b in pairs) / n
    by_chance = sum(weigh(a, b) * firsts[a] * seconds[b] for a in firsts for b in seconds) / n**2
    return 1 - seen / by_chance if by_chance > 0 else None


def alpha(units: Sequence[Sequence[Hashable]], metric: Metric = "nominal") -> float | None:
    """Krippendorff's alpha: each unit is what its judges said of one thing, in any order.

    For `ordinal` and `interval` they are numbers. None: nothing was said twice, or all said the same.
    """
    paired = [list(unit) for unit in units if len(unit) > 1]
    values = [value for unit in paired for value in unit]
    total = len(values)
    counts = Counter(values)
    if total < 2:
        return None
    apart = _distance(counts, metric)
    seen = sum(
        apart(a, b) / (len(unit) - 1)
        for unit in paired
        for i, a in enumerate(unit)
        for j, b in enumerate(unit)
        if i != j
    )
    by_chance = sum(apart(a, b) * counts[a] * counts[b] for a in counts for b in counts) / (total - 1)
    return 1 - seen / by_chance if by_chance > 0 else None


def correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None when either does not vary, or there are fewer than three."""
    if len(first) < 3:
        return None
    a, b = _ranks(first), _ranks(second)
    centre_a, centre_b = sum(a) / len(a), sum(b) / len(b)
    both = sum((x - centre_a) * (y - centre_b) for x, y in zip(a, b, strict=True))
    spread = math.sqrt(sum((x - centre_a) ** 2 for x in a) * sum((y - centre_b) ** 2 for y in b))
    return both / spread if spread > 0 else None


def bootstrapped(
    groups: Mapping[str, Sequence[object]],
    figure: Callable[[list[object]], float | None],
    *,
    seed: int,
) -> Estimate:
    """A figure of everything, with the interval that drawing whole groups again and again gives.

    Groups are drawn whole because what stands in one (the turns of a session) is alike.
    """
    names = sorted(groups)
    value = figure([entry for name in names for entry in groups[name]])
    n = sum(map(len, groups.values()))
    if value is None or len(names) < 2:
        return Estimate(value=value, n=n)
    draw, found = random.Random(seed), list[float]()
    for _ in range(RESAMPLES):
        drawn = figure([entry for name in draw.choices(names, k=len(names)) for entry in groups[name]])
        if drawn is not None:
            found.append(drawn)
    # Where most draws say nothing, those that do are no sample of what could have been.
    if len(found) < RESAMPLES / 2:
        return Estimate(value=value, n=n)
    found.sort()
    tail = (1 - CONFIDENCE) / 2
    low, high = found[int(tail * len(found))], found[min(len(found) - 1, int((1 - tail) * len(found)))]
    return Estimate(value=value, low=low, high=high, n=n)


def _differs(a: Hashable, b: Hashable) -> float:
    return float(a != b)


def _squared(rank: Mapping[str, float]) -> Callable[[str, str], float]:
    return lambda a, b: (rank.get(a, -1.0) - rank.get(b, -1.0)) ** 2


def _distance(counts: Counter[Hashable], metric: Metric) -> Callable[[Hashable, Hashable], float]:
    """How far two values are apart."""
    if metric == "nominal":
        return _differs
    if metric == "interval":
        return lambda a, b: (float(a) - float(b)) ** 2  # type: ignore[arg-type]
    ordered = sorted(counts, key=lambda value: float(value))  # type: ignore[arg-type]
    # Values are as far apart as there are judgements between them, half of their own counted.
    below, middle = 0.0, dict[Hashable, float]()
    for value in ordered:
        middle[value] = below + counts[value] / 2
        below += counts[value]
    return lambda a, b: (middle[a] - middle[b]) ** 2


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equals share the mean of their places."""
    places = defaultdict[float, list[int]](list)
    for place, value in enumerate(sorted(values), start=1):
        places[value].append(place)
    return [sum(places[value]) / len(places[value]) for value in values]
