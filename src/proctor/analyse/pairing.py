"""Differences of values that belong together: exact tests, intervals, resampling.

Yes-or-no outcomes get McNemar's exact test and the interval of Bonett and Price, which behaves with few
pairs; money, time and tokens, whose differences lean to one side, the bootstrap (bias-corrected and
accelerated) and sign flips; everything else Student's test. Chance is seeded: the same values always give
the same answer.

Knows nothing of what the values stand for.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist, fmean, pstdev, stdev

from proctor.analyse.contrasts import LEVEL, POWER, Difference, paired
from proctor.analyse.intervals import student_quantile, wilson

MCNEMAR, BOOTSTRAP = "McNemar's exact test", "sign flips, bootstrap interval"
FEWEST_TO_RESAMPLE = 8
"""Below this a bootstrap sees too little of the distribution; Student's interval is wider and safer."""
# Enough for two digits of a 95 % interval; more values need fewer draws for the same.
MOST_DRAWS, FEWEST_DRAWS, WORK = 2000, 500, 1_000_000
FLIPPED_ALONE = 60
"""Above so many pairs Student's test is as good as sign flips, and takes no time."""


def yes_or_no(first: Sequence[float], second: Sequence[float]) -> Difference:
    """How much more often the first of each pair is 1 than the second; all are 0 or 1."""
    n = len(first)
    gained = sum(a > b for a, b in zip(first, second, strict=True))
    lost = sum(a < b for a, b in zip(first, second, strict=True))
    value = (gained - lost) / n
    better, worse = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    error = math.sqrt((better + worse - (better - worse) ** 2) / (n + 2))
    z = NormalDist().inv_cdf(1 - LEVEL / 2)
    spread = pstdev([a - b for a, b in zip(first, second, strict=True)])
    return Difference(
        value=value,
        low=max(-1.0, min(value, better - worse - z * error)),
        high=min(1.0, max(value, better - worse + z * error)),
        p=mcnemar(gained, lost),
        effect_size=value / spread if spread else None,
        smallest_detectable=min(1.0, (z + NormalDist().inv_cdf(POWER)) * error),
        n=(n, n),
        is_paired=True,
        test=MCNEMAR,
    )


def mcnemar(gained: int, lost: int) -> float:
    """The chance of so uneven a split of the pairs that differ, if both sides were as likely."""
    n = gained + lost
    tail: float = sum(math.comb(n, k) for k in range(min(gained, lost) + 1)) / 2**n
    return min(1.0, 2 * tail)


def leaning(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The mean of the differences of values that lean to one side: money, time, tokens."""
    plain = paired(first, second)
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < FEWEST_TO_RESAMPLE or len(set(differences)) < 2:
        return plain
    low, high = bootstrap(differences)
    p = sign_flips(differences) if len(differences) <= FLIPPED_ALONE else plain.p
    return replace(plain, low=low, high=high, p=p, test=BOOTSTRAP)


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """The interval around the mean of some values, by drawing them anew (BCa)."""
    chance, n, value = random.Random(f"{len(values)}"), len(values), fmean(values)
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, WORK // n))
    means = sorted(math.fsum(chance.choices(values, k=n)) / n for _ in range(draws))
    normal = NormalDist()
    below = sum(mean < value for mean in means) + sum(mean == value for mean in means) / 2
    bias = normal.inv_cdf(min(max(below / draws, 0.5 / draws), 1 - 0.5 / draws))
    # Leaving out one value moves the mean by what it lies off, so no second round of sums is needed.
    offs = [value - each for each in values]
    squares = math.fsum(off * off for off in offs)
    bend = math.fsum(off**3 for off in offs) / (6 * squares**1.5) if squares else 0.0

    def at(share: float) -> float:
        z = bias + normal.inv_cdf(share)
        place = normal.cdf(bias + z / (1 - bend * z))
        return means[min(draws - 1, max(0, round(place * (draws - 1))))]

    return at(LEVEL / 2), at(1 - LEVEL / 2)


def sign_flips(differences: Sequence[float]) -> float:
    """The chance of so large a mean if each difference were as likely to point the other way."""
    chance, here = random.Random(0), abs(math.fsum(differences))
    if len(differences) <= 12:
        sums = [0.0]
        for each in differences:
            sums = [total + sign * each for total in sums for sign in (1, -1)]
        return sum(abs(total) >= here * (1 - 1e-12) for total in sums) / len(sums)
    draws = MOST_DRAWS * 2
    reached = sum(
        abs(math.fsum(each if chance.getrandbits(1) else -each for each in differences)) >= here
        for _ in range(draws)
    )
    return (reached + 1) / (draws + 1)


def pairs_needed(differences: Sequence[float], distance: float) -> int | None:
    """Pairs that find a difference of `distance` in four of five cases; None: there is none to find."""
    if len(differences) < 2 or distance == 0:
        return None
    spread = stdev(differences)
    reach = NormalDist().inv_cdf(1 - LEVEL / 2) + NormalDist().inv_cdf(POWER)
    return max(2, math.ceil((reach * spread / distance) ** 2)) if spread else None


def around(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """A mean with its interval: Wilson's for a share of yes among yes and no, else Student's."""
    value = fmean(values)
    if set(values) <= {0.0, 1.0}:
        rate = wilson(round(sum(values)), len(values))
        return value, rate.low, rate.high
    if len(values) < 2:
        return value, None, None
    reach = student_quantile(1 - LEVEL / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return value, value - reach, value + reach
