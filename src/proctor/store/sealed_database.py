"""A database whose texts are sealed: the same statements, put through the sealer.

The one place where texts are sealed on their way in and opened on their way out; whoever reads or writes
knows nothing of it. A row of which a value cannot be opened, since its key is not here, is still a row:
only asking for that value raises, so that lists and states can be shown without the key.

Knows nothing of what the rows mean.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proctor.errors import KeyMissing, KeyUnusable, StoreError
from proctor.store.database import Connection, Database, Row
from proctor.store.keys import VARIABLE
from proctor.store.sealer import (
    ALIKE,
    EMPTY,
    MARK,
    MARK_BYTES,
    SEALED,
    Sealer,
    holds_sealed,
    is_digest,
    is_sealed,
)

# What a statement does to sealed columns, read from its text.


_INSERT = re.compile(r'\s*INSERT INTO "(\w+)" \(([^)]*)\) VALUES \(([^)]*)\)')


_UPDATE = re.compile(r'\s*UPDATE "(\w+)" SET ')


_WRITES = re.compile(r"\s*(INSERT|UPDATE|REPLACE|MERGE|COPY)\b", re.IGNORECASE)


_ASSIGNMENT = re.compile(r'\s*"(\w+)" = (.*)', re.DOTALL)


_NAME = re.compile(r'"(\w+)"')


_CUT = re.compile(r'SUBSTR\(((?:\w+\.)?"(\w+)"), 1, (\d+)\) AS "(\w+)"')


_SEARCH = re.compile(r'LOWER\(((?:\w+\.)?"(\w+)")\) LIKE')


_EQUAL = re.compile(r'"(\w+)" = \?')


_HARMLESS = {"NULL", *(f"'{text}'" for text in EMPTY)}


@dataclass(frozen=True, slots=True)
class WriteStatement:
    """A parameter that goes into a sealed column, or into one that holds a digest."""

    index: int
    place: str
    """`table.column`."""
    is_digest: bool
    is_alike: bool


@dataclass(frozen=True, slots=True)
class SealedParameter:
    """A parameter that a sealed column is compared with."""

    index: int
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadStatement:
    """A statement that reads, as it is put to a sealed store."""

    parts: tuple[str, ...]
    """Between each two of them stands a comparison."""
    compared: tuple[SealedParameter, ...]
    cuts: dict[str, int]
    """How many characters of a column of the answer were asked for."""

    def text(self, counts: list[int]) -> str:
        """The statement, with so many forms at each comparison."""
        made = [self.parts[0]]
        for count, part in zip(counts, self.parts[1:], strict=True):
            made += [f" IN ({', '.join('?' * count)})", part]
        return "".join(made)


@lru_cache(maxsize=2048)
def written_by(sql: str) -> tuple[WriteStatement, ...]:
    """The parameters of a statement that must be sealed. Raises when one cannot be told."""
    if insert := _INSERT.match(sql):
        table, columns = insert[1], _NAME.findall(insert[2])
        values = [value.strip() for value in insert[3].split(",")]
        return tuple(_written(sql, table, list(zip(columns, values, strict=True))))
    if update := _UPDATE.match(sql):
        assignments = [_ASSIGNMENT.fullmatch(part) for part in _assignments(sql[update.end() :])]
        pairs = [(found[1], found[2].strip()) for found in assignments if found]
        return tuple(_written(sql, update[1], pairs))
    if _WRITES.match(sql) and any(name in SEALED for name in _NAME.findall(sql)):
        raise StoreError(f"what this writes could not be sealed: {sql}")
    return ()


@lru_cache(maxsize=2048)
def question_of(sql: str) -> ReadStatement | None:
    """The statement that gives the same where texts are sealed; None: the statement itself does."""
    tables = [name for name in dict.fromkeys(_NAME.findall(sql)) if name in SEALED]
    if not tables or not sql.lstrip().upper().startswith(("SELECT", "WITH")):
        return None
    sealed = {column for table in tables for column in SEALED[table]}
    cuts: dict[str, int] = {}

    def uncut(found: "re.Match[str]") -> str:
        if found[2] not in sealed:
            return found[0]
        cuts[found[4]] = int(found[3])
        return f'{found[1]} AS "{found[4]}"'

    def passed_over(found: "re.Match[str]") -> str:
        if found[2] not in sealed:
            return found[0]
        return f"LOWER(CASE WHEN {found[1]} LIKE '{MARK}%' THEN '' ELSE {found[1]} END) LIKE"

    changed = _SEARCH.sub(passed_over, _CUT.sub(uncut, sql))
    parts, compared, at = list[str](), list[SealedParameter](), 0
    for found in _EQUAL.finditer(changed):
        places = tuple(f"{table}.{found[1]}" for table in tables if f"{table}.{found[1]}" in ALIKE)
        if places:
            parts.append(changed[at : found.end() - len(" = ?")])
            compared.append(SealedParameter(changed.count("?", 0, found.end()) - 1, places))
            at = found.end()
    if changed == sql and not compared:
        return None
    return ReadStatement((*parts, changed[at:]), tuple(compared), cuts)


def _written(sql: str, table: str, pairs: list[tuple[str, str]]) -> Iterator[WriteStatement]:
    index = 0
    for column, value in pairs:
        place = f"{table}.{column}"
        is_sealed, is_a_digest = column in SEALED.get(table, ()), is_digest(table, column)
        if (is_sealed or is_a_digest) and value == "?":
            yield WriteStatement(index, place, is_a_digest, place in ALIKE)
        elif is_sealed and value not in _HARMLESS:
            raise StoreError(f"a text for {place} could not be sealed: {sql}")
        index += value.count("?")


def _assignments(text: str) -> Iterator[str]:
    """The assignments of an UPDATE: what stands between commas, up to its WHERE."""
    depth, begun = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ",":
            yield text[begun:place]
            begun = place + 1
        elif depth == 0 and text.startswith(" WHERE ", place):
            yield text[begun:place]
            return
    yield text[begun:]


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

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        if not self._sealer.is_active:
            return self._connection.rows(sql, parameters)
        text, given, cuts = self._asked(sql, parameters)
        return [self._opened(row, sql, cuts) for row in self._connection.rows(text, given)]

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Row]:
        if not self._sealer.is_active:
            yield from self._connection.stream(sql, parameters)
            return
        text, given, cuts = self._asked(sql, parameters)
        for row in self._connection.stream(text, given):
            yield self._opened(row, sql, cuts)

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        if self._sealer.is_active and (written := written_by(sql)):
            parameters = self._sealed(parameters, written)
        return self._connection.run(sql, parameters)

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
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

    def _sealed(self, parameters: Sequence[Any], written: tuple[WriteStatement, ...]) -> list[Any]:
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

    def _asked(self, sql: str, parameters: Sequence[object]) -> tuple[str, Sequence[object], dict[str, int]]:
        question = question_of(sql)
        if question is None:
            return sql, parameters, {}
        forms = [self._sealer.forms(each.places, parameters[each.index]) for each in question.compared]
        given: list[object] = []
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
