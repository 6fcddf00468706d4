"""What is paid twice after `kill -9`: answers that the provider gave, and that are requested again.

A run on a server that notes when it has answered each prompt is killed at a random time and resumed. Answers
in flight at the kill are repeated, and those that were not yet committed. Promised is that nothing is
repeated that was answered more than 30 ms before the kill.

    python benchmarks/commit_window.py [--kills 10] [--parallel 20 100] [--workers 1] [--budget 100]
        [--postgres]
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from answering_server import ANSWER, Answering
from results import Figure
from workload import HERE, settings

PROMISED_SECONDS = 0.030
ITEMS = 6_000
"""More than a run gets through before it is killed."""
FEWEST_ANSWERS = 300
"""Before the kill: the run is under way by then."""
MODEL = "openai/gpt-4o-mini"
NUMBER = re.compile(rb"number (\d+)")


class _Noting(Answering):
    """Answers after a random time, and notes when it has."""

    def __init__(self, answered: dict[int, float], seconds: float, chance: random.Random) -> None:
        super().__init__(0.0)
        self._answered, self._mean_seconds, self._chance = answered, seconds, chance
        self.requests: list[int] = []

    def data_received(self, data: bytes) -> None:
        self.requests += [int(number) for number in NUMBER.findall(data)]
        super().data_received(data)

    def _answer(self) -> None:
        number = self.requests.pop(0)
        delay = self._mean_seconds * 2 * self._chance.random()
        asyncio.get_running_loop().call_later(delay, self._note, number)

    def _note(self, number: int) -> None:
        if not self._transport.is_closing():
            self._transport.write(ANSWER)
            self._answered.setdefault(number, time.monotonic())
            self._answered[-1 - number] = time.monotonic()


@dataclass(slots=True)
class Server:
    """When each prompt was answered first (`number`) and last (`-1 - number`)."""

    seconds: float
    chance: random.Random
    url: str = ""
    answered: dict[int, float] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator["Server"]:
        """Answer in a thread as long as the block."""
        loop, ready = asyncio.new_event_loop(), threading.Event()

        async def serve() -> None:
            server = await loop.create_server(
                lambda: _Noting(self.answered, self.seconds, self.chance), "127.0.0.1", 0, backlog=1024
            )
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            ready.set()

        loop.create_task(serve())
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


@dataclass(frozen=True, slots=True)
class Repeats:
    """Answers that were given before a kill and requested again, by their age at the kill."""

    ages: Sequence[float]

    @property
    def late(self) -> int:
        """Those that should have been committed."""
        return sum(age > PROMISED_SECONDS for age in self.ages)

    @property
    def oldest_seconds(self) -> float:
        return max(self.ages, default=0.0)


def kill_and_resume(
    home: Path,
    *,
    parallel: int,
    seconds: float,
    workers: int,
    chance: random.Random,
    budget: float | None = None,
    store: str = "",
) -> Repeats:
    """Kill a run at a random time, resume it, and find what was answered twice."""
    (home / "plan.yaml").write_text(_plan(parallel, budget))
    with Server(seconds, chance).running() as server:
        environment = settings(home, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="bench")
        if store:
            environment["PROCTOR_STORE"] = store
        options = ["--json", "--workers", str(workers)]
        process = _proctor(home, ["batch", "plan.yaml", *options], environment)
        _wait_for_answers(server, process, FEWEST_ANSWERS)
        time.sleep(chance.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        process.wait()
        before = {number: when for number, when in server.answered.items() if number >= 0 and when < killed}
        process = _proctor(home, ["resume", "window", *options], environment)
        # The items that were cut off come first; one page of further ones shows that they are done.
        _wait_for_answers(server, process, len(before) + 4 * parallel + FEWEST_ANSWERS)
        process.send_signal(signal.SIGKILL)
        process.wait()
        again = [
            killed - when for number, when in before.items() if server.answered[-1 - number] > killed + 0.05
        ]
    return Repeats(again)


def _plan(parallel: int, budget: float | None) -> str:
    limit = "" if budget is None else f"budget: {budget}\n"
    head = f"runId: window\n{limit}concurrency: {parallel}\ndefaults:\n  model: {MODEL}\nmatrix:\n"
    entry = "  - prompt: say hello to number {}\n    expect:\n      contains: hello\n"
    return head + "".join(map(entry.format, range(ITEMS)))


def _proctor(home: Path, words: Sequence[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "proctor", *words]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=home, env=environment, stdout=nowhere, stderr=nowhere)


def _wait_for_answers(server: Server, process: "subprocess.Popen[bytes]", number: int) -> None:
    until = time.monotonic() + 60
    while sum(key >= 0 for key in list(server.answered)) < number:
        assert process.poll() is None, f"the run ended with exit code {process.returncode}"
        assert time.monotonic() < until, "the run does not go on"
        time.sleep(0.01)


def measure(
    kills: int,
    parallel: int,
    seconds: float,
    *,
    workers: int = 1,
    seed: int = 1,
    budget: float | None = None,
    server: str = "",
) -> list[Repeats]:
    """The repeats of several kills, each on a store of its own."""
    chance, repeats = random.Random(seed), list[Repeats]()
    for _ in range(kills):
        with tempfile.TemporaryDirectory(prefix="proctor-window-") as name:
            store = _new_store(server) if server else ""
            repeats.append(
                kill_and_resume(
                    Path(name),
                    parallel=parallel,
                    seconds=seconds,
                    workers=workers,
                    chance=chance,
                    budget=budget,
                    store=store,
                )
            )
    return repeats


def window() -> Iterator[Figure]:
    """20 and 100 in parallel, five kills each."""
    for parallel in (20, 100):
        repeats = measure(5, parallel, 0.05)
        name = f"answers given before kill -9 and requested again, {parallel} in parallel"
        oldest = max(each.oldest_seconds for each in repeats) * 1000
        yield Figure(f"{name}: the oldest", oldest, "ms", promise=30, lower_is_better=True)


def _new_store(server: str) -> str:
    from databases import new_store

    return new_store(server)


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--parallel", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--seconds", type=float, default=0.05, help="mean time of an answer")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, help="US dollars, more than the run costs")
    parser.add_argument("--postgres", action="store_true")
    asked = parser.parse_args()
    sys.path.append(str(HERE.parent / "tests"))
    with ExitStack() as stack:
        server = ""
        if asked.postgres:
            from databases import postgresql_server

            server = stack.enter_context(postgresql_server())
        for parallel in asked.parallel:
            repeats = measure(
                asked.kills,
                parallel,
                asked.seconds,
                workers=asked.workers,
                seed=asked.seed,
                budget=asked.budget,
                server=server,
            )
            document = {
                "parallel": parallel,
                "budget": asked.budget,
                "kills": len(repeats),
                "repeated": sum(len(each.ages) for each in repeats),
                "mostRepeatedAtAKill": max(len(each.ages) for each in repeats),
                "olderThan30Ms": sum(each.late for each in repeats),
                "oldestMs": [round(each.oldest_seconds * 1000, 1) for each in repeats],
                "load": os.getloadavg()[0],
            }
            print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
