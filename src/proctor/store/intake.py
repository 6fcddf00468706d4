"""Spans and event records as they arrive, and the sessions that are told from them.

Documents come in any order, more than once, and over hours; so each is kept by itself, and a session is
told anew from all of its documents whenever one of them is new. Whoever asks for sessions lets what is new
be told first. A document is compressed; what it is kept as is decided in one place.

Knows nothing of how documents become a session.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict, TypeVar

from proctor.errors import Contradiction, NotFound
from proctor.item import digest_of
from proctor.session import Iteration, ModelCall, Note, Session, Step
from proctor.store.database import Connection, Row, insertion, places
from proctor.store.items import StoreReader
from proctor.store.key_rotation import drop_unused_texts
from proctor.store.recorder import Recorder, kept
from proctor.store.tables import COLUMNS, OF_A_SESSION, LogEventRow, LogStreamRow, clean
from proctor.store.writer import timestamp
from proctor.telemetry.documents import SessionMark, SessionName, sessions_among

# Keep a session that another tool recorded, in place of what was kept of it before.


JOB = "imported"
"""What `sessions.job` says of a session that was not carried out here."""


def imported_id(source: str, log_group: str, service: str, external_id: str) -> str:
    """Our id of a session that another tool recorded: the same on every machine and each time."""
    return digest_of([clean(part) for part in (source, log_group, service, external_id)])[:32]


def keep(connection: Connection, session: Session, now: datetime) -> str:
    """Write a session's rows in place of those it had; its id."""
    session_id = imported_id(session.source, session.log_group, session.service, session.external_id)
    remove(connection, session_id)
    rows = _Rows()
    began = session.started_at or now
    clock = _Clock(began)
    recorder = Recorder(rows, session_id, _session_row(session, timestamp(began)), clock)
    for note in session.notes:
        recorder.record(Note(text=note))
    recorder.offer(session.tools)
    for step in session.steps:
        _keep_step(recorder, clock, step)
    for score in session.scores:
        recorder.score(score)
    clock.moment = session.finished_at or clock.moment
    seconds = max(0.0, (clock.moment - began).total_seconds())
    recorder.end(session.status, session.end_reason, session.error, work_seconds=seconds, waiting_seconds=0.0)
    rows.write(connection)
    return session_id


def remove(connection: Connection, session_id: str) -> None:
    """Remove an imported session's rows. Texts that nothing refers to any more go when a batch is deleted."""
    connection.run('DELETE FROM "sessions" WHERE "id" = ? AND "job" = ?', (session_id, JOB))
    for table in OF_A_SESSION:
        connection.run(f'DELETE FROM "{table}" WHERE "sessionId" = ?', (session_id,))


def forget(connection: Connection, session_ids: Iterable[str]) -> None:
    """Remove imported sessions for good: their rows, the documents they were told from, people's labels.

    What evaluations found about them stays with those evaluations.
    """
    connection.hold("arrivals")
    for session_id in session_ids:
        remove(connection, session_id)
        for table in ("arrivals", "labels"):
            connection.run(f'DELETE FROM "{table}" WHERE "sessionId" = ?', (session_id,))
    drop_unused_texts(connection)


def _session_row(session: Session, began: str) -> dict[str, Any]:
    return {
        "job": JOB,
        "name": clean(session.name),
        "agent": clean(session.agent),
        "agentVersion": clean(session.agent_version),
        "model": clean(session.model),
        "standIn": int(session.is_stand_in),
        "status": session.status,
        "source": session.source,
        "service": clean(session.service),
        "logGroup": clean(session.log_group),
        "externalId": clean(session.external_id),
        "attributesJson": clean(json.dumps(dict(session.attributes), ensure_ascii=False, default=str)),
        "startedAt": began,
    }


def _keep_step(recorder: Recorder, clock: "_Clock", step: Step) -> None:
    clock.moment = step.started_at or clock.moment
    recorder.begin_step()
    model = ""
    for happening in step.happenings:
        clock.moment = happening.at or clock.moment
        recorder.record(happening.event)
        if isinstance(happening.event, ModelCall):
            model = happening.event.model
    clock.moment = step.finished_at or clock.moment
    recorder.record(Iteration(model=model, trace_id=step.trace_id))


class _Clock:
    """Says the moment of whatever is being written down."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        return self.moment


class _Rows:
    """What a recorder writes, gathered for one transaction that is not the writer's."""

    def __init__(self) -> None:
        self._session: dict[str, Any] = {}
        self._appended: dict[str, list[tuple[object, ...]]] = {}

    def add(self, table: str, key: tuple[str, ...], row: dict[str, Any]) -> None:  # noqa: ARG002
        self._session = dict(row)

    def change(self, table: str, key: tuple[str, ...], values: Mapping[str, object]) -> None:  # noqa: ARG002
        self._session.update(values)

    def append(self, table: str, row: tuple[object, ...]) -> None:
        self._appended.setdefault(table, []).append(row)

    def write(self, connection: Connection) -> None:
        connection.run(insertion("sessions", self._session), tuple(self._session.values()))
        # Two processes that wrote the same texts in different orders could wait for each other for ever.
        self._appended.get("blobs", []).sort()
        for table, rows in self._appended.items():
            again = " ON CONFLICT DO NOTHING" if table == "blobs" else ""
            connection.run_many(insertion(table, COLUMNS[table]) + again, rows)


