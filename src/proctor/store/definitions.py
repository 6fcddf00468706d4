"""What callers keep with us: evaluators of their own, and configurations that judge sessions as they arrive.

Names are unique among the ones of a kind. A request that carries a token and comes again changes nothing and
finds what it made the first time.

Knows nothing of HTTP, of how an evaluator judges, or of which sessions a configuration means.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from proctor.errors import Contradiction, NotFound
from proctor.item import digest_of
from proctor.store.cleaning import clean
from proctor.store.database import Connection, Row, insertion
from proctor.store.reading import Reader
from proctor.store.tables import COLUMNS
from proctor.store.texts import kept
from proctor.store.writer import timestamp

T = TypeVar("T")
Transaction = Callable[[Callable[[Connection], T]], T]

EVALUATORS, CONFIGS = "evaluator_definitions", "online_configs"
MOST_TAGS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What makes a request one that can be sent again."""

    operation: str
    token: str
    """Empty: each time it is sent, it is another."""
    asked: Mapping[str, Any]
    """All that was asked for; the same token with something else is a contradiction."""


class Definitions:
    """Every question about what is kept, and every change of it."""

    def __init__(self, transaction: Transaction[Any], read: Reader) -> None:
        self._transaction = transaction
        self._read = read

    def create_evaluator(self, row: Mapping[str, Any], config: Mapping[str, Any], token: Token) -> Row:
        """Keep a new evaluator; `row` has its columns but for the configuration."""

        def work(connection: Connection) -> None:
            columns = {**row, **_config_columns(connection, config)}
            _insert_named(connection, EVALUATORS, columns)

        return self.evaluator(self._once(token, row["id"], row["createdAt"], work))

    def update_evaluator(
        self, evaluator_id: str, values: Mapping[str, Any], config: Mapping[str, Any] | None, token: Token
    ) -> Row:
        """Change an evaluator. Raises a `Contradiction` while it is in use."""

        def work(connection: Connection) -> None:
            _refuse_in_use(connection, evaluator_id)
            columns = {**values, **(_config_columns(connection, config) if config is not None else {})}
            _change(connection, EVALUATORS, evaluator_id, columns)

        return self.evaluator(self._once(token, evaluator_id, values["updatedAt"], work))

    def delete_evaluator(self, evaluator_id: str) -> None:
        """Keep it no longer. Raises a `Contradiction` while it is in use."""

        def work(connection: Connection) -> None:
            _refuse_in_use(connection, evaluator_id)
            connection.run(f'DELETE FROM "{EVALUATORS}" WHERE "id" = ?', (evaluator_id,))

        self._transaction(work)

    def evaluator(self, evaluator_id: str) -> Row:
        """One evaluator with its configuration, by id or name."""
        found = self._read.query(
            f'SELECT * FROM "{EVALUATORS}" WHERE "id" = ? OR "name" = ?', (evaluator_id, evaluator_id)
        )
        if not found:
            raise NotFound(f"there is no evaluator {evaluator_id}\n`proctor evaluators list` lists them.")
        (row,) = self._read.whole(found[:1])
        return row | {"locked": bool(_users(self._read.query, row["id"]))}

    def document(self, evaluator_id: str) -> dict[str, Any] | None:
        """The definition of an evaluator, by id or name; None: there is none."""
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

    def evaluators(self, *, after: str = "", limit: int = 100) -> list[Row]:
        """The evaluators by id, without their configurations."""
        names = ("id", "name", "level", "kind", "description", "kmsKeyArn", "createdAt", "updatedAt")
        columns = ", ".join(f'"{name}"' for name in names)
        rows = self._read.query(
            f'SELECT {columns} FROM "{EVALUATORS}" WHERE "id" > ? ORDER BY "id" LIMIT ?', (after, limit)
        )
        return [row | {"locked": bool(_users(self._read.query, row["id"]))} for row in rows]

    def create_config(self, row: Mapping[str, Any], document: Mapping[str, Any], token: Token) -> Row:
        """Keep a new configuration."""

        def work(connection: Connection) -> None:
            _insert_named(connection, CONFIGS, {**row, "documentJson": _json(document)})

        return self.config(self._once(token, row["id"], row["createdAt"], work))

    def update_config(
        self, config_id: str, values: Mapping[str, Any], document: Mapping[str, Any], token: Token
    ) -> Row:
        """Change a configuration."""

        def work(connection: Connection) -> None:
            _change(connection, CONFIGS, config_id, {**values, "documentJson": _json(document)})

        return self.config(self._once(token, config_id, values["updatedAt"], work))

    def delete_config(self, config_id: str) -> None:
        """Keep it no longer. What it has judged stays."""

        def work(connection: Connection) -> None:
            connection.run(f'DELETE FROM "{CONFIGS}" WHERE "id" = ?', (config_id,))
            connection.run('DELETE FROM "online_sessions" WHERE "configId" = ?', (config_id,))

        self._transaction(work)

    def config(self, config_id: str) -> Row:
        """One configuration; `document` is what it asks for."""
        found = self._read.query(f'SELECT * FROM "{CONFIGS}" WHERE "id" = ?', (config_id,))
        if not found:
            raise NotFound(f"there is no online evaluation configuration {config_id}")
        return _with_document(found[0])

    def configs(self, *, after: str = "", limit: int = 100, enabled_only: bool = False) -> list[Row]:
        """The configurations by id."""
        enabled = 'AND "enabled" = 1' if enabled_only else ""
        rows = self._read.query(
            f'SELECT * FROM "{CONFIGS}" WHERE "id" > ? {enabled} ORDER BY "id" LIMIT ?', (after, limit)
        )
        return [_with_document(row) for row in rows]

    def count(self, table: str) -> int:
        """How many there are of a kind."""
        (found,) = self._read.query(f'SELECT COUNT(*) AS "n" FROM "{table}"')
        return int(found["n"])

    def tell_config(self, config_id: str, **values: Any) -> None:
        """Keep what became of a configuration: the batch it writes to, why it cannot."""
        self._transaction(lambda connection: _change(connection, CONFIGS, config_id, values))

    def decided(self, config_id: str, decisions: Mapping[str, str], now: datetime) -> None:
        """Keep which sessions a configuration has looked at, so that it looks at each once."""
        rows = [(config_id, session, decision, timestamp(now)) for session, decision in decisions.items()]
        statement = f"{insertion('online_sessions', COLUMNS['online_sessions'])} ON CONFLICT DO NOTHING"
        self._transaction(lambda connection: connection.run_many(statement, rows))

    def sessions_of(self, config_id: str, decision: str) -> list[str]:
        """The sessions of which a configuration has decided so."""
        rows = self._read.query(
            'SELECT "sessionId" FROM "online_sessions" WHERE "configId" = ? AND "decision" = ? '
            'ORDER BY "at", "sessionId"',
            (config_id, decision),
        )
        return [row["sessionId"] for row in rows]

    def taken_up(self, config_id: str, sessions: Iterable[str], run_id: str) -> None:
        """Keep which job judges sessions that were to be judged."""
        rows = [(f"job {run_id}", config_id, session) for session in sessions]
        self._transaction(
            lambda connection: connection.run_many(
                'UPDATE "online_sessions" SET "decision" = ? WHERE "configId" = ? AND "sessionId" = ?', rows
            )
        )

    def given_back(self, config_id: str, run_id: str) -> None:
        """Have sessions judged once more whose job came to nothing."""
        self._transaction(
            lambda connection: connection.run(
                'UPDATE "online_sessions" SET "decision" = ? WHERE "configId" = ? AND "decision" = ?',
                ("judge", config_id, f"job {run_id}"),
            )
        )

    def tags(self, arn: str) -> dict[str, str]:
        """The tags of a resource."""
        rows = self._read.query(
            'SELECT "key", "value" FROM "resource_tags" WHERE "arn" = ? ORDER BY "key"', (arn,)
        )
        return {row["key"]: row["value"] for row in rows}

    def tag(self, arn: str, tags: Mapping[str, str]) -> None:
        """Give a resource tags; one it has gets a new value."""

        def work(connection: Connection) -> None:
            for key, value in tags.items():
                mine = (arn, clean(key))
                connection.run('DELETE FROM "resource_tags" WHERE "arn" = ? AND "key" = ?', mine)
                connection.run(insertion("resource_tags", COLUMNS["resource_tags"]), (*mine, clean(value)))
            (found,) = connection.rows('SELECT COUNT(*) AS "n" FROM "resource_tags" WHERE "arn" = ?', (arn,))
            if found["n"] > MOST_TAGS:
                raise Contradiction(f"a resource has at most {MOST_TAGS} tags")

        self._transaction(work)

    def untag(self, arn: str, keys: Iterable[str] | None = None) -> None:
        """Take tags from a resource; None: all of them."""
        wanted = self.tags(arn) if keys is None else list(keys)
        self._transaction(
            lambda connection: connection.run_many(
                'DELETE FROM "resource_tags" WHERE "arn" = ? AND "key" = ?', [(arn, key) for key in wanted]
            )
        )

    def _once(self, token: Token, resource_id: str, at: str, work: Callable[[Connection], None]) -> str:
        """Do the work unless this token was seen before; the id of what it was done to."""
        digest = digest_of(dict(token.asked))

        def step(connection: Connection) -> str:
            # Two that come at once must not both find nothing.
            connection.hold("client_tokens")
            if token.token:
                for row in connection.rows(
                    'SELECT "digest", "resourceId" FROM "client_tokens" '
                    'WHERE "operation" = ? AND "token" = ?',
                    (token.operation, token.token),
                ):
                    if row["digest"] != digest:
                        raise Contradiction(
                            "the client token was used before, for something else\n"
                            "Give the same parameters, or another token."
                        )
                    return str(row["resourceId"])
                connection.run(
                    insertion("client_tokens", COLUMNS["client_tokens"]),
                    (token.operation, token.token, digest, resource_id, at),
                )
            work(connection)
            return resource_id

        return str(self._transaction(step))


