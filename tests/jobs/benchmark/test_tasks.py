"""What a task file says, and what is wrong with one that cannot be used."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import PlanError
from proctor.tasks.markdown import read_task, read_tasks
from proctor.tasks.task import Task, TaskCheck

WHOLE = """---
start: fix/start
solution: fix/solution
check:
  the word is spelled right.: grep -q receive README.md
timeout: 600
agent: aider
---
# Task: Fix the typo

**Difficulty**: Easy
**Repo:** shop
**Issue**: #12
**Time Estimate**: 2-5 minutes

## Requirements
- Spell it right
- Change nothing else

```markdown
## Success Criteria
- [ ] this is an example, no criterion
```

## Implementation Details
It is in the README.

## Success Criteria
- [ ] The word is spelled right
- [x] Nobody is annoyed
"""


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


def test_a_task_is_its_title_its_facts_and_its_criteria(folder: Path) -> None:
    task = read_task(written(folder, WHOLE))

    assert (task.name, task.title, task.difficulty) == ("fix_typo", "Fix the typo", "Easy")
    assert task.facts == {"repo": "shop", "issue": "#12", "time estimate": "2-5 minutes"}
    assert task.requirements == ("Spell it right", "Change nothing else")
    assert (task.timeout_seconds, task.agent) == (600, "aider")
    assert task.start is not None and task.start.path == folder / "fix/start"


def test_a_criterion_has_the_check_that_is_written_for_it_or_none(folder: Path) -> None:
    task = read_task(written(folder, WHOLE))

    assert task.checks == (
        TaskCheck(criterion="The word is spelled right", command="grep -q receive README.md"),
        TaskCheck(criterion="Nobody is annoyed", command=""),
    )
    assert len(task.commands) == 1


def test_an_agent_is_given_the_markdown_and_nothing_of_the_front_matter(folder: Path) -> None:
    prompt = read_task(written(folder, WHOLE)).prompt

    assert prompt.startswith("# Task: Fix the typo") and prompt.endswith("- [x] Nobody is annoyed")
    assert "grep" not in prompt and "solution" not in prompt


def test_a_task_without_front_matter_is_a_task(folder: Path) -> None:
    task = read_task(written(folder, "Say hello.\n", "hello_world.txt"))

    assert (task.title, task.prompt, task.checks) == ("hello world", "Say hello.", ())


def test_the_difficulty_is_that_of_the_folder_where_the_task_says_none(folder: Path) -> None:
    assert read_task(written(folder, "# Task: x\n", "smoke/x.md")).difficulty == "Smoke Test"


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


def test_a_folder_gives_its_tasks_and_those_below_but_not_what_they_begin_with(folder: Path) -> None:
    written(folder, WHOLE, "easy/fix_typo.md")
    (folder / "fix").rename(folder / "easy/fix")
    written(folder, "# Task: Big\n\nDo it.\n", "hard/big.md")
    written(folder, "# Task: Small\n\nDo it.\n", "smoke/small.md")
    written(folder, "# About these tasks\n", "README.md")

    assert [task.name for task in read_tasks(folder)] == ["small", "fix_typo", "big"]


def test_everything_wrong_in_a_folder_is_reported_together(folder: Path) -> None:
    for name in ("one", "two"):
        written(folder, "---\nchekc: x\n---\n# Task: x\n", f"bad/{name}.md")

    with pytest.raises(PlanError) as caught:
        read_tasks(folder / "bad")

    assert len(caught.value.problems) == 2
