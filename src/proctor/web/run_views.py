"""A run as an answer: what it is, and how far it is.

Knows nothing of routes.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from pydantic import BaseModel

from proctor.cache import ResultCache
from proctor.errors import NotFound
from proctor.item import ERROR, RUNNING, STATUSES
from proctor.stats.failures import stand_ins
from proctor.stats.progress import Progress, progress
from proctor.store import Scope, items, runs
from proctor.store.aggregates import mock_sessions, select
from proctor.store.database import Row, extended
from proctor.store.items import ItemTotals, Listing, PageItem
from proctor.store.runs import ListedBatch
from proctor.store.tables import BatchRow
from proctor.web.run_schemas import (
    AgentModelShape,
    ItemsAnswer,
    ItemShape,
    PoolShape,
    RunAnswer,
    RunningShape,
    RunState,
    StandInShape,
)
from proctor.web.state import AppState

# The orders in which readers look at the items of a run, kept for the windows they ask for next.


MOST_KEPT = 24
"""Each takes nine bytes an item: a megabyte for a run of a hundred thousand."""


LIVE = timedelta(seconds=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Which items, in which order."""

    search: str = ""
    statuses: Sequence[str] = ()
    order: str = "position"
    descending: bool = False


@dataclass(frozen=True, slots=True)
class _CachedListing:
    listing: Listing
    state: tuple[Any, ...]
    """Of the run, when it was made."""
    made: datetime


class Listings:
    """All orders that were asked for lately."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._kept: OrderedDict[tuple[Any, ...], _CachedListing] = OrderedDict()
        self._lock = threading.Lock()

    def window(self, run_id: str, wanted: ItemQuery, *, offset: int, limit: int) -> ItemsAnswer:
        """A window of a run's items."""
        for status in wanted.statuses:
            if status not in STATUSES:
                raise NotFound(f"there is no status {status}\nThere are: {', '.join(STATUSES)}.")
        read = self._site.store.read
        run_id = read.batch(run_id, self._site.now())["runId"]
        if wanted == ItemQuery():
            counts = items.status_counts(read, run_id)
            rows, total = items.first_rows(read, run_id, offset=offset, limit=limit), sum(counts.values())
        else:
            listing = self._listing(run_id, wanted)
            positions, total = listing.window(wanted.statuses, offset, limit)
            rows, counts = items.rows_at(read, run_id, positions), listing.counts()
        return ItemsAnswer(items=[item_shape(row) for row in rows], offset=offset, total=total, counts=counts)

    def _listing(self, run_id: str, wanted: ItemQuery) -> Listing:
        key = (run_id, wanted.search, wanted.order, wanted.descending)
        # One at a time: twenty who look at the same run would else sort it twenty times.
        with self._lock:
            state, now = self._state(run_id), self._site.now()
            kept = self._kept.get(key)
            if kept is None or (kept.state != state and not self._may_be_old(kept, state, now)):
                made = items.listing(
                    self._site.store.read, run_id, wanted.search, wanted.order, descending=wanted.descending
                )
                kept = self._kept[key] = _CachedListing(made, state, self._site.now())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return kept.listing

    @staticmethod
    def _may_be_old(kept: _CachedListing, state: tuple[Any, ...], now: datetime) -> bool:
        return bool(state[0] == RUNNING and kept.state[0] == RUNNING and now - kept.made < LIVE)

    def _state(self, run_id: str) -> tuple[Any, ...]:
        """What differs whenever the items of a run may have changed."""
        read = self._site.store.read
        batch = read.batch(run_id, self._site.now())
        counts = items.status_counts(read, run_id)
        return batch["status"], batch["finishedAt"], tuple(counts.values())


def item_shape(row: PageItem) -> ItemShape:
    """An item's row as an answer."""
    return ItemShape(**extended(Row, row, seconds=_seconds(row["startedAt"], row["finishedAt"])))


def _seconds(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())


Money = tuple[float, float]
"""In USD: set aside, spent."""


ANALYSED = ("benchmark", "scenario", "dialogue")
"""Jobs that have an analysis of their own besides the report that every run has."""


FIXED_HOLDS = timedelta(hours=1)


def standing_of(
    site: AppState, run_id: str, before: Progress | None = None, money: Money | None = None
) -> tuple[RunState, Progress]:
    """How far a run is; hand the second part in again to make the next answer quick and its rate current.

    `money` is what is known already of what was set aside and spent.
    """
    seen = progress(site.store.read, run_id, site.now(), before)
    batch = site.store.read.batch(run_id, site.now())
    reserved, spent = money_of(site, seen.run_id, seen.budget_usd) if money is None else money
    rate = seen.items_per_second if seen.status == RUNNING else _overall(seen)
    standing = RunState(
        run_id=seen.run_id,
        status=seen.status,
        reason=batch["reason"],
        finished_at=batch["finishedAt"],
        is_stopping=bool(batch["abortRequestedAt"]) and seen.status == RUNNING,
        counts=dict(seen.counts),
        item_count=seen.total,
        finished_count=seen.finished,
        tokens=seen.tokens,
        cost_usd=seen.cost_usd,
        budget_usd=seen.budget_usd,
        spent_usd=spent,
        reserved_usd=reserved,
        elapsed_seconds=round(seen.elapsed_seconds, 3),
        items_per_minute=None if rate is None else round(rate * 60, 2),
        eta_seconds=None if seen.eta_seconds is None else round(seen.eta_seconds),
        pools=[PoolShape.model_validate(pool) for pool in seen.pools],
        running=[RunningShape.model_validate(item) for item in seen.running],
    )
    return standing, seen


