"""Live updates over one WebSocket per browser tab.

A page sends the topics it watches and the version it has of each; it receives the changes since, with the new
version. A page that was disconnected catches up, and a slow one receives fewer, larger messages. Runs are
executed by other processes. A few times per second the store is asked whether anything was committed, which
SQLite counts and PostgreSQL notifies of. Only then topics are read, once for all their watchers.

    page    {"watch": [{"topic": "runs"}, {"topic": "run", "id": "nightly", "version": 12, "epoch": "5f0c"}]}
    server  {"topic": "run", "id": "nightly", "version": 13, "epoch": "5f0c", "full": false, "changes": {…}}

`watch` replaces the whole list. `full`: `changes` is the complete state, as for version 0 or a version of
another epoch (an earlier server process).
"""

import asyncio
import json
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from fastapi import APIRouter
from pydantic import TypeAdapter
from starlette.websockets import WebSocket, WebSocketDisconnect

from proctor.api.run_list import RunLine, RunLines
from proctor.api.run_state import RunFollower, RunState
from proctor.api.sessions import find_session
from proctor.errors import ProctorError, StoreError
from proctor.item import QUEUED, RUNNING
from proctor.json_values import JsonMap, JsonObject, camel_document, parse_json
from proctor.store import items as pages
from proctor.store import runs, timestamp
from proctor.store.items import PageItem
from proctor.web.state import AppState

TICK_SECONDS = 0.3
QUIET_SECONDS = 1.0
"""Topics are read at least this often: processes die, and time passes, without a commit."""
UNWATCHED_SECONDS = 120
"""How long an unwatched topic is kept, for pages that reconnect."""
MOST_WATCHED = 20
"""Topics per page; the pages use up to three."""
MOST_CHARACTERS = 20_000
"""Maximum length of a message from a page."""


class Topic(Protocol):
    """State that can be watched."""

    async def state(self, version: int) -> tuple[int, Any]:
        """The current version and the changes since `version`; 0: the complete state.

        Versions count from 1; an equal version means no changes. A `ProctorError` ends the watch.
        """


MakeTopic = Callable[[AppState, str], Topic]
"""Makes the topic of an ID; raises `NotFound`."""


@dataclass(slots=True)
class _WatchedTopic:
    """A watched topic and its responses of the current tick."""

    topic: Topic
    epoch: str
    last_used: float
    version: int = 0
    """Its version when it was read last."""
    read_at: float = -math.inf
    commits: int = -1
    """The version of the store at that time."""
    answers: dict[tuple[int, int], "asyncio.Task[tuple[int, Any]]"] = field(default_factory=dict)


class Hub:
    """The watched topics of the server; each is polled once per tick."""

    def __init__(self, site: AppState, topics: Mapping[str, MakeTopic]) -> None:
        self._site = site
        self._topics = topics
        self._watched: dict[tuple[str, str], _WatchedTopic] = {}
        self._commits: tuple[int, asyncio.Task[int]] | None = None
        """The version of the store at a tick."""

    async def watch(self, topic: str, id_: str) -> str:
        """Begin to watch, or go on; the epoch its versions belong to. Raises where there is no such topic."""
        key = (topic, id_)
        if topic not in self._topics:
            raise ProctorError(f"there is no topic {topic}")
        if key not in self._watched:
            created = await asyncio.to_thread(self._topics[topic], self._site, id_)
            # Another page may have added the same topic meanwhile.
            self._watched.setdefault(key, _WatchedTopic(created, secrets.token_hex(4), time.monotonic()))
        self._watched[key].last_used = time.monotonic()
        self._drop_unwatched()
        return self._watched[key].epoch

    async def changes(self, topic: str, id_: str, version: int) -> tuple[int, Any]:
        """The changes since `version`, computed once per tick for all watchers."""
        watched = self._watched[topic, id_]
        watched.last_used = time.monotonic()
        tick = int(watched.last_used / TICK_SECONDS)
        for key, task in list(watched.answers.items()):
            if task.done() and (key[0] != tick or task.exception()):
                del watched.answers[key]
        if (tick, version) not in watched.answers:
            watched.answers[tick, version] = asyncio.create_task(self._read(watched, tick, version))
        # A page that disconnects must not cancel it for the others.
        return await asyncio.shield(watched.answers[tick, version])

    async def _read(self, watched: _WatchedTopic, tick: int, version: int) -> tuple[int, Any]:
        if self._commits is None or self._commits[0] != tick:
            self._commits = tick, asyncio.create_task(asyncio.to_thread(self._site.context.store.commits))
        # Read first: a commit while the topic is read is then noticed twice, not missed.
        commits, now = await self._commits[1], time.monotonic()
        is_quiet = commits == watched.commits and now < watched.read_at + QUIET_SECONDS
        if is_quiet and version == watched.version:
            return version, {}
        answer = await watched.topic.state(version)
        watched.version, watched.commits, watched.read_at = answer[0], commits, now
        return answer

    def _drop_unwatched(self) -> None:
        oldest = time.monotonic() - UNWATCHED_SECONDS
        for key in [key for key, watched in self._watched.items() if watched.last_used < oldest]:
            del self._watched[key]


