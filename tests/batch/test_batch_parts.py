"""Parts of a batch by themselves: queue, limits, clocks, differences of plans, checks before the start."""

import asyncio
import pickle
from collections import OrderedDict
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from proctor import context as contexts
from proctor.batch import attempt, executor, ingest
from proctor.batch.attempt import SharedTimers, WorkClock
from proctor.batch.create import Extension, diff, extend, what_changed
from proctor.batch.engines import automatic_workers
from proctor.batch.engines.messages import (
    AttemptEnd,
    Ended,
    HostCall,
    HostCancel,
    Ready,
    Report,
    RowBuffer,
    UserMessage,
    WorkChunk,
)
from proctor.batch.engines.processes import can_be_sent
from proctor.batch.engines.remote import Link, RemoteEngine, _with_slots
from proctor.batch.engines.worker import Worker, _cap_usd
from proctor.batch.executor import CommitNotifier, Executor, SessionCache, StepRows, StoreHost, narrowed
from proctor.batch.lifecycle import abort_run
from proctor.batch.preflight import (
    PreflightContext,
    check_agent,
    check_agents_model,
    check_evaluators,
    check_model,
    check_sandbox,
    has_own_models,
    missing_program,
    program_of,
)
from proctor.batch.queue import WorkItem, WorkQueue
from proctor.batch.rate_limit_sync import adopt_limits, limit_and_share, pool_row, pool_state
from proctor.context import Functions
from proctor.errors import Aborted, Interrupted, NotFound, StoreError, TimeLimit, UsageError
from proctor.evaluator import Evidence
from proctor.item import Item
from proctor.job import ItemFinished
from proctor.models.rate_limits import PoolState, RatePools
from proctor.runner import Outcome
from proctor.session import Message, ModelCall, Session, Step, TimedEvent, Unreadable, Usage
from proctor.store import Drawn, Store, timestamp
from proctor.store.writer import RowGroups
from proctor.telemetry import normalised

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def item(prompt="p", **more):
    return Item(**{"runner": "prompt", "prompt": prompt, "model": "m"} | more)


def work(name="a", **more):
    return WorkItem(**{"item": item(name), "id": name, "attempts": 0, "tries": 0} | more)


def queued(number, attempts=0):
    row = {"id": f"i{number}", "position": number, "attempts": attempts, "tries": attempts, "repeat": 1}
    row |= {"runner": "prompt", "prompt": "p", "agent": "", "model": "m", "details": "{}", "settings": "{}"}
    row |= {"factors": "{}", "tokensTotal": 5, "toolCalls": 2, "costUsd": 0.5, "startedAt": "t", "repo": ""}
    return row


# Queue


class Pages:
    """Pages of queued rows, and after which positions they were asked for."""

    def __init__(self, *pages):
        self.pages, self.after = list(pages), []

    async def load(self, after):
        self.after.append(after)
        return self.pages.pop(0) if self.pages else []


async def test_items_are_read_page_by_page_until_none_is_left():
    pages, announced = Pages([queued(0), queued(3, attempts=2)], [queued(7)]), []
    queue = WorkQueue(pages.load, announce=lambda items: announced.append([each.id for each in items]))
    found = [await queue.next() for _ in range(3)]
    assert [each.id for each in found] == ["i0", "i3", "i7"]
    assert (found[1].attempts, found[1].tries, found[1].tokens, found[1].tool_calls) == (2, 2, 5, 2)
    assert (found[1].cost_usd, found[1].started_at) == (0.5, "t")
    for _ in found:
        queue.done()
    assert await queue.next() is None
    assert pages.after == [-1, 3, 7]
    assert announced == [["i0", "i3"], ["i7"], []]


async def test_who_waits_for_an_item_gets_one_that_returns_and_all_are_told_of_the_end():
    queue = WorkQueue(Pages([queued(0)]).load)
    first = await queue.next()
    waiting = [asyncio.create_task(queue.next()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in waiting)
    queue.retry(first, 0.0)
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(pending), done.pop().result()) == (1, 2, first)
    queue.done()
    assert await asyncio.gather(*pending) == [None, None]


async def test_one_who_gave_up_waiting_takes_no_item():
    queue = WorkQueue(Pages([queued(0)]).load)
    first = await queue.next()
    given_up, patient = (asyncio.create_task(queue.next()) for _ in range(2))
    await asyncio.sleep(0.01)
    given_up.cancel()
    await asyncio.wait([given_up])
    queue.retry(first, 0.0)
    assert await asyncio.wait_for(patient, 30) is first


