"""Plans of `proctor batch` that have `tasks: PATH`: tasks of any format, and what they run with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.alias_generators import to_camel

from proctor.job import PlanText
from proctor.jobs.benchmark.plan import BenchmarkOverrides
from proctor.plan.source import KeyPath, refuse, resolved
from proctor.plan.validate import PlanModel, Seconds, SectionLabel, Text, Texts, Usd, check_shape, names_of
from proctor.plan.yaml_loader import read_source
from proctor.tasks.task import ReadOverrides


class TaskPlanFile(PlanModel):
    """A plan with `tasks`."""

    tasks: Text = Field(description="A task file, or a folder or dataset of tasks.")
    run_id: Text | None = Field(None, description="Name of the batch.")
    model: Texts | None = Field(None, description="Models, as `proctor bench --models` takes them.")
    agent: Texts | None = Field(None, description="Agents, or NAME=COMMAND; overrides the tasks'.")
    runs: Annotated[int, Field(ge=1)] | None = Field(None, description="Repeats per task and model.")
    concurrency: Annotated[int, Field(ge=1)] | None = Field(None, description="Runs in parallel.")
    timeout_sec: Seconds | None = Field(None, description="Seconds the agent may take.")
    task_network: bool | None = Field(None, description="Grant the network access that tasks ask for.")
    budget: Usd | None = Field(None, description="US dollars that the whole batch may cost.")
    prompt_column: Text | None = Field(None, description="Column of a dataset with the prompts.")
    expect_column: Text | None = Field(None, description="Column of a dataset with the answers.")
    template: Text | None = Field(None, description="Prompt of each row, with {column} for its values.")
    check: Text | None = Field(None, description="Test command of SWE-bench rows.")
    setup: Text | None = Field(None, description="Command of SWE-bench rows before the agent.")
    judge: Text | None = Field(None, description="Model that judges rubrics of tasks that name none.")
    repos: Text | None = Field(None, description="Clones: a folder, or owner/name=PATH,….")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlanOverrides:
    """Options of the command line that take precedence; None: not set."""

    model: str | None = None
    agent: str | None = None
    concurrency: int | None = None
    budget: float | None = None
    timeout_seconds: float | None = None


def vocabulary(path: KeyPath) -> SectionLabel | None:
    """The section of a plan."""
    return SectionLabel("the plan", "A plan with `tasks`", names_of(TaskPlanFile)) if not path else None


def read_task_plan(plan: PlanText, overrides: TaskPlanOverrides) -> tuple[Path, BenchmarkOverrides, str]:
    """The path of the tasks, the settings of their benchmark, and the name of the run. Raises `PlanError`."""
    source = read_source(plan.text, file=plan.file)
    if problems := list(check_shape(source, TaskPlanFile, vocabulary).problems):
        refuse(problems)
    data = source.data
    models = data.get("model") or []
    names = ",".join([models] if isinstance(models, str) else models)
    repos = ",".join(
        _resolved_repo(part, plan.folder) for part in str(data.get("repos") or "").split(",") if part
    )
    reading = {name: str(data.get(to_camel(name)) or "") for name in ReadOverrides().texts()}
    reading["repos"] = repos
    path = Path(resolved(data["tasks"], folder=plan.folder, home=Path.home()))
    benchmark = BenchmarkOverrides(
        models=overrides.model or names,
        agent=overrides.agent or data.get("agent") or "",
        runs=data.get("runs"),
        task_network=bool(data.get("taskNetwork")),
        parallel=overrides.concurrency or data.get("concurrency"),
        timeout=overrides.timeout_seconds or data.get("timeoutSec"),
        budget=data.get("budget") if overrides.budget is None else overrides.budget,
    ).with_reading(reading)
    return path, benchmark, str(data.get("runId") or "")


def _resolved_repo(part: str, folder: Path) -> str:
    name, equals, path = part.strip().rpartition("=")
    return f"{name}{equals}{resolved(path, folder=folder, home=Path.home())}"
