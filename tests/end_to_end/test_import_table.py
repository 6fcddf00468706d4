"""`proctor import table`, and every command that takes a run with what it imported."""

import re
import shutil
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "import-table"
MAPPED = ("--column", "task=instance_id", "--column", "success=resolved")


@pytest.fixture
def desk(proctor):
    """A folder with the example, in which its run was imported."""
    shutil.copytree(EXAMPLE, proctor.folder, dirs_exist_ok=True)
    done = proctor("import", "table", "results.csv", "--run", "models", *MAPPED)
    assert (done.returncode, done.stdout) == (0, "")
    assert "144 rows of 1 file imported into the run models (144 new, 0 replaced, 0 unchanged)" in done.stderr
    return proctor


def test_the_commands_of_the_example_work(proctor):
    shutil.copytree(EXAMPLE, proctor.folder, dirs_exist_ok=True)
    commands = re.findall(r"^proctor (.+)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)

    done = [proctor(*command.split()) for command in commands]

    assert [each.returncode for each in done] == [0] * 5
    assert "success rate (" in done[1].stdout
    assert "significant" in done[2].stdout
    assert "48 rows of 2 files imported into the run leaderboard" in done[3].stderr


def test_the_run_is_listed_shown_reported_exported_not_resumed_and_deleted(desk):
    (listed,) = desk.json("runs")["runs"]
    shown = desk.json("show", "models")
    report = desk("report", "--run", "models").stdout
    exported = desk("export", "--run", "models", "--format", "json", "--out", "out")

    assert (listed["job"], listed["status"], listed["itemCount"]) == ("imported", "completed", 144)
    assert {item["runner"] for item in shown["items"]} == {"imported"}
    assert sum(listed["counts"][status] for status in ("success", "fail", "timeout")) == 144
    assert f"{listed['counts']['success']} of 144 evaluated items" in report
    assert "| model-a |" in report
    assert f"| Total | ${listed['costUsd']:.2f} |" in report
    assert exported.returncode == 0
    assert any((desk.folder / "out").iterdir())

    again = desk.json("import", "table", "results.csv", "--run", "models", *MAPPED)
    assert again == {"runId": "models", "files": 1, "rows": 144, "added": 0, "replaced": 0,
                     "unchanged": 144, "removed": 0, "notes": []}  # fmt: skip
    resumed, aborted = desk("resume", "models"), desk("abort-run", "models")
    assert (resumed.returncode, aborted.returncode) == (2, 2)
    assert "an imported run cannot be resumed; import again" in resumed.stderr
    assert desk("delete", "models", "--yes").returncode == 0
    assert (desk.json("runs")["runs"], desk.json("sessions", "list")["sessions"]) == ([], [])
    assert desk.json("import", "table", "results.csv", "--run", "models", *MAPPED)["added"] == 144


@pytest.mark.parametrize(
    ("worse", "better", "exit_code", "verdict"),
    [
        # Of 80 tasks, how many only one of the two solves.
        (0, 0, 0, "PASS"),
        (16, 0, 1, "FAIL"),
        (6, 5, 4, "INCONCLUSIVE"),
    ],
)
def test_a_gate_passes_fails_or_stays_open_and_the_exit_code_says_which(
    proctor, worse, better, exit_code, verdict
):
    rows = ["task,model,success"]
    for task in range(80):
        old, new = int(task >= better), int(task < 80 - worse)
        rows += [f"t{task},old,{old}", f"t{task},new,{new}"]
    (proctor.folder / "results.csv").write_text("\n".join(rows) + "\n")
    proctor("import", "table", "results.csv", "--run", "models")

    done = proctor("compare", "models", "--by", "model", "--against", "old", "--gate", "success>=-0.05")

    assert done.returncode == exit_code, done.stdout + done.stderr
    assert done.stdout.startswith(f"Gates: {verdict.lower()}\n")


def test_two_imported_runs_are_compared_by_task(desk):
    desk("import", "table", "leaderboard", "--run", "others", "--column", "model=@file")

    compared = desk.json("compare", "models", "others")

    (success,) = [each for each in compared["contrasts"] if each["metric"] == "success"]
    assert success["pairs"] == 24


def test_the_sessions_of_the_run_can_be_evaluated_and_the_evaluation_is_no_success(desk):
    (desk.folder / "mine.py").write_text("def given(evidence):\n    return True\n")
    (run,) = desk.json("runs")["runs"]

    some = ("--run", "models", "--max-sessions", "3")
    done = desk("evaluate", "start", *some, "--evaluator", "mine:given", "--name", "check")

    assert done.returncode == 0, done.stderr
    report = desk("report", "--start-date", "2020-01-01").stdout
    assert f"{run['counts']['success']} of 144 evaluated items" in report
