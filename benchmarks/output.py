"""How long an agent's output takes to read: 200 MB of lines, beside reading them as bytes."""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from proctor.agent import Assignment
from proctor.agents._program import watch
from proctor.agents._stream_json import StreamJson
from results import Figure

MEGABYTES = 200
LINES = {
    "log lines of 80 characters": b"x" * 79 + b"\n",
    "lines of one character": b"x\n",
    "log lines that mention what they require": b"module a requires module b {c}\n",
    "events of 200 characters": b'{"type": "system", "text": "%s"}\n' % (b"y" * 168),
}
PROGRAM = """import sys
lines = bytes.fromhex(sys.argv[1]) * 1000
for _ in range(int(sys.argv[2])):
    sys.stdout.buffer.write(lines)
"""


def reading() -> Iterator[Figure]:
    """Seconds to read the output of an agent, for different lines."""
    for name, line in LINES.items():
        command = [sys.executable, "-c", PROGRAM, line.hex(), str(MEGABYTES * 1000 // len(line))]
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.PIPE)
        bare = time.perf_counter() - started
        seconds = asyncio.run(_watched(command))
        yield Figure(f"{MEGABYTES} MB of {name}", seconds, "s", bare, 20, lower_is_better=True)


async def _watched(command: list[str]) -> float:
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        assignment = Assignment(
            prompt="", folder=Path(folder), home=Path(folder), environment={}, attempt="bench"
        )
        started = time.perf_counter()
        await watch(command, assignment, StreamJson(record=lambda _: None), lambda _: None)
        return time.perf_counter() - started
