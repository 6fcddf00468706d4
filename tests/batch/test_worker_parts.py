"""Worker processes: how many, what crosses to them, and what is left of one that died."""

import asyncio
import pickle
import socket
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from work_items import Pages, item, pool, queued, work

from proctor.batch.engines import automatic_workers, worker_process
from proctor.batch.engines.messages import (
    AttemptEnd,
    Ended,
    Finish,
    HostCall,
    HostCancel,
    Ready,
    Report,
    RowBuffer,
    Stop,
    UserMessage,
    WorkChunk,
)
from proctor.batch.engines.processes import can_be_sent
from proctor.batch.engines.remote import Link, RemoteEngine, _with_slots
from proctor.batch.engines.worker import _cap_usd
from proctor.batch.queue import WorkQueue
from proctor.context import Functions
from proctor.errors import Interrupted, StoreError
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.store import Drawn
from proctor.store.writer import RowGroups
from proctor.testing import eventually_async


@pytest.mark.parametrize(
    ("values", "workers"),
    [
        ({"items": 9_999}, 1),
        ({"items": 10_000}, 4),
        ({"cores": 2}, 2),
        ({"concurrency": 24}, 3),
        ({"concurrency": 7}, 1),
        ({"local": False}, 1),
    ],
)
def test_several_processes_are_worth_it_for_many_items_of_local_models(values, workers):
    given = {"items": 10_000, "concurrency": 100, "cores": 8, "local": True} | values
    models = SimpleNamespace(are_on_this_machine=given.pop("local"))
    assert automatic_workers(models=models, **given) == workers


def test_functions_travel_only_if_they_can_be_imported(monkeypatch):
    assert can_be_sent(Functions())
    assert not can_be_sent(Functions(evaluators={"e": lambda: None}))
    monkeypatch.setattr("proctor.batch.engines.processes.can_fork", lambda: False)
    assert can_be_sent(Functions())
    monkeypatch.setattr("proctor.batch.engines.processes.pickle.dumps", lambda _: b"c__main__\nf")
    assert not can_be_sent(Functions())


@pytest.mark.parametrize(
    ("settings", "spent", "cap"),
    [
        ({}, 1.0, None),
        ({"budget": 2.0}, 1.5, 0.5),
        ({"budget": 2.0, "haltAtLimit": False}, 1.5, 0.5),
        ({"budget": 2.0, "haltAtLimit": False}, 2.5, 0.0),
        ({"budget": 2.0, "haltAtLimit": True}, 2.5, 0.0),
        ({"budget": 2.0, "haltAtLimit": True}, None, 2.0),
    ],
)
def test_an_attempt_may_spend_what_earlier_ones_left(settings, spent, cap):
    assert _cap_usd(work(item=item(settings=settings), cost_usd=spent)) == cap


def test_ended_attempts_are_packed_without_their_items():
    done = ItemFinished(
        id="a",
        item=item("a"),
        session_id="s",
        outcome=Outcome(),
        attempts=2,
        tokens=5,
        cost_usd=0.5,
        work_seconds=3.0,
    )
    sums = {"attempts": 2, "tries": 1, "tokens": 5, "tool_calls": 4, "cost_usd": 0.5, "started_at": "t"}
    end = AttemptEnd(work=work(**sums), delay_seconds=1.5, halted_by="budget", finished=done)
    waiting = work(checkpoint="x")
    back = AttemptEnd.unpack(pickle.loads(pickle.dumps(end.pack())), waiting)
    assert back == AttemptEnd(work=work(**sums), delay_seconds=1.5, halted_by="budget", finished=done)
    assert back.work is waiting and waiting.checkpoint is None
    assert AttemptEnd.unpack(AttemptEnd(work=work()).pack(), work()) == AttemptEnd(work=work())


def test_rows_are_taken_from_a_buffer_once():
    buffer = RowBuffer()
    buffer.append("metrics", ("s", 1))
    buffer.add("sessions", ("s",), {"id": "s"})
    buffer.change("batches", ("r",), {"status": "x"})
    taken = buffer.take()
    assert (taken.count, taken.appended["metrics"], buffer.count) == (3, [("s", 1)], 0)
    assert buffer.take().count == 0 and not buffer.changed and not buffer.added


