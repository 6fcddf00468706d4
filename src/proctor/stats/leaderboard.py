"""Results of a benchmark: runs, figures by model, and rankings.

Rates are of scored runs; infrastructure errors are counted separately. Times, prompts and changes are of
successful runs, since a model that gives up at once is not fast. Tokens and cost are of all attempts.
"""

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from proctor.item import ERROR, FAIL, FINISHED, RUNNING, STATUSES, SUCCESS, TIMEOUT
from proctor.stats.contrasts import LEVEL, Difference, holm, paired, welch
from proctor.stats.intervals import Estimate, Rate, mean_of, wilson
from proctor.store import Scope, StoreReader, aggregates
from proctor.store.aggregates import SessionUsage
from proctor.store.batches import moment
from proctor.store.database import Row
from proctor.store.items import BenchmarkItem, benchmark_items
from proctor.store.tables import ItemRow

# Runs of a benchmark, from the rows of the store.


CHECK, EXPECT, UNCHECKED = "check: ", "expect.", "unchecked"
"""How the scores of a benchmark's runs are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCriterion:
    """One success criterion of a task, in one run."""

    name: str
    passed: bool | None
    """None: nothing checked it."""
    explanation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRun:
    """One model at one task, once."""

    item_id: str
    model: str
    asked: str
    """`provider/model`, as it was asked."""
    display_name: str
    task: str
    agent: str
    number: int
    """1 for the first of several equal runs."""
    status: str
    reason: str
    error: str
    work_seconds: float | None
    wall_seconds: float | None
    model_calls: int
    tool_calls: int
    interventions: int
    files: int
    lines_added: int
    lines_removed: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cost_usd: float | None
    """None: no price is known, or nothing was asked."""
    unpriced_calls: int
    attempts: int
    session_id: str
    is_stand_in: bool
    finished_at: str
    criteria: tuple[TaskCriterion, ...]
    is_unchecked: bool

    @property
    def succeeded(self) -> bool:
        return self.status == SUCCESS

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
    return [
        _run(
            item,
            sessions.get(item["sessionId"] or "", {}),
            tried[item["id"]],
            steps[item["sessionId"] or ""],
            scores[item["sessionId"] or ""],
        )
        for item in read.items(run_id, limit=1_000_000)
    ]


def _run(
    item: ItemRow, last: Row, attempts: Sequence[Row], steps: Sequence[Row], scores: Sequence[Row]
) -> BenchmarkRun:
    """One run, from its item, its last session, all its sessions, and the steps and scores of the last."""
    factors, settings = json.loads(item["factors"]), json.loads(item["settings"])
    criteria, is_unchecked = _criteria(settings.get("criteria", []), scores)
    began, ended = moment(last.get("startedAt")), moment(last.get("finishedAt"))
    return BenchmarkRun(
        item_id=item["id"],
        model=factors["model"],
        asked=item["model"],
        display_name=settings.get("displayName") or factors["model"],
        task=factors["task"],
        agent=item["agent"],
        number=item["repeat"],
        status=item["status"],
        reason=item["reason"],
        error=item["error"],
        work_seconds=last.get("workSeconds"),
        wall_seconds=(ended - began).total_seconds() if began and ended else None,
        model_calls=last.get("modelCalls", 0),
        tool_calls=last.get("toolCalls", 0),
        interventions=last.get("interventions", 0),
        files=sum(step["changedFiles"] for step in steps),
        lines_added=sum(step["linesAdded"] for step in steps),
        lines_removed=sum(step["linesRemoved"] for step in steps),
        prompt_tokens=sum(row["promptTokens"] for row in attempts),
        completion_tokens=sum(row["completionTokens"] for row in attempts),
        total_tokens=sum(row["totalTokens"] for row in attempts),
        cost_usd=item["costUsd"],
        unpriced_calls=sum(row["unpricedCalls"] for row in attempts),
        attempts=len(attempts),
        session_id=item["sessionId"] or "",
        is_stand_in=bool(last.get("standIn")),
        finished_at=item["finishedAt"] or "",
        criteria=criteria,
        is_unchecked=is_unchecked,
    )


def _criteria(expected: Sequence[str], scores: Sequence[Row]) -> tuple[tuple[TaskCriterion, ...], bool]:
    """Result of each success criterion, including unchecked ones."""
    criteria = [
        TaskCriterion(
            name=row["evaluator"].removeprefix(CHECK),
            passed=row["value"] == 1,
            explanation=row["explanation"],
        )
        for row in scores
        if row["evaluator"].startswith((CHECK, EXPECT))
    ]
    checked = {criterion.name for criterion in criteria}
    silent = [TaskCriterion(name=name, passed=None) for name in expected if name not in checked]
    return (*criteria, *silent), any(row["evaluator"] == UNCHECKED for row in scores)


# Rank contestants by a number (lower is better), with ties.


Samples = Mapping[str, Sequence[float]]
"""The numbers of one contestant, by task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRank:
    """One contestant's place."""

    name: str
    rank: int
    """1 is best. Shared by those that cannot be told apart from each other."""
    worst_rank: int
    """The last place that is still possible."""
    estimate: Estimate