async def test_an_item_that_returns_comes_before_new_ones():
    queue = WorkQueue(Pages([queued(0), queued(1), queued(2)]).load)
    first = await queue.next()
    queue.retry(first, 0.0)
    await asyncio.sleep(0.01)
    assert [(await queue.next()).id for _ in range(3)] == ["i0", "i1", "i2"]


async def test_a_stopped_queue_wakes_everyone_and_returns_nothing():
    queue = WorkQueue(Pages([queued(0), queued(1)]).load)
    assert queue.ready == 0
    await queue.next()
    assert queue.ready == 1
    queue.stop()
    assert (queue.ready, await queue.next(), await queue.chunk(5)) == (0, None, [])


async def test_the_next_page_is_read_while_a_page_is_run():
    pages = Pages([queued(0), queued(1)], [queued(2)])
    queue = WorkQueue(pages.load)
    await queue.next()
    await asyncio.sleep(0)
    assert pages.after == [-1, 1]
    assert [(await queue.next()).id for _ in range(2)] == ["i1", "i2"]


async def test_a_stopped_queue_reads_no_further_and_keeps_nobody_waiting():
    never = asyncio.get_running_loop().create_future()
    reading = asyncio.Event()

    async def load(after):
        if after < 0:
            return [queued(0)]
        reading.set()
        return await never

    queue = WorkQueue(load)
    await queue.next()
    waiting = asyncio.create_task(queue.next())
    await reading.wait()
    queue.stop()
    assert await queue.next() is None
    waiting.cancel()
    await asyncio.wait([waiting])
    assert never.cancelled()


async def test_a_page_that_cannot_be_read_is_an_error_of_who_needs_it():
    async def load(after):
        if after < 0:
            return [queued(0)]
        raise StoreError("the disk is full")

    queue = WorkQueue(load)
    assert (await queue.next()).id == "i0"
    with pytest.raises(StoreError, match="the disk is full"):
        await queue.next()


async def test_items_that_are_not_needed_are_counted_and_skipped():
    queue = WorkQueue(
        Pages([queued(0), queued(1), queued(2)]).load, is_needed=lambda item_id: item_id == "i1"
    )
    assert [each.id for each in await queue.chunk(9)] == ["i1"]
    queue.done()
    assert await queue.next() is None
    assert queue.skipped == 2


async def test_a_chunk_has_what_is_ready_and_at_most_so_many():
    queue = WorkQueue(Pages([queued(0), queued(1), queued(2)], [queued(3)]).load)
    assert [each.id for each in await queue.chunk(2)] == ["i0", "i1"]
    assert [each.id for each in await queue.chunk(9)] == ["i2"]
    assert [each.id for each in await queue.chunk(9)] == ["i3"]


async def test_checkpoints_are_loaded_once_for_items_that_were_attempted_before():
    loaded = []

    async def checkpoint(item_id):
        loaded.append(item_id)
        return f"at {item_id}"

    queue = WorkQueue(Pages([queued(0), queued(1, attempts=1)]).load, checkpoint)
    fresh, before = await queue.next(), await queue.next()
    assert (fresh.checkpoint, before.checkpoint, loaded) == (None, "at i1", ["i1"])
    queue.retry(fresh, 0.0)
    await asyncio.sleep(0.01)
    assert (await queue.next()).checkpoint == "at i0"
    assert loaded == ["i1", "i0"]


# Work time


async def test_work_time_excludes_pauses_and_is_summed_by_phase():
    now = [10.0]
    clock = WorkClock(lambda: now[0])
    with clock.phase("agent"):
        now[0] += 3
        clock.waited(1)
    with clock.phase("agent"):
        now[0] += 2
    with clock.phase("check"):
        now[0] += 4
    assert (clock.work_seconds, clock.waiting_seconds) == (8, 1)
    assert clock.phase_seconds == {"agent": 4, "check": 4}
    clock.waited(100)
    with clock.phase("setup"):
        pass
    assert (clock.work_seconds, clock.phase_seconds["setup"]) == (0, 0)


