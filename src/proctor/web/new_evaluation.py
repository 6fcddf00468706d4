"""New Evaluation: say which sessions, who judges and what was expected; see what that takes; start it.

What is started is the command itself (`proctor evaluate start --detach`), which checks everything, writes
the job down and leaves it to a process of its own.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field

from proctor.batch.ingest import build_sessions, import_kinds
from proctor.errors import PlanError, UsageError
from proctor.jobs.evaluation.ground_truth import read_dataset
from proctor.jobs.evaluation.items import SessionDiscovery, discover, select_sessions
from proctor.jobs.evaluation.request import NAME, EvaluationRequest, moment_of
from proctor.plan.source import MOST_BYTES
from proctor.store import evaluations
from proctor.web.evaluation_schemas import EvaluatorsAnswer
from proctor.web.labels import found_evaluators
from proctor.web.launching import asked
from proctor.web.plans import PlanProblem, problems_of
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import RowModel
from proctor.web.state import AppState

LOOKING_SECONDS = 120


STARTING_SECONDS = 300
"""Files are imported before the job is there."""


SHOWN = 5
"""Sessions that a preview names."""


Word = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]


Words = Annotated[list[Word], Field(max_length=500)]


Moment = Annotated[str, Field(max_length=40, pattern=r"^[0-9T:.Z+ -]*$")]


class SessionSource(RowModel, extra="forbid"):
    """Where the sessions are. Every list that is empty lets all pass."""

    kind: Literal["arrived", "runs", "files"] = Field(
        description="What arrived by telemetry or import; what was carried out here; files to be imported."
    )
    log_groups: Words = Field(default=[])
    services: Words = Field(default=[])
    session_ids: Words = Field(default=[])
    run_ids: Words = Field(default=[])
    jobs: Words = Field(default=[])
    models: Words = Field(default=[])
    paths: Words = Field(default=[], description="Files or folders of the server's machine.")
    file_kind: Annotated[str, Field(max_length=40, pattern=r"^[a-z0-9_-]*$")] = ""
    start: Moment = Field(default="", description="Active at or after: 2026-01-31T14:00Z.")
    end: Moment = Field(default="", description="Active before.")

    @property
    def document(self) -> dict[str, Any]:
        """The same as a request has it, for a look at the sessions."""
        named = [("startTime", self.start), ("endTime", self.end)]
        period = {name: str(moment_of(value)) for name, value in named if value}
        if self.kind == "runs":
            own = {"runIds": self.run_ids, "jobs": self.jobs, "models": self.models}
            own |= {"sessionIds": self.session_ids}
            filters: dict[str, Any] = {name: value for name, value in own.items() if value}
            return {"store": filters | ({"timeRange": period} if period else {})}
        groups = {"logGroupNames": self.log_groups, "serviceNames": self.services}
        config = {"sessionIds": self.session_ids, "timeRange": period}
        return {
            "cloudWatchLogs": {name: value for name, value in groups.items() if value}
            | {"filterConfig": {name: value for name, value in config.items() if value}}
        }

    def flags(self) -> Iterator[tuple[str, str]]:
        """The same as the command takes it."""
        if self.kind == "files":
            if not self.paths:
                raise UsageError("name a file or a folder\nOr choose another source.")
            yield from (("files", path) for path in self.paths)
            if self.file_kind:
                yield "kind", self.file_kind
            return
        if self.kind == "runs":
            for name, values in (("run", self.run_ids), ("job", self.jobs), ("model", self.models)):
                yield from ((name, value) for value in values)
        else:
            yield from (("log-group", group) for group in self.log_groups)
            yield from (("service", service) for service in self.services)
            if not self.log_groups and not self.services:
                # Every log group begins with nothing.
                yield "log-group-prefix", ""
        yield from (("session-id", session) for session in self.session_ids)
        yield from ((name, value) for name, value in (("start", self.start), ("end", self.end)) if value)


class NewEvaluation(RowModel, extra="forbid"):
    """A job as it stands on the page."""

    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    source: SessionSource
    evaluators: Annotated[list[Word], Field(min_length=1, max_length=50)]
    judge: Annotated[str, Field(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    votes: Annotated[int, Field(ge=1, le=99)] = 1
    budget: Annotated[float, Field(gt=0, le=1e9)] | None = None
    max_sessions: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=1000)] | None = None
    description: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    ground_truth: Annotated[str, Field(max_length=MOST_BYTES)] = Field(
        default="", description="YAML or JSON, as a file of ground truth has it."
    )

    def words(self, truth: Path | None) -> list[str]:
        """The words after `proctor evaluate start`."""
        given = [("name", self.name), *(("evaluator", each) for each in self.evaluators)]
        given += [*self.source.flags(), ("votes", str(self.votes))]
        rest = {
            "judge": self.judge,
            "budget": self.budget,
            "max-sessions": self.max_sessions,
            "concurrency": self.concurrency,
            "description": self.description,
            "ground-truth": truth,
        }
        given += [(name, str(value)) for name, value in rest.items() if value not in (None, "")]
        return [f"--{name}={value}" for name, value in given]


class ReceivedTraces(RowModel):
    """Sessions of one log group and service."""

    log_group: str
    service: str
    sessions: int
    last: str | None


class SourcesAnswer(RowModel):
    """Where sessions have arrived that were not carried out here."""

    arrived: list[ReceivedTraces]
    file_kinds: list[str] = Field(description="What files can be; the first finds out.")


class SessionPreview(RowModel):
    """The sessions a source comes to."""

    sessions: int
    ignored: int = Field(description="Found beyond the most that are to be judged.")
    examples: list[str] = Field(description="The most recent ones.")
    problem: str = Field(default="", description="Why it comes to none.")


class EvaluatorForecast(RowModel):
    """What one evaluator is going to take."""

    evaluator: str
    level: str
    model: str | None
    results: int
    calls: int
    tokens: int
    cost_usd: float | None


class CheckedEvaluation(RowModel):
    """What a job is going to take, or what is wrong with it."""

    problems: list[PlanProblem]
    sessions: int | None = None
    item_count: int | None = None
    cost_usd: float | None = Field(default=None, description="Null: unknown.")
    evaluators: list[EvaluatorForecast] = Field(default=[])


class GroundTruthText(RowModel, extra="forbid"):
    """Ground truth as it is typed in."""

    text: Annotated[str, Field(max_length=MOST_BYTES)]


class GroundTruthCheck(RowModel):
    """What is wrong with ground truth, or what it says."""

    problems: list[PlanProblem]
    name: str = ""
    entries: int = 0
    sessions: list[str] = Field(default=[], description="Session ids it names, at most a hundred.")
    scenarios: list[str] = Field(default=[])


class StartedEvaluation(RowModel):
    """A job that is under way."""

    id: str


class Upload(RowModel, extra="forbid"):
    """A file of the browser's machine."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    text: Annotated[str, Field(max_length=12_000_000)]


