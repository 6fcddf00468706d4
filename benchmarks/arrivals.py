"""What it costs to take sessions in: sent by the stock OpenTelemetry exporter to a real server."""

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results import Figure
from workload import script, settings

FEW, MANY = 500, 2_000
RATE, SECONDS = 2_000, 12


def sessions() -> Iterator[Figure]:
    """2,000 sessions of four spans: until all are in the store, and the server's memory beside 500."""
    few, many = _sent(FEW), _sent(MANY)
    yield Figure(f"sessions sent by the stock exporter and told, {MANY:,} of them", MANY / many[0], "/s")
    yield Figure(f"spans of theirs sent and committed, {4 * MANY:,} of them", 4 * MANY / many[1], "/s")
    yield Figure(f"peak memory of the server, {MANY:,} sessions", many[2], "MB")
    yield Figure(
        f"peak memory of the server, {MANY:,} : {FEW:,} sessions",
        many[2] / few[2],
        "",
        promise=1.5,
        lower_is_better=True,
    )


def steady() -> Iterator[Figure]:
    """2,000 spans/s in requests of 100: how long requests take, and what a killed server has lost."""
    for sessions, what in ((0, "sessions of 4 spans"), (20, "20 sessions")):
        times, lost = _streamed(sessions)
        for share in (0.5, 0.99):
            figure = f"{RATE:,} spans/s received, {what}: percentile {100 * share:g} of requests"
            value = 1000 * times[int(share * len(times))]
            yield Figure(figure, value, "ms", promise=100 if share > 0.5 else None, lower_is_better=True)
        yield Figure(f"spans of these lost at kill -9, {what}", lost, "", promise=0, lower_is_better=True)


def _streamed(sessions: int) -> tuple[list[float], int]:
    """Seconds that each request took, sorted, and the spans that are lost when the server is killed."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        with _served(home) as (server, address):
            sent = script("steady.py", address, RATE, 100, SECONDS, sessions)
            server.kill()
            server.wait()
        return sent["times"], sent["accepted"] - _count(home, "arrivals")


def _sent(count: int) -> tuple[float, float, float]:
    """Seconds until all are told, seconds until all are sent, and the server's peak of memory in MB."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        with _served(home) as (server, address):
            started = time.perf_counter()
            sending = float(script("sending.py", address, count)["seconds"])
            while _count(home, "sessions") < count:
                time.sleep(0.05)
            return time.perf_counter() - started, sending, _peak_mb(server.pid)


@contextmanager
def _served(home: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """A server and its address."""
    command = [sys.executable, "-m", "proctor", "serve", "--no-token", "--port", "0", "--json"]
    with subprocess.Popen(command, env=settings(home), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = ""
            while not said.rstrip().endswith("}"):
                said += server.stdout.readline()
            yield server, str(json.loads(said)["url"]).rstrip("/")
        finally:
            server.terminate()


def _count(home: Path, table: str) -> int:
    connection = sqlite3.connect(f"file:{home / 'proctor.db'}?mode=ro", uri=True)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()


def _peak_mb(process_id: int) -> float:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 1024
    return 0.0
