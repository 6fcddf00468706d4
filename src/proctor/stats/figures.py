"""Figures of a group of finished items: success, pass@k and pass^k, cost, time, ranks, flaky tasks.

Every rate, mean and ratio is over tasks, with repeats averaged first, so that reports, ranks, benchmarks and
comparisons of the same items agree. With a single task nothing can be said of others: the interval is then
about this task alone, and says so.

A trend is the same of the runs of a plan over time. Each run is compared with the one before it on the tasks
that both have. All comparisons of a trend are one family, so that a change is marked by chance in at most one
trend in twenty.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from proctor.errors import NotFound
from proctor.item import FINISHED, SUCCESS
from proctor.metric import MEASURE, SCORE, find_metric
from proctor.stats.comparison import Contrast, corrected_contrasts, first_contrast, groups_of, scale_of
from proctor.stats.intervals import (
    NO_UPPER_LIMIT,
    Estimate,
    geometric_mean,
    mean,
    mean_cost,
    of_tasks,
    per_success,
    shares_of_k,
)
from proctor.stats.outcomes import LevelCell, MatrixRow
from proctor.stats.ranking import Rank, ranks_of_columns, undominated
from proctor.stats.results import BY_ITEM, Floats, Ints, Labels, OtherModel, Results, ServedModel

Scale = tuple[float, float]

MOST_LEVELS = 50
"""A factor with more levels than this is a list of tasks, not a comparison."""
TASK_FACTORS = ("task", "scenario", "variation")
NOT_RANKED = (*TASK_FACTORS, "repository")
"""Factors that name what was to be done, not who did it: their levels are not ranked."""
MOST_K = 10
"""pass@k and pass^k are listed for every k up to this one, and for the largest number of repeats."""
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
    unchecked: int
    """Successes that nothing checked."""
    success: Estimate
    """Infrastructure errors and unchecked items excluded."""
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
    metrics: Mapping[str, Estimate]
    """Means of the numbers measured in sessions, by metric."""

    @property
    def passed(self) -> int:
        """Successes that something checked."""
        return self.counts[SUCCESS] - self.unchecked

    @property
    def means(self) -> dict[str, Estimate]:
        """The means of scores and metrics."""
        return {**self.scores, **self.metrics}


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorFigures:
    """The levels of one factor, the best success rate first."""

    name: str
    levels: tuple[Figures, ...]
    """One without a name: the items that do not have the factor. Empty when there are too many to compare."""
    ranks: tuple[Rank, ...] = ()
    """By success, with simultaneous rank intervals."""
    reliability: tuple[Rank, ...] = ()
    """By pass^k, with the largest k that every level has; empty without repeats."""
    k: int = 1
    """The k of `reliability`."""
    front: tuple[str, ...] = ()
    """Levels that none beats in success, cost and time together."""
    errors_decide: bool = False
    """Whether the order by success is another one with errors counted as failures."""
    is_too_many: bool = False

    def rank_of(self, level: str) -> Rank | None:
        return next((each for each in self.ranks if each.name == level), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Everything about the finished items of runs."""

    overall: Figures
    factors: tuple[FactorFigures, ...]
    """Those that vary."""
    flaky: tuple[FlakyTask, ...]
    """The most even ones, at most fifty."""
    flaky_count: int
    reasons: Mapping[str, int]
    """Items that did not succeed, by reason."""
    unfinished: int
    evaluations: int = 0
    """Items that evaluate sessions: they have no success of their own."""
    stand_ins: tuple[str, ...] = ()
    answered: tuple[OtherModel, ...] = ()
    """Where another model answered than the requested one."""
    served: tuple[ServedModel, ...] = ()
    """Who answered the calls to each model, as the providers say."""
    agent_versions: tuple[str, ...] = ()

    @property
    def main(self) -> FactorFigures | None:
        """The factor that says who worked: models, else agents; None: only one of them did."""
        by_name = {each.name: each for each in self.factors if each.levels}
        return by_name.get("model") or by_name.get("agent")

    @property
    def front(self) -> tuple[str, ...]:
        """The Pareto front of the models, or of the agents."""
        return self.main.front if self.main else ()


