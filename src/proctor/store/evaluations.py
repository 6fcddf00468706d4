"""Evaluation jobs in the store: asked for, found again, and taken off the list.

A job is one row here and one batch with the same id; how far it is and what it came to are questions to
the batch's rows. A job that was deleted keeps its results, and nobody but their readers sees it any more.

Knows nothing of sessions, evaluators, or of how a job is carried out.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NotRequired, TypedDict, TypeVar

from proctor.errors import Contradiction, NotFound, UsageError
from proctor.score import Level
from proctor.store import batches
from proctor.store.database import Connection, containing, extended, insertion, places
from proctor.store.items import CountRow, IdRow, StoreReader
from proctor.store.recorder import kept
from proctor.store.sealer import DataKeys
from proctor.store.tables import COLUMNS, LabelRow, ScoreRow, clean, finite, short
from proctor.store.writer import timestamp

T = TypeVar("T")


Transaction = Callable[[Callable[[Connection], T]], T]


KMS_CONTEXT = "aws:bedrock-agentcore:batchEvaluationArn"
"""The name of what a job's own key is bound to."""


LISTED = tuple(name for name in COLUMNS["evaluations"] if not name.startswith("metadataJson"))
"""What is read for every job; ground truth may be long, and few ask for it."""


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
    """A job as it is first written."""

    id: str
    """Also the `runId` of its batch."""
    arn: str
    name: str
    request: Mapping[str, object]
    """What was asked, without the ground truth."""
    request_digest: str
    """Of all that was asked; two starts with one token are the same only if this is."""
    metadata: Sequence[Mapping[str, object]] = ()
    """What is known of single sessions: scenario, ground truth."""
    definitions: Mapping[str, Any] = field(default_factory=dict)
    """The evaluators' definitions as they were, by the name they were asked for under."""
    client_token: str = ""
    kms_key_arn: str = ""
    """A key of its own, that its results are sealed under; empty: the store's, if it has one."""
    output_group: str = ""
    output_stream: str = ""


