"""Connections, transactions and parts of SQL, the same for both databases."""

import sqlite3
import threading
from decimal import Decimal
from pathlib import Path

import pytest

from proctor.errors import StoreDisconnected, StoreError, StoreUnavailable
from proctor.store import Store
from proctor.store.database import (
    IDS_AT_ONCE,
    PostgresDatabase,
    Readers,
    SqliteDatabase,
    _number,
    _percent,
    _plain,
    _primary,
    _statements,
    escape_like,
    extended,
    id_pages,
    in_transaction,
    insertion,
    literals,
    open_database,
    places,
    prefix_pattern,
    schema_versions,
    store_exists,
    substring_pattern,
)


class Journal:
    """A connection that writes down what is done, and is lost so many times."""

    def __init__(self, *, lost: int = 0) -> None:
        self.steps: list[str] = []
        self.lost = lost

    def begin(self) -> None:
        self.steps.append("begin")

    def commit(self) -> None:
        self.steps.append("commit")

    def rollback(self) -> None:
        self.steps.append("rollback")

    def work(self) -> str:
        self.steps.append("work")
        if self.lost:
            self.lost -= 1
            raise StoreDisconnected("the server went away")
        return "done"


def test_a_transaction_is_begun_done_and_committed():
    journal = Journal()
    assert in_transaction(journal, journal.work) == "done"
    assert journal.steps == ["begin", "work", "commit"]


def test_a_transaction_is_tried_five_times_while_the_database_is_away():
    journal = Journal(lost=4)
    assert in_transaction(journal, journal.work) == "done"
    assert journal.steps == ["begin", "work", "rollback"] * 4 + ["begin", "work", "commit"]

    journal = Journal(lost=9)
    with pytest.raises(StoreDisconnected):
        in_transaction(journal, journal.work)
    assert journal.steps == ["begin", "work", "rollback"] * 5


def test_a_transaction_that_fails_is_rolled_back_and_not_repeated():
    journal = Journal()

    def fail() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        in_transaction(journal, fail)
    assert journal.steps == ["begin", "rollback"]


def test_each_thread_has_one_connection_and_closing_closes_all(tmp_path):
    opened = []

    class Counted(SqliteDatabase):
        def connect(self):
            opened.append(super().connect())
            return opened[-1]

    readers = Readers(Counted(tmp_path / "a.db"))
    first = readers.connection()
    assert readers.connection() is first
    thread = threading.Thread(target=lambda: [readers.connection() for _ in range(2)])
    thread.start()
    thread.join()
    assert len(opened) == 2

    readers.close()

    for connection in opened:
        with pytest.raises(StoreError):
            connection.rows("SELECT 1")
    assert readers.connection().rows('SELECT 1 AS "n"') == [{"n": 1}]
    assert len(opened) == 3
    readers.close()


def test_a_file_or_a_server_is_opened_by_its_address(tmp_path):
    path = tmp_path / "a.db"
    for url in (str(path), f"sqlite:///{path}"):
        assert not store_exists(url)
        database = open_database(url)
        assert isinstance(database, SqliteDatabase)
        assert (database.path, database.url) == (path, f"sqlite:///{path}")
    path.touch()
    assert store_exists(str(path))
    for scheme in ("postgresql", "postgres"):
        server = open_database(f"{scheme}://ann:secret@host/db?password=x&a=1")
        assert isinstance(server, PostgresDatabase)
        assert server.url == f"{scheme}://ann@host/db?a=1"
        assert store_exists(f"{scheme}://host/db")
    assert PostgresDatabase("postgresql://host:5432/db").url == "postgresql://host:5432/db"


def test_a_new_file_uses_a_write_ahead_log_and_leaves_nothing_else(tmp_path):
    connection = SqliteDatabase(tmp_path / "sub" / "a.db").connect()
    assert connection.rows("PRAGMA journal_mode")[0]["journal_mode"] == "wal"
    assert connection.rows("PRAGMA synchronous")[0]["synchronous"] == 1
    connection.close()
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["a.db"]
    assert (tmp_path / "sub" / "a.db").stat().st_mode & 0o077 == 0


def test_a_missing_file_whose_log_is_there_is_not_created_anew(tmp_path):
    (tmp_path / "a.db-wal").write_bytes(b"changes")
    with pytest.raises(
        StoreUnavailable, match=r"a\.db is missing, but its write-ahead log a\.db-wal is there"
    ):
        SqliteDatabase(tmp_path / "a.db").connect()
    assert not (tmp_path / "a.db").exists()
    (tmp_path / "a.db-wal").write_bytes(b"")
    SqliteDatabase(tmp_path / "a.db").connect().close()


def test_what_is_no_database_is_refused_by_its_kind(tmp_path):
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("hello " * 1000)
    for name, problem in (("", "is a folder\nName a file in it"), ("empty.db", "is empty (0 bytes)")):
        with pytest.raises(StoreUnavailable) as refused:
            SqliteDatabase(tmp_path / name).connect()
        assert problem in str(refused.value)
    with pytest.raises(StoreUnavailable, match="is not a SQLite database"):
        SqliteDatabase(tmp_path / "text.db").connect()


