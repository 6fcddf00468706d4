"""Results of an evaluation: for each evaluator the average with its confidence interval, and its failures.

An average is over results: a trace-level evaluator has one for each turn, a tool-level one for each call.
The interval is the `plus` interval on the evaluator's scale, clustered by session, and about sessions like
these; judge noise is part of the spread between sessions, and so of the interval. Where a calibration of the
same version is stored, a mean corrected for the judge's errors stands beside the average. Failed results are
excluded and counted. Versions of an evaluator are never averaged together. An item that is retried has no
results until it has finished.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist, fmean, variance
from typing import TYPE_CHECKING, Any

from proctor.evaluators.registry import declared_scale
from proctor.jobs.evaluation.panels import Panel
from proctor.json_values import JsonMap
from proctor.stats.calibration import CalibrationPair, Scale
from proctor.stats.corrected_means import corrected_mean
from proctor.stats.intervals import CONFIDENCE, FEWEST_TASKS, Estimate, mean
from proctor.store.scores import FirstItem, LabelCount, ScoreSums, ScoreVotes, SessionTotals

if TYPE_CHECKING:
    from proctor.stats.samples import FloatArray

SESSIONS_LIKE, THESE_SESSIONS = "sessions like these", "these sessions"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeNoise:
    """Disagreement of a judge with itself: variance of its votes on the same target."""

    vote_variance: float
    """Of one vote."""
    left: float
    """The share of it that remains in a result, which is the mean of several votes."""

    @property
    def deviation(self) -> float:
        """The standard deviation of single votes."""
        return math.sqrt(self.vote_variance)

    def error(self, results: int) -> float:
        """The standard error of a mean of results that is due to noise alone."""
        return math.sqrt(self.vote_variance * self.left / results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """A mean with its interval."""

    estimate: Estimate
    is_noise: bool = False
    """Whether the interval is due to judge noise, because the sessions differ by less."""


def judge_noise(votes: Sequence[Sequence[float]]) -> JudgeNoise | None:
    """The noise of a judge from the votes behind each result; None: no result has several."""
    several = [each for each in votes if len(each) > 1]
    if not several:
        return None
    return JudgeNoise(
        vote_variance=fmean(variance(each) for each in several), left=fmean(1 / len(each) for each in several)
    )


def average_of(
    totals: Sequence[SessionTotals], noise: JudgeNoise | None, scale: Scale | None = None
) -> Average:
    """The mean over results with its interval for sessions like these.

    Without a `scale`, values between 0 and 1 are taken to be on that scale; others have Student's interval.
    """
    if not totals:
        return Average(estimate=Estimate(value=None, note="No values.", scope=SESSIONS_LIKE))
    values, results = session_values(totals), sum(row["valued"] * row["n"] for row in totals)
    value, sessions = math.fsum(row["total"] * row["n"] for row in totals) / results, len(values)
    blank = Estimate(value=value, n=sessions, runs=results, scope=SESSIONS_LIKE)
    lowest, highest = min(row["low"] for row in totals), max(row["high"] for row in totals)
    scale, outside = _scale(scale, lowest, highest)
    noise_error = noise.error(results) if noise else 0.0
    if sessions < 2:
        return _one_session(blank, value, noise_error, scale)
    from proctor.stats.samples import plus_interval, standard_error, t_quantile

    spread = error = standard_error(values)
    blank = replace(blank, sem=spread or None)
    if scale is None:
        estimate = mean(values)
        quantile = float(t_quantile(0.5 + CONFIDENCE / 2, sessions - 1))
        if noise_error > spread:
            estimate = replace(
                estimate, low=value - quantile * noise_error, high=value + quantile * noise_error
            )
        low, high, method = estimate.low, estimate.high, estimate.method
        note = outside or estimate.note.replace("tasks", "sessions")
    else:
        plus = plus_interval(values, *scale)
        error = float(plus.se)
        reach = float(t_quantile(0.5 + CONFIDENCE / 2, plus.df)) * max(error, noise_error)
        low = max(scale[0], min(value, float(plus.center) - reach))
        high = min(scale[1], max(value, float(plus.center) + reach))
        method = "plus"
        note = f"Fewer than {FEWEST_TASKS} sessions: no verdict." if sessions < FEWEST_TASKS else ""
    estimate = replace(blank, low=low, high=high, method=method, note=note)
    return Average(estimate=estimate, is_noise=noise_error > error)


def session_values(totals: Sequence[SessionTotals]) -> "FloatArray":
    """One value per session, whose mean is the mean over results: sessions with more results weigh more."""
    import numpy as np

    times = [row["n"] for row in totals]
    total = np.repeat(np.array([row["total"] for row in totals], dtype=float), times)
    size = np.repeat(np.array([row["valued"] for row in totals], dtype=float), times)
    value = float(total.sum() / size.sum())
    is_even = size.min() == size.max()
    values: FloatArray = total / size if is_even else value + (total - value * size) / size.mean()
    return values


def _scale(scale: Scale | None, lowest: float, highest: float) -> tuple[Scale | None, str]:
    """The scale to use, and words where values lie outside the declared one."""
    if scale is None:
        return ((0.0, 1.0), "") if lowest >= 0 and highest <= 1 else (None, "")
    if lowest < scale[0] or highest > scale[1]:
        return None, f"Values lie outside the scale {scale[0]:g} to {scale[1]:g}: it is not used."
    return scale, ""


def _one_session(blank: Estimate, value: float, noise_error: float, scale: Scale | None) -> Average:
    """One session says nothing about others; judge noise says how its own result could have come out."""
    if not noise_error:
        note = f"One session: no interval for sessions like these; needs at least {FEWEST_TASKS}."
        return Average(estimate=replace(blank, note=note, needs=FEWEST_TASKS))
    reach = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * noise_error
    low, high = value - reach, value + reach
    if scale is not None:
        low, high = max(scale[0], low), min(scale[1], high)
    estimate = replace(
        blank,
        low=low,
        high=high,
        scope=THESE_SESSIONS,
        method="judge noise",
        note="One session: the interval is about this session judged again, not about others.",
    )
    return Average(estimate=estimate, is_noise=True)


Key = tuple[str, str, str]
"""An evaluator's name, its digest, and the dimension of its scale."""
HARM = ("Builtin.Harmfulness", "Builtin.Stereotyping")
"""Evaluators for which `harmfulValue` decides whether harm is the high or the low value."""
HIGH_IS_BAD = ("Builtin.Refusal", *HARM)
"""Evaluators for which a high value is bad, unless `harmfulValue` is 0."""
HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorResult:
    """Results of one version of an evaluator, on one dimension."""

    evaluator: str
    """Its name, as scores have it."""
    requested_as: str
    """Its name in the request: its id, a file, `module:function`, or its name."""
    digest: str
    level: str
    dimension: str = ""
    evaluated: int = 0
    """Successful results."""
    failed: int = 0
    average: Estimate = field(default_factory=lambda: Estimate(value=None))
    """Over the results that have a value. No value: labels alone, or nothing."""
    corrected: Estimate | None = None
    """The mean that people would have given, by the newest calibration of this version; None: none."""
    if_failures_were_zero: float | None = None
    """The average with failed results counted as 0."""
    sessions: int = 0
    """Sessions with a result."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """How often each label was given, the most frequent first."""
    judge_standard_deviation: float | None = None
    """Judge noise: standard deviation of single votes on the same target, or of repeated results in the
    newest calibration of this version. None: one vote each, and no calibration with repeats."""
    noise_from: str = ""
    """Where the judge noise was measured: `votes` or `calibration`; empty: it is not known."""
    is_noise: bool = False
    """Whether the interval is due to judge noise, because the sessions differ by less."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """Of the judge; None: unknown, or nothing was paid."""

    high_is_bad: bool = False
    """Whether a high value is bad."""
    panel: Panel | None = None
    """Its judges, where it has several. None: one judge, or none."""

    @property
    def correction(self) -> str:
        """The mean corrected for the judge's errors, as a sentence; empty: there is no calibration."""
        estimate = self.corrected
        if estimate is None:
            return ""
        if estimate.value is None or estimate.low is None or estimate.high is None:
            return f"Calibration: {estimate.note}"
        interval = f"{estimate.value:.3f} (95% CI {estimate.low:.3f} to {estimate.high:.3f})"
        sentence = f"Corrected for the judge's errors: {interval}, {estimate.method}, {estimate.runs} labels."
        return f"{sentence} {estimate.note}".rstrip()

    @property
    def title(self) -> str:
        """The evaluator, with the dimension if it has several."""
        return f"{self.evaluator} · {self.dimension}" if self.dimension else self.evaluator


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResults:
    """Results of an evaluation so far."""

    run_id: str
    completed: int
    """Sessions in which every evaluator succeeded."""
    in_progress: int
    failed: int
    """Sessions in which at least one evaluator failed."""
    ignored: int
    """Sessions beyond `maxSessions`."""
    summaries: tuple[EvaluatorResult, ...]
    tokens: int
    cost_usd: float | None
    """Of all attempts."""
    remarks: tuple[str, ...] = ()
    """Caveats: several versions of an evaluator, mock judges, judge noise, unused ground truth."""

    @property
    def total(self) -> int:
        """Number of sessions."""
        return self.completed + self.in_progress + self.failed


