"""Evaluations in the store, their sessions, labels and results.

An evaluation is one row of `evaluations` and one batch with the same id; its progress and results are in
the rows of the batch. A deleted evaluation is no longer listed; its results stay.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NotRequired, TypedDict, TypeVar, cast

from proctor.errors import Contradiction, NotFound, UsageError
from proctor.item import ERROR, FINISHED, RUNNING, SUCCESS
from proctor.json_values import JsonMap, JsonObject, as_map
from proctor.score import Level
from proctor.store import batches
from proctor.store.database import (
    Connection,
    Row,
    escape_like,
    extended,
    insertion,
    places,
    substring_pattern,
)
from proctor.store.items import CountRow, IdRow, StoreReader
from proctor.store.recorder import split_long_text
from proctor.store.sealer import DataKeys
from proctor.store.tables import COLUMNS, LabelRow, ScoreRow, clean, finite, short
from proctor.store.writer import timestamp

T = TypeVar("T")
Transaction = Callable[[Callable[[Connection], T]], T]
KMS_CONTEXT = "aws:bedrock-agentcore:batchEvaluationArn"
"""Encryption context of an evaluation's own key."""
LISTED = tuple(name for name in COLUMNS["evaluations"] if not name.startswith("metadataJson"))
"""Columns of a list: all but the metadata, which may be long."""


class ListedEvaluation(TypedDict):
    """An evaluation without the metadata of its sessions, which may be long."""

    id: str
    arn: str
    name: str
    createdAt: str
    clientToken: str
    requestDigest: str
    requestJson: str
    definitionsJson: str
    outputGroup: str
    outputStream: str
    discoveredAt: str | None
    sessionsFound: int
    sessionsIgnored: int
    failure: str
    deletedAt: str | None


class _Metadata(TypedDict):
    metadataJson: str
    metadataJsonBlob: NotRequired[str | None]


class LogGroup(TypedDict):
    """Imported sessions of one log group and service."""

    logGroup: str
    service: str
    sessions: int
    last: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """A new evaluation."""

    id: str
    """Also the `runId` of its batch."""
    arn: str
    name: str
    request: Mapping[str, object]
    """The request without the ground truth."""
    request_digest: str
    """Of the whole request; two requests with one client token must have the same."""
    metadata: Sequence[Mapping[str, object]] = ()
    """By session: scenario, ground truth."""
    definitions: JsonMap = field(default_factory=dict)
    """Definitions of the evaluators at the start, by requested name."""
    client_token: str = ""
    kms_key_arn: str = ""
    """Key that its results are encrypted with; empty: the store's, if it has one."""
    output_group: str = ""
    output_stream: str = ""


