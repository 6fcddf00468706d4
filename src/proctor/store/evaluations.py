"""Evaluations in the store, their sessions, labels and results.

An evaluation is one row of `evaluations` and one batch with the same id; its progress and results are in
the rows of the batch. A deleted evaluation is no longer listed; its results stay.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NotRequired

from typing_extensions import TypedDict

from proctor.errors import Contradiction, NotFound
from proctor.item import RUNNING
from proctor.json_values import JsonMap, JsonObject, as_map
from proctor.store import batches
from proctor.store.codec import contains
from proctor.store.database import KEEP, Connection, Transaction, substring_pattern
from proctor.store.reader import StoreReader
from proctor.store.recorder import split_long_text
from proctor.store.sealer import DataKeys
from proctor.store.tables import COLUMNS, clean
from proctor.store.writer import timestamp

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


class _MetadataJson(TypedDict):
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

    def __init__(
        self,
        transaction: Transaction,
        read: StoreReader,
        keys: DataKeys,
        register: Callable[[str], None],
    ) -> None:
        """`register` notes outside of the store that a run is signed."""
        self._transaction = transaction
        self._read = read
        self._keys = keys
        self._register = register

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
            connection.insert("evaluations", _row(new, now))
            if key:
                self._keys.write(connection, key)
            batches.create(connection, batch, ())
            self._write_content(connection, new)
            return new.id, True

        self._register(str(batch["runId"]))
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
            _MetadataJson,
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
            _update(
                connection,
                changed.id,
                {"requestJson": _json(changed.request), "discoveredAt": None, "failure": ""},
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
        """Mark an evaluation as deleted. Its results stay; its client token may start another."""
        self._change(evaluation_id, {"deletedAt": timestamp(now), "clientToken": ""})

    def _write_content(self, connection: Connection, new: EvaluationRecord) -> None:
        """Write the metadata and the definitions, with the evaluation's own key if it has one.

        Separate from the other columns, which are readable without that key.
        """
        connection.set_key_scope(new.id)
        metadata, blob = split_long_text(clean(json.dumps(list(new.metadata), ensure_ascii=False)))
        if blob:
            connection.insert("blobs", blob, KEEP)
        _update(connection, new.id, {"metadataJson": metadata, "metadataJsonBlob": blob[0] if blob else None})
        # The copy of an evaluator that has its own key must not be stored in plain text.
        copied = [
            str(as_map(definition).get("evaluatorId", ""))
            for definition in new.definitions.values()
            if definition
        ]
        connection.set_key_scope(self._keys.first_with_own([new.id, *copied]))
        _update(connection, new.id, {"definitionsJson": _json(new.definitions)})

    def _change(self, evaluation_id: str, values: Mapping[str, object]) -> None:
        self._transaction(lambda connection: _update(connection, evaluation_id, values))


def _update(connection: Connection, evaluation_id: str, values: Mapping[str, object]) -> None:
    connection.update("evaluations", values, '"id" = ?', (evaluation_id,))


def _row(new: EvaluationRecord, now: datetime | None) -> tuple[object, ...]:
    request = (new.client_token, new.request_digest, _json(new.request))
    return (
        new.id,
        new.arn,
        new.name,
        timestamp(now) if now else "",
        *request,
        "[]",
        None,
        "{}",
        new.output_group,
        new.output_stream,
        None,
        0,
        0,
        "",
        None,
    )


def _json(value: Mapping[str, object]) -> str:
    return clean(json.dumps(dict(value), ensure_ascii=False))


def jobs_page(read: StoreReader, search: str, *, limit: int, offset: int) -> tuple[list[str], int]:
    """Ids of a page of evaluations, newest first, and the number whose id contains the text."""
    where = '"deletedAt" IS NULL AND LOWER("id") LIKE ? ESCAPE \'!\''
    parameters = (substring_pattern(search),)
    ids = read.values(
        str,
        f'SELECT "id" FROM "evaluations" WHERE {where} ORDER BY "createdAt" DESC, "id" DESC LIMIT ? OFFSET ?',
        (*parameters, limit, offset),
    )
    return ids, read.count(f'"evaluations" WHERE {where}', parameters)


def evaluations_of_run(read: StoreReader, run_id: str, *, limit: int = 5) -> list[str]:
    """Ids of the evaluations that name a batch as their source, newest first."""
    return read.values(
        str,
        'SELECT "id" FROM "evaluations" WHERE "deletedAt" IS NULL '
        f"AND {contains('requestJson')} "
        'ORDER BY "createdAt" DESC, "id" DESC LIMIT ?',
        (substring_pattern(json.dumps(run_id)), limit),
    )


def log_groups(read: StoreReader, *, limit: int = 200) -> list[LogGroup]:
    """Log groups and services of imported sessions, with their number and the time of the last."""
    return read.rows(
        LogGroup,
        'SELECT "logGroup", "service", COUNT(*) AS "sessions", '
        'MAX(COALESCE("finishedAt", "startedAt")) AS "last" FROM "sessions" WHERE "runId" IS NULL '
        'GROUP BY "logGroup", "service" ORDER BY "last" DESC, "logGroup", "service" LIMIT ?',
        (limit,),
    )


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
    return read.count('"evaluations" e JOIN "batches" b ON b."runId" = e."id" WHERE e."deletedAt" IS NULL')


def is_token_used(read: StoreReader, client_token: str) -> bool:
    """Whether an evaluation was opened with a client token."""
    if not client_token:
        return False
    return read.count('"evaluations" WHERE "clientToken" = ?', (client_token,)) > 0


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
