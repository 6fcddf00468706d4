"""Imported sessions, received spans and log events.

Spans arrive in any order, repeatedly, and over hours; each is stored by itself, and a session is rebuilt
from all of its spans whenever one of them is new.
"""

import hashlib
import json
import secrets
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypedDict

from proctor.errors import Contradiction, NotFound
from proctor.item import RUNNING, digest_of
from proctor.json_values import JsonObject
from proctor.session import Iteration, ModelCall, Note, Session, Step
from proctor.store import imported_runs
from proctor.store.database import (
    HOLD_SECONDS,
    KEEP,
    Connection,
    Readers,
    Row,
    Transaction,
    id_pages,
    places,
)
from proctor.store.reader import StoreReader
from proctor.store.recorder import Recorder, split_long_text
from proctor.store.search import forget
from proctor.store.tables import (
    BEING_WRITTEN,
    BY_PEOPLE,
    COLUMNS,
    IMPORTED,
    OF_A_SESSION,
    LogEventRow,
    LogStreamRow,
    clean,
    is_being_written,
)
from proctor.store.writer import timestamp
from proctor.telemetry.documents import SessionMark, SessionName, sessions_among

# Imported sessions.


def imported_id(source: str, log_group: str, service: str, external_id: str) -> str:
    """The id of an imported session; the same on every machine."""
    return digest_of([clean(part) for part in (source, log_group, service, external_id)])[:32]


def save_session(connection: Connection, session: Session, now: datetime, run_id: str = "") -> str:
    """Write the rows of a session, replacing those of an earlier import; return its id.

    With a run, the session becomes an item of it. A session that is in a run stays there.
    """
    session_id, member = _membership(connection, session, run_id)
    if run := run_id or member["runId"]:
        connection.set_key_scope(run)
    delete_session(connection, session_id)
    rows = _rows_of(session, session_id, member, now)
    rows.write(connection)
    if run_id:
        task = session.task or session.name or session.external_id
        item = imported_runs.identity(task, session.agent, session.model, session.factors)
        imported_runs.add_session(connection, run_id, rows.session, item, session.repeat)
    elif member["runId"]:
        imported_runs.update_item(connection, rows.session)
    return session_id


def _rows_of(session: Session, session_id: str, member: Row, now: datetime) -> "_CollectedRows":
    rows = _CollectedRows()
    began = session.started_at or now
    clock = _Clock(began)
    recorder = Recorder(rows, session_id, {**_session_row(session, timestamp(began)), **member}, clock)
    for note in session.notes:
        recorder.record(Note(text=note))
    recorder.record_tools(session.tools)
    for step in session.steps:
        _save_step(recorder, clock, step)
    for score in session.scores:
        recorder.score(score)
    clock.moment = session.finished_at or clock.moment
    has_times = session.started_at is not None
    seconds = max(0.0, (clock.moment - began).total_seconds()) if has_times else None
    recorder.end(session.status, session.end_reason, session.error, work_seconds=seconds, waiting_seconds=0.0)
    return rows


def _membership(connection: Connection, session: Session, run_id: str) -> tuple[str, Row]:
    """The id under which a session is saved, and the run and item it is in so far."""
    names = (session.source, session.log_group, session.service, session.external_id)
    own, copy = imported_id(*names), digest_of([*map(clean, names), run_id])[:32]
    rows = {
        row["id"]: row
        for row in connection.rows(
            'SELECT "id", "runId", "itemId" FROM "sessions" WHERE "id" IN (?, ?)', (own, copy)
        )
    }
    # One session is in one run: a second run that it is imported into gets a copy.
    is_elsewhere = own in rows and rows[own]["runId"] not in (None, run_id)
    session_id = copy if run_id and (copy in rows or is_elsewhere) else own
    row = rows.get(session_id, {})
    return session_id, {"runId": row.get("runId"), "itemId": row.get("itemId")}


def delete_session(connection: Connection, session_id: str) -> None:
    """Delete the rows of an imported session. Unused blobs are deleted separately."""
    forget(connection, "?", (session_id,))
    connection.run('DELETE FROM "sessions" WHERE "id" = ? AND "job" = ?', (session_id, IMPORTED))
    for table in OF_A_SESSION:
        connection.run(f'DELETE FROM "{table}" WHERE "sessionId" = ?', (session_id,))


