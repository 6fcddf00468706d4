"""New Batch: a plan that is typed in is checked, looked at from all sides, and started.

What is started is a command of its own, on a file that is kept in the server's folder, so that it can be
resumed like any other.

Knows nothing of how items are carried out.
"""

import asyncio
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.errors import NotFound, Place, PlanError, Problem, UsageError
from proctor.item import Item
from proctor.jobs.benchmark.tasks import Header, read_task
from proctor.jobs.coding.plan import Overrides, read_plan
from proctor.jobs.coding.schema import CodingPlanFile, json_schema
from proctor.jobs.dialogue.plan import read_simulation
from proctor.jobs.dialogue.roles import Roles
from proctor.jobs.dialogue.schema import CONFIG_KEYS, SimulationFile
from proctor.jobs.evaluation.request import CONCURRENCY, EvaluationPlan, read_evaluation
from proctor.jobs.scenario.experiment import ExperimentOverrides, read_experiment
from proctor.jobs.scenario.schema import ExperimentConfig
from proctor.plan.fields import names_of
from proctor.plan.source import MOST_BYTES
from proctor.plan.yaml_loader import read_source
from proctor.stats.estimate import AgentModel, forecast
from proctor.store import runs as listing
from proctor.web.launching import LaunchedProcess, asked, launch
from proctor.web.responses import ERRORS, page
from proctor.web.state import AppState

# Plans to begin with, one for every job: they run as they are, with no key and no network.


STARTERS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("coding.yaml", "coding", "Coding sessions", {}),
    ("prompts.yaml", "coding", "Prompts with checks", {}),
    ("models.yaml", "coding", "Model comparison", {}),
    ("benchmark.md", "benchmark", "Benchmark task", {"models": "scripted/echo,scripted/ok"}),
    ("experiment.yaml", "scenario", "Scenario experiment", {}),
    ("dialogues.yaml", "dialogue", "Dialogues", {}),
    ("evaluation.yaml", "evaluation", "Evaluation", {}),
)


class Example(BaseModel):
    """A plan to begin with."""

    name: str
    job: str
    text: str
    overrides: dict[str, Any]
    """What it needs to be told besides."""


def examples() -> list[Example]:
    """A plan for every job, in the order the page shows them."""
    return [
        Example(name=title, job=job, text=_text(file), overrides=more) for file, job, title, more in STARTERS
    ]


def _text(file: str) -> str:
    text = files("proctor.web").joinpath("starters", file).read_text(encoding="utf-8")
    # Two who begin with the same example must not write into one folder.
    return text.replace("{examples}", str(_examples())).replace("{unique}", f"harbour-{secrets.token_hex(2)}")


def _examples() -> Path:
    """The folder of examples: in the package once it is installed, at the top of the source before."""
    installed = Path(str(files("proctor").joinpath("examples")))
    return installed if installed.is_dir() else Path(__file__).parents[3] / "examples"


# The jobs that can be typed in: how each is recognised, read, and started on the command line.


Given = Mapping[str, Any]
"""What is said at run time in place of the plan: names as on the page."""


_KEY = re.compile(r"^([A-Za-z_][\w-]*)\s*:", re.MULTILINE)


