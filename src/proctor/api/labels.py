"""What people write about sessions: labels, ratings, notes, stars, tags; and how judges agree with labels."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock

from proctor.api.calibration import label_rows, level_of, target_in
from proctor.api.evaluators import definition_folders
from proctor.cache import LruCache
from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.evaluator import Evidence
from proctor.evaluators.builtins import JUDGED, PREFIX
from proctor.evaluators.criteria import rubric_names
from proctor.evaluators.matchers import MATCHINGS
from proctor.evaluators.registry import builtin_listing, definition_files, read_definition, rubric_criteria
from proctor.evaluators.registry import ratings_of as definition_ratings
from proctor.jobs.evaluation.labeled_scores import LabeledJudge
from proctor.jobs.evaluation.labeled_scores import judges as labeled_judges
from proctor.json_values import CamelJson, JsonMap
from proctor.score import Level
from proctor.stats.calibration import LabelValue, Ratings, on_scale
from proctor.store import transcripts
from proctor.store.annotations import (
    LONGEST_NOTE,
    RATING,
    RATINGS,
    Annotation,
    AnnotationKind,
    Label,
    TagCount,
    labels_state,
    tag_counts,
)
from proctor.store.annotations import annotations as annotation_rows
from proctor.store.tables import AnnotationRow, LabelRow, ScoreRow

__all__ = ["LONGEST_NOTE", "AnnotationKind", "LabeledJudge", "TagCount"]
MOST_TARGETS = 400
MOST_PROBLEMS = 20
"""Problems of a file of labels that are listed."""
NOBODY = "someone"
"""Author of what nobody has signed."""
Key = tuple[str, str, str]
"""An evaluator, a dimension, a target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanLabel(CamelJson):
    """The label of one person."""

    author: str
    who: str
    """Deprecated: `author`."""
    label: str
    value: float | None
    note: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAnnotations(CamelJson):
    """What people have written about a session."""

    session_id: str
    annotations: Sequence[AnnotationRow]
    """Oldest first."""
    ratings: Sequence[HumanLabel]
    """Ratings from 1 to 5, one per person."""


def annotations(ctx: RunContext, session_id: str) -> SessionAnnotations:
    """Notes, stars, tags and ratings of a session, by its whole ID."""
    ratings = ctx.store.labels(evaluator=RATING, session_ids=[session_id])
    return SessionAnnotations(
        session_id=session_id,
        annotations=annotation_rows(ctx.store.read, [session_id]),
        ratings=list(map(_human_label, ratings)),
    )


def annotate(
    ctx: RunContext, session_ids: Sequence[str], kind: AnnotationKind, text: str = "", *, author: str = ""
) -> None:
    """Add a note, a star or a tag to sessions, by their whole IDs: to all or none of them.

    A session has a tag once, and a star once per author.
    """
    new = Annotation(session_ids=session_ids, kind=kind, text=text, author=author.strip() or NOBODY)
    ctx.store.annotate(new, ctx.now())


def delete_annotation(ctx: RunContext, session_id: str, annotation_id: str) -> None:
    """Delete a note, a star or a tag of a session."""
    ctx.store.delete_annotation(session_id, annotation_id)


