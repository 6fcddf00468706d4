"""The New Batch page: check a typed plan while it is edited, validate it, and start it.

Plans are validated in a process that can be killed; small ones are checked in a thread while they are edited.
A run is a detached process, and its text is kept as a file in the server's folder, so that the run can be
resumed like any other.
"""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor import jobs
from proctor.api.launch import LaunchedProcess, LaunchRequest
from proctor.batch import lifecycle
from proctor.context import EngineName, EngineOptions, RunContext
from proctor.errors import Place, PlanError, Problem, UsageError
from proctor.job import Job, JobPlan, PlanEstimate, PlanText, make_overrides
from proctor.json_values import JsonMap, JsonObject, as_text, as_whole_number, maps_in
from proctor.plan.source import MOST_BYTES
from proctor.plan.yaml_loader import read_source
from proctor.report.estimate import basis
from proctor.stats.estimate import forecast_plan
from proctor.store import runs as listing
from proctor.web.actions import error_message
from proctor.web.responses import ERRORS, page
from proctor.web.state import AppState

CHECK_SECONDS, VALIDATION_SECONDS = 20, 120
START_SECONDS = 30
SMALL_PLAN_CHARACTERS = 64_000
"""Larger plans are checked in a process, killed after `CHECK_SECONDS`: 400,000 entries take a minute.
A process takes half a second longer than a thread, too long for every pause in typing."""
AT_ONCE = 2
"""Processes that check plans in parallel."""
GROUND_TRUTH = "ground truth"
TYPED_NAMES = ("plan", "task.md", GROUND_TRUTH)
"""How problems name a text that was typed."""
Name = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Example(BaseModel):
    """An example plan."""

    name: str
    job: str
    text: str
    overrides: JsonObject
    """Overrides it needs."""


def examples() -> list[Example]:
    """The example plans of every job."""
    return [
        Example(name=each.title, job=job.name, text=_text(job, each.file), overrides=dict(each.overrides))
        for job in jobs.jobs()
        for each in job.starters
    ]


def _text(job: Job, file: str) -> str:
    package = type(job).__module__.rpartition(".")[0]
    text = files(package).joinpath("starters", file).read_text(encoding="utf-8")
    # Two runs of one example must not write to the same folder.
    return text.replace("{examples}", str(_examples())).replace("{unique}", f"harbour-{secrets.token_hex(2)}")


def _examples() -> Path:
    """The folder of examples: inside the installed package, or at the top of the source tree."""
    installed = Path(str(files("proctor").joinpath("examples")))
    return installed if installed.is_dir() else Path(__file__).parents[3] / "examples"


class Override(BaseModel):
    """Run-time settings that replace those of the plan. Each job has some of them."""

    model_config = ConfigDict(extra="forbid")

    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = None
    workers: Annotated[int, Field(ge=1, le=1000)] | None = None
    engine: EngineName | None = None
    """`ray`: the cluster of the server's machine. No other address: the nodes of a cluster get the keys."""
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


