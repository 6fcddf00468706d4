"""PostgreSQL behind the interface of `database`, with psycopg (optional).

A server that restarts is waited for. Each commit that has written something sends a notification.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from proctor.errors import StoreDisconnected, StoreError, StoreUnavailable
from proctor.store.database import (
    PAGE_ROWS,
    Columns,
    Connection,
    R,
    Row,
    pages_of_columns,
    statements,
    store_errors,
)

if TYPE_CHECKING:
    import psycopg

RECONNECT_SECONDS = 120.0
"""How long a PostgreSQL server that restarts is waited for."""
FIRST_SECONDS = 10.0
"""How long a server is waited for that was not reached before and does not answer at all: a restart is over
by then, and a wrong address is reported soon."""
LONGEST_PAUSE_SECONDS = 1.0
SCRIPT_LOCK = 5_077_628
TURN_LOCK = 5_077_629
"""Advisory locks in PostgreSQL; arbitrary numbers."""
_PASSWORD = re.compile(r"(?<=[^:/@]):[^:/@]+(?=@)|(?<=[?&])password=[^&]*&?", re.IGNORECASE)
ROWS_TO_COPY = 8
"""From this number on, inserting rows takes longer than copying them, which is two messages more."""
VIRTUAL_COLUMNS_VERSION = 180_000
CHANNEL = "proctor_store"
"""Each commit that has written something sends one notification, which pages wait for."""
_BEFORE_COMMIT = (
    'SELECT pg_current_xact_id_if_assigned()::text AS "id", CASE WHEN pg_current_xact_id_if_assigned() '
    f"IS NOT NULL THEN pg_notify('{CHANNEL}', '')::text END AS \"sent\""
)


class PostgresDatabase:
    """A PostgreSQL server, for several machines on one store."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.url = _PASSWORD.sub("", url)
        self.is_read_only = False
        self._was_connected = False

    def connect(self) -> "PostgresConnection":
        """A new connection. A server that restarts is waited for; one that denies access is an error, at
        once unless there was a connection before."""
        connection = PostgresConnection(self._connect)
        self._was_connected = True
        return connection

    def monitor(self) -> "PostgresMonitor":
        return PostgresMonitor(self._connect)

    def _connect(self) -> "psycopg.Connection":
        # An optional dependency.
        try:
            import psycopg
            from psycopg.types.numeric import Int2Dumper
        except ImportError as error:
            raise StoreUnavailable(
                "a PostgreSQL store needs psycopg\nInstall it: pip install 'proctor[postgres]'"
            ) from error
        began, pause, denials = time.monotonic(), 0.05, 0
        while True:
            try:
                connection = psycopg.connect(self._url, autocommit=True)
                # As in SQLite: true is 1. No column is a boolean.
                connection.adapters.register_dumper(bool, Int2Dumper)
                return connection
            except psycopg.Error as error:
                state = "" if self._was_connected else _state(self._url)
                denials += state in ("OK", "NO_ATTEMPT")
                limit = FIRST_SECONDS if state == "NO_RESPONSE" else RECONNECT_SECONDS
                # The second time: it may have come up after the first try.
                if denials > 1 or time.monotonic() - began >= limit:
                    raise StoreUnavailable(f"cannot open the store: {error}") from error
            time.sleep(pause)
            pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)


def _state(url: str) -> str:
    """Whether a server accepts connections: OK, REJECT (it starts or ends), NO_RESPONSE or NO_ATTEMPT."""
    from psycopg import pq

    return pq.Ping(pq.PGconn.ping(url.encode())).name


JUMP_SECONDS = 0.5
"""A clock that was set by more is compared with the server's again."""
COMPARED_SECONDS = 60.0
"""Clocks are compared this often: they drift by milliseconds."""


