"""Items of a run: filtered and sorted lists, values to filter by, groups of failures, matrix of tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING

from proctor.api.failures import failures_of
from proctor.api.loaded_results import ItemCounts, LoadedResults, Reading
from proctor.cache import LruCache, ResultCache
from proctor.context import RunContext
from proctor.errors import NotFound
from proctor.formatting import percent, seconds, usd
from proctor.item import RUNNING
from proctor.json_values import CamelJson
from proctor.metric import SCORE
from proctor.stats.outcomes import FailureGroup, FailureGroups, LevelCell, MatrixRow
from proctor.store import StoreReader, item_lists, items
from proctor.store.annotations import TAG, tag_counts
from proctor.store.database import id_pages
from proctor.store.item_lists import FACTOR, ItemQuery, Listing, ScoreRange, range_of
from proctor.store.items import SHOWN_CHARACTERS, PageItem
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from proctor.stats.figures import Matrix
    from proctor.stats.results import Results

__all__ = ["SHOWN_CHARACTERS", "ItemQuery", "MatrixRow", "PageItem", "ScoreRange", "range_of"]
MOST_CACHED = 24
"""Each takes nine bytes per item: a megabyte for a run of a hundred thousand."""
LIVE = timedelta(seconds=3)
"""How long lists of a running run are cached."""
COLUMNS = ("model", "agent", "reason")
"""Columns of items whose values are listed."""
SKIPPED = 50
"""Items without a session that are looked past at a time."""
MOST_MATRICES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPage(CamelJson):
    """A window of a run's items."""

    items: Sequence[PageItem]
    offset: int
    total: int
    """Items that match search and statuses."""
    counts: Mapping[str, int]
    """Items that match the search, by status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemLevel(CamelJson):
    """A value that items can be filtered by."""

    value: str
    items: int
    low: float | None = None
    """Lowest value of a score."""
    high: float | None = None
    """Highest value of a score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureList(CamelJson):
    """Groups of failures, the largest first."""

    groups: Sequence[FailureGroup]
    group_count: int
    """Of all groups."""
    items: int
    """Failed items in all groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbors(CamelJson):
    """The sessions before and after one in a list of items."""

    previous: str | None
    """Session ID; null: there is none."""
    next: str | None
    position: int | None
    """Place in the list, from 1; null: not in the list."""
    total: int
    """Items in the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPage(CamelJson):
    """Tasks by the levels of a factor."""

    by: str
    levels: Sequence[str]
    has_more_levels: bool
    """The factor has more levels than are shown."""
    scores: Sequence[str]
    """Evaluators that can be shown."""
    rows: Sequence[MatrixRow]
    offset: int
    total: int
    """Tasks that match."""
    tasks: int
    """All tasks."""
    is_current: bool
    """False: all items are being read; these are some of the first tasks, or none. Ask again."""
    reading: Reading | None = None
    """Progress of that. Null: nothing is read."""
    figures: Sequence[str] = ()
    """Of each level: success rate, mean cost and mean time of an item. Empty while items are read."""


@dataclass(frozen=True, slots=True)
class _CachedListing:
    listing: Listing
    state: tuple[object, ...]
    """State of the run at that time."""
    created_at: datetime


