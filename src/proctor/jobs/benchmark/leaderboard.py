"""Results of a benchmark: runs, figures by model, and rankings.

Rates are of scored runs; infrastructure errors are counted separately. Times, prompts and changes are of
successful runs, since a model that gives up at once is not fast. Tokens and cost are of all attempts. Every
rate, mean and ratio is over tasks; with a single task it is about this task alone.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal

from proctor.formatting import elapsed
from proctor.item import ERROR, FAIL, FINISHED, RUNNING, STATUSES, SUCCESS, TIMEOUT, UNCHECKED
from proctor.score import CHECK, EXPECT
from proctor.stats.intervals import (
    LIKE,
    THESE,
    Estimate,
    Rate,
    anytime_rate,
    geometric_mean,
    mean,
    mean_cost,
)
from proctor.store import Scope, StoreReader, aggregates
from proctor.store.aggregates import SessionUsage
from proctor.store.batches import moment
from proctor.store.database import Row
from proctor.store.items import BenchmarkItem, benchmark_items
from proctor.store.tables import ItemRow
from proctor.tasks.task import models_with_agents, ranked_name

if TYPE_CHECKING:
    from proctor.stats.ranking import Rank
    from proctor.stats.results import Floats, Ints, Results

# Runs of a benchmark, from the rows of the store.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCriterion:
    """One success criterion of a task, in one run."""

    criterion: str
    passed: bool | None
    """None: nothing checked it."""
    explanation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRun:
    """One model at one task, once. All fields but the last are members of result files, in their order."""

    model: str
    task: str
    error: str
    completion_time: float | None
    """Seconds of work."""
    prompts_sent: int
    human_interventions: int
    files_modified: int
    lines_added: int
    lines_removed: int
    timestamp: str
    """When it finished."""
    display_name: str
    asked: str
    """`provider/model`, as it was asked."""
    agent: str
    run: int
    """1 for the first of several equal runs."""
    status: str
    reason: str
    wall_time: float | None
    """Seconds from start to end."""
    tool_calls: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cost_usd: float | None
    """None: no price is known, or no model was called."""
    unpriced_calls: int
    attempts: int
    unchecked: bool
    stand_in: bool
    criteria: tuple[TaskCriterion, ...]
    item_id: str
    session_id: str
    is_after_cutoff: bool | None = None
    """Whether the task is newer than the model's training data; None: not known."""

    @property
    def succeeded(self) -> bool:
        return self.status == SUCCESS and not self.unchecked

    @property
    def is_judged(self) -> bool:
        """Whether it counts in a success rate: no infrastructure error, and something checked it."""
        return self.status in (FAIL, TIMEOUT) or self.succeeded

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED


def runs_of(read: StoreReader, run_id: str) -> list[BenchmarkRun]:
    """Every run of a benchmark, in the order of its items."""
    scope = Scope(run_id=run_id)
    sessions = {row["id"]: row for row in read.table("sessions", scope)}
    steps: dict[str, list[Row]] = defaultdict(list)
    scores: dict[str, list[Row]] = defaultdict(list)
    for row in read.table("iterations", scope):
        steps[row["sessionId"]].append(row)
    for row in read.table("scores", scope):
        scores[row["sessionId"]].append(row)
    tried: dict[str, list[Row]] = defaultdict(list)
    for row in sessions.values():
        tried[row["itemId"]].append(row)
    items = read.items(run_id, limit=1_000_000)
    split = models_with_agents(json.loads(item["factors"]) for item in items)
    return [
        _run(
            item,
            split,
            sessions.get(item["sessionId"] or "", {}),
            tried[item["id"]],
            steps[item["sessionId"] or ""],
            scores[item["sessionId"] or ""],
        )
        for item in items
    ]


