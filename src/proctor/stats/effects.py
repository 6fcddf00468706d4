"""Analysis of variance of crossed factors with blocks, rank tests beside it, and association of labels.

Sums of squares are of type II: each term adjusted for all terms that do not contain it. Blocks (seeds) are a
term of their own. The error of a term is the residual, unless the term's size seems to vary between blocks:
then it is the term's combination with the blocks, as in repeated measures.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from statistics import fmean

import numpy as np
from scipy import special

from proctor.stats.intervals import FEWEST_TASKS
from proctor.stats.permutation import PERMUTATIONS, sign_flip
from proctor.stats.samples import FloatArray, IntArray, f_tail

POOLED = 0.25
"""A term is alike in all blocks if an F test of both together has at least this p (Bancroft 1964)."""
ETA_LEVEL = 0.9
"""Level of the interval of a partial eta squared: it excludes 0 exactly where the F test has p < 0.05."""
MOST_COLUMNS = 600
"""Columns of a linear model; terms that would need more are not part of it."""
RESIDUAL, BLOCK = "residual", "seed"
BATCH = 500
"""Permutations of labels that are drawn together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnovaRow:
    """One line of an analysis of variance."""

    source: str
    """A factor, two joined by ` × `, `seed` or `residual`."""
    sum_of_squares: float
    df: int
    mean_square: float | None
    f: float | None = None
    df_error: int | None = None
    error: str = ""
    """What the mean square was divided by."""
    p: float | None = None
    p_corrected: float | None = None
    """For all F tests of all metrics (Bonferroni)."""
    partial_eta_squared: float | None = None
    low: float | None = None
    """Limits of partial eta squared at 90%."""
    high: float | None = None
    explained: float = 0.0
    """Of all variance, between 0 and 1."""
    rank_test: str = ""
    rank_p: float | None = None
    note: str = ""


def anova(
    values: Sequence[float],
    factors: Mapping[str, Sequence[str]],
    blocks: Sequence[Hashable] | None = None,
) -> list[AnovaRow]:
    """The analysis of variance of values by crossed factors, with interactions of two.

    `factors` has the level of each value; `blocks` what runs of one block have in common, or None.

    >>> rows = anova([3, 4, 5, 6, 7, 5], {"tone": list("aaabbb")})
    >>> [(row.source, round(row.sum_of_squares, 2), row.df) for row in rows]
    [('tone', 6.0, 1), ('residual', 4.0, 4)]
    >>> round(rows[0].f, 2), round(rows[0].p, 3), round(rows[0].partial_eta_squared, 2)
    (6.0, 0.07, 0.6)
    """
    y = np.asarray(values, dtype=np.float64)
    if len(y) < 3:
        return []
    y = y - y.mean()
    total = float(y @ y)
    levels = tuple((name, tuple(column)) for name, column in factors.items() if len(set(column)) > 1)
    has_blocks = blocks is not None and 1 < len(set(blocks)) < len(y)
    if not levels or total <= 0:
        return []
    design = _design(levels, tuple(blocks) if blocks is not None and has_blocks else None)
    sums, terms = design.sums(y), design.terms
    everything = (*([BLOCK] if has_blocks else []), *(" × ".join(names) for names in terms))
    left, rank = sums(everything)
    left_df, left = len(y) - rank, 0.0 if left <= 1e-12 * total else left
    rows = []
    for names in terms:
        source = " × ".join(names)
        base = tuple(
            other for other in everything if other == BLOCK or not set(names) <= set(other.split(" × "))
        )
        without, rank_without = sums(base)
        within, rank_within = sums((*base, source))
        squares, df = max(0.0, without - within), rank_within - rank_without
        if df <= 0:
            note = "confounded with other terms"
            rows.append(AnovaRow(source=source, sum_of_squares=0.0, df=0, mean_square=None, note=note))
            continue
        error, error_df, name = left, left_df, RESIDUAL
        together = f"{source} × {BLOCK}"
        if together in design.places:
            rest, rank_rest = sums((*everything, together))
            varying = _varies_with_blocks(left, left_df, rest, len(y) - rank_rest)
            if varying is not None:
                error, error_df, name = *varying, together
        row = AnovaRow(
            source=source,
            sum_of_squares=squares,
            df=df,
            mean_square=squares / df,
            explained=squares / total,
            error=name,
        )
        rows.append(_tested(row, error, error_df))
    if has_blocks:
        without, rank_without = sums(everything[1:])
        squares, df = max(0.0, without - left), rank - rank_without
        if df > 0:
            row = AnovaRow(
                source=BLOCK,
                sum_of_squares=squares,
                df=df,
                mean_square=squares / df,
                explained=squares / total,
                error=RESIDUAL,
            )
            rows.append(replace(_tested(row, left, left_df), partial_eta_squared=None, low=None, high=None))
    rows.append(
        AnovaRow(
            source=RESIDUAL,
            sum_of_squares=left,
            df=max(0, left_df),
            mean_square=left / left_df if left_df > 0 else None,
            explained=left / total,
            note=design.note,
        )
    )
    return rows


