"""`make chaos [MINUTES=5]`: disturb all jobs at random, on both databases, and count what went wrong.

    .venv/bin/python tests/chaos/harness.py --minutes 5 --seed 1 [--json]

Ends with one table, and the money table of `chaos.money`. Exit code 1 when anything was lost, doubled,
overspent, leaked, left running or crashed.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.money import WAYS, measure_all, money_table
from chaos.trials import FINDINGS, JOBS, VICTIMS, Job, Tally, Trial
from databases import MISSING, new_database, postgresql_server

FUZZERS = (
    "tests/web/test_contract.py",
    "tests/jobs/coding/test_coding_plan.py",
    "tests/jobs/coding/test_grids.py",
    "tests/records/test_hostile_records.py",
    "tests/telemetry",
    "tests/models/gateway",
)
"""Tests that draw random input; with the profile `long` they draw more of it."""
FUZZ_SHARE = 0.25
"""Of the minutes."""


def main() -> int:
    """Run trials until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--jobs", default="", help="names, separated by commas; default: all")
    parser.add_argument("--kills", type=int, default=0, help="end after so many kills")
    parser.add_argument("--parallel", type=int, default=2, help="trials at once")
    parser.add_argument(
        "--no-fuzz", action="store_true", help="leave out the fuzzers of plans, files and HTTP"
    )
    parser.add_argument("--no-money", action="store_true", help="leave out the money table")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()
    chosen = [job for job in JOBS if not options.jobs or job.name in options.jobs.split(",")]
    fuzz_seconds = 0.0 if options.no_fuzz else options.minutes * 60 * FUZZ_SHARE
    with maybe_server() as server:
        tallies = run_trials(
            chosen,
            seed=options.seed,
            seconds=options.minutes * 60 - fuzz_seconds,
            parallel=options.parallel,
            server=server,
            kills=options.kills,
        )
    # Takes about two minutes, whatever the time for trials.
    figures = {} if options.no_money else measure_all(WAYS, parallel=options.parallel)
    fuzz_failed = 0 if options.no_fuzz else fuzz(fuzz_seconds, options.seed)
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    if options.json:
        print(
            json.dumps({"seed": options.seed, "jobs": {name: asdict(each) for name, each in tallies.items()}})
        )
    else:
        print(f"seed {options.seed}, {time.monotonic() - started:.0f} s\n\n{table(tallies, total)}")
        print("\n".join(f"- {note}" for note in total.notes))
        if figures:
            print(f"\n{money_table(figures)}\n")
        if not options.no_fuzz:
            print("Fuzzers:", "failed, see above" if fuzz_failed else "no failure")
    overspent = any(value > 1.0 + 1e-9 for value in figures.values())
    return 1 if total.problems or fuzz_failed or overspent else 0


@contextmanager
def maybe_server() -> Iterator[str]:
    """The address of a PostgreSQL server; empty where none is installed."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(postgresql_server())
        except pytest.skip.Exception:
            print(MISSING, file=sys.stderr)
            server = ""
        yield server


def run_trials(
    jobs: "list[Job]", *, seed: int, seconds: float, parallel: int, server: str, most: int = 0, kills: int = 0
) -> dict[str, Tally]:
    """Trials of all jobs in turn until the time is over, or `most` trials or `kills` were made; the tallies
    by job."""
    chance = random.Random(seed)
    tallies = {job.name: Tally() for job in jobs}
    until, made = time.monotonic() + seconds, 0

    def trials() -> Iterator[tuple[Job, int, bool]]:
        number = 0
        while time.monotonic() < until and (not most or number < most) and (not kills or made < kills):
            # Every second trial is on PostgreSQL, where there is one.
            yield jobs[number % len(jobs)], chance.getrandbits(32), number // len(jobs) % 2 == 1
            number += 1

    def one(job: Job, trial_seed: int, in_server: bool) -> Tally:
        with tempfile.TemporaryDirectory(prefix="proctor-chaos-", ignore_cleanup_errors=True) as folder:
            store = new_database(server) if in_server and server else ""
            nonlocal made
            rounds = random.Random(trial_seed).randint(2, 8)
            tally = Trial(job, Path(folder), trial_seed, store, victims=tuple(VICTIMS)).run(kills=rounds)
            made += tally.kills
            print(f"{made} kills", file=sys.stderr, flush=True)
            return tally

    with ThreadPoolExecutor(parallel) as pool:
        running = iter(trials())
        waiting = {}
        for job, trial_seed, in_server in running:
            waiting[pool.submit(one, job, trial_seed, in_server)] = job.name
            while sum(not each.done() for each in waiting) >= parallel:
                time.sleep(0.02)
        for future, name in waiting.items():
            tallies[name].add(future.result())
    return tallies


def fuzz(seconds: float, seed: int) -> int:
    """Run the fuzzers with fresh random input until the time is over; the number of rounds that failed."""
    failed, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *FUZZERS]
        words += ["--hypothesis-profile", "long", "--hypothesis-seed", str(seed)]
        done = subprocess.run(
            words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
        )
        if done.returncode:
            failed += 1
            print(done.stdout[-4000:], file=sys.stderr)
        seed += 1
    return failed


def table(tallies: Mapping[str, Tally], total: Tally) -> str:
    """The tallies as a Markdown table."""
    columns = [
        "trials",
        "kills",
        "drivers",
        *VICTIMS,
        "disturbances",
        "items",
        "calls",
        "faults",
        "repeated",
        *FINDINGS,
    ]
    lines = ["| job | " + " | ".join(name.replace("_", " ") for name in columns) + " |"]
    lines.append("|---|" + "---:|" * len(columns))
    for name, tally in [*tallies.items(), ("**all**", total)]:
        lines.append(f"| {name} | " + " | ".join(str(getattr(tally, column)) for column in columns) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
