"""What has become of the runs, for pages that list them.

Everything is the lines of those under way; a difference is the lines of those that have changed, and the
ids of those that are gone. A page has the others already, from its own list.

Knows nothing of sockets.
"""

import asyncio
import time
from typing import Any

from proctor.item import RUNNING
from proctor.store import listing
from proctor.web.run_list import RunLine, RunLines
from proctor.web.site import Site

# Adding up a run of a hundred thousand items takes a while; nine tenths of the time are for others.
REST = 10


class RunsTopic:
    """All runs: which there are, and how far those under way are."""

    def __init__(self, site: Site, _: str) -> None:
        self._site = site
        self._lines = RunLines(site)
        self._lock = asyncio.Lock()
        self._version = 1
        self._standing: dict[str, tuple[str, str]] | None = None
        self._changed: dict[str, tuple[int, RunLine]] = {}
        """The last line of each run that was told, and the version that told it."""
        self._removed: dict[str, int] = {}
        self._next_look = 0.0

    async def state(self, version: int) -> tuple[int, Any]:
        """The runs that have changed since a version."""
        async with self._lock:
            if time.monotonic() >= self._next_look:
                began = time.monotonic()
                await asyncio.to_thread(self._look)
                self._next_look = began + REST * (time.monotonic() - began)
            changed = [line.model_dump() for since, line in self._changed.values() if since > version]
            removed = [run_id for run_id, since in self._removed.items() if since > version]
            return self._version, {"changed": changed, "removed": removed, "total": len(self._standing or {})}

    def _look(self) -> None:
        standing = listing.standing_of_all(self._site.store.read, self._site.now())
        before = self._standing if self._standing is not None else dict(standing)
        moved = [run_id for run_id, now in standing.items() if before.get(run_id) != now]
        under_way = [run_id for run_id, (status, _) in standing.items() if status == RUNNING]
        lines = self._lines.named(list(dict.fromkeys([*moved, *under_way])))
        different = [line for line in lines if self._changed.get(line.runId, (0, None))[1] != line]
        gone = before.keys() - standing.keys()
        self._standing = standing
        if not different and not gone:
            return
        self._version += 1
        for line in different:
            self._changed[line.runId] = (self._version, line)
            self._removed.pop(line.runId, None)
        for run_id in gone:
            self._changed.pop(run_id, None)
            self._removed[run_id] = self._version