class _Design:
    """The columns of a linear model, and sums of squares of fits to some of its terms.

    Fits use the products of the columns, so that they do not depend on the number of runs, and are shared by
    all metrics of the same runs.
    """

    def __init__(
        self, levels: tuple[tuple[str, tuple[str, ...]], ...], blocks: tuple[Hashable, ...] | None
    ) -> None:
        coded = {name: _dummies(column) for name, column in levels}
        block = _dummies(blocks) if blocks is not None else None
        columns: dict[str, FloatArray] = {} if block is None else {BLOCK: block}
        self.terms: list[tuple[str, ...]] = [(name,) for name in coded]
        columns |= coded
        left_out = list[str]()
        for pair in combinations(coded, 2):
            product = _product(coded[pair[0]], coded[pair[1]])
            if sum(known.shape[1] for known in columns.values()) + product.shape[1] > MOST_COLUMNS:
                left_out.append(" × ".join(pair))
                continue
            columns[" × ".join(pair)] = product
            self.terms.append(pair)
        self.note = f"without {', '.join(left_out)}: too many levels" if left_out else ""
        for names in self.terms if block is not None else ():
            source = " × ".join(names)
            if block is not None and columns[source].shape[1] * block.shape[1] <= MOST_COLUMNS:
                columns[f"{source} × {BLOCK}"] = _product(columns[source], block)
        self.places: dict[str, IntArray] = {}
        start = 1
        for source, values in columns.items():
            self.places[source] = np.arange(start, start + values.shape[1])
            start += values.shape[1]
        rows = len(levels[0][1])
        self._columns = np.hstack([np.ones((rows, 1)), *columns.values()])
        self._products = self._columns.T @ self._columns
        self._bases: dict[tuple[str, ...], tuple[IntArray, FloatArray]] = {}

    def sums(self, y: FloatArray) -> "Callable[[tuple[str, ...]], tuple[float, int]]":
        """What fits of these terms leave over of y, and their ranks."""
        total, products = float(y @ y), self._columns.T @ y

        def left_over(terms: tuple[str, ...]) -> tuple[float, int]:
            chosen, basis = self._basis(terms)
            fitted = basis.T @ products[chosen]
            return max(0.0, total - float(fitted @ fitted)), basis.shape[1]

        return left_over

    def _basis(self, terms: tuple[str, ...]) -> tuple[IntArray, FloatArray]:
        """The columns of some terms, and combinations of them that are orthogonal and of length 1."""
        if terms not in self._bases:
            chosen = np.concatenate([np.zeros(1, dtype=np.int64), *(self.places[term] for term in terms)])
            sizes, vectors = np.linalg.eigh(self._products[np.ix_(chosen, chosen)])
            kept = sizes > 1e-10 * sizes[-1]
            self._bases[terms] = chosen, vectors[:, kept] / np.sqrt(sizes[kept])
        return self._bases[terms]


