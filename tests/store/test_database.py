"""Connections, transactions and parts of SQL, the same for both databases."""

import sqlite3
import sys
import threading
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from databases import new_database
from proctor.errors import StoreDisconnected, StoreError, StoreUnavailable
from proctor.store import Store, database
from proctor.store.database import (
    IDS_AT_ONCE,
    Readers,
    SqliteDatabase,
    _primary,
    _write_ahead,
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
    statements,
    store_errors,
    store_exists,
    substring_pattern,
)
from proctor.store.postgres import (
    PostgresConnection,
    PostgresDatabase,
    PostgresMonitor,
    _number,
    _percent,
    _plain,
)
from proctor.testing import eventually


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
    opened = SqliteDatabase(tmp_path / "a.db")
    first, second = opened.connect(), opened.connect()
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
    assert list(statements("-- note\nA;\n B ;;\n")) == ["A", "B"]
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


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, monkeypatch):
        self.now, self.pauses = 100.0, []
        monkeypatch.setattr(database.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(database.time, "sleep", self.sleep)

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    ("states", "seconds"),
    [
        # It does not answer: a wrong address, or a restart.
        (["NO_RESPONSE"], 10),
        # It starts or shuts down, and says so.
        (["REJECT"], 120),
        (["NO_RESPONSE", "NO_RESPONSE", "REJECT"], 120),
        # It is there, and denies the user or the database; it may have come up after the first try.
        (["OK"], 0.05),
        (["NO_RESPONSE", "OK", "OK"], 0.15),
        (["NO_ATTEMPT"], 0.05),
    ],
)
def test_the_first_connection_waits_for_a_server_that_restarts(states, seconds, monkeypatch):
    clock, answers = Clock(monkeypatch), iter(states)

    class Server:
        @staticmethod
        def ping(url):
            assert url == b"postgresql://nowhere/db"
            return psycopg.pq.Ping[next(answers, states[-1])]

    def refuse(*_, **__):
        raise psycopg.OperationalError("refused")

    monkeypatch.setattr(psycopg, "connect", refuse)
    monkeypatch.setattr(psycopg.pq, "PGconn", Server)
    with pytest.raises(StoreUnavailable, match="cannot open the store: refused"):
        PostgresDatabase("postgresql://nowhere/db").connect()
    assert seconds <= sum(clock.pauses) + 1e-9 < seconds + 1.5
    assert clock.pauses[0] == 0.05


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
    server.lost += ["UPDATE"]
    with pytest.raises(StoreDisconnected):
        connection.run("UPDATE")
    connection.begin()
    connection.rollback()
    assert server.statements[-2:] == ["BEGIN", "ROLLBACK"]
    connection.commit()
    server.lost += ["SELECT 1", "SELECT 1"]
    with pytest.raises(StoreDisconnected):
        connection.rows("SELECT 1")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_once_a_transaction_has_ended_queries_are_repeated_on_a_new_connection(end):
    server = Server()
    connection = PostgresConnection(server.connect)
    connection.begin()
    getattr(connection, end)()
    server.lost.append("SELECT 1")
    connection.rows("SELECT 1")
    assert server.connections == 2


def test_a_monitor_counts_commits_and_a_lost_connection_as_a_change():
    class Notifying(Raw):
        """Two notifications at each look, then it is lost."""

        @property
        def pgconn(self):
            return self

        def consume_input(self):
            if len(server.looks) == 2:
                raise psycopg.OperationalError("lost")
            server.looks.append(["one", "two"])

        def notifies(self):
            return server.looks[-1].pop() if server.looks[-1] else None

    server = Server()
    server.looks = []
    raw = Notifying(server)
    monitor = PostgresMonitor(lambda: raw)
    assert [monitor.version() for _ in range(3)] == [3, 5, 6]
    assert raw.closed and monitor._raw is None
    assert server.statements == ["LISTEN proctor_store"]
    monitor.close()


def test_a_monitor_of_postgresql_sees_what_others_write_and_not_what_they_read(server):
    opened = PostgresDatabase(new_database(server))
    with closing(opened.connect()) as connection, closing(opened.monitor()) as monitor:
        connection.run('CREATE TABLE "t" ("a" BIGINT)')
        before = monitor.version()
        in_transaction(connection, lambda: connection.rows('SELECT * FROM "t"'))
        assert monitor.version() == before
        in_transaction(connection, lambda: connection.run('INSERT INTO "t" VALUES (1)'))
        eventually(lambda: monitor.version() == before + 1)