class Channel:
    def __init__(self, *messages):
        self.messages, self.sent, self.is_closed = list(messages), [], False

    def send(self, message):
        self.sent.append(message)

    async def receive(self):
        return self.messages.pop(0) if self.messages else None

    def close(self):
        self.is_closed = True


def test_a_worker_has_as_many_items_ahead_as_it_finishes_in_a_tenth_of_a_second():
    now = [1.0]
    link = Link(Channel(), 2, lambda: now[0], _counted_at=1.0)
    link.give([work("a"), work("b")])
    assert (link.room, link.channel.sent) == (0, [WorkChunk((work("a"), work("b")))])
    link.count_ends(50)
    assert link.ahead == 0, "not counted for long enough"
    now[0] += 0.2
    link.count_ends(10)
    assert (link.ahead, link.room) == (30, 30)
    now[0] += 1.0
    link.count_ends(5)
    assert link.ahead == 0
    assert link.take_back("a").id == "a" and link.room == 1
    link.concurrency = 0
    assert link.room == 0


class Engine(RemoteEngine):
    """An engine without processes."""

    def __init__(self):
        self.notes, self.infos = [], []
        super().__init__(note=self.notes.append, info=self.infos.append)

    def close(self):
        pass

    async def _start_workers(self, queue, host, spec):
        return set()


class Host:
    def __init__(self, rows=()):
        self.rows, self.lost, self.written = rows, [], []

    async def worker_lost(self, holder, session_ids):
        self.lost.append((holder, session_ids))
        if self.rows is None:
            raise StoreError("gone")
        return self.rows, {row["id"]: row["costUsd"] or 0.0 for row in self.rows}

    async def write(self, batch):
        self.written.append(batch)

    async def draw(self, holder, *, wanted_usd, least_usd):
        return Drawn(usd=wanted_usd, others_hold=least_usd > 1)

    async def ask_person(self, *_):
        await asyncio.sleep(30)


def report(*ends, sessions=()):
    rows = RowGroups()
    for item_id, session_id in sessions:
        rows.add("sessions", (session_id,), {"itemId": item_id})
    return Report(rows, [end.pack() for end in ends])


async def test_the_items_of_a_worker_that_died_get_the_sums_of_its_attempts():
    engine, queue = Engine(), WorkQueue(Pages([queued(0), queued(1), queued(2)]).load)
    row = {"itemId": "i0", "attempt": 3, "totalTokens": 7, "toolCalls": 1, "costUsd": 0.25, "startedAt": "s"}
    row["id"] = "s0"
    host = Host([row])
    link = Link(Channel(Ready("worker"), report(sessions=[("i0", "s0"), ("i1", "s1")])), 3, lambda: 0.0)
    link.give(await queue.chunk(3))
    end = AttemptEnd(work=link.items["i1"])
    link.channel.messages.append(report(end))
    queue.done()
    assert await engine._follow_worker(link, "spec", queue, host) is False
    assert link.channel.sent[1] == "spec" and link.channel.is_closed and not engine._links
    assert host.lost == [("worker", ["s0"])]
    assert engine.notes == ["a worker process died; 2 items that it had will be run again"]
    assert engine._lost_sessions == [row]
    again = {each.id: each for each in await _all(queue)}
    assert sorted(again) == ["i0", "i2"]
    first = again["i0"]
    assert (first.attempts, first.tokens, first.tool_calls, first.cost_usd, first.started_at) == (
        3,
        12,
        3,
        0.75,
        "t",
    )
    assert (again["i2"].attempts, again["i2"].tokens) == (0, 5)


async def _all(queue):
    await asyncio.sleep(0.01)
    return await queue.chunk(9)


