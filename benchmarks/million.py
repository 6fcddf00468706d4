"""One run of a million items: created, watched by a page and by `proctor watch`, killed half-way, resumed,
ranked and reported.

Two scripted models, 200 prompts, 2,500 repeats, a check of every answer. Takes ten minutes and 2 GB
of disk.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pages import peak_mb, seconds_of, serving, watching
from results import Figure
from workload import PROMPTS, finished_items, first_start, settings

ITEMS = int(os.environ.get("PROCTOR_BENCH_ITEMS", "1_000_000"))
MODELS = ("scripted/one", "scripted/two")
RUN = "million"
MOST_MB = 400.0


def million() -> Iterator[Figure]:
    """Figures of each command."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        _write(home)
        with serving(home) as (url, server), watching(url, 1):
            first, created, page = _run_half(home, url)
            yield Figure(f"{ITEMS:,} items: created after", created, "s")
            yield Figure(f"{ITEMS:,} items: peak memory of the first half", first, "MB")
            yield Figure("its page while it runs, server time", page, "s", promise=2.0, lower_is_better=True)
            began = datetime.now(UTC)
            resumed = _start(home, "resume", RUN)
            while (started := _seconds_to_first_start(home, began)) is None:
                assert resumed.poll() is None
                time.sleep(0.1)
            watch = _start(home, "watch", RUN)
            cpu, memory = _cost(resumed)
            assert watch.wait() == 0, "it was not watched to its end"
            yield Figure("resumed half-way: first item starts after", started, "s")
            yield Figure("second half, whole command: items per CPU s", ITEMS / 2 / cpu, "/s")
            yield Figure("second half: peak memory", memory, "MB", promise=MOST_MB, lower_is_better=True)
            yield Figure("its page when it has ended, server time", seconds_of(f"{url}/api/runs/{RUN}"), "s")
            yield Figure("peak memory of the server", peak_mb(server), "MB")
        commands = (
            ("compare", RUN, "--by", "model", "--json"),
            ("rank", RUN, "--json"),
            ("report", "--run", RUN, "--format", "json"),
        )
        for words in commands:
            cpu, memory = _cost(_start(home, *words))
            yield Figure(f"{words[0]} of {ITEMS:,} items, CPU", cpu, "s")
            yield Figure(f"{words[0]} of {ITEMS:,} items, peak memory", memory, "MB")
        yield Figure("size of the store", (home / "proctor.db").stat().st_size / 1e6, "MB")


def _write(home: Path) -> None:
    for model in MODELS:
        (home / f"{model.removeprefix('scripted/')}.yaml").write_text('rules: [{reply: "{prompt}"}]\n')
    entry = {
        "prompt": [f"say hello to number {number}" for number in range(PROMPTS)],
        "model": list(MODELS),
        "runs": ITEMS // PROMPTS // len(MODELS),
        "expect": {"contains": "hello"},
    }
    (home / "plan.yaml").write_text(json.dumps({"runId": RUN, "concurrency": 64, "matrix": [entry]}))


def _run_half(home: Path, url: str) -> tuple[float, float, float]:
    """Kill the run when half of it is done: its peak memory, seconds until its items were created, and those
    that its page took."""
    began = time.perf_counter()
    process = _start(home, "batch", str(home / "plan.yaml"))
    created = page = peak = 0.0
    while (done := finished_items(home)) < ITEMS // 2:
        assert process.poll() is None, "it ended too early"
        peak = max(peak, peak_mb(process.pid))
        if done and not created:
            created = time.perf_counter() - began
        if done > ITEMS // 4 and not page:
            page = seconds_of(f"{url}/api/runs/{RUN}")
        time.sleep(1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return peak, created, page


def _start(home: Path, *words: str) -> "subprocess.Popen[bytes]":
    quiet = subprocess.DEVNULL
    return subprocess.Popen(_proctor(*words), env=settings(home), cwd=home, stdout=quiet, stderr=quiet)


def _cost(process: "subprocess.Popen[bytes]") -> tuple[float, float]:
    """CPU seconds of a command with its workers, and its peak memory in MB."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.args
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _seconds_to_first_start(home: Path, began: datetime) -> float | None:
    """Seconds until the first attempt after a time started; None: there was none."""
    first = first_start(home, began)
    return None if first is None else (first - began).total_seconds()


def _proctor(*words: str) -> list[str]:
    return [sys.executable, "-m", "proctor", *words]