async def test_a_limit_expires_with_its_name_and_pauses_extend_it():
    clock = WorkClock(asyncio.get_running_loop().time)
    with pytest.raises(TimeLimit, match=r"the check did not finish within 0\.01 s"):
        async with clock.time_limit(0.01, "the check"):
            await asyncio.sleep(30)
    async with clock.time_limit(0.01, "the check"):
        clock.waited(30)
        await asyncio.sleep(0.05)
    async with clock.time_limit(None, "nothing"):
        pass
    assert clock._limits == []


async def test_somebody_elses_cancellation_or_error_is_no_time_limit():
    clock = WorkClock(asyncio.get_running_loop().time)

    async def limited(seconds, error=None):
        async with clock.time_limit(seconds, "the check"):
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                if error:
                    raise error from None
                raise

    cancelled = asyncio.create_task(limited(30))
    await asyncio.sleep(0.01)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(ValueError, match="own"):
        await limited(0.01, ValueError("own"))


def test_long_limits_share_a_timer_for_each_quarter_of_a_second(monkeypatch):
    timers, started, expired = SharedTimers(), [], []

    class Limit:
        def __init__(self, when):
            self.when, self.timer = when, None

        def expire(self):
            expired.append(self.when)

    class Loop:
        time = staticmethod(lambda: 100.0)

        @staticmethod
        def call_at(when, call, *arguments):
            started.append((when, call, arguments))
            return "timer"

    monkeypatch.setattr(attempt, "asyncio", SimpleNamespace(get_running_loop=Loop))
    limits = [Limit(when) for when in (119.9, 120.0, 120.1, 120.25, 120.2)]
    for limit in limits:
        timers.start(limit)
    assert [when for when, _, _ in started] == [119.9, 120.25, 120.5]
    assert limits[0].timer == "timer" and limits[1].timer is limits[2].timer is limits[4].timer
    limits[1].timer.discard(limits[1])
    for _, call, arguments in started[1:]:
        call(*arguments)
    assert sorted(expired) == [120.1, 120.2, 120.25]
    assert timers._due == {}


# Rate limits


def pool(in_use=0, waiting=0, limit=8.0, ago=None, held=0.0, name="p", holder=""):
    return PoolState(
        name=name,
        limit=int(limit),
        limit_of_all=limit,
        in_use=in_use,
        waiting=waiting,
        calls=1,
        limited=2,
        waited_seconds=3.5,
        held_seconds=held,
        cut_seconds_ago=ago,
        holder=holder,
    )


@pytest.mark.parametrize(
    ("mine", "rest", "limit", "share"),
    [
        (pool(), [], 8, 1.0),
        (pool(in_use=1), [pool()], 8, 2 / 3),
        (pool(waiting=2), [pool(in_use=1, waiting=1), pool()], 8, 3 / 7),
        (pool(), [pool(in_use=7)], 8, 1 / 9),
        (pool(waiting=9), [pool(in_use=7)], 8, 1 / 8),
        (pool(waiting=9), [pool(in_use=9)], 8, 0.0),
        (pool(), [pool(limit=4, ago=1)], 4, 0.5),
        (pool(ago=1), [pool(limit=4, ago=2)], 8, 0.5),
    ],
)
def test_a_limit_is_shared_by_demand_and_what_is_in_use_is_not_given_twice(mine, rest, limit, share):
    assert limit_and_share(8.0, mine, rest) == (limit, pytest.approx(share))


def test_the_row_of_a_pool_is_read_as_it_was_written():
    state = pool(in_use=1, waiting=2, limit=8.0, ago=4.0, held=5.0, holder="me")
    row = pool_row(state, "run", NOW) | {"owner": "me"}
    assert (row["heldUntil"], row["cutAt"]) == (
        timestamp(NOW + timedelta(seconds=5)),
        timestamp(NOW - timedelta(seconds=4)),
    )
    assert pool_state(row, NOW) == state
    later = pool_state(row, NOW + timedelta(seconds=7))
    assert (later.held_seconds, later.cut_seconds_ago) == (0.0, 11.0)
    free = pool_row(pool(), "run", NOW) | {"owner": ""}
    assert (free["heldUntil"], free["cutAt"], free["runId"]) == (None, None, "run")
    assert (pool_state(free, NOW).held_seconds, pool_state(free, NOW).cut_seconds_ago) == (0.0, None)


