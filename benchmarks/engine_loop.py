"""Run a batch of plain prompts with the whole engine, in this process, and print how long it took.

    python benchmarks/engine_loop.py HOME ITEMS CONCURRENCY MODEL [WORKERS]

Measures everything from writing the items to the store until the batch is closed; starting Python
and importing are measured elsewhere.
"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from proctor.batch import lifecycle
from proctor.batch.engines import loop_factory
from proctor.bootstrap import open_context
from proctor.job import PlanText
from proctor.jobs.coding.job import JOB
from proctor.jobs.coding.plan import NO_OVERRIDES
from workload import plan_text


def main(home: Path, items: int, concurrency: int, model: str, workers: int = 1) -> None:
    """Run, and print the figures as JSON."""
    # The HTTP client is loaded on first use; loading it is not part of the work.
    import aiohttp  # noqa: F401

    text = plan_text(items, model=model, concurrency=concurrency)
    with open_context([home], home=str(home), store=str(home / "engine.db")) as ctx:
        plan = JOB.read(PlanText(text=text, folder=home), NO_OVERRIDES, ctx)
        assert ctx.store
        started = time.perf_counter()
        # The event loop of the commands.
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            run = runner.run(lifecycle.start(JOB, plan, ctx, run_id="bench", workers=workers))
        seconds = time.perf_counter() - started
    driver = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {"items": run.summary["itemCount"], "passed": run.summary["successCount"]}
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = {"driver_cpu": driver, "workers_cpu": children.ru_utime + children.ru_stime}
    print(json.dumps({**figures, "seconds": seconds, "peak_kb": peak, **cpu}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], *map(int, sys.argv[5:]))
