"""Each plan in examples/ does what it says when a user starts from it, and the benchmarks run."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from waiting import TIME_LIMIT_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"
PLANS = sorted(path for path in (EXAMPLES / "plans").glob("*.yaml") if "matrix:" in path.read_text())

STOPS_EARLY = EXAMPLES / "plans" / "stop-early.yaml"
OUTCOMES = {
    "any-program": (1, {"success": 1, "fail": 1}),
    "budget": (3, {"success": 5, "queued": 15}),
    "grid": (0, {"success": 20}),
    "merge-queue": (0, {"success": 2}),
    "model-comparison": (1, {"success": 2, "fail": 2}),
    "prompts": (1, {"success": 3, "fail": 1}),
    "through-the-gateway": (1, {"success": 1, "fail": 1}),
}
"""Each plan: the exit code, and how many items end how."""
LOOKED_AT = {"any-program", "budget", "merge-queue", "through-the-gateway"}
"""Plans whose tests look at more than how their items end."""


class Desk:
    """A folder with the example plans and the repositories they name."""

    def __init__(self, command: Any) -> None:
        self.command, self.folder = command, command.folder
        for source in (EXAMPLES / "plans", EXAMPLES / "demo"):
            for file in source.glob("*.yaml"):
                shutil.copy(file, self.folder)
        for files in (EXAMPLES / "demo" / "repos").iterdir():
            _commit(files, self.folder / "repos" / files.name)

    def proctor(self, *words: str) -> tuple[int, Any]:
        """The exit code of a command, and the JSON document it printed."""
        done = self.command(*words, "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def run(self, name: str) -> Any:
        """Run a plan, which ends as it says; what it printed."""
        code, document = self.proctor("batch", f"{name}.yaml")
        _, run = self.proctor("show", name)
        reasons = [(item["reason"], item["error"]) for item in run["items"] if item["status"] == "error"]
        assert (code, Counter(item["status"] for item in run["items"])) == OUTCOMES[name], reasons
        return document

    def git(self, repository: str, *words: str) -> str:
        folder = self.folder / "repos" / repository
        return subprocess.run(("git", *words), cwd=folder, check=True, capture_output=True, text=True).stdout


def _commit(files: Path, folder: Path) -> None:
    shutil.copytree(files, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / ".gitignore").write_text("__pycache__/\n")
    identity = ("-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-q", "-m", "as it is")):
        subprocess.run(("git", *words), cwd=folder, check=True)


@pytest.fixture
def desk(proctor: Any) -> Desk:
    return Desk(proctor)


def test_every_example_plan_is_run_here() -> None:
    assert {path.stem for path in PLANS} == {*OUTCOMES, STOPS_EARLY.stem}


def test_a_plan_that_stops_early_decides_before_its_end(desk: Desk) -> None:
    code, listed = desk.proctor("batch", STOPS_EARLY.name, "--dry-run")
    assert (code, listed["itemCount"]) == (0, 80)

    code, done = desk.proctor("batch", STOPS_EARLY.name)

    assert (code, done["status"], done["reason"]) == (1, "completed", "decided")
    assert 80 > done["unfinishedCount"] > 10
    assert [each["outcome"] for each in done["stopWhen"]["decisions"]] == ["better"]


@pytest.mark.parametrize("name", sorted(set(OUTCOMES) - LOOKED_AT))
def test_an_example_plan_ends_as_it_says(name: str, desk: Desk) -> None:
    desk.run(name)


def test_a_halted_budget_goes_on_with_more_money(desk: Desk) -> None:
    halted = desk.run("budget")
    code, resumed = desk.proctor("resume", "budget", "--budget", "1")

    assert halted["status"] == "halted"
    assert halted["costUsd"] <= 0.0012
    assert (code, resumed["successCount"]) == (0, 20)


def test_the_merge_queue_leaves_both_changes_on_main_and_pushes_nothing(desk: Desk) -> None:
    desk.run("merge-queue")

    subjects = desk.git("slugs", "log", "--format=%s", "main").splitlines()
    assert sorted(subjects[:2]) == ["Add a note on how to run the tests", "Make slugify pass its tests"]
    assert subjects[2:] == ["as it is"]
    assert desk.git("slugs", "remote") == ""


def test_what_any_program_prints_as_events_is_in_its_session(desk: Desk) -> None:
    desk.run("any-program")
    _, run = desk.proctor("show", "any-program", "--status", "success")
    _, session = desk.proctor("show", run["items"][0]["sessionId"])

    assert [call["toolName"] for call in session["tool_calls"]] == ["sed"]
    assert session["costUsd"] == pytest.approx(0.001)
    assert session["messages"][-1]["content"] == "Mended with sed."


def test_the_calls_of_a_program_on_the_gateway_are_in_its_session(desk: Desk) -> None:
    desk.run("through-the-gateway")
    _, run = desk.proctor("show", "through-the-gateway", "--status", "success")
    _, session = desk.proctor("show", run["items"][0]["sessionId"])

    assert [call["model"] for call in session["model_calls"]] == ["scripted/mender"]
    assert session["messages"][-1]["content"].startswith("s/year")


@pytest.mark.parametrize("script", ["engine_loop.py", "bare_script.py"])
def test_both_sides_of_the_benchmark_carry_out_every_item(script: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps(["say hello"] * 200))
    path = str(EXAMPLES.parent / "benchmarks" / script)
    if script == "engine_loop.py":
        command = [sys.executable, path, str(tmp_path), "200", "8", "scripted/echo"]
    else:
        command = [sys.executable, path, str(tmp_path), str(prompts), "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["items"] == told["passed"] == 200