def until_next_tick() -> float:
    """Seconds until the next tick."""
    return TICK_SECONDS - time.monotonic() % TICK_SECONDS


@dataclass(slots=True)
class _Subscription:
    topic: str
    id: str
    epoch: str
    version: int


class _Tab:
    """One page and its watches."""

    def __init__(self, socket: WebSocket, hub: Hub) -> None:
        self._socket = socket
        self._hub = hub
        self._watches: dict[tuple[str, str], _Subscription] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Serve the page until it disconnects. Errors are raised, so that the page reconnects."""
        tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._send_changes())]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message["code"])
            # Binary messages are invalid like malformed text.
            await self._take(message.get("text") or "")

    async def _take(self, text: str) -> None:
        entries = _entries(text)
        if entries is None:
            await self._socket.close(4400, "say what to watch")
            raise WebSocketDisconnect(4400)
        before, self._watches = self._watches, {}
        for entry in entries:
            if watch := await self._watch(entry, before):
                self._watches[watch.topic, watch.id] = watch
        self._changed.set()

    async def _watch(
        self, entry: JsonMap, before: Mapping[tuple[str, str], _Subscription]
    ) -> _Subscription | None:
        topic, id_ = str(entry.get("topic", "")), str(entry.get("id", ""))
        try:
            epoch = await self._hub.watch(topic, id_)
        except ProctorError as error:
            await self._send_error(topic, id_, error)
            return None
        version = entry.get("version")
        known = before.get((topic, id_))
        # Changes may be in flight, so the known version counts; without a version, everything is sent.
        if known and version:
            return known
        caught_up = entry.get("epoch") == epoch and isinstance(version, int)
        return _Subscription(topic, id_, epoch, version if caught_up and isinstance(version, int) else 0)

    async def _send_changes(self) -> None:
        while True:
            for watch in list(self._watches.values()):
                await self._send_change(watch)
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), until_next_tick() if self._watches else None)
            except TimeoutError:
                pass

    async def _send_change(self, watch: _Subscription) -> None:
        try:
            version, changes = await self._hub.changes(watch.topic, watch.id, watch.version)
        except StoreError:
            # Retried at the next tick.
            return
        except ProctorError as error:
            self._watches.pop((watch.topic, watch.id), None)
            await self._send_error(watch.topic, watch.id, error)
            return
        if version != watch.version or not watch.version:
            full, watch.version = watch.version == 0, version
            about = {"topic": watch.topic, "id": watch.id, "version": version, "epoch": watch.epoch}
            await self._send({**about, "full": full, "changes": changes})

    async def _send_error(self, topic: str, id_: str, error: ProctorError) -> None:
        problem, _, remedy = str(error).partition("\n")
        await self._send({"topic": topic, "id": id_, "error": {"problem": problem, "remedy": remedy}})

    async def _send(self, message: JsonMap) -> None:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        try:
            await self._socket.send_text(text)
        except (RuntimeError, OSError) as error:
            # The page disconnected during the send.
            raise WebSocketDisconnect(1006) from error


def _entries(text: str) -> list[JsonMap] | None:
    """The entries of a watch message; None: malformed."""
    try:
        message = parse_json(text) if len(text) <= MOST_CHARACTERS else None
    except ValueError:
        return None
    entries = message.get("watch") if isinstance(message, dict) else None
    if not isinstance(entries, list) or len(entries) > MOST_WATCHED:
        return None
    return [entry for entry in entries if isinstance(entry, dict)]


def live_router(site: AppState, topics: Iterable[tuple[str, MakeTopic]]) -> APIRouter:
    """The route of the live channel."""
    router = APIRouter()
    hub = Hub(site, dict(topics))

    @router.websocket("/api/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            await _Tab(socket, hub).run()

    return router


MOST_ITEMS = 300
"""Changed items that are sent one by one; a page shows fewer than a hundred."""
MOST_LOOKED_AT = 1000
"""Items compared in each poll; beyond that, pages reload the items they show."""
RUN_STATE = TypeAdapter(RunState)
AT_LEAST_EVERY = timedelta(seconds=5)
"""Interval of updates of an idle run, so that its rate and remaining time change."""
MOST_VERSIONS = 200
"""Versions a page can catch up on: about a minute of a busy run."""
BETWEEN_LOOKS = timedelta(milliseconds=150)

# Clocks of processes may differ, and a commit takes time.
OVERLAP = timedelta(seconds=2)


class RunTopic:
    """State and changed items of one run."""

    def __init__(self, site: AppState, run_id: str) -> None:
        self._site = site
        batch = site.context.store.read.batch(run_id, site.now())
        self._run_id = batch["runId"]
        self._follower = RunFollower(site.context.store.read, self._run_id)
        self._lock = asyncio.Lock()
        self._version = 0
        self._standing: RunState | None = None
        self._known: dict[str, PageItem] = {}
        """Recently started and running items, as last seen."""
        self._checked_at = self._sent_at = site.now()
        self._versions: deque[tuple[int, dict[str, PageItem] | None]] = deque(maxlen=MOST_VERSIONS)
        """Each version with its changed items; None: too many."""

    async def state(self, version: int) -> tuple[int, Any]:
        """The state of the run and the items changed since a version."""
        async with self._lock:
            if self._standing is None or abs(self._site.now() - self._checked_at) >= BETWEEN_LOOKS:
                await asyncio.to_thread(self._look)
        assert self._standing is not None
        changes: JsonObject = {"run": RUN_STATE.dump_python(self._standing, by_alias=True)}
        if version == self._version:
            return version, changes
        changed = self._changed_since(version)
        if changed is None:
            return self._version, changes | {"items": [], "reset": version != 0}
        items = list(changed.values())
        return self._version, changes | {"items": items, "reset": False}

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

    def _look(self) -> None:
        before, now = self._standing, self._site.now()
        # Read before the figures: a change in between is then noticed twice, not missed.
        changed = self._changed_items()
        standing = self._follower.look(now)
        self._standing, self._checked_at = standing, now
        if before is None:
            self._version = 1
        elif changed or changed is None or _is_news(before, standing) or self._is_time(standing, now):
            self._version, self._sent_at = self._version + 1, now
            self._versions.append((self._version, _changed_items(before, standing, changed)))

    def _changed_items(self) -> dict[str, PageItem] | None:
        """The items that are no longer as they were seen last; None when there are too many to look at."""
        read, since = self._site.context.store.read, timestamp(self._checked_at - OVERLAP)
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


# Totals of large runs are slow: polling takes at most a tenth of the time.
REST = 10


class RunsTopic:
    """All runs and the state of the running ones."""

    def __init__(self, site: AppState, _: str) -> None:
        self._site = site
        self._lines = RunLines(site.context)
        self._lock = asyncio.Lock()
        self._version = 1
        self._standing: dict[str, tuple[str, str]] | None = None
        self._changed: dict[str, tuple[int, RunLine]] = {}
        """The last line sent of each run, with its version."""
        self._removed: dict[str, int] = {}
        self._next_look = 0.0

    async def state(self, version: int) -> tuple[int, Any]:
        """The runs changed since a version."""
        async with self._lock:
            if time.monotonic() >= self._next_look:
                began = time.monotonic()
                await asyncio.to_thread(self._look)
                self._next_look = began + REST * (time.monotonic() - began)
            changed = [camel_document(line) for since, line in self._changed.values() if since > version]
            removed = [run_id for run_id, since in self._removed.items() if since > version]
            return self._version, {"changed": changed, "removed": removed, "total": len(self._standing or {})}

    def _look(self) -> None:
        standing = runs.batch_states(self._site.context.store.read, self._site.now())
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


class SessionTopic:
    """Status and last position of one session."""

    def __init__(self, site: AppState, session_id: str) -> None:
        self._site = site
        self._session = find_session(site.context, session_id)
        self._version = 0
        self._state: JsonObject = {}

    async def state(self, version: int) -> tuple[int, Any]:
        """The complete state."""
        current = await asyncio.to_thread(self._session.state)
        if current != self._state:
            self._state, self._version = current, max(self._version, version) + 1
        return self._version, self._state
