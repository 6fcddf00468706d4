"""Take away sessions that came from elsewhere: by name, by log group, or because they are old.

What was carried out here belongs to a run and goes with it.

Knows nothing of who asked whether the user is sure.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from proctor.batch.arrivals import tell_arrivals
from proctor.errors import UsageError
from proctor.store import Store, timestamp

AT_ONCE = 200
"""Sessions that go in one transaction: others who want to write wait for so long."""


def imported_sessions(
    store: Store,
    now: datetime,
    *,
    session_ids: Sequence[str] = (),
    log_group: str = "",
    before: datetime | None = None,
) -> list[str]:
    """The imported sessions that are meant, in the store's words; all of what is given must hold.

    `session_ids` may be the names their sources have for them; `before`: nothing happened since.
    """
    # What has arrived and is not told yet would come back as a session after all was deleted.
    tell_arrivals(store, now)
    parts, parameters = ['"runId" IS NULL'], list[Any]()
    if log_group:
        parts.append('"logGroup" = ?')
        parameters.append(log_group)
    if before is not None:
        parts.append('COALESCE("finishedAt", "startedAt") < ?')
        parameters.append(timestamp(before))
    rows = store.read.query(
        f'SELECT "id" FROM "sessions" WHERE {" AND ".join(parts)} ORDER BY "startedAt", "id"', parameters
    )
    found = [row["id"] for row in rows]
    if not session_ids:
        return found
    named = {_named(store, session_id) for session_id in session_ids}
    return [session_id for session_id in found if session_id in named]


def forget_sessions(store: Store, session_ids: Sequence[str]) -> None:
    """Delete imported sessions with all that was kept of them. What was judged about them stays."""
    for start in range(0, len(session_ids), AT_ONCE):
        store.forget_imported(session_ids[start : start + AT_ONCE])


def _named(store: Store, session_id: str) -> str:
    row = store.read.session(session_id)
    if row["runId"]:
        raise UsageError(
            f"session {row['id']} belongs to the run {row['runId']}\n"
            f"It goes with its run:  proctor delete {row['runId']}"
        )
    return str(row["id"])
