"""The interface of databases, SQLite behind it (PostgreSQL is in `postgres`), and the migrations.

Statements are written once, with `?` for parameters and quoted mixed-case names. SQLAlchemy was measured and
rejected: importing it adds 0.5 s to every command, thirty times as much as `sqlite3`, and writing takes twice
the CPU time.
"""

import os
import random
import re
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import quote

from proctor.errors import StoreDisconnected, StoreError, StoreUnavailable
from proctor.secrets import open_private, private_folder
from proctor.store.tables import COLUMNS

if TYPE_CHECKING:
    from proctor.store.codec import Codec
    from proctor.store.signatures import SigningKey

Row = dict[str, Any]
Columns = dict[str, tuple[Any, ...]]
R = TypeVar("R")

LOCK_TIMEOUT_SECONDS = 120
"""How long a statement waits for the writers of this and other processes, before it fails."""
LOCK_TURN_SECONDS = 0.05
"""How long SQLite itself waits before it is asked again. The longer it waits, the longer it sleeps between
two looks, up to 0.1 s: writers that come and go quickly would always be first."""
HOLD_SECONDS = 0.05
"""After this long, a transaction that can be split ends and another begins. A quarter of the 0.2 s that
others are to wait at most: the last step and the commit come on top, on a busy machine."""
TRANSACTION_TRIES = 5
"""Tries of a transaction that loses its connection."""
IDS_AT_ONCE = 500
"""Ids in one statement."""
PAGE_ROWS = 1000
"""Rows that are read or inserted at a time."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def extended(shape: type[R], row: Mapping[str, object], **more: object) -> R:  # noqa: ARG001  a type
    """A row with further keys; `shape` has all keys. Reads no value, so a `LockedRow` stays locked."""
    return cast(R, cast(Row, row) | more)


class Connection(ABC):
    """One connection, used by one thread at a time."""

    codec: "Codec | None" = None
    """Changes values when they are bound by `insert` or `update`, and when they come back; None: they are
    written and read as they are."""
    _key_scope = ""

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        """All rows of a query, as dictionaries."""
        rows = self._rows(sql, parameters)
        codec = self._active_codec
        return [codec.opened(row, sql) for row in rows] if codec else rows

    def stream(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Row]:
        """The rows of a query one by one, in memory that does not grow with their number."""
        rows = self._stream(sql, parameters)
        codec = self._active_codec
        return (codec.opened(row, sql) for row in rows) if codec else rows

    def tuples(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """All rows of a query, as tuples: a third of the time of dictionaries."""
        if self._active_codec:
            return [tuple(row.values()) for row in self.rows(sql, parameters)]
        return self._tuples(sql, parameters)

    def values(self, kind: type[R], sql: str, parameters: Sequence[object] = ()) -> list[R]:  # noqa: ARG002
        """The values of the only column of a query."""
        return [cast(R, value) for (value,) in self.tuples(sql, parameters)]

    def value(self, kind: type[R], sql: str, parameters: Sequence[object] = ()) -> R | None:
        """The first of them; None: there is no row, or it is null."""
        return next(iter(self.values(kind, sql, parameters)), None)

    def count(self, source: str, parameters: Sequence[object] = ()) -> int:
        """How many rows a table has, or those that meet a condition after it."""
        return self.value(int, f"SELECT COUNT(*) FROM {source}", parameters) or 0

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[Columns]:
        """The rows of a query, `PAGE_ROWS` at a time, as columns: for computations over all of them."""
        if self._active_codec:
            return pages_of_columns(self.stream(sql, parameters))
        return self._columns(sql, parameters)

    def insert(self, table: str, row: Mapping[str, object] | Sequence[object], on_conflict: str = "") -> None:
        """Insert a row: its values by column, or all of them in the order of the table."""
        if isinstance(row, Mapping):
            self.insert_many(table, [tuple(row.values())], tuple(row), on_conflict)
        else:
            self.insert_many(table, [row], on_conflict=on_conflict)

    def insert_many(
        self,
        table: str,
        rows: Iterable[Sequence[object]],
        columns: Sequence[str] = (),
        on_conflict: str = "",
    ) -> None:
        """Insert rows with values of these columns, or of all; `on_conflict` ends the statement."""
        columns = tuple(columns) or COLUMNS[table]
        if codec := self._active_codec:
            rows = codec.sealed(table, columns, rows, self._key_scope)
        self._insert(table, columns, rows, on_conflict)

    def update(
        self,
        table: str,
        values: Mapping[str, object],
        where: str,
        parameters: Sequence[object] = (),
        *,
        computed: Mapping[str, str] = {},
    ) -> int:
        """Change columns of rows, `computed` ones to an expression; return the number of rows."""
        columns, row = tuple(values), (*values.values(), *parameters)
        if codec := self._active_codec:
            (row,) = map(tuple, codec.sealed(table, columns, [row], self._key_scope))
        return self.run(updating(table, columns, where, computed), row)

    def update_many(
        self, table: str, columns: Sequence[str], where: str, rows: Iterable[Sequence[object]]
    ) -> None:
        """Change the same columns of rows, for each set of their values and the parameters of `where`."""
        if codec := self._active_codec:
            rows = codec.sealed(table, columns, rows, self._key_scope)
        self.run_many(updating(table, tuple(columns), where), rows)

    def is_one_of(self, column: str, place: str, texts: Iterable[str]) -> tuple[str, list[object]]:
        """A condition: a column, which is `place`, `table.column`, has one of these texts; its parameters."""
        codec = self._active_codec
        values = [form for text in texts for form in (codec.forms(place, text) if codec else [text])]
        return f"{quoted(column)} IN ({places(values)})", values

    @property
    def _active_codec(self) -> "Codec | None":
        return self.codec if self.codec is not None and self.codec.is_active else None

    def set_key_scope(self, scope: str) -> None:
        """Encrypt what is written in this transaction with the key of a run or an evaluator."""
        self._key_scope = scope

    def signing_key(self) -> "SigningKey | None":
        """The key that results are signed with; None: they are not signed."""
        return self.codec.signing_key() if self.codec else None

    @property
    def is_encrypted(self) -> bool:
        """Whether rows are encrypted, so that digests in them are read otherwise than they were written."""
        return self._active_codec is not None

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run one statement; the number of rows it touched. It writes its parameters as they are."""

    @abstractmethod
    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        """Run one statement for each set of parameters."""

    @abstractmethod
    def script(self, sql: str) -> None:
        """Run several statements, separated by semicolons, under a lock for scripts."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a write transaction."""

    @abstractmethod
    def server_time(self, now: datetime) -> datetime:
        """The time by which hosts that share the database agree, when the clock of this host says `now`."""

    @abstractmethod
    def data_version(self) -> int | None:
        """Unchanged only if no other connection has committed since the last call; None: unknown."""

    @abstractmethod
    def lock_table(self, table: str) -> None:
        """Lock a table for writing until the transaction ends."""

    @abstractmethod
    def purge(self) -> None:
        """Remove deleted and overwritten data from the disk. No other process may be writing."""

    @abstractmethod
    def checkpoint(self) -> None:
        """Write what is committed to the main file, where it is kept beside; others may go on meanwhile."""

    @abstractmethod
    def take_turn_lock(self) -> None:
        """Acquire a lock that only one transaction can have at a time."""

    @abstractmethod
    def commit(self) -> None:
        """Make the changes since `begin` permanent. Raises if they are not."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo the changes since `begin`, unless a lost connection has undone them."""

    @abstractmethod
    def close(self) -> None:
        """Close it for good: it does not connect again."""

    @abstractmethod
    def _rows(self, sql: str, parameters: Sequence[object]) -> list[Row]: ...

    @abstractmethod
    def _stream(self, sql: str, parameters: Sequence[object]) -> Iterator[Row]: ...

    @abstractmethod
    def _tuples(self, sql: str, parameters: Sequence[object]) -> list[tuple[object, ...]]: ...

    @abstractmethod
    def _columns(self, sql: str, parameters: Sequence[object]) -> Iterator[Columns]: ...

    def _insert(
        self, table: str, columns: tuple[str, ...], rows: Iterable[Sequence[object]], on_conflict: str
    ) -> None:
        self.run_many(f"{insertion(table, columns)} {on_conflict}", rows)


