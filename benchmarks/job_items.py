"""Dialogues, scenario runs and evaluations beside their floor: a script with as many answers, rows and files.

Processor time of whole commands, per item. How many answers, rows and files an item has is counted in what
the command has written.
"""

import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import dialogues
import evaluations
from results import Figure
from workload import HERE, CommandCost, cost_of, measured, middle, settings

ROUNDS = 3
DIALOGUES, SCENARIO_RUNS, SESSIONS = 1_000, 200, 500
ROWS = ("sessions", "iterations", "messages", "tool_calls", "model_calls", "metrics", "scores", "batch_items")
SCENARIO = HERE.parent / "examples" / "scenarios" / "harbour-fee"


def items() -> Iterator[Figure]:
    """One line for each kind."""
    yield from _figures("two-turn dialogues, scripted model", DIALOGUES, _simulate)
    yield from _figures("three-turn scenario runs, scripted models", SCENARIO_RUNS, _experiment)
    sessions = SESSIONS * len(evaluations.EVALUATORS)
    yield from _figures("evaluations of a session by a code evaluator", sessions, _evaluate)


def _simulate(folder: Path) -> CommandCost:
    (folder / "talk.yaml").write_text(json.dumps(dialogues.MODEL))
    words = f"simulate --num-runs {DIALOGUES} --max-turns 2 --max-workers 64 --seed 1 --model scripted/talk"
    return _proctor(folder, *words.split(), "--output-dir", "out")


def _experiment(folder: Path) -> CommandCost:
    plan = {
        "experiment_name": "Bench",
        "base_scenario": str(SCENARIO),
        "runs_per_variation": SCENARIO_RUNS // 2,
        "max_parallel": 16,
        "variations": [
            {
                "type": "actor_model",
                "actor": "port",
                "values": ["scripted/models/patient", "scripted/models/stubborn"],
            }
        ],
        "output_dir": str(folder / "out"),
    }
    (folder / "experiment.yaml").write_text(json.dumps(plan))
    return _proctor(folder, "experiment", "experiment.yaml")


def _evaluate(folder: Path) -> CommandCost:
    evaluations.write_sessions(folder, SESSIONS)
    _proctor(folder, "import", "otlp", "many.jsonl")
    named = [word for each in evaluations.EVALUATORS for word in ("--evaluator", each)]
    source = ["--log-group", "/agents/travel", "--ground-truth", "truth.yaml"]
    return _proctor(folder, "evaluate", "start", "--name", "bench", *source, *named, "--concurrency", "16")


def _figures(what: str, count: int, run: Callable[[Path], CommandCost]) -> Iterator[Figure]:
    rounds = list[tuple[CommandCost, CommandCost]]()
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
            folder = Path(name)
            ours = run(folder)
            bare = folder / "bare"
            bare.mkdir()
            sizes = _sizes(folder, count)
            rounds.append(
                (ours, cost_of([sys.executable, HERE / "bare_items.py", bare, count, *sizes], count))
            )
    ours_cpu, bare_cpu = (middle([pair[side].cpu_seconds for pair in rounds]) for side in (0, 1))
    yield Figure(f"{what}: CPU time per item", ours_cpu / count * 1e6, "µs", bare_cpu / count * 1e6)
    yield Figure(f"{what}: ratio of CPU times", bare_cpu / ours_cpu, "")


def _sizes(folder: Path, count: int) -> tuple[int, int, int]:
    """Answers, rows and files of an item."""
    with closing(sqlite3.connect(folder / "proctor.db")) as database:
        counts = {
            table: database.execute(
                f'SELECT COUNT(*) FROM "{table}"'
                + ("" if table == "batch_items" else f' WHERE "{_session(table)}" IN ({_OF_RUN})')
            ).fetchone()[0]
            for table in ROWS
        }
    files = sum(1 for path in (folder / "out").rglob("*") if path.is_file())
    return counts["model_calls"] // count, sum(counts.values()) // count, files // count


_OF_RUN = 'SELECT "sessionId" FROM "batch_items"'


def _session(table: str) -> str:
    return "id" if table == "sessions" else "sessionId"


def _proctor(folder: Path, *words: str) -> CommandCost:
    return measured([sys.executable, "-m", "proctor", *words, "--json"], settings(folder), folder)
