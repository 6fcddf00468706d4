"""Items of a run over HTTP: filtered and sorted lists, values to filter by, groups of failures, matrix."""

import re
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from proctor.api.loaded_results import Reading
from proctor.cache import LruCache, ResultCache
from proctor.errors import NotFound, UsageError
from proctor.item import RUNNING, STATUSES
from proctor.stats.outcomes import MESSAGE_CHARACTERS, FailureGroups, group_failures
from proctor.store import item_lists, items
from proctor.store.annotations import TAG, tag_counts
from proctor.store.database import id_pages
from proctor.store.item_lists import ItemQuery, LevelCount, Listing, ScoreRange
from proctor.store.items import SHOWN_CHARACTERS
from proctor.store.tables import BatchRow
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import (
    MOST_WAIT_SECONDS,
    CellItemsAnswer,
    FailureGroupShape,
    FailuresAnswer,
    ItemLevelShape,
    ItemOutcomeShape,
    ItemsAnswer,
    ItemScoreShape,
    ItemShape,
    LevelCellShape,
    LevelsAnswer,
    MatrixAnswer,
    MatrixRowShape,
    NeighborsAnswer,
    RunId,
    WaitSeconds,
)
from proctor.web.run_views import item_shape
from proctor.web.state import AppState

if TYPE_CHECKING:
    from proctor.stats.matrix import LevelCell, Matrix, MatrixRow
    from proctor.stats.results import Results

MOST_ROWS = 500
MOST_CONDITIONS = 50
"""Factors, and scores, that one list is filtered by: a database takes about a thousand conditions."""
MOST_CACHED = 24
"""Each takes nine bytes per item: a megabyte for a run of a hundred thousand."""
LIVE = timedelta(seconds=3)
MOST_MATRICES = 4
MOST_MATRIX_ROWS = 100
MOST_CELL_ITEMS = 50
COLUMNS = ("model", "agent", "reason")
"""Columns of items whose values are listed."""
SKIPPED = 50
"""Items without a session that are looked past at a time."""
_SCORE = re.compile(r"(?s)(?P<name>.+)=(?P<low>-?[\d.]*)\.\.(?P<high>-?[\d.]*)")
_DURATION = re.compile(r"(?P<low>\d*\.?\d*)\.\.(?P<high>\d*\.?\d*)")

Text = Annotated[str, Query(max_length=500)]
Texts = list[Annotated[str, Query(max_length=1000)]] | None


def item_query(
    search: Annotated[
        str, Query(max_length=500, description="Text in ID, repository, prompt, model, agent or error.")
    ] = "",
    status: Annotated[Texts, Query(description="Only these statuses.")] = None,
    model: Annotated[Texts, Query(description="Only these models.")] = None,
    agent: Annotated[Texts, Query(description="Only these agents.")] = None,
    reason: Annotated[Texts, Query(description="Only these reasons.")] = None,
    factor: Annotated[
        Texts, Query(description="`NAME=LEVEL`; several levels of one factor: any of them.")
    ] = None,
    score: Annotated[
        Texts, Query(description="`EVALUATOR=LOW..HIGH`; a limit may be missing. All must hold.")
    ] = None,
    duration: Annotated[
        Texts,
        Query(description="`LOW..HIGH`, seconds from start to end, below HIGH; a limit may be missing."),
    ] = None,
    tag: Annotated[Texts, Query(description="Only items whose session has one of these tags.")] = None,
    noted: Annotated[bool, Query(description="Only items whose session has a note.")] = False,
    starred: Annotated[bool, Query(description="Only items whose session has a star.")] = False,
    group: Annotated[str, Query(max_length=100, description="Key of a group of `failures`.")] = "",
    order: Annotated[
        str,
        Query(
            max_length=300,
            description="A member of an item, `factor:` and a factor's name, or `score:` and an evaluator's.",
        ),
    ] = "position",
    descending: bool = False,
) -> ItemQuery:
    """The filter and order of a list of items."""
    for one in status or ():
        if one not in STATUSES:
            raise NotFound(f"there is no status {one}\nThere are: {', '.join(STATUSES)}.")
    factors = tuple(_level(one) for one in _cleaned(factor))
    scores = tuple(_range(one) for one in _cleaned(score))
    durations = tuple(_duration(one) for one in _cleaned(duration))
    if max(len({name for name, _ in factors}), len(scores), len(durations)) > MOST_CONDITIONS:
        raise UsageError(f"items are filtered by at most {MOST_CONDITIONS} factors and as many scores")
    return ItemQuery(
        search=_clean(search),
        statuses=tuple(status or ()),
        models=_cleaned(model),
        agents=_cleaned(agent),
        reasons=_cleaned(reason),
        factors=factors,
        scores=scores,
        durations=durations,
        tags=_cleaned(tag),
        is_noted=noted,
        is_starred=starred,
        failure_group=_clean(group),
        order=_clean(order),
        descending=descending,
    )


