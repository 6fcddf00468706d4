"""The work queue: pages, items that return, checkpoints, and its end."""

import asyncio

import pytest
from work_items import Pages, queued

from proctor.batch.queue import WorkQueue
from proctor.errors import StoreError


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
