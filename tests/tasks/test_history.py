"""Tasks of a repository's history: which commits are taken, how they are validated, and what is written."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from histories import FIX_MESSAGE, FIX_TEST, OLD, TEST_FILE, TOKEN, History, make_history

from proctor.errors import UsageError
from proctor.git import Git
from proctor.processes import end_attempt
from proctor.sandbox import NOT_CONFINED
from proctor.tasks.history import HistoryMiner, MiningOptions, judge_runs
from proctor.tasks.statement import title_and_body
from proctor.tasks.test_command import guess_check, guess_commands
from proctor.testing import eventually
from proctor.workspace.folders import remove_abandoned

NOW = datetime(2026, 2, 1, tzinfo=UTC)
HIDDEN = "hidden.tar.xz"
MINE = ("tasks", "from-history", "shop", "--since", "20y")


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory, command_server: Any) -> dict[str, Any]:
    """The repository, its commits, and what mining it printed."""
    from commands import Command

    folder = tmp_path_factory.mktemp("mined")
    proctor = Command(folder, command_server)
    history, commits = make_history(folder / "shop")
    words = (*MINE, "--out", "tasks")
    words = (*words, "--check", "python3 -m unittest discover -t . -s tests")
    done = proctor(*words, "--json")
    # Why no commit became a task is in the document.
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        "proctor": proctor,
        "words": words,
        "history": history,
        "commits": commits,
        "folder": folder,
        "document": json.loads(done.stdout),
    }


def miner(folder: Path, **options: Any) -> HistoryMiner:
    """The repository `shop` of a folder, about to be mined."""
    return HistoryMiner(
        MiningOptions(**{"repo": folder / "shop", "out": folder / "out", "check": "true", **options}),
        home=folder / "home",
        environment=dict(os.environ),
        sandbox=NOT_CONFINED,
        now=NOW,
    )


def test_a_commit_whose_tests_fail_before_and_pass_after_becomes_a_task(mined):
    commits, document = mined["commits"], mined["document"]
    reasons = {each["commit"]: each["reason"] for each in document["rejected"]}
    assert reasons[commits["first"]] == "first commit"
    assert reasons[commits["docs"]] == "no tests changed"
    assert reasons[commits["release"]] == "release, revert, documentation or maintenance"
    assert {each["commit"] for each in document["candidates"]} == {
        commits[name] for name in ("fix", "same", "flaky")
    }
    assert reasons[commits["same"]] == "no test fails before and passes after it"
    [flaky] = document["flaky"]
    assert flaky == {"commit": commits["flaky"], "tests": ["tests.test_tax.Flaky.test_luck"]}
    [task] = document["tasks"]
    assert (task["commit"], task["failToPass"], task["passToPass"]) == (commits["fix"], 1, 1)


def test_the_task_folder_shows_nothing_of_the_answer(mined):
    [task] = mined["document"]["tasks"]
    folder = mined["folder"] / "tasks" / task["folder"]
    assert sorted(path.name for path in folder.iterdir()) == [f"{task['folder']}.md", HIDDEN]
    text = (folder / f"{task['folder']}.md").read_text()
    front, _, body = text.removeprefix("---\n").partition("---\n")
    base = mined["history"].git("rev-parse", f"{mined['commits']['fix']}^")
    assert f'ref: "{base}"' in front
    assert mined["commits"]["fix"] not in text
    assert body.startswith("# Task: Totals of more than one item are wrong in the code\n")
    assert "Adding two items gives the first one only." in body
    for leak in ("#12", "pull/12", "1a2b3c4d5e", "Signed-off", "shop.py"):
        assert leak not in body
    assert f"new names:\n\n- `def {TOKEN}(items)`\n" in body, (
        "a name that only the tests know cannot be guessed"
    )
    with tarfile.open(folder / HIDDEN) as archive:
        assert f"tests/tests/{TEST_FILE}" in archive.getnames()
        about = json.load(archive.extractfile("task.json") or io.BytesIO())
    assert about["failToPass"] == ["tests.test_wombat.Wombat.test_two"]
    assert about["message"] == FIX_MESSAGE.strip()


def test_a_second_run_validates_nothing_again(mined):
    state = mined["folder"] / "tasks" / "history.jsonl"
    before = state.read_text()
    again = json.loads(mined["proctor"](*mined["words"], "--json").stdout)
    assert again == mined["document"]
    assert state.read_text() == before
    page = (mined["folder"] / "tasks" / "report.html").read_text()
    assert "otals of more than one item" in page and "Python" in page


def test_a_dry_run_runs_nothing_and_names_the_command(mined):
    done = mined["proctor"](*mined["words"][:-4], "--out", "other", "--check", "touch ran", "--dry-run")
    assert done.returncode == 0
    assert "Tests: touch ran\n" in done.stderr
    assert not (mined["folder"] / "other").exists()
    nobody = mined["proctor"](*mined["words"], "--statement-model", "scripted/nobody", "--dry-run")
    assert nobody.returncode == 2 and "there is no script `nobody`" in nobody.stderr
    newest_first = [mined["commits"][name][:10] for name in ("flaky", "same", "fix")]
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["COMMIT", *newest_first]
    assert done.stderr.endswith("3 candidates, 0 tasks, 0 flaky. Dry run: nothing was run.\n")


def test_what_was_mined_is_printed_with_the_reasons_of_what_was_not(mined):
    done = mined["proctor"](*mined["words"])

    [task] = mined["document"]["tasks"]
    heading, row = done.stdout.splitlines()
    assert heading.split() == ["TASK", "TO", "FIX", "TO", "KEEP", "TITLE"]
    assert row.split()[:3] == [task["folder"], "1", "1"] and row.endswith("wrong in shop.py (#12)")
    assert "\n    1 not taken: first commit\n" in done.stderr
    assert "The tests did not run" not in done.stderr
    assert done.stderr.endswith(
        "3 candidates, 1 task, 1 flaky.\nReport:  tasks/report.html\nReview:  tasks/review.html\n"
        "Try them:  proctor bench --task tasks --oracle --noop\n"
    )


def test_a_command_with_which_no_test_passes_is_said_to_run_none(mined):
    done = mined["proctor"](*mined["words"][:-4], "--out", "none", "--check", "false")

    assert done.returncode == 1
    commit = mined["commits"]["fix"][:10]
    assert f"\n{commit} rejected: no test passes after it" in done.stderr
    # Three candidates: all were validated.
    assert (
        "\nThe tests did not run for 3 commits in a row: `false`\n    no output, exit code 1\n"
        "Try the commands in a fresh clone, and pass those that work as --setup and --check.\n"
        "The other" not in done.stderr
    )
    assert (mined["folder"] / "none" / "report.html").is_file() and "Try them" not in done.stderr


def levels(folder: Path, number: int) -> History:
    """A repository with this many commits that become tasks where `sh tests/check.sh` can run."""
    repository = History(folder)
    repository.commit("Begin", plans_DOT_py="# level_3 comes last\n", tests__check_DOT_sh="true")
    for n in range(1, number + 1):
        repository.commit(
            f"Reach level {n}, as players have asked\n\nWho has all stars of the level before gets to it.",
            level_DOT_py=f"def level_{n}():\n    pass\n",
            tests__check_DOT_sh=f"grep -q level_{n} level.py",
        )
    return repository


def test_mining_stops_after_three_equal_failures_and_shows_their_output(proctor, tmp_path: Path):
    levels(tmp_path / "shop", 6)
    words = (*MINE, "--parallel", "1", "--check", "sh tests/check.sh")
    broken = ("--setup", "echo one; echo No module named wheel; exit 3", "--out", "out")

    done = proctor(*words, *broken)
    again = proctor(*words, *broken, "--keep-going", "--json")

    assert done.returncode == 1
    assert done.stderr.count(" rejected: setup failed") == 3
    assert (
        "\nSet-up failed for 3 commits in a row: `echo one; echo No module named wheel; exit 3`\n"
        "    one\n    No module named wheel\nA package is missing: install it with --setup.\n"
        "The other commits were not validated; --keep-going continues with them.\n"
    ) in done.stderr
    document = json.loads(again.stdout)
    assert len(document["rejected"]) == 7 and document["stopped"]["output"] == "one\nNo module named wheel"


def test_commits_whose_setup_failed_are_validated_again_when_it_works(proctor, tmp_path: Path):
    levels(tmp_path / "shop", 2)
    words = (*MINE, "--check", "sh tests/check.sh", "--out", "out")
    (tmp_path / "tool").write_text("exit 1\n")
    needed = ("--setup", f"sh {tmp_path}/tool", "--json")
    assert json.loads(proctor(*words, *needed).stdout)["tasks"] == []

    (tmp_path / "tool").write_text("exit 0\n")

    assert len(json.loads(proctor(*words, *needed).stdout)["tasks"]) == 2


def test_there_are_never_more_tasks_than_the_maximum(proctor, tmp_path: Path):
    levels(tmp_path / "shop", 6)
    words = ("--since", "20y", "--check", "sh tests/check.sh", "--max", "2", "--parallel", "6", "--json")

    done = proctor("tasks", "from-history", "shop", *words)

    assert len(json.loads(done.stdout)["tasks"]) == 2
    assert len([path for path in (tmp_path / "tasks").iterdir() if path.is_dir()]) == 2


def test_ctrl_c_says_what_was_kept(proctor, tmp_path: Path):
    levels(tmp_path / "shop", 3)
    (tmp_path / "pace").write_text("")
    slow = f"if [ -s {tmp_path}/pace ]; then sleep 600; fi"
    words = ("--since", "20y", "--parallel", "1", "--setup", slow, "--check", "sh tests/check.sh")
    process = proctor.start("tasks", "from-history", "shop", *words, separate_errors=True)
    state = tmp_path / "tasks" / "history.jsonl"
    eventually(state.exists)
    (tmp_path / "pace").write_text("slow")
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate()

    assert process.returncode == 130
    kept = len(state.read_text().splitlines())
    assert f"Interrupted. Kept in tasks: {kept} task" in printed
    assert f", {kept} of 3 candidates validated.\nThe same command continues with the others.\n" in printed
    assert (tmp_path / "tasks" / "report.html").is_file()


def test_mined_tasks_can_be_checked(mined):
    done = mined["proctor"]("tasks", "check", "tasks", "--runs", "1", "--json")
    [task] = json.loads(done.stdout)["tasks"]
    assert (task["oracle"], task["noop"], task["ok"]) == ("pass", "fail", True)


def test_a_solution_that_breaks_one_of_very_many_tests_fails(proctor, tmp_path: Path):
    history = History(tmp_path / "shop")
    shop = "def total(items):\n    return items[0] if items else 0\n\n\n"
    shop += "def tail(items):\n    return items[-1]\n"
    many = "".join(f"    def test_{n}(self):\n        self.assertEqual(total([]), 0)\n" for n in range(300))
    tests = f"import unittest\nfrom shop import tail, total\n\n\nclass Shop(unittest.TestCase):\n{many}"
    tests += "    def test_tail(self):\n        self.assertEqual(tail([1, 2]), 2)\n"
    history.commit("Begin", shop_DOT_py=shop, tests__INIT="", tests__test_shop_DOT_py=tests)
    fixed = shop.replace("items[0] if items else 0", "sum(items)")
    history.commit("Totals of two items are wrong", shop_DOT_py=fixed, tests__test_wombat_DOT_py=FIX_TEST)
    words = ("--since", "20y", "--check", "python3 -m unittest discover -t . -s tests")
    words = (*words, "--include-underspecified")
    assert proctor("tasks", "from-history", "shop", "--out", "tasks", *words).returncode == 0

    break_tail = "sed -i -e 's/items.0. if items else 0/sum(items)/' -e 's/items.-1./None/' shop.py"
    (tmp_path / "saboteur.sh").write_text(f"#!/bin/sh\n{break_tail}\n")
    done = proctor("bench", "--task", "tasks", "--agent", f"saboteur=sh {tmp_path}/saboteur.sh", "--json")

    [failure] = json.loads(done.stdout)["failures"]
    assert failure["reason"] == "checks_failed" and "300 of 301" in failure["error"]


def test_tests_that_use_what_a_commit_changed_are_run_with_its_own(proctor, tmp_path: Path):
    history = History(tmp_path / "shop")
    shop = "def total(items):\n    return items[0]\n\n\ndef tail(items):\n    return items[-1]\n"
    tail = "from shop import tail\n\n\ndef test_tail():\n    assert tail([1, 2]) == 2\n"
    cannot = "import shop, nosuchmodule\n"
    unrelated = "def test_nothing():\n    pass\n"
    history.commit("Begin", shop_DOT_py=shop, tests__test_last_DOT_py=tail, tests__test_x_DOT_py=unrelated)
    fixed = shop.replace("items[0]", "sum(items)")
    history.commit("Totals of two items are wrong", shop_DOT_py=fixed, tests__test_two_DOT_py=FIX_TEST)
    history.commit("Cannot be loaded here", tests__test_more_DOT_py=cannot)
    again = fixed.replace("sum(items)", "sum(items, 0)") + "\n\ndef tax(items):\n    return 0\n"
    taxed = "def test_tax():\n    from shop import tax\n    assert tax([]) == 0\n"
    history.commit("No items are taxed", shop_DOT_py=again, tests__test_tax_DOT_py=taxed)
    # Loading plugins, as those of this project, is three quarters of the time of a small pytest.
    check = f"env PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q"
    words = ("--since", "20y", "--check", check, "--include-underspecified")
    mined = json.loads(proctor("tasks", "from-history", "shop", "--out", "tasks", *words, "--json").stdout)

    counts = {task["title"]: (task["passToPass"], task["otherTestFiles"]) for task in mined["tasks"]}
    # The file that cannot be loaded would stop all others: only those of the commit itself are run.
    assert counts == {"Totals of two items are wrong": (1, 1), "No items are taxed": (0, 4)}
    sabotage = "sed -i -e 's/items.0./sum(items)/' -e 's/items.-1./None/' shop.py"
    task = next(task["folder"] for task in mined["tasks"] if task["title"].startswith("Totals"))
    done = proctor("bench", "--task", f"tasks/{task}", "--agent", f"saboteur={sabotage}", "--json")
    [failure] = json.loads(done.stdout)["failures"]
    assert "tests/test_last.py::test_tail" in failure["error"]


def test_related_tests_that_take_too_long_are_not_run(proctor, tmp_path: Path):
    history = History(tmp_path / "shop")
    history.commit("Begin", level_DOT_py="pass\n", tests__level_DOT_sh="sleep 60")
    history.commit(
        "Reach level 1", level_DOT_py="def level_1():\n    pass\n", tests__new_DOT_sh="grep level_1 level.py"
    )
    each = "sh -c 'for each; do sh $each || exit 1; done' sh {tests}"
    words = ("--since", "20y", "--check", each, "--timeout", "2", "--include-underspecified", "--json")
    mined = json.loads(proctor("tasks", "from-history", "shop", "--out", "tasks", *words).stdout)

    assert [(task["failToPass"], task["otherTestFiles"]) for task in mined["tasks"]] == [(1, 1)]


ISSUES = [
    {"number": 11, "title": "How the pull request solved it", "pull_request": {}},
    {
        "number": 12,
        "title": "The total of a basket is too low",
        "body": "Two items cost as much as the first.",
    },
]


def test_a_task_has_the_text_of_its_issue_which_a_model_rewrites_while_the_original_stays(mined):
    (mined["folder"] / "issues.json").write_text(json.dumps(ISSUES))
    (mined["folder"] / "rewritten").mkdir()
    # What was validated already is not validated again.
    shutil.copy(mined["folder"] / "tasks" / "history.jsonl", mined["folder"] / "rewritten")
    words = (*mined["words"][:-4], "--out", "rewritten", *mined["words"][-2:], "--issues", "issues.json")
    done = mined["proctor"](*words, "--statement-model", "scripted/echo", "--json")
    [task] = json.loads(done.stdout)["tasks"]
    folder = mined["folder"] / "rewritten" / task["folder"]
    original = (folder / "original.txt").read_text()
    assert original.startswith("The total of a basket is too low\n")
    assert "Two items cost as much as the first." in original
    assert "bug report" in (folder / f"{task['folder']}.md").read_text(), "the echo of the prompt"
    listed = mined["proctor"]("tasks", "list", "rewritten", "--json")
    assert [each["id"] for each in json.loads(listed.stdout)["tasks"]] == [task["folder"]]


LONG = "A basket costs what one of its items does. " * 4
REQUEST = "Totals of two items are wrong\n\nOnly the first one was counted."


@pytest.mark.parametrize(
    ("body", "told", "sources"),
    [
        ("", REQUEST, ["message", "pull request", "changelog"]),
        # The merge brings another commit, too, so that its text may be about that.
        (LONG.strip(), LONG.strip(), ["message", "changelog"]),
    ],
)
def test_a_task_tells_what_its_pull_request_and_changelogs_say(proctor, tmp_path: Path, body, told, sources):
    history = History(tmp_path / "shop")
    shop = "def total(items):\n    return items[0] if items else 0\n"
    history.commit(
        "Begin",
        shop_DOT_py=shop,
        tests__test_shop_DOT_py=OLD,
        tests__INIT="",
        CHANGES_DOT_md="# 1\n\n- Old\n",
    )
    history.git("checkout", "-q", "-b", "sums")
    fixed = shop.replace("items[0] if items else 0", "sum(items)")
    history.commit(f"Fix it\n\n{body}", shop_DOT_py=fixed, tests__test_wombat_DOT_py=FIX_TEST)
    history.commit(
        "Say so",
        CHANGES_DOT_md="# 1\n\n- A basket of several items costs as much as all of them. (#12)\n- Old\n",
    )
    history.git("checkout", "-q", "main")
    request = f"Merge pull request #12 from ada/sums\n\n{REQUEST} Add tests in test_wombat.py."
    history.git("merge", "-q", "--no-ff", "-m", request, "sums")
    words = ("--since", "20y", "--check", "python3 -m unittest discover -t . -s tests", "--json")

    [task] = json.loads(proctor("tasks", "from-history", "shop", *words).stdout)["tasks"]

    text = (tmp_path / "tasks" / task["folder"] / f"{task['folder']}.md").read_text()
    entry = "A basket of several items costs as much as all of them."
    assert text.endswith(f"---\n# Task: Fix it\n\n{told}\n\n{entry}\n")
    assert task["sources"] == sources
    assert f'"underspecification": {task["underspecification"]}'.replace('"', "") in text.replace('"', "")


def test_a_commit_with_only_a_title_becomes_a_task_on_request(proctor, tmp_path: Path):
    history = History(tmp_path / "shop")
    shop = "def total(items):\n    return items[0] if items else 0\n"
    history.commit("Begin", shop_DOT_py=shop, tests__test_shop_DOT_py=OLD, tests__INIT="")
    fixed = shop.replace("items[0] if items else 0", "sum(items)")
    history.commit("Fix the totals of baskets", shop_DOT_py=fixed, tests__test_wombat_DOT_py=FIX_TEST)
    words = (*MINE, "--json", "--check", "python3 -m unittest discover -t . -s tests")

    left_out = json.loads(proctor(*words).stdout)
    included = json.loads(proctor(*words, "--include-underspecified").stdout)

    assert left_out["tasks"] == [] and left_out["rejected"][0]["reason"] == "underspecified: only a title"
    assert [task["underspecification"] for task in included["tasks"]] == [0.8]


def test_paragraphs_about_the_solution_are_removed_and_file_names_stay_with_hints():
    title, _ = title_and_body(FIX_MESSAGE, ["shop.py"], hints=True)
    assert title == "Totals of more than one item are wrong in shop.py"
    message = "[Fix] `parse`: null crashes at lib/a.js:12\n\nIt throws on line 3.\n\nThe fix wraps it.\n"
    assert title_and_body(message, ["lib/a.js"], hints=False) == (
        "`parse`: null crashes at the code",
        "It throws.",
    )
    assert "wraps" in title_and_body(message, ["lib/a.js"], hints=True)[1]


def test_runs_decide():
    passed, failed = {"a": "passed", "b": "passed"}, {"a": "passed", "b": "failed"}
    task = judge_runs("c", failed, [passed, passed, passed])
    assert (task.state, task.fail_to_pass, task.pass_to_pass) == ("task", ("b",), ("a",))
    assert judge_runs("c", failed, [passed, failed, passed]).state == "flaky"
    assert judge_runs("c", passed, [passed]).state == "rejected"
    assert judge_runs("c", {}, [{}]).reason == "the tests report no result"
    kept = judge_runs("c", {"a": "passed"}, [passed, {"b": "passed", "a": "failed"}, passed])
    assert (kept.state, kept.pass_to_pass) == ("task", ()), "a wavering test that passed before is dropped"


def test_a_folder_that_is_no_repository_is_refused(proctor, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    done = proctor("tasks", "from-history", "empty")
    assert done.returncode == 2
    assert "not a git repository" in done.stderr
    History(tmp_path / "new")
    assert "reading the history of " in proctor("tasks", "from-history", "new").stderr


def test_the_tree_of_a_killed_miner_is_removed_and_its_programs_are_ended(tmp_path: Path):
    make_history(tmp_path / "shop")
    home = tmp_path / "home"
    mark = tmp_path / "started"
    script = (
        "import asyncio, os, sys\nfrom datetime import UTC, datetime\nfrom pathlib import Path\n"
        "from proctor.sandbox import NOT_CONFINED\n"
        "from proctor.tasks.history import HistoryMiner, MiningOptions\n"
        "folder = Path(sys.argv[1])\n"
        "options = MiningOptions(repo=folder / 'shop', out=folder / 'tasks', since='20y', parallel=1,\n"
        "    check=f'touch {folder}/started; sleep 600')\n"
        "miner = HistoryMiner(options, home=folder / 'home', environment=dict(os.environ),\n"
        "    sandbox=NOT_CONFINED, now=datetime(2026, 2, 1, tzinfo=UTC))\n"
        "asyncio.run(miner.mine())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    try:
        eventually(mark.exists)
        [lock] = (home / "worktrees").glob("history-*.lock")
        remove_abandoned(home)
        assert lock.exists() and lock.with_suffix("").is_dir(), "a running miner keeps its trees"
    finally:
        process.kill()
        process.wait()
    remove_abandoned(home)
    assert list((home / "worktrees").iterdir()) == []
    assert end_attempt(lock.stem) == [], "its programs have ended"


@pytest.mark.parametrize(("parallel", "most", "validated"), [(1, 2, 2), (3, 30, 3)])
async def test_commits_are_validated_from_the_newest_on_until_there_are_enough_tasks(
    tmp_path: Path, parallel: int, most: int, validated: int
):
    commits = levels(tmp_path / "shop", 3).git("log", "--format=%H", "-3").split()
    seen: list[str] = []

    mining = miner(tmp_path, since="20y", check="sh tests/check.sh", parallel=parallel, max_tasks=most)
    result = await mining.mine(lambda candidate, validation: seen.append(candidate.commit))

    newest = commits[:validated]
    assert (seen if parallel == 1 else sorted(seen)) == (newest if parallel == 1 else sorted(newest))
    assert [task.commit for task in result.tasks] == newest
    texts = [(tmp_path / "out" / task.folder / f"{task.folder}.md").read_text() for task in result.tasks]
    # What the repository names already is not told.
    assert ["new names" in text for text in texts] == [False, *[True] * (validated - 1)]
    assert "Tests use these new names:\n\n- `def level_2()`\n" in texts[1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"setup": "echo no; exit 3"}, "setup failed: `echo no; exit 3` exited with 3: no"),
        ({"check": "sleep 30", "timeout": 0.2}, "the tests were still running after 0.2 s"),
    ],
)
async def test_a_commit_that_cannot_be_validated_is_rejected_with_the_reason(tmp_path, options, reason):
    make_history(tmp_path / "shop", later="Release: ")

    result = await miner(tmp_path, since="20y", **options).mine()

    assert result.tasks == [] and reason in {each.reason for each in result.rejected}


def script(test: str) -> dict[str, str]:
    """A project whose tests are this command of npm."""
    return {"package_DOT_json": json.dumps({"scripts": {"test": test}})}


_WORKFLOW = "_DOT_github__workflows__ci_DOT_yml"
PYTEST = {"pyproject_DOT_toml": "[tool.pytest.ini_options]\n"}
PYTHON = {"tests__test_a_DOT_py": OLD}


@pytest.mark.parametrize(
    ("files", "command", "source"),
    [
        (PYTHON, "python3 -m unittest", "its test files"),
        (
            {**PYTHON, "tests__test_b_DOT_py": "def test_it(): pass\n"},
            "python3 -m pytest -q",
            "its test files",
        ),
        (PYTEST, "python3 -m pytest -q", "pyproject.toml"),
        ({**PYTEST, "src__a_DOT_py": ""}, "env PYTHONPATH=src python3 -m pytest -q", "pyproject.toml"),
        (PYTEST | script("jest"), "python3 -m pytest -q", "pyproject.toml"),
        (script("eslint . && jest --runInBand"), "npx jest --runInBand", "package.json"),
        (script("tsc && vitest --coverage"), "npx vitest run", "package.json"),
        (script("eslint . && jest --ci ; echo done"), "npx jest --ci", "package.json"),
        (script("mocha 'test/*.js' | cat"), "npx mocha 'test/*.js'", "package.json"),
        (script("tape test.js"), "npx tape test.js", "package.json"),
        (script("tsc; node --import x --test d && true"), "node --import x --test d", "package.json"),
        (script("echo"), "npm test", "package.json"),
        (
            {
                "package_DOT_json": json.dumps(
                    {
                        "scripts": {
                            "test": "npm run tests-only",
                            "tests-only": "nyc tape 'test/**/*.js'",
                            "posttest": "npx npm audit",
                        }
                    }
                )
            },
            "npx tape 'test/**/*.js'",
            "package.json",
        ),
        ({"pom_DOT_xml": "<project/>"}, "mvn -q -B -o test", "pom.xml"),
        ({"pom_DOT_xml": "<project/>", "mvnw": ""}, "./mvnw -q -B -o test", "pom.xml"),
        ({"package_DOT_json": "{"}, "npm test", "package.json"),
        ({"go_DOT_mod": "module x"}, "go test ./...", "go.mod"),
        ({"Cargo_DOT_toml": "[package]"}, "cargo test", "Cargo.toml"),
        ({"Makefile": "all:\n\ttrue\ntest:\n\ttrue\n"}, "make test", "Makefile"),
        ({"Makefile": "tests:\n\ttrue\n"}, "", ""),
        (script("mocha test") | {"tests__a_DOT_js": ""}, "npx mocha test", "package.json"),
        (
            {
                "package_DOT_json": json.dumps(
                    {
                        "scripts": {
                            "lint": "eslint src",
                            "build": "babel src -d .",
                            "pretest": "npm run build && npm run lint && tsc --noEmit && rimraf old",
                            "test": "nyc --reporter=text mocha --require @babel/register test",
                        }
                    }
                )
            },
            "npm run build && npx rimraf old && npx mocha --require @babel/register test",
            "package.json",
        ),
        (
            {
                **PYTHON,
                "tox_DOT_ini": "[testenv]\nchangedir = tests\ncommands = {envpython} runtests.py {posargs}\n",
            },
            "cd tests && python3 runtests.py",
            "tox.ini",
        ),
        (
            {
                **PYTHON,
                "tox_DOT_ini": "[testenv]\ncommands =\n  flake8 .\n  python -m unittest {posargs:tests}\n",
            },
            "python3 -m unittest tests",
            "tox.ini",
        ),
        (
            {
                **PYTHON,
                "noxfile_DOT_py": 'def tests(it):\n    session.run("python", "-m", "unittest", "tests")\n',
            },
            "python3 -m unittest tests",
            "noxfile.py",
        ),
        ({**PYTHON, "noxfile_DOT_py": 'session.run("pytest")\n'}, "python3 -m pytest -q", "noxfile.py"),
        ({**PYTHON, "requirements__dev_DOT_txt": "pytest\n"}, "python3 -m pytest -q", "requirements/dev.txt"),
        (
            {_WORKFLOW: 'a: {b: [{run: npm i}, {run: "./configure\\n./gradlew --info test"}]}'},
            "./gradlew --info test",
            ".github/workflows/ci.yml",
        ),
    ],
)
def test_the_tests_of_projects_are_known_by_their_files(tmp_path, files, command, source):
    repository = History(tmp_path / "shop")
    repository.commit("Begin", **files)
    git = Git(repository.folder, {"PATH": "/usr/bin:/bin"})
    if command:
        assert guess_check(git) == (command, source)
        return
    with pytest.raises(UsageError, match="shop runs its tests is not known\nGive the command:  --check"):
        guess_check(git)


DEPENDENT = {"devDependencies": {"mocha": "1"}, "scripts": {"test": "mocha"}}


@pytest.mark.parametrize(
    ("files", "setup"),
    [
        (
            {"package_DOT_json": json.dumps(DEPENDENT)},
            "npm install --no-audit --no-fund --no-package-lock --legacy-peer-deps",
        ),
        ({"package_DOT_json": json.dumps(DEPENDENT), "yarn_DOT_lock": ""}, "yarn install --frozen-lockfile"),
        (script("mocha"), ""),
        ({"Cargo_DOT_toml": "[dependencies]\nserde = '1'\n"}, "cargo fetch"),
        ({"Cargo_DOT_toml": "[package]\nname = 'a'\n"}, ""),
        ({"go_DOT_mod": "module x\nrequire y v1.0.0\n"}, "go mod download"),
        ({"pom_DOT_xml": "<project/>"}, "mvn -q -B test -Dmaven.test.failure.ignore"),
        (PYTEST, ""),
    ],
)
def test_what_tests_need_is_installed_as_the_files_of_a_project_say(tmp_path, files, setup):
    repository = History(tmp_path / "shop")
    repository.commit("Begin", **files)

    assert guess_commands(Git(repository.folder, {"PATH": "/usr/bin:/bin"})).setup == setup


def test_options_are_proposed_where_a_python_package_is_missing(proctor, tmp_path: Path):
    repository = History(tmp_path / "shop")
    project = '[project.optional-dependencies]\ntest = ["pytest"]\n[tool.pytest.ini_options]\n'
    repository.commit("Begin", pyproject_DOT_toml=project)
    repository.commit(
        "Add the first level\n\nIt has three stars and no enemies at all.",
        a_DOT_py="1",
        tests__test_a_DOT_py="import a",
    )
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'No module named pytest'\nexit 1\n")
    program.chmod(0o755)

    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = proctor("tasks", "from-history", "shop", "--since", "20y", environment={"PATH": path})

    assert (
        "\nTry:  --setup 'python3 -m venv .venv && .venv/bin/python -m pip install -q -e \".[test]\" pytest' "
        "--check '.venv/bin/python -m pytest -q'\n"
    ) in done.stderr


def test_mined_tasks_are_reviewed_and_rejected_ones_stay_away(proctor, tmp_path: Path):
    levels(tmp_path / "shop", 3)
    words = (*MINE, "--check", "sh tests/check.sh", "--json")
    mined = [task["folder"] for task in json.loads(proctor(*words).stdout)["tasks"]]
    page = (tmp_path / "tasks" / "review.html").read_text()
    for part in (
        "# Task: Reach level 3",
        "+def level_3():",
        "grep -q level_3 level.py",
        ">Accept<",
        ">Reject<",
    ):
        assert part in page
    statement = "# Task: Reach the third level\n\nOnly who has all stars gets to it."
    saved = {mined[0]: {"decision": "accepted", "statement": statement}, mined[1]: {"decision": "rejected"}}
    (tmp_path / "review.json").write_text(json.dumps({"decisions": saved}))

    done = proctor("tasks", "review", "tasks", "--decisions", "review.json", "--json")

    states = {task["task"]: task["decision"] for task in json.loads(done.stdout)["tasks"]}
    assert states == {mined[0]: "accepted", mined[1]: "rejected", mined[2]: "open"}
    listed = json.loads(proctor("tasks", "list", "tasks", "--json").stdout)["tasks"]
    assert sorted(task["title"] for task in listed) == [
        "Reach level 1, as players have asked", "Reach the third level"
    ]  # fmt: skip
    again = json.loads(proctor(*words).stdout)
    assert len(again["tasks"]) == 2 and "rejected in review" in {one["reason"] for one in again["rejected"]}
    back = proctor("tasks", "review", "tasks", "--accept", mined[1])
    assert back.returncode == 0 and (tmp_path / "tasks" / mined[1]).is_dir()
    nobody = proctor("tasks", "review", "tasks", "--reject", "nobody")
    assert nobody.returncode == 2 and "no task `nobody` in tasks" in nobody.stderr