class Database(Protocol):
    """A database that a store can use."""

    url: str
    """Without a password."""

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written here, so that nothing is migrated or created."""

    def connect(self) -> Connection:
        """A new connection, for the calling thread."""

    def monitor(self) -> "ChangeMonitor":
        """A monitor of what all connections commit from now on."""


class ChangeMonitor(Protocol):
    """Whether anything was committed to a database, without reading its tables. For one thread at a time."""

    def version(self) -> int:
        """A number that changes at once, or milliseconds later, when something is committed."""

    def close(self) -> None:
        """Release what it watches the database with."""


def store_exists(url: str) -> bool:
    """Whether there is a database file at `url`; a server is taken to have one."""
    if url.startswith(("postgresql://", "postgres://")):
        return True
    return Path(url.removeprefix("sqlite:///")).exists()


def open_database(url: str) -> Database:
    """The database at `url`: a path or `sqlite:///path`, or `postgresql://…`."""
    if url.startswith(("postgresql://", "postgres://")):
        # Loaded late: most stores are files.
        from proctor.store.postgres import PostgresDatabase

        return PostgresDatabase(url)
    return SqliteDatabase(Path(url.removeprefix("sqlite:///")))


class SqliteDatabase:
    """A SQLite file in WAL mode: many readers, one writer at a time.

    Where nothing can be written, the file is opened for reading alone. A file that is empty, damaged or
    something else is refused, never replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def connect(self) -> "SqliteConnection":
        try:
            if not self.path.exists():
                self._create()
            self._check_file()
            if self.is_read_only:
                return SqliteConnection(self._open_for_reading(), self.path, is_read_only=True)
            return SqliteConnection(self._open(), self.path)
        except (sqlite3.Error, OSError) as error:
            raise self._unavailable(error) from error

    def monitor(self) -> "SqliteConnection":
        return self.connect()

    @property
    def is_read_only(self) -> bool:
        """Whether this user can read the file, but cannot write it or its write-ahead log."""
        return not (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK))

    def _create(self) -> None:
        """Create an empty database under another name, then put it in place: never half of one."""
        if _size(self._log):
            raise StoreUnavailable(
                f"the store {self.path} is missing, but its write-ahead log {self._log.name} is there\n"
                "Put the file back, or restore a backup: proctor store restore FILE. "
                f"To start over, move {self._log.name} away."
            )
        private_folder(self.path.parent)
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            os.close(open_private(new, os.O_WRONLY | os.O_CREAT))
            raw = sqlite3.connect(new, isolation_level=None)
            try:
                raw.execute("PRAGMA journal_mode=WAL")
            finally:
                raw.close()
            try:
                os.link(new, self.path)
            except FileExistsError:
                # Another process was faster: its file is used.
                pass
            except OSError:
                # A file system without links.
                new.rename(self.path)
        finally:
            new.unlink(missing_ok=True)

    def _check_file(self) -> None:
        """Raise `StoreUnavailable` for what is no file, or an empty one."""
        if self.path.is_dir():
            raise StoreUnavailable(
                f"the store {self.path} is a folder\nName a file in it: --store {self.path / 'proctor.db'}"
            )
        if not os.access(self.path, os.R_OK):
            raise StoreUnavailable(
                f"the store {self.path} cannot be read: permission denied\n"
                "Ask its owner, or choose another with --store or --home."
            )
        # Only its size: opening and closing the file would drop the locks of this process's connections.
        if not _size(self.path) and not self._wait_for_creator():
            raise StoreUnavailable(
                f"the store {self.path} is empty (0 bytes): its content is lost, or it never was a store\n"
                f"Restore a backup: proctor store restore FILE. To start over, delete {self.path}."
            )

    def _wait_for_creator(self) -> int:
        """The size of a file that another program may be writing the first page of."""
        raw = sqlite3.connect(self.path, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None)
        try:
            raw.execute("BEGIN IMMEDIATE")
            raw.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if _primary(error) != sqlite3.SQLITE_READONLY:
                raise
        finally:
            raw.close()
        return _size(self.path)

    def _open(self) -> sqlite3.Connection:
        raw = sqlite3.connect(
            self.path, timeout=LOCK_TURN_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _write_ahead(raw)
            # NORMAL loses no commit when the process dies, only when the machine does.
            raw.execute("PRAGMA synchronous=NORMAL")
            # Per connection; a batch has about six. Four times as much was not faster.
            raw.execute("PRAGMA cache_size=-8000")
        except BaseException:
            raw.close()
            raise
        return raw

    def _open_for_reading(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self.path.resolve()))}?mode=ro"
        # Immutable only as the second choice: it does not see what others write meanwhile.
        for more in ("", "&immutable=1"):
            if more and _size(self._log):
                raise StoreUnavailable(
                    f"the store {self.path} cannot be read: its folder is read-only, and {self._log.name} "
                    "holds changes that are not in the file yet\n"
                    "Copy both files to a folder that you can write, and name the copy with --store."
                )
            raw = sqlite3.connect(
                address + more,
                uri=True,
                timeout=LOCK_TIMEOUT_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                raw.execute('SELECT COUNT(*) FROM "sqlite_master"').fetchall()
                return raw
            except sqlite3.OperationalError as error:
                raw.close()
                if more or _primary(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                    raise
        raise AssertionError("unreachable")

    @property
    def _log(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        code = _primary(error) if isinstance(error, sqlite3.Error) else -1
        if code == sqlite3.SQLITE_CORRUPT:
            return StoreUnavailable(damage_text(self.path, str(error)))
        if code == sqlite3.SQLITE_NOTADB:
            return StoreUnavailable(
                f"{self.path} is not a store: it is not a SQLite database, or its first page is overwritten\n"
                "Choose another file with --store. If it was a store, restore a backup: "
                "proctor store restore FILE"
            )
        return StoreUnavailable(
            f"cannot open the store {self.path}: {error}\nChoose another with --store or --home."
        )


def damage_text(path: Path, problem: str) -> str:
    """The message about a damaged store: its file, the problem and what to do."""
    return (
        f"the store {path} is damaged: {problem}\n"
        "See what can be read: proctor store check. Restore a backup: proctor store restore FILE. "
        "Without one, save the readable rows to a new file: proctor store copy DAMAGED NEW --skip-damaged"
    )


class SqliteConnection(Connection):
    """A connection to a SQLite file."""

    def __init__(self, raw: sqlite3.Connection, path: Path, *, is_read_only: bool = False) -> None:
        self._raw = raw
        self._path = path
        self._begin = "BEGIN" if is_read_only else "BEGIN IMMEDIATE"

    def _rows(self, sql: str, parameters: Sequence[object]) -> list[Row]:
        return list(self._stream(sql, parameters))

    def _stream(self, sql: str, parameters: Sequence[object]) -> Iterator[Row]:
        with store_errors(self._path):
            cursor = self._execute(sql, parameters)
            names = [column[0] for column in cursor.description or ()]
            for row in cursor:
                yield dict(zip(names, row, strict=True))

    def _tuples(self, sql: str, parameters: Sequence[object]) -> list[tuple[object, ...]]:
        with store_errors(self._path):
            return self._execute(sql, parameters).fetchall()

    def _columns(self, sql: str, parameters: Sequence[object]) -> Iterator[Columns]:
        with store_errors(self._path):
            cursor = self._execute(sql, parameters)
            names = [column[0] for column in cursor.description or ()]
            while page := cursor.fetchmany(PAGE_ROWS):
                yield dict(zip(names, zip(*page, strict=True), strict=True))

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        with store_errors(self._path):
            return self._execute(sql, parameters).rowcount

    def _execute(self, sql: str, parameters: Sequence[object]) -> sqlite3.Cursor:
        """Run a statement; wait with patience while others write."""
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            try:
                return self._raw.execute(sql, parameters)
            except sqlite3.OperationalError as error:
                # Within a transaction, what others wrote since it began never goes away.
                is_busy = _primary(error) == sqlite3.SQLITE_BUSY and not self._raw.in_transaction
                if not is_busy or time.monotonic() > deadline:
                    raise
            # By chance: two processes that look in step would meet again.
            time.sleep(random.uniform(0, LOCK_TURN_SECONDS / 10))

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        with store_errors(self._path):
            self._raw.executemany(sql, parameters)

    def script(self, sql: str) -> None:
        # `executescript` would commit the current transaction.
        for statement in statements(sql.replace("/* without rowid */", "WITHOUT ROWID")):
            self.run(statement)

    def begin(self) -> None:
        self.run(self._begin)

    def version(self) -> int:
        """A number that changes when another connection has committed."""
        with store_errors():
            return int(self._raw.execute("PRAGMA data_version").fetchone()[0])

    def server_time(self, now: datetime) -> datetime:
        """The same: a file is used by one host."""
        return now

    def data_version(self) -> int | None:
        return self.version()

    def lock_table(self, table: str) -> None:
        """Not needed: SQLite has one write transaction at a time."""

    def checkpoint(self) -> None:
        # Passive: what a reader still needs is written at the next one.
        self.rows("PRAGMA wal_checkpoint(PASSIVE)")

    def take_turn_lock(self) -> None:
        """Not needed, as above."""

    def purge(self) -> None:
        # Words of deleted texts remain in the search index until its parts are merged.
        if self.rows('SELECT 1 FROM "sqlite_master" WHERE "name" = \'search_texts\''):
            self.run('INSERT INTO "search_texts" ("search_texts") VALUES (\'optimize\')')
        # Overwritten data remains in free pages and in the write-ahead log. Its truncation is left
        # out, without an error, when it has waited too long for others.
        self.rows(f"PRAGMA busy_timeout={LOCK_TIMEOUT_SECONDS * 1000}")
        for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            self.rows(statement)
        self.rows(f"PRAGMA busy_timeout={round(LOCK_TURN_SECONDS * 1000)}")

    def back_up(self, path: Path) -> None:
        """Copy the database to a new file, as it is now; others may write meanwhile."""
        os.close(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        copy = sqlite3.connect(path, isolation_level=None)
        try:
            with store_errors(self._path):
                # In one step: a reader does not block writers, and steps would restart with each commit.
                self._raw.backup(copy)
        finally:
            copy.close()

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        if self._raw.in_transaction:
            self.run("ROLLBACK")

    def close(self) -> None:
        self._raw.close()


class Transaction(Protocol):
    """Runs work in a transaction."""

    def __call__(self, work: Callable[[Connection], R]) -> R:
        """Commit the changes of `work`, or none of them if it raises."""


def in_transaction(connection: Connection, work: Callable[[], R]) -> R:
    """Do work in a transaction; repeat it after a lost connection."""
    for left in reversed(range(TRANSACTION_TRIES)):
        connection.begin()
        try:
            result = work()
            connection.commit()
            return result
        except StoreDisconnected:
            connection.rollback()
            if not left:
                raise
        except BaseException:
            connection.rollback()
            raise
        finally:
            connection.set_key_scope("")
    raise AssertionError("the last try returns or raises")


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


def statements(sql: str) -> Iterator[str]:
    """The statements of a script, without its comments."""
    without_comments = "\n".join(line for line in sql.splitlines() if not line.startswith("--"))
    return (part.strip() for part in without_comments.split(";") if part.strip())


def pages_of_columns(rows: Iterator[Row]) -> Iterator[Columns]:
    """Rows as columns, `PAGE_ROWS` at a time."""
    while page := list(islice(rows, PAGE_ROWS)):
        # By name: reading a value whose key is missing raises.
        yield {name: tuple([row[name] for row in page]) for name in page[0]}


def pages_of(values: Iterable[R], most: int) -> Iterator[list[R]]:
    """The values in lists of at most so many: what one transaction writes."""
    waiting = iter(values)
    while page := list(islice(waiting, most)):
        yield page


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _primary(error: sqlite3.Error) -> int:
    """The error code without its details; -1: not an error of SQLite itself."""
    return getattr(error, "sqlite_errorcode", -1) & 0xFF


_CAUSES = {
    sqlite3.SQLITE_FULL: (
        "its disk is full",
        "Free some space (see `df -h`), then resume the run: proctor resume RUN. Nothing committed is lost.",
    ),
    sqlite3.SQLITE_IOERR: (
        "its disk is full, reports errors, or a limit of file sizes is reached",
        "Look at `df -h`, `ulimit -f` and `dmesg`, then resume the run: proctor resume RUN. "
        "Nothing committed is lost.",
    ),
    sqlite3.SQLITE_BUSY: (
        f"another program has locked it for more than {LOCK_TIMEOUT_SECONDS} s",
        "End that program, such as a database browser or a backup (`lsof` names it), then try again.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "its folder is missing or has no permission",
        "Make the folder writable, or choose another store with --store or --home.",
    ),
}
"""Why a store cannot be written, and what to do, by the code of the error."""


@contextmanager
def store_errors(path: Path | None = None) -> Iterator[None]:
    """Turn errors of a database into a `StoreError`; `path` is that of a SQLite file."""
    try:
        yield
    except StoreError:
        raise
    except sqlite3.Error as error:
        if path is not None and _primary(error) in _DAMAGED:
            raise StoreError(damage_text(path, str(error))) from error
        if path is not None and _primary(error) == sqlite3.SQLITE_READONLY:
            raise StoreError(
                f"the store {path} is read-only here: it can be read, not changed\n"
                "Make the file and its folder writable, or choose another store with --store or --home."
            ) from error
        if path is not None and (cause := _CAUSES.get(_primary(error))):
            problem, fix = cause
            raise StoreError(f"the store {path} cannot be written: {problem} ({error})\n{fix}") from error
        raise StoreError(f"store error: {error}") from error
    except (OverflowError, UnicodeError) as error:
        raise StoreError(f"store error: {error}") from error
    except Exception as error:
        if type(error).__module__.startswith("psycopg"):
            raise StoreError(f"store error: {error}") from error
        raise


@lru_cache(maxsize=512)
def insertion(table: str, columns: tuple[str, ...]) -> str:
    """The statement that inserts one row."""
    names = ", ".join(f'"{name}"' for name in columns)
    return f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(columns))})'


def updating(table: str, columns: tuple[str, ...], where: str, computed: Mapping[str, str] = {}) -> str:
    """The statement that changes columns, of which some are computed."""
    assigned = [f'"{name}" = ?' for name in columns]
    assigned += [f'"{name}" = {expression}' for name, expression in computed.items()]
    return f'UPDATE "{table}" SET {", ".join(assigned)} WHERE {where}'


KEEP = "ON CONFLICT DO NOTHING"
"""Of an insertion: a row that is there already stays."""


# Parts of SQL conditions.


def quoted(column: str) -> str:
    """A column in SQL: `i.prompt` is `i."prompt"`."""
    table, dot, name = column.rpartition(".")
    return f'{table}{dot}"{name}"'


def places(values: Collection[object]) -> str:
    """The placeholders of `IN (…)`; NULL for none, since not every database takes an empty list."""
    return ", ".join("?" * len(values)) or "NULL"


def literals(values: Iterable[str]) -> str:
    """Constants as the literals of `IN (…)`. Never for untrusted text."""
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
        if version < newest and database.is_read_only:
            raise StoreUnavailable(
                f"the store {database.url} is read-only, and was written by an earlier Proctor "
                f"(version {version}, this one reads {newest})\n"
                "Open it once where it can be written, or copy the file and name the copy with --store."
            )
        if not version:
            _check_new(connection, database.url)
        if version < newest:
            _upgrade(connection, "sqlite" if database.url.startswith("sqlite:") else "postgresql")
    finally:
        connection.close()


def _check_new(connection: Connection, url: str) -> None:
    """Raise for a SQLite file with the tables of another program; a server may hold others as well."""
    if not url.startswith("sqlite:"):
        return
    tables = [row["name"] for row in connection.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if tables and "schema_version" not in tables:
        raise StoreUnavailable(
            f"{url.removeprefix('sqlite:///')} is not a store: it is a SQLite database with other tables "
            f"({', '.join(sorted(tables)[:3])})\nChoose another file with --store."
        )


def newest_schema() -> int:
    """The version of the schema that this Proctor writes."""
    return len(_steps())


def schema_versions(connection: Connection) -> tuple[int, int]:
    """The newest version of the schema, and that of a store; 0: it is empty."""
    return len(_steps()), _version(connection)


def _upgrade(connection: Connection, kind: str) -> None:
    connection.begin()
    try:
        connection.script('CREATE TABLE IF NOT EXISTS "schema_version" ("version" BIGINT NOT NULL)')
        # Read again inside the transaction: another process may have migrated.
        done = _version(connection)
        for number, name in enumerate(_steps(), start=1):
            if number > done:
                for text in _texts(name, kind):
                    connection.script(text)
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
        if "no such table" in str(error) or "does not exist" in str(error):
            return 0
        raise StoreUnavailable(str(error)) from error
    return int(rows[0]["version"]) if rows else 0


def _steps() -> list[str]:
    """The names of the migrations, in order, without those of one database alone."""
    folder = resources.files("proctor.store") / "migrations"
    return sorted(file.name for file in folder.iterdir() if re.fullmatch(r"\d+_\w+\.sql", file.name))


def _texts(name: str, kind: str) -> list[str]:
    """A migration, and what follows it on one kind of database: `0017_name.sqlite.sql`."""
    folder = resources.files("proctor.store") / "migrations"
    own = folder / f"{name.removesuffix('.sql')}.{kind}.sql"
    return [file.read_text(encoding="utf-8") for file in (folder / name, own) if file.is_file()]
