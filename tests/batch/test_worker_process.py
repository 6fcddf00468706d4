"""A worker in another process: its calls to the driver, the items it has, what it reports and how it ends."""

import asyncio
import pickle
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
from work_items import work

from proctor.batch.engines import processes, worker_process
from proctor.batch.engines.messages import (
    AttemptEnd,
    Finish,
    HostCall,
    HostCancel,
    HostReply,
    Report,
    ReturnMoney,
    RowBatch,
    RowBuffer,
    Stop,
    UserMessage,
    WorkChunk,
)
from proctor.batch.engines.worker_process import RemoteHost, _ProcessWorker, picklable
from proctor.errors import Interrupted, ProctorError, StoreError
from proctor.testing import eventually_async


class Channel:
    """Keeps what is sent; what is received is given."""

    def __init__(self, *messages):
        self.sent, self.messages = [], list(messages)

    def send(self, message):
        self.sent.append(message)

    async def receive(self):
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)


@pytest.mark.parametrize(
    ("method", "arguments", "options"),
    [
        ("committed", (), {}),
        ("draw", ("h",), {"wanted_usd": 2.0, "least_usd": 1.0}),
        ("give_back", ("h", 0.5), {}),
        ("share_limits", ("h", ["s"]), {}),
        ("load_session", ("s", ["t"], "scenario"), {}),
        ("resource", ("d",), {}),
        ("merge", ("request",), {}),
        ("ask_person", ("i", "actor", "prompt"), {}),
        ("copy_files", (Path("/a"),), {}),
        ("copy_repository", (Path("/a"), "main", ["sha"]), {}),
        ("starting_repository", (Path("/a"), "d"), {}),
        ("publish_branch", (Path("/a"), "b", "sha", b"x"), {}),
    ],
)
async def test_calls_go_to_the_driver_and_get_its_answer(method, arguments, options):
    channel = Channel()
    host = RemoteHost(channel, None)
    calls = [asyncio.create_task(getattr(host, method)(*arguments, **options)) for _ in range(2)]
    await eventually_async(lambda: len(channel.sent) == 2)
    assert channel.sent == [HostCall(number, method, arguments, options) for number in (1, 2)]
    host.answered(HostReply(2, "two"))
    host.answered(HostReply(1, error=ValueError("no")))
    returns = method not in ("committed", "give_back", "publish_branch")
    assert await calls[1] == ("two" if returns else None)
    with pytest.raises(ValueError, match=r"^no$"):
        await calls[0]
    assert host._calls == {}


async def test_rows_are_sent_at_once():
    sent = []
    await RemoteHost(Channel(), sent.append).write(RowBatch("rows"))
    assert sent == ["rows"]


@pytest.mark.parametrize("reply", [HostReply(1), HostReply(1, error=ValueError("late"))])
async def test_a_cancelled_call_waits_until_the_driver_has_ended_it(reply):
    channel = Channel()
    host = RemoteHost(channel, None)
    call = asyncio.create_task(host.merge("request"))
    await eventually_async(lambda: len(channel.sent) == 1)
    call.cancel()
    await eventually_async(lambda: len(channel.sent) == 2)
    assert channel.sent[1] == HostCancel(1) and not call.done()
    host.answered(reply)
    with pytest.raises(asyncio.CancelledError):
        await call


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def test_errors_cross_to_the_driver_or_their_message_does():
    error = ValueError("x")
    assert picklable(error) is error
    replaced = picklable(Unpicklable("a", "b"))
    assert type(replaced) is ProctorError and str(replaced) == "Unpicklable: a b"
    exit_ = picklable(SystemExit(3))
    assert type(exit_) is ProctorError and str(exit_) == "SystemExit(3)"
    pickle.dumps(exit_)


class Worker:
    """Runs an attempt when it is told to."""

    def __init__(self, error=None):
        self.running, self.stopped, self.returned, self.error = [], [], 0, error
        self.go = asyncio.Event()

    async def run(self, item):
        self.running.append(item.id)
        await self.go.wait()
        if self.error:
            raise self.error
        return AttemptEnd(work=item)

    def stop(self, reason):
        self.stopped.append(reason)

    async def return_money(self):
        self.returned += 1
        raise StoreError("the driver knows")


def process_worker(worker, *messages, concurrency=2, wanted=None):
    made = _ProcessWorker.__new__(_ProcessWorker)
    made._channel, made._worker = Channel(*messages), worker
    made._concurrency, made._wanted_concurrency = concurrency, wanted or concurrency
    made._rows, made._ends, made._waiting, made._attempts = RowBuffer(), [], deque(), set()
    made._finishing, made._finished, made._returning, made._error = False, asyncio.Event(), set(), None
    made._has_ended = asyncio.Event()
    return made


async def test_as_many_items_run_as_the_worker_may_run_at_once():
    worker = Worker()
    made = process_worker(worker)
    made._waiting.extend(work(name) for name in "abcd")
    made._start_waiting()
    await eventually_async(lambda: len(worker.running) == 2)
    assert (worker.running, len(made._attempts), len(made._waiting)) == (["a", "b"], 2, 2)
    worker.go.set()
    await eventually_async(lambda: not made._attempts)
    assert sorted(worker.running) == ["a", "b", "c", "d"] and len(made._ends) == 4
    assert not made._finished.is_set()
    made._finish()
    assert made._finished.is_set()


