"""Messages between the driver of a batch and its workers. All of them can be pickled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.batch.queue import WorkItem
from proctor.context import EvaluatorSettings, Functions, ItemRetryPolicy, ModelOptions, Settings
from proctor.errors import AttemptError
from proctor.frozen import fast_init
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.store.tables import SessionRow
from proctor.store.writer import RowGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Configuration of a worker, sent once before its first item."""

    run_id: str
    job: str
    seed: int
    holder: str
    """The worker's name in the ledger and in the shared rate limits."""
    concurrency: int
    """Maximum attempts in parallel."""
    is_budgeted: bool
    """Whether the batch or the store has a budget, so that money must be drawn."""
    retry: ItemRetryPolicy = field(default_factory=ItemRetryPolicy)
    settings: Settings | None = None
    """For a worker in another process: the settings, without what only the driver needs."""
    models: ModelOptions = field(default_factory=ModelOptions)
    evaluators: EvaluatorSettings | None = None
    functions: Functions = field(default_factory=Functions)
    """Python functions that stand for names; those of a worker in another process can be pickled."""
    limit_share: float = 1.0
    """The worker's share of every rate limit until it has exchanged its demand with the others."""
    shares_disk: bool = True
    """Whether the worker sees the files of the driver's machine."""
    leftovers: "Leftovers | None" = None
    """What earlier workers of the run have left on the worker's machine; None: nothing."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What workers that died have left on a machine other than the driver's."""

    homes: tuple[Path, ...]
    """Their folders."""
    sessions: tuple[SessionRow, ...]
    """Attempts that were cut off, on any machine."""


@dataclass(frozen=True, slots=True)
class WorkChunk:
    """Items for a worker."""

    items: tuple[WorkItem, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Tells a worker to cancel its attempts."""

    reason: AttemptError


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """The end of one attempt, or that there was no money to start it."""

    work: WorkItem
    """With the sums of all attempts so far."""
    delay_seconds: float | None = None
    """Until the next attempt; None: no further attempt."""
    halted_by: str = ""
    """The limit because of which the batch must halt: `budget`, `store_budget` or `cost_limit`."""
    finished: ItemFinished | None = None
    """The item has reached its final status."""

    def pack(self) -> "PackedEnd":
        """What has changed, for a driver that has the item."""
        work, end = self.work, self.finished
        sums = (work.attempts, work.tries, work.tokens, work.tool_calls, work.cost_usd, work.started_at)
        finished = (end.session_id, end.outcome, end.work_seconds) if end else None
        return work.id, sums, self.delay_seconds, self.halted_by, finished

    @classmethod
    def unpack(cls, packed: "PackedEnd", work: WorkItem) -> "AttemptEnd":
        """The end of an attempt at an item whose sums are updated."""
        _, sums, delay_seconds, halted_by, finished = packed
        work.attempts, work.tries, work.tokens, work.tool_calls, work.cost_usd, work.started_at = sums
        work.checkpoint = None
        if finished is None:
            return cls(work=work, delay_seconds=delay_seconds, halted_by=halted_by)
        session_id, outcome, work_seconds = finished
        end = ItemFinished(
            id=work.id,
            item=work.item,
            session_id=session_id,
            outcome=outcome,
            attempts=work.attempts,
            tokens=work.tokens,
            cost_usd=work.cost_usd,
            work_seconds=work_seconds,
        )
        return cls(work=work, delay_seconds=delay_seconds, halted_by=halted_by, finished=end)


PackedEnd = tuple[
    str,
    tuple[int, int, int, int, float | None, str | None],
    float | None,
    str,
    tuple[str, Outcome, float] | None,
]
"""Item, sums of all its attempts, delay, limit, and session, outcome and work time of a finished item."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Recorded rows, and the attempts that have ended with them."""

    rows: RowGroups
    ends: tuple[AttemptEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has started."""

    holder: str
    """Its name in the ledger and in the shared rate limits."""


@dataclass(frozen=True, slots=True)
class Report:
    """Rows that a worker has recorded, and the attempts that have ended with them."""

    rows: RowGroups
    ends: Sequence[PackedEnd] = ()


@dataclass(frozen=True, slots=True)
class HostCall:
    """A worker calls a method of its host."""

    number: int
    method: str
    arguments: tuple[object, ...]
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class HostCancel:
    """A worker no longer needs the result of a call. It waits for the reply all the same."""

    number: int


@dataclass(frozen=True, slots=True)
class HostReply:
    """The result of a call, or the error that it raised."""

    number: int
    value: object = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class SetConcurrency:
    """Changes how many attempts a worker makes in parallel; items that it has run all the same."""

    concurrency: int


@dataclass(frozen=True, slots=True)
class ReturnMoney:
    """Tells a worker to return the money that it has drawn and not reserved."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Tells a worker to start no further item, and to end once its attempts have ended."""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message of a worker for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has nothing left to send."""

    error: Exception | None = None
    """What ended it; None: it finished or was stopped."""


class RowBuffer(RowGroups):
    """Collects the rows of a worker in another process until they are sent to the driver."""

    __slots__ = ()

    def take(self) -> RowGroups:
        """Everything collected since the last call."""
        rows = RowGroups(self.appended, self.added, self.changed, self.count)
        empty = RowGroups()
        self.appended, self.added, self.changed, self.count = empty.appended, empty.added, empty.changed, 0
        return rows
