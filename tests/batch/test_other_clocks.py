"""Hosts that share a PostgreSQL store agree on its server's clock, whatever their own clocks say."""

from pathlib import Path

import pytest

from databases import new_store
from proctor.testing import eventually
from waiting import while_running

OTHER_HOST = Path(__file__).parent / "other_clock"
PLAN = "{runId: shared, concurrency: 1, matrix: [{prompt: hello, model: scripted/slow, runs: 600}]}"


@pytest.mark.parametrize("ahead", ["30", "-30"])
def test_a_host_with_another_time_neither_takes_over_a_live_run_nor_takes_it_for_dead(proctor, server, ahead):
    proctor.environment["PROCTOR_STORE"] = new_store(server)
    (proctor.folder / "slow.yaml").write_text("{latency_seconds: 0.1, rules: [{reply: hi}]}")
    (proctor.folder / "plan.yaml").write_text(PLAN)
    process = proctor.start("batch", "plan.yaml")
    with proctor.open_store() as store:
        eventually(while_running(process, lambda: store.read.totals("shared")["finished"] > 0))
    other = {"PYTHONPATH": str(OTHER_HOST), "CLOCK_AHEAD_SECONDS": ahead}

    resumed = proctor.process("resume", "shared", environment=other)
    process.kill()
    process.communicate()

    assert resumed.returncode == 2
    assert "run shared is already running" in resumed.stderr
