"""`sandbox` and `outage_patience` in the plans whose programs are those of evaluators."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from commands import Command
from proctor.sandbox import problem_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FUNCTION = """
from pathlib import Path

def reads_outside(event):
    \"\"\"1 if it can read a file of the user's that no plan names.\"\"\"
    try:
        Path(__file__).parents[1].joinpath("private", "notes.txt").read_text()
        return {"value": 1.0, "label": "read"}
    except OSError:
        return {"value": 0.0, "label": "hidden"}
"""
DIALOGUES = """
clients: [scripted]
therapists: [eliza]
num_runs: 1
max_turns: 2
seed: 1
loop_turns: 0
model_name: scripted/ok
output_dir: out
evaluators: ["graders:reads_outside"]
"""
EXPERIMENT = f"""
experiment_name: Fee
base_scenario: {EXAMPLES}/scenarios/harbour-fee
runs_per_variation: 1
variations: [{{type: scenario_parameter, parameter: turns, values: [1]}}]
output_dir: out
evaluators: ["graders:reads_outside"]
"""
EVALUATION = f"""
batchEvaluationName: travel
dataSourceConfig: {{files: {{kind: otlp, paths: [{EXAMPLES}/evaluation/sessions.jsonl]}}}}
evaluators: ["graders:reads_outside"]
maxSessions: 1
"""
PLANS = {
    "simulate": (DIALOGUES, ["simulate", "--config", "plan.yaml"]),
    "experiment": (EXPERIMENT, ["experiment", "plan.yaml"]),
    "evaluate": (EVALUATION, ["evaluate", "start", "plan.yaml"]),
}


def write_plan(proctor: Command, kind: str, more: str) -> list[str]:
    """Write a plan with further settings, its evaluator and a private file; the command that runs it."""
    work = proctor.folder / "work"
    work.mkdir(exist_ok=True)
    (work / "graders.py").write_text(FUNCTION)
    private = proctor.folder / "private"
    private.mkdir(exist_ok=True)
    (private / "notes.txt").write_text("mine")
    text, command = PLANS[kind]
    (work / "plan.yaml").write_text(text.replace("output_dir: out", f"output_dir: {work}/out") + more)
    shutil.rmtree(work / "out", ignore_errors=True)
    return [word.replace("plan.yaml", str(work / "plan.yaml")) for word in command]


@pytest.mark.parametrize(
    ("kind", "sandbox", "label"),
    [("simulate", "none", "read"), *((kind, "landlock", "hidden") for kind in PLANS)],
)
def test_a_plan_sets_how_its_evaluators_are_confined(proctor, kind, sandbox, label):
    if problem := problem_of("landlock"):
        pytest.skip(problem)
    command = write_plan(proctor, kind, f"sandbox: {{kind: {sandbox}}}\noutage_patience: 45\n")
    note = "are NOT confined" if sandbox == "none" else f"are confined by {sandbox}; network: none"

    dry = proctor(*command, "--dry-run")
    assert f"functions and programs of evaluators {note}" in dry.stderr, dry.stderr
    ended = proctor(*command)
    assert ended.returncode == 0, ended.stderr
    assert f"functions and programs of evaluators {note}" in ended.stderr

    with closing(sqlite3.connect(proctor.folder / "proctor-home" / "proctor.db")) as store:
        [(run_id, options, request)] = store.execute(
            "SELECT b.runId, b.optionsJson, e.requestJson FROM batches b"
            " LEFT JOIN evaluations e ON e.id = b.runId WHERE b.job <> 'imported'"
        )
        labels = {label for (label,) in store.execute("SELECT label FROM scores")}
        kinds = {kind for (kind,) in store.execute("SELECT sandbox FROM sessions WHERE runId = ?", (run_id,))}
    assert (labels, kinds) == ({label}, {sandbox})
    kept = json.loads(request or options)
    assert kept["sandbox"] == {"kind": sandbox}
    assert kept["outage_patience" if request else "outagePatience"] == 45


@pytest.mark.parametrize(
    ("kind", "setting", "problem"),
    [
        ("simulate", "sandbox: firejail", "`kind` should be one of auto, bubblewrap"),
        ("experiment", "sandbox: {network: sometimes}", "`network` should be one of gateway, none, full"),
        ("evaluate", "outage_patience: -1", "should be more than 0, not the number -1"),
    ],
)
def test_a_wrong_value_is_refused_at_its_place(proctor, kind, setting, problem):
    command = write_plan(proctor, kind, f"{setting}\n")
    line = len((proctor.folder / "work" / "plan.yaml").read_text().splitlines())

    refused = proctor(*command, "--dry-run")

    assert refused.returncode == 2
    assert f"plan.yaml:{line}:" in refused.stderr
    assert problem in refused.stderr, refused.stderr
