"""What the scores of an evaluator come to, when the judge itself is not sure.

A judge asked twice about the same thing may answer twice. That noise is part of every score, so the
interval around a mean must hold it: repeated judgements of one thing count as one, and a sample that
happens to vary less than the judge's own noise is not taken to be surer than the judge is.

Knows nothing of stores or of how the scores were made.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance

from proctor.analyse.components import REPEAT, ROW, Observation, variance_components
from proctor.analyse.intervals import CONFIDENCE, Estimate, student_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One score with a value."""

    session: str
    value: float
    target: str = ""
    """Which part of the session; equal sessions and targets are judgements of the same thing."""
    votes: Sequence[float] = ()
    """What each of several votes said; empty for a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedMean:
    """The mean of some judgements, and how much of their variance is the judge's own."""

    mean: Estimate
    """Its `n` is the number of sessions, which are what is independent of each other."""
    judgements: int
    noise_variance: float | None = None
    """Of a single vote about the same thing. None: nothing was judged twice, so nobody knows."""
    noise_share: float | None = None
    """Of the variance of all votes, between 0 and 1."""


def judged_mean(judgements: Sequence[Judgement], *, noise_variance: float | None = None) -> JudgedMean:
    """The mean over sessions with an interval that holds the judge's noise.

    Turns of a session are averaged first. `noise_variance` is what is known of this judge from elsewhere
    (a calibration); otherwise votes and repeated judgements tell it, if there are any.
    """
    noise, share = _noise(judgements)
    noise = noise if noise_variance is None else noise_variance
    sessions: dict[str, list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        sessions[judgement.session].append(judgement)
    means = [fmean(_things(own)) for own in sessions.values()]
    # What noise alone leaves in a session's mean, after its votes and turns have been averaged.
    left = fmean(_left(own) for own in sessions.values()) * noise if noise and sessions else 0.0
    return JudgedMean(
        mean=_interval(means, left),
        judgements=len(judgements),
        noise_variance=noise,
        noise_share=share,
    )


def _noise(judgements: Sequence[Judgement]) -> tuple[float | None, float | None]:
    """The variance of one vote about the same thing, and its share of the variance of all votes."""
    votes = [
        Observation(f"{judgement.session} {judgement.target}", "", value)
        for judgement in judgements
        for value in (judgement.votes or (judgement.value,))
    ]
    things = {vote.row for vote in votes}
    if len(votes) == len(things):
        return None, None
    if len(things) == 1:
        return variance([vote.value for vote in votes]), None
    found = {component.source: component for component in variance_components(votes)}
    return found[REPEAT].variance, found[REPEAT].share if found[ROW].variance is not None else None


def _things(own: Sequence[Judgement]) -> list[float]:
    """The value of each thing in a session; of one that was judged more than once, the mean."""
    found: dict[str, list[float]] = defaultdict(list)
    for judgement in own:
        found[judgement.target].append(judgement.value)
    return [fmean(values) for values in found.values()]


def _left(own: Sequence[Judgement]) -> float:
    """How much of one vote's noise variance is left in the mean of a session."""
    votes: dict[str, int] = defaultdict(int)
    for judgement in own:
        votes[judgement.target] += max(1, len(judgement.votes))
    return sum(1 / count for count in votes.values()) / len(votes) ** 2


def _interval(means: Sequence[float], noise: float) -> Estimate:
    n = len(means)
    if not n:
        return Estimate(value=None)
    value = fmean(means)
    if n == 1:
        # One session says nothing about others; the judge's noise says how it could have been judged.
        reach = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * math.sqrt(noise)
        return (
            Estimate(value=value, low=value - reach, high=value + reach, n=n)
            if noise
            else Estimate(value=value, n=1)
        )
    spread = max(variance(means), noise)
    reach = student_quantile(0.5 + CONFIDENCE / 2, n - 1) * math.sqrt(spread / n)
    return Estimate(value=value, low=value - reach, high=value + reach, n=n)
