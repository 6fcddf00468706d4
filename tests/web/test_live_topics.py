"""The live channel without a server: watched topics, tabs, states of runs; search and OTLP likewise."""

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from proctor.errors import NotFound, ProctorError, StoreError, UsageError
from proctor.telemetry.otlp import DecodedSpans
from proctor.web import live, otlp, search
from proctor.web.live import Hub, RunsTopic, RunTopic, SessionTopic, _Tab, _Watch

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Clock:
    """Time that passes when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(live.time, "monotonic", lambda: self.now)


class Counted:
    """A topic that counts its reads."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.answer: Any = (1, {"a": 1})

    async def state(self, version: int) -> Any:
        self.reads.append(version)
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def hub(topic: Any, commits: Any = None) -> Hub:
    site: Any = SimpleNamespace(store=SimpleNamespace(commits=commits or (lambda: 1)))
    made: list[Any] = []

    def make(site: Any, id_: str) -> Any:
        made.append(id_)
        if id_ == "none":
            raise NotFound("there is no run none")
        return topic

    found = Hub(site, {"topic": make})
    found.made = made  # type: ignore[attr-defined]
    return found


async def test_a_topic_is_made_once_and_kept_for_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    watching: Any = hub(Counted())
    epoch = await watching.watch("topic", "a")
    assert len(epoch) == 8 and await watching.watch("topic", "a") == epoch and watching.made == ["a"]
    other = await watching.watch("topic", "b")
    assert other != epoch and watching.made == ["a", "b"]
    clock.now += 60
    await watching.watch("topic", "b")
    clock.now += 60
    await watching.watch("topic", "c")
    assert watching.made == ["a", "b", "c"]
    # 120 seconds unwatched: still there. More: not any longer.
    assert await watching.watch("topic", "a") == epoch
    clock.now += 121
    await watching.watch("topic", "b")
    assert watching.made == ["a", "b", "c"] and set(watching._watched) == {("topic", "b")}
    assert await watching.watch("topic", "a") != epoch
    with pytest.raises(ProctorError, match="there is no topic weather"):
        await watching.watch("weather", "")


async def test_watchers_of_a_tick_share_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, topic = Clock(monkeypatch), Counted()
    asked: list[int] = []
    watching = hub(topic, lambda: asked.append(1) or 5)
    await watching.watch("topic", "a")
    both = await asyncio.gather(*(watching.changes("topic", "a", 0) for _ in range(3)))
    assert both == [(1, {"a": 1})] * 3 and topic.reads == [0] and asked == [1]
    # Another version is another answer of the same tick; the store is not asked again.
    assert await watching.changes("topic", "a", 3) == (1, {"a": 1})
    assert topic.reads == [0, 3] and asked == [1]
    clock.now += live.TICK_SECONDS
    assert await watching.changes("topic", "a", 1) == (1, {})
    assert topic.reads == [0, 3] and asked == [1, 1]
    assert len(watching._watched["topic", "a"].answers) == 1
    # A reading that failed is repeated in the same tick.
    clock.now += live.QUIET_SECONDS
    topic.answer = StoreError("locked")
    with pytest.raises(StoreError):
        await watching.changes("topic", "a", 1)
    topic.answer = (2, {})
    assert await watching.changes("topic", "a", 1) == (2, {})


@pytest.mark.parametrize(("moment", "left"), [(0.0, 0.3), (0.1, 0.2), (0.65, 0.25)])
def test_how_long_it_is_to_the_next_tick(moment: float, left: float, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch).now = moment
    assert live.until_next_tick() == pytest.approx(left)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", None),
        ("[]", None),
        ("{}", None),
        ('{"watch": {}}', None),
        ('{"watch": [1, {"topic": "runs"}]}', [{"topic": "runs"}]),
        (json.dumps({"watch": [{}] * 20}), [{}] * 20),
        (json.dumps({"watch": [{}] * 21}), None),
        ('{"watch": []}'.ljust(20_000), []),
        ('{"watch": []}'.ljust(20_001), None),
    ],
)
def test_what_a_page_asks_for(text: str, entries: Any) -> None:
    assert live._entries(text) == entries


