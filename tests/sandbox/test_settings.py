"""`sandbox:` of plans, tasks and `proctor.toml`: what is accepted, what is refused, what takes precedence."""

from pathlib import Path

import pytest

from commands import Command
from proctor.bootstrap import load_settings
from proctor.errors import PlanError
from proctor.jobs.coding.job import read_plan
from proctor.sandbox import merge_settings, problem_of
from proctor.sandbox.paths import around
from proctor.tasks.markdown import read_task


def test_the_nearer_place_takes_precedence() -> None:
    everywhere = {"container": "python:3.12", "network": {"check": "full"}, "limits": {"processes": 9}}
    item = {"kind": "bubblewrap", "network": {"agent": "none"}, "limits": {"memory": 1}}

    assert merge_settings(everywhere, item) == {
        "kind": "bubblewrap",
        "network": {"check": "full", "agent": "none"},
        "limits": {"processes": 9, "memory": 1},
    }
    assert merge_settings("landlock", {"container": "python:3.12"}) == {"container": "python:3.12"}
    assert merge_settings(everywhere, None, "none") == {
        "kind": "none",
        "network": {"check": "full"},
        "limits": {"processes": 9},
    }
    assert merge_settings(None, None) is None


PLAN = """
defaults: {sandbox: {network: {check: full}}}
matrix:
  - repo: shop
    prompt: Repair it.
    command: ["true"]
    sandbox: %s
"""


def test_a_plan_sets_the_sandbox_of_its_items_and_their_ids_stay(tmp_path: Path) -> None:
    confined = read_plan(PLAN % "{kind: bubblewrap}", file="plan.yaml", folder=tmp_path)
    other = read_plan(PLAN % "none", file="plan.yaml", folder=tmp_path)
    [item], [same] = list(confined.items()), list(other.items())

    assert item.settings["sandbox"] == {"kind": "bubblewrap", "network": {"check": "full"}}
    assert item.id == same.id
    assert "sandbox" not in item.inputs


def test_a_task_sets_its_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "task.md"
    file.write_text("---\ncheck: 'true'\nsandbox: {network: full}\n---\n# Task: One\n\nDo it.\n")
    assert read_task(file).sandbox == {"network": "full"}

    file.write_text("---\ncheck: 'true'\nsandbox: nowhere\n---\n# Task: One\n\nDo it.\n")
    with pytest.raises(PlanError, match="`kind` should be one of"):
        read_task(file)


def test_the_dry_run_says_how_agents_are_confined_and_proctor_toml_sets_it(proctor, repository):
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)
    (proctor.folder / "plan.yaml").write_text(
        f"matrix: [{{repo: {repository}, prompt: Go., command: 'touch x', sandbox: {{read: [/x]}}}}]"
    )
    toml = proctor.folder / "proctor.toml"
    notes = []
    for settings in ("", "[sandbox]\nkind = 'none'\n", "[sandbox]\nkind = 'nothing'\n"):
        toml.write_text(settings)
        ended = proctor("batch", "plan.yaml", "--dry-run")
        notes.append(ended.stderr)

    confined = "confined by bubblewrap; network: setup full, agent gateway, check none"
    assert f"note: agents and checks are {confined}" in notes[0]
    assert "note: `sandbox: none`: agents and checks are not confined" in notes[1]
    assert (ended.returncode, "[sandbox]: `kind` should be one of" in notes[2]) == (2, True)


def test_a_resumed_run_says_how_its_agents_are_confined(proctor: Command, repository: Path) -> None:
    if problem := problem_of("landlock"):
        pytest.skip(problem)
    (proctor.folder / "plan.yaml").write_text(
        f"runId: one\nmatrix: [{{repo: {repository}, prompt: Go., command: 'false', sandbox: landlock}}]"
    )
    assert proctor("batch", "plan.yaml").returncode == 1
    resumed = proctor("resume", "one", "--retry-failed")
    assert "note: agents and checks are confined by landlock; network: setup full" in resumed.stderr


def test_evaluators_beside_the_store_are_found_and_the_store_is_not(proctor: Command) -> None:
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)
    sandbox = load_settings([], home=str(proctor.folder / "home"), store=str(proctor.folder / "results.db"))
    (proctor.folder / "results.db").write_text("rows")
    (proctor.folder / "graders.py").write_text("")
    visible = {path.name for path in around(proctor.folder, sandbox.confinement.hidden)}

    assert "graders.py" in visible
    assert not {"results.db", "home"} & visible