def _run(
    item: ItemRow,
    split: Collection[str],
    last: Row,
    attempts: Sequence[Row],
    steps: Sequence[Row],
    scores: Sequence[Row],
) -> BenchmarkRun:
    """One run, from its item, its last session, all its sessions, and the steps and scores of the last."""
    factors, settings = json.loads(item["factors"]), json.loads(item["settings"])
    began, ended = moment(last.get("startedAt")), moment(last.get("finishedAt"))
    name = ranked_name(factors, split)
    suffix = name.removeprefix(factors["model"])
    return BenchmarkRun(
        model=name,
        task=factors["task"],
        error=item["error"],
        # The agent's own time; of sessions that do not know it, the whole work time.
        completion_time=last.get("workSeconds") if (own := last.get("agentSeconds")) is None else own,
        prompts_sent=last.get("modelCalls", 0),
        human_interventions=last.get("interventions", 0),
        files_modified=sum(step["changedFiles"] for step in steps),
        lines_added=sum(step["linesAdded"] for step in steps),
        lines_removed=sum(step["linesRemoved"] for step in steps),
        timestamp=item["finishedAt"] or "",
        display_name=(settings.get("displayName") or factors["model"]) + suffix,
        asked=item["model"],
        agent=item["agent"] and factors.get("agent", item["agent"]),
        run=item["repeat"],
        status=item["status"],
        reason=item["reason"],
        wall_time=elapsed(began, ended),
        tool_calls=last.get("toolCalls", 0),
        prompt_tokens=sum(row["promptTokens"] for row in attempts),
        completion_tokens=sum(row["completionTokens"] for row in attempts),
        total_tokens=sum(row["totalTokens"] for row in attempts),
        cost_usd=item["costUsd"],
        unpriced_calls=sum(row["unpricedCalls"] for row in attempts),
        attempts=len(attempts),
        unchecked=any(row["evaluator"] == UNCHECKED for row in scores),
        stand_in=bool(last.get("isMock")),
        criteria=_criteria(settings.get("criteria", []), scores),
        item_id=item["id"],
        session_id=item["sessionId"] or "",
        is_after_cutoff=factors["after_cutoff"] == "yes" if "after_cutoff" in factors else None,
    )


def _criteria(expected: Sequence[str], scores: Sequence[Row]) -> tuple[TaskCriterion, ...]:
    """Result of each success criterion, including unchecked ones."""
    criteria = [
        TaskCriterion(
            criterion=row["evaluator"].removeprefix(CHECK),
            passed=row["value"] == 1,
            explanation=row["explanation"],
        )
        for row in scores
        if row["evaluator"].startswith((CHECK, EXPECT))
    ]
    checked = {each.criterion for each in criteria}
    return (
        *criteria,
        *(TaskCriterion(criterion=name, passed=None) for name in expected if name not in checked),
    )


# Figures and ranks of models.


MEASURES = (
    "wall_time",
    "prompts_sent",
    "human_interventions",
    "files_modified",
    "lines_added",
    "lines_removed",
    "tool_calls",
)
"""What is averaged over the successful runs of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """All runs of one model."""

    name: str
    display_name: str
    runs: tuple[BenchmarkRun, ...]
    counts: Mapping[str, int]
    rate: Estimate
    """Over tasks; infrastructure errors excluded."""
    rate_with_errors: Estimate
    work: Estimate
    typical_work: Estimate
    means: Mapping[str, Estimate]
    """Over successful runs, by the names of `MEASURES`."""
    tokens: int
    cost_usd: float | None
    """Of all runs; None when a price is missing."""
    cost_per_success: Estimate
    rate_before_cutoff: Estimate | None = None
    """Of the tasks that are older than the end of the training data; None: there are none."""
    rate_after_cutoff: Estimate | None = None

    @property
    def cost_per_run_usd(self) -> float | None:
        finished = [run for run in self.runs if run.is_finished]
        return None if self.cost_usd is None or not finished else self.cost_usd / len(finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Who is best at one thing."""

    key: str
    title: str
    what: str
    """The number it goes by."""
    places: "tuple[Rank, ...]"
    """Best first, with rank intervals that all hold together at 95%."""

    @property
    def first(self) -> str | None:
        """The one with the best figure; others may share its rank."""
        return self.places[0].name if self.places else None

    @property
    def leaders(self) -> "tuple[Rank, ...]":
        """Those that no other one is significantly better than."""
        return tuple(place for place in self.places if place.rank_low == 1)


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """A benchmark as it stands."""

    batch_id: str
    status: str
    task: str
    created_at: datetime
    finished_at: datetime | None
    runs: tuple[BenchmarkRun, ...]
    models: tuple[ModelFigures, ...]
    """Best success rate first, then the quickest."""

    @cached_property
    def rankings(self) -> tuple[Ranking, ...]:
        """By success, speed, value, autonomy and prompts. Not needed for the file of a single model."""
        return rankings_of(self.models)

    @property
    def errors_decide(self) -> bool:
        """Whether the order by success is another one with infrastructure errors counted as failures."""
        if not any(model.counts[ERROR] for model in self.models):
            return False
        return _order(self.models, with_errors=False) != _order(self.models, with_errors=True)

    @property
    def has_cutoffs(self) -> bool:
        """Whether tasks before and after the end of a model's training data are distinguished."""
        return any(model.rate_before_cutoff or model.rate_after_cutoff for model in self.models)

    @property
    def scope(self) -> str:
        """What the intervals are about: with a single task, this task alone."""
        return LIKE if len(self.tasks) > 1 else THESE

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.task for run in self.runs))

    def total_seconds(self, now: datetime) -> float:
        """From the start of the batch to its end, or until now."""
        return elapsed(self.created_at, self.finished_at or now) or 0.0

    def summary_stats(self) -> dict[str, float]:
        """Figures over all successful runs; empty without any."""
        won = [run for run in self.runs if run.succeeded]
        times = [run.completion_time for run in won if run.completion_time is not None]
        if not times:
            return {}
        return {
            "avg_completion_time": fmean(times),
            "median_completion_time": median(times),
            "avg_prompts": fmean(run.prompts_sent for run in won),
            "avg_interventions": fmean(run.human_interventions for run in won),
            "min_completion_time": min(times),
            "max_completion_time": max(times),
        }


