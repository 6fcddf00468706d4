"""Measure Proctor's speed and size beside bare loops, in the same run on the same machine.

    python benchmarks/run.py [--json] [--large] [--only NAME …]

Ratios travel between machines better than seconds do, so that is what is promised. Nothing here is
a test: a busy machine makes a figure worse, never the suite red.
"""

import argparse
import compileall
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import analyses
import arrivals
import commit_window
import dialogues
import evaluations
import gateway
import job_items
import million
import output
import pages
import postgres
import size
import throughput
import trees
from results import Figure, row_of, table

SOURCE = Path(__file__).resolve().parents[1] / "src"
MEASUREMENTS: Mapping[str, Callable[[], Iterator[Figure]]] = {
    "http": throughput.over_http,
    "scripted": throughput.scripted,
    "sealed": throughput.sealed,
    "workers": throughput.workers,
    "postgres": postgres.postgres,
    "trees": trees.starts,
    "output": output.reading,
    "slow-calls": throughput.slow_calls,
    "slow-calls-many": throughput.many_slow_calls,
    "gateway": gateway.overhead,
    "help": size.help_text,
    "memory": size.memory,
    "dry-run": size.dry_run,
    "resume": partial(size.resume, 20_000),
    "items": job_items.items,
    "dialogues": dialogues.dialogues,
    "arrivals": arrivals.sessions,
    "steady": arrivals.steady,
    "evaluations": evaluations.evaluations,
    "analyses": analyses.analyses,
    "watchers": pages.watchers,
    "window": commit_window.window,
}
LARGE: Mapping[str, Callable[[], Iterator[Figure]]] = {
    "slow-calls-most": throughput.most_slow_calls,
    "pages-large": pages.large_run,
    "memory-large": size.memory_of_large_batches,
    "memory-entries": size.memory_of_entries,
    "resume-large": partial(size.resume, 100_000),
}
HUGE: Mapping[str, Callable[[], Iterator[Figure]]] = {"million": million.million}
"""Measured only by name."""


def main() -> None:
    """Measure what was asked for, and print one table."""
    asked = _arguments()
    wanted = {**MEASUREMENTS, **(LARGE if asked.large else {})}
    if asked.only:
        wanted = {name: {**MEASUREMENTS, **LARGE, **HUGE}[name] for name in asked.only}
    # An installed program comes compiled; one in a checkout is compiled anew at each start where Python
    # was told to leave no files behind.
    compileall.compile_dir(SOURCE, quiet=1)
    figures = list[Figure]()
    for name, measure in wanted.items():
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        for figure in measure():
            figures.append(figure)
            # At once: what was measured is not lost when a later measurement fails or is stopped.
            print(row_of(figure), file=sys.stderr, flush=True)
    if asked.json:
        document = {"machine": machine(), "figures": [figure.document() for figure in figures]}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print(f"{machine()}\n\n{table(figures)}")


def machine() -> str:
    """What all this was measured on."""
    names = [line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")]
    cores = f"{len(names) or '?'} × {names[0] if names else platform.processor() or 'unknown processor'}"
    return f"{cores}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Proctor's speed and size beside bare loops.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--large", action="store_true", help="also measure what takes minutes")
    names = [*MEASUREMENTS, *LARGE, *HUGE]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"only: {', '.join(names)}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
