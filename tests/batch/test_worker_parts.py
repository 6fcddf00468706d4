"""Worker processes: how many, what crosses to them, and what is left of one that died."""

import asyncio
import pickle
import socket
import threading
from dataclasses import dataclass

import pytest
from work_items import item, work

from proctor.batch.engines import worker_process
from proctor.batch.engines.messages import (
    AttemptEnd,
    Ended,
    HostCall,
    HostCancel,
    Ready,
    RowBuffer,
    WorkChunk,
)
from proctor.batch.engines.remote import Link, RemoteEngine
from proctor.batch.engines.worker import _cap_usd
from proctor.errors import StoreError
from proctor.job import ItemFinished
from proctor.runner import Outcome
from proctor.store import Drawn


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


async def answered(engine, link, *calls, host):
    """The replies to calls of a worker."""
    link.channel.messages += calls
    await engine._follow(link, host)
    await asyncio.sleep(0.01)
    assert link.calls == {}
    return link.channel.sent


async def test_a_call_that_is_cancelled_is_answered_even_if_it_had_not_begun():
    calls = (HostCall(7, "ask_person", (), {}), HostCancel(7), HostCancel(8))
    link = Link(Channel(), 1, lambda: 0.0)
    (reply,) = await answered(Engine(), link, *calls, host=Host())
    assert (reply.number, reply.value, reply.error) == (7, None, None)


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
