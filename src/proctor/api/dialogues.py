"""The Python interface to simulations: `BatchConfig`, `run_batch`, `aggregate_results`.

config = BatchConfig(clients=["patientPsi"], therapists=["CBT"], num_runs=5, seed=42)
results = run_batch(config)
summary = aggregate_results(results, config.output_dir)
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from proctor.api import outside_of_any_loop
from proctor.batch import lifecycle
from proctor.bootstrap import now, open_context
from proctor.jobs.dialogue.files import SUMMARY, write_json
from proctor.jobs.dialogue.job import JOB, DialogueOverrides, default_output
from proctor.jobs.dialogue.tables import each_session
from proctor.json_values import JsonMap, JsonObject
from proctor.stats.dialogue import run_of_result, summary_of


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

    def overrides(self) -> DialogueOverrides:
        """The simulation as overrides of an empty config."""
        names = [each.name for each in fields(self) if each.name not in ("resume", "home")]
        return DialogueOverrides(**{name: getattr(self, name) for name in names})


def run_batch(config: BatchConfig) -> list[JsonObject]:
    """Run every dialogue of a config; the contents of their files, failed ones included.

    Works inside a running event loop too, and leaves signals to the program.
    """
    outside_of_any_loop(lambda: _run(config))
    results = each_session(Path(config.output_dir), failed=True)
    return [{**result, "status": result.get("status", "success")} for result in results]


def aggregate_results(results: Iterable[JsonMap], output_dir: str | Path) -> JsonObject:
    """Summarize results; the summary is also written to `batch_summary.json` in the folder."""
    summary = summary_of(map(run_of_result, results))
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
        plan = JOB.read_overrides(config.overrides(), ctx, caller="BatchConfig")
        if config.resume:
            await lifecycle.resume(JOB, lifecycle.find_earlier(JOB, plan, ctx), ctx, plan=plan)
        else:
            await lifecycle.start(JOB, plan, ctx)