Filter = Annotated[ItemQuery, Depends(item_query)]


def _clean(text: str) -> str:
    return text.replace("\0", "")


def _cleaned(texts: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_clean(text) for text in texts or ()))


def _level(text: str) -> tuple[str, str]:
    name, separator, level = text.partition("=")
    if not separator:
        raise UsageError(f"{text} is no level of a factor\nWrite NAME=LEVEL.")
    return name, level


def _range(text: str) -> ScoreRange:
    try:
        match = _SCORE.fullmatch(text)
        if match is None:
            raise ValueError
        low, high = (float(match[name]) if match[name] else None for name in ("low", "high"))
    except ValueError:
        raise UsageError(f"{text} is no range of scores\nWrite EVALUATOR=LOW..HIGH.") from None
    return ScoreRange(name=match["name"], low=low, high=high)


def _duration(text: str) -> tuple[float | None, float | None]:
    try:
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ValueError
        low, high = (float(match[name]) if match[name] else None for name in ("low", "high"))
    except ValueError:
        raise UsageError(f"{text} is no range of seconds\nWrite LOW..HIGH.") from None
    return low, high


def router(site: AppState) -> APIRouter:
    """The routes of item lists."""
    routes = APIRouter(prefix="/api/runs", tags=["runs"], responses=ERRORS)
    listings = Listings(site)
    known_levels = ResultCache[LevelsAnswer](site.now, while_running=LIVE)
    matrices = _Matrices(site)

    @routes.get("/{run_id}/items", summary="A window of a run's items")
    def window(
        run_id: RunId,
        query: Filter,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
        outcomes: Annotated[
            bool, Query(description="With the answer, check output, scores and annotations of each item.")
        ] = False,
    ) -> ItemsAnswer:
        """Searched, filtered and sorted by the store; missing values come last."""
        return listings.window(run_id, query, offset=offset, limit=limit, with_outcomes=outcomes)

    @routes.get("/{run_id}/levels", summary="Values that items can be filtered by")
    def levels(
        run_id: RunId,
        of: Annotated[
            str,
            Query(max_length=300, description="`model`, `agent`, `reason`, `tag`, `score`, `factor:NAME`."),
        ],
    ) -> LevelsAnswer:
        """At most 500, with the number of items that have each. Scores have a lowest and highest value."""
        batch = site.context.store.read.batch(run_id, site.now())
        # Evaluations of its sessions leave the row of the run as it is.
        period = site.now().timestamp() // LIVE.total_seconds()
        return known_levels.get(batch, (of, period), lambda: _levels(site, batch["runId"], _clean(of)))

    @routes.get("/{run_id}/failures", summary="Failures grouped by reason and likeness of message")
    def failures(
        run_id: RunId, query: Filter, limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 20
    ) -> FailuresAnswer:
        """Of the items that match, whatever their status; the largest groups first.

        Messages are alike that differ only in numbers, ids, paths and quoted texts.
        """
        return listings.failures(run_id, query, limit)

    @routes.get("/{run_id}/neighbors", summary="The sessions before and after one in a list of items")
    def neighbors(
        run_id: RunId,
        query: Filter,
        session: Annotated[str, Query(max_length=300, description="Session ID.")],
    ) -> NeighborsAnswer:
        """In the same list as `items` has with these parameters. Items that have not started are skipped."""
        return listings.neighbors(run_id, query, session)

    @routes.get("/{run_id}/matrix", summary="Tasks by the levels of a factor")
    def matrix(
        run_id: RunId,
        by: Annotated[
            str, Query(max_length=200, description="Factor of the columns; empty: automatic.")
        ] = "",
        search: Annotated[str, Query(max_length=500, description="Text in the name of the task.")] = "",
        disagree: Annotated[
            bool, Query(description="Only tasks whose levels differ, the largest differences first.")
        ] = False,
        score: Annotated[
            str,
            Query(max_length=300, description="Evaluator to show, and to compare by."),
        ] = "",
        characters: Annotated[int, Query(ge=0, le=4000, description="Of each answer.")] = SHOWN_CHARACTERS,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_MATRIX_ROWS)] = MOST_MATRIX_ROWS,
        wait: WaitSeconds = MOST_WAIT_SECONDS,
    ) -> MatrixAnswer:
        """Of finished items. A cell has all repeats; its answer is that of the first.

        All items of a large run are read before its tasks are known: until then, the first tasks.
        """
        batch = site.context.store.read.batch(run_id, site.now())
        table, is_current = matrices.get(batch, _clean(by), wait)
        if not is_current and (search or disagree or score):
            # The first tasks say nothing about all of them.
            return _no_rows(table, site.results.reading(batch["runId"]))
        metric = f"{item_lists.SCORE}{score}" if score else "success"
        tasks = table.tasks(search=_clean(search), metric=metric, disagree=disagree)
        rows = table.rows(tasks[offset : offset + limit], score)
        return MatrixAnswer(
            by=table.by,
            levels=list(table.levels),
            has_more_levels=table.has_more_levels,
            scores=list(table.scores),
            total=len(tasks),
            tasks=len(table),
            offset=offset,
            rows=_matrix_rows(site, batch["runId"], rows, characters),
            is_current=is_current,
            reading=None if is_current else site.results.reading(batch["runId"]),
        )

    @routes.get("/{run_id}/matrix/items", summary="Items of one cell of a matrix")
    def cell_items(
        run_id: RunId,
        item: Annotated[
            list[Annotated[str, Field(max_length=300)]],
            Query(min_length=1, max_length=MOST_CELL_ITEMS, description="Item ID; may be repeated."),
        ],
    ) -> CellItemsAnswer:
        """With their answers and scores."""
        batch = site.context.store.read.batch(run_id, site.now())
        ids = list(_cleaned(item))
        shapes = [item_shape(row) for row in items.items_by_id(site.context.store.read, batch["runId"], ids)]
        add_outcomes(site, shapes)
        return CellItemsAnswer(items=shapes)

    return routes