class PlanRequest(BaseModel):
    """A plan as typed on the page."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=MOST_BYTES)]
    job: str = ""
    """Empty: recognized by its keys."""
    overrides: Override = Override()


class PlanProblem(BaseModel):
    """One problem of a plan."""

    problem: str
    remedy: str = ""
    line: int | None = None
    """Counted from 1. None: it has no place in this text."""
    column: int | None = None
    file: str = ""
    """The other file that has the problem."""


class PlanCheck(BaseModel):
    """Problems of a plan by itself."""

    job: str
    title: str
    problems: list[PlanProblem]
    itemCount: int | None = None  # noqa: N815
    """None: only known after validation, or the plan has problems."""


class PlannedChanges(BaseModel):
    """Estimated cost and duration of a batch."""

    costUsd: float | None  # noqa: N815
    """None: unknown."""
    seconds: float | None
    basis: str
    """What the estimate is based on."""


class PlanValidation(PlanCheck):
    """Problems of a plan and of everything it names, and its estimate."""

    concurrency: int | None = None
    remarks: list[str] = []
    """Remarks that do not prevent a start."""
    forecast: PlannedChanges | None = None


class StartedRun(BaseModel):
    """A run that has started."""

    runId: str  # noqa: N815


class JobKind(BaseModel):
    """A job whose plans can be typed."""

    name: str
    title: str
    overrides: list[str]
    json_schema: JsonObject = Field(alias="schema")


def router(site: AppState) -> APIRouter:
    """The page and its routes."""
    routes = APIRouter(tags=["plans"])

    @routes.get("/new", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "new.html", title="New Batch")

    @routes.get("/api/plans/examples", summary="An example plan for every job")
    def begin() -> list[Example]:
        return examples()

    @routes.get(
        "/api/plans/jobs",
        summary="The jobs, with the schema of their plans",
        operation_id="jobs_api_plans_jobs_get",
    )
    def list_jobs() -> list[JobKind]:
        return [
            JobKind(name=job.name, title=job.title, overrides=_override_names(job), schema=dict(job.schema()))
            for job in jobs.jobs()
            if job.has_plans
        ]

    processes = asyncio.Semaphore(AT_ONCE)

    @routes.post("/api/plans/check", summary="Check the text of a plan", responses=ERRORS)
    async def check(typed: PlanRequest) -> PlanCheck:
        if len(typed.text) <= SMALL_PLAN_CHARACTERS:
            return await asyncio.to_thread(lambda: TypedPlan(site, typed).check())
        document = await check_in_process(site, processes, typed, seconds=CHECK_SECONDS)
        return PlanCheck.model_validate(document)

    @routes.post(
        "/api/plans/validate",
        summary="Validate a plan and everything it names; run nothing",
        responses=ERRORS,
    )
    async def validate(typed: PlanRequest) -> PlanValidation:
        document = await check_in_process(
            site, processes, typed, seconds=VALIDATION_SECONDS, is_validation=True
        )
        return PlanValidation.model_validate(document)

    @routes.post("/api/runs", status_code=201, summary="Start a plan", responses=ERRORS, tags=["runs"])
    async def start(typed: PlanRequest) -> StartedRun:
        plan = await asyncio.to_thread(TypedPlan, site, typed)
        if len(typed.text) <= SMALL_PLAN_CHARACTERS:
            # A larger one is read by the process of the run alone.
            await asyncio.to_thread(plan.read)
        return StartedRun(runId=await plan.start())

    return routes


async def check_in_process(
    site: AppState,
    processes: asyncio.Semaphore,
    typed: PlanRequest,
    *,
    seconds: float,
    is_validation: bool = False,
) -> JsonMap:
    """The check or validation of a plan, by a process that is killed when it takes too long."""
    if typed.job:
        # Raises for a job that does not exist.
        jobs.find_job(typed.job)
    request = {"plan": typed.model_dump(mode="json"), "isValidation": is_validation}
    try:
        async with asyncio.timeout(seconds), processes:
            code, document, messages = await site.launcher.check_plan(request, seconds=seconds)
    except TimeoutError:
        raise UsageError(f"checking the plan took more than {seconds:g} s\nMake it smaller.") from None
    if code or not document or "error" in document:
        raise UsageError(error_message(document, messages) or "the command failed without a message")
    return document


def check_plan(request: JsonMap, context: RunContext) -> PlanCheck:
    """Execute the internal command."""
    typed = PlanRequest.model_validate(request["plan"])
    plan = TypedPlan(AppState(context=context, command=()), typed)
    return plan.validate() if request["isValidation"] else plan.check()


def _override_names(job: Job) -> list[str]:
    """The names of the page for the overrides of a job."""
    return [name for name in Override.model_fields if _has_override(job, name)]


def _has_override(job: Job, name: str) -> bool:
    if name in ("workers", "engine"):
        # Every job can share its work among processes and machines.
        return True
    if name == "runId":
        # A job whose plans can name their run.
        properties = job.schema().get("properties")
        return isinstance(properties, Mapping) and name in properties
    try:
        make_overrides(job, {name: None})
    except UsageError:
        return False
    return True


class TypedPlan:
    """A plan that was typed, on its way to a run."""

    def __init__(self, site: AppState, request: PlanRequest) -> None:
        self._site, self._text = site, request.text
        self.job = jobs.find_job(request.job) if request.job else jobs.recognize(request.text)
        self._values = request.overrides.model_dump(exclude_none=True)
        self._workers: int | None = self._values.pop("workers", None)
        self._engine = EngineOptions(self._values.pop("engine", "local"))
        self._run_id: str = ""
        if _has_override(self.job, "runId"):
            self._run_id = self._values.pop("runId", "")
        if "human" in {each.name for each in fields(self.job.overrides)}:
            # People answer on the page: a detached process has no terminal.
            self._values["human"] = "web"

    def read(self) -> JobPlan:
        """Read and check the text. Raises for every problem, and for a run ID that is in use."""
        source = PlanText(text=self._text, folder=self._site.folder)
        plan = self.job.read(source, make_overrides(self.job, self._values), self._site.context)
        run_id = self._run_id or plan.run_id
        if run_id and listing.batches_by_id(self._site.store.read, [run_id], self._site.now()):
            problem = f"there is already a run called {run_id}"
            remedy = "Choose another run ID under Overrides, or set `runId` in the plan."
            if self._run_id:
                raise UsageError(f"{problem}\n{remedy}")
            at = read_source(self._text, file=source.file).place(("runId",), of_key=True)
            raise PlanError([Problem(at=at, problem=problem, remedy=remedy)])
        return plan

    def check(self) -> PlanCheck:
        """Check the text."""
        try:
            count = self.read().item_count
        except UsageError as error:
            return PlanCheck(job=self.job.name, title=self.job.title, problems=problems_of(error))
        return PlanCheck(job=self.job.name, title=self.job.title, problems=[], itemCount=count)

    def validate(self) -> PlanValidation:
        """Check everything the plan names, and estimate it."""
        try:
            return self._validate()
        except UsageError as error:
            return PlanValidation(job=self.job.name, title=self.job.title, problems=problems_of(error))

    def _validate(self) -> PlanValidation:
        plan = self.read()
        preview = lifecycle.preview(plan, self._site.context)
        estimate = plan.estimate(self._site.context)
        count = estimate.item_count if estimate else plan.item_count
        return PlanValidation(
            job=self.job.name,
            title=self.job.title,
            problems=[],
            itemCount=sum(1 for _ in plan.items()) if count is None else count,
            concurrency=plan.concurrency,
            remarks=list(preview.remarks),
            forecast=self._forecast(plan, estimate),
        )

    def _forecast(self, plan: JobPlan, estimate: PlanEstimate | None) -> PlannedChanges | None:
        """Cost and duration, from earlier sessions of the same agents and models; the cost from the plan
        alone where some of them are missing."""
        work = estimate.workload if estimate else None
        forecast = forecast_plan(self.job.name, plan, self._site.context, work=work)
        cost, time = forecast.cost_usd, forecast.seconds
        if estimate and (cost.unknown or not forecast.items):
            return PlannedChanges(
                costUsd=estimate.cost_usd,
                seconds=None if time.unknown else time.value,
                basis=estimate.basis,
            )
        if not forecast.items:
            return None
        return PlannedChanges(costUsd=cost.value, seconds=time.value, basis=basis(forecast))

    async def start(self) -> str:
        """Start a detached run; its ID, as soon as it is in the store."""
        site, job = self._site, self.job
        name = f"{site.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        path = await asyncio.to_thread(
            _write, site.data_folder / "plans", f"{name}{job.plan_suffix}", self._text
        )
        request = LaunchRequest(
            job=job.name,
            run_id=self._run_id,
            plan_text=self._text,
            plan_path=str(path),
            folder=str(site.folder),
            overrides=self._values,
            workers=self._workers,
            engine=self._engine,
        )
        process = await asyncio.to_thread(site.launcher.launch, request, name)
        run_id = await _wait_for_run(site, path, process)
        if site.store.data_keys.is_encrypted:
            # The store has the text, encrypted.
            path.unlink(missing_ok=True)
        return run_id


def problems_of(error: UsageError) -> list[PlanProblem]:
    """The problems of an error, each with its place in the text where it has one."""
    if not isinstance(error, PlanError):
        problem, _, remedy = str(error).partition("\n")
        return [PlanProblem(problem=problem, remedy=remedy)]
    return [_plan_problem(each) for each in error.problems]


def _plan_problem(each: Problem) -> PlanProblem:
    """With its line, when it is in the typed text; else with the name of its file."""
    at = each.at
    if Path(at.file).name in TYPED_NAMES or "/serve/" in at.file:
        return PlanProblem(problem=each.problem, remedy=each.remedy, line=at.line, column=at.column)
    return PlanProblem(problem=each.problem, remedy=each.remedy, file=f"{at.file}:{at.line}")


async def _wait_for_run(site: AppState, path: Path, launched: LaunchedProcess) -> str:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    while loop.time() < deadline:
        has_ended = launched.process.poll() is not None
        if run_id := await asyncio.to_thread(listing.batch_of_plan_file, site.store.read, str(path)):
            return run_id
        if has_ended:
            raise _start_error(launched.document, launched.messages)
        await asyncio.sleep(0.05)
    raise UsageError(
        f"the run has not started within {START_SECONDS} s\n"
        f"It may still start: see the list of runs, and {launched.log}."
    )


def _start_error(document: JsonMap, messages: str) -> UsageError:
    """Why a process ended before its run started."""
    problems = [
        Problem(
            at=Place(as_text(each["file"]), as_whole_number(each["line"]), as_whole_number(each["column"])),
            problem=as_text(each["problem"]),
            remedy=as_text(each["remedy"]),
        )
        for each in maps_in(document.get("problems"))
    ]
    if problems:
        return PlanError(problems)
    return UsageError(error_message(document, messages) or "the command failed without a message")


def _write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8", errors="replace")
    return path