class Evaluations:
    """Queries and changes of evaluations."""

    def __init__(self, transaction: Transaction[Any], read: StoreReader, keys: DataKeys) -> None:
        self._transaction = transaction
        self._read = read
        self._keys = keys

    def create(
        self, new: EvaluationRecord, batch: Mapping[str, object], now: datetime
    ) -> tuple[ListedEvaluation, bool]:
        """Create an evaluation and its batch, without items; return it and whether it is new.

        A known client token returns the evaluation it was first used for; with another request, it raises a
        `Contradiction`. With a `kms_key_arn`, metadata and results are encrypted with that key; raises
        `KeyUnusable` if that fails.
        """
        arn = new.kms_key_arn
        key = self._keys.make(new.id, arn, {KMS_CONTEXT: new.arn}, now) if arn else None

        def work(connection: Connection) -> tuple[str, bool]:
            connection.lock_table("evaluations")
            if new.client_token:
                for row in connection.rows(
                    'SELECT "id", "requestDigest" FROM "evaluations" WHERE "clientToken" = ?',
                    (new.client_token,),
                ):
                    if row["requestDigest"] != new.request_digest:
                        raise Contradiction(
                            f"the client token was already used for {row['id']}, with other parameters\n"
                            "Use the same parameters or a new token."
                        )
                    return row["id"], False
            connection.run(insertion("evaluations", COLUMNS["evaluations"]), _row(new, now))
            if key:
                self._keys.write(connection, key)
            batches.create(connection, batch, ())
            self._write_content(connection, new)
            return new.id, True

        evaluation_id, is_new = self._transaction(work)
        return self.row(evaluation_id, with_deleted=True), is_new

    def row(self, evaluation: str, *, with_deleted: bool = False) -> ListedEvaluation:
        """An evaluation by its id, its ARN, or an unambiguous prefix of its id."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        listed = "" if with_deleted else 'AND "deletedAt" IS NULL'
        prefix = evaluation.rpartition("/")[2]
        rows = self._read.rows(
            ListedEvaluation, f'SELECT {columns} FROM "evaluations" WHERE "id" = ? {listed}', (prefix,)
        ) or self._read.rows(
            ListedEvaluation,
            f'SELECT {columns} FROM "evaluations" WHERE substr("id", 1, ?) = ? {listed} LIMIT 2',
            (len(prefix), prefix),
        )
        if len(rows) != 1 or not prefix:
            several = "several evaluations begin with" if len(rows) > 1 else "there is no evaluation"
            raise NotFound(f"{several} {evaluation}\n`proctor evaluate list` lists them.")
        return rows[0]

    def page(self, *, after: tuple[str, str] | None = None, limit: int = 100) -> list[ListedEvaluation]:
        """Evaluations, newest first; `after` is the `createdAt` and `id` of the previous page's last."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        further = 'AND ("createdAt" < ? OR ("createdAt" = ? AND "id" < ?))' if after else ""
        last = (after[0], after[0], after[1]) if after else ()
        return self._read.rows(
            ListedEvaluation,
            f'SELECT {columns} FROM "evaluations" WHERE "deletedAt" IS NULL {further} '
            'ORDER BY "createdAt" DESC, "id" DESC LIMIT ?',
            (*last, limit),
        )

    def metadata(self, evaluation_id: str) -> list[JsonObject]:
        """Metadata of sessions given with an evaluation: scenario ids and ground truth."""
        rows = self._read.rows(
            _Metadata,
            'SELECT "metadataJson", "metadataJsonBlob" FROM "evaluations" WHERE "id" = ?',
            (evaluation_id,),
        )
        metadata: list[JsonObject] = [
            entry for row in self._read.with_long_texts(rows) for entry in json.loads(row["metadataJson"])
        ]
        return metadata

    def of_stream(self, group: str, stream: str) -> list[ListedEvaluation]:
        """Evaluations that write to a log stream, including deleted ones."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        return self._read.rows(
            ListedEvaluation,
            f'SELECT {columns} FROM "evaluations" WHERE "outputGroup" = ? AND "outputStream" = ? '
            'ORDER BY "createdAt", "id"',
            (group, stream),
        )

    def change_request(self, changed: EvaluationRecord) -> None:
        """Change the request of an evaluation: other evaluators, sessions or ground truth."""

        def work(connection: Connection) -> None:
            values = dict(zip(COLUMNS["evaluations"], _row(changed, None), strict=True))
            connection.run(
                'UPDATE "evaluations" SET "requestJson" = ?, "discoveredAt" = NULL, "failure" = ? '
                'WHERE "id" = ?',
                (values["requestJson"], "", changed.id),
            )
            self._write_content(connection, changed)

        self._transaction(work)

    def record_discovery(self, evaluation_id: str, *, matched: int, ignored: int, now: datetime) -> None:
        """Record how many sessions matched, and how many were ignored because of the limit."""
        self._change(
            evaluation_id,
            {"discoveredAt": timestamp(now), "sessionsFound": matched, "sessionsIgnored": ignored},
        )

    def record_failure(self, evaluation_id: str, failure: str) -> None:
        """Record why a whole evaluation failed."""
        self._change(evaluation_id, {"failure": clean(failure)[:1000]})

    def delete(self, evaluation_id: str, now: datetime) -> None:
        """Mark an evaluation as deleted. Its results stay."""
        self._change(evaluation_id, {"deletedAt": timestamp(now)})

    def _write_content(self, connection: Connection, new: EvaluationRecord) -> None:
        """Write the metadata and the definitions, with the evaluation's own key if it has one.

        Separate from the other columns, which are readable without that key.
        """
        connection.set_key_scope(new.id)
        metadata, blob = split_long_text(clean(json.dumps(list(new.metadata), ensure_ascii=False)))
        if blob:
            connection.run(f"{insertion('blobs', COLUMNS['blobs'])} ON CONFLICT DO NOTHING", blob)
        connection.run(
            'UPDATE "evaluations" SET "metadataJson" = ?, "metadataJsonBlob" = ? WHERE "id" = ?',
            (metadata, blob[0] if blob else None, new.id),
        )
        # The copy of an evaluator that has its own key must not be stored in plain text.
        copied = [
            str(as_map(definition).get("evaluatorId", ""))
            for definition in new.definitions.values()
            if definition
        ]
        connection.set_key_scope(self._keys.first_with_own([new.id, *copied]))
        connection.run(
            'UPDATE "evaluations" SET "definitionsJson" = ? WHERE "id" = ?', (_json(new.definitions), new.id)
        )

    def _change(self, evaluation_id: str, values: Mapping[str, object]) -> None:
        columns = ", ".join(f'"{name}" = ?' for name in values)
        statement = f'UPDATE "evaluations" SET {columns} WHERE "id" = ?'
        self._transaction(lambda connection: connection.run(statement, (*values.values(), evaluation_id)))


def _row(new: EvaluationRecord, now: datetime | None) -> tuple[object, ...]:
    request = (new.client_token, new.request_digest, _json(new.request))
    return (
        *(new.id, new.arn, new.name, timestamp(now) if now else "", *request),
        *("[]", None, "{}", new.output_group, new.output_stream),
        *(None, 0, 0, "", None),
    )


def _json(value: Mapping[str, object]) -> str:
    return clean(json.dumps(dict(value), ensure_ascii=False))


# Pages of evaluations and their sessions.


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFilter:
    """Filter on the sessions and scores of an evaluation."""

    evaluator: str = ""
    """Only its scores; empty: all."""
    dimension: str = ""
    search: str = ""
    """Text in the name of the session."""
    reversed_: Sequence[str] = ()
    """Evaluators with high values for bad results."""


def jobs_page(read: StoreReader, search: str, *, limit: int, offset: int) -> tuple[list[str], int]:
    """Ids of a page of evaluations, newest first, and the number whose id contains the text."""
    where = '"deletedAt" IS NULL AND LOWER("id") LIKE ? ESCAPE \'!\''
    parameters = (substring_pattern(search),)
    rows = read.rows(
        IdRow,
        f'SELECT "id" FROM "evaluations" WHERE {where} ORDER BY "createdAt" DESC, "id" DESC LIMIT ? OFFSET ?',
        (*parameters, limit, offset),
    )
    (counted,) = read.rows(CountRow, f'SELECT COUNT(*) AS "n" FROM "evaluations" WHERE {where}', parameters)
    return [row["id"] for row in rows], counted["n"]


def log_groups(read: StoreReader, *, limit: int = 200) -> list[LogGroup]:
    """Log groups and services of imported sessions, with their number and the time of the last."""
    return read.rows(
        LogGroup,
        'SELECT "logGroup", "service", COUNT(*) AS "sessions", '
        'MAX(COALESCE("finishedAt", "startedAt")) AS "last" FROM "sessions" WHERE "runId" IS NULL '
        'GROUP BY "logGroup", "service" ORDER BY "last" DESC, "logGroup", "service" LIMIT ?',
        (limit,),
    )


class _EvaluatedSessionRow(TypedDict):
    prompt: str
    position: int
    settings: str
    lowest: float | None
    mean: float | None
    failed: int
    valued: int
    results: int
    open: int


class SessionLowest(_EvaluatedSessionRow):
    """A session of an evaluation with its lowest and mean value."""

    sessionId: str


class SessionScores(TypedDict):
    """The scores of one evaluator and dimension in one session."""

    prompt: str
    evaluator: str
    dimension: str
    mean: float | None
    results: int
    failed: int | None
    label: str | None
    labels: int


def sessions_page(
    read: StoreReader,
    run_id: str,
    selection: JudgedFilter,
    *,
    order: str = "lowest",
    descending: bool = False,
    limit: int,
    offset: int,
) -> tuple[list[SessionLowest], int]:
    """A page of the sessions of an evaluation with their lowest value, and the number that match.

    Sessions without a value come last in both directions.
    """
    column = {"lowest": '"lowest"', "mean": '"mean"', "failed": '"failed"', "session": '"prompt"'}.get(
        order, '"position"'
    )
    turn = "DESC" if descending else "ASC"
    joined, parameters = _joined(selection)
    rows = read.rows(
        _EvaluatedSessionRow,
        'SELECT * FROM (SELECT i."prompt" AS "prompt", MIN(i."position") AS "position", '
        'MAX(i."settings") AS "settings", MIN(sc."good") AS "lowest", AVG(sc."good") AS "mean", '
        'COALESCE(SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END), 0) AS "failed", '
        'COUNT(sc."good") AS "valued", COUNT(sc."sessionId") AS "results", '
        "SUM(CASE WHEN i.\"status\" IN ('queued', 'running') THEN 1 ELSE 0 END) AS \"open\" "
        f'FROM "batch_items" i LEFT JOIN {joined} ON sc."sessionId" = i."sessionId" '
        'WHERE i."runId" = ? AND LOWER(i."prompt") LIKE ? ESCAPE \'!\' GROUP BY i."prompt") s '
        f'ORDER BY CASE WHEN {column} IS NULL THEN 1 ELSE 0 END, {column} {turn}, "mean", "position" '
        "LIMIT ? OFFSET ?",
        (*parameters, run_id, substring_pattern(selection.search), limit, offset),
    )
    (counted,) = read.rows(
        CountRow,
        'SELECT COUNT(DISTINCT "prompt") AS "n" FROM "batch_items" WHERE "runId" = ? '
        "AND LOWER(\"prompt\") LIKE ? ESCAPE '!'",
        (run_id, substring_pattern(selection.search)),
    )
    return [
        extended(SessionLowest, row, sessionId=json.loads(row["settings"])["session"]) for row in rows
    ], counted["n"]


def scores_by_session(read: StoreReader, run_id: str, prompts: Sequence[str]) -> list[SessionScores]:
    """Results of each evaluator in these sessions: mean, number, failures, one label."""
    if not prompts:
        return []
    # Not `IN`: an encrypted store rewrites only `= ?`.
    among = " OR ".join(['i."prompt" = ?'] * len(prompts))
    return read.rows(
        SessionScores,
        'SELECT i."prompt" AS "prompt", sc."evaluator", sc."dimension", AVG(sc."value") AS "mean", '
        'COUNT(*) AS "results", SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END) AS "failed", '
        'MIN(sc."label") AS "label", COUNT(DISTINCT sc."label") AS "labels" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND ({among}) '
        'GROUP BY i."prompt", sc."evaluator", sc."dimension"',
        (run_id, *prompts),
    )


def verdicts_of(read: StoreReader, run_id: str, session_id: str, *, limit: int = 500) -> list[ScoreRow]:
    """All scores of one session in an evaluation, with explanations, in plan order."""
    rows = read.rows(
        ScoreRow,
        'SELECT sc.* FROM "scores" sc JOIN "batch_items" i ON i."sessionId" = sc."sessionId" '
        'AND i."runId" = ? WHERE sc."judgedSessionId" = ? ORDER BY i."position", sc."position" LIMIT ?',
        (run_id, session_id, limit),
    )
    return list(read.with_long_texts(rows))


def _joined(selection: JudgedFilter) -> tuple[str, list[object]]:
    """Subquery of the selected scores; `good` is 1 minus the value for reversed evaluators."""
    parameters: list[object] = [*selection.reversed_]
    condition = "1 = 1"
    if selection.evaluator:
        condition = '"evaluator" = ? AND "dimension" = ?'
        parameters += [selection.evaluator, selection.dimension]
    return (
        '(SELECT "sessionId", "judgedSessionId", "error", '
        f'CASE WHEN "evaluator" IN ({places(selection.reversed_)}) THEN 1 - "value" ELSE "value" END '
        f'AS "good" FROM "scores" WHERE {condition}) sc',
        parameters,
    )


# Human labels.


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
        connection.run(
            'INSERT INTO "blobs" ("digest", "size", "data") VALUES (?, ?, ?) ON CONFLICT DO NOTHING', blob
        )
    values = (finite(label.value), short(clean(label.label)), note, blob[0] if blob else None)
    connection.run(insertion("labels", COLUMNS["labels"]), (*key, who, label.level, timestamp(now), *values))


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
    (row,) = read.query(f'SELECT COUNT(*) AS "n", MAX("at") AS "at" FROM "labels" {where}', parameters)
    (batch,) = read.query('SELECT MAX("createdAt") AS "at", MAX("finishedAt") AS "end" FROM "batches"')
    return LabelsState(n=row["n"], at=row["at"], created=batch["at"], finished=batch["end"])


# Evaluations that are not finished, and quotas.


class UnfinishedEvaluation(TypedDict):
    """An evaluation whose batch is recorded as running."""

    id: str
    requestJson: str
    optionsJson: str
    """Of the batch."""


def unfinished_evaluations(read: StoreReader) -> list[UnfinishedEvaluation]:
    """Evaluations whose batch is recorded as running, whether or not a process executes it; oldest first."""
    return read.rows(
        UnfinishedEvaluation,
        'SELECT e."id", e."requestJson", b."optionsJson" FROM "evaluations" e '
        'JOIN "batches" b ON b."runId" = e."id" '
        'WHERE e."deletedAt" IS NULL AND b."status" = ? ORDER BY e."createdAt"',
        (RUNNING,),
    )


def count_evaluations(read: StoreReader) -> int:
    """How many evaluations are listed."""
    (row,) = read.query(
        'SELECT COUNT(*) AS "n" FROM "evaluations" e JOIN "batches" b ON b."runId" = e."id" '
        'WHERE e."deletedAt" IS NULL'
    )
    return int(row["n"])


def is_token_used(read: StoreReader, client_token: str) -> bool:
    """Whether an evaluation was opened with a client token."""
    return bool(
        client_token and read.query('SELECT 1 FROM "evaluations" WHERE "clientToken" = ?', (client_token,))
    )


# Log streams that results are read from.


class OutputStream(TypedDict):
    """A log stream of results."""

    outputGroup: str
    outputStream: str
    at: str
    """Creation of its first evaluation."""


def output_streams(read: StoreReader) -> list[OutputStream]:
    """Every log stream that evaluations write to."""
    return read.rows(
        OutputStream,
        'SELECT "outputGroup", "outputStream", MIN("createdAt") AS "at" FROM "evaluations" '
        'GROUP BY "outputGroup", "outputStream"',
    )


class SessionLogGroup(TypedDict):
    """A log group that sessions came from."""

    logGroup: str
    at: str
    """Start of its first session."""


def session_log_groups(read: StoreReader) -> list[SessionLogGroup]:
    """Every log group that sessions came from."""
    return read.rows(
        SessionLogGroup,
        'SELECT "logGroup", MIN("startedAt") AS "at" FROM "sessions" WHERE "logGroup" <> ? '
        'GROUP BY "logGroup"',
        ("",),
    )


class ResultPeriod(TypedDict):
    """Times of the first and last result in a log stream."""

    stream: str
    first: str
    last: str


def result_periods(read: StoreReader, group: str, streams: Sequence[str] | None = None) -> list[ResultPeriod]:
    """Times of the results in the streams of a log group; None: all of its streams."""
    marks = "" if streams is None else f'AND e."outputStream" IN ({", ".join("?" * len(streams))})'
    return read.rows(
        ResultPeriod,
        'SELECT e."outputStream" AS "stream", MIN(sc."timestamp") AS "first", MAX(sc."timestamp") AS "last" '
        'FROM "evaluations" e JOIN "batch_items" i ON i."runId" = e."id" '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE e."outputGroup" = ? {marks} GROUP BY e."outputStream"',
        (group, *(streams or ())),
    )


# Which sessions to evaluate: by log group, service and time for those received by telemetry; by run, job,
# role, model and time for those of this store.


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
    rows = read.query(
        f'SELECT s."id" FROM "sessions" s WHERE {where} AND s."status" <> ? '
        'ORDER BY COALESCE(s."finishedAt", s."startedAt") DESC, s."id"',
        (*parameters, RUNNING),
    )
    return [row["id"] for row in rows]


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
        parts.append(f"({one} OR {other})")
        parameters += [*ids, *ids]
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
        # A superseded attempt does not count, an infrastructure error says nothing about the agent, and
        # evaluations are not evaluated themselves unless they are named.
        parts.append(
            '(s."runId" IS NULL OR EXISTS (SELECT 1 FROM "batch_items" i WHERE i."runId" = s."runId" '
            'AND i."sessionId" = s."id"))'
        )
        parts.append('s."status" <> ?' if not source.statuses else _one_of('s."status"', source.statuses)[0])
        parameters += source.statuses or [ERROR]
        if "evaluation" not in source.jobs:
            parts.append("s.\"job\" <> 'evaluation'")
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
    """What is known of a session before it is evaluated."""

    id: str
    externalId: str
    source: str
    service: str
    logGroup: str
    model: str
    runId: str | None
    attributesJson: str | None
    factors: str | None
    """JSON, of the item it was an attempt at; None: it was not executed here."""


def session_heads(read: StoreReader, ids: Sequence[str]) -> dict[str, SessionHead]:
    """Sessions by id."""
    rows = read.rows(
        SessionHead,
        'SELECT s."id", s."externalId", s."source", s."service", s."logGroup", s."model", s."runId", '
        's."attributesJson", i."factors" FROM "sessions" s LEFT JOIN "batch_items" i '
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


def session_contents(read: StoreReader, ids: Sequence[str]) -> dict[str, SessionContent]:
    """Digest and size of sessions, by id."""
    contents = {session_id: SessionContent() for session_id in ids}
    mine = f'WHERE t."sessionId" IN ({places(ids)}) ORDER BY t."sessionId", t.'
    for row in read.query(
        'SELECT t."sessionId", t."step", t."role", t."name", t."content", t."contentBlob", '
        f'{_text_size("content")} AS "size" FROM "messages" t {_text_blob("content")} {mine}"position"',
        tuple(ids),
    ):
        contents[row["sessionId"]].characters += row["size"] or 0
        contents[row["sessionId"]].add(*list(row.values())[1:-1])
    for row in read.query(
        'SELECT t."sessionId", t."step", t."toolName", t."argsJson", t."argsJsonBlob", t."result", '
        't."resultBlob", t."callId", t."success", '
        f'{_text_size("result")} AS "size" FROM "tool_calls" t {_text_blob("result")} {mine}"position"',
        tuple(ids),
    ):
        contents[row["sessionId"]].characters += (row["size"] or 0) + len(row["argsJson"])
        contents[row["sessionId"]].tool_calls += 1
        contents[row["sessionId"]].add(*list(row.values())[1:-1])
    for row in read.query(
        f'SELECT t."sessionId", t."step", t."traceId" FROM "iterations" t {mine}"step"', tuple(ids)
    ):
        contents[row["sessionId"]].traces += 1
        contents[row["sessionId"]].add(row["step"], row["traceId"])
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


# Results of an evaluation, as rows.


_FINISHED = ", ".join(f"'{status}'" for status in FINISHED)
FIRST_ITEMS = 500
"""Items in which the evaluators are looked up; every session has all of them."""
MOST_VOTES = 5000
"""Results whose votes are read; more would not change the estimate of the judge's noise."""


