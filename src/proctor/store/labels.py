"""What people say of a session: labels to hold evaluators against.

One person has one opinion of one thing in the eyes of one evaluator; saying it again replaces it.

Knows nothing of who judges, or of what agreement is worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proctor.errors import UsageError
from proctor.score import Level
from proctor.store.cleaning import clean, finite, short
from proctor.store.conditions import places
from proctor.store.database import Connection, Row, insertion
from proctor.store.reading import Reader
from proctor.store.tables import COLUMNS
from proctor.store.texts import kept
from proctor.store.writer import timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One person's judgement."""

    session_id: str
    """By our id."""
    evaluator: str
    """Which question it answers: the evaluator's name."""
    who: str
    label: str = ""
    value: float | None = None
    """None: a label alone."""
    level: Level = "session"
    target: str = ""
    """Which trace or tool call, below the session level."""
    dimension: str = ""
    note: str = ""


def keep_label(connection: Connection, label: Label, now: datetime) -> None:
    """Keep a label in place of what the same person said of the same thing before."""
    if not label.label and label.value is None:
        raise UsageError("a label is a word or a value, and this is neither")
    key = (label.session_id, clean(label.evaluator), clean(label.target), clean(label.dimension))
    who = clean(label.who)
    connection.run(
        'DELETE FROM "labels" WHERE "sessionId" = ? AND "evaluator" = ? AND "target" = ? '
        'AND "dimension" = ? AND "who" = ?',
        (*key, who),
    )
    note, blob = kept(clean(label.note))
    if blob is not None:
        connection.run(
            'INSERT INTO "blobs" ("digest", "size", "data") VALUES (?, ?, ?) ON CONFLICT DO NOTHING', blob
        )
    said = (finite(label.value), short(clean(label.label)), note, blob[0] if blob else None)
    connection.run(insertion("labels", COLUMNS["labels"]), (*key, who, label.level, timestamp(now), *said))


def labels(read: Reader, *, evaluator: str = "", session_ids: Sequence[str] = ()) -> list[Row]:
    """Labels by evaluator or session, oldest first."""
    parts, parameters = ["1 = 1"], list[Any]()
    if evaluator:
        parts.append('"evaluator" = ?')
        parameters.append(evaluator)
    if session_ids:
        parts.append(f'"sessionId" IN ({places(session_ids)})')
        parameters += session_ids
    rows = read.query(
        f'SELECT * FROM "labels" WHERE {" AND ".join(parts)} '
        'ORDER BY "at", "sessionId", "target", "dimension", "who"',
        parameters,
    )
    return list(read.whole(rows))
