"""The record of everything: opened once, read from any thread, written through one writer.

Parts that a batch has no use for are loaded by whoever asks for them: together they took 25 ms of the start
of every command, which has 300 of its own.

Knows nothing of how items are carried out or shown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from proctor.item import Item
from proctor.session import Merge
from proctor.store import batches, ledger
from proctor.store.batches import Resource, RetrySelection
from proctor.store.database import Connection, Readers, migrate, open_database
from proctor.store.items import StoreReader
from proctor.store.keys import Keys
from proctor.store.ledger import Drawn, MoneyLimits
from proctor.store.sealed_database import SealedDatabase
from proctor.store.sealer import DataKeys, Sealer, rows_of
from proctor.store.tables import COLUMNS, LabelRow, QuestionRow, SessionRow
from proctor.store.writer import Ownership, Writer

if TYPE_CHECKING:
    from proctor.session import Session
    from proctor.store.definitions import Definitions
    from proctor.store.evaluations import Evaluations, Label
    from proctor.store.intake import Logs, ReceivedSpans
    from proctor.store.key_rotation import RotationCounts

T = TypeVar("T")


class Store:
    """Where batches, items, sessions and scores are kept: a SQLite file or a PostgreSQL database."""

    def __init__(self, url: str, keys: Keys = Keys()) -> None:  # noqa: B008  it is frozen
        """With a key of one's own, what is written is sealed; without, what is sealed cannot be read."""
        self._plain = database = open_database(url)
        migrate(database)
        self._sealer = Sealer(keys, lambda: rows_of(database))
        self._database = SealedDatabase(database, self._sealer)
        self._readers = Readers(self._database)
        self.data_keys = DataKeys(self._transaction, self._sealer)
        """What texts are sealed with."""
        self.data_keys.ensure()
        self.read = StoreReader(self._readers)
        """Every question one can ask."""

    @cached_property
    def evaluations(self) -> "Evaluations":
        """Evaluation jobs."""
        from proctor.store.evaluations import Evaluations

        return Evaluations(self._transaction, self.read, self.data_keys)

    @cached_property
    def definitions(self) -> "Definitions":
        """Evaluators and online configurations that callers keep here."""
        from proctor.store.definitions import Definitions

        return Definitions(self._transaction, self.read, self.data_keys)

    @cached_property
    def arrivals(self) -> "ReceivedSpans":
        """What has arrived by telemetry."""
        from proctor.store.intake import ReceivedSpans

        return ReceivedSpans(self._transaction, self.read)

    @cached_property
    def logs(self) -> "Logs":
        """Log streams that callers write to."""
        from proctor.store.intake import Logs

        return Logs(self._transaction, self.read)

    @property
    def url(self) -> str:
        return self._database.url

    def writer(self, ownership: Ownership | None = None) -> Writer:
        """Begin to write; with an ownership, for as long as the batch is ours."""
        return Writer(self._database, COLUMNS, ownership)

    def create_batch(
        self, batch: Mapping[str, object], items: Iterable[Item], resources: Iterable[Resource] = ()
    ) -> int:
        """Make a batch with its items and their resources, all or nothing; the number of items."""
        return self._transaction(lambda connection: batches.create(connection, batch, items, resources))

    def add_resources(self, run_id: str, resources: Iterable[Resource]) -> None:
        """Store the resources of a batch that it does not have yet."""
        self._transaction(lambda connection: batches.add_resources(connection, run_id, resources))

    def resume_batch(self, run_id: str, owner: str, again: RetrySelection, now: datetime) -> list[SessionRow]:
        """Take a batch over and queue what is unfinished; the sessions that were cut off."""

        def work(connection: Connection) -> list[SessionRow]:
            claimed = batches.claim(connection, run_id, owner, now)
            return batches.take_up(connection, run_id, again, now, claimed=claimed)

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
        """Bring a batch up to its plan: new items, new settings of unfinished ones, some no more."""
        self._transaction(
            lambda connection: batches.extend(connection, run_id, batch, add=add, settle=settle, drop=drop)
        )

    def change_batch(self, run_id: str, values: Mapping[str, object]) -> None:
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
            for row in connection.rows('SELECT "owner" FROM "batches" WHERE "runId" = ?', (run_id,)):
                ledger.release(connection, run_id, row["owner"], now)

        self._transaction(work)

    def draw_money(
        self,
        run_id: str,
        holder: str,
        *,
        wanted_usd: float,
        least_usd: float,
        limits: MoneyLimits,
        now: datetime,
    ) -> Drawn:
        """Draw on what a batch and the store may spend, so that nobody else can spend it too."""
        return self._transaction(
            lambda connection: ledger.draw(
                connection,
                run_id,
                holder,
                wanted_usd=wanted_usd,
                least_usd=least_usd,
                limits=limits,
                now=now,
            )
        )

    def give_money_back(self, run_id: str, holder: str, usd: float, now: datetime) -> None:
        """Leave drawn money to others for now."""
        self._transaction(lambda connection: ledger.give_back(connection, run_id, holder, usd, now))

    def ask_question(self, run_id: str, item_id: str, actor: str, prompt: str, now: datetime) -> str:
        """Put a question to whoever plays an actor; its id."""
        return self._transaction(
            lambda connection: batches.ask(connection, run_id, item_id, actor, prompt, now)
        )

    def open_questions(self, run_id: str = "") -> list[QuestionRow]:
        """What somebody waits for an answer to; of one batch, or of all."""
        return batches.open_ones(self._readers.connection(), run_id)

    def answer_question(self, run_id: str, question_id: str, text: str, now: datetime) -> None:
        """Answer a question, once."""
        self._transaction(lambda connection: batches.answer(connection, run_id, question_id, text, now))

    def answer_of(self, run_id: str, question_id: str) -> str | None:
        """What was answered to a question; None: nothing yet."""
        return batches.answer_of(self._readers.connection(), run_id, question_id)

    def withdraw_question(self, run_id: str, question_id: str) -> None:
        """Take back a question that nobody has answered."""
        self._transaction(lambda connection: batches.withdraw(connection, run_id, question_id))

    def keep_imported(self, session: "Session", now: datetime) -> str:
        """Keep a session that another tool recorded, in place of what was kept of it; its id."""
        from proctor.store import intake

        return self._transaction(lambda connection: intake.keep(connection, session, now))

    def forget_imported(self, session_ids: Sequence[str]) -> None:
        """Remove sessions that came from elsewhere, with the documents they were told from."""
        from proctor.store import intake

        self._transaction(lambda connection: intake.forget(connection, session_ids))

    def keep_label(self, label: "Label", now: datetime) -> None:
        """Keep what somebody says of a session, in place of what the same person said before."""
        from proctor.store.evaluations import keep_label

        self._transaction(lambda connection: keep_label(connection, label, now))

    def labels(self, *, evaluator: str = "", session_ids: Sequence[str] = ()) -> list[LabelRow]:
        """What people said of sessions, oldest first: by evaluator, by session, or all of it."""
        from proctor.store.evaluations import labels

        return labels(self.read, evaluator=evaluator, session_ids=session_ids)

    def keep_merge(self, session_id: str, merge: Merge, now: datetime) -> None:
        """Keep a try to merge that was made after the session had ended."""
        self._transaction(lambda connection: batches.keep_merge(connection, session_id, merge, now))

    def delete_batch(self, run_id: str) -> None:
        """Remove a batch and every row that belongs to it, and nothing else."""
        self._transaction(lambda connection: batches.delete(connection, run_id))

    def count_sealed(self) -> "dict[str, RotationCounts]":
        """By table, how many texts are sealed, and under which keys."""
        from proctor.store import key_rotation

        with closing(self._plain.connect()) as connection:
            return key_rotation.count(connection, self._sealer)

    def seal_anew(self, told: Callable[[str, int], None] = lambda *_: None) -> int:
        """Seal the whole store with a new data key, or go on with that; how many rows were changed.

        `told` hears how far it is: the table, and the rows so far. Others may use the store meanwhile,
        except at its very end, when what was there before is wiped from the disk.
        """
        from proctor.store import key_rotation

        if not self.data_keys.unfinished:
            self.data_keys.renew()
        with closing(self._plain.connect()) as connection:
            changed = key_rotation.reseal(connection, self._sealer, told)
            connection.forget()
        self.data_keys.emptied()
        return changed

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
