"""What a task file says, and what is wrong with one that cannot be used."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import PlanError
from proctor.tasks.markdown import read_task
from proctor.tasks.task import Task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("fix/start", "fix/solution"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "README.md").write_text(f"# Task: of {name}, which is no task\n")
    return tmp_path


def written(folder: Path, text: str, name: str = "fix_typo.md") -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def problem(folder: Path, text: str) -> str:
    with pytest.raises(PlanError) as caught:
        read_task(written(folder, text))
    return str(caught.value)


def test_a_link_out_of_the_starting_files_is_refused(folder: Path) -> None:
    (folder / "fix/start/passwords").symlink_to("/etc/passwd")

    assert "leads out of" in problem(folder, "---\nstart: fix/start\n---\nx")


def test_starting_files_may_be_shared_within_a_folder_of_tasks(tmp_path: Path) -> None:
    (tmp_path / "tasks/shared").mkdir(parents=True)
    (tmp_path / "tasks/shared/a.py").write_text("a = 1\n")

    task = read_task(written(tmp_path, "---\nstart: ../shared\n---\n# Task: x\n", "tasks/easy/x.md"))

    assert task.start is not None and task.start.path.name == "shared"


def digest(folder: Path) -> str:
    task: Task = read_task(written(folder, "---\nstart: fix/start\n---\n# Task: x\n"))
    return task.start_digest


def test_the_digest_of_starting_files_is_of_what_they_hold_and_not_of_where_they_lie(
    folder: Path, tmp_path_factory: Any
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "fix/start").mkdir(parents=True)
    (elsewhere / "fix/start/README.md").write_text((folder / "fix/start/README.md").read_text())
    (elsewhere / "fix/start/__pycache__").mkdir()
    (elsewhere / "fix/start/__pycache__/a.pyc").write_bytes(b"x")
    same = digest(folder)

    assert digest(elsewhere) == same
    (folder / "fix/start/README.md").chmod(0o755)
    assert digest(folder) != same