def delete_sessions(connection: Connection, session_ids: Sequence[str]) -> int:
    """Delete the first of some imported sessions, as many as a transaction should; return how many.

    With the documents they were built from, their labels and annotations. The results of evaluations stay.
    """
    connection.lock_table("arrivals")
    deadline = time.monotonic() + HOLD_SECONDS
    for count, session_id in enumerate(session_ids, 1):
        delete_session(connection, session_id)
        for table in ("arrivals", *BY_PEOPLE):
            connection.run(f'DELETE FROM "{table}" WHERE "sessionId" = ?', (session_id,))
        if time.monotonic() > deadline:
            return count
    return len(session_ids)


def _session_row(session: Session, began: str) -> JsonObject:
    return {
        "job": IMPORTED,
        "name": clean(session.name),
        "agent": clean(session.agent),
        "agentVersion": clean(session.agent_version),
        "model": clean(session.model),
        "isMock": int(session.is_mock),
        "status": session.status,
        "source": session.source,
        "service": clean(session.service),
        "logGroup": clean(session.log_group),
        "externalId": clean(session.external_id),
        "attributesJson": clean(json.dumps(dict(session.attributes), ensure_ascii=False, default=str)),
        "startedAt": began,
        "promptName": clean(_prompt_name(session.attributes)),
    }


PROMPT_NAMES = ("gen_ai.prompt", "langfuse.observation.prompt", "langfuse.prompt", "prompt")
"""Attributes with the `.name` and the `.version` of a prompt that is kept under a name."""


def _prompt_name(attributes: Mapping[str, object]) -> str:
    """The named prompt of a session, with its version; empty: its attributes name none."""
    for prefix in PROMPT_NAMES:
        if name := attributes.get(f"{prefix}.name"):
            version = attributes.get(f"{prefix}.version")
            return f"{name}@{version}" if version not in (None, "") else str(name)
    return ""


def _save_step(recorder: Recorder, clock: "_Clock", step: Step) -> None:
    clock.moment = step.started_at or clock.moment
    recorder.begin_step()
    model = ""
    for timed in step.events:
        clock.moment = timed.at or clock.moment
        recorder.record(timed.event)
        if isinstance(timed.event, ModelCall):
            model = timed.event.model
    clock.moment = step.finished_at or clock.moment
    recorder.record(Iteration(model=model, trace_id=step.trace_id))


