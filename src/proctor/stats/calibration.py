"""Agreement of a judge with human labels.

Agreement and kappa measure how often they match; alpha also how people agree with each other, the upper
bound for a judge. The confusion matrix shows which labels are mixed up; bias by position and length, and
test-retest noise from repeated judgements are measured too.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, cast

from proctor.stats.intervals import Estimate, Rate, wilson
from proctor.stats.reliability import (
    JudgedMean,
    Judgement,
    Metric,
    alpha,
    bootstrapped,
    correlation,
    judged_mean,
    kappa,
)
from proctor.store import StoreReader
from proctor.store.labels import LabeledEvaluator, LabeledScore, labeled_evaluators, labeled_scores

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
    """Of the people among themselves; None: nothing was labelled by two."""
    bias: Estimate
    """Mean of the judge's value minus the people's; above 0 it scores too high. None for plain labels."""
    confusion: Mapping[tuple[str, str], int]
    """Counts by people's label and judge's label."""
    words: Sequence[str]
    """All labels, lowest first on an ordinal scale."""
    leanings: Sequence[Bias]
    repeats: int
    """Results of the judge per target."""
    retest: Rate
    """How often a second judgement was the same as the first."""
    mean: JudgedMean
    """Mean of the judge's values, with an interval that includes its noise."""
    remarks: Sequence[str] = field(default_factory=tuple)

    @property
    def noise_variance(self) -> float | None:
        """Standard deviation of results for the same target; None: one result each."""
        return self.mean.noise_variance


def calibrate(judged: Sequence[JudgedTargetPair], *, order: Sequence[str] = (), seed: int = 0) -> Calibration:
    """Compare a judge with people. `order` is the ordinal scale of labels, lowest first."""
    labeled = [(thing, _consensus(thing, order)) for thing in judged if thing.human and thing.machine]
    scale = {label: number for number, label in enumerate(order)}
    pairs = [(human.word, thing.machine[0].word) for thing, human in labeled]
    groups = _grouped(labeled)
    ordinal = len(order) > 2
    same = sum(a == b for a, b in pairs)
    units: dict[str, list[Any]] = defaultdict(list)
    for thing, _ in labeled:
        units[thing.session].append(_unit(thing, scale))
    metric: Metric = "ordinal" if ordinal else "nominal"
    retests = [(thing.machine[0].word, later.word) for thing, _ in labeled for later in thing.machine[1:]]
    calibration = Calibration(
        things=len(labeled),
        sessions=len(groups),
        people=len({who for thing, _ in labeled for who in thing.human}),
        agreement=wilson(same, len(pairs)),
        kappa=bootstrapped(_pairs(groups), lambda drawn: kappa(cast(Any, drawn), order), seed=seed),
        weighted=ordinal,
        alpha=bootstrapped(units, lambda drawn: alpha(cast(Any, drawn), metric), seed=seed),
        human_alpha=alpha([_people(thing, scale) for thing, _ in labeled], metric),
        bias=_bias(groups, seed),
        confusion=Counter(pairs),
        words=sorted({word for pair in pairs for word in pair}, key=lambda word: (scale.get(word, -1), word)),
        leanings=_leanings(groups, seed),
        repeats=max((len(thing.machine) for thing, _ in labeled), default=0),
        retest=wilson(sum(a == b for a, b in retests), len(retests)),
        mean=_mean(labeled),
    )
    return _remarked(calibration)


def _consensus(thing: JudgedTargetPair, order: Sequence[str]) -> LabelValue:
    """Consensus of people: the majority label (of ties the lowest), the mean value."""
    opinions = list(thing.human.values())
    counts = Counter(opinion.word for opinion in opinions)
    most = max(counts.values())
    tied = [word for word, count in counts.items() if count == most]
    ranked = [label for label in order if label in tied] or sorted(tied)
    values = [opinion.value for opinion in opinions if opinion.value is not None]
    return LabelValue(label=ranked[0], value=fmean(values) if values else None)


Grouped = dict[str, list[tuple[JudgedTargetPair, LabelValue]]]


def _grouped(labeled: Sequence[tuple[JudgedTargetPair, LabelValue]]) -> Grouped:
    groups: Grouped = defaultdict(list)
    for thing, human in labeled:
        groups[thing.session].append((thing, human))
    return groups


def _pairs(groups: Grouped) -> dict[str, list[object]]:
    return {
        name: [(human.word, thing.machine[0].word) for thing, human in group]
        for name, group in groups.items()
    }


def _unit(thing: JudgedTargetPair, scale: Mapping[str, int]) -> list[Any]:
    return [*_people(thing, scale), _coded(thing.machine[0], scale)]


def _people(thing: JudgedTargetPair, scale: Mapping[str, int]) -> list[Any]:
    return [_coded(opinion, scale) for opinion in thing.human.values()]


def _coded(opinion: LabelValue, scale: Mapping[str, int]) -> Any:
    """An ordinal label as its place; others as they are."""
    return scale.get(opinion.word, -1) if len(scale) > 2 else opinion.word


