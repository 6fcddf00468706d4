"""Tasks of other formats through `proctor bench` and `proctor tasks`: the oracle passes, a no-op fails."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.testing import make_git_repository

DOUBLE = 'def double(x: int) -> int:\n    """Twice x."""\n'
FUNCTION = {
    "task_id": "Own/0",
    "prompt": DOUBLE,
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(4) == 8\n",
}


def outcomes(proctor: Any, task: str, *words: str) -> dict[str, str]:
    """Status by model of a benchmark of one task."""
    done = proctor("bench", "--task", task, *words, "--json")
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert "comparison" in document, done.stdout
    return {
        model["model"]: next(
            name for name in ("success", "fail", "timeout", "error") if model["counts"].get(name)
        )
        for model in document["comparison"]["models"]
    }


def test_a_dataset_is_one_call_of_each_model_for_each_row(proctor: Any) -> None:
    (proctor.folder / "rows.csv").write_text("prompt,expected\nSay OK,OK\n")

    found = outcomes(proctor, "rows.csv", "--models", "scripted/ok,scripted/echo")

    assert found == {"scripted/ok": "success", "scripted/echo": "fail"}


def test_a_dry_run_and_a_list_say_what_was_read_and_what_was_not(proctor: Any) -> None:
    (proctor.folder / "own.jsonl").write_text(json.dumps(FUNCTION) + "\n{\n")

    planned = proctor.json("bench", "--task", "own.jsonl", "--oracle", "--dry-run")
    document = proctor.json("tasks", "list", "own.jsonl")

    assert planned["commands"] == ["python3 -B proctor_check.py"]
    assert any("1 humaneval task; 1 not read" in remark for remark in planned["remarks"])
    assert [(task["id"], task["format"], task["hasSolution"]) for task in document["tasks"]] == [
        ("Own/0", "humaneval", True)
    ]
    assert [(each["file"], each["line"]) for each in document["notRead"]] == [("own.jsonl", 2)]
    assert proctor.json("tasks", "show", "own.jsonl")["checkFiles"] == ["proctor_check.py"]


@pytest.fixture
def repository(proctor: Any) -> Path:
    test = "from pkg import total\n\n\ndef test_zero():\n    assert total(1, 0) == 1\n"
    files = {"pkg.py": "def total(a, b):\n    return a - b\n", "test_pkg.py": test, "pytest.ini": PYTEST_INI}
    return make_git_repository(proctor.folder / "pkg", files)


TEST_PATCH = """--- a/test_pkg.py
+++ b/test_pkg.py
@@ -4,2 +4,6 @@
 def test_zero():
     assert total(1, 0) == 1
+
+
+def test_sum():
+    assert total(1, 2) == 3
"""
PATCH = """--- a/pkg.py
+++ b/pkg.py
@@ -1,2 +1,2 @@
 def total(a, b):
