"""Tests of differences: confidence intervals, corrections and minimum detectable effects.

Means are compared by Student's test on the differences of pairs, else by Welch's; rates by Fisher's exact
test with Newcombe's interval. Several tests are corrected by Holm. With too little data the result is None.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, pstdev, stdev, variance

from proctor.stats.intervals import student_cdf, student_quantile, wilson

POWER = 0.8
LEVEL = 0.05
PAIRED, WELCH, FISHER = "paired t-test", "Welch's t-test", "Fisher's exact test"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDifference:
    """How much one group lies above another."""

    value: float
    low: float | None = None
    """None, like `high` and `p`: too little data."""
    high: float | None = None
    p: float | None = None
    """The chance of such a difference, or a greater one, if there were none."""
    effect_size: float | None = None
    """In standard deviations."""
    smallest_detectable: float | None = None
    """Minimum detectable effect at 80% power."""
    runs_needed: int | None = None
    """Values per group, or pairs, needed to detect `value` with this power."""
    n: tuple[int, int] = (0, 0)
    is_paired: bool = False
    test: str = ""
    """Which one `p` is of: `PAIRED`, `WELCH` or `FISHER`."""


Difference = GroupDifference


def paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The mean of the differences of values that belong together."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    n, value = len(differences), fmean(differences)
    if n < 2:
        return Difference(value=value, n=(n, n), is_paired=True, test=PAIRED)
    spread = math.sqrt(variance(differences))
    error = spread / math.sqrt(n)
    return _tested(value, error, n - 1, spread, (n, n), is_paired=True)


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The difference of two means whose values do not pair and may spread differently."""
    n, value = (len(first), len(second)), fmean(first) - fmean(second)
    if min(n) < 2:
        return Difference(value=value, n=n, test=WELCH)
    parts = [variance(first) / n[0], variance(second) / n[1]]
    error = math.sqrt(sum(parts))
    pooled = math.sqrt((variance(first) * (n[0] - 1) + variance(second) * (n[1] - 1)) / (sum(n) - 2))
    if error == 0:
        return _tested(value, 0.0, sum(n) - 2, pooled, n)
    freedom = error**4 / (parts[0] ** 2 / (n[0] - 1) + parts[1] ** 2 / (n[1] - 1))
    return _tested(value, error, freedom, pooled, n)


def rates(successes: int, trials: int, other_successes: int, other_trials: int) -> Difference:
    """The difference of two success rates."""
    n = (trials, other_trials)
    if not trials or not other_trials:
        return Difference(value=0.0, n=n, test=FISHER)
    one, other = wilson(successes, trials), wilson(other_successes, other_trials)
    a, b = successes / trials, other_successes / other_trials
    assert one.low is not None and one.high is not None and other.low is not None and other.high is not None
    value = a - b
    pooled = (successes + other_successes) / (trials + other_trials)
    spread = math.sqrt(max(pooled * (1 - pooled), 0.25 / (trials + other_trials)))
    reach = NormalDist().inv_cdf(1 - LEVEL / 2) + NormalDist().inv_cdf(POWER)
    smallest = reach * spread * math.sqrt(1 / trials + 1 / other_trials)
    return Difference(
        value=value,
        low=value - math.hypot(a - one.low, other.high - b),
        high=value + math.hypot(one.high - a, b - other.low),
        p=fisher(successes, trials - successes, other_successes, other_trials - other_successes),
        effect_size=2 * math.asin(math.sqrt(a)) - 2 * math.asin(math.sqrt(b)),
        smallest_detectable=min(1.0, smallest),
        runs_needed=_needed(value, smallest, n),
        n=n,
        test=FISHER,
    )


def fisher(a: int, b: int, c: int, d: int) -> float:
    """Fisher's exact test of a table of two rows and two columns, both sides."""
    rows, column, total = (a + b, c + d), a + c, a + b + c + d

    def chance(x: int) -> float:
        ways = _log_choose(rows[0], x) + _log_choose(rows[1], column - x) - _log_choose(total, column)
        return math.exp(ways)

    here = chance(a)
    possible = range(max(0, column - rows[1]), min(rows[0], column) + 1)
    # Equal chances differ in their last digits.
    return min(1.0, sum(p for p in map(chance, possible) if p <= here * (1 + 1e-9)))


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """The same chances, corrected for their number; what was not tested does not count."""
    tested = sorted((p, index) for index, p in enumerate(chances) if p is not None)
    corrected: list[float | None] = [None] * len(chances)
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        corrected[index] = highest
    return corrected


def _tested(
    value: float, error: float, freedom: float, spread: float, n: tuple[int, int], *, is_paired: bool = False
) -> Difference:
    test = PAIRED if is_paired else WELCH
    if error == 0:
        # Every value alike: a difference is certain as far as these runs go, and no interval can say more.
        p = 1.0 if value == 0 else None
        return Difference(value=value, low=value, high=value, p=p, n=n, is_paired=is_paired, test=test)
    reach = student_quantile(1 - LEVEL / 2, freedom)
    smallest = (reach + student_quantile(POWER, freedom)) * error
    return Difference(
        value=value,
        low=value - reach * error,
        high=value + reach * error,
        p=2 * (1 - student_cdf(abs(value / error), freedom)),
        effect_size=value / spread if spread else None,
        smallest_detectable=smallest,
        runs_needed=_needed(value, smallest, n),
        n=n,
        is_paired=is_paired,
        test=test,
    )


def _needed(value: float, smallest: float, n: tuple[int, int]) -> int | None:
    """What can be found shrinks with the root of the number of values. None: there is nothing to find."""
    if abs(value) <= 1e-9 * smallest:
        return None
    # Of groups of different size, what their error is as small as: two of their harmonic mean.
    size = 2 / (1 / n[0] + 1 / n[1])
    return max(2, math.ceil(size * (smallest / value) ** 2))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


# Differences of values that belong together: exact tests, intervals, resampling.


MCNEMAR, BOOTSTRAP = "McNemar's exact test", "sign flips, bootstrap interval"
FEWEST_TO_RESAMPLE = 8
"""Below this a bootstrap sees too little of the distribution; Student's interval is wider and safer."""

# Enough for two digits of a 95% interval; more values need fewer draws for the same.
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
