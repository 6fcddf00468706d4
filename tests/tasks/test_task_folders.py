"""Tasks in folders and files of other tools: Harbor, Terminal-Bench, Exercism, and the coding original's."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.tasks.formats import read_task_set
from proctor.tasks.task import ReadOptions


def harbor(folder: Path, toml: str = "", dockerfile: str = "FROM ubuntu\n", test: str = "true\n") -> Path:
    for name in ("environment", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(f'schema_version = "1.4"\n{toml}')
    (folder / "instruction.md").write_text("Do it in /app.\n")
    (folder / "environment/Dockerfile").write_text(dockerfile)
    (folder / "tests/test.sh").write_text(test)
    return folder


@pytest.mark.parametrize(
    ("toml", "dockerfile", "test", "reason"),
    [
        ("", "FROM x\nRUN pip install y\n", "true", "it needs its image, which runs `pip install y`"),
        ("", "FROM x\nCOPY --from=a b c\n", "true", "it needs its image, which copies"),
        ("", "FROM x\nWORKDIR /usr/src\n", "true", "part of the system"),
        ("[environment]\ngpus = 1\n", "FROM x\n", "true", "it needs a GPU"),
        ('[environment]\nos = "windows"\n', "FROM x\n", "true", "it needs Windows"),
        ('[verifier]\nenvironment_mode = "separate"\n', "FROM x\n", "true", "an image of its own"),
        ("", "FROM x\n", "apt-get install -y curl", "install packages of the system"),
        ("[[", "FROM x\n", "true", ""),
    ],
)
def test_a_task_that_needs_its_container_is_not_read_with_the_reason(
    tmp_path: Path, toml: str, dockerfile: str, test: str, reason: str
) -> None:
    harbor(tmp_path / "good")
    harbor(tmp_path / "bad", toml, dockerfile, test)

    found = read_task_set(tmp_path)

    assert [task.name for task in found.tasks] == ["good"]
    (only,) = found.not_read
    assert only.task == "bad" and reason in only.reason


def test_steps_have_their_own_tests_over_those_of_the_task_and_a_least_reward(tmp_path: Path) -> None:
    steps = '[[steps]]\nname = "one"\nmin_reward = 0.5\n[[steps]]\nname = "two"\n'
    folder = harbor(tmp_path / "task", f"[verifier]\ntimeout_sec = 7\n{steps}")
    for name in ("one", "two"):
        (folder / "steps" / name / "tests").mkdir(parents=True)
        (folder / "steps" / name / "instruction.md").write_text(f"Do {name}.\n")
    (folder / "steps/two/tests/test.sh").write_text("echo two\n")

    (task,) = read_task_set(folder).tasks

    (step,) = task.steps
    assert (task.prompt, step.prompt, task.min_reward) == ("Do one.", "Do two.", 0.5)
    assert task.check_files and task.check_files.texts == {"test.sh": "true\n"}
    assert step.check_files and step.check_files.texts == {"test.sh": "echo two\n"}
    assert [check.timeout_seconds for check in (*task.checks, *step.checks)] == [7, 7]


def test_a_terminal_bench_task_has_its_limits_and_hidden_tests(tmp_path: Path) -> None:
    folder = tmp_path / "greet"
    (folder / "tests").mkdir(parents=True)
    (folder / "task.yaml").write_text(
        "# canary\ninstruction: |-\n  Write hello.txt\ndifficulty: easy\nmax_agent_timeout_sec: 50\n"
        "max_test_timeout_sec: 20\n"
    )
    (folder / "docker-compose.yaml").write_text("services: {client: {build: .}}\n")
    (folder / "Dockerfile").write_text("FROM ubuntu\nWORKDIR /app\n")
    (folder / "solution.sh").write_text("echo hello > /app/hello.txt\n")
    (folder / "run-tests.sh").write_text("pytest $TEST_DIR/test_outputs.py -rA\n")
    (folder / "tests/test_outputs.py").write_text("def test_it():\n    pass\n")

    (task,) = read_task_set(folder).tasks

    (check,) = task.checks
    assert (task.format, task.prompt, task.timeout_seconds) == ("terminal-bench", "Write hello.txt", 50)
    assert (check.verdict, check.timeout_seconds) == ("tests", 20)
    assert task.check_files and set(task.check_files.texts) == {"run-tests.sh", "test_outputs.py"}
    assert task.places["/app"] == "work"
    assert (dict(task.network), task.sandbox) == ({}, None)

    (folder / "run-tests.sh").write_text("uv pip install pytest\npytest $TEST_DIR/test_outputs.py -rA\n")
    (task,) = read_task_set(folder).tasks
    assert (dict(task.network), task.sandbox) == ({"check": "full"}, None)


def test_cases_of_the_original_run_their_follow_ups_before_the_check(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "bench.yaml").write_text(
        "version: 1\nname: own\ndefaults: {base_branch: dev, timeout_sec: 60}\nmodels: {a: {name: default}}\n"
        "suites:\n  - id: s\n    cases:\n"
        "      - {id: one, repo: ./repo, prompt: Do, follow_up_prompts: [More, Most], script_command: make}\n"
        "      - {id: two, repo: /nowhere/else, prompt: Do it}\n"
    )

    found = read_task_set(tmp_path / "bench.yaml")

    (task,) = found.tasks
    assert (task.name, task.ref, task.timeout_seconds, task.checks) == ("one", "dev", 60, ())
    assert [(step.prompt, len(step.checks)) for step in task.steps] == [("More", 0), ("Most", 1)]
    assert [(each.task, each.line) for each in found.not_read] == [("two", 9), ("", 4)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "plan.yaml",
            "concurrency: 2\nmatrix:\n  - {repo: r, prompt: Fix, scriptCommand: 'true'}\n",
            ("plan-1", "HEAD"),
        ),
        (
            "suite.yaml",
            "name: s\ncases:\n  - {id: c, repo: r, commit: abc, prompt: Fix, successCommand: 'true'}\n",
            ("c", "abc"),
        ),
        (
            "case.json",
            '{"id": "x", "repo": "r", "bugCommit": "b1", "fixCommit": "f1", "testPath": "t.py"}',
            ("x", "b1"),
        ),
    ],
)
def test_plans_suites_and_cases_of_the_original_are_tasks(
    tmp_path: Path, name: str, text: str, expected: tuple[str, str]
) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / name).write_text(text)

    (task,) = read_task_set(tmp_path / name, ReadOptions()).tasks

    assert (task.name, task.ref) == expected
    assert len(task.checks) == 1


def test_a_folder_that_cannot_be_read_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root can read every folder, so the refusal is that of a method."""
    (tmp_path / "tasks" / "locked").mkdir(parents=True)
    listed = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if folder.name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", refused)

    with pytest.raises(UsageError) as error:
        read_task_set(tmp_path / "tasks")

    assert str(error.value) == (
        f"{tmp_path}/tasks/locked cannot be read: Permission denied\n"
        "Make it readable, or give a path without it."
    )
