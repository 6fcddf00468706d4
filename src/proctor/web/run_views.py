"""Views of runs for pages and API: state, and lines of the run list, with their caches."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock

from pydantic import BaseModel

from proctor.cache import LruCache, ResultCache
from proctor.item import ERROR, RUNNING
from proctor.jobs import job_of_run
from proctor.stats.outcomes import stand_ins
from proctor.stats.progress import Progress, progress
from proctor.store import Scope, items, runs
from proctor.store.aggregates import mock_sessions, select
from proctor.store.batches import ABORTED
from proctor.store.database import Row, extended
from proctor.store.evaluations import evaluations_of_run
from proctor.store.items import PageItem
from proctor.store.runs import ListedBatch, RunTotals
from proctor.store.tables import BatchRow
from proctor.web.run_schemas import (
    AgentModelShape,
    ItemShape,
    PoolShape,
    ReadingShape,
    RunAnswer,
    RunningShape,
    RunState,
    StandInShape,
    StopWhenShape,
)
from proctor.web.state import AppState, Reading


def item_shape(row: PageItem) -> ItemShape:
    """The response shape of an item row."""
    return ItemShape(**extended(Row, row, seconds=_seconds(row["startedAt"], row["finishedAt"])))


def _seconds(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


Money = tuple[float, float]
"""In USD: reserved, spent."""
FIXED_HOLDS = timedelta(hours=1)


def run_state(
    site: AppState, run_id: str, before: Progress | None = None, money: Money | None = None
) -> tuple[RunState, Progress]:
    """State of a run. Pass the returned progress as `before` next time: faster, and with a current rate.

    `money`: reserved and spent amounts, if already known.
    """
    current = progress(site.store.read, run_id, site.now(), before)
    batch = site.store.read.batch(run_id, site.now())
    reserved, spent = money_of(site, current.run_id, current.budget_usd) if money is None else money
    rate = current.items_per_second if current.status == RUNNING else _overall_rate(current)
    cut_off = runs.cut_off_counts(site.store.read, [current.run_id] if current.status == ABORTED else [])
    state = RunState(
        run_id=current.run_id,
        status=current.status,
        reason=batch["reason"],
        finished_at=batch["finishedAt"],
        is_stopping=bool(batch["abortRequestedAt"]) and current.status == RUNNING,
        counts=dict(current.counts),
        unchecked_count=current.unchecked,
        item_count=current.total,
        finished_count=current.finished,
        cut_off_count=cut_off.get(current.run_id, 0),
        tokens=current.tokens,
        cost_usd=current.cost_usd,
        cost_is_lower_bound=bool(batch["crashes"] and current.cost_usd),
        budget_usd=current.budget_usd,
        spent_usd=spent,
        reserved_usd=reserved,
        elapsed_seconds=round(current.elapsed_seconds, 3),
        items_per_minute=None if rate is None else round(rate * 60, 2),
        eta_seconds=None if current.eta_seconds is None else round(current.eta_seconds),
        pools=[PoolShape.model_validate(pool) for pool in current.pools],
        running=[RunningShape.model_validate(item) for item in current.running],
        stop_when=current.stop_when and StopWhenShape.model_validate(current.stop_when),
    )
    return state, current


def money_of(site: AppState, run_id: str, budget_usd: float | None) -> Money:
    """Reserved and spent amounts of a run: sums over all attempts."""
    return (0.0, 0.0) if budget_usd is None else site.store.read.reserved_and_spent(run_id)


class RunAnswers:
    """Complete responses for runs, with cached aggregates."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._ended = ResultCache[RunAnswer](site.now, while_running=timedelta(0))
        self._fixed = ResultCache[_Fixed](site.now, while_running=FIXED_HOLDS)
        self._progress = ResultCache[list[Progress]](site.now, while_running=timedelta(days=1))

    def of(self, run_id: str) -> RunAnswer:
        """A run, by its ID or an unambiguous prefix."""
        batch = self._site.store.read.batch(run_id, self._site.now())
        answer = self._ended.get(batch, "", lambda: self._answer(batch))
        # An evaluation may start at any time, and changes nothing of the run.
        return answer.model_copy(
            update={"evaluations": evaluations_of_run(self._site.store.read, batch["runId"])}
        )

    def _answer(self, batch: BatchRow) -> RunAnswer:
        run_id = batch["runId"]
        # The progress of the last call, so that the next one is incremental.
        last = self._progress.get(batch, "", list)
        state, progressed = run_state(self._site, run_id, last[0] if last else None)
        last[:] = [progressed]
        fixed = self._fixed.get(batch, state.item_count, lambda: self._look_up(run_id))
        return RunAnswer(
            **state.model_dump(),
            job=batch["job"],
            created_at=batch["createdAt"],
            plan_path=batch["planPath"],
            concurrency=batch["concurrency"],
            seed=batch["seed"],
            proctor_version=batch["proctorVersion"],
            makers=fixed.makers,
            factors=fixed.factors,
            stand_ins=self._stand_ins(run_id),
            has_analysis=job_of_run(batch["job"]).has_analysis,
        )

    def _look_up(self, run_id: str) -> "_Fixed":
        read = self._site.store.read
        return _Fixed(
            makers=[AgentModelShape.model_validate(row) for row in items.agent_model_counts(read, run_id)],
            factors=items.factor_names(read, run_id),
        )

    def _stand_ins(self, run_id: str) -> list[StandInShape]:
        mocks = stand_ins(mock_sessions(select(self._site.store.read, Scope(run_id=run_id))))
        return [StandInShape.model_validate(one) for one in mocks]


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What stays the same as long as a run has the same items."""

    makers: list[AgentModelShape]
    factors: list[str]


def _overall_rate(progress_: Progress) -> float | None:
    """Average rate of a finished run, without items that an abort ended."""
    done = progress_.finished - (progress_.counts[ERROR] if progress_.status == ABORTED else 0)
    return done / progress_.elapsed_seconds if done and progress_.elapsed_seconds > 0 else None


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