def _bias(groups: Grouped, seed: int) -> Estimate:
    errors = {
        name: [error for each in group if (error := _error(*each)) is not None]
        for name, group in groups.items()
    }
    by_name: dict[str, list[object]] = {name: [*values] for name, values in errors.items() if values}
    return bootstrapped(by_name, lambda drawn: fmean(cast(list[float], drawn)) if drawn else None, seed=seed)


def _error(thing: JudgedTargetPair, human: LabelValue) -> float | None:
    """The judge's signed error; None without values."""
    machine = thing.machine[0].value
    return None if machine is None or human.value is None else machine - human.value


def _leanings(groups: Grouped, seed: int) -> list[Bias]:
    measures: dict[str, Callable[[JudgedTargetPair], int]] = {
        "position": lambda thing: thing.position,
        "length": lambda thing: thing.length,
    }
    pairs = []
    for name, measure in measures.items():
        points: dict[str, list[object]] = {}
        for session, group in groups.items():
            mine = [
                (measure(thing), error)
                for thing, human in group
                if (error := _leaned(thing, human)) is not None
            ]
            if mine:
                points[session] = [*mine]
        pairs.append(Bias(by=name, correlation=bootstrapped(points, _correlated, seed=seed)))
    return pairs


def _leaned(thing: JudgedTargetPair, human: LabelValue) -> float | None:
    """The judge's error; for labels without values, 0 or 1."""
    error = _error(thing, human)
    return float(thing.machine[0].word != human.word) if error is None else error


def _correlated(drawn: list[object]) -> float | None:
    points = cast(list[tuple[float, float]], drawn)
    return correlation([x for x, _ in points], [y for _, y in points])


def _mean(labeled: Sequence[tuple[JudgedTargetPair, LabelValue]]) -> JudgedMean:
    return judged_mean(
        [
            Judgement(session=thing.session, target=thing.target, value=opinion.value)
            for thing, _ in labeled
            for opinion in thing.machine
            if opinion.value is not None
        ]
    )


def _remarked(calibration: Calibration) -> Calibration:
    remarks: list[str] = []
    if calibration.things < FEW:
        remarks.append(
            f"{calibration.things} labelled things are too few to tell a good judge from a poor one: "
            f"label at least {FEW}."
        )
    elif calibration.things < SOME:
        remarks.append(
            f"With {calibration.things} labelled things the intervals are wide; {SOME} or more narrow them."
        )
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
        remarks.append(
            "The judge was asked once about each thing: how much it wavers is not known (--repeats 3)."
        )
    return replace(calibration, remarks=tuple(remarks))


Order = Callable[[str, str], Sequence[str]]
"""The labels of an evaluator and dimension, lowest first; empty when they have no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledJudge:
    """An evaluator that people have given labels for."""

    evaluator: str
    dimension: str
    level: str
    digest: str
    """Of the version its verdicts are of; empty: it has given none yet."""
    labels: int
    """Labels by people, including those of targets without a score."""
    calibration: Calibration
    """Of the things that both have looked at."""


def judges(read: StoreReader, order: Order, *, evaluator: str = "") -> list[LabeledJudge]:
    """Every evaluator that has labels, the most labelled first; or one of them."""
    verdicts: dict[tuple[str, str], list[LabeledScore]] = defaultdict(list)
    for row in labeled_scores(read, evaluator):
        verdicts[row["evaluator"], row["dimension"]].append(row)
    return [
        _judge(named, verdicts[named["evaluator"], named["dimension"]], order)
        for named in labeled_evaluators(read, evaluator)
    ]


def _judge(named: LabeledEvaluator, rows: Sequence[LabeledScore], order: Order) -> LabeledJudge:
    last = max(rows, key=lambda row: row["timestamp"] or "", default=None)
    digest = last["evaluatorDigest"] if last else ""
    things = _things(row for row in rows if row["evaluatorDigest"] == digest)
    ranked = order(named["evaluator"], named["dimension"])
    return LabeledJudge(
        evaluator=named["evaluator"],
        dimension=named["dimension"],
        level=named["level"],
        digest=digest,
        labels=named["labels"],
        calibration=calibrate(things, order=ranked),
    )


def _things(rows: Iterable[LabeledScore]) -> list[JudgedTargetPair]:
    people: dict[tuple[str, str], dict[str, LabelValue]] = defaultdict(dict)
    machine: dict[tuple[str, str], dict[tuple[str, str, int], LabelValue]] = defaultdict(dict)
    for row in rows:
        thing = row["about"], row["target"]
        people[thing][row["who"]] = LabelValue(label=row["humanLabel"], value=row["humanValue"])
        order_key = row["timestamp"] or "", row["sessionId"], row["position"]
        machine[thing][order_key] = LabelValue(label=row["label"], value=row["value"])
    return [
        JudgedTargetPair(
            session=session,
            target=target,
            human=labels_by_person,
            # The last score is the one that readers see, and the one compared with people.
            machine=[machine[session, target][at] for at in sorted(machine[session, target], reverse=True)],
        )
        for (session, target), labels_by_person in people.items()
    ]
