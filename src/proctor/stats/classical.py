"""Named classical tests and intervals, to print beside the `plus` interval, and the F test of a factor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from proctor.stats.intervals import CONFIDENCE, wilson_limits
from proctor.stats.samples import FloatArray, f_tail


def mcnemar(gained: int, lost: int, *, mid_p: bool = False) -> float:
    """Exact McNemar test of the pairs that differ; with `mid_p`, the less conservative mid-p.

    >>> round(mcnemar(9, 2), 4), round(mcnemar(9, 2, mid_p=True), 4)
    (0.0654, 0.0386)
    """
    pairs, fewer = gained + lost, min(gained, lost)
    if pairs == 0:
        return 1.0
    tail = float(special.bdtr(fewer, pairs, 0.5))
    if mid_p:
        at = float(special.bdtr(fewer, pairs, 0.5))
        below = float(special.bdtr(fewer - 1, pairs, 0.5)) if fewer else 0.0
        return min(1.0, 2 * tail - (at - below))
    return min(1.0, 2 * tail)


def newcombe(
    successes_a: int, trials_a: int, successes_b: int, trials_b: int, *, level: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Difference of two independent rates, b − a, with Newcombe's (1998) interval.

    >>> [round(number, 3) for number in newcombe(48, 80, 56, 70)]
    [0.2, 0.052, 0.334]
    """
    if trials_a <= 0 or trials_b <= 0:
        raise ValueError("both sides need trials")
    a, b = successes_a / trials_a, successes_b / trials_b
    low_a, high_a = wilson_limits(a, trials_a, level)
    low_b, high_b = wilson_limits(b, trials_b, level)
    value = b - a
    return value, value - math.hypot(b - low_b, high_a - a), value + math.hypot(high_b - b, a - low_a)


def newcombe_paired(
    both: int, only_a: int, only_b: int, neither: int, *, level: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Difference of two paired rates, b − a, with Newcombe's interval (method 10, continuity in phi).

    >>> [round(number, 3) for number in newcombe_paired(both=20, only_a=2, only_b=9, neither=5)]
    [0.194, 0.013, 0.361]
    """
    n = both + only_a + only_b + neither
    if n <= 0:
        raise ValueError("there are no pairs")
    with_a, with_b = both + only_a, both + only_b
    a, b = with_a / n, with_b / n
    product = with_a * (n - with_a) * with_b * (n - with_b)
    phi = 0.0
    if product:
        determinant = both * neither - only_a * only_b
        phi = (max(determinant - n / 2, 0.0) if determinant > 0 else determinant) / math.sqrt(product)
    low_a, high_a = wilson_limits(a, n, level)
    low_b, high_b = wilson_limits(b, n, level)

    def distance(of_b: float, of_a: float) -> float:
        return math.sqrt(max(0.0, of_b**2 - 2 * phi * of_b * of_a + of_a**2))

    value = b - a
    return value, value - distance(b - low_b, high_a - a), value + distance(high_b - b, a - low_a)


def fisher(a: int, b: int, c: int, d: int) -> float:
    """Fisher's exact test of the table [[a, b], [c, d]], two-sided.

    >>> round(fisher(14, 6, 9, 13), 4)
    0.0718
    """
    row, column, total = a + b, a + c, a + b + c + d
    cells = np.arange(max(0, column - (c + d)), min(row, column) + 1, dtype=np.float64)
    chances = np.exp(
        _log_ways(row, cells) + _log_ways(c + d, column - cells) - _log_ways(total, np.full(1, float(column)))
    )
    # Equal chances differ in their last digits.
    return float(min(1.0, chances[chances <= chances[a - int(cells[0])] * (1 + 1e-7)].sum()))


def _log_ways(total: int, chosen: FloatArray) -> FloatArray:
    """Logarithm of the ways to choose so many of `total`."""
    ways: FloatArray = (
        special.gammaln(total + 1) - special.gammaln(chosen + 1) - special.gammaln(total - chosen + 1)
    )
    return ways


def clopper_pearson(successes: int, trials: int, *, level: float = CONFIDENCE) -> tuple[float, float]:
    """Exact interval of a share of independent trials.

    >>> [round(limit, 4) for limit in clopper_pearson(8, 10)]
    [0.4439, 0.9748]
    """
    tail = (1 - level) / 2
    low = float(special.betaincinv(successes, trials - successes + 1, tail)) if successes else 0.0
    high = 1.0
    if successes < trials:
        high = float(special.betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high


def cohen_h(rate_a: float, rate_b: float) -> float:
    """Effect size of two rates, b against a.

    >>> round(cohen_h(0.6, 0.8), 2)
    0.44
    """
    return 2 * math.asin(math.sqrt(rate_b)) - 2 * math.asin(math.sqrt(rate_a))


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of the spread of some values goes with a factor."""

    p: float | None
    explained: float
    """Of all the spread, between 0 and 1."""
    freedom: int


def factor_test(
    values: Sequence[float], base: Sequence[Sequence[float]], added: Sequence[Sequence[float]]
) -> Share:
    """Whether columns added to a linear model explain more than chance would (F test).

    `base` and `added` are rows of numbers, one for each value; a constant is part of the model.

    >>> share = factor_test([3, 4, 5, 6, 7, 5], [()] * 6, [[0], [0], [0], [1], [1], [1]])
    >>> round(share.p, 3), round(share.explained, 2)
    (0.07, 0.6)
    """
    y = np.asarray(values, dtype=np.float64)
    y = y - y.mean() if len(y) else y
    total = float(y @ y)
    first = np.asarray(base, dtype=np.float64).reshape(len(y), -1)
    more = np.asarray(added, dtype=np.float64).reshape(len(y), -1)
    small, rank = _residual(y, first)
    large, full_rank = _residual(y, np.hstack([first, more]))
    gained, freedom, left = max(0.0, small - large), full_rank - rank, len(y) - full_rank
    explained = gained / total if total else 0.0
    if freedom <= 0 or left <= 0 or not total:
        return Share(p=None, explained=explained, freedom=max(freedom, 0))
    if large <= 1e-12 * total:
        # Nothing is left over: what was added explains it all, or there was nothing to explain.
        return Share(p=0.0 if gained > 1e-12 * total else None, explained=explained, freedom=freedom)
    return Share(
        p=f_tail((gained / freedom) / (large / left), freedom, left), explained=explained, freedom=freedom
    )


def _residual(y: FloatArray, columns: FloatArray) -> tuple[float, int]:
    """What a least-squares fit with a constant leaves over, and the rank of its columns."""
    constant = np.ones((len(y), 1))
    design = np.hstack([constant, columns])
    lengths = np.sqrt((design**2).sum(axis=0))
    # Columns of equal length, so that the rank does not depend on units.
    design = design[:, lengths > 0] / lengths[lengths > 0]
    basis, sizes, _ = np.linalg.svd(design, full_matrices=False)
    rank = int((sizes > 1e-9 * sizes[0]).sum()) if len(sizes) else 0
    basis = basis[:, :rank]
    rest = y - basis @ (basis.T @ y)
    return float(rest @ rest), rank