def run_figures(results: Results) -> RunFigures:
    """The figures of all items, and of each level of each factor."""
    tasks, _ = results.tasks(pair=results.pairing())
    factors = (factor_figures(results, name) for name in sorted(results.factors))
    is_failed = ~results.is_evaluation & (results.status != FINISHED.index(SUCCESS))
    codes, counts = np.unique(results.reasons.codes[is_failed], return_counts=True)
    reasons = {
        results.reasons.labels[code]: int(count)
        for code, count in sorted(zip(codes, counts, strict=True), key=lambda each: -each[1])
        if code >= 0
    }
    flaky, flaky_count = flaky_tasks(results)
    return RunFigures(
        overall=figures_of(results, tasks),
        factors=tuple(each for each in factors if each.is_too_many or len(each.levels) > 1),
        flaky=flaky,
        flaky_count=flaky_count,
        reasons=reasons,
        unfinished=sum(results.unfinished.values()),
        evaluations=int(results.is_evaluation.sum()),
        stand_ins=results.stand_ins,
        answered=results.answered,
        served=results.served,
        agent_versions=results.agent_versions,
    )


def factor_figures(results: Results, name: str) -> FactorFigures:
    """The figures of each level of a factor, and their ranks by success.

    Levels that are tasks themselves, or where tasks come from, have figures, and no ranks: each says how
    often its tasks succeed.
    """
    column = results.factors.get(name)
    levels = column or Labels(np.full(len(results), -1, dtype=np.int64), ())
    if len(levels.labels) > MOST_LEVELS:
        return FactorFigures(name=name, levels=(), is_too_many=True)
    tasks = levels if name in TASK_FACTORS else results.tasks(pair=results.pairing())[0]
    scales = _scales_of(results)
    level_figures = [
        figures_of(results.where(rows), tasks.where(rows), name=label, scales=scales)
        for label in (*levels.labels, "")
        if bool((rows := levels.mask(label)).any())
    ]
    level_figures.sort(key=_best_first)
    figures = FactorFigures(name=name, levels=tuple(level_figures), front=pareto_front(level_figures))
    if name in NOT_RANKED or len(levels.labels) < 2:
        return figures
    shared = shared_tasks(results, levels)
    ranked = rank_levels(results, name, tasks=shared)
    has_repeats = any(one.runs > one.tasks for one in ranked)
    reliable, k = reliability_ranks(results, name, shared) if has_repeats else ([], 1)
    with_errors = ranked
    if bool(results.is_error.any()):
        with_errors = rank_levels(results.with_failed_errors(), name, tasks=shared)
    return replace(
        figures,
        ranks=tuple(ranked),
        reliability=tuple(reliable),
        k=k,
        errors_decide=[one.name for one in with_errors] != [one.name for one in ranked],
    )


def _best_first(figures: Figures) -> tuple[float, int, str]:
    """The best success rate first; those without any last."""
    value = figures.success.value
    return (1.0 if value is None else -value), -sum(figures.counts.values()), figures.name


def figures_of(
    results: Results, tasks: Labels, *, name: str = "", scales: Mapping[str, Scale] | None = None
) -> Figures:
    """The figures of some items; `tasks` are theirs.

    `scales` are those of all items that they are compared with, so that all have one method. None: their own.
    """
    scales = _scales_of(results) if scales is None else scales
    success = results.metrics["success"]
    cost, seconds = results.metrics["cost"], results.metrics["time"]
    repeats = Repeats.of(results, tasks.codes)
    most = repeats.most
    ks = sorted({*range(1, min(MOST_K, most) + 1), most}) if most > 1 else []
    counts = np.bincount(results.status[~results.is_evaluation], minlength=len(FINISHED))
    return Figures(
        name=name,
        counts={status: int(counts[at]) for at, status in enumerate(FINISHED)},
        unchecked=int(results.is_unchecked.sum()),
        success=rate_of(success, tasks.codes),
        with_errors=rate_of(results.with_errors_failed, tasks.codes),
        pass_at=tuple(PassAtK(k, repeats.estimate(k, every=False)) for k in ks),
        pass_hat=tuple(PassAtK(k, repeats.estimate(k, every=True)) for k in ks),
        cost_usd=estimate_of(mean_cost, cost, tasks.codes),
        typical_cost_usd=estimate_of(geometric_mean, cost, tasks.codes),
        seconds=_bounded(estimate_of(mean_cost, seconds, tasks.codes), seconds, results.time_limit),
        typical_seconds=estimate_of(geometric_mean, seconds, tasks.codes),
        cost_per_success_usd=cost_per_success(results, tasks.codes),
        scores=_means(results, SCORE, tasks.codes, scales),
        metrics=_means(results, MEASURE, tasks.codes, scales),
    )


