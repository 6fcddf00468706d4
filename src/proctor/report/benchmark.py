"""The comparison of a benchmark as one page: who succeeded, how fast, at what price, and how sure that is.

Knows nothing of stores or files; computes nothing.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup

from proctor.analyse.benchmark import Comparison, ModelFigures, Ranking
from proctor.analyse.ranking import Rank
from proctor.report.charts import Bar, Point, bars, scatter
from proctor.report.render import page
from proctor.report.words import UNKNOWN, interval, percent, seconds, short, usd

DRAWN_MODELS = 30
SAID: Mapping[str, Callable[[float | None], str]] = {"fastest": seconds, "best_value": usd}


def benchmark_html(comparison: Comparison, machine: Mapping[str, Any], now: datetime) -> str:
    """The page `comparison_report.html`: no script, nothing from outside."""
    plots = {
        "success": success_rates(comparison),
        "time": completion_times(comparison),
        "cost": cost_against_success(comparison),
    }
    return page(
        "benchmark.html.j2",
        c=comparison,
        now=now,
        total_seconds=comparison.total_seconds(now),
        machine=machine_words(machine),
        plots={name: Markup(plot) for name, plot in plots.items()},
        grid=grid_of(comparison),
        place=place_words,
        shares=shared_ranks,
        many_runs=max((len(model.runs) for model in comparison.models), default=0) > 1,
    )


def success_rates(comparison: Comparison) -> str:
    """Each model's success rate with its interval."""
    entries = [
        Bar(
            label=model.display_name,
            value=model.rate.value,
            low=model.rate.low,
            high=model.rate.high,
            note=_rate_words(model),
        )
        for model in comparison.models[:DRAWN_MODELS]
    ]
    return bars("Success rate by model, with 95 % intervals", entries, top=1.0, say=percent)


def _rate_words(model: ModelFigures) -> str:
    rate = model.rate
    return f"{rate.successes}/{rate.trials} ({interval(rate.low, rate.high)})" if rate.trials else UNKNOWN


def completion_times(comparison: Comparison) -> str:
    """How long each model's successful runs took; empty when none succeeded."""
    known = [model for model in comparison.models if model.work.value is not None]
    known.sort(key=lambda model: model.work.value or 0.0)
    entries = [
        Bar(
            label=model.display_name,
            value=model.work.value,
            low=None if model.work.low is None else max(0.0, model.work.low),
            high=model.work.high,
        )
        for model in known[:DRAWN_MODELS]
    ]
    title = "Mean completion time of successful runs, with 95 % intervals"
    return bars(title, entries, top=_reach(known), say=seconds) if entries else ""


def _reach(models: list[ModelFigures]) -> float:
    """As far as the means need; one interval of two runs would squeeze everything else."""
    longest = max(model.work.value or 0.0 for model in models)
    highest = max((model.work.high or 0.0 for model in models), default=0.0)
    return min(highest, 2.5 * longest) if highest > longest else longest * 1.05


def cost_against_success(comparison: Comparison) -> str:
    """What a run cost against how often it succeeded; empty unless two models know both."""
    points = [
        Point(
            label=model.display_name,
            x=model.cost_per_run_usd,
            y=model.rate.value,
            low=model.rate.low,
            high=model.rate.high,
        )
        for model in comparison.models
        if model.cost_per_run_usd is not None and model.rate.value is not None
    ]
    if len(points) < 2 or not any(point.x for point in points):
        return ""
    return scatter(
        "Mean cost of a run against success rate",
        points,
        x_axis="mean cost of a run",
        y_axis="success rate",
        say_x=usd,
        say_y=percent,
        y_top=1.0,
    )


def grid_of(comparison: Comparison) -> list[dict[str, Any]]:
    """Each task's row: how often each model succeeded at it, and what became of each criterion."""
    rows = []
    for task in comparison.tasks:
        cells, criteria = list[str](), dict[str, list[str]]()
        for model in comparison.models:
            mine = [run for run in model.runs if run.task == task and run.is_finished]
            judged = [run for run in mine if run.status != "error"]
            cells.append(f"{sum(run.succeeded for run in judged)}/{len(judged)}" if judged else UNKNOWN)
            for run in mine:
                for each in run.criteria:
                    criteria.setdefault(each.name, [])
        for name, row in criteria.items():
            row += [_criterion(model, task, name) for model in comparison.models]
        rows.append({"task": task, "cells": cells, "criteria": criteria})
    return rows


def _criterion(model: ModelFigures, task: str, name: str) -> str:
    made = [
        each.passed
        for run in model.runs
        if run.task == task
        for each in run.criteria
        if each.name == name and each.passed is not None
    ]
    return f"{sum(made)}/{len(made)}" if made else UNKNOWN


def place_words(ranking: Ranking, place: Rank) -> str:
    """A place's figure as people read it."""
    say = SAID.get(ranking.key, short)
    estimate = place.estimate
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return say(estimate.value)
    return f"{say(estimate.value)} ({say(max(0.0, estimate.low))} to {say(estimate.high)})"


def shared_ranks(ranking: Ranking) -> bool:
    """Whether any two cannot be told apart."""
    ranks = [place.rank for place in ranking.places]
    return len(set(ranks)) < len(ranks)


def machine_words(machine: Mapping[str, Any]) -> str:
    """The machine in a line."""
    system, processor = machine.get("system") or {}, machine.get("cpu") or {}
    memory = (machine.get("memory") or {}).get("total_gb")
    parts = [
        system.get("hostname"),
        f"{system.get('platform', '')} {system.get('release', '')}".strip(),
        processor.get("model"),
        f"{processor['logical_cores']} cores" if processor.get("logical_cores") else None,
        f"{memory:g} GB memory" if memory else None,
    ]
    card = (machine.get("gpu") or {}).get("nvidia") or {}
    return " · ".join(str(part) for part in [*parts, card.get("model")] if part)