class ItemLists:
    """Sorted and filtered lists of items, cached for the next window; thread-safe.

    Runs are found by their ID or an unambiguous prefix.
    """

    def __init__(self, ctx: RunContext, item_counts: ItemCounts) -> None:
        self._ctx = ctx
        self._item_counts = item_counts
        self._cache: LruCache[tuple[str, ItemQuery], _CachedListing] = LruCache(MOST_CACHED)
        self._lock = Lock()
        self._groups = ResultCache[FailureGroups](ctx.now, while_running=LIVE)
        self._levels = ResultCache[Sequence[ItemLevel]](ctx.now, while_running=LIVE)

    def page(
        self, run_id: str, query: ItemQuery, *, offset: int, limit: int, with_outcomes: bool = False
    ) -> ItemPage:
        """A window of a run's items, with the answers and scores of their sessions if wanted."""
        read, batch = self._ctx.store.read, self._batch(run_id)
        run_id = batch["runId"]
        if query == ItemQuery():
            counts = self._item_counts.of(batch)
            rows, total = items.first_rows(read, run_id, offset=offset, limit=limit), sum(counts.values())
        else:
            listing = self._listing(run_id, query)
            positions = listing.of(query.statuses)
            rows = items.rows_at(read, run_id, positions[offset : offset + limit])
            counts, total = listing.counts(), len(positions)
        if with_outcomes:
            _add_outcomes(read, rows)
        return ItemPage(items=rows, offset=offset, total=total, counts=counts)

    def levels(self, run_id: str, of: str) -> Sequence[ItemLevel]:
        """Values of `model`, `agent`, `reason`, `tag`, `score` or `factor:NAME`, at most 500."""
        # Evaluations of its sessions leave the row of the run as it is.
        period = self._ctx.now().timestamp() // LIVE.total_seconds()
        batch = self._batch(run_id)
        return self._levels.get(
            batch, (of, period), lambda: _levels(self._ctx.store.read, batch["runId"], of)
        )

    def failures(self, run_id: str, query: ItemQuery, limit: int) -> FailureList:
        """The largest groups of failures among the items that match, whatever their status."""
        run_id = self._batch(run_id)["runId"]
        positions = self._listing(run_id, replace(query, failure_group="", order="position")).positions
        groups = self._failure_groups(run_id).of(positions)
        return FailureList(
            groups=groups[:limit], group_count=len(groups), items=sum(group.items for group in groups)
        )

    def neighbors(self, run_id: str, query: ItemQuery, session_id: str) -> Neighbors:
        """The sessions before and after one, and its place in the list. Items not started are skipped."""
        run_id = self._batch(run_id)["runId"]
        position = item_lists.position_of(self._ctx.store.read, run_id, session_id)
        if position is None:
            raise NotFound(f"run {run_id} has no session {session_id}\nIt may have been deleted.")
        positions = self._listing(run_id, query).of(query.statuses)
        try:
            index = positions.index(position)
        except ValueError:
            return Neighbors(previous=None, next=None, position=None, total=len(positions))
        return Neighbors(
            previous=self._first_session(run_id, positions[:index][::-1]),
            next=self._first_session(run_id, positions[index + 1 :]),
            position=index + 1,
            total=len(positions),
        )

    def named(self, run_id: str, item_ids: Sequence[str]) -> list[PageItem]:
        """Items by their whole IDs in plan order, with their answers and scores."""
        read = self._ctx.store.read
        rows = items.items_by_id(read, self._batch(run_id)["runId"], item_ids)
        _add_outcomes(read, rows)
        return rows

    def _batch(self, run_id: str) -> BatchRow:
        return self._ctx.store.read.batch(run_id, self._ctx.now())

    def _failure_groups(self, run_id: str) -> FailureGroups:
        read = self._ctx.store.read
        return self._groups.get(self._batch(run_id), self._state(run_id), lambda: failures_of(read, run_id))

    def _first_session(self, run_id: str, positions: Sequence[int]) -> str | None:
        for start in range(0, len(positions), SKIPPED):
            part = positions[start : start + SKIPPED]
            for session in item_lists.sessions_at(self._ctx.store.read, run_id, part):
                if session:
                    return session
        return None

    def _listing(self, run_id: str, query: ItemQuery) -> Listing:
        key = (run_id, replace(query, statuses=()))
        # One at a time, so that concurrent readers of a run do not sort it several times.
        with self._lock:
            state, now = self._state(run_id), self._ctx.now()
            cached = self._cache.get(key)
            if cached is None or not self._is_valid(cached, query, state, now):
                listing = item_lists.listing(self._ctx.store.read, run_id, query)
                if query.failure_group:
                    listing = listing.only(self._failure_groups(run_id).positions(query.failure_group))
                cached = _CachedListing(listing, state, self._ctx.now())
                self._cache.put(key, cached)
            return cached.listing

    @staticmethod
    def _is_valid(cached: _CachedListing, query: ItemQuery, state: tuple[object, ...], now: datetime) -> bool:
        is_fresh = abs(now - cached.created_at) < LIVE
        if cached.state == state:
            return is_fresh or not query.is_volatile
        return is_fresh and state[0] == cached.state[0] == RUNNING

    def _state(self, run_id: str) -> tuple[object, ...]:
        """A value that changes whenever the items may have changed."""
        batch = self._batch(run_id)
        return batch["status"], batch["finishedAt"], tuple(self._item_counts.of(batch).values())


def _levels(read: StoreReader, run_id: str, of: str) -> list[ItemLevel]:
    if of == TAG:
        return [ItemLevel(value=tag["text"], items=tag["sessions"]) for tag in tag_counts(read, run_id)]
    if of == "score":
        return [ItemLevel(**row) for row in item_lists.score_extents(read, run_id)]
    if of.startswith(FACTOR):
        return [ItemLevel(**row) for row in item_lists.factor_levels(read, run_id, of.removeprefix(FACTOR))]
    if of in COLUMNS:
        return [ItemLevel(**row) for row in item_lists.column_levels(read, run_id, of)]
    raise NotFound(f"there are no levels of {of}\nThere are: {', '.join(COLUMNS)}, tag, score, factor:NAME.")


