"""Variance components of crossed designs, and the mixed model of a factor's effect.

A measure of a crossed design (client x therapist x profile x repeat) varies between the levels of each
factor, between their combinations, and between repeats of one combination. `components` estimates how much
each contributes, `mixed_model` the effect of a fixed factor (a model) when the levels of the others are a
sample. Random effects are taken as independent and normal.

Balanced data: mean squares, with generalized pivotal intervals (Weerahandi 1993). Unequal repeats and missing
combinations: restricted maximum likelihood, with the same pivots on sums of squares that are adjusted for
the other terms (type II); with balance the two are the same.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import stdtr, stdtrit

from proctor.errors import UsageError
from proctor.score import LARGEST
from proctor.stats.intervals import LIKE, Estimate

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

RESIDUAL = "repeat"
"""The variance between repeats of one combination."""
LEVEL = 0.95
MOST_UNBALANCED = 1500
"""Observations with missing combinations: the likelihood needs a matrix of this size."""
MOST_ROUNDS, MOST_HALVINGS = 100, 8
ENOUGH = 1e-9
"""Gain in deviance below which the likelihood is at its maximum."""
CLOSE = 1e-9
"""Relative to the largest, below which an eigenvalue or a change is rounding."""
PIVOTAL, ADJUSTED = (
    "mean squares, generalized pivotal interval",
    "REML, generalized pivotal interval on type II sums of squares",
)

Table = Mapping[str, Sequence[object]] | Sequence[Mapping[str, object]] | Any
"""Columns by name, rows, or a DataFrame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """The variance that one source contributes."""

    source: str
    """A factor, factors joined by `:` for their combination, or `repeat`."""
    variance: Estimate
    """`n` is the number of levels. No value: the note says with what it is confounded."""
    share: float | None = None
    """Of the sum of all estimated components, between 0 and 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Where the variance of a measure comes from."""

    components: tuple[Component, ...]
    mean: Estimate
    """Of all levels, which are a sample: the interval is for levels like these."""
    n: int
    """Observations used."""
    left_out: int
    """Rows without a value or without a level."""
    note: str = ""

    def of(self, source: str) -> Component:
        """The component of a source."""
        for component in self.components:
            if component.source == source:
                return component
        raise UsageError(f"no component {source}\nThere are: {', '.join(c.source for c in self.components)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedModel:
    """Effects of a fixed factor among random ones."""

    means: Mapping[str, Estimate]
    """By level of the fixed factor."""
    contrasts: Mapping[str, Estimate]
    """Differences from the baseline, or the requested contrasts, with p."""
    components: tuple[Component, ...]
    n: int
    left_out: int
    note: str = ""


def components(
    table: Table,
    factors: Sequence[str],
    value: str,
    *,
    draws: int = 4000,
    level: float = LEVEL,
    seed: int = 0,
) -> Components:
    """The variance components of `value` in a crossed design of random `factors`.

    >>> table = {"team": list("aaabbbcccddd"), "score": [3, 4, 5, 6, 7, 5, 2, 2, 3, 8, 7, 9]}
    >>> round(components(table, ["team"], "score").of("team").variance.value, 2)
    5.75
    """
    data = _Design(table, (), factors, value)
    fit = _fit(data)
    return Components(
        components=_components(data, fit, draws, level, seed),
        mean=_effect(fit, _weights([""], {"": 1.0}), level),
        n=data.n,
        left_out=data.left_out,
        note=data.note or fit.note,
    )


def mixed_model(
    table: Table,
    value: str,
    *,
    fixed: str | Sequence[str],
    random: Sequence[str],
    baseline: str = "",
    contrasts: Mapping[str, Mapping[str, float]] | None = None,
    draws: int = 4000,
    level: float = LEVEL,
    seed: int = 0,
) -> MixedModel:
    """The mean of each level of a fixed factor, and differences from `baseline` (the first level).

    Several fixed factors are one whose levels are their combinations, written `a · b`. `contrasts` are
    weights by level, in place of the differences. Degrees of freedom are Satterthwaite's.

    >>> table = {"model": list("aabb") * 3, "task": list("xxxxyyyyzzzz")}
    >>> table["score"] = [1, 2, 3, 3, 2, 2, 4, 5, 1, 1, 2, 3]
    >>> round(mixed_model(table, "score", fixed="model", random=["task"]).contrasts["b - a"].value, 3)
    1.833
    """
    names = (fixed,) if isinstance(fixed, str) else tuple(fixed)
    data = _Design(table, names, random, value)
    fit = _fit(data)
    levels = data.fixed_levels
    if not data.n:
        return MixedModel(
            means={}, contrasts={}, components=(), n=0, left_out=data.left_out, note=data.note or fit.note
        )
    weights_by_name = contrasts or _differences(levels, baseline)
    for name, weights in weights_by_name.items():
        if unknown := sorted(set(weights) - set(levels)):
            raise UsageError(f"contrast {name}: no level {unknown[0]}\nThere are: {', '.join(levels)}.")
    return MixedModel(
        means={name: _effect(fit, _weights(levels, {name: 1.0}), level) for name in levels},
        contrasts={
            name: _effect(fit, _weights(levels, weights), level, tested=True)
            for name, weights in weights_by_name.items()
        },
        components=_components(data, fit, draws, level, seed),
        n=data.n,
        left_out=data.left_out,
        note=data.note
        or fit.note
        or ("" if len(levels) > 1 else f"one level of {data.fixed_name}: nothing to compare"),
    )


def _differences(levels: Sequence[str], baseline: str) -> dict[str, dict[str, float]]:
    base = baseline or levels[0]
    if base not in levels:
        raise UsageError(f"no level {base}\nThere are: {', '.join(levels)}.")
    return {f"{name} - {base}": {name: 1.0, base: -1.0} for name in levels if name != base}


# The data as numbers.


def columns_of(table: Table, names: Iterable[str]) -> dict[str, list[object]]:
    """The named columns of a mapping of columns, of rows, or of a DataFrame."""
    if isinstance(table, Mapping) or hasattr(table, "columns"):
        known = [str(name) for name in (table if isinstance(table, Mapping) else table.columns)]
        for name in names:
            if name not in known:
                raise UsageError(f"the table has no column {name}\nThere are: {', '.join(known)}.")
        return {name: list(cast(Mapping[str, Sequence[object]], table)[name]) for name in names}
    rows = cast(Sequence[Mapping[str, object]], table)
    return {name: [row.get(name) for row in rows] for name in names}


@dataclass(frozen=True, slots=True)
class _RandomEffect:
    """A random effect: one for each group of observations."""

    source: str
    codes: Codes
    groups: int


class _Design:
    """Observations, their fixed level, and the partition of each random term."""

    def __init__(self, table: Table, fixed: Sequence[str], random: Sequence[str], value: str) -> None:
        if not random:
            raise UsageError("no random factor was named")
        columns = columns_of(table, [*fixed, *random, value])
        rows = [
            (number, [columns[name][place] for name in (*fixed, *random)])
            for place, each in enumerate(columns[value])
            if (number := _number(each)) is not None
            and not any(_is_missing(columns[name][place]) for name in (*fixed, *random))
        ]
        self.left_out = len(columns[value]) - len(rows)
        self.y: Array = np.array([number for number, _ in rows], dtype=float)
        self.n = len(rows)
        levels = [" · ".join(map(str, each[: len(fixed)])) for _, each in rows]
        self.fixed_levels = list(dict.fromkeys(levels))
        self.fixed_codes: Codes = _coded(levels)
        self.factors = {
            name: _coded([str(each[len(fixed) + place]) for _, each in rows])
            for place, name in enumerate(random)
        }
        self.confounded: dict[str, str] = {}
        """Why a term has no component of its own, by source."""
        self.fixed_name = ":".join(fixed)
        self.note = "" if self.n else "no row has a value and all levels"
        self.terms = self._terms() if self.n else []

    def _terms(self) -> list[_RandomEffect]:
        active: dict[str, Codes] = {}
        for name, codes in self.factors.items():
            groups = _groups(codes)
            if groups < 2:
                self.confounded[name] = f"one {name} only: its variance cannot be told from the mean"
                continue
            twin = next((other for other, its in active.items() if _same(its, codes)), "")
            if twin:
                self.confounded[name] = f"{name} changes with {twin}: their variances cannot be told apart"
                continue
            active[name] = codes
        terms: list[_RandomEffect] = []
        fixed = {self.fixed_name: self.fixed_codes} if len(self.fixed_levels) > 1 else {}
        names = [*fixed, *active]
        for size in range(1, len(names) + 1):
            for chosen in combinations(names, size):
                if set(chosen) <= set(fixed):
                    continue
                codes = _joined([{**fixed, **active}[name] for name in chosen])
                self._keep(terms, _RandomEffect(":".join(chosen), codes, _groups(codes)))
        return terms

    def _keep(self, terms: list[_RandomEffect], term: _RandomEffect) -> None:
        """Add a term, unless another one or the repeat has the same groups."""
        if term.groups == self.n:
            self.confounded[term.source] = (
                f"one run of each: {term.source} and {RESIDUAL} are one component, called {RESIDUAL}"
            )
            return
        twin = next((each.source for each in terms if _same(each.codes, term.codes)), "")
        if twin:
            self.confounded[term.source] = f"the same groups as {twin}"
            return
        terms.append(term)


def _number(value: object) -> float | None:
    if isinstance(value, int | float) or hasattr(value, "__float__"):
        number = float(cast(float, value))
        return number if abs(number) <= LARGEST else None
    return None


def _is_missing(value: object) -> bool:
    return value is None or value == "" or value != value


def _coded(values: Sequence[Hashable]) -> Codes:
    places: dict[Hashable, int] = {}
    return np.array([places.setdefault(value, len(places)) for value in values], dtype=np.intp)


def _joined(columns: Sequence[Codes]) -> Codes:
    """The combinations of several codes, as codes."""
    codes = columns[0]
    for column in columns[1:]:
        _, codes = np.unique(codes * _groups(column) + column, return_inverse=True)
    return codes


def _groups(codes: Codes) -> int:
    return int(codes.max()) + 1


def _same(first: Codes, second: Codes) -> bool:
    return _refines(first, second) and _refines(second, first)


def _refines(fine: Codes, coarse: Codes) -> bool:
    """Whether each group of the one lies within a group of the other."""
    level = np.zeros(_groups(fine), dtype=np.intp)
    level[fine] = coarse
    return bool((level[fine] == coarse).all())


# Sums of squares and what they are expected to be.


@dataclass(frozen=True, slots=True)
class _Squares:
    """Sums of squares of the terms and the residual (last), with their expectations."""

    sums: Array
    freedom: Array
    expected: Array
    """Coefficients of the components (columns) in each mean square (rows)."""

    def solve(self, squares: Array) -> Array:
        """The components for mean squares, in the last axis."""
        return cast(Array, squares @ np.linalg.inv(self.expected).T)


@dataclass(slots=True)
class _Fit:
    """Estimated components and fixed effects."""

    terms: list[_RandomEffect]
    squares: _Squares | None
    variances: Array
    """Of the terms and the residual, not negative."""
    means: Array
    """Of the fixed levels."""
    covariance: Array
    gradients: Array
    """Derivative of the covariance by each component."""
    information: Array
    """Covariance of the estimated components."""
    counts: Array
    method: str = ""
    note: str = ""


def _fit(data: _Design) -> _Fit:
    size = max(1, len(data.fixed_levels))
    counts = np.bincount(data.fixed_codes, minlength=size).astype(float) if data.n else np.zeros(size)
    empty = _Fit(
        terms=data.terms,
        squares=None,
        variances=np.full(len(data.terms) + 1, np.nan),
        means=np.array([data.y[data.fixed_codes == k].mean() for k in range(size)])
        if data.n
        else np.zeros(0),
        covariance=np.full((size, size), np.nan),
        gradients=np.zeros((len(data.terms) + 1, size, size)),
        information=np.zeros((len(data.terms) + 1, len(data.terms) + 1)),
        counts=counts,
        note=data.note,
    )
    if data.n < 2:
        empty.note = empty.note or "one observation: nothing varies"
        return empty
    # Sums of squares of large numbers differ in their last digits only; about the mean they do not.
    center = float(data.y.mean())
    y = data.y - center
    spread = float(np.abs(y).max())
    if spread <= CLOSE * CLOSE * max(1.0, abs(center)):
        empty.note = "all values are equal: there is no variance to divide"
        return empty
    y = y / spread
    balanced = _is_balanced(data)
    if not balanced and data.n > MOST_UNBALANCED:
        empty.note = (
            f"more than {MOST_UNBALANCED} observations with missing combinations or unequal repeats: "
            "leave out the incomplete levels"
        )
        return empty
    squares, terms = _balanced_squares(data, y) if balanced else _adjusted_squares(data, y)
    if squares is None:
        empty.note = "no repeats and no further combinations: the components cannot be told apart"
        return empty
    fit = _of_squares(data, y, terms, squares) if balanced else _likelihood(data, y, terms, squares)
    scale = spread * spread
    fit.means = fit.means * spread + center
    fit.covariance, fit.variances = fit.covariance * scale, fit.variances * scale
    fit.information = fit.information * scale * scale
    fit.squares = _Squares(squares.sums * scale, squares.freedom, squares.expected)
    fit.counts = counts
    return fit


def _is_balanced(data: _Design) -> bool:
    """Whether every combination of levels occurs, equally often; levels may be nested in equal numbers.

    A factor that another one refines (the client of a profile) adds no combinations.
    """
    columns = [codes for codes in (data.fixed_codes, *data.factors.values()) if _groups(codes) > 1]
    active = [
        codes for place, codes in enumerate(columns) if not any(_same(codes, c) for c in columns[:place])
    ]
    if not active:
        return True
    outer = {
        place: [fine for fine, codes in enumerate(active) if fine != place and _refines(codes, active[place])]
        for place in range(len(active))
    }
    finest = [codes for place, codes in enumerate(active) if not outer[place]]
    cells = np.bincount(_joined(finest))
    if len(cells) != math.prod(map(_groups, finest)) or cells.min() != cells.max():
        return False
    nested = [place for place, finer in outer.items() if finer]
    # Means of fixed levels that share a random one are correlated in a way only the likelihood knows.
    if len(data.fixed_levels) > 1 and any(
        _refines(data.fixed_codes, codes) and _groups(codes) > 1
        for codes in data.factors.values()
        if not _same(codes, data.fixed_codes)
    ):
        return False
    for inner in nested:
        sizes = np.bincount(active[inner])
        if sizes.min() != sizes.max():
            return False
        for other in nested:
            is_chain = _refines(active[inner], active[other]) or _refines(active[other], active[inner])
            if not is_chain and set(outer[inner]) & set(outer[other]):
                return False
    return True


def _balanced_squares(data: _Design, y: Array) -> tuple[_Squares | None, list[_RandomEffect]]:
    """Mean squares of a balanced design, of values about their mean: each term less those it refines."""
    fixed = (
        [_RandomEffect(data.fixed_name, data.fixed_codes, len(data.fixed_levels))]
        if len(data.fixed_levels) > 1
        else []
    )
    every = [*fixed, *data.terms]
    between, degrees = list[float](), list[int]()
    for index, term in enumerate(every):
        total = np.bincount(term.codes, weights=y, minlength=term.groups)
        coarser = [other for other in range(index) if _refines(term.codes, every[other].codes)]
        own = float((total * total).sum()) * term.groups / data.n
        between.append(max(0.0, own - sum(between[other] for other in coarser)))
        degrees.append(term.groups - 1 - sum(degrees[other] for other in coarser))
    rest = data.n - 1 - sum(degrees)
    if rest < 1:
        return None, data.terms
    left = max(0.0, float((y * y).sum()) - sum(between))
    sums, freedom = np.array([*between[len(fixed) :], left]), np.array([*degrees[len(fixed) :], rest], float)
    expected = np.array(
        [
            [data.n / finer.groups if _refines(finer.codes, term.codes) else 0.0 for finer in data.terms]
            + [1.0]
            for term in data.terms
        ]
        + [[0.0] * len(data.terms) + [1.0]]
    )
    return _Squares(sums, freedom, expected), data.terms


def _adjusted_squares(data: _Design, y: Array) -> tuple[_Squares | None, list[_RandomEffect]]:
    """Type II sums of squares: each term after all terms that do not refine it."""
    terms = list(data.terms)
    fixed = np.eye(max(1, len(data.fixed_levels)))[data.fixed_codes]
    while True:
        blocks = [np.eye(term.groups)[term.codes] for term in terms]
        everything = _basis(np.hstack([fixed, *blocks]))
        rest = data.n - everything.shape[1]
        bases = [_own_basis(index, terms, fixed, blocks) for index in range(len(terms))]
        lost = [index for index, basis in enumerate(bases) if basis.shape[1] == 0]
        if rest > 0 and not lost:
            break
        if not terms:
            return None, terms
        index = lost[-1] if lost else len(terms) - 1
        source = terms.pop(index).source
        data.confounded[source] = f"too few runs: {source} is part of {RESIDUAL}"
    sums = [float(((basis.T @ y) ** 2).sum()) for basis in bases]
    freedom = [basis.shape[1] for basis in bases]
    expected = [
        [
            float(((basis.T @ block) ** 2).sum()) / basis.shape[1]
            if _refines(finer.codes, term.codes)
            else 0.0
            for finer, block in zip(terms, blocks, strict=True)
        ]
        + [1.0]
        for term, basis in zip(terms, bases, strict=True)
    ]
    left = max(0.0, float((y * y).sum() - ((everything.T @ y) ** 2).sum()))
    squares = _Squares(
        np.array([*sums, left]),
        np.array([*freedom, rest], float),
        np.array([*expected, [0.0] * len(terms) + [1.0]]),
    )
    return squares, terms


def _basis(matrix: Array) -> Array:
    """Orthonormal columns with the span of a matrix."""
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    nonzero = values > CLOSE * max(1.0, float(values.max(initial=0.0)))
    return cast(Array, matrix @ (vectors[:, nonzero] / np.sqrt(values[nonzero])))


def _own_basis(index: int, terms: Sequence[_RandomEffect], fixed: Array, blocks: Sequence[Array]) -> Array:
    """Orthonormal columns of a term after the terms that do not refine it."""
    others = [
        block
        for other, block in enumerate(blocks)
        if other != index and not _refines(terms[other].codes, terms[index].codes)
    ]
    before = _basis(np.hstack([fixed, *others]))
    own = blocks[index] - before @ (before.T @ blocks[index])
    return _basis(own)


def _of_squares(data: _Design, y: Array, terms: list[_RandomEffect], squares: _Squares) -> _Fit:
    """Components and level means of a balanced design, in closed form."""
    size, mean_squares = max(1, len(data.fixed_levels)), squares.sums / squares.freedom
    # The components are linear in the mean squares, whose variances are known.
    inverse = np.linalg.inv(squares.expected)
    variances = np.maximum(0.0, inverse @ mean_squares)
    information = inverse @ np.diag(2 * mean_squares**2 / squares.freedom) @ inverse.T
    means = np.bincount(data.fixed_codes, weights=y, minlength=size) * size / data.n
    gradients = np.zeros((len(terms) + 1, size, size))
    for index, term in enumerate(terms):
        crossed = size > 1 and _refines(term.codes, data.fixed_codes)
        gradients[index] = (
            np.eye(size) * size / term.groups if crossed else np.full((size, size), 1 / term.groups)
        )
    gradients[-1] = np.eye(size) * size / data.n
    return _Fit(
        terms=terms,
        squares=squares,
        variances=variances,
        means=means,
        covariance=np.tensordot(variances, gradients, axes=1),
        gradients=gradients,
        information=information,
        counts=np.zeros(0),
        method=PIVOTAL,
    )


def _likelihood(data: _Design, y: Array, terms: list[_RandomEffect], squares: _Squares) -> _Fit:
    """Restricted maximum likelihood by Fisher scoring with step halving; components are not negative."""
    x = np.eye(max(1, len(data.fixed_levels)))[data.fixed_codes]
    smallest = CLOSE * float(y.var())
    theta = np.maximum(squares.solve(squares.sums / squares.freedom), 1e-3 * float(y.var()))
    now = _likelihood_at(theta, terms, x, y)
    for _ in range(MOST_ROUNDS):
        # A component at zero whose likelihood falls with it stays there.
        free = (theta > smallest) | (now.scores > 0)
        free[-1] = True
        step = np.zeros(len(theta))
        step[free] = np.linalg.solve(now.information[np.ix_(free, free)], now.scores[free])
        for halving in range(MOST_HALVINGS):
            new = np.maximum(theta + step / 2**halving, 0.0)
            new[-1] = max(new[-1], smallest)
            then = _likelihood_at(new, terms, x, y)
            if then.deviance <= now.deviance:
                break
        gain = now.deviance - then.deviance
        if gain >= 0:
            theta, now = new, then
        if gain < ENOUGH:
            break
    inside = theta > smallest
    inside[-1] = True
    spread = np.zeros((len(theta), len(theta)))
    spread[np.ix_(inside, inside)] = np.linalg.inv(now.information[np.ix_(inside, inside)])
    effects = [_sums(now.effects.T, term) for term in terms]
    return _Fit(
        terms=terms,
        squares=squares,
        variances=theta,
        means=now.effects @ y,
        covariance=now.covariance,
        gradients=np.array([*(each.T @ each for each in effects), now.effects @ now.effects.T]),
        information=spread,
        counts=np.zeros(0),
        method=ADJUSTED,
    )


@dataclass(frozen=True, slots=True)
class _Likelihood:
    """The restricted likelihood at some components, and what follows from it."""

    deviance: float
    """Twice the negative logarithm, up to a constant."""
    scores: Array
    information: Array
    covariance: Array
    effects: Array
    """Weights of the observations in the fixed effects."""


def _likelihood_at(theta: Array, terms: Sequence[_RandomEffect], x: Array, y: Array) -> _Likelihood:
    total = theta[-1] * np.eye(len(y))
    for value, term in zip(theta[:-1], terms, strict=True):
        total += value * (term.codes[:, None] == term.codes)
    # One Cholesky factor gives the determinant and the inverse in a third of the time of `inv` and `slogdet`.
    factor, _ = dpotrf(total)
    upper = np.triu(dpotri(factor)[0])
    inverse = upper + np.triu(upper, 1).T
    weighted = inverse @ x
    crossed = x.T @ weighted
    covariance = cast(Array, np.linalg.inv(crossed))
    projection = inverse - weighted @ covariance @ weighted.T
    residual = projection @ y
    halves = [_sums(projection, term) for term in terms]
    traces = [
        float(half[term.codes, np.arange(len(y))].sum()) for half, term in zip(halves, terms, strict=True)
    ]
    fits = [float((_sums(residual, term) ** 2).sum()) for term in terms]
    size = len(theta)
    information = np.empty((size, size))
    for row, half in enumerate(halves):
        for column in range(row, size - 1):
            information[row, column] = information[column, row] = (_sums(half.T, terms[column]) ** 2).sum()
        information[row, -1] = information[-1, row] = (half**2).sum()
    information[-1, -1] = (projection**2).sum()
    return _Likelihood(
        deviance=float(2 * np.log(np.diagonal(factor)).sum() + np.linalg.slogdet(crossed)[1] + y @ residual),
        scores=0.5 * (np.array([*fits, residual @ residual]) - np.array([*traces, np.trace(projection)])),
        information=0.5 * information,
        covariance=covariance,
        effects=covariance @ weighted.T,
    )


def _sums(matrix: Array, term: _RandomEffect) -> Array:
    """The rows of a matrix, or the numbers of a vector, summed by the groups of a term."""
    order = np.argsort(term.codes, kind="stable")
    starts = np.searchsorted(term.codes[order], np.arange(term.groups))
    return cast(Array, np.add.reduceat(matrix[order], starts, axis=0))


# Results in words and intervals.


def _components(data: _Design, fit: _Fit, draws: int, level: float, seed: int) -> tuple[Component, ...]:
    estimates: dict[str, Estimate] = {}
    if fit.squares is not None:
        squares = fit.squares
        chance = np.random.default_rng(seed)
        drawn = squares.solve(squares.sums / chance.chisquare(squares.freedom, (draws, len(squares.freedom))))
        tails = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        for index, source in enumerate([*(term.source for term in fit.terms), RESIDUAL]):
            low, high = (max(0.0, float(tail[index])) for tail in tails)
            estimates[source] = _variance(
                float(fit.variances[index]), low, high, int(squares.freedom[index]), fit.method, level
            )
    for source, reason in data.confounded.items():
        estimates[source] = Estimate(value=None, note=reason, method=fit.method, level=level, scope=LIKE)
    total = sum(each.value for each in estimates.values() if each.value is not None)
    return tuple(
        Component(
            source=source,
            variance=estimate,
            share=estimate.value / total if estimate.value is not None and total > 0 else None,
        )
        for source, estimate in estimates.items()
    )


def _variance(value: float, low: float, high: float, freedom: int, method: str, level: float) -> Estimate:
    """A component with its interval: none below 3 levels, one from 0 with a proviso below 5."""
    levels, note, needs = freedom + 1, "", None
    bounds: tuple[float | None, float | None] = (low, high)
    if freedom < 2:
        bounds, needs = (None, None), 5
        note = f"{levels} levels only: no interval; needs at least 3, better 5"
    elif freedom < 4:
        bounds, needs = (0.0, high), 5
        note = f"between 0 and {high:.3g} ({levels} levels only): do not rank sources by it"
    return Estimate(
        value=value,
        low=bounds[0],
        high=bounds[1],
        n=levels,
        level=level,
        scope=LIKE,
        method=method,
        note=note,
        needs=needs,
    )


NO_SPREAD = 1e-4
"""Standard errors below this part of the range of the level means come from the floor of the variances, not
from the data: each level always has the same value."""


def _weights(levels: Sequence[str], weights: Mapping[str, float]) -> Array:
    return np.array([weights.get(name, 0.0) for name in levels])


def _effect(fit: _Fit, weights: Array, level: float, *, tested: bool = False) -> Estimate:
    """A linear combination of level means, with Satterthwaite's degrees of freedom."""
    runs = int(fit.counts[weights != 0].sum()) if len(fit.counts) else 0
    if not len(fit.means):
        return Estimate(value=None, level=level, scope=LIKE, note=fit.note)
    value = float(weights @ fit.means)
    variance = float(weights @ fit.covariance @ weights)
    method = "mixed model, Satterthwaite"
    rounding = NO_SPREAD * float(np.ptp(fit.means))
    if not np.isfinite(variance) or variance <= rounding**2:
        note = fit.note or "the values do not vary within the levels: no interval"
        return Estimate(value=value, n=runs, level=level, scope=LIKE, method=method, note=note)
    gradient = np.array([float(weights @ each @ weights) for each in fit.gradients])
    spread = float(gradient @ fit.information @ gradient)
    freedom = max(1.0, 2 * variance**2 / spread) if spread > 0 else math.inf
    error = math.sqrt(variance)
    reach = float(stdtrit(min(freedom, 1e9), (1 + level) / 2)) * error
    return Estimate(
        value=value,
        low=value - reach,
        high=value + reach,
        n=runs,
        sem=error,
        level=level,
        scope=LIKE,
        method=f"{method} df {freedom:.1f}",
        p=2 * float(stdtr(min(freedom, 1e9), -abs(value) / error)) if tested else None,
    )
