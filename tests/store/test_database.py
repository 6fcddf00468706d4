"""Connections, transactions and parts of SQL, the same for both databases."""

import sqlite3
import sys
from contextlib import closing

import psycopg
import pytest

from databases import new_database
from proctor.errors import StoreDisconnected, StoreError, StoreUnavailable
from proctor.store.database import SqliteDatabase, in_transaction, open_database, store_errors, store_exists
from proctor.store.postgres import PostgresConnection, PostgresDatabase


def test_a_file_or_a_server_is_opened_by_its_address(tmp_path):
    path = tmp_path / "a.db"
    for url in (str(path), f"sqlite:///{path}"):
        assert not store_exists(url)
        opened = open_database(url)
        assert isinstance(opened, SqliteDatabase)
        assert (opened.path, opened.url) == (path, f"sqlite:///{path}")
    path.touch()
    assert store_exists(str(path))
    for scheme in ("postgresql", "postgres"):
        server = open_database(f"{scheme}://ann:secret@host/db?password=x&a=1")
        assert isinstance(server, PostgresDatabase)
        assert server.url == f"{scheme}://ann@host/db?a=1"
        assert store_exists(f"{scheme}://host/db")
    assert PostgresDatabase("postgresql://host:5432/db").url == "postgresql://host:5432/db"


def test_a_server_needs_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        StoreUnavailable, match=r"needs psycopg\nInstall it: pip install 'proctor\[postgres\]'"
    ):
        PostgresDatabase("postgresql://nowhere/db").connect()


class Server:
    """A stand-in for PostgreSQL that is lost at some statements."""

    def __init__(self, lost=(), transaction="7", status="committed"):
        self.lost, self.transaction, self.status = list(lost), transaction, status
        self.statements: list[str] = []
        self.connections = 0

    def connect(self):
        self.connections += 1
        return Raw(self)


