"""The New Evaluation page: choose sessions, evaluators and ground truth, estimate the cost, start.

An evaluation is checked and opened in this process; a detached process executes it.
"""

import asyncio
import re
import secrets
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from proctor.api import evaluation as api
from proctor.errors import UsageError
from proctor.json_values import JsonObject, without_empty
from proctor.plan.source import MOST_BYTES
from proctor.web.evaluation_schemas import EvaluatorsAnswer
from proctor.web.labels import evaluator_shapes
from proctor.web.plans import GROUND_TRUTH, PlanProblem, problems_of
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import RowModel
from proctor.web.state import AppState

CHECK_SECONDS = 120
SHOWN = 5
"""Sessions that a preview names."""
Word = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
Words = Annotated[list[Word], Field(max_length=500)]
Moment = Annotated[str, Field(max_length=40, pattern=r"^[0-9T:.Z+ -]*$")]


class SessionSource(RowModel, extra="forbid"):
    """Source of sessions. Empty lists select all."""

    kind: Literal["arrived", "runs", "files"] = Field(
        description="Received or imported sessions; sessions of Proctor runs; files to import."
    )
    log_groups: Words = Field(default=[])
    services: Words = Field(default=[])
    session_ids: Words = Field(default=[])
    run_ids: Words = Field(default=[])
    jobs: Words = Field(default=[])
    models: Words = Field(default=[])
    paths: Words = Field(default=[], description="Files or folders on the server.")
    file_kind: Annotated[str, Field(max_length=40, pattern=r"^[a-z0-9_-]*$")] = ""
    start: Moment = Field(default="", description="Active at or after: 2026-01-31T14:00Z.")
    end: Moment = Field(default="", description="Active before.")

    @property
    def document(self) -> JsonObject:
        """The member `dataSourceConfig` of a request."""
        if self.kind == "files":
            if not self.paths:
                raise UsageError("name a file or a folder\nOr choose another source.")
            return {"files": {"paths": self.paths, "kind": self.file_kind or "auto"}}
        filters = without_empty(
            {
                "sessionIds": self.session_ids,
                "timeRange": without_empty({"startTime": self.start, "endTime": self.end}),
            }
        )
        if self.kind == "runs":
            own = {"runIds": self.run_ids, "jobs": self.jobs, "models": self.models}
            return {"store": without_empty(own) | filters}
        groups = {"logGroupNames": self.log_groups, "serviceNames": self.services}
        # Every log group has the empty prefix.
        named = without_empty(groups) or {"logGroupNamePrefixes": [""]}
        return {"cloudWatchLogs": named | ({"filterConfig": filters} if filters else {})}