@pytest.mark.parametrize(
    ("others", "most", "adopted"),
    [
        ([pool(name="openai/a")], {}, []),
        ([pool(name="openai/a", ago=3)], {}, ["openai/a"]),
        ([pool(name="openai/a", held=3)], {}, ["openai/a"]),
        ([pool(name="openai/a"), pool(name="other/b")], {"openai": 3}, ["openai/a"]),
    ],
)
async def test_limits_that_others_learned_or_the_user_declared_are_adopted(others, most, adopted):
    async def share_limits(holder, states):
        assert (holder, states) == ("me", ())
        return others

    pools = RatePools(most=most)
    await adopt_limits(pools, SimpleNamespace(share_limits=share_limits), "me")
    assert [state.name for state in pools.states] == adopted


# Workers


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
        ({"budget": 2.0}, 1.5, 2.0),
        ({"budget": 2.0, "haltAtLimit": False}, 1.5, 0.5),
        ({"budget": 2.0, "haltAtLimit": False}, 2.5, 0.0),
        ({"budget": 2.0, "haltAtLimit": True}, 2.5, -0.5),
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
        return self.rows

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


# The driver


async def test_steps_are_announced_with_their_items():
    steps, calls = [], []
    writer = SimpleNamespace(
        add=None,
        append=lambda *row: calls.append(row),
        change=lambda *change: calls.append(change),
        merge=lambda rows: calls.append(rows),
    )
    rows = StepRows(writer, lambda step: steps.append((step.item_id, step.session_id, step.number)))
    rows.change("batch_items", ("run", "a"), {"status": "running", "sessionId": "s1"})
    rows.append("iterations", ("s1", 1))
    rows.append("messages", ("s1", 2))
    rows.change("batch_items", ("run", "a"), {"status": "success"})
    rows.change("sessions", ("s1",), {"name": "x"})
    rows.append("iterations", ("s1", 2))
    assert steps == [("a", "s1", 0), ("a", "s1", 1), ("a", "s1", 2)]
    rows.change("sessions", ("s1",), {"finishedAt": "t"})
    assert rows._items == {} and len(calls) == 7
    merged = RowGroups()
    merged.change("batch_items", ("run", "b"), {"sessionId": "s2"})
    merged.add("sessions", ("s2",), {"id": "s2", "finishedAt": "t"})
    merged.append("iterations", ("s2", 1))
    rows.merge(merged)
    assert steps[3:] == [("b", "s2", 0), ("b", "s2", 1)] and rows._items == {}


class Committing:
    """A writer whose commits are made by hand."""

    def __init__(self):
        self.futures = []

    def flush(self, *, at_once=True):
        self.futures.append(Future())
        self.at_once = at_once
        return self.futures[-1]


async def test_observers_are_told_after_the_commit_in_order_and_no_more_once_they_fail():
    writer, told = Committing(), []
    notifier = CommitNotifier(writer, at_once=False)
    assert notifier.idle.is_set()
    for number in range(3):
        notifier.announce(lambda number=number: told.append(number))
    assert (len(writer.futures), told, notifier.idle.is_set(), writer.at_once) == (1, [], False, False)
    writer.futures[0].set_result(None)
    await asyncio.sleep(0.01)
    assert (told, len(writer.futures)) == ([0], 2)
    writer.futures[1].set_result(None)
    await asyncio.wait_for(notifier.idle.wait(), 30)
    assert told == [0, 1, 2]

    def fail():
        raise OSError("closed terminal")

    notifier.announce(fail)
    writer.futures[2].set_result(None)
    await asyncio.wait_for(notifier.idle.wait(), 30)
    notifier.announce(lambda: told.append("late"))
    writer.futures[3].set_result(None)
    await asyncio.wait_for(notifier.idle.wait(), 30)
    assert told == [0, 1, 2]


async def test_a_queue_waits_for_decisions_that_are_far_behind():
    writer = Committing()
    notifier = CommitNotifier(writer, at_once=True)
    queue = WorkQueue(Pages([queued(0), queued(1)]).load, caught_up=notifier.caught_up)
    for _ in range(executor.MOST_BEHIND + 1):
        notifier.announce(lambda: None)
    assert await queue.next(), "one is being committed, and as many as may wait do"

    notifier.announce(queue.stop)
    waiting = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    assert not waiting.done()
    writer.futures[0].set_result(None)
    await asyncio.sleep(0.01)
    writer.futures[1].set_result(None)
    assert await asyncio.wait_for(waiting, 30) is None


