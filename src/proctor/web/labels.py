"""What people say of what was judged, and how good that shows the judges to be.

Knows nothing of how anything is judged.
"""

import threading
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from proctor.analyse.judges import Judge, judges
from proctor.errors import UsageError
from proctor.score import Level
from proctor.store import transcripts
from proctor.store.labels import Label
from proctor.web.answers import ERRORS
from proctor.web.evaluation_document import estimate_shape
from proctor.web.evaluations import verdict_shape
from proctor.web.evaluators_found import order_of, ratings_of
from proctor.web.judging_shapes import (
    ConfusionShape,
    JudgesAnswer,
    JudgeShape,
    LabelledThing,
    LabelsAnswer,
    LabelShape,
    RatingShape,
)
from proctor.web.session_document import find_session
from proctor.web.shapes import SessionId, Shape
from proctor.web.site import Site

MOST_THINGS = 400
Word = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")]
Key = tuple[str, str, str]
"""An evaluator, a dimension, a target."""
# Landis and Koch's names for ranges of kappa, which most readers have seen somewhere.
STRENGTHS = ((0.8, "almost perfect"), (0.6, "substantial"), (0.4, "moderate"), (0.2, "fair"), (0.0, "slight"))


class NewLabel(Shape, extra="forbid"):
    """What somebody thinks."""

    evaluator: Annotated[Word, Field(min_length=1)]
    who: Word = ""
    label: Word = ""
    value: Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)] | None = None
    target: Word = Field(default="", description="A trace or tool call; empty: the whole session.")
    dimension: Word = ""
    note: Annotated[str, Field(max_length=20_000, pattern=r"^[^\x00]*$")] = ""


def router(site: Site) -> APIRouter:
    """What the labels component and the Judges section ask."""
    made = APIRouter(tags=["labels"], responses=ERRORS)
    kept = _Judges(site)

    @made.get(
        "/api/sessions/{session_id}/labels", summary="What was judged in a session, and what people say"
    )
    def listed(session_id: SessionId) -> LabelsAnswer:
        return _answer(site, find_session(site, session_id)["id"])

    @made.post("/api/sessions/{session_id}/labels", summary="Say what you think; again replaces it")
    def give(session_id: SessionId, said: NewLabel) -> LabelsAnswer:
        """One person has one opinion of one thing in the eyes of one evaluator."""
        found = find_session(site, session_id)["id"]
        site.store.keep_label(_label(site, found, said), site.now())
        return _answer(site, found)

    @made.get("/api/judges", summary="How far evaluators agree with people")
    def how_good(
        evaluator: Annotated[str, Query(max_length=500, description="Only this one.")] = "",
    ) -> JudgesAnswer:
        """From the verdicts and labels that are there; nobody is asked again."""
        return JudgesAnswer(judges=kept.found(evaluator.replace("\0", "")))

    return made


