"""Variance components of two crossed factors, and the judge noise of scores.

A random-effects model, y = mean + row + column + pairing + repeat, estimated by Henderson's first method:
sums of squares over groups, set equal to their expectations. For balanced data that is the classical
analysis of variance; unbalanced data need no imputation. A negative estimate counts as zero.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Literal

from proctor.stats.intervals import CONFIDENCE, Estimate, student_quantile

# Agreement of two raters, corrected for chance.


Metric = Literal["nominal", "ordinal", "interval"]
Pair = tuple[str, str]
RESAMPLES = 2000


def kappa(pairs: Sequence[Pair], order: Sequence[str] = ()) -> float | None:
    """Cohen's kappa of pairs of labels; quadratic weights when `order` gives the labels theirs.

    None: too few to say, or both said the same word always, when chance explains everything.
    """
    if not pairs:
        return None
    rank = {label: float(number) for number, label in enumerate(order)}
    weigh = _squared(rank) if len(order) > 2 else _differs
    firsts, seconds = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    n = len(pairs)
    observed = sum(weigh(a, b) for a, b in pairs) / n
    by_chance = sum(weigh(a, b) * firsts[a] * seconds[b] for a in firsts for b in seconds) / n**2
    return 1 - observed / by_chance if by_chance > 0 else None


def alpha(units: Sequence[Sequence[Hashable]], metric: Metric = "nominal") -> float | None:
    """Krippendorff's alpha: each unit is what its judges said of one thing, in any order.

    For `ordinal` and `interval` they are numbers. None: nothing was said twice, or all said the same.
    """
    paired = [list(unit) for unit in units if len(unit) > 1]
    values = [value for unit in paired for value in unit]
    total = len(values)
    counts = Counter(values)
    if total < 2:
        return None
    apart = _distance(counts, metric)
    observed = sum(
        apart(a, b) / (len(unit) - 1)
        for unit in paired
        for i, a in enumerate(unit)
        for j, b in enumerate(unit)
        if i != j
    )
    by_chance = sum(apart(a, b) * counts[a] * counts[b] for a in counts for b in counts) / (total - 1)
    return 1 - observed / by_chance if by_chance > 0 else None


def correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None when either does not vary, or there are fewer than three."""
    if len(first) < 3:
        return None
    a, b = _ranks(first), _ranks(second)
    centre_a, centre_b = sum(a) / len(a), sum(b) / len(b)
    both = sum((x - centre_a) * (y - centre_b) for x, y in zip(a, b, strict=True))
    spread = math.sqrt(sum((x - centre_a) ** 2 for x in a) * sum((y - centre_b) ** 2 for y in b))
    return both / spread if spread > 0 else None


def bootstrapped(
    groups: Mapping[str, Sequence[object]],
    figure: Callable[[list[object]], float | None],
    *,
    seed: int,
) -> Estimate:
    """A figure of everything, with the interval that drawing whole groups again and again gives.

    Groups are drawn whole because what stands in one (the turns of a session) is alike.
    """
    names = sorted(groups)
    value = figure([entry for name in names for entry in groups[name]])
    n = sum(map(len, groups.values()))
    if value is None or len(names) < 2:
        return Estimate(value=value, n=n)
    draw, estimates = random.Random(seed), list[float]()
    for _ in range(RESAMPLES):
        drawn = figure([entry for name in draw.choices(names, k=len(names)) for entry in groups[name]])
        if drawn is not None:
            estimates.append(drawn)
    # Where most draws say nothing, those that do are no sample of what could have been.
    if len(estimates) < RESAMPLES / 2:
        return Estimate(value=value, n=n)
    estimates.sort()
    tail = (1 - CONFIDENCE) / 2
    low, high = (
        estimates[int(tail * len(estimates))],
        estimates[min(len(estimates) - 1, int((1 - tail) * len(estimates)))],
    )
    return Estimate(value=value, low=low, high=high, n=n)


def _differs(a: Hashable, b: Hashable) -> float:
    return float(a != b)


def _squared(rank: Mapping[str, float]) -> Callable[[str, str], float]:
    return lambda a, b: (rank.get(a, -1.0) - rank.get(b, -1.0)) ** 2


def _distance(counts: Counter[Hashable], metric: Metric) -> Callable[[Hashable, Hashable], float]:
    """How far two values are apart."""
    if metric == "nominal":
        return _differs
    if metric == "interval":
        return lambda a, b: (float(a) - float(b)) ** 2  # type: ignore[arg-type]
    ordered = sorted(counts, key=lambda value: float(value))  # type: ignore[arg-type]
    # Values are as far apart as there are judgements between them, half of their own counted.
    below, middle = 0.0, dict[Hashable, float]()
    for value in ordered:
        middle[value] = below + counts[value] / 2
        below += counts[value]
    return lambda a, b: (middle[a] - middle[b]) ** 2


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equals share the mean of their places."""
    places = defaultdict[float, list[int]](list)
    for place, value in enumerate(sorted(values), start=1):
        places[value].append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


ROW, COLUMN, PAIRING, REPEAT = "row", "column", "pairing", "repeat"


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured value and where it stands in the crossing."""

    row: str
    column: str
    value: float


