"""How well a judge agrees with people: agreement, bias and noise, on targets that both have scored."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING

from proctor.stats.agreement import Metric, alpha, kappa, order_of_numbers, rank_correlation
from proctor.stats.intervals import Estimate, Rate, mean, of_tasks

if TYPE_CHECKING:
    from proctor.stats.samples import FloatArray

ADJUDICATORS = frozenset({"adjudication", "adjudicator"})
"""Names under which a label decides between people."""
FEW, SOME = 30, 100
"""Minimum numbers of labels: below the first no result, below the second a weak one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelValue:
    """A label, a value, or both, by a person or a judge."""

    label: str = ""
    value: float | None = None

    @property
    def word(self) -> str:
        """The category used for agreement."""
        return self.label or (f"{self.value:g}" if self.value is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTargetPair:
    """One target labeled by people and scored by the judge."""

    session: str
    target: str = ""
    human: Mapping[str, LabelValue]
    """By person."""
    machine: Sequence[LabelValue]
    """Repeated results of the judge; the first is compared with people."""
    position: int = 0
    """The number of its turn, from 0."""
    length: int = 0
    """Number of words of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """Correlation of the judge's error with an irrelevant property."""

    by: str
    """`position` or `length`."""
    correlation: Estimate
    """Spearman's; above 0 the judge scores higher with more of the property."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Agreement, bias and noise of a judge."""

    things: int
    sessions: int
    people: int
    agreement: Rate
    kappa: Estimate
    weighted: bool
    alpha: Estimate
    """Of the judge and all people."""
    human_alpha: float | None
    """Of the people among themselves; None: nothing was labeled by two."""
    bias: Estimate
    """Mean of the judge's value minus the people's; above 0 it scores too high. None for plain labels."""
    confusion: Mapping[tuple[str, str], int]
    """Counts by people's label and judge's label."""
    words: Sequence[str]
    """All labels, lowest first on an ordinal scale."""
    ties: int
    """Targets left out because people's labels are tied."""
    pairs: Sequence["CalibrationPair"]
    """Values of people and judge, for `corrected_mean`."""
    leanings: Sequence[Bias]
    repeats: int
    """Results of the judge per target."""
    retest: Rate
    """How often a second judgment was the same as the first."""
    mean: Estimate
    """Mean of the judge's values."""
    noise_variance: float | None
    """Variance of results for the same target. None: one result each."""
    noise_share: float | None
    """Of the variance of all results, between 0 and 1."""
    remarks: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPair:
    """People's and the judge's value of one target."""

    session: str
    human: float
    judge: float


Scale = tuple[float, float]
"""The lowest and the highest value."""
Ratings = Mapping[str, float | None]
"""The labels of a scale and their values; None: categorical. Empty: unknown or free."""


def order_of(ratings: Ratings) -> list[str]:
    """The labels from lowest to highest; empty when they have no order."""
    worth = {label: value for label, value in ratings.items() if value is not None}
    return sorted(worth, key=worth.__getitem__) if len(worth) == len(ratings) else []


def ends_of(ratings: Ratings) -> Scale | None:
    """The lowest and the highest value of a scale; None: it has no values."""
    values = [value for value in ratings.values() if value is not None]
    return (min(values), max(values)) if len(set(values)) > 1 else None


def on_scale(ratings: Ratings, opinion: LabelValue) -> LabelValue:
    """A human label in the spelling of the scale, with its value."""
    spellings = {label.casefold(): label for label in ratings}
    label = spellings.get(opinion.label.strip().casefold(), opinion.label)
    if not label and opinion.value is not None:
        label = next((each for each, value in ratings.items() if value == opinion.value), "")
    value = ratings.get(label) if opinion.value is None else opinion.value
    return LabelValue(label=label, value=value)


def calibrate(
    judged: Sequence[JudgedTargetPair], *, order: Sequence[str] = (), scale: Scale | None = None
) -> Calibration:
    """Compare a judge with people. `order` are the labels of an ordinal scale, lowest first; without one,
    ratings that are whole numbers have theirs."""
    rated = [(target, consensus_of(target)) for target in judged if target.human and target.machine]
    labeled = [(target, human) for target, human in rated if human is not None]
    opinions = [each for target, _ in rated for each in (*target.human.values(), *target.machine)]
    if not any(opinion.label for opinion in opinions):
        order = order or order_of_numbers(opinion.word for opinion in opinions)
    places = {label: number for number, label in enumerate(order)}
    # Values on which people differ have a mean, which is no category.
    categories = [(target, category) for target, _ in labeled if (category := _category(target))]
    humans = [category for _, category in categories]
    machines = [target.machine[0].word for target, _ in categories]
    sessions, units = ([target.session for target, _ in each] for each in (labeled, categories))
    ordinal = len(order) > 2
    metric: Metric = "ordinal" if ordinal else "nominal"
    lo, hi = scale or (None, None)
    span = None if scale is None else scale[1] - scale[0]
    pairs = [
        CalibrationPair(session=target.session, human=human.value, judge=value)
        for target, human in labeled
        if human.value is not None and (value := target.machine[0].value) is not None
    ]
    repeated = [(target, later) for target, _ in labeled for later in target.machine[1:]]
    noise, share = _noise([target for target, _ in labeled])
    calibration = Calibration(
        things=len(labeled),
        sessions=len(set(sessions)),
        people=len({who for target, _ in labeled for who in target.human}),
        agreement=_rate([a == b for a, b in zip(humans, machines, strict=True)], units),
        kappa=kappa(humans, machines, order=order, unit=units),
        weighted=ordinal,
        # Of tied targets too: to leave out disagreement would make agreement of it.
        alpha=alpha(
            [[*_people(target, places), *_ratings([target.machine[0]], places)] for target, _ in rated],
            metric,
            cluster=[target.session for target, _ in rated],
        ),
        human_alpha=alpha([_people(target, places) for target, _ in rated], metric).value,
        bias=mean_of_targets(
            [pair.judge - pair.human for pair in pairs],
            [pair.session for pair in pairs],
            lo=None if span is None else -span,
            hi=span,
        ),
        confusion=Counter(zip(humans, machines, strict=True)),
        words=sorted({*humans, *machines}, key=lambda word: (places.get(word, -1), word)),
        ties=len(rated) - len(labeled),
        pairs=pairs,
        leanings=_leanings(labeled),
        repeats=max((len(target.machine) for target, _ in labeled), default=0),
        retest=_rate(
            [target.machine[0].word == later.word for target, later in repeated],
            [target.session for target, _ in repeated],
        ),
        mean=_judge_mean([target for target, _ in labeled], lo, hi),
        noise_variance=noise,
        noise_share=share,
        remarks=_remarks_on_means(len(labeled) - len(categories)),
    )
    return _remarked(calibration)


def consensus_of(target: JudgedTargetPair) -> LabelValue | None:
    """The label of a target: of an adjudication, or the most frequent one; None: a tie. Values without
    labels are averaged."""
    opinions, label = _deciding(target), ""
    if any(opinion.label for opinion in opinions):
        label = _category(target)
        if not label:
            return None
        opinions = [opinion for opinion in opinions if opinion.word == label]
    values = [opinion.value for opinion in opinions if opinion.value is not None]
    return LabelValue(label=label, value=fmean(values) if values else None)


def _deciding(target: JudgedTargetPair) -> list[LabelValue]:
    deciding = [each for who, each in target.human.items() if who.strip().casefold() in ADJUDICATORS]
    return deciding or list(target.human.values())


def _category(target: JudgedTargetPair) -> str:
    """What most people said of a target; empty: a tie."""
    counts = Counter(opinion.word for opinion in _deciding(target)).most_common(2)
    return "" if len(counts) > 1 and counts[0][1] == counts[1][1] else counts[0][0]


def _rate(same: Sequence[bool], sessions: Sequence[str]) -> Rate:
    """A share of targets, its interval clustered by session."""
    successes, trials = sum(same), len(same)
    if not trials:
        return Rate(successes=0, trials=0)
    estimate = mean_of_targets([float(each) for each in same], sessions, lo=0.0, hi=1.0)
    return Rate(successes=successes, trials=trials, low=estimate.low, high=estimate.high)


def mean_of_targets(
    values: Sequence[float], sessions: Sequence[str], *, lo: float | None = None, hi: float | None = None
) -> Estimate:
    """The mean of all targets, each counted once; its interval is that of sessions like these.

    A ratio of two totals, linearized: each session stands for the mean plus its own difference from it,
    weighted by its number of targets. With equally many targets each, it is the mean of the sessions. In
    2,000 simulations each of 30 and 100 sessions with 1 to 12 targets, more where the judge is right, the
    interval covered 0.957 and 0.960; that of the mean of the sessions 0.893 and 0.592.
    """
    import numpy as np

    if not values:
        return mean([])
    codes = np.unique(list(sessions), return_inverse=True)[1]
    targets = np.bincount(codes)
    value = fmean(values)
    differences = np.bincount(codes, np.asarray(values, dtype=np.float64) - value).astype(np.float64)
    pseudo: FloatArray = value + differences * (len(targets) / len(values))
    if lo is not None and hi is not None:
        return of_tasks(pseudo, lo, hi, runs=len(values))
    return replace(mean(pseudo), runs=len(values))


def _people(target: JudgedTargetPair, places: Mapping[str, int]) -> list[str | int]:
    return _ratings(target.human.values(), places)


def _ratings(opinions: Iterable[LabelValue], places: Mapping[str, int]) -> list[str | int]:
    """Ordinal labels as their places, without those that are not on the scale; others as they are."""
    if len(places) > 2:
        return [places[opinion.word] for opinion in opinions if opinion.word in places]
    return [opinion.word for opinion in opinions]


def _leanings(labeled: Sequence[tuple[JudgedTargetPair, LabelValue]]) -> list[Bias]:
    errors = [_error(target, human) for target, human in labeled]
    sessions = [target.session for target, _ in labeled]
    measures: dict[str, Callable[[JudgedTargetPair], int]] = {
        "position": lambda target: target.position,
        "length": lambda target: target.length,
    }
    return [
        Bias(
            by=name,
            correlation=rank_correlation([measure(target) for target, _ in labeled], errors, unit=sessions),
        )
        for name, measure in measures.items()
    ]


def _error(target: JudgedTargetPair, human: LabelValue) -> float:
    """The judge's signed error; for labels without values, 0 or 1."""
    machine = target.machine[0].value
    if machine is None or human.value is None:
        return float(target.machine[0].word != human.word)
    return machine - human.value


def _noise(targets: Sequence[JudgedTargetPair]) -> tuple[float | None, float | None]:
    """The variance of one result about the same target, and its share of the variance of all."""
    from proctor.stats.samples import sample

    values = [[each.value for each in target.machine if each.value is not None] for target in targets]
    flat = [value for own in values for value in own]
    data = sample(flat, [place for place, own in enumerate(values) for _ in own])
    if not flat or data.problem or data.within is None:
        return None, None
    left = data.within * float((1 / data.counts).mean())
    between = max(0.0, float(data.means.var(ddof=1)) - left) if data.tasks > 1 else None
    total = data.within + (between or 0.0)
    return data.within, data.within / total if between is not None and total > 0 else None


def _judge_mean(targets: Sequence[JudgedTargetPair], lo: float | None, hi: float | None) -> Estimate:
    values = [
        (fmean(own), target.session)
        for target in targets
        if (own := [each.value for each in target.machine if each.value is not None])
    ]
    return mean_of_targets([value for value, _ in values], [session for _, session in values], lo=lo, hi=hi)


def _remarks_on_means(targets: int) -> list[str]:
    if not targets:
        return []
    number = "1 target has" if targets == 1 else f"{targets} targets have"
    return [f"{number} several values by people: their mean counts for the bias, and is no category."]


def _remarked(calibration: Calibration) -> Calibration:
    remarks = list(calibration.remarks)
    if calibration.things < FEW:
        remarks.append(
            f"{calibration.things} labeled targets are too few to tell a good judge from a poor one: "
            f"label at least {FEW}."
        )
    elif calibration.things < SOME:
        remarks.append(
            f"With {calibration.things} labeled targets the intervals are wide; {SOME} or more narrow them."
        )
    if calibration.ties:
        targets = "target" if calibration.ties == 1 else "targets"
        remarks.append(f"Left out: {calibration.ties} {targets} with tied labels and no adjudication.")
    if calibration.kappa.value is None and calibration.things:
        remarks.append(
            "People and judge used one and the same label throughout: agreement shows nothing here."
        )
    for leaning in calibration.leanings:
        low, high = leaning.correlation.low, leaning.correlation.high
        if low is not None and high is not None and (low > 0 or high < 0):
            kinder = "kinder" if low > 0 else "harsher"
            more = "later turns" if leaning.by == "position" else "longer answers"
            remarks.append(f"The judge seems {kinder} to {more} than people are.")
    if calibration.human_alpha is not None and calibration.human_alpha < 0.667:
        remarks.append(
            "People hardly agree among themselves: the question may be unclear, whoever answers it."
        )
    if calibration.repeats < 2:
        remarks.append("The judge scored each target once: its noise is unknown (--repeats 3).")
    return replace(calibration, remarks=tuple(remarks))
