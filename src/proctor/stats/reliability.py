"""Variance components of two crossed factors, without intervals; `variance` has the general design.

A random-effects model, y = mean + row + column + pairing + repeat, estimated by Henderson's first method:
sums of squares over groups, set equal to their expectations. For balanced data that is the classical
analysis of variance; unbalanced data need no imputation. A negative estimate counts as zero.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

ROW, COLUMN, PAIRING, REPEAT = "row", "column", "pairing", "repeat"


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured value and where it stands in the crossing."""

    row: str
    column: str
    value: float


@dataclass(frozen=True, slots=True)
class CrossedComponent:
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


def variance_components(observations: Sequence[Observation]) -> list[CrossedComponent]:
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
        CrossedComponent(
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
