"""The orders in which readers look at the items of a run, kept for the windows they ask for next.

A run that has ended stays as it is, so its orders hold until it is taken up again. One that is carried
out changes all the time: its orders are made anew every few seconds, and between that the rows a reader
scrolls through do not jump about.

Knows nothing of routes.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from proctor.errors import NotFound
from proctor.item import RUNNING, STATUSES
from proctor.store import pages
from proctor.store.pages import Listing
from proctor.web.run_shapes import ItemsAnswer, ItemShape
from proctor.web.site import Site

MOST_KEPT = 24
"""Each takes nine bytes an item: a megabyte for a run of a hundred thousand."""
LIVE = timedelta(seconds=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which items, in which order."""

    search: str = ""
    statuses: Sequence[str] = ()
    order: str = "position"
    descending: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    listing: Listing
    state: tuple[Any, ...]
    """Of the run, when it was made."""
    made: datetime


class Listings:
    """All orders that were asked for lately."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def window(self, run_id: str, wanted: Wanted, *, offset: int, limit: int) -> ItemsAnswer:
        """A window of a run's items."""
        for status in wanted.statuses:
            if status not in STATUSES:
                raise NotFound(f"there is no status {status}\nThere are: {', '.join(STATUSES)}.")
        read = self._site.store.read
        run_id = read.batch(run_id, self._site.now())["runId"]
        if wanted == Wanted():
            counts = pages.status_counts(read, run_id)
            rows, total = pages.first_rows(read, run_id, offset=offset, limit=limit), sum(counts.values())
        else:
            listing = self._listing(run_id, wanted)
            positions, total = listing.window(wanted.statuses, offset, limit)
            rows, counts = pages.rows_at(read, run_id, positions), listing.counts()
        return ItemsAnswer(items=[item_shape(row) for row in rows], offset=offset, total=total, counts=counts)

    def _listing(self, run_id: str, wanted: Wanted) -> Listing:
        key = (run_id, wanted.search, wanted.order, wanted.descending)
        # One at a time: twenty who look at the same run would else sort it twenty times.
        with self._lock:
            state, now = self._state(run_id), self._site.now()
            kept = self._kept.get(key)
            if kept is None or (kept.state != state and not self._may_be_old(kept, state, now)):
                made = pages.listing(
                    self._site.store.read, run_id, wanted.search, wanted.order, descending=wanted.descending
                )
                kept = self._kept[key] = _Kept(made, state, self._site.now())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return kept.listing

    @staticmethod
    def _may_be_old(kept: _Kept, state: tuple[Any, ...], now: datetime) -> bool:
        return bool(state[0] == RUNNING and kept.state[0] == RUNNING and now - kept.made < LIVE)

    def _state(self, run_id: str) -> tuple[Any, ...]:
        """What differs whenever the items of a run may have changed."""
        read = self._site.store.read
        batch = read.batch(run_id, self._site.now())
        counts = pages.status_counts(read, run_id)
        return batch["status"], batch["finishedAt"], tuple(counts.values())


def item_shape(row: dict[str, Any]) -> ItemShape:
    """An item's row as an answer."""
    return ItemShape(**row, seconds=_seconds(row["startedAt"], row["finishedAt"]))


def _seconds(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
