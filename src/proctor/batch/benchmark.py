"""Make a batch of a benchmark, or bring an earlier one up to what is asked now.

Items are known by what they ask for, so more models, tasks or runs extend a benchmark, and what is
the same keeps its results.

Knows nothing of how items are carried out.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from proctor.batch.launch import Extension
from proctor.item import QUEUED, digest_of
from proctor.plan.benchmark import Benchmark
from proctor.store import Store, timestamp

JOB = "benchmark"


def create_benchmark(
    store: Store,
    benchmark: Benchmark,
    options: Mapping[str, Any],
    *,
    run_id: str,
    concurrency: int,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its items; how many those are. `options` are kept with it."""
    row = {
        "runId": run_id,
        "createdAt": timestamp(now),
        "job": JOB,
        "status": "running",
        "owner": owner,
        "heartbeatAt": timestamp(now),
        "proctorVersion": version,
        **_asked(benchmark, options, concurrency),
    }
    return store.create_batch(row, benchmark.items())


def extend_benchmark(
    store: Store, run_id: str, benchmark: Benchmark, options: Mapping[str, Any], *, concurrency: int
) -> Extension:
    """Bring a batch up to what is asked now. The batch must be ours."""
    earlier = {row["id"]: row for row in store.read.item_inputs(run_id)}
    items = list(benchmark.items())
    wanted = {item.id for item in items}
    gone = [row for item_id, row in earlier.items() if item_id not in wanted]
    dropped = [row["id"] for row in gone if row["status"] == QUEUED]
    new = [item for item in items if item.id not in earlier]
    store.extend_batch(
        run_id,
        _asked(benchmark, options, concurrency),
        add=new,
        settle=[item for item in items if item.id in earlier],
        drop=dropped,
    )
    return Extension(added=len(new), dropped=len(dropped), kept=len(gone) - len(dropped))


def _asked(benchmark: Benchmark, options: Mapping[str, Any], concurrency: int) -> dict[str, Any]:
    text = "\n\n".join(task.prompt for task in benchmark.tasks)
    return {
        "planPath": str(options.get("taskPath", "")),
        "planText": text,
        "planDigest": digest_of(text),
        "defaultsJson": json.dumps({"agent": benchmark.agent or None, "runs": benchmark.runs}),
        "optionsJson": json.dumps(dict(options), ensure_ascii=False),
        "concurrency": concurrency,
    }
