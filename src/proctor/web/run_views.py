"""Views of runs for pages and API: state, and lines of the run list, with their caches."""

from collections.abc import Sequence
from datetime import datetime
from threading import Lock

from pydantic import BaseModel

from proctor.cache import LruCache
from proctor.item import RUNNING
from proctor.store import runs
from proctor.store.batches import ABORTED
from proctor.store.database import Row, extended
from proctor.store.items import PageItem
from proctor.store.runs import ListedBatch, RunTotals
from proctor.web.run_schemas import (
    ItemShape,
    ReadingShape,
)
from proctor.web.state import AppState, Reading


def item_shape(row: PageItem) -> ItemShape:
    """The response shape of an item row."""
    return ItemShape(**extended(Row, row, seconds=_seconds(row["startedAt"], row["finishedAt"])))


def _seconds(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


MOST_RUN_LISTS = 5000


class RunLine(BaseModel):
    """A run in the list of runs."""

    runId: str  # noqa: N815  names as in the record
    createdAt: str  # noqa: N815
    finishedAt: str | None  # noqa: N815
    job: str
    status: str
    reason: str
    planPath: str  # noqa: N815
    itemCount: int  # noqa: N815
    finishedCount: int  # noqa: N815
    cutOffCount: int  # noqa: N815
    """Of them, ended by an abort."""
    counts: dict[str, int]
    """Items by status, with every status."""
    successRate: float | None  # noqa: N815
    """Share of the checked items that succeeded, infrastructure errors excluded. None: none was checked."""
    tokensTotal: int  # noqa: N815
    costUsd: float | None  # noqa: N815
    """None: unknown price."""
    costIsLowerBound: bool  # noqa: N815
    """Whether a process of the run died, so that calls may have cost money that is not recorded."""
    budgetUsd: float | None  # noqa: N815


class RunLines:
    """Makes lines of the run list; thread-safe."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._cache: LruCache[tuple[str, str, str], RunTotals] = LruCache(MOST_RUN_LISTS)
        self._lock = Lock()

    def of(self, rows: Sequence[ListedBatch]) -> list[RunLine]:
        """The lines of these batches."""
        with self._lock:
            known = {row["runId"]: self._cache.get(_key(row)) for row in rows}
        fresh = runs.totals_of(
            self._site.store.read, [run_id for run_id, totals in known.items() if totals is None]
        )
        totals = {run_id: cached or fresh[run_id] for run_id, cached in known.items()}
        with self._lock:
            for row in rows:
                if row["status"] != RUNNING:
                    self._cache.put(_key(row), totals[row["runId"]])
        aborted = [row["runId"] for row in rows if row["status"] == ABORTED]
        cut_off = runs.cut_off_counts(self._site.store.read, aborted)
        return [_line(row, totals[row["runId"]], cut_off.get(row["runId"], 0)) for row in rows]

    def named(self, run_ids: Sequence[str]) -> list[RunLine]:
        """The lines of the batches with these IDs that exist."""
        return self.of(runs.batches_by_id(self._site.store.read, run_ids, self._site.now()))


def _key(row: ListedBatch) -> tuple[str, str, str]:
    return row["runId"], row["status"], row["finishedAt"] or ""


def _line(row: ListedBatch, totals: RunTotals, cut_off: int) -> RunLine:
    return RunLine(
        runId=row["runId"],
        createdAt=row["createdAt"],
        finishedAt=row["finishedAt"],
        job=row["job"],
        status=row["status"],
        reason=row["reason"],
        planPath=row["planPath"],
        itemCount=totals["items"],
        finishedCount=totals["finished"],
        cutOffCount=cut_off,
        counts=totals["counts"],
        successRate=totals["passed"] / totals["judged"] if totals["judged"] else None,
        tokensTotal=totals["tokens"],
        costUsd=totals["costUsd"],
        costIsLowerBound=bool(row["crashes"] and totals["costUsd"]),
        budgetUsd=row["budgetUsd"],
    )


def reading_shape(reading: Reading | None) -> ReadingShape | None:
    """Progress of reading items."""
    return ReadingShape(read=reading.read, total=reading.total) if reading else None