def _insert_named(connection: Connection, table: str, row: Mapping[str, Any]) -> None:
    if connection.rows(f'SELECT 1 FROM "{table}" WHERE "name" = ?', (row["name"],)):
        raise Contradiction(
            f"the name {row['name']} is taken\nChoose another, or delete the one that has it."
        )
    connection.run(insertion(table, row), tuple(row.values()))


def _change(connection: Connection, table: str, resource_id: str, values: Mapping[str, Any]) -> None:
    columns = ", ".join(f'"{name}" = ?' for name in values)
    if not connection.run(f'UPDATE "{table}" SET {columns} WHERE "id" = ?', (*values.values(), resource_id)):
        raise NotFound(f"there is no {resource_id}")


def _refuse_in_use(connection: Connection, evaluator_id: str) -> None:
    if users := _users(connection.rows, evaluator_id):
        raise Contradiction(
            f"the evaluator {evaluator_id} is in use by the enabled online configuration {users[0]}\n"
            "Disable that first."
        )


def _users(rows: Callable[[str, Sequence[Any]], list[Row]], evaluator_id: str) -> list[str]:
    """The enabled configurations that judge with an evaluator."""
    # There are few configurations, and none of their members but an evaluator's id looks like one.
    found = rows(
        f'SELECT "id", "documentJson" FROM "{CONFIGS}" WHERE "enabled" = ? AND "documentJson" LIKE ?',
        (1, f'%"{evaluator_id}"%'),
    )
    wanted = {"evaluatorId": evaluator_id}
    return [row["id"] for row in found if wanted in json.loads(row["documentJson"]).get("evaluators", [])]


def _config_columns(connection: Connection, config: Mapping[str, Any]) -> Row:
    text, blob = kept(_json(config))
    if blob:
        connection.run(f"{insertion('blobs', COLUMNS['blobs'])} ON CONFLICT DO NOTHING", blob)
    return {"configJson": text, "configJsonBlob": blob[0] if blob else None}


def _with_document(row: Row) -> Row:
    return row | {"document": json.loads(row["documentJson"])}


def _json(value: Mapping[str, Any]) -> str:
    return clean(json.dumps(dict(value), ensure_ascii=False))
