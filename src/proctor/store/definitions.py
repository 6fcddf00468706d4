"""Evaluators and online evaluation configurations that clients define.

Names are unique within each kind. Repeating a request with the same client token changes nothing and
returns the resource that the first one created.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, cast

from proctor.errors import Contradiction, NotFound
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_text
from proctor.store.batches import moment
from proctor.store.database import KEEP, Connection, Row, Transaction, extended
from proctor.store.reader import StoreReader
from proctor.store.recorder import split_long_text
from proctor.store.sealer import DataKeys
from proctor.store.tables import DefinedResourceRow, EvaluatorDefinitionRow, OnlineConfigRow, clean
from proctor.store.writer import is_alive, timestamp

EVALUATORS, CONFIGS, RESOURCES = "evaluator_definitions", "online_configs", "defined_resources"
_ENABLED = f'SELECT "id", "documentJson" FROM "{CONFIGS}" WHERE "enabled" = ?'
PAGE = 500
MOST_TAGS = 50
KMS_CONTEXT = "aws:bedrock-agentcore:evaluatorId"
"""Encryption context of an evaluator's own key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Idempotency token of a request."""

    operation: str
    token: str
    """Empty: not idempotent."""
    request: Mapping[str, object]
    """The parameters; the same token with others is a `Contradiction`."""


class EvaluatorDefinition(EvaluatorDefinitionRow):
    """An evaluator defined over HTTP."""

    locked: bool
    """Whether an enabled online configuration uses it."""


class ListedEvaluator(TypedDict):
    """An evaluator without its configuration."""

    id: str
    name: str
    level: str
    kind: str
    description: str
    kmsKeyArn: str
    createdAt: str
    updatedAt: str
    locked: bool


class OnlineConfig(OnlineConfigRow):
    """An online configuration."""

    document: dict[str, Any]
    """`documentJson`, read; it was checked before it was stored."""


class DefinedResource(DefinedResourceRow):
    """An A/B test or a configuration bundle."""

    document: dict[str, Any]
    """`documentJson`, read."""


class _Document(TypedDict):
    id: str
    documentJson: str


