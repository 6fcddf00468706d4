"""Finished sessions are reviewed: merged, discarded, or sent back to their agent with comments."""

import json
import subprocess
from pathlib import Path

import pytest

import proctor as library

CHECK = "scriptCommand: \"python3 -c 'import shop; assert shop.total == 2'\""
SCRIPT = """script:
  rules:
    - match: Use a product
      steps:
        - {write: {path: shop.py, content: "total = 2 * 1\\n"}}
        - {usage: {input: 50, output: 5, cost: 0.02}}
    - match: Use a sum
      steps:
        - {run: "git diff --stat main > seen.txt"}
        - {write: {path: shop.py, content: "total = 1 + 1\\n"}}
        - {usage: {input: 90, output: 10, cost: 0.01}}
  steps:
    - {write: {path: shop.py, content: "first = 1\\ntotal = 3\\n"}}
    - {usage: {input: 40, output: 4, cost: 0.03}}
"""


def git(repository: Path, *words: str) -> str:
    command = ["git", "-C", str(repository), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def reviewed(proctor, tmp_path, repository):
    """The command, after a run whose agent got the total wrong."""
    entry = "\n".join("    " + line for line in SCRIPT.splitlines())
    (tmp_path / "plan.yaml").write_text(
        f"runId: nightly\ndefaults:\n  baseBranch: main\n  mergeOnPass: true\n  budget: 0.5\n  {CHECK}\n"
        f"matrix:\n  - repo: shop\n    prompt: Mend the total\n{entry}\n"
    )
    assert proctor("batch", "plan.yaml").returncode == 1
    return proctor


def waiting(proctor, *words):
    return proctor.json("review", *words)["sessions"]


def test_comments_make_the_next_iteration_and_merging_it_brings_the_work_of_all(reviewed, repository):
    (first,) = waiting(reviewed, "nightly")
    assert (first["task"], first["check"], first["iteration"]) == ("Mend the total", "fail", 1)
    assert (first["files"], first["linesAdded"], first["costUsd"]) == (1, 2, 0.03)

    ran = reviewed("sessions", "continue", first["sessionId"], "--comment", "shop.py:2:Use a sum", "--json")

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["runId"] == "nightly-review-1"
    (second,) = waiting(reviewed)
    assert (second["runId"], second["check"], second["iteration"]) == ("nightly-review-1", "pass", 2)
    assert (second["costUsd"], second["files"]) == (pytest.approx(0.04), 2)
    session = reviewed.json("show", second["sessionId"])
    assert session["continues"] == first["sessionId"]
    prompt = session["messages"][0]["content"]
    assert prompt.startswith("Mend the total\n\n---\n")
    assert "AssertionError" in prompt and "shop.py, line 2:\n> total = 3\nUse a sum" in prompt
    # One commit of each iteration, on the branch of the second; the agent sees its base as it was.
    assert (
        git(repository, "log", "--format=%s", f"main..{second['branch']}").splitlines()
        == ["Mend the total"] * 2
    )
    assert "shop.py" in git(repository, "show", f"{second['branch']}:seen.txt")
    assert git(repository, "rev-list", "--count", f"main..{first['branch']}") == "1"
    # The result of the first run stays what it was.
    assert [item["status"] for item in reviewed.json("show", "nightly")["items"]] == ["fail"]

    assert reviewed("sessions", "merge", second["sessionId"]).returncode == 0
    assert (repository / "shop.py").read_text() == "total = 1 + 1\n"
    assert git(repository, "log", "--format=%s", "main").splitlines() == ["Mend the total", "first"]
    assert waiting(reviewed) == []


def test_an_iteration_can_be_sent_back_again_and_the_prompt_has_both_reviews(reviewed, tmp_path):
    (first,) = waiting(reviewed)
    (tmp_path / "notes.md").write_text("Use a product.\n")

    reviewed("sessions", "continue", first["sessionId"], "-m", "Use a sum, please")
    (second,) = waiting(reviewed)
    reviewed("sessions", "continue", second["sessionId"], "--from", "notes.md", "--run-id", "again")

    (third,) = waiting(reviewed)
    assert (third["runId"], third["iteration"], third["costUsd"]) == ("again", 3, pytest.approx(0.06))
    prompt = reviewed.json("show", third["sessionId"])["messages"][0]["content"]
    assert "Use a sum, please" in prompt and "Use a product." in prompt


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "no comments"),
        (("--comment", "shop.py:9:Why?"), "shop.py has 2 lines, not 9"),
        (("--comment", "none.py:1:Why?"), "has no file none.py"),
        (("--comment", "Why?"), "`Why?` is not a comment"),
    ],
)
def test_comments_that_an_agent_could_not_follow_start_nothing(reviewed, words, problem):
    (first,) = waiting(reviewed)

    refused = reviewed("sessions", "continue", first["sessionId"], *words)

    assert refused.returncode == 2 and problem in refused.stderr
    assert [run["runId"] for run in reviewed.json("runs")["runs"]] == ["nightly"]


def test_what_was_continued_merged_or_discarded_is_not_continued(reviewed):
    (first,) = waiting(reviewed)
    words = ("sessions", "continue", first["sessionId"], "-m", "Use a sum")
    assert reviewed(*words).returncode == 0
    (second,) = waiting(reviewed)
    assert f"Continue the later session: {second['sessionId']}" in reviewed(*words).stderr

    reviewed("sessions", "discard", second["sessionId"], "--yes")

    assert waiting(reviewed) == []
    assert "no longer exists" in reviewed("sessions", "continue", second["sessionId"], "-m", "x").stderr


def test_sessions_are_continued_from_python(reviewed):
    (first,) = waiting(reviewed)
    home = reviewed.environment["PROCTOR_HOME"]

    run = library.continue_session(first["sessionId"], comments=["shop.py:2:Use a sum"], home=home)

    (item,) = run.items()
    assert (item.status, item.session.continues) == ("success", first["sessionId"])
