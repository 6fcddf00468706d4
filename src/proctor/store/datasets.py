"""Datasets of test scenarios with their versions, and recommendations, which callers keep here.

The draft of a dataset is its version 0: changes are made there, and publishing copies it. Every change is
all or nothing, and repeating a request with the same client token changes nothing.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from proctor.errors import Contradiction, NotFound
from proctor.json_values import JsonMap, JsonObject, as_text
from proctor.store.batches import moment
from proctor.store.database import Connection, Transaction, extended, places
from proctor.store.definitions import (
    Token,
    change_row,
    delete_row,
    insert_named,
    long_json,
    once,
)
from proctor.store.reader import StoreReader
from proctor.store.sealer import DataKeys
from proctor.store.tables import DatasetExampleRow, DatasetRow, DatasetVersionRow, RecommendationRow
from proctor.store.writer import is_alive, timestamp

DATASETS, EXAMPLES, VERSIONS = "datasets", "dataset_examples", "dataset_versions"
RECOMMENDATIONS = "recommendations"
DRAFT = 0
"""Version of the draft."""
KMS_CONTEXT = "aws:bedrock-agentcore:datasetId"
RECOMMENDATION_CONTEXT = "aws:bedrock-agentcore:recommendationId"
PENDING, IN_PROGRESS, COMPLETED, FAILED = "PENDING", "IN_PROGRESS", "COMPLETED", "FAILED"
HIGHEST_VERSION = 10**18 - 1
"""Above any version: databases have no larger numbers."""
PAGE = 500


class StoredDataset(DatasetRow):
    """A dataset with the size of its draft."""

    examples: int


class StoredExample(TypedDict):
    """One example."""

    position: int
    id: str
    content: JsonObject


class Datasets:
    """Queries and changes of datasets."""

    def __init__(self, transaction: Transaction, read: StoreReader, keys: DataKeys) -> None:
        self._transaction = transaction
        self._read = read
        self._keys = keys

    def create(self, row: JsonMap, examples: Mapping[str, JsonMap], token: Token) -> StoredDataset:
        """Create a dataset with the first examples of its draft, by their ids.

        With a `kmsKeyArn`, the examples are encrypted with that key. Raises `KeyUnusable` if that fails.
        """
        new_id, at = str(row["id"]), str(row["createdAt"])
        arn = as_text(row.get("kmsKeyArn"))
        context = {KMS_CONTEXT: new_id}
        key = self._keys.make(new_id, arn, context, datetime.fromisoformat(at)) if arn else None

        def work(connection: Connection) -> None:
            insert_named(connection, DATASETS, row)
            if key:
                self._keys.write(connection, key)
            _insert(connection, new_id, 1, examples)

        return self.dataset(once(self._transaction, token, new_id, at, work))

    def update(self, dataset_id: str, values: JsonMap, token: Token) -> StoredDataset:
        """Change the description."""

        def work(connection: Connection) -> None:
            change_row(connection, DATASETS, dataset_id, values)

        return self.dataset(once(self._transaction, token, dataset_id, str(values["updatedAt"]), work))

    def delete(self, dataset_id: str) -> None:
        """Delete a dataset with its versions."""

        def work(connection: Connection) -> None:
            for table in (EXAMPLES, VERSIONS):
                connection.run(f'DELETE FROM "{table}" WHERE "datasetId" = ?', (dataset_id,))
            delete_row(connection, DATASETS, dataset_id)
            start = f"{dataset_id}/"
            connection.run(
                'DELETE FROM "client_tokens" WHERE SUBSTR("resourceId", 1, ?) = ?', (len(start), start)
            )
            connection.run('DELETE FROM "data_keys" WHERE "scope" = ?', (dataset_id,))

        self._transaction(work)

    def dataset(self, dataset_id: str) -> StoredDataset:
        """One dataset, by id or name."""
        rows = self._read.rows(
            DatasetRow, f'SELECT * FROM "{DATASETS}" WHERE "id" = ? OR "name" = ?', (dataset_id, dataset_id)
        )
        if not rows:
            raise NotFound(f"there is no dataset {dataset_id}")
        return self._with_counts(rows[:1])[0]

    def datasets(self, *, after: str = "", limit: int = 100) -> list[StoredDataset]:
        """The datasets by id."""
        rows = self._read.rows(
            DatasetRow, f'SELECT * FROM "{DATASETS}" WHERE "id" > ? ORDER BY "id" LIMIT ?', (after, limit)
        )
        return self._with_counts(rows)

    def all_datasets(self) -> Iterator[StoredDataset]:
        """Every dataset, read page by page."""
        last = ""
        while page := self.datasets(after=last, limit=PAGE):
            yield from page
            last = page[-1]["id"]

    def _with_counts(self, rows: Sequence[DatasetRow]) -> list[StoredDataset]:
        ids = [row["id"] for row in rows]
        counted = self._read.pairs(
            f'SELECT "datasetId", COUNT(*) FROM "{EXAMPLES}" '
            f'WHERE "version" = {DRAFT} AND "datasetId" IN ({places(ids)}) GROUP BY "datasetId"',
            ids,
        )
        counts = dict(counted)
        return [extended(StoredDataset, row, examples=counts.get(row["id"], 0)) for row in rows]

    def count(self) -> int:
        """Number of datasets."""
        return self._read.count(f'"{DATASETS}"')

    def publish(self, dataset_id: str, token: Token, now: datetime) -> DatasetVersionRow:
        """Publish the draft as a version with the next number."""
        at, before = timestamp(now), self.dataset(dataset_id)
        number = before["lastVersion"] + 1
        # Texts are encrypted as they are written: they cannot be copied within the database.
        draft = {each["id"]: each["content"] for each in self.all_examples(dataset_id)}

        def work(connection: Connection) -> None:
            connection.lock_table(DATASETS)
            rows = connection.rows(
                f'SELECT "lastVersion", "updatedAt" FROM "{DATASETS}" WHERE "id" = ?', (dataset_id,)
            )
            if not rows or any(rows[0][name] != before[name] for name in ("lastVersion", "updatedAt")):
                raise Contradiction(f"the dataset {dataset_id} was changed by another request\nTry again.")
            _insert(connection, dataset_id, 1, draft, number)
            connection.insert(VERSIONS, (dataset_id, number, len(draft), at))
            values = {"lastVersion": number, "draftModified": 0, "updatedAt": at}
            change_row(connection, DATASETS, dataset_id, values)

        resource = once(self._transaction, token, f"{dataset_id}/{number}", at, work)
        return self.version(dataset_id, int(resource.rpartition("/")[2]))

    def delete_version(self, dataset_id: str, version: int, now: datetime) -> None:
        """Delete a published version. Its number is not used again."""
        self.version(dataset_id, version)

        def work(connection: Connection) -> None:
            for table in (EXAMPLES, VERSIONS):
                connection.run(
                    f'DELETE FROM "{table}" WHERE "datasetId" = ? AND "version" = ?', (dataset_id, version)
                )
            connection.run('DELETE FROM "client_tokens" WHERE "resourceId" = ?', (f"{dataset_id}/{version}",))
            # Nothing published equals the draft any more if this was the last version.
            left = connection.rows(f'SELECT 1 FROM "{VERSIONS}" WHERE "datasetId" = ?', (dataset_id,))
            values: JsonObject = {"updatedAt": timestamp(now)}
            change_row(connection, DATASETS, dataset_id, values if left else {**values, "draftModified": 1})

        self._transaction(work)

    def version(self, dataset_id: str, version: int) -> DatasetVersionRow:
        """One published version."""
        rows = self._read.rows(
            DatasetVersionRow,
            f'SELECT * FROM "{VERSIONS}" WHERE "datasetId" = ? AND "version" = ?',
            (dataset_id, min(version, HIGHEST_VERSION)),
        )
        if not rows:
            raise NotFound(f"the dataset {dataset_id} has no version {version}")
        return rows[0]

    def versions(self, dataset_id: str, *, before: int | None, limit: int) -> list[DatasetVersionRow]:
        """The published versions, newest first."""
        return self._read.rows(
            DatasetVersionRow,
            f'SELECT * FROM "{VERSIONS}" WHERE "datasetId" = ? AND "version" < ? '
            'ORDER BY "version" DESC LIMIT ?',
            (dataset_id, 2**62 if before is None else before, limit),
        )

    def examples(
        self, dataset_id: str, version: int = DRAFT, *, after: int = 0, limit: int = 100
    ) -> list[StoredExample]:
        """Examples in their order, those after a position."""
        rows = self._read.rows(
            DatasetExampleRow,
            f'SELECT * FROM "{EXAMPLES}" WHERE "datasetId" = ? AND "version" = ? AND "position" > ? '
            'ORDER BY "position" LIMIT ?',
            (dataset_id, version, after, limit),
        )
        return [
            {
                "position": row["position"],
                "id": row["exampleId"],
                "content": json.loads(row["contentJson"]),
            }
            for row in self._read.with_long_texts(rows)
        ]

    def all_examples(self, dataset_id: str, version: int = DRAFT) -> Iterator[StoredExample]:
        """Every example of a version, read page by page."""
        last = 0
        while page := self.examples(dataset_id, version, after=last, limit=PAGE):
            yield from page
            last = page[-1]["position"]

    def add(
        self, dataset_id: str, examples: Mapping[str, JsonMap], token: Token, now: datetime
    ) -> StoredDataset:
        """Add examples to the draft, by their ids."""

        def change(connection: Connection) -> None:
            (row,) = connection.rows(
                f'SELECT MAX("position") AS "position" FROM "{EXAMPLES}" '
                f'WHERE "datasetId" = ? AND "version" = {DRAFT}',
                (dataset_id,),
            )
            _insert(connection, dataset_id, (row["position"] or 0) + 1, examples)

        return self._change_draft(dataset_id, change, token, now)

    def replace(
        self, dataset_id: str, examples: Mapping[str, JsonMap], token: Token, now: datetime
    ) -> StoredDataset:
        """Replace examples of the draft. Raises `NotFound` if there is one it does not have."""

        def change(connection: Connection) -> None:
            connection.set_key_scope(dataset_id)
            for example_id, content in examples.items():
                columns = long_json(connection, "contentJson", content)
                changed = connection.update(
                    EXAMPLES,
                    columns,
                    f'"datasetId" = ? AND "version" = {DRAFT} AND "exampleId" = ?',
                    (dataset_id, example_id),
                )
                if not changed:
                    raise NotFound(f"the draft of {dataset_id} has no example {example_id}")

        return self._change_draft(dataset_id, change, token, now)

    def remove(self, dataset_id: str, examples: Iterable[str], token: Token, now: datetime) -> StoredDataset:
        """Remove examples from the draft. Raises `NotFound` if there is one it does not have."""

        def change(connection: Connection) -> None:
            for example_id in examples:
                deleted = connection.run(
                    f'DELETE FROM "{EXAMPLES}" WHERE "datasetId" = ? AND "version" = {DRAFT} '
                    'AND "exampleId" = ?',
                    (dataset_id, example_id),
                )
                if not deleted:
                    raise NotFound(f"the draft of {dataset_id} has no example {example_id}")

        return self._change_draft(dataset_id, change, token, now)

    def _change_draft(
        self, dataset_id: str, change: Callable[[Connection], None], token: Token, now: datetime
    ) -> StoredDataset:
        at = timestamp(now)

        def work(connection: Connection) -> None:
            connection.lock_table(DATASETS)
            change_row(connection, DATASETS, dataset_id, {"draftModified": 1, "updatedAt": at})
            change(connection)

        return self.dataset(once(self._transaction, token, dataset_id, at, work))


def _insert(
    connection: Connection, dataset_id: str, first: int, examples: Mapping[str, JsonMap], version: int = DRAFT
) -> None:
    connection.set_key_scope(dataset_id)
    for position, (example_id, content) in enumerate(examples.items(), start=first):
        columns = long_json(connection, "contentJson", content)
        connection.insert(EXAMPLES, (dataset_id, version, position, example_id, *columns.values()))


class Recommendations:
    """Queries and changes of recommendations."""

    def __init__(self, transaction: Transaction, read: StoreReader, keys: DataKeys) -> None:
        self._transaction = transaction
        self._read = read
        self._keys = keys

    def create(self, row: JsonMap, request: JsonMap, token: Token) -> RecommendationRow:
        """Create a recommendation, which is pending; a known token returns the one it created."""
        new_id, at = str(row["id"]), str(row["createdAt"])
        arn = as_text(row.get("kmsKeyArn"))
        context = {RECOMMENDATION_CONTEXT: new_id}
        key = self._keys.make(new_id, arn, context, datetime.fromisoformat(at)) if arn else None

        def work(connection: Connection) -> None:
            connection.insert(RECOMMENDATIONS, {**row, "status": PENDING, "requestJson": ""})
            if key:
                self._keys.write(connection, key)
            connection.set_key_scope(new_id)
            columns = long_json(connection, "requestJson", request)
            change_row(connection, RECOMMENDATIONS, new_id, columns)

        return self.get(once(self._transaction, token, new_id, at, work))

    def get(self, recommendation_id: str) -> RecommendationRow:
        """One recommendation, with its request and its result."""
        rows = self._read.rows(
            RecommendationRow, f'SELECT * FROM "{RECOMMENDATIONS}" WHERE "id" = ?', (recommendation_id,)
        )
        if not rows:
            raise NotFound(f"there is no recommendation {recommendation_id}")
        (row,) = self._read.with_long_texts(rows)
        return row

    def list(
        self, *, after: tuple[str, str] | None = None, status: str = "", limit: int = 100
    ) -> list[RecommendationRow]:
        """Recommendations, newest first, without long texts; after a time and id."""
        conditions, parameters = ["1 = 1"], list[object]()
        if status:
            conditions.append('"status" = ?')
            parameters.append(status)
        if after:
            conditions.append('("createdAt", "id") < (?, ?)')
            parameters += after
        return self._read.rows(
            RecommendationRow,
            f'SELECT * FROM "{RECOMMENDATIONS}" WHERE {" AND ".join(conditions)} '
            'ORDER BY "createdAt" DESC, "id" DESC LIMIT ?',
            (*parameters, limit),
        )

    def count_active(self) -> int:
        """Number of recommendations that are not finished."""
        return self._read.count(f'"{RECOMMENDATIONS}" WHERE "status" IN (?, ?)', (PENDING, IN_PROGRESS))

    def claim(self, owner: str, now: datetime) -> str | None:
        """Claim an unfinished recommendation that no live process computes; None: there is none."""

        def work(connection: Connection) -> str | None:
            connection.lock_table(RECOMMENDATIONS)
            here = connection.server_time(now)
            for row in connection.rows(
                f'SELECT "id", "watchedBy", "watchedAt" FROM "{RECOMMENDATIONS}" '
                'WHERE "status" IN (?, ?) ORDER BY "createdAt", "id"',
                (PENDING, IN_PROGRESS),
            ):
                by = row["watchedBy"]
                if by and (by == owner or is_alive(by, moment(row["watchedAt"]), here)):
                    continue
                at = timestamp(here)
                values = {"status": IN_PROGRESS, "watchedBy": owner, "watchedAt": at, "updatedAt": at}
                change_row(connection, RECOMMENDATIONS, row["id"], values)
                return str(row["id"])
            return None

        return self._transaction(work)

    def finish(self, recommendation_id: str, status: str, result: JsonMap, now: datetime) -> None:
        """Store the result of a recommendation, unless it was deleted meanwhile."""

        def work(connection: Connection) -> None:
            connection.set_key_scope(recommendation_id)
            columns = long_json(connection, "resultJson", result)
            values = {"status": status, "updatedAt": timestamp(now), "watchedBy": "", **columns}
            if connection.rows(f'SELECT 1 FROM "{RECOMMENDATIONS}" WHERE "id" = ?', (recommendation_id,)):
                change_row(connection, RECOMMENDATIONS, recommendation_id, values)

        self._transaction(work)

    def delete(self, recommendation_id: str) -> None:
        """Delete a recommendation with its result."""

        def work(connection: Connection) -> None:
            delete_row(connection, RECOMMENDATIONS, recommendation_id)
            connection.run('DELETE FROM "data_keys" WHERE "scope" = ?', (recommendation_id,))

        self._transaction(work)
