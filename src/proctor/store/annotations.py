"""Annotations of sessions by people: notes, stars and tags; labels, and the scores they are compared with.

Ratings from 1 to 5 are labels.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from typing_extensions import TypedDict

from proctor.errors import NotFound, UsageError
from proctor.score import Level
from proctor.store.database import KEEP, Connection, id_pages, places
from proctor.store.reader import StoreReader
from proctor.store.recorder import split_long_text
from proctor.store.runs import last_change
from proctor.store.tables import AnnotationRow, CalibrationRow, LabelRow, clean, finite, short
from proctor.store.writer import timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One person's label of a session, trace or tool call."""

    session_id: str
    """In the store."""
    evaluator: str
    """Name of the evaluator that it is compared with."""
    who: str
    label: str = ""
    value: float | None = None
    """None: only a label."""
    level: Level = "session"
    target: str = ""
    """Trace or tool call; empty at the session level."""
    dimension: str = ""
    note: str = ""


def save_label(connection: Connection, label: Label, now: datetime) -> None:
    """Save a label, replacing the same person's earlier label of the same target."""
    if not label.label and label.value is None:
        raise UsageError("a label needs a word or a value")
    key = (label.session_id, clean(label.evaluator), clean(label.target), clean(label.dimension))
    who = clean(label.who)
    connection.run(
        'DELETE FROM "labels" WHERE "sessionId" = ? AND "evaluator" = ? AND "target" = ? '
        'AND "dimension" = ? AND "who" = ?',
        (*key, who),
    )
    note, blob = split_long_text(clean(label.note))
    if blob is not None:
        connection.insert("blobs", blob, KEEP)
    values = (finite(label.value), short(clean(label.label)), note, blob[0] if blob else None)
    connection.insert("labels", (*key, who, label.level, timestamp(now), *values))


def labels(read: StoreReader, *, evaluator: str = "", session_ids: Sequence[str] = ()) -> list[LabelRow]:
    """Labels by evaluator or session, oldest first."""
    parts, parameters = ["1 = 1"], list[object]()
    if evaluator:
        parts.append('"evaluator" = ?')
        parameters.append(evaluator)
    if session_ids:
        parts.append(f'"sessionId" IN ({places(session_ids)})')
        parameters += session_ids
    rows = read.rows(
        LabelRow,
        f'SELECT * FROM "labels" WHERE {" AND ".join(parts)} '
        'ORDER BY "at", "sessionId", "target", "dimension", "who"',
        parameters,
    )
    return list(read.with_long_texts(rows))


class _LabelsChange(TypedDict):
    n: int
    at: str | None


class LabelsState(TypedDict):
    """Fingerprint of labels and results, to detect changes."""

    n: int
    """Number of labels."""
    at: str | None
    """Time of the newest label."""
    created: str | None
    """Creation of the newest batch."""
    finished: str | None
    """End of the batch that finished last."""


def labels_state(read: StoreReader, evaluator: str = "") -> LabelsState:
    """Changes whenever there may be new labels for an evaluator (empty: for any), or new scores."""
    where, parameters = ('WHERE "evaluator" = ?', (evaluator,)) if evaluator else ("", ())
    (row,) = read.rows(
        _LabelsChange, f'SELECT COUNT(*) AS "n", MAX("at") AS "at" FROM "labels" {where}', parameters
    )
    batch = last_change(read)
    return LabelsState(n=row["n"], at=row["at"], created=batch["at"], finished=batch["end"])


class LabeledEvaluator(TypedDict):
    """How many labels an evaluator and dimension have."""

    evaluator: str
    dimension: str
    level: str
    labels: int


class LabeledScore(TypedDict):
    """A score and a label of the same target."""

    evaluator: str
    dimension: str
    about: str
    target: str
    who: str
    humanLabel: str
    humanValue: float | None
    level: str
    evaluatorDigest: str
    label: str
    value: float | None
    timestamp: str | None
    sessionId: str
    position: int


_LABELED_SCORES = (
    'SELECT l."evaluator", l."dimension", l."sessionId" AS "about", l."target", l."who", '
    'l."label" AS "humanLabel", l."value" AS "humanValue", l."level", s."evaluatorDigest", s."label", '
    's."value", s."timestamp", s."sessionId", s."position" FROM "labels" l JOIN "scores" s ON {joined} '
    'AND s."evaluator" = l."evaluator" AND s."target" = l."target" AND s."dimension" = l."dimension" '
    "AND s.\"error\" = '' WHERE {condition}"
)
_JOINS = (
    's."scoredSessionId" = l."sessionId"',
    's."sessionId" = l."sessionId" AND s."scoredSessionId" = \'\'',
)