-    return a - b
+    return a + b
"""


def swebench_row(repository: Path, **more: object) -> dict[str, object]:
    head = (repository / ".git/refs/heads/main").read_text().strip()
    return {
        "instance_id": "acme__pkg-1",
        "repo": "acme/pkg",
        "base_commit": head,
        "patch": PATCH,
        "test_patch": TEST_PATCH,
        "problem_statement": "The total is wrong.",
        "FAIL_TO_PASS": json.dumps(["test_pkg.py::test_sum"]),
        "PASS_TO_PASS": json.dumps(["test_pkg.py::test_zero"]),
        **more,
    }


@pytest.fixture
def _pytest_on_path(proctor: Any) -> None:
    """`python3` of the commands is the one with pytest."""
    binaries = str(Path(sys.executable).parent)
    proctor.environment["PATH"] = f"{binaries}:{proctor.environment['PATH']}"


PLUGINS = ("schemathesis", "hypothesispytest", "xdist", "asyncio", "anyio")
PYTEST_INI = f"[pytest]\naddopts = {' '.join(f'-p no:{name}' for name in PLUGINS)}\n"
"""To load the plugins that are installed here would take most of the time."""


@pytest.mark.usefixtures("_pytest_on_path")
def test_tests_that_end_the_process_with_exit_code_0_do_not_pass(proctor: Any, repository: Path) -> None:
    cheat = PATCH.replace("+    return a + b", "+    import os; os._exit(0)")
    (proctor.folder / "swe.jsonl").write_text(json.dumps(swebench_row(repository, patch=cheat)) + "\n")

    found = outcomes(proctor, "swe.jsonl", "--repos", f"acme/pkg={repository}", "--oracle")

    assert found == {"oracle": "fail"}


def exercise(folder: Path) -> Path:
    place = folder / "python/exercises/practice/adder"
    files = {"solution": ["adder.py"], "test": ["adder_test.py"], "example": [".meta/example.py"]}
    texts = {
        ".meta/config.json": json.dumps({"files": files, "blurb": "Add."}),
        ".meta/example.py": "def add(a, b):\n    return a + b\n",
        ".docs/instructions.md": "# Instructions\n\nAdd two numbers.\n",
        "adder.py": "def add(a, b):\n    pass\n",
        "pytest.ini": PYTEST_INI,
        "adder_test.py": "from adder import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    }
    for name, text in texts.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place


@pytest.mark.usefixtures("_pytest_on_path")
def test_an_exercise_hides_its_tests_and_answer_and_the_oracle_passes(proctor: Any) -> None:
    exercise(proctor.folder)

    shown = proctor.json("tasks", "show", "python")

    assert (shown["id"], shown["format"]) == ("python/adder", "exercism")
    assert (shown["startFiles"], shown["checkFiles"]) == (["adder.py", "pytest.ini"], ["adder_test.py"])
    assert outcomes(proctor, "python", "--oracle", "--noop") == {"oracle": "success", "noop": "fail"}


def harbor(folder: Path, dockerfile: str = "FROM ubuntu:24.04\nWORKDIR /app\nCOPY data.txt /app/\n") -> Path:
    place = folder / "hello"
    for name in ("environment", "tests", "solution"):
        (place / name).mkdir(parents=True)
    (place / "task.toml").write_text(
        'schema_version = "1.4"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 30\n[environment]\n'
    )
    (place / "instruction.md").write_text("<!-- canary abc -->\n\nCopy /app/data.txt to /app/copy.txt\n")
    (place / "environment/Dockerfile").write_text(dockerfile)
    (place / "environment/data.txt").write_text("hello\n")
    (place / "solution/solve.sh").write_text("cp /app/data.txt /app/copy.txt\n")
    (place / "tests/test.sh").write_text(
        "if cmp -s /app/data.txt /app/copy.txt; then echo 1; else echo 0.25; fi > /logs/verifier/reward.txt\n"
    )
    return place


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_a_harbor_task_runs_at_its_own_paths(proctor: Any) -> None:
    harbor(proctor.folder)

    assert outcomes(proctor, "hello", "--oracle", "--noop") == {"oracle": "success", "noop": "fail"}


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_tasks_get_network_access_only_with_the_users_consent(proctor: Any) -> None:
    place = harbor(proctor.folder)
    (place / "task.toml").write_text(
        '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["example.com"]\n'
        '[verifier]\nnetwork_mode = "public"\n'
    )

    words = ("bench", "--task", "hello", "--noop", "--dry-run")
    refused, granted = proctor.json(*words)["remarks"], proctor.json(*words, "--task-network")["remarks"]

    wish = "(hello: agent example.com, check full)"
    assert f"1 task asks for network access, not granted; --task-network grants it {wish}" in refused
    assert f"1 task asks for network access, granted by --task-network {wish}" in granted
    assert any("agent gateway, check none" in remark for remark in refused)
    assert any("agent example.com, check full" in remark for remark in granted if "confined" in remark)


def test_a_configuration_of_promptfoo_runs_on_its_own_providers_and_the_named_judge(proctor: Any) -> None:
    replies = {
        "polite": 'Sure: {"reason": "r", "score": 0.9, "pass": true}',
        "kind": '{"reason": "r", "score": 0.9, "pass": false}',
        "warm": '{"score": 0.6}',
        "calm": "no JSON at all",
    }
    rules = [{"match": word, "reply": reply} for word, reply in replies.items()]
    (proctor.folder / "judge.yaml").write_text(json.dumps({"rules": rules}))
    rubrics = [f"{{type: llm-rubric, value: is {word}}}" for word in ("polite", "kind", "calm")]
    (proctor.folder / "promptfooconfig.yaml").write_text(
        "prompts: ['Dear {{word}}']\nproviders: [echo]\ndefaultTest: {vars: {word: all}}\ntests:\n"
        "  - assert: [{type: equals, value: Dear all}, {type: latency, threshold: 60000}]\n"
        + "".join(f"  - assert: [{rubric}]\n" for rubric in rubrics)
        + "  - assert: [{type: llm-rubric, value: is warm, threshold: 0.7}]\n"
    )

    done = proctor.json(
        "bench", "--task", "promptfooconfig.yaml", "--judge", "scripted/judge", "--output", "out"
    )

    assert [model["model"] for model in done["comparison"]["models"]] == ["scripted/echo"]
    [file] = (proctor.folder / "out").glob("*_result.json")
    found = {each["task"]: each["status"] for each in json.loads(file.read_text())["runs"]}
    expected = ("success", "success", "fail", "fail", "fail")
    assert found == {f"test-{number}": status for number, status in enumerate(expected, 1)}


def test_a_batch_plan_may_name_tasks(proctor: Any) -> None:
    (proctor.folder / "rows.csv").write_text("prompt,expected\nSay OK,OK\n")
    (proctor.folder / "plan.yaml").write_text("tasks: rows.csv\nmodel: [scripted/ok]\nruns: 2\n")

    document = proctor.json("batch", "plan.yaml", "--dry-run")
    wrong = proctor("batch", "plan.yaml", "--resume")

    assert [item["task"] for item in document["items"]] == ["rows-2", "rows-2"]
    assert "proctor resume RUN" in wrong.stderr


def task_of_one_file(folder: Path) -> None:
    (folder / "tasks/fix/start").mkdir(parents=True)
    (folder / "tasks/fix/start/a.txt").write_text("open\n")
    header = "start: fix/start\ncheck: grep -q done a.txt\n"
    (folder / "tasks/fix.md").write_text(f"---\n{header}---\n# Task: Fix it\n\nWrite done.\n")


AGENTS = ("good=echo done > a.txt", "bad=true")


def test_agents_of_a_benchmark_are_compared_with_each_other(proctor: Any) -> None:
    task_of_one_file(proctor.folder)
    words = ("bench", "--task", "tasks", *(word for agent in AGENTS for word in ("--agent", agent)))

    (proctor.folder / "plan.yaml").write_text(json.dumps({"tasks": "tasks", "agent": AGENTS}))

    done = proctor.json(*words, "--output", "out")

    for planned in (proctor.json(*words, "--dry-run"), proctor.json("batch", "plan.yaml", "--dry-run")):
        choices = [(item["model"], item["agent"]) for item in planned["items"]]
        assert choices == [("default", "good"), ("default", "bad")]
    rates = {model["model"]: model["success_rate"]["value"] for model in done["comparison"]["models"]}
    assert rates == {"default (good)": 1, "default (bad)": 0}
    names = sorted(file.name for file in (proctor.folder / "out").glob("*_result.json"))
    assert names == ["default__bad__result.json", "default__good__result.json"]
    resumed = proctor.json("bench", "--resume", "out", "--runs", "2")
    assert [model["success_rate"]["n"] for model in resumed["comparison"]["models"]] == [2, 2]


def test_success_before_and_after_the_end_of_the_training_data_is_told_apart(proctor: Any) -> None:
    for name, day in (("old", "2025-01-31"), ("new", "2026-01-31")):
        (proctor.folder / f"tasks/{name}").mkdir(parents=True)
        (proctor.folder / f"tasks/{name}/{name}.txt").write_text("")
        header = f"start: {name}\ncheck: test -f done\ndate: '{day}'\n"
        (proctor.folder / f"tasks/{name}.md").write_text(f"---\n{header}---\n# Task: {name}\n\nDo it.\n")
    model = {"name": "echo", "provider": "scripted", "enabled": True, "cutoff": "2025-06"}
    (proctor.folder / "models_config.yaml").write_text(json.dumps({"models": [model]}))

    words = ("--models", "echo", "--agent", "recalls=test ! -f old.txt || touch done", "--output", "out")
    done = proctor("bench", "--task", "tasks", *words)

    assert "of 1 runs before" in done.stdout, done.stderr
    assert "after the end of its training data" in done.stdout
    report = json.loads((proctor.folder / "out/comparison_report.json").read_text())
    [figures] = report["models"]
    rates = [figures[f"success_rate_{when}_cutoff"]["value"] for when in ("before", "after")]
    assert rates == [1.0, 0.0]
    assert "Newer tasks" in (proctor.folder / "out/comparison_report.html").read_text()


def test_checking_finds_flaky_checks(proctor: Any) -> None:
    folder = proctor.folder / "tasks"
    (folder / "fix/solution").mkdir(parents=True)
    (folder / "fix/solution/done.txt").write_text("done\n")
    mark = proctor.folder / "mark"
    check = f"test -f done.txt && if test -f {mark}; then rm {mark}; false; else touch {mark}; fi"
    header = {"solution": "fix/solution", "check": check, "sandbox": "none", "empty": True}
    (folder / "fix.md").write_text(f"---\n{json.dumps(header)}\n---\n# Task: Fix it\n\nWrite done.\n")

    done = proctor("tasks", "check", "tasks", "--runs", "2", "--parallel", "1", "--json")

    [task] = json.loads(done.stdout)["tasks"]
    assert (task["oracle"], task["noop"], task["ok"]) == ("flaky", "fail", False)
    assert "the check is flaky" in task["note"]


def test_a_plan_of_tasks_reports_unknown_keys_at_their_place(proctor: Any) -> None:
    (proctor.folder / "plan.yaml").write_text("tasks: rows.csv\nmodles: scripted/ok\n")

    done = proctor("batch", "plan.yaml")

    assert done.returncode == 2
    assert "plan.yaml:2:1" in done.stderr and "model" in done.stderr


def test_checking_finds_tasks_that_pass_without_work_or_not_at_all_and_duplicates(proctor: Any) -> None:
    rows = [
        FUNCTION,
        {**FUNCTION, "task_id": "Own/wrong", "canonical_solution": "    return 3 * x\n"},
        {
            **FUNCTION,
            "task_id": "Own/idle",
            "prompt": "def idle():\n    return 1\n",
            "entry_point": "idle",
            "test": "def check(f):\n    pass\n",
        },
    ]
    (proctor.folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    done = proctor("tasks", "check", "own.jsonl", "--runs", "1", "--json")

    found = {task["id"]: task for task in json.loads(done.stdout)["tasks"]}
    assert done.returncode == 1
    assert {name: (task["oracle"], task["noop"], task["ok"]) for name, task in found.items()} == {
        "Own/0": ("pass", "fail", True),
        "Own/wrong": ("fail", "fail", False),
        "Own/idle": ("pass", "pass", False),
    }
    assert found["Own/wrong"]["duplicateOf"] == "Own/0"


def test_converted_tasks_are_tasks_of_our_own_that_the_oracle_passes(proctor: Any) -> None:
    (proctor.folder / "own.jsonl").write_text(json.dumps(FUNCTION) + "\n")

    converted = proctor.json("tasks", "convert", "own.jsonl", "--out", "own")

    assert [Path(file).name for file in converted["files"]] == ["Own_0.md"]
    assert outcomes(proctor, "own", "--oracle", "--noop") == {"oracle": "success", "noop": "fail"}


@pytest.mark.usefixtures("_pytest_on_path")
def test_a_swebench_row_is_judged_by_its_named_tests_and_its_patches_are_predictions(proctor, repository):
    (proctor.folder / "swe.jsonl").write_text(json.dumps(swebench_row(repository)) + "\n")

    words = ("--repos", f"acme/pkg={repository}", "--oracle", "--noop", "--predictions", "preds.jsonl")
    found = outcomes(proctor, "swe.jsonl", *words)

    assert found == {"oracle": "success", "noop": "fail"}
    lines = [json.loads(line) for line in (proctor.folder / "preds.jsonl").read_text().splitlines()]
    patches = {line["model_name_or_path"]: line["model_patch"] for line in lines}
    assert {line["instance_id"] for line in lines} == {"acme__pkg-1"}
    assert "+    return a + b" in patches["oracle"] and "test_sum" not in patches["oracle"]
    assert patches["noop"] == ""

    run = proctor.json("runs")["runs"][0]["runId"]
    files = [
        Path(file)
        for file in proctor.json("export", "--run", run, "--format", "swe-bench", "--out", "p")["files"]
    ]
    assert sorted(file.name for file in files) == [
        f"swe-bench-{run}-{name}.jsonl" for name in ("noop", "oracle")
    ]
    exported = [
        json.loads(line) for file in files for line in (proctor.folder / file).read_text().splitlines()
    ]
    assert sorted(exported, key=str) == sorted(lines, key=str)


ASSERTED = """\
prompts: ['{{word}}']
providers: [echo]
defaultTest: {vars: {word: cat}}
tests:
  - {description: plain, assert: [{type: contains, value: cat}]}
  - {description: foreign, assert: [{type: contains, value: cat}, {type: similar, value: dog}]}
  - {description: wrong, assert: [{type: contains, value: dog}, {type: similar, value: dog}]}
  - {description: only foreign, assert: [{type: python, value: 'True'}]}
  - {description: script, assert: [{type: javascript, value: output === context.vars.word}]}
  - {description: script fails, assert: [{type: javascript, value: "return {pass: false, reason: 'no'}"}]}
  - {description: transformed, options: {transform: x}, assert: [{type: contains, value: dog}]}
  - {description: rubric, assert: [{type: llm-rubric, value: It is a cat}]}
