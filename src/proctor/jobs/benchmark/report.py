"""The comparison of a benchmark as an HTML page, and facts about the machine."""

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from markupsafe import Markup

from proctor.formatting import UNKNOWN, interval, percent, seconds, short, usd
from proctor.jobs.benchmark.leaderboard import Leaderboard, ModelFigures, Ranking
from proctor.json_values import JsonMap, JsonObject, as_map, as_number
from proctor.report.charts import Bar, Point, bars, scatter
from proctor.report.render import page
from proctor.stats.ranking import Rank, undominated

PATIENCE_SECONDS = 5
LISTED_MODELS = 10
GB = 1024**3


def machine_info(now: datetime, folder: Path, ollama_models: Sequence[str] | None = None) -> JsonObject:
    """System, processor, memory, disk of `folder`, graphics card and what a running Ollama has."""
    return {
        "timestamp": now.isoformat(),
        "system": {
            "platform": platform.system(),
            "release": platform.release(),
            "version": platform.version(),
            "architecture": platform.machine(),
            "hostname": socket.gethostname(),
            "python_version": platform.python_version(),
        },
        "cpu": _processor(),
        "memory": _memory(),
        "disk": _disk(folder),
        "gpu": _graphics(),
        "ollama": _ollama(ollama_models),
    }


def _processor() -> JsonObject:
    facts = _facts(Path("/proc/cpuinfo"))
    cores = {
        (package, core)
        for package, core in zip(facts.get("physical id", []), facts.get("core id", []), strict=False)
    }
    return {
        "physical_cores": len(cores) or None,
        "logical_cores": os.cpu_count(),
        "frequency": _number(next(iter(facts.get("cpu MHz", [])), "")),
        "model": next(iter(facts.get("model name", [])), "") or platform.processor() or None,
    }


def _memory() -> JsonObject:
    facts = _facts(Path("/proc/meminfo"))
    sizes = {name: _number(values[0].partition(" ")[0]) for name, values in facts.items()}

    def gigabytes(name: str) -> float | None:
        kilobytes = sizes.get(name)
        return None if kilobytes is None else round(kilobytes * 1024 / GB, 2)

    return {"total_gb": gigabytes("MemTotal"), "available_gb": gigabytes("MemAvailable")}


def _disk(folder: Path) -> JsonObject | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return {"total_gb": round(usage.total / GB, 2), "free_gb": round(usage.free / GB, 2)}


def _graphics() -> JsonObject | None:
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return {"apple_silicon": True}
    arguments = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    listed = _printed("nvidia-smi", *arguments).splitlines()
    parts = [part.strip() for part in listed[0].split(",")] if listed else []
    if len(parts) != 3:
        return None
    return {"nvidia": {"model": parts[0], "memory_mb": _number(parts[1]), "driver": parts[2]}}


def _ollama(models: Sequence[str] | None) -> JsonObject | None:
    if models is None:
        return None
    version = _printed("ollama", "--version").strip().rpartition(" ")[2] or None
    return {"version": version, "models_count": len(models), "models": list(models)[:LISTED_MODELS]}


def _printed(program: str, *arguments: str) -> str:
    if not shutil.which(program):
        return ""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _facts(file: Path) -> dict[str, list[str]]:
    """`name : value` lines, every value of a name in order."""
    groups: dict[str, list[str]] = {}
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            groups.setdefault(name.strip(), []).append(value.strip())
    return groups


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


DRAWN_MODELS = 30
SAID: Mapping[str, Callable[[float | None], str]] = {
    "most_successful": percent,
    "fastest": seconds,
    "best_value": usd,
}


def benchmark_html(comparison: Leaderboard, machine: JsonMap, now: datetime) -> str:
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
        machine=machine_text(machine),
        plots={name: Markup(plot) for name, plot in plots.items()},
        grid=grid_of(comparison),
        place=rank_text,
        undecided=is_undecided,
        many_runs=max((len(model.runs) for model in comparison.models), default=0) > 1,
    )


def success_rates(comparison: Leaderboard) -> str:
    """Plot of the success rates with CIs."""
    entries = [
        Bar(
            label=model.display_name,
            value=model.rate.value,
            low=model.rate.low,
            high=model.rate.high,
            note=_rate_text(model),
        )
        for model in comparison.models[:DRAWN_MODELS]
    ]
    return bars("Success rate by model, with 95 % intervals", entries, top=1.0, say=percent)