class Socket:
    """A socket that keeps what is sent."""

    def __init__(self, *received: Any) -> None:
        self.received = list(received)
        self.sent: list[Any] = []
        self.closed: Any = None

    async def receive(self) -> Any:
        if not self.received:
            await asyncio.Event().wait()
        return self.received.pop(0)

    async def send_text(self, text: str) -> None:
        self.sent.append(json.loads(text))

    async def close(self, code: int, reason: str) -> None:
        self.closed = code, reason


def tab(socket: Any, topic: Any = None) -> _Tab:
    return _Tab(socket, hub(topic or Counted()))


@pytest.mark.parametrize(
    ("entry", "version"),
    [
        ({}, 0),
        ({"version": 4}, 0),
        ({"version": 4, "epoch": "another"}, 0),
        ({"version": 4, "epoch": "mine"}, 4),
        ({"version": "4", "epoch": "mine"}, 0),
        ({"epoch": "mine"}, 0),
    ],
)
async def test_a_page_catches_up_from_a_version_of_the_same_epoch(entry: Any, version: int) -> None:
    page = tab(Socket())
    epoch = await page._hub.watch("topic", "a")
    if entry.get("epoch") == "mine":
        entry = {**entry, "epoch": epoch}
    watch = await page._watch({"topic": "topic", "id": "a", **entry}, {})
    assert watch is not None and (watch.topic, watch.id, watch.epoch) == ("topic", "a", epoch)
    assert watch.version == version
    # What is in flight counts, unless the page has nothing.
    known = _Watch("topic", "a", epoch, 9)
    again = await page._watch({"topic": "topic", "id": "a", **entry}, {("topic", "a"): known})
    assert again is not None and (again is known) is bool(entry.get("version"))


async def test_a_new_list_replaces_what_is_watched() -> None:
    socket = Socket()
    page = tab(socket)
    await page._take('{"watch": [{"topic": "topic", "id": "a"}, {"topic": "topic", "id": "none"}]}')
    assert list(page._watches) == [("topic", "a")] and page._changed.is_set()
    error = {"problem": "there is no run none", "remedy": ""}
    assert socket.sent == [{"topic": "topic", "id": "none", "error": error}]
    await page._take('{"watch": [{"topic": "topic", "id": "b"}]}')
    assert list(page._watches) == [("topic", "b")]
    with pytest.raises(WebSocketDisconnect) as ended:
        await page._take("no JSON")
    assert ended.value.code == 4400 and socket.closed == (4400, "say what to watch")


async def test_changes_are_sent_once_and_errors_end_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    socket, topic = Socket(), Counted()
    page = tab(socket, topic)
    await page._take('{"watch": [{"topic": "topic", "id": "a"}]}')
    (watch,) = page._watches.values()
    about = {"topic": "topic", "id": "a", "version": 1, "epoch": watch.epoch}
    await page._send_change(watch)
    assert socket.sent == [{**about, "full": True, "changes": {"a": 1}}] and watch.version == 1
    await page._send_change(watch)
    assert len(socket.sent) == 1
    clock.now += 2
    topic.answer = (3, {"b": 2})
    await page._send_change(watch)
    assert socket.sent[1:] == [{**about, "version": 3, "full": False, "changes": {"b": 2}}]
    clock.now += 2
    topic.answer = StoreError("locked")
    await page._send_change(watch)
    assert len(socket.sent) == 2 and page._watches
    clock.now += 2
    topic.answer = NotFound("gone\nLook elsewhere.")
    await page._send_change(watch)
    assert socket.sent[2] == {
        "topic": "topic",
        "id": "a",
        "error": {"problem": "gone", "remedy": "Look elsewhere."},
    }
    assert not page._watches


async def test_a_tab_ends_when_its_page_disconnects() -> None:
    socket = Socket(
        {"type": "websocket.receive", "text": '{"watch": [{"topic": "topic", "id": "a"}]}'},
        {"type": "websocket.disconnect", "code": 1001},
    )
    with pytest.raises(WebSocketDisconnect) as ended:
        await tab(socket).run()
    assert ended.value.code == 1001
    binary = Socket({"type": "websocket.receive", "bytes": b"x"})
    with pytest.raises(WebSocketDisconnect) as ended:
        await tab(binary).run()
    assert ended.value.code == 4400

    async def gone(text: str) -> None:
        raise RuntimeError("closed")

    socket = Socket()
    socket.send_text = gone  # type: ignore[method-assign]
    with pytest.raises(WebSocketDisconnect) as ended:
        await tab(socket)._send({})
    assert ended.value.code == 1006


