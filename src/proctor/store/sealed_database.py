"""A database wrapper that encrypts texts on writing and decrypts them on reading.

The same statements work with and without encryption. A row with a value that cannot be decrypted for lack
of its key is returned as a `LockedRow`: only reading that value raises, so that lists can be shown without
the key.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from proctor.errors import KeyMissing, KeyUnusable, StoreError
from proctor.store.database import ChangeMonitor, Columns, Connection, Database, Row, pages_of_columns
from proctor.store.keys import VARIABLE
from proctor.store.sealer import (
    DETERMINISTIC,
    EMPTY,
    ENCRYPTED,
    MARK,
    MARK_BYTES,
    Sealer,
    contains_encrypted,
    is_digest,
    is_encrypted,
)
from proctor.store.signatures import SigningKey

# What a statement does to encrypted columns, parsed from its text.
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
    """A parameter that is written to an encrypted column or to a digest column."""

    index: int
    place: str
    """`table.column`."""
    is_digest: bool
    is_deterministic: bool


@dataclass(frozen=True, slots=True)
class SealedParameter:
    """A parameter that an encrypted column is compared with."""

    index: int
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadStatement:
    """A query, rewritten for an encrypted store."""

    parts: tuple[str, ...]
    """Separated by comparisons."""
    compared: tuple[SealedParameter, ...]
    cuts: dict[str, int]
    """Length of a column of the result, by name."""

    def text(self, counts: list[int]) -> str:
        """The statement, with the number of values at each comparison."""
        pieces = [self.parts[0]]
        for count, part in zip(counts, self.parts[1:], strict=True):
            pieces += [f" IN ({', '.join('?' * count)})", part]
        return "".join(pieces)


@lru_cache(maxsize=2048)
def encrypted_parameters(sql: str) -> tuple[WriteStatement, ...]:
    """The parameters of a statement to encrypt. Raises if one cannot be determined."""
    if insert := _INSERT.match(sql):
        table, columns = insert[1], _NAME.findall(insert[2])
        values = [value.strip() for value in insert[3].split(",")]
        return tuple(_written(sql, table, list(zip(columns, values, strict=True))))
    if update := _UPDATE.match(sql):
        assignments = [_ASSIGNMENT.fullmatch(part) for part in _assignments(sql[update.end() :])]
        pairs = [(match[1], match[2].strip()) for match in assignments if match]
        return tuple(_written(sql, update[1], pairs))
    if _WRITES.match(sql) and any(name in ENCRYPTED for name in _NAME.findall(sql)):
        raise StoreError(f"what this writes cannot be encrypted: {sql}")
    return ()


@lru_cache(maxsize=2048)
def rewritten_query(sql: str) -> ReadStatement | None:
    """The equivalent query for an encrypted store; None: the query itself."""
    tables = [name for name in dict.fromkeys(_NAME.findall(sql)) if name in ENCRYPTED]
    if not tables or not sql.lstrip().upper().startswith(("SELECT", "WITH")):
        return None
    encrypted = {column for table in tables for column in ENCRYPTED[table]}
    cuts: dict[str, int] = {}

    def uncut(match: "re.Match[str]") -> str:
        if match[2] not in encrypted:
            return match[0]
        cuts[match[4]] = int(match[3])
        return f'{match[1]} AS "{match[4]}"'

    def exclude_encrypted(match: "re.Match[str]") -> str:
        if match[2] not in encrypted:
            return match[0]
        return f"LOWER(CASE WHEN {match[1]} LIKE '{MARK}%' THEN '' ELSE {match[1]} END) LIKE"

    changed = _SEARCH.sub(exclude_encrypted, _CUT.sub(uncut, sql))
    parts, compared, at = list[str](), list[SealedParameter](), 0
    for match in _EQUAL.finditer(changed):
        places = tuple(f"{table}.{match[1]}" for table in tables if f"{table}.{match[1]}" in DETERMINISTIC)
        if places:
            parts.append(changed[at : match.end() - len(" = ?")])
            compared.append(SealedParameter(changed.count("?", 0, match.end()) - 1, places))
            at = match.end()
    if changed == sql and not compared:
        return None
    return ReadStatement((*parts, changed[at:]), tuple(compared), cuts)


def _written(sql: str, table: str, pairs: list[tuple[str, str]]) -> Iterator[WriteStatement]:
    index = 0
    for column, value in pairs:
        place = f"{table}.{column}"
        is_encrypted, is_a_digest = column in ENCRYPTED.get(table, ()), is_digest(table, column)
        if (is_encrypted or is_a_digest) and value == "?":
            yield WriteStatement(index, place, is_a_digest, place in DETERMINISTIC)
        elif is_encrypted and value not in _HARMLESS:
            raise StoreError(f"a text for {place} cannot be encrypted: {sql}")
        index += value.count("?")


def _assignments(text: str) -> Iterator[str]:
    """The assignments of an UPDATE, up to its WHERE."""
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
"""Prefix of an encrypted text in a JSON object."""


class SealedDatabase:
    """A database with an encryption layer."""

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database, self._sealer = database, sealer
        self.url = database.url
        self.is_read_only = database.is_read_only

    def connect(self) -> "SealedConnection":
        return SealedConnection(self._database.connect(), self._sealer)

    def monitor(self) -> ChangeMonitor:
        return self._database.monitor()


class SealedConnection:
    """A connection that encrypts what is written and decrypts what is read."""

    def __init__(self, connection: Connection, sealer: Sealer) -> None:
        self._connection, self._sealer = connection, sealer
        self._scope = ""

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        if not self._sealer.is_active:
            return self._connection.rows(sql, parameters)
        text, values, cuts = self._rewrite(sql, parameters)
        return [self._decrypt(row, sql, cuts) for row in self._connection.rows(text, values)]

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Row]:
        if not self._sealer.is_active:
            yield from self._connection.stream(sql, parameters)
            return
        text, values, cuts = self._rewrite(sql, parameters)
        for row in self._connection.stream(text, values):
            yield self._decrypt(row, sql, cuts)

    def tuples(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        if not self._sealer.is_active:
            return self._connection.tuples(sql, parameters)
        return [tuple(row.values()) for row in self.rows(sql, parameters)]

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Columns]:
        if not self._sealer.is_active:
            return self._connection.columns(sql, parameters)
        return pages_of_columns(self.stream(sql, parameters))

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        if self._sealer.is_active and (written := encrypted_parameters(sql)):
            parameters = self._encrypt(parameters, written)
        return self._connection.run(sql, parameters)

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        if self._sealer.is_active and (written := encrypted_parameters(sql)):
            parameters = (self._encrypt(each, written) for each in parameters)
        self._connection.run_many(sql, parameters)

    def script(self, sql: str) -> None:
        self._connection.script(sql)

    def begin(self) -> None:
        self._scope = ""
        self._connection.begin()

    def server_time(self, now: datetime) -> datetime:
        return self._connection.server_time(now)

    def data_version(self) -> int | None:
        return self._connection.data_version()

    def lock_table(self, table: str) -> None:
        self._connection.lock_table(table)

    def set_key_scope(self, scope: str) -> None:
        self._scope = scope

    def signing_key(self) -> SigningKey | None:
        return self._sealer.signing_key()

    @property
    def is_encrypted(self) -> bool:
        return self._sealer.is_active

    def purge(self) -> None:
        self._connection.purge()

    def checkpoint(self) -> None:
        self._connection.checkpoint()

    def take_turn_lock(self) -> None:
        self._connection.take_turn_lock()

    def commit(self) -> None:
        self._connection.commit()
        self._scope = ""

    def rollback(self) -> None:
        self._connection.rollback()
        self._scope = ""

    def close(self) -> None:
        self._connection.close()

    def _encrypt(self, parameters: Sequence[object], written: tuple[WriteStatement, ...]) -> list[object]:
        sealer, key = self._sealer, self._sealer.key_for(self._scope)
        values = list(parameters)
        if not key:
            return values
        for each in written:
            value = values[each.index]
            if not isinstance(value, str | bytes):
                continue
            values[each.index] = (
                sealer.keyed(key, value)
                if each.is_digest and isinstance(value, str)
                else sealer.encrypt(key, each.place, value, is_deterministic=each.is_deterministic)
            )
        return values

    def _rewrite(
        self, sql: str, parameters: Sequence[object]
    ) -> tuple[str, Sequence[object], dict[str, int]]:
        query = rewritten_query(sql)
        if query is None:
            return sql, parameters, {}
        forms = [self._sealer.encrypted_forms(each.places, parameters[each.index]) for each in query.compared]
        values: list[object] = []
        at = 0
        for each, encrypted in zip(query.compared, forms, strict=True):
            values += [*parameters[at : each.index], *encrypted]
            at = each.index + 1
        return query.text([len(encrypted) for encrypted in forms]), [*values, *parameters[at:]], query.cuts

    def _decrypt(self, row: Row, sql: str, cuts: dict[str, int]) -> Row:
        missing = False
        for name, value in row.items():
            kind = value.__class__
            if (kind is str and value.startswith(MARK)) or (kind is bytes and value.startswith(MARK_BYTES)):
                try:
                    row[name] = self._sealer.decrypt(value, name, sql)
                except (KeyMissing, KeyUnusable):
                    missing = True
            elif kind is str and value[:1] == "{" and INNER_MARK in value:
                try:
                    row[name] = self._sealer.decrypt_levels(value)
                except (KeyMissing, KeyUnusable):
                    missing = True
        for name, length in cuts.items():
            if row[name] is not None and not is_encrypted(row[name]):
                row[name] = row[name][:length]
        return LockedRow(row, self._sealer) if missing else row


class LockedRow(Row):
    """A row with values whose key is not available: reading one of them raises `KeyMissing`."""

    def __init__(self, row: Row, sealer: Sealer) -> None:
        super().__init__(row)
        self._sealer = sealer

    def __getitem__(self, name: str) -> object:
        return self._checked(super().__getitem__(name))

    def __iter__(self) -> Iterator[str]:
        # Defined so that `dict(row)` and `{**row}` use `__getitem__`.
        return super().__iter__()

    def get(self, name: str, default: object = None) -> object:
        return self._checked(super().get(name, default))

    def pop(self, name: str, *default: object) -> object:
        return self._checked(super().pop(name, *default))

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def __or__(self, other: Row) -> Row:  # type: ignore[override]
        return LockedRow({**self._raw(), **other}, self._sealer)

    def copy(self) -> "LockedRow":
        return LockedRow(self._raw(), self._sealer)

    def _raw(self) -> Row:
        return {name: super(LockedRow, self).__getitem__(name) for name in self}

    def _checked(self, value: object) -> object:
        if contains_encrypted(value):
            key = self._sealer.master_of(value)
            raise KeyMissing(
                f"this is encrypted with the key {key}, which is not available\n"
                f"Set it in proctor.toml, [encryption] key_file, or in {VARIABLE}."
            )
        return value
