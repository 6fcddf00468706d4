"""Logistic and ordinal regression on factors: odds ratios with intervals.

The proportional-odds model of ordered values; of two values it is logistic regression. Where runs share
blocks (seeds), standard errors are also computed clustered by block, and the larger one counts.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from proctor.stats.samples import FloatArray, IntArray

LOGISTIC, ORDINAL = "logistic regression", "proportional odds"
MOST_CATEGORIES = 11
"""Distinct values of an ordered scale; with more it is a number."""
MOST_COEFFICIENTS = 100
MOST_ROUNDS = 60
SEPARATED = 12.0
"""Log odds ratio above which a level is taken to separate the values completely."""
LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class OddsRatio:
    """The odds of higher values at a level of a factor, in relation to its first level."""

    factor: str
    level: str
    baseline: str
    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_corrected: float | None = None
    """For all odds ratios of all metrics (Bonferroni)."""
    log: float | None = None
    """Its logarithm: the coefficient."""
    error: float | None = None
    """Standard error of the logarithm."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OddsModel:
    """A fitted model."""

    method: str
    """`logistic regression` or `proportional odds`."""
    ratios: tuple[OddsRatio, ...]
    thresholds: tuple[float, ...] = ()
    """Of the latent scale, between the values; of a logistic regression, minus its constant."""
    deviance: float | None = None
    n: int = 0
    note: str = ""


def odds_model(
    values: Sequence[float],
    factors: Mapping[str, Sequence[str]],
    blocks: Sequence[Hashable] | None = None,
    *,
    weights: Sequence[float] | None = None,
) -> OddsModel:
    """The effects of factors on ordered values, without interactions, each against its first level.

    `weights` count equal runs.

    >>> model = odds_model([0, 0, 1, 1, 0, 1, 1, 1] * 5, {"tone": list("aaaabbbb") * 5})
    >>> (ratio,) = model.ratios
    >>> round(ratio.value, 2), round(ratio.p, 2)
    (3.0, 0.11)
    """
    known = {name: list(dict.fromkeys(levels)) for name, levels in factors.items()}
    names = [(name, level, levels[0]) for name, levels in known.items() for level in levels[1:]]
    categories = sorted(set(values))
    method = LOGISTIC if len(categories) == 2 else ORDINAL
    model = OddsModel(method=method, ratios=(), n=len(values))
    if not names or not 2 <= len(categories) <= MOST_CATEGORIES or len(names) > MOST_COEFFICIENTS:
        return replace(model, note="needs between 2 and 11 different values, and few levels")
    codes = np.searchsorted(np.array(categories), np.array(values, dtype=np.float64))
    columns = np.array(
        [[float(at == level) for at in factors[name]] for name, level, _ in names], dtype=np.float64
    ).T
    counts = np.ones(len(codes)) if weights is None else np.asarray(weights, dtype=np.float64)
    fit = _fit(codes, columns, counts, len(categories))
    if fit is None:
        return replace(model, note="cannot be fitted: confounded factors, or a level without variation")
    parameters, information, scores, deviance = fit
    first, freedom = len(categories) - 1, math.inf
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    if blocks is not None and len(set(blocks)) > 1:
        clustered, freedom = _clustered(information, scores * counts[:, None], blocks)
        errors = np.fmax(errors, clustered)
    quantile = float(
        special.ndtri(0.5 + LEVEL / 2) if math.isinf(freedom) else special.stdtrit(freedom, 0.975)
    )
    ratios = []
    for place, (name, level, baseline) in enumerate(names, start=first):
        log, error = float(parameters[place]), float(errors[place])
        about = OddsRatio(factor=name, level=level, baseline=baseline, value=None, log=log, error=error)
        if abs(log) > SEPARATED or error > SEPARATED:
            side = "highest" if log > 0 else "lowest"
            ratios.append(replace(about, note=f"only the {side} values: no finite odds ratio"))
            continue
        t = abs(log) / error
        p = 2 * float(special.ndtr(-t) if math.isinf(freedom) else special.stdtr(freedom, -t))
        low, high = math.exp(log - quantile * error), math.exp(log + quantile * error)
        ratios.append(replace(about, value=math.exp(log), low=low, high=high, p=p))
    thresholds = tuple(map(float, parameters[:first]))
    return replace(model, ratios=tuple(ratios), thresholds=thresholds, deviance=deviance)