class EvaluationItem(TypedDict):
    """One session with one evaluator."""

    id: str
    sessionId: str | None
    """Of the attempt; None: not started."""
    details: str
    settings: str
    factors: str


def items_page(read: StoreReader, run_id: str, position: int, size: int) -> list[EvaluationItem] | None:
    """The items of a run from a position on; None: there are no items from there on."""
    rows = read.rows(
        EvaluationItem,
        'SELECT "id", "sessionId", "details", "settings", "factors" FROM "batch_items" '
        'WHERE "runId" = ? AND "position" >= ? AND "position" < ? ORDER BY "position"',
        (run_id, position, position + size),
    )
    if not rows:
        (further,) = read.query(
            'SELECT COUNT(*) AS "n" FROM "batch_items" WHERE "runId" = ? AND "position" >= ?',
            (run_id, position),
        )
        return [] if further["n"] else None
    return rows


def scores_of_attempts(read: StoreReader, attempts: Sequence[str]) -> list[ScoreRow]:
    """All scores of these attempts, whole, in their order."""
    rows = read.rows(
        ScoreRow,
        f'SELECT * FROM "scores" WHERE "sessionId" IN ({places(attempts)}) ORDER BY "sessionId", "position"',
        tuple(attempts),
    )
    return list(read.with_long_texts(rows))