def labeled_evaluators(read: StoreReader, evaluator: str = "") -> list[LabeledEvaluator]:
    """The evaluators that have labels, the most labeled first; or one of them."""
    where, parameters = ('WHERE "evaluator" = ?', (evaluator,)) if evaluator else ("", ())
    return read.rows(
        LabeledEvaluator,
        'SELECT "evaluator", "dimension", MAX("level") AS "level", COUNT(*) AS "labels" FROM "labels" '
        f'{where} GROUP BY "evaluator", "dimension" ORDER BY "labels" DESC, "evaluator", "dimension"',
        parameters,
    )


def labeled_scores(read: StoreReader, evaluator: str = "") -> list[LabeledScore]:
    """Every pair of a label and a score of the same target; or those of one evaluator."""
    condition, parameters = ('l."evaluator" = ?', (evaluator,)) if evaluator else ("1 = 1", ())
    return [
        row
        for joined in _JOINS
        for row in read.rows(
            LabeledScore, _LABELED_SCORES.format(joined=joined, condition=condition), parameters
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """A comparison of one version of an evaluator with human labels."""

    evaluator: str
    evaluator_digest: str
    dimension: str = ""
    targets: int = 0
    """Labeled targets."""
    document: Mapping[str, object]
    """JSON: `results`, `scale` (two numbers, or null) and `pairs` (session, human value, judge value)."""


def save_calibration(connection: Connection, calibration: CalibrationRecord, now: datetime) -> None:
    """Save a calibration; one of the same moment is replaced."""
    key = (
        clean(calibration.evaluator),
        calibration.evaluator_digest,
        clean(calibration.dimension),
        timestamp(now),
    )
    connection.run(
        'DELETE FROM "calibrations" WHERE "evaluator" = ? AND "evaluatorDigest" = ? AND "dimension" = ? '
        'AND "at" = ?',
        key,
    )
    document = clean(json.dumps(dict(calibration.document), ensure_ascii=False, allow_nan=False))
    connection.insert("calibrations", (*key, calibration.targets, document))


def newest_calibration(
    read: StoreReader, evaluator: str, digest: str, dimension: str = ""
) -> CalibrationRow | None:
    """The last calibration of a version of an evaluator; None: it has none."""
    rows = read.rows(
        CalibrationRow,
        'SELECT * FROM "calibrations" WHERE "evaluator" = ? AND "evaluatorDigest" = ? AND "dimension" = ? '
        'ORDER BY "at" DESC LIMIT 1',
        (evaluator, digest, dimension),
    )
    return rows[0] if rows else None


AnnotationKind = Literal["note", "star", "tag"]
NOTE, STAR, TAG = "note", "star", "tag"
LONGEST_NOTE = 20_000
LONGEST_TAG = 100
RATING = "Human.Rating"
"""The evaluator of labels that are not compared with any: a person's rating of a session."""
RATINGS: Mapping[str, float] = {str(number): float(number) for number in range(1, 6)}
"""The scale of `RATING`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A note, a star or a tag of one or several sessions."""

    session_ids: Sequence[str]
    """In the store."""
    kind: AnnotationKind
    text: str = ""
    """The note or the tag; empty for a star."""
    author: str = ""


class TagCount(TypedDict):
    """A tag, and how many sessions have it."""

    text: str
    sessions: int


def tag_text(text: str) -> str:
    """A tag as it is stored: one line, single spaces."""
    return " ".join(clean(text).split())


def save_annotation(connection: Connection, annotation: Annotation, now: datetime) -> None:
    """Save a note, a star or a tag. A session has a tag once, and a star once per author."""
    text = tag_text(annotation.text) if annotation.kind == TAG else clean(annotation.text).strip()
    longest = {NOTE: LONGEST_NOTE, TAG: LONGEST_TAG, STAR: 0}[annotation.kind]
    if (annotation.kind != STAR and not text) or len(text) > longest:
        needed = f"needs a text of 1 to {longest:,} characters" if longest else "has no text"
        raise UsageError(f"a {annotation.kind} {needed}")
    author = clean(annotation.author)
    for page in id_pages(annotation.session_ids):
        runs = {
            row["id"]: row["runId"]
            for row in connection.rows(
                f'SELECT "id", "runId" FROM "sessions" WHERE "id" IN ({places(page)})', page
            )
        }
        existing = _existing(connection, annotation.kind, page, text, author)
        for session_id in page:
            if session_id not in runs:
                raise NotFound(f"there is no session {session_id}")
            if session_id in existing:
                continue
            # A note may quote the session. Tags are compared across runs, so all have the store's key.
            connection.set_key_scope((runs[session_id] or "") if annotation.kind == NOTE else "")
            values = (session_id, os.urandom(8).hex(), annotation.kind, text, author, timestamp(now))
            connection.insert("annotations", values)


def _existing(
    connection: Connection, kind: str, session_ids: Sequence[str], text: str, author: str
) -> set[str]:
    """The sessions that have this tag, or a star of this author."""
    if kind == NOTE:
        return set()
    condition, values = '"author" = ?', list[object]([author])
    if kind == TAG:
        condition, values = connection.is_one_of("text", "annotations.text", [text])
    sessions = connection.values(
        str,
        f'SELECT "sessionId" FROM "annotations" WHERE "kind" = ? AND {condition} '
        f'AND "sessionId" IN ({places(session_ids)})',
        (kind, *values, *session_ids),
    )
    return set(sessions)


def delete_annotation(connection: Connection, session_id: str, annotation_id: str) -> None:
    """Delete one annotation of a session."""
    deleted = connection.run(
        'DELETE FROM "annotations" WHERE "sessionId" = ? AND "id" = ?', (session_id, annotation_id)
    )
    if not deleted:
        raise NotFound(f"session {session_id} has no annotation {annotation_id}")


def annotations(read: StoreReader, session_ids: Sequence[str]) -> list[AnnotationRow]:
    """The annotations of sessions, oldest first."""
    rows = [
        row
        for page in id_pages(session_ids)
        for row in read.rows(
            AnnotationRow, f'SELECT * FROM "annotations" WHERE "sessionId" IN ({places(page)})', page
        )
    ]
    return sorted(rows, key=lambda row: (row["createdAt"], row["id"]))


def tag_counts(read: StoreReader, run_id: str = "") -> list[TagCount]:
    """The tags of a run's sessions, or of all, the most frequent first."""
    condition, parameters = "", list[object]([TAG])
    if run_id:
        # A subquery per annotation: a run has many sessions, and few of them have annotations.
        condition = ' AND (SELECT s."runId" FROM "sessions" s WHERE s."id" = "annotations"."sessionId") = ?'
        parameters.append(run_id)
    rows = read.rows(
        TagCount,
        'SELECT "text", COUNT(DISTINCT "sessionId") AS "sessions" FROM "annotations" '
        f'WHERE "kind" = ?{condition} GROUP BY "text"',
        parameters,
    )
    counts: dict[str, int] = {}
    for row in rows:
        # Encrypted with an old and a new key, one tag is two groups.
        counts[row["text"]] = counts.get(row["text"], 0) + row["sessions"]
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [TagCount(text=text, sessions=sessions) for text, sessions in ordered]


MOST_SCORES = 200_000
"""Of one evaluator and dimension that are read, the newest sessions of evaluations first."""
_SESSION = 'CASE WHEN x."scoredSessionId" = \'\' THEN x."sessionId" ELSE x."scoredSessionId" END'


class GivenScore(TypedDict):
    """A score of a target."""

    session: str
    target: str
    level: str
    digest: str
    at: str | None
    value: float | None
    label: str
    votes: str
    """JSON: each of several votes."""


def given_scores(read: StoreReader, evaluator: str, dimension: str) -> list[GivenScore]:
    """The scores of an evaluator and dimension, oldest first; errors are left out."""
    rows = read.rows(
        GivenScore,
        f'SELECT {_SESSION} AS "session", x."target", x."level", x."evaluatorDigest" AS "digest", '
        'x."timestamp" AS "at", x."value", x."label", x."votes" FROM "scores" x '
        'WHERE x."evaluator" = ? AND x."dimension" = ? AND x."error" = \'\' '
        f'ORDER BY x."sessionId" DESC LIMIT {MOST_SCORES}',
        (evaluator, dimension),
    )
    return sorted(rows, key=lambda row: row["at"] or "")


def scored_evaluators(read: StoreReader) -> list[tuple[str, str]]:
    """The evaluators and dimensions that have scores or labels, by name."""
    pairs = read.pairs(
        'SELECT "evaluator", "dimension" FROM "scores" GROUP BY "evaluator", "dimension" '
        'UNION SELECT "evaluator", "dimension" FROM "labels"'
    )
    return sorted((str(evaluator), str(dimension)) for evaluator, dimension in pairs)


def labeled_targets(
    read: StoreReader, evaluator: str, dimension: str, sessions: Collection[str] | None = None
) -> dict[tuple[str, str], set[str]]:
    """Who has labeled each session and target."""
    people: dict[tuple[str, str], set[str]] = {}
    for page in [()] if sessions is None else id_pages(sessions):
        some = f' AND "sessionId" IN ({places(page)})' if page else ""
        for row in read.rows(
            dict,
            'SELECT "sessionId", "target", "who" FROM "labels" '
            f'WHERE "evaluator" = ? AND "dimension" = ?{some}',
            (evaluator, dimension, *page),
        ):
            people.setdefault((row["sessionId"], row["target"]), set()).add(row["who"])
    return people
