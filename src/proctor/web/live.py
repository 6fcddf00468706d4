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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from proctor.api.changes import Changes, RunChanges, RunListChanges, question_changes, session_changes
from proctor.api.deprecated import OLD_NAMES_OF_RUNS, with_old_names
from proctor.context import RunContext
from proctor.errors import ProctorError, StoreError
from proctor.json_values import JsonMap, parse_json
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


TOPICS: Mapping[str, Callable[[RunContext, str], Changes]] = {
    "runs": RunListChanges,
    "run": RunChanges,
    "session": session_changes,
    "questions": question_changes,
}


@dataclass(slots=True)
class _WatchedTopic:
    """A watched topic and its responses of the current tick."""

    topic: Changes
    epoch: str
    last_used: float
    version: int = 0
    """Its version when it was read last."""
    read_at: float = -math.inf
    commits: int = -1
    """The version of the store at that time."""
    answers: dict[tuple[int, int], "asyncio.Task[tuple[int, JsonMap]]"] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is read, by one thread at a time."""


class Hub:
    """The watched topics of the server; each is polled once per tick."""

    def __init__(self, commits: Callable[[], int], topics: Mapping[str, Callable[[str], Changes]]) -> None:
        """`commits`: the version of the store. `topics`: begin to follow what has an ID; raise `NotFound`."""
        self._read_commits = commits
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
            created = await asyncio.to_thread(self._topics[topic], id_)
            # Another page may have added the same topic meanwhile.
            self._watched.setdefault(key, _WatchedTopic(created, secrets.token_hex(4), time.monotonic()))
        self._watched[key].last_used = time.monotonic()
        self._drop_unwatched()
        return self._watched[key].epoch

    async def changes(self, topic: str, id_: str, version: int) -> tuple[int, JsonMap]:
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

    async def _read(self, watched: _WatchedTopic, tick: int, version: int) -> tuple[int, JsonMap]:
        if self._commits is None or self._commits[0] != tick:
            self._commits = tick, asyncio.create_task(asyncio.to_thread(self._read_commits))
        # Read first: a commit while the topic is read is then noticed twice, not missed.
        commits, now = await self._commits[1], time.monotonic()
        is_quiet = commits == watched.commits and now < watched.read_at + QUIET_SECONDS
        if is_quiet and version == watched.version:
            return version, {}
        async with watched.lock:
            answer = await asyncio.to_thread(watched.topic.since, version)
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
        message = with_old_names(message, OLD_NAMES_OF_RUNS)
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


def router(site: AppState) -> APIRouter:
    """The route of the live channel."""
    routes = APIRouter()
    ctx = site.context
    hub = Hub(ctx.store.commits, {name: partial(follow, ctx) for name, follow in TOPICS.items()})

    @routes.websocket("/api/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            await _Tab(socket, hub).run()

    return routes
