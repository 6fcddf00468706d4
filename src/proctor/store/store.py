"""The store: opened once, read from any thread, written through one writer.

Parts that batches do not need are imported on first use: together they take 25 ms, of the 300 ms that a
command may take to start.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from proctor.item import RUNNING, Item
from proctor.store import batches, ledger
from proctor.store.batches import Resource, RetrySelection
from proctor.store.codec import Codec, CodedDatabase
from proctor.store.database import (
    ChangeMonitor,
    Connection,
    Readers,
    in_transaction,
    migrate,
    open_database,
    pages_of,
)
from proctor.store.keys import Keys
from proctor.store.reader import StoreReader
from proctor.store.sealer import DataKeys, Sealer, rows_of
from proctor.store.tables import LabelRow, QuestionRow, SessionRow
from proctor.store.writer import Ownership, Writer, timestamp

if TYPE_CHECKING:
    from proctor.session import Session
    from proctor.store.annotations import Annotation, Label
    from proctor.store.datasets import Datasets, Recommendations
    from proctor.store.definitions import Definitions
    from proctor.store.drift import Drift
    from proctor.store.evaluations import Evaluations
    from proctor.store.imported_runs import ImportedBatches
    from proctor.store.intake import Logs, ReceivedSpans
    from proctor.store.key_rotation import RotationCounts
    from proctor.store.search import SearchIndex
    from proctor.store.signatures import SignatureCheck

P = ParamSpec("P")
T = TypeVar("T")
CLOSING_SECONDS = 30.0
"""How long closing waits for transactions of other threads."""


class Store:
    """Batches, items, sessions and scores in a SQLite file or a PostgreSQL database."""

    def __init__(self, url: str, keys: Keys = Keys()) -> None:  # noqa: B008  it is frozen
        """With `keys.own`, texts are encrypted; without, encrypted texts cannot be read."""
        self._plain = database = open_database(url)
        migrate(database)
        self._sealer = Sealer(keys, lambda: rows_of(database))
        self._database = CodedDatabase(database, Codec(self._sealer))
        self._readers = Readers(self._database)
        self._transactions = 0
        """Of all threads, that are running now."""
        self._is_idle = threading.Condition()
        self._plain_readers = Readers(database)
        self.data_keys = DataKeys(self._transaction, self._sealer)
        """Keys that texts are encrypted with."""
        self.is_read_only = database.is_read_only
        """Whether nothing can be written here: a file without write permission."""
        self.data_keys.ensure(can_write=not self.is_read_only)
        self.read = StoreReader(self._readers)
        """Queries."""
        self._monitor: ChangeMonitor | None = None
        self._monitor_lock = threading.Lock()

    @cached_property
    def evaluations(self) -> "Evaluations":
        """Evaluation jobs."""
        from proctor.store.evaluations import Evaluations

        return Evaluations(self._transaction, self.read, self.data_keys, self._register)

    @cached_property
    def definitions(self) -> "Definitions":
        """Evaluators and online configurations defined over HTTP."""
        from proctor.store.definitions import Definitions

        return Definitions(self._transaction, self.read, self.data_keys)

    @cached_property
    def drift(self) -> "Drift":
        """Lines of online evaluation over time, their crossings and alerts."""
        from proctor.store.drift import Drift

        return Drift(self._transaction, self.read)

    @cached_property
    def datasets(self) -> "Datasets":
        """Datasets of test scenarios."""
        from proctor.store.datasets import Datasets

        return Datasets(self._transaction, self.read, self.data_keys)

    @cached_property
    def recommendations(self) -> "Recommendations":
        """Recommendations of prompts and tool descriptions."""
        from proctor.store.datasets import Recommendations

        return Recommendations(self._transaction, self.read, self.data_keys)

    @cached_property
    def arrivals(self) -> "ReceivedSpans":
        """Spans received by telemetry."""
        from proctor.store.intake import ReceivedSpans

        return ReceivedSpans(self._transaction, self.read, self._readers)

    @cached_property
    def logs(self) -> "Logs":
        """Log streams that callers write to."""
        from proctor.store.intake import Logs

        return Logs(self._transaction, self.read)

    @cached_property
    def imported_runs(self) -> "ImportedBatches":
        """Runs of imported outcomes."""
        from proctor.store.imported_runs import ImportedBatches

        return ImportedBatches(self._transaction)

    @cached_property
    def search_index(self) -> "SearchIndex":
        """The full-text index of transcripts."""
        from proctor.store.search import SearchIndex

        is_postgres = not self.url.startswith("sqlite:")
        return SearchIndex(self._plain_readers, self.read, self.data_keys, is_postgres=is_postgres)

    @property
    def url(self) -> str:
        return self._database.url

    @property
    def database(self) -> CodedDatabase:
        """The database, which decrypts what it reads. For `store/` only."""
        return self._database

    def commits(self) -> int:
        """A number that changes when any process has committed something; reads no tables."""
        with self._monitor_lock:
            if self._monitor is None:
                self._monitor = self._plain.monitor()
            return self._monitor.version()

    def writer(self, ownership: Ownership | None = None) -> Writer:
        """A new writer; with an ownership, it fails as soon as another process owns the batch."""
        return Writer(self._database, ownership)

    def change(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **settings: P.kwargs) -> T:
        """Make a change in one transaction: `store.change(batches.requeue, run_id, item_ids)`. Modules of
        this package have the changes: functions whose first argument is a connection."""
        return self._transaction(lambda connection: work(connection, *args, **settings))

    def create_batch(
        self, batch: Mapping[str, object], items: Iterable[Item], resources: Iterable[Resource] = ()
    ) -> int:
        """Create a batch with its items and resources in one transaction; return the number of items."""
        self._register(str(batch["runId"]))
        count = self._transaction(lambda connection: batches.create(connection, batch, items, resources))
        # A copy of the file without its write-ahead log then has the run.
        self._readers.connection().checkpoint()
        return count

    def resume_batch(self, run_id: str, owner: str, again: RetrySelection, now: datetime) -> list[SessionRow]:
        """Claim a batch and queue its unfinished items; return the interrupted sessions."""

        def work(connection: Connection) -> list[SessionRow]:
            claimed = batches.claim(connection, run_id, owner, now)
            return batches.queue_unfinished(connection, run_id, again, now, claimed=claimed)

        return self._transaction(work)

    def extend_batch(
        self,
        run_id: str,
        batch: Mapping[str, object],
        *,
        add: Iterable[Item],
        settle: Iterable[Item],
        drop: Iterable[str],
    ) -> None:
        """Update a batch to its plan: add items, change settings of unfinished ones, remove some.

        Many items are added in several transactions; doing it again adds what is missing.
        """
        # A connection of its own: the items may be read from the store while they are added.
        with closing(self._database.connect()) as connection:
            in_transaction(connection, lambda: batches.change_and_drop(connection, run_id, batch, drop=drop))
            for page in pages_of(settle, batches.ITEMS_AT_ONCE):
                in_transaction(connection, partial(batches.settle_items, connection, run_id, page))
            for page in pages_of(add, batches.ITEMS_AT_ONCE):
                in_transaction(connection, partial(batches.append_items, connection, run_id, page))

    def end_batch(self, run_id: str, status: str, reason: str, error: str, now: datetime) -> None:
        """End a batch whose process is gone, with all its unfinished items."""

        def work(connection: Connection) -> None:
            batches.end_items(connection, run_id, reason, error, now)
            batches.finish(connection, run_id, status, reason, now)
            for row in connection.rows('SELECT "owner" FROM "batches" WHERE "runId" = ?', (run_id,)):
                ledger.release(connection, run_id, row["owner"], now)

        self._transaction(work)

    def open_questions(self, run_id: str = "") -> list[QuestionRow]:
        """Unanswered questions of one running batch, or of all."""
        return batches.open_questions(self._readers.connection(), run_id)

    def answer_of(self, run_id: str, question_id: str) -> str | None:
        """The answer to a question; None: not answered yet."""
        return batches.answer_of(self._readers.connection(), run_id, question_id)

    def save_imported(self, session: "Session", now: datetime, run_id: str = "") -> str:
        """Save a session recorded by another tool, replacing an earlier import; return its id.

        With a run, which `imported_runs.begin` has opened, the session becomes an item of it.
        """
        from proctor.store import intake

        return self._transaction(lambda connection: intake.save_session(connection, session, now, run_id))

    def delete_imported(self, session_ids: Sequence[str]) -> None:
        """Delete imported sessions, with the documents they were built from."""
        from proctor.store import intake

        waiting = list(session_ids)
        while waiting:
            del waiting[: self._transaction(lambda connection: intake.delete_sessions(connection, waiting))]
        self._delete_unused_blobs()

    def save_label(self, label: "Label", now: datetime) -> None:
        """Save a person's label of a session, replacing that person's earlier one."""
        from proctor.store.annotations import save_label

        self._transaction(lambda connection: save_label(connection, label, now))

    def labels(self, *, evaluator: str = "", session_ids: Sequence[str] = ()) -> list[LabelRow]:
        """Labels by evaluator or session, oldest first."""
        from proctor.store.annotations import labels

        return labels(self.read, evaluator=evaluator, session_ids=session_ids)

    def annotate(self, annotation: "Annotation", now: datetime) -> None:
        """Save a note, a star or a tag of sessions."""
        from proctor.store.annotations import save_annotation

        self._transaction(lambda connection: save_annotation(connection, annotation, now))

    def delete_annotation(self, session_id: str, annotation_id: str) -> None:
        """Delete a note, a star or a tag of a session."""
        from proctor.store.annotations import delete_annotation

        self._transaction(lambda connection: delete_annotation(connection, session_id, annotation_id))

    def run_sizes(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Bytes that runs take in the store, about."""
        return batches.run_sizes(self._plain_readers.connection(), run_ids)

    def runs_ended_before(self, moment: datetime) -> list[str]:
        """Runs that ended before a time, oldest first."""
        return batches.ended_before(self._readers.connection(), timestamp(moment))

    def delete_texts(self, run_id: str) -> None:
        """Delete the texts of a run's sessions; items, scores, costs, tokens and times stay.

        In several transactions: one that was interrupted is done again.
        """
        for page in pages_of(self._sessions_of(run_id), batches.SESSIONS_AT_ONCE):
            self._transaction(partial(batches.delete_texts, session_ids=page))
        self._delete_unused_blobs()

    def file_bytes(self) -> int | None:
        """The size of the database; None: it is on a server."""
        with closing(self._plain.connect()) as connection:
            if not self.url.startswith("sqlite:"):
                return None
            (pages,) = connection.tuples(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            )
            return int(str(pages[0]))

    def purge(self) -> None:
        """Return the space of deleted rows to the disk. No other process may be writing."""
        with closing(self._plain.connect()) as connection:
            connection.purge()

    def delete_batch(self, run_id: str) -> None:
        """Delete a batch and every row that belongs to it.

        In several transactions, the batch itself in the last: one that was interrupted is done again.
        """
        for page in pages_of(self._sessions_of(run_id), batches.SESSIONS_AT_ONCE):
            self._transaction(partial(batches.delete_sessions, session_ids=page))
        self._transaction(lambda connection: batches.delete(connection, run_id))
        self._delete_unused_blobs()

    def check_signatures(self, run_id: str, now: datetime) -> "SignatureCheck":
        """Whether somebody else has written to the results of a run. A running one is not checked."""
        from proctor.store.signatures import SignatureCheck, check_run

        if self.read.batch(run_id, now)["status"] == RUNNING:
            return SignatureCheck(run_id=run_id, items=0, is_signed=False, is_running=True)
        connection, signing = self._readers.connection(), self._sealer.keys.signing
        return check_run(
            connection,
            run_id,
            self._sealer.signing_key,
            is_registered=lambda: signing is not None and signing.is_registered(self._entry(run_id)),
        )

    def _register(self, run_id: str) -> None:
        """Note outside of the store that a run is signed: it shows when all signatures are removed."""
        if (signing := self._sealer.keys.signing) and self._sealer.signing_key():
            signing.register(self._entry(run_id))

    def _entry(self, run_id: str) -> str:
        url = self._database.url
        # Passwords change; a relative path depends on the working folder.
        place = re.sub(r"//[^/@]*@", "//", url) if "://" in url else str(Path(url).resolve())
        return hashlib.blake2b(f"{place}\0{run_id}".encode(), digest_size=16).hexdigest()

    def count_encrypted(self) -> "dict[str, RotationCounts]":
        """Number of encrypted texts by table and key."""
        from proctor.store import key_rotation

        with closing(self._plain.connect()) as connection:
            return key_rotation.count(connection, self._sealer)

    def reencrypt(self, on_progress: Callable[[str, int], None] = lambda *_: None) -> int:
        """Re-encrypt the store with a new data key, or resume doing so; return the number of changed rows.

        `on_progress` is called with the table and the number of rows so far. Others may use the store
        meanwhile, except at the end, when the old contents are removed from the disk.
        """
        from proctor.store import key_rotation

        if not self.data_keys.unfinished:
            self.data_keys.renew()
        # It would still contain the words of texts from before there was a key.
        self.search_index.clear()
        with closing(self._plain.connect()) as connection:
            changed = key_rotation.reencrypt(connection, self._sealer, on_progress)
            connection.purge()
        self.data_keys.mark_purged()
        return changed

    def close(self) -> None:
        """Close all connections for reading; writers are closed by whoever opened them.

        Waits for transactions of other threads: SQLite crashes if their connection is closed meanwhile.
        """
        with self._is_idle:
            self._is_idle.wait_for(lambda: not self._transactions, CLOSING_SECONDS)
        self._readers.close()
        self._plain_readers.close()
        if self._monitor is not None:
            self._monitor.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sessions_of(self, run_id: str) -> list[str]:
        rows = self._readers.connection().rows('SELECT "id" FROM "sessions" WHERE "runId" = ?', (run_id,))
        return [row["id"] for row in rows]

    def _delete_unused_blobs(self) -> None:
        from proctor.store.key_rotation import delete_unused_blobs

        delete_unused_blobs(self._plain_readers.connection())

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        connection = self._readers.connection()
        with self._is_idle:
            self._transactions += 1
        try:
            return in_transaction(connection, lambda: work(connection))
        finally:
            with self._is_idle:
                self._transactions -= 1
                self._is_idle.notify_all()
