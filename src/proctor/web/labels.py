"""Human labels of evaluated sessions, and how far judges agree with them."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from proctor.cache import LruCache
from proctor.errors import UsageError
from proctor.evaluators.builtins import JUDGED, PREFIX
from proctor.evaluators.matchers import MATCHINGS
from proctor.evaluators.registry import (
    EvaluatorListing,
    builtin_listing,
    definition_files,
    list_evaluators,
    read_definition,
)
from proctor.evaluators.registry import ratings_of as definition_ratings
from proctor.json_values import JsonMap
from proctor.score import Level
from proctor.stats.calibration import LabeledJudge, judges
from proctor.store import transcripts
from proctor.store.annotations import RATING, RATINGS, Label, labels_state
from proctor.store.tables import LabelRow, ScoreRow
from proctor.web.access import person_of
from proctor.web.evaluation_schemas import (
    ConfusionShape,
    EvaluatorShape,
    JudgesAnswer,
    JudgeShape,
    LabelledThing,
    LabelsAnswer,
    LabelShape,
    RatingShape,
)
from proctor.web.evaluations import estimate_shape, verdict_shape
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import RowModel, SessionId
from proctor.web.sessions import find_session
from proctor.web.state import AppState


def evaluator_shapes(site: AppState) -> list[EvaluatorShape]:
    """Every evaluator that can be named on the page."""
    return [_shape(each) for each in list_evaluators(_folders(site), site.store.definitions.all_evaluators())]


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
        ratings=_ratings(listing.ratings),
        problem=listing.problem,
    )


def _file_name(listing: EvaluatorListing) -> str:
    if listing.path is None:
        return ""
    return str(listing.path) if listing.problem else listing.path.name


def ratings_of(site: AppState, evaluator: str, dimension: str = "") -> list[RatingShape]:
    """The rating scale of an evaluator; empty: unknown or free."""
    if evaluator == RATING:
        return _ratings(RATINGS)
    if evaluator in MATCHINGS or evaluator in {PREFIX + name for name in JUDGED}:
        return _ratings(builtin_listing(evaluator).ratings)
    document: JsonMap | None = site.store.definitions.document(evaluator)
    if document is None:
        definitions = filter(None, map(_read, definition_files(_folders(site))))
        document = next((each for each in definitions if each.get("evaluatorName") == evaluator), None)
    return _ratings(definition_ratings(document, dimension)) if document else []


def order_of(site: AppState, evaluator: str, dimension: str) -> list[str]:
    """The labels of an evaluator, lowest first; empty when they have no order."""
    ratings = ratings_of(site, evaluator, dimension)
    if any(rating.value is None for rating in ratings):
        return []
    return [rating.label for rating in sorted(ratings, key=lambda rating: rating.value or 0.0)]


def _folders(site: AppState) -> list[Path]:
    return [site.folder / "evaluators", site.home / "evaluators"]


def _read(path: Path) -> JsonMap | None:
    try:
        return read_definition(path)
    except UsageError:
        return None


def _ratings(scale: Mapping[str, float | None]) -> list[RatingShape]:
    return [RatingShape(label=label, value=value) for label, value in scale.items()]


MOST_THINGS = 400
Word = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")]
Key = tuple[str, str, str]
"""An evaluator, a dimension, a target."""

# Landis and Koch's names for ranges of kappa.
STRENGTHS = ((0.8, "almost perfect"), (0.6, "substantial"), (0.4, "moderate"), (0.2, "fair"), (0.0, "slight"))


class NewLabel(RowModel, extra="forbid"):
    """A human label."""

    evaluator: Annotated[Word, Field(min_length=1)]
    who: Word = Field(default="", description="Ignored if the caller has a named token.")
    label: Word = ""
    value: Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)] | None = None
    target: Word = Field(default="", description="A trace or tool call; empty: the whole session.")
    dimension: Word = ""
    note: Annotated[str, Field(max_length=20_000, pattern=r"^[^\x00]*$")] = ""


def router(site: AppState) -> APIRouter:
    """The routes of labels and judges."""
    routes = APIRouter(tags=["labels"], responses=ERRORS)
    cache = _CalibrationCache(site)

    @routes.get("/api/sessions/{session_id}/labels", summary="Scores and human labels of a session")
    def listed(session_id: SessionId) -> LabelsAnswer:
        return _answer(site, find_session(site, session_id)["id"])

    @routes.post("/api/sessions/{session_id}/labels", summary="Label a session; replaces your earlier label")
    def give(request: Request, session_id: SessionId, new_label: NewLabel) -> LabelsAnswer:
        """Each person has one label per evaluator, dimension and target."""
        id_ = find_session(site, session_id)["id"]
        site.store.save_label(_label(site, id_, new_label, person_of(request.scope)), site.now())
        return _answer(site, id_)

    @routes.get("/api/judges", summary="Agreement of evaluators with human labels")
    def how_good(
        evaluator: Annotated[str, Query(max_length=500, description="Only this one.")] = "",
    ) -> JudgesAnswer:
        """Computed from existing scores and labels; makes no model calls."""
        return JudgesAnswer(judges=cache.of(evaluator.replace("\0", "")))

    return routes


class _CalibrationCache:
    """Cache of judges' calibration, valid until scores or labels change: their intervals take a while."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._cache: LruCache[str, tuple[object, list[JudgeShape]]] = LruCache(MOST_THINGS)

    def of(self, evaluator: str) -> list[JudgeShape]:
        """The calibration of an evaluator's judges, computed once for each state of scores and labels."""
        state = self._state(evaluator)
        with self._lock:
            cached = self._cache.get(evaluator)
            if cached is None or cached[0] != state:
                cached = (state, self._compute(evaluator))
                self._cache.put(evaluator, cached)
            return cached[1]

    def _compute(self, evaluator: str) -> list[JudgeShape]:
        def order(name: str, dimension: str) -> Sequence[str]:
            return order_of(self._site, name, dimension)

        def scale(name: str, dimension: str) -> tuple[float, float] | None:
            values = [
                each.value for each in ratings_of(self._site, name, dimension) if each.value is not None
            ]
            return (min(values), max(values)) if len(set(values)) > 1 else None

        read = self._site.store.read
        # No evaluator judges what ratings are about.
        labeled = [
            each for each in judges(read, order, scale, evaluator=evaluator) if each.evaluator != RATING
        ]
        return [judge_shape(each) for each in labeled]

    def _state(self, evaluator: str) -> tuple[object, ...]:
        return tuple(labels_state(self._site.store.read, evaluator).values())


