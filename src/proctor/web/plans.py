"""New Batch: a plan that is typed in is checked, looked at from all sides, and started.

What is started is a command of its own, on a file that is kept in the server's folder, so that it can be
resumed like any other.

Knows nothing of how items are carried out.
"""

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.analyse.forecast import forecast
from proctor.errors import Place, PlanError, Problem, UsageError
from proctor.plan.reading import MOST_BYTES, read_source
from proctor.store import listing
from proctor.web.answers import ERRORS, page
from proctor.web.examples import Example, examples
from proctor.web.jobs import JOBS, Job, Reading, find_job, recognise
from proctor.web.launching import Launched, asked, launch
from proctor.web.site import Site

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


class Typed(BaseModel):
    """A plan as it stands on the page."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=MOST_BYTES)]
    job: str = ""
    """Empty: it is recognised by its keys."""
    overrides: Override = Override()

    @property
    def kind(self) -> Job:
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


class Checked(BaseModel):
    """What is wrong with a plan by itself."""

    job: str
    title: str
    problems: list[PlanProblem]
    itemCount: int | None = None  # noqa: N815
    """None: it cannot be told without a look at the surroundings, or something is wrong."""


class Foreseen(BaseModel):
    """What a batch is expected to take."""

    costUsd: float | None  # noqa: N815
    """None: unknown."""
    seconds: float | None
    basis: str
    """How it was reckoned."""


class Validated(Checked):
    """What is wrong with a plan and what it names, and what it is going to take."""

    concurrency: int | None = None
    remarks: list[str] = []
    """Worth knowing, no reason to stop."""
    forecast: Foreseen | None = None


class Started(BaseModel):
    """A run that is under way."""

    runId: str  # noqa: N815


class JobKind(BaseModel):
    """A job that can be typed in."""

    name: str
    title: str
    overrides: list[str]
    json_schema: dict[str, Any] = Field(alias="schema")


def router(site: Site) -> APIRouter:
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
    def check(typed: Typed) -> Checked:
        job = typed.kind
        try:
            reading = _readable(site, typed)
        except UsageError as error:
            return Checked(job=job.name, title=job.title, problems=problems_of(error))
        return Checked(job=job.name, title=job.title, problems=[], itemCount=reading.item_count)

    @made.post("/api/plans/validate", summary="Look at all a plan names; start nothing", responses=ERRORS)
    async def validate(typed: Typed) -> Validated:
        return await asyncio.to_thread(_read, site, typed) or await _looked_at(site, typed)

    @made.post("/api/runs", status_code=201, summary="Start a plan", responses=ERRORS, tags=["runs"])
    async def start(typed: Typed) -> Started:
        await asyncio.to_thread(_readable, site, typed)
        return Started(runId=await _started(site, typed))

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


def _readable(site: Site, typed: Typed) -> Reading:
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


def _read(site: Site, typed: Typed) -> Validated | None:
    """What is wrong with the text by itself; None when nothing is."""
    job = typed.kind
    try:
        _readable(site, typed)
    except UsageError as error:
        return Validated(job=job.name, title=job.title, problems=problems_of(error))
    return None


async def _looked_at(site: Site, typed: Typed) -> Validated:
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
        return Validated(job=job.name, title=job.title, problems=_refusal(document, told))
    reading = await asyncio.to_thread(job.read, site, typed.text, typed.overrides.given)
    return Validated(
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


def _told(document: Mapping[str, Any]) -> Foreseen | None:
    """What the command itself expects; None when it says nothing."""
    if "costUsd" not in document:
        return None
    return Foreseen(costUsd=document["costUsd"], seconds=None, basis="From how long the sessions are.")


def _foreseen(site: Site, job: Job, reading: Reading) -> Foreseen | None:
    if not (work := reading.work()):
        return None
    found = forecast(site.store.read, job.name, work, concurrency=reading.concurrency)
    return Foreseen(costUsd=found.cost_usd, seconds=found.seconds, basis=found.basis)


async def _started(site: Site, typed: Typed) -> str:
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


async def _in_the_store(site: Site, path: Path, begun: Launched) -> str:
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


def _why_not(begun: Launched) -> UsageError:
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