async def test_nobody_is_told_of_a_commit_that_failed():
    writer, told = Committing(), []
    notifier = CommitNotifier(writer, at_once=True)
    for number in range(2):
        notifier.announce(lambda number=number: told.append(number))
    writer.futures[0].set_exception(StoreError("full"))
    await asyncio.wait_for(notifier.idle.wait(), 30)
    assert (told, len(writer.futures)) == ([], 1)


def new_host(queue=None, writer=None, finished=None, people=None, store=None):
    return StoreHost(
        store,
        writer,
        queue,
        run_id="run",
        context=SimpleNamespace(now=lambda: NOW),
        limits=None,
        rows=writer,
        finished=finished,
        sessions=SessionCache(store),
        people=people,
    )


async def test_the_first_limit_halts_the_batch_and_ended_items_are_done_or_return():
    calls, finished = [], []
    queue = SimpleNamespace(
        stop=lambda: calls.append("stop"),
        done=lambda: calls.append("done"),
        retry=lambda work, delay: calls.append((work.id, delay)),
    )
    host = new_host(queue, finished=finished.append)
    host.attempt_ended(AttemptEnd(work=work(), finished="end"))
    host.attempt_ended(AttemptEnd(work=work(), delay_seconds=0.0))
    host.attempt_ended(AttemptEnd(work=work(), halted_by="budget"))
    host.attempt_ended(AttemptEnd(work=work(), halted_by="cost_limit"))
    assert calls == ["done", ("a", 0.0), "stop", "done", "stop", "done"]
    assert (host.halted_by, finished) == ("budget", ["end"])
    assert await host.ask_person("a", "mayor", "?") == ""


@pytest.mark.parametrize(("backlog", "flushes"), [(10_000, 0), (10_001, 1)])
async def test_rows_of_workers_wait_for_a_writer_that_is_behind(backlog, flushes):
    writer = Committing()
    writer.backlog, writer.merge = backlog, lambda rows: None
    writing = asyncio.create_task(new_host(writer=writer).write(SimpleNamespace(rows=None, ends=())))
    await asyncio.sleep(0.01)
    assert (len(writer.futures), writing.done()) == (flushes, not flushes)
    for future in writer.futures:
        future.set_result(None)
    await asyncio.wait_for(writing, 30)


async def test_a_resource_that_a_run_does_not_have_is_not_found(tmp_path):
    with Store(str(tmp_path / "a.db")) as store:
        with pytest.raises(NotFound, match="run run has no resource d1"):
            await new_host(store=store).resource("d1")


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ({}, ("completed", "")),
        ({"_skipped": 2}, ("completed", "undecided")),
        ({"_stopping": SimpleNamespace(is_decided=True), "_skipped": 2}, ("completed", "decided")),
        ({"_stopping": SimpleNamespace(is_decided=False)}, ("completed", "")),
        ({"_host": SimpleNamespace(halted_by="budget")}, ("halted", "budget")),
        ({"_host": SimpleNamespace(halted_by="")}, ("completed", "")),
        ({"_stop_reason": Interrupted("x")}, ("interrupted", "interrupted")),
        ({"_stop_reason": Aborted("x"), "_host": SimpleNamespace(halted_by="b")}, ("aborted", "aborted")),
    ],
)
def test_how_a_batch_ends(state, end):
    made = Executor(None, "run", "me", None)
    for name, value in state.items():
        setattr(made, name, value)
    result = made._end()
    assert (result.status, result.reason) == end


def test_only_some_traces_and_their_tool_calls_are_targets():
    def trace(name, *calls):
        return SimpleNamespace(id=name, tool_calls=[SimpleNamespace(call_id=call) for call in calls])

    evidence = Evidence(session_id="s", traces=[trace("a", "c1", ""), trace("b", "c2")])
    assert narrowed(evidence, ["a"]).targets == {"a", "c1"}


async def test_resources_are_kept_up_to_a_number_the_oldest_go_first(monkeypatch):
    monkeypatch.setattr("proctor.batch.engines.worker.CACHED_RESOURCES", 2)
    asked = []

    async def resource(digest):
        asked.append(digest)
        return digest.upper()

    worker = Worker.__new__(Worker)
    worker._host, worker._resources = SimpleNamespace(resource=resource), OrderedDict()
    for digest in ("a", "b", "a", "c", "b", "a"):
        assert await worker._load_resource(digest) == digest.upper()
    assert asked == ["a", "b", "c", "a"]


