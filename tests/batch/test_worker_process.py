"""A worker in another process: its calls to the driver, the items it has, what it reports and how it ends."""

import asyncio
import pickle
import threading

import pytest

from proctor.batch.engines import processes
from proctor.batch.engines.messages import (
    HostCancel,
    HostReply,
    RowBatch,
)
from proctor.batch.engines.worker_process import RemoteHost, picklable
from proctor.errors import ProctorError
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


def test_a_process_with_threads_is_not_forked():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    try:
        assert processes.can_fork() is False
    finally:
        go_on.set()
        thread.join()
