"""The files of a benchmark: one a model, the comparison as JSON and CSV, what the machine was.

Field and column names are the documented ones, in their order; ours stand behind them. Every file
appears whole or not at all, so that whoever reads them meanwhile never sees half of one.

Knows nothing of the store, statistics or pages.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.export.tables import write_csv
from proctor.item import ERROR, FAIL, SUCCESS, TIMEOUT
from proctor.jobs.benchmark.results_import import RESULT
from proctor.stats.intervals import Estimate, Rate
from proctor.stats.leaderboard import BenchmarkRun, Leaderboard, ModelFigures, Ranking

FORMAT = 1


COLUMNS = (
    *("model", "task", "success", "completion_time", "prompts_sent", "human_interventions"),
    *("files_modified", "lines_added", "lines_removed", "timestamp"),
    *("run", "status", "reason", "error", "display_name", "asked", "agent", "wall_time", "tool_calls"),
    *("prompt_tokens", "completion_tokens", "total_tokens", "cost_usd", "checks_passed", "checks"),
    *("unchecked", "stand_in", "attempts", "item_id", "session_id"),
)


HEADLESS = (
    "Runs are headless: human_interventions counts the times an agent stopped to ask a permission or a "
    "question; nobody answered."
)


def result_files(models: Sequence[str]) -> dict[str, str]:
    """The name of each model's file; those that would be the same are numbered, the first is not."""
    names: dict[str, str] = {}
    taken = set[str]()
    for model in dict.fromkeys(models):
        stem = re.sub(r"[^A-Za-z0-9._@+-]", "_", model).lstrip(".")[:150] or "model"
        name, number = stem, 1
        # Some file systems take capital and small letters for the same.
        while name.lower() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.lower())
        names[model] = name + RESULT
    return names


def write_result(folder: Path, name: str, comparison: Leaderboard, figures: ModelFigures) -> Path:
    """Write what is known of one model, as soon as any of its runs has ended."""
    return write_file(folder / name, as_json(result_of(comparison, figures)))