def judge_shape(judge: LabeledJudge) -> JudgeShape:
    """The response shape of a judge."""
    calibration = judge.calibration
    return JudgeShape(
        evaluator=judge.evaluator,
        dimension=judge.dimension,
        level=judge.level,
        labels=judge.labels,
        things=calibration.things,
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
        words=_summary(judge),
        # The option exists only on the command line.
        remarks=[remark.replace(" (--repeats 3)", "") for remark in calibration.remarks],
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


def _label(site: AppState, session_id: str, new_label: NewLabel, person: str) -> Label:
    ratings = ratings_of(site, new_label.evaluator, new_label.dimension)
    label, value = _on_scale(ratings, new_label.label.strip(), new_label.value)
    if new_label.evaluator == RATING and label not in RATINGS:
        raise UsageError("a rating is a whole number from 1 to 5")
    return Label(
        session_id=session_id,
        evaluator=new_label.evaluator,
        who=person or new_label.who.strip() or "someone",
        label=label,
        value=value,
        level=_level(site, session_id, new_label.target),
        target=new_label.target,
        dimension=new_label.dimension,
        note=new_label.note,
    )


def _on_scale(ratings: Sequence[RatingShape], label: str, value: float | None) -> tuple[str, float | None]:
    """Label and value on the rating scale; unchanged if there is none."""
    if label:
        for rating in ratings:
            if rating.label.casefold() == label.casefold():
                return rating.label, rating.value if value is None else value
    elif value is not None:
        for rating in ratings:
            if rating.value == value:
                return rating.label, value
    return label, value


def _level(site: AppState, session_id: str, target: str) -> Level:
    if not target:
        return "session"
    for row in transcripts.scores(site.store.read, session_id):
        if row["target"] == target:
            return row["level"]
    evidence = site.store.read.evidence(session_id)
    if target in {trace.id for trace in evidence.traces}:
        return "trace"
    if target in {call.call_id for call in evidence.tool_calls}:
        return "tool_call"
    raise UsageError(f"the session has no turn and no tool call {target}\nLeave it out to label the session.")


def _answer(site: AppState, session_id: str) -> LabelsAnswer:
    rows = [row for row in transcripts.scores(site.store.read, session_id) if _is_about(row, session_id)]
    # Ordered by time: later scores replace earlier ones.
    verdicts: dict[Key, ScoreRow] = {_key(row): row for row in rows}
    labels: dict[Key, list[LabelRow]] = {}
    for label in site.store.labels(session_ids=[session_id]):
        labels.setdefault(_key(label), []).append(label)
    keys = sorted({*verdicts, *labels}, key=lambda key: (key[0], key[1], _place(verdicts.get(key)), key[2]))
    scales: dict[tuple[str, str], list[RatingShape]] = {}
    for name, dimension, _ in keys[:MOST_THINGS]:
        if (name, dimension) not in scales:
            scales[name, dimension] = ratings_of(site, name, dimension)
    return LabelsAnswer(
        session_id=session_id,
        things=[
            LabelledThing(
                evaluator=key[0],
                dimension=key[1],
                target=key[2],
                level=(verdicts.get(key) or labels[key][0])["level"],
                verdict=verdict_shape(verdicts[key]) if key in verdicts else None,
                labels=[LabelShape.model_validate(row) for row in labels.get(key, ())],
                ratings=scales[key[0], key[1]],
            )
            for key in keys[:MOST_THINGS]
        ],
    )


def _is_about(row: ScoreRow, session_id: str) -> bool:
    return bool((row["judgedSessionId"] or row["sessionId"]) == session_id)


def _key(row: ScoreRow | LabelRow) -> Key:
    return row["evaluator"], row["dimension"], row["target"]


def _place(row: ScoreRow | None) -> int:
    return int(row["position"]) if row else 0