class EvaluatedSession(TypedDict):
    """A session that results are about."""

    id: str
    externalId: str
    service: str


def evaluated_sessions(read: StoreReader, ids: Sequence[str]) -> dict[str, EvaluatedSession]:
    """Sessions by id; those that were deleted are missing."""
    rows = read.rows(
        EvaluatedSession,
        f'SELECT "id", "externalId", "service" FROM "sessions" WHERE "id" IN ({places(ids)})',
        tuple(ids),
    )
    return {row["id"]: row for row in rows}


class EvaluatedCall(TypedDict):
    """A tool call that results are about."""

    sessionId: str
    callId: str
    position: int
    toolName: str
    traceId: str | None


def evaluated_calls(read: StoreReader, ids: Sequence[str]) -> dict[tuple[str, str], EvaluatedCall]:
    """The tool calls of sessions, by session and call id."""
    rows = read.rows(
        EvaluatedCall,
        'SELECT c."sessionId", c."callId", c."position", c."toolName", t."traceId" FROM "tool_calls" c '
        'LEFT JOIN "iterations" t ON t."sessionId" = c."sessionId" AND t."step" = c."step" '
        f'WHERE c."sessionId" IN ({places(ids)})',
        tuple(ids),
    )
    return {(row["sessionId"], row["callId"] or f"call-{row['position']}"): row for row in rows}


