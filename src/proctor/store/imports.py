"""Keep a session that another tool recorded, in place of what was kept of it before; and give it back.

It becomes the same rows that a session of our own has, through the same recorder, so that whatever reads
sessions reads these too. Its id is a digest of where it comes from: importing again replaces.

Knows nothing of foreign formats.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from proctor.imported import Happening, ImportedSession, ImportedStep
from proctor.item import digest_of
from proctor.score import Score
from proctor.session import Iteration, Message, ModelCall, Note, ToolCall, Usage
from proctor.store.cleaning import clean
from proctor.store.database import Connection, Row, insertion
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


def session_of_rows(
    session: Mapping[str, Any], rows_of: Callable[[str], list[Row]], judged: Iterable[Row] = ()
) -> ImportedSession:
    """Any session of the store in the form in which sessions are imported and exported.

    `rows_of` gives its rows of a table in the order they happened, long texts included; `judged` are the
    rows of scores that are about it.
    """
    steps: dict[int, list[tuple[int, Happening]]] = {}
    for position, step, happening in _happenings(rows_of):
        steps.setdefault(step, []).append((position, happening))
    ended = {row["step"]: row for row in rows_of("iterations")}
    source = session["source"] or session["job"]
    return ImportedSession(
        external_id=session["externalId"] or session["id"],
        source=source,
        service=session["service"],
        log_group=session["logGroup"],
        name=session["name"],
        agent=session["agent"],
        agent_version=session["agentVersion"],
        model=session["model"],
        status=session["status"],
        end_reason=session["endReason"],
        error=session["error"],
        started_at=_moment(session["startedAt"]),
        finished_at=_moment(session["finishedAt"]),
        steps=[
            _step(number, ended.get(number), steps.get(number, ())) for number in sorted({*steps, *ended})
        ],
        tools=json.loads(session["toolsJson"] or "[]"),
        attributes=json.loads(session["attributesJson"] or "{}"),
        scores=[_score(row) for row in judged],
        notes=json.loads(session["notes"]),
    )


def _step(number: int, row: Row | None, told: Any) -> ImportedStep:
    return ImportedStep(
        trace_id=(row["traceId"] if row else "") or f"turn-{number}",
        happenings=[happening for _, happening in sorted(told, key=lambda each: each[0])],
        started_at=_moment(row["startTime"]) if row else None,
        finished_at=_moment(row["endTime"]) if row else None,
    )


def _happenings(rows_of: Callable[[str], list[Row]]) -> Iterator[tuple[int, int, Happening]]:
    for table, made in _EVENTS.items():
        for row in rows_of(table):
            yield row["position"], row["step"], Happening(event=made(row), at=_moment(row["timestamp"]))


def _message(row: Row) -> Message:
    return Message(role=row["role"], content=row["content"], name=row["name"])


def _tool_call(row: Row) -> ToolCall:
    return ToolCall(
        name=row["toolName"],
        args=json.loads(row["argsJson"] or "{}"),
        success=None if row["success"] is None else bool(row["success"]),
        result=row["result"],
        duration_ms=row["durationMs"],
        call_id=row["callId"] or f"call-{row['position']}",
    )


def _model_call(row: Row) -> ModelCall:
    return ModelCall(
        model=row["model"],
        usage=Usage(
            input_tokens=row["promptTokens"],
            cached_tokens=row["cachedTokens"],
            output_tokens=row["completionTokens"],
            reasoning_tokens=row["reasoningTokens"],
        ),
        provider=row["provider"],
        cost_usd=row["costUsd"],
        price_source=row["priceSource"],
        latency_ms=row["latencyMs"],
        waiting_ms=row["waitingMs"],
        status=row["status"],
        error=row["error"],
        call_id=row["callId"] or f"call-{row['position']}",
    )


def _score(row: Row) -> Score:
    return Score(
        evaluator=row["evaluator"],
        value=row["value"],
        label=row["label"],
        explanation=row["explanation"],
        level=row["level"],
        target=row["target"],
        evaluator_digest=row["evaluatorDigest"],
        error=row["error"],
        cost_usd=row["costUsd"],
        dimension=row["dimension"],
        error_code=row["errorCode"],
        input_tokens=row["inputTokens"],
        output_tokens=row["outputTokens"],
    )


_EVENTS: dict[str, Callable[[Row], Message | ToolCall | ModelCall]] = {
    "messages": _message,
    "tool_calls": _tool_call,
    "model_calls": _model_call,
}


def _session_row(session: ImportedSession, began: str) -> dict[str, Any]:
    return {
        "job": JOB,
        "name": clean(session.name),
        "agent": clean(session.agent),
        "agentVersion": clean(session.agent_version),
        "model": clean(session.model),
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


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


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
