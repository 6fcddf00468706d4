"""The data keys of a store: made, found, wrapped anew, retired.

Knows nothing of what is sealed with them.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from proctor.errors import KeyMissing
from proctor.keys import MasterKey
from proctor.store.database import Connection, Database, Row, insertion
from proctor.store.sealing import STORE, Sealer
from proctor.store.tables import COLUMNS
from proctor.store.writer import timestamp

T = TypeVar("T")
Transaction = Callable[[Callable[[Connection], T]], T]
_ALL = 'SELECT * FROM "data_keys" ORDER BY "createdAt", "id"'
_LIVING = 'SELECT "id" FROM "data_keys" WHERE "scope" = ? AND "retiredAt" IS NULL'


def rows_of(database: Database) -> list[Row]:
    """All data keys, the oldest first."""
    connection = database.connect()
    try:
        return connection.rows(_ALL)
    finally:
        connection.close()


def insert(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write a data key."""
    columns = COLUMNS["data_keys"]
    connection.run(insertion("data_keys", columns), tuple(row[name] for name in columns))


class DataKeys:
    """Every question about a store's data keys, and every change of one."""

    def __init__(self, transaction: Transaction[Any], sealer: Sealer) -> None:
        self._transaction, self._sealer = transaction, sealer

    @property
    def is_sealed(self) -> bool:
        """Whether what is new in this store is sealed."""
        return bool(self._sealer.current)

    @property
    def rows(self) -> list[Row]:
        """All of them, the oldest first, wrapped as they are."""
        return list(self._transaction(lambda connection: connection.rows(_ALL)))

    def ensure(self) -> None:
        """See to it that the store has a data key where a master key is given, and that the two fit."""
        own = self._sealer.keys.own
        if own is not None and not self._sealer.current:
            self._replace(own, retire=False)
        self._sealer.check()

    def renew(self) -> None:
        """Seal what is new with a new data key; what the old ones have sealed still opens."""
        own = self._sealer.keys.own
        if own is None:
            raise KeyMissing("no key is given\nName one in proctor.toml, [encryption] key_file.")
        self._sealer.check()
        self._replace(own, retire=True)

    @property
    def unfinished(self) -> bool:
        """Whether somebody began to seal everything anew and did not come to the end."""
        return any(row["retiredAt"] and not row["emptiedAt"] for row in self.rows)

    def emptied(self) -> None:
        """Keep that nothing is under retired keys any more."""
        now = timestamp(datetime.now(UTC))
        self._transaction(
            lambda connection: connection.run(
                'UPDATE "data_keys" SET "emptiedAt" = ? '
                'WHERE "retiredAt" IS NOT NULL AND "emptiedAt" IS NULL',
                (now,),
            )
        )
        self._sealer.reload()

    def rewrap(self, new: MasterKey) -> int:
        """Wrap the store's data keys with another master key; how many there were. Nothing is resealed."""
        mine = [row for row in self.rows if not row["scope"]]
        wrapped = [
            (new.id, base64.b64encode(new.wrap(self._sealer.unwrapped(row), STORE)).decode(), row["id"])
            for row in mine
        ]
        self._transaction(
            lambda connection: connection.run_many(
                'UPDATE "data_keys" SET "masterKeyId" = ?, "wrapped" = ? WHERE "id" = ?', wrapped
            )
        )
        return len(wrapped)

    def make(self, scope: str, master_key_id: str, context: Mapping[str, str], now: datetime) -> Row:
        """A data key of a run's or an evaluator's own, not yet written. `KeyUnusable`: it cannot be."""
        return self._sealer.new_row(scope, self._sealer.keys.find(master_key_id), context, timestamp(now))

    def keep(self, connection: Connection, row: Mapping[str, Any]) -> None:
        """Write a data key of a run's or an evaluator's own, in place of the one it had."""
        connection.run('DELETE FROM "data_keys" WHERE "scope" = ?', (row["scope"],))
        insert(connection, row)
        self._sealer.learn(dict(row))

    def first_with_own(self, scopes: Iterable[str]) -> str:
        """The first of some runs and evaluators that has a key of its own; empty: none has."""
        return next((scope for scope in scopes if self._sealer.has_own(scope)), "")

    def can_open(self, scope: str) -> bool:
        """Whether what a run or an evaluator has sealed can be read here."""
        key = self._sealer.key_for(scope)
        return not key or self._sealer.can_open(scope)

    def _replace(self, own: MasterKey, *, retire: bool) -> None:
        now = timestamp(datetime.now(UTC))
        row = self._sealer.new_row("", own, STORE, now)

        def work(connection: Connection) -> None:
            # Two that open a store at once must not both make its first key.
            connection.hold("data_keys")
            if not retire and connection.rows(_LIVING, ("",)):
                return
            connection.run(
                'UPDATE "data_keys" SET "retiredAt" = ? WHERE "scope" = ? AND "retiredAt" IS NULL', (now, "")
            )
            insert(connection, row)

        self._transaction(work)
        self._sealer.reload()
