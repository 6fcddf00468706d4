"""Values grouped by task, and the `plus` interval of their means.

The task is the unit of every interval: repeats are averaged first, and each task counts once. This module
loads numpy and scipy; modules that are part of a plain run import it inside functions.
"""

import math
from collections.abc import Hashable, Iterable, Sized
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FADING = 5
"""Tasks that differ from the most common value before the pseudo-tasks of the `plus` interval lose weight."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Numbers of some runs, grouped by task."""

    values: FloatArray
    """One per run, without the missing ones."""
    codes: IntArray
    """The task of each value: an index of `labels`."""
    labels: tuple[Hashable, ...] = field(repr=False)
    """The tasks that have a value, in order of appearance."""
    numbers: IntArray | None = field(default=None, repr=False)
    """The labels, where they are numbers without large gaps."""
    left_out: int = 0
    """Runs without a value or without a task."""
    problem: str = ""
    """Why nothing can be computed, as a sentence. Empty: it can."""

    @property
    def runs(self) -> int:
        return len(self.values)

    @property
    def tasks(self) -> int:
        return len(self.labels)

    @cached_property
    def counts(self) -> IntArray:
        """Runs of each task."""
        return np.bincount(self.codes, minlength=self.tasks).astype(np.int64)

    @cached_property
    def sums(self) -> FloatArray:
        """Sum of the values of each task."""
        return _totals(self.codes, self.values, self.tasks)

    @cached_property
    def means(self) -> FloatArray:
        """Mean of the values of each task."""
        if self.runs == self.tasks:
            return self.values
        # Around one value, so that large values that lie close together keep their digits.
        center = self.values[0]
        means = center + _totals(self.codes, self.values - center, self.tasks) / self.counts
        # A task's mean lies between its values; rounding may put it one digit outside.
        clipped: FloatArray = np.clip(means, self.values.min(), self.values.max())
        return clipped

    @cached_property
    def within(self) -> float | None:
        """Mean over tasks of the variance between repeats. None: no task was repeated."""
        repeated = self.counts > 1
        if not repeated.any():
            return None
        squares = _totals(self.codes, (self.values - self.means[self.codes]) ** 2, self.tasks)
        return float(np.mean(squares[repeated] / (self.counts[repeated] - 1)))


def _totals(codes: IntArray, weights: FloatArray, tasks: int) -> FloatArray:
    totals: FloatArray = np.bincount(codes, weights=weights, minlength=tasks).astype(np.float64)
    return totals


def sample(
    values: Iterable[float | None],
    task: Iterable[Hashable] | None = None,
    present: NDArray[np.bool_] | None = None,
) -> Sample:
    """Values grouped by task; without `task`, each value is a task of its own.

    `None` is a missing value: it is left out and counted, as is a value whose task is `None`. In a pandas
    Series NaN and NA are missing, as they are in pandas; elsewhere NaN and infinity make the sample
    unusable, and `problem` says so. Booleans count as 0 and 1. Text raises TypeError. `present` marks the
    values to use, others count as missing.
    """
    numbers, has_value = parse(values)
    present = has_value if present is None else has_value & present
    dense: IntArray | None = None
    if task is None:
        labels: list[Hashable] = list(range(int(present.sum())))
        codes = np.arange(len(labels), dtype=np.int64)
    elif isinstance(task, np.ndarray) and task.ndim == 1 and np.issubdtype(task.dtype, np.integer):
        if len(task) != len(numbers):
            raise ValueError(f"{len(numbers)} values, but {len(task)} task labels")
        # As below, a hundred times as fast: labels in the order of their first values.
        known = task[present].astype(np.int64)
        if is_dense(known):
            dense, codes = by_appearance(known)
            labels = dense.tolist()
        else:
            distinct, first, inverse = np.unique(known, return_index=True, return_inverse=True)
            order = np.argsort(first)
            codes = np.argsort(order)[inverse]
            labels = distinct[order].tolist()
    else:
        listed = _listed(task)
        if len(listed) != len(numbers):
            raise ValueError(f"{len(numbers)} values, but {len(listed)} task labels")
        # A label that differs from itself is NaN, the missing label of a data frame.
        labeled = np.fromiter((each is not None and each == each for each in listed), bool, len(listed))
        present = present & labeled
        index: dict[Hashable, int] = {}
        used_tasks = [each for each, is_present in zip(listed, present.tolist(), strict=True) if is_present]
        codes = np.fromiter(
            (index.setdefault(each, len(index)) for each in used_tasks), np.int64, len(used_tasks)
        )
        labels = list(index)
    used = numbers[present]
    left_out = len(numbers) - len(used)
    broken = int(len(used) - np.isfinite(used).sum())
    problem = ""
    if broken:
        problem = f"{broken} of {len(used)} values {'is' if broken == 1 else 'are'} NaN or infinite."
    elif len(used) and np.abs(used).max() > 1e150:
        problem = "Values beyond 1e150 are too large to compute with."
    return Sample(
        values=used, codes=codes, labels=tuple(labels), numbers=dense, left_out=left_out, problem=problem
    )


