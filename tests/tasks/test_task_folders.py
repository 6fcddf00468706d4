"""Tasks in folders and files of other tools: Harbor, Terminal-Bench, Exercism, and the coding original's."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.tasks.formats import read_task_set


def harbor(folder: Path, toml: str = "") -> None:
    for name in ("environment", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(f'schema_version = "1.4"\n{toml}')
    (folder / "instruction.md").write_text("Do it in /app.\n")
    (folder / "environment/Dockerfile").write_text("FROM ubuntu\n")
    (folder / "tests/test.sh").write_text("true\n")


@pytest.mark.parametrize(
    ("toml", "reason"), [("[environment]\ngpus = 1\n", "it needs a GPU"), ("[[", "Invalid initial character")]
)
def test_a_task_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, toml: str, reason: str) -> None:
    harbor(tmp_path / "good")
    harbor(tmp_path / "bad", toml)

    found = read_task_set(tmp_path)

    assert [task.name for task in found.tasks] == ["good"]
    (only,) = found.not_read
    assert only.task == "bad" and reason in only.reason


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