def test_session_ids_sort_by_time():
    moments = [NOW, NOW, NOW + timedelta(milliseconds=1)]
    worker = Worker.__new__(Worker)
    worker._context = SimpleNamespace(now=lambda: moments.pop(0))
    worker._last_moment, worker._id_prefix = None, ""
    worker._id_rng = SimpleNamespace(getrandbits=lambda bits: (1 << bits) - 1)
    prefix = int(NOW.timestamp() * 1000)
    assert [worker._new_session_id() for _ in range(3)] == [
        *(f"{prefix:012x}ffffffff", f"{prefix:012x}ffffffff", f"{prefix + 1:012x}ffffffff"),
    ]


# Plans that have changed


def test_the_fields_in_which_an_item_is_new_are_those_of_the_most_similar():
    new = item("p", model="m", details={"n": 1})
    base = dict(new.inputs)
    assert what_changed(new, []) == []
    assert what_changed(new, [base | {"model": "x", "prompt": "y"}, base | {"model": "x"}]) == ["model"]
    assert what_changed(new, [base | {"model": "x"}, base | {"prompt": "y"}]) == ["model"]
    assert what_changed(new, [base | {"model": "x"}, base]) == ["runs"]
    assert what_changed(new, [base | {"more": None}]) == ["more"]
    del base["n"]
    assert what_changed(new, [base]) == ["n"]


def test_an_extension_counts_what_is_new_dropped_and_kept(tmp_path):
    with Store(str(tmp_path / "a.db")) as store:
        row = {"runId": "run", "createdAt": "t", "job": "coding", "status": "running"}
        old = [item(name) for name in ("done", "gone", "queued", "dropped")]
        store.create_batch(row, old)
        writer = store.writer()
        for each in old[:2]:
            writer.change("batch_items", ("run", each.id), {"status": "success"})
        writer.close()
        plan = [old[0], old[2], item("new"), item("done", model="other")]
        expected = Extension(
            added=2, reasons={"prompt": 1, "model": 1}, dropped=1, retained=1, done=1, new=plan[2:]
        )
        assert diff(store.read, "run", plan) == expected
        assert diff(store.read, "run", plan, derived_fields=frozenset({"model"})).reasons == {
            "prompt": 1,
            "repeat": 1,
        }
        assert len(store.read.items("run")) == 4
        assert extend(store, "run", {}, plan) == expected
        assert [each["prompt"] for each in store.read.items("run")] == [
            "done",
            "gone",
            "queued",
            "new",
            "done",
        ]
    assert expected.sentences("task") == [
        "2 new tasks since the last run (new because of 1 task: prompt; 1 task: model)",
        "no longer in the plan: 1 dropped from the queue, 1 with results kept",
    ]
    assert Extension().sentences("task") == []
    assert len(Extension(retained=1).sentences("task")) == len(Extension(dropped=1).sentences("task")) == 1


# Checks before the start


def find_agent(**agents):
    def find(name, settings):
        if name not in agents:
            raise UsageError(f"there is no agent {name}\nInstall it.")
        return agents[name]

    return find


def context(**more):
    models = SimpleNamespace(
        check=lambda model: None, missing_key=lambda model: "", has_price=lambda model: False
    )
    given = {"environment": {"PATH": "/bin"}, "find_agent": find_agent(), "models": models}
    return PreflightContext(**given | more)


def an_agent(*, ready=True, stand_in=False, **more):
    found = SimpleNamespace(ready=ready, problem="broken", remedy="repair it")
    return SimpleNamespace(availability=lambda environment: found, stand_in=stand_in, **more)


def test_a_model_must_be_reachable_and_have_its_key_and_a_price_where_needed():
    models = context().models
    assert list(check_model("m", models)) == []
    ((problem, remedy),) = check_model("m", models, needs_price=True, limit="the limit")
    assert problem == "no price is known for m, so the limit cannot be enforced"
    assert "prices: {m: {input: 1.0, output: 2.0}}" in remedy
    models.missing_key = lambda model: "KEY"
    assert list(check_model("m", models)) == [("m needs a key, and KEY is not set", "Set it: export KEY=…")]

    def refuse(model):
        raise UsageError("unknown model\nName another.")

    models.check = refuse
    assert list(check_model("m", models, needs_price=True)) == [("unknown model", "Name another.")]