def compare(read: StoreReader, run_id: str, now: datetime) -> Leaderboard:
    """Read the results of a benchmark from the store."""
    batch = read.batch(run_id, now)
    runs = runs_of(read, batch["runId"])
    return Leaderboard(
        batch_id=batch["runId"],
        status=batch["status"],
        task=json.loads(batch["optionsJson"]).get("task")
        or ", ".join(dict.fromkeys(run.task for run in runs)),
        created_at=moment(batch["createdAt"]) or now,
        finished_at=moment(batch["finishedAt"]),
        runs=tuple(runs),
        models=models_of(runs),
    )


def models_of(runs: Sequence[BenchmarkRun]) -> tuple[ModelFigures, ...]:
    """The figures of each model, the best success rate first, then the quickest."""
    by_model: dict[str, list[BenchmarkRun]] = defaultdict(list)
    for run in runs:
        by_model[run.model].append(run)
    is_single = len({run.task for run in runs}) < 2
    models = [_figures(name, mine, is_single=is_single) for name, mine in by_model.items()]
    return tuple(sorted(models, key=_best_first))


def results_of(runs: Iterable[BenchmarkRun]) -> "Results":
    """The finished runs as columns. A call without a price counts as free."""
    # Loads numpy, which the live view of a run does not need.
    from proctor.stats.results import Results

    runs = [run for run in runs if run.is_finished]
    cutoffs = {None: None, True: "yes", False: "no"}
    return Results.of(
        tasks=[run.task for run in runs],
        status=[run.status for run in runs],
        repeat=[run.run for run in runs],
        factors={
            "model": [run.model for run in runs],
            "task": [run.task for run in runs],
            "after_cutoff": [cutoffs[run.is_after_cutoff] for run in runs],
        },
        metrics={
            "success": [float(run.succeeded) if run.is_judged else None for run in runs],
            "cost": [run.cost_usd or 0.0 for run in runs],
            "time": [run.completion_time for run in runs],
            **{name: [getattr(run, name) for run in runs] for name in MEASURES},
        },
    )


def _units(results: "Results", *, is_single: bool) -> "Ints":
    """What varies at random: the task of each run, or of a single task the run itself."""
    return results.repeat if is_single else results.factors["task"].codes


def _figures(name: str, runs: Sequence[BenchmarkRun], *, is_single: bool) -> ModelFigures:
    import numpy as np

    from proctor.stats.figures import cost_per_success, estimate_of, rate_of

    scope: Literal["these", "like"] = "these" if is_single else "like"
    results = results_of(runs)
    success, tasks = results.metrics["success"], results.factors["task"].codes
    won = results.where(success == 1)
    won_tasks, seconds = won.factors["task"].codes, won.metrics["time"]
    mean_of = partial(mean, lo=0.0, scope=scope)

    # Errors last, as result files have always had them: another order changes last digits.
    order = np.argsort(results.is_error, kind="stable")
    cutoffs = results.factors["after_cutoff"]
    rates = {
        level: rate_of(success[rows], tasks[rows])
        for level in cutoffs.labels
        if (rows := cutoffs.mask(level) & ~np.isnan(success)).any()
    }
    cost = _cost(runs)
    per_success = Estimate(value=None, note="Some prices are missing.")
    if cost is not None:
        per_success = cost_per_success(results, _units(results, is_single=is_single))
        per_success = replace(per_success, scope=THESE) if is_single else per_success
    return ModelFigures(
        name=name,
        display_name=runs[0].display_name,
        runs=tuple(runs),
        counts={status: sum(run.status == status for run in runs) for status in STATUSES},
        rate=rate_of(success, tasks, scope),
        rate_with_errors=rate_of(results.with_errors_failed[order], tasks[order], scope),
        rate_before_cutoff=rates.get("no"),
        rate_after_cutoff=rates.get("yes"),
        work=estimate_of(mean_of if is_single else mean_cost, seconds, won_tasks),
        typical_work=estimate_of(geometric_mean, seconds, won_tasks),
        means={measure: estimate_of(mean_of, won.metrics[measure], won_tasks) for measure in MEASURES},
        tokens=sum(run.total_tokens for run in runs),
        cost_usd=cost,
        cost_per_success=per_success,
    )


