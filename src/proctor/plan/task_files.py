"""Find the tasks that are meant: one file, or all tasks in a folder.

A folder gives every task in it and below it. What tasks begin with lies in the same folders and may
itself hold Markdown, so folders that a task names are not searched.

Knows nothing of what a task says.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from proctor.errors import PlanError, Problem, UsageError
from proctor.plan.source import refuse
from proctor.plan.tasks import DIFFICULTIES, SUFFIXES, Task, read_task

MOST_TASKS = 1000


def read_tasks(path: Path) -> list[Task]:
    """The task in a file, or all tasks in a folder and the folders below it.

    Raises `PlanError` with everything that is wrong, or `UsageError` when there is no task at all.
    """
    problems, tasks = list[Problem](), list[Task]()
    if path.is_dir():
        if not list(_in_folder(path.absolute(), tasks, problems)):
            raise UsageError(
                f"there is no task in {path}\nA task is a .md file that begins with `# Task: …`."
            )
    else:
        _read_into(path, tasks, problems)
    if problems:
        refuse(problems)
    if len(tasks) > MOST_TASKS:
        raise UsageError(f"{path} holds {len(tasks):,} tasks\nAt most {MOST_TASKS} are run at once.")
    return _with_distinct_names(tasks, path)


def _in_folder(
    folder: Path, tasks: list[Task], problems: list[Problem], claimed: frozenset[Path] = frozenset()
) -> Iterator[Path]:
    """Read every task below a folder, leaving out the files that tasks begin with."""
    names = sorted(folder.iterdir(), key=_easiest_first)
    mine = [name for name in names if name.suffix in SUFFIXES and name.is_file() and _is_task(name)]
    already = len(tasks)
    for file in mine:
        _read_into(file, tasks, problems)
        yield file
    claimed |= {
        each.path.resolve()
        for task in tasks[already:]
        for each in (task.start, task.check_files, task.solution)
        if each
    }
    for below in names:
        is_plain = below.is_dir() and not below.is_symlink() and not below.name.startswith(".")
        if is_plain and below.resolve() not in claimed:
            yield from _in_folder(below, tasks, problems, claimed)


def _easiest_first(path: Path) -> tuple[int, str]:
    levels = list(DIFFICULTIES)
    return (levels.index(path.name) if path.name in levels else len(levels)), path.name


def _is_task(file: Path) -> bool:
    """Whether a file found in a folder is meant as one: its first heading says so."""
    try:
        with file.open("rb") as opened:
            head = opened.read(64 * 1024).decode("utf-8", "replace")
    except OSError:
        return True
    return any(line.lower().startswith("# task:") for line in head.splitlines())


def _read_into(file: Path, tasks: list[Task], problems: list[Problem]) -> None:
    try:
        tasks.append(read_task(file))
    except PlanError as error:
        problems += error.problems


def _with_distinct_names(tasks: list[Task], path: Path) -> list[Task]:
    """Tasks of one name in several folders are called by their path."""
    names = [task.name for task in tasks]
    if len(set(names)) == len(names):
        return tasks
    root = path.absolute()
    longer = [task.file.relative_to(root).with_suffix("").as_posix() for task in tasks]
    return [replace(task, name=name) for task, name in zip(tasks, longer, strict=True)]
