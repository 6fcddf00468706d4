"""What analyzing a large run costs: compare, rank and report of 100,000 items, beside a bare script.

The bare script reads the same rows with sqlite3 and computes the same means by task with numpy: no intervals,
no other metrics, no checks. Not called `statistics`: it would hide the module of that name.
"""

import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from results import Figure
from workload import measured, settings

TASKS, REPEATS, MODELS = 10_000, 5, ("acme/one", "acme/two")
ITEMS = TASKS * REPEATS * len(MODELS)
MOST_CPU_SECONDS, MOST_MB = 2.0, 200.0
BARE = """
import json, sqlite3, sys
import numpy as np

codes, models = {}, {}
rows = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True).execute(
    'SELECT "status", "costUsd", "model", "factors" FROM "batch_items" WHERE "runId" = ?', ("large",)
)
task, model, success, cost = [], [], [], []
for status, usd, name, factors in rows:
    task.append(codes.setdefault(json.loads(factors).get("task"), len(codes)))
    model.append(models.setdefault(name, len(models)))
    success.append(status == "success")
    cost.append(usd)
cell = np.asarray(task) * len(models) + np.asarray(model)
counts = np.bincount(cell)
means = (np.bincount(cell, np.asarray(success, float)) / counts).reshape(-1, len(models))
costs = (np.bincount(cell, np.asarray(cost, float)) / counts).reshape(-1, len(models))
print(means.mean(axis=0), costs.mean(axis=0), (means[:, 1] - means[:, 0]).std())
"""


def analyses() -> Iterator[Figure]:
    """CPU seconds and peak memory of whole commands."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        _write(home / "large.csv")
        proctor = [sys.executable, "-m", "proctor"]
        _measure([*proctor, "import", "table", str(home / "large.csv"), "--run", "large"], home)
        bare, bare_mb = _measure([sys.executable, "-c", BARE, str(home / "proctor.db")], home)
        commands = {
            "compare": ["compare", "large", "--by", "model", "--json"],
            "rank": ["rank", "large", "--json"],
            "report": ["report", "--run", "large", "--format", "json"],
        }
        for title, words in commands.items():
            seconds, peak = _measure([*proctor, *words], home)
            about = f"{title} of {ITEMS:,} items"
            yield Figure(f"{about}, CPU", seconds, "s", bare, promise=MOST_CPU_SECONDS, lower_is_better=True)
            yield Figure(f"{about} : bare script, CPU", seconds / bare, "")
            yield Figure(f"{about}, peak memory", peak, "MB", bare_mb, promise=MOST_MB, lower_is_better=True)


def _write(path: Path) -> None:
    """A table of results of two models."""
    rng = random.Random(0)
    with path.open("w") as file:
        file.write("task,model,repeat,success,cost,seconds\n")
        for task in range(TASKS):
            rate = rng.random()
            for model in MODELS:
                for repeat in range(1, REPEATS + 1):
                    outcome = int(rng.random() < rate)
                    cost, seconds = rng.lognormvariate(-3, 1), rng.lognormvariate(3, 1)
                    file.write(f"t{task},{model},{repeat},{outcome},{cost:.5f},{seconds:.2f}\n")


def _measure(command: Sequence[object], home: Path) -> tuple[float, float]:
    """CPU seconds of a command and its peak memory in MB."""
    cost = measured(command, settings(home), home)
    return cost.cpu_seconds, cost.peak_mb
