"""Locks between processes: one holder at a time, in order, and free again however the holder ends."""

import asyncio
import fcntl

import pytest

from proctor.workspace import locks
from proctor.workspace.locks import file_lock
from waiting import TIME_LIMIT_SECONDS


async def test_a_lock_that_another_process_holds_is_waited_for(tmp_path, monkeypatch):
    path, entered = tmp_path / "deep" / "lock", asyncio.Event()
    waits: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds):
        waits.append(seconds)
        await real_sleep(0)

    # The pauses between two tries show nowhere else.
    monkeypatch.setattr(locks.asyncio, "sleep", sleep)
    path.parent.mkdir()

    async def hold():
        async with file_lock(path):
            entered.set()

    # As another process has it: the lock belongs to this open file, not to our process.
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        task = asyncio.create_task(hold())
        while len(waits) < 10 and not entered.is_set():
            await real_sleep(0)
        assert not entered.is_set()
    await task

    assert entered.is_set()
    assert waits[:8] == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25], "longer each time, up to a limit"


async def test_while_it_is_held_nobody_else_can_have_it_and_afterward_anybody(tmp_path):
    path = tmp_path / "lock"

    async def fail_while_holding():
        async with file_lock(path):
            with path.open("w") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_while_holding()
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_tasks_that_wait_get_it_in_order_and_one_at_a_time(tmp_path):
    path, order, inside = tmp_path / "lock", [], 0

    async def hold(number):
        nonlocal inside
        async with file_lock(path):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            order.append(number)
            inside -= 1

    await asyncio.gather(*(hold(number) for number in range(5)))

    assert order == [0, 1, 2, 3, 4]


async def test_locks_of_different_files_do_not_wait_for_each_other(tmp_path):
    async with asyncio.timeout(TIME_LIMIT_SECONDS), file_lock(tmp_path / "one"), file_lock(tmp_path / "two"):
        pass