@pytest.mark.parametrize("holder", ["", "worker"])
async def test_a_worker_that_died_before_it_started_or_after_the_store_costs_nothing(holder):
    engine, queue = Engine(), WorkQueue(Pages([queued(0)]).load)
    host = Host(None)
    link = Link(Channel(), 1, lambda: 0.0, holder=holder)
    link.give(await queue.chunk(1))
    await engine._recover(link, queue, host)
    assert len(host.lost) == bool(holder)
    await asyncio.sleep(0.01)
    assert queue.ready == (not holder)


async def test_messages_of_workers_are_told_once_and_their_last_one_ends_them():
    engine = Engine()
    texts = [UserMessage("wait"), UserMessage("wait"), UserMessage("go"), UserMessage("wait")]
    link = Link(Channel(*texts, Ended()), 1, lambda: 0.0)
    assert await engine._follow_worker(link, "spec", WorkQueue(Pages().load), Host()) is True
    assert engine.infos == ["wait", "go", "wait"] and engine.notes == []
    failed = Link(Channel(Ended(ValueError("broken"))), 1, lambda: 0.0)
    with pytest.raises(ValueError, match="broken"):
        await engine._follow_worker(failed, "spec", WorkQueue(Pages().load), Host())


async def answered(engine, link, *calls, host):
    """The replies to calls of a worker."""
    link.channel.messages += calls
    await engine._follow(link, host)
    await asyncio.sleep(0.01)
    assert link.calls == {}
    return link.channel.sent


async def test_workers_call_what_they_may_and_money_is_asked_back_for_one_that_is_short():
    engine, host = Engine(), Host()
    short, other = (Link(Channel(), 1, lambda: 0.0, holder=name) for name in ("short", "other"))
    engine._links = {short, other}
    options = {"wanted_usd": 5.0, "least_usd": 2.0}
    calls = (
        HostCall(1, "draw", ("short",), options),
        HostCall(2, "draw", ("short",), options | {"least_usd": 1.0}),
        HostCall(3, "write", (), {}),
    )
    first, second, third = await answered(engine, short, *calls, host=host)
    assert (first.number, first.value, first.error) == (1, Drawn(usd=5.0, others_hold=True), None)
    assert (second.number, second.value) == (2, Drawn(usd=5.0, others_hold=False))
    assert (third.value, str(third.error)) == (None, "workers cannot call write")
    assert [type(each).__name__ for each in other.channel.sent] == ["ReturnMoney"]


async def test_a_call_that_is_cancelled_is_answered_even_if_it_had_not_begun():
    calls = (HostCall(7, "ask_person", (), {}), HostCancel(7), HostCancel(8))
    link = Link(Channel(), 1, lambda: 0.0)
    (reply,) = await answered(Engine(), link, *calls, host=Host())
    assert (reply.number, reply.value, reply.error) == (7, None, None)


def test_other_workers_count_with_the_calls_that_they_may_make():
    engine = Engine()
    one, two, three = (Link(Channel(), 1, lambda: 0.0, holder=name) for name in ("one", "two", "three"))
    engine._links = {one, two, three}
    two.slots = {"p": 3}
    mine = pool(in_use=1, waiting=1, limit=9.0)
    others = [
        pool(in_use=1, waiting=4, limit=9.0, holder="two"),
        pool(in_use=2, limit=9.0, holder="elsewhere"),
    ]
    counted = engine._split_limits(one, [mine], others)
    assert [(each.holder, each.in_use, each.waiting) for each in counted] == [
        *(("two", 3, 2), ("elsewhere", 2, 0), ("three", 3, -3)),
    ]
    assert one.slots == {"p": 1}
    assert (counted[2].held_seconds, counted[2].cut_seconds_ago) == (0.0, None)
    assert _with_slots(pool(in_use=2, waiting=1), {}).waiting == 1
    engine._links = {one}
    assert engine._split_limits(one, [mine], []) == []
    assert one.slots == {"p": 9}


@dataclass(frozen=True)
class SmallSpec:
    """What a worker is sent first."""

    holder: str = ""


