"""Figures of a group of finished items: success, pass@k and pass^k, cost, time, ranks, flaky tasks.

Every rate, mean and ratio is over tasks, with repeats averaged first, so that reports, ranks, benchmarks and
comparisons of the same items agree. With a single task nothing can be said of others: the interval is then
about this task alone, and says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from proctor.errors import NotFound
from proctor.item import FINISHED
from proctor.stats.comparison import SKEWED, scale_of
from proctor.stats.intervals import Estimate, bill, mean, pass_at, pass_hat, per_success, typical
from proctor.stats.ranking import Rank, ranks
from proctor.stats.results import Floats, Ints, Labels, Mask, Results

MOST_LEVELS = 50
"""A factor with more levels than this is a list of tasks, not a comparison."""
TASK_FACTORS = ("task", "scenario", "variation")
"""Factors that name what was to be done, not who did it."""
MOST_K = 10
"""The largest k of pass@k and pass^k that is listed."""
LISTED_FLAKY = 50


@dataclass(frozen=True, slots=True)
class PassAtK:
    """pass@k or pass^k for one k."""

    k: int
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class FlakyTask:
    """A task whose repeats ended differently, within one group."""

    words: str
    group: str
    successes: int
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One group of items."""

    name: str
    """Empty: all items."""
    counts: Mapping[str, int]
    """Finished items by status."""
    success: Estimate
    """Infrastructure errors excluded."""
    with_errors: Estimate
    """Infrastructure errors counted as failures."""
    pass_at: tuple[PassAtK, ...]
    pass_hat: tuple[PassAtK, ...]
    cost_usd: Estimate
    """Mean cost of an item."""
    typical_cost_usd: Estimate
    seconds: Estimate
    typical_seconds: Estimate
    cost_per_success_usd: Estimate
    scores: Mapping[str, Estimate]
    """Means of the scores, by metric."""

    @property
    def errors_matter(self) -> bool:
        """Whether counting errors as failures moves the rate out of its own interval."""
        value, low = self.with_errors.value, self.success.low
        return value is not None and low is not None and value < low


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorFigures:
    """The levels of one factor, the best success rate first."""

    name: str
    levels: tuple[Figures, ...]
    """Empty when there are too many to compare."""
    ranks: tuple[Rank, ...] = ()
    """By success, with simultaneous rank intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Everything about the finished items of runs."""

    overall: Figures
    factors: tuple[FactorFigures, ...]
    """Those that vary and have few levels."""
    flaky: tuple[FlakyTask, ...]
    reasons: Mapping[str, int]
    """Items that did not succeed, by reason."""
    front: tuple[str, ...]
    """Levels of the first factor that none beats in success, cost and time together."""
    unfinished: int
    stand_ins: tuple[str, ...] = ()


def run_figures(results: Results) -> RunFigures:
    """The figures of all items, and of each level of each factor."""
    tasks, _ = results.tasks()
    factors = tuple(
        factor_figures(results, name)
        for name, levels in results.factors.items()
        if name not in TASK_FACTORS and 1 < len(levels.labels) <= MOST_LEVELS
    )
    is_failed = ~results.is_evaluation & (results.status != FINISHED.index("success"))
    codes, counts = np.unique(results.reasons.codes[is_failed], return_counts=True)
    reasons = {
        results.reasons.labels[code]: int(count)
        for code, count in sorted(zip(codes, counts, strict=True), key=lambda each: -each[1])
        if code >= 0
    }
    main = next((factor for factor in factors if factor.name in ("model", "agent")), None)
    return RunFigures(
        overall=figures_of(results, tasks),
        factors=factors,
        flaky=flaky_tasks(results),
        reasons=reasons,
        front=pareto_front(main.levels) if main else (),
        unfinished=sum(results.unfinished.values()),
        stand_ins=results.stand_ins,
    )