def failed_sessions(read: StoreReader, run_id: str) -> tuple[int, int]:
    """How many sessions have an item that did not succeed, and how many sessions there are."""
    (row,) = read.query(
        'SELECT COUNT(*) AS "total", COALESCE(SUM("bad"), 0) AS "failed" FROM (SELECT '
        'MAX(CASE WHEN "status" = ? THEN 0 ELSE 1 END) AS "bad" FROM "batch_items" WHERE "runId" = ? '
        'GROUP BY "prompt") s',
        (SUCCESS, run_id),
    )
    return int(row["failed"]), int(row["total"])


class ResultHeader(TypedDict):
    """What results need of an evaluation's row."""

    sessionsIgnored: int
    requestJson: str


def result_header(read: StoreReader, run_id: str) -> ResultHeader:
    """What results need of an evaluation's row; defaults for a run that has none."""
    sql = 'SELECT "sessionsIgnored", "requestJson" FROM "evaluations" WHERE "id" = ?'
    rows = read.rows(ResultHeader, sql, (run_id,))
    return rows[0] if rows else ResultHeader(sessionsIgnored=0, requestJson="{}")


class SessionCounts(TypedDict):
    """How far the sessions of an evaluation are."""

    completed: int
    in_progress: int
    failed: int


def session_counts(read: StoreReader, run_id: str) -> SessionCounts:
    """Count the sessions of an evaluation by state."""
    rows = read.query(
        'SELECT "open", "bad", COUNT(*) AS "n" FROM (SELECT '
        f'MAX(CASE WHEN "status" IN ({_FINISHED}) THEN 0 ELSE 1 END) AS "open", '
        f'MAX(CASE WHEN "status" IN ({_FINISHED}) AND "status" <> ? THEN 1 ELSE 0 END) AS "bad" '
        'FROM "batch_items" WHERE "runId" = ? GROUP BY "prompt") s GROUP BY "open", "bad"',
        (SUCCESS, run_id),
    )
    counts = SessionCounts(completed=0, in_progress=0, failed=0)
    for row in rows:
        if row["open"]:
            counts["in_progress"] += row["n"]
        elif row["bad"]:
            counts["failed"] += row["n"]
        else:
            counts["completed"] += row["n"]
    return counts