"""


def test_tests_of_promptfoo_that_cannot_be_checked_do_not_pass(proctor, tmp_path: Path):
    (tmp_path / "promptfooconfig.yaml").write_text(ASSERTED)

    done = proctor("bench", "--task", "promptfooconfig.yaml", "--json")

    ends = {row["task"]: row for row in json.loads(done.stdout)["comparison"]["results"]}
    shown = {name: "unchecked" if row["unchecked"] else row["status"] for name, row in ends.items()}
    assert shown == {
        "plain": "success",
        "foreign": "unchecked",
        "wrong": "fail",
        "only foreign": "unchecked",
        "script": "success",
        "script fails": "fail",
        "transformed": "unchecked",
        "rubric": "unchecked",
    }


def test_rubrics_are_judged_by_the_judge_of_the_configuration(proctor, tmp_path: Path):
    (tmp_path / "promptfooconfig.yaml").write_text(ASSERTED)
    (tmp_path / "proctor.toml").write_text('[evaluation]\njudge = "scripted/judge"\n')

    done = proctor("bench", "--task", "promptfooconfig.yaml", "--dry-run", "--json")

    assert "names no judge" not in done.stdout + done.stderr
    assert "`similar` has no equivalent" in done.stdout


def test_a_folder_is_read_although_a_table_of_it_is_not_utf8(proctor, tmp_path: Path):
    folder = tmp_path / "sets"
    folder.mkdir()
    (folder / "a.csv").write_bytes("question,answer\nCaf\u00e9?,oui\n".encode("cp1252"))
    (folder / "b.jsonl").write_bytes(b'{"question": "Caf\xe9?"}\n')
    (folder / "c.csv").write_text("question,answer\nTea?,yes\n")
    (folder / "d.csv").write_bytes("question,answer\nMilk?,no\n".encode("utf-16"))
    (folder / "package.json").write_text('{"name": "shop", "scripts": {"test": "x"}}')

    read = json.loads(proctor("tasks", "list", "sets", "--json").stdout)

    assert [task["title"] for task in read["tasks"]] == ["Caf\u00e9?", "Tea?", "Milk?"]
    assert [(Path(each["file"]).name, each["reason"]) for each in read["skipped"]] == [
        ("a.csv", "line 2 is not valid UTF-8; read as Windows-1252"),
        ("b.jsonl", "this is no UTF-8"),
    ]