# --- The state of a run ---


def run_topic(versions: Any = (), version: int = 0) -> RunTopic:
    topic = RunTopic.__new__(RunTopic)
    topic._version, topic._versions = version, versions
    return topic


@pytest.mark.parametrize(
    ("version", "versions", "changed"),
    [
        (3, [(4, {"a": 1}), (5, {"a": 2, "b": 3})], {"a": 2, "b": 3}),
        (4, [(4, {"a": 1}), (5, {"b": 3})], {"b": 3}),
        (5, [(4, {"a": 1}), (5, {"b": 3})], {}),
        (0, [(1, {"a": 1})], None),
        (2, [(4, {"a": 1}), (5, {"b": 3})], None),
        (3, [(4, None), (5, {"b": 3})], None),
        (4, [(5, dict.fromkeys(range(300)))], dict.fromkeys(range(300))),
        (4, [(5, dict.fromkeys(range(301)))], None),
    ],
)
def test_the_items_that_changed_since_a_version(version: int, versions: Any, changed: Any) -> None:
    assert run_topic(versions, 5)._changed_since(version) == changed


def state(status: str = "running", items: int = 10, queued: int = 5) -> Any:
    return SimpleNamespace(status=status, item_count=items, counts={"queued": queued})


@pytest.mark.parametrize(
    ("after", "changed", "result"),
    [
        (state(), {}, {}),
        (state(queued=4), {"a": 1}, {"a": 1}),
        (state(queued=3), {"a": 1}, None),
        (state(queued=6), {"a": 1}, None),
        (state(status="completed"), {"a": 1}, None),
        (state(items=11), {"a": 1}, None),
        (state(), None, None),
    ],
)
def test_items_are_sent_one_by_one_if_all_that_changed_are_known(
    after: Any, changed: Any, result: Any
) -> None:
    assert live._changed_items(state(), after, changed) == result


@pytest.mark.parametrize(
    ("status", "seconds", "is_time"), [("running", 5, True), ("running", 4.9, False), ("completed", 9, False)]
)
def test_an_idle_run_is_sent_every_five_seconds(status: str, seconds: float, is_time: bool) -> None:
    topic = run_topic()
    topic._sent_at = NOON
    assert topic._is_time(state(status), NOON + timedelta(seconds=seconds)) is is_time
    assert topic._is_time(state(status), NOON - timedelta(seconds=seconds)) is is_time


@pytest.mark.parametrize(
    ("standing", "seconds", "is_asked"),
    [
        (None, 0, True),
        (state(), 1.9, False),
        (state(), 2, True),
        (state("completed"), 0, True),
    ],
)
def test_money_is_summed_every_two_seconds(
    standing: Any, seconds: float, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        live, "money_of", lambda site, run_id, budget: asked.append((run_id, budget)) or (1.0, 2.0)
    )
    topic = run_topic()
    topic._standing, topic._counted, topic._money = standing, NOON, (0.0, 0.0)
    topic._site, topic._run_id, topic._budget, topic._progress = None, "r", 5.0, None  # type: ignore[assignment]
    assert topic._money_lately(NOON + timedelta(seconds=seconds)) == ((1.0, 2.0) if is_asked else (0.0, 0.0))
    assert asked == ([("r", 5.0)] if is_asked else [])
    topic._progress = SimpleNamespace(budget_usd=9.0)  # type: ignore[assignment]
    topic._money_lately(NOON + timedelta(minutes=1))
    assert asked[-1] == ("r", 9.0)


