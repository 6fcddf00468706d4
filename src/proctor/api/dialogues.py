"""Simulations: read one, write its tables, and `BatchConfig`, `run_batch`, `aggregate_results` for Python.

config = BatchConfig(clients=["patientPsi"], therapists=["CBT"], num_runs=5, seed=42)
results = run_batch(config)
summary = aggregate_results(results, config.output_dir)
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import stdev
from typing import Any

from proctor.api.runs import ReadPlan, outside_of_any_loop, read_plan, start
from proctor.bootstrap import now, open_context
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.job import PlanText
from proctor.jobs.dialogue.files import SUMMARY, write_json
from proctor.jobs.dialogue.job import JOB, DialogueOverrides, default_output
from proctor.jobs.dialogue.results import DESIGN, measures, summary_of
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
class BatchConfig:
    """A simulation. Fields are named as in a config file; None: the default of the config."""

    clients: Sequence[object] = ("patientPsi",)
    therapists: Sequence[object] = ("CBT",)
    num_runs: int = 5
    max_turns: int = 20
    max_workers: int = 4
    output_dir: str = field(default_factory=lambda: default_output(now()))
    seed: int | None = None
    model_type: str | None = None
    model_name: str | Sequence[str] | None = None
    temperature: float | Sequence[float] | None = None
    max_tokens: int | None = None
    client_model: str | Sequence[str] | None = None
    therapist_model: str | Sequence[str] | None = None
    judge_model: str | None = None
    lang: str = "en"
    language: str | None = None
    opens: str | None = None
    under_test: str = "therapist"
    reminder_turns: int = 2
    loop_turns: int = 3
    timeout_sec: float | None = None
    retries: int = 0
    budget_limit: float | None = None
    cost_per_run_limit: float | None = None
    prices: Mapping[str, Mapping[str, float]] | None = None
    evaluators: Sequence[object] | None = None
    world: str | Mapping[str, object] | None = None
    tasks: str | Sequence[Mapping[str, object]] | None = None
    attribution_model: str | None = None
    human: str | None = None
    pairs: Sequence[Sequence[str]] | None = None
    record: str | None = None
    replay: str | None = None
    resume: bool = False
    """Resume the simulation in `output_dir`."""
    home: str | None = None
    """Home folder; None: as for the commands."""

    def overrides(self) -> JsonObject:
        """The simulation as overrides of an empty config."""
        names = [each.name for each in fields(self) if each.name not in ("resume", "home")]
        return {name: getattr(self, name) for name in names}


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
        read = read_simulation(ctx, None, config.overrides(), resume=config.resume, caller="BatchConfig")
        await start(ctx, read)


def read_simulation(
    ctx: RunContext,
    config: PlanText | None,
    overrides: Mapping[str, object],
    *,
    resume: bool = False,
    caller: str = "",
) -> ReadPlan:
    """Read a simulation from its config, or from overrides alone; with `resume`, with its earlier run.

    `caller` is the class or function of Python whose arguments the overrides are; empty: flags.
    """
    if config is not None:
        return read_plan(ctx, config, job=JOB.name, overrides=overrides, resume="" if resume else None)
    plan = JOB.read_overrides(DialogueOverrides(**overrides), ctx, caller=caller)  # type: ignore[arg-type]
    return ReadPlan(job=JOB, plan=plan, earlier=JOB.earlier(plan, ctx) or "" if resume else "")


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
