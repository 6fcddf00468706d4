"""Evaluation jobs in the store: asked for, found again, and taken off the list.

A job is one row here and one batch with the same id; how far it is and what it came to are questions to
the batch's rows. A job that was deleted keeps its results, and nobody but their readers sees it any more.

Knows nothing of sessions, evaluators, or of how a job is carried out.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from proctor.errors import Contradiction, NotFound
from proctor.store import batches
from proctor.store.cleaning import clean
from proctor.store.database import Connection, Row, insertion
from proctor.store.reading import Reader
from proctor.store.tables import COLUMNS
from proctor.store.texts import kept
from proctor.store.writer import timestamp

T = TypeVar("T")
Transaction = Callable[[Callable[[Connection], T]], T]

LISTED = tuple(name for name in COLUMNS["evaluations"] if not name.startswith("metadataJson"))
"""What is read for every job; ground truth may be long, and few ask for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvaluation:
    """A job as it is first written."""

    id: str
    """Also the `runId` of its batch."""
    arn: str
    name: str
    request: Mapping[str, Any]
    """What was asked, without the ground truth."""
    request_digest: str
    """Of all that was asked; two starts with one token are the same only if this is."""
    metadata: Sequence[Mapping[str, Any]] = ()
    """What is known of single sessions: scenario, ground truth."""
    definitions: Mapping[str, Any] = field(default_factory=dict)
    """The evaluators' definitions as they were, by the name they were asked for under."""
    client_token: str = ""
    output_group: str = ""
    output_stream: str = ""


class Evaluations:
    """Every question about jobs, and every change of one."""

    def __init__(self, transaction: Transaction[Any], read: Reader) -> None:
        self._transaction = transaction
        self._read = read

    def open(self, new: NewEvaluation, batch: Mapping[str, Any], now: datetime) -> tuple[Row, bool]:
        """Write a job and its batch, which has no items yet; the job, and whether it is new.

        A known client token gives the job it was first used for, if the same was asked then; if not, a
        `Contradiction`.
        """

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
            batches.create(connection, batch, ())
            connection.run(insertion("evaluations", COLUMNS["evaluations"]), _row(connection, new, now))
            return new.id, True

        found, is_new = self._transaction(work)
        return self.row(found, with_deleted=True), is_new

    def row(self, evaluation: str, *, with_deleted: bool = False) -> Row:
        """A job by its id, its ARN, or an unambiguous beginning of its id."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        listed = "" if with_deleted else 'AND "deletedAt" IS NULL'
        wanted = evaluation.rpartition("/")[2]
        found = self._read.query(
            f'SELECT {columns} FROM "evaluations" WHERE "id" = ? {listed}', (wanted,)
        ) or self._read.query(
            f'SELECT {columns} FROM "evaluations" WHERE substr("id", 1, ?) = ? {listed} LIMIT 2',
            (len(wanted), wanted),
        )
        if len(found) != 1 or not wanted:
            several = "several evaluations begin with" if len(found) > 1 else "there is no evaluation"
            raise NotFound(f"{several} {evaluation}\n`proctor evaluate list` lists them.")
        return found[0]

    def page(self, *, after: tuple[str, str] | None = None, limit: int = 100) -> list[Row]:
        """Jobs, newest first; `after` is the `createdAt` and `id` of the last one already seen."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        further = 'AND ("createdAt" < ? OR ("createdAt" = ? AND "id" < ?))' if after else ""
        seen = (after[0], after[0], after[1]) if after else ()
        return self._read.query(
            f'SELECT {columns} FROM "evaluations" WHERE "deletedAt" IS NULL {further} '
            'ORDER BY "createdAt" DESC, "id" DESC LIMIT ?',
            (*seen, limit),
        )

    def metadata(self, evaluation_id: str) -> list[dict[str, Any]]:
        """What was given about single sessions with a job: scenario ids and ground truth."""
        rows = self._read.query(
            'SELECT "metadataJson", "metadataJsonBlob" FROM "evaluations" WHERE "id" = ?', (evaluation_id,)
        )
        (whole,) = self._read.whole(rows) if rows else ({"metadataJson": "[]"},)
        found: list[dict[str, Any]] = json.loads(whole["metadataJson"])
        return found

    def writing_to(self, group: str, stream: str) -> list[Row]:
        """The jobs whose results belong into a log stream, also those that were deleted since."""
        columns = ", ".join(f'"{name}"' for name in LISTED)
        return self._read.query(
            f'SELECT {columns} FROM "evaluations" WHERE "outputGroup" = ? AND "outputStream" = ? '
            'ORDER BY "createdAt", "id"',
            (group, stream),
        )

    def output_places(self) -> list[tuple[str, str]]:
        """Every log group and stream that results belong into."""
        rows = self._read.query(
            'SELECT DISTINCT "outputGroup", "outputStream" FROM "evaluations" '
            'ORDER BY "outputGroup", "outputStream"'
        )
        return [(row["outputGroup"], row["outputStream"]) for row in rows]

    def change_request(self, changed: NewEvaluation) -> None:
        """Ask for more in a job that there is: other evaluators, other sessions, more ground truth."""

        def work(connection: Connection) -> None:
            values = dict(zip(COLUMNS["evaluations"], _row(connection, changed, None), strict=True))
            names = ("requestJson", "metadataJson", "metadataJsonBlob", "definitionsJson")
            columns = ", ".join(f'"{name}" = ?' for name in names)
            connection.run(
                f'UPDATE "evaluations" SET {columns}, "discoveredAt" = NULL, "failure" = ? WHERE "id" = ?',
                (*(values[name] for name in names), "", changed.id),
            )

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

    def _change(self, evaluation_id: str, values: Mapping[str, Any]) -> None:
        columns = ", ".join(f'"{name}" = ?' for name in values)
        statement = f'UPDATE "evaluations" SET {columns} WHERE "id" = ?'
        self._transaction(lambda connection: connection.run(statement, (*values.values(), evaluation_id)))


def _row(connection: Connection, new: NewEvaluation, now: datetime | None) -> tuple[Any, ...]:
    metadata, blob = kept(clean(json.dumps(list(new.metadata), ensure_ascii=False)))
    if blob:
        connection.run(f"{insertion('blobs', COLUMNS['blobs'])} ON CONFLICT DO NOTHING", blob)
    asked = (new.client_token, new.request_digest, _json(new.request))
    return (
        *(new.id, new.arn, new.name, timestamp(now) if now else "", *asked),
        *(metadata, blob[0] if blob else None, _json(new.definitions), new.output_group, new.output_stream),
        *(None, 0, 0, "", None),
    )


def _json(value: Mapping[str, Any]) -> str:
    return clean(json.dumps(dict(value), ensure_ascii=False))
