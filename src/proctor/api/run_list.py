"""The list of runs: what is known of each run from its row and its counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from proctor.cache import LruCache
from proctor.context import RunContext
from proctor.item import RUNNING
from proctor.json_values import CamelJson
from proctor.store import runs
from proctor.store.batches import ABORTED
from proctor.store.runs import ListedBatch, RunFilter, RunTotals

MOST_RUN_LISTS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine(CamelJson):
    """A run in the list of runs."""

    run_id: str
    created_at: str
    finished_at: str | None
    job: str
    status: str
    reason: str
    plan_path: str
    item_count: int
    finished_count: int
    aborted_count: int
    """Of them, ended by an abort."""
    counts: dict[str, int]
    """Items by status, with every status."""
    unchecked_count: int
    """Successes that nothing checked."""
    success_rate: float | None
    """Share of the checked items that succeeded, infrastructure errors excluded. Null: none was checked."""
    tokens_total: int
    cost_usd: float | None
    """Null: unknown price."""
    cost_is_lower_bound: bool
    """Whether a process of the run died, so that calls may have cost money that is not recorded."""
    budget_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage(CamelJson):
    """One page of the run list."""

    runs: Sequence[RunLine]
    total: int
    """Number of runs that match the filter."""
    all: int
    """Number of all runs."""
    jobs: Sequence[str]
    """Jobs that have runs."""


class RunLines:
    """Makes lines of the run list, and caches the counts of finished runs; thread-safe."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._cache: LruCache[tuple[str, str, str], RunTotals] = LruCache(MOST_RUN_LISTS)
        self._lock = Lock()

    def of(self, rows: Sequence[ListedBatch]) -> list[RunLine]:
        """The lines of these batches."""
        read = self._ctx.store.read
        with self._lock:
            known = {row["runId"]: self._cache.get(_key(row)) for row in rows}
        fresh = runs.totals_of(read, [run_id for run_id, totals in known.items() if totals is None])
        totals = {run_id: cached or fresh[run_id] for run_id, cached in known.items()}
        with self._lock:
            for row in rows:
                if row["status"] != RUNNING:
                    self._cache.put(_key(row), totals[row["runId"]])
        cut_off = runs.cut_off_counts(read, [row["runId"] for row in rows if row["status"] == ABORTED])
        return [_line(row, totals[row["runId"]], cut_off.get(row["runId"], 0)) for row in rows]

    def page(
        self, *, statuses: Sequence[str], jobs: Sequence[str], search: str, limit: int, offset: int
    ) -> RunPage:
        """A page of the runs that match all conditions, newest first; an empty condition matches all."""
        read, now = self._ctx.store.read, self._ctx.now()
        selection = RunFilter(statuses=statuses, jobs=jobs, search=search)
        return RunPage(
            runs=self.of(runs.page_of_batches(read, selection, now, limit=limit, offset=offset)),
            total=runs.count_batches(read, selection, now),
            all=runs.count_batches(read, RunFilter(), now),
            jobs=runs.distinct_jobs(read),
        )

    def named(self, run_ids: Sequence[str]) -> list[RunLine]:
        """The lines of the batches with these IDs that exist."""
        return self.of(runs.batches_by_id(self._ctx.store.read, run_ids, self._ctx.now()))


def list_runs(ctx: RunContext, *, limit: int) -> list[RunLine]:
    """The latest runs, newest first."""
    rows = runs.page_of_batches(ctx.store.read, RunFilter(), ctx.now(), limit=limit)
    return RunLines(ctx).of(rows)


def run_sizes(ctx: RunContext, run_ids: Sequence[str]) -> dict[str, int]:
    """Bytes that runs take in the store."""
    return ctx.store.run_sizes(run_ids)


def _key(row: ListedBatch) -> tuple[str, str, str]:
    return row["runId"], row["status"], row["finishedAt"] or ""


def _line(row: ListedBatch, totals: RunTotals, cut_off: int) -> RunLine:
    return RunLine(
        run_id=row["runId"],
        created_at=row["createdAt"],
        finished_at=row["finishedAt"],
        job=row["job"],
        status=row["status"],
        reason=row["reason"],
        plan_path=row["planPath"],
        item_count=totals["items"],
        finished_count=totals["finished"],
        aborted_count=cut_off,
        counts=totals["counts"],
        unchecked_count=totals["unchecked"],
        success_rate=totals["passed"] / totals["judged"] if totals["judged"] else None,
        tokens_total=totals["tokens"],
        cost_usd=totals["costUsd"],
        cost_is_lower_bound=bool(row["crashes"] and totals["costUsd"]),
        budget_usd=row["budgetUsd"],
    )
