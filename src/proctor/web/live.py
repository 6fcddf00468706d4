"""What changes, told to whoever watches: one WebSocket a tab.

A page says what it watches and which version of that it has; it is sent what has changed since, with the
version that makes. So a page that was away catches up, and one that is slow gets fewer, larger messages.
The runs live in other processes: what happens is found by asking the store a few times a second, once
for everybody who watches the same, and only while somebody does.

    page    {"watch": [{"topic": "runs"}, {"topic": "run", "id": "nightly", "version": 12, "epoch": "5f0c"}]}
    server  {"topic": "run", "id": "nightly", "version": 13, "epoch": "5f0c", "full": false, "changes": {…}}

`watch` is the whole list each time: what is not in it is no longer watched. `full` says that `changes` is
everything and not a difference, as for a version 0 or one of another epoch (of a server before this).

Knows nothing of what the topics are about.
"""

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from proctor.errors import ProctorError, StoreError
from proctor.item import QUEUED, RUNNING
from proctor.json_values import parse_json
from proctor.stats.progress import Progress
from proctor.store import items as pages
from proctor.store import runs, timestamp, transcripts
from proctor.store.items import PageItem
from proctor.web.run_schemas import RunState
from proctor.web.run_views import Money, RunLine, RunLines, item_shape, money_of, standing_of
from proctor.web.sessions import find_session
from proctor.web.state import AppState

TICK_SECONDS = 0.3


KEPT_SECONDS = 120
"""A topic nobody watches is kept so long, for a page whose connection broke."""


MOST_WATCHED = 20
"""Topics a page may watch at once; the busiest of ours watches three."""


MOST_CHARACTERS = 20_000
"""Of one message of a page."""


class Topic(Protocol):
    """Something that changes and can be watched."""

    async def state(self, version: int) -> tuple[int, Any]:
        """The version it has now, and what has changed since `version`; everything when that is 0.

        Versions count from 1. An equal version means that nothing has. May raise a `ProctorError`, which
        ends the watching.
        """


MakeTopic = Callable[[AppState, str], Topic]
"""Makes the topic of an id; raises `NotFound` where there is none."""


@dataclass(slots=True)
class _WatchedTopic:
    """A topic that somebody watches, and the answer of this tick."""

    topic: Topic
    epoch: str
    seen: float
    answers: dict[tuple[int, int], "asyncio.Task[tuple[int, Any]]"] = field(default_factory=dict)


class Hub:
    """All that is watched on this server, each asked once a tick whoever watches."""

    def __init__(self, site: AppState, topics: Mapping[str, MakeTopic]) -> None:
        self._site = site
        self._topics = topics
        self._watched: dict[tuple[str, str], _WatchedTopic] = {}

    async def watch(self, topic: str, id_: str) -> str:
        """Begin to watch, or go on; the epoch its versions belong to. Raises where there is no such topic."""
        key = (topic, id_)
        if topic not in self._topics:
            raise ProctorError(f"there is no topic {topic}")
        if key not in self._watched:
            made = await asyncio.to_thread(self._topics[topic], self._site, id_)
            # Another page may have asked for the same meanwhile.
            self._watched.setdefault(key, _WatchedTopic(made, secrets.token_hex(4), time.monotonic()))
        self._watched[key].seen = time.monotonic()
        self._forget()
        return self._watched[key].epoch

    async def changes(self, topic: str, id_: str, version: int) -> tuple[int, Any]:
        """What has changed since `version`, asked once for everybody within a tick."""
        watched = self._watched[topic, id_]
        watched.seen = time.monotonic()
        tick = int(watched.seen / TICK_SECONDS)
        for key, task in list(watched.answers.items()):
            if task.done() and (key[0] != tick or task.exception()):
                del watched.answers[key]
        if (tick, version) not in watched.answers:
            watched.answers[tick, version] = asyncio.create_task(_asked(watched.topic, version))
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(watched.answers[tick, version])

    def _forget(self) -> None:
        oldest = time.monotonic() - KEPT_SECONDS
        for key in [key for key, watched in self._watched.items() if watched.seen < oldest]:
            del self._watched[key]


async def _asked(topic: Topic, version: int) -> tuple[int, Any]:
    return await topic.state(version)


def until_next_tick() -> float:
    """Seconds until everybody who watches is told again."""
    return TICK_SECONDS - time.monotonic() % TICK_SECONDS


@dataclass(slots=True)
class _Watch:
    topic: str
    id: str
    epoch: str
    version: int


