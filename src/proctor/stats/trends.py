"""Runs of one plan over time: a rate or mean with its interval each, and whether it changed from run to run.

Each run is compared with the one before it on the tasks that both have. All comparisons of a trend are one
family, so that a change is marked by chance in at most one trend in twenty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from proctor.item import SUCCESS
from proctor.stats.comparison import (
    SKEWED,
    Contrast,
    corrected_contrasts,
    first_contrast,
    groups_of,
    scale_of,
)
from proctor.stats.figures import rate_of
from proctor.stats.intervals import Estimate, mean, typical
from proctor.stats.results import MEASURE, Labels, Results


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
    shown = [name for name in present if name != SUCCESS and not name.startswith(MEASURE)]
    is_judged = SUCCESS in present and not bool(results.is_evaluation.all())
    return [*([SUCCESS] if is_judged else []), *sorted(shown, key=lambda name: (name in SKEWED, name))]


def trend_of(results: Results, metric: str) -> list[TrendPoint]:
    """The runs in their order, with the changes between neighbors corrected together."""
    names = [name for name in results.runs.labels if bool(results.runs.mask(name).any())]
    parts = [_pair_of(results, pair) for pair in pairwise(names)]
    contrasts = corrected_contrasts([first_contrast(groups_of(part), metric) for part in parts])
    changes = {each.candidate: each for each in contrasts}
    return [
        TrendPoint(run_id=name, estimate=_estimate(results, name, metric), change=changes.get(name))
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


def _estimate(results: Results, run: str, metric: str) -> Estimate:
    part = results.where(results.runs.mask(run))
    tasks, _ = part.tasks(pair=part.pairing())
    values = part.metrics[metric]
    if metric == SUCCESS:
        return rate_of(values, tasks.codes)
    there = ~np.isnan(values)
    if metric in SKEWED:
        return typical(values[there], tasks.codes[there])
    lo, hi = scale_of(results, metric) or (None, None)
    return mean(values[there], tasks.codes[there], lo=lo, hi=hi)
