"""Inspect AI and promptfoo on the same server, calls and checks as Proctor, in the same minutes.

python benchmarks/peers.py FOLDER

FOLDER has their environments; `make bench-peers` installs them. Whole commands, from start to exit, with
64 calls in parallel and one check an item.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from results import Figure, table
from throughput import MODEL, run_bare, run_proctor
from workload import (
    CommandCost,
    answering_server,
    measured,
    middle,
    plan_of_entries,
    prompts_of_entries,
    settings,
)

ITEMS = 1000
CONCURRENCY = 64
ROUNDS = 3
INSPECT_TASK = """
import json
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes

@task
def hello():
    prompts = json.load(open("prompts.json"))
    return Task(dataset=[Sample(input=each, target="hello") for each in prompts], scorer=includes())
"""


def main(folder: Path) -> None:
    """Measure all, turn about, and print one table."""
    costs: dict[str, list[CommandCost]] = {}
    with answering_server() as url:
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
                home = Path(name)
                (home / "prompts.json").write_text(json.dumps(prompts_of_entries(ITEMS)))
                costs.setdefault("bare script", []).append(run_bare(home, url, ITEMS, CONCURRENCY))
                ours = run_proctor(home, plan_of_entries, MODEL, url, ITEMS, CONCURRENCY)
                costs.setdefault("Proctor", []).append(ours)
                costs.setdefault("Inspect AI", []).append(_inspect(folder, home, url))
                costs.setdefault("promptfoo", []).append(_promptfoo(folder, home, url))
    print(table(_figures(costs)))


def _figures(costs: dict[str, list[CommandCost]]) -> list[Figure]:
    figures = list[Figure]()
    for name, rounds in costs.items():
        rate = middle([ITEMS / each.seconds for each in rounds])
        figures.append(Figure(f"{ITEMS:,} entries, whole command, {name}: items/s", rate, "/s"))
        cpu = middle([each.cpu_seconds for each in rounds])
        figures.append(Figure(f"the same, {name}: CPU time", cpu, "s"))
    return figures


def _inspect(folder: Path, home: Path, url: str) -> CommandCost:
    (home / "task.py").write_text(INSPECT_TASK)
    command = [folder / "inspect" / "bin" / "inspect", "eval", "task.py", "--model", MODEL]
    options = ["--max-connections", CONCURRENCY, "--max-samples", CONCURRENCY, "--display", "none"]
    return _cost([*command, *options], home, url)


def _promptfoo(folder: Path, home: Path, url: str) -> CommandCost:
    config = {
        "prompts": ["{{text}}"],
        "providers": [{"id": "openai:chat:gpt-4o-mini", "config": {"apiBaseUrl": url}}],
        "tests": [
            {"vars": {"text": each}, "assert": [{"type": "contains", "value": "hello"}]}
            for each in prompts_of_entries(ITEMS)
        ],
    }
    (home / "promptfooconfig.json").write_text(json.dumps(config))
    program = folder / "promptfoo" / "node_modules" / ".bin" / "promptfoo"
    options = [
        "-c",
        "promptfooconfig.json",
        "-j",
        CONCURRENCY,
        "--no-cache",
        "--no-table",
        "--no-progress-bar",
    ]
    # With the Node that was installed beside it.
    return _cost([program, "eval", *options], home, url, PATH=f"{program.parent}:{os.environ['PATH']}")


def _cost(command: Sequence[object], home: Path, url: str, **more: str) -> CommandCost:
    environment = settings(home, OPENAI_BASE_URL=url, OPENAI_API_KEY="bench", HOME=str(home), **more)
    environment |= {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1"}
    return measured(command, environment, home)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