class Definitions:
    """Queries and changes of evaluators, online configurations and tags."""

    def __init__(self, transaction: Transaction, read: StoreReader, keys: DataKeys) -> None:
        self._transaction = transaction
        self._read = read
        self._keys = keys

    def create_evaluator(
        self, row: JsonMap, config: Mapping[str, object], token: Token
    ) -> EvaluatorDefinition:
        """Create an evaluator; `row` has all its columns except the configuration.

        With a `kmsKeyArn`, the configuration is encrypted with that key. Raises `KeyUnusable` if that fails.
        """
        new_id, at = str(row["id"]), str(row["createdAt"])
        key = self._key(new_id, as_text(row.get("kmsKeyArn")), at)

        def work(connection: Connection) -> None:
            insert_named(connection, EVALUATORS, {**row, "configJson": ""})
            self._write_config(connection, new_id, config, key)

        return self.evaluator(self._once(token, new_id, at, work), with_config=False)

    def update_evaluator(
        self, evaluator_id: str, values: JsonMap, config: Mapping[str, object] | None, token: Token
    ) -> EvaluatorDefinition:
        """Change an evaluator. Raises a `Contradiction` while it is in use."""
        arn, at = as_text(values.get("kmsKeyArn")), str(values["updatedAt"])
        # With another key it has to be encrypted again.
        new_config = (
            json.loads(self.evaluator(evaluator_id)["configJson"]) if arn and config is None else config
        )
        key = self._key(evaluator_id, arn, at)

        def work(connection: Connection) -> None:
            _check_not_in_use(connection, evaluator_id)
            change_row(connection, EVALUATORS, evaluator_id, values)
            if new_config is not None:
                self._write_config(connection, evaluator_id, new_config, key)

        return self.evaluator(self._once(token, evaluator_id, at, work), with_config=False)

    def delete_evaluator(self, evaluator_id: str) -> None:
        """Delete an evaluator. Raises a `Contradiction` while it is in use."""

        def work(connection: Connection) -> None:
            _check_not_in_use(connection, evaluator_id)
            delete_row(connection, EVALUATORS, evaluator_id)
            connection.run('DELETE FROM "data_keys" WHERE "scope" = ?', (evaluator_id,))

        self._transaction(work)

    def evaluator(self, evaluator_id: str, *, with_config: bool = True) -> EvaluatorDefinition:
        """One evaluator, by id or name. `with_config=False` does not need its key."""
        rows = self._read.rows(
            EvaluatorDefinitionRow,
            f'SELECT * FROM "{EVALUATORS}" WHERE "id" = ? OR "name" = ?',
            (evaluator_id, evaluator_id),
        )
        if not rows:
            raise NotFound(f"there is no evaluator {evaluator_id}\n`proctor evaluators list` lists them.")
        (row,) = self._read.with_long_texts(rows[:1]) if with_config else rows[:1]
        return extended(EvaluatorDefinition, row, locked=row["id"] in self._in_use())

    def _key(self, evaluator_id: str, arn: str, at: str) -> Row | None:
        """A new data key for an evaluator, not yet written; None without an ARN."""
        if not arn:
            return None
        return self._keys.make(evaluator_id, arn, {KMS_CONTEXT: evaluator_id}, datetime.fromisoformat(at))

    def _write_config(
        self, connection: Connection, evaluator_id: str, config: Mapping[str, object], key: Row | None
    ) -> None:
        if key:
            self._keys.write(connection, key)
        connection.set_key_scope(evaluator_id)
        change_row(connection, EVALUATORS, evaluator_id, long_json(connection, "configJson", config))

    def document(self, evaluator_id: str) -> JsonObject | None:
        """The definition of an evaluator, by id or name; None: not found."""
        try:
            row = self.evaluator(evaluator_id)
        except NotFound:
            return None
        return {
            "evaluatorId": row["id"],
            "evaluatorName": row["name"],
            "level": row["level"],
            "description": row["description"],
            "evaluatorConfig": json.loads(row["configJson"]),
        }

    def evaluators(self, *, after: str = "", limit: int = 100) -> list[ListedEvaluator]:
        """The evaluators by id, without their configurations."""
        names = ("id", "name", "level", "kind", "description", "kmsKeyArn", "createdAt", "updatedAt")
        columns = ", ".join(f'"{name}"' for name in names)
        rows = self._read.rows(
            ListedEvaluator,
            f'SELECT {columns} FROM "{EVALUATORS}" WHERE "id" > ? ORDER BY "id" LIMIT ?',
            (after, limit),
        )
        used = self._in_use()
        return [extended(ListedEvaluator, row, locked=row["id"] in used) for row in rows]

    def all_evaluators(self) -> Iterator[ListedEvaluator]:
        """Every evaluator by id, without its configuration, read page by page."""
        last = ""
        while rows := self.evaluators(after=last, limit=PAGE):
            yield from rows
            last = rows[-1]["id"]

    def _in_use(self) -> dict[str, str]:
        return _users(self._read.rows(_Document, _ENABLED, (1,)))

    def create_config(self, row: JsonMap, document: Mapping[str, object], token: Token) -> OnlineConfig:
        """Create a configuration."""

        def work(connection: Connection) -> None:
            insert_named(connection, CONFIGS, {**row, "documentJson": _json(document)})

        return self.config(self._once(token, str(row["id"]), str(row["createdAt"]), work))

    def update_config(
        self, config_id: str, values: JsonMap, document: Mapping[str, object], token: Token
    ) -> OnlineConfig:
        """Change a configuration."""

        def work(connection: Connection) -> None:
            change_row(connection, CONFIGS, config_id, {**values, "documentJson": _json(document)})

        return self.config(self._once(token, config_id, str(values["updatedAt"]), work))

    def delete_config(self, config_id: str) -> None:
        """Delete a configuration. Its results stay."""

        def work(connection: Connection) -> None:
            delete_row(connection, CONFIGS, config_id)
            for table in ("online_sessions", "drift_scores", "drift_points", "drift_crossings"):
                connection.run(f'DELETE FROM "{table}" WHERE "configId" = ?', (config_id,))

        self._transaction(work)

    def config(self, config_id: str) -> OnlineConfig:
        """One configuration by id."""
        rows = self._read.rows(OnlineConfigRow, f'SELECT * FROM "{CONFIGS}" WHERE "id" = ?', (config_id,))
        if not rows:
            raise NotFound(f"there is no online evaluation configuration {config_id}")
        return _with_document(rows[0])

    def configs(self, *, after: str = "", limit: int = 100, enabled_only: bool = False) -> list[OnlineConfig]:
        """The configurations by id."""
        enabled = 'AND "enabled" = 1' if enabled_only else ""
        rows = self._read.rows(
            OnlineConfigRow,
            f'SELECT * FROM "{CONFIGS}" WHERE "id" > ? {enabled} ORDER BY "id" LIMIT ?',
            (after, limit),
        )
        return [_with_document(row) for row in rows]

    def count(self, table: str) -> int:
        """Number of rows of a table."""
        return self._read.count(f'"{table}"')

    def update_config_state(self, config_id: str, **values: object) -> None:
        """Record the batch of a configuration, or why it failed."""
        self._transaction(lambda connection: change_row(connection, CONFIGS, config_id, values))

    def watch_config(self, config_id: str, owner: str, now: datetime) -> bool:
        """Claim a configuration for a while; False: another live process has it."""

        def work(connection: Connection) -> bool:
            connection.lock_table(CONFIGS)
            rows = connection.rows(
                f'SELECT "watchedBy", "watchedAt" FROM "{CONFIGS}" WHERE "id" = ?', (config_id,)
            )
            for row in rows:
                other = row["watchedBy"] not in ("", owner)
                here = connection.server_time(now)
                if other and is_alive(row["watchedBy"], moment(row["watchedAt"]), here):
                    return False
                change_row(connection, CONFIGS, config_id, {"watchedBy": owner, "watchedAt": timestamp(here)})
            return bool(rows)

        return self._transaction(work)

    def record_decisions(self, config_id: str, decisions: Mapping[str, str], now: datetime) -> None:
        """Record the decisions of a configuration about sessions; each session is decided once."""
        rows = [(config_id, session, decision, timestamp(now)) for session, decision in decisions.items()]
        self._transaction(
            lambda connection: connection.insert_many("online_sessions", rows, on_conflict=KEEP)
        )

    def sessions_of(self, config_id: str, decision: str) -> list[str]:
        """Ids of the sessions with a given decision of a configuration."""
        return self._read.values(
            str,
            'SELECT "sessionId" FROM "online_sessions" WHERE "configId" = ? AND "decision" = ? '
            'ORDER BY "at", "sessionId"',
            (config_id, decision),
        )

    def assign_sessions(self, config_id: str, sessions: Iterable[str], run_id: str) -> None:
        """Record which evaluation scores these sessions."""
        rows = [(f"job {run_id}", config_id, session) for session in sessions]
        self._transaction(
            lambda connection: connection.run_many(
                'UPDATE "online_sessions" SET "decision" = ? WHERE "configId" = ? AND "sessionId" = ?', rows
            )
        )

    def unassign_sessions(self, config_id: str, run_id: str) -> None:
        """Make the sessions of a failed evaluation due again."""
        self._transaction(
            lambda connection: connection.run(
                'UPDATE "online_sessions" SET "decision" = ? WHERE "configId" = ? AND "decision" = ?',
                ("judge", config_id, f"job {run_id}"),
            )
        )

    def tags(self, arn: str) -> dict[str, str]:
        """The tags of a resource."""
        sql = 'SELECT "key", "value" FROM "resource_tags" WHERE "arn" = ? ORDER BY "key"'
        return dict(self._read.pairs(sql, (arn,)))

    def tag(self, arn: str, tags: Mapping[str, str]) -> None:
        """Add tags to a resource, or change their values."""

        def work(connection: Connection) -> None:
            for key, value in tags.items():
                mine = (arn, clean(key))
                connection.run('DELETE FROM "resource_tags" WHERE "arn" = ? AND "key" = ?', mine)
                connection.insert("resource_tags", (*mine, clean(value)))
            if connection.count('"resource_tags" WHERE "arn" = ?', (arn,)) > MOST_TAGS:
                raise Contradiction(f"a resource has at most {MOST_TAGS} tags")

        self._transaction(work)

    def untag(self, arn: str, keys: Iterable[str] | None = None) -> None:
        """Remove tags from a resource; None: all of them."""
        names = self.tags(arn) if keys is None else list(keys)
        self._transaction(
            lambda connection: connection.run_many(
                'DELETE FROM "resource_tags" WHERE "arn" = ? AND "key" = ?', [(arn, key) for key in names]
            )
        )

    def create_resource(self, row: JsonMap, document: JsonMap, token: Token) -> DefinedResource:
        """Create a resource of the kind that its row names."""
        new_id = str(row["id"])

        def work(connection: Connection) -> None:
            named = (row["kind"], row["name"])
            if connection.rows(f'SELECT 1 FROM "{RESOURCES}" WHERE "kind" = ? AND "name" = ?', named):
                raise Contradiction(
                    f"the name {row['name']} is taken\nChoose another, or delete the one that has it."
                )
            connection.insert(RESOURCES, {**row, "documentJson": ""})
            change_row(connection, RESOURCES, new_id, long_json(connection, "documentJson", document))

        stored_id = self._once(token, new_id, str(row["createdAt"]), work)
        return self.resource(str(row["kind"]), stored_id)

    def update_resource(
        self, row: DefinedResource, values: JsonMap, document: JsonMap, token: Token
    ) -> DefinedResource:
        """Change a resource. Raises a `Contradiction` if it has changed since `row` was read."""

        def work(connection: Connection) -> None:
            now = connection.rows(f'SELECT "updatedAt" FROM "{RESOURCES}" WHERE "id" = ?', (row["id"],))
            if [each["updatedAt"] for each in now] != [row["updatedAt"]]:
                raise Contradiction(f"{row['id']} was changed meanwhile\nRead it again.")
            columns = long_json(connection, "documentJson", document)
            change_row(connection, RESOURCES, row["id"], {**values, **columns})

        self._once(token, row["id"], str(values["updatedAt"]), work)
        return self.resource(row["kind"], row["id"])

    def delete_resource(self, resource_id: str) -> None:
        """Delete a resource."""
        self._transaction(lambda connection: delete_row(connection, RESOURCES, resource_id))

    def resource(self, kind: str, resource_id: str) -> DefinedResource:
        """One resource of a kind."""
        rows = self._read.rows(
            DefinedResourceRow,
            f'SELECT * FROM "{RESOURCES}" WHERE "kind" = ? AND "id" = ?',
            (kind, resource_id),
        )
        if not rows:
            raise NotFound(f"there is no {kind} {resource_id}")
        (row,) = self._read.with_long_texts(rows)
        return extended(DefinedResource, row, document=json.loads(row["documentJson"]))

    def resources(self, kind: str, *, after: str = "", limit: int = 100) -> list[DefinedResource]:
        """The resources of a kind by id."""
        rows = self._read.rows(
            DefinedResourceRow,
            f'SELECT * FROM "{RESOURCES}" WHERE "kind" = ? AND "id" > ? ORDER BY "id" LIMIT ?',
            (kind, after, limit),
        )
        read = self._read.with_long_texts(rows)
        return [extended(DefinedResource, row, document=json.loads(row["documentJson"])) for row in read]

    def _once(self, token: Token, resource_id: str, at: str, work: Callable[[Connection], None]) -> str:
        return once(self._transaction, token, resource_id, at, work)


