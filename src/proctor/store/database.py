"""The two databases a store can live in, behind one set of statements.

SQLite through the standard library, PostgreSQL through psycopg (an extra). Statements are written
once, with `?` for parameters and double quotes around our mixed-case names; what differs between
the two is here and nowhere else. SQLAlchemy was measured and left out: importing it takes 0.5 s
of every command, thirty times what `sqlite3` takes, and writing costs twice the processor time.

Knows nothing of batches or sessions.
"""

import re
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from proctor.errors import StoreError, StoreUnavailable

Row = dict[str, Any]


R = TypeVar("R")


# Longer than the longest transaction seen with 100,000 items; a writer that waits longer is stuck.
LOCK_TIMEOUT_SECONDS = 30


SCRIPT_LOCK = 5_077_628


TURN_LOCK = 5_077_629
"""Any numbers that nobody else locks in a PostgreSQL database."""


_PASSWORD = re.compile(r"(?<=[^:/@]):[^:/@]+(?=@)|(?<=[?&])password=[^&]*&?", re.IGNORECASE)


def extended(shape: type[R], row: Mapping[str, object], **more: object) -> R:  # noqa: ARG001  a type
    """A row with further keys, of which `shape` names all. A sealed row stays one: nothing is read here."""
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
        """Run several statements, separated by semicolons, while nobody else runs a script."""

    def begin(self) -> None:
        """Begin a transaction that will write."""

    def hold(self, table: str) -> None:
        """Keep all others from writing to a table until the transaction ends."""

    def seal_for(self, scope: str) -> None:
        """What is written until the transaction ends belongs to a run or an evaluator: its key seals it."""

    def forget(self) -> None:
        """Leave nothing on the disk of what was deleted or written over. Nobody else may be writing."""

    def take_turn(self) -> None:
        """Wait until nobody else who took a turn is in its transaction any more."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class Database(Protocol):
    """Where a store lives."""

    url: str
    """As it may be shown: without a password."""

    def connect(self) -> Connection:
        """A new connection, for the calling thread."""


def open_database(url: str) -> Database:
    """The database at `url`: a path or `sqlite:///path`, or `postgresql://…`."""
    if url.startswith(("postgresql://", "postgres://")):
        return PostgresDatabase(url)
    return SqliteDatabase(Path(url.removeprefix("sqlite:///")))


class SqliteDatabase:
    """A file. Many may read while one writes; writers wait for each other."""

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
            # NORMAL loses no committed batch when the process dies, only when the machine does.
            raw.execute("PRAGMA synchronous=NORMAL")
            # For each connection, of which a batch has some six; four times as much was no quicker.
            raw.execute("PRAGMA cache_size=-8000")
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(
                f"cannot open the store {self.path}: {error}\nName another with --store or --home."
            ) from error
        return SqliteConnection(raw)


class SqliteConnection:
    """A connection to a file."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        return list(self.stream(sql, parameters))

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Row]:
        with _told_as_store_error():
            cursor = self._raw.execute(sql, parameters)
            names = [column[0] for column in cursor.description or ()]
            for row in cursor:
                yield dict(zip(names, row, strict=True))

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        with _told_as_store_error():
            return self._raw.execute(sql, parameters).rowcount

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        with _told_as_store_error():
            self._raw.executemany(sql, parameters)

    def script(self, sql: str) -> None:
        # `executescript` would commit the transaction we are in.
        for statement in _statements(sql.replace("/* without rowid */", "WITHOUT ROWID")):
            self.run(statement)

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE")

    def hold(self, table: str) -> None:
        """Whoever has begun to write is the only one anyway."""

    def take_turn(self) -> None:
        """As above."""

    def seal_for(self, scope: str) -> None:
        """Nothing is sealed here."""

    def forget(self) -> None:
        # What was written over lies on in free pages, and in the log that is merged into the file.
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
    """A server, for several machines on one store."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.url = _PASSWORD.sub("", url)

    def connect(self) -> "PostgresConnection":
        # An extra: imported only by those who use it.
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
    """A connection to a server, on which each statement stands for itself until `begin`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._streams = 0

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        with _told_as_store_error(), self._raw.cursor() as cursor:
            cursor.execute(_percent(sql), parameters)
            return _as_rows(cursor)

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Row]:
        self._streams += 1
        with (
            _told_as_store_error(),
            self._raw.transaction(),
            self._raw.cursor(name=f"stream{self._streams}") as cursor,
        ):
            cursor.execute(_percent(sql), parameters)
            while page := cursor.fetchmany(1000):
                names = [column.name for column in cursor.description]
                yield from (_plain(names, row) for row in page)

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        with _told_as_store_error(), self._raw.cursor() as cursor:
            cursor.execute(_percent(sql), parameters)
            return int(cursor.rowcount)

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        with _told_as_store_error(), self._raw.cursor() as cursor:
            cursor.executemany(_percent(sql), list(parameters))

    def script(self, sql: str) -> None:
        # Two that create the same table at once would get an error, with or without IF NOT EXISTS.
        self.run(f"SELECT pg_advisory_xact_lock({SCRIPT_LOCK})")
        for statement in _statements(sql):
            self.run(statement)

    def begin(self) -> None:
        self.run("BEGIN")

    def hold(self, table: str) -> None:
        self.run(f'LOCK TABLE "{table}" IN EXCLUSIVE MODE')

    def take_turn(self) -> None:
        # Not the table's lock: writers that hold each other's texts up would wait for it in a circle.
        self.run(f"SELECT pg_advisory_xact_lock({TURN_LOCK})")

    def seal_for(self, scope: str) -> None:
        """Nothing is sealed here."""

    def forget(self) -> None:
        self.run("VACUUM FULL")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        self.run("ROLLBACK")

    def close(self) -> None:
        self._raw.close()


