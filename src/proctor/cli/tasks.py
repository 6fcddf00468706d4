"""`proctor tasks`: list, show, check and convert tasks in any format; make them of a repository's commits."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from proctor.api.deprecated import OLD_NAMES_OF_TASKS, with_old_names
from proctor.api.tasks import TaskChecks, check_tasks, prepare_mining
from proctor.api.tasks import review as review_tasks
from proctor.cli import output
from proctor.cli.bench import reads_tasks
from proctor.cli.output import Json, JsonAtEnd, count, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.errors import NotFound
from proctor.json_values import JsonMap
from proctor.tasks.formats import read_task_set, write_task_set
from proctor.tasks.history import (
    CommitCandidate,
    CommitValidation,
    MiningOptions,
    MiningResult,
    Progress,
)
from proctor.tasks.mining_failures import StoppedMining
from proctor.tasks.task import (
    ReadOverrides,
    Task,
    TaskSet,
    file_names,
    network_text,
    task_document,
)

SHOWN_REASONS = 10


def from_history(
    context: typer.Context,
    repo: Annotated[Path, typer.Argument(help="The git repository.", metavar="REPO")],
    check: Annotated[
        str, typer.Option("--check", help="Command of the tests (guessed); {tests}: a commit's test files.")
    ] = "",
    setup: Annotated[
        str,
        typer.Option("--setup", help="Command run in each copy before the tests (guessed without --check)."),
    ] = "",
    since: Annotated[
        str, typer.Option("--since", help="Oldest commit: 365d, 12w, 6m, 2y, or a date.")
    ] = "365d",
    most: Annotated[int, typer.Option("--max", min=1, help="Maximum number of tasks (30).")] = 30,
    out: Annotated[Path, typer.Option("--out", help="Folder for the tasks; created if missing.")] = Path(
        "tasks"
    ),
    issues: Annotated[
        Path | None,
        typer.Option("--issues", help="JSON file of issues: statements in place of commit messages."),
    ] = None,
    hints: Annotated[bool, typer.Option("--hints", help="Leave names of files in the statements.")] = False,
    statement_model: Annotated[
        str, typer.Option("--statement-model", help="Model that rewrites the statements.")
    ] = "",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, help="Seconds for setup and for one run of the tests.")
    ] = 600,
    parallel: Annotated[
        int, typer.Option("--parallel", min=0, help="Commits validated in parallel (one per core).")
    ] = 0,
    include_underspecified: Annotated[
        bool,
        typer.Option(
            "--include-underspecified", help="Also commits of which little more than a title is known."
        ),
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Continue where set-up or tests fail for every commit.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the candidates and the commands; run nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Make tasks of commits whose tests fail without them and pass with them.

    Example:  proctor tasks from-history . --check "python3 -m pytest -q" --since 365d --out tasks
    """
    options = MiningOptions(
        repo=repo,
        out=out,
        check=check,
        setup=setup,
        since=since,
        max_tasks=most,
        issues=issues,
        hints=hints,
        timeout=timeout,
        parallel=parallel,
        include_underspecified=include_underspecified,
        keep_going=keep_going,
    )
    with terminal_context(context.obj) as ctx:
        mining = prepare_mining(ctx, options, statement_model=statement_model)
        miner = mining.miner
        commands = miner.commands
        source = "" if check else f" (guessed from {commands.check_source}; --check sets another)"
        if commands.setup:
            guess = "" if setup else f" (guessed from {commands.setup_source}; --setup sets another)"
            print_note(f"Set-up: {printable(commands.setup)}{guess}")
        print_note(f"Tests: {printable(commands.check)}{source}")
        print_note(f"{ctx.settings.confinement.summary(None)}.")
        try:
            if not dry_run:
                with _progress(len(miner.candidates), most, quiet=as_json) as report:
                    asyncio.run(mining.mine(report))
        except KeyboardInterrupt:
            _print_kept(miner.result(), out)
            raise
        result = miner.result()
    if as_json:
        print_json({**({"dryRun": True} if dry_run else {}), **result.document()})
    else:
        _show(result, dry_run=dry_run)
    if not dry_run:
        print_note(f"Report:  {printable(out / 'report.html')}")
        if result.tasks:
            print_note(f"Review:  {printable(out / 'review.html')}")
            print_note(f"Try them:  proctor bench --task {printable(out)} --oracle --noop")
    return 0 if dry_run or result.tasks else 1