def is_dense(codes: IntArray) -> bool:
    """Whether codes have no large gaps, so that a table by code takes little more memory than they do."""
    return not len(codes) or (int(codes.min()) >= 0 and int(codes.max()) < 8 * len(codes) + 1000)


def by_appearance(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Dense codes in the order of their first appearance, and for each of `codes` its place there.

    Tables by code take a tenth of the time of sorting.
    """
    places = np.arange(len(codes), dtype=np.int64)
    first = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    # Of several assignments the last remains: that of the first place.
    first[codes[::-1]] = places[::-1]
    distinct = np.flatnonzero(first >= 0)
    ordered = distinct[np.argsort(first[distinct])]
    first[ordered] = places[: len(ordered)]
    return ordered, first[codes]


def samples_of_sides(
    a: Iterable[float | None],
    b: Iterable[float | None],
    task: Iterable[Hashable] | None = None,
    task_a: Iterable[Hashable] | None = None,
    task_b: Iterable[Hashable] | None = None,
) -> tuple[Sample, Sample]:
    """Two samples, by the tasks of `task`, or of `task_a` and `task_b`, or by the places of their values."""
    if task is not None and (task_a is not None or task_b is not None):
        raise ValueError("pass either task, or task_a and task_b")
    if (task_a is None) != (task_b is None):
        raise ValueError("task_a and task_b belong together")
    if task is not None:
        task_a = task_b = task if isinstance(task, np.ndarray) else list(task)
    elif task_a is None:
        # Places, so that values at the same one belong together also where another is missing.
        (a, task_a), (b, task_b) = _places(a), _places(b)
    return sample(a, task_a), sample(b, task_b)


def common_means(a: Sample, b: Sample) -> tuple[FloatArray, FloatArray, int]:
    """Means of the tasks that both samples have, in the order of the first, and their number of runs."""
    first, second = _common(a, b)
    return a.means[first], b.means[second], int(a.counts[first].sum() + b.counts[second].sum())


def common_tasks(a: Sample, b: Sample) -> int:
    """How many tasks both samples have."""
    return len(_common(a, b)[0])


def _common(a: Sample, b: Sample) -> tuple[IntArray, IntArray]:
    """The places of the tasks that both samples have, in the order of the first."""
    if a.numbers is not None and b.numbers is not None:
        size = int(max(a.numbers.max(initial=-1), b.numbers.max(initial=-1))) + 1
        place_of = np.full(size, -1, dtype=np.int64)
        place_of[b.numbers] = np.arange(len(b.numbers))
        second = place_of[a.numbers]
        return np.flatnonzero(second >= 0), second[second >= 0]
    places = {label: place for place, label in enumerate(b.labels)}
    rows = [(place, places[label]) for place, label in enumerate(a.labels) if label in places]
    index = np.asarray(rows, dtype=np.int64).reshape(-1, 2)
    return index[:, 0], index[:, 1]


def _places(values: Iterable[float | None]) -> tuple[Iterable[float | None], range]:
    """Values and their places. A Series stays one: it marks its missing values."""
    sized = values if isinstance(values, Sized) else list(values)
    return sized, range(len(sized))


def parse(values: Iterable[float | None]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Values as floats, and which of them are present."""
    if hasattr(values, "isna"):
        missing = np.asarray(values.isna(), dtype=bool)
        listed = [0.0 if is_missing else each for each, is_missing in zip(values, missing, strict=True)]
        numbers, present = parse(listed)
        return numbers, present & ~missing
    array = values if isinstance(values, np.ndarray) else np.asarray(_listed(values))
    if array.ndim != 1:
        raise ValueError("values must be a flat sequence of numbers")
    if array.dtype.kind in "biuf" or not len(array):
        return array.astype(np.float64), np.ones(len(array), dtype=bool)
    if array.dtype.kind != "O":
        raise TypeError(f"values must be numbers, not {array[0]!r}")
    present = np.fromiter((each is not None for each in array), bool, len(array))
    for value in array[present]:
        if isinstance(value, str | bytes | complex):
            raise TypeError(f"values must be numbers, not {value!r}")
    return np.fromiter((0.0 if each is None else float(each) for each in array), float, len(array)), present


def _listed(items: Iterable[object]) -> list[Hashable]:
    # `tolist` of numpy and pandas is ten times as fast as iterating, and gives Python's own types.
    listed = items.tolist() if hasattr(items, "tolist") else list(items)
    return listed if isinstance(listed, list) else [listed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plus:
    """Center, standard error and limits of the `plus` interval; arrays where several samples were passed."""

    center: FloatArray
    """Mean of the tasks and the pseudo-tasks. Not the estimate to print: that is the mean of the tasks."""
    se: FloatArray
    df: int
    """Degrees of freedom of Student's t: tasks − 1."""
    weight: FloatArray
    """Weight of each of the two pseudo-tasks."""
    lo: float
    hi: float

    def limits(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Both limits, not cut at the ends of the scale: a value outside them has p ≤ 1 − level."""
        reach = t_quantile(0.5 + level / 2, self.df) * self.se
        return self.center - reach, self.center + reach

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Both limits, cut at the ends of the scale."""
        low, high = self.limits(level)
        return np.maximum(low, self.lo), np.minimum(high, self.hi)

    def p(self, value: float) -> FloatArray:
        """Two-sided p of the hypothesis that the mean is `value`."""
        return t_tails((self.center - value) / self.se, self.df)


def plus_interval(means: FloatArray, lo: float, hi: float) -> Plus:
    """The `plus` interval of task means on a scale from `lo` to `hi`, over the last axis.

    Two pseudo-tasks are added, one at each end of the scale, so that few tasks, or tasks without spread,
    are never read as certainty. Their weight is 1 until more than `FADING` tasks differ from the most
    common value, then it fades. For differences of 0/1 outcomes this is Bonett and Price (2012) with
    Student's t.

    >>> plus = plus_interval(np.zeros(8), -1, 1)
    >>> [round(float(limit), 3) for limit in plus.interval()], float(plus.p(0))
    ([-0.352, 0.352], 1.0)
    """
    means = np.asarray(means, dtype=np.float64)
    tasks, width = means.shape[-1], hi - lo
    if tasks < 2:
        raise ValueError("the plus interval needs at least two tasks")
    unit = (means - lo) / width
    differing = tasks - _most_common(np.round(unit, 9))
    weight = np.minimum(1.0, FADING / np.maximum(differing, 1))
    total = tasks + 2 * weight
    center = (unit.sum(axis=-1) + weight) / total
    squares = ((unit - center[..., None]) ** 2).sum(axis=-1) + weight * (center**2 + (1 - center) ** 2)
    se = np.sqrt(squares / ((total - 1) * total))
    return Plus(center=lo + width * center, se=width * se, df=tasks - 1, weight=weight, lo=lo, hi=hi)


def _most_common(values: FloatArray) -> IntArray:
    """How often the most common value occurs, over the last axis."""
    ordered = np.sort(values, axis=-1)
    places = np.arange(values.shape[-1])
    starts = np.ones(values.shape, dtype=bool)
    starts[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    begun = np.maximum.accumulate(np.where(starts, places, 0), axis=-1)
    longest: IntArray = (places - begun).max(axis=-1) + 1
    return longest


def t_quantile(share: float, df: float | FloatArray) -> FloatArray:
    """The quantile of Student's t distribution."""
    quantile: FloatArray = special.stdtrit(df, share)
    return quantile


def t_tails(t: float | FloatArray, df: float | FloatArray) -> FloatArray:
    """The chance that Student's t lies further from 0 than `t`, both sides."""
    tails: FloatArray = 2 * special.stdtr(df, -np.abs(t))
    return tails


def f_tail(value: float, above: float, below: float) -> float:
    """The chance that an F variable with these degrees of freedom exceeds `value`."""
    return float(special.fdtrc(above, below, value))


def standard_error(means: FloatArray) -> float:
    """Standard error of the mean of some task means; 0 where they are equal but for rounding."""
    scale = float(np.abs(means).max())
    if len(means) < 2 or scale == 0 or float(np.ptp(means)) <= 1e-12 * scale:
        return 0.0
    return float(np.std(means / scale, ddof=1)) * scale / math.sqrt(len(means))
