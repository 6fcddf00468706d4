"""Spans and event records as they arrive, and the sessions that are told from them.

Documents come in any order, more than once, and over hours; so each is kept by itself, and a session is
told anew from all of its documents whenever one of them is new. Whoever asks for sessions lets what is new
be told first. A document is compressed; what it is kept as is decided in one place.

Knows nothing of how documents become a session.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from proctor.imported import ImportedSession
from proctor.store import imports
from proctor.store.cleaning import clean
from proctor.store.conditions import places
from proctor.store.database import Connection, Row, insertion
from proctor.store.reading import Reader
from proctor.store.tables import COLUMNS
from proctor.store.writer import timestamp
from proctor.telemetry.grouping import Mark, SessionName, sessions_among

T = TypeVar("T")
Transaction = Callable[[Callable[[Connection], T]], T]
Document = dict[str, Any]
Tell = Callable[[SessionName, Sequence[Document], int], ImportedSession | None]
"""Makes a session of its documents; the number is how many more it has that were left out."""

MOST_DOCUMENTS = 20_000
"""Of one session that are told. The largest that the interface knows."""
TRACES_AT_ONCE = 50
"""Traces that are told in one transaction: others who want to write wait for so long."""
_CHUNK = 400
_SOURCE = "otlp"
_MARKED = tuple(name for name in COLUMNS["arrivals"] if name != "data")


@dataclass(slots=True)
class Told:
    """What was made of what is new."""

    sessions: list[str] = field(default_factory=list)
    """The ids of sessions that were written, in the store."""
    removed: int = 0
    """Sessions that are no more: what was in them belongs to others, as later documents say."""

    def __iadd__(self, other: "Told") -> "Told":
        self.sessions += other.sessions
        self.removed += other.removed
        return self


class Arrivals:
    """What has arrived by telemetry."""

    def __init__(self, transaction: Transaction[Any], read: Reader) -> None:
        self._transaction = transaction
        self._read = read

    def keep(self, arrived: Iterable[tuple[Mark, Document]], now: datetime) -> None:
        """Keep documents; committed when this returns. What is there already, unchanged, is left as it is."""
        rows = {mark.key: _row(mark, document, now) for mark, document in arrived}
        if rows:
            self._transaction(lambda connection: connection.run_many(_UPSERT, _in_order(rows)))

    def has_new(self) -> bool:
        """Whether anything has arrived that no session tells of yet."""
        return bool(self._read.query('SELECT 1 FROM "arrivals" WHERE "isNew" = 1 LIMIT 1'))

    def tell(self, tell: Tell, now: datetime) -> Told:
        """Bring every session up to what has arrived, a few traces at a time."""
        told = Told()
        while part := self._transaction(lambda connection: _tell_some(connection, tell, now)):
            told += part
        told.sessions = list(dict.fromkeys(told.sessions))
        return told

    def sessions_of(self, trace_ids: Iterable[str]) -> list[str]:
        """The sessions these traces are told in, in the order of the traces."""
        wanted = list(trace_ids)
        found: dict[str, dict[str, None]] = {}
        for chunk in _chunks(wanted):
            for row in self._read.query(
                'SELECT DISTINCT a."traceId", a."sessionId" FROM "arrivals" a '
                f'JOIN "sessions" s ON s."id" = a."sessionId" WHERE a."traceId" IN ({places(chunk)})',
                chunk,
            ):
                found.setdefault(row["traceId"], {})[row["sessionId"]] = None
        return list(dict.fromkeys(each for trace_id in wanted for each in found.get(trace_id, ())))

    def documents(self, session_id: str) -> Iterator[Document]:
        """The documents that a session was told from, as they arrived."""
        rows = self._read.query(
            'SELECT "data" FROM "arrivals" WHERE "sessionId" = ? ORDER BY "startedNano", "spanId", "part"',
            (session_id,),
        )
        return (unpacked(row["data"]) for row in rows)


def packed(document: Document) -> bytes:
    """A document as it is kept."""
    # Level 1: a span is repetitive text; more takes twice the time for a tenth of the space.
    return zlib.compress(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"), 1)


def unpacked(data: bytes) -> Document:
    """A document from what was kept of it."""
    found: Document = json.loads(zlib.decompress(data))
    return found


def _tell_some(connection: Connection, tell: Tell, now: datetime) -> Told | None:
    """Tell some of what is new; None when nothing is."""
    # Nobody else may tell or keep meanwhile: what came in between would be marked as told.
    connection.hold("arrivals")
    new = connection.rows(
        'SELECT DISTINCT "traceId" FROM "arrivals" WHERE "isNew" = 1 LIMIT ?', (TRACES_AT_ONCE,)
    )
    if not new:
        return None
    rows = _related(connection, {row["traceId"] for row in new})
    before = {(row["traceId"], row["spanId"], row["part"]): row for row in rows}
    told, kept = Told(), set[str]()
    for name, members in sessions_among(map(_mark, rows)).items():
        session_id = imports.imported_id(_SOURCE, name.log_group, name.service, name.external_id)
        kept.add(session_id)
        if any(before[mark.key]["isNew"] or before[mark.key]["sessionId"] != session_id for mark in members):
            _tell_one(connection, tell, name, session_id, members, told, now)
    gone = {row["sessionId"] for row in rows} - kept - {""}
    for session_id in sorted(gone):
        imports.remove(connection, session_id)
    told.removed += len(gone)
    return told


def _tell_one(
    connection: Connection,
    tell: Tell,
    name: SessionName,
    session_id: str,
    members: Sequence[Mark],
    told: Told,
    now: datetime,
) -> None:
    ordered = sorted(members, key=lambda mark: (mark.started, mark.span_id))
    documents = _documents(connection, ordered[:MOST_DOCUMENTS])
    session = tell(name, documents, max(0, len(ordered) - MOST_DOCUMENTS))
    if session is None:
        imports.remove(connection, session_id)
    else:
        imports.keep(connection, session, now)
        told.sessions.append(session_id)
    connection.run_many(
        'UPDATE "arrivals" SET "isNew" = 0, "sessionId" = ? '
        'WHERE "traceId" = ? AND "spanId" = ? AND "part" = ?',
        [(session_id, *mark.key) for mark in members],
    )


def _related(connection: Connection, traces: set[str]) -> list[Row]:
    """All documents of these traces, and of every trace that shares a session with one of them."""
    found: dict[str, list[Row]] = {}
    wanted, keys, sessions = set(traces), set[str](), set[str]()
    while wanted:
        rows = list(_rows_where(connection, "traceId", wanted))
        for row in rows:
            found.setdefault(row["traceId"], []).append(row)
        more_keys = {row["sessionKey"] for row in rows} - keys - {""}
        more_sessions = {row["sessionId"] for row in rows} - sessions - {""}
        keys |= more_keys
        sessions |= more_sessions
        beside = {*_traces_where(connection, "sessionKey", more_keys)}
        beside |= {*_traces_where(connection, "sessionId", more_sessions)}
        wanted = beside - set(found)
    return [row for rows in found.values() for row in rows]


def _rows_where(connection: Connection, column: str, values: Iterable[str]) -> Iterator[Row]:
    names = ", ".join(f'"{name}"' for name in _MARKED)
    for chunk in _chunks(values):
        sql = f'SELECT {names} FROM "arrivals" WHERE "{column}" IN ({places(chunk)})'
        yield from connection.rows(sql, chunk)


def _traces_where(connection: Connection, column: str, values: Iterable[str]) -> Iterator[str]:
    for chunk in _chunks(values):
        # The second condition is what the index is made for.
        where = f'"{column}" IN ({places(chunk)}) AND "{column}" <> \'\''
        sql = f'SELECT DISTINCT "traceId" FROM "arrivals" WHERE {where}'
        yield from (row["traceId"] for row in connection.rows(sql, chunk))


def _documents(connection: Connection, marks: Sequence[Mark]) -> list[Document]:
    wanted = {mark.key: number for number, mark in enumerate(marks)}
    found: list[tuple[int, Document]] = []
    for chunk in _chunks({mark.trace_id for mark in marks}):
        sql = (
            f'SELECT "traceId", "spanId", "part", "data" FROM "arrivals" WHERE "traceId" IN ({places(chunk)})'
        )
        for row in connection.rows(sql, chunk):
            number = wanted.get((row["traceId"], row["spanId"], row["part"]))
            if number is not None:
                found.append((number, unpacked(row["data"])))
    return [document for _, document in sorted(found, key=lambda each: each[0])]


def _chunks(values: Iterable[str]) -> Iterator[tuple[str, ...]]:
    ordered = sorted(values)
    return (tuple(ordered[at : at + _CHUNK]) for at in range(0, len(ordered), _CHUNK))


def _mark(row: Row) -> Mark:
    return Mark(
        trace_id=row["traceId"],
        span_id=row["spanId"],
        part=row["part"],
        parent_id=row["parentId"],
        session_key=row["sessionKey"],
        service=row["service"],
        log_group=row["logGroup"],
        is_log_group_said=bool(row["logGroupSaid"]),
        started=row["startedNano"],
    )


def _row(mark: Mark, document: Document, now: datetime) -> tuple[Any, ...]:
    place = (mark.trace_id, mark.span_id, mark.part, mark.parent_id, mark.session_key, mark.service)
    return (
        *map(clean, (*place, mark.log_group)),
        *(int(mark.is_log_group_said), mark.started, timestamp(now), "", 1, packed(document)),
    )


def _in_order(rows: dict[tuple[str, str, str], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    # Two servers that were sent the same spans in different orders could wait for each other for ever.
    return [rows[key] for key in sorted(rows)]


_CHANGING = ("parentId", "sessionKey", "service", "logGroup", "logGroupSaid", "startedNano", "data")
_UPSERT = (
    f'{insertion("arrivals", COLUMNS["arrivals"])} ON CONFLICT ("traceId", "spanId", "part") DO UPDATE SET '
    + ", ".join(f'"{name}" = excluded."{name}"' for name in (*_CHANGING, "arrivedAt"))
    + ', "isNew" = 1 WHERE '
    + " OR ".join(f'"arrivals"."{name}" <> excluded."{name}"' for name in _CHANGING)
)