class Uploaded(RowModel):
    """Where it is now."""

    path: str


def router(site: AppState) -> APIRouter:
    """What New Evaluation asks."""
    made = APIRouter(prefix="/api/evaluations", tags=["evaluations"], responses=ERRORS)

    @made.get("/evaluators", summary="The evaluators that can be named")
    def evaluators() -> EvaluatorsAnswer:
        judge = str(site.evaluation.get("judge") or "")
        return EvaluatorsAnswer(evaluators=found_evaluators(site), judge=judge)

    @made.get("/sources", summary="Where sessions have arrived")
    def sources() -> SourcesAnswer:
        build_sessions(site.store, site.now())
        rows = evaluations.log_groups(site.store.read)
        return SourcesAnswer(
            arrived=[ReceivedTraces.model_validate(row) for row in rows], file_kinds=import_kinds()
        )

    @made.post("/preview", summary="The sessions a source comes to")
    def preview(source: SessionSource) -> SessionPreview:
        return _previewed(site, source)

    @made.post("/truth", summary="What is wrong with ground truth, or what it says")
    def truth(typed: GroundTruthText) -> GroundTruthCheck:
        return _checked_truth(typed.text)

    @made.post("/files", status_code=201, summary="Bring a file of records to be judged")
    def upload(given: Upload) -> Uploaded:
        if site.store.data_keys.is_sealed:
            raise UsageError(
                "the store is sealed, and a file that is brought here would lie open beside it\n"
                "Bring it into the store:  proctor import auto FILE"
            )
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(given.name).name).strip(".-") or "records"
        folder = site.kept / "uploads" / secrets.token_hex(6)
        folder.mkdir(parents=True)
        (folder / safe).write_text(given.text, encoding="utf-8", errors="replace")
        return Uploaded(path=str(folder / safe))

    @made.post("/check", summary="What a job is going to take; start nothing")
    async def check(wanted: NewEvaluation) -> CheckedEvaluation:
        if wanted.ground_truth.strip() and (problems := _checked_truth(wanted.ground_truth).problems):
            return CheckedEvaluation(problems=problems)
        try:
            document = await _answered(site, wanted, "--dry-run", seconds=LOOKING_SECONDS)
        except UsageError as error:
            return CheckedEvaluation(problems=problems_of(error))
        return CheckedEvaluation(
            problems=[],
            sessions=document["sessions"],
            item_count=document["itemCount"],
            cost_usd=document["costUsd"],
            evaluators=[EvaluatorForecast.model_validate(each) for each in document["evaluators"]],
        )

    @made.post("", status_code=201, summary="Start a job")
    async def start(wanted: NewEvaluation) -> StartedEvaluation:
        """Answers as soon as the job is written down and its process has begun."""
        if wanted.ground_truth.strip():
            read_dataset(wanted.ground_truth, file="ground truth")
        document = await _answered(site, wanted, "--detach", seconds=STARTING_SECONDS)
        return StartedEvaluation(id=document["batchEvaluationId"])

    return made