def test_write_ahead_logging_is_switched_on_as_soon_as_nobody_holds_the_file(monkeypatch):
    clock = Clock(monkeypatch)

    class Held:
        def __init__(self, refusals):
            self.refusals, self.mode = refusals, "delete"

        def execute(self, sql):
            if sql.endswith("=WAL"):
                if self.refusals:
                    self.refusals -= 1
                    raise sqlite3.OperationalError("database is locked")
                self.mode = "wal"
            return self

        def fetchone(self):
            return (self.mode,)

    _write_ahead(Held(5))
    assert clock.pauses == [0.01] * 5
    with pytest.raises(sqlite3.OperationalError):
        _write_ahead(Held(10**9))
    assert 30 <= sum(clock.pauses[5:]) < 30.1


def test_postgresql_reads_rows_in_every_form(server):
    connection = PostgresDatabase(new_database(server)).connect()
    connection.run('CREATE TABLE "t" ("a" BIGINT, "b" TEXT)')
    for count in (7, 8):
        connection.run_many(insertion("t", ["a", "b"]), [(number, "x") for number in range(count)])
    wanted = 'SELECT "a", SUM("a") AS "s" FROM "t" WHERE "a" < ? AND "b" = ? GROUP BY "a" ORDER BY "a"'
    rows = [{"a": 0, "s": 0}, {"a": 1, "s": 2}]
    parameters = (2, "x")
    assert connection.rows(wanted, parameters) == list(connection.stream(wanted, parameters)) == rows
    assert connection.tuples(wanted, parameters) == [(0, 0), (1, 2)]
    assert list(connection.columns(wanted, parameters)) == [{"a": (0, 1), "s": (0, 2)}]
    assert connection.run('UPDATE "t" SET "b" = ? WHERE "a" = ?', ("y", 1)) == 2
    assert connection.rows('UPDATE "t" SET "b" = ?', ("z",)) == []
    with pytest.raises(StoreError, match=r"store error: .* does not exist"):
        connection.rows('SELECT * FROM "none"')
    connection.close()


def test_postgresql_removes_deleted_rows_from_the_disk(server):
    with closing(PostgresDatabase(new_database(server)).connect()) as connection:
        connection.run('CREATE TABLE "t" ("a" TEXT)')
        connection.run('INSERT INTO "t" VALUES (?)', ("secret",))
        connection.run('DELETE FROM "t"')
        size = "SELECT pg_relation_size('t')"
        assert connection.tuples(size) != [(0,)]
        connection.purge()
        assert connection.tuples(size) == [(0,)]


def test_postgresql_stores_true_as_one(server):
    with closing(PostgresDatabase(new_database(server)).connect()) as connection:
        connection.run('CREATE TABLE "t" ("a" BIGINT)')
        connection.run('INSERT INTO "t" VALUES (?)', (True,))
        assert connection.tuples('SELECT "a" FROM "t"') == [(1,)]


def test_damage_and_errors_of_sqlite_are_told_apart(tmp_path):
    for code, text in (
        (sqlite3.SQLITE_CORRUPT, r"a\.db is damaged: broken"),
        (sqlite3.SQLITE_NOTADB, r"a\.db is damaged: broken"),
        (sqlite3.SQLITE_READONLY, "is read-only here"),
        (sqlite3.SQLITE_FULL, r"a\.db cannot be written: its disk is full \(broken\)\nFree some space"),
        (sqlite3.SQLITE_IOERR, "reports errors, or a limit of file sizes is reached .*\nLook at"),
        (sqlite3.SQLITE_BUSY, "another program has locked it for more than 30 s .*\nEnd that program"),
        (sqlite3.SQLITE_CANTOPEN, "its folder is missing or has no permission .*\nMake the folder writable"),
        (sqlite3.SQLITE_ERROR, "^store error: broken$"),
    ):
        error = sqlite3.OperationalError("broken")
        error.sqlite_errorcode = code
        with pytest.raises(StoreError, match=text), store_errors(tmp_path / "a.db"):
            raise error
        with pytest.raises(StoreError, match=r"^store error: broken$"), store_errors():
            raise error


def test_every_connection_writes_ahead_and_waits_for_the_operating_system_only(tmp_path):
    path = tmp_path / "proctor.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode=DELETE")
        raw.execute("CREATE TABLE t (x)")
    connection = database.SqliteDatabase(path).connect()
    try:
        values = [
            connection.tuples(f"PRAGMA {name}")[0][0]
            for name in ("journal_mode", "synchronous", "cache_size", "busy_timeout")
        ]
    finally:
        connection.close()
    assert values == ["wal", 1, -8000, 30_000]