@dataclass(frozen=True, slots=True)
class Component:
    """The variance that one source contributes."""

    source: str
    variance: float | None
    """None: the data cannot tell it from the others."""
    share: float | None
    """Of all the variance that could be told, between 0 and 1."""


Key = Callable[[Observation], Hashable]
_KEYS: Mapping[str, Key] = {
    ROW: lambda o: o.row,
    COLUMN: lambda o: o.column,
    PAIRING: lambda o: (o.row, o.column),
}


def variance_components(observations: Sequence[Observation]) -> list[Component]:
    """The components in the order row, column, pairing, repeat."""
    rows, columns = {o.row for o in observations}, {o.column for o in observations}
    pairs = {(o.row, o.column) for o in observations}
    sources = [ROW] * (len(rows) > 1) + [COLUMN] * (len(columns) > 1)
    # With a single row, or a pairing only once, the pairing is the same thing as something else.
    if len(sources) == 2 and len(pairs) > len(rows) + len(columns) - 1:
        sources.append(PAIRING)
    estimates = _estimates(observations, sources, has_repeats=len(observations) > len(pairs))
    positive = {name: max(0.0, value) for name, value in estimates.items() if value is not None}
    total = sum(positive.values())
    return [
        Component(
            source=name,
            variance=positive.get(name),
            share=positive[name] / total if name in positive and total > 0 else None,
        )
        for name in (ROW, COLUMN, PAIRING, REPEAT)
    ]


def _estimates(
    observations: Sequence[Observation], sources: list[str], *, has_repeats: bool
) -> dict[str, float | None]:
    if len(observations) < 2:
        return {}
    if not has_repeats:
        # Without repeats pairing and repeat are one; what they come to together is called repeat.
        sources = [name for name in sources if name != PAIRING]
    unknowns = [*sources, REPEAT]
    # Sums of squares of large numbers differ in their last digits only; about the mean they do not.
    centre = sum(each.value for each in observations) / len(observations)
    observations = [Observation(each.row, each.column, each.value - centre) for each in observations]
    groupings = [_groups(observations, _KEYS[name]) for name in sources]
    single = [[position] for position in range(len(observations))]
    whole = [list(range(len(observations)))]
    forms = [*groupings, single]
    equations, results = [], []
    for form in forms:
        equations.append(
            [_expected(observations, form, name) - _expected(observations, whole, name) for name in unknowns]
        )
        results.append(_squares(observations, form) - _squares(observations, whole))
    solved = _solve(equations, results)
    return dict(zip(unknowns, solved, strict=True)) if solved else {}


def _groups(observations: Sequence[Observation], key: Key) -> list[list[int]]:
    positions: dict[Hashable, list[int]] = defaultdict(list)
    for position, observation in enumerate(observations):
        positions[key(observation)].append(position)
    return list(positions.values())


def _squares(observations: Sequence[Observation], groups: Sequence[Sequence[int]]) -> float:
    return sum(sum(observations[i].value for i in group) ** 2 / len(group) for group in groups)


def _expected(observations: Sequence[Observation], groups: Sequence[Sequence[int]], source: str) -> float:
    """How often one source's variance is expected in a sum of squares over groups."""
    if source == REPEAT:
        return float(len(groups))
    key, total = _KEYS[source], 0.0
    for group in groups:
        counts: dict[Hashable, int] = defaultdict(int)
        for position in group:
            counts[key(observations[position])] += 1
        total += sum(count * count for count in counts.values()) / len(group)
    return total


def _solve(equations: list[list[float]], results: list[float]) -> list[float] | None:
    """Gauss with the largest pivot; None when the equations do not tell the unknowns apart."""
    size = len(results)
    table = [[*row, result] for row, result in zip(equations, results, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(table[row][column]))
        if abs(table[pivot][column]) < 1e-9:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        for row in range(size):
            if row != column:
                factor = table[row][column] / table[column][column]
                table[row] = [a - factor * b for a, b in zip(table[row], table[column], strict=True)]
    return [table[row][size] / table[row][row] for row in range(size)]


# What the scores of an evaluator come to, when the judge itself is not sure.


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
    components = {component.source: component for component in variance_components(votes)}
    return components[REPEAT].variance, components[REPEAT].share if components[
        ROW
    ].variance is not None else None


def _things(own: Sequence[Judgement]) -> list[float]:
    """The value of each thing in a session; of one that was judged more than once, the mean."""
    groups: dict[str, list[float]] = defaultdict(list)
    for judgement in own:
        groups[judgement.target].append(judgement.value)
    return [fmean(values) for values in groups.values()]


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