def write_comparison(
    folder: Path, comparison: Leaderboard, machine: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Write comparison_report.json and .csv; the document they hold."""
    document = document_of(comparison, machine, now)
    write_file(folder / "comparison_report.json", as_json(document))
    making = folder / ".comparison_report.csv.making"
    try:
        write_csv(
            making, COLUMNS, ({name: _cell(row, name) for name in COLUMNS} for row in document["results"])
        )
        making.replace(folder / "comparison_report.csv")
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return document


def write_file(path: Path, text: str) -> Path:
    """Write a text so that its file is whole or not there; the folder is made if need be."""
    making = path.with_name(f".{path.name}.making")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with making.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return making.replace(path)
    except OSError as error:
        raise _cannot_write(path.parent, error) from error


def _cannot_write(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write to {folder}: {error.strerror or error}\nGive another folder with --output."
    )


def as_json(document: Any) -> str:
    """A document as the text of a file."""
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def document_of(comparison: Leaderboard, machine: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The whole comparison, for programs."""
    statuses = [run.status for run in comparison.runs]
    ended = [run for run in comparison.runs if run.is_finished]
    return {
        "batch_id": comparison.batch_id,
        "task": comparison.task,
        "timestamp": now.isoformat(),
        "total_time": round(comparison.total_seconds(now), 3),
        "models_tested": len({run.model for run in ended}),
        "successful": statuses.count(SUCCESS),
        "failed": statuses.count(FAIL) + statuses.count(TIMEOUT),
        "machine_info": dict(machine),
        "results": [run_of(run) for run in ended],
        "rankings": {ranking.key: ranking.first for ranking in comparison.rankings},
        "summary_stats": comparison.summary_stats(),
        "format": FORMAT,
        "status": comparison.status,
        "tasks": list(comparison.tasks),
        "errors": statuses.count(ERROR),
        "unfinished": len(comparison.runs) - len(ended),
        "ranks": {ranking.key: _ranks(ranking) for ranking in comparison.rankings},
        "models": [_model(figures) for figures in comparison.models],
        "notes": [HEADLESS, *_stand_ins(comparison)],
    }


def result_of(comparison: Leaderboard, figures: ModelFigures) -> dict[str, Any]:
    """One model's results: the documented fields are its run, or what its runs come to together."""
    ended = [run for run in figures.runs if run.is_finished]
    whole = run_of(ended[0]) if len(ended) == 1 else _together(comparison, figures, ended)
    return {
        **whole,
        "format": FORMAT,
        "batch_id": comparison.batch_id,
        "success_rate": _rate(figures.rate),
        "runs_planned": len(figures.runs),
        "notes": [HEADLESS],
        "runs": [run_of(run) for run in ended],
    }


def _together(
    comparison: Leaderboard, figures: ModelFigures, ended: Sequence[BenchmarkRun]
) -> dict[str, Any]:
    """Several runs as one: it succeeded when all did, and its figures are means over those that did."""
    broken = [run for run in ended if not run.succeeded]
    return {
        "model": figures.name,
        "task": comparison.task,
        "success": bool(ended) and not broken,
        "error": broken[0].error if broken else None,
        "completion_time": figures.work.value,
        "prompts_sent": figures.prompts.value,
        "human_interventions": figures.interventions.value,
        "files_modified": figures.files.value,
        "lines_added": figures.lines_added.value,
        "lines_removed": figures.lines_removed.value,
        "timestamp": max((run.finished_at for run in ended), default=""),
        "display_name": figures.display_name,
        "total_tokens": figures.tokens,
        "cost_usd": figures.cost_usd,
    }


def run_of(run: BenchmarkRun) -> dict[str, Any]:
    """One run with the documented fields first."""
    return {
        "model": run.model,
        "task": run.task,
        "success": run.succeeded,
        "error": run.error or None,
        "completion_time": _rounded(run.work_seconds),
        "prompts_sent": run.model_calls,
        "human_interventions": run.interventions,
        "files_modified": run.files,
        "lines_added": run.lines_added,
        "lines_removed": run.lines_removed,
        "timestamp": run.finished_at,
        "display_name": run.display_name,
        "asked": run.asked,
        "agent": run.agent,
        "run": run.number,
        "status": run.status,
        "reason": run.reason,
        "wall_time": _rounded(run.wall_seconds),
        "tool_calls": run.tool_calls,
        "prompt_tokens": run.prompt_tokens,
        "completion_tokens": run.completion_tokens,
        "total_tokens": run.total_tokens,
        "cost_usd": run.cost_usd,
        "unpriced_calls": run.unpriced_calls,
        "attempts": run.attempts,
        "unchecked": run.is_unchecked,
        "stand_in": run.is_stand_in,
        "criteria": [
            {"criterion": each.name, "passed": each.passed, "explanation": each.explanation}
            for each in run.criteria
        ],
        "item_id": run.item_id,
        "session_id": run.session_id,
    }


def _model(figures: ModelFigures) -> dict[str, Any]:
    return {
        "model": figures.name,
        "display_name": figures.display_name,
        "counts": dict(figures.counts),
        "success_rate": _rate(figures.rate),
        "success_rate_with_errors": _rate(figures.rate_with_errors),
        "completion_time": _estimate(figures.work),
        "wall_time": _estimate(figures.wall),
        "prompts_sent": _estimate(figures.prompts),
        "human_interventions": _estimate(figures.interventions),
        "files_modified": _estimate(figures.files),
        "lines_added": _estimate(figures.lines_added),
        "lines_removed": _estimate(figures.lines_removed),
        "tool_calls": _estimate(figures.tool_calls),
        "total_tokens": figures.tokens,
        "cost_usd": figures.cost_usd,
        "cost_per_success": _estimate(figures.cost_per_success),
    }


def _ranks(ranking: Ranking) -> list[dict[str, Any]]:
    return [
        {"model": place.name, "rank": place.rank, "worst_rank": place.worst_rank, **_estimate(place.estimate)}
        for place in ranking.places
    ]


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}


def _rate(rate: Rate) -> dict[str, Any]:
    return {"value": rate.value, "low": rate.low, "high": rate.high, "n": rate.trials}


def _stand_ins(comparison: Leaderboard) -> list[str]:
    names = dict.fromkeys(run.model for run in comparison.runs if run.is_stand_in)
    return [f"{name} is a stand-in: its figures say nothing about a real model." for name in names]


def _cell(row: Mapping[str, Any], name: str) -> Any:
    made = [each for each in row["criteria"] if each["passed"] is not None]
    if name == "checks":
        return len(made)
    if name == "checks_passed":
        return sum(each["passed"] for each in made)
    return row[name]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
