"""The same run on PostgreSQL and on SQLite, whole commands, turn about.

The server is one of its own, in memory, without waiting for the disk: so is SQLite's file in effect, which
is synchronized at checkpoints only. The server's processor time is not part of the command's.
"""

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from results import Figure
from throughput import CONCURRENCY, run_proctor
from workload import HERE, CommandCost, middle, plan_text

ITEMS = 5_000
ROUNDS = 3


def postgres() -> Iterator[Figure]:
    """Items a second on both."""
    sys.path.append(str(HERE.parent / "tests"))
    from databases import new_store, postgresql_server

    run = partial(
        run_proctor, plan=plan_text, model="scripted/echo", url="", items=ITEMS, concurrency=CONCURRENCY
    )
    rounds = list[tuple[CommandCost, CommandCost]]()
    with postgresql_server() as server:
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="proctor-bench-") as first:
                on_sqlite = run(Path(first))
            with tempfile.TemporaryDirectory(prefix="proctor-bench-") as second:
                rounds.append((run(Path(second), store=new_store(server)), on_sqlite))
    ours, other = (middle([ITEMS / pair[side].seconds for pair in rounds]) for side in (0, 1))
    yield Figure("items/s on PostgreSQL (beside: on SQLite)", ours, "/s", other)
    yield Figure("PostgreSQL : SQLite, items/s", ours / other, "", promise=0.5)
    ours, other = (middle([pair[side].cpu_seconds / ITEMS * 1e6 for pair in rounds]) for side in (0, 1))
    yield Figure("CPU time of the command per item on PostgreSQL (beside: on SQLite)", ours, "µs", other)