class Raw:
    def __init__(self, server):
        self.server, self.closed = server, False
        self.description, self.rowcount, self.answer = None, 1, []

    def cursor(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def execute(self, sql, parameters=()):
        self.server.statements.append(sql.split("(")[0].strip())
        if sql in self.server.lost:
            self.server.lost.remove(sql)
            self.closed = True
            raise psycopg.OperationalError("the connection is lost")
        self.description = None
        for name, value in (("id", self.server.transaction), ("status", self.server.status)):
            if f'AS "{name}"' in sql:
                self.description = [type("Column", (), {"name": name})]
                self.answer = [(value,)]

    def fetchall(self):
        return self.answer

    def close(self):
        self.closed = True


@pytest.mark.parametrize(
    ("transaction", "status", "is_lost"),
    [("7", "committed", False), ("7", "aborted", True), ("7", "in progress", True), (None, "aborted", False)],
)
def test_a_commit_whose_answer_is_lost_is_looked_up(transaction, status, is_lost):
    server = Server(["COMMIT"], transaction, status)
    connection = PostgresConnection(server.connect)
    connection.begin()
    if is_lost:
        with pytest.raises(StoreDisconnected):
            connection.commit()
    else:
        connection.commit()
    assert any("pg_xact_status" in statement for statement in server.statements) == bool(transaction)
    # It is outside of a transaction: queries are repeated again.
    server.lost.append("SELECT 1")
    connection.rows("SELECT 1")


def test_postgresql_removes_deleted_rows_from_the_disk(server):
    with closing(PostgresDatabase(new_database(server)).connect()) as connection:
        connection.run('CREATE TABLE "t" ("a" TEXT)')
        connection.run('INSERT INTO "t" VALUES (?)', ("secret",))
        connection.run('DELETE FROM "t"')
        size = "SELECT pg_relation_size('t')"
        assert connection.tuples(size) != [(0,)]
        connection.purge()
        assert connection.tuples(size) == [(0,)]


@pytest.mark.parametrize(
    ("failures", "tries", "is_done"),
    [
        ([], 1, True),
        ([StoreDisconnected("lost")] * 4, 5, True),
        ([StoreDisconnected("lost")] * 5, 5, False),
        ([ValueError("wrong")], 1, False),
    ],
)
def test_a_transaction_is_tried_five_times_while_the_database_is_away(tmp_path, failures, tries, is_done):
    """A real server is not lost five times in a row."""
    made = []
    with closing(SqliteDatabase(tmp_path / "a.db").connect()) as connection:
        connection.run('CREATE TABLE "t" ("a" TEXT)')

        def work():
            connection.run('INSERT INTO "t" VALUES (?)', ("x",))
            made.append("x")
            if len(made) <= len(failures):
                raise failures[len(made) - 1]
            return "done"

        if is_done:
            assert in_transaction(connection, work) == "done"
        else:
            with pytest.raises(type(failures[0])):
                in_transaction(connection, work)
        assert (len(made), len(connection.rows('SELECT * FROM "t"'))) == (tries, is_done)


def test_a_file_is_private_and_every_connection_writes_ahead(tmp_path):
    path = tmp_path / "sub" / "a.db"
    for _ in range(2):
        with closing(SqliteDatabase(path).connect()) as connection:
            values = [
                connection.tuples(f"PRAGMA {name}")[0][0]
                for name in ("journal_mode", "synchronous", "cache_size", "busy_timeout")
            ]
        assert values == ["wal", 1, -8000, 50]
        assert [each.name for each in path.parent.iterdir()] == ["a.db"]
        assert path.stat().st_mode & 0o077 == 0
        # One that another program has made, for the second time.
        path.unlink()
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("PRAGMA journal_mode=DELETE")
            raw.execute("CREATE TABLE t (x)")
        path.chmod(0o600)


def test_statements_return_rows_in_every_form_and_failures_as_ours(url):
    connection = open_database(url).connect()
    connection.begin()
    connection.script('-- a comment; with a semicolon\nCREATE TABLE "t" ("a" BIGINT, "b" TEXT);\n\n')
    # PostgreSQL copies rows from eight on.
    for count in (7, 8):
        connection.insert_many("t", [(number, "x") for number in range(count)], ("a", "b"))
    connection.commit()
    wanted = 'SELECT "a", SUM("a") AS "s" FROM "t" WHERE "a" < ? AND "b" = ? GROUP BY "a" ORDER BY "a"'
    rows = [{"a": 0, "s": 0}, {"a": 1, "s": 2}]
    parameters = (2, "x")
    assert connection.rows(wanted, parameters) == list(connection.stream(wanted, parameters)) == rows
    assert connection.tuples(wanted, parameters) == [(0, 0), (1, 2)]
    assert list(connection.columns(wanted, parameters)) == [{"a": (0, 1), "s": (0, 2)}]
    assert connection.run('UPDATE "t" SET "b" = ? WHERE "a" = ?', ("y", 1)) == 2
    assert connection.rows('UPDATE "t" SET "b" = ?', ("z%",)) == []
    assert connection.rows('SELECT "a" FROM "t" WHERE "b" LIKE \'z%\' AND "a" = ?', (7,)) == [{"a": 7}]
    connection.begin()
    connection.run('DELETE FROM "t"')
    connection.rollback()
    connection.rollback()
    assert len(connection.rows('SELECT * FROM "t"')) == 15
    failing = [('SELECT * FROM "none"', ())]
    if not url.startswith("postgresql"):
        failing += [("SELECT ?", (1 << 80,)), ("SELECT ?", ("\ud800",))]
    for sql, values in failing:
        with pytest.raises(StoreError, match="store error: "):
            connection.rows(sql, values)
    connection.close()
    with pytest.raises(StoreError, match="closed"):
        connection.rows("SELECT 1")


def test_a_lost_connection_is_replaced_outside_of_a_transaction():
    server = Server(["SELECT 1", "BEGIN"])
    connection = PostgresConnection(server.connect)
    connection.rows("SELECT 1")
    connection.begin()
    assert server.connections == 3
    server.lost += ["SELECT 1"]
    with pytest.raises(StoreDisconnected, match="the connection is lost"):
        connection.rows("SELECT 1")
    count = len(server.statements)
    connection.rollback()
    assert len(server.statements) == count, "a closed connection has nothing to roll back"
    for end in (connection.commit, connection.rollback):
        connection.begin()
        end()
        server.lost.append("SELECT 1")
        connection.rows("SELECT 1")
    server.lost += ["SELECT 1", "SELECT 1"]
    with pytest.raises(StoreDisconnected):
        connection.rows("SELECT 1")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (sqlite3.SQLITE_CORRUPT, r"a\.db is damaged: broken"),
        (sqlite3.SQLITE_NOTADB, r"a\.db is damaged: broken"),
        (sqlite3.SQLITE_READONLY | (3 << 8), "is read-only here"),
        (sqlite3.SQLITE_FULL, r"a\.db cannot be written: its disk is full \(broken\)\nFree some space"),
        (sqlite3.SQLITE_IOERR, "reports errors, or a limit of file sizes is reached .*\nLook at"),
        (sqlite3.SQLITE_BUSY, "another program has locked it for more than 120 s .*\nEnd that program"),
        (sqlite3.SQLITE_CANTOPEN, "its folder is missing or has no permission .*\nMake the folder writable"),
        (sqlite3.SQLITE_ERROR, "^store error: broken$"),
        (None, "^store error: broken$"),
    ],
)
def test_damage_and_errors_of_sqlite_are_told_apart(tmp_path, code, text):
    error = sqlite3.OperationalError("broken")
    if code is not None:
        error.sqlite_errorcode = code
    with pytest.raises(StoreError, match=text), store_errors(tmp_path / "a.db"):
        raise error
    with pytest.raises(StoreError, match=r"^store error: broken$"), store_errors():
        raise error
    with pytest.raises(KeyError), store_errors():
        raise KeyError("a fault of ours")
