"""Make a batch of a benchmark, or bring an earlier one up to what is asked now.

Items are known by what they ask for, so more models, tasks or runs extend a benchmark, and what is
the same keeps its results.

Knows nothing of how items are carried out.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from proctor.batch.create import Extension, create, extend
from proctor.item import digest_of
from proctor.jobs.benchmark.plan import BenchmarkDefinition
from proctor.store import Store

JOB = "benchmark"


def create_benchmark(
    store: Store,
    benchmark: BenchmarkDefinition,
    options: Mapping[str, Any],
    *,
    run_id: str,
    concurrency: int,
    budget_usd: float | None = None,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its items; how many those are. `options` are kept with it."""
    asked = _asked(benchmark, options, concurrency, budget_usd)
    return create(store, JOB, asked, benchmark.items(), run_id=run_id, owner=owner, version=version, now=now)


def extend_benchmark(
    store: Store,
    run_id: str,
    benchmark: BenchmarkDefinition,
    options: Mapping[str, Any],
    *,
    concurrency: int,
    budget_usd: float | None = None,
) -> Extension:
    """Bring a batch up to what is asked now. The batch must be ours."""
    asked = _asked(benchmark, options, concurrency, budget_usd)
    return extend(store, run_id, asked, benchmark.items())


def _asked(
    benchmark: BenchmarkDefinition, options: Mapping[str, Any], concurrency: int, budget_usd: float | None
) -> dict[str, Any]:
    text = "\n\n".join(task.prompt for task in benchmark.tasks)
    return {
        "planPath": str(options.get("taskPath", "")),
        "planText": text,
        "planDigest": digest_of(text),
        "defaultsJson": json.dumps({"agent": benchmark.agent or None, "runs": benchmark.runs}),
        "optionsJson": json.dumps(dict(options), ensure_ascii=False),
        "concurrency": concurrency,
        "budgetUsd": budget_usd,
    }