def money_of(site: AppState, run_id: str, budget_usd: float | None) -> Money:
    """What a run has set aside and spent of its budget: a sum over each of its attempts."""
    return (0.0, 0.0) if budget_usd is None else site.store.read.reserved_and_spent(run_id)


class RunAnswers:
    """Runs, whole. What was added up for one answer is used for the next."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._ended = ResultCache[RunAnswer](site.now, while_running=timedelta(0))
        self._fixed = ResultCache[_Fixed](site.now, while_running=FIXED_HOLDS)
        self._progress = ResultCache[list[Progress]](site.now, while_running=timedelta(days=1))

    def of(self, run_id: str) -> RunAnswer:
        """A run, by its id or an unambiguous beginning of it."""
        batch = self._site.store.read.batch(run_id, self._site.now())
        return self._ended.get(batch, "", lambda: self._made(batch))

    def _made(self, batch: BatchRow) -> RunAnswer:
        run_id = batch["runId"]
        # A list that holds what was seen last, so that the next look need not add up everything.
        seen = self._progress.get(batch, "", list)
        standing, progressed = standing_of(self._site, run_id, seen[0] if seen else None)
        seen[:] = [progressed]
        fixed = self._fixed.get(batch, standing.item_count, lambda: self._look_up(run_id))
        return RunAnswer(
            **standing.model_dump(),
            job=batch["job"],
            created_at=batch["createdAt"],
            plan_path=batch["planPath"],
            concurrency=batch["concurrency"],
            seed=batch["seed"],
            proctor_version=batch["proctorVersion"],
            makers=fixed.makers,
            factors=fixed.factors,
            stand_ins=self._stand_ins(run_id),
            has_analysis=batch["job"] in ANALYSED,
        )

    def _look_up(self, run_id: str) -> "_Fixed":
        read = self._site.store.read
        return _Fixed(
            makers=[AgentModelShape.model_validate(row) for row in items.makers(read, run_id)],
            factors=items.factor_names(read, run_id),
        )

    def _stand_ins(self, run_id: str) -> list[StandInShape]:
        found = stand_ins(mock_sessions(select(self._site.store.read, Scope(run_id=run_id))))
        return [StandInShape.model_validate(one) for one in found]


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What does not change while a run has the same items."""

    makers: list[AgentModelShape]
    factors: list[str]


def _overall(seen: Progress) -> float | None:
    """Of a run that has ended: what it did in all its time, without what an abort kept it from doing."""
    done = seen.finished - (seen.counts[ERROR] if seen.status == "aborted" else 0)
    return done / seen.elapsed_seconds if done and seen.elapsed_seconds > 0 else None


# Runs as a list shows them: what each is, how far it is, what it has cost.


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
    counts: dict[str, int]
    """Items by status; every status is there."""
    tokensTotal: int  # noqa: N815
    costUsd: float | None  # noqa: N815
    """None: no price is known."""
    budgetUsd: float | None  # noqa: N815


class RunLines:
    """Makes lines of runs, from any thread."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._kept: dict[tuple[str, str, str], ItemTotals] = {}
        self._lock = Lock()

    def of(self, rows: Sequence[ListedBatch]) -> list[RunLine]:
        """The lines of these batches."""
        known = {row["runId"]: self._kept.get(_key(row)) for row in rows}
        fresh = runs.totals_of(
            self._site.store.read, [run_id for run_id, totals in known.items() if totals is None]
        )
        totals = {run_id: found or fresh[run_id] for run_id, found in known.items()}
        with self._lock:
            if len(self._kept) > MOST_RUN_LISTS:
                self._kept.clear()
            self._kept |= {_key(row): totals[row["runId"]] for row in rows if row["status"] != RUNNING}
        return [_line(row, totals[row["runId"]]) for row in rows]

    def named(self, run_ids: Sequence[str]) -> list[RunLine]:
        """The lines of the batches with these ids, as far as they still are."""
        return self.of(runs.batches_named(self._site.store.read, run_ids, self._site.now()))


def _key(row: ListedBatch) -> tuple[str, str, str]:
    return row["runId"], row["status"], row["finishedAt"] or ""


def _line(row: ListedBatch, totals: ItemTotals) -> RunLine:
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
        counts=totals["counts"],
        tokensTotal=totals["tokens"],
        costUsd=totals["costUsd"],
        budgetUsd=row["budgetUsd"],
    )
