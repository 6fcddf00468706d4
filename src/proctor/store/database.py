"""SQLite and PostgreSQL behind one interface, and the migrations.

SQLite uses the standard library, PostgreSQL psycopg (optional). Statements are written once, with `?` for
parameters and quoted mixed-case names. SQLAlchemy was measured and rejected: importing it adds 0.5 s to
every command, thirty times as much as `sqlite3`, and writing takes twice the CPU time.
"""

import re
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from proctor.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    import psycopg

Row = dict[str, Any]
R = TypeVar("R")

# Longer than the longest transaction measured with 100,000 items.
LOCK_TIMEOUT_SECONDS = 30
IDS_AT_ONCE = 500
"""Ids in one statement."""
SCRIPT_LOCK = 5_077_628
TURN_LOCK = 5_077_629
"""Advisory locks in PostgreSQL; arbitrary numbers."""
_PASSWORD = re.compile(r"(?<=[^:/@]):[^:/@]+(?=@)|(?<=[?&])password=[^&]*&?", re.IGNORECASE)


def extended(shape: type[R], row: Mapping[str, object], **more: object) -> R:  # noqa: ARG001  a type
    """A row with further keys; `shape` has all keys. Reads no value, so a `LockedRow` stays locked."""
    return cast(R, cast(Row, row) | more)


class Connection(Protocol):
    """One connection, used by one thread at a time."""

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """All rows of a query, as dictionaries."""

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Row]:
        """The rows of a query one by one, in memory that does not grow with their number."""

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run one statement; the number of rows it touched."""

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        """Run one statement for each set of parameters."""

    def script(self, sql: str) -> None:
        """Run several statements, separated by semicolons, under a lock for scripts."""

    def begin(self) -> None:
        """Begin a write transaction."""

    def data_version(self) -> int | None:
        """Unchanged only if no other connection has committed since the last call; None: unknown."""

    def lock_table(self, table: str) -> None:
        """Lock a table for writing until the transaction ends."""

    def set_key_scope(self, scope: str) -> None:
        """Encrypt what is written in this transaction with the key of a run or an evaluator."""

    def purge(self) -> None:
        """Remove deleted and overwritten data from the disk. Nobody else may be writing."""

    def take_turn_lock(self) -> None:
        """Acquire a lock that only one transaction can have at a time."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class Database(Protocol):
    """A database that a store can use."""

    url: str
    """Without a password."""

    def connect(self) -> Connection:
        """A new connection, for the calling thread."""


def store_exists(url: str) -> bool:
    """Whether there is a database file at `url`; a server is taken to have one."""
    if url.startswith(("postgresql://", "postgres://")):
        return True
    return Path(url.removeprefix("sqlite:///")).exists()


def open_database(url: str) -> Database:
    """The database at `url`: a path or `sqlite:///path`, or `postgresql://…`."""
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresDatabase(url)
    return SqliteDatabase(Path(url.removeprefix("sqlite:///")))


class SqliteDatabase:
    """A SQLite file in WAL mode: many readers, one writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def connect(self) -> "SqliteConnection":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            raw = sqlite3.connect(
                self.path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
            )
            _write_ahead(raw)
            # NORMAL loses no commit when the process dies, only when the machine does.
            raw.execute("PRAGMA synchronous=NORMAL")
            # Per connection; a batch has about six. Four times as much was not faster.
            raw.execute("PRAGMA cache_size=-8000")
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(
                f"cannot open the store {self.path}: {error}\nChoose another with --store or --home."
            ) from error
        return SqliteConnection(raw)


class SqliteConnection:
    """A connection to a SQLite file."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        return list(self.stream(sql, parameters))

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Row]:
        with _store_errors():
            cursor = self._raw.execute(sql, parameters)
            names = [column[0] for column in cursor.description or ()]
            for row in cursor:
                yield dict(zip(names, row, strict=True))

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        with _store_errors():
            return self._raw.execute(sql, parameters).rowcount

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        with _store_errors():
            self._raw.executemany(sql, parameters)

    def script(self, sql: str) -> None:
        # `executescript` would commit the transaction we are in.
        for statement in _statements(sql.replace("/* without rowid */", "WITHOUT ROWID")):
            self.run(statement)

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE")

    def data_version(self) -> int | None:
        with _store_errors():
            return int(self._raw.execute("PRAGMA data_version").fetchone()[0])

    def lock_table(self, table: str) -> None:
        """Not needed: SQLite has one write transaction at a time."""

    def take_turn_lock(self) -> None:
        """Not needed, as above."""

    def set_key_scope(self, scope: str) -> None:
        """No encryption here."""

    def purge(self) -> None:
        # Overwritten data remains in free pages and in the write-ahead log.
        for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            self.rows(statement)

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        if self._raw.in_transaction:
            self.run("ROLLBACK")

    def close(self) -> None:
        self._raw.close()