def test_an_agent_must_exist_and_be_installed_and_mocks_are_remarked_on():
    remarks = set()
    agents = find_agent(good=an_agent(), broken=an_agent(ready=False), mock=an_agent(stand_in=True))
    found = {
        name: list(check_agent(name, {}, context(find_agent=agents), remarks))
        for name in ("good", "none", "broken", "mock")
    }
    assert found == {
        "good": [],
        "none": [("there is no agent none", "Install it.")],
        "broken": [("the agent broken cannot be used here: broken", "repair it")],
        "mock": [],
    }
    assert remarks == {"`mock` is a mock agent; its results say nothing about real agents"}
    assert list(check_agents_model("none", "m", {}, context())) == []
    assert has_own_models("none", {}, context())


def test_a_sandbox_that_does_not_work_is_missing():
    class Sandbox:
        def summary(self, own, usual):
            if own == "bad":
                raise UsageError("no bwrap\nInstall it.")
            return f"confined {usual}"

        def evaluator_summary(self):
            return "evaluators confined"

    remarks = set()
    assert list(check_sandbox("bad", "none", {}, context(sandbox=Sandbox()), remarks)) == [
        ("no bwrap", "Install it.")
    ]
    assert list(check_sandbox(None, "none", {}, context(sandbox=Sandbox()), remarks)) == []
    assert remarks == {"confined None"}
    assert list(check_evaluators([SimpleNamespace()], remarks)) == []
    assert remarks == {"confined None"}


@pytest.mark.parametrize(
    ("command", "program", "missing"),
    [
        ("none-such --flag", "none-such", "none-such"),
        ("A=1 B=2 none-such", "none-such", "none-such"),
        ("sh -c x", "sh", ""),
        ("./none-such", "./none-such", ""),
        ("cd x && y", "cd", ""),
        ("$TOOL x", "", ""),
        ("(none) x", "", ""),
        ("'unclosed", "", ""),
        ("# comment", "", ""),
        ("A=1", "", ""),
        ("", "", ""),
    ],
)
def test_the_program_of_a_command_must_be_on_the_path(command, program, missing):
    assert program_of(command) == program
    assert missing_program(command, context()) == missing


# Imports


def call(**more):
    return ModelCall(
        **{"model": "gpt-4o", "provider": "openai", "usage": Usage(input_tokens=1_000_000)} | more
    )


def priced(*calls, **more):
    steps = [Step(trace_id="t", events=[TimedEvent(event=each) for each in calls])]
    session = ingest.priced(Session(external_id="x", source="s", steps=steps, **more), NOW)
    return [timed.event for timed in session.steps[0].events]


def test_calls_without_a_cost_get_their_list_price():
    known, free, unknown, empty, message = priced(
        call(),
        call(cost_usd=0.0),
        call(model="nobodys"),
        call(usage=Usage()),
        Message(role="user", content="x"),
    )
    assert known.cost_usd > 0 and known.price_source and known.price
    assert (free.cost_usd, unknown.cost_usd, empty.cost_usd) == (0.0, None, None)
    assert priced(call(price_source="plan"))[0].cost_usd is None
    assert message.content == "x"
    unchanged = Session(external_id="x", source="s", steps=[Step(trace_id="t", events=[])])
    assert ingest.priced(unchanged, NOW) is unchanged


def test_the_first_unreadable_records_and_files_are_named_and_all_are_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(ingest, "MOST_NAMED", 2)
    result = ingest.ImportResult()
    for number in range(3):
        result.add_unreadable(Unreadable(path=str(number), problem="x"))
        result.pass_over(tmp_path / str(number))
    assert ([each.path for each in result.unreadable], result.unreadable_count) == (["0", "1"], 3)
    assert (len(result.passed_over), result.passed_over_count) == (2, 3)
    session = Session(external_id="x", source="s")
    ids = [result.own_id(session, tmp_path / name) for name in ("a", "b", "a")]
    assert ids == ["x", f"x ({tmp_path.name}/b)", "x"]
    assert result.own_id(Session(external_id="x", source="t"), tmp_path / "b") == "x"


