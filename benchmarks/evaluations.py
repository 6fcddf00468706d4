"""What judging many sessions costs: results a second with code evaluators, and whether memory stays flat.

`python benchmarks/evaluations.py 100000` measures that many sessions, which takes minutes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from results import Figure

EXAMPLE = Path(__file__).parents[1] / "examples" / "evaluation"
FEW, MANY = 2_000, 6_000
EVALUATORS = (
    "Builtin.TrajectoryInOrderMatch",
    "Builtin.TrajectoryAnyOrderMatch",
    "checks:names_a_price@trace",
)


def evaluations() -> Iterator[Figure]:
    """`proctor evaluate start` of imported sessions with three code evaluators, whole command."""
    few, many = _judged(FEW), _judged(MANY)
    items = MANY * len(EVALUATORS)
    yield Figure(f"sessions imported from OTLP/s, {MANY:,} of them", MANY / many[0], "/s")
    yield Figure(
        f"sessions judged by three code evaluators, items/s, {items:,} of them", items / many[1], "/s"
    )
    yield Figure("the same per second of processor time", items / many[3], "/s")
    yield Figure(f"peak memory, {MANY:,} sessions judged", many[2], "MB")
    yield Figure(
        f"peak memory, {MANY:,} : {FEW:,} sessions judged",
        many[2] / few[2],
        "",
        promise=1.2,
        lower_is_better=True,
    )


def _judged(sessions: int) -> tuple[float, float, float, float]:
    """Seconds to import and to judge, the peak of memory in MB, and seconds of processor time to judge."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        folder = Path(name)
        write_sessions(folder, sessions)
        importing, *_ = _command(folder, "import", "otlp", "many.jsonl")
        evaluators = [word for each in EVALUATORS for word in ("--evaluator", each)]
        source = ["--log-group", "/agents/travel", "--ground-truth", "truth.yaml"]
        judging, peak, used = _command(
            folder, "evaluate", "start", "--name", "bench", *source, *evaluators, "--concurrency", "16"
        )
        return importing, judging, peak, used


def write_sessions(folder: Path, sessions: int) -> None:
    """A file of sessions, their ground truth, and the evaluators."""
    for name in ("checks.py", "truth.yaml"):
        (folder / name).write_text((EXAMPLE / name).read_text())
    models = [json.loads(line) for line in (EXAMPLE / "sessions.jsonl").read_text().splitlines()]
    with (folder / "many.jsonl").open("w") as file:
        for number in range(sessions):
            file.write(_copy(models[number % len(models)], number) + "\n")


def _copy(document: dict[str, object], number: int) -> str:
    """A session of its own: other ids, everything else as in the example."""
    text = json.dumps(document)
    for name in ("oslo", "hotel", "refund"):
        text = text.replace(f'"{name}-', f'"{name}-{number}-')
    changed = json.loads(text)
    for span in changed["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span["traceId"] = f"{number:08x}{span['traceId'][8:]}"
    return json.dumps(changed)


def _command(folder: Path, *words: str) -> tuple[float, float, float]:
    """Seconds a command took, the peak of its memory in MB, and its seconds of processor time."""
    started = time.perf_counter()
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "proctor", *words, "--json"],
            cwd=folder,
            env=os.environ | {"PROCTOR_HOME": str(folder / "home")},
            stdout=output,
            stderr=output,
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (folder / "output").read_text()[-3000:]
    return time.perf_counter() - started, used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else MANY
    importing, judging, peak, used = _judged(number)
    items = number * len(EVALUATORS)
    print(f"{number:,} sessions imported in {importing:.0f} s, {items:,} items in {judging:.0f} s", end=": ")
    print(f"{items / judging:,.0f} items/s, {items / used:,.0f} per processor second, peak {peak:.0f} MB")
