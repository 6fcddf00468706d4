"""Annotations of sessions by people: notes, stars and tags; and ratings from 1 to 5, which are labels."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict

from proctor.errors import NotFound, UsageError
from proctor.store.database import Connection, id_pages, insertion, places
from proctor.store.reader import StoreReader
from proctor.store.tables import COLUMNS, AnnotationRow, clean
from proctor.store.writer import timestamp

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
            connection.run(insertion("annotations", COLUMNS["annotations"]), values)


def _existing(
    connection: Connection, kind: str, session_ids: Sequence[str], text: str, author: str
) -> set[str]:
    """The sessions that have this tag, or a star of this author."""
    if kind == NOTE:
        return set()
    condition, value = ('"text" = ?', text) if kind == TAG else ('"author" = ?', author)
    rows = connection.rows(
        f'SELECT "sessionId" FROM "annotations" WHERE "kind" = ? AND {condition} '
        f'AND "sessionId" IN ({places(session_ids)})',
        (kind, value, *session_ids),
    )
    return {row["sessionId"] for row in rows}


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
        # Asked for each annotation: a run has many sessions, and few of them have one.
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
