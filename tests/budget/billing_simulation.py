"""Random runs with a budget, killed with `kill -9`, against a server that counts what it bills.

    python tests/budget/billing_simulation.py --runs 1000 --seed 1

Several runs are made at a time. A run is a child process of its own (a fork), killed up to three times and
resumed each time. The server bills whatever it has processed, also when it breaks off, answers garbage, or
reports no or absurd token counts. No run may be billed more than its budget.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from multiprocessing import RawArray
from pathlib import Path
from typing import Any

INPUT_USD, OUTPUT_USD = 100.0, 1000.0
"""The prices per million tokens: a token of an answer costs a tenth of a cent."""
ROUNDING_USD = 1e-6
TIMEOUT_SECONDS = 120.0
TEMPLATE = "template.db"
FAST = Path("/dev/shm")
"""In memory, where there is such a folder: a commit waits for the disk otherwise."""
WRONG_USAGES: Sequence[object] = (
    None,
    {},
    {"prompt_tokens": -3, "completion_tokens": -7},
    {"prompt_tokens": True, "completion_tokens": "many"},
    {"prompt_tokens": 10**15, "completion_tokens": 10**15},
)


@dataclass(slots=True)
class BillingReport:
    """The sums of a simulation."""

    runs: int = 0
    kills: int = 0
    overspent: int = 0
    """Runs that were billed more than their budget."""
    unknown: int = 0
    """Runs that were billed more than their ledger knows."""
    unfinished: int = 0
    """Runs that did not end in time, or with an error."""
    budget_usd: float = 0.0
    billed_usd: float = 0.0
    charged_usd: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Whether every run ended and stayed within its budget."""
        return not (self.overspent or self.unknown or self.unfinished)


def simulate(runs: int, seed: int = 0, *, jobs: int = 8, shows_progress: bool = False) -> BillingReport:
    """Make random runs with random kills, `jobs` at a time. It forks: call it where there are no threads."""
    _load()
    billed = RawArray("d", runs)
    with tempfile.TemporaryDirectory(prefix="billing-", dir=FAST if FAST.is_dir() else None) as made:
        root = Path(made)
        _empty_store(root / TEMPLATE)
        server = _fork(lambda: asyncio.run(_serve(billed, seed, root / "url")))
        try:
            _wait_for(root / "url")
            url = (root / "url").read_text()
            return _collected(root, url, runs, seed, min(jobs, runs), billed, shows_progress)
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)


def _collected(
    root: Path, url: str, runs: int, seed: int, jobs: int, billed: Any, shows_progress: bool
) -> BillingReport:
    """The sums of all runs, each made by one of several child processes."""
    near, far = os.pipe()

    def make_runs(first: int) -> None:
        os.close(near)
        for number in range(first, runs, jobs):
            own = BillingReport()
            _simulate_run(root, url, number, random.Random(f"{seed} {number}"), billed, own)
            # Shorter than what a pipe takes at once: lines of several processes do not mix.
            os.write(far, (json.dumps(asdict(own)) + "\n").encode())

    children = [_fork(lambda first=first: make_runs(first)) for first in range(jobs)]
    os.close(far)
    total, started = BillingReport(), time.monotonic()
    with os.fdopen(near) as lines:
        for line in lines:
            for name, value in json.loads(line).items():
                setattr(total, name, getattr(total, name) + value)
            if shows_progress and total.runs % 20 == 0:
                figures = f"{total.kills} kills, {total.overspent + total.unknown + total.unfinished} wrong"
                took = f"{time.monotonic() - started:.0f} s"
                print(f"{total.runs} of {runs} runs, {figures}, {took}", file=sys.stderr, flush=True)
    for child in children:
        os.waitpid(child, 0)
    total.unfinished += runs - total.runs
    return total


