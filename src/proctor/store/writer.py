"""Writer thread: many small changes, few commits.

All threads pass rows to one thread, which commits at most about a hundred times a second. Changes to a row
that is not yet written are merged, so a short item is one insert and one update, whatever its number of
states. Rows wait `GATHER_SECONDS` for others, and a producer pauses once they have waited for
`MOST_BEHIND_SECONDS`: one process on SQLite was measured to commit within 30 ms. That is no bound:
PostgreSQL took up to 41 ms, and a saturated machine takes longer.

Once a second, and at the first commit after another connection has written, it also renews the heartbeat of
the batch, reads abort requests, and checks the ownership: a process that was suspended while another claimed
its batch can no longer write.
"""

import math
import os
import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from proctor.errors import OwnershipLost, StoreError
from proctor.item import FINISHED
from proctor.json_values import JsonObject
from proctor.json_values import timestamp as timestamp
from proctor.store.database import KEEP, Connection, Database, in_transaction
from proctor.store.signatures import sign_items
from proctor.store.tables import COLUMNS

T = TypeVar("T")
Key = tuple[str, ...]
GATHER_SECONDS = 0.01
"""Rows wait this long for others: a commit costs about as much as writing two hundred rows."""
MOST_BEHIND_SECONDS = 0.015
"""Rows that have waited longer wait for the interpreter, which a busy event loop holds: producers pause."""
HEARTBEAT_SECONDS = 1.0
KEYS = {"batches": ("runId",), "batch_items": ("runId", "id"), "sessions": ("id",)}
"""Tables whose rows change after they are written, with their primary keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """The batch that this process runs, and this process's name as its owner."""

    run_id: str
    owner: str
    aborted: Callable[[], None]
    """Called once, from the writer thread, when an abort was requested."""
    failed: Callable[[StoreError], None]
    """Called once, from the writer thread, when nothing more can be written."""


@dataclass(slots=True)
class RowGroups:
    """Rows to write, by table. Changes to a row that is not yet written are merged into it."""

    appended: dict[str, list[tuple[object, ...]]] = field(default_factory=lambda: defaultdict(list))
    added: dict[tuple[str, Key], JsonObject] = field(default_factory=dict)
    changed: dict[tuple[str, Key], JsonObject] = field(default_factory=dict)
    count: int = 0

    def append(self, table: str, row: tuple[object, ...]) -> None:
        """Add a row that will never change, its values in the order of the table's columns."""
        self.appended[table].append(row)
        self.count += 1

    def add(self, table: str, key: Key, row: JsonObject) -> None:
        """Add a row that may change later."""
        self.added[table, key] = row
        self.count += 1

    def change(self, table: str, key: Key, values: Mapping[str, object]) -> None:
        """Change some columns of a row."""
        place = table, key
        row = self.added.get(place) or self.changed.get(place)
        if row is None:
            self.changed[place] = dict(values)
            self.count += 1
        else:
            row.update(values)

    def of_table(self, table: str, columns: Sequence[str]) -> list[JsonObject]:
        """The rows of a table that will never change, by column."""
        return [dict(zip(columns, row, strict=True)) for row in self.appended.get(table, ())]

    def merge(self, later: "RowGroups") -> None:
        """Add rows that were recorded after these."""
        for table, rows in later.appended.items():
            self.appended[table].extend(rows)
            self.count += len(rows)
        self.added.update(later.added)
        self.count += len(later.added)
        for (table, key), values in later.changed.items():
            self.change(table, key, values)


@dataclass(slots=True)
class _Pending:
    rows: RowGroups = field(default_factory=RowGroups)
    submitted: list[tuple[Callable[[Connection], Any], Future[Any]]] = field(default_factory=list)


