"""Sealed tasks: an agent that hunts for the answer finds nothing, and tests it changed decide nothing."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from histories import FIXED, TEST_FILE, TOKEN, make_history

from proctor.jobs.benchmark.job import commits_of
from proctor.jobs.benchmark.models import Candidate
from proctor.jobs.benchmark.plan import OWN_MODEL, BenchmarkDefinition, agent_choices
from proctor.sandbox import NOT_CONFINED, problem_of
from proctor.tasks.formats import read_task_set
from proctor.tasks.history import HistoryMiner, MiningOptions
from proctor.tasks.markdown import read_task
from proctor.tasks.task import ReadOptions, Task
from scripted_benchmarks import Scripted, run_benchmark

GIT_HUNT = (
    "git log --all --oneline --stat",
    "git log --all -p -S{token}",
    "git reflog --all; git log -g --all --oneline",
    "git cat-file --batch-all-objects --batch-check",
    "git cat-file --batch-all-objects --batch --buffer",
    "git tag; git branch -a; git for-each-ref; git show-ref",
    "git stash list; git notes list; git replace -l",
    "git fsck --lost-found --unreachable --no-reflogs; git fsck --name-objects",
    "git show {commit}; git show {short}:shop.py; git cat-file -p {commit}",
    "git fetch --all; git remote -v; git config --list --show-origin",
    "cat $(git rev-parse --git-common-dir)/objects/info/alternates",
    "cat $(git rev-parse --git-common-dir)/packed-refs $(git rev-parse --git-common-dir)/shallow",
    "cd $(git rev-parse --git-common-dir); cat HEAD *_HEAD logs/HEAD; find . -type f; grep -r {token} .",
    "cat $(git rev-parse --git-dir)/*HEAD $(git rev-parse --git-dir)/logs/HEAD",
    "env",
)
FILE_HUNT = (
    "find {root} -name {file} -o -name 'test_wombat*'",
    "grep -rIl {token} {root}",
    "grep -rIl {token} .. ~ $TMPDIR",
)


@pytest.fixture
def tmp_path(folder_on_disk: Path) -> Path:
    """Outside of /dev/shm, where sandboxes hide everything."""
    return folder_on_disk


@pytest.fixture(scope="module")
def mined() -> Iterator[dict[str, Any]]:
    """A task of a repository without a checkout, and the commits that its agent must not see."""
    with tempfile.TemporaryDirectory(prefix="proctor-sealed-") as folder:
        yield mine_task(Path(folder))


def mine_task(folder: Path) -> dict[str, Any]:
    _, commits = make_history(folder / "work", later="Release: ")
    subprocess.run(["git", "clone", "-q", "--bare", "work", "shop.git"], cwd=folder, check=True)
    # A checkout of the user's can be read by everything that runs as the user, unless it is confined.
    subprocess.run(["rm", "-r", "work"], cwd=folder, check=True)
    miner = HistoryMiner(
        MiningOptions(
            repo=folder / "shop.git",
            out=folder / "tasks",
            check="python3 -m unittest discover -t . -s tests",
            since="20y",
        ),
        home=folder / "home",
        environment={"PATH": os.environ["PATH"], "HOME": str(folder)},
        sandbox=NOT_CONFINED,
        now=datetime(2026, 2, 1, tzinfo=UTC),
    )
    [task] = asyncio.run(miner.mine()).tasks
    later = [commits[name] for name in ("fix", "same", "flaky", "release")]
    file = folder / "tasks" / task.folder / f"{task.folder}.md"
    return {"folder": folder, "file": file, "later": later, "base": commits["docs"]}


async def run_mined(workshop: Any, mined: dict[str, Any], steps: list[Any], **changes: Any) -> dict[str, Any]:
    """Run the mined task, unconfined unless told otherwise."""
    task = replace(read_task(mined["file"]), **{"sandbox": "none", **changes})
    return await run_task(workshop, task, steps)


async def run_task(workshop: Any, task: Task, steps: list[Any], run_id: str = "run") -> dict[str, Any]:
    """Run any task with a scripted agent; its outcome, and all that was recorded."""
    benchmark = Scripted(
        tasks=(task,),
        models=(Candidate(name="m", model="m", cutoff="2026-01-31"),),
        agents=agent_choices("scripted"),
        commits=commits_of((task,), {"PATH": os.environ["PATH"]}),
        script=steps,
    )
    return await run_one(workshop, benchmark, run_id)


async def run_one(workshop: Any, benchmark: BenchmarkDefinition, run_id: str) -> dict[str, Any]:
    """Run the one item of a benchmark."""
    await run_benchmark(workshop, benchmark, run_id)
    [item] = workshop.items(run_id)
    read = workshop.store.read
    return {
        "outcome": (item["status"], item["reason"]),
        "error": item["error"],
        "branch": read.session(item["sessionId"])["branch"],
        "factors": next(benchmark.items()).factors,
        "scores": {row["evaluator"]: row for row in read.of_session("scores", item["sessionId"])},
        "notes": read.session(item["sessionId"])["notes"],
        "results": [str(row["result"]) for row in read.of_session("tool_calls", item["sessionId"])],
    }


def write(path: str, content: str) -> dict[str, Any]:
    """A step of the scripted agent."""
    return {"write": {"path": path, "content": content}}


CONFINED = pytest.mark.skipif(bool(problem_of("bubblewrap")), reason=problem_of("bubblewrap"))


@pytest.mark.parametrize(
    ("sandbox", "sealed"),
    [
        ("none", True),
        pytest.param("bubblewrap", True, marks=CONFINED),
        pytest.param("bubblewrap", False, marks=CONFINED),
    ],
)
async def test_an_agent_that_hunts_for_the_answer_finds_nothing(workshop, mined, sandbox, sealed):
    names = {"token": TOKEN, "file": TEST_FILE, "root": mined["folder"], "commit": mined["later"][0]}
    names["short"] = mined["later"][0][:10]
    commands = [command.format(**names) for command in (*GIT_HUNT, *FILE_HUNT)]
    steps = [{"run": f"({command}) 2>&1 | sed 's/^/> /'"} for command in commands]
    ran = await run_mined(workshop, mined, steps, sandbox=sandbox, sealed=sealed)
    assert ran["outcome"] == ("fail", "checks_failed")
    assert len(ran["results"]) == len(commands)
    home = workshop.folder / "home"
    [alternates] = (home / "worktrees").glob("*/work/git/objects/info/alternates")
    borrowed = [Path(line) for line in alternates.read_text().splitlines()]
    assert all(folder.is_relative_to((home / "bases").resolve()) for folder in borrowed)
    assert "Explain the shop" in ran["results"][0], "the history up to the base commit is there"
    for command, result in zip(commands, ran["results"], strict=True):
        # Its own words in an error message are no answer; the statement names the interface.
        lines = [line for line in result.splitlines() if "PROCTOR_PROMPT" not in line]
        text = "\n".join(line for line in lines if not line.startswith(("> fatal:", "> error:")))
        text = text.replace(f"> - `def {TOKEN}(items)`", "")
        for secret in (TOKEN, TEST_FILE, "v1.0", *mined["later"]):
            assert secret not in text, f"{command}\n{text}"


def test_the_users_repository_has_what_the_hunt_does_not_find(mined):
    words = ["git", "cat-file", "--batch-all-objects", "--batch"]
    printed = subprocess.run(words, cwd=mined["folder"] / "shop.git", capture_output=True, check=True).stdout
    assert TOKEN.encode() in printed, "else the hunt above would prove nothing"


async def test_the_reference_solution_passes_whatever_the_agent_did_to_the_tests(workshop, mined):
    cheats = [write("tests/test_shop.py", "broken("), write(".github/workflows/ci.yml", "jobs: {}\n")]
    ran = await run_mined(workshop, mined, [write("shop.py", FIXED), *cheats])
    assert ran["outcome"] == ("success", "completed"), ran["error"]
    assert ran["scores"]["hidden tests"]["value"] == 1.0
    assert ran["scores"]["hidden tests"]["evaluatorDigest"] == "", "scores of different tasks are comparable"
    changed = ran["scores"]["changed tests"]
    assert changed["label"] == "changed"
    assert changed["explanation"] == ".github/workflows/ci.yml, tests/test_shop.py"
    assert ran["factors"]["after_cutoff"] == "no"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("shop.py", "import os\nos._exit(0)\n"),
        ("shop.py", "import sys\nsys.exit(0)\n"),
        ("tests/test_wombat.py", "import unittest\n"),
        ("tests/__init__.py", "import os\nos._exit(0)\n"),
        ("sitecustomize.py", "import os\nos._exit(0)\n"),
    ],
)
async def test_green_exits_without_the_work_fail(workshop, mined, path, content):
    ran = await run_mined(workshop, mined, [write(path, content)])
    assert ran["outcome"] == ("fail", "checks_failed")
    assert ran["scores"]["hidden tests"]["value"] == 0.0
    is_noted = "refers to the test runner: shop.py: os._exit(0)" in ran["notes"]
    assert is_noted == (path == "shop.py" and "os._exit" in content)
    assert ran["scores"]["changed tests"]["label"] == ("unchanged" if path == "shop.py" else "changed")
    assert not list(Path(mined["folder"]).rglob(TEST_FILE)), "hidden tests leave nothing behind"


NO_WORK = "def total(items):\n    return 0\n\n\ndef quokka_total(items):\n    return total(items)\n"
"""Has the interface, and does nothing."""
ALL_PASS = (
    "import unittest\n"
    "def run(self, result=None):\n"
    "    result.startTest(self); result.addSuccess(self); result.stopTest(self)\n"
    "unittest.TestCase.run = run\n"
)
"""Makes every test pass where it is loaded."""
PLANT_BYTECODE = """echo __pycache__ > .gitignore; python3 - <<'END'
import importlib.util, marshal, os, struct
about = os.stat("tests/__init__.py")
head = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(about.st_mtime), about.st_size)
place = importlib.util.cache_from_source("tests/__init__.py")
os.makedirs(os.path.dirname(place), exist_ok=True)
open(place, "wb").write(head + marshal.dumps(compile(open("evil.txt").read(), "x", "exec")))
END"""
PLANT_IN_HOME = (
    "place=$(python3 -c 'import site; print(site.getusersitepackages())') && mkdir -p \"$place\""
    ' && cp evil.txt "$place/usercustomize.py"'
)
WATCH = "(while true; do cat evil.txt > tests/__init__.py; sleep 0.05; done) > /dev/null 2>&1 &"


@pytest.mark.parametrize("command", [PLANT_BYTECODE, PLANT_IN_HOME, WATCH])
async def test_what_an_agent_plants_outside_its_commits_decides_nothing(workshop, mined, command):
    steps = [write("shop.py", NO_WORK), write("evil.txt", ALL_PASS), {"run": command}]
    ran = await run_mined(workshop, mined, steps)
    assert ran["outcome"] == ("fail", "checks_failed")
    assert ran["scores"]["hidden tests"]["value"] == 0.0


@CONFINED
@pytest.mark.parametrize("attack", ["os.kill(os.getppid(), 9)", "os.kill(-1, 9)", "os.kill(os.getpid(), 9)"])
async def test_an_agent_that_kills_its_hidden_tests_has_failed(workshop, mined, attack):
    """Not an error, which would leave its failure out of the rate."""
    steps = [write("shop.py", f"import os\n{attack}\n{NO_WORK}")]
    ran = await run_mined(workshop, mined, steps, sandbox="bubblewrap")
    assert ran["outcome"] == ("fail", "checks_failed")
    assert ran["scores"]["hidden tests"]["value"] == 0.0


AT_EXIT = "import atexit, glob, os\natexit.register(lambda: [open(r, 'w') for r in glob.glob('*.report')])\n"


@pytest.mark.parametrize("attack", [ALL_PASS, AT_EXIT])
async def test_code_that_reaches_into_its_tests_is_noted(workshop, mined, attack):
    """It shares their process, and can forge their report."""
    ran = await run_mined(workshop, mined, [write("shop.py", attack + NO_WORK)])
    assert "it refers to the test runner: shop.py: " in ran["notes"]


async def test_a_module_in_place_of_the_test_runner_is_left_out_and_reported(workshop, mined):
    passed = {"tests.test_wombat.Wombat.test_two": "passed", "tests.test_shop.Totals.test_empty": "passed"}
    forged = f"import json, sys\njson.dump({passed}, open(sys.argv[1], 'w'))\n"
    steps = [write(path, forged) for path in ("unittest.py", "src/_pytest/__init__.py")]
    ran = await run_mined(workshop, mined, steps)
    assert ran["outcome"] == ("fail", "checks_failed")
    assert ran["scores"]["changed tests"]["explanation"] == "src/_pytest/__init__.py, unittest.py"


@pytest.fixture(scope="module")
def row(mined: dict[str, Any]) -> Task:
    """The same task as a row of SWE-bench."""
    repository, fix = mined["folder"] / "shop.git", mined["later"][0]

    def patch(*paths: str) -> str:
        words = ("git", "diff", mined["base"], fix, "--", *paths)
        return subprocess.run(words, cwd=repository, check=True, capture_output=True, text=True).stdout

    file = mined["folder"] / "swe.jsonl"
    swe = {
        "instance_id": "ada__shop-1",
        "repo": "ada/shop",
        "base_commit": mined["base"],
        "patch": patch("shop.py"),
        "test_patch": patch("tests"),
        "problem_statement": "Totals are wrong.",
        "FAIL_TO_PASS": ["tests/test_wombat.py::Wombat::test_two"],
        "PASS_TO_PASS": ["tests/test_shop.py::Totals::test_empty"],
        "created_at": "2026-01-04T12:00:00Z",
    }
    file.write_text(json.dumps(swe))
    # To load the plugins of pytest that are installed here would take most of the time.
    python = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {shlex.quote(sys.executable)}"
    check = f'{python} -m pytest -q --junitxml="$PROCTOR_TEST_REPORT" tests'
    options = ReadOptions(repos={"ada/shop": repository}, check=check)
    [task] = read_task_set(file, options).tasks
    return replace(task, sandbox="none")


async def test_a_row_of_swe_bench_is_sealed_as_a_mined_task_is(workshop, mined, row):
    names = {"token": TOKEN, "commit": mined["later"][0], "short": mined["later"][0][:10]}
    steps = [{"run": f"({each.format(**names)}) 2>&1 | sed 's/^/> /'"} for each in GIT_HUNT]
    ran = await run_task(workshop, row, steps)
    assert ran["outcome"] == ("fail", "checks_failed")
    text = "\n".join(ran["results"])
    lines = [line for line in text.splitlines() if not line.startswith(("> fatal:", "> error:"))]
    for secret in (TOKEN, "test_wombat", "v1.0", *mined["later"]):
        assert not [line for line in lines if secret in line]
    assert ran["factors"]["after_cutoff"] == "no"


async def test_a_row_of_swe_bench_has_its_tests_restored_and_changes_reported(workshop, mined, row):
    cheats = [
        write("tests/test_wombat.py", "broken("),
        write("conftest.py", "raise SystemExit(0)\n"),
        write("pytest.ini", "[pytest]\naddopts = --collect-only\n"),
    ]
    ran = await run_task(workshop, row, [write("shop.py", FIXED), *cheats])
    assert ran["outcome"] == ("success", "completed"), ran["error"]
    changed = "conftest.py, pytest.ini, tests/test_wombat.py"
    assert ran["scores"]["changed tests"]["explanation"] == changed


async def test_a_report_hook_of_the_agent_does_not_pass_a_row(workshop, row):
    hook = (
        "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport():\n"
        "    result = (yield).get_result()\n    result.outcome = 'passed'\n"
    )
    ran = await run_task(workshop, row, [write("shop.py", NO_WORK), write("tests/conftest.py", hook)])
    assert ran["outcome"] == ("fail", "checks_failed")


@CONFINED
async def test_a_confined_agent_cannot_read_an_earlier_solution(workshop, mined):
    task = replace(read_task(mined["file"]), sandbox="bubblewrap")
    solved = await run_task(workshop, task, [write("shop.py", FIXED)], "oracle")
    assert solved["outcome"] == ("success", "completed"), solved["error"]
    stored = b"".join(file.read_bytes() for file in workshop.folder.glob("proctor.db*"))
    assert TOKEN.encode() in stored, "the solution is in the store"

    places = f"{workshop.folder} {mined['folder']} {workshop.folder}/home /tmp ~ .."
    listed = f"{workshop.folder}/proctor.db {mined['file'].parent}"
    hunt = f"grep -rla {TOKEN} {places}; ls {listed}; cat /proc/*/environ"
    ran = await run_task(workshop, task, [{"run": hunt}], "hunt")
    text = "\n".join(line for line in ran["results"][0].splitlines() if "PROCTOR_PROMPT" not in line)
    assert "hidden.tar.xz" not in text
    assert not [line for line in text.splitlines() if line.startswith(("/", "./", "../"))], text


@CONFINED
async def test_a_program_of_the_agent_beside_the_tasks_does_not_open_them(workshop, mined):
    program = mined["folder"] / "agent.sh"
    hunt = f"ls {mined['folder']}; find {mined['folder']} -name 'hidden.tar*'; ls {mined['folder']}/link"
    program.write_text(f"#!/bin/sh\n({hunt}; cat {mined['folder']}/shop.git/HEAD) > seen.txt 2>&1\n")
    program.chmod(0o755)
    (mined["folder"] / "module.txt").write_text("")
    (mined["folder"] / "link").symlink_to(mined["folder"] / "tasks")
    task = replace(read_task(mined["file"]), sandbox="bubblewrap")
    benchmark = BenchmarkDefinition(
        tasks=(task,),
        models=(OWN_MODEL,),
        agents=agent_choices([f"hunter={program}"]),
        path=mined["folder"] / "tasks",
        commits=commits_of((task,), {"PATH": os.environ["PATH"]}),
    )
    ran = await run_one(workshop, benchmark, "hunt")
    assert ran["outcome"] == ("fail", "checks_failed"), ran["error"]
    words = ("git", "show", f"{ran['branch']}:seen.txt")
    repository = mined["folder"] / "shop.git"
    seen = subprocess.run(words, cwd=repository, check=True, capture_output=True, text=True).stdout
    assert "agent.sh" in seen and "module.txt" not in seen, "the program is there, and not its folder"
    assert "hidden.tar" not in seen and "refs/heads" not in seen and "tasks\n" not in seen