class PostgresDatabase:
    """A PostgreSQL server, for several machines on one store."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.url = _PASSWORD.sub("", url)

    def connect(self) -> "PostgresConnection":
        # An optional dependency.
        try:
            import psycopg
        except ImportError as error:
            raise StoreUnavailable(
                "a PostgreSQL store needs psycopg\nInstall it: pip install 'proctor[postgres]'"
            ) from error
        try:
            return PostgresConnection(psycopg.connect(self._url, autocommit=True))
        except psycopg.Error as error:
            raise StoreUnavailable(f"cannot open the store: {error}") from error


class PostgresConnection:
    """A connection to a PostgreSQL server, in autocommit mode until `begin`."""

    def __init__(self, raw: "psycopg.Connection") -> None:
        self._raw = raw
        self._streams = 0

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        with _store_errors(), self._raw.cursor() as cursor:
            cursor.execute(_percent(sql), parameters)
            return _as_rows(cursor)

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Row]:
        self._streams += 1
        with (
            _store_errors(),
            self._raw.transaction(),
            self._raw.cursor(name=f"stream{self._streams}") as cursor,
        ):
            cursor.execute(_percent(sql), parameters)
            while page := cursor.fetchmany(1000):
                names = [column.name for column in cursor.description or ()]
                yield from (_plain(names, row) for row in page)

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        with _store_errors(), self._raw.cursor() as cursor:
            cursor.execute(_percent(sql), parameters)
            return int(cursor.rowcount)

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        with _store_errors(), self._raw.cursor() as cursor:
            cursor.executemany(_percent(sql), list(parameters))

    def script(self, sql: str) -> None:
        # Creating the same table twice at once fails, even with IF NOT EXISTS.
        self.run(f"SELECT pg_advisory_xact_lock({SCRIPT_LOCK})")
        for statement in _statements(sql):
            self.run(statement)

    def begin(self) -> None:
        self.run("BEGIN")

    def data_version(self) -> int | None:
        return None

    def lock_table(self, table: str) -> None:
        self.run(f'LOCK TABLE "{table}" IN EXCLUSIVE MODE')

    def take_turn_lock(self) -> None:
        # Not a table lock: it could deadlock with writers that wait for each other's blobs.
        self.run(f"SELECT pg_advisory_xact_lock({TURN_LOCK})")

    def set_key_scope(self, scope: str) -> None:
        """No encryption here."""

    def purge(self) -> None:
        self.run("VACUUM FULL")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        self.run("ROLLBACK")

    def close(self) -> None:
        self._raw.close()


class Readers:
    """One connection per thread, reused."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._local = threading.local()
        self._all: list[Connection] = []
        self._lock = threading.Lock()

    def connection(self) -> Connection:
        """This thread's own connection."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._database.connect()
            with self._lock:
                self._all.append(connection)
        return connection

    def close(self) -> None:
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()
        self._local = threading.local()


def _write_ahead(raw: sqlite3.Connection) -> None:
    """Switch a new file to write-ahead logging; several processes may try at once."""
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while raw.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            raw.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            # The busy timeout does not cover this change.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _statements(sql: str) -> Iterator[str]:
    without_comments = "\n".join(line for line in sql.splitlines() if not line.startswith("--"))
    return (part.strip() for part in without_comments.split(";") if part.strip())


def _percent(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


def _as_rows(cursor: "psycopg.Cursor") -> list[Row]:
    if cursor.description is None:
        return []
    names = [column.name for column in cursor.description]
    return [_plain(names, row) for row in cursor.fetchall()]


def _plain(names: Sequence[str], row: Sequence[object]) -> Row:
    # PostgreSQL sums integers to Decimal, which works with neither JSON nor float.
    return {
        name: _number(value) if type(value).__name__ == "Decimal" else value
        for name, value in zip(names, row, strict=True)
    }


def _number(value: Any) -> int | float:
    return int(value) if value == int(value) else float(value)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise StoreError(f"store error: {error}") from error
    except Exception as error:
        if type(error).__module__.startswith("psycopg"):
            raise StoreError(f"store error: {error}") from error
        raise


def insertion(table: str, columns: Iterable[str]) -> str:
    """The statement that inserts one row."""
    names = list(columns)
    quoted = ", ".join(f'"{name}"' for name in names)
    return f'INSERT INTO "{table}" ({quoted}) VALUES ({", ".join("?" * len(names))})'


# Parts of SQL conditions.


def places(values: Collection[object]) -> str:
    """The placeholders of `IN (…)`; NULL for none, since not every database takes an empty list."""
    return ", ".join("?" * len(values)) or "NULL"


def literals(values: Iterable[str]) -> str:
    """Words of ours as the literals of `IN (…)`. Never for text from outside."""
    return ", ".join(f"'{value}'" for value in values)


def id_pages(ids: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Ids without repetition, in parts that one statement takes."""
    every = list(dict.fromkeys(ids))
    return (tuple(every[start : start + IDS_AT_ONCE]) for start in range(0, len(every), IDS_AT_ONCE))