T = TypeVar("T")


Transaction = Callable[[Callable[[Connection], T]], T]


Document = dict[str, Any]


Tell = Callable[[SessionName, Sequence[Document], int], Session | None]
"""Makes a session of its documents; the number is how many more it has that were left out."""


MOST_DOCUMENTS = 20_000
"""Of one session that are told. The largest that the interface knows."""


TRACES_AT_ONCE = 50
"""Traces that are told in one transaction: others who want to write wait for so long."""


_CHUNK = 400


_SOURCE = "otlp"


_MARKED = tuple(name for name in COLUMNS["arrivals"] if name != "data")


@dataclass(slots=True)
class BuiltSessions:
    """What was made of what is new."""

    sessions: list[str] = field(default_factory=list)
    """The ids of sessions that were written, in the store."""
    removed: int = 0
    """Sessions that are no more: what was in them belongs to others, as later documents say."""

    def __iadd__(self, other: "BuiltSessions") -> "BuiltSessions":
        self.sessions += other.sessions
        self.removed += other.removed
        return self


class _TraceSession(TypedDict):
    traceId: str
    sessionId: str


class _Data(TypedDict):
    data: bytes


class ReceivedSpans:
    """What has arrived by telemetry."""

    def __init__(self, transaction: Transaction[Any], read: StoreReader) -> None:
        self._transaction = transaction
        self._read = read

    def keep(self, arrived: Iterable[tuple[SessionMark, Document]], now: datetime) -> None:
        """Keep documents; committed when this returns. What is there already, unchanged, is left as it is."""
        rows = {mark.key: _row(mark, document, now) for mark, document in arrived}
        if rows:
            self._transaction(lambda connection: connection.run_many(_UPSERT, _in_order(rows)))

    def has_new(self) -> bool:
        """Whether anything has arrived that no session tells of yet."""
        return bool(self._read.rows(Row, 'SELECT 1 FROM "arrivals" WHERE "isNew" = 1 LIMIT 1'))

    def oldest_new(self) -> str | None:
        """When the oldest span arrived that belongs to no session yet; None: there is none."""
        (row,) = self._read.query('SELECT MIN("arrivedAt") AS "at" FROM "arrivals" WHERE "isNew" = 1')
        at: str | None = row["at"]
        return at

    def tell(self, tell: Tell, now: datetime) -> BuiltSessions:
        """Bring every session up to what has arrived, a few traces at a time."""
        told = BuiltSessions()
        while part := self._transaction(lambda connection: _tell_some(connection, tell, now)):
            told += part
        told.sessions = list(dict.fromkeys(told.sessions))
        return told

    def sessions_of(self, trace_ids: Iterable[str]) -> list[str]:
        """The sessions these traces are told in, in the order of the traces."""
        wanted = list(trace_ids)
        found: dict[str, dict[str, None]] = {}
        for chunk in _chunks(wanted):
            for row in self._read.rows(
                _TraceSession,
                'SELECT DISTINCT a."traceId", a."sessionId" FROM "arrivals" a '
                f'JOIN "sessions" s ON s."id" = a."sessionId" WHERE a."traceId" IN ({places(chunk)})',
                chunk,
            ):
                found.setdefault(row["traceId"], {})[row["sessionId"]] = None
        return list(dict.fromkeys(each for trace_id in wanted for each in found.get(trace_id, ())))

    def documents(self, session_id: str) -> Iterator[Document]:
        """The documents that a session was told from, as they arrived."""
        rows = self._read.rows(
            _Data,
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


def _tell_some(connection: Connection, tell: Tell, now: datetime) -> BuiltSessions | None:
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
    told, kept = BuiltSessions(), set[str]()
    for name, members in sessions_among(map(_mark, rows)).items():
        session_id = imported_id(_SOURCE, name.log_group, name.service, name.external_id)
        kept.add(session_id)
        if any(before[mark.key]["isNew"] or before[mark.key]["sessionId"] != session_id for mark in members):
            _tell_one(connection, tell, name, session_id, members, told, now)
    gone = {row["sessionId"] for row in rows} - kept - {""}
    for session_id in sorted(gone):
        remove(connection, session_id)
    told.removed += len(gone)
    return told


def _tell_one(
    connection: Connection,
    tell: Tell,
    name: SessionName,
    session_id: str,
    members: Sequence[SessionMark],
    told: BuiltSessions,
    now: datetime,
) -> None:
    ordered = sorted(members, key=lambda mark: (mark.started, mark.span_id))
    documents = _documents(connection, ordered[:MOST_DOCUMENTS])
    session = tell(name, documents, max(0, len(ordered) - MOST_DOCUMENTS))
    if session is None:
        remove(connection, session_id)
    else:
        keep(connection, session, now)
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


def _documents(connection: Connection, marks: Sequence[SessionMark]) -> list[Document]:
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


def _mark(row: Row) -> SessionMark:
    return SessionMark(
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


def _row(mark: SessionMark, document: Document, now: datetime) -> tuple[object, ...]:
    place = (mark.trace_id, mark.span_id, mark.part, mark.parent_id, mark.session_key, mark.service)
    return (
        *map(clean, (*place, mark.log_group)),
        *(int(mark.is_log_group_said), mark.started, timestamp(now), "", 1, packed(document)),
    )


def _in_order(rows: dict[tuple[str, str, str], tuple[object, ...]]) -> list[tuple[object, ...]]:
    # Two servers that were sent the same spans in different orders could wait for each other for ever.
    return [rows[key] for key in sorted(rows)]


_CHANGING = ("parentId", "sessionKey", "service", "logGroup", "logGroupSaid", "startedNano", "data")


_UPSERT = (
    f'{insertion("arrivals", COLUMNS["arrivals"])} ON CONFLICT ("traceId", "spanId", "part") DO UPDATE SET '
    + ", ".join(f'"{name}" = excluded."{name}"' for name in (*_CHANGING, "arrivedAt"))
    + ', "isNew" = 1 WHERE '
    + " OR ".join(f'"arrivals"."{name}" <> excluded."{name}"' for name in _CHANGING)
)


# Log groups and streams that callers write to, event by event.


GROUP = ""
"""The name a group's own row has instead of a stream's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One line of a stream."""

    timestamp_ms: int
    message: str


class LogStreamTimes(LogStreamRow):
    """A log stream with the times of its events in ms; None: it has none."""

    first: int | None
    last: int | None
    ingested: int | None


class Logs:
    """Every question about streams that were written to, and every change of one."""

    def __init__(self, transaction: Transaction[Any], read: StoreReader) -> None:
        self._transaction = transaction
        self._read = read

    def create(self, group: str, stream: str, now: datetime) -> None:
        """Make a group (the stream's name is empty) or a stream in it. Raises when there is one."""

        def work(connection: Connection) -> None:
            if connection.rows(
                'SELECT 1 FROM "log_streams" WHERE "logGroup" = ? AND "logStream" = ?', (group, stream)
            ):
                raise Contradiction("the log stream is there already" if stream else "the log group is there")
            connection.run(insertion("log_streams", COLUMNS["log_streams"]), (group, stream, timestamp(now)))

        self._transaction(work)

    def put(self, group: str, stream: str, events: Sequence[LogEvent], now: datetime) -> None:
        """Append events to a stream."""

        def work(connection: Connection) -> None:
            connection.hold("log_events")
            if not connection.rows(
                'SELECT 1 FROM "log_streams" WHERE "logGroup" = ? AND "logStream" = ?', (group, stream)
            ):
                raise NotFound("The specified log stream does not exist.")
            (last,) = connection.rows(
                'SELECT COALESCE(MAX("position"), -1) AS "n" FROM "log_events" '
                'WHERE "logGroup" = ? AND "logStream" = ?',
                (group, stream),
            )
            ingested = int(now.timestamp() * 1000)
            for position, event in enumerate(events, start=last["n"] + 1):
                text, blob = kept(clean(event.message))
                if blob:
                    connection.run(f"{insertion('blobs', COLUMNS['blobs'])} ON CONFLICT DO NOTHING", blob)
                row = (group, stream, position, event.timestamp_ms, ingested, text, blob[0] if blob else None)
                connection.run(insertion("log_events", COLUMNS["log_events"]), row)

        self._transaction(work)

    def streams(self) -> list[LogStreamTimes]:
        """Every stream with the times of its events; groups have an empty stream."""
        return self._read.rows(
            LogStreamTimes,
            'SELECT s."logGroup", s."logStream", s."createdAt", '
            'MIN(e."timestamp") AS "first", MAX(e."timestamp") AS "last", MAX(e."ingestedAt") AS "ingested" '
            'FROM "log_streams" s LEFT JOIN "log_events" e '
            'ON e."logGroup" = s."logGroup" AND e."logStream" = s."logStream" '
            'GROUP BY s."logGroup", s."logStream", s."createdAt" ORDER BY s."logGroup", s."logStream"',
        )

    def events(self, group: str, stream: str) -> list[LogEventRow]:
        """The events of a stream in the order of their times."""
        rows = self._read.rows(
            LogEventRow,
            'SELECT * FROM "log_events" WHERE "logGroup" = ? AND "logStream" = ? '
            'ORDER BY "timestamp", "position"',
            (group, stream),
        )
        return list(self._read.whole(rows))
