"""Jobs that do not implement `Job` yet, started as `proctor` commands. Deleted once they do."""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.item import Item
from proctor.job import Job, JobPlan, PlanText, top_level_keys
from proctor.jobs.benchmark.tasks import Header, read_task
from proctor.jobs.dialogue.plan import read_simulation
from proctor.jobs.dialogue.roles import Roles
from proctor.jobs.dialogue.schema import CONFIG_KEYS, SimulationFile
from proctor.jobs.evaluation.request import CONCURRENCY, EvaluationPlan, read_evaluation
from proctor.jobs.scenario.experiment import ExperimentOverrides, read_experiment
from proctor.jobs.scenario.schema import ExperimentConfig
from proctor.plan.validate import names_of

_TASK = re.compile(r"^#\s*Task\b|\A---\s*$[\s\S]*?^---\s*$\s*^#\s", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class _Plan(JobPlan):
    count: int | None = None
    make_items: Callable[[], Iterable[Item]] = tuple
    parallel: int = 1

    @property
    def item_count(self) -> int | None:
        return self.count

    @property
    def concurrency(self) -> int:
        return self.parallel

    def items(self) -> Iterator[Item]:
        return iter(self.make_items())


class CommandJob(Job):
    """A job that is validated and started by its command."""

    command: ClassVar[tuple[str, ...]]
    """Words of the command; the plan file follows."""
    flags: ClassVar[Mapping[str, str]]
    """The option of each override."""
    has_folder: ClassVar[bool] = False
    """Whether the command takes the base folder of relative paths."""
    needs_plan_file: ClassVar[bool] = True
    """Whether a resume reads the plan's file again."""
    keys: ClassVar[frozenset[str]] = frozenset()
    model: ClassVar[Any]

    def recognizes(self, text: str) -> int:
        return len(self.keys & top_level_keys(text))

    def schema(self) -> Mapping[str, object]:
        return dict(self.model.model_json_schema())

    def words(self, path: Path, folder: Path, overrides: Any) -> list[str]:
        """The command line that runs the plan in a file."""
        values = {each.name: getattr(overrides, each.name) for each in fields(overrides)}
        options = [f"--{self.flags[name]}={value}" for name, value in values.items() if value is not None]
        return [*self.command, str(path), *options, *([f"--folder={folder}"] if self.has_folder else [])]


@dataclass(frozen=True, kw_only=True)
class _ScenarioOverrides:
    concurrency: int | None = None
    budget: float | None = None


class _Scenario(CommandJob):
    name = "scenario"
    title = "Scenario experiment"
    overrides = _ScenarioOverrides
    command = ("experiment", "--human=web")
    flags: ClassVar = {"concurrency": "max-parallel", "budget": "budget"}
    keys = frozenset(ExperimentConfig.model_fields)
    model = ExperimentConfig

    def read(self, source: PlanText, overrides: _ScenarioOverrides, ctx: RunContext) -> JobPlan:
        limits = ExperimentOverrides(
            max_parallel=overrides.concurrency, budget_usd=overrides.budget, human="web"
        )
        path = ctx.home / "serve" / "plans" / "config.yaml"
        plan = read_experiment(str(source.text), path=path, working_folder=source.folder, limits=limits)
        return _Plan(count=plan.run_count, make_items=plan.items, parallel=plan.max_parallel)


@dataclass(frozen=True, kw_only=True)
class _DialogueOverrides:
    concurrency: int | None = None
    model: str | None = None
    budget: float | None = None
    runs: int | None = None
    seed: int | None = None


class _Dialogue(CommandJob):
    name = "dialogue"
    title = "Dialogues"
    overrides = _DialogueOverrides
    command = ("simulate", "--config")
    flags: ClassVar = {
        "concurrency": "max-workers",
        "model": "model",
        "budget": "budget",
        "runs": "num-runs",
        "seed": "seed",
    }
    has_folder = True
    keys = frozenset(CONFIG_KEYS)
    model = SimulationFile

    def read(self, source: PlanText, overrides: _DialogueOverrides, ctx: RunContext) -> JobPlan:
        values = {
            "max_workers": overrides.concurrency,
            "num_runs": overrides.runs,
            "budget_limit": overrides.budget,
            "seed": overrides.seed,
        }
        settings: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if overrides.model:
            settings |= {"model_name": overrides.model, "model_type": ""}
        roles = Roles([source.folder / "roles", ctx.home / "roles"])
        plan = read_simulation(str(source.text), settings, file="config", folder=source.folder, roles=roles)
        return _Plan(
            count=plan.item_count, make_items=lambda: plan.items(""), parallel=plan.config["max_workers"]
        )


@dataclass(frozen=True, kw_only=True)
class _BenchmarkOverrides:
    models: str | None = None
    concurrency: int | None = None
    agent: str | None = None
    timeout_sec: float | None = None
    runs: int | None = None


class _Benchmark(CommandJob):
    name = "benchmark"
    title = "Benchmark task"
    plan_suffix = ".md"
    overrides = _BenchmarkOverrides
    command = ("bench", "--task")
    flags: ClassVar = {
        "models": "models",
        "concurrency": "parallel",
        "agent": "agent",
        "timeout_sec": "timeout",
        "runs": "runs",
    }
    model = Header

    def recognizes(self, text: str) -> int:
        return 1000 if _TASK.search(text) else 0

    def read(self, source: PlanText, overrides: _BenchmarkOverrides, ctx: RunContext) -> JobPlan:  # noqa: ARG002
        with tempfile.TemporaryDirectory(prefix="proctor-task-") as folder:
            file = Path(folder) / "task.md"
            file.write_text(str(source.text), encoding="utf-8", errors="replace")
            read_task(file)
        return _Plan(parallel=overrides.concurrency or 1)


@dataclass(frozen=True, kw_only=True)
class _EvaluationOverrides:
    concurrency: int | None = None
    timeout_sec: float | None = None
    retries: int | None = None
    budget: float | None = None


class _Evaluation(CommandJob):
    name = "evaluation"
    title = "Evaluation of sessions"
    overrides = _EvaluationOverrides
    command = ("evaluate", "start")
    needs_plan_file = False
    flags: ClassVar = {
        "concurrency": "concurrency",
        "timeout_sec": "timeout",
        "retries": "retries",
        "budget": "budget",
    }
    keys = frozenset(names_of(EvaluationPlan))
    model = EvaluationPlan

    def read(self, source: PlanText, overrides: _EvaluationOverrides, ctx: RunContext) -> JobPlan:  # noqa: ARG002
        plan = read_evaluation(str(source.text), file="plan")
        files = (plan.get("dataSourceConfig") or {}).get("files") or {}
        truth = plan.get("groundTruth") or []
        for path in (*files.get("paths", ()), *([truth] if isinstance(truth, str) else truth)):
            if not Path(path).expanduser().is_absolute():
                raise UsageError(
                    f"{path} is a relative path, and a typed plan has no folder\n"
                    "Write the absolute path, or start the file with `proctor evaluate start`."
                )
        return _Plan(parallel=overrides.concurrency or plan.get("concurrency") or CONCURRENCY)


COMMAND_JOBS: Mapping[str, CommandJob] = {
    job.name: job for job in (_Benchmark(), _Dialogue(), _Evaluation(), _Scenario())
}