def _cost(runs: Sequence[BenchmarkRun]) -> float | None:
    """What all runs cost together; None when part of it is not known."""
    known = [run.cost_usd for run in runs if run.cost_usd is not None]
    return math.fsum(known) if known and not any(run.unpriced_calls for run in runs) else None


def _order(models: Sequence[ModelFigures], *, with_errors: bool) -> list[str]:
    def key(model: ModelFigures) -> tuple[float, str]:
        value = (model.rate_with_errors if with_errors else model.rate).value
        return (1.0 if value is None else -value), model.name

    return [model.name for model in sorted(models, key=key)]


def _best_first(model: ModelFigures) -> tuple[float, float, str]:
    rate, work = model.rate.value, model.typical_work.value
    return (1.0 if rate is None else -rate), (math.inf if work is None else work), model.name


def rankings_of(models: Sequence[ModelFigures]) -> tuple[Ranking, ...]:
    """Ranks by success first, then speed, value and autonomy, and by prompts.

    Models are compared on the tasks that both have values of; with a single task, on its runs, and the ranks
    are about this task alone. Fewer than six of them tell nobody apart.
    """
    # numpy; the live view of a run needs only what is below.
    from proctor.stats.figures import rank_levels

    is_single = len({run.task for model in models for run in model.runs}) < 2
    results = results_of(run for model in models for run in model.runs)
    won = results.where(results.metrics["success"] == 1)

    def ranked(
        rows: "Results",
        metric: str,
        estimate: Callable[[ModelFigures], Estimate],
        *,
        higher_is_better: bool = False,
    ) -> "list[Rank]":
        """Those with values, with the estimates that the page shows."""
        units = _units(rows, is_single=is_single)
        places = rank_levels(rows, "model", metric, units, higher_is_better=higher_is_better)
        estimates = {model.name: estimate(model) for model in models}
        return [_with_estimate(rank, estimates[rank.name]) for rank in places if rank.value is not None]

    def of_means(name: str) -> "list[Rank]":
        return ranked(won, name, lambda model: model.means[name])

    # Where no run succeeded, no model is the most successful.
    judged = results if len(won) else won
    success = ranked(judged, "success", lambda model: model.rate, higher_is_better=True)
    speed = ranked(won, "time", lambda model: model.typical_work)
    value = _ranked_by_value(models, results, is_single=is_single)
    rows = (
        ("most_successful", "Most Successful", "success rate", success),
        ("fastest", "Fastest", "typical completion time", speed),
        ("best_value", "Best Value", "cost per success", value),
        ("least_intervention", "Most Autonomous", "human interventions", of_means("human_interventions")),
        ("most_efficient", "Most Efficient", "prompts sent", of_means("prompts_sent")),
    )
    return tuple(
        Ranking(key=key, title=title, what=what, places=tuple(places)) for key, title, what, places in rows
    )


def _with_estimate(rank: "Rank", estimate: Estimate) -> "Rank":
    return replace(
        rank,
        value=estimate.value,
        sem=estimate.sem,
        low=estimate.low,
        high=estimate.high,
        runs=estimate.runs,
        note=estimate.note,
    )


