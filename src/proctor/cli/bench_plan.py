"""What a benchmark's command line comes to: tasks read, models found and chosen, all of it looked at.

Whatever is wrong is found here, before anything starts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proctor.agents import find_agent
from proctor.batch.preflight import PreflightContext
from proctor.bootstrap import StorePlaces, environment
from proctor.cli.bench_models import ModelSupply, models_of, read_supply, with_found
from proctor.errors import UsageError
from proctor.jobs.benchmark.models import ModelSelection, choose
from proctor.jobs.benchmark.plan import NOOP, ORACLE, BenchmarkDefinition, stand_in
from proctor.jobs.benchmark.preflight import commits_of, look
from proctor.jobs.benchmark.tasks import read_tasks
from proctor.models import ModelRouter

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What the command line says; what it leaves open is empty or None."""

    task: Path | None = None
    models: str = ""
    output: Path | None = None
    parallel: str = "1"
    timeout: float | None = None
    runs: int | None = None
    budget: float | None = None
    """USD that all of it may spend."""
    record: Path | None = None
    replay: Path | None = None
    agent: str = ""
    models_config: Path | None = None
    oracle: bool = False
    noop: bool = False
    as_json: bool = False

    def settled(self, options: Mapping[str, Any]) -> "BenchOptions":
        """With what an earlier start of the same benchmark said, where this one says nothing."""
        kept = options.get("asked") or {}
        return replace(
            self,
            task=self.task or (Path(options["taskPath"]) if options.get("taskPath") else None),
            models=self.models or ("" if self.oracle or self.noop else kept.get("models") or ""),
            timeout=self.timeout or kept.get("timeout"),
            runs=self.runs or kept.get("runs"),
            budget=kept.get("budget") if self.budget is None else self.budget,
            record=None if self.replay else self.record or _path(kept.get("record")),
            replay=None if self.record else self.replay or _path(kept.get("replay")),
            agent=self.agent or kept.get("agent") or "",
            models_config=self.models_config or _existing(options.get("modelsConfig")),
            oracle=self.oracle or (not self.models and bool(kept.get("oracle"))),
            noop=self.noop or (not self.models and bool(kept.get("noop"))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What is going to be run, looked at from all sides."""

    asked: BenchOptions
    benchmark: BenchmarkDefinition
    supply: ModelSupply
    models: ModelRouter
    concurrency: int
    remarks: tuple[str, ...]

    def options(self, output: Path) -> dict[str, Any]:
        """What going on needs to know."""
        asked, config = self.asked, self.supply.config_path
        return {
            "task": self.benchmark.label,
            "taskPath": str(asked.task.absolute()) if asked.task else "",
            "modelsConfig": str(config.absolute()) if config else "",
            "output": str(output.absolute()),
            "asked": {
                "models": ",".join(model.name for model in self.benchmark.models)
                if not (asked.oracle or asked.noop)
                else "",
                "runs": self.benchmark.runs,
                "agent": asked.agent,
                "timeout": asked.timeout,
                "budget": asked.budget,
                "record": str(asked.record.absolute()) if asked.record else None,
                "replay": str(asked.replay.absolute()) if asked.replay else None,
                "oracle": asked.oracle,
                "noop": asked.noop,
            },
        }

    def about(self, run_id: str, output: Path) -> dict[str, Any]:
        """The same for the folder, which may be moved to another machine."""
        return {"batch_id": run_id, "format": 1, **self.options(output)}


def make_plan(asked: BenchOptions, where: StorePlaces) -> BenchPlan:
    """Read, look and choose; whatever is wrong is found here, before anything starts."""
    if asked.task is None:
        raise UsageError("no task is given\nGive one:  proctor bench --task benchmark/tasks/easy/fix_typo.md")
    tasks = tuple(read_tasks(asked.task))
    folders = _folders(asked.task)
    supply = read_supply(where, folders, asked.models_config)
    stand_ins = [stand_in(name) for name, wanted in ((ORACLE, asked.oracle), (NOOP, asked.noop)) if wanted]
    chosen = ModelSelection(models=tuple(stand_ins))
    models = models_of(supply, where, folders, record=asked.record, replay=asked.replay)
    if asked.models or not stand_ins:
        supply = with_found(supply)
        found = choose(
            asked.models or ALL,
            supply.candidates(),
            supply.config.categories,
            lambda word: supply.other(models, word),
        )
        chosen = ModelSelection(models=(*stand_ins, *found.models), remarks=found.remarks)
    settings = supply.config.settings
    benchmark = BenchmarkDefinition(
        tasks=tasks,
        models=chosen.models,
        runs=asked.runs or 1,
        agent=asked.agent,
        timeout_seconds=asked.timeout,
        default_timeout_seconds=settings.default_timeout,
        retries=settings.max_retries if settings.retry_on_failure else 0,
        commits=commits_of(tasks, environment()),
    )
    surroundings = PreflightContext(environment=environment(), find_agent=find_agent, models=models)
    found_out = look(benchmark, surroundings, supply.key_variables, needs_prices=asked.budget is not None)
    if found_out.problems:
        raise UsageError("\n\n".join(found_out.problems))
    return BenchPlan(
        asked=asked,
        benchmark=benchmark,
        supply=supply,
        models=models,
        concurrency=_at_once(asked.parallel, settings.max_parallel),
        remarks=(*chosen.remarks, *_silent(supply), *found_out.remarks),
    )


def _at_once(parallel: str, usual: int) -> int:
    if parallel == "auto":
        return usual
    if not parallel.isdigit() or int(parallel) < 1:
        raise UsageError(f"--parallel takes a number, not {parallel}\nAlone it means {usual}.")
    return int(parallel)


def _folders(task: Path) -> list[Path]:
    """Where a benchmark's own files are looked for: beside its tasks, above them, and here."""
    start = task.absolute() if task.is_dir() else task.absolute().parent
    tasks = next((folder for folder in (start, *start.parents) if folder.name == "tasks"), None)
    return list(dict.fromkeys([start, *([tasks.parent] if tasks else []), Path.cwd()]))


def _silent(supply: ModelSupply) -> Sequence[str]:
    silent = supply.found.silent if supply.found else {}
    return [f"{name} did not list its models: {why}" for name, why in silent.items()]


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _existing(path: Any) -> Path | None:
    return Path(path) if path and Path(path).is_file() else None
