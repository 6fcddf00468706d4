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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from proctor.errors import ProctorError, StoreError
from proctor.untrusted import parse_json
from proctor.web.site import Site

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


MakeTopic = Callable[[Site, str], Topic]
"""Makes the topic of an id; raises `NotFound` where there is none."""


@dataclass(slots=True)
class _Watched:
    """A topic that somebody watches, and the answer of this tick."""

    topic: Topic
    epoch: str
    seen: float
    answers: dict[tuple[int, int], "asyncio.Task[tuple[int, Any]]"] = field(default_factory=dict)


class Hub:
    """All that is watched on this server, each asked once a tick whoever watches."""

    def __init__(self, site: Site, topics: Mapping[str, MakeTopic]) -> None:
        self._site = site
        self._topics = topics
        self._watched: dict[tuple[str, str], _Watched] = {}

    async def watch(self, topic: str, id_: str) -> str:
        """Begin to watch, or go on; the epoch its versions belong to. Raises where there is no such topic."""
        key = (topic, id_)
        if topic not in self._topics:
            raise ProctorError(f"there is no topic {topic}")
        if key not in self._watched:
            made = await asyncio.to_thread(self._topics[topic], self._site, id_)
            # Another page may have asked for the same meanwhile.
            self._watched.setdefault(key, _Watched(made, secrets.token_hex(4), time.monotonic()))
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


def live_router(site: Site, topics: Iterable[tuple[str, MakeTopic]]) -> APIRouter:
    """The route of the live channel."""
    router = APIRouter()
    hub = Hub(site, dict(topics))

    @router.websocket("/api/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            await _Tab(socket, hub).run()

    return router