async def test_a_lower_concurrency_is_reached_as_attempts_end():
    worker = Worker()
    made = process_worker(worker, concurrency=3, wanted=1)
    made._waiting.extend(work(name) for name in "abcde")
    made._start_waiting()
    await eventually_async(lambda: len(worker.running) == 3)
    worker.go.set()
    await eventually_async(lambda: not made._attempts)
    assert (made._concurrency, len(worker.running)) == (1, 5)


async def test_nothing_runs_before_the_worker_is_open():
    made = process_worker(None)
    made._waiting.append(work("a"))
    made._start_waiting()
    assert len(made._waiting) == 1 and not made._attempts


async def test_an_error_that_ends_the_batch_stops_the_other_attempts():
    worker = Worker(StoreError("full"))
    made = process_worker(worker, concurrency=1)
    made._waiting.extend(work(name) for name in "abc")
    made._start_waiting()
    worker.go.set()
    await eventually_async(made._finished.is_set)
    assert worker.running == ["a"] and not made._waiting
    assert isinstance(made._error, StoreError) and str(made._error) == "full"
    assert [str(each) for each in worker.stopped] == ["the batch was stopped"]
    made._fail(ValueError("later"))
    assert str(made._error) == "full", "the first one counts"


async def test_attempts_are_cancelled_with_the_reason_of_the_driver():
    worker, reason = Worker(), Interrupted("stopped by hand")
    made = process_worker(worker, WorkChunk((work("a"), work("b"), work("c"))), Stop(reason))
    reading = asyncio.create_task(made._read())
    await eventually_async(made._finished.is_set)
    assert worker.stopped == [reason] and made._error is None
    assert not made._waiting and not made._attempts
    reading.cancel()


async def test_a_worker_finishes_what_runs_when_nothing_is_left():
    worker = Worker()
    made = process_worker(worker, WorkChunk((work("a"),)), ReturnMoney(), Finish())
    reading = asyncio.create_task(made._read())
    await eventually_async(lambda: made._finishing and worker.running == ["a"])
    assert not made._finished.is_set() and worker.stopped == []
    worker.go.set()
    await eventually_async(made._finished.is_set)
    await eventually_async(lambda: worker.returned == 1 and not made._returning)
    assert made._error is None
    reading.cancel()


async def test_items_that_cannot_be_read_end_the_worker():
    made = process_worker(Worker())

    async def broken():
        raise ImportError("no such function")

    async def cancelled():
        await asyncio.Event().wait()

    tasks = [asyncio.create_task(cancelled()), asyncio.create_task(broken())]
    tasks[0].cancel()
    await asyncio.wait(tasks)
    made._reading_done(tasks[0])
    assert made._error is None and not made._finished.is_set()
    made._reading_done(tasks[1])
    assert isinstance(made._error, ImportError) and made._finished.is_set()


def test_rows_are_reported_together_with_the_attempts_that_ended_with_them():
    made = _ProcessWorker.__new__(_ProcessWorker)
    made._channel, made._rows, made._ends = Channel(), RowBuffer(), []
    assert made._report() is False and made._channel.sent == []
    made._rows.append("metrics", ("s", 1))
    assert made._report() is True
    made._ends.append("end")
    assert made._report() is True and made._report() is False
    first, second = made._channel.sent
    assert isinstance(first, Report) and (first.rows.count, first.ends) == (1, [])
    assert (second.rows.count, second.ends) == (0, ["end"])


@pytest.mark.parametrize(("rows", "reports"), [(0, 0), (1, 1)])
async def test_many_rows_are_reported_without_delay(rows, reports, monkeypatch):
    monkeypatch.setattr(worker_process, "REPORT_ROWS", 3)
    worker = Worker()
    worker.go.set()
    made = process_worker(worker)
    for number in range(3 + rows):
        made._rows.append("metrics", ("s", number))
    await made._run_items(worker, work("a"))
    assert len(made._channel.sent) == reports


@pytest.mark.parametrize("error", [None, ValueError("no settings")])
async def test_a_worker_closes_what_it_has_opened_when_it_has_finished(monkeypatch, error):
    calls = []

    def called(name):
        async def call():
            calls.append(name)

        return call

    class Opened(Worker):
        def __init__(self, *given):
            super().__init__()
            calls.append(("worker", given[0], given[1] is context))
            self.open, self.close = called("open"), called("close")

    models = SimpleNamespace(pools=SimpleNamespace(notify=None), close=called("models"))
    context = SimpleNamespace(gateway=SimpleNamespace(close=called("gateway")))

    def make(spec):
        if error:
            raise error
        return context, models

    monkeypatch.setattr(worker_process, "make_worker_context", make)
    monkeypatch.setattr(worker_process, "Worker", Opened)
    spec = SimpleNamespace(concurrency=2)
    made = _ProcessWorker(Channel(Finish()), spec)
    made._ends.append("end")
    assert await asyncio.wait_for(made.run(), 30) is error
    expected = [("worker", spec, True), "open", "close", "gateway", "models"]
    assert calls == ([] if error else expected)
    assert [each.ends for each in made._channel.sent if isinstance(each, Report)] == [["end"]]
    if not error:
        models.pools.notify("wait")
        assert made._channel.sent[-1] == UserMessage("wait")


def test_a_process_with_threads_is_not_forked():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    try:
        assert processes.can_fork() is False
    finally:
        go_on.set()
        thread.join()
