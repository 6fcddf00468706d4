"""Evaluators, human labels of evaluated sessions, and how far judges agree with them."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from proctor.api import labeling, labels
from proctor.api.deprecated import OLD_NAMES_OF_JUDGES
from proctor.api.evaluators import list_evaluators
from proctor.api.labels import JudgeCalibrations, LabeledJudge, Rating
from proctor.api.sessions import find_session
from proctor.evaluators.registry import EvaluatorListing
from proctor.web.access import person_of
from proctor.web.evaluation_schemas import (
    ConfusionShape,
    EvaluatorShape,
    JudgesAnswer,
    JudgeShape,
    LabelsAnswer,
)
from proctor.web.evaluations import estimate_shape
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.run_schemas import RowModel, SessionId
from proctor.web.state import AppState


def evaluator_shapes(site: AppState) -> list[EvaluatorShape]:
    """Every evaluator that can be named on the page."""
    return list(map(_shape, list_evaluators(site.context)))


def _shape(listing: EvaluatorListing) -> EvaluatorShape:
    return EvaluatorShape(
        name=listing.name,
        id=listing.id,
        level=listing.level,
        kind=listing.kind,
        asks_model=listing.asks_model,
        source=listing.source(_file_name(listing)),
        judges=listing.judges[:1].upper() + listing.judges[1:] if listing.is_builtin else listing.judges,
        reference=listing.reference,
        needs_reference=listing.kind == "program",
        ratings=[Rating(label=label, value=value) for label, value in listing.ratings.items()],
        problem=listing.problem,
    )


def _file_name(listing: EvaluatorListing) -> str:
    if listing.path is None:
        return ""
    return str(listing.path) if listing.problem else listing.path.name


Word = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")]

# Landis and Koch's names for ranges of kappa.
STRENGTHS = ((0.8, "almost perfect"), (0.6, "substantial"), (0.4, "moderate"), (0.2, "fair"), (0.0, "slight"))


class NewLabel(RowModel, extra="forbid"):
    """A human label."""

    evaluator: Annotated[Word, Field(min_length=1)]
    author: Word = Field(default="", description="Ignored if the caller has a named token.")
    who: Word = Field(default="", description="Deprecated: `author`.")
    label: Word = ""
    value: Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)] | None = None
    target: Word = Field(default="", description="A trace or tool call; empty: the whole session.")
    dimension: Word = ""
    note: Annotated[str, Field(max_length=20_000, pattern=r"^[^\x00]*$")] = ""


def router(site: AppState) -> APIRouter:
    """The routes of labels and judges."""
    routes = APIRouter(tags=["labels"], responses=ERRORS)
    calibrations = JudgeCalibrations(site.context)

    @routes.get(
        "/api/sessions/{session_id}/labels",
        summary="Scores and human labels of a session",
        response_class=with_deprecated(OLD_NAMES_OF_JUDGES),
    )
    def listed(session_id: SessionId) -> LabelsAnswer:
        return _answer(site, find_session(site.context, session_id).id)

    @routes.post(
        "/api/sessions/{session_id}/labels",
        summary="Label a session; replaces your earlier label",
        response_class=with_deprecated(OLD_NAMES_OF_JUDGES),
    )
    def give(request: Request, session_id: SessionId, new_label: NewLabel) -> LabelsAnswer:
        """Each person has one label per evaluator, dimension and target."""
        id_ = find_session(site.context, session_id).id
        members = new_label.model_dump(exclude={"who"})
        author = person_of(request.scope) or new_label.author or new_label.who
        labels.label_session(site.context, id_, **members | {"author": author})
        return _answer(site, id_)

    @routes.get(
        "/api/judges",
        summary="Agreement of evaluators with human labels",
        response_class=with_deprecated(OLD_NAMES_OF_JUDGES),
    )
    def how_good(
        evaluator: Annotated[str, Query(max_length=500, description="Only this one.")] = "",
    ) -> JudgesAnswer:
        """Computed from existing scores and labels; makes no model calls."""
        judges = calibrations.of(evaluator.replace("\0", ""))
        return JudgesAnswer(judges=list(map(judge_shape, judges)))

    return routes


class QueueRequest(RowModel, extra="forbid"):
    """What somebody wants to label."""

    evaluator: Annotated[Word, Field(min_length=1)]
    dimension: Word = ""
    author: Word = Field(default="", description="Ignored if the caller has a named token.")
    order: labeling.QueueOrder = Field(
        default="random", description="`unsure`: where votes or versions of the judge differ, first."
    )
    session_ids: list[Annotated[str, Field(min_length=1, max_length=300)]] = Field(
        default=[], max_length=labeling.MOST_QUEUED, description="Empty: all sessions with scores."
    )
    limit: Annotated[int, Field(ge=1, le=labeling.MOST_QUEUED)] = 100


class LabelingEvaluator(RowModel):
    """An evaluator whose scores can be labeled."""

    evaluator: str
    dimension: str


class LabelingEvaluators(RowModel):
    """Evaluators whose scores can be labeled."""

    evaluators: list[LabelingEvaluator]


def labeling_router(site: AppState) -> APIRouter:
    """The Labeling page and its routes."""
    routes = APIRouter(tags=["labels"], responses=ERRORS)
    progress = labeling.LabelingProgressOf(site.context)

    @routes.get("/labeling", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "labeling.html", title="Label sessions")

    @routes.get("/api/labeling", summary="Evaluators whose scores can be labeled")
    def evaluators() -> LabelingEvaluators:
        pairs = labeling.evaluators_to_label(site.context)
        return LabelingEvaluators(
            evaluators=[LabelingEvaluator(evaluator=name, dimension=dimension) for name, dimension in pairs]
        )

    @routes.post("/api/labeling", summary="Sessions to label, one by one")
    def queue(request: Request, wanted: QueueRequest) -> labeling.LabelingQueue:
        """In the same order for everybody; without those that the caller has labeled. Scores are not told."""
        return labeling.labeling_queue(
            site.context,
            wanted.evaluator,
            dimension=wanted.dimension,
            author=person_of(request.scope) or wanted.author,
            order=wanted.order,
            session_ids=wanted.session_ids,
            limit=wanted.limit,
        )

    @routes.get("/api/labeling/progress", summary="Agreement of people, and the corrected mean so far")
    def progress_so_far(
        evaluator: Annotated[str, Query(min_length=1, max_length=500, pattern=r"^[^\x00]*$")],
        dimension: Annotated[str, Query(max_length=500, pattern=r"^[^\x00]*$")] = "",
        width: Annotated[
            float | None, Query(gt=0, le=1e9, description="Wanted width of the interval of the mean.")
        ] = None,
    ) -> labeling.LabelingProgress:
        """Computed from existing scores and labels; makes no model calls."""
        return progress(evaluator, dimension, width=width)

    return routes


def _answer(site: AppState, session_id: str) -> LabelsAnswer:
    targets = labels.labeled_targets(site.context, session_id)
    return LabelsAnswer(session_id=session_id, targets=targets)


def judge_shape(judge: LabeledJudge) -> JudgeShape:
    """The response shape of a judge."""
    calibration = judge.calibration
    return JudgeShape(
        evaluator=judge.evaluator,
        dimension=judge.dimension,
        level=judge.level,
        labels=judge.labels,
        targets=calibration.things,
        sessions=calibration.sessions,
        people=calibration.people,
        agreement=estimate_shape(calibration.agreement),
        kappa=estimate_shape(calibration.kappa),
        weighted=calibration.weighted,
        alpha=estimate_shape(calibration.alpha),
        human_alpha=calibration.human_alpha,
        bias=estimate_shape(calibration.bias),
        confusion=[
            ConfusionShape(human=human, judge=machine, count=count)
            for (human, machine), count in sorted(calibration.confusion.items())
        ],
        order=list(calibration.words),
        text=_summary(judge),
        # The option exists only on the command line.
        notes=[remark.replace(" (--repeats 3)", "") for remark in calibration.remarks],
    )


def _summary(judge: LabeledJudge) -> str:
    calibration = judge.calibration
    if not calibration.things:
        return "It has judged nothing that people have labeled."
    same = f"The same as people in {calibration.agreement.successes} of {calibration.agreement.trials}"
    value = calibration.kappa.value
    if value is None:
        return f"{same}."
    strength = next((name for least, name in STRENGTHS if value > least), "no")
    return f"{same}: {strength} agreement beyond chance."
