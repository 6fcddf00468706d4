"""What large batches and short commands cost: memory, looking before starting, resuming, the help."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from results import Figure
from workload import (
    cost_of,
    finished_items,
    first_start,
    middle,
    plan_of_entries,
    plan_text,
    script,
    settings,
)

CONCURRENCY = 64
QUICK = {"rules": [{"reply": "{prompt}"}], "latency_seconds": 0.01}
"""A model slow enough that a large batch can be killed half-way."""


def memory() -> Iterator[Figure]:
    """Peak memory of the engine's process, with four times as many items."""
    yield from (Figure(f"peak memory, {items:,} items", _peak_mb(items), "MB") for items in (5_000, 20_000))


def memory_of_large_batches() -> Iterator[Figure]:
    """Whether memory stays flat once every cache is full."""
    half, whole = (_peak_mb(items) for items in (50_000, 100_000))
    yield Figure("peak memory, 50,000 items", half, "MB")
    yield Figure("peak memory, 100,000 items", whole, "MB")
    yield Figure("peak memory, 100,000 : 50,000 items", whole / half, "", promise=1.1, lower_is_better=True)


def memory_of_entries() -> Iterator[Figure]:
    """Peak memory of `proctor batch` with a plan of 100,000 entries."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        plan = home / "plan.yaml"
        plan.write_text(plan_of_entries(100_000, model="scripted/echo", concurrency=CONCURRENCY))
        command = [sys.executable, "-m", "proctor", "batch", plan, "--json"]
        cost = cost_of(command, 100_000, settings(home))
    yield Figure(
        "peak memory, plan of 100,000 entries", cost.peak_mb, "MB", promise=200, lower_is_better=True
    )
    yield Figure("CPU time, plan of 100,000 entries", cost.cpu_seconds, "s")


def dry_run() -> Iterator[Figure]:
    """`proctor batch --dry-run` of 20,000 items, whole command."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        plan = home / "plan.yaml"
        plan.write_text(plan_text(20_000, model="scripted/echo", concurrency=CONCURRENCY))
        seconds = _seconds([sys.executable, "-m", "proctor", "batch", str(plan), "--dry-run"], home)
    yield Figure("--dry-run of 20,000 items", seconds, "s", promise=5.0, lower_is_better=True)


def help_text() -> Iterator[Figure]:
    """`proctor --help` beside a Python that does nothing."""
    home = Path(tempfile.gettempdir())
    ours, bare = [], []
    for _ in range(15):
        bare.append(_seconds([sys.executable, "-c", "pass"], home))
        ours.append(_seconds([str(Path(sys.executable).parent / "proctor"), "--help"], home))
    ratio = middle(ours) / middle(bare)
    yield Figure("proctor --help (beside: python -c pass)", middle(ours) * 1000, "ms", middle(bare) * 1000)
    yield Figure("proctor --help : python -c pass", ratio, "", promise=2.0, lower_is_better=True)


def resume(items: int) -> Iterator[Figure]:
    """A batch that was killed half-way: seconds from the command until its first item starts."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        (home / "quick.yaml").write_text(json.dumps(QUICK))
        plan = home / "plan.yaml"
        plan.write_text(plan_text(items, model="scripted/quick", concurrency=CONCURRENCY))
        _kill_when(home, ["batch", str(plan)], lambda: finished_items(home) > items // 2)
        began = datetime.now(UTC)
        _kill_when(home, ["resume", "bench"], lambda: first_start(home, began) is not None)
        first = first_start(home, began)
        assert first is not None
    seconds = (first - began).total_seconds()
    yield Figure(
        f"resume of {items:,} items: first item starts after", seconds, "s", promise=2.0, lower_is_better=True
    )


def _peak_mb(items: int) -> float:
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        told = script("engine_loop.py", home, items, CONCURRENCY, "scripted/echo", environment=settings(home))
    return float(told["peak_kb"] / 1024)


def _seconds(command: list[str], home: Path) -> float:
    started = time.perf_counter()
    quietly = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, env=settings(home), check=True, **quietly)  # type: ignore[call-overload]
    return time.perf_counter() - started


def _kill_when(home: Path, words: list[str], reached: Callable[[], bool]) -> None:
    """Start a command of Proctor and kill it, without a chance to tidy up, as soon as it got so far."""
    process = subprocess.Popen(
        [sys.executable, "-m", "proctor", *words], env=settings(home), stderr=subprocess.DEVNULL
    )
    try:
        while process.poll() is None and not reached():
            time.sleep(0.1)
        assert process.poll() is None, f"{words[0]} ended before it could be killed"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