def rate_of(success: Floats, tasks: Ints, scope: Literal["like", "these"] | None = None) -> Estimate:
    """A success rate over tasks; without a scope, with a single task, of that task alone."""
    present = ~np.isnan(success)
    values, codes = success[present], tasks[present]
    scope = scope or ("these" if len(np.unique(codes)) == 1 else "like")
    return mean(values, codes, lo=0.0, hi=1.0, scope=scope)


def estimate_of(method: Callable[[Floats, Ints], Estimate], values: Floats, tasks: Ints) -> Estimate:
    """An estimate from the values that are known, and their tasks."""
    present = ~np.isnan(values)
    return method(values[present], tasks[present])


def _scales_of(results: Results) -> dict[str, Scale]:
    """The scales of the scores and metrics that have one."""
    scales = {metric: scale_of(results, metric) for metric in results.metrics}
    return {metric: scale for metric, scale in scales.items() if scale is not None}


def _means(results: Results, prefix: str, tasks: Ints, scales: Mapping[str, Scale]) -> dict[str, Estimate]:
    """The means of all scores, or of all metrics; with a single task, of that task alone."""
    means = {}
    for metric, values in results.metrics.items():
        present = ~np.isnan(values)
        if not metric.startswith(prefix) or not present.any():
            continue
        lo, hi = scales.get(metric, (None, None))
        scope: Literal["like", "these"] = "these" if len(np.unique(tasks[present])) == 1 else "like"
        estimate = mean(values[present], tasks[present], lo=lo, hi=hi, scope=scope)
        missing = ~present & ~results.is_error & ~results.is_evaluation
        means[metric] = replace(estimate, left_out=int(missing.sum()))
    return means


def _bounded(estimate: Estimate, values: Floats, limit: float | None) -> Estimate:
    """The mean of values that a limit bounds: its interval does not end beyond. Values may, slightly."""
    if limit is None or estimate.low is None:
        return estimate
    most = max(limit, float(np.nanmax(values)))
    note = estimate.note.replace(NO_UPPER_LIMIT, "").strip()
    return replace(estimate, high=most if estimate.high is None else min(estimate.high, most), note=note)


def cost_per_success(results: Results, tasks: Ints) -> Estimate:
    """All money over all successes: failures and errors are paid for."""
    cost = results.metrics["cost"]
    present = ~np.isnan(cost) & ~results.is_evaluation
    succeeded = np.nan_to_num(results.metrics["success"][present])
    return per_success(cost[present], succeeded, tasks[present])


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """Successes and runs of each group of repeats: runs with the same inputs, agent and model."""

    passed: Floats
    runs: Floats
    tasks: Ints
    """The task of each group."""

    @classmethod
    def of(cls, results: Results, tasks: Ints) -> "Repeats":
        """The repeats of some items, errors excluded; `tasks` are theirs."""
        success = results.metrics["success"]
        judged = ~np.isnan(success)
        groups, first, inverse = np.unique(
            results.inputs.coded(*results.inputs.paths)[judged], return_index=True, return_inverse=True
        )
        return cls(
            np.rint(np.bincount(inverse, weights=success[judged], minlength=len(groups))),
            np.bincount(inverse, minlength=len(groups)).astype(np.float64),
            tasks[judged][first],
        )

    @property
    def most(self) -> int:
        """The largest number of repeats."""
        return int(self.runs.max()) if len(self.runs) else 0

    @property
    def usual(self) -> int:
        """The number of repeats that most groups have at least."""
        return int(np.median(self.runs)) if len(self.runs) else 0

    def by_task(self, k: int, *, every: bool) -> tuple[Ints, Floats]:
        """The tasks that have `k` repeats, and pass@k of each, or with `every` pass^k: the mean over its
        groups."""
        enough = self.runs >= k
        codes, inverse = np.unique(self.tasks[enough], return_inverse=True)
        shares = shares_of_k(self.passed[enough], self.runs[enough], k, every=every)
        means = np.bincount(inverse, weights=shares, minlength=len(codes)) / np.bincount(
            inverse, minlength=len(codes)
        )
        return codes, means

    def estimate(self, k: int, *, every: bool) -> Estimate:
        """pass@k or pass^k over tasks. Tasks without `k` repeats are left out and counted."""
        _, values = self.by_task(k, every=every)
        return of_tasks(
            values,
            0.0,
            1.0,
            runs=int(self.runs[self.runs >= k].sum()),
            left_out=len(np.unique(self.tasks)) - len(values),
        )


