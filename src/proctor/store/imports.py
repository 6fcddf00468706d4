"""Keep a session that another tool recorded, in place of what was kept of it before.

It becomes the same rows that a session of our own has, through the same recorder, so that whatever reads
sessions reads these too. Its id is a digest of where it comes from: importing again replaces.

Knows nothing of foreign formats.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from proctor.imported import ImportedSession, ImportedStep
from proctor.item import digest_of
from proctor.session import Iteration, ModelCall, Note
from proctor.store.cleaning import clean
from proctor.store.database import Connection, insertion
from proctor.store.recorder import Recorder
from proctor.store.resealing import drop_unused_texts
from proctor.store.tables import COLUMNS, OF_A_SESSION
from proctor.store.writer import timestamp

JOB = "imported"
"""What `sessions.job` says of a session that was not carried out here."""


def imported_id(source: str, log_group: str, service: str, external_id: str) -> str:
    """Our id of a session that another tool recorded: the same on every machine and each time."""
    return digest_of([clean(part) for part in (source, log_group, service, external_id)])[:32]


def keep(connection: Connection, session: ImportedSession, now: datetime) -> str:
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


def _session_row(session: ImportedSession, began: str) -> dict[str, Any]:
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


def _keep_step(recorder: Recorder, clock: "_Clock", step: ImportedStep) -> None:
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
        self._appended: dict[str, list[tuple[Any, ...]]] = {}

    def add(self, table: str, key: tuple[str, ...], row: dict[str, Any]) -> None:  # noqa: ARG002
        self._session = dict(row)

    def change(self, table: str, key: tuple[str, ...], values: dict[str, Any]) -> None:  # noqa: ARG002
        self._session.update(values)

    def append(self, table: str, row: tuple[Any, ...]) -> None:
        self._appended.setdefault(table, []).append(row)

    def write(self, connection: Connection) -> None:
        connection.run(insertion("sessions", self._session), tuple(self._session.values()))
        # Two processes that wrote the same texts in different orders could wait for each other for ever.
        self._appended.get("blobs", []).sort()
        for table, rows in self._appended.items():
            again = " ON CONFLICT DO NOTHING" if table == "blobs" else ""
            connection.run_many(insertion(table, COLUMNS[table]) + again, rows)
