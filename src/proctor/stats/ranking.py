"""Ranks with simultaneous intervals: every pair compared by task, corrected together (Holm)."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import numpy as np

from proctor.stats.differences import holm
from proctor.stats.intervals import CONFIDENCE, FEWEST_NORMAL, FEWEST_TASKS, Estimate, geometric_mean, mean
from proctor.stats.samples import FloatArray, IntArray, plus_interval, sample, standard_error, t_tails

Cell = float | None | Sequence[float | None]
"""Value of one task, or those of its repeats."""
TaskValues = tuple[Sequence[Hashable] | IntArray, Sequence[float | None] | FloatArray]
"""Tasks and their values, of equal length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One row of a ranking."""

    name: str
    value: float | None
    """Mean over tasks; on a log scale the geometric mean. None: no values."""
    sem: float | None
    low: float | None
    high: float | None
    rank: int
    """By `value`; equal values share the better rank."""
    rank_low: int
    """Best rank that the data allow: 1 + those that are significantly better."""
    rank_high: int
    """Worst rank that the data allow."""
    tasks: int
    runs: int
    note: str = ""


def ranks(
    table: Mapping[str, Mapping[Hashable, Cell]],
    *,
    lo: float | None = None,
    hi: float | None = None,
    higher_is_better: bool = True,
    log: bool = False,
    level: float = CONFIDENCE,
) -> list[Rank]:
    """Rank names by their mean over tasks, best first, with rank intervals that all hold together at `level`.

    `table` has the value, or the values of the repeats, of each name and task; `table_of` builds it from
    columns. `lo` and `hi` are the ends of the scale, for `plus` intervals. `log=True`, for costs and times,
    compares typical ratios. Pairs are compared on the tasks that both have; with fewer than 6 they stay
    tied.

    >>> table = {"x": {n: n % 4 == 0 for n in range(20)}, "y": {n: 1 for n in range(20)}}
    >>> [(each.name, each.rank, each.rank_low, each.rank_high) for each in ranks(table, lo=0, hi=1)]
    [('y', 1, 1, 1), ('x', 2, 2, 2)]
    """
    rows = {name: _row(cells) for name, cells in table.items()}
    return ranks_of_columns(rows, lo=lo, hi=hi, higher_is_better=higher_is_better, log=log, level=level)


def ranks_of_columns(
    rows: Mapping[str, TaskValues],
    *,
    lo: float | None = None,
    hi: float | None = None,
    higher_is_better: bool = True,
    log: bool = False,
    level: float = CONFIDENCE,
) -> list[Rank]:
    """As `ranks`, from the tasks and the values of each name in columns of equal length."""
    names = list(rows)
    labels = list(dict.fromkeys(chain.from_iterable(_listed(tasks) for tasks, _ in rows.values())))
    estimates = {name: _estimate(rows[name], lo, hi, log, level) for name in names}
    usable = [name for name in names if estimates[name].value is not None]
    places = {task: position for position, task in enumerate(labels)}
    matrix = np.full((len(usable), len(labels)), np.nan)
    for row, name in enumerate(usable):
        data = sample(rows[name][1], rows[name][0])
        matrix[row, [places[task] for task in data.labels]] = data.means
    better = _wins(matrix, lo, hi, log=log, level=level, sign=1 if higher_is_better else -1)
    values = np.asarray([estimates[name].value for name in usable], dtype=np.float64)
    values = values if higher_is_better else -values
    tolerance = 1e-9 * float(np.abs(values).max()) if len(values) else 0.0
    ranked = []
    for row, name in enumerate(usable):
        estimate = estimates[name]
        low = 1 + int(better[:, row].sum())
        high = len(usable) - int(better[row].sum())
        position = 1 + int((values > values[row] + tolerance).sum())
        notes = [estimate.note] if estimate.note else []
        if estimate.n < len(labels):
            notes.append(f"Has {estimate.n} of {len(labels)} tasks.")
        ranked.append(rank_row(name, estimate, position, (low, high), note=" ".join(notes)))
    order = {name: -value for name, value in zip(usable, values.tolist(), strict=True)}
    ranked.sort(key=lambda each: (each.rank, order[each.name], each.name))
    return ranked + [_unranked(name, estimates[name], len(names)) for name in names if name not in usable]


def _listed(tasks: Sequence[Hashable] | IntArray) -> Sequence[Hashable]:
    return tasks.tolist() if isinstance(tasks, np.ndarray) else tasks


def undominated(keys: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """The Pareto front: those that no other one equals or undercuts in every number and undercuts in one.

    >>> undominated({"cheap": (0.4, 1), "good": (0.1, 5), "neither": (0.4, 6)})
    ('cheap', 'good')
    """
    return tuple(
        name
        for name, mine in keys.items()
        if not any(
            tuple(other) != tuple(mine) and all(a <= b for a, b in zip(other, mine, strict=True))
            for other in keys.values()
        )
    )


def table_of(
    name: Iterable[str], task: Iterable[Hashable], value: Iterable[float | None]
) -> dict[str, dict[Hashable, list[float | None]]]:
    """Columns of a data frame as the table that `ranks` takes.

    >>> table_of(["x", "x", "y"], ["t1", "t1", "t1"], [1, 0, 1])
    {'x': {'t1': [1, 0]}, 'y': {'t1': [1]}}
    """
    table: dict[str, dict[Hashable, list[float | None]]] = {}
    for each_name, each_task, each_value in zip(name, task, value, strict=True):
        is_missing = each_value is None or each_value != each_value
        # A numpy array has text of its own type.
        row = table.setdefault(str(each_name), {})
        row.setdefault(each_task, []).append(None if is_missing else each_value)
    return table


def _row(cells: Mapping[Hashable, Cell]) -> tuple[list[Hashable], list[float | None]]:
    """One name's cells as columns of tasks and values."""
    tasks: list[Hashable] = []
    values: list[float | None] = []
    for task, cell in cells.items():
        if cell is None or isinstance(cell, int | float | np.generic):
            tasks.append(task)
            values.append(cell)
        else:
            values.extend(cell)
            tasks.extend([task] * (len(values) - len(tasks)))
    return tasks, values