def substring_pattern(text: str) -> str:
    """The pattern of `LOWER(column) LIKE ? ESCAPE '!'` for a text, ignoring case."""
    return f"%{escape_like(text.lower())}%"


def prefix_pattern(text: str) -> str:
    """The pattern of `column LIKE ? ESCAPE '!'` for a prefix."""
    return f"{escape_like(text)}%"


def escape_like(text: str) -> str:
    """Escape a text for a pattern of `LIKE … ESCAPE '!'`."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


# Migrations.


def migrate(database: Database) -> None:
    """Migrate the store to the current schema. One small query if it is current."""
    connection = database.connect()
    try:
        newest = len(_steps())
        version = _version(connection)
        if version > newest:
            raise StoreUnavailable(
                f"the store {database.url} was written by a newer Proctor (version {version}, this one knows "
                f"{newest})\nUpgrade Proctor, or choose another store with --store."
            )
        if version < newest:
            _upgrade(connection)
    finally:
        connection.close()


def _upgrade(connection: Connection) -> None:
    connection.begin()
    try:
        connection.script('CREATE TABLE IF NOT EXISTS "schema_version" ("version" BIGINT NOT NULL)')
        # Read again inside the transaction: another process may have migrated.
        done = _version(connection)
        for number, name in enumerate(_steps(), start=1):
            if number > done:
                connection.script(_text(name))
                connection.run('DELETE FROM "schema_version"')
                connection.run('INSERT INTO "schema_version" ("version") VALUES (?)', (number,))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _version(connection: Connection) -> int:
    try:
        rows = connection.rows('SELECT "version" FROM "schema_version"')
    except StoreError as error:
        if "schema_version" in str(error):
            return 0
        raise
    return int(rows[0]["version"]) if rows else 0


def _steps() -> list[str]:
    folder = resources.files("proctor.store") / "migrations"
    return sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))


def _text(name: str) -> str:
    return (resources.files("proctor.store") / "migrations" / name).read_text(encoding="utf-8")