def _print_kept(result: MiningResult, out: Path) -> None:
    """What an interrupted run has found."""
    tasks, candidates = count(len(result.tasks), "task"), count(len(result.candidates), "candidate")
    print_note(
        f"Interrupted. Kept in {printable(out)}: {tasks}, {result.validated} of {candidates} validated.\n"
        "The same command continues with the others."
    )


@contextmanager
def _progress(candidates: int, most: int, *, quiet: bool) -> Iterator[Progress | None]:
    """A progress bar on a terminal, otherwise a line for each commit."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        line, tasks = bar.add_task("validating", total=candidates), 0

        def advance(candidate: CommitCandidate, validation: CommitValidation) -> None:
            nonlocal tasks
            tasks += validation.state == "task"
            bar.update(line, advance=1, description=f"{tasks} of at most {count(most, 'task')}")
            bar.print(_line(candidate, validation), markup=False, highlight=False)

        yield advance


def _line(candidate: CommitCandidate, validation: CommitValidation) -> str:
    passed = f"{len(validation.fail_to_pass)} to fix, {len(validation.pass_to_pass)} to keep"
    if other := validation.other_test_files:
        passed += f"; {count(other, 'unrelated test file')} not run"
    outcome = passed if validation.state == "task" else validation.reason.partition("\n")[0]
    return f"{candidate.commit[:10]} {validation.state}: {printable(outcome, width=160)}"


def _print_line(candidate: CommitCandidate, validation: CommitValidation) -> None:
    print_note(_line(candidate, validation))


def _show(result: MiningResult, *, dry_run: bool) -> None:
    titles = {each.commit: each.title for each in result.candidates}
    if dry_run:
        rows = [
            (
                candidate.commit[:10],
                candidate.date[:10],
                len(candidate.source),
                len(candidate.tests),
                candidate.lines,
                candidate.title,
            )
            for candidate in result.candidates
        ]
        print_table(("COMMIT", "DATE", "FILES", "TESTS", "LINES", "TITLE"), rows)
    else:
        tasks = [
            (task.folder, len(task.fail_to_pass), len(task.pass_to_pass), titles[task.commit])
            for task in result.tasks
        ]
        print_table(("TASK", "TO FIX", "TO KEEP", "TITLE"), tasks)
    reasons = Counter(each.reason.partition(":")[0] for each in result.rejected)
    for reason, number in reasons.most_common(SHOWN_REASONS):
        print_note(f"{number:>5} not taken: {printable(reason, width=120)}")
    if result.stopped:
        _print_stopped(result.stopped)
    print_note(
        f"{count(len(result.candidates), 'candidate')}, {count(len(result.tasks), 'task')}, "
        f"{len(result.flaky)} flaky." + (" Dry run: nothing was run." if dry_run else "")
    )


def _print_stopped(stopped: StoppedMining) -> None:
    problem = printable(stopped.problem, width=300)
    print_note(f"{problem[:1].upper()}{problem[1:]}")
    for line in stopped.failure.output.splitlines():
        print_note(f"    {printable(line)}")
    print_note(printable(stopped.advice, lines=True))
    if stopped.is_early:
        print_note("The other commits were not validated; --keep-going continues with them.")


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
    reading: Mapping[str, str],
    as_json: Json = False,
) -> int:
    """List the tasks at PATH and what could not be read. Nothing is run.

    Example:  proctor tasks list HumanEval.jsonl.gz
    """
    task_set = read_task_set(path, ReadOverrides(**reading).reading())
    if as_json:
        documents = [task_document(task) for task in task_set.tasks]
        _print_json({"tasks": documents, "skipped": [skipped.document() for skipped in task_set.not_read]})
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
    reading: Mapping[str, str],
    task: Annotated[
        str, typer.Argument(help="Name of the task; default: the only one.", metavar="[TASK]")
    ] = "",
    as_json: Json = False,
) -> int:
    """Show a task: its prompt, files, and every command that it would run.

    Example:  proctor tasks show HumanEval.jsonl.gz HumanEval/0
    """
    task_set = read_task_set(path, ReadOverrides(**reading).reading())
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
    reading: Mapping[str, str],
    runs: Annotated[
        int, typer.Option("--runs", "--repeats", min=1, help="Repeats, to find flaky checks.", metavar="N")
    ] = 3,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, help="Maximum runs in parallel.", metavar="N")
    ] = 2,
    task_network: Annotated[
        bool, typer.Option("--task-network", help="Grant the network access that tasks ask for.")
    ] = False,
    as_json: JsonAtEnd = False,
) -> int:
    """Run the reference solution and a no-op on each task at PATH: the one must pass, the other fail.

    Example:  proctor tasks check tasks/ --runs 3
    """
    with terminal_context(context.obj) as ctx:
        options = ReadOverrides(**reading)
        result = check_tasks(ctx, path, options, repeats=runs, parallel=parallel, task_network=task_network)
    if as_json:
        _print_json(result.document())
    else:
        _print_checks(result, path)
    return output.SUCCEEDED if result.is_ok else output.SOME_DID_NOT


@tasks_app.command()
def review(
    folder: Annotated[Path, typer.Argument(help="A folder of mined tasks.", metavar="FOLDER")],
    decisions: Annotated[
        Path | None, typer.Option("--decisions", help="File that the page saved.", metavar="FILE")
    ] = None,
    accept: Annotated[
        list[str] | None, typer.Option("--accept", help="Accept this task; may be repeated.", metavar="TASK")
    ] = None,
    reject: Annotated[
        list[str] | None, typer.Option("--reject", help="Reject this task; may be repeated.", metavar="TASK")
    ] = None,
    as_json: Json = False,
) -> int:
    """Write a page to review mined tasks: statement, solution, tests; accept, edit, or reject each.

    Example:  proctor tasks review tasks --decisions ~/Downloads/review.json
    """
    tasks = review_tasks(folder, decisions=decisions, accept=accept or (), reject=reject or ())
    if as_json:
        print_json({"tasks": [task.document() for task in tasks]})
    else:
        scores = ["" if task.underspecification is None else task.underspecification for task in tasks]
        print_table(
            ("TASK", "DECISION", "UNDERSPECIFIED", "TO FIX", "TO KEEP"),
            [
                (task.name, task.decision, score, len(task.fail_to_pass), task.pass_to_pass)
                for task, score in zip(tasks, scores, strict=True)
            ],
        )
    print_note(f"Page:  {printable(folder / 'review.html')}")
    return output.SUCCEEDED


@tasks_app.command()
@reads_tasks
def convert(
    path: TaskPath,
    reading: Mapping[str, str],
    out: Annotated[Path, typer.Option("--out", help="Folder to write; must be new.", metavar="DIR")],
    as_json: Json = False,
) -> int:
    """Write the tasks at PATH as task files of Proctor.

    Example:  proctor tasks convert HumanEval.jsonl.gz --out tasks/humaneval
    """
    task_set = read_task_set(path, ReadOverrides(**reading).reading())
    files, left_out = write_task_set(task_set, out)
    if as_json:
        not_read = [each.document() for each in (*task_set.not_read, *left_out)]
        _print_json({"files": [str(file) for file in files], "skipped": not_read})
    for skipped in (*task_set.not_read, *left_out):
        print_note(f"not converted: {printable(str(skipped))}")
    print_note(f"{printable(out)}: {count(len(files), 'task')}")
    return output.SUCCEEDED


def _print_json(document: JsonMap) -> None:
    print_json(with_old_names(document, OLD_NAMES_OF_TASKS))


def _print_checks(result: TaskChecks, path: Path) -> None:
    print_table(
        ("TASK", "ORACLE", "NOOP", "NOTE"),
        [(one.task, one.oracle, one.noop, printable(one.note, width=80)) for one in result.tasks],
    )
    for skipped in result.not_read:
        print_note(f"not read: {printable(str(skipped))}")
    sound = sum(one.is_ok for one in result.tasks)
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
    if network := network_text(task.network):
        print(f"Network:   {printable(network)}, with --task-network")
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
    for skipped in task_set.not_read:
        print_note(f"not read: {printable(str(skipped))}")
    print_note(printable(task_set.summary(path)))