def _estimate(
    row: TaskValues,
    lo: float | None,
    hi: float | None,
    log: bool,
    level: float,
) -> Estimate:
    tasks, values = row
    return (
        geometric_mean(values, tasks, level=level) if log else mean(values, tasks, lo=lo, hi=hi, level=level)
    )


def _wins(
    matrix: FloatArray, lo: float | None, hi: float | None, *, log: bool, level: float, sign: int
) -> "np.typing.NDArray[np.bool_]":
    """Which row is significantly better than which column, corrected over all pairs."""
    number = len(matrix)
    pairs = list(combinations(range(number), 2))
    tested = [_compared(matrix[i], matrix[j], lo, hi, log) for i, j in pairs]
    # A pair that cannot be tested counts as tested without a result: it stays tied.
    adjusted = holm([1.0 if result is None else result[1] for result in tested])
    better = np.zeros((number, number), dtype=bool)
    for (i, j), result, p in zip(pairs, tested, adjusted, strict=True):
        if result is None or p is None or p > 1 - level:
            continue
        first_wins = sign * result[0] > 0
        better[(i, j) if first_wins else (j, i)] = True
    return better


def _compared(
    first: FloatArray, second: FloatArray, lo: float | None, hi: float | None, log: bool
) -> tuple[float, float] | None:
    """First minus second and its p, over the tasks that both have; None: cannot be tested."""
    common = ~(np.isnan(first) | np.isnan(second))
    own, other = first[common], second[common]
    if len(own) < FEWEST_TASKS:
        return None
    if not log and lo is not None and hi is not None:
        deltas = own - other
        plus = plus_interval(deltas, lo - hi, hi - lo)
        return float(plus.center), float(plus.p(0.0))
    deltas = np.log(own) - np.log(other) if log else own - other
    error = standard_error(deltas)
    if (not log and len(own) < FEWEST_NORMAL) or error <= 1e-12 * max(1.0, math.fabs(float(deltas.mean()))):
        return None
    center = float(deltas.mean())
    return center, float(t_tails(center / error, len(deltas) - 1))


def rank_row(name: str, estimate: Estimate, position: int, limits: tuple[int, int], *, note: str) -> Rank:
    """The row of an estimate at a place, which the limits of its rank may move.

    With missing cells a pair may be decided on other tasks than the means are of.
    """
    low, high = limits
    return Rank(
        name=name,
        value=estimate.value,
        sem=estimate.sem,
        low=estimate.low,
        high=estimate.high,
        rank=min(max(position, low), high),
        rank_low=low,
        rank_high=high,
        tasks=estimate.n,
        runs=estimate.runs,
        note=note,
    )


def _unranked(name: str, estimate: Estimate, number: int) -> Rank:
    """What has no values has every rank."""
    nothing = replace(estimate, value=None, sem=None, low=None, high=None)
    return rank_row(name, nothing, number, (1, number), note=estimate.note)
