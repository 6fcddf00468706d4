"""The jobs that can be typed in: how each is recognised, read, and started on the command line.

A job is read here by the same code as on the command line, so that what is marked while typing is what the
command would say. It is started by its own command.

Knows nothing of HTTP.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.analyse.forecast import Worker
from proctor.errors import NotFound, UsageError
from proctor.item import Item
from proctor.plan import Overrides, json_schema, read_plan
from proctor.plan.dialogue import read_simulation
from proctor.plan.dialogue_schema import CONFIG_KEYS, SimulationFile
from proctor.plan.evaluation import CONCURRENCY
from proctor.plan.evaluation_schema import EvaluationPlan, read_evaluation
from proctor.plan.experiment import Limits, read_experiment
from proctor.plan.experiment_schema import ExperimentConfig
from proctor.plan.roles import Roles
from proctor.plan.schema import CodingPlan, names_of
from proctor.plan.task_header import Header
from proctor.plan.tasks import read_task
from proctor.web.site import Site

Given = Mapping[str, Any]
"""What is said at run time in place of the plan: names as on the page."""
_KEY = re.compile(r"^([A-Za-z_][\w-]*)\s*:", re.MULTILINE)
_TASK = re.compile(r"^#\s*Task\b|\A---\s*$[\s\S]*?^---\s*$\s*^#\s", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a plan comes to."""

    item_count: int | None = None
    """None: it takes a look at the surroundings to know."""
    items: Callable[[], Iterable[Item]] = tuple
    """Makes them, one after the other; a large plan has a hundred thousand."""
    concurrency: int = 1
    run_id: str = ""
    """What the plan calls its run. Empty: nothing."""

    def work(self) -> Mapping[Worker, int]:
        """Items by who does them. Empty: unknown."""
        return Counter(Worker(item.agent, item.model) for item in self.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One kind of plan."""

    name: str
    """As in the record."""
    title: str
    suffix: str
    keys: frozenset[str]
    """What only such a plan says at its top."""
    read: Callable[[Site, str, Given], Reading]
    """Read a text; raises `PlanError` with everything wrong with it."""
    schema: Callable[[], dict[str, Any]]
    command: tuple[str, ...]
    """Of `proctor`; the file follows."""
    flags: Mapping[str, str]
    """Which run-time settings it has, and the option each is."""
    has_folder: bool = False
    """Whether it is told where relative paths begin; the others begin at the working folder."""

    def words(self, site: Site, path: Path, given: Given, more: Iterable[str] = ()) -> list[str]:
        """The command that runs the plan in this file. Raises for a setting it does not have."""
        words = [*self.command, str(path)]
        for name, value in given.items():
            if name not in self.flags:
                raise UsageError(f"{self.title}: there is no setting `{name}` to override")
            words.append(_option(self.flags[name], value))
        if self.has_folder:
            words.append(f"--folder={site.folder}")
        return [*words, *more]


def find_job(name: str) -> Job:
    """The job of this name."""
    if name not in JOBS:
        raise NotFound(f"there is no job {name} to be typed in\nThere are: {', '.join(JOBS)}.")
    return JOBS[name]


def recognise(text: str) -> Job:
    """The job a text seems to be a plan of, however unfinished it is; the first of all when nothing tells."""
    if _TASK.search(text):
        return JOBS["benchmark"]
    found = set(_KEY.findall(text))
    return max(JOBS.values(), key=lambda job: len(job.keys & found))


def _option(flag: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag}={value}"


def _coding(site: Site, text: str, given: Given) -> Reading:
    overrides = Overrides(
        concurrency=given.get("concurrency"),
        model=given.get("model"),
        agent=given.get("agent"),
        budget_usd=given.get("budget"),
        timeout_sec=given.get("timeoutSec"),
        retries=given.get("retries"),
        merge_on_pass=given.get("mergeOnPass"),
    )
    plan = read_plan(text, file="plan", folder=site.folder, overrides=overrides)
    return Reading(
        item_count=plan.item_count(overrides),
        items=lambda: plan.items(overrides),
        concurrency=plan.concurrency(overrides),
        run_id=given.get("runId") or plan.run_id or "",
    )


def _experiment(site: Site, text: str, given: Given) -> Reading:
    limits = Limits(max_parallel=given.get("concurrency"), budget_usd=given.get("budget"), human="web")
    path = site.kept / "plans" / "config.yaml"
    read = read_experiment(text, path=path, working_folder=site.folder, limits=limits)
    return Reading(item_count=read.run_count, items=read.items, concurrency=read.max_parallel)


def _dialogues(site: Site, text: str, given: Given) -> Reading:
    names = {"concurrency": "max_workers", "runs": "num_runs", "budget": "budget_limit", "seed": "seed"}
    overrides = {name: given[said] for said, name in names.items() if given.get(said) is not None}
    if model := given.get("model"):
        overrides |= {"model_name": model, "model_type": ""}
    roles = Roles([site.folder / "roles", site.home / "roles"])
    read = read_simulation(text, overrides, file="config", folder=site.folder, roles=roles)
    return Reading(
        item_count=read.item_count, items=lambda: read.items(""), concurrency=read.config["max_workers"]
    )


def _benchmark(_: Site, text: str, given: Given) -> Reading:
    with tempfile.TemporaryDirectory(prefix="proctor-task-") as made:
        file = Path(made) / "task.md"
        file.write_text(text, encoding="utf-8", errors="replace")
        read_task(file)
    return Reading(concurrency=given.get("concurrency") or 1)


def _evaluation(_: Site, text: str, given: Given) -> Reading:
    asked = read_evaluation(text, file="plan")
    files = (asked.get("dataSourceConfig") or {}).get("files") or {}
    truth = asked.get("groundTruth") or []
    for path in (*files.get("paths", ()), *([truth] if isinstance(truth, str) else truth)):
        if not Path(path).expanduser().is_absolute():
            raise UsageError(
                f"{path} begins nowhere: a plan that is typed in has no folder of its own\n"
                "Write the whole path, or start the file with `proctor evaluate start`."
            )
    return Reading(concurrency=given.get("concurrency") or asked.get("concurrency") or CONCURRENCY)


def _of(model: Any) -> Callable[[], dict[str, Any]]:
    return lambda: dict(model.model_json_schema())


_ALL: Sequence[Job] = (
    Job(
        name="coding",
        title="Coding sessions or prompts",
        suffix=".yaml",
        keys=frozenset(names_of(CodingPlan)),
        read=_coding,
        schema=json_schema,
        command=("batch",),
        flags={
            "concurrency": "concurrency",
            "agent": "agent",
            "model": "model",
            "timeoutSec": "timeout-sec",
            "retries": "retries",
            "mergeOnPass": "merge-on-pass",
            "budget": "budget",
            "runId": "run-id",
        },
        has_folder=True,
    ),
    Job(
        name="scenario",
        title="Scenario experiment",
        suffix=".yaml",
        keys=frozenset(ExperimentConfig.model_fields),
        read=_experiment,
        schema=_of(ExperimentConfig),
        command=("experiment", "--human=web"),
        flags={"concurrency": "max-parallel", "budget": "budget"},
    ),
    Job(
        name="dialogue",
        title="Dialogues",
        suffix=".yaml",
        keys=frozenset(CONFIG_KEYS),
        read=_dialogues,
        schema=_of(SimulationFile),
        command=("simulate", "--config"),
        flags={
            "concurrency": "max-workers",
            "model": "model",
            "budget": "budget",
            "runs": "num-runs",
            "seed": "seed",
        },
        has_folder=True,
    ),
    Job(
        name="benchmark",
        title="Benchmark task",
        suffix=".md",
        keys=frozenset(),
        read=_benchmark,
        schema=_of(Header),
        command=("bench", "--task"),
        flags={
            "models": "models",
            "concurrency": "parallel",
            "agent": "agent",
            "timeoutSec": "timeout",
            "runs": "runs",
        },
    ),
    Job(
        name="evaluation",
        title="Evaluation of sessions",
        suffix=".yaml",
        keys=frozenset(names_of(EvaluationPlan)),
        read=_evaluation,
        schema=_of(EvaluationPlan),
        command=("evaluate", "start"),
        flags={
            "concurrency": "concurrency",
            "timeoutSec": "timeout",
            "retries": "retries",
            "budget": "budget",
        },
    ),
)
JOBS: Mapping[str, Job] = {job.name: job for job in _ALL}
"""By name; the first is what a text is taken for that could be anything."""
