"""Tasks and repeats needed to detect a difference, and the difference a run could have detected."""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from proctor.stats.intervals import CONFIDENCE, FEWEST_TASKS
from proctor.stats.samples import common_means, plus_interval, sample, samples_of_sides, t_quantile

POWER, ASSURANCE = 0.8, 0.8
SMALL, ADDED = 40, 4
"""Below `SMALL` tasks the `plus` interval is wider than Student's, which takes `ADDED` tasks to make up
for."""
MOST_TASKS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceParts:
    """How differences of two sides vary: between tasks, and between repeats of one task."""

    between: float | None
    """Variance of the true differences of tasks. None: without repeats it cannot be separated."""
    within: float | None
    """Variance between repeats of one task, both sides added. None: there were no repeats."""
    observed: float
    """Variance of the task differences as they were measured."""
    tasks: int
    repeats: float
    """Mean repeats (harmonic) of a task on each side."""
    note: str = ""

    def of(self, repeats: int | None = None) -> float | None:
        """Variance of a task's difference with this many repeats on each side; None: unknown."""
        if self.between is not None and self.within is not None:
            return self.between + self.within / (repeats or self.repeats)
        return self.observed if repeats is None or repeats == self.repeats else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksNeeded:
    """A design that detects a difference."""

    tasks: int | None
    """None: `note` says why."""
    repeats: int | None
    """Repeats of each task on each side. None: as many as in the data."""
    detect: float
    power: float
    assurance: float | None
    """Share of pilots of this size whose design reaches the power. None: the variance was taken as known."""
    variation: VarianceParts | None = None
    best_repeats: int | None = None
    """Repeats that take the least money, where the price of a task and of a run was passed."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """The smallest true difference that a run of this size detects with the given power."""

    value: float | None
    tasks: int
    power: float
    level: float
    note: str = ""


def variation(
    a: Iterable[float | None],
    b: Iterable[float | None] | None = None,
    task: Iterable[Hashable] | None = None,
    *,
    task_a: Iterable[Hashable] | None = None,
    task_b: Iterable[Hashable] | None = None,
    correlation: float = 0.5,
    lo: float | None = None,
    hi: float | None = None,
) -> VarianceParts:
    """How task differences vary, from two runs of the same tasks, or from one.

    Sides and tasks as in `difference`. With `a` alone, the other side is taken to vary as much, and its task
    means to correlate with those of `a` as `correlation` says.
    """
    if b is None:
        first = second = sample(a, task if task_a is None else task_a)
        differences, note = first.means, ""
        assumed = f"From one run: the other is assumed to vary as much, correlated {correlation:g} by task."
    else:
        first, second = samples_of_sides(a, b, task, task_a, task_b)
        note = "" if first.problem or second.problem else "that both sides have"
        differences = np.zeros(0)
        if not (first.problem or second.problem):
            first_values, other, _ = common_means(first, second)
            differences = other - first_values
        assumed = ""
    if first.problem or second.problem or len(differences) < 2:
        reason = first.problem or second.problem or f"Needs at least two tasks {note}".strip() + "."
        return VarianceParts(
            between=None, within=None, observed=0.0, tasks=len(differences), repeats=1.0, note=reason
        )
    observed = float(np.var(differences, ddof=1))
    within_a, within_b = first.within, second.within
    inverse_a, inverse_b = float((1 / first.counts).mean()), float((1 / second.counts).mean())
    between = within = None
    if within_a is not None and within_b is not None:
        within = within_a + within_b
        noise = within_a * inverse_a + within_b * inverse_b
        if b is None:
            between = 2 * (1 - correlation) * max(0.0, observed - within_a * inverse_a)
            observed = between + noise
        else:
            between = max(0.0, observed - noise)
    elif b is None:
        observed *= 2 * (1 - correlation)
    if observed <= 1e-18 and lo is not None and hi is not None:
        # No spread was seen; the pseudo-tasks stand for what may have been missed.
        ends = (-(hi - lo), hi - lo) if b is not None else (lo, hi)
        observed = float(plus_interval(differences, *ends).se) ** 2 * len(differences)
        assumed = f"{assumed} No spread between tasks was seen; a cautious one is assumed.".strip()
        between, within = None, None
    repeats = 2 / (inverse_a + inverse_b)
    return VarianceParts(
        between=between,
        within=within,
        observed=observed,
        tasks=len(differences),
        repeats=round(repeats, 9),
        note=assumed,
    )


def tasks_needed(
    a: Iterable[float | None],
    b: Iterable[float | None] | None = None,
    task: Iterable[Hashable] | None = None,
    *,
    detect: float,
    task_a: Iterable[Hashable] | None = None,
    task_b: Iterable[Hashable] | None = None,
    repeats: int | None = None,
    power: float = POWER,
    level: float = CONFIDENCE,
    family: int = 1,
    assurance: float | None = ASSURANCE,
    correlation: float = 0.5,
    lo: float | None = None,
    hi: float | None = None,
    loss: float | None = None,
    task_cost: float | None = None,
    run_cost: float | None = None,
) -> TasksNeeded:
    """Tasks that detect a true difference of `detect` with the given power, from the variance of a pilot.

    `a` and `b` as in `difference`; with `a` alone, the other side is assumed to vary as much. The pilot's
    variance is raised so that `assurance` of pilots of its size lead to a design that reaches the power.
    `loss`, the largest loss of one task, adds the smallest number of tasks at which a gate of margin
    `detect` may pass.

    >>> baseline = [1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1]
    >>> tasks_needed(baseline, task=[n // 2 for n in range(20)], detect=0.2, repeats=2, lo=0, hi=1).tasks
    86
    """
    if not detect or not math.isfinite(detect):
        raise ValueError("detect must be a difference other than 0")
    spread = variation(a, b, task, task_a=task_a, task_b=task_b, correlation=correlation, lo=lo, hi=hi)
    design = TasksNeeded(
        tasks=None, repeats=repeats, detect=detect, power=power, assurance=assurance, variation=spread
    )
    if spread.observed <= 0:
        note = spread.note or "All tasks have the same value: the variance is unknown. Declare the scale."
        return replace(design, note=note)
    variance, note = spread.of(repeats), spread.note
    if variance is None:
        note = "Without repeats, the variance between repeats is unknown: the number holds for one repeat."
        note = f"{spread.note} {note}".strip()
        variance, design = spread.observed, replace(design, repeats=None)
    tasks = required_tasks(
        variance,
        detect,
        power=power,
        level=level,
        family=family,
        pilot=spread.tasks if assurance is not None else None,
        assurance=assurance or ASSURANCE,
    )
    if loss is not None:
        tasks = max(tasks, tasks_for_gate(abs(detect), loss, level=level))
    best = None
    if task_cost is not None and run_cost and spread.between and spread.within:
        best = max(1, round(math.sqrt(task_cost / run_cost * spread.within / spread.between)))
    if tasks >= MOST_TASKS:
        note = f"{note} More than {MOST_TASKS:,} tasks.".strip()
        return replace(design, best_repeats=best, note=note)
    return replace(design, tasks=tasks, best_repeats=best, note=note)


def required_tasks(
    variance: float,
    detect: float,
    *,
    power: float = POWER,
    level: float = CONFIDENCE,
    family: int = 1,
    pilot: int | None = None,
    assurance: float = ASSURANCE,
) -> int:
    """The smallest number of tasks that detects `detect`, from the variance of one task's difference.

    `pilot`: the tasks that the variance was estimated from; None where it is known.

    >>> required_tasks(0.06 + 0.26 / 3, 0.1)
    118
    """
    if pilot is not None and pilot > 1:
        variance *= (pilot - 1) / float(special.chdtri(pilot - 1, assurance))
    tail = (1 - level) / family / 2

    def is_enough(tasks: int) -> bool:
        reach = float(t_quantile(1 - tail, tasks - 1)) + float(t_quantile(power, tasks - 1))
        return reach <= abs(detect) * math.sqrt(tasks / variance)

    low, high = 1, 2
    while not is_enough(high):
        low, high = high, high * 2
        if high > MOST_TASKS:
            return MOST_TASKS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return max(FEWEST_TASKS, high + ADDED if high < SMALL else high)


def tasks_for_gate(margin: float, loss: float = 1.0, *, level: float = CONFIDENCE) -> int:
    """Tasks below which a gate cannot pass: fewer may all miss a collapse on a share `margin / loss` of
    tasks.

    >>> tasks_for_gate(0.05)
    72
    """
    if margin <= 0 or loss <= 0:
        raise ValueError("margin and loss must be positive")
    if margin >= loss:
        return 1
    return math.ceil(math.log((1 - level) / 2) / math.log1p(-margin / loss) - 1e-9)


def detectable(
    a: Iterable[float | None],
    b: Iterable[float | None] | None = None,
    task: Iterable[Hashable] | None = None,
    *,
    task_a: Iterable[Hashable] | None = None,
    task_b: Iterable[Hashable] | None = None,
    tasks: int | None = None,
    repeats: int | None = None,
    power: float = POWER,
    level: float = CONFIDENCE,
    family: int = 1,
    correlation: float = 0.5,
    lo: float | None = None,
    hi: float | None = None,
) -> Detectable:
    """The smallest difference that these tasks, or `tasks` of them, detect with the given power.

    >>> first = [1, 0, 1, 1, 0, 1, 0, 1, 1, 1] * 3
    >>> second = [1, 1, 1, 1, 0, 1, 0, 0, 1, 1] * 3
    >>> round(detectable(first, second, lo=0, hi=1).value, 2)
    0.24
    """
    spread = variation(a, b, task, task_a=task_a, task_b=task_b, correlation=correlation, lo=lo, hi=hi)
    number = tasks or spread.tasks
    variance = spread.of(repeats)
    unknown = Detectable(value=None, tasks=number, power=power, level=level)
    if variance is None:
        note = "Without repeats, the variance between repeats is unknown."
        return replace(unknown, note=note)
    if variance <= 0 or number < 2:
        note = spread.note or "All tasks have the same value: the variance is unknown. Declare the scale."
        return replace(unknown, note=note)
    value = smallest_detectable(math.sqrt(variance / number), number - 1, power, level, family)
    if lo is not None and hi is not None and value > hi - lo:
        return replace(unknown, note=f"{spread.note} No difference on this scale.".strip())
    return replace(unknown, value=value, note=spread.note)


def smallest_detectable(
    se: float, df: float, power: float = POWER, level: float = CONFIDENCE, family: int = 1
) -> float:
    """The difference that a two-sided test with this standard error detects with the given power."""
    return (float(t_quantile(1 - (1 - level) / family / 2, df)) + float(t_quantile(power, df))) * se
