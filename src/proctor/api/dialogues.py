"""Simulations: read one, write its tables, and `BatchConfig`, `run_batch`, `aggregate_results` for Python.

config = BatchConfig(clients=["patientPsi"], therapists=["CBT"], num_runs=5, seed=42)
results = run_batch(config)
summary = aggregate_results(results, config.output_dir)
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from statistics import stdev
from typing import Any

from proctor.api.runs import ReadPlan, outside_of_any_loop, read_plan, start
from proctor.bootstrap import now, open_context
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.job import PlanText
from proctor.jobs.dialogue.files import SUMMARY, write_json
from proctor.jobs.dialogue.job import JOB, default_output
from proctor.jobs.dialogue.results import DESIGN, measures, summary_of
from proctor.jobs.dialogue.schema import DEFAULTS, DialogueOverrides
from proctor.jobs.dialogue.tables import (
    Skipped,
    each_session,
    session_row,
    write_session_csv,
    write_turn_csv,
)
from proctor.json_values import JsonMap, JsonObject
from proctor.stats.crossing import measure_estimate


@dataclass(kw_only=True)
class BatchConfig(DialogueOverrides):
    """A simulation. Fields are named as in a config file; None: the default of the config."""

    output_dir: str = field(default_factory=lambda: default_output(now()))
    resume: bool = False
    """Resume the simulation in `output_dir`."""
    home: str | None = None
    """Home folder; None: as for the commands."""

    def __post_init__(self) -> None:
        for name, default in DEFAULTS.items():
            if getattr(self, name) is None:
                setattr(self, name, deepcopy(default))


def run_batch(config: BatchConfig) -> list[JsonObject]:
    """Run every dialogue of a config; the contents of their files, failed ones included.

    Works inside a running event loop too, and leaves signals to the program.
    """
    outside_of_any_loop(lambda: _run(config))
    results = each_session(Path(config.output_dir), failed=True)
    return [{**result, "status": result.get("status", "success")} for result in results]


def aggregate_results(results: Iterable[JsonMap], output_dir: str | Path) -> JsonObject:
    """Summarize results; the summary is also written to `batch_summary.json` in the folder."""
    summary = summary_of(results)
    path = Path(output_dir) / SUMMARY
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        earlier: JsonObject = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = {}
    summary = {**summary, **{name: value for name, value in earlier.items() if name not in summary}}
    write_json(path, summary)
    return summary


async def _run(config: BatchConfig) -> None:
    with open_context([Path.cwd()], home=config.home or "") as ctx:
        await start(ctx, _without_config(ctx, config, resume=config.resume, caller="BatchConfig"))


def read_simulation(
    ctx: RunContext,
    config: PlanText | None,
    overrides: Mapping[str, object],
    *,
    resume: bool = False,
) -> ReadPlan:
    """Read a simulation from its config, or from overrides alone; with `resume`, with its earlier run."""
    if config is not None:
        return read_plan(ctx, config, job=JOB.name, overrides=overrides, resume="" if resume else None)
    return _without_config(ctx, DialogueOverrides(**overrides), resume=resume)  # type: ignore[arg-type]


def _without_config(
    ctx: RunContext, overrides: DialogueOverrides, *, resume: bool, caller: str = ""
) -> ReadPlan:
    plan = JOB.read_overrides(overrides, ctx, caller=caller)
    return ReadPlan(job=JOB, plan=plan, earlier=JOB.earlier(plan, ctx) if resume else "")


LEVELS = ("session", "turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueTable:
    """A table of dialogues that was written."""

    rows: int
    skipped: Mapping[str, str]
    """Why files could not be read, by path."""
    statistics: Sequence[JsonObject] = ()
    """Mean, deviation, range and interval of each numeric column of sessions."""


def write_table(
    folder: Path, output: Path, *, level: str = "session", statistics: bool = False
) -> DialogueTable:
    """Write the dialogues of a folder as a CSV file, with a row for each `session` or `turn`."""
    if level not in LEVELS:
        raise UsageError(f"there is no level `{level}`\nThere are: {', '.join(LEVELS)}.")
    skipped = Skipped()
    if level == "turn":
        written, rows = write_turn_csv(folder, output, skipped), None
    else:
        rows = write_session_csv(folder, output, skipped)
        written = len(rows)
    figures: list[JsonObject] = []
    if statistics:
        if rows is None:
            rows = [session_row(session) for session in each_session(folder, skipped=skipped)]
        figures = [_statistics(rows, name) for name in measures(rows)]
    return DialogueTable(rows=written, skipped=skipped.files, statistics=figures)


def _statistics(rows: Sequence[Mapping[str, Any]], name: str) -> JsonObject:
    values = [row[name] for row in rows if row.get(name) is not None]
    estimate = measure_estimate(rows, name, DESIGN.unit)
    return {
        "column": name,
        "n": estimate.n,
        "mean": estimate.value,
        "std": stdev(values) if len(values) > 1 else None,
        "min": min(values),
        "max": max(values),
        "low": estimate.low,
        "high": estimate.high,
    }
