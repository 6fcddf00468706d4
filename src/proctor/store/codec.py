"""Seals the values of some columns when they are bound, and opens those that come back.

The same statements work with and without encryption. A row with a value that cannot be decrypted for lack
of its key is returned as a `LockedRow`: only reading that value raises, so that lists can be shown without
the key.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proctor.errors import KeyMissing, KeyUnusable
from proctor.store.database import ChangeMonitor, Connection, Database, R, Row, quoted
from proctor.store.keys import VARIABLE
from proctor.store.sealer import (
    DETERMINISTIC,
    ENCRYPTED,
    MARK,
    MARK_BYTES,
    Sealer,
    contains_encrypted,
    is_digest,
)
from proctor.store.signatures import SigningKey

INNER_MARK = f'"{MARK}'
"""Prefix of an encrypted text in a JSON object."""


class Codec:
    """Encrypts and decrypts values by table and column, with the data keys of one store."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    @property
    def is_active(self) -> bool:
        """Whether the store has data keys."""
        return self._sealer.is_active

    def signing_key(self) -> SigningKey | None:
        """The key that results are signed with; None: they are not signed."""
        return self._sealer.signing_key()

    def sealed(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]], scope: str
    ) -> Iterable[Sequence[object]]:
        """Rows as they are written, with the key of a run or an evaluator.

        The values of `columns` come first in a row; what follows them is not changed.
        """
        key, encrypted = self._sealer.key_for(scope), ENCRYPTED.get(table, ())
        places = [
            (index, f"{table}.{column}", is_digest(table, column))
            for index, column in enumerate(columns)
            if column in encrypted or is_digest(table, column)
        ]
        return (self._sealed_row(key, places, row) for row in rows) if key and places else rows

    def _sealed_row(
        self, key: str, places: Sequence[tuple[int, str, bool]], row: Sequence[object]
    ) -> Sequence[object]:
        values = list(row)
        for index, location, is_a_digest in places:
            value = values[index]
            if is_a_digest and isinstance(value, str):
                values[index] = self._sealer.keyed(key, value)
            elif isinstance(value, str | bytes):
                values[index] = self._sealer.encrypt(
                    key, location, value, is_deterministic=location in DETERMINISTIC
                )
        return values

    def forms(self, place: str, text: str) -> list[object]:
        """All forms that a text may have in a deterministic column, `table.column`."""
        return self._sealer.encrypted_forms(place, text)

    def opened(self, row: Row, sql: str) -> Row:
        """A row of the result of a query as its reader gets it."""
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
        return LockedRow(row, self._sealer) if missing else row


class CodedDatabase:
    """A database whose connections have a codec."""

    def __init__(self, database: Database, codec: Codec) -> None:
        self._database, self._codec = database, codec
        self.url = database.url
        self.is_read_only = database.is_read_only

    def connect(self) -> Connection:
        connection = self._database.connect()
        connection.codec = self._codec
        return connection

    def monitor(self) -> ChangeMonitor:
        return self._database.monitor()


# Parts of queries that look into a text, which the database cannot do once it is encrypted.


def head(column: str, characters: int, name: str = "") -> str:
    """The start of the text of a column, such as `i.prompt`; an encrypted text is whole, for `cut`."""
    text = quoted(column)
    start = f"CASE WHEN {text} LIKE '{MARK}%' THEN {text} ELSE SUBSTR({text}, 1, {characters}) END"
    return f'{start} AS "{name or column.rpartition(".")[2]}"'


def cut(rows: Iterable[R], characters: int, *names: str) -> Iterator[R]:
    """The same rows with texts cut that `head` selects; one whose key is missing stays locked."""
    for row in rows:
        assert isinstance(row, dict)
        for name in names:
            text = dict.get(row, name)
            if text is not None and not (isinstance(row, LockedRow) and contains_encrypted(text)):
                row[name] = text[:characters]
        yield row


def contains(column: str) -> str:
    """A condition: a text contains the parameter, a `substring_pattern`. Encrypted texts are not searched."""
    text = quoted(column)
    return f"LOWER(CASE WHEN {text} LIKE '{MARK}%' THEN '' ELSE {text} END) LIKE ? ESCAPE '!'"


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