class Evaluations:
    """Every question about jobs, and every change of one."""

    def __init__(self, transaction: Transaction[Any], read: StoreReader, keys: DataKeys) -> None:
        self._transaction = transaction
        self._read = read
        self._keys = keys

    def open(
        self, new: EvaluationRecord, batch: Mapping[str, object], now: datetime
    ) -> tuple[ListedEvaluation, bool]:
        """Write a job and its batch, which has no items yet; the job, and whether it is new.

        A known client token gives the job it was first used for, if the same was asked then; if not, a
        `Contradiction`. With a `kms_key_arn`, what was given about sessions and all that the job comes to
        is sealed under that key; `KeyUnusable` when it cannot be.
        """
        arn = new.kms_key_arn
        key = self._keys.make(new.id, arn, {KMS_CONTEXT: new.arn}, now) if arn else None

        def work(connection: Connection) -> tuple[str, bool]:
            connection.hold("evaluations")
            if new.client_token:
                for row in connection.rows(
                    'SELECT "id", "requestDigest" FROM "evaluations" WHERE "clientToken" = ?',
                    (new.client_token,),
                ):
                    if row["requestDigest"] != new.request_digest:
                        raise Contradiction(
                            f"the client token was used before, for {row['id']}, which asks for something "
                            "else\nGive the same parameters, or another token."
                        )
                    return row["id"], False
            connection.run(insertion("evaluations", COLUMNS["evaluations"]), _row(new, now))
            if key:
                self._keys.keep(connection, key)
            batches.create(connection, batch, ())
            self._keep_content(connection, new)
            return new.id, True

        found, is_new = self._transaction(work)
        return self.row(found, with_deleted=True), is_new

    def row(self, evaluation: str, *, with_deleted: bool = False) -> ListedEvaluation:
        """A job by its id, its ARN, or an unambiguous beginning of its id."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        listed = "" if with_deleted else 'AND "deletedAt" IS NULL'
        wanted = evaluation.rpartition("/")[2]
        found = self._read.rows(
            ListedEvaluation, f'SELECT {columns} FROM "evaluations" WHERE "id" = ? {listed}', (wanted,)
        ) or self._read.rows(
            ListedEvaluation,
            f'SELECT {columns} FROM "evaluations" WHERE substr("id", 1, ?) = ? {listed} LIMIT 2',
            (len(wanted), wanted),
        )
        if len(found) != 1 or not wanted:
            several = "several evaluations begin with" if len(found) > 1 else "there is no evaluation"
            raise NotFound(f"{several} {evaluation}\n`proctor evaluate list` lists them.")
        return found[0]

    def page(self, *, after: tuple[str, str] | None = None, limit: int = 100) -> list[ListedEvaluation]:
        """Jobs, newest first; `after` is the `createdAt` and `id` of the last one already seen."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        further = 'AND ("createdAt" < ? OR ("createdAt" = ? AND "id" < ?))' if after else ""
        seen = (after[0], after[0], after[1]) if after else ()
        return self._read.rows(
            ListedEvaluation,
            f'SELECT {columns} FROM "evaluations" WHERE "deletedAt" IS NULL {further} '
            'ORDER BY "createdAt" DESC, "id" DESC LIMIT ?',
            (*seen, limit),
        )

    def metadata(self, evaluation_id: str) -> list[dict[str, Any]]:
        """What was given about single sessions with a job: scenario ids and ground truth."""
        rows = self._read.rows(
            _Metadata,
            'SELECT "metadataJson", "metadataJsonBlob" FROM "evaluations" WHERE "id" = ?',
            (evaluation_id,),
        )
        metadata: list[dict[str, Any]] = [
            entry for row in self._read.whole(rows) for entry in json.loads(row["metadataJson"])
        ]
        return metadata

    def writing_to(self, group: str, stream: str) -> list[ListedEvaluation]:
        """The jobs whose results belong into a log stream, also those that were deleted since."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        return self._read.rows(
            ListedEvaluation,
            f'SELECT {columns} FROM "evaluations" WHERE "outputGroup" = ? AND "outputStream" = ? '
            'ORDER BY "createdAt", "id"',
            (group, stream),
        )

    def change_request(self, changed: EvaluationRecord) -> None:
        """Ask for more in a job that there is: other evaluators, other sessions, more ground truth."""

        def work(connection: Connection) -> None:
            values = dict(zip(COLUMNS["evaluations"], _row(changed, None), strict=True))
            connection.run(
                'UPDATE "evaluations" SET "requestJson" = ?, "discoveredAt" = NULL, "failure" = ? '
                'WHERE "id" = ?',
                (values["requestJson"], "", changed.id),
            )
            self._keep_content(connection, changed)

        self._transaction(work)

    def tell_discovery(self, evaluation_id: str, *, found: int, ignored: int, now: datetime) -> None:
        """Keep how many sessions there were, and how many of them were too many."""
        self._change(
            evaluation_id,
            {"discoveredAt": timestamp(now), "sessionsFound": found, "sessionsIgnored": ignored},
        )

    def tell_failure(self, evaluation_id: str, failure: str) -> None:
        """Keep why a whole job came to nothing."""
        self._change(evaluation_id, {"failure": clean(failure)[:1000]})

    def forget(self, evaluation_id: str, now: datetime) -> None:
        """Take a job off the list. Its results stay."""
        self._change(evaluation_id, {"deletedAt": timestamp(now)})

    def _keep_content(self, connection: Connection, new: EvaluationRecord) -> None:
        """Write what was given about sessions, and how they are judged: under a key of its own, if any.

        Apart from the rest, which is told without that key.
        """
        connection.seal_for(new.id)
        metadata, blob = kept(clean(json.dumps(list(new.metadata), ensure_ascii=False)))
        if blob:
            connection.run(f"{insertion('blobs', COLUMNS['blobs'])} ON CONFLICT DO NOTHING", blob)
        connection.run(
            'UPDATE "evaluations" SET "metadataJson" = ?, "metadataJsonBlob" = ? WHERE "id" = ?',
            (metadata, blob[0] if blob else None, new.id),
        )
        # A copy of an evaluator that is sealed under a key of its own must not lie open here.
        copied = [str(told.get("evaluatorId", "")) for told in new.definitions.values() if told]
        connection.seal_for(self._keys.first_with_own([new.id, *copied]))
        connection.run(
            'UPDATE "evaluations" SET "definitionsJson" = ? WHERE "id" = ?', (_json(new.definitions), new.id)
        )

    def _change(self, evaluation_id: str, values: Mapping[str, object]) -> None:
        columns = ", ".join(f'"{name}" = ?' for name in values)
        statement = f'UPDATE "evaluations" SET {columns} WHERE "id" = ?'
        self._transaction(lambda connection: connection.run(statement, (*values.values(), evaluation_id)))


def _row(new: EvaluationRecord, now: datetime | None) -> tuple[object, ...]:
    asked = (new.client_token, new.request_digest, _json(new.request))
    return (
        *(new.id, new.arn, new.name, timestamp(now) if now else "", *asked),
        *("[]", None, "{}", new.output_group, new.output_stream),
        *(None, 0, 0, "", None),
    )


def _json(value: Mapping[str, object]) -> str:
    return clean(json.dumps(dict(value), ensure_ascii=False))


# Evaluation jobs and what they found, as pages list them: searched, sorted and cut by the database.


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFilter:
    """Which sessions of a job, and by whose eyes."""

    evaluator: str = ""
    """Scores of this one alone; empty: of all."""
    dimension: str = ""
    search: str = ""
    """Text in what the session is called."""
    reversed_: Sequence[str] = ()
    """Evaluators of which a high value is the bad one."""


def jobs_page(read: StoreReader, search: str, *, limit: int, offset: int) -> tuple[list[str], int]:
    """The ids of a page of jobs, newest first, and how many hold the text in their id."""
    wanted = '"deletedAt" IS NULL AND LOWER("id") LIKE ? ESCAPE \'!\''
    given = (containing(search),)
    rows = read.rows(
        IdRow,
        f'SELECT "id" FROM "evaluations" WHERE {wanted} ORDER BY "createdAt" DESC, "id" DESC '
        "LIMIT ? OFFSET ?",
        (*given, limit, offset),
    )
    (counted,) = read.rows(CountRow, f'SELECT COUNT(*) AS "n" FROM "evaluations" WHERE {wanted}', given)
    return [row["id"] for row in rows], counted["n"]


def log_groups(read: StoreReader, *, limit: int = 200) -> list[LogGroup]:
    """Where sessions have arrived that were not carried out here: log group, service, how many, the last."""
    return read.rows(
        LogGroup,
        'SELECT "logGroup", "service", COUNT(*) AS "sessions", '
        'MAX(COALESCE("finishedAt", "startedAt")) AS "last" FROM "sessions" WHERE "runId" IS NULL '
        'GROUP BY "logGroup", "service" ORDER BY "last" DESC, "logGroup", "service" LIMIT ?',
        (limit,),
    )


class _EvaluatedSessionRow(TypedDict):
    words: str
    position: int
    settings: str
    lowest: float | None
    mean: float | None
    failed: int
    valued: int
    results: int
    open: int


class EvaluatedSession(_EvaluatedSessionRow):
    """A session of an evaluation with its lowest and mean value."""

    sessionId: str


class SessionScores(TypedDict):
    """The scores of one evaluator and dimension in one session."""

    words: str
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
    wanted: JudgedFilter,
    *,
    order: str = "lowest",
    descending: bool = False,
    limit: int,
    offset: int,
) -> tuple[list[EvaluatedSession], int]:
    """A page of the sessions of a job with what is lowest in each, and how many the filter leaves.

    A session that has no value yet, or none at all, comes last whichever way it is sorted.
    """
    column = {"lowest": '"lowest"', "mean": '"mean"', "failed": '"failed"', "session": '"words"'}.get(
        order, '"position"'
    )
    turn = "DESC" if descending else "ASC"
    joined, parameters = _joined(wanted)
    rows = read.rows(
        _EvaluatedSessionRow,
        'SELECT * FROM (SELECT i."prompt" AS "words", MIN(i."position") AS "position", '
        'MAX(i."settings") AS "settings", MIN(sc."good") AS "lowest", AVG(sc."good") AS "mean", '
        'COALESCE(SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END), 0) AS "failed", '
        'COUNT(sc."good") AS "valued", COUNT(sc."sessionId") AS "results", '
        "SUM(CASE WHEN i.\"status\" IN ('queued', 'running') THEN 1 ELSE 0 END) AS \"open\" "
        f'FROM "batch_items" i LEFT JOIN {joined} ON sc."sessionId" = i."sessionId" '
        'WHERE i."runId" = ? AND LOWER(i."prompt") LIKE ? ESCAPE \'!\' GROUP BY i."prompt") s '
        f'ORDER BY CASE WHEN {column} IS NULL THEN 1 ELSE 0 END, {column} {turn}, "mean", "position" '
        "LIMIT ? OFFSET ?",
        (*parameters, run_id, containing(wanted.search), limit, offset),
    )
    (counted,) = read.rows(
        CountRow,
        'SELECT COUNT(DISTINCT "prompt") AS "n" FROM "batch_items" WHERE "runId" = ? '
        "AND LOWER(\"prompt\") LIKE ? ESCAPE '!'",
        (run_id, containing(wanted.search)),
    )
    return [
        extended(EvaluatedSession, row, sessionId=json.loads(row["settings"])["session"]) for row in rows
    ], counted["n"]


def scores_by_session(read: StoreReader, run_id: str, words: Sequence[str]) -> list[SessionScores]:
    """What each evaluator came to in these sessions: the mean, how many, how many failed, one label."""
    if not words:
        return []
    # Not `IN`: a sealed store knows the form `= ?`.
    among = " OR ".join(['i."prompt" = ?'] * len(words))
    return read.rows(
        SessionScores,
        'SELECT i."prompt" AS "words", sc."evaluator", sc."dimension", AVG(sc."value") AS "mean", '
        'COUNT(*) AS "results", SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END) AS "failed", '
        'MIN(sc."label") AS "label", COUNT(DISTINCT sc."label") AS "labels" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND ({among}) '
        'GROUP BY i."prompt", sc."evaluator", sc."dimension"',
        (run_id, *words),
    )


def verdicts_of(read: StoreReader, run_id: str, session_id: str, *, limit: int = 500) -> list[ScoreRow]:
    """Every result of a job about one session, with its reasons, in the order of the job."""
    rows = read.rows(
        ScoreRow,
        'SELECT sc.* FROM "scores" sc JOIN "batch_items" i ON i."sessionId" = sc."sessionId" '
        'AND i."runId" = ? WHERE sc."judgedSessionId" = ? ORDER BY i."position", sc."position" LIMIT ?',
        (run_id, session_id, limit),
    )
    return list(read.whole(rows))


def _joined(wanted: JudgedFilter) -> tuple[str, list[object]]:
    """The scores that count, each with how good it is: a value, or what is left of it where high is bad."""
    parameters: list[object] = [*wanted.reversed_]
    condition = "1 = 1"
    if wanted.evaluator:
        condition = '"evaluator" = ? AND "dimension" = ?'
        parameters += [wanted.evaluator, wanted.dimension]
    return (
        '(SELECT "sessionId", "judgedSessionId", "error", '
        f'CASE WHEN "evaluator" IN ({places(wanted.reversed_)}) THEN 1 - "value" ELSE "value" END AS "good" '
        f'FROM "scores" WHERE {condition}) sc',
        parameters,
    )


# What people say of a session: labels to hold evaluators against.


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
    return list(read.whole(rows))