class ScoreSums(TypedDict):
    """Sums over the sessions of an evaluation, of one evaluator and dimension."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    level: Level
    n: int
    """Results."""
    failed: int
    valued: int
    """Results with a value."""
    total: float
    groups: int
    """Sessions with a value."""
    squares: float
    """Of the sessions' totals."""
    products: float
    """Of total and number of values, by session."""
    sizes: float
    """Squares of the number of values, by session."""
    others: int
    """Sessions that have anything but one value of 0 or 1."""
    sessions: int
    read: int | None
    """Input tokens."""
    written: int | None
    """Output tokens."""
    cost: float | None


def score_sums(read: StoreReader, run_id: str) -> list[ScoreSums]:
    """For each evaluator and dimension what its average is made of, summed over sessions in the database."""
    by_session = (
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", MAX(sc."level") AS "level", '
        'COUNT(*) AS "n", SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END) AS "failed", '
        'COUNT(sc."value") AS "valued", COALESCE(SUM(sc."value"), 0.0) AS "total", '
        'SUM(CASE WHEN sc."value" IN (0, 1) THEN 1 ELSE 0 END) AS "binary", '
        'SUM(sc."inputTokens") AS "read", SUM(sc."outputTokens") AS "written", SUM(sc."costUsd") AS "cost" '
        'FROM "batch_items" i JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) '
        'GROUP BY sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."judgedSessionId"'
    )
    return read.rows(
        ScoreSums,
        'SELECT "evaluator", "evaluatorDigest", "dimension", MAX("level") AS "level", SUM("n") AS "n", '
        'SUM("failed") AS "failed", SUM("valued") AS "valued", SUM("total") AS "total", '
        'SUM(CASE WHEN "valued" > 0 THEN 1 ELSE 0 END) AS "groups", '
        'SUM("total" * "total") AS "squares", SUM("total" * "valued") AS "products", '
        'SUM("valued" * "valued") AS "sizes", '
        'SUM(CASE WHEN "valued" > 0 AND ("valued" <> 1 OR "binary" <> 1) THEN 1 ELSE 0 END) AS "others", '
        'SUM(CASE WHEN "n" > "failed" THEN 1 ELSE 0 END) AS "sessions", '
        'SUM("read") AS "read", SUM("written") AS "written", SUM("cost") AS "cost" '
        f'FROM ({by_session}) s GROUP BY "evaluator", "evaluatorDigest", "dimension"',
        (run_id,),
    )