def flaky_tasks(results: Results) -> tuple[tuple[FlakyTask, ...], int]:
    """Tasks whose repeats, of the same agent and model, ended differently, the most even first; and how many
    there are: of more than fifty, the first are listed."""
    success = results.metrics["success"]
    judged = ~np.isnan(success)
    codes = results.inputs.coded(*results.inputs.paths)[judged]
    if not len(codes):
        return (), 0
    runs = np.bincount(codes)
    passed = np.bincount(codes, weights=success[judged])
    mixed = np.flatnonzero((passed > 0) & (passed < runs))
    order = sorted(mixed.tolist(), key=lambda code: (abs(passed[code] / runs[code] - 0.5), code))
    rows = np.flatnonzero(judged)
    tasks, listed = results.tasks(pair=results.pairing())[0], []
    for code in order[:LISTED_FLAKY]:
        first = int(rows[np.argmax(codes == code)])
        listed.append(
            FlakyTask(
                words=tasks.labels[tasks.codes[first]],
                group=_group(results, first),
                successes=round(passed[code]),
                runs=int(runs[code]),
            )
        )
    return tuple(listed), len(order)


def _group(results: Results, row: int) -> str:
    names = [
        column.labels[column.codes[row]]
        for name in ("agent", "model")
        if (column := results.factors.get(name)) and column.codes[row] >= 0
    ]
    return " with ".join(names)


def rank_levels(
    results: Results,
    by: str,
    metric: str = "success",
    tasks: Ints | None = None,
    *,
    higher_is_better: bool | None = None,
) -> list[Rank]:
    """The levels of a factor by a metric over tasks, with rank intervals that all hold together.

    Cost, time and tokens rank the smaller one first, by typical ratios; other metrics the higher one, unless
    `higher_is_better` says otherwise. `tasks` are those of `shared_tasks`, where they are known already.
    """
    if metric not in results.metrics:
        known = ", ".join(results.metrics)
        raise NotFound(f"nothing here has a value of {metric}\nThere are: {known}.")
    levels = results.column(by)
    tasks = shared_tasks(results, levels) if tasks is None else tasks
    values = results.metrics[metric]
    present = ~np.isnan(values)
    rows = [present & (levels.codes == code) for code in range(len(levels.labels))]
    columns = {label: (tasks[each], values[each]) for label, each in zip(levels.labels, rows, strict=True)}
    is_skewed = find_metric(metric).is_skewed
    lo, hi = scale_of(results, metric) or (None, None)
    if higher_is_better is None:
        higher_is_better = not is_skewed
    return ranks_of_columns(columns, lo=lo, hi=hi, higher_is_better=higher_is_better, log=is_skewed)


def unranked_items(results: Results, by: str) -> dict[str, int]:
    """The items of each run that have no level of a factor, and so no rank; runs without such items are not
    listed."""
    codes, without = results.runs.codes, results.column(by).codes < 0
    counts = np.bincount(codes[without], minlength=len(results.runs.labels))
    return {run: int(count) for run, count in zip(results.runs.labels, counts, strict=True) if count}


def reliability_ranks(results: Results, by: str, tasks: Ints | None = None) -> tuple[list[Rank], int]:
    """The levels of a factor by pass^k, and that k: the largest that most tasks of every level have."""
    levels = results.column(by)
    tasks = shared_tasks(results, levels) if tasks is None else tasks
    repeats = {
        label: Repeats.of(results.where(rows), tasks[rows])
        for label in levels.labels
        if bool((rows := levels.mask(label)).any())
    }
    k = max(1, min((each.usual for each in repeats.values() if each.most), default=1))
    columns = {name: each.by_task(k, every=True) for name, each in repeats.items()}
    return ranks_of_columns(columns, lo=0.0, hi=1.0), k