def _empty_store(path: Path) -> None:
    """A store that every run starts with a copy of: making one takes longer than most runs."""
    from proctor.store import Store

    Store(str(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _load() -> None:
    """Load what every child needs, once."""
    import proctor.api.library
    import proctor.models.client
    import proctor.models.gateway.server
    import proctor.testing.model_server
    from proctor.jobs import jobs
    from proctor.models import rate_limits

    list(jobs())
    # Outages are short here, and probed often.
    rate_limits.FIRST_PROBE_SECONDS, rate_limits.LONGEST_PROBE_SECONDS = 0.01, 0.05
    proctor.models.client.Client.get_ready()


def _simulate_run(
    root: Path, url: str, number: int, rng: random.Random, billed: Any, report: BillingReport
) -> None:
    home = root / f"run{number}"
    home.mkdir()
    shutil.copy(root / TEMPLATE, home / "proctor.db")
    budget = rng.choice([0.5, 1.5, 4.0])
    answers = rng.choice([1, 1, 1, 3])
    plan = {
        "runId": "run",
        "budget": budget,
        "concurrency": rng.choice([1, 4, 12]),
        "outage_patience": 20,
        "prices": {f"openai/run{number}": {"input": INPUT_USD, "output": OUTPUT_USD}},
        "defaults": {"retries": rng.choice([0, 1]), "settings": {"max_tokens": 400, "n": answers}},
        "matrix": [{"prompt": "Say something.", "model": f"openai/run{number}", "runs": 15}],
    }
    if rng.random() < 0.3:
        plan["defaults"]["budget"] = 0.45 * answers
    (home / "plan.yaml").write_text(json.dumps(plan))
    report.runs += 1
    report.budget_usd += budget
    for attempt in range(10):
        child = _fork(lambda: _work(home, url))
        last = attempt >= 3 or rng.random() < 0.3
        status = _status_within(child, TIMEOUT_SECONDS if last else rng.uniform(0.02, 0.5))
        if status is None and not last and rng.random() < 0.8:
            # Most kills hit a process whose calls are under way.
            before, deadline = billed[number], time.monotonic() + 5
            while status is None and billed[number] == before and time.monotonic() < deadline:
                status = _status_within(child, 0.005)
        if status is not None:
            report.unfinished += status != 0
            break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if last:
            report.unfinished += 1
            break
        report.kills += 1
    charged = _charged(home)
    shutil.rmtree(home)
    report.billed_usd += billed[number]
    report.charged_usd += charged
    report.overspent += billed[number] > budget + ROUNDING_USD
    report.unknown += billed[number] > charged + ROUNDING_USD
    if billed[number] > min(budget, charged) + ROUNDING_USD:
        print(f"run {number}: budget {budget}, charged {charged}, billed {billed[number]}", file=sys.stderr)


def _work(home: Path, url: str) -> None:
    """Start the run, or continue it."""
    import proctor
    from proctor.errors import NotFound

    os.environ |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "any", "PROCTOR_HOME": str(home)}
    os.chdir(home)
    try:
        proctor.resume("run", progress=False)
    except NotFound:
        proctor.run(home / "plan.yaml", progress=False)


def _charged(home: Path) -> float:
    """What the ledger says was spent, or may have been by a process that died."""
    from proctor.store import Store

    with Store(str(home / "proctor.db")) as store:
        reserved, spent = store.read.reserved_and_spent("run")
    return reserved + spent


async def _serve(billed: Any, seed: int, address: Path) -> None:
    from proctor.testing.model_server import ModelServer, ServerReply

    rng = random.Random(seed)

    def answer(body: Mapping[str, Any]) -> ServerReply:
        reply = _random_reply(rng, body)
        if reply.billed_tokens:
            tokens_in, tokens_out = reply.billed_tokens
            billed[int(body["model"].removeprefix("run"))] += (
                tokens_in * INPUT_USD + tokens_out * OUTPUT_USD
            ) / 1e6
        return reply

    async with ModelServer(answer, prices=(INPUT_USD, OUTPUT_USD)) as server:
        address.with_suffix(".new").write_text(server.url)
        address.with_suffix(".new").rename(address)
        await asyncio.sleep(3600)


def _random_reply(rng: random.Random, body: Mapping[str, Any]) -> Any:
    from proctor.testing.model_server import ServerReply, failure

    chance = rng.random()
    if chance < 0.04:
        return failure(rng.choice([500, 503]))
    if chance < 0.08:
        return failure(429, retry_after=0.01)
    lengths = [rng.randint(1, body["max_tokens"]) for _ in range(body.get("n") or 1)]
    tokens = (sum(len(each["content"]) for each in body["messages"]) // 4, sum(lengths))
    delay = rng.choice([0.0, 0.02, 0.2])
    if chance < 0.11:
        return ServerReply(hangs_up=True, billed_tokens=tokens, delay_seconds=delay)
    if chance < 0.13:
        return ServerReply(raw=b"<html>busy</html>", billed_tokens=tokens, delay_seconds=delay)
    usage: object = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    if chance < 0.25:
        usage = rng.choice(WRONG_USAGES)
    choices = [
        {"index": index, "message": {"content": "abc " * length}, "finish_reason": "stop"}
        for index, length in enumerate(lengths)
    ]
    sent = {"choices": choices, "usage": usage}
    return ServerReply(body=sent, billed_tokens=tokens, delay_seconds=delay)


def _fork(work: Any) -> int:
    """Run a function in a child process; its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        with Path(os.devnull).open("w") as nowhere:
            sys.stdout = nowhere
            work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _status_within(child: int, seconds: float) -> int | None:
    """The exit code of a child; None: it has not ended by then."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.005)


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate as the command line says, print the sums as JSON; 1 when a run was billed too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=8, help="Runs at once. Default: 8.")
    parser.add_argument("--no-progress", dest="progress", action="store_false")
    options = parser.parse_args(arguments)
    report = simulate(options.runs, options.seed, jobs=options.jobs, shows_progress=options.progress)
    print(json.dumps(asdict(report)))
    return 0 if report.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
