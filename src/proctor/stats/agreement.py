"""Agreement of raters, corrected for chance: Cohen's kappa, Krippendorff's alpha, rank correlation.

Intervals are on the scale of the inverse hyperbolic tangent, with Student's t. Where several ratings belong
to one unit (the turns of a session), units are left out one at a time (jackknife), because ratings of one
unit are alike. Below 20 units there is a value but no interval.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from proctor.formatting import plural
from proctor.stats.intervals import CONFIDENCE, LIKE, Estimate, Rate, mean, of_tasks, wilson
from proctor.store import StoreReader
from proctor.store.annotations import LabeledEvaluator, LabeledScore, labeled_evaluators, labeled_scores

if TYPE_CHECKING:
    from proctor.stats.samples import FloatArray, Plus

Metric = Literal["nominal", "ordinal", "interval"]
FEWEST_UNITS, FEWEST_LOPSIDED, LOPSIDED = 20, 50, 0.8
"""Units that an interval needs; units it needs where one label has more than this share."""
MOST_BLOCKS = 400
"""Units beyond this number are left out in blocks."""
NEAR_ONE = 1 - 1e-9
KAPPA, ALPHA, SPEARMAN = "Cohen's kappa", "Krippendorff's alpha", "Spearman's rank correlation"


def kappa(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    *,
    order: Sequence[Hashable] = (),
    unit: Sequence[Hashable] | None = None,
    level: float = CONFIDENCE,
) -> Estimate:
    """Cohen's kappa of two raters' labels of the same things.

    With an `order` of more than two labels, disagreements count by their squared distance in it. `unit` is
    what each thing belongs to; without it each is its own. The interval is that of Fleiss, Cohen & Everitt
    (1969) on the table with one more thing, spread as chance would.

    >>> round(kappa(["y"] * 25 + ["n"] * 25, ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15).value, 2)
    0.4
    """
    import numpy as np

    pairs = list(zip(first, second, strict=True))
    units = _coded(range(len(pairs)) if unit is None else unit)
    number = len(set(units))
    blank = Estimate(value=None, n=number, runs=len(pairs), level=level, method=KAPPA)
    if not pairs:
        return replace(blank, note="Nothing was rated by both.", needs=FEWEST_UNITS)
    used = {label for pair in pairs for label in pair}
    labels = [*(label for label in order if label in used), *sorted(used - set(order), key=str)]
    places = {label: place for place, label in enumerate(order if len(order) > 2 else labels)}
    if len(used) == 1:
        # Units, not pairs: what belongs to one unit is not independent.
        rate = wilson(number, number, level=level)
        note = f"One label throughout: kappa is not defined. Agreement 1, 95% CI {rate.low:.2f} to 1."
        return replace(blank, note=note)
    weights = np.array([[_weight(a, b, places, is_ordered=len(order) > 2) for b in labels] for a in labels])
    code = {label: place for place, label in enumerate(labels)}
    tables = np.zeros((number, len(labels), len(labels)))
    for cluster, (a, b) in zip(units, pairs, strict=True):
        tables[cluster, code[a], code[b]] += 1
    total = tables.sum(axis=0)
    value = _kappa(total, weights)
    if value is None:
        return replace(blank, note="The labels never differ by chance: kappa is not defined.")
    share = max((total.sum(axis=0) + total.sum(axis=1)) / (2 * len(pairs)))
    estimate = _refused(replace(blank, value=value), FEWEST_UNITS)
    if not estimate.note and number < FEWEST_LOPSIDED and share > LOPSIDED:
        note = f"One label has {share:.0%}: no interval below {FEWEST_LOPSIDED} units."
        estimate = replace(estimate, note=note, needs=FEWEST_LOPSIDED)
    if estimate.note:
        return estimate
    if number == len(pairs):
        table = _with_chance(total)
        center = _kappa(table, weights) or 0.0
        error = _kappa_error(table / table.sum(), weights, center, len(pairs)) / (1 - center**2)
        return _on_tanh(estimate, center, error)

    def without(left: "FloatArray") -> float | None:
        return _kappa(_with_chance(left), weights)

    return _jackknifed(estimate, [without(total - block) for block in _blocks(tables)], without(total))


def alpha(
    units: Sequence[Sequence[Hashable]],
    metric: Metric = "nominal",
    *,
    cluster: Sequence[Hashable] | None = None,
    level: float = CONFIDENCE,
) -> Estimate:
    """Krippendorff's alpha: each unit has the ratings of one thing, by any raters in any order.

    For `ordinal` and `interval` ratings are numbers. `cluster` is what each unit belongs to. Perfect
    agreement gets the interval of the data with two units of opposite ratings.

    >>> round(alpha([[1, 1], [0, 1], [0, 0], [1, 1, 0]]).value, 3)
    0.2
    """
    import numpy as np

    rated = [(list(unit), place) for place, unit in enumerate(units) if len(unit) > 1]
    clusters = _coded([place if cluster is None else cluster[place] for _, place in rated])
    number = len(set(clusters))
    left_out = len(units) - len(rated)
    blank = Estimate(value=None, n=number, runs=len(rated), level=level, method=ALPHA, left_out=left_out)
    values = [value for unit, _ in rated for value in unit]
    if not values:
        return replace(blank, note="Nothing was rated twice.", needs=FEWEST_UNITS)
    labels = sorted(set(values), key=(lambda each: str(each)) if metric == "nominal" else _numeric)
    if len(labels) < 2:
        return replace(blank, note="One rating throughout: alpha is not defined.")
    code = {label: place for place, label in enumerate(labels)}
    scores = np.array(
        [float(place) if metric == "nominal" else _numeric(each) for each, place in code.items()]
    )
    tables = np.zeros((number, len(labels), len(labels)))
    for (unit, _), group in zip(rated, clusters, strict=True):
        tables[group] += _coincidences([code[each] for each in unit], len(labels))
    total = tables.sum(axis=0)
    value = _alpha(total, scores, metric)
    if value is None:
        return replace(blank, note="One rating throughout: alpha is not defined.")
    estimate = _refused(replace(blank, value=value), FEWEST_UNITS)
    if estimate.note:
        return estimate
    if value > NEAR_ONE:
        split = _coincidences([0, len(labels) - 1], len(labels))
        tables = np.concatenate([tables, [split, split]])
        total = tables.sum(axis=0)
        estimate = replace(
            estimate, note="Perfect agreement: the interval adds two units of opposite ratings."
        )
    return _jackknifed(
        estimate,
        [_alpha(total - block, scores, metric) for block in _blocks(tables)],
        _alpha(total, scores, metric),
    )


def rank_correlation(
    first: Sequence[float],
    second: Sequence[float],
    *,
    unit: Sequence[Hashable] | None = None,
    level: float = CONFIDENCE,
) -> Estimate:
    """Spearman's rank correlation; no value where either does not vary.

    >>> round(rank_correlation([1, 2, 3, 4], [10, 30, 20, 40]).value, 3)
    0.8
    """
    import numpy as np

    x, y = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    units = np.array(_coded(range(len(x)) if unit is None else unit), dtype=int)
    number = len(set(units.tolist()))
    blank = Estimate(value=None, n=number, runs=len(x), level=level, method=SPEARMAN)
    value = _spearman(x, y)
    if value is None:
        return replace(blank, note="Fewer than three things, or no variation: no correlation.")
    estimate = _refused(replace(blank, value=value), FEWEST_UNITS)
    if estimate.note:
        return estimate
    blocks = units % MOST_BLOCKS if number > MOST_BLOCKS else units
    left = [_spearman(x[blocks != block], y[blocks != block]) for block in range(int(blocks.max()) + 1)]
    return _jackknifed(estimate, left, value)


def _coded(values: Sequence[Hashable]) -> list[int]:
    places: dict[Hashable, int] = {}
    return [places.setdefault(value, len(places)) for value in values]


def _numeric(value: Hashable) -> float:
    return float(value)  # type: ignore[arg-type]


def _weight(a: Hashable, b: Hashable, places: dict[Hashable, int], *, is_ordered: bool) -> float:
    """How far two labels agree: 1 where they are equal."""
    if not is_ordered:
        return float(a == b)
    return 1 - float((places.get(a, -1) - places.get(b, -1)) ** 2) / (len(places) - 1) ** 2


def _kappa(table: "FloatArray", weights: "FloatArray") -> float | None:
    shares = table / table.sum()
    observed = float((weights * shares).sum())
    by_chance = float(shares.sum(axis=1) @ weights @ shares.sum(axis=0))
    return (observed - by_chance) / (1 - by_chance) if by_chance < 1 - 1e-12 else None


def _with_chance(table: "FloatArray") -> "FloatArray":
    """A table with one more thing, spread as the product of the marginal shares."""
    total, size = table.sum(), len(table)
    rows, columns = ((table.sum(axis=axis) + 1 / size) / (total + 1) for axis in (1, 0))
    extended: FloatArray = table + rows[:, None] * columns
    return extended


def _kappa_error(shares: "FloatArray", weights: "FloatArray", value: float, n: int) -> float:
    """The standard error of kappa (Fleiss, Cohen & Everitt 1969)."""
    rows, columns = shares.sum(axis=1), shares.sum(axis=0)
    by_chance = float(rows @ weights @ columns)
    margins = (weights @ columns)[:, None] + rows @ weights
    spread = float((shares * (weights - margins * (1 - value)) ** 2).sum())
    spread -= (value - by_chance * (1 - value)) ** 2
    return math.sqrt(max(0.0, spread) / n) / (1 - by_chance)


def _coincidences(codes: Sequence[int], size: int) -> "FloatArray":
    """Pairs of ratings within a unit, weighted by the number of its raters."""
    import numpy as np

    table = np.zeros((size, size))
    counts = Counter(codes)
    for a, of_a in counts.items():
        for b, of_b in counts.items():
            table[a, b] = of_a * (of_b - (a == b)) / (len(codes) - 1)
    return table


def _alpha(table: "FloatArray", scores: "FloatArray", metric: Metric) -> float | None:
    import numpy as np

    counts = table.sum(axis=0)
    total = float(counts.sum())
    if metric == "nominal":
        apart = 1.0 - np.eye(len(counts))
    else:
        # Ordinal: as far apart as there are ratings between two values, half of their own counted.
        at = scores if metric == "interval" else np.cumsum(counts) - counts / 2
        apart = (at[:, None] - at) ** 2
    by_chance = float(counts @ apart @ counts)
    return 1 - (total - 1) * float((table * apart).sum()) / by_chance if by_chance > 0 else None


def _spearman(x: "FloatArray", y: "FloatArray") -> float | None:
    import numpy as np

    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(values: "FloatArray") -> "FloatArray":
    """From 1; equal values share the mean of their places."""
    import numpy as np

    _, cluster, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: FloatArray = (last - (counts - 1) / 2)[cluster]
    return ranks


def _blocks(tables: "FloatArray") -> "FloatArray":
    """Tables by unit, or sums of several where there are many."""
    import numpy as np

    if len(tables) <= MOST_BLOCKS:
        return tables
    blocks: FloatArray = np.stack([tables[start::MOST_BLOCKS].sum(axis=0) for start in range(MOST_BLOCKS)])
    return blocks


def _refused(estimate: Estimate, fewest: int) -> Estimate:
    """The estimate, with a note where it has too few units for an interval."""
    if estimate.n >= fewest:
        return estimate
    return replace(estimate, note=f"Fewer than {fewest} units: no interval.", needs=fewest)


def _jackknifed(estimate: Estimate, left: Sequence[float | None], value: float | None) -> Estimate:
    """The interval from the values without each unit."""
    import numpy as np

    known = np.array([each for each in left if each is not None])
    if value is None or len(known) < len(left):
        return replace(estimate, note="Without one unit it is not defined: no interval.")
    count = len(known)
    bent = np.arctanh(np.clip(known, -NEAR_ONE, NEAR_ONE))
    error = math.sqrt((count - 1) / count * float(((bent - bent.mean()) ** 2).sum()))
    return _on_tanh(estimate, value, error)


def _on_tanh(estimate: Estimate, center: float, error: float) -> Estimate:
    from proctor.stats.samples import t_quantile

    if error <= 1e-12 or abs(center) > NEAR_ONE:
        return replace(estimate, note="No unit changes the value: no interval.")
    reach = float(t_quantile(0.5 + estimate.level / 2, estimate.n - 1)) * error
    middle, value = math.atanh(center), estimate.value if estimate.value is not None else center
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return replace(
        estimate,
        low=min(low, value),
        high=max(high, value),
        sem=error * (1 - center**2),
        scope=LIKE,
    )


# Agreement of a judge with human labels, and means corrected for the judge's errors.


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


def calibrate(
    judged: Sequence[JudgedTargetPair], *, order: Sequence[str] = (), scale: Scale | None = None
) -> Calibration:
    """Compare a judge with people. `order` are the labels of an ordinal scale, lowest first."""
    rated = [(target, _consensus(target)) for target in judged if target.human and target.machine]
    labeled = [(target, human) for target, human in rated if human is not None]
    places = {label: number for number, label in enumerate(order)}
    humans, machines = [human.word for _, human in labeled], [target.machine[0].word for target, _ in labeled]
    sessions = [target.session for target, _ in labeled]
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
        agreement=_rate([a == b for a, b in zip(humans, machines, strict=True)], sessions),
        kappa=kappa(humans, machines, order=order, unit=sessions),
        weighted=ordinal,
        # Of tied targets too: to leave out disagreement would make agreement of it.
        alpha=alpha(
            [[*_people(target, places), _rating(target.machine[0], places)] for target, _ in rated],
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
    )
    return _remarked(calibration)


def _consensus(target: JudgedTargetPair) -> LabelValue | None:
    """The label of a target: of an adjudication, or the most frequent one; None: a tie."""
    deciding = [each for who, each in target.human.items() if who.strip().casefold() in ADJUDICATORS]
    opinions = deciding or list(target.human.values())
    label = ""
    if any(opinion.label for opinion in opinions):
        counts = Counter(opinion.word for opinion in opinions).most_common(2)
        if len(counts) > 1 and counts[0][1] == counts[1][1]:
            return None
        label = counts[0][0]
        opinions = [opinion for opinion in opinions if opinion.word == label]
    values = [opinion.value for opinion in opinions if opinion.value is not None]
    return LabelValue(label=label, value=fmean(values) if values else None)


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
    return [_rating(opinion, places) for opinion in target.human.values()]


def _rating(opinion: LabelValue, places: Mapping[str, int]) -> str | int:
    """An ordinal label as its place; others as they are."""
    return places.get(opinion.word, -1) if len(places) > 2 else opinion.word


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


def _remarked(calibration: Calibration) -> Calibration:
    remarks: list[str] = []
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


Order = Callable[[str, str], Sequence[str]]
"""The labels of an evaluator and dimension, lowest first; empty when they have no order."""
ScaleOf = Callable[[str, str], Scale | None]
"""The lowest and the highest value of an evaluator and dimension; None: not known."""


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
    """Of the targets that both have scored."""


def judges(
    read: StoreReader, order: Order, scale: ScaleOf | None = None, *, evaluator: str = ""
) -> list[LabeledJudge]:
    """Every evaluator that has labels, the most labeled first; or one of them."""
    verdicts: dict[tuple[str, str], list[LabeledScore]] = defaultdict(list)
    for row in labeled_scores(read, evaluator):
        verdicts[row["evaluator"], row["dimension"]].append(row)
    return [
        _judge(named, verdicts[named["evaluator"], named["dimension"]], order, scale)
        for named in labeled_evaluators(read, evaluator)
    ]


def _judge(
    named: LabeledEvaluator, rows: Sequence[LabeledScore], order: Order, scale: ScaleOf | None
) -> LabeledJudge:
    last = max(rows, key=lambda row: row["timestamp"] or "", default=None)
    digest = last["evaluatorDigest"] if last else ""
    targets = _judged_targets(row for row in rows if row["evaluatorDigest"] == digest)
    ranked = order(named["evaluator"], named["dimension"])
    return LabeledJudge(
        evaluator=named["evaluator"],
        dimension=named["dimension"],
        level=named["level"],
        digest=digest,
        labels=named["labels"],
        calibration=calibrate(
            targets, order=ranked, scale=scale(named["evaluator"], named["dimension"]) if scale else None
        ),
    )


def _judged_targets(rows: Iterable[LabeledScore]) -> list[JudgedTargetPair]:
    people: dict[tuple[str, str], dict[str, LabelValue]] = defaultdict(dict)
    machine: dict[tuple[str, str], dict[tuple[str, str, int], LabelValue]] = defaultdict(dict)
    for row in rows:
        key = row["about"], row["target"]
        people[key][row["who"]] = LabelValue(label=row["humanLabel"], value=row["humanValue"])
        order_key = row["timestamp"] or "", row["sessionId"], row["position"]
        machine[key][order_key] = LabelValue(label=row["label"], value=row["value"])
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


def label_pairs(read: StoreReader, evaluator: str, digest: str, dimension: str = "") -> list[CalibrationPair]:
    """Values of people and of one version of an evaluator, from the labels and scores that are stored."""
    rows = [
        row
        for row in labeled_scores(read, evaluator)
        if row["evaluatorDigest"] == digest and row["dimension"] == dimension
    ]
    return list(calibrate(_judged_targets(rows)).pairs) if rows else []


def people_labels(
    read: StoreReader, evaluator: str, digest: str, dimension: str = ""
) -> dict[tuple[str, str], str]:
    """What people say of the targets that one version of an evaluator has scored; ties are left out."""
    targets = _judged_targets(
        row
        for row in labeled_scores(read, evaluator)
        if row["evaluatorDigest"] == digest and row["dimension"] == dimension
    )
    known = ((target, _consensus(target)) for target in targets)
    return {(target.session, target.target): human.word for target, human in known if human is not None}


# The mean of an evaluation, corrected for the judge's errors.

FEWEST_PAIRS = 20
"""Labeled sessions that a correction needs."""
WORST_JUDGE = 0.1
"""Sensitivity and specificity less 1 (Youden's index) at which a judge of yes and no tells nothing."""
RECTIFIED, MISCLASSIFIED = "rectified by labeled sessions", "corrected for misclassification (Rogan-Gladen)"


def corrected_mean(
    judged: "FloatArray",
    pairs: Sequence[CalibrationPair],
    *,
    lo: float,
    hi: float,
    evaluated: Collection[str] = (),
    level: float = CONFIDENCE,
) -> Estimate:
    """The mean that people would have given, estimated from a judge's values and its calibration.

    `judged` has one value per session; `evaluated` are the names of these sessions. The interval includes the
    spread between sessions, the judge's noise and the uncertainty of the calibration.

    Two methods. The rectifier adds the mean error of the judge on labeled sessions (prediction-powered
    inference, Angelopoulos et al. 2023); it assumes that labeled sessions are like these. Yes or no is
    corrected by sensitivity and specificity (Rogan & Gladen 1978) unless the labeled sessions are among the
    evaluated: it also holds where the share of yes differs. In simulations (50 and 300 sessions, 20 to 200
    labeled, judges right in 70 to 90 %) the rectifier covered 0.95 to 0.997 with sessions alike (0.948 to
    0.981 where the labeled are among the evaluated, whose covariance counts), but 0.02 to
    0.96 where the labeled ones succeed in 80 instead of 50 %; Rogan-Gladen 0.95 to 1 in both, 1.4 to 2 times
    as wide. The plain mean covered 0 to 0.94.
    """
    import numpy as np

    errors: dict[str, list[CalibrationPair]] = defaultdict(list)
    for pair in pairs:
        errors[pair.session].append(pair)
    blank = Estimate(value=None, n=len(judged), runs=len(pairs), level=level)
    if len(judged) < 2:
        return replace(blank, note="One session: no correction.")
    if len(errors) < FEWEST_PAIRS:
        note = f"{plural(len(errors), 'labeled session')}: a correction needs at least {FEWEST_PAIRS}."
        return replace(blank, note=note, needs=FEWEST_PAIRS)
    binary = {lo, hi}
    is_binary = set(np.unique(judged).tolist()) <= binary and all(
        pair.human in binary and pair.judge in binary for pair in pairs
    )
    inside = sum(session in evaluated for session in errors)
    if is_binary and inside < len(errors):
        return _unmixed(judged, pairs, lo, hi, blank)
    from proctor.stats.samples import plus_interval

    people, judges = (
        np.array([fmean(side(pair) for pair in own) for own in errors.values()])
        for side in (attrgetter("human"), attrgetter("judge"))
    )
    if inside == len(errors) == len(judged):
        # People have judged each of these sessions: what they said is the mean.
        return replace(of_tasks(people, lo, hi, level=level, runs=len(pairs)), method=RECTIFIED)
    gaps = people - judges
    value = float(judged.mean() + gaps.mean())
    parts = plus_interval(judged, lo, hi), plus_interval(gaps, lo - hi, hi - lo)
    # The labeled sessions among these are in both means.
    shared = 2 * float(np.cov(judges, gaps)[0, 1]) * inside / len(errors) / len(judged)
    note = "" if inside == len(errors) else _differently(judged, [*errors.values()], lo, hi)
    return _combined(replace(blank, method=RECTIFIED, note=note), value, parts, shared, lo, hi)


def labels_for_width(
    judged: "FloatArray",
    pairs: Sequence[CalibrationPair],
    *,
    lo: float,
    hi: float,
    width: float,
    evaluated: Collection[str] = (),
) -> tuple[int | None, str]:
    """How many more random sessions have to be labeled for a 95% interval of the corrected mean of a width.

    Also as a sentence. None: not known yet, or not to be reached with these sessions. Further sessions
    are taken to be like the labeled ones, which are repeated in turn. In 400 simulations each (600 and
    2,000 sessions, a judge right in 50 to 80 %, first 40 labels), the interval with the labels that were
    asked for was on average 0.99 to 1.01 times as wide as wanted.
    """
    by_session: dict[str, list[CalibrationPair]] = defaultdict(list)
    for pair in pairs:
        by_session[pair.session].append(pair)
    labeled = [*by_session.values()]
    is_inside = bool(labeled) and set(by_session) <= set(evaluated)

    def reach(count: int) -> float | None:
        """The width of the interval with so many labeled sessions."""
        chosen = [
            replace(pair, session=str(number))
            for number in range(count)
            for pair in labeled[number % len(labeled)]
        ]
        names = {pair.session for pair in chosen} if is_inside else ()
        estimate = corrected_mean(judged, chosen, lo=lo, hi=hi, evaluated=names)
        return None if estimate.low is None or estimate.high is None else estimate.high - estimate.low

    have, most = len(labeled), len(judged) - 1
    if have < FEWEST_PAIRS:
        return None, f"{plural(FEWEST_PAIRS - have, 'more label')} until the mean can be corrected"
    if have > most:
        return None, "all sessions are labeled: only more sessions narrow the interval"
    now, least = reach(have), reach(most)
    if now is None or least is None:
        return None, "the mean cannot be corrected with these labels"
    if now <= width:
        return 0, "the interval is as narrow as wanted"
    if least > width:
        return None, "these sessions are too few for such a width, however many are labeled"
    low, high = have, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if (reach(middle) or math.inf) <= width else (middle, high)
    return high - have, f"about {plural(high - have, 'more label')} narrow it to a width of {width:g}"


def _combined(
    blank: Estimate, value: float, parts: Sequence["Plus"], shared: float, lo: float, hi: float
) -> Estimate:
    """A sum of two means: their variances add, with what they share; with Welch's degrees of freedom."""
    from proctor.stats.samples import t_quantile

    variances = [float(part.se) ** 2 for part in parts]
    freedom = sum(variances) ** 2 / sum(
        each**2 / part.df for each, part in zip(variances, parts, strict=True)
    )
    total = sum(variances) + shared
    center, reach = (
        sum(float(part.center) for part in parts),
        float(t_quantile(0.5 + blank.level / 2, freedom)) * math.sqrt(total),
    )
    value = min(hi, max(lo, value))
    return replace(
        blank,
        value=value,
        low=max(lo, min(value, center - reach)),
        high=min(hi, max(value, center + reach)),
        sem=math.sqrt(total),
    )


def _differently(
    judged: "FloatArray", labeled: Sequence[Sequence[CalibrationPair]], lo: float, hi: float
) -> str:
    """A remark if the judge rates labeled sessions differently from these; empty: it does not."""
    import numpy as np

    from proctor.stats.samples import plus_interval, t_tails

    means = np.array([fmean(each.judge for each in pairs) for pairs in labeled])
    of_these, of_labeled = plus_interval(judged, lo, hi), plus_interval(means, lo, hi)
    gap = float(of_these.center - of_labeled.center)
    error = math.hypot(float(of_these.se), float(of_labeled.se))
    if float(t_tails(gap / error, min(of_these.df, of_labeled.df))) > 1 - CONFIDENCE:
        return ""
    return (
        f"The judge rates the labeled sessions {means.mean():.2f} and these {judged.mean():.2f} on average: "
        "they differ, and the correction may not carry over."
    )


def _unmixed(
    judged: "FloatArray", pairs: Sequence[CalibrationPair], lo: float, hi: float, blank: Estimate
) -> Estimate:
    """Rogan-Gladen for yes and no, each share with one more success and failure."""
    from proctor.stats.samples import t_quantile

    blank = replace(blank, method=MISCLASSIFIED)
    yes = [pair.judge == hi for pair in pairs if pair.human == hi]
    no = [pair.judge == lo for pair in pairs if pair.human == lo]
    if not yes or not no:
        return replace(
            blank, note="People gave one label only: the judge's errors on the other are not known."
        )
    sensitivity, specificity = ((sum(each) + 1) / (len(each) + 2) for each in (yes, no))
    positive = (float((judged == hi).sum()) + 1) / (len(judged) + 2)
    youden = sensitivity + specificity - 1
    if youden < WORST_JUDGE:
        return replace(blank, note="The judge is hardly better than chance: its mean cannot be corrected.")
    share = min(1.0, max(0.0, (positive + specificity - 1) / youden))
    variance = (
        positive * (1 - positive) / (len(judged) + 2)
        + share**2 * sensitivity * (1 - sensitivity) / (len(yes) + 2)
        + (1 - share) ** 2 * specificity * (1 - specificity) / (len(no) + 2)
    ) / youden**2
    freedom = min(len(judged), len(pairs)) - 1
    reach = float(t_quantile(0.5 + blank.level / 2, freedom)) * math.sqrt(variance)
    low, high = max(0.0, share - reach), min(1.0, share + reach)
    return replace(
        blank,
        value=lo + (hi - lo) * share,
        low=lo + (hi - lo) * low,
        high=lo + (hi - lo) * high,
        sem=(hi - lo) * math.sqrt(variance),
    )