async def _answered(site: AppState, wanted: NewEvaluation, how: str, *, seconds: float) -> Mapping[str, Any]:
    """What the command says; a `UsageError` with its own words when it refuses."""
    truth = _kept_truth(site, wanted.ground_truth)
    words = ["evaluate", "start", *wanted.words(truth), how, "--json"]
    try:
        code, document, told = await asked(site, words, seconds=seconds)
    except TimeoutError:
        raise UsageError(f"it took more than {seconds:g} s\nTry it on the command line.") from None
    finally:
        if truth and site.store.data_keys.is_sealed:
            # What was typed in is in the store by now, sealed.
            truth.unlink(missing_ok=True)
    if code or not {"batchEvaluationId", "dryRun"} & set(document):
        words_ = str(document.get("error") or told.rpartition("proctor: ")[2].strip()[:2000])
        raise UsageError(words_ or "it cannot be started, and does not say why")
    return document


def _kept_truth(site: AppState, text: str) -> Path | None:
    if not text.strip():
        return None
    folder = site.kept / "truths"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{site.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    return path


def _checked_truth(text: str) -> GroundTruthCheck:
    try:
        found = read_dataset(text, file="plan")
    except PlanError as error:
        return GroundTruthCheck(problems=problems_of(error))
    except UsageError as error:
        return GroundTruthCheck(problems=problems_of(error))
    return GroundTruthCheck(
        problems=[],
        name=found.name if found.name != "plan" else "",
        entries=len(found.metadata),
        sessions=[str(each["sessionId"]) for each in found.metadata if each.get("sessionId")][:100],
        scenarios=[str(each["testScenarioId"]) for each in found.metadata if each.get("testScenarioId")][
            :100
        ],
    )


def _previewed(site: AppState, source: SessionSource) -> SessionPreview:
    if source.kind == "files":
        there = [path for path in source.paths if (site.folder / path).exists()]
        missing = [path for path in source.paths if path not in there]
        problem = f"there is no {missing[0]} on the server's machine" if missing else ""
        return SessionPreview(sessions=0, ignored=0, examples=[], problem=problem)
    try:
        found = _discovered(site, source)
    except UsageError as error:
        return SessionPreview(sessions=0, ignored=0, examples=[], problem=str(error))
    named = [each.external_id for each in select_sessions(site.store.read, found.ids[:SHOWN])]
    problem = "" if found.ids else "no session fits"
    return SessionPreview(sessions=len(found.ids), ignored=found.ignored, examples=named, problem=problem)


def _discovered(site: AppState, source: SessionSource) -> SessionDiscovery:
    document = {"batchEvaluationName": "preview", "dataSourceConfig": source.document}
    if source.kind == "arrived":
        build_sessions(site.store, site.now())
    return discover(site.store.read, EvaluationRequest.from_document(document).sessions)
