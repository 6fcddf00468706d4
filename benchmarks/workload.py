"""The work that the measurements have in common: the plan, the prompts, and how a figure is taken.

Knows nothing of what is measured.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
PROMPTS = 200
"""Different prompts; the rest of the items are repeats of them."""


def plan_text(items: int, *, model: str, concurrency: int) -> str:
    """A plan of `items` plain prompts, each checked for what it should hold."""
    prompts = [f"say hello to number {number}" for number in range(PROMPTS)]
    document = {
        "runId": "bench",
        "concurrency": concurrency,
        "defaults": {"model": model},
        "matrix": [
            {"prompt": prompts, "runs": max(1, items // PROMPTS), "expect": {"contains": "hello"}},
        ],
    }
    # JSON is YAML, and needs no library to write.
    return json.dumps(document)


def plan_of_entries(items: int, *, model: str, concurrency: int) -> str:
    """A plan with one entry for each item, as YAML that a person or a script writes."""
    head = f"runId: bench\nconcurrency: {concurrency}\ndefaults:\n  model: {model}\nmatrix:\n"
    entry = "  - prompt: {}\n    expect:\n      contains: hello\n"
    return head + "".join(map(entry.format, prompts_of_entries(items)))


def prompts_of_entries(items: int) -> list[str]:
    """The prompts of such a plan."""
    return [f"say hello to number {number}" for number in range(items)]


@dataclass(frozen=True, slots=True)
class CommandCost:
    """What a command took, from its start to its exit, its children included."""

    seconds: float
    cpu_seconds: float
    """User and system time; what else the machine does changes it less than `seconds`."""
    peak_mb: float


def cost_of(command: Sequence[object], items: int, environment: dict[str, str] | None = None) -> CommandCost:
    """Run a command that prints JSON with the number of passed items, which have to be `items`."""
    with tempfile.TemporaryFile() as output:
        cost = measured(command, dict(os.environ) if environment is None else environment, output=output)
        output.seek(0)
        summary = json.loads(output.read())
    assert summary.get("passed", summary.get("successCount")) == items, summary
    return cost


def measured(
    command: Sequence[object],
    environment: dict[str, str],
    folder: Path | None = None,
    output: "IO[bytes] | None" = None,
) -> CommandCost:
    """Run a command that succeeds, in a folder; `output` receives what it prints."""
    # Installed programs are compiled; the first round writes what is missing.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as notes:
        started = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)), env=environment, cwd=folder, stdout=output or printed, stderr=notes
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        notes.seek(0)
        assert process.returncode == 0, notes.read().decode(errors="replace")[-3000:]
    return CommandCost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def settings(home: Path, **more: str) -> dict[str, str]:
    """An environment in which Proctor keeps everything below `home`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
    return {**inherited, "PROCTOR_HOME": str(home), **more}


def script(name: str, *words: object, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a script of this folder in a process of its own; what it answered, as JSON."""
    command = [sys.executable, str(HERE / name), *map(str, words)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@contextmanager
def answering_server(seconds: float = 0.0) -> Iterator[str]:
    """A server that answers after so many seconds; its base URL."""
    command = [sys.executable, str(HERE / "answering_server.py"), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


def middle(values: Sequence[float]) -> float:
    """The median: one disturbed round does not move it."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def value_of(home: Path, sql: str, *parameters: str) -> object:
    """The only value of a query on the store; None while it is being made."""
    try:
        connection = sqlite3.connect(f"file:{home / 'proctor.db'}?mode=ro", uri=True)
        try:
            return connection.execute(sql, parameters).fetchone()[0]
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return None


def finished_items(home: Path) -> int:
    """Items of the store that succeeded."""
    return int(str(value_of(home, 'SELECT COUNT(*) FROM "batch_items" WHERE "status" = \'success\'') or 0))


def first_start(home: Path, after: datetime) -> datetime | None:
    """When the first attempt after a time started; None: there was none."""
    stamp = after.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    first = value_of(home, 'SELECT MIN("startedAt") FROM "sessions" WHERE "startedAt" > ?', stamp)
    return datetime.fromisoformat(str(first)) if first else None
