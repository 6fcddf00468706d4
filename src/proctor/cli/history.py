"""`proctor tasks from-history`: tasks of a repository's own commits."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from proctor.cli.output import Json, count, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.context import ModelOptions
from proctor.model import Request
from proctor.models import ModelRouter
from proctor.secrets import visible
from proctor.tasks.history import (
    CommitCandidate,
    CommitValidation,
    HistoryMiner,
    MiningOptions,
    MiningResult,
    Progress,
    Rejection,
    Rewrite,
)
from proctor.tasks.history_page import history_page

SHOWN_REASONS = 10


def from_history(
    context: typer.Context,
    repo: Annotated[Path, typer.Argument(help="The git repository.", metavar="REPO")],
    check: Annotated[
        str, typer.Option("--check", help="Command of the tests (guessed); {tests}: a commit's test files.")
    ] = "",
    setup: Annotated[str, typer.Option("--setup", help="Command run in each copy before the tests.")] = "",
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
    )
    with terminal_context(context.obj) as ctx:
        settings = ctx.settings
        models = ctx.models(ModelOptions(folders=(Path.cwd(),))) if statement_model else None
        miner = HistoryMiner(
            options,
            home=settings.home,
            environment=visible(settings.user_environment, named={"HOME"}),
            sandbox=settings.confinement,
            now=datetime.now(UTC),
            rewrite=_rewriter(models, statement_model) if models else None,
        )
        source = "" if check else f" (guessed from {miner.check_source}; --check sets another)"
        print_note(f"Tests: {printable(miner.check)}{source}")
        print_note(f"{settings.confinement.summary(None)}.")
        if dry_run:
            result = miner.preview()
        else:
            with _progress(len(miner.candidates), most, quiet=as_json) as report:
                result = asyncio.run(_mine(miner, report, models))
            (out / "report.html").write_text(history_page(result), encoding="utf-8")
    if as_json:
        print_json({**({"dryRun": True} if dry_run else {}), **result.document()})
    else:
        _show(result, dry_run=dry_run)
    if not dry_run:
        print_note(f"Report:  {printable(out / 'report.html')}")
        if result.tasks:
            print_note(f"Try them:  proctor bench --task {printable(out)} --oracle --noop")
    return 0 if dry_run or result.tasks else 1


async def _mine(miner: HistoryMiner, report: Progress | None, models: ModelRouter | None) -> MiningResult:
    try:
        return await miner.mine(report)
    finally:
        if models:
            await models.close()


def _rewriter(models: ModelRouter, model: str) -> Rewrite:
    models.check(model)

    async def rewrite(prompt: str) -> str:
        answer = await models.answer(Request(model=model, messages=[{"role": "user", "content": prompt}]))
        return answer.text

    return rewrite


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
    outcome = passed if validation.state == "task" else validation.reason.partition("\n")[0]
    return f"{candidate.commit[:10]} {validation.state}: {printable(outcome, width=160)}"


def _print_line(candidate: CommitCandidate, validation: CommitValidation) -> None:
    print_note(_line(candidate, validation))


def _has_no_result(rejection: Rejection) -> bool:
    return rejection.reason.startswith(("the tests report no result", "no test passes after it"))


def _show(result: MiningResult, *, dry_run: bool) -> None:
    titles = {each.commit: each.title for each in result.candidates}
    if dry_run:
        rows = [
            (each.commit[:10], each.date[:10], len(each.source), len(each.tests), each.lines, each.title)
            for each in result.candidates
        ]
        print_table(("COMMIT", "DATE", "FILES", "TESTS", "LINES", "TITLE"), rows)
    else:
        tasks = [
            (each.folder, len(each.fail_to_pass), len(each.pass_to_pass), titles[each.commit])
            for each in result.tasks
        ]
        print_table(("TASK", "TO FIX", "TO KEEP", "TITLE"), tasks)
    reasons = Counter(each.reason.partition(":")[0] for each in result.rejected)
    for reason, number in reasons.most_common(SHOWN_REASONS):
        print_note(f"{number:>5} not taken: {printable(reason, width=120)}")
    if not result.tasks and not dry_run and any(map(_has_no_result, result.rejected)):
        print_note(
            "The tests did not run. Try the command in a fresh clone. Install what it needs with --setup, "
            "such as `npm ci`, or activate the environment of the project."
        )
    print_note(
        f"{count(len(result.candidates), 'candidate')}, {count(len(result.tasks), 'task')}, "
        f"{len(result.flaky)} flaky." + (" Dry run: nothing was run." if dry_run else "")
    )
