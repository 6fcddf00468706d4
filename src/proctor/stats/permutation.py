"""Permutation tests of means: exact for few values, from seeded draws for many."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from proctor.stats.samples import FloatArray

MOST_FLIPPED = 16
"""Differences other than 0 up to which all their signs are enumerated."""
PERMUTATIONS = 9_999


def sign_flip(differences: Sequence[float] | FloatArray, *, mid_p: bool = False) -> float:
    """Two-sided p of paired differences: how often random signs move their sum as far from 0.

    Exact up to 16 differences other than 0, else from seeded draws. With `mid_p`, sums equal to the observed
    one count half: ratings have many, and the test would be too careful.

    >>> sign_flip([1, 2, 3, 4, 5, 6])
    0.03125
    """
    changes = np.asarray(differences, dtype=np.float64)
    changes = changes[np.abs(changes) > 1e-9 * float(np.abs(changes).max(initial=0.0))]
    if not len(changes):
        return 1.0
    observed = abs(float(changes.sum()))
    if len(changes) > MOST_FLIPPED:
        signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(PERMUTATIONS, len(changes)))
        return _share(np.append(signs @ changes, observed), observed, mid_p)
    sums = np.zeros(1)
    for change in changes:
        sums = np.concatenate([sums + change, sums - change])
    return _share(sums, observed, mid_p)


def shuffled(
    a: Sequence[float] | FloatArray, b: Sequence[float] | FloatArray, *, mid_p: bool = False
) -> float:
    """Two-sided p of two independent samples: how often a random division moves their means as far apart.

    Exact up to 9,999 divisions, else from seeded draws; `mid_p` as in `sign_flip`.

    >>> round(shuffled([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]), 3)
    0.002
    """
    values = np.concatenate([np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)])
    values = values - values.mean()
    if not float(np.ptp(values)):
        return 1.0
    observed = abs(float(values[: len(a)].sum()))
    if math.comb(len(values), len(a)) <= PERMUTATIONS:
        sums = np.array([values[list(chosen)].sum() for chosen in combinations(range(len(values)), len(a))])
        return _share(sums, observed, mid_p)
    rng = np.random.default_rng(0)
    drawn = rng.permuted(np.broadcast_to(values, (PERMUTATIONS, len(values))), axis=1)[:, : len(a)]
    return _share(np.append(drawn.sum(axis=1), observed), observed, mid_p)


def _share(sums: FloatArray, observed: float, mid_p: bool) -> float:
    """The share of sums at least as far from 0 as the observed one."""
    sums, rounding = np.abs(sums), 1e-9 * max(observed, 1e-300)
    beyond = float((sums > observed + rounding).mean())
    equal = float((np.abs(sums - observed) <= rounding).mean())
    return beyond + (equal / 2 if mid_p else equal)