def once(
    transaction: Transaction,
    token: Token,
    resource_id: str,
    at: str,
    work: Callable[[Connection], None],
) -> str:
    """Do the work unless this token was used before; return the id of the resource."""
    digest = digest_of(dict(token.request))

    def step(connection: Connection) -> str:
        # Two simultaneous requests must not both find no token.
        connection.lock_table("client_tokens")
        if token.token:
            for row in connection.rows(
                'SELECT "digest", "resourceId" FROM "client_tokens" WHERE "operation" = ? AND "token" = ?',
                (token.operation, token.token),
            ):
                if row["digest"] != digest:
                    raise Contradiction(
                        "the client token was already used with other parameters\n"
                        "Use the same parameters or a new token."
                    )
                return str(row["resourceId"])
            connection.insert("client_tokens", (token.operation, token.token, digest, resource_id, at))
        work(connection)
        return resource_id

    return str(transaction(step))


def insert_named(connection: Connection, table: str, row: JsonMap) -> None:
    """Insert a resource. Raises a `Contradiction` if its name is taken."""
    if connection.rows(f'SELECT 1 FROM "{table}" WHERE "name" = ?', (row["name"],)):
        raise Contradiction(
            f"the name {row['name']} is taken\nChoose another, or delete the one that has it."
        )
    connection.insert(table, row)


