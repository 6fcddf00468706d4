"""The cost of a run whose process was killed is a lower bound: calls in flight are not recorded."""

import json

import pytest

from proctor.testing import eventually
from waiting import while_running

PLAN = "{runId: killed, concurrency: 4, matrix: [{prompt: hello, model: scripted/paid, runs: 40}]}"
PAID = "{latency_seconds: 0.05, rules: [{reply: hi, usage: {input_tokens: 1000, output_tokens: 100}}]}"
PRICE = '[prices."scripted/paid"]\ninput = 10\noutput = 40\n'


@pytest.fixture
def killed(proctor):
    """A run whose process was killed after some of its items, and the command line."""
    (proctor.folder / "paid.yaml").write_text(PAID)
    (proctor.folder / "plan.yaml").write_text(PLAN)
    (proctor.folder / "proctor.toml").write_text(PRICE)
    process = proctor.start("batch", "plan.yaml")
    with proctor.open_store() as store:
        eventually(while_running(process, lambda: store.read.totals("killed")["finished"] > 4))
    process.kill()
    process.communicate()
    return proctor


def test_the_cost_of_a_run_that_crashed_is_shown_as_a_lower_bound(killed):
    shown = json.loads(killed("show", "killed", "--json").stdout)
    assert (shown["status"], shown["costIsLowerBound"]) == ("interrupted", True)

    resumed = killed("resume", "killed")
    assert resumed.returncode == 0, resumed.stderr
    assert ", ≥ $" in resumed.stderr
    assert "≥ $" in killed("runs").stdout
    assert json.loads(killed("runs", "--json").stdout)["runs"][0]["costIsLowerBound"] is True
    document = json.loads(killed("report", "--run", "killed", "--format", "json").stdout)
    assert document["costIsLowerBound"] is True
    assert killed("report", "--run", "killed", "--out", "report.md").returncode == 0
    report = (killed.folder / "report.md").read_text()
    assert "| Crashes | 1; calls that were in flight may have cost more |" in report
