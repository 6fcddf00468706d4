"""What changes in one run, for pages that watch it: how far it is, and which items are not as they were.

No row says when it was last changed, and an index that did would slow every batch down. But an item that
has changed since the last look was under way then or was begun after it, and both are quick to ask for.
What changes many items at once (an abort, a resume) is told as such, and pages ask for what they show.

Knows nothing of the channel this is told through.
"""

import asyncio
from collections import deque
from datetime import datetime, timedelta
from typing import Any

from proctor.analyse.progress import Progress
from proctor.item import QUEUED, RUNNING
from proctor.store import pages, timestamp
from proctor.store.database import Row
from proctor.web.listings import item_shape
from proctor.web.run_document import Money, money_of, standing_of
from proctor.web.run_shapes import Standing
from proctor.web.site import Site

MOST_ITEMS = 300
"""Changed items that are told one by one; a page shows fewer than a hundred at a time."""
MOST_LOOKED_AT = 1000
"""Items whose rows are looked at each time; beyond that, pages look at those they show."""
PASSING: Any = {
    "elapsed_seconds": True,
    "eta_seconds": True,
    "items_per_minute": True,
    "running": {"__all__": {"elapsed_seconds"}},
}
"""What a page can count on by itself."""
AT_LEAST_EVERY = timedelta(seconds=5)
"""Told of a run in which nothing happens, so that its rate falls and its end moves away."""
KEPT_LOOKS = 200
"""Of which a page that was away may catch up: about a minute of a busy run."""
BETWEEN_LOOKS = timedelta(milliseconds=150)
BETWEEN_SUMS = timedelta(seconds=2)
# Clocks of the processes that write and of ours may differ, and a commit takes its time.
OVERLAP = timedelta(seconds=2)


class RunTopic:
    """One run. Everybody who watches it shares what is seen."""

    def __init__(self, site: Site, run_id: str) -> None:
        self._site = site
        batch = site.store.read.batch(run_id, site.now())
        self._run_id, self._budget = batch["runId"], batch["budgetUsd"]
        self._money: Money = (0.0, 0.0)
        self._counted = site.now()
        self._lock = asyncio.Lock()
        self._version = 0
        self._standing: Standing | None = None
        self._progress: Progress | None = None
        self._known: dict[str, Row] = {}
        """The items that were begun lately or are under way, as they were seen last."""
        self._seen = self._told = site.now()
        self._looks: deque[tuple[int, dict[str, Row] | None]] = deque(maxlen=KEPT_LOOKS)
        """Each version with the items that changed in it; None: too many to name."""

    async def state(self, version: int) -> tuple[int, Any]:
        """How far the run is, and the items that have changed since a version."""
        async with self._lock:
            if self._standing is None or self._site.now() - self._seen >= BETWEEN_LOOKS:
                await asyncio.to_thread(self._look)
        assert self._standing is not None
        changes: dict[str, Any] = {"run": self._standing.model_dump(by_alias=True)}
        if version == self._version:
            return version, changes
        changed = self._changed_since(version)
        if changed is None:
            return self._version, changes | {"items": [], "reset": version != 0}
        items = [item_shape(row).model_dump(by_alias=True) for row in changed.values()]
        return self._version, changes | {"items": items, "reset": False}

    def _changed_since(self, version: int) -> dict[str, Row] | None:
        """The items that changed after a version, as they are; None when that cannot be said one by one."""
        later = [changed for made, changed in self._looks if made > version]
        if not version or len(later) != self._version - version:
            return None
        together: dict[str, Row] = {}
        for changed in later:
            if changed is None:
                return None
            together |= changed
        return together if len(together) <= MOST_ITEMS else None

    def _look(self) -> None:
        before, now = self._standing, self._site.now()
        # Asked before the figures: what happens in between is then seen twice, not missed.
        changed = self._changed_items()
        standing, self._progress = standing_of(
            self._site, self._run_id, self._progress, self._money_lately(now)
        )
        self._standing, self._seen = standing, now
        if before is None:
            self._version = 1
        elif changed or changed is None or _is_news(before, standing) or self._is_time(standing, now):
            self._version, self._told = self._version + 1, now
            self._looks.append((self._version, _named(before, standing, changed)))

    def _changed_items(self) -> dict[str, Row] | None:
        """The items that are no longer as they were seen last; None when there are too many to look at."""
        read, since = self._site.store.read, timestamp(self._seen - OVERLAP)
        begun = pages.begun_since(read, self._run_id, since, limit=MOST_LOOKED_AT)
        touched = begun | pages.running_ids(read, self._run_id, limit=MOST_LOOKED_AT) | set(self._known)
        if len(touched) >= MOST_LOOKED_AT:
            self._known = {}
            return None
        rows = {row["id"]: row for row in pages.items_by_id(read, self._run_id, sorted(touched))}
        changed = {id_: row for id_, row in rows.items() if self._known.get(id_) != row}
        self._known = {id_: row for id_, row in rows.items() if row["status"] == RUNNING or id_ in begun}
        return changed

    def _money_lately(self, now: datetime) -> Money:
        """What was set aside and spent, a sum over all attempts, asked for less often than the rest."""
        seen = self._standing
        if seen is None or seen.status != RUNNING or now - self._counted >= BETWEEN_SUMS:
            self._counted = now
            budget = self._budget if self._progress is None else self._progress.budget_usd
            self._money = money_of(self._site, self._run_id, budget)
        return self._money

    def _is_time(self, standing: Standing, now: datetime) -> bool:
        return standing.status == RUNNING and now - self._told >= AT_LEAST_EVERY


def _named(before: Standing, after: Standing, changed: dict[str, Row] | None) -> dict[str, Row] | None:
    """The items that changed; None when more did than those that were begun or under way."""
    at_once = before.status != after.status or before.item_count != after.item_count
    waiting = before.counts[QUEUED] - after.counts[QUEUED]
    return None if changed is None or at_once or not 0 <= waiting <= len(changed) else changed


def _is_news(before: Standing, after: Standing) -> bool:
    """Whether anything differs but the time that passes."""
    return before.model_dump(exclude=PASSING) != after.model_dump(exclude=PASSING)