Rank = LeaderboardRank


def ranked(contestants: Mapping[str, Samples]) -> tuple[Rank, ...]:
    """Everyone who has a number, best mean first."""
    known = {name: samples for name, samples in contestants.items() if any(samples.values())}
    better = _better(known)
    placed = [
        Rank(
            name=name,
            rank=1 + sum((other, name) in better for other in known),
            worst_rank=len(known) - sum((name, other) in better for other in known),
            estimate=mean_of([value for values in samples.values() for value in values]),
        )
        for name, samples in known.items()
    ]
    return tuple(sorted(placed, key=lambda one: (one.estimate.value or 0.0, one.name)))


def ranked_by_interval(estimates: Mapping[str, Estimate]) -> tuple[Rank, ...]:
    """The same for numbers that come with intervals: those that overlap cannot be told apart."""
    known = {name: one for name, one in estimates.items() if one.value is not None}
    placed = [
        Rank(
            name=name,
            rank=1 + sum(_is_below(other, one) for other in known.values()),
            worst_rank=len(known) - sum(_is_below(one, other) for other in known.values()),
            estimate=one,
        )
        for name, one in known.items()
    ]
    return tuple(sorted(placed, key=lambda one: (one.estimate.value or 0.0, one.name)))


def _is_below(one: Estimate, other: Estimate) -> bool:
    if one.n < 2 or other.n < 2 or one.high is None or other.low is None:
        return False
    return one.high < other.low


def _better(contestants: Mapping[str, Samples]) -> set[tuple[str, str]]:
    """The pairs of which the first is better beyond doubt."""
    pairs = list(itertools.combinations(contestants, 2))
    differences = [_difference(contestants[one], contestants[other]) for one, other in pairs]
    corrected = holm([_chance(difference) for difference in differences])
    return {
        (one, other) if difference.value < 0 else (other, one)
        for (one, other), difference, p in zip(pairs, differences, corrected, strict=True)
        if p is not None and p <= LEVEL
    }


def _difference(one: Samples, other: Samples) -> Difference:
    both = [task for task in one if one[task] and other.get(task)]
    if len(both) > 1:
        return paired([fmean(one[task]) for task in both], [fmean(other[task]) for task in both])
    first = [value for values in one.values() for value in values]
    return welch(first, [value for values in other.values() for value in values])


