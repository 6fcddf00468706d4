"""What changes while runs are executed: the runs, one run with its items, a session, open questions.

Changes are counted in versions, from 1. Whoever follows them asks with the version that is known, 0 at first,
and gets the current one with what has changed since. None of these objects is thread-safe.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from proctor.api.run_list import RunLine, RunLines
from proctor.api.run_state import RunFollower, RunState
from proctor.api.runs import open_questions, status_of
from proctor.api.sessions import find_session
from proctor.context import RunContext
from proctor.item import QUEUED, RUNNING
from proctor.json_values import JsonMap, JsonObject, camel_document
from proctor.store import items as pages
from proctor.store import timestamp
from proctor.store.items import PageItem
from proctor.store.runs import batch_states

MOST_ITEMS = 300
"""Changed items that are listed; a page shows fewer than a hundred."""
MOST_LOOKED_AT = 1000
"""Items compared in each look; beyond that, pages reload the items they show."""
AT_LEAST_EVERY = timedelta(seconds=5)
"""Interval of updates of an idle run, so that its rate and remaining time change."""
MOST_VERSIONS = 200
"""Versions that are remembered: about a minute of a busy run."""
BETWEEN_LOOKS = timedelta(milliseconds=150)
# Totals of large runs are slow: looking takes at most a tenth of the time.
REST = 10
# Clocks of processes may differ, and a commit takes time.
OVERLAP = timedelta(seconds=2)


class Changes(Protocol):
    """A state that changes."""

    def since(self, version: int) -> tuple[int, JsonMap]:
        """The current version, and the changes since `version`; 0: the complete state. An equal version means
        no changes. Raises `ProctorError` when there is nothing to follow any more."""


class StateChanges:
    """A small state, which is complete in every change."""

    def __init__(self, read: Callable[[], JsonObject]) -> None:
        self._read = read
        self._version = 0
        self._state: JsonObject = {}

    def since(self, version: int) -> tuple[int, JsonMap]:
        """The current version, and the whole state."""
        current = self._read()
        if current != self._state:
            self._state, self._version = current, max(self._version, version) + 1
        return self._version, self._state


def session_changes(ctx: RunContext, session_id: str) -> StateChanges:
    """Follows status and last position of one session."""
    return StateChanges(find_session(ctx, session_id).state)


def question_changes(ctx: RunContext, run_id: str) -> StateChanges:
    """Follows the open questions of one run; there are never many."""
    run_id, _ = status_of(ctx, run_id)
    return StateChanges(lambda: {"questions": open_questions(ctx, run_id)})


class RunChanges:
    """Follows the state and the items of one run."""

    def __init__(self, ctx: RunContext, run_id: str) -> None:
        self._ctx = ctx
        self._run_id, _ = status_of(ctx, run_id)
        self._follower = RunFollower(ctx.store.read, self._run_id)
        self._version = 0
        self._standing: RunState | None = None
        self._known: dict[str, PageItem] = {}
        """Recently started and running items, as last seen."""
        self._checked_at = self._sent_at = ctx.now()
        self._versions: deque[tuple[int, dict[str, PageItem] | None]] = deque(maxlen=MOST_VERSIONS)
        """Each version with its changed items; None: too many."""

    def since(self, version: int) -> tuple[int, JsonMap]:
        """The state of the run, and the items changed since a version."""
        if self._standing is None or abs(self._ctx.now() - self._checked_at) >= BETWEEN_LOOKS:
            self._standing = self._look(self._standing)
        changes: JsonObject = {"run": camel_document(self._standing)}
        if version == self._version:
            return version, changes
        changed = self._changed_since(version)
        if changed is None:
            return self._version, changes | {"items": [], "reset": version != 0}
        return self._version, changes | {"items": list(changed.values()), "reset": False}

    def _changed_since(self, version: int) -> dict[str, PageItem] | None:
        """The items changed after a version; None: unknown or too many."""
        later = [changed for since, changed in self._versions if since > version]
        if not version or len(later) != self._version - version:
            return None
        together: dict[str, PageItem] = {}
        for changed in later:
            if changed is None:
                return None
            together |= changed
        return together if len(together) <= MOST_ITEMS else None

    def _look(self, before: RunState | None) -> RunState:
        now = self._ctx.now()
        # Read before the figures: a change in between is then noticed twice, not missed.
        changed = self._changed_items()
        standing = self._follower.look(now)
        self._checked_at = now
        if before is None:
            self._version = 1
        elif changed or changed is None or _is_news(before, standing) or self._is_time(standing, now):
            self._version, self._sent_at = self._version + 1, now
            self._versions.append((self._version, _changed_items(before, standing, changed)))
        return standing

    def _changed_items(self) -> dict[str, PageItem] | None:
        """The items that are no longer as they were seen last; None when there are too many to look at."""
        read, since = self._ctx.store.read, timestamp(self._checked_at - OVERLAP)
        begun = pages.items_started_since(read, self._run_id, since, limit=MOST_LOOKED_AT)
        touched = begun | pages.running_ids(read, self._run_id, limit=MOST_LOOKED_AT) | set(self._known)
        if len(touched) >= MOST_LOOKED_AT:
            self._known = {}
            return None
        rows = {row["id"]: row for row in pages.items_by_id(read, self._run_id, sorted(touched))}
        changed = {id_: row for id_, row in rows.items() if self._known.get(id_) != row}
        self._known = {id_: row for id_, row in rows.items() if row["status"] == RUNNING or id_ in begun}
        return changed

    def _is_time(self, standing: RunState, now: datetime) -> bool:
        return standing.status == RUNNING and abs(now - self._sent_at) >= AT_LEAST_EVERY


def _changed_items(
    before: RunState, after: RunState, changed: dict[str, PageItem] | None
) -> dict[str, PageItem] | None:
    """The changed items; None: others changed than those that started or were running."""
    at_once = before.status != after.status or before.item_count != after.item_count
    waiting = before.counts[QUEUED] - after.counts[QUEUED]
    return None if changed is None or at_once or not 0 <= waiting <= len(changed) else changed


def _is_news(before: RunState, after: RunState) -> bool:
    """Whether anything other than elapsed time differs, which pages update themselves."""
    return _without_time(before) != _without_time(after)


def _without_time(state: RunState) -> RunState:
    running = [replace(item, elapsed_seconds=0.0) for item in state.running]
    return replace(state, elapsed_seconds=0.0, eta_seconds=None, items_per_minute=None, running=running)


class RunListChanges:
    """Follows all runs, and the state of the running ones."""

    def __init__(self, ctx: RunContext, _: str = "") -> None:
        self._ctx = ctx
        self._lines = RunLines(ctx)
        self._version = 1
        self._standing: dict[str, tuple[str, str]] | None = None
        self._changed: dict[str, tuple[int, RunLine]] = {}
        """The last line listed of each run, with its version."""
        self._removed: dict[str, int] = {}
        self._next_look = 0.0

    def since(self, version: int) -> tuple[int, JsonMap]:
        """The runs changed since a version."""
        began = self._ctx.monotonic()
        if began >= self._next_look:
            self._look()
            self._next_look = began + REST * (self._ctx.monotonic() - began)
        changed = [camel_document(line) for since, line in self._changed.values() if since > version]
        removed = [run_id for run_id, since in self._removed.items() if since > version]
        return self._version, {"changed": changed, "removed": removed, "total": len(self._standing or {})}

    def _look(self) -> None:
        standing = batch_states(self._ctx.store.read, self._ctx.now())
        before = self._standing if self._standing is not None else dict(standing)
        moved = [run_id for run_id, now in standing.items() if before.get(run_id) != now]
        under_way = [run_id for run_id, (status, _) in standing.items() if status == RUNNING]
        lines = self._lines.named(list(dict.fromkeys([*moved, *under_way])))
        different = [line for line in lines if self._changed.get(line.run_id, (0, None))[1] != line]
        gone = before.keys() - standing.keys()
        self._standing = standing
        if not different and not gone:
            return
        self._version += 1
        for line in different:
            self._changed[line.run_id] = (self._version, line)
            self._removed.pop(line.run_id, None)
        for run_id in gone:
            self._changed.pop(run_id, None)
            self._removed[run_id] = self._version
