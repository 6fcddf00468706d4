"""No run is billed more than its budget, however often its process is killed."""

import json
import subprocess
import sys
from pathlib import Path

SIMULATION = Path(__file__).with_name("billing_simulation.py")


def test_killed_runs_are_never_billed_more_than_their_budget():
    """A few of the runs of the simulation, in a process without threads, since it forks."""
    ran = subprocess.run(
        [sys.executable, SIMULATION, "--runs", "4", "--seed", "5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert (report["runs"], report["overspent"], report["unknown"], report["unfinished"]) == (4, 0, 0, 0)
    assert report["kills"] > 0 and report["billed_usd"] > 0