def shared_tasks(results: Results, levels: Labels) -> Ints:
    """The task of each row, the same at all levels."""
    pair = results.pairing()
    if pair != BY_ITEM:
        return results.tasks(levels, pair)[0].codes
    # Agent and model are not part of the task, also where another factor is ranked: a second agent is not a
    # second task.
    treatment = results.inputs.treatment(levels.codes)
    return results.inputs.coded(*(path for path in results.inputs.paths if path not in treatment))


def pareto_front(levels: Sequence[Figures]) -> tuple[str, ...]:
    """The names of those that no other one equals or beats in success, cost and time, and beats in one.

    Levels without a success rate are on no front; a cost or a time that is not known counts as the worst.
    """
    worst = float("inf")
    return undominated(
        {
            level.name: (
                -level.success.value,
                worst if level.cost_usd.value is None else level.cost_usd.value,
                worst if level.seconds.value is None else level.seconds.value,
            )
            for level in levels
            if level.success.value is not None
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendPoint:
    """One run of a trend."""

    run_id: str
    estimate: Estimate
    change: Contrast | None = None
    """Against the run before it; None: the first, or there is nothing to compare."""


def trend_metrics(results: Results) -> list[str]:
    """The metrics that a trend can show: success first, unless all items evaluate sessions."""
    present = [name for name, values in results.metrics.items() if not bool(np.isnan(values).all())]
    others = [name for name in present if name != SUCCESS and not name.startswith(MEASURE)]
    is_judged = SUCCESS in present and not bool(results.is_evaluation.all())
    others.sort(key=lambda name: (find_metric(name).is_skewed, name))
    return [*([SUCCESS] if is_judged else []), *others]


def trend_of(results: Results, metric: str) -> list[TrendPoint]:
    """The runs in their order, with the changes between neighbors corrected together."""
    names = [name for name in results.runs.labels if bool(results.runs.mask(name).any())]
    parts = [_pair_of(results, pair) for pair in pairwise(names)]
    contrasts = corrected_contrasts([first_contrast(groups_of(part), metric) for part in parts])
    changes = {each.candidate: each for each in contrasts}
    return [
        TrendPoint(run_id=name, estimate=_runestimate_of(results, name, metric), change=changes.get(name))
        for name in names
    ]


def _pair_of(results: Results, runs: Sequence[str]) -> Results:
    """The items of two runs alone."""
    rows = np.isin(results.runs.codes, [results.runs.labels.index(run) for run in runs])
    part = results.where(rows)
    named = Labels.of(results.runs.labels[code] for code in part.runs.codes.tolist())
    if named.labels != tuple(runs):
        # In the order of time, whichever has the first row.
        places = np.asarray([list(runs).index(label) for label in named.labels], dtype=np.int64)
        named = Labels(places[named.codes], tuple(runs))
    return replace(part, runs=named)


def _runestimate_of(results: Results, run: str, metric: str) -> Estimate:
    part = results.where(results.runs.mask(run))
    tasks, _ = part.tasks(pair=part.pairing())
    values = part.metrics[metric]
    if metric == SUCCESS:
        return rate_of(values, tasks.codes)
    present = ~np.isnan(values)
    if find_metric(metric).is_skewed:
        return geometric_mean(values[present], tasks.codes[present])
    lo, hi = scale_of(results, metric) or (None, None)
    return mean(values[present], tasks.codes[present], lo=lo, hi=hi)


# Tasks × levels of a factor: how each level did on each task, and where levels disagree.


MOST_COLUMNS = 24
"""Columns; a factor with more is compared by a filter."""
MOST_CELL_ITEMS = 50
PREFERRED = ("model", "agent", "variation", "therapist", "client")
"""Factors that are columns by default."""


def factor_of_columns(results: Results, by: str) -> str:
    """The factor whose levels are the columns: the one that is named, or one with several levels."""
    if by:
        results.column(by)
        return by
    several = {name: len(column.labels) for name, column in results.factors.items() if len(column.labels) > 1}
    known = [name for name in PREFERRED if name in several] or sorted(several, key=lambda name: several[name])
    return known[0] if known else next(iter(results.factors), "")


class Matrix:
    """The finished items of a run by task and level. Pages of it are made on demand."""

    def __init__(self, results: Results, by: str) -> None:
        self._results = results
        self.by = factor_of_columns(results, by)
        column = results.column(self.by) if self.by else None
        self.levels: tuple[str, ...] = column.labels[:MOST_COLUMNS] if column else ()
        self.has_more_levels = column is not None and len(column.labels) > MOST_COLUMNS
        self.scores = tuple(
            sorted(name.removeprefix(SCORE) for name in results.metrics if name.startswith(SCORE))
        )
        codes = column.codes if column else np.zeros(len(results), dtype=np.int64)
        rows = np.flatnonzero((codes >= 0) & (codes < MOST_COLUMNS))
        tasks, _ = results.tasks(column) if column else results.tasks()
        self._labels = tasks.labels
        # Sorted by task and level; within a cell in plan order.
        order = np.lexsort((codes[rows], tasks.codes[rows]))
        self._rows, self._codes = rows[order], codes[rows][order]
        self._tasks, self._first = np.unique(tasks.codes[self._rows], return_index=True)
        self._end = np.append(self._first[1:], len(self._rows))

    def __len__(self) -> int:
        return len(self._tasks)

    def tasks(self, *, search: str = "", metric: str = "success", disagree: bool = False) -> Ints:
        """Indexes of the tasks whose names contain a text and, with `disagree`, whose levels differ."""
        chosen = np.arange(len(self), dtype=np.int64)
        if search:
            text = search.lower()
            matches = [text in self._labels[code].lower() for code in self._tasks]
            chosen = chosen[np.asarray(matches, dtype=bool)]
        if disagree:
            spread = self._spread(self._values(metric))
            chosen = chosen[spread[chosen] > 0]
            # The largest differences first; among equal ones in plan order.
            chosen = chosen[np.argsort(-spread[chosen], kind="stable")]
        return chosen

    def rows(self, tasks: Sequence[int] | Ints, score: str = "") -> list[MatrixRow]:
        """The rows of tasks, by their indexes."""
        values = self._values(SCORE + score) if score else np.full(len(self._results), math.nan)
        return [self._row(int(task), values) for task in tasks]

    def _values(self, metric: str) -> Floats:
        values = self._results.metrics.get(metric)
        if values is None:
            raise NotFound(
                f"the items have no {metric}\nThere are: {', '.join(self._results.metrics) or 'none'}."
            )
        return values

    def _spread(self, values: Floats) -> Floats:
        """Of each task, the difference between the highest and the lowest mean of a level; NaN counts not."""
        known = values[self._rows]
        present = ~np.isnan(known)
        task_of = np.repeat(np.arange(len(self)), self._end - self._first)
        cell = task_of * MOST_COLUMNS + self._codes
        size = len(self) * MOST_COLUMNS
        sums = np.bincount(cell[present], weights=known[present], minlength=size)
        counts = np.bincount(cell[present], minlength=size)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = (sums / counts).reshape(len(self), MOST_COLUMNS)
        highest = np.where(np.isnan(means), -np.inf, means).max(axis=1)
        lowest = np.where(np.isnan(means), np.inf, means).min(axis=1)
        return np.asarray(np.where(highest >= lowest, highest - lowest, 0.0), dtype=np.float64)

    def _row(self, task: int, score: Floats) -> MatrixRow:
        span = slice(self._first[task], self._end[task])
        rows, codes = self._rows[span], self._codes[span]
        cells = [self._cell(rows[codes == level], score) for level in range(len(self.levels))]
        return MatrixRow(task=self._labels[self._tasks[task]], cells=tuple(cells))

    def _cell(self, rows: Ints, score: Floats) -> LevelCell | None:
        if not len(rows):
            return None
        verdicts = self._results.metrics[SUCCESS][rows]
        decided = verdicts[~np.isnan(verdicts)]
        return LevelCell(
            item_id=self._results.item_ids[rows[0]],
            item_ids=tuple(self._results.item_ids[row] for row in rows[:MOST_CELL_ITEMS]),
            items=len(rows),
            decided=len(decided),
            passed=int(decided.sum()),
            score=_mean(score[rows]),
            cost_usd=_mean(self._results.metrics["cost"][rows]),
        )


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