class _Clock:
    """The time of the event that is being recorded."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        return self.moment


class _CollectedRows:
    """Collects the rows of a recorder for one transaction."""

    def __init__(self) -> None:
        self.session: JsonObject = {}
        self._appended: dict[str, list[tuple[object, ...]]] = {}

    def add(self, table: str, key: tuple[str, ...], row: JsonObject) -> None:  # noqa: ARG002
        self.session = dict(row)

    def change(self, table: str, key: tuple[str, ...], values: Mapping[str, object]) -> None:  # noqa: ARG002
        self.session.update(values)

    def append(self, table: str, row: tuple[object, ...]) -> None:
        self._appended.setdefault(table, []).append(row)

    def write(self, connection: Connection) -> None:
        """Insert the session and its rows; texts that are there already stay."""
        connection.insert("sessions", self.session)
        for table, rows in self.by_table():
            connection.insert_many(table, rows, on_conflict=KEEP if table == "blobs" else "")

    def by_table(self) -> Iterator[tuple[str, Sequence[tuple[object, ...]]]]:
        """The rows of the session by table, the texts last: others do not delete what a row refers to."""
        # Sorted: two processes that write the same texts in different orders could deadlock.
        self._appended.get("blobs", []).sort()
        yield from sorted(self._appended.items(), key=lambda pair: pair[0] == "blobs")


Document = JsonObject
SessionBuilder = Callable[[SessionName, Sequence[Document], int], Session | None]
"""Builds a session from its documents; the number is that of the documents left out."""
MOST_DOCUMENTS = 20_000
"""Of one session that are used; the limit of the AgentCore API."""
DOCUMENTS_IN_PAGE = 1_000
"""Documents that a search reads at once."""
TRACES_AT_ONCE = 50
"""Traces whose sessions are built at once, to be written in one transaction or more."""
MARKS_AT_ONCE = 1_000
"""Documents that share a session with these traces: if they are more, fewer traces are read the next time.
The transaction groups them again, which takes 20 µs for each."""
DOCUMENTS_AT_ONCE = 500
"""Documents that are saved in one transaction."""
LARGE = 1_000
"""Documents of a session that is written in several transactions: each takes some 30 µs to write."""
ROWS_AT_ONCE = 200
SILENT_SECONDS = 10.0
"""A writer that has written nothing for so long is dead."""
PAUSE_SECONDS = 0.1
_SOURCE = "otlp"
_MARKED = tuple(name for name in COLUMNS["arrivals"] if name != "data")


@dataclass(slots=True)
class BuiltSessions:
    """Result of building sessions."""

    sessions: list[str] = field(default_factory=list)
    """Ids of the written sessions."""
    removed: int = 0
    """Deleted sessions, whose documents belong to others according to later documents."""

    def __iadd__(self, other: "BuiltSessions") -> "BuiltSessions":
        self.sessions += other.sessions
        self.removed += other.removed
        return self


class _FoundDocument(TypedDict):
    traceId: str
    spanId: str
    part: str
    startedNano: int
    data: bytes


class _SpanOfSession(TypedDict):
    traceId: str
    spanId: str
    startedNano: int
    data: bytes
    externalId: str


class _SpanOfRange(TypedDict):
    startedNano: int
    data: bytes


NANO = 1_000_000
"""Nanoseconds of a millisecond."""
_SPANS_BETWEEN = '"part" = \'span\' AND "startedNano" BETWEEN ? AND ?'


def _nanoseconds(first_ms: int, last_ms: int) -> tuple[int, int]:
    return first_ms * NANO, last_ms * NANO + NANO - 1


class ReceivedSpans:
    """Spans received by telemetry."""

    def __init__(self, transaction: Transaction, read: StoreReader, readers: Readers) -> None:
        self._transaction = transaction
        self._read = read
        self._readers = readers

    def save(self, received: Iterable[tuple[SessionMark, Document]], now: datetime) -> None:
        """Save documents; committed on return. Known, unchanged ones are ignored."""
        rows = {mark.key: _row(mark, document, now) for mark, document in received}
        ordered = iter(_in_order(rows))
        while page := list(islice(ordered, DOCUMENTS_AT_ONCE)):
            self._transaction(partial(_save_page, page))

    def has_new(self) -> bool:
        """Whether there are documents that belong to no session yet."""
        return bool(self._read.rows(Row, 'SELECT 1 FROM "arrivals" WHERE "isNew" = 1 LIMIT 1'))

    def oldest_new(self) -> str | None:
        """Arrival of the oldest document that belongs to no session yet; None: there is none."""
        return self._read.value(str, 'SELECT MIN("arrivedAt") FROM "arrivals" WHERE "isNew" = 1')

    def _newest_new(self) -> str | None:
        return self._read.value(str, 'SELECT MAX("arrivedAt") FROM "arrivals" WHERE "isNew" = 1')

    def build_sessions(self, build: SessionBuilder, now: datetime) -> BuiltSessions:
        """Build or rebuild the sessions of documents that are new now, a few traces at a time.

        Documents that arrive meanwhile may wait for the next call: while they keep coming, a session would be
        built from all of its documents for each of them.
        """
        built, builder = BuiltSessions(), _Builder(build)
        until = self._newest_new()
        while until and builder.prepare(self._readers.connection(), until):
            for session_id, prepared, session in builder.take_large():
                if _LargeSession(self._transaction, session_id, prepared, session, now).save():
                    built.sessions.append(session_id)
            if builder.traces:
                built += self._transaction(lambda connection: _save_prepared(connection, builder, now))
        built.sessions = list(dict.fromkeys(built.sessions))
        return built

    def sessions_of(self, trace_ids: Iterable[str]) -> list[str]:
        """Sessions of these traces, in the order of the traces."""
        ordered = list(trace_ids)
        sessions: dict[str, dict[str, None]] = {}
        for chunk in id_pages(sorted(ordered)):
            for trace_id, session_id in self._read.pairs(
                'SELECT DISTINCT a."traceId", a."sessionId" FROM "arrivals" a '
                f'JOIN "sessions" s ON s."id" = a."sessionId" WHERE a."traceId" IN ({places(chunk)})',
                chunk,
            ):
                sessions.setdefault(trace_id, {})[session_id] = None
        return list(dict.fromkeys(each for trace_id in ordered for each in sessions.get(trace_id, ())))

    def root_spans(self, trace_ids: Iterable[str]) -> dict[str, str]:
        """The first span without a parent of each trace, by trace id; traces without one are missing."""
        roots: dict[str, str] = {}
        for chunk in id_pages(sorted(set(trace_ids))):
            for trace_id, span_id in self._read.pairs(
                'SELECT "traceId", "spanId" FROM "arrivals" WHERE "part" = \'span\' AND "parentId" = \'\' '
                f'AND "traceId" IN ({places(chunk)}) ORDER BY "startedNano", "spanId"',
                chunk,
            ):
                roots.setdefault(trace_id, span_id)
        return roots

    def has_spans(self) -> bool:
        """Whether any span was received."""
        return bool(self._read.rows(Row, 'SELECT 1 FROM "arrivals" WHERE "part" = \'span\' LIMIT 1'))

    def documents(self, session_id: str) -> Iterator[Document]:
        """The documents that a session was built from."""
        contents = self._read.values(
            bytes,
            'SELECT "data" FROM "arrivals" WHERE "sessionId" = ? ORDER BY "startedNano", "spanId", "part"',
            (session_id,),
        )
        return map(decompressed, contents)

    def spans_without_records(
        self, log_group: str, first_ms: int, last_ms: int
    ) -> Iterator[tuple[str, int, Document]]:
        """Spans of the sessions of a group in traces without event records: external id of the session, time
        in milliseconds, document; oldest first."""
        after: tuple[object, ...] = (-1, "", "")
        while True:
            rows = self._read.rows(
                _SpanOfSession,
                'SELECT a."traceId", a."spanId", a."startedNano", a."data", s."externalId" FROM "arrivals" a '
                'JOIN "sessions" s ON s."id" = a."sessionId" WHERE a."part" = \'span\' '
                'AND s."logGroup" = ? AND a."startedNano" BETWEEN ? AND ? AND NOT EXISTS (SELECT 1 FROM '
                '"arrivals" r WHERE r."traceId" = a."traceId" AND r."part" <> \'span\') '
                'AND (a."startedNano", a."traceId", a."spanId") > (?, ?, ?) '
                'ORDER BY a."startedNano", a."traceId", a."spanId" LIMIT ?',
                (log_group, first_ms * 1_000_000, last_ms * 1_000_000 + 999_999, *after, DOCUMENTS_IN_PAGE),
            )
            for row in rows:
                yield row["externalId"], row["startedNano"] // 1_000_000, decompressed(row["data"])
            if len(rows) < DOCUMENTS_IN_PAGE:
                return
            after = (rows[-1]["startedNano"], rows[-1]["traceId"], rows[-1]["spanId"])

    def count_spans(self, *, first_ms: int, last_ms: int) -> int:
        """How many spans of a time range there are."""
        return self._read.count(f'"arrivals" WHERE {_SPANS_BETWEEN}', _nanoseconds(first_ms, last_ms))

    def spans_page(
        self, *, first_ms: int, last_ms: int, offset: int, limit: int
    ) -> list[tuple[int, Document]]:
        """A page of the spans of a time range, each with its time in milliseconds, oldest first."""
        # The page is found without the contents, which are most of the table.
        rows = self._read.rows(
            _SpanOfRange,
            'SELECT a."startedNano", a."data" FROM (SELECT "traceId", "spanId" FROM "arrivals" '
            f'WHERE {_SPANS_BETWEEN} ORDER BY "startedNano", "traceId", "spanId" LIMIT ? OFFSET ?) p '
            'JOIN "arrivals" a ON a."traceId" = p."traceId" AND a."spanId" = p."spanId" '
            "AND a.\"part\" = 'span' "
            'ORDER BY a."startedNano", a."traceId", a."spanId"',
            (*_nanoseconds(first_ms, last_ms), limit, offset),
        )
        return [(row["startedNano"] // NANO, decompressed(row["data"])) for row in rows]

    def search(
        self,
        *,
        log_group: str,
        first_ms: int,
        last_ms: int,
        session_keys: Sequence[str] = (),
        trace_ids: Sequence[str] = (),
    ) -> Iterator[tuple[tuple[str, str, str], int, Document]]:
        """Documents of a time range with identity and time in milliseconds, oldest first, page by page.

        An empty `log_group` means the spans of all groups, a named one its event records. Further conditions
        are lists of allowed values; empty: any.
        """
        conditions = ['"part" = ?' if not log_group else '"part" <> ?', '"startedNano" BETWEEN ? AND ?']
        values: list[object] = ["span", first_ms * 1_000_000, last_ms * 1_000_000 + 999_999]
        if log_group:
            conditions.append('"logGroup" = ?')
            values.append(log_group)
        for column, allowed in (("sessionKey", session_keys), ("traceId", trace_ids)):
            if allowed:
                conditions.append(f'"{column}" IN ({places(allowed)}) AND "{column}" <> \'\'')
                values += allowed
        after: tuple[object, ...] = (-1, "", "", "")
        while True:
            rows = self._read.rows(
                _FoundDocument,
                'SELECT "traceId", "spanId", "part", "startedNano", "data" FROM "arrivals" '
                f"WHERE {' AND '.join(conditions)} "
                'AND ("startedNano", "traceId", "spanId", "part") > (?, ?, ?, ?) '
                'ORDER BY "startedNano", "traceId", "spanId", "part" LIMIT ?',
                (*values, *after, DOCUMENTS_IN_PAGE),
            )
            for row in rows:
                key = (row["traceId"], row["spanId"], row["part"])
                yield key, row["startedNano"] // 1_000_000, decompressed(row["data"])
            if len(rows) < DOCUMENTS_IN_PAGE:
                return
            last = rows[-1]
            after = (last["startedNano"], last["traceId"], last["spanId"], last["part"])


def _save_page(page: Sequence[tuple[object, ...]], connection: Connection) -> None:
    connection.insert_many("arrivals", page, on_conflict=_UPSERT)


def compressed(document: Document) -> bytes:
    """A document as it is stored."""
    # Level 1: higher levels take twice the time to save a tenth of the space.
    return zlib.compress(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"), 1)


def decompressed(data: bytes) -> Document:
    """The document from its stored form."""
    document: Document = json.loads(zlib.decompress(data))
    return document


_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A session that is built and not saved yet."""

    name: SessionName
    members: list[SessionMark]
    digest: bytes
    """Of the documents."""
    session: Session | None
    arrived: Mapping[_Key, str]
    """When its documents came, by key: those that were new last."""
    known: int
    """Documents that the stored session was built from."""