class FirstItem(TypedDict):
    """Details and settings of an item, as JSON."""

    details: str
    settings: str


def first_items(read: StoreReader, run_id: str) -> list[FirstItem]:
    """The first items of an evaluation, which name all of its evaluators."""
    return read.rows(
        FirstItem,
        'SELECT "details", "settings" FROM "batch_items" WHERE "runId" = ? ORDER BY "position" LIMIT ?',
        (run_id, FIRST_ITEMS),
    )


class LabelCount(TypedDict):
    """How often an evaluator gave a label."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    label: str
    n: int


def label_counts(read: StoreReader, run_id: str) -> list[LabelCount]:
    """The labels of each evaluator, the most frequent first."""
    return read.rows(
        LabelCount,
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."label", COUNT(*) AS "n" '
        'FROM "batch_items" i JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) AND sc."label" <> \'\' AND sc."error" = \'\' '
        'GROUP BY sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."label" '
        'ORDER BY "n" DESC, sc."label"',
        (run_id,),
    )


class ScoreVotes(TypedDict):
    """The single votes behind one result."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    votes: str
    """JSON."""


def score_votes(read: StoreReader, run_id: str) -> list[ScoreVotes]:
    """Results that several votes went into."""
    return read.rows(
        ScoreVotes,
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."votes" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" WHERE i."runId" = ? AND sc."votes" <> ? LIMIT ?',
        (run_id, "[]", MOST_VOTES),
    )