@pytest.mark.parametrize(("known", "is_looked_at"), [(998, True), (999, False)])
def test_a_thousand_items_are_too_many_to_look_at(
    known: int, is_looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {name: {"id": name, "status": "success"} for name in (f"k{number}" for number in range(known))}
    rows["new"] = {"id": "new", "status": "running"}
    asked: list[Any] = []
    monkeypatch.setattr(
        live.pages,
        "items_started_since",
        lambda read, run_id, since, limit: asked.append((since, limit)) or {"new"},
    )
    monkeypatch.setattr(live.pages, "running_ids", lambda read, run_id, limit: {"new"})
    monkeypatch.setattr(live.pages, "items_by_id", lambda read, run_id, ids: [rows[each] for each in ids])
    topic = run_topic()
    topic._site = SimpleNamespace(store=SimpleNamespace(read=None))  # type: ignore[assignment]
    topic._run_id, topic._checked_at = "r", NOON
    topic._known = {name: row for name, row in rows.items() if name != "new"}  # type: ignore[misc]
    changed = topic._changed_items()
    assert asked == [("2026-01-02T11:59:58.000Z", 1000)]
    if is_looked_at:
        assert changed == {"new": rows["new"]} and topic._known == {"new": rows["new"]}
        assert topic._changed_items() == {}
    else:
        assert changed is None and topic._known == {}


async def test_the_runs_that_changed_and_those_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    states = {"a": ("running", "1"), "b": ("completed", "1")}
    lines = {"a": "a1", "b": "b1", "c": "c1"}

    def line(run_id: str) -> Any:
        text = lines[run_id]
        return SimpleNamespace(runId=run_id, text=text, model_dump=lambda: text)

    class Lines:
        def __init__(self, site: Any) -> None:
            self.known: dict[str, Any] = {}

        def named(self, names: list[str]) -> list[Any]:
            found = [line(name) for name in names]
            same = [self.known.get(each.runId) for each in found]
            kept = [
                old if old and old.text == new.text else new for old, new in zip(same, found, strict=True)
            ]
            self.known |= {each.runId: each for each in kept}
            return kept

    monkeypatch.setattr(live, "RunLines", Lines)
    monkeypatch.setattr(live.runs, "batch_states", lambda read, now: dict(states))
    site: Any = SimpleNamespace(store=SimpleNamespace(read=None), now=lambda: NOON)
    topic = RunsTopic(site, "")
    # Of the first reading only those under way are sent; the page has read the others.
    assert await topic.state(0) == (2, {"changed": ["a1"], "removed": [], "total": 2})
    assert await topic.state(2) == (2, {"changed": [], "removed": [], "total": 2})
    states["c"] = ("completed", "1")
    lines["a"] = "a2"
    clock.now += 1
    assert await topic.state(2) == (3, {"changed": ["a2", "c1"], "removed": [], "total": 3})
    del states["c"]
    clock.now += 1
    assert await topic.state(3) == (4, {"changed": [], "removed": ["c"], "total": 2})
    assert await topic.state(2) == (4, {"changed": ["a2"], "removed": ["c"], "total": 2})
    states["c"] = ("completed", "2")
    clock.now += 1
    version, changes = await topic.state(4)
    assert (version, changes["changed"], changes["removed"]) == (5, ["c1"], [])


async def test_reading_all_runs_takes_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(live, "RunLines", lambda site: None)
    looks: list[float] = []

    def look(self: RunsTopic) -> None:
        looks.append(clock.now)
        clock.now += 0.5

    monkeypatch.setattr(RunsTopic, "_look", look)
    topic = RunsTopic(None, "")  # type: ignore[arg-type]
    await topic.state(0)
    clock.now = 1004.9
    await topic.state(0)
    clock.now = 1005.0
    await topic.state(0)
    assert looks == [1000.0, 1005.0]


async def test_the_state_of_a_session_has_a_version_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"id": "s", "status": "running", "endReason": ""}
    monkeypatch.setattr(live, "find_session", lambda site, session_id: row)
    monkeypatch.setattr(live.transcripts, "extent", lambda read, session_id: (7, 3))
    monkeypatch.setattr(live.transcripts, "step_count", lambda read, session_id: 2)
    site: Any = SimpleNamespace(store=SimpleNamespace(read=None))
    topic = SessionTopic(site, "s")
    seen = {"status": "running", "endReason": "", "lastPosition": 7, "eventCount": 3, "stepCount": 2}
    assert await topic.state(0) == (1, seen) and await topic.state(1) == (1, seen)
    row = {"id": "s", "status": "success", "endReason": "completed"}
    # A page may have a higher version, of an earlier server.
    version, changed = await topic.state(5)
    assert version == 6 and (changed["status"], changed["endReason"]) == ("success", "completed")


# --- Search ---


def test_sessions_are_indexed_before_a_search_unless_nothing_was_written() -> None:
    commits, pending, updates = [1], [2], list[float]()

    def update(seconds: float) -> Any:
        updates.append(seconds)
        return SimpleNamespace(pending=pending[0])

    store = SimpleNamespace(commits=lambda: commits[0], search_index=SimpleNamespace(update=update))
    index = search._FreshIndex(SimpleNamespace(store=store))  # type: ignore[arg-type]
    index.update()
    pending[0] = 0
    latest = index.update()
    assert updates == [0.25, 0.25]
    assert index.update() is latest and len(updates) == 2
    commits[0] += 1
    assert index.update() is not latest and len(updates) == 3


