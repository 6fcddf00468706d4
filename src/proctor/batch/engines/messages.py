"""Messages between the driver of a batch and its workers. All of them can be pickled."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.batch.queue import WorkItem
from proctor.context import EvaluatorSettings, ItemRetryPolicy, ModelOptions, Settings
from proctor.errors import AttemptError
from proctor.job import ItemFinished
from proctor.store.recorder import Rows

Key = tuple[str, ...]
RowChange = tuple[str, str, Key, Mapping[str, object] | tuple[object, ...]]
"""Operation (`append`, `add` or `change`), table, key, and the row or its changed columns."""


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


@dataclass(frozen=True, slots=True)
class WorkChunk:
    """Items for a worker."""

    items: tuple[WorkItem, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Tells a worker to cancel its attempts."""

    reason: AttemptError


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


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows in the order in which they were recorded, and the attempts that have ended with them."""

    rows: tuple[RowChange, ...]
    ends: tuple[AttemptEnd, ...] = ()

    def write(self, rows: Rows) -> None:
        """Hand the rows over to a writer."""
        for operation, table, key, values in self.rows:
            if isinstance(values, tuple):
                rows.append(table, values)
            elif operation == "add":
                rows.add(table, key, dict(values))
            else:
                rows.change(table, key, dict(values))


class RowBuffer:
    """Collects the rows of a worker in another process until they are sent to the driver."""

    def __init__(self) -> None:
        self._rows: list[RowChange] = []

    def append(self, table: str, row: tuple[object, ...]) -> None:
        """Add a row that never changes."""
        self._rows.append(("append", table, (), row))

    def add(self, table: str, key: Key, row: dict[str, object]) -> None:
        """Add a row that may change later."""
        self._rows.append(("add", table, key, row.copy()))

    def change(self, table: str, key: Key, values: dict[str, object]) -> None:
        """Change some columns of a row."""
        self._rows.append(("change", table, key, values.copy()))

    def take(self, *ends: AttemptEnd) -> RowBatch:
        """Everything collected since the last call, with the attempts that have ended."""
        rows, self._rows = self._rows, []
        return RowBatch(tuple(rows), ends)