def _add_outcomes(read: StoreReader, rows: Sequence[PageItem], characters: int = SHOWN_CHARACTERS) -> None:
    """Add the outcomes of their sessions to items, with texts on one line."""
    sessions = [row["sessionId"] for row in rows if row["sessionId"]]
    outcomes = item_lists.outcomes(read, sessions, characters=characters)
    for row in rows:
        if row["sessionId"]:
            outcome = row["outcome"] = outcomes[row["sessionId"]]
            outcome.answer = " ".join(outcome.answer.split())
            outcome.check_output = " ".join(outcome.check_output.split())


class Matrices:
    """Tasks of runs by the levels of a factor, cached as long as the results behind them; thread-safe."""

    def __init__(self, ctx: RunContext, results: LoadedResults) -> None:
        self._ctx = ctx
        self._results = results
        self._lock = Lock()
        self._cache: LruCache[tuple[str, str], tuple[Results, Matrix, list[str]]] = LruCache(MOST_MATRICES)
        self._first_tasks = ResultCache["Matrix"](ctx.now, while_running=LIVE)

    def page(
        self,
        run_id: str,
        *,
        by: str = "",
        search: str = "",
        disagree: bool = False,
        score: str = "",
        characters: int = SHOWN_CHARACTERS,
        offset: int = 0,
        limit: int,
        wait: float,
    ) -> MatrixPage:
        """A window of the tasks whose names contain a text and, with `disagree`, whose levels differ.

        `by`: the factor of the columns; empty: automatic. `score`: the evaluator to show, and to compare by.
        All items of a large run are read before its tasks are known: after `wait` seconds, the first tasks.
        """
        batch = self._ctx.store.read.batch(run_id, self._ctx.now())
        run_id = batch["runId"]
        table, figures = self._matrix(batch, by, wait)
        is_current = figures is not None
        if not is_current and (search or disagree or score):
            # The first tasks say nothing about all of them.
            tasks, rows, offset = [], [], 0
        else:
            metric = f"{SCORE}{score}" if score else "success"
            tasks = table.tasks(search=search, metric=metric, disagree=disagree).tolist()
            rows = self._with_answers(run_id, table.rows(tasks[offset : offset + limit], score), characters)
        return MatrixPage(
            by=table.by,
            levels=table.levels,
            has_more_levels=table.has_more_levels,
            scores=table.scores,
            rows=rows,
            offset=offset,
            total=len(tasks),
            tasks=len(table),
            is_current=is_current,
            reading=None if is_current else self._results.reading(run_id),
            figures=figures or (),
        )

    def _matrix(self, batch: BatchRow, by: str, wait: float) -> "tuple[Matrix, list[str] | None]":
        """The matrix of a run, and the figures of its levels; without these, it has the first tasks only."""
        # numpy is loaded with the first matrix, not with the server.
        from proctor.results.loading import load_first_results
        from proctor.stats.figures import Matrix

        run_id = batch["runId"]
        results, _ = self._results.within([batch], wait)
        if results is None:
            # The page repeats the request until all items are loaded.
            first = self._first_tasks.get(
                batch, by, lambda: Matrix(load_first_results(self._ctx.store.read, run_id), by)
            )
            return first, None
        with self._lock:
            cached = self._cache.get((run_id, by))
        if cached is None or cached[0] is not results:
            matrix = Matrix(results, by)
            cached = (results, matrix, _level_figures(results, matrix))
            with self._lock:
                self._cache.put((run_id, by), cached)
        return cached[1], cached[2]

    def _with_answers(self, run_id: str, rows: Sequence[MatrixRow], characters: int) -> list[MatrixRow]:
        """The rows of a matrix with status and answer of the first item of each cell."""
        read = self._ctx.store.read
        ids = [cell.item_id for row in rows for cell in row.cells if cell]
        first = {row["id"]: row for part in id_pages(ids) for row in items.items_by_id(read, run_id, part)}
        if characters:
            _add_outcomes(read, list(first.values()), characters)
        return [replace(row, cells=[_with_answer(cell, first) for cell in row.cells]) for row in rows]


def _level_figures(results: "Results", matrix: "Matrix") -> list[str]:
    """What the heading of each level says; the figures are those of the run's results."""
    from proctor.stats.figures import factor_figures

    levels = {level.name: level for level in factor_figures(results, matrix.by).levels}
    return [
        " · ".join([percent(level.success.value), usd(level.cost_usd.value), seconds(level.seconds.value)])
        if (level := levels.get(name))
        else ""
        for name in matrix.levels
    ]


def _with_answer(cell: LevelCell | None, first: Mapping[str, PageItem]) -> LevelCell | None:
    if cell is None or cell.item_id not in first:
        return None
    item = first[cell.item_id]
    return replace(
        cell,
        session_id=item["sessionId"],
        status=item["status"],
        reason=item["reason"],
        answer=item["outcome"].answer if item["outcome"] else "",
    )
