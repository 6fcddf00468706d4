"""Selection of sessions to evaluate, with their properties.

Sessions received by telemetry are selected by log group, service and time; those of this store by run, job,
role, model and time.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict

from proctor.errors import UsageError
from proctor.item import ERROR, RUNNING
from proctor.store.database import escape_like, places
from proctor.store.reader import StoreReader
from proctor.store.writer import timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A half-open time interval; None: unbounded."""

    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroupSessions:
    """Sessions received by telemetry, by where they were logged."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    """Empty: all."""
    traces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Evaluate only these traces of a session, by its id."""
    period: Period = Period()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSessions:
    """Sessions of this store, of any job. An empty filter matches all."""

    run_ids: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """Who took part: a client's, therapist's or actor's role."""
    models: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    excluded_jobs: tuple[str, ...] = ()
    """Jobs whose sessions do not count unless they are named by id."""
    period: Period = Period()


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSessions:
    """Records of this or other tools, imported before they are evaluated."""

    paths: tuple[str, ...]
    kind: str = "auto"
    session_ids: tuple[str, ...] = ()
    """Ids in the store of the imported sessions."""


Sessions = LogGroupSessions | OwnSessions | FileSessions


def session_ids(read: StoreReader, sessions: Sessions) -> list[str]:
    """Ids of the finished sessions of a source, the most recent first."""
    where, parameters = _source_condition(sessions)
    return read.values(
        str,
        f'SELECT s."id" FROM "sessions" s WHERE {where} AND s."status" <> ? '
        'ORDER BY COALESCE(s."finishedAt", s."startedAt") DESC, s."id"',
        (*parameters, RUNNING),
    )


def _source_condition(sessions: Sessions) -> tuple[str, list[object]]:
    """A condition on `sessions s`, and its parameters."""
    match sessions:
        case LogGroupSessions():
            return _log_group_condition(sessions)
        case OwnSessions():
            return _own_condition(sessions)
        case FileSessions():
            return _one_of('s."id"', sessions.session_ids)


def _log_group_condition(source: LogGroupSessions) -> tuple[str, list[object]]:
    groups, parameters = _in_log_groups(source.names, source.prefixes)
    # Sessions that were executed here have no log group.
    parts = ['s."runId" IS NULL', f"({groups})" if groups else "1 = 1"]
    named = (*source.session_ids, *source.traces)
    for column, values in (("service", source.services), ("externalId", named)):
        if values:
            condition, more = _one_of(f's."{column}"', values)
            parts.append(condition)
            parameters += more
    return _within(source.period, parts, parameters)


def _in_log_groups(names: Sequence[str], prefixes: Sequence[str]) -> tuple[str, list[object]]:
    """A condition on `sessions s`; empty when nothing is named."""
    parts, parameters = list[str](), list[object]()
    if names:
        condition, parameters = _one_of('s."logGroup"', names)
        parts.append(condition)
    for prefix in prefixes:
        parts.append('substr(s."logGroup", 1, ?) = ?')
        parameters += [len(prefix), prefix]
    return " OR ".join(parts), parameters


def _own_condition(source: OwnSessions) -> tuple[str, list[object]]:
    parts, parameters = list[str](), list[object]()
    if source.session_ids:
        one, ids = _one_of('s."id"', source.session_ids)
        other, _ = _one_of('s."externalId"', source.session_ids)
        item, _ = _one_of('i."id"', source.session_ids)
        # The id of an item selects its last session.
        last = f's."id" IN (SELECT i."sessionId" FROM "batch_items" i WHERE {item})'
        parts.append(f"({one} OR {other} OR {last})")
        parameters += [*ids, *ids, *ids]
    for column, values in (("runId", source.run_ids), ("job", source.jobs), ("model", source.models)):
        if values:
            condition, more = _one_of(f's."{column}"', values)
            parts.append(condition)
            parameters += more
    if source.roles:
        patterns = [_factor_pattern(role) for role in source.roles]
        condition = " OR ".join(["i.\"factors\" LIKE ? ESCAPE '!'"] * len(patterns))
        parts.append(
            'EXISTS (SELECT 1 FROM "batch_items" i WHERE i."runId" = s."runId" AND i."id" = s."itemId" '
            f"AND ({condition}))"
        )
        parameters += patterns
    if not parts and source.period == Period():
        raise UsageError(
            "no sessions are selected\nGive a run, a job, a role, a model, session ids or a period."
        )
    if not source.session_ids:
        # A superseded attempt does not count, and an infrastructure error says nothing about the agent.
        parts.append(
            '(s."runId" IS NULL OR EXISTS (SELECT 1 FROM "batch_items" i WHERE i."runId" = s."runId" '
            'AND i."sessionId" = s."id"))'
        )
        parts.append('s."status" <> ?' if not source.statuses else _one_of('s."status"', source.statuses)[0])
        parameters += source.statuses or [ERROR]
        if source.excluded_jobs:
            condition, excluded = _one_of('s."job"', source.excluded_jobs)
            parts.append(f"NOT {condition}")
            parameters += excluded
    return _within(source.period, parts, parameters)


def _factor_pattern(role: str) -> str:
    """A `LIKE` pattern for factors, which are JSON, of which one has this value."""
    return f"%:{escape_like(json.dumps(role, ensure_ascii=False))}%"


def _within(period: Period, parts: list[str], parameters: list[object]) -> tuple[str, list[object]]:
    if period.start or period.end:
        began = 'COALESCE(t."startTime", s."startedAt")'
        ended = f'COALESCE(t."endTime", t."startTime", s."finishedAt", {began})'
        before = f"AND {began} < ?" if period.end else ""
        after = f"AND {ended} >= ?" if period.start else ""
        # A session without steps counts as one step from its start to its end.
        parts.append(
            'EXISTS (SELECT 1 FROM (SELECT 1 AS "one") o LEFT JOIN "iterations" t ON t."sessionId" = s."id" '
            f"WHERE 1 = 1 {before} {after})"
        )
        parameters += [timestamp(moment) for moment in (period.end, period.start) if moment]
    return " AND ".join(parts), parameters


