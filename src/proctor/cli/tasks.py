"""`proctor tasks`: list, show, check and convert tasks in any format."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from proctor.cli import output
from proctor.cli.bench import reads_tasks
from proctor.cli.history import from_history
from proctor.cli.output import Json, JsonAtEnd, count, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.errors import NotFound
from proctor.jobs.benchmark.checking import TaskChecks, check_tasks
from proctor.jobs.benchmark.plan import BenchmarkOverrides
from proctor.tasks.formats import read_task_set, write_task_set
from proctor.tasks.task import (
    NO_OVERRIDES,
    ReadOverrides,
    Task,
    TaskSet,
    file_names,
    network_wish,
    task_document,
)

tasks_app = typer.Typer(
    add_completion=False, help="List, show, check, and convert tasks; make them of a history."
)
apps = {"tasks": tasks_app}
tasks_app.command("from-history")(from_history)

TaskPath = Annotated[
    Path, typer.Argument(help="A task file, or a folder or dataset of tasks.", metavar="PATH")
]


@tasks_app.command("list")
@reads_tasks
def list_tasks(
    path: TaskPath,
    reading: ReadOverrides = NO_OVERRIDES,
    as_json: Json = False,
) -> int:
    """List the tasks at PATH and what could not be read. Nothing is run.

    Example:  proctor tasks list HumanEval.jsonl.gz
    """
    task_set = read_task_set(path, reading.reading())
    if as_json:
        print_json(
            {
                "tasks": [task_document(task) for task in task_set.tasks],
                "notRead": [each.document() for each in task_set.not_read],
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
                "yes" if task.has_solution else "",
                printable(task.title, width=60),
            )
            for task in task_set.tasks
        ],
    )
    _print_not_read(task_set, path)
    return output.SUCCEEDED


@tasks_app.command()
@reads_tasks
def show(
    path: TaskPath,
    task: Annotated[
        str, typer.Argument(help="Name of the task; default: the only one.", metavar="[TASK]")
    ] = "",
    reading: ReadOverrides = NO_OVERRIDES,
    as_json: Json = False,
) -> int:
    """Show a task: its prompt, files, and every command that it would run.

    Example:  proctor tasks show HumanEval.jsonl.gz HumanEval/0
    """
    task_set = read_task_set(path, reading.reading())
    chosen = _chosen(task_set, path, task)
    if as_json:
        print_json(task_document(chosen, full=True))
    else:
        _print_task(chosen)
    return output.SUCCEEDED


@tasks_app.command()
@reads_tasks
def check(
    context: typer.Context,
    path: TaskPath,
    runs: Annotated[
        int, typer.Option("--runs", min=1, help="Repeats, to find flaky checks.", metavar="N")
    ] = 3,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, help="Maximum runs in parallel.", metavar="N")
    ] = 2,
    task_network: Annotated[
        bool, typer.Option("--task-network", help="Grant the network access that tasks ask for.")
    ] = False,
    reading: ReadOverrides = NO_OVERRIDES,
    as_json: JsonAtEnd = False,
) -> int:
    """Run the reference solution and a no-op on each task at PATH: the one must pass, the other fail.

    Example:  proctor tasks check tasks/ --runs 3
    """
    with terminal_context(context.obj) as ctx, tempfile.TemporaryDirectory(prefix="proctor-check-") as folder:
        overrides = BenchmarkOverrides(
            oracle=True,
            noop=True,
            runs=runs,
            parallel=parallel,
            output=Path(folder),
            task_network=task_network,
        ).with_reading(reading.texts())
        result = check_tasks(path, overrides, ctx)
    if as_json:
        print_json(result.document())
    else:
        _print_checks(result, path)
    return output.SUCCEEDED if result.is_well else output.SOME_DID_NOT


@tasks_app.command()
@reads_tasks
def convert(
    path: TaskPath,
    out: Annotated[Path, typer.Option("--out", help="Folder to write; must be new.", metavar="DIR")],
    reading: ReadOverrides = NO_OVERRIDES,
    as_json: Json = False,
) -> int:
    """Write the tasks at PATH as task files of Proctor.

    Example:  proctor tasks convert HumanEval.jsonl.gz --out tasks/humaneval
    """
    task_set = read_task_set(path, reading.reading())
    files, left_out = write_task_set(task_set, out)
    if as_json:
        not_read = [each.document() for each in (*task_set.not_read, *left_out)]
        print_json({"files": [str(file) for file in files], "notRead": not_read})
    for each in (*task_set.not_read, *left_out):
        print_note(f"not converted: {printable(str(each))}")
    print_note(f"{printable(out)}: {count(len(files), 'task')}")
    return output.SUCCEEDED


def _print_checks(result: TaskChecks, path: Path) -> None:
    print_table(
        ("TASK", "ORACLE", "NOOP", "NOTE"),
        [(one.task, one.oracle, one.noop, printable(one.note, width=80)) for one in result.tasks],
    )
    for each in result.not_read:
        print_note(f"not read: {printable(str(each))}")
    sound = sum(one.is_well for one in result.tasks)
    print_note(f"{printable(path)}: {sound} of {count(len(result.tasks), 'task')} well")


def _chosen(task_set: TaskSet, path: Path, name: str) -> Task:
    if not name and len(task_set.tasks) == 1:
        return task_set.tasks[0]
    for task in task_set.tasks:
        if task.name == name:
            return task
    problem = f"there is no task `{name}` in {path}" if name else f"{path} has {len(task_set.tasks):,} tasks"
    raise NotFound(f"{problem}\nName one; `proctor tasks list {path}` lists them.")


def _print_task(task: Task) -> None:
    print(f"{printable(task.name)} ({task.format})")
    place = f"{task.file}:{task.line}" if task.line else str(task.file)
    print(f"File:      {printable(place)}")
    if task.repo:
        sealed = ", sealed" if task.sealed else ""
        print(f"Start:     {printable(task.repo)} at {printable(task.ref)}{sealed}")
    if task.image:
        print(f"Image:     {printable(task.image.command)}")
    if wish := network_wish(task.network):
        print(f"Network:   {printable(wish)}, with --task-network")
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


def _print_not_read(task_set: TaskSet, path: Path) -> None:
    for each in task_set.not_read:
        print_note(f"not read: {printable(str(each))}")
    print_note(printable(task_set.summary(path)))