def factor_figures(results: Results, name: str) -> FactorFigures:
    """The figures of each level of a factor, and their ranks by success."""
    levels = results.column(name)
    tasks, _ = results.tasks(levels)
    each = [
        figures_of(results.where(rows), tasks.where(rows), name=label)
        for label in levels.labels
        if bool((rows := levels.mask(label)).any())
    ]
    each.sort(key=lambda one: (-(one.success.value if one.success.value is not None else -1.0), one.name))
    return FactorFigures(name=name, levels=tuple(each), ranks=tuple(rank_levels(results, name)))


def figures_of(results: Results, tasks: Labels, *, name: str = "") -> Figures:
    """The figures of some items; `tasks` are theirs."""
    success = results.metrics["success"]
    cost, seconds = results.metrics["cost"], results.metrics["time"]
    judged = ~np.isnan(success)
    passed, runs = _by_task(success[judged], tasks.codes[judged])
    ks = range(1, min(MOST_K, int(runs.max()) if len(runs) else 0) + 1)
    counts = np.bincount(results.status[~results.is_evaluation], minlength=len(FINISHED))
    return Figures(
        name=name,
        counts={status: int(counts[at]) for at, status in enumerate(FINISHED)},
        success=rate_of(success, tasks.codes),
        with_errors=rate_of(results.with_errors_failed, tasks.codes),
        pass_at=tuple(PassAtK(k, pass_at(passed, runs, k)) for k in ks if len(ks) > 1),
        pass_hat=tuple(PassAtK(k, pass_hat(passed, runs, k)) for k in ks if len(ks) > 1),
        cost_usd=_estimate(bill, cost, tasks.codes),
        typical_cost_usd=_estimate(typical, cost, tasks.codes),
        seconds=_estimate(bill, seconds, tasks.codes),
        typical_seconds=_estimate(typical, seconds, tasks.codes),
        cost_per_success_usd=_cost_per_success(results, tasks.codes),
        scores={
            metric: _score(metric, values, tasks.codes)
            for metric, values in results.metrics.items()
            if metric.startswith("score:") and not bool(np.isnan(values).all())
        },
    )


def rate_of(success: Floats, tasks: Ints) -> Estimate:
    """A success rate over tasks; with a single task, of that task alone."""
    there = ~np.isnan(success)
    values, codes = success[there], tasks[there]
    scope = "these" if len(np.unique(codes)) == 1 else "like"
    return mean(values, codes.tolist(), lo=0.0, hi=1.0, scope="these" if scope == "these" else "like")


def _estimate(method: object, values: Floats, tasks: Ints) -> Estimate:
    there = ~np.isnan(values)
    assert callable(method)
    estimate = method(values[there], tasks[there].tolist())
    assert isinstance(estimate, Estimate)
    return estimate


def _score(metric: str, values: Floats, tasks: Ints) -> Estimate:
    there = ~np.isnan(values)
    lo, hi = scale_of(metric, values) or (None, None)
    return mean(values[there], tasks[there].tolist(), lo=lo, hi=hi)


def _cost_per_success(results: Results, tasks: Ints) -> Estimate:
    """All money over all successes: failures and errors are paid for."""
    cost = results.metrics["cost"]
    there = ~np.isnan(cost) & ~results.is_evaluation
    succeeded = np.nan_to_num(results.metrics["success"][there])
    return per_success(cost[there], succeeded, tasks[there].tolist())


def _by_task(success: Floats, tasks: Ints) -> tuple[Ints, Ints]:
    """Successes and runs of each task that has any."""
    if not len(tasks):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    runs = np.bincount(tasks)
    passed = np.bincount(tasks, weights=success)
    there = runs > 0
    return np.rint(passed[there]).astype(np.int64), runs[there].astype(np.int64)