def _chance(difference: Difference) -> float:
    """How likely it is by chance alone. What cannot be tested counts as tested and found to be nothing."""
    if difference.low is None:
        return 1.0
    # Without a chance but with an interval, every run gave the same number: the difference is what it is.
    return 0.0 if difference.p is None else difference.p


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """All runs of one model."""

    name: str
    display_name: str
    runs: tuple[BenchmarkRun, ...]
    counts: Mapping[str, int]
    rate: Rate
    rate_with_errors: Rate
    work: Estimate
    wall: Estimate
    prompts: Estimate
    interventions: Estimate
    files: Estimate
    lines_added: Estimate
    lines_removed: Estimate
    tool_calls: Estimate
    tokens: int
    cost_usd: float | None
    """Of all runs; None when a price is missing."""
    cost_per_success: Estimate

    @property
    def cost_per_run_usd(self) -> float | None:
        begun = [run for run in self.runs if run.is_finished]
        return None if self.cost_usd is None or not begun else self.cost_usd / len(begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Who is best at one thing."""

    key: str
    title: str
    what: str
    """The number it goes by."""
    places: tuple[Rank, ...]

    @property
    def first(self) -> str | None:
        """The one with the best figure; others may share its rank."""
        return self.places[0].name if self.places else None


@dataclass(frozen=True, slots=True, kw_only=True)
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
    rankings: tuple[Ranking, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.task for run in self.runs))

    def total_seconds(self, now: datetime) -> float:
        """From the start of the batch to its end, or until now."""
        return ((self.finished_at or now) - self.created_at).total_seconds()

    def summary_stats(self) -> dict[str, float]:
        """Figures over all successful runs; empty without any."""
        won = [run for run in self.runs if run.succeeded]
        times = sorted(run.work_seconds for run in won if run.work_seconds is not None)
        if not times:
            return {}
        middle = (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2
        return {
            "avg_completion_time": fmean(times),
            "median_completion_time": middle,
            "avg_prompts": fmean(run.model_calls for run in won),
            "avg_interventions": fmean(run.interventions for run in won),
            "min_completion_time": times[0],
            "max_completion_time": times[-1],
        }


def compare(read: StoreReader, run_id: str, now: datetime) -> Leaderboard:
    """Ask the store what a benchmark came to."""
    batch = read.batch(run_id, now)
    runs = runs_of(read, batch["runId"])
    by_model: dict[str, list[BenchmarkRun]] = defaultdict(list)
    for run in runs:
        by_model[run.model].append(run)
    models = sorted((_figures(name, mine) for name, mine in by_model.items()), key=_best_first)
    return Leaderboard(
        batch_id=batch["runId"],
        status=batch["status"],
        task=json.loads(batch["optionsJson"]).get("task") or ", ".join({run.task for run in runs}),
        created_at=moment(batch["createdAt"]) or now,
        finished_at=moment(batch["finishedAt"]),
        runs=tuple(runs),
        models=tuple(models),
        rankings=_rankings(models),
    )


def _figures(name: str, runs: Sequence[BenchmarkRun]) -> ModelFigures:
    counts = {status: sum(run.status == status for run in runs) for status in STATUSES}
    judged = counts[SUCCESS] + counts[FAIL] + counts[TIMEOUT]
    rate = wilson(counts[SUCCESS], judged)
    cost = _cost(runs)
    return ModelFigures(
        name=name,
        display_name=runs[0].display_name,
        runs=tuple(runs),
        counts=counts,
        rate=rate,
        rate_with_errors=wilson(counts[SUCCESS], judged + counts[ERROR]),
        work=_mean(runs, lambda run: run.work_seconds),
        wall=_mean(runs, lambda run: run.wall_seconds),
        prompts=_mean(runs, lambda run: run.model_calls),
        interventions=_mean(runs, lambda run: run.interventions),
        files=_mean(runs, lambda run: run.files),
        lines_added=_mean(runs, lambda run: run.lines_added),
        lines_removed=_mean(runs, lambda run: run.lines_removed),
        tool_calls=_mean(runs, lambda run: run.tool_calls),
        tokens=sum(run.total_tokens for run in runs),
        cost_usd=cost,
        cost_per_success=_per_success(cost, rate),
    )


def _mean(runs: Sequence[BenchmarkRun], number: Callable[[BenchmarkRun], float | None]) -> Estimate:
    values = [value for run in runs if run.succeeded and (value := number(run)) is not None]
    return mean_of(values)


def _cost(runs: Sequence[BenchmarkRun]) -> float | None:
    """What all runs cost together; None when part of it is not known."""
    known = [run.cost_usd for run in runs if run.cost_usd is not None]
    return math.fsum(known) if known and not any(run.unpriced_calls for run in runs) else None


def _per_success(cost: float | None, rate: Rate) -> Estimate:
    """What one success costs, failures paid for: as uncertain as the success rate is."""
    if cost is None or not rate.successes or rate.low is None or rate.high is None:
        return Estimate(value=None)
    each = cost / rate.trials
    high = each / rate.low if rate.low else None
    return Estimate(value=cost / rate.successes, low=each / rate.high, high=high, n=rate.trials)


def _best_first(model: ModelFigures) -> tuple[float, float, str]:
    rate, work = model.rate.value, model.work.value
    return (1.0 if rate is None else -rate), (math.inf if work is None else work), model.name


def _rankings(models: Sequence[ModelFigures]) -> tuple[Ranking, ...]:
    by_samples: tuple[tuple[str, str, str, Callable[[BenchmarkRun], float | None]], ...] = (
        ("fastest", "Fastest", "completion time", lambda run: run.work_seconds),
        ("most_efficient", "Most Efficient", "prompts sent", lambda run: run.model_calls),
        ("least_intervention", "Most Autonomous", "human interventions", lambda run: run.interventions),
    )
    rankings = [
        Ranking(
            key=key,
            title=title,
            what=what,
            places=ranked({model.name: _samples(model.runs, number) for model in models}),
        )
        for key, title, what, number in by_samples
    ]
    value = ranked_by_interval({model.name: model.cost_per_success for model in models})
    return (*rankings, Ranking(key="best_value", title="Best Value", what="cost per success", places=value))


def _samples(runs: Sequence[BenchmarkRun], number: Callable[[BenchmarkRun], float | None]) -> Samples:
    samples: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.succeeded and (value := number(run)) is not None:
            samples[run.task].append(value)
    return samples


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
    for row in benchmark_items(read, run_id):
        grouped.setdefault(json.loads(row["factors"])["model"], []).append(row)
    return [_standing(model, mine, usage, now) for model, mine in grouped.items()]


def _standing(
    model: str, rows: Sequence[BenchmarkItem], usage: Mapping[str, SessionUsage], now: datetime
) -> ModelStanding:
    counts, elapsed, tokens, costs = dict.fromkeys(STATUSES, 0), 0.0, 0, list[float]()
    for row in rows:
        counts[row["status"]] += 1
        began = moment(row["startedAt"])
        ended = now if row["status"] == RUNNING else moment(row["finishedAt"])
        elapsed += (ended - began).total_seconds() if began and ended else 0.0
        current = usage.get(row["sessionId"] or "")
        tokens += row["tokensTotal"] + ((current["tokens"] or 0) if current else 0)
        costs += [cost for cost in (row["costUsd"], current and current["cost"]) if cost is not None]
    return ModelStanding(
        model=model,
        counts=counts,
        elapsed_seconds=max(0.0, elapsed),
        tokens=tokens,
        cost_usd=sum(costs) if costs else None,
    )