_design = lru_cache(maxsize=4)(_Design)


def _tested(row: AnovaRow, error: float, df: int) -> AnovaRow:
    if df <= 0 or error <= 0 or row.mean_square is None:
        note = "no runs are left to estimate the error" if df <= 0 else "nothing varies beside the terms"
        return replace(row, note=note)
    f = row.mean_square / (error / df)
    low, high = eta_interval(f, row.df, df)
    return replace(
        row,
        f=f,
        df_error=df,
        p=f_tail(f, row.df, df),
        partial_eta_squared=row.sum_of_squares / (row.sum_of_squares + error),
        low=low,
        high=high,
    )


def _varies_with_blocks(left: float, left_df: int, rest: float, rest_df: int) -> tuple[float, int] | None:
    """Sum of squares and degrees of freedom of a term's combination with blocks, if they are its error."""
    squares, df = left - rest, left_df - rest_df
    if df <= 0 or rest_df <= 0 or rest <= 1e-12 * left or squares <= 0:
        return None
    varies = f_tail((squares / df) / (rest / rest_df), df, rest_df) < POOLED
    # Error that is smaller by chance would make the term look larger than it is.
    return (squares, df) if varies and squares / df > left / left_df else None


def eta_interval(f: float, df: int, df_error: int, level: float = ETA_LEVEL) -> tuple[float, float]:
    """The interval of a partial eta squared, from the noncentral F distribution.

    >>> [round(limit, 2) for limit in eta_interval(40.72, 2, 18)]
    [0.66, 0.89]
    """
    limits = []
    for share in ((1 + level) / 2, (1 - level) / 2):
        if float(special.ncfdtr(df, df_error, 0.0, f)) <= share:
            limits.append(0.0)
            continue
        inside, outside = 0.0, 1.0
        while float(special.ncfdtr(df, df_error, outside, f)) > share and outside < 1e7:
            inside, outside = outside, outside * 2
        for _ in range(60):
            middle = (inside + outside) / 2
            if float(special.ncfdtr(df, df_error, middle, f)) > share:
                inside = middle
            else:
                outside = middle
        limits.append(inside / (inside + df_error))
    return limits[0], limits[1]


def hedges_g(
    difference: float, error: float, a: Sequence[float], b: Sequence[float]
) -> tuple[float, float, float] | None:
    """A difference in standard deviations within the two sides, corrected for small samples, and its 95% CI.

    `error` is the standard error of the difference, paired or not: the interval fits the design. None: the
    sides do not vary.

    >>> rng = np.random.default_rng(1)
    >>> a, b = rng.normal(100, 4.5, 50), rng.normal(103, 5.5, 50)
    >>> [round(number, 2) for number in hedges_g(3.0, 1.0, list(a), list(b))]
    [0.69, 0.22, 1.16]
    """
    freedom = len(a) + len(b) - 2
    if min(len(a), len(b)) < 2:
        return None
    squares = float(np.var(a, ddof=1)) * (len(a) - 1) + float(np.var(b, ddof=1)) * (len(b) - 1)
    deviation = math.sqrt(squares / freedom)
    if deviation <= 1e-12 * max(abs(value) for value in (*a, *b)):
        return None
    small = math.exp(special.gammaln(freedom / 2) - special.gammaln((freedom - 1) / 2)) / math.sqrt(
        freedom / 2
    )
    d = difference / deviation
    reach = float(special.stdtrit(freedom, 0.975)) * math.hypot(error / deviation, d / math.sqrt(2 * freedom))
    return small * d, small * (d - reach), small * (d + reach)