def change_row(connection: Connection, table: str, resource_id: str, values: JsonMap) -> None:
    """Change columns of a resource. Raises `NotFound`."""
    if not connection.update(table, values, '"id" = ?', (resource_id,)):
        raise NotFound(f"there is no {resource_id}")


def delete_row(connection: Connection, table: str, resource_id: str) -> None:
    """Delete a resource, with the tokens of its requests."""
    connection.run(f'DELETE FROM "{table}" WHERE "id" = ?', (resource_id,))
    # Repeating the request creates the resource again.
    connection.run('DELETE FROM "client_tokens" WHERE "resourceId" = ?', (resource_id,))


def _check_not_in_use(connection: Connection, evaluator_id: str) -> None:
    if user := _users(cast("list[_Document]", connection.rows(_ENABLED, (1,)))).get(evaluator_id):
        raise Contradiction(
            f"the evaluator {evaluator_id} is in use by the enabled online configuration {user}\n"
            "Disable that first."
        )


def _users(rows: Iterable[_Document]) -> dict[str, str]:
    """One enabled configuration for each evaluator in use, by evaluator id."""
    return {
        entry["evaluatorId"]: row["id"]
        for row in rows
        for entry in json.loads(row["documentJson"]).get("evaluators", [])
    }


def long_json(connection: Connection, column: str, value: JsonMap) -> dict[str, str | None]:
    """The columns of a JSON document that may be long; its blob is written."""
    text, blob = split_long_text(_json(value))
    if blob:
        connection.insert("blobs", blob, KEEP)
    return {column: text, f"{column}Blob": blob[0] if blob else None}


def _with_document(row: OnlineConfigRow) -> OnlineConfig:
    return extended(OnlineConfig, row, document=json.loads(row["documentJson"]))


def _json(value: Mapping[str, object]) -> str:
    return clean(json.dumps(dict(value), ensure_ascii=False))
