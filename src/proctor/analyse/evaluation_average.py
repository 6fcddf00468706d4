"""The average of an evaluator in a job, and how sure one may be of it.

The mean is over results, the interval over sessions. A judge that is asked several times tells how far it
wavers about one and the same thing; sessions that happen to agree better than that are not taken to be surer
than the judge is with itself: the interval is never narrower than the judge's own noise.

Knows nothing of stores, labels or pages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Any

from proctor.analyse.intervals import CONFIDENCE, Estimate, student_quantile, wilson

ROUNDING = 1e-13


@dataclass(frozen=True, slots=True, kw_only=True)
class Wavering:
    """How far single votes of a judge about the same thing lie apart."""

    vote_variance: float
    """Of one vote."""
    left: float
    """The share of it that is left in a result, which is the mean of several votes."""

    @property
    def deviation(self) -> float:
        """The standard deviation of single votes."""
        return math.sqrt(self.vote_variance)

    def error(self, results: int) -> float:
        """The standard error that noise alone leaves in the mean of so many results."""
        return math.sqrt(self.vote_variance * self.left / results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """A mean with its interval."""

    estimate: Estimate
    is_noise: bool = False
    """Whether the interval is the judge's own noise, since the sessions differ by less than that."""


def wavering_of(votes: Sequence[Sequence[float]]) -> Wavering | None:
    """How far a judge wavers, from the votes behind each result; None: nothing was asked twice."""
    several = [each for each in votes if len(each) > 1]
    if not several:
        return None
    return Wavering(
        vote_variance=fmean(variance(each) for each in several), left=fmean(1 / len(each) for each in several)
    )


def average_of(sums: Mapping[str, Any], wavering: Wavering | None) -> Average:
    """The mean over results with the interval over sessions; Wilson's for one yes or no a session.

    `sums` are taken over sessions: `valued` results with a `total`, in `groups` sessions; `squares` of the
    sessions' sums, `products` of sum and number, `sizes` of the numbers squared; `others`: sessions that have
    anything but one yes or no.
    """
    n, groups = sums["valued"], sums["groups"]
    if not n:
        return Average(estimate=Estimate(value=None))
    value = sums["total"] / n
    if not sums["others"]:
        rate = wilson(round(sums["total"]), n)
        return Average(estimate=Estimate(value=value, low=rate.low, high=rate.high, n=n))
    spread, noise = _spread_error(sums, value), wavering.error(n) if wavering else 0.0
    if groups < 2 and not noise:
        return Average(estimate=Estimate(value=value, n=n))
    # One session says nothing about others; the judge's noise says how it could have been judged.
    reach = _quantile(groups) * max(spread, noise)
    estimate = Estimate(value=value, low=value - reach, high=value + reach, n=n)
    return Average(estimate=estimate, is_noise=noise > spread)


def _quantile(groups: int) -> float:
    middle = 0.5 + CONFIDENCE / 2
    return student_quantile(middle, groups - 1) if groups > 1 else NormalDist().inv_cdf(middle)


def _spread_error(sums: Mapping[str, Any], value: float) -> float:
    """The standard error of the mean when sessions are drawn anew."""
    groups = sums["groups"]
    if groups < 2:
        return 0.0
    # Each session's sum less what it would be at the mean, squared; rounding can push it below zero.
    spread = max(0.0, sums["squares"] - 2 * value * sums["products"] + value * value * sums["sizes"])
    if spread < ROUNDING * sums["squares"]:
        spread = 0.0
    return math.sqrt(groups / (groups - 1) * spread) / float(sums["valued"])