class ComparedPairs(RowModel, extra="forbid"):
    """How sessions of the same task are compared in pairs."""

    by: Word = Field(
        default="run",
        description="`run`, `model`, `agent`, `service`, `version`, `prompt`, or a factor or attribute.",
    )
    task: Annotated[str, Field(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")] = Field(
        default="", description="Factor or attribute that names the task. Empty: scenario, task or prompt."
    )
    question: Annotated[str, Field(max_length=10_000)] = Field(
        default="", description="What the judge is asked."
    )


class NewEvaluation(RowModel, extra="forbid"):
    """An evaluation as entered on the page."""

    name: Annotated[str, Field(pattern=f"^{api.NAME.pattern}$")]
    source: SessionSource
    evaluators: Annotated[list[Word], Field(max_length=50)] = Field(default=[])
    pairwise: ComparedPairs | None = Field(
        default=None, description="Compare the sessions in pairs. Null: score them by the evaluators."
    )
    judge: Annotated[str, Field(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    votes: Annotated[int, Field(ge=1, le=99)] = 1
    budget: Annotated[float, Field(gt=0, le=1e9)] | None = None
    max_sessions: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=1000)] | None = None
    description: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    ground_truth: Annotated[str, Field(max_length=MOST_BYTES)] = Field(
        default="", description="YAML or JSON, in the format of a ground-truth file."
    )

    def pending(self, folder: Path) -> api.PendingEvaluationRequest:
        """The request; relative paths begin in `folder`. Raises with every problem of the ground truth."""
        members: JsonObject = {
            "batchEvaluationName": self.name,
            "evaluators": self.evaluators,
            "pairwise": without_empty(self.pairwise.model_dump()) if self.pairwise else None,
            "dataSourceConfig": self.source.document,
            "votes": self.votes,
            "judge": self.judge,
            "budget": self.budget,
            "maxSessions": self.max_sessions,
            "concurrency": self.concurrency,
            "description": self.description,
        }
        if self.ground_truth.strip():
            dataset = api.read_dataset(self.ground_truth, file=GROUND_TRUTH)
            members["groundTruth"] = [dataset.mention]
            members["evaluationMetadata"] = {"sessionMetadata": dataset.metadata}
        return api.pending_request(without_empty(members), folder=folder)


class SourcesAnswer(RowModel):
    """Sources of received sessions."""

    arrived: list[api.LogGroup]
    file_kinds: list[str] = Field(description="Import formats; the first detects the format.")


class SessionPreview(RowModel):
    """The sessions that a source selects."""

    sessions: int
    ignored: int = Field(description="Sessions beyond the maximum.")
    examples: list[str] = Field(description="The most recent ones.")
    problem: str = Field(default="", description="Why no session is selected.")


class CheckedEvaluation(RowModel):
    """Estimate of an evaluation, or its problems."""

    problems: list[PlanProblem]
    sessions: int | None = None
    item_count: int | None = None
    cost_usd: float | None = Field(default=None, description="Null: unknown.")
    evaluators: list[api.EvaluatorEstimate] = Field(default=[])


class GroundTruthText(RowModel, extra="forbid"):
    """Typed ground truth."""

    text: Annotated[str, Field(max_length=MOST_BYTES)]


class GroundTruthCheck(RowModel):
    """Problems or contents of ground truth."""

    problems: list[PlanProblem]
    name: str = ""
    entries: int = 0
    sessions: list[str] = Field(default=[], description="Session IDs in it, at most a hundred.")
    scenarios: list[str] = Field(default=[])


class StartedEvaluation(RowModel):
    """A started evaluation."""

    id: str


class Upload(RowModel, extra="forbid"):
    """An uploaded file."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    text: Annotated[str, Field(max_length=12_000_000)]


class Uploaded(RowModel):
    """Path of the uploaded file on the server."""

    path: str


def router(site: AppState) -> APIRouter:
    """The routes of the New Evaluation page."""
    routes = APIRouter(prefix="/api/evaluations", tags=["evaluations"], responses=ERRORS)

    @routes.get("/evaluators", summary="List evaluators")
    def evaluators() -> EvaluatorsAnswer:
        judge = str(site.evaluation.get("judge") or "")
        return EvaluatorsAnswer(evaluators=evaluator_shapes(site), judge=judge)

    @routes.get("/sources", summary="List sources of received sessions")
    def sources() -> SourcesAnswer:
        arrived = api.received_sessions(site.context)
        return SourcesAnswer.model_validate({"arrived": arrived, "fileKinds": api.import_kinds()})

    @routes.post("/preview", summary="Preview the sessions of a source")
    def preview(source: SessionSource) -> SessionPreview:
        return _preview(site, source)

    @routes.post("/truth", summary="Check ground truth")
    def truth(typed: GroundTruthText) -> GroundTruthCheck:
        return _check_truth(typed.text)

    @routes.post("/files", status_code=201, summary="Upload a file of sessions to evaluate")
    def upload(uploaded: Upload) -> Uploaded:
        if site.context.store.data_keys.is_encrypted:
            raise UsageError(
                "the store is encrypted, and an uploaded file would not be\n"
                "Import it into the store:  proctor import auto FILE"
            )
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(uploaded.name).name).strip(".-") or "records"
        folder = site.data_folder / "uploads" / secrets.token_hex(6)
        folder.mkdir(parents=True)
        (folder / safe).write_text(uploaded.text, encoding="utf-8", errors="replace")
        return Uploaded(path=str(folder / safe))

    @routes.post("/check", summary="Check and estimate an evaluation; start nothing")
    async def check(evaluation: NewEvaluation) -> CheckedEvaluation:
        try:
            return await asyncio.wait_for(asyncio.to_thread(_check, site, evaluation), CHECK_SECONDS)
        except TimeoutError:
            problem = UsageError(f"the check took more than {CHECK_SECONDS} s\nTry it on the command line.")
            return CheckedEvaluation(problems=problems_of(problem))
        except UsageError as error:
            return CheckedEvaluation(problems=problems_of(error))

    @routes.post("", status_code=201, summary="Start an evaluation")
    def start(new: NewEvaluation) -> StartedEvaluation:
        """Responds as soon as the evaluation is in the store and its process has started."""
        evaluation = api.open_request(site.context, new.pending(site.folder), is_detached=True)
        api.detach_evaluation(site.context, evaluation.id, launcher=site.launcher)
        return StartedEvaluation(id=evaluation.id)

    return routes


def _check(site: AppState, new: NewEvaluation) -> CheckedEvaluation:
    result = api.estimate(site.context, new.pending(site.folder))
    return CheckedEvaluation.model_validate({**result.document, "problems": []})


def _check_truth(text: str) -> GroundTruthCheck:
    try:
        dataset = api.read_dataset(text, file=GROUND_TRUTH)
    except UsageError as error:
        return GroundTruthCheck(problems=problems_of(error))
    return GroundTruthCheck(
        problems=[],
        name=dataset.name if dataset.name != GROUND_TRUTH else "",
        entries=len(dataset.metadata),
        sessions=[str(each["sessionId"]) for each in dataset.metadata if each.get("sessionId")][:100],
        scenarios=[str(each["testScenarioId"]) for each in dataset.metadata if each.get("testScenarioId")][
            :100
        ],
    )


def _preview(site: AppState, source: SessionSource) -> SessionPreview:
    if source.kind == "files":
        there = [path for path in source.paths if (site.folder / path).exists()]
        missing = [path for path in source.paths if path not in there]
        problem = f"there is no {missing[0]} on the server's machine" if missing else ""
        return SessionPreview(sessions=0, ignored=0, examples=[], problem=problem)
    try:
        discovery, named = api.preview_sessions(site.context, source.document, most_named=SHOWN)
    except UsageError as error:
        return SessionPreview(sessions=0, ignored=0, examples=[], problem=str(error))
    problem = "" if discovery.ids else "no session fits"
    return SessionPreview(
        sessions=len(discovery.ids), ignored=discovery.ignored, examples=named, problem=problem
    )