def test_a_file_without_sessions_says_what_it_holds(monkeypatch):
    content = ingest.FileContent()
    assert content.reason() == "no session: it holds no spans and no event records"
    monkeypatch.setattr(ingest, "MOST_SEEN", 2)
    times = {"startTimeUnixNano": 1, "endTimeUnixNano": 2, "parentSpanId": "", "status": {"code": "OK"}}
    span = {"spanId": "s", "traceId": "t", "scope": {"name": "lib"}, "kind": "INTERNAL", "attributes": {}}
    spans = [normalised(span | times | {"name": name}) for name in "abca"]
    assert list(content.seen(spans)) == spans
    assert (content.spans, content.has_work) == (4, False)
    assert content.reason() == (
        "no session: none of its 4 spans of lib is of an agent, a model or a tool: a, b"
    )


def test_spans_that_cannot_be_read_become_a_failed_session():
    name = SimpleNamespace(external_id="x", service="svc", log_group="g")
    session = ingest._unreadable(name, ValueError("y" * 1000))
    assert (session.status, session.end_reason, session.name) == ("error", "internal_error", "x")
    assert session.error.startswith("what arrived of it cannot be read: ValueError: yyy")
    assert len(session.error) == 500


def test_documents_are_stored_in_parts(monkeypatch):
    saved = []
    monkeypatch.setattr(ingest, "DOCUMENTS_AT_ONCE", 2)
    monkeypatch.setattr(ingest, "mark_of", lambda document, **more: more["service"])
    store = SimpleNamespace(arrivals=SimpleNamespace(save=lambda marked, now: saved.append(list(marked))))
    assert ingest.keep_arrivals(store, iter([{"n": n} for n in range(5)]), NOW, service="svc") == 5
    assert [len(part) for part in saved] == [2, 2, 1] and saved[0][0] == ("svc", {"n": 0})


def test_sessions_to_come_are_announced_once():
    cache = executor.SessionCache(SimpleNamespace())
    cache.announce(
        [work(item=item(settings={"session": "s1"})), work(), work(item=item(settings={"session": "s1"}))]
    )
    assert list(cache._upcoming) == ["s1"]


# Questions to people


class Asked:
    """A store in which a question is answered after so many looks; None: never."""

    def __init__(self, looks):
        self.looks, self.calls = looks, []

    def ask_question(self, *question):
        self.calls.append(question)
        return "q1"

    def answer_of(self, run_id, question):
        assert (run_id, question) == ("run", "q1")
        if self.looks is None:
            return None
        self.looks -= 1
        return "yes" if self.looks < 0 else None

    def withdraw_question(self, run_id, question):
        self.calls.append(("withdrawn", run_id, question))


@pytest.mark.parametrize("looks", [0, 1, 3])
async def test_a_person_is_announced_only_while_there_is_no_answer(monkeypatch, looks):
    monkeypatch.setattr(contexts, "POLL_SECONDS", 0)
    store, told = Asked(looks), []
    asking = contexts.StoreQuestions(store, "run", lambda: NOW, told.append)
    assert await asking.ask("i", "mayor", "What now?") == "yes"
    assert store.calls == [("run", "i", "mayor", "What now?", NOW)]
    assert told == ["waiting for mayor to answer q1 (in the page of the run)"][: bool(looks)]


async def test_a_question_that_nobody_waits_for_is_withdrawn():
    store = Asked(None)
    asking = contexts.StoreQuestions(store, "run", lambda: NOW, lambda text: None)
    task = asyncio.create_task(asking.ask("i", "mayor", "What now?"))
    while len(store.calls) < 1:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.calls[-1] == ("withdrawn", "run", "q1")


def test_aborting_a_run_without_a_process_ends_what_its_sessions_had_started(tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr("proctor.processes.end_attempt", ended.append)
    with Store(str(tmp_path / "a.db")) as store:
        row = {"runId": "run", "createdAt": timestamp(NOW), "job": "coding", "status": "running"}
        store.create_batch(row | {"owner": "elsewhere:1:1:x", "heartbeatAt": None}, [item()])
        writer = store.writer()
        for session_id, status in (("a", "running"), ("b", "success")):
            session = {"id": session_id, "runId": "run", "itemId": "i", "job": "coding", "status": status}
            writer.add("sessions", (session_id,), session)
        writer.close()
        assert abort_run(store, "run", now=lambda: NOW, pause=lambda seconds: None) == "aborted"
        assert [row["status"] for row in store.read.items("run")] == ["error"]
    assert ended == ["a"]