def mock_judges(read: StoreReader, run_id: str) -> list[str]:
    """The scripted or replayed models that judged in an evaluation."""
    rows = read.query(
        'SELECT DISTINCT "model" FROM "sessions" WHERE "runId" = ? AND "standIn" = 1 ORDER BY "model"',
        (run_id,),
    )
    return [row["model"] for row in rows]


def ignored_references(read: StoreReader, run_id: str) -> list[tuple[str, list[str]]]:
    """Evaluators with members of the ground truth that they did not use."""
    rows = read.query(
        'SELECT sc."evaluator", sc."ignored" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" WHERE i."runId" = ? '
        'GROUP BY sc."evaluator", sc."ignored" ORDER BY sc."evaluator", sc."ignored"',
        (run_id,),
    )
    return [(row["evaluator"], json.loads(row["ignored"] or "[]")) for row in rows]


_TARGETS = {
    "lowest": 'sc."value" IS NOT NULL ORDER BY sc."value" ASC',
    "highest": 'sc."value" IS NOT NULL ORDER BY sc."value" DESC',
    "failed": 'sc."error" <> \'\' ORDER BY sc."error"',
}


def result_targets(
    read: StoreReader, run_id: str, which: str, key: tuple[str, str, str], *, limit: int
) -> list[Row]:
    """Scores of an evaluator, whole: the `lowest`, the `highest` or the `failed`.

    `key` is its name, its digest and the dimension.
    """
    rows = read.query(
        'SELECT sc.*, i."details", j."externalId" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        'LEFT JOIN "sessions" j ON j."id" = sc."judgedSessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) AND sc."evaluator" = ? '
        'AND sc."evaluatorDigest" = ? AND sc."dimension" = ? '
        f'AND {_TARGETS[which]}, i."position", sc."position" LIMIT ?',
        (run_id, *key, limit),
    )
    return list(read.with_long_texts(rows))


class InsightRow(TypedDict):
    """A finding of an insight."""

    label: str
    explanation: str
    """JSON."""
    judgedSessionId: str
    details: str


def insight_rows(read: StoreReader, run_id: str, insight: str) -> list[InsightRow]:
    """The findings of an insight, in the order of the sessions."""
    rows = read.query(
        'SELECT sc."label", sc."explanation", sc."explanationBlob", sc."judgedSessionId", i."details" '
        'FROM "batch_items" i JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) AND sc."evaluator" = ? AND sc."error" = \'\' '
        'ORDER BY i."position", sc."position"',
        (run_id, insight),
    )
    return cast("list[InsightRow]", list(read.with_long_texts(rows)))