def flaky_tasks(results: Results) -> tuple[FlakyTask, ...]:
    """Tasks whose repeats, of the same agent and model, ended differently: the most even first."""
    success = results.metrics["success"]
    judged = ~np.isnan(success)
    codes = results.inputs.coded(*results.inputs.paths)[judged]
    if not len(codes):
        return ()
    runs = np.bincount(codes)
    passed = np.bincount(codes, weights=success[judged])
    mixed = np.flatnonzero((passed > 0) & (passed < runs))
    order = sorted(mixed, key=lambda code: (abs(passed[code] / runs[code] - 0.5), code))[:LISTED_FLAKY]
    rows = np.flatnonzero(judged)
    firsts = {int(code): int(rows[np.argmax(codes == code)]) for code in order}
    return tuple(
        FlakyTask(
            words=results.labels[firsts[int(code)]],
            group=_group(results, firsts[int(code)]),
            successes=round(passed[code]),
            runs=int(runs[code]),
        )
        for code in order
    )


def _group(results: Results, row: int) -> str:
    names = [
        column.labels[column.codes[row]]
        for name in ("agent", "model")
        if (column := results.factors.get(name)) and column.codes[row] >= 0
    ]
    return " with ".join(names)


def rank_levels(
    results: Results, by: str, metric: str = "success", *, reliability: bool = False
) -> list[Rank]:
    """The levels of a factor by a metric over tasks, with rank intervals that all hold together.

    Cost, time and tokens rank the smaller one first, by typical ratios. `reliability` ranks success by
    pass^k, with the largest k that every level has.
    """
    if metric not in results.metrics:
        known = ", ".join(results.metrics)
        raise NotFound(f"nothing here has a value of {metric}\nThere are: {known}.")
    levels = results.column(by)
    tasks, _ = results.tasks(levels)
    values = results.metrics[metric]
    there = ~np.isnan(values) & (levels.codes >= 0)
    table: dict[str, dict[object, list[float]]] = {
        label: _cells(values, tasks.codes, there & (levels.codes == code))
        for code, label in enumerate(levels.labels)
    }
    if reliability:
        k = common_k(table)
        table = {name: _reliabilities(cells, k) for name, cells in table.items()}
    is_skewed = metric in SKEWED
    lo, hi = scale_of(metric, values) or (None, None)
    return ranks(
        {name: dict(cells) for name, cells in table.items()},
        lo=lo,
        hi=hi,
        higher_is_better=not is_skewed,
        log=is_skewed,
    )


def common_k(table: Mapping[str, Mapping[object, Sequence[float]]]) -> int:
    """The largest number of repeats that most tasks of every name have."""
    medians = [int(np.median([len(cell) for cell in cells.values()])) for cells in table.values() if cells]
    return max(1, min(medians, default=1))


def _cells(values: Floats, tasks: Ints, rows: Mask) -> dict[object, list[float]]:
    cells: dict[object, list[float]] = {}
    for task, value in zip(tasks[rows].tolist(), values[rows].tolist(), strict=True):
        cells.setdefault(task, []).append(value)
    return cells


def _reliabilities(cells: Mapping[object, Sequence[float]], k: int) -> dict[object, list[float]]:
    """The chance that k runs of a task all succeed, for each task that has k."""
    found: dict[object, list[float]] = {}
    for task, values in cells.items():
        runs, passed = len(values), round(sum(values))
        if runs >= k:
            share = 1.0
            for already in range(k):
                share *= max(passed - already, 0) / (runs - already)
            found[task] = [share]
    return found


def pareto_front(levels: Sequence[Figures]) -> tuple[str, ...]:
    """The names of those that none beats in success and is at least as good in cost and time."""

    def key(one: Figures) -> tuple[float, float, float]:
        infinite = float("inf")
        return (
            -(one.success.value if one.success.value is not None else -infinite),
            one.cost_usd.value if one.cost_usd.value is not None else infinite,
            one.seconds.value if one.seconds.value is not None else infinite,
        )

    keys = {one.name: key(one) for one in levels}
    return tuple(
        name
        for name, mine in keys.items()
        if not any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other in keys.values()
        )
    )
