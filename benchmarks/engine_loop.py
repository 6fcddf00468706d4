"""Carry out a batch of plain prompts with the whole engine, in this process, and say how long it took.

    python benchmarks/engine_loop.py HOME ITEMS CONCURRENCY MODEL

Counted is everything from writing the items to the store until the batch is closed; starting Python
and importing are measured elsewhere.
"""

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

from proctor.batch.create import create
from proctor.batch.executor import Executor
from proctor.bootstrap import make_house, now
from proctor.jobs.coding.job import CodingJobPlan
from proctor.jobs.coding.plan import Overrides, read_plan
from proctor.models import ModelRouter
from proctor.store import Store
from proctor.store.keys import read_keys
from proctor.store.writer import this_process
from workload import plan_text


def main(home: Path, items: int, concurrency: int, model: str) -> None:
    """Run, and print the figures as JSON."""
    # The library for HTTP is loaded when it is first needed; what is measured is the work.
    import aiohttp  # noqa: F401

    plan = read_plan(plan_text(items, model=model, concurrency=concurrency), file="bench", folder=home)
    with Store(str(home / "engine.db"), read_keys({}, os.environ)) as store:
        owner = this_process()
        started = time.perf_counter()
        job_plan = CodingJobPlan(plan, Overrides(), "bench", (home,))
        count = create(
            store,
            "coding",
            job_plan.columns(),
            job_plan.items(),
            run_id="bench",
            owner=owner,
            version="bench",
            now=now(),
        )
        asyncio.run(_carry_out(store, owner, home))
        seconds = time.perf_counter() - started
        passed = store.read.totals("bench")["counts"]["success"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"items": count, "passed": passed, "seconds": seconds, "peak_kb": peak}))


async def _carry_out(store: Store, owner: str, home: Path) -> None:
    models = ModelRouter(os.environ)
    await Executor(store, "bench", owner, make_house(home, models)).run()
    await models.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