class _Builder:
    """Builds sessions from stored documents, before the transaction that writes them."""

    def __init__(self, build: SessionBuilder) -> None:
        self._build = build
        self._most_traces = TRACES_AT_ONCE
        self.traces: set[str] = set()
        self.prepared: dict[str, _Prepared] = {}
        """By id."""
        self.gone: set[str] = set()
        """Sessions whose documents belong to others now."""

    def prepare(self, connection: Connection, until: str) -> bool:
        """Build sessions of some documents that are new, while others write; False: there are none.

        `until` is the latest arrival that counts.
        """
        self.traces = _new_traces(connection, until, self._most_traces)
        # Those that did not fit into the last transaction are not built again.
        last, self.prepared = self.prepared, {}
        rows = _related(connection, self.traces)
        if len(rows) > MARKS_AT_ONCE:
            self._most_traces = max(1, self._most_traces * MARKS_AT_ONCE // len(rows))
        elif len(rows) < MARKS_AT_ONCE // 2:
            self._most_traces = min(TRACES_AT_ONCE, 2 * self._most_traces)
        current, outdated = _outdated(rows)
        self.gone = {row["sessionId"] for row in rows} - current - {""}
        by_key = {(row["traceId"], row["spanId"], row["part"]): row for row in rows}
        used = Counter(row["sessionId"] for row in rows if not row["isNew"])
        for name, session_id, members in outdated:
            documents, left_out = _used(connection, members)
            digest = _digest(name, documents)
            known = last.get(session_id)
            session = (
                known.session
                if known and known.digest == digest
                else self._build(name, list(map(decompressed, documents)), left_out)
            )
            own = sorted((mark.key for mark in members), key=lambda key: bool(by_key[key]["isNew"]))
            arrived = {key: by_key[key]["arrivedAt"] for key in own}
            self.prepared[session_id] = _Prepared(name, members, digest, session, arrived, used[session_id])
        return bool(self.traces)

    def take_large(self) -> list[tuple[str, _Prepared, Session]]:
        """Take out the prepared sessions that are too large for one transaction.

        None where documents have moved between sessions: all of them are then written together.
        """
        large = [
            (session_id, prepared, prepared.session)
            for session_id, prepared in self.prepared.items()
            if len(prepared.members) > LARGE and prepared.session and not self.gone
        ]
        for session_id, prepared, _ in large:
            del self.prepared[session_id]
            self.traces -= {mark.trace_id for mark in prepared.members}
        return large


class _LargeSession:
    """Writes a session of many documents in several short transactions.

    Its status is `running` meanwhile: it is neither listed as finished, indexed, nor evaluated. The last of
    its new documents is marked as used together with its end: after a kill it is built again.
    Of two processes one writes; the other waits until the first has ended or has been silent.
    """

    def __init__(
        self, transaction: Transaction, session_id: str, prepared: _Prepared, session: Session, now: datetime
    ) -> None:
        self._transaction = transaction
        self._id = session_id
        self._prepared = prepared
        self._now = now
        self._created = time.monotonic()
        self._mark = f"{BEING_WRITTEN} {secrets.token_hex(8)}"
        self._member: Row = {"runId": None, "itemId": None}
        self._rows = _rows_of(session, session_id, {}, now)
        self._steps = [*self._deletions(), *self._insertions(), *self._uses()]

    def save(self) -> bool:
        """Whether it was written; otherwise its documents have changed, or another process writes it."""
        if not self._transaction(self._claim):
            time.sleep(PAUSE_SECONDS)
            return False
        place: int | None = 0
        while place is not None and place < len(self._steps):
            place = self._transaction(partial(self._take, place))
        return place is not None

    def _claim(self, connection: Connection) -> bool:
        connection.lock_table("arrivals")
        columns = '"id", "runId", "itemId", "status", "endReason", "finishedAt"'
        row = next(
            iter(connection.rows(f'SELECT {columns} FROM "sessions" WHERE "id" = ?', (self._id,))), None
        )
        if row and is_being_written(row) and str(row["finishedAt"]) > self._stamp(-SILENT_SECONDS):
            return False
        built = '"arrivals" WHERE "sessionId" = ? AND "isNew" = 0'
        if connection.count(built, (self._id,)) != self._prepared.known:
            # Another process has built it from more documents.
            return False
        if row:
            self._member = {name: row[name] for name in self._member}
            connection.update("sessions", self._being_written(), '"id" = ?', (self._id,))
            forget(connection, "?", (self._id,))
        else:
            connection.insert("sessions", {**self._rows.session, **self._member, **self._being_written()})
        return True

    def _take(self, place: int, connection: Connection) -> int | None:
        """Take as many steps as a transaction should; the place of the next one. None: another writes."""
        deadline = time.monotonic() + HOLD_SECONDS
        if run := self._member["runId"]:
            connection.set_key_scope(run)
        mine = '"id" = ? AND "endReason" = ?'
        if not connection.update("sessions", self._being_written(), mine, (self._id, self._mark)):
            return None
        while place < len(self._steps) and time.monotonic() < deadline:
            place += self._steps[place](connection)
        return place

    def _being_written(self) -> JsonObject:
        return {"status": RUNNING, "endReason": self._mark, "finishedAt": self._stamp()}

    def _stamp(self, seconds: float = 0.0) -> str:
        elapsed = time.monotonic() - self._created
        return timestamp(self._now + timedelta(seconds=elapsed + seconds))

    def _deletions(self) -> Iterator["_WriteStep"]:
        def delete(sql: str, connection: Connection) -> bool:
            return not connection.run(sql, (self._id, self._id, ROWS_AT_ONCE))

        for table in OF_A_SESSION:
            key = "step" if table == "iterations" else "position"
            first = f'(SELECT MIN("{key}") FROM "{table}" WHERE "sessionId" = ?)'
            yield partial(delete, f'DELETE FROM "{table}" WHERE "sessionId" = ? AND "{key}" < {first} + ?')

    def _insertions(self) -> Iterator["_WriteStep"]:
        def insert(table: str, rows: Sequence[tuple[object, ...]], connection: Connection) -> bool:
            connection.insert_many(table, rows, on_conflict=KEEP if table == "blobs" else "")
            return True

        for table, rows in self._rows.by_table():
            for start in range(0, len(rows), ROWS_AT_ONCE):
                yield partial(insert, table, rows[start : start + ROWS_AT_ONCE])

    def _uses(self) -> Iterator["_WriteStep"]:
        """Mark the documents as used, and end the session with the last new one."""

        def use(keys: Sequence[tuple[str, str, str]], is_last: bool, connection: Connection) -> bool:
            # What has changed meanwhile stays new.
            connection.run_many(
                'UPDATE "arrivals" SET "isNew" = 0, "sessionId" = ? '
                'WHERE "traceId" = ? AND "spanId" = ? AND "part" = ? AND "arrivedAt" = ?',
                [(self._id, *key, self._prepared.arrived[key]) for key in keys],
            )
            if is_last:
                session = {**self._rows.session, **self._member}
                connection.update("sessions", session, '"id" = ?', (self._id,))
                if self._member["runId"]:
                    imported_runs.update_item(connection, session)
            return True

        keys = list(self._prepared.arrived)
        for start in range(0, len(keys), ROWS_AT_ONCE):
            end = start + ROWS_AT_ONCE
            yield partial(use, keys[start:end], end >= len(keys))


_WriteStep = Callable[[Connection], bool]
"""Part of a write; whether it is done, so that the next one is its turn."""


def _digest(name: SessionName, documents: Sequence[bytes]) -> bytes:
    digest = hashlib.blake2b(repr((name, list(map(len, documents)))).encode("utf-8", "replace"))
    for data in documents:
        digest.update(data)
    return digest.digest()


def _new_traces(connection: Connection, until: str, most: int) -> set[str]:
    rows = connection.rows(
        'SELECT DISTINCT "traceId" FROM "arrivals" WHERE "isNew" = 1 AND "arrivedAt" <= ? LIMIT ?',
        (until, most),
    )
    return {row["traceId"] for row in rows}


def _outdated(rows: Sequence[Row]) -> tuple[set[str], list[tuple[SessionName, str, list[SessionMark]]]]:
    """The ids of the sessions of these documents, and those of the sessions that have to be built."""
    before = {(row["traceId"], row["spanId"], row["part"]): row for row in rows}
    current, outdated = set[str](), []
    for name, members in sessions_among(map(_mark, rows)).items():
        session_id = imported_id(_SOURCE, name.log_group, name.service, name.external_id)
        current.add(session_id)
        if any(before[mark.key]["isNew"] or before[mark.key]["sessionId"] != session_id for mark in members):
            outdated.append((name, session_id, members))
    return current, outdated


def _save_prepared(connection: Connection, builder: _Builder, now: datetime) -> BuiltSessions:
    """Write the sessions that are prepared, as many as a transaction should."""
    # Locked: documents that arrive meanwhile would be marked as used.
    connection.lock_table("arrivals")
    deadline = time.monotonic() + HOLD_SECONDS
    rows = _related(connection, builder.traces)
    is_new = {(row["traceId"], row["spanId"], row["part"]): bool(row["isNew"]) for row in rows}
    built = BuiltSessions()
    current, outdated = _outdated(rows)
    gone = {row["sessionId"] for row in rows} - current - {""}
    for session_id in sorted(gone):
        imported_runs.delete_item_of(connection, session_id)
        delete_session(connection, session_id)
        connection.run(
            'UPDATE "arrivals" SET "isNew" = 1, "sessionId" = \'\' WHERE "sessionId" = ?', (session_id,)
        )
    built.removed += len(gone)
    for name, session_id, members in outdated:
        prepared = builder.prepared.get(session_id)
        if prepared is None or prepared.name != name:
            continue
        used = {mark.key for mark in prepared.members}
        if not all(mark.key in used or is_new[mark.key] for mark in members):
            # Another process has built it from more documents.
            continue
        if _digest(name, _used(connection, prepared.members)[0]) != prepared.digest:
            continue
        # What has arrived since is still new, and built the next time: in a steady stream, it would never be
        # prepared in time, and building it now would keep others from writing.
        _save_one(connection, session_id, prepared, built, now)
        if time.monotonic() > deadline:
            break
    return built


def _save_one(
    connection: Connection, session_id: str, prepared: _Prepared, built: BuiltSessions, now: datetime
) -> None:
    if prepared.session is None:
        imported_runs.delete_item_of(connection, session_id)
        delete_session(connection, session_id)
    else:
        save_session(connection, prepared.session, now)
        built.sessions.append(session_id)
    connection.run_many(
        'UPDATE "arrivals" SET "isNew" = 0, "sessionId" = ? '
        'WHERE "traceId" = ? AND "spanId" = ? AND "part" = ?',
        [(session_id, *mark.key) for mark in prepared.members],
    )


def _related(connection: Connection, traces: set[str]) -> list[Row]:
    """All documents of these traces, and of every trace that shares a session with one of them."""
    rows_by_trace: dict[str, list[Row]] = {}
    pending, keys, sessions = set(traces), set[str](), set[str]()
    while pending:
        rows = list(_rows_of_traces(connection, pending))
        for row in rows:
            rows_by_trace.setdefault(row["traceId"], []).append(row)
        more_keys = {row["sessionKey"] for row in rows} - keys - {""}
        more_sessions = {row["sessionId"] for row in rows} - sessions - {""}
        keys |= more_keys
        sessions |= more_sessions
        neighbors = set(_traces_where(connection, "sessionKey", more_keys))
        neighbors |= set(_traces_where(connection, "sessionId", more_sessions))
        pending = neighbors - set(rows_by_trace)
    return [row for rows in rows_by_trace.values() for row in rows]


def _rows_of_traces(connection: Connection, trace_ids: Iterable[str]) -> Iterator[Row]:
    names = ", ".join(f'"{name}"' for name in _MARKED)
    for chunk in id_pages(sorted(trace_ids)):
        sql = f'SELECT {names} FROM "arrivals" WHERE "traceId" IN ({places(chunk)})'
        yield from connection.rows(sql, chunk)


def _traces_where(connection: Connection, column: str, values: Iterable[str]) -> Iterator[str]:
    for chunk in id_pages(sorted(values)):
        # The second condition makes the partial index usable.
        where = f'"{column}" IN ({places(chunk)}) AND "{column}" <> \'\''
        sql = f'SELECT DISTINCT "traceId" FROM "arrivals" WHERE {where}'
        yield from (row["traceId"] for row in connection.rows(sql, chunk))


def _used(connection: Connection, members: Sequence[SessionMark]) -> tuple[list[bytes], int]:
    """The documents that a session is built from, oldest first, as stored; and how many are left out."""
    marks = sorted(members, key=lambda mark: (mark.started, mark.span_id))[:MOST_DOCUMENTS]
    numbers = {mark.key: number for number, mark in enumerate(marks)}
    documents: list[tuple[int, bytes]] = []
    for chunk in id_pages(sorted({mark.trace_id for mark in marks})):
        sql = (
            f'SELECT "traceId", "spanId", "part", "data" FROM "arrivals" WHERE "traceId" IN ({places(chunk)})'
        )
        for row in connection.rows(sql, chunk):
            number = numbers.get((row["traceId"], row["spanId"], row["part"]))
            if number is not None:
                documents.append((number, bytes(row["data"])))
    return [data for _, data in sorted(documents)], len(members) - len(marks)


def _mark(row: Row) -> SessionMark:
    return SessionMark(
        trace_id=row["traceId"],
        span_id=row["spanId"],
        part=row["part"],
        parent_id=row["parentId"],
        session_key=row["sessionKey"],
        service=row["service"],
        log_group=row["logGroup"],
        has_log_group=bool(row["logGroupExplicit"]),
        started=row["startedNano"],
    )


def _row(mark: SessionMark, document: Document, now: datetime) -> tuple[object, ...]:
    location = (mark.trace_id, mark.span_id, mark.part, mark.parent_id, mark.session_key, mark.service)
    return (
        *map(clean, (*location, mark.log_group)),
        int(mark.has_log_group),
        mark.started,
        timestamp(now),
        "",
        1,
        compressed(document),
    )


def _in_order(rows: dict[tuple[str, str, str], tuple[object, ...]]) -> list[tuple[object, ...]]:
    # Sorted: two servers that receive the same spans in different orders could deadlock.
    return [rows[key] for key in sorted(rows)]


_CHANGING = ("parentId", "sessionKey", "service", "logGroup", "logGroupExplicit", "startedNano", "data")
_UPSERT = (
    'ON CONFLICT ("traceId", "spanId", "part") DO UPDATE SET '
    + ", ".join(f'"{name}" = excluded."{name}"' for name in (*_CHANGING, "arrivedAt"))
    + ', "isNew" = 1 WHERE '
    + " OR ".join(f'"arrivals"."{name}" <> excluded."{name}"' for name in _CHANGING)
)

# Log groups and streams that clients write to.


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One event of a log stream."""

    timestamp_ms: int
    message: str


class LogStreamTimes(LogStreamRow):
    """A log stream with the times of its events in ms; None: it has none."""

    first: int | None
    last: int | None
    ingested: int | None


class Logs:
    """Queries and changes of log streams."""

    def __init__(self, transaction: Transaction, read: StoreReader) -> None:
        self._transaction = transaction
        self._read = read

    def create(self, group: str, stream: str, now: datetime) -> None:
        """Create a group (empty stream name) or a stream. Raises if it exists."""

        def work(connection: Connection) -> None:
            if connection.rows(
                'SELECT 1 FROM "log_streams" WHERE "logGroup" = ? AND "logStream" = ?', (group, stream)
            ):
                raise Contradiction(
                    "the log stream already exists" if stream else "the log group already exists"
                )
            connection.insert("log_streams", (group, stream, timestamp(now)))

        self._transaction(work)

    def put(self, group: str, stream: str, events: Sequence[LogEvent], now: datetime) -> None:
        """Append events to a stream."""

        def work(connection: Connection) -> None:
            connection.lock_table("log_events")
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
                text, blob = split_long_text(clean(event.message))
                if blob:
                    connection.insert("blobs", blob, KEEP)
                row = (group, stream, position, event.timestamp_ms, ingested, text, blob[0] if blob else None)
                connection.insert("log_events", row)

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
        return list(self._read.with_long_texts(rows))
