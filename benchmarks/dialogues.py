"""What a large simulation costs: dialogues a second with their files, and whether memory stays flat."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from results import Figure

FEW, MANY = 2_000, 10_000
MODEL = {"rules": [{"after": 1, "reply": ["Go on.", "And then?"]}, {"reply": ["Hello.", "Good morning."]}]}


def dialogues() -> Iterator[Figure]:
    """`proctor simulate` of two-turn dialogues on a scripted model, whole command."""
    few, many = _simulated(FEW), _simulated(MANY)
    yield Figure(f"two-turn dialogues/s, {MANY:,} of them", MANY / many[0], "/s")
    yield Figure(f"peak memory, {MANY:,} dialogues", many[1], "MB")
    yield Figure(
        f"peak memory, {MANY:,} : {FEW:,} dialogues", many[1] / few[1], "", promise=1.2, lower_is_better=True
    )


def _simulated(runs: int) -> tuple[float, float]:
    """Seconds, and the peak of memory in MB."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        folder = Path(name)
        (folder / "talk.yaml").write_text(json.dumps(MODEL))
        words = f"simulate --num-runs {runs} --max-turns 2 --max-workers 64 --seed 1 --model scripted/talk"
        command = [sys.executable, "-m", "proctor", *words.split(), "--output-dir", "out", "--json"]
        started = time.perf_counter()
        with (folder / "said").open("w") as said:
            process = subprocess.Popen(
                command, cwd=folder, env=os.environ | {"PROCTOR_HOME": name}, stdout=said, stderr=said
            )
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - started
        assert process.returncode == 0, (folder / "said").read_text()
        return seconds, _peak_mb(used)


def _peak_mb(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / 1024
