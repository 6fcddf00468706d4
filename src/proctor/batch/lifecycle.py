"""Stop a batch from outside: ask its process, and end it ourselves if that has gone.

Knows nothing of who asks.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.item import RUNNING
from proctor.processes import end_attempt
from proctor.store import Scope, Store
from proctor.workspace.worktree import remove_folder, session_folder

PATIENCE_SECONDS = 60
"""Items have some seconds to end well before they are killed, and a merge is never torn apart."""


def abort_run(
    store: Store, run_id: str, *, now: Callable[[], datetime], pause: Callable[[float], None]
) -> str:
    """Stop a batch for good; the status it has then. Waits until its process has stopped."""
    batch = store.read.batch(run_id, now())
    if batch["status"] in ("completed", "aborted"):
        raise UsageError(f"run {run_id} is already {batch['status']}\nThere is nothing left to stop.")
    store.request_abort(run_id, now())
    started = now()
    while batch["status"] == RUNNING and (now() - started).total_seconds() < PATIENCE_SECONDS:
        pause(0.1)
        batch = store.read.batch(run_id, now())
    if batch["status"] in ("interrupted", "halted"):
        for session in store.read.sessions(Scope(run_id=run_id), limit=100_000):
            if session["status"] == RUNNING:
                end_attempt(session["id"])
        store.end_batch(run_id, "aborted", "aborted", "the batch was aborted", now())
    return str(store.read.batch(run_id, now())["status"])


# Clear away what attempts left behind whose process was killed.


def clear_leftovers(sessions: Iterable[Mapping[str, Any]], home: Path) -> None:
    """End every process these sessions may have left running, and remove their work trees."""
    for session in sessions:
        end_attempt(session["id"])
        if session["worktree"]:
            remove_folder(session_folder(home, session["id"]))