class PostgresConnection(Connection):
    """A connection to a PostgreSQL server, in autocommit mode until `begin`.

    When the server restarts, queries outside of a transaction are repeated on a new connection; in a
    transaction, a `StoreDisconnected` is raised.
    """

    def __init__(self, connect: "Callable[[], psycopg.Connection]") -> None:
        self._connect = connect
        self._raw = connect()
        self._streams = 0
        self._in_transaction = False
        self._is_closed = False
        self._ahead = timedelta()
        """How far the server's clock is ahead of this host's."""
        self._compared_at: tuple[float, float] | None = None
        """When they were compared: this host's clock, and its monotonic clock."""

    def _rows(self, sql: str, parameters: Sequence[object]) -> list[Row]:
        return self._execute(sql, parameters, _as_rows, repeats=True)

    def _stream(self, sql: str, parameters: Sequence[object]) -> Iterator[Row]:
        self._reconnect_if_lost()
        self._streams += 1
        with (
            store_errors(),
            self._raw.transaction(),
            self._raw.cursor(name=f"stream{self._streams}") as cursor,
        ):
            cursor.execute(_percent(sql), parameters)
            while page := cursor.fetchmany(PAGE_ROWS):
                names = [column.name for column in cursor.description or ()]
                yield from (_plain(names, row) for row in page)

    def _tuples(self, sql: str, parameters: Sequence[object]) -> list[tuple[object, ...]]:
        return self._execute(sql, parameters, lambda cursor: cursor.fetchall(), repeats=True)

    def _columns(self, sql: str, parameters: Sequence[object]) -> Iterator[Columns]:
        return pages_of_columns(self._stream(sql, parameters))

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self._execute(sql, parameters, lambda cursor: int(cursor.rowcount), repeats=False)

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> None:
        rows = list(parameters)
        self._work(lambda cursor: cursor.executemany(_percent(sql), rows), repeats=False)

    def _insert(
        self, table: str, columns: tuple[str, ...], rows: Iterable[Sequence[object]], on_conflict: str
    ) -> None:
        rows = list(rows)
        if on_conflict or len(rows) < ROWS_TO_COPY:
            super()._insert(table, columns, rows, on_conflict)
            return
        names = ", ".join(f'"{name}"' for name in columns)

        def work(cursor: "psycopg.Cursor") -> None:
            with cursor.copy(f'COPY "{table}" ({names}) FROM STDIN') as copy:
                for row in rows:
                    copy.write_row(row)

        self._work(work, repeats=False)

    def script(self, sql: str) -> None:
        # Creating the same table twice at once fails, even with IF NOT EXISTS.
        self.run(f"SELECT pg_advisory_xact_lock({SCRIPT_LOCK})")
        # From this version on, a generated column may be computed when it is read.
        stored = "STORED" if self._raw.info.server_version < VIRTUAL_COLUMNS_VERSION else ""
        for statement in statements(sql.replace("/* stored */", stored)):
            self.run(statement)

    def begin(self) -> None:
        self._execute("BEGIN", (), _no_result, repeats=True)
        self._in_transaction = True

    def server_time(self, now: datetime) -> datetime:
        clock, monotonic = time.time(), time.monotonic()
        if self._compared_at is not None:
            passed = monotonic - self._compared_at[1]
            jumped = abs(clock - self._compared_at[0] - passed) > JUMP_SECONDS
        if self._compared_at is None or jumped or passed > COMPARED_SECONDS:
            (row,) = self.rows('SELECT EXTRACT(EPOCH FROM clock_timestamp()) AS "seconds"')
            self._ahead = timedelta(seconds=float(row["seconds"]) - time.time())
            self._compared_at = clock, monotonic
        return now + self._ahead

    def data_version(self) -> int | None:
        return None

    def lock_table(self, table: str) -> None:
        self.run(f'LOCK TABLE "{table}" IN EXCLUSIVE MODE')

    def checkpoint(self) -> None:
        """Not needed: the server keeps its files."""

    def take_turn_lock(self) -> None:
        # Not a table lock: it could deadlock with writers that wait for each other's blobs.
        self.run(f"SELECT pg_advisory_xact_lock({TURN_LOCK})")

    def purge(self) -> None:
        self.run("VACUUM FULL")

    def commit(self) -> None:
        (transaction,) = self.rows(_BEFORE_COMMIT)
        try:
            self.run("COMMIT")
        except StoreDisconnected:
            # Lost before the answer: the server knows whether it was committed.
            if transaction["id"] is None:
                return
            (row,) = self.rows('SELECT pg_xact_status(?::xid8) AS "status"', (transaction["id"],))
            if row["status"] != "committed":
                raise
        self._in_transaction = False

    def rollback(self) -> None:
        self._in_transaction = False
        if not self._raw.closed:
            self.run("ROLLBACK")

    def close(self) -> None:
        self._is_closed = True
        self._raw.close()

    def _execute(
        self, sql: str, parameters: Sequence[object], read: "Callable[[psycopg.Cursor], R]", *, repeats: bool
    ) -> R:
        def work(cursor: "psycopg.Cursor") -> R:
            cursor.execute(_percent(sql), parameters)
            return read(cursor)

        return self._work(work, repeats=repeats)

    def _work(self, work: "Callable[[psycopg.Cursor], R]", *, repeats: bool) -> R:
        self._reconnect_if_lost()
        try:
            with store_errors(), self._raw.cursor() as cursor:
                return work(cursor)
        except StoreError as error:
            if not self._raw.closed or self._is_closed:
                raise
            was_in_transaction, self._in_transaction = self._in_transaction, False
            if was_in_transaction or not repeats:
                raise StoreDisconnected(str(error)) from error
        return self._work(work, repeats=False)

    def _reconnect_if_lost(self) -> None:
        if self._raw.closed and not self._is_closed:
            self._raw = self._connect()


class PostgresMonitor:
    """Counts the notifications that commits send."""

    def __init__(self, connect: "Callable[[], psycopg.Connection]") -> None:
        self._connect = connect
        self._raw: psycopg.Connection | None = None
        self._version = 0

    def version(self) -> int:
        import psycopg

        try:
            if self._raw is None:
                self._raw = self._connect()
                self._raw.execute(f"LISTEN {CHANNEL}")
                self._version += 1
            connection = self._raw.pgconn
            connection.consume_input()
            while connection.notifies():
                self._version += 1
        except psycopg.Error:
            # Lost: what was committed until the next connection is unknown.
            self.close()
            self._version += 1
        return self._version

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()
            self._raw = None


def _percent(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


def _no_result(cursor: "psycopg.Cursor") -> None:  # noqa: ARG001 (a statement without rows)
    return None


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
