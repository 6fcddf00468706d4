"""Compare, rank and plan sample sizes: the verbs that commands, pages and `api.analysis` share.

Loads numpy: `api.analysis`, which `import proctor` loads, imports this module when a function is called.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Required, TypedDict

import numpy as np

from proctor.api.analysis import PowerAnalysis
from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.item import SCENARIO
from proctor.jobs.evaluation.evaluator_results import high_is_bad
from proctor.jobs.evaluation.state import evaluation_of
from proctor.jobs.imported.table import columns_of, load_sources
from proctor.metric import find_metric
from proctor.results.stopping import stop_document, with_stop_rule
from proctor.stats.comparison import (
    Comparison,
    Contrast,
    Gate,
    GateResult,
    Groups,
    compare_groups,
    disagreements,
    gate_of,
    groups_by,
    groups_of,
    scale_of,
)
from proctor.stats.differences import FAIL, INCONCLUSIVE
from proctor.stats.figures import rank_levels, reliability_ranks, shared_tasks, unranked_items
from proctor.stats.power import TasksNeeded, detectable, tasks_needed
from proctor.stats.ranking import Rank
from proctor.stats.results import Results
from proctor.stop_rule import StopState, stop_lines
from proctor.store import StoreReader
from proctor.store.items import item_results, status_counts_by
from proctor.store.tables import BatchRow

__all__ = [
    "FAIL",
    "INCONCLUSIVE",
    "CompareQuery",
    "Comparison",
    "Contrast",
    "Gate",
    "GateResult",
    "Groups",
    "Rank",
    "Ranking",
    "Results",
    "batches_of",
    "columns_of",
    "compare_groups",
    "compare_runs",
    "counts_by_level",
    "disagreements",
    "evaluators_with_bad_highs",
    "gate_of",
    "last_sessions",
    "power_of_runs",
    "rank_runs",
    "stop_lines",
]
REPEATS = (1, 3, 5, 10)
"""Repeats for which a power analysis gives the number of tasks."""


def results_of(ctx: RunContext, sources: Sequence[str], columns: Mapping[str, str] | None = None) -> Results:
    """The finished items of runs and result files. Notes runs whose results another user has written."""
    results = load_sources(ctx.store, sources, ctx.now(), columns=columns)
    ctx.note_foreign_results(results.runs.labels)
    return results


@dataclass(frozen=True, slots=True)
class CompareQuery:
    """What to compare: runs with the first of them, or the levels of a factor of one run."""

    sources: tuple[str, ...]
    """Runs, or files of results."""
    by: str = ""
    pair: str = ""
    """What pairs items; empty: automatic."""
    against: str = ""
    """The baseline level of `by`; empty: the first."""

    def check(self) -> None:
        """Raise `UsageError` if there is nothing to compare."""
        if self.by and len(self.sources) != 1:
            raise UsageError("a factor divides one run\nPass one run, or no factor.")
        if not self.by and len(self.sources) < 2:
            raise UsageError(
                "there is nothing to compare with\nPass two runs, or one run and the factor that divides it."
            )
        if self.against and not self.by:
            raise UsageError(
                "a baseline level needs its factor\nName the factor, too; of runs, the first is the baseline."
            )

    def groups(self, results: Results, read: StoreReader) -> Groups:
        """The groups of its results."""
        if not self.by:
            return groups_of(results, pair=self.pair)
        groups = groups_by(results, self.by, pair=self.pair, against=self.against)
        return with_stop_rule(groups, read, self.sources[0], self.by)


def batches_of(ctx: RunContext, runs: Sequence[str]) -> list[BatchRow]:
    """The runs of a comparison; each may be an unambiguous beginning."""
    return [ctx.store.read.batch(run, ctx.now()) for run in runs]


def counts_by_level(ctx: RunContext, run_id: str, by: str) -> dict[str, dict[str, int]]:
    """Items by status of each agent or model of a run; empty for other factors, which nobody counts."""
    counts: dict[str, dict[str, int]] = {}
    if by in ("model", "agent"):
        for row in status_counts_by(ctx.store.read, run_id, "model" if by == "model" else "agent"):
            counts.setdefault(row["level"], {})[row["status"]] = row["n"]
    return counts


def last_sessions(
    ctx: RunContext, items: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str | None, str]]:
    """The session and the status of items by run and id; for evaluations, the evaluated session."""
    found: dict[tuple[str, str], tuple[str | None, str]] = {}
    for run_id in dict.fromkeys(run_id for run_id, _ in items):
        ids = list(dict.fromkeys(item_id for run, item_id in items if run == run_id))
        for row in item_results(ctx.store.read, run_id, ids):
            evaluated: str | None = json.loads(row["settings"]).get("session")
            found[run_id, row["id"]] = evaluated or row["sessionId"], row["status"]
    return found


def evaluators_with_bad_highs(ctx: RunContext, runs: Sequence[str]) -> tuple[str, ...]:
    """The evaluators whose high values are bad, according to the evaluation among some runs, or else to the
    settings."""
    for run in runs:
        try:
            return high_is_bad(evaluation_of(ctx.store, run, ctx.now()).document)
        except NotFound:
            continue
    return high_is_bad({"harmfulValue": ctx.settings.evaluation.get("harmful_value")})


def compare_runs(
    ctx: RunContext,
    query: CompareQuery,
    *,
    metrics: Sequence[str] = (),
    gates: Sequence[Gate] = (),
    mixed: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare runs, result files, or the levels of a factor. `mixed`: also scores of different versions of an
    evaluator."""
    query.check()
    results = results_of(ctx, query.sources, columns)
    groups = query.groups(results, ctx.store.read)
    return compare_groups(groups, metrics=metrics, gates=gates, mixed=mixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The levels of a factor in order, and what limits the order."""

    by: str
    metric: str
    ranks: Sequence[Rank]
    """The best first."""
    results: Results
    by_reliability: Sequence[Rank] = ()
    """The order by pass^k; empty: nothing was repeated, or another metric than success."""
    k: int = 1
    errors: int = 0
    """Infrastructure errors, which are excluded."""
    with_failed_errors: Sequence[Rank] = ()
    """The order with errors as failures; empty: there are none."""
    unranked: Mapping[str, int]
    """Items without the factor, by run."""
    stops: Sequence[StopState] = ()
    """The rules by which the runs could stop early."""

    def factors_of(self, run: str) -> list[str]:
        """Factors that all items of a run have."""
        items = self.results.runs.mask(run)
        factors = self.results.factors.items()
        return [name for name, levels in factors if bool((levels.codes[items] >= 0).all())]


def rank_runs(
    ctx: RunContext,
    sources: Sequence[str],
    *,
    by: str = "model",
    metric: str = "success",
    columns: Mapping[str, str] | None = None,
) -> Ranking:
    """Rank the levels of a factor over all runs, with rank intervals that hold together at 95%."""
    results = results_of(ctx, sources, columns)
    ranked = rank_levels(results, by, metric)
    is_success = metric == "success"
    has_repeats = any(each.runs > each.tasks for each in ranked)
    by_reliability, k = reliability_ranks(results, by) if is_success and has_repeats else ([], 1)
    errors = int((results.is_error & ~results.is_evaluation).sum()) if is_success else 0
    stops = [stop_document(ctx.store.read, run) for run in results.runs.labels]
    return Ranking(
        by=by,
        metric=metric,
        ranks=ranked,
        results=results,
        by_reliability=by_reliability,
        k=k,
        errors=errors,
        with_failed_errors=rank_levels(results.with_failed_errors(), by) if errors else (),
        unranked=unranked_items(results, by),
        stops=[state for state in stops if state],
    )


def power_of_runs(
    ctx: RunContext,
    sources: Sequence[str],
    *,
    detect: float,
    metric: str = "success",
    power: float = 0.8,
    columns: Mapping[str, str] | None = None,
) -> PowerAnalysis:
    """How many tasks and repeats a comparison paired by task needs to detect a difference."""
    if not 0 < abs(detect) < float("inf"):
        raise UsageError("the difference to detect must be other than 0\nExample: --detect 0.05.")
    if not 0 < power < 1:
        raise UsageError("the power must lie between 0 and 1\nExample: --power 0.8, power=0.8.")
    results = results_of(ctx, sources, columns)
    unit, note, designs = "task", "", list[TasksNeeded]()
    if len(sources) == 1 and _is_experiment(ctx, results):
        pilot, unit, note = _pilot_of_runs(results, metric)
        units = len(set(pilot.get("task_a") or pilot["task"]) & set(pilot.get("task_b") or pilot["task"]))
    else:
        pilot = _pilot(results, metric)
        units = len(results.tasks(pair=results.pairing())[0].labels)
    first = tasks_needed(**pilot, detect=detect, power=power, repeats=REPEATS[0])
    designs.append(first)
    if unit == "task" and first.variation is not None and first.variation.between is not None:
        designs += [
            tasks_needed(**pilot, detect=detect, power=power, repeats=repeats) for repeats in REPEATS[1:]
        ]
    smallest = detectable(**pilot, power=power)
    return PowerAnalysis(
        detect=detect,
        power=power,
        tasks=units,
        detectable=smallest.value,
        designs=tuple(replace(design, note=_in_unit(design.note, unit)) for design in designs),
        note=" ".join(part for part in (note, _in_unit(smallest.note, unit)) if part),
        unit=unit,
    )


def _in_unit(note: str, unit: str) -> str:
    """A note on tasks, on what is counted instead."""
    many = unit.replace("pair", "pairs", 1) if unit.startswith("pair") else f"{unit}s"
    return note.replace("tasks", many).replace("task", unit)


def _is_experiment(ctx: RunContext, results: Results) -> bool:
    """Whether the results are the runs of one experiment: of them, a run is an observation."""
    runs = [ctx.store.read.exact_batch(run) for run in results.runs.labels]
    return len(runs) == 1 and bool(runs[0]) and runs[0][0]["job"] == SCENARIO


def _pilot_of_runs(results: Results, metric: str) -> tuple["_Pilot", str, str]:
    """The first two levels of the first factor that varies, in pairs of runs of equal seed and equal other
    factors; without factors, all runs. With what is counted, and a note."""
    _check_metric(results, metric)
    values = results.metrics[metric]
    present = ~np.isnan(values)
    lo, hi = scale_of(results, metric) or (None, None)
    factors = {
        name: column
        for name, column in results.factors.items()
        if name != "variation" and len(set(column.codes[present].tolist())) > 1
    }
    if not factors:
        each_run = list(range(int(present.sum())))
        return _Pilot(a=values[present].tolist(), task=each_run, lo=lo, hi=hi), "run", ""
    name, (chosen, *others) = next(iter(factors)), factors.values()
    rows = [results.repeat.tolist(), *(column.codes.tolist() for column in others)]
    blocks: dict[tuple[int, ...], int] = {}
    codes = np.array([blocks.setdefault(key, len(blocks)) for key in zip(*rows, strict=True)])
    levels = list(dict.fromkeys(chosen.codes[present].tolist()))[:2]
    first, second = (present & (chosen.codes == level) for level in levels)
    labels = [chosen.labels[level] if level >= 0 else "none" for level in levels]
    combinations = len({key[1:] for key in blocks})
    note = f"From {name} = {labels[0]} and {labels[1]}."
    if combinations > 1:
        note += f" A run of each variation makes {combinations} pairs."
    pilot = _Pilot(
        a=values[first].tolist(),
        b=values[second].tolist(),
        task_a=codes[first].tolist(),
        task_b=codes[second].tolist(),
        lo=lo,
        hi=hi,
    )
    return pilot, "pair of runs", note


class _Pilot(TypedDict, total=False):
    """Arguments of `tasks_needed` and `detectable`: values of one side or of two, with their tasks."""

    a: Required[list[float]]
    b: list[float]
    task: list[int]
    task_a: list[int]
    task_b: list[int]
    lo: float | None
    hi: float | None


def _check_metric(results: Results, metric: str) -> None:
    if metric not in results.metrics:
        raise NotFound(f"nothing here has a value of {metric}\nThere are: {', '.join(results.metrics)}.")
    if find_metric(metric).is_skewed:
        raise UsageError(f"power is computed for success and scores, not for {metric}\nUse another metric.")


def _pilot(results: Results, metric: str) -> _Pilot:
    """Two runs, or the first two models of one run, as two sides; else one."""
    _check_metric(results, metric)
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
