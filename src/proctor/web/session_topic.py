"""How far one session is, for pages that watch it: its status, and the position of its last event.

The events themselves are asked for by position, like those of any other session.

Knows nothing of the channel this is told through.
"""

import asyncio
from typing import Any

from proctor.store import transcripts
from proctor.web.session_document import find_session
from proctor.web.site import Site


class SessionTopic:
    """One session."""

    def __init__(self, site: Site, session_id: str) -> None:
        self._site = site
        self._id = find_session(site, session_id)["id"]
        self._version = 0
        self._state: dict[str, Any] = {}

    async def state(self, version: int) -> tuple[int, Any]:
        """What there is now; all of it, since it is little."""
        found = await asyncio.to_thread(self._look)
        if found != self._state:
            self._state, self._version = found, max(self._version, version) + 1
        return self._version, self._state

    def _look(self) -> dict[str, Any]:
        row = find_session(self._site, self._id)
        last, count = transcripts.extent(self._site.store.read, self._id)
        steps = transcripts.step_count(self._site.store.read, self._id)
        return {
            "status": row["status"],
            "endReason": row["endReason"],
            "lastPosition": last,
            "eventCount": count,
            "stepCount": steps,
        }
