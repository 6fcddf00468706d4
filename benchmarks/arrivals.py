"""What it costs to take sessions in: sent by the stock OpenTelemetry exporter to a real server."""

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from results import Figure
from workload import script, settings

FEW, MANY = 500, 2_000


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


def _sent(count: int) -> tuple[float, float, float]:
    """Seconds until all are told, seconds until all are sent, and the server's peak of memory in MB."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        command = [sys.executable, "-m", "proctor", "serve", "--no-token", "--port", "0", "--json"]
        with subprocess.Popen(command, env=settings(home), stdout=subprocess.PIPE, text=True) as server:
            try:
                address = _address(server)
                started = time.perf_counter()
                sending = float(script("sending.py", address, count)["seconds"])
                while _told(home) < count:
                    time.sleep(0.05)
                return time.perf_counter() - started, sending, _peak_mb(server.pid)
            finally:
                server.terminate()


def _address(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    said = ""
    while not said.rstrip().endswith("}"):
        said += server.stdout.readline()
    return str(json.loads(said)["url"]).rstrip("/")


def _told(home: Path) -> int:
    connection = sqlite3.connect(f"file:{home / 'proctor.db'}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM sessions").fetchone()[0])
    finally:
        connection.close()


def _peak_mb(process_id: int) -> float:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 1024
    return 0.0
