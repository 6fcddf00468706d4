"""The New Batch page: check a typed plan while it is edited, validate it, and start it.

Plans are validated in a process that can be killed; small ones are checked in a thread while they are edited.
A run is a detached process, and its text is kept as a file in the server's folder, so that the run can be
resumed like any other.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response

from proctor.api import plans, runs
from proctor.api.deprecated import OLD_NAMES_OF_NOTES
from proctor.api.launch import LaunchRequest, error_message, start_plan
from proctor.context import EngineName, EngineOptions, RunContext
from proctor.errors import PlanError, Problem, UsageError
from proctor.job import Job, PlanText, make_overrides, plan_schema
from proctor.json_values import JsonMap, JsonObject
from proctor.plan.source import MOST_BYTES
from proctor.plan.yaml_loader import read_source
from proctor.report.estimate import basis
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.state import AppState

CHECK_SECONDS, VALIDATION_SECONDS = 20, 120
SMALL_PLAN_CHARACTERS = 64_000
"""Larger plans are checked in a process, killed after `CHECK_SECONDS`: 400,000 entries take a minute.
A process takes half a second longer than a thread, too long for every pause in typing."""
AT_ONCE = 2
"""Processes that check plans in parallel."""
GROUND_TRUTH = "ground truth"
TYPED_NAMES = ("plan", "task.md", GROUND_TRUTH)
"""How problems name a text that was typed."""
Name = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Override(BaseModel):
    """Run-time settings that replace those of the plan: these, and by their names all that the job has."""

    model_config = ConfigDict(extra="allow")

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

    @model_validator(mode="after")
    def _is_known(self) -> "Override":
        for name in self.model_extra or ():
            if not any(_has_override(job, name) for job in plans.jobs_with_plans()):
                raise ValueError("there is no such override")
        return self


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
    notes: list[str] = []
    """Notes that do not prevent a start."""
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
    def begin() -> list[plans.Example]:
        return list(plans.examples())

    @routes.get(
        "/api/plans/jobs",
        summary="The jobs, with the schema of their plans",
        operation_id="jobs_api_plans_jobs_get",
    )
    def list_jobs() -> list[JobKind]:
        return [
            JobKind(
                name=job.name, title=job.title, overrides=_override_names(job), schema=dict(plan_schema(job))
            )
            for job in plans.jobs_with_plans()
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
        response_class=with_deprecated(OLD_NAMES_OF_NOTES),
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
        plans.find_job(typed.job)
    request = {"plan": typed.model_dump(mode="json"), "isValidation": is_validation}
    try:
        async with asyncio.timeout(seconds), processes:
            code, document, messages = await site.launcher.check_plan(request, seconds=seconds)
    except TimeoutError:
        raise UsageError(f"checking the plan took more than {seconds:g} s\nMake it smaller.") from None
    if code or not document or "error" in document:
        raise UsageError(error_message(document, messages))
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
        properties = plan_schema(job).get("properties")
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
        self.job = plans.find_job(request.job) if request.job else plans.recognize(request.text)
        self._values = request.overrides.model_dump(exclude_none=True)
        self._workers: int | None = self._values.pop("workers", None)
        self._engine = EngineOptions(self._values.pop("engine", "local"))
        self._run_id: str = ""
        if _has_override(self.job, "runId"):
            self._run_id = self._values.pop("runId", "")
        if "human" in {each.name for each in fields(self.job.overrides)}:
            # People answer on the page: a detached process has no terminal.
            self._values["human"] = "web"

    def read(self) -> runs.ReadPlan:
        """Read and check the text. Raises for every problem, and for a run ID that is in use."""
        source = PlanText(text=self._text, folder=self._site.folder)
        context = self._site.context
        read = runs.read_plan(context, source, job=self.job.name, overrides=self._values)
        run_id = self._run_id or read.plan.run_id
        if run_id and runs.is_known(context, run_id):
            problem = f"there is already a run called {run_id}"
            remedy = "Choose another run ID under Overrides, or set `runId` in the plan."
            if self._run_id:
                raise UsageError(f"{problem}\n{remedy}")
            at = read_source(self._text, file=source.file).place(("runId",), of_key=True)
            raise PlanError([Problem(at=at, problem=problem, remedy=remedy)])
        return read

    def check(self) -> PlanCheck:
        """Check the text."""
        try:
            count = self.read().plan.item_count
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
        expected = runs.dry_run(self._site.context, self.read())
        return PlanValidation(
            job=self.job.name,
            title=self.job.title,
            problems=[],
            itemCount=expected.item_count,
            concurrency=expected.plan.concurrency,
            notes=list(expected.remarks),
            forecast=_planned(expected),
        )

    async def start(self) -> str:
        """Start a detached run; its ID, as soon as it is in the store."""
        request = LaunchRequest(
            job=self.job.name,
            run_id=self._run_id,
            plan_text=self._text,
            folder=str(self._site.folder),
            overrides=self._values,
            workers=self._workers,
            engine=self._engine,
        )
        site = self._site
        return await start_plan(site.context, site.launcher, request, site.data_folder / "plans")


def _planned(expected: runs.DryRun) -> PlannedChanges | None:
    """Cost and duration, from earlier sessions of the same agents and models; the cost from the plan alone
    where some of them are missing."""
    cost, time, estimate = expected.forecast.cost_usd, expected.forecast.seconds, expected.estimate
    if estimate and (cost.unknown or not expected.forecast.items):
        return PlannedChanges(
            costUsd=estimate.cost_usd,
            seconds=None if time.unknown else time.value,
            basis=estimate.basis,
        )
    if not expected.forecast.items:
        return None
    return PlannedChanges(costUsd=cost.value, seconds=time.value, basis=basis(expected.forecast))


def problems_of(error: UsageError) -> list[PlanProblem]:
    """The problems of an error, each with its place in the text where it has one."""
    if not isinstance(error, PlanError):
        problem, _, remedy = str(error).partition("\n")
        return [PlanProblem(problem=problem, remedy=remedy)]
    return [_plan_problem(each) for each in error.problems]


def _plan_problem(problem: Problem) -> PlanProblem:
    """With its line, when it is in the typed text; else with the name of its file."""
    at = problem.at
    if Path(at.file).name in TYPED_NAMES or "/serve/" in at.file:
        return PlanProblem(problem=problem.problem, remedy=problem.remedy, line=at.line, column=at.column)
    return PlanProblem(problem=problem.problem, remedy=problem.remedy, file=f"{at.file}:{at.line}")