def tags(ctx: RunContext, run_id: str = "") -> list[TagCount]:
    """The tags in use, in a run or in all, with the number of their sessions; most frequent first."""
    return tag_counts(ctx.store.read, run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating(CamelJson):
    """One rating of a scale."""

    label: str
    value: float | None
    """Null: categorical."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(CamelJson):
    """One score with its explanation."""

    evaluator: str
    digest: str
    level: str
    target: str
    dimension: str
    value: float | None
    label: str
    explanation: str
    error: str
    votes: Sequence[float | str]
    cost_usd: float | None


def verdict_of(row: ScoreRow) -> Verdict:
    """A stored score."""
    return Verdict(
        evaluator=row["evaluator"],
        digest=row["evaluatorDigest"],
        level=row["level"],
        target=row["target"],
        dimension=row["dimension"],
        value=row["value"],
        label=row["label"],
        explanation=row["explanation"],
        error=row["error"],
        votes=json.loads(row["votes"] or "[]"),
        cost_usd=row["costUsd"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledTarget(CamelJson):
    """An evaluated session, turn or tool call with its human labels."""

    evaluator: str
    dimension: str
    level: str
    target: str
    verdict: Verdict | None
    """Latest score; null: labeled but not evaluated."""
    labels: Sequence[HumanLabel]
    ratings: Sequence[Rating]
    """Rating scale; empty: free."""


def labeled_targets(ctx: RunContext, session_id: str) -> list[LabeledTarget]:
    """Scores and human labels of a session, by its whole ID."""
    rows = [
        row
        for row in transcripts.scores(ctx.store.read, session_id)
        if (row["scoredSessionId"] or row["sessionId"]) == session_id
    ]
    # Ordered by time: later scores replace earlier ones.
    scores: dict[Key, ScoreRow] = {_key(row): row for row in rows}
    labels: dict[Key, list[LabelRow]] = {}
    for label in ctx.store.labels(session_ids=[session_id]):
        labels.setdefault(_key(label), []).append(label)

    def place(key: Key) -> tuple[str, str, int, str]:
        return key[0], key[1], scores[key]["position"] if key in scores else 0, key[2]

    keys = sorted({*scores, *labels}, key=place)[:MOST_TARGETS]
    scales = {name: ratings_of(ctx, *name) for name in {key[:2] for key in keys}}
    return [
        LabeledTarget(
            evaluator=key[0],
            dimension=key[1],
            target=key[2],
            level=(scores.get(key) or labels[key][0])["level"],
            verdict=verdict_of(scores[key]) if key in scores else None,
            labels=list(map(_human_label, labels.get(key, ()))),
            ratings=[Rating(label=label, value=value) for label, value in scales[key[:2]].items()],
        )
        for key in keys
    ]


def label_session(
    ctx: RunContext,
    session_id: str,
    evaluator: str,
    *,
    author: str = "",
    label: str = "",
    value: float | None = None,
    target: str = "",
    dimension: str = "",
    note: str = "",
) -> Label:
    """Label a session, or one of its turns or tool calls; replaces the author's earlier label.

    Label and value are completed from the rating scale of the evaluator. `turn-2` is the second turn.
    """
    evaluator, dimension = _as_scored(evaluator, dimension)
    opinion = on_scale(ratings_of(ctx, evaluator, dimension), LabelValue(label=label.strip(), value=value))
    if evaluator == RATING and opinion.label not in RATINGS:
        raise UsageError("a rating is a whole number from 1 to 5")
    session_id = ctx.store.read.session(session_id)["id"]
    target, level = _target(ctx, session_id, target)
    new = Label(
        session_id=session_id,
        evaluator=evaluator,
        who=author.strip() or NOBODY,
        label=opinion.label,
        value=opinion.value,
        level=level,
        target=target,
        dimension=dimension,
        note=note,
    )
    ctx.store.save_label(new, ctx.now())
    return new


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLabels:
    """The labels of a file, all of which were saved."""

    labels: int
    sessions: int
    """Sessions that they are about."""
    levels: Mapping[str, int]
    """Number of labels by what they are about: `session`, `trace` or `tool_call`."""


def import_labels(ctx: RunContext, path: Path, *, evaluator: str = "", author: str = "") -> ImportedLabels:
    """Save the labels of a CSV file, all or none of them. Raises `UsageError` with every problem by line.

    `evaluator` and `author` are for lines that name none.
    """
    problems, labels, sessions = list[str](), list[Label](), dict[str, Evidence]()
    for line, row in label_rows(path):
        try:
            if not (name := row["evaluator"] or evaluator):
                raise UsageError("a label needs an evaluator\nAdd a column `evaluator`, or give --evaluator.")
            if row["session"] not in sessions:
                sessions[row["session"]] = ctx.store.read.evidence(row["session"])
            evidence = sessions[row["session"]]
            target = target_in(evidence, row["target"])
            name, dimension = _as_scored(name, row["dimension"])
            labels.append(
                Label(
                    session_id=str(evidence.attributes["id"]),
                    evaluator=name,
                    who=row["who"] or author or NOBODY,
                    label=row["label"],
                    value=row["value"],
                    level=level_of(evidence, target),
                    target=target,
                    dimension=dimension,
                    note=row["note"],
                )
            )
        except UsageError as error:
            problems.append(f"{path}:{line}: {error}")
    if problems:
        raise UsageError("\n".join(problems[:MOST_PROBLEMS]))
    for label in labels:
        ctx.store.save_label(label, ctx.now())
    return ImportedLabels(
        labels=len(labels), sessions=len(sessions), levels=Counter(label.level for label in labels)
    )


def ratings_of(ctx: RunContext, evaluator: str, dimension: str = "") -> Ratings:
    """The rating scale of an evaluator."""
    if evaluator == RATING:
        return RATINGS
    if evaluator in MATCHINGS or evaluator in {PREFIX + name for name in JUDGED}:
        return builtin_listing(evaluator).ratings
    if (rubric := evaluator.partition(".")[0]) in rubric_names():
        name = ".".join(filter(None, (evaluator, dimension)))
        return next((each.ratings for each in rubric_criteria(rubric) if each.name == name), {})
    document: JsonMap | None = ctx.store.definitions.document(evaluator)
    if document is None:
        definitions = filter(None, map(_definition, definition_files(definition_folders(ctx))))
        document = next((each for each in definitions if each.get("evaluatorName") == evaluator), None)
    return definition_ratings(document, dimension) if document else {}


class JudgeCalibrations:
    """Agreement of judges with human labels, cached until scores or labels change: intervals take a while."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._lock = Lock()
        self._cache: LruCache[str, tuple[object, list[LabeledJudge]]] = LruCache(MOST_TARGETS)

    def of(self, evaluator: str = "") -> list[LabeledJudge]:
        """The judges of an evaluator, or all, the most labeled first. Makes no model calls."""
        state = tuple(labels_state(self._ctx.store.read, evaluator).values())
        with self._lock:
            cached = self._cache.get(evaluator)
            if cached is None or cached[0] != state:
                cached = (state, self._compute(evaluator))
                self._cache.put(evaluator, cached)
            return cached[1]

    def _compute(self, evaluator: str) -> list[LabeledJudge]:
        judges = labeled_judges(self._ctx.store.read, partial(ratings_of, self._ctx), evaluator=evaluator)
        # No evaluator judges what ratings are about.
        return [judge for judge in judges if judge.evaluator != RATING]


def _human_label(row: LabelRow) -> HumanLabel:
    return HumanLabel(
        author=row["who"],
        who=row["who"],
        label=row["label"],
        value=row["value"],
        note=row["note"],
        at=row["at"],
    )


def _as_scored(evaluator: str, dimension: str) -> tuple[str, str]:
    """An evaluator and a dimension as scores have them: each aspect of a rubric has a name of its own."""
    is_aspect = bool(dimension) and evaluator in rubric_names()
    return (f"{evaluator}.{dimension}", "") if is_aspect else (evaluator, dimension)


def _key(row: ScoreRow | LabelRow) -> Key:
    return row["evaluator"], row["dimension"], row["target"]


def _definition(path: Path) -> JsonMap | None:
    try:
        return read_definition(path)
    except UsageError:
        return None


def _target(ctx: RunContext, session_id: str, target: str) -> tuple[str, Level]:
    """A target as scores have it, and its level."""
    if not target:
        return "", "session"
    for row in transcripts.scores(ctx.store.read, session_id):
        if row["target"] == target:
            return target, row["level"]
    evidence = ctx.store.read.evidence(session_id)
    target = target_in(evidence, target)
    return target, level_of(evidence, target)
