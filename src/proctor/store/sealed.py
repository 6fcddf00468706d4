"""A database whose texts are sealed: the same statements, put through the sealer.

The one place where texts are sealed on their way in and opened on their way out; whoever reads or writes
knows nothing of it. A row of which a value cannot be opened, since its key is not here, is still a row:
only asking for that value raises, so that lists and states can be shown without the key.

Knows nothing of what the rows mean.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proctor.errors import KeyMissing, KeyUnusable
from proctor.keys import VARIABLE
from proctor.store.database import Connection, Database, Row
from proctor.store.sealed_values import MARK_BYTES, holds_sealed, is_sealed
from proctor.store.sealing import Sealer
from proctor.store.statements import MARK, Written, question_of, written_by

INNER_MARK = f'"{MARK}'
"""How a sealed text begins that stands in an object."""


class SealedDatabase:
    """A database, with a sealer in front of it."""

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database, self._sealer = database, sealer
        self.url = database.url

    def connect(self) -> "SealedConnection":
        return SealedConnection(self._database.connect(), self._sealer)


class SealedConnection:
    """A connection that seals what is written and opens what is read."""

    def __init__(self, connection: Connection, sealer: Sealer) -> None:
        self._connection, self._sealer = connection, sealer
        self._scope = ""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        if not self._sealer.is_active:
            return self._connection.rows(sql, parameters)
        text, given, cuts = self._asked(sql, parameters)
        return [self._opened(row, sql, cuts) for row in self._connection.rows(text, given)]

    def stream(self, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Row]:
        if not self._sealer.is_active:
            yield from self._connection.stream(sql, parameters)
            return
        text, given, cuts = self._asked(sql, parameters)
        for row in self._connection.stream(text, given):
            yield self._opened(row, sql, cuts)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        if self._sealer.is_active and (written := written_by(sql)):
            parameters = self._sealed(parameters, written)
        return self._connection.run(sql, parameters)

    def run_many(self, sql: str, parameters: Iterable[Sequence[Any]]) -> None:
        if self._sealer.is_active and (written := written_by(sql)):
            parameters = (self._sealed(each, written) for each in parameters)
        self._connection.run_many(sql, parameters)

    def script(self, sql: str) -> None:
        self._connection.script(sql)

    def begin(self) -> None:
        self._scope = ""
        self._connection.begin()

    def hold(self, table: str) -> None:
        self._connection.hold(table)

    def seal_for(self, scope: str) -> None:
        self._scope = scope

    def forget(self) -> None:
        self._connection.forget()

    def take_turn(self) -> None:
        self._connection.take_turn()

    def commit(self) -> None:
        self._connection.commit()
        self._scope = ""

    def rollback(self) -> None:
        self._connection.rollback()
        self._scope = ""

    def close(self) -> None:
        self._connection.close()

    def _sealed(self, parameters: Sequence[Any], written: tuple[Written, ...]) -> list[Any]:
        sealer, key = self._sealer, self._sealer.key_for(self._scope)
        values = list(parameters)
        if not key:
            return values
        for each in written:
            value = values[each.index]
            if value is None:
                continue
            values[each.index] = (
                sealer.keyed(key, value)
                if each.is_digest
                else sealer.seal(key, each.place, value, is_alike=each.is_alike)
            )
        return values

    def _asked(self, sql: str, parameters: Sequence[Any]) -> tuple[str, Sequence[Any], dict[str, int]]:
        question = question_of(sql)
        if question is None:
            return sql, parameters, {}
        forms = [self._sealer.forms(each.places, parameters[each.index]) for each in question.compared]
        given: list[Any] = []
        at = 0
        for each, found in zip(question.compared, forms, strict=True):
            given += [*parameters[at : each.index], *found]
            at = each.index + 1
        return question.text([len(found) for found in forms]), [*given, *parameters[at:]], question.cuts

    def _opened(self, row: Row, sql: str, cuts: dict[str, int]) -> Row:
        missing = False
        for name, value in row.items():
            kind = value.__class__
            if (kind is str and value.startswith(MARK)) or (kind is bytes and value.startswith(MARK_BYTES)):
                try:
                    row[name] = self._sealer.open(value, name, sql)
                except (KeyMissing, KeyUnusable):
                    missing = True
            elif kind is str and value[:1] == "{" and INNER_MARK in value:
                try:
                    row[name] = self._sealer.opened_levels(value)
                except (KeyMissing, KeyUnusable):
                    missing = True
        for name, length in cuts.items():
            if row[name] is not None and not is_sealed(row[name]):
                row[name] = row[name][:length]
        return LockedRow(row, self._sealer) if missing else row


class LockedRow(dict[str, Any]):
    """A row with values whose key is not here: asking for one of those raises `KeyMissing`."""

    def __init__(self, row: Row, sealer: Sealer) -> None:
        super().__init__(row)
        self._sealer = sealer

    def __getitem__(self, name: str) -> Any:
        return self._told(super().__getitem__(name))

    def __iter__(self) -> Iterator[str]:
        # Its being here makes `dict(row)` and `{**row}` ask for each value, as they should.
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        return self._told(super().get(name, default))

    def pop(self, name: str, *default: Any) -> Any:
        return self._told(super().pop(name, *default))

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def __or__(self, other: Any) -> Any:
        return LockedRow({**self._as_it_is(), **other}, self._sealer)

    def copy(self) -> "LockedRow":
        return LockedRow(self._as_it_is(), self._sealer)

    def _as_it_is(self) -> Row:
        return {name: super(LockedRow, self).__getitem__(name) for name in self}

    def _told(self, value: Any) -> Any:
        if holds_sealed(value):
            key = self._sealer.master_of(value)
            raise KeyMissing(
                f"this is sealed under the key {key}, which is not here\n"
                f"Name it in proctor.toml, [encryption] key_file, or in {VARIABLE}."
            )
        return value