def test_statements_report_rows_and_failures_as_ours(tmp_path):
    connection = SqliteDatabase(tmp_path / "a.db").connect()
    connection.begin()
    connection.script('-- a comment; with a semicolon\nCREATE TABLE "t" ("a" BIGINT, "b" TEXT);\n\n')
    connection.run_many(insertion("t", ["a", "b"]), [(1, "x"), (2, "y"), (3, "y")])
    assert connection.run('UPDATE "t" SET "a" = "a" + 1 WHERE "b" = ?', ("y",)) == 2
    connection.commit()
    assert connection.tuples('SELECT "a" FROM "t" ORDER BY 1') == [(1,), (3,), (4,)]
    assert list(connection.stream('SELECT "a", "b" FROM "t" WHERE "a" > ?', (3,))) == [{"a": 4, "b": "y"}]
    connection.begin()
    connection.run('DELETE FROM "t"')
    connection.rollback()
    connection.rollback()
    assert len(connection.rows('SELECT * FROM "t"')) == 3
    for sql, parameters in (
        ("SELECT * FROM nothing", ()),
        ("SELECT ?", (1 << 80,)),
        ("SELECT ?", ("\ud800",)),
    ):
        with pytest.raises(StoreError, match="store error: "):
            connection.rows(sql, parameters)
    connection.close()


def test_a_number_tells_whether_another_connection_has_committed(tmp_path):
    database = SqliteDatabase(tmp_path / "a.db")
    first, second = database.connect(), database.connect()
    before = first.version()
    assert first.data_version() == before == first.version()
    second.run("CREATE TABLE t (a)")
    assert first.version() != before
    for connection in (first, second):
        connection.close()


def test_a_backup_is_a_new_file_for_its_owner_alone(tmp_path):
    connection = SqliteDatabase(tmp_path / "a.db").connect()
    connection.run("CREATE TABLE t (a)")
    connection.back_up(tmp_path / "b.db")
    with sqlite3.connect(tmp_path / "b.db") as copy:
        assert copy.execute("SELECT COUNT(*) FROM t").fetchall() == [(0,)]
    assert (tmp_path / "b.db").stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError):
        connection.back_up(tmp_path / "b.db")
    connection.close()


def test_parts_of_statements():
    assert insertion("t", iter(["a", "b"])) == 'INSERT INTO "t" ("a", "b") VALUES (?, ?)'
    assert places(["x", "y"]) == "?, ?" and places([]) == "NULL"
    assert literals(["x", "y"]) == "'x', 'y'"
    assert substring_pattern("50%_OFF!") == "%50!%!_off!!%"
    assert prefix_pattern("50%_OFF!") == "50!%!_OFF!!%"
    assert escape_like("plain") == "plain"
    assert _percent("a LIKE '%' AND b = ?") == "a LIKE '%%' AND b = %s"
    assert list(_statements("-- note\nA;\n B ;;\n")) == ["A", "B"]
    assert extended(dict, {"a": 1}, b=2) == {"a": 1, "b": 2}


def test_ids_are_read_in_pages_without_repetition():
    ids = [str(number) for number in range(IDS_AT_ONCE + 1)]
    pages = list(id_pages([*ids, *ids]))
    assert [len(page) for page in pages] == [IDS_AT_ONCE, 1]
    assert [each for page in pages for each in page] == ids
    assert list(id_pages([])) == []


def test_sums_of_postgresql_are_plain_numbers():
    assert _plain(["a", "b", "c"], [Decimal(3), Decimal("2.5"), "x"]) == {"a": 3, "b": 2.5, "c": "x"}
    assert type(_number(Decimal(3))) is int and type(_number(Decimal("2.5"))) is float


def test_the_code_of_an_error_has_no_details():
    error = sqlite3.OperationalError()
    assert _primary(error) == 0xFF
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY | (3 << 8)
    assert _primary(error) == sqlite3.SQLITE_READONLY


def test_an_older_store_is_migrated_once_and_a_newer_one_refused(tmp_path: Path):
    path = tmp_path / "a.db"
    with Store(str(path)) as store:
        newest, version = schema_versions(store._plain.connect())
    assert newest == version > 15
    with sqlite3.connect(path) as raw:
        raw.execute('UPDATE "schema_version" SET "version" = ?', (newest + 1,))
    with pytest.raises(StoreUnavailable) as refused:
        Store(str(path))
    assert f"newer Proctor (version {newest + 1}, this one knows {newest})" in str(refused.value)


def test_a_store_in_a_read_only_folder_is_read_unless_changes_are_missing_from_its_file(
    tmp_path, monkeypatch
):
    """As for a user who may write neither the file nor the files beside it."""
    database = SqliteDatabase(tmp_path / "a.db")
    database.connect().close()
    real, code = sqlite3.connect, [sqlite3.SQLITE_CANTOPEN]

    class Unwritable:
        def execute(self, statement):
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = code[0]
            raise error

        def close(self):
            pass

    def connect(address, **options):
        return real(address, **options) if "immutable" in address else Unwritable()

    monkeypatch.setattr("proctor.store.database.sqlite3.connect", connect)
    database._open_for_reading().close()
    (tmp_path / "a.db-wal").write_bytes(b"changes")
    with pytest.raises(StoreUnavailable, match=r"a\.db-wal holds changes that are not in the file yet"):
        database._open_for_reading()
    code[0] = sqlite3.SQLITE_IOERR
    with pytest.raises(sqlite3.OperationalError):
        database._open_for_reading()