class _Tab:
    """One page and what it watches."""

    def __init__(self, socket: WebSocket, hub: Hub) -> None:
        self._socket = socket
        self._hub = hub
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Until the page goes away. What goes wrong is raised: a page that is cut off connects anew, one that
        is no longer told anything would stand still."""
        tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._tell())]
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
            # Bytes instead of a text make no more sense than a text that does not.
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
        self._asked.set()

    async def _watch(self, entry: Mapping[str, Any], before: Mapping[Any, _Watch]) -> _Watch | None:
        topic, id_ = str(entry.get("topic", "")), str(entry.get("id", ""))
        try:
            epoch = await self._hub.watch(topic, id_)
        except ProctorError as error:
            await self._send_error(topic, id_, error)
            return None
        version = entry.get("version")
        known = before.get((topic, id_))
        # What it is being told just now it cannot have yet; but one that has nothing wants everything.
        if known and version:
            return known
        caught_up = entry.get("epoch") == epoch and isinstance(version, int)
        return _Watch(topic, id_, epoch, version if caught_up and version is not None else 0)

    async def _tell(self) -> None:
        while True:
            for watch in list(self._watches.values()):
                await self._tell_of(watch)
            self._asked.clear()
            try:
                await asyncio.wait_for(self._asked.wait(), until_next_tick() if self._watches else None)
            except TimeoutError:
                pass

    async def _tell_of(self, watch: _Watch) -> None:
        try:
            version, changes = await self._hub.changes(watch.topic, watch.id, watch.version)
        except StoreError:
            # It is asked again at the next tick, and may answer then.
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

    async def _send(self, message: Mapping[str, Any]) -> None:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        try:
            await self._socket.send_text(text)
        except (RuntimeError, OSError) as error:
            # The page went away while it was being told.
            raise WebSocketDisconnect(1006) from error


def _entries(text: str) -> list[Mapping[str, Any]] | None:
    """What a page wants to watch; None when its message makes no sense."""
    try:
        wanted = parse_json(text) if len(text) <= MOST_CHARACTERS else None
    except ValueError:
        return None
    entries = wanted.get("watch") if isinstance(wanted, dict) else None
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


# What changes in one run, for pages that watch it: how far it is, and which items are not as they were.


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

    def __init__(self, site: AppState, run_id: str) -> None:
        self._site = site
        batch = site.store.read.batch(run_id, site.now())
        self._run_id, self._budget = batch["runId"], batch["budgetUsd"]
        self._money: Money = (0.0, 0.0)
        self._counted = site.now()
        self._lock = asyncio.Lock()
        self._version = 0
        self._standing: RunState | None = None
        self._progress: Progress | None = None
        self._known: dict[str, PageItem] = {}
        """The items that were begun lately or are under way, as they were seen last."""
        self._seen = self._told = site.now()
        self._looks: deque[tuple[int, dict[str, PageItem] | None]] = deque(maxlen=KEPT_LOOKS)
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

    def _changed_since(self, version: int) -> dict[str, PageItem] | None:
        """The items that changed after a version, as they are; None when that cannot be said one by one."""
        later = [changed for made, changed in self._looks if made > version]
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

    def _changed_items(self) -> dict[str, PageItem] | None:
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

    def _is_time(self, standing: RunState, now: datetime) -> bool:
        return standing.status == RUNNING and now - self._told >= AT_LEAST_EVERY


def _named(
    before: RunState, after: RunState, changed: dict[str, PageItem] | None
) -> dict[str, PageItem] | None:
    """The items that changed; None when more did than those that were begun or under way."""
    at_once = before.status != after.status or before.item_count != after.item_count
    waiting = before.counts[QUEUED] - after.counts[QUEUED]
    return None if changed is None or at_once or not 0 <= waiting <= len(changed) else changed


def _is_news(before: RunState, after: RunState) -> bool:
    """Whether anything differs but the time that passes."""
    return before.model_dump(exclude=PASSING) != after.model_dump(exclude=PASSING)


# What has become of the runs, for pages that list them.


# Adding up a run of a hundred thousand items takes a while; nine tenths of the time are for others.
REST = 10


class RunsTopic:
    """All runs: which there are, and how far those under way are."""

    def __init__(self, site: AppState, _: str) -> None:
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
        standing = runs.standing_of_all(self._site.store.read, self._site.now())
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


# How far one session is, for pages that watch it: its status, and the position of its last event.


class SessionTopic:
    """One session."""

    def __init__(self, site: AppState, session_id: str) -> None:
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