def _dummies(levels: Sequence[Hashable]) -> FloatArray:
    """Effect-coded columns: sums of squares of balanced factors do not depend on their order."""
    known = list(dict.fromkeys(levels))
    place = {level: index for index, level in enumerate(known)}
    codes = np.array([place[level] for level in levels])
    columns: FloatArray = (codes[:, None] == np.arange(1, len(known))).astype(np.float64)
    columns[codes == 0] = -1.0
    return columns


def _product(first: FloatArray, second: FloatArray) -> FloatArray:
    columns: FloatArray = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
    return columns


# Rank tests.


def ranks(values: Sequence[float]) -> FloatArray:
    """Ranks from 1 on; equal values have their mean rank."""
    array = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    result: FloatArray = (ends - (counts - 1) / 2)[inverse]
    return result


def signed_rank(differences: Sequence[float]) -> float:
    """Wilcoxon's signed-rank test of paired differences, two-sided; zeros are left out.

    >>> round(signed_rank([0.95, -0.15, 1.02, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01]), 4)
    0.0391
    """
    changes = [change for change in differences if change]
    if not changes:
        return 1.0
    return sign_flip(
        [
            math.copysign(rank, change)
            for rank, change in zip(ranks(list(map(abs, changes))), changes, strict=True)
        ]
    )


def kruskal(groups: Sequence[Sequence[float]]) -> float | None:
    """The Kruskal–Wallis test of independent groups; None: all values are equal.

    >>> x, y, z = [2.9, 3.0, 2.5, 2.6, 3.2], [3.8, 2.7, 4.0, 2.4], [2.8, 3.4, 3.7, 2.2, 2.0]
    >>> round(kruskal([x, y, z]), 2)
    0.68
    """
    values = [value for group in groups for value in group]
    n, every = len(values), ranks(values)
    ties = 1 - _ties(values) / (n**3 - n) if n > 1 else 0.0
    if ties <= 0 or len(groups) < 2:
        return None
    at, squares = 0, 0.0
    for group in groups:
        squares += float(every[at : at + len(group)].sum()) ** 2 / len(group)
        at += len(group)
    statistic = (12 / (n * (n + 1)) * squares - 3 * (n + 1)) / ties
    return float(special.chdtrc(len(groups) - 1, max(0.0, statistic)))


def friedman(blocks: Sequence[Sequence[float]]) -> float | None:
    """The Friedman test of complete blocks, each with a value of every level; None: nothing differs."""
    if len(blocks) < 2:
        return None
    levels = len(blocks[0])
    rank_sums = np.sum([ranks(block) for block in blocks], axis=0)
    ties = sum(_ties(block) for block in blocks)
    scale = len(blocks) * levels * (levels + 1) - ties / (levels - 1)
    if scale <= 0:
        return None
    center = len(blocks) * (levels + 1) / 2
    return float(special.chdtrc(levels - 1, 12 * float(((rank_sums - center) ** 2).sum()) / scale))


def _ties(values: Sequence[float]) -> float:
    _, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    return float((counts.astype(np.float64) ** 3 - counts).sum())