def _rate_text(model: ModelFigures) -> str:
    rate = model.rate
    passed = sum(run.succeeded for run in model.runs)
    return f"{passed}/{rate.runs} ({interval(rate.low, rate.high)})" if rate.runs else UNKNOWN


def completion_times(comparison: Leaderboard) -> str:
    """Plot of the durations of successful runs by model; empty: none succeeded."""
    known = [model for model in comparison.models if model.work.value is not None]
    known.sort(key=lambda model: model.work.value or 0.0)
    entries = [
        Bar(
            label=model.display_name,
            value=model.work.value,
            low=model.work.low,
            high=model.work.high,
        )
        for model in known[:DRAWN_MODELS]
    ]
    title = "Mean completion time of successful runs, with 95 % intervals"
    return bars(title, entries, top=_reach(known), say=seconds) if entries else ""


def _reach(models: list[ModelFigures]) -> float:
    """Upper end of the axis, by the means: one wide interval would squeeze everything else."""
    longest = max(model.work.value or 0.0 for model in models)
    highest = max((model.work.high or 0.0 for model in models), default=0.0)
    return min(highest, 2.5 * longest) if highest > longest else longest * 1.05


def cost_against_success(comparison: Leaderboard) -> str:
    """Plot of cost per run against success rate; empty unless two models have both.

    Models that none beats in success, cost and time together are marked.
    """
    front = _front(comparison.models)
    points = [
        Point(
            label=model.display_name,
            x=model.cost_per_run_usd,
            y=model.rate.value,
            low=model.rate.low,
            high=model.rate.high,
            is_marked=model.name in front,
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


def _front(models: Sequence[ModelFigures]) -> tuple[str, ...]:
    """The Pareto front of success, cost of a run and typical time of the models that know all three."""
    keys = dict[str, tuple[float, float, float]]()
    for model in models:
        rate, cost, time = model.rate.value, model.cost_per_run_usd, model.typical_work.value
        if rate is not None and cost is not None and time is not None:
            keys[model.name] = (-rate, cost, time)
    return undominated(keys)


def grid_of(comparison: Leaderboard) -> list[JsonObject]:
    """One row per task: successes of each model, and of each criterion."""
    rows = list[JsonObject]()
    for task in comparison.tasks:
        cells, criteria = list[str](), dict[str, list[str]]()
        for model in comparison.models:
            mine = [run for run in model.runs if run.task == task and run.is_finished]
            judged = [run for run in mine if run.is_judged]
            cells.append(f"{sum(run.succeeded for run in judged)}/{len(judged)}" if judged else UNKNOWN)
            for run in mine:
                for result in run.criteria:
                    criteria.setdefault(result.criterion, [])
        for name, row in criteria.items():
            row += [_criterion(model, task, name) for model in comparison.models]
        rows.append({"task": task, "cells": cells, "criteria": criteria})
    return rows


def _criterion(model: ModelFigures, task: str, name: str) -> str:
    rows = [
        result.passed
        for run in model.runs
        if run.task == task
        for result in run.criteria
        if result.criterion == name and result.passed is not None
    ]
    return f"{sum(rows)}/{len(rows)}" if rows else UNKNOWN


def rank_text(ranking: Ranking, rank: Rank) -> str:
    """The figure of a rank as text."""
    say = SAID.get(ranking.key, short)
    if rank.low is None:
        return say(rank.value)
    if rank.high is None:
        return f"{say(rank.value)} (from {say(rank.low)}, no upper limit)"
    return f"{say(rank.value)} ({say(rank.low)} to {say(rank.high)})"


def is_undecided(ranking: Ranking) -> bool:
    """Whether some models are tied."""
    return any(place.rank_low < place.rank_high for place in ranking.places)


def machine_text(machine: JsonMap) -> str:
    """The machine in one line."""
    system, processor = as_map(machine, "system"), as_map(machine, "cpu")
    memory = as_number(as_map(machine, "memory").get("total_gb"))
    parts = [
        system.get("hostname"),
        f"{system.get('platform', '')} {system.get('release', '')}".strip(),
        processor.get("model"),
        f"{processor['logical_cores']} cores" if processor.get("logical_cores") else None,
        f"{memory:g} GB memory" if memory else None,
    ]
    card = as_map(machine, "gpu", "nvidia").get("model")
    return " · ".join(str(part) for part in [*parts, card] if part)
