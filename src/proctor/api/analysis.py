"""Compare, rank and plan sample sizes: of runs, of `Run` handles, and of files with a table of results.

numpy and scipy are loaded when a function is called.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Required, TypedDict

from proctor.api.handles import Run, Table
from proctor.bootstrap import now
from proctor.errors import NotFound, UsageError

if TYPE_CHECKING:
    from proctor.api import ProctorStore
    from proctor.stats.comparison import Comparison
    from proctor.stats.power import TasksNeeded
    from proctor.stats.ranking import Rank
    from proctor.stats.results import Results

REPEATS = (1, 3, 5, 10)
"""Repeats for which `power` gives the number of tasks."""
Source = str | Path | Run
"""A run by its ID or handle, or the path of a file of results."""


class ComparisonResult:
    """A comparison: one row for each candidate and metric, and the verdict of the gates."""

    def __init__(self, comparison: "Comparison") -> None:
        self.comparison = comparison

    @property
    def verdict(self) -> str | None:
        """`pass`, `fail` or `inconclusive`; None: there are no gates."""
        return self.comparison.verdict if self.comparison.verdicts else None

    def table(self) -> Table:
        """The differences as rows: candidate, metric, means, difference, 95% CI, p value, pairs."""
        return Table(
            {
                "candidate": each.candidate,
                "baseline": self.comparison.groups[0],
                "metric": each.metric,
                "baseline_mean": each.baseline_mean.value,
                "candidate_mean": each.candidate_mean.value,
                "difference": each.difference.value if each.difference else None,
                "ci_low": each.difference.low if each.difference else None,
                "ci_high": each.difference.high if each.difference else None,
                "is_ratio": bool(each.difference and each.difference.is_ratio),
                "p": each.p_corrected,
                "pairs": each.pairs,
                "significant": each.is_significant,
            }
            for each in self.comparison.contrasts
        )

    def __str__(self) -> str:
        return str(self.table())


def compare(
    *runs: Source,
    by: str = "",
    metrics: Sequence[str] = (),
    gates: Sequence[str] = (),
    pair: str = "",
    against: str = "",
    columns: Mapping[str, str] | None = None,
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
) -> ComparisonResult:
    """Compare runs with the first of them, or with `by` the levels of a factor of one run.

    A run may also be the path of a file of results (CSV, JSON lines, JSON, Parquet); `columns` maps `task`,
    `model`, `success`, … to its columns. With `by`, `against` is the baseline level. Cost, time and tokens
    are compared as typical ratios.
    """
    if by and len(runs) != 1:
        raise UsageError("`by` compares parts of one run\nGive one run, or leave `by` out.")
    if not by and len(runs) < 2:
        raise UsageError("there is nothing to compare with\nGive two runs, or one and by=FACTOR.")
    # The package imports this module.
    from proctor.api import opened_store
    from proctor.stats.comparison import compare_groups, gate_of, groups_by, groups_of, with_stop_rule

    conditions = [gate_of(each) for each in gates]
    opened = opened_store(store, home)
    results = _results(runs, columns, opened, home)
    if by:
        groups = groups_by(results, by, pair=pair, against=against)
        name = runs[0].id if isinstance(runs[0], Run) else str(runs[0])
        groups = with_stop_rule(groups, opened.context.store.read, name, by)
    else:
        groups = groups_of(results, pair=pair)
    return ComparisonResult(compare_groups(groups, metrics=metrics, gates=conditions))


def rank(
    *runs: Source,
    by: str = "model",
    metric: str = "success",
    reliability: bool = False,
    columns: Mapping[str, str] | None = None,
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
) -> "list[Rank]":
    """Rank the levels of a factor over all runs, best first, with rank intervals that hold together at 95%.

    `metric` is `success`, `cost`, `time`, `tokens`, `score:EVALUATOR` or `metric:NAME`. `reliability` ranks
    by pass^k, with the repeats there are. Runs and `columns` as in `compare`.
    """
    if not runs:
        raise UsageError("there is nothing to rank\nGive a run, or a file of results.")
    from proctor.stats.figures import rank_levels, reliability_ranks

    results = _results(runs, columns, store, home)
    return reliability_ranks(results, by)[0] if reliability else rank_levels(results, by, metric)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAnalysis:
    """How many tasks a comparison needs, and what the data at hand could have shown."""

    detect: float
    power: float
    tasks: int
    """Tasks in the data."""
    detectable: float | None
    """The smallest difference that a comparison of this size detects. None: `note` says why."""
    designs: "tuple[TasksNeeded, ...]"
    """Tasks needed, by repeats; only for one repeat where nothing was repeated."""
    note: str = ""


def power(
    baseline: Source,
    candidate: Source | None = None,
    *,
    detect: float,
    metric: str = "success",
    power: float = 0.8,
    columns: Mapping[str, str] | None = None,
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
) -> PowerAnalysis:
    """How many tasks and repeats a comparison paired by task needs to detect a difference.

    The variance within and between tasks is that of the differences of `candidate` and `baseline`; without
    `candidate`, that of the first two models of the baseline, or of the baseline alone.
    """
    sources = [baseline] if candidate is None else [baseline, candidate]
    results = _results(sources, columns, store, home)
    return power_of(results, metric=metric, detect=detect, power=power)


def power_of(results: "Results", *, metric: str, detect: float, power: float) -> PowerAnalysis:
    """The power analysis of results that are loaded."""
    if not 0 < abs(detect) < float("inf"):
        raise UsageError("the difference to detect must be other than 0\nExample: --detect 0.05.")
    if not 0 < power < 1:
        raise UsageError("the power must lie between 0 and 1\nExample: --power 0.8, power=0.8.")
    from proctor.stats.power import detectable, tasks_needed

    pilot = _pilot(results, metric)
    first = tasks_needed(**pilot, detect=detect, power=power, repeats=REPEATS[0])
    designs = [first]
    if first.variation is not None and first.variation.between is not None:
        designs += [
            tasks_needed(**pilot, detect=detect, power=power, repeats=repeats) for repeats in REPEATS[1:]
        ]
    smallest = detectable(**pilot, power=power)
    return PowerAnalysis(
        detect=detect,
        power=power,
        tasks=len(results.tasks(pair=results.pairing())[0].labels),
        detectable=smallest.value,
        designs=tuple(designs),
        note=smallest.note,
    )


class _Pilot(TypedDict, total=False):
    """Arguments of `tasks_needed` and `detectable`: values of one side or of two, with their tasks."""

    a: Required[list[float]]
    b: list[float]
    task: list[int]
    task_a: list[int]
    task_b: list[int]
    lo: float | None
    hi: float | None


def _pilot(results: "Results", metric: str) -> _Pilot:
    """Two runs, or the first two models of one run, as two sides; else one."""
    import numpy as np

    from proctor.stats.comparison import SKEWED, scale_of
    from proctor.stats.figures import shared_tasks

    if metric not in results.metrics:
        raise NotFound(f"nothing here has a value of {metric}\nThere are: {', '.join(results.metrics)}.")
    if metric in SKEWED:
        raise UsageError(f"power is computed for success and scores, not for {metric}\nUse another metric.")
    values = results.metrics[metric]
    models = results.factors.get("model")
    groups = results.runs if len(results.runs.labels) > 1 else models
    tasks = shared_tasks(results, groups) if groups else results.tasks(pair=results.pairing())[0].codes
    lo, hi = scale_of(results, metric) or (None, None)
    present = ~np.isnan(values)
    if groups is None or len(groups.labels) < 2:
        return _Pilot(a=values[present].tolist(), task=tasks[present].tolist(), lo=lo, hi=hi)
    first, second = (present & (groups.codes == code) for code in (0, 1))
    return _Pilot(
        a=values[first].tolist(),
        b=values[second].tolist(),
        task_a=tasks[first].tolist(),
        task_b=tasks[second].tolist(),
        lo=lo,
        hi=hi,
    )


def _results(
    sources: Sequence[Source],
    columns: Mapping[str, str] | None,
    store: "str | ProctorStore | None",
    home: str | Path | None,
) -> "Results":
    # The package imports this module.
    from proctor.api import opened_store
    from proctor.jobs.imported.table import load_sources

    names = [each.id if isinstance(each, Run) else str(each) for each in sources]
    return load_sources(opened_store(store, home).context.store, names, now(), columns=columns)
