"""Compare, rank and plan sample sizes: of runs, of `Run` handles, and of files with a table of results.

numpy and scipy are loaded when a function is called.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.api.handles import Run, Table
from proctor.errors import UsageError

if TYPE_CHECKING:
    from proctor.api.library import ProctorStore
    from proctor.context import RunContext
    from proctor.stats.comparison import Comparison
    from proctor.stats.power import TasksNeeded
    from proctor.stats.ranking import Rank

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
                "candidate": contrast.candidate,
                "baseline": self.comparison.groups[0],
                "metric": contrast.metric,
                "baseline_mean": contrast.baseline_mean.value,
                "candidate_mean": contrast.candidate_mean.value,
                "difference": contrast.difference.value if contrast.difference else None,
                "ci_low": contrast.difference.low if contrast.difference else None,
                "ci_high": contrast.difference.high if contrast.difference else None,
                "is_ratio": bool(contrast.difference and contrast.difference.is_ratio),
                "p": contrast.p_corrected,
                "pairs": contrast.pairs,
                "significant": contrast.is_significant,
            }
            for contrast in self.comparison.contrasts
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
    mixed: bool = False,
    columns: Mapping[str, str] | None = None,
    store: "str | ProctorStore | None" = None,
    home: str | Path | None = None,
) -> ComparisonResult:
    """Compare runs with the first of them, or with `by` the levels of a factor of one run.

    A run may also be the path of a file of results (CSV, JSON lines, JSON, Parquet); `columns` maps `task`,
    `model`, `success`, … to its columns. With `by`, `against` is the baseline level. `mixed` also compares
    scores of different versions of an evaluator. Cost, time and tokens are compared as typical ratios.
    """
    # Loads numpy.
    from proctor.api.comparing import CompareQuery, compare_runs, gate_of

    conditions = [gate_of(each) for each in gates]
    query = CompareQuery(_names(runs), by=by, pair=pair, against=against)
    ctx = _context(store, home)
    return ComparisonResult(
        compare_runs(ctx, query, metrics=metrics, gates=conditions, mixed=mixed, columns=columns)
    )


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
    from proctor.api.comparing import rank_runs

    # pass^k is of success, whatever else is asked for; without repeats it is the success rate.
    metric = "success" if reliability else metric
    ranking = rank_runs(_context(store, home), _names(runs), by=by, metric=metric, columns=columns)
    return list(ranking.by_reliability or ranking.ranks) if reliability else list(ranking.ranks)


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
    unit: str = "task"
    """What `tasks` and the designs count: tasks; of an experiment, pairs of runs with equal seed and equal
    other factors (`pair of runs`), or its runs where nothing was varied (`run`)."""


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
    from proctor.api.comparing import power_of_runs

    sources = _names([baseline] if candidate is None else [baseline, candidate])
    ctx = _context(store, home)
    return power_of_runs(ctx, sources, detect=detect, metric=metric, power=power, columns=columns)


def _names(sources: Sequence[Source]) -> tuple[str, ...]:
    return tuple(each.id if isinstance(each, Run) else str(each) for each in sources)


def _context(store: "str | ProctorStore | None", home: str | Path | None) -> "RunContext":
    # `library` imports this module.
    from proctor.api.library import opened_store

    return opened_store(store, home).context