def _fit(
    codes: IntArray, columns: FloatArray, counts: FloatArray, categories: int
) -> tuple[FloatArray, FloatArray, FloatArray, float] | None:
    """Parameters (thresholds first), observed information, score of each row, and deviance."""
    first = categories - 1
    shares = np.cumsum(np.bincount(codes, weights=counts, minlength=categories))[:-1] / counts.sum()
    parameters = np.concatenate([special.logit(shares), np.zeros(columns.shape[1])])

    def evaluate(theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Log likelihood, scores, and expected information."""
        linear = columns @ theta[first:]
        below = special.expit(theta[None, :first] - linear[:, None])
        slopes = below * (1 - below)
        rows = len(codes)
        derivatives = np.zeros((rows, categories, first + columns.shape[1]))
        for k in range(first):
            derivatives[:, k, k] = slopes[:, k]
            derivatives[:, k + 1, k] = -slopes[:, k]
        padded = np.hstack([np.zeros((rows, 1)), slopes, np.zeros((rows, 1))])
        derivatives[:, :, first:] = (padded[:, :-1] - padded[:, 1:])[:, :, None] * columns[:, None, :]
        chances = np.diff(np.hstack([np.zeros((rows, 1)), below, np.ones((rows, 1))]), axis=1)
        if float(chances.min()) <= 0:
            chances = np.maximum(chances, 1e-300)
        mine = chances[np.arange(rows), codes]
        scores = derivatives[np.arange(rows), codes] / mine[:, None]
        weighted = derivatives * np.sqrt(counts[:, None, None] / chances[:, :, None])
        flat = weighted.reshape(-1, weighted.shape[2])
        return float((counts * np.log(mine)).sum()), scores, flat.T @ flat

    likelihood, scores, information = evaluate(parameters)
    for _ in range(MOST_ROUNDS):
        if not np.linalg.cond(information) < 1e14:
            break
        step = np.linalg.solve(information, counts @ scores)
        for _ in range(20):
            candidate = parameters + step
            if bool((np.diff(candidate[:first]) > 0).all()):
                found = evaluate(candidate)
                if found[0] >= likelihood - 1e-12:
                    break
            step = step / 2
        else:
            break
        gained = found[0] - likelihood
        parameters, (likelihood, scores, information) = candidate, found
        if gained < 1e-11 * (1 + abs(likelihood)) and float(np.abs(step).max()) < 1e-7:
            break
        if float(np.abs(parameters[first:]).max()) > 2 * SEPARATED:
            break
    observed = np.zeros_like(information)
    for place in range(len(parameters)):
        # The second derivative from scores on both sides: exact to some nine digits.
        nudge = np.zeros(len(parameters))
        nudge[place] = 1e-5
        upper, lower = evaluate(parameters + nudge)[1], evaluate(parameters - nudge)[1]
        observed[place] = -(counts @ (upper - lower)) / 2e-5
    observed = (observed + observed.T) / 2
    try:
        np.linalg.cholesky(observed)
    except np.linalg.LinAlgError:
        observed = information
    if not np.linalg.cond(observed) < 1e12:
        return None
    return parameters, observed, scores, -2 * likelihood


def _clustered(
    information: FloatArray, scores: FloatArray, blocks: Sequence[Hashable]
) -> tuple[FloatArray, float]:
    """Standard errors that allow for runs of one block being alike, and their degrees of freedom."""
    place: dict[Hashable, int] = {}
    codes = np.array([place.setdefault(block, len(place)) for block in blocks])
    sums = np.zeros((len(place), scores.shape[1]))
    np.add.at(sums, codes, scores)
    bread = np.linalg.inv(information)
    covariance = bread @ (sums.T @ sums) @ bread * len(place) / (len(place) - 1)
    errors: FloatArray = np.sqrt(np.maximum(0.0, np.diag(covariance)))
    return errors, float(len(place) - 1)