_TASK = re.compile(r"^#\s*Task\b|\A---\s*$[\s\S]*?^---\s*$\s*^#\s", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReading:
    """What a plan comes to."""

    item_count: int | None = None
    """None: it takes a look at the surroundings to know."""
    items: Callable[[], Iterable[Item]] = tuple
    """Makes them, one after the other; a large plan has a hundred thousand."""
    concurrency: int = 1
    run_id: str = ""
    """What the plan calls its run. Empty: nothing."""

    def work(self) -> Mapping[AgentModel, int]:
        """Items by who does them. Empty: unknown."""
        return Counter(AgentModel(item.agent, item.model) for item in self.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanKind:
    """One kind of plan."""

    name: str
    """As in the record."""
    title: str
    suffix: str
    keys: frozenset[str]
    """What only such a plan says at its top."""
    read: Callable[[AppState, str, Given], PlanReading]
    """Read a text; raises `PlanError` with everything wrong with it."""
    schema: Callable[[], dict[str, Any]]
    command: tuple[str, ...]
    """Of `proctor`; the file follows."""
    flags: Mapping[str, str]
    """Which run-time settings it has, and the option each is."""
    has_folder: bool = False
    """Whether it is told where relative paths begin; the others begin at the working folder."""

    def words(self, site: AppState, path: Path, given: Given, more: Iterable[str] = ()) -> list[str]:
        """The command that runs the plan in this file. Raises for a setting it does not have."""
        words = [*self.command, str(path)]
        for name, value in given.items():
            if name not in self.flags:
                raise UsageError(f"{self.title}: there is no setting `{name}` to override")
            words.append(_option(self.flags[name], value))
        if self.has_folder:
            words.append(f"--folder={site.folder}")
        return [*words, *more]


def find_job(name: str) -> PlanKind:
    """The job of this name."""
    if name not in JOBS:
        raise NotFound(f"there is no job {name} to be typed in\nThere are: {', '.join(JOBS)}.")
    return JOBS[name]


def recognise(text: str) -> PlanKind:
    """The job a text seems to be a plan of, however unfinished it is; the first of all when nothing tells."""
    if _TASK.search(text):
        return JOBS["benchmark"]
    found = set(_KEY.findall(text))
    return max(JOBS.values(), key=lambda job: len(job.keys & found))


def _option(flag: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag}={value}"


def _coding(site: AppState, text: str, given: Given) -> PlanReading:
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
    return PlanReading(
        item_count=plan.item_count(overrides),
        items=lambda: plan.items(overrides),
        concurrency=plan.concurrency(overrides),
        run_id=given.get("runId") or plan.run_id or "",
    )


def _experiment(site: AppState, text: str, given: Given) -> PlanReading:
    limits = ExperimentOverrides(
        max_parallel=given.get("concurrency"), budget_usd=given.get("budget"), human="web"
    )
    path = site.kept / "plans" / "config.yaml"
    read = read_experiment(text, path=path, working_folder=site.folder, limits=limits)
    return PlanReading(item_count=read.run_count, items=read.items, concurrency=read.max_parallel)


def _dialogues(site: AppState, text: str, given: Given) -> PlanReading:
    names = {"concurrency": "max_workers", "runs": "num_runs", "budget": "budget_limit", "seed": "seed"}
    overrides = {name: given[said] for said, name in names.items() if given.get(said) is not None}
    if model := given.get("model"):
        overrides |= {"model_name": model, "model_type": ""}
    roles = Roles([site.folder / "roles", site.home / "roles"])
    read = read_simulation(text, overrides, file="config", folder=site.folder, roles=roles)
    return PlanReading(
        item_count=read.item_count, items=lambda: read.items(""), concurrency=read.config["max_workers"]
    )


def _benchmark(_: AppState, text: str, given: Given) -> PlanReading:
    with tempfile.TemporaryDirectory(prefix="proctor-task-") as made:
        file = Path(made) / "task.md"
        file.write_text(text, encoding="utf-8", errors="replace")
        read_task(file)
    return PlanReading(concurrency=given.get("concurrency") or 1)


def _evaluation(_: AppState, text: str, given: Given) -> PlanReading:
    asked = read_evaluation(text, file="plan")
    files = (asked.get("dataSourceConfig") or {}).get("files") or {}
    truth = asked.get("groundTruth") or []
    for path in (*files.get("paths", ()), *([truth] if isinstance(truth, str) else truth)):
        if not Path(path).expanduser().is_absolute():
            raise UsageError(
                f"{path} begins nowhere: a plan that is typed in has no folder of its own\n"
                "Write the whole path, or start the file with `proctor evaluate start`."
            )
    return PlanReading(concurrency=given.get("concurrency") or asked.get("concurrency") or CONCURRENCY)


def _of(model: Any) -> Callable[[], dict[str, Any]]:
    return lambda: dict(model.model_json_schema())


_ALL: Sequence[PlanKind] = (
    PlanKind(
        name="coding",
        title="Coding sessions or prompts",
        suffix=".yaml",
        keys=frozenset(names_of(CodingPlanFile)),
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
    PlanKind(
        name="scenario",
        title="Scenario experiment",
        suffix=".yaml",
        keys=frozenset(ExperimentConfig.model_fields),
        read=_experiment,
        schema=_of(ExperimentConfig),
        command=("experiment", "--human=web"),
        flags={"concurrency": "max-parallel", "budget": "budget"},
    ),
    PlanKind(
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
    PlanKind(
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
    PlanKind(
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


JOBS: Mapping[str, PlanKind] = {job.name: job for job in _ALL}
"""By name; the first is what a text is taken for that could be anything."""


MOST_SECONDS_LOOKING = 120


IN_THE_STORE = ("coding", "evaluation")
"""Jobs that need their plan's file no more once they have begun."""


MOST_SECONDS_STARTING = 30


Name = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Override(BaseModel):
    """What is said at run time in place of the plan. Which of these a job has, its panel shows."""

    model_config = ConfigDict(extra="forbid")

    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = None
    agent: Name | None = None
    model: Name | None = None
    models: Name | None = None
    timeoutSec: Annotated[float, Field(gt=0, le=1e7)] | None = None  # noqa: N815  names as in a plan
    retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    mergeOnPass: bool | None = None  # noqa: N815
    budget: Annotated[float, Field(gt=0, le=1e9)] | None = None
    runs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    runId: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")] | None = None  # noqa: N815

    @property
    def given(self) -> dict[str, Any]:
        """Only what is said."""
        return self.model_dump(exclude_none=True)


class PlanRequest(BaseModel):
    """A plan as it stands on the page."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=MOST_BYTES)]
    job: str = ""
    """Empty: it is recognised by its keys."""
    overrides: Override = Override()

    @property
    def kind(self) -> PlanKind:
        """What it is a plan of."""
        return find_job(self.job) if self.job else recognise(self.text)


class PlanProblem(BaseModel):
    """One thing wrong with a plan."""

    problem: str
    remedy: str = ""
    line: int | None = None
    """Counted from 1. None: it has no place in this text."""
    column: int | None = None
    file: str = ""
    """The other file in which it is wrong."""


class PlanCheck(BaseModel):
    """What is wrong with a plan by itself."""

    job: str
    title: str
    problems: list[PlanProblem]
    itemCount: int | None = None  # noqa: N815
    """None: it cannot be told without a look at the surroundings, or something is wrong."""


class PlannedChanges(BaseModel):
    """What a batch is expected to take."""

    costUsd: float | None  # noqa: N815
    """None: unknown."""
    seconds: float | None
    basis: str
    """How it was reckoned."""


class PlanValidation(PlanCheck):
    """What is wrong with a plan and what it names, and what it is going to take."""

    concurrency: int | None = None
    remarks: list[str] = []
    """Worth knowing, no reason to stop."""
    forecast: PlannedChanges | None = None


class StartedRun(BaseModel):
    """A run that is under way."""

    runId: str  # noqa: N815


class JobKind(BaseModel):
    """A job that can be typed in."""

    name: str
    title: str
    overrides: list[str]
    json_schema: dict[str, Any] = Field(alias="schema")


def router(site: AppState) -> APIRouter:
    """The page, and what it asks."""
    made = APIRouter(tags=["plans"])

    @made.get("/new", include_in_schema=False)
    def shown(request: Request) -> Response:
        return page(request, "new.html", title="New Batch")

    @made.get("/api/plans/examples", summary="A plan to begin with, for every job")
    def begin() -> list[Example]:
        return examples()

    @made.get("/api/plans/jobs", summary="The jobs, with the schema of their plans")
    def jobs() -> list[JobKind]:
        return [
            JobKind(name=job.name, title=job.title, overrides=list(job.flags), schema=job.schema())
            for job in JOBS.values()
        ]

    @made.post("/api/plans/check", summary="What is wrong with a plan by itself", responses=ERRORS)
    def check(typed: PlanRequest) -> PlanCheck:
        job = typed.kind
        try:
            reading = _readable(site, typed)
        except UsageError as error:
            return PlanCheck(job=job.name, title=job.title, problems=problems_of(error))
        return PlanCheck(job=job.name, title=job.title, problems=[], itemCount=reading.item_count)

    @made.post("/api/plans/validate", summary="Look at all a plan names; start nothing", responses=ERRORS)
    async def validate(typed: PlanRequest) -> PlanValidation:
        return await asyncio.to_thread(_read, site, typed) or await _looked_at(site, typed)

    @made.post("/api/runs", status_code=201, summary="Start a plan", responses=ERRORS, tags=["runs"])
    async def start(typed: PlanRequest) -> StartedRun:
        await asyncio.to_thread(_readable, site, typed)
        return StartedRun(runId=await _started(site, typed))

    return made


def problems_of(error: UsageError) -> list[PlanProblem]:
    """What an error says, each with its place in the text where it has one."""
    if not isinstance(error, PlanError):
        problem, _, remedy = str(error).partition("\n")
        return [PlanProblem(problem=problem, remedy=remedy)]
    rows = [
        (each.at.file, each.at.line, each.at.column, each.problem, each.remedy) for each in error.problems
    ]
    return [_placed(*row) for row in rows]


def _placed(file: str, line: int, column: int, problem: str, remedy: str) -> PlanProblem:
    """At its line, when it is in the text that was typed in; else with the name of its file."""
    if Path(file).name in ("plan", "config", "config.yaml", "task.md") or "/serve/checks/" in file:
        return PlanProblem(problem=problem, remedy=remedy, line=line, column=column)
    return PlanProblem(problem=problem, remedy=remedy, file=f"{file}:{line}")


def _readable(site: AppState, typed: PlanRequest) -> PlanReading:
    """What the text comes to. Raises for what is wrong with it, and for a name that another run has."""
    reading = typed.kind.read(site, typed.text, typed.overrides.given)
    if reading.run_id and listing.batches_named(site.store.read, [reading.run_id], site.now()):
        problem = f"there is already a run called {reading.run_id}"
        remedy = "Give it another name: the run's name under Overrides, or `runId` in the plan."
        if typed.overrides.runId:
            raise UsageError(f"{problem}\n{remedy}")
        at = read_source(typed.text, file="plan").place(("runId",), of_key=True)
        raise PlanError([Problem(at=at, problem=problem, remedy=remedy)])
    return reading


def _read(site: AppState, typed: PlanRequest) -> PlanValidation | None:
    """What is wrong with the text by itself; None when nothing is."""
    job = typed.kind
    try:
        _readable(site, typed)
    except UsageError as error:
        return PlanValidation(job=job.name, title=job.title, problems=problems_of(error))
    return None


async def _looked_at(site: AppState, typed: PlanRequest) -> PlanValidation:
    """What the command itself says when it is only to look."""
    job = typed.kind
    path = _kept(site.kept / "checks", f"{secrets.token_hex(8)}{job.suffix}", typed.text)
    words = job.words(site, path, typed.overrides.given, ("--dry-run", "--json"))
    try:
        code, document, told = await asked(site, words, seconds=MOST_SECONDS_LOOKING)
    except TimeoutError:
        raise UsageError(f"looking at the plan took more than {MOST_SECONDS_LOOKING} s") from None
    finally:
        path.unlink(missing_ok=True)
    if code or "itemCount" not in document:
        return PlanValidation(job=job.name, title=job.title, problems=_refusal(document, told))
    reading = await asyncio.to_thread(job.read, site, typed.text, typed.overrides.given)
    return PlanValidation(
        job=job.name,
        title=job.title,
        problems=[],
        itemCount=document["itemCount"],
        concurrency=reading.concurrency,
        remarks=document.get("remarks") or [],
        forecast=_told(document) or await asyncio.to_thread(_foreseen, site, job, reading),
    )


def _refusal(document: Mapping[str, Any], told: str) -> list[PlanProblem]:
    if listed := document.get("problems"):
        return [
            _placed(each["file"], each["line"], each["column"], each["problem"], each["remedy"])
            for each in listed
        ]
    words = str(document.get("error") or _last_words(told))
    problem, _, remedy = words.partition("\n")
    return [PlanProblem(problem=problem or "it cannot be started, and does not say why", remedy=remedy)]


def _told(document: Mapping[str, Any]) -> PlannedChanges | None:
    """What the command itself expects; None when it says nothing."""
    if "costUsd" not in document:
        return None
    return PlannedChanges(costUsd=document["costUsd"], seconds=None, basis="From how long the sessions are.")


def _foreseen(site: AppState, job: PlanKind, reading: PlanReading) -> PlannedChanges | None:
    if not (work := reading.work()):
        return None
    found = forecast(site.store.read, job.name, work, concurrency=reading.concurrency)
    return PlannedChanges(costUsd=found.cost_usd, seconds=found.seconds, basis=found.basis)


async def _started(site: AppState, typed: PlanRequest) -> str:
    """Start the plan; the id of its run, as soon as that is in the store."""
    job = typed.kind
    name = f"{site.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    path = _kept(site.kept / "plans", f"{name}{job.suffix}", typed.text)
    begun = launch(site, job.words(site, path, typed.overrides.given, ("--json",)), name)
    run_id = await _in_the_store(site, path, begun)
    if site.store.data_keys.is_sealed and job.name in IN_THE_STORE:
        # What was typed in is in the store by now, sealed.
        path.unlink(missing_ok=True)
    return run_id


async def _in_the_store(site: AppState, path: Path, begun: LaunchedProcess) -> str:
    loop = asyncio.get_running_loop()
    until = loop.time() + MOST_SECONDS_STARTING
    while loop.time() < until:
        has_ended = begun.process.poll() is not None
        if run_id := await asyncio.to_thread(listing.batch_from, site.store.read, str(path)):
            return run_id
        if has_ended:
            raise _why_not(begun)
        await asyncio.sleep(0.05)
    raise UsageError(f"it is slow to begin\nIt may still: look at the list of runs, and at {begun.log}.")


def _why_not(begun: LaunchedProcess) -> UsageError:
    """What a command said that ended before it began."""
    problems = [
        Problem(
            at=Place(each["file"], each["line"], each["column"]),
            problem=each["problem"],
            remedy=each["remedy"],
        )
        for each in begun.document.get("problems") or ()
    ]
    if problems:
        return PlanError(problems)
    words = begun.document.get("error") or _last_words(begun.said)
    return UsageError(str(words) or f"it ended before it began\nIts log: {begun.log}")


def _last_words(said: str) -> str:
    """What a command told people last: the reason why it ended."""
    return said.rpartition("proctor: ")[2].strip()[:2000]


def _kept(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8", errors="replace")
    return path
