"""Thousands at once, and no more memory for more items."""

import asyncio
import gc
import sys
from array import array

from stand_ins import doing, echo

from waiting import TIME_LIMIT_SECONDS


async def test_five_thousand_items_a_thousand_at_a_time(workshop):
    at_once, all_there = 0, asyncio.Event()

    async def meet(item, services):
        nonlocal at_once
        at_once += 1
        if at_once == 1000:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), TIME_LIMIT_SECONDS)
        at_once -= 1

    ending = await workshop.run(echo(5000, 1000), find_runner=doing(meet))

    assert ending.status == "completed"
    assert workshop.store.read.totals("run")["counts"]["success"] == 5000
    assert len({end.id for end in workshop.finished}) == 5000


async def test_no_more_run_at_once_than_the_plan_says(workshop):
    at_once, most = 0, 0

    async def count(item, services):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1

    await workshop.run(echo(200, 7), find_runner=doing(count))

    assert most == 7


async def test_five_thousand_items_take_no_more_memory_than_a_thousand(workshop):
    """Counted in Python's blocks of memory; an item, its session and its rows are more than fifty."""
    blocks = array("q")  # A list of them would be a block for each.
    gc.collect()  # What earlier tests left would hide what this one takes.

    def count_blocks(end: object) -> None:
        # Garbage that was not collected yet is no growth.
        if len(blocks) % 500 == 0:
            gc.collect()
        blocks.append(sys.getallocatedblocks())

    await workshop.executor(workshop.launch(echo(5_000, 100)), watch=count_blocks).run()

    # The least of many: what waits to be written comes and goes.
    early, late = min(blocks[500:1_000]), min(blocks[4_500:])
    assert len(blocks) == 5_000
    assert late - early < 2 * 4_000
