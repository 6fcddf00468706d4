"""Every way to write a row and to read it: encrypted columns are sealed in the database and open outside."""

import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from whole_store import TEXT, fill

from proctor.export import export_tables
from proctor.store import ItemFilter, Scope, Store
from proctor.store.codec import cut, head
from proctor.store.database import KEEP, in_transaction, open_database
from proctor.store.keys import Keys, LocalKey
from proctor.store.maintenance import back_up, copy_store, primary_key
from proctor.store.sealer import DETERMINISTIC, ENCRYPTED, KEYED, LEVELS, MARK, is_digest
from proctor.store.tables import COLUMNS

BOTH = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
KEYS = Keys(own=LocalKey(secret=bytes(range(32))))


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The types of the columns of each table, in the order of `COLUMNS`."""
    path = tmp_path_factory.mktemp("kinds") / "a.db"
    Store(str(path)).close()
    with closing(sqlite3.connect(path)) as raw:
        found = {t: {row[1]: row[2] for row in raw.execute(f'PRAGMA table_info("{t}")')} for t in COLUMNS}
    return {table: {name: found[table][name] for name in columns} for table, columns in COLUMNS.items()}


def plain_row(table, kinds, number):
    """A row of a table in which every text and every number is another one."""
    row = {}
    for name, kind in kinds[table].items():
        text = f"cat-{name}-{number}"
        if f"{table}.{name}" in LEVELS:
            text = f'{{"task":"{text}"}}'
        row[name] = text if kind == "TEXT" else text.encode() if kind in ("BYTEA", "BLOB") else number
    return row


def insert_mapping(connection, table, row, _):
    connection.insert(table, row)


def insert_values(connection, table, row, _):
    connection.insert(table, tuple(row.values()), KEEP)


def insert_many(connection, table, row, kinds):
    # Eight, which PostgreSQL copies.
    rows = [row, *(plain_row(table, kinds, number) for number in range(11, 18))]
    connection.insert_many(table, [tuple(each.values()) for each in rows])


def upsert(connection, table, row, kinds):
    key = ", ".join(f'"{name}"' for name in primary_key(table))
    others = [name for name in row if name not in primary_key(table)]
    changed = ", ".join(f'"{name}" = excluded."{name}"' for name in others)
    same_key = {name: row[name] for name in primary_key(table)}
    connection.insert(table, plain_row(table, kinds, 5) | same_key)
    connection.insert(table, row, f"ON CONFLICT ({key}) DO UPDATE SET {changed}")


def update(connection, table, row, kinds):
    connection.insert(table, plain_row(table, kinds, 5))
    assert connection.update(table, row, "1 = ?", (1,)) == 1


def update_many(connection, table, row, kinds):
    connection.insert(table, plain_row(table, kinds, 5))
    connection.update_many(table, tuple(row), "1 = ?", [(*row.values(), 1)])


WRITES = (insert_mapping, insert_values, insert_many, upsert, update, update_many)


def is_sealed(table, column, value):
    """Whether a stored value says nothing without the key."""
    value = value.decode("latin-1") if isinstance(value, bytes) else value
    if is_digest(table, column):
        return value.startswith(KEYED)
    return (f'"task":"{MARK}' if f"{table}.{column}" in LEVELS else MARK) in value and "cat-" not in value


@BOTH
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_every_encrypted_column_is_sealed_however_it_is_written_and_open_however_it_is_read(
    url, kinds, write
):
    with (
        Store(url, KEYS) as store,
        closing(store.database.connect()) as connection,
        closing(open_database(url).connect()) as raw,
    ):
        for table in COLUMNS:
            if table == "data_keys":
                continue
            if write is upsert and table == "blobs":
                # Their key is the keyed digest of their text: they are never changed.
                continue
            row = plain_row(table, kinds, 3)
            in_transaction(connection, lambda table=table, row=row: write(connection, table, row, kinds))
            sql = f'SELECT * FROM "{table}" ORDER BY "{COLUMNS[table][0]}"'
            stored = raw.rows(sql)
            digests = [name for name in row if is_digest(table, name)]
            columns = [*ENCRYPTED.get(table, ()), *digests]
            assert all(is_sealed(table, name, each[name]) for each in stored for name in columns), table
            rows = connection.rows(sql)
            opened = [{name: each[name] for name in row if name not in digests} for each in rows]
            assert {name: row[name] for name in row if name not in digests} in opened
            assert list(connection.stream(sql)) == rows
            assert connection.tuples(sql) == [tuple(each.values()) for each in rows]
            (page,) = connection.columns(sql)
            assert page == {name: tuple(each[name] for each in rows) for name in rows[0]}


@BOTH
@pytest.mark.parametrize("place", sorted(DETERMINISTIC - {"arrivals.data"}))
def test_a_text_of_a_column_that_is_compared_is_found_under_every_key_and_before_there_was_one(
    url, kinds, place
):
    table, _, column = place.partition(".")
    rows = [plain_row(table, kinds, number) | {column: TEXT} for number in (1, 2, 3)]
    with Store(url) as plain, closing(plain.database.connect()) as connection:
        connection.insert(table, rows[0])
    with Store(url, KEYS) as store, closing(store.database.connect()) as connection:
        connection.insert(table, rows[1])
        store.data_keys.renew()
        connection.insert(table, rows[2])
        condition, texts = connection.is_one_of(f"t.{column}", place, [TEXT, "another"])
        found = connection.rows(f'SELECT {head(f"t.{column}", 4)} FROM "{table}" t WHERE {condition}', texts)
        assert list(cut(found, 4, column)) == [{column: TEXT[:4]}] * 3
        assert connection.is_one_of(column, place, [""]) == (f'"{column}" IN (?)', [""])


@BOTH
def test_nothing_sealed_is_exported_and_nothing_open_is_in_a_backup_or_a_copy(url, tmp_path):
    with Store(url, KEYS) as store:
        fill(store)
        exported = export_tables(store.read, Scope(), out=tmp_path / "out", format="ndjson", label="all")
        assert store.read.count_items("run", ItemFilter(search=MARK)) == 0
    texts = "".join(path.read_text() for path in exported)
    assert TEXT in texts and MARK not in texts and KEYED not in texts

    copies = [tmp_path / "copy.db"]
    copy_store(url, str(copies[0]))
    if url.startswith("/"):
        copies.append(tmp_path / "backup.db")
        back_up(url, copies[1])
    for path in copies:
        assert TEXT.encode() not in path.read_bytes()
        with Store(str(path), KEYS) as store:
            assert store.read.items("run")[1]["prompt"] == TEXT


def test_statements_are_written_in_one_place_and_name_no_encrypted_column_elsewhere():
    """`run` binds values as they are; a statement that writes an encrypted column with it would go unseen."""
    store = Path(sys.modules["proctor"].__file__).parent / "store"
    for file in store.rglob("*.py"):
        text = file.read_text()
        inserted = set(re.findall(r'INSERT INTO \\?"(\{?\w+\}?)', text))
        assert inserted <= {"search_texts", "search_sessions", "schema_version"} or file.name == "database.py"
        for table, assigned in re.findall(r'UPDATE \\?"(\w+)\\?" SET (.*?)(?:WHERE|\n\n)', text, re.DOTALL):
            names = set(re.findall(r'"(\w+)\\?" = ', assigned))
            assert not names & set(ENCRYPTED.get(table, ())), (file.name, table)
