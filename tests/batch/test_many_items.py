"""Hundreds at once, and no more memory for more items."""

import asyncio
import gc
import sys
from array import array

from stand_ins import doing, echo

from waiting import TIME_LIMIT_SECONDS


async def test_as_many_run_at_once_as_the_plan_says_and_no_more(workshop):
    at_once, most, all_there = 0, 0, asyncio.Event()

    async def meet(item, services):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 500:
            all_there.set()
        await asyncio.wait_for(all_there.wait(), TIME_LIMIT_SECONDS)
        at_once -= 1

    ending = await workshop.run(echo(1500, 500), find_runner=doing(meet))

    assert (ending.status, most) == ("completed", 500)
    assert workshop.store.read.totals("run")["counts"]["success"] == 1500
    assert len({end.id for end in workshop.finished}) == 1500


async def test_more_items_take_no_more_memory(workshop):
    """Counted in Python's blocks of memory; an item, its session and its rows are more than fifty."""
    blocks = array("q")  # A list of them would be a block for each.
    gc.collect()  # What earlier tests left would hide what this one takes.

    def count_blocks(end: object) -> None:
        # Garbage that was not collected yet is no growth.
        if len(blocks) % 250 == 0:
            gc.collect()
        blocks.append(sys.getallocatedblocks())

    await workshop.executor(workshop.launch(echo(2_000, 100)), watch=count_blocks).run()

    # The least of many: what waits to be written comes and goes.
    early, late = min(blocks[250:750]), min(blocks[1_500:])
    assert len(blocks) == 2_000
    assert late - early < 2 * 1_250