class Readers:
    """One connection a thread, kept for its next query."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._local = threading.local()
        self._all: list[Connection] = []
        self._lock = threading.Lock()

    def connection(self) -> Connection:
        """This thread's own connection."""
        held: Connection | None = getattr(self._local, "connection", None)
        if held is None:
            held = self._local.connection = self._database.connect()
            with self._lock:
                self._all.append(held)
        return held

    def close(self) -> None:
        with self._lock:
            for connection in self._all:
                connection.close()
            self._all.clear()
        self._local = threading.local()


def _write_ahead(raw: sqlite3.Connection) -> None:
    """Switch a new file to write-ahead logging, which several processes may try at once."""
    patience = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while raw.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            raw.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            # The busy timeout does not cover this change.
            if time.monotonic() > patience:
                raise
            time.sleep(0.01)


def _statements(sql: str) -> Iterator[str]:
    without_comments = "\n".join(line for line in sql.splitlines() if not line.startswith("--"))
    return (part.strip() for part in without_comments.split(";") if part.strip())


def _percent(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


def _as_rows(cursor: Any) -> list[Row]:
    if cursor.description is None:
        return []
    names = [column.name for column in cursor.description]
    return [_plain(names, row) for row in cursor.fetchall()]


def _plain(names: Sequence[str], row: Sequence[object]) -> Row:
    # PostgreSQL's sums of whole numbers are Decimal, which neither JSON nor arithmetic with float likes.
    return {
        name: _number(value) if type(value).__name__ == "Decimal" else value
        for name, value in zip(names, row, strict=True)
    }


def _number(value: Any) -> int | float:
    return int(value) if value == int(value) else float(value)


@contextmanager
def _told_as_store_error() -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise StoreError(f"the store answers: {error}") from error
    except Exception as error:
        if type(error).__module__.startswith("psycopg"):
            raise StoreError(f"the store answers: {error}") from error
        raise


def insertion(table: str, columns: Iterable[str]) -> str:
    """The statement that inserts one row."""
    names = list(columns)
    quoted = ", ".join(f'"{name}"' for name in names)
    return f'INSERT INTO "{table}" ({quoted}) VALUES ({", ".join("?" * len(names))})'


# Parts of SQL conditions that stand for values of a caller: one of several, a text that holds another.


def places(values: Collection[object]) -> str:
    """What stands between the brackets of `IN (…)` for so many values.

    None is no value, since not every database takes an empty list.
    """
    return ", ".join("?" * len(values)) or "NULL"


def containing(text: str) -> str:
    """The pattern for `LOWER(column) LIKE ? ESCAPE '!'`: a text occurs, in whatever case."""
    return f"%{literally(text.lower())}%"


def beginning(text: str) -> str:
    """The pattern for `column LIKE ? ESCAPE '!'`: it begins so."""
    return f"{literally(text)}%"


def literally(text: str) -> str:
    """A text inside a pattern of `LIKE … ESCAPE '!'`, where it means itself."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


# Bring a store to the shape this version of Proctor writes.


def migrate(database: Database) -> None:
    """Make the store current. Costs one small query when it already is."""
    connection = database.connect()
    try:
        newest = len(_steps())
        found = _version(connection)
        if found > newest:
            raise StoreUnavailable(
                f"the store {database.url} was written by a newer Proctor (version {found}, this one knows "
                f"{newest})\nUpgrade Proctor, or name another store with --store."
            )
        if found < newest:
            _upgrade(connection)
    finally:
        connection.close()


def _upgrade(connection: Connection) -> None:
    connection.begin()
    try:
        connection.script('CREATE TABLE IF NOT EXISTS "schema_version" ("version" BIGINT NOT NULL)')
        # Asked again inside the transaction: another process may have been quicker.
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
