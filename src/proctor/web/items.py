"""Items of a run over HTTP: filtered and sorted lists, and the neighbors of a session in one."""

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from proctor.errors import NotFound, UsageError
from proctor.item import RUNNING, STATUSES
from proctor.store import item_lists, items
from proctor.store.item_lists import ItemQuery, Listing, ScoreRange
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import ItemsAnswer, NeighborsAnswer, RunId
from proctor.web.run_views import item_shape
from proctor.web.state import AppState

MOST_ROWS = 500
MOST_CACHED = 24
"""Each takes nine bytes per item: a megabyte for a run of a hundred thousand."""
LIVE = timedelta(seconds=3)
SKIPPED = 50
"""Items without a session that are looked past at a time."""
_SCORE = re.compile(r"(?s)(?P<name>.+)=(?P<low>-?[\d.]*)\.\.(?P<high>-?[\d.]*)")

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
    if not order.startswith((item_lists.FACTOR, item_lists.SCORE)) and order not in item_lists.ORDERS:
        raise NotFound(f"items cannot be sorted by {order}\nThey can by: {', '.join(item_lists.ORDERS)}.")
    return ItemQuery(
        search=_clean(search),
        statuses=tuple(status or ()),
        models=_cleaned(model),
        agents=_cleaned(agent),
        reasons=_cleaned(reason),
        factors=tuple(_level(one) for one in _cleaned(factor)),
        scores=tuple(_range(one) for one in _cleaned(score)),
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


def router(site: AppState) -> APIRouter:
    """The routes of item lists."""
    routes = APIRouter(prefix="/api/runs", tags=["runs"], responses=ERRORS)
    listings = Listings(site)

    @routes.get("/{run_id}/items", summary="A window of a run's items")
    def window(
        run_id: RunId,
        query: Filter,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
    ) -> ItemsAnswer:
        """Searched, filtered and sorted by the store; missing values come last."""
        return listings.window(run_id, query, offset=offset, limit=limit)

    @routes.get("/{run_id}/neighbors", summary="The sessions before and after one in a list of items")
    def neighbors(
        run_id: RunId,
        query: Filter,
        session: Annotated[str, Query(max_length=300, description="Session ID.")],
    ) -> NeighborsAnswer:
        """In the same list as `items` has with these parameters. Items that have not started are skipped."""
        return listings.neighbors(run_id, query, session)

    return routes


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
        self._cache: OrderedDict[tuple[str, ItemQuery], _CachedListing] = OrderedDict()
        self._lock = threading.Lock()

    def window(self, run_id: str, query: ItemQuery, *, offset: int, limit: int) -> ItemsAnswer:
        """A window of a run's items."""
        read = self._site.store.read
        run_id = read.batch(run_id, self._site.now())["runId"]
        if query == ItemQuery():
            counts = items.status_counts(read, run_id)
            rows, total = items.first_rows(read, run_id, offset=offset, limit=limit), sum(counts.values())
        else:
            listing = self._listing(run_id, query)
            positions = listing.of(query.statuses)
            rows = items.rows_at(read, run_id, positions[offset : offset + limit])
            counts, total = listing.counts(), len(positions)
        return ItemsAnswer(items=[item_shape(row) for row in rows], offset=offset, total=total, counts=counts)

    def neighbors(self, run_id: str, query: ItemQuery, session_id: str) -> NeighborsAnswer:
        """The sessions before and after one, and its place in the list."""
        read = self._site.store.read
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
            for session in item_lists.sessions_at(self._site.store.read, run_id, part):
                if session:
                    return session
        return None

    def _listing(self, run_id: str, query: ItemQuery) -> Listing:
        key = (run_id, replace(query, statuses=()))
        # One at a time, so that concurrent readers of a run do not sort it several times.
        with self._lock:
            state, now = self._state(run_id), self._site.now()
            cached = self._cache.get(key)
            if cached is None or not self._is_valid(cached, query, state, now):
                listing = item_lists.listing(self._site.store.read, run_id, query)
                cached = self._cache[key] = _CachedListing(listing, state, self._site.now())
            self._cache.move_to_end(key)
            while len(self._cache) > MOST_CACHED:
                self._cache.popitem(last=False)
            return cached.listing

    @staticmethod
    def _is_valid(cached: _CachedListing, query: ItemQuery, state: tuple[object, ...], now: datetime) -> bool:
        is_fresh = abs(now - cached.created_at) < LIVE
        if cached.state == state:
            return is_fresh or not query.is_volatile
        return is_fresh and state[0] == cached.state[0] == RUNNING

    def _state(self, run_id: str) -> tuple[object, ...]:
        """A value that changes whenever the items may have changed."""
        read = self._site.store.read
        batch = read.batch(run_id, self._site.now())
        counts = items.status_counts(read, run_id)
        return batch["status"], batch["finishedAt"], tuple(counts.values())