def _one_of(column: str, values: Sequence[str]) -> tuple[str, list[object]]:
    return f"{column} IN ({places(values)})", list(values)


class SessionHead(TypedDict):
    """Properties of a session before it is evaluated."""

    id: str
    externalId: str
    source: str
    service: str
    logGroup: str
    model: str
    answeredModel: str
    """Empty: the same, or unknown."""
    agent: str
    agentVersion: str
    promptName: str
    runId: str | None
    attributesJson: str | None
    factors: str | None
    """JSON, of the item it was an attempt at; None: it was not executed here."""
    prompt: str | None
    """Of the item, as `repeat`."""
    repeat: int | None


def session_heads(read: StoreReader, ids: Sequence[str]) -> dict[str, SessionHead]:
    """Sessions by id."""
    rows = read.rows(
        SessionHead,
        'SELECT s."id", s."externalId", s."source", s."service", s."logGroup", s."model", '
        's."answeredModel", s."agent", s."agentVersion", s."promptName", s."runId", s."attributesJson", '
        'i."factors", i."prompt" AS "prompt", i."repeat" FROM "sessions" s LEFT JOIN "batch_items" i '
        f'ON i."runId" = s."runId" AND i."id" = s."itemId" WHERE s."id" IN ({places(ids)})',
        tuple(ids),
    )
    return {row["id"]: row for row in rows}


class SessionContent:
    """Digest and size of one session, made of its rows."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.characters = self.traces = self.tool_calls = 0

    def add(self, *parts: object) -> None:
        """Add the values of a row."""
        self._digest.update(json.dumps(parts, default=str).encode())

    @property
    def digest(self) -> str:
        """Of all messages, tool calls and steps."""
        return self._digest.hexdigest()[:32]


class _MessageContent(TypedDict):
    sessionId: str
    step: int
    role: str
    name: str
    content: str
    contentBlob: str | None
    size: int | None


class _CallContent(TypedDict):
    sessionId: str
    step: int
    toolName: str
    argsJson: str
    argsJsonBlob: str | None
    result: str
    resultBlob: str | None
    callId: str
    success: int | None
    size: int | None


class _StepTrace(TypedDict):
    sessionId: str
    step: int
    traceId: str | None


def session_contents(read: StoreReader, ids: Sequence[str]) -> dict[str, SessionContent]:
    """Digest and size of sessions, by id."""
    contents = {session_id: SessionContent() for session_id in ids}
    mine = f'WHERE t."sessionId" IN ({places(ids)}) ORDER BY t."sessionId", t.'
    for message in read.rows(
        _MessageContent,
        'SELECT t."sessionId", t."step", t."role", t."name", t."content", t."contentBlob", '
        f'{_text_size("content")} AS "size" FROM "messages" t {_text_blob("content")} {mine}"position"',
        tuple(ids),
    ):
        content = contents[message["sessionId"]]
        content.characters += message["size"] or 0
        content.add(*list(message.values())[1:-1])
    for call in read.rows(
        _CallContent,
        'SELECT t."sessionId", t."step", t."toolName", t."argsJson", t."argsJsonBlob", t."result", '
        't."resultBlob", t."callId", t."success", '
        f'{_text_size("result")} AS "size" FROM "tool_calls" t {_text_blob("result")} {mine}"position"',
        tuple(ids),
    ):
        content = contents[call["sessionId"]]
        content.characters += (call["size"] or 0) + len(call["argsJson"])
        content.tool_calls += 1
        content.add(*list(call.values())[1:-1])
    for step in read.rows(
        _StepTrace,
        f'SELECT t."sessionId", t."step", t."traceId" FROM "iterations" t {mine}"step"',
        tuple(ids),
    ):
        content = contents[step["sessionId"]]
        content.traces += 1
        content.add(step["step"], step["traceId"])
    return contents


def _text_size(column: str) -> str:
    return f'COALESCE(b."size", LENGTH(t."{column}"))'


def _text_blob(column: str) -> str:
    return f'LEFT JOIN "blobs" b ON b."digest" = t."{column}Blob"'


class QuietSession(TypedDict):
    """A session that an online configuration has to decide about."""

    id: str
    attributesJson: str | None
    service: str
    model: str
    agent: str
    status: str
    externalId: str
    source: str


def quiet_sessions(
    read: StoreReader,
    config_id: str,
    *,
    service: str,
    log_groups: Sequence[str],
    prefixes: Sequence[str],
    since: str,
    until: str,
) -> list[QuietSession]:
    """Received sessions whose last span came in this time and that a configuration has not decided about."""
    groups, parameters = _in_log_groups(log_groups, prefixes)
    columns = ", ".join(f's."{name}"' for name in QuietSession.__annotations__)
    return read.rows(
        QuietSession,
        f'SELECT {columns} FROM "sessions" s WHERE s."runId" IS NULL AND s."service" = ? '
        f'AND ({groups}) AND s."id" IN '
        '(SELECT a."sessionId" FROM "arrivals" a WHERE a."arrivedAt" >= ? AND a."arrivedAt" <= ?) '
        'AND NOT EXISTS (SELECT 1 FROM "arrivals" a WHERE a."sessionId" = s."id" AND a."arrivedAt" > ?) '
        'AND NOT EXISTS (SELECT 1 FROM "online_sessions" o '
        'WHERE o."configId" = ? AND o."sessionId" = s."id")',
        (service, *parameters, since, until, until, config_id),
    )