class _Judges:
    """Answers about judges, kept until there is something new: an interval takes two thousand drawings."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Any, list[JudgeShape]]] = {}

    def found(self, evaluator: str) -> list[JudgeShape]:
        state = self._state(evaluator)
        with self._lock:
            if evaluator not in self._kept or self._kept[evaluator][0] != state:
                if len(self._kept) > MOST_THINGS:
                    self._kept.clear()
                self._kept[evaluator] = (state, self._made(evaluator))
            return self._kept[evaluator][1]

    def _made(self, evaluator: str) -> list[JudgeShape]:
        def order(name: str, dimension: str) -> Sequence[str]:
            return order_of(self._site, name, dimension)

        return [judge_shape(each) for each in judges(self._site.store.read, order, evaluator=evaluator)]

    def _state(self, evaluator: str) -> tuple[Any, ...]:
        read = self._site.store.read
        wanted, given = ('WHERE "evaluator" = ?', (evaluator,)) if evaluator else ("", ())
        (said,) = read.query(f'SELECT COUNT(*) AS "n", MAX("at") AS "at" FROM "labels" {wanted}', given)
        (judged,) = read.query('SELECT MAX("createdAt") AS "at", MAX("finishedAt") AS "end" FROM "batches"')
        return said["n"], said["at"], judged["at"], judged["end"]


def judge_shape(judge: Judge) -> JudgeShape:
    """A judge as an answer."""
    found = judge.calibration
    return JudgeShape(
        evaluator=judge.evaluator,
        dimension=judge.dimension,
        level=judge.level,
        labels=judge.labels,
        things=found.things,
        sessions=found.sessions,
        people=found.people,
        agreement=estimate_shape(found.agreement),
        kappa=estimate_shape(found.kappa),
        weighted=found.weighted,
        alpha=estimate_shape(found.alpha),
        human_alpha=found.human_alpha,
        bias=estimate_shape(found.bias),
        confusion=[
            ConfusionShape(human=human, judge=machine, count=count)
            for (human, machine), count in sorted(found.confusion.items())
        ],
        words=_words(judge),
        # How to ask again is a matter of the command line.
        remarks=[remark.replace(" (--repeats 3)", "") for remark in found.remarks],
    )


def _words(judge: Judge) -> str:
    found = judge.calibration
    if not found.things:
        return "It has judged nothing that people have labelled."
    same = f"The same as people in {found.agreement.successes} of {found.agreement.trials}"
    value = found.kappa.value
    if value is None:
        return f"{same}."
    strength = next((name for least, name in STRENGTHS if value > least), "no")
    return f"{same}: {strength} agreement beyond chance."


def _label(site: Site, session_id: str, said: NewLabel) -> Label:
    ratings = ratings_of(site, said.evaluator, said.dimension)
    label, value = _on_scale(ratings, said.label.strip(), said.value)
    return Label(
        session_id=session_id,
        evaluator=said.evaluator,
        who=said.who.strip() or "someone",
        label=label,
        value=value,
        level=_level(site, session_id, said.target),
        target=said.target,
        dimension=said.dimension,
        note=said.note,
    )


def _on_scale(ratings: Sequence[RatingShape], label: str, value: float | None) -> tuple[str, float | None]:
    """What was said in the words of the scale, with what that is worth; as it is, where there is none."""
    if label:
        for rating in ratings:
            if rating.label.casefold() == label.casefold():
                return rating.label, rating.value if value is None else value
    elif value is not None:
        for rating in ratings:
            if rating.value == value:
                return rating.label, value
    return label, value


def _level(site: Site, session_id: str, target: str) -> Level:
    if not target:
        return "session"
    for row in transcripts.judgements(site.store.read, session_id):
        if row["target"] == target:
            level: Level = row["level"]
            return level
    evidence = site.store.read.evidence(session_id)
    if target in {trace.id for trace in evidence.traces}:
        return "trace"
    if target in {call.call_id for call in evidence.tool_calls}:
        return "tool_call"
    raise UsageError(f"the session has no turn and no tool call {target}\nLeave it out to label the session.")


def _answer(site: Site, session_id: str) -> LabelsAnswer:
    rows = [row for row in transcripts.judgements(site.store.read, session_id) if _is_about(row, session_id)]
    # Ordered by time: a later verdict replaces an earlier one in the eyes of a reader.
    verdicts: dict[Key, dict[str, Any]] = {_key(row): row for row in rows}
    labels: dict[Key, list[dict[str, Any]]] = {}
    for row in site.store.labels(session_ids=[session_id]):
        labels.setdefault(_key(row), []).append(row)
    keys = sorted({*verdicts, *labels}, key=lambda key: (key[0], key[1], _place(verdicts.get(key)), key[2]))
    seen: dict[tuple[str, str], list[RatingShape]] = {}
    for name, dimension, _ in keys[:MOST_THINGS]:
        if (name, dimension) not in seen:
            seen[name, dimension] = ratings_of(site, name, dimension)
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
                ratings=seen[key[0], key[1]],
            )
            for key in keys[:MOST_THINGS]
        ],
    )


def _is_about(row: dict[str, Any], session_id: str) -> bool:
    return bool((row["judgedSessionId"] or row["sessionId"]) == session_id)


def _key(row: dict[str, Any]) -> Key:
    return row["evaluator"], row["dimension"], row["target"]


def _place(row: dict[str, Any] | None) -> int:
    return int(row["position"]) if row else 0