@pytest.mark.parametrize(
    ("asked", "named"), [({}, True), ({"offset": 1}, False), ({"run": "r"}, False), ({"run": "\0"}, True)]
)
def test_names_are_searched_for_the_first_page_of_all_runs(
    asked: dict[str, Any], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = {"runId": "r", "job": "j", "status": "s", "createdAt": "t", "planPath": "p"}
    session = {
        "id": "s",
        "runId": None,
        "name": "n",
        "agent": "",
        "model": "",
        "status": "x",
        "startedAt": None,
    }
    limits: list[Any] = []
    monkeypatch.setattr(
        search,
        "page_of_batches",
        lambda read, chosen, now, limit: limits.append((chosen.search, limit)) or [run],
    )
    hits = SimpleNamespace(hits=[], has_more=True)
    calls: list[Any] = []

    def find(text: str, **named: Any) -> Any:
        calls.append((text, named))
        if text == "secret":
            raise UsageError("encrypted\nmore")
        return hits

    index = SimpleNamespace(
        named_sessions=lambda text, limit: limits.append((text, limit)) or [session],
        search=find,
        update=lambda seconds: SimpleNamespace(pending=3, indexed=4),
    )
    store = SimpleNamespace(read=None, search_index=index, commits=lambda: 1)
    site: Any = SimpleNamespace(store=store, now=lambda: NOON)
    (route,) = search.router(site).routes
    usual = {"run": "", "offset": 0, "limit": 20}
    answer = route.endpoint(text="a\0b", **usual | asked)  # type: ignore[attr-defined]
    assert (len(answer.runs), len(answer.sessions)) == ((1, 1) if named else (0, 0))
    assert limits == ([("ab", 6), ("ab", 6)] if named else [])
    assert (answer.has_more, answer.indexed, answer.pending, answer.problem) == (True, 4, 3, "")
    run_id = asked.get("run", "").replace("\0", "")
    assert calls == [("ab", {"run_id": run_id, "offset": asked.get("offset", 0), "limit": 20})]
    refused = route.endpoint(text="secret", **usual)  # type: ignore[attr-defined]
    assert (refused.problem, refused.has_more, refused.indexed) == ("encrypted", False, 0)


# --- OTLP ---


def intake() -> Any:
    site: Any = SimpleNamespace(store="store", now=lambda: NOON, log_group="fallback")
    return otlp.Intake(site)


class Posted:
    """A request with a body in pieces."""

    def __init__(self, *chunks: bytes, **headers: str) -> None:
        self.chunks = chunks
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def stream(self) -> Any:
        for chunk in self.chunks:
            yield chunk


async def test_a_body_is_stored_whole_and_its_bytes_are_counted_meanwhile() -> None:
    taking = intake()
    seen: list[Any] = []
    taking._store = lambda *arguments: seen.append((*arguments, taking._in_flight)) or "decoded"
    assert await taking._receive_body(Posted(b"ab", b"cd", a="b"), "traces", otlp.JSON) == "decoded"
    assert seen == [(b"abcd", {"a": "b"}, "traces", otlp.JSON, 4)] and taking._in_flight == 0
    taking._threads.shutdown()


@pytest.mark.parametrize(("before", "refused"), [(6, False), (7, True)])
async def test_too_much_at_once_is_refused(
    before: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "MOST_BYTES_IN_FLIGHT", 10)
    monkeypatch.setattr(otlp, "MOST_BODY_BYTES", 4)
    taking = intake()
    taking._in_flight = before
    taking._store = lambda *_: DecodedSpans(documents=[], rejected=0, why="")
    for call in (
        lambda: taking._receive_body(Posted(b"abcd"), "traces", otlp.JSON),
        lambda: taking.receive_message(b"abcd", {}, "traces"),
    ):
        if refused:
            with pytest.raises(otlp.RejectedRequest, match="too much is arriving at once") as error:
                await call()
            assert (error.value.status, error.value.code) == (503, 14)
        else:
            await call()
        assert taking._in_flight == before
    taking._in_flight = 0
    with pytest.raises(otlp.RejectedRequest, match="a body may have 4 bytes") as error:
        await taking._receive_body(Posted(b"abc", b"de"), "traces", otlp.JSON)
    assert (error.value.status, error.value.code, taking._in_flight) == (413, 8, 0)
    taking._threads.shutdown()


async def test_a_message_of_grpc_is_not_packed_whatever_its_header_says() -> None:
    taking = intake()
    seen: list[Any] = []

    def store(body: bytes, headers: Any, signal: str, encoding: str) -> DecodedSpans:
        seen.append((body, dict(headers), signal, encoding, taking._in_flight))
        return DecodedSpans(documents=[{"a": 1}], rejected=2, why="no")

    woken: list[int] = []
    taking._store, taking.wake = store, lambda: woken.append(1)
    headers = {"content-encoding": "gzip", "x": "y"}
    answer = await taking.receive_message(b"abcd", headers, "logs")
    assert seen == [(b"abcd", {"x": "y"}, "logs", otlp.PROTOBUF, 4)] and woken == [1]
    # Field 1: a message of field 1 = 2 and field 2 = "no".
    assert answer == b"\x0a\x06\x08\x02\x12\x02no"
    taking._threads.shutdown()


def test_what_arrives_is_kept_under_its_log_group(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(otlp, "_decode", lambda *arguments: DecodedSpans(documents=["d"], rejected=0, why=""))  # type: ignore[list-item]
    monkeypatch.setattr(otlp, "keep_arrivals", lambda *arguments, **named: kept.append((arguments, named)))
    taking = intake()
    taking._store(b"", {"x-aws-log-group": " " + "g" * 600}, "traces", otlp.JSON)
    assert kept == [(("store", ["d"], NOON), {"log_group": "g" * 512, "fallback": "fallback"})]

    def locked(*_: Any, **__: Any) -> None:
        raise StoreError("locked")

    monkeypatch.setattr(otlp, "keep_arrivals", locked)
    with pytest.raises(otlp.RejectedRequest, match="it cannot be kept now") as error:
        taking._store(b"", {}, "traces", otlp.JSON)
    assert (error.value.status, error.value.code) == (503, 14)
    taking._threads.shutdown()


async def test_sessions_are_built_when_nothing_arrives_or_after_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taking = intake()
    loop = asyncio.get_running_loop()
    clock, sleeps, builds = [0.0], list[float](), list[float]()
    arrivals = [0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6, 4.0, 4.4, 4.8, 5.2]

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        clock[0] += seconds
        if clock[0] < arrivals[-1]:
            taking._arrived.set()

    async def run(threads: Any, function: Any, *arguments: Any) -> None:
        assert arguments == ("store", NOON)
        builds.append(clock[0])
        if len(builds) == 2:
            raise StoreError("locked")

    monkeypatch.setattr(otlp.asyncio, "sleep", sleep)
    fake = SimpleNamespace(time=lambda: clock[0], run_in_executor=run)
    monkeypatch.setattr(otlp.asyncio, "get_running_loop", lambda: fake)
    taking._arrived.set()
    await taking._build()
    # Data came all the time: after five seconds. A locked store is tried again five seconds later.
    assert builds[0] == 5.0 and set(sleeps) <= {0.5, 5.0}
    taking._arrived.set()
    await taking._build()
    assert builds[1] == pytest.approx(5.5) and builds[2] == pytest.approx(5.5 + 5.0 + 0.5)
    assert not taking._arrived.is_set()
    monkeypatch.setattr(otlp.asyncio, "get_running_loop", lambda: loop)
    taking._threads.shutdown()


@pytest.mark.parametrize(
    ("peer", "host"),
    [("ipv4:127.0.0.1:5000", "127.0.0.1"), ("ipv6:%5B::1%5D:5000", "::1"), ("ipv6:[::1]:5000", "::1")],
)
def test_the_address_of_a_caller_of_grpc(peer: str, host: str) -> None:
    assert otlp._host(peer) == host
    context = SimpleNamespace(invocation_metadata=lambda: [("A", "b"), ("bin", b"x")])
    assert otlp._headers(context) == {"a": "b"}
    assert otlp._headers(SimpleNamespace(invocation_metadata=lambda: None)) == {}


def test_a_new_topic_has_not_been_read() -> None:
    watched = live._WatchedTopic(Counted(), "e", 0.0)
    assert (watched.version, watched.commits, watched.read_at) == (0, -1, -math.inf)
