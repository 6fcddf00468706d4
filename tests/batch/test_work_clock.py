"""Work time of an attempt: pauses, phases, limits and their timers."""

import asyncio

import pytest

from proctor.batch.attempt import WorkClock
from proctor.errors import TimeLimit


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