def _ranked_by_value(models: Sequence[ModelFigures], results: "Results", *, is_single: bool) -> "list[Rank]":
    """By cost per success. A model whose interval has no upper limit is tied with all others."""
    from proctor.stats.ranking import rank_row, ranks_of_columns

    known = {
        model.name: model.cost_per_success for model in models if model.cost_per_success.value is not None
    }
    tested = [model for model in models if model.name in known and known[model.name].high is not None]
    units, levels = _units(results, is_single=is_single), results.factors["model"]
    masks = {model.name: levels.mask(model.name) for model in tested}
    columns = {name: _linearized(results.where(rows), units[rows]) for name, rows in masks.items()}
    placed = {rank.name: rank for rank in ranks_of_columns(columns, higher_is_better=False, log=True)}
    untested = len(known) - len(placed)
    rows = []
    for name, estimate in known.items():
        value = estimate.value or 0.0
        rank = placed.get(name)
        limits = (rank.rank_low, rank.rank_high + untested) if rank else (1, len(known))
        position = 1 + sum((other.value or 0.0) < value * (1 - 1e-9) for other in known.values())
        rows.append(rank_row(name, estimate, position, limits, note=estimate.note))
    return sorted(rows, key=lambda each: (each.rank, each.value or 0.0, each.name))


def _linearized(results: "Results", units: "Ints") -> "tuple[Ints, Floats]":
    """One value per task whose geometric mean is the cost per success, and whose logs vary as its log does
    (first-order expansion of the ratio): so that ratios of two models can be compared by task."""
    import numpy as np

    codes, inverse = np.unique(units, return_inverse=True)
    costs = np.bincount(inverse, weights=results.metrics["cost"])
    passed = np.bincount(inverse, weights=results.metrics["success"] == 1)
    cost, successes = (math.fsum(sums) / len(codes) for sums in (costs, passed))
    if not cost:
        return codes[:0], np.empty(0)
    return codes, cost / successes * np.exp(costs / cost - passed / successes)


# How each model of a benchmark stands, cheaply enough to ask several times a second.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStanding:
    """One model, as it stands now."""

    model: str
    counts: Mapping[str, int]
    """Its runs by status; every status is there."""
    elapsed_seconds: float
    """Of its runs together, those under way among them."""
    tokens: int
    cost_usd: float | None
    """None: no price is known so far."""
    unchecked: int = 0
    """Successes that nothing checked."""
    is_clustered: bool = False
    """Whether several tasks are repeated."""

    @property
    def rate(self) -> Rate:
        """Successes of the runs that were checked, with an interval that holds at every look. Where
        several tasks are repeated there is none: repeats of a task are not independent."""
        succeeded = self.counts[SUCCESS] - self.unchecked
        judged = succeeded + self.counts[FAIL] + self.counts[TIMEOUT]
        if self.is_clustered:
            return Rate(successes=succeeded, trials=judged)
        return anytime_rate(succeeded, judged)

    @property
    def state(self) -> str:
        """In a word or two: `running`, `success`, `2 of 5 · 1 fail`."""
        total = sum(self.counts.values())
        if total == 1:
            return next(status for status in STATUSES if self.counts[status])
        done = sum(self.counts[status] for status in FINISHED)
        parts = [f"{self.counts[status]} {status}" for status in (*FINISHED, RUNNING) if self.counts[status]]
        return " · ".join([f"{done} of {total}", *parts])


def standing(read: StoreReader, run_id: str, now: datetime) -> list[ModelStanding]:
    """Every model of a benchmark, in the order in which they were named."""
    usage = {row["id"]: row for row in aggregates.running_usage(read, run_id)}
    grouped: dict[str, list[BenchmarkItem]] = {}
    rows = [(json.loads(row["factors"]), row) for row in benchmark_items(read, run_id)]
    split = models_with_agents(factors for factors, _ in rows)
    for factors, row in rows:
        grouped.setdefault(ranked_name(factors, split), []).append(row)
    return [_standing(model, mine, usage, now) for model, mine in grouped.items()]


def _standing(
    model: str, rows: Sequence[BenchmarkItem], usage: Mapping[str, SessionUsage], now: datetime
) -> ModelStanding:
    counts, total, tokens, costs = dict.fromkeys(STATUSES, 0), 0.0, 0, list[float]()
    for row in rows:
        counts[row["status"]] += 1
        began = moment(row["startedAt"])
        ended = now if row["status"] == RUNNING else moment(row["finishedAt"])
        total += elapsed(began, ended) or 0.0
        current = usage.get(row["sessionId"] or "")
        tokens += row["tokensTotal"] + ((current["tokens"] or 0) if current else 0)
        costs += [cost for cost in (row["costUsd"], current and current["cost"]) if cost is not None]
    return ModelStanding(
        model=model,
        counts=counts,
        elapsed_seconds=total,
        tokens=tokens,
        cost_usd=sum(costs) if costs else None,
        unchecked=sum(row["status"] == SUCCESS and row["reason"] == UNCHECKED for row in rows),
        is_clustered=1 < max(row["repeat"] for row in rows) < len(rows),
    )
