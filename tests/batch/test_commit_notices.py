"""Observers are notified of what has ended after its commit, and in order.

Against the notifier itself: no command shows which of two neighboring lines was executed before a commit.
"""

import asyncio
from concurrent.futures import Future

from work_items import Pages, queued

from proctor.batch import host
from proctor.batch.host import CommitNotifier
from proctor.batch.queue import WorkQueue
from proctor.errors import StoreError


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
    for _ in range(host.MOST_BEHIND + 1):
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
