"""Runs of an experiment are judged as they end, and what the judges ask is the runs' own cost."""

import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JUDGE = """\
rules:
  - match: '"score":'
    reply: '{"reasoning": "it brings them closer", "score": "Very Helpful"}'
"""
CHECKS = """\
def kept(event):
    return 0.75
"""
CONFIG = """\
experiment_name: Judged
base_scenario: examples/scenarios/harbour-fee
output_dir: judged
runs_per_variation: 2
judge_model: scripted/judge
prices: {scripted/judge: {input: 10, output: 10}}
evaluators:
  - Builtin.Helpfulness
  - {name: "checks:kept@session", passes_at: PASSES_AT}
"""


@pytest.fixture
def judged(proctor):
    """Runs the experiment with a pass mark; its folder."""
    shutil.copytree(ROOT / "examples" / "scenarios", proctor.folder / "examples" / "scenarios")
    (proctor.folder / "judge.yaml").write_text(JUDGE)
    (proctor.folder / "checks.py").write_text(CHECKS)

    def run(passes_at, *words, code=0):
        (proctor.folder / "config.yaml").write_text(CONFIG.replace("PASSES_AT", str(passes_at)))
        done = proctor("experiment", "config.yaml", *words)
        assert done.returncode == code, done.stderr
        return proctor.folder / "judged"

    return run


def read(folder, name):
    return json.loads((folder / name).read_text())


def test_ratings_of_a_definition_keep_its_scale_though_all_are_at_an_end(judged, proctor):
    ratings = [{"label": str(value), "value": value, "definition": "so warm"} for value in range(1, 6)]
    judge = {"instructions": "How warm? {context}", "ratingScale": {"numerical": ratings}}
    definition = {
        "evaluatorName": "warmth",
        "level": "SESSION",
        "evaluatorConfig": {"llmAsAJudge": judge},
    }
    (proctor.folder / "warmth.json").write_text(json.dumps(definition))
    shutil.copytree(
        ROOT / "examples" / "scenarios", proctor.folder / "examples" / "scenarios", dirs_exist_ok=True
    )
    (proctor.folder / "judge.yaml").write_text('rules: [{reply: \'{"reasoning": "cold", "score": "1"}\'}]\n')
    config = CONFIG.partition("evaluators:")[0] + "evaluators: [warmth.json]\n"
    (proctor.folder / "config.yaml").write_text(config)

    done = proctor("experiment", "config.yaml")

    assert done.returncode == 0, done.stderr
    statistics = read(proctor.folder / "judged" / "analysis", "metrics-analysis.json")["score.warmth"]
    assert (statistics["mean"], statistics["scale"], statistics["low"]) == (1.0, [1.0, 5.0], 1.0)


def test_each_run_is_judged_and_its_judges_are_paid_by_it(judged, proctor):
    folder = judged(0.5)

    run = folder / "runs" / "var-001-run-001"
    scores, costs = read(run, "metrics.json")["scores"], read(run, "costs.json")
    (paid, _) = read(folder, "batch-costs.json")["run_costs"]
    assert scores["checks:kept@session"] == 0.75
    assert scores["Builtin.Helpfulness"] == 0.83
    assert costs["evaluators"]["calls"] == 3, "one for each turn"
    assert costs["evaluators"]["cost"] == pytest.approx(paid["cost"]) and paid["cost"] > 0
    assert costs["total_cost"] == pytest.approx(paid["cost"])
    analyzed = proctor.json("analyze", "judged")["metrics_analysis"]
    assert analyzed["score.checks:kept@session"]["mean"] == 0.75

    shutil.rmtree(run)
    judged(0.5, "--resume")
    # Written again from the store.
    assert read(run, "metrics.json")["scores"] == scores
    assert read(run, "costs.json")["evaluators"]["cost"] == pytest.approx(costs["evaluators"]["cost"])


def test_a_run_below_a_pass_mark_has_failed_and_is_no_error_of_ours(judged, proctor):
    folder = judged(0.9, code=1)

    assert {one["reason"] for one in read(folder, "batch-summary.json")["failed_runs"]} == {"checks_failed"}
    patterns = proctor.json("analyze", "judged")["patterns"]
    assert (patterns["failed_runs"], patterns["errors"], patterns["success_rate"]) == (2, 0, 0.0)

    judged(0.5, "--resume", "--retry-failed")

    assert read(folder, "batch-summary.json")["runs_completed"] == 2
    assert read(folder / "runs" / "var-001-run-001", "scenario-state.json")["completed_turns"] == [1, 2, 3]


def test_a_judge_that_is_not_there_is_refused_before_the_first_call(judged, proctor):
    text = CONFIG.replace("Builtin.Helpfulness", '"nowhere:gone@session"').replace("PASSES_AT", "0.5")
    (proctor.folder / "config.yaml").write_text(text)

    for words in ((), ("--dry-run",)):
        done = proctor("experiment", "config.yaml", *words)

        assert done.returncode == 2 and "nowhere" in done.stderr
    assert not (proctor.folder / "judged").exists()