class _Matrices:
    """Matrices of runs, cached as long as the results they are made of."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._cache: LruCache[tuple[str, str], tuple[Results, Matrix]] = LruCache(MOST_MATRICES)
        self._first_tasks = ResultCache["Matrix"](site.now, while_running=LIVE)

    def get(self, batch: BatchRow, by: str, wait: float) -> "tuple[Matrix, bool]":
        """The matrix of a run, and whether it has all items; if not, it has those of the first tasks."""
        # numpy is loaded with the first matrix, not with the server.
        from proctor.stats.matrix import Matrix

        run_id = batch["runId"]
        results, _ = self._site.results.within([batch], wait)
        if results is None:
            return self._first(batch, by), False
        with self._lock:
            cached = self._cache.get((run_id, by))
        if cached is None or cached[0] is not results:
            cached = (results, Matrix(results, by))
            with self._lock:
                self._cache.put((run_id, by), cached)
        return cached[1], True

    def _first(self, batch: BatchRow, by: str) -> "Matrix":
        from proctor.stats.matrix import Matrix
        from proctor.stats.results import load_first_results

        def load() -> Matrix:
            return Matrix(load_first_results(self._site.context.store.read, batch["runId"]), by)

        # The page repeats the request until all items are loaded.
        return self._first_tasks.get(batch, by, load)


def _no_rows(table: "Matrix", reading: Reading | None) -> MatrixAnswer:
    return MatrixAnswer(
        by=table.by,
        levels=list(table.levels),
        has_more_levels=table.has_more_levels,
        scores=list(table.scores),
        rows=[],
        offset=0,
        total=0,
        tasks=len(table),
        is_current=False,
        reading=reading,
    )


def _matrix_rows(
    site: AppState, run_id: str, rows: "Sequence[MatrixRow]", characters: int
) -> list[MatrixRowShape]:
    """The rows of a matrix with the answers of their first items."""
    ids = [cell.item_id for row in rows for cell in row.cells if cell]
    parts = (items.items_by_id(site.context.store.read, run_id, part) for part in id_pages(ids))
    shapes = {row["id"]: item_shape(row) for part in parts for row in part}
    if characters:
        add_outcomes(site, list(shapes.values()), characters)

    def shape(cell: "LevelCell | None") -> LevelCellShape | None:
        if cell is None or cell.item_id not in shapes:
            return None
        item = shapes[cell.item_id]
        members = {
            **asdict(cell),
            "session_id": item.session_id,
            "status": item.status,
            "reason": item.reason,
        }
        return LevelCellShape(**members, answer=item.outcome.answer if item.outcome else "")

    return [MatrixRowShape(task=row.task, cells=[shape(cell) for cell in row.cells]) for row in rows]


def _levels(site: AppState, run_id: str, of: str) -> LevelsAnswer:
    read = site.context.store.read
    if of == "score":
        rows: Sequence[LevelCount] = item_lists.score_extents(read, run_id)
    elif of == TAG:
        rows = [{"value": tag["text"], "items": tag["sessions"]} for tag in tag_counts(read, run_id)]
    elif of.startswith(item_lists.FACTOR):
        rows = item_lists.factor_levels(read, run_id, of.removeprefix(item_lists.FACTOR))
    elif of in COLUMNS:
        rows = item_lists.column_levels(read, run_id, of)
    else:
        raise NotFound(
            f"there are no levels of {of}\nThere are: {', '.join(COLUMNS)}, tag, score, factor:NAME."
        )
    return LevelsAnswer(levels=[ItemLevelShape.model_validate(row) for row in rows])


@dataclass(frozen=True, slots=True)
class _CachedListing:
    listing: Listing
    state: tuple[object, ...]
    """State of the run at that time."""
    created_at: datetime


class Listings:
    """Sorted and filtered item lists, cached for the next window."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._cache: LruCache[tuple[str, ItemQuery], _CachedListing] = LruCache(MOST_CACHED)
        self._lock = threading.Lock()
        self._groups = ResultCache[FailureGroups](site.now, while_running=LIVE)

    def window(
        self, run_id: str, query: ItemQuery, *, offset: int, limit: int, with_outcomes: bool = False
    ) -> ItemsAnswer:
        """A window of a run's items."""
        read = self._site.context.store.read
        batch = read.batch(run_id, self._site.now())
        run_id = batch["runId"]
        if query == ItemQuery():
            counts = self._site.item_counts.of(batch)
            rows, total = items.first_rows(read, run_id, offset=offset, limit=limit), sum(counts.values())
        else:
            listing = self._listing(run_id, query)
            positions = listing.of(query.statuses)
            rows = items.rows_at(read, run_id, positions[offset : offset + limit])
            counts, total = listing.counts(), len(positions)
        shapes = [item_shape(row) for row in rows]
        if with_outcomes:
            add_outcomes(self._site, shapes)
        return ItemsAnswer(items=shapes, offset=offset, total=total, counts=counts)

    def failures(self, run_id: str, query: ItemQuery, limit: int) -> FailuresAnswer:
        """The largest groups of failures among the items that match."""
        run_id = self._site.context.store.read.batch(run_id, self._site.now())["runId"]
        positions = self._listing(run_id, replace(query, failure_group="", order="position")).positions
        counts = self._failure_groups(run_id).counts(positions)
        return FailuresAnswer(
            groups=[
                FailureGroupShape(
                    key=group.key,
                    reason=group.reason,
                    pattern=group.pattern,
                    example=group.example,
                    items=items,
                )
                for group, items in counts[:limit]
            ],
            group_count=len(counts),
            items=sum(items for _, items in counts),
        )

    def _failure_groups(self, run_id: str) -> FailureGroups:
        batch = self._site.context.store.read.batch(run_id, self._site.now())
        return self._groups.get(batch, self.state(run_id), lambda: self._read_failures(run_id))

    def _read_failures(self, run_id: str) -> FailureGroups:
        rows = item_lists.failure_texts(self._site.context.store.read, run_id, characters=MESSAGE_CHARACTERS)
        return group_failures((row["position"], row["reason"], row["error"]) for row in rows)

    def neighbors(self, run_id: str, query: ItemQuery, session_id: str) -> NeighborsAnswer:
        """The sessions before and after one, and its place in the list."""
        read = self._site.context.store.read
        run_id = read.batch(run_id, self._site.now())["runId"]
        place = item_lists.position_of(read, run_id, _clean(session_id))
        if place is None:
            raise NotFound(f"run {run_id} has no session {session_id}\nIt may have been deleted.")
        positions = self._listing(run_id, query).of(query.statuses)
        try:
            index = positions.index(place)
        except ValueError:
            return NeighborsAnswer(previous=None, next=None, position=None, total=len(positions))
        return NeighborsAnswer(
            previous=self._first_session(run_id, positions[:index][::-1]),
            next=self._first_session(run_id, positions[index + 1 :]),
            position=index + 1,
            total=len(positions),
        )

    def _first_session(self, run_id: str, positions: Sequence[int]) -> str | None:
        for start in range(0, len(positions), SKIPPED):
            part = positions[start : start + SKIPPED]
            for session in item_lists.sessions_at(self._site.context.store.read, run_id, part):
                if session:
                    return session
        return None

    def _listing(self, run_id: str, query: ItemQuery) -> Listing:
        key = (run_id, replace(query, statuses=()))
        # One at a time, so that concurrent readers of a run do not sort it several times.
        with self._lock:
            state, now = self.state(run_id), self._site.now()
            cached = self._cache.get(key)
            if cached is None or not self._is_valid(cached, query, state, now):
                listing = item_lists.listing(self._site.context.store.read, run_id, query)
                if query.failure_group:
                    listing = listing.only(self._failure_groups(run_id).positions(query.failure_group))
                cached = _CachedListing(listing, state, self._site.now())
                self._cache.put(key, cached)
            return cached.listing

    @staticmethod
    def _is_valid(cached: _CachedListing, query: ItemQuery, state: tuple[object, ...], now: datetime) -> bool:
        is_fresh = abs(now - cached.created_at) < LIVE
        if cached.state == state:
            return is_fresh or not query.is_volatile
        return is_fresh and state[0] == cached.state[0] == RUNNING

    def state(self, run_id: str) -> tuple[object, ...]:
        """A value that changes whenever the items may have changed."""
        read = self._site.context.store.read
        batch = read.batch(run_id, self._site.now())
        counts = self._site.item_counts.of(batch)
        return batch["status"], batch["finishedAt"], tuple(counts.values())


def add_outcomes(site: AppState, shapes: Sequence[ItemShape], characters: int = SHOWN_CHARACTERS) -> None:
    """Add the outcomes of their sessions to items."""
    sessions = [shape.session_id for shape in shapes if shape.session_id]
    outcomes = item_lists.outcomes(site.context.store.read, sessions, characters=characters)
    for shape in shapes:
        if shape.session_id:
            outcome = outcomes[shape.session_id]
            shape.outcome = ItemOutcomeShape(
                answer=" ".join(outcome.answer.split()),
                check_output=" ".join(outcome.check_output.split()),
                scores={name: ItemScoreShape.model_validate(score) for name, score in outcome.scores.items()},
                tags=outcome.tags,
                notes=outcome.notes,
                is_starred=outcome.is_starred,
            )
