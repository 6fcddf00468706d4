"""`service: batch` under random kills: what a provider bills, against the budget and against single calls.

    .venv/bin/python benchmarks/provider_batches.py --minutes 5 [--seed 1] [--json]

Each run sends up to 30 prompts to one of three interfaces of a server on loopback, which takes its time,
fails requests, and lets batches expire. The process is killed up to three times at random moments, and
resumed until nothing is left. Exit code 1 when a bill exceeded its budget, anything was paid twice, a run
did not end, or all bills together exceed 0.55 of single calls.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proctor.testing.model_server import ModelServer, ServerReply, failure, reply

MODELS = ("openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro")
INPUT_TOKENS, OUTPUT_TOKENS = 5, 1000
PRICES = (2.5, 10.0)
"""USD per million tokens."""
ALONE_USD = (INPUT_TOKENS * PRICES[0] + OUTPUT_TOKENS * PRICES[1]) / 1e6
MOST_SHARE = 0.55
MOST_SECONDS = 90.0
"""Of a run, with all that is resumed."""


@dataclass
class Tally:
    """What happened in all runs."""

    runs: int = 0
    items: int = 0
    finished: int = 0
    kills: int = 0
    kills_in_flight: int = 0
    """Kills with a batch at the provider."""
    budgeted: int = 0
    billed_usd: float = 0.0
    alone_usd: float = 0.0
    """The same answers, sent one by one."""
    problems: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The bill, of that of single calls."""
        return self.billed_usd / self.alone_usd if self.alone_usd else 0.0


class Trial:
    """One run of a random plan."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.name = f"seed {seed}"
        self.model = draw.choice(MODELS)
        self.tasks = [f"task {number}" for number in range(draw.randint(3, 30))]
        self.kills = [draw.uniform(0.5, 6.0) for _ in range(draw.choice((0, 1, 1, 2, 3)))]
        # A kill leaves the worst case of each call in flight charged.
        share = draw.choice((None, 0.3, 0.7, 5.0))
        self.budget = None if share is None else round(share * len(self.tasks) * ALONE_USD, 6)
        self.batch_seconds = draw.choice((0.0, 1.0, 4.0))
        self.batch_answers = draw.randrange(len(self.tasks)) if draw.random() < 0.1 else None
        self.failing = {task: 1 for task in self.tasks if draw.random() < 0.02}
        self.answered: Counter[str] = Counter()
        self.last_words = ""
        self.alone_usd: dict[str, float] = {}

    def answer(self, body: Mapping[str, Any]) -> ServerReply:
        """An answer of a known price, or a failure, which costs nothing."""
        content = body["messages"][-1]["content"]
        task = content if isinstance(content, str) else content[0]["text"]
        if self.failing.pop(task, 0):
            return failure(500)
        self.answered[task] += 1
        written = min(OUTPUT_TOKENS, body["max_tokens"])
        self.alone_usd[task] = (INPUT_TOKENS * PRICES[0] + written * PRICES[1]) / 1e6
        end = "stop" if written == OUTPUT_TOKENS else "length"
        return reply("done", input_tokens=INPUT_TOKENS, output_tokens=written, finish_reason=end)

    async def run(self, tally: Tally) -> None:
        """Run it, with its kills, until nothing is left."""
        prices = {"input": PRICES[0], "output": PRICES[1]}
        plan = {
            "runId": "night",
            "service": "batch",
            "prices": {self.model: prices},
            **({} if self.budget is None else {"budget": self.budget}),
            "matrix": [
                {"prompt": self.tasks, "model": self.model, "settings": {"max_tokens": OUTPUT_TOKENS}}
            ],
        }
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "plan.yaml").write_text(json.dumps(plan), encoding="utf-8")
            async with ModelServer(self.answer, prices=PRICES) as server:
                server.batch_seconds, server.batch_answers = self.batch_seconds, self.batch_answers
                summary = await self._executed(folder, server, tally)
                billed = sum(server.billed_usd.values())
        tally.runs += 1
        tally.items += len(self.tasks)
        tally.budgeted += self.budget is not None
        tally.billed_usd += billed
        tally.alone_usd += sum(self.alone_usd.values())
        if summary is None:
            tally.problems.append(f"{self.name}: did not end: {self.last_words}")
            return
        tally.finished += summary["successCount"]
        if self.budget is not None and billed > self.budget + 1e-9:
            tally.problems.append(f"{self.name}: billed {billed:.6f} of a budget of {self.budget:.6f}")
        if twice := [task for task, count in self.answered.items() if count > 1]:
            tally.problems.append(f"{self.name}: {len(twice)} answers paid twice")
        if self.budget is None and summary["successCount"] < len(self.tasks):
            tally.problems.append(f"{self.name}: {summary}")

    async def _executed(self, folder: Path, server: ModelServer, tally: Tally) -> dict[str, Any] | None:
        addresses = {
            f"{provider}_{member}": value
            for provider in ("OPENAI", "ANTHROPIC", "GEMINI")
            for member, value in (("BASE_URL", server.url), ("API_KEY", "sk-loopback-0123456789"))
        }
        environment = {**os.environ, **addresses, "PROCTOR_HOME": str(folder / "home")}
        words, began = ["batch", "plan.yaml"], time.monotonic()
        while time.monotonic() - began < MOST_SECONDS:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "proctor", *words, "--json"),
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            reading = asyncio.create_task(process.communicate())
            await asyncio.wait([reading], timeout=self.kills[0] if self.kills else MOST_SECONDS)
            if reading.done():
                printed, noted = reading.result()
                self.last_words = noted.decode()[-500:]
                return json.loads(printed or "null")
            process.kill()
            await reading
            if self.kills:
                self.kills.pop(0)
            tally.kills += 1
            loop_time = asyncio.get_running_loop().time()
            tally.kills_in_flight += any(each["ends"] > loop_time for each in server.batches)
            if (folder / "home").exists() and await self._is_known(folder, environment):
                words = ["resume", "night"]
        return None

    @staticmethod
    async def _is_known(folder: Path, environment: Mapping[str, str]) -> bool:
        """Whether the run was created before the kill."""
        command = (sys.executable, "-m", "proctor", "show", "night", "--json")
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return await process.wait() == 0


async def measure(seed: int, minutes: float, parallel: int) -> Tally:
    """Trials until the time is over."""
    tally, ends = Tally(), time.monotonic() + 60 * minutes
    seeds = iter(range(seed, seed + 1_000_000))

    async def work() -> None:
        while time.monotonic() < ends:
            await Trial(next(seeds)).run(tally)

    await asyncio.gather(*(work() for _ in range(parallel)))
    return tally


def main() -> int:
    """Print the tally."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=2, help="runs at once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tally = asyncio.run(measure(options.seed, options.minutes, options.parallel))
    if tally.share > MOST_SHARE:
        tally.problems.append(f"the bill is {tally.share:.3f} of single calls")
    document = {**asdict(tally), "share": round(tally.share, 4)}
    if options.json:
        print(json.dumps(document))
    else:
        print("\n".join(f"{name:16} {value}" for name, value in document.items()))
    return 1 if tally.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