def test_a_worker_cleans_up_before_the_driver_knows_that_it_has_ended(monkeypatch):
    """The driver kills workers that have ended: a folder of an evaluator's process would stay."""
    cleaned = []

    async def idle_process() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.append("folder")

    class Started:
        def __init__(self, channel, spec) -> None:
            pass

        async def run(self) -> None:
            self._idle = asyncio.create_task(idle_process())
            await asyncio.sleep(0)

    monkeypatch.setattr(worker_process, "WorkerSpec", SmallSpec)
    monkeypatch.setattr(worker_process, "_ProcessWorker", Started)
    # Pickled at the moment it is sent.
    monkeypatch.setattr(Ended, "__reduce__", lambda _: (str, (f"cleaned: {cleaned}",)), raising=False)
    near, far = socket.socketpair()
    with near, near.makefile("rb") as messages:
        thread = threading.Thread(target=lambda: asyncio.run(worker_process._work_for_driver(far)))
        thread.start()
        spec = pickle.dumps(SmallSpec())
        near.sendall(worker_process.HEADER.pack(len(spec)) + spec)
        ready, ended = (
            pickle.loads(
                messages.read(worker_process.HEADER.unpack(messages.read(worker_process.HEADER.size))[0])
            )
            for _ in range(2)
        )
        thread.join()
    assert isinstance(ready, Ready) and ended == "cleaned: ['folder']"


async def test_a_worker_that_starts_late_is_told_to_end_at_once_and_its_calls_are_cancelled():
    for reason, message in ((None, Finish()), (Interrupted("stop"), None)):
        engine = Engine()
        engine._ending, engine._stop_reason = True, reason
        link = Link(Channel(HostCall(1, "ask_person", (), {}), Ended()), 1, lambda: 0.0)
        assert await engine._follow_worker(link, "spec", WorkQueue(Pages().load), Host())
        assert link.channel.sent[:2] == ["spec", message or Stop(reason)]
        assert engine._has_room.is_set() and not engine._links
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert link.calls == {}, "cancelled, and answered"


async def test_items_go_to_the_worker_with_the_most_room_and_all_are_told_of_the_end():
    engine, queue = Engine(), WorkQueue(Pages([queued(number) for number in range(5)]).load)
    small, large = (Link(Channel(), size, lambda: 0.0) for size in (1, 4))
    engine._links = {small, large}
    feeding = asyncio.create_task(engine._feed(queue))
    await eventually_async(lambda: len(small.items) + len(large.items) == 5)
    assert (len(small.items), len(large.items)) == (1, 4)
    assert not engine._ending and not feeding.done()
    for _ in range(5):
        queue.done()
    large.items.clear()
    engine._has_room.set()
    await feeding
    assert engine._ending and {link.channel.sent[-1] for link in engine._links} == {Finish()}


async def test_a_cancelled_run_stops_its_workers_and_waits_for_them():
    engine, stopped = Engine(), asyncio.Event()
    closed = []
    engine.close = lambda: closed.append(1)
    link = Link(Channel(), 1, lambda: 0.0)

    async def start(queue, host, spec):
        engine._links.add(link)

        async def follow():
            await eventually_async(lambda: link.channel.sent)
            stopped.set()

        return {asyncio.create_task(follow())}

    engine._start_workers = start
    queue = WorkQueue(Pages([queued(0)]).load)
    link.concurrency = 0
    running = asyncio.create_task(engine.run(queue, Host(), None))
    await eventually_async(lambda: engine._links)
    engine.stop(Interrupted("by hand"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stopped.is_set() and closed == [1]
    (message,) = link.channel.sent
    assert isinstance(message, Stop) and str(message.reason) == "by hand"


async def test_workers_that_are_stopped_without_a_reason_were_stopped_by_the_batch():
    engine = Engine()
    assert engine._last_message() == Finish()
    link = Link(Channel(), 1, lambda: 0.0)
    engine._links = {link}
    engine._stop_workers()
    assert str(link.channel.sent[0].reason) == "the batch was stopped" and engine._ending
    await engine._run(None, None, None)
    assert engine._feeding is None, "nothing starts any more"
