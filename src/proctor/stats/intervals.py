"""Rates, means and medians with confidence intervals.

Rates have Wilson's interval, which works with few trials and near 0 and 1; means have Student's; medians
the order statistics, which need no distribution. Only the standard library is used: importing scipy would
take longer than all queries of a report.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

CONFIDENCE = 0.95

# Above this, the binomial tail uses its normal approximation, with an error below one rank.
EXACT_RANKS = 1000

# Above this, Student's quantile differs from the normal one in the seventh digit.
NORMAL_FREEDOM = 1e7


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number computed from `n` others, and where the true one lies with 95% confidence."""

    value: float | None
    """None: there was nothing to compute it from."""
    low: float | None = None
    """None, as `high`: too few numbers to say."""
    high: float | None = None
    n: int = 0
    runs: int = 0
    sem: float | None = None
    level: float = CONFIDENCE
    scope: str = ""
    left_out: int = 0
    method: str = ""
    p: float | None = None
    note: str = ""
    needs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How many of how many, and the interval around their ratio."""

    successes: int
    trials: int
    low: float | None = None
    high: float | None = None

    @property
    def value(self) -> float | None:
        """Between 0 and 1; None when nothing was tried."""
        return self.successes / self.trials if self.trials else None


def wilson(successes: int, trials: int) -> Rate:
    """A success rate with Wilson's score interval."""
    if trials <= 0:
        return Rate(successes=0, trials=0)
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    share, weight = successes / trials, z * z / trials
    centre = (share + weight / 2) / (1 + weight)
    reach = z / (1 + weight) * math.sqrt(share * (1 - share) / trials + weight / (4 * trials))
    # At the ends the formula gives exactly 0 and 1, which rounding would miss by 1e-17.
    low = 0.0 if successes == 0 else max(0.0, centre - reach)
    high = 1.0 if successes == trials else min(1.0, centre + reach)
    return Rate(successes=successes, trials=trials, low=low, high=high)


def mean(n: int, total: float, squares: float) -> Estimate:
    """The mean of `n` numbers from their sum and the sum of their squares, with Student's interval."""
    if n <= 0:
        return Estimate(value=None)
    value = total / n
    std = sample_std(n, total, squares)
    if std is None:
        return Estimate(value=value, n=n)
    reach = student_quantile(0.5 + CONFIDENCE / 2, n - 1) * std / math.sqrt(n)
    return Estimate(value=value, low=value - reach, high=value + reach, n=n)


def mean_of(values: Sequence[float]) -> Estimate:
    """As `mean`, of the numbers themselves: also where they are large and lie close together."""
    if not values:
        return Estimate(value=None)
    # Squares of large numbers differ only in digits that are lost; those of their distances do not.
    centre = fmean(values)
    around = mean(len(values), 0.0, sum((value - centre) ** 2 for value in values))
    if around.low is None or around.high is None:
        return Estimate(value=centre, n=around.n)
    return Estimate(value=centre, low=centre + around.low, high=centre + around.high, n=around.n)


def sample_std(n: int, total: float, squares: float) -> float | None:
    """The sample standard deviation (n − 1) from sums; None for fewer than two numbers."""
    if n < 2:
        return None
    # Rounding can push the difference of two large sums just below zero.
    return math.sqrt(max(0.0, (squares - total * total / n) / (n - 1)))


def median(values: Sequence[float]) -> Estimate:
    """The median of some numbers with the order statistics that enclose the true one."""
    ordered, n = sorted(values), len(values)
    if not n:
        return Estimate(value=None)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    ranks = median_ranks(n)
    if ranks is None:
        return Estimate(value=middle, n=n)
    return Estimate(value=middle, low=ordered[ranks[0] - 1], high=ordered[ranks[1] - 1], n=n)


def median_ranks(n: int) -> tuple[int, int] | None:
    """Which two of `n` ordered numbers, counted from 1, enclose the median; None when too few."""
    tail = (1 - CONFIDENCE) / 2
    if n > EXACT_RANKS:
        z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
        low = math.floor((n + 1 - z * math.sqrt(n)) / 2)
        return low, n + 1 - low
    low, below = 0, 0.0
    while True:
        below += math.comb(n, low) / 2**n
        if below > tail:
            return (low, n + 1 - low) if low else None
        low += 1


def student_quantile(p: float, freedom: float) -> float:
    """The `p`-quantile of Student's t distribution."""
    if freedom > NORMAL_FREEDOM:
        return NormalDist().inv_cdf(p)
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -student_quantile(1 - p, freedom)
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < p:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if student_cdf(middle, freedom) < p else (low, middle)
    return (low + high) / 2


def student_cdf(t: float, freedom: float) -> float:
    """The chance that a Student's t variable is at most `t`."""
    tail = _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return 1 - tail if t > 0 else tail


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x))
    # The continued fraction converges fast only on this side of the mean.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, from its front (Lentz's method)."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    result = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return result


def f_tail(value: float, above: float, below: float) -> float:
    """The chance that an F variable with these degrees of freedom exceeds `value`."""
    if value <= 0 or below <= 0:
        return 1.0
    return _incomplete_beta(below / 2, above / 2, below / (below + above * value))