class Writer:
    """Writes rows to the store. Safe to call from any thread."""

    def __init__(self, database: Database, ownership: Ownership | None = None) -> None:
        self._database = database
        self._ownership = ownership
        self._abort_reported = False
        self._checked_version: int | None = None
        """Version of the data when the ownership was last checked."""
        self._next_heartbeat = 0.0
        self._pending = _Pending()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._must_check = True
        """Whether `_check_open` has something to do: no rows were passed since the last commit, or none can
        be passed any more."""
        self._hurry = threading.Event()
        self._first_at: float | None = None
        """When the first of the pending rows was passed, of the monotonic clock; None: there is none."""
        self._committing_since: float | None = None
        """The same of the rows that are being committed."""
        self._committed_at = -math.inf
        """When the last commit ended."""
        self._closing = False
        self._answering: list[Future[Any]] = []
        """Futures of the commit under way that were not cancelled."""
        self._failure: StoreError | None = None
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        """Whether rows wait for longer than they should, so that a producer has to pause."""
        since = self._committing_since or self._first_at
        return since is not None and time.monotonic() - since > MOST_BEHIND_SECONDS

    def hurry(self) -> None:
        """Let the rows passed so far wait for no others, unless the last commit has only just ended.

        Of 200 long items that end at the same time, each would otherwise have a commit of its own.
        """
        if time.monotonic() - self._committed_at > GATHER_SECONDS:
            self._hurry.set()

    def append(self, table: str, row: tuple[object, ...]) -> None:
        """Add a row that will never change, its values in the order of the table's columns."""
        with self._lock:
            if self._must_check:
                self._check_open()
            # As `RowGroups.append`: called five times an item.
            rows = self._pending.rows
            rows.appended[table].append(row)
            rows.count += 1

    def add(self, table: str, key: Key, row: JsonObject) -> None:
        """Add a row that may change later."""
        with self._lock:
            if self._must_check:
                self._check_open()
            self._pending.rows.add(table, key, row)

    def change(self, table: str, key: Key, values: Mapping[str, object]) -> None:
        """Change some columns of a row."""
        with self._lock:
            if self._must_check:
                self._check_open()
            self._pending.rows.change(table, key, values)

    def merge(self, rows: RowGroups) -> None:
        """Add rows that another process has recorded."""
        with self._lock:
            if self._must_check:
                self._check_open()
            self._pending.rows.merge(rows)

    def submit(self, work: Callable[[Connection], T], *, at_once: bool = True) -> "Future[T]":
        """Run `work` in the next commit, after all rows passed before it.

        With `at_once`, that commit does not wait for further rows.
        """
        answer: Future[T] = Future()
        with self._lock:
            if self._failure or self._closing:
                answer.set_exception(self._failure or StoreError("the store is closed"))
                return answer
            self._pending.submitted.append((work, answer))
        if at_once:
            self._hurry.set()
        self._wake.set()
        return answer

    def flush(self, *, at_once: bool = True) -> "Future[None]":
        """A future that is done when all rows passed so far are committed."""
        return self.submit(_nothing, at_once=at_once)

    def close(self) -> None:
        """Write the remaining rows and stop. Raises the error of the last commit."""
        with self._lock:
            self._closing = self._must_check = True
        self._hurry.set()
        self._wake.set()
        self._thread.join()
        if self._failure:
            raise self._failure

    def _check_open(self) -> None:
        """Before rows are passed, with the lock held: raise if they cannot be, and wake the writer."""
        if self._failure:
            raise self._failure
        if self._closing:
            raise StoreError("the store is closed")
        self._must_check = False
        self._first_at = time.monotonic()
        self._wake.set()

    def _work(self) -> None:
        connection: Connection | None = None
        try:
            connection = self._database.connect()
            while not self._closing:
                self._wake.wait(HEARTBEAT_SECONDS if self._ownership else None)
                if self._wake.is_set() and not self._closing:
                    self._gather()
                self._commit(connection)
            # With nothing left to write, ownership no longer matters.
            if self._pending.rows.count or self._pending.submitted:
                self._commit(connection)
            if self._ownership:
                connection.checkpoint()
        except Exception as error:
            self._fail(error)
        finally:
            if connection is not None:
                connection.close()

    def _gather(self) -> None:
        """Wait for further rows, unless somebody waits for the commit."""
        waited = 0.0 if self._first_at is None else time.monotonic() - self._first_at
        if waited < GATHER_SECONDS:
            self._hurry.wait(GATHER_SECONDS - waited)

    def _commit(self, connection: Connection) -> None:
        with self._lock:
            batch, self._pending = self._pending, _Pending()
            self._wake.clear()
            self._hurry.clear()
            self._must_check = True
            self._committing_since, self._first_at = self._first_at, None
            # A cancelled future gets no result; its work is still done.
            self._answering = [
                answer for _, answer in batch.submitted if answer.set_running_or_notify_cancel()
            ]
        try:
            values = in_transaction(connection, lambda: self._write_batch(connection, batch))
        except OwnershipLost:
            self._settle_late(connection, batch.rows)
            raise
        self._committing_since, self._committed_at = None, time.monotonic()
        answering, self._answering = self._answering, []
        for answer in answering:
            answer.set_result(values[answer])

    def _write_batch(self, connection: Connection, batch: _Pending) -> dict[Future[Any], Any]:
        """Write rows and do what was submitted; the results of that."""
        if self._ownership:
            connection.set_key_scope(self._ownership.run_id)
        self._check_ownership(connection)
        self._write(connection, batch.rows)
        self._sign(connection, batch.rows)
        return {answer: work(connection) for work, answer in batch.submitted}

    @staticmethod
    def _settle_late(connection: Connection, rows: RowGroups) -> None:
        """Write what calls have cost that the batch's new owner could only estimate."""
        # It imports this module; and this is rare.
        from proctor.store.ledger import settle_late

        in_transaction(connection, lambda: settle_late(connection, rows, datetime.now(UTC)))

    def _check_ownership(self, connection: Connection) -> None:
        if self._ownership is None:
            return
        mine = self._ownership
        # The row contains the plan: with 10,000 entries, writing it takes longer than the commit.
        version, now = connection.data_version(), time.monotonic()
        if version is not None and version == self._checked_version and now < self._next_heartbeat:
            return
        self._checked_version, self._next_heartbeat = version, now + 0.9 * HEARTBEAT_SECONDS
        # An UPDATE, not a SELECT: no other process can claim the batch until this is committed.
        is_ours = connection.run(
            'UPDATE "batches" SET "heartbeatAt" = ? WHERE "runId" = ? AND "owner" = ?',
            (timestamp(connection.server_time(datetime.now(UTC))), mine.run_id, mine.owner),
        )
        if not is_ours:
            raise OwnershipLost(f"the batch {mine.run_id} was taken over by another process")
        (row,) = connection.rows('SELECT "abortRequestedAt" FROM "batches" WHERE "runId" = ?', (mine.run_id,))
        if row["abortRequestedAt"] and not self._abort_reported:
            self._abort_reported = True
            mine.aborted()

    def _write(self, connection: Connection, batch: RowGroups) -> None:
        groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[object, ...]]] = defaultdict(list)
        for (table, _), row in batch.added.items():
            groups["insert", table, tuple(row)].append(tuple(row.values()))
        # Sorted: two processes that write the same texts in different orders could deadlock.
        batch.appended.get("blobs", []).sort()
        for table, rows in batch.appended.items():
            groups["insert", table, COLUMNS[table]].extend(rows)
        for (table, key), values in batch.changed.items():
            groups["update", table, tuple(values)].append((*values.values(), *key))
        for (kind, table, columns), parameters in groups.items():
            if kind == "insert":
                # Only texts can be passed twice.
                connection.insert_many(table, parameters, columns, KEEP if table == "blobs" else "")
            else:
                where = " AND ".join(f'"{name}" = ?' for name in KEYS[table])
                connection.update_many(table, columns, where, parameters)

    def _sign(self, connection: Connection, batch: RowGroups) -> None:
        ended = defaultdict[str, list[str]](list)
        for (table, key), values in batch.changed.items():
            if table == "batch_items" and values.get("status") in FINISHED:
                ended[key[0]].append(key[1])
        for run_id, item_ids in ended.items():
            sign_items(connection, run_id, item_ids, batch)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._failure, self._must_check = _as_store_error(error), True
            submitted, self._pending = self._pending.submitted, _Pending()
            waiting = [answer for _, answer in submitted if answer.set_running_or_notify_cancel()]
        for answer in self._answering + waiting:
            answer.set_exception(self._failure)
        if self._ownership:
            self._ownership.failed(self._failure)


def _as_store_error(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    # Some errors have no text of their own.
    cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return StoreError(
        f"the store cannot be written: {cause}\nCheck it with `proctor store check`, then resume the run."
    )


def _nothing(_: Connection) -> None:
    return None


# Owners of batches.

SILENCE = timedelta(seconds=10)
"""A heartbeat comes every second; a busy disk may delay it by some seconds."""


def this_process() -> str:
    """A unique name for this process as the owner of a batch."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid)}:{secrets.token_hex(4)}"


def is_alive(owner: str, heartbeat: datetime | None, now: datetime) -> bool:
    """Whether the process that owns a batch is alive."""
    host, pid, started, *_ = [*owner.rsplit(":", 3), "", "", ""]
    if host == socket.gethostname() and pid.isdigit() and Path("/proc/self/stat").exists():
        # A stopped process (Ctrl-Z) still owns its batch: it continues later.
        return bool(started) and _started(int(pid)) == started
    return heartbeat is not None and now - heartbeat < SILENCE


def _started(pid: int) -> str:
    try:
        # The 22nd field of stat, counted after the name, which may contain spaces and brackets.
        stat = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return ""
    return "" if stat[0] == "Z" else stat[19]