def rank_test(
    values: Sequence[float], levels: Sequence[str], blocks: Sequence[Hashable] | None
) -> tuple[str, float | None]:
    """The name and p of the rank test that fits the design of a factor.

    `blocks` are what the runs to compare have in common. Complete blocks: Wilcoxon's signed ranks for two
    levels, Friedman's test for more; without blocks: Kruskal and Wallis.

    >>> name, p = rank_test([3, 5, 2, 4], ["plain", "guide", "plain", "guide"], None)
    >>> name, round(p, 3)
    ('Kruskal–Wallis', 0.121)
    """
    known = list(dict.fromkeys(levels))
    if blocks is None:
        groups = [[v for v, level in zip(values, levels, strict=True) if level == name] for name in known]
        return "Kruskal–Wallis", kruskal(groups)
    cells: dict[Hashable, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for value, level, block in zip(values, levels, blocks, strict=True):
        cells[block][level].append(value)
    complete = [[fmean(cell[name]) for name in known] for cell in cells.values() if len(cell) == len(known)]
    name = "Wilcoxon signed-rank" if len(known) == 2 else "Friedman"
    if len(complete) < FEWEST_TASKS:
        return name, None
    if len(known) == 2:
        return name, signed_rank([second - first for first, second in complete])
    return name, friedman(complete)


# Labels.


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """Whether a categorical metric goes with a factor."""

    counts: Mapping[str, Mapping[str, int]]
    """Runs by level of the factor and label."""
    p: float | None
    p_corrected: float | None = None
    """For all categorical tests (Bonferroni)."""
    cramers_v: float | None = None
    low: float | None = None
    high: float | None = None
    test: str = ""
    n: int = 0
    note: str = ""


def association(
    labels: Sequence[str], levels: Sequence[str], blocks: Sequence[Hashable] | None = None
) -> Association:
    """Pearson's chi-squared of labels by level, tested by permutation within blocks, and Cramér's V.

    The 95% CI of V is that of the noncentral chi-squared distribution.

    >>> result = association(list("aaaaabbbbb") * 2, list("xxxxyyyyyy") * 2)
    >>> result.p < 0.01, round(result.cramers_v, 2)
    (True, 0.82)
    """
    rows, columns = _codes(levels), _codes(labels)
    counts: dict[str, dict[str, int]] = {}
    for level, label in zip(levels, labels, strict=True):
        counts.setdefault(level, {})[label] = counts.setdefault(level, {}).get(label, 0) + 1
    result = Association(counts=counts, p=None, n=len(labels))
    height, width = int(rows.max(initial=0)) + 1, int(columns.max(initial=0)) + 1
    if height < 2 or width < 2:
        return replace(result, note="all labels are equal" if width < 2 else "one level")
    # Blocks in which nothing can be exchanged say nothing.
    groups = _codes(blocks) if blocks is not None else np.zeros(len(rows), dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    groups = groups[order]
    table = np.bincount(rows * width + columns, minlength=height * width).reshape(height, width)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / len(rows)
    observed = float(((table - expected) ** 2 / expected).sum())
    rng, reached = np.random.default_rng(0), 0
    for first in range(0, PERMUTATIONS, BATCH):
        draws = min(BATCH, PERMUTATIONS - first)
        # Sorting within blocks by random numbers: labels change places in their block.
        shuffle = np.argsort(rng.random((draws, len(rows))) + groups, axis=1)
        cells = rows[order] * width + columns[order][shuffle] + height * width * np.arange(draws)[:, None]
        tables = np.bincount(cells.ravel(), minlength=draws * height * width).reshape(draws, height, width)
        statistics = ((tables - expected) ** 2 / expected).sum(axis=(1, 2))
        reached += int((statistics >= observed * (1 - 1e-9)).sum())
    size = len(labels) * (min(height, width) - 1)
    freedom = (height - 1) * (width - 1)
    low, high = (math.sqrt(_noncentral(observed, freedom, share) / size) for share in (0.975, 0.025))
    test = "chi-squared, permutation within seeds" if blocks is not None else "chi-squared, permutation"
    return replace(
        result,
        p=(1 + reached) / (PERMUTATIONS + 1),
        cramers_v=math.sqrt(observed / size),
        low=min(1.0, low),
        high=min(1.0, high),
        test=test,
    )


def _codes(values: Sequence[Hashable]) -> IntArray:
    place: dict[Hashable, int] = {}
    return np.array([place.setdefault(value, len(place)) for value in values], dtype=np.int64)


def _noncentral(statistic: float, df: int, share: float) -> float:
    """The noncentrality at which a chi-squared value is this quantile; 0: below the central one."""
    if float(special.chndtr(statistic, df, 0.0)) <= share:
        return 0.0
    return float(special.chndtrinc(statistic, df, share))
