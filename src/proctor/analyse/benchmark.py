"""What a benchmark came to: each run, each model's figures, and who is best at what.

Rates are of runs that were judged; errors of ours are counted beside them. Times, prompts and changes
are those of successful runs, since a model that gives up at once is not fast. Tokens and money are
of all attempts, because all were spent.

Knows nothing of files or pages.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from proctor.analyse.benchmark_runs import Run, runs_of
from proctor.analyse.intervals import Estimate, Rate, mean_of, wilson
from proctor.analyse.ranking import Rank, Samples, ranked, ranked_by_interval
from proctor.item import ERROR, FAIL, STATUSES, SUCCESS, TIMEOUT
from proctor.store import Reader
from proctor.store.batches import moment


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """All runs of one model."""

    name: str
    display_name: str
    runs: tuple[Run, ...]
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
class Comparison:
    """A benchmark as it stands."""

    batch_id: str
    status: str
    task: str
    created_at: datetime
    finished_at: datetime | None
    runs: tuple[Run, ...]
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


def compare(read: Reader, run_id: str, now: datetime) -> Comparison:
    """Ask the store what a benchmark came to."""
    batch = read.batch(run_id, now)
    runs = runs_of(read, batch["runId"])
    by_model: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_model[run.model].append(run)
    models = sorted((_figures(name, mine) for name, mine in by_model.items()), key=_best_first)
    return Comparison(
        batch_id=batch["runId"],
        status=batch["status"],
        task=json.loads(batch["optionsJson"]).get("task") or ", ".join({run.task for run in runs}),
        created_at=moment(batch["createdAt"]) or now,
        finished_at=moment(batch["finishedAt"]),
        runs=tuple(runs),
        models=tuple(models),
        rankings=_rankings(models),
    )


def _figures(name: str, runs: Sequence[Run]) -> ModelFigures:
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


def _mean(runs: Sequence[Run], number: Callable[[Run], float | None]) -> Estimate:
    values = [value for run in runs if run.succeeded and (value := number(run)) is not None]
    return mean_of(values)


def _cost(runs: Sequence[Run]) -> float | None:
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
    by_samples: tuple[tuple[str, str, str, Callable[[Run], float | None]], ...] = (
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


def _samples(runs: Sequence[Run], number: Callable[[Run], float | None]) -> Samples:
    samples: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.succeeded and (value := number(run)) is not None:
            samples[run.task].append(value)
    return samples
