"""What the server takes: to answer for a large run, and to keep many pages up to date about a busy one."""

import json
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from results import Figure
from workload import middle, plan_text, settings

ITEMS = 100_000
BUSY_ITEMS = 3_000
WATCHERS = 20
QUICK = {"rules": [{"reply": "{prompt}"}], "latency_seconds": 0.05}
QUESTIONS = {
    "the run": "",
    "first page": "/items?limit=100",
    "one status": "/items?limit=100&status=fail",
    "search": "/items?limit=100&search=number+77",
    "sorted by cost": "/items?limit=100&order=costUsd&descending=true",
    "deep in the list": "/items?limit=100&offset=90000",
    "plots": "/charts",
    "plots by model": "/charts?by=model",
}


def large_run() -> Iterator[Figure]:
    """The run page of 100,000 items: seconds of the server for each thing the page asks."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        _stock(home)
        with serving(home) as (url, pid):
            for what, question in QUESTIONS.items():
                # The first answer is the slow one: what was added up for it is kept.
                first = seconds_of(f"{url}/api/runs/bench{question}")
                again = middle([seconds_of(f"{url}/api/runs/bench{question}") for _ in range(5)])
                name = f"run page of {ITEMS:,} items: {what} (beside: once more)"
                yield Figure(name, first, "s", again, promise=0.5, lower_is_better=True)
            with watching(url, WATCHERS, "bench"):
                time.sleep(3)
            yield Figure(
                f"server's peak memory, {ITEMS:,} items, {WATCHERS} pages",
                peak_mb(pid),
                "MB",
                promise=400,
                lower_is_better=True,
            )


def watchers() -> Iterator[Figure]:
    """A busy run alone, and with twenty pages that watch it."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        (home / "quick.yaml").write_text(json.dumps(QUICK))
        alone = _run(home, "alone")
        with serving(home) as (url, _), watching(url, WATCHERS):
            watched = _run(home, "watched")
    yield Figure(f"run of {BUSY_ITEMS:,} items with {WATCHERS} pages (beside: alone)", watched, "s", alone)
    yield Figure(f"{WATCHERS} pages : nobody", watched / alone, "", promise=1.3, lower_is_better=True)


def _stock(home: Path) -> None:
    """A finished run of so many items, made by the command and then ended by hand."""
    plan = home / "plan.yaml"
    plan.write_text(plan_text(ITEMS, model="scripted/stuck", concurrency=1))
    (home / "stuck.yaml").write_text("rules: [{reply: late}]\nlatency_seconds: 600\n")
    process = subprocess.Popen(_proctor("batch", str(plan)), env=settings(home), stderr=subprocess.DEVNULL)
    while not _rows(home):
        assert process.poll() is None
        time.sleep(0.2)
    process.kill()
    process.wait()
    with sqlite3.connect(home / "proctor.db") as database:
        database.execute(
            "UPDATE batch_items SET status = CASE position % 5 WHEN 0 THEN 'fail' ELSE 'success' END, "
            'reason = \'completed\', "tokensTotal" = position % 900, "costUsd" = (position % 977) / 1000.0, '
            "\"startedAt\" = '2026-01-01T00:00:00.000Z', \"finishedAt\" = '2026-01-01T00:00:09.000Z'"
        )
        database.execute(
            "UPDATE batches SET status = 'completed', \"finishedAt\" = '2026-01-01T01:00:00.000Z'"
        )


def _rows(home: Path) -> int:
    try:
        with sqlite3.connect(f"file:{home / 'proctor.db'}?mode=ro", uri=True) as database:
            return int(database.execute("SELECT count(*) FROM batch_items").fetchone()[0])
    except sqlite3.OperationalError:
        # The store is just being made.
        return 0


def _run(home: Path, name: str) -> float:
    plan = home / "plan.yaml"
    plan.write_text(plan_text(BUSY_ITEMS, model="scripted/quick", concurrency=40))
    began = time.perf_counter()
    command = _proctor("batch", str(plan), "--run-id", name)
    subprocess.run(command, env=settings(home), check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, int]]:
    """A server over the store in `home`; its address and process."""
    command = _proctor("serve", "--no-token", "--port", "0", "--json")
    with subprocess.Popen(
        command, env=settings(home), cwd=home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.terminate()


@contextmanager
def watching(url: str, pages: int, run: str = "") -> Iterator[None]:
    """So many pages that watch a run, else the newest, and the list; each over a channel of its own."""
    over = threading.Event()

    def watch() -> None:
        with connect(f"{url.replace('http', 'ws')}/api/live", max_size=None) as live:
            topics = [{"topic": "runs", "id": ""}, *([{"topic": "run", "id": run}] if run else [])]
            live.send(json.dumps({"watch": topics}))
            while not over.is_set():
                try:
                    told = json.loads(live.recv(timeout=0.2))
                except TimeoutError:
                    continue
                except ConnectionClosed:
                    return
                seen = [run["runId"] for run in (told.get("changes") or {}).get("changed", [])]
                if told["topic"] == "runs" and seen and len(topics) == 1:
                    topics.append({"topic": "run", "id": seen[-1]})
                    live.send(json.dumps({"watch": topics}))

    threads = [threading.Thread(target=watch, daemon=True) for _ in range(pages)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=10)


def seconds_of(url: str) -> float:
    """Seconds until a URL has answered."""
    began = time.perf_counter()
    with urlopen(url, timeout=60) as answer:
        answer.read()
    return time.perf_counter() - began


def peak_mb(pid: int) -> float:
    """Peak memory of a process so far; 0: it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _proctor(*words: str) -> Sequence[str]:
    return [sys.executable, "-m", "proctor", *words]