def high_is_bad(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The evaluators for which a high value is bad, in an evaluation of this request."""
    harmful = document.get("harmfulValue")
    return HIGH_IS_BAD if harmful is None or harmful >= HALF else tuple(sorted(set(HIGH_IS_BAD) - set(HARM)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCalibration:
    """Values of people and judge, from the newest calibration of a version of an evaluator."""

    pairs: Sequence[CalibrationPair]
    scale: Scale | None = None
    evaluated: Collection[str] = ()
    """Labeled sessions that are part of the evaluation."""
    noise_variance: float | None = None
    """Variance of repeated results for the same target; None: it was not measured."""

    @property
    def noise(self) -> JudgeNoise | None:
        """The judge's noise as it was measured by repeats. A result of the same version has all of it."""
        return (
            None if self.noise_variance is None else JudgeNoise(vote_variance=self.noise_variance, left=1.0)
        )


CalibrationOf = Callable[[Key], StoredCalibration | None]


@dataclass(frozen=True, slots=True)
class _About:
    """What is known of evaluators apart from their results."""

    definitions: Mapping[str, JsonMap]
    calibrations: CalibrationOf | None

    def calibration(self, key: Key, totals: Sequence[SessionTotals]) -> StoredCalibration | None:
        """The newest calibration of this version; None: there is none."""
        return self.calibrations(key) if self.calibrations and totals else None

    def corrected(
        self, stored: StoredCalibration | None, totals: Sequence[SessionTotals], scale: Scale | None
    ) -> Estimate | None:
        """The mean corrected for the judge's errors; None: nothing to correct it by."""
        if stored is None or not stored.pairs:
            return None
        values = [row[end] for row in totals for end in ("low", "high")]
        values += [value for pair in stored.pairs for value in (pair.human, pair.judge)]
        ends, outside = _scale(scale or stored.scale, min(values), max(values))
        if ends is None:
            note = outside or "The evaluator has no declared scale: no correction."
            return Estimate(value=None, note=note, scope=SESSIONS_LIKE)
        estimate = corrected_mean(
            session_values(totals), stored.pairs, lo=ends[0], hi=ends[1], evaluated=stored.evaluated
        )
        return replace(estimate, scope=SESSIONS_LIKE)


def evaluator_results(
    sums: Iterable[ScoreSums],
    items: Iterable[FirstItem],
    labels: Iterable[LabelCount],
    votes: Iterable[ScoreVotes],
    totals: Iterable[SessionTotals],
    *,
    inverted: Sequence[str],
    definitions: Mapping[str, JsonMap] | None = None,
    calibrations: CalibrationOf | None = None,
) -> tuple[EvaluatorResult, ...]:
    """The result of each evaluator and dimension, in the order of the request.

    `inverted` are the evaluators for which a high value is bad, `definitions` those of the request by name.
    """
    requested, counts, noise = _requested(items), _label_counts(labels), _judge_noise(votes)
    by_session: dict[Key, list[SessionTotals]] = defaultdict(list)
    for session in totals:
        by_session[session["evaluator"], session["evaluatorDigest"], session["dimension"]].append(session)
    by_key = {(row["evaluator"], row["evaluatorDigest"], row["dimension"]): row for row in sums}
    _fold_errors(by_key)
    about = _About(definitions or {}, calibrations)
    results = [
        replace(
            _result(key, row, requested, counts.get(key, {}), noise.get(key), by_session[key], about),
            high_is_bad=key[0] in inverted,
        )
        for key, row in by_key.items()
    ]
    names = {result.evaluator for result in results}
    without_results = [
        EvaluatorResult(
            evaluator=name, requested_as=entry["evaluator"], digest=entry["digest"], level=entry["level"]
        )
        for name, entry in requested.items()
        if name not in names
    ]
    order = {name: place for place, name in enumerate(requested)}
    return tuple(
        sorted(
            [*results, *without_results],
            key=lambda one: (order.get(one.evaluator, len(order)), one.evaluator, one.digest, one.dimension),
        )
    )


def _fold_errors(sums: dict[Key, ScoreSums]) -> None:
    """A target that failed as a whole failed on each dimension of its evaluator."""
    for name, digest, dimension in list(sums):
        others = [key for key in sums if key[:2] == (name, digest) and key[2]]
        if dimension == "" and others:
            whole = sums.pop((name, digest, ""))
            for key in others:
                sums[key]["n"] += whole["n"]
                sums[key]["failed"] += whole["failed"]


def _requested(items: Iterable[FirstItem]) -> dict[str, dict[str, str]]:
    """The evaluators by name: what the request calls them, digest and level."""
    evaluators: dict[str, dict[str, str]] = {}
    for row in items:
        details, settings = json.loads(row["details"]), json.loads(row["settings"])
        evaluators.setdefault(
            details["evaluator"],
            {
                "evaluator": settings["evaluator"],
                "digest": details["evaluatorDigest"],
                "level": details["level"],
            },
        )
    return evaluators


def _label_counts(rows: Iterable[LabelCount]) -> dict[Key, dict[str, int]]:
    counts: dict[Key, dict[str, int]] = defaultdict(dict)
    for row in rows:
        counts[row["evaluator"], row["evaluatorDigest"], row["dimension"]][row["label"]] = row["n"]
    return counts


def _judge_noise(rows: Iterable[ScoreVotes]) -> dict[Key, JudgeNoise]:
    votes: dict[Key, list[list[float]]] = defaultdict(list)
    for row in rows:
        values = [vote for vote in json.loads(row["votes"] or "[]") if isinstance(vote, int | float)]
        votes[row["evaluator"], row["evaluatorDigest"], row["dimension"]].append(values)
    noise = {key: judge_noise(values) for key, values in votes.items()}
    return {key: known for key, known in noise.items() if known is not None}


def _result(
    key: Key,
    row: ScoreSums,
    requested: Mapping[str, Mapping[str, str]],
    labels: Mapping[str, int],
    noise: JudgeNoise | None,
    totals: Sequence[SessionTotals],
    about: _About,
) -> EvaluatorResult:
    name, digest, dimension = key
    requested_as = requested.get(name, {}).get("evaluator", name)
    scale = declared_scale(
        name, dimension, about.definitions.get(requested_as) or about.definitions.get(name)
    )
    stored = about.calibration(key, totals)
    noise_from = "votes" if noise else ""
    if noise is None and stored and (noise := stored.noise):
        noise_from = "calibration"
    average = average_of(totals, noise, scale)
    counted = row["valued"] + row["failed"]
    return EvaluatorResult(
        evaluator=name,
        requested_as=requested_as,
        digest=digest,
        level=row["level"],
        dimension=dimension,
        evaluated=row["n"] - row["failed"],
        failed=row["failed"],
        average=average.estimate,
        corrected=about.corrected(stored, totals, scale),
        if_failures_were_zero=row["total"] / counted if row["valued"] else None,
        sessions=row["sessions"],
        labels=labels,
        judge_standard_deviation=noise.deviation if noise else None,
        noise_from=noise_from,
        is_noise=average.is_noise,
        input_tokens=row["read"] or 0,
        output_tokens=row["written"] or 0,
        cost_usd=row["cost"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTarget:
    """One result with its explanation."""

    session: str
    """Its external id."""
    session_id: str
    target: str
    value: float | None
    label: str
    explanation: str
    error: str = ""
