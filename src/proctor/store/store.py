"""The record of everything: opened once, read from any thread, written through one writer.

Knows nothing of how items are carried out or shown.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from proctor.item import Item
from proctor.session import Merge
from proctor.store import batches
from proctor.store.batches import Again
from proctor.store.database import Connection, Readers, Row, open_database
from proctor.store.migrate import migrate
from proctor.store.reading import Reader
from proctor.store.tables import COLUMNS
from proctor.store.writer import Ownership, Writer

T = TypeVar("T")


class Store:
    """Where batches, items, sessions and scores are kept: a SQLite file or a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        self._database = open_database(url)
        migrate(self._database)
        self._readers = Readers(self._database)
        self.read = Reader(self._readers)
        """Every question one can ask."""

    @property
    def url(self) -> str:
        return self._database.url

    def writer(self, ownership: Ownership | None = None) -> Writer:
        """Begin to write; with an ownership, for as long as the batch is ours."""
        return Writer(self._database, COLUMNS, ownership)

    def create_batch(self, batch: Mapping[str, Any], items: Iterable[Item]) -> int:
        """Make a batch with its items, all or nothing; the number of items."""
        return self._transaction(lambda connection: batches.create(connection, batch, items))

    def resume_batch(self, run_id: str, owner: str, again: Again, now: datetime) -> list[Row]:
        """Take a batch over and queue what is unfinished; the sessions that were cut off."""

        def work(connection: Connection) -> list[Row]:
            last_seen = batches.claim(connection, run_id, owner, now)
            return batches.take_up(connection, run_id, again, now, last_seen=last_seen)

        return self._transaction(work)

    def extend_batch(
        self,
        run_id: str,
        batch: Mapping[str, Any],
        *,
        add: Iterable[Item],
        settle: Iterable[Item],
        drop: Iterable[str],
    ) -> None:
        """Bring a batch up to its plan: new items, new settings of unfinished ones, some no more."""
        self._transaction(
            lambda connection: batches.extend(connection, run_id, batch, add=add, settle=settle, drop=drop)
        )

    def change_batch(self, run_id: str, values: Mapping[str, Any]) -> None:
        """Change some of what a batch was started with: its budget, its concurrency."""
        self._transaction(lambda connection: batches.change(connection, run_id, values))

    def queue_again(self, run_id: str, item_ids: Iterable[str]) -> None:
        """Take up items once more that have ended. The batch must be ours."""
        self._transaction(lambda connection: batches.queue_again(connection, run_id, item_ids))

    def request_abort(self, run_id: str, now: datetime) -> None:
        """Ask whoever carries the batch out, in whatever process, to stop."""
        self._transaction(lambda connection: batches.request_abort(connection, run_id, now))

    def end_batch(self, run_id: str, status: str, reason: str, error: str, now: datetime) -> None:
        """End a batch that nobody carries out any more, with all its unfinished items."""

        def work(connection: Connection) -> None:
            batches.end_items(connection, run_id, reason, error, now)
            batches.finish(connection, run_id, status, reason, now)

        self._transaction(work)

    def keep_merge(self, session_id: str, merge: Merge, now: datetime) -> None:
        """Keep a try to merge that was made after the session had ended."""
        self._transaction(lambda connection: batches.keep_merge(connection, session_id, merge, now))

    def delete_batch(self, run_id: str) -> None:
        """Remove a batch and every row that belongs to it, and nothing else."""
        self._transaction(lambda connection: batches.delete(connection, run_id))

    def close(self) -> None:
        self._readers.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        connection = self._readers.connection()
        connection.begin()
        try:
            result = work(connection)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        return result
