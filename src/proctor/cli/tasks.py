"""`proctor tasks`: list, show, check and convert tasks in any format."""

from pathlib import Path
from typing import Annotated

import typer

from proctor.cli import output
from proctor.cli.bench import (
    CheckCommand,
    ExpectColumn,
    JudgeModel,
    PromptColumn,
    Repos,
    SetupCommand,
    Template,
)
from proctor.cli.history import from_history
from proctor.cli.output import Json, print_json, print_note, print_table, printable
from proctor.errors import NotFound
from proctor.tasks.formats import read_task_set
from proctor.tasks.options import ReadOptions, read_repos
from proctor.tasks.task import Task, TaskSet, file_names, task_document

tasks_app = typer.Typer(
    add_completion=False, help="List, show, check, and convert tasks; make them of a history."
)
apps = {"tasks": tasks_app}
tasks_app.command("from-history")(from_history)

TaskPath = Annotated[
    Path, typer.Argument(help="A task file, or a folder or dataset of tasks.", metavar="PATH")
]


@tasks_app.command("list")
def list_tasks(
    path: TaskPath,
    prompt_column: PromptColumn = "",
    expect_column: ExpectColumn = "",
    template: Template = "",
    check: CheckCommand = "",
    setup: SetupCommand = "",
    judge: JudgeModel = "",
    repos: Repos = "",
    as_json: Json = False,
) -> int:
    """List the tasks at PATH and what could not be read. Nothing is run.

    Example:  proctor tasks list HumanEval.jsonl.gz
    """
    found = _read(path, prompt_column, expect_column, template, check, setup, judge, repos)
    if as_json:
        print_json(
            {
                "tasks": [task_document(task) for task in found.tasks],
                "notRead": [each.document() for each in found.not_read],
            }
        )
        return output.SUCCEEDED
    print_table(
        ("TASK", "FORMAT", "CHECKS", "SOLUTION", "TITLE"),
        [
            (
                task.name,
                task.format,
                len(task.all_commands) + len(task.expect),
                "yes" if task.solution or task.answer or task.solution_script else "",
                printable(task.title, width=60),
            )
            for task in found.tasks
        ],
    )
    _print_not_read(found, path)
    return output.SUCCEEDED


@tasks_app.command()
def show(
    path: TaskPath,
    task: Annotated[
        str, typer.Argument(help="Name of the task; default: the only one.", metavar="[TASK]")
    ] = "",
    prompt_column: PromptColumn = "",
    expect_column: ExpectColumn = "",
    template: Template = "",
    check: CheckCommand = "",
    setup: SetupCommand = "",
    judge: JudgeModel = "",
    repos: Repos = "",
    as_json: Json = False,
) -> int:
    """Show a task: its prompt, files, and every command that it would run.

    Example:  proctor tasks show HumanEval.jsonl.gz HumanEval/0
    """
    found = _read(path, prompt_column, expect_column, template, check, setup, judge, repos)
    chosen = _chosen(found, path, task)
    if as_json:
        print_json(task_document(chosen, full=True))
    else:
        _print_task(chosen)
    return output.SUCCEEDED


def _read(
    path: Path,
    prompt_column: str,
    expect_column: str,
    template: str,
    check: str,
    setup: str,
    judge: str,
    repos: str,
) -> TaskSet:
    options = ReadOptions(
        prompt_column=prompt_column,
        expect_column=expect_column,
        template=template,
        check=check,
        setup=setup,
        judge=judge,
        repos=read_repos(repos),
    )
    return read_task_set(path, options)


def _chosen(found: TaskSet, path: Path, name: str) -> Task:
    if not name and len(found.tasks) == 1:
        return found.tasks[0]
    for task in found.tasks:
        if task.name == name:
            return task
    problem = f"there is no task `{name}` in {path}" if name else f"{path} has {len(found.tasks):,} tasks"
    raise NotFound(f"{problem}\nName one; `proctor tasks list {path}` lists them.")


def _print_task(task: Task) -> None:
    print(f"{printable(task.name)} ({task.format})")
    place = f"{task.file}:{task.line}" if task.line else str(task.file)
    print(f"File:      {printable(place)}")
    if task.repo:
        print(f"Start:     {printable(task.repo)} at {printable(task.ref)}")
    for label, folder in (("Start:", task.start), ("Hidden:", task.check_files)):
        if folder:
            print(f"{label:<10} {printable(', '.join(file_names(folder)[:20]))}")
    if task.setup:
        print(f"Setup:     {printable(task.setup)}")
    for check in task.all_commands:
        print(f"Check:     {printable(check.command)}")
    for name, expected in task.expect.items():
        print(f"Expect:    {name} {printable(expected, width=100)}")
    print(f"\n{printable(task.prompt, lines=True)}")


def _print_not_read(found: TaskSet, path: Path) -> None:
    for each in found.not_read:
        print_note(f"not read: {printable(str(each))}")
    print_note(printable(found.summary(path)))
