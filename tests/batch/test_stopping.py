"""Abort and interrupt, from inside and outside; a store that fails; and only one owner at a time."""

import asyncio
import sqlite3
import threading
import time
from datetime import UTC, datetime

import pytest
from stand_ins import call, doing, echo, forever

from proctor.batch.lifecycle import abort_run
from proctor.errors import OwnershipLost, StoreError, UsageError
from proctor.store import batches
from proctor.testing import eventually_async
from waiting import TIME_LIMIT_SECONDS


def now():
    return datetime.now(UTC)


def statuses(workshop):
    return sorted(item["status"] for item in workshop.items())


async def running_batch(workshop, runs=6, concurrency=3, what=forever):
    """A batch whose first items are under way: its executor and its task."""
    owner = workshop.launch(echo(runs, concurrency))
    executor = workshop.executor(owner, find_runner=doing(what))
    task = asyncio.create_task(executor.run())
    await eventually_async(lambda: statuses(workshop).count("running") == concurrency)
    return executor, task


async def test_an_aborted_batch_can_still_be_taken_up_again(workshop):
    executor, task = await running_batch(workshop)
    executor.abort()
    assert ((await task).end.status, workshop.batch()["status"]) == ("aborted", "aborted")
    assert workshop.outcomes() == [("error", "aborted")] * 6
    assert [row["endReason"] for row in workshop.rows("sessions")] == ["aborted"] * 3

    ending = await workshop.resume()

    assert ending.status == "completed"
    assert workshop.outcomes() == [("success", "completed")] * 6
    assert sorted(row["attempt"] for row in workshop.rows("sessions")) == [1, 1, 1, 1, 1, 1, 2, 2, 2]


async def test_aborting_what_has_ended_is_refused(workshop):
    await workshop.run(echo(1))

    with pytest.raises(UsageError, match="already completed"):
        abort_run(workshop.store, "run", now=now, pause=time.sleep)


async def test_an_interrupt_puts_items_back_and_resuming_does_nothing_twice(workshop):
    done = []

    async def some(item, services):
        if item.repeat > 3:
            await forever(item, services)
        done.append(item.repeat)

    owner = workshop.launch(echo(8, 2))
    executor = workshop.executor(owner, find_runner=doing(some))
    task = asyncio.create_task(executor.run())
    await eventually_async(lambda: statuses(workshop).count("running") == 2 and len(done) == 3)
    executor.interrupt()
    ending = (await task).end

    assert (ending.status, workshop.batch()["status"]) == ("interrupted", "interrupted")
    assert statuses(workshop) == ["queued"] * 5 + ["success"] * 3
    assert {row["endReason"] for row in workshop.rows("sessions")} == {"completed", "interrupted"}

    ending = await workshop.resume(find_runner=doing(lambda item, services: _note(done, item)))

    assert ending.status == "completed"
    assert sorted(done) == [1, 2, 3, 4, 5, 6, 7, 8]
    attempts = {row["itemId"]: 0 for row in workshop.rows("sessions")}
    for row in workshop.rows("sessions"):
        attempts[row["itemId"]] += 1
    assert sorted(attempts.values()) == [1] * 6 + [2] * 2


async def _note(done, item):
    done.append(item.repeat)


async def test_a_stop_that_comes_before_the_first_item_stops_before_the_first_item(workshop):
    started = []

    async def note(item, services):
        started.append(item.id)

    for stop, status in (("interrupt", "interrupted"), ("abort", "aborted")):
        owner = workshop.launch(echo(3), run_id=stop)
        executor = workshop.executor(owner, stop, find_runner=doing(note))
        getattr(executor, stop)()
        assert (await executor.run()).end.status == status
    assert started == []


async def test_a_conductor_whose_own_task_is_cancelled_leaves_the_truth_behind(workshop):
    _, task = await running_batch(workshop)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert statuses(workshop) == ["queued"] * 6
    assert [row["endReason"] for row in workshop.rows("sessions")] == ["interrupted"] * 3


async def test_runners_have_cleaned_up_before_the_batch_ends(workshop):
    cleaned = []

    async def tidy(item, services):
        try:
            await forever(item, services)
        finally:
            await asyncio.sleep(0.1)
            cleaned.append(item.id)

    executor, task = await running_batch(workshop, what=tidy)
    executor.interrupt()
    await task

    assert len(cleaned) == 3


async def test_one_whose_batch_was_taken_over_stops_and_writes_nothing_more(workshop):
    _, task = await running_batch(workshop)
    # We were suspended for so long that another machine thought us dead.
    workshop.store.change(batches.change, "run", {"owner": "gone:1:1:x", "heartbeatAt": None})
    ending = await workshop.resume()

    with pytest.raises(OwnershipLost):
        await asyncio.wait_for(task, TIME_LIMIT_SECONDS)
    assert ending.status == "completed"
    assert workshop.outcomes() == [("success", "completed")] * 6
    assert workshop.batch()["status"] == "completed"


async def test_a_store_that_fails_in_mid_run_ends_the_batch_and_nothing_hangs(workshop):
    async def work(item, services):
        await asyncio.sleep(0.001)

    owner = workshop.launch(echo(5000, 20))
    task = asyncio.create_task(workshop.executor(owner, find_runner=doing(work)).run())
    await eventually_async(lambda: statuses(workshop).count("success") > 50)
    raw = sqlite3.connect(workshop.folder / "proctor.db", timeout=30)
    raw.execute('ALTER TABLE "sessions" RENAME TO "stolen"')
    raw.commit()

    with pytest.raises(StoreError, match="sessions"):
        await asyncio.wait_for(task, TIME_LIMIT_SECONDS)
    assert threading.active_count() < 20
    told = len(workshop.finished)
    (written,) = raw.execute("SELECT COUNT(*) FROM batch_items WHERE status = 'success'")
    assert told <= written[0], "nobody is told of what is not written"


async def test_a_watcher_who_fails_does_not_stop_the_batch_for_ever(workshop):
    owner = workshop.launch(echo(3))

    def broken(end):
        raise RuntimeError("the terminal is gone")

    result = await asyncio.wait_for(workshop.executor(owner, watch=broken).run(), TIME_LIMIT_SECONDS)

    assert result.end.status == "completed"
    assert workshop.outcomes() == [("success", "completed")] * 3


async def test_an_abort_that_meets_an_attempt_at_its_cost_limit_stops_the_batch_all_the_same(workshop):
    plan = "concurrency: 1\nmatrix: [{prompt: hello, model: scripted/echo, budget: 0.1, runs: 2}]"
    owner = workshop.launch(plan)

    async def spend(item, services):
        if item.repeat > 1:
            return
        services.record(call(0.2))
        try:
            await forever(item, services)
        finally:
            # While it cleans up after the cut-off.
            executor.abort()
            await forever(item, services)

    executor = workshop.executor(owner, find_runner=doing(spend))
    result = await asyncio.wait_for(executor.run(), TIME_LIMIT_SECONDS)

    assert result.end.status == "aborted"
    assert workshop.outcomes() == [("error", "aborted")] * 2
    assert [row["endReason"] for row in workshop.rows("sessions")] == ["aborted"], "nothing more was begun"


async def test_a_store_that_fails_an_attempt_ends_the_batch_and_is_no_outcome_of_the_item(workshop):
    async def read(item, services):
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        await workshop.run(echo(2, 1), find_runner=doing(read))

    assert {item["reason"] for item in workshop.items()} == {""}, "the items are not to blame"
