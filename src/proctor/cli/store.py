"""`proctor store`: check, back up, restore and copy a store; `proctor prune`: delete old runs."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from proctor.batch.deletion import PrunedRuns, prune_runs
from proctor.bootstrap import load_settings, locate, now, store_keys
from proctor.cli import output
from proctor.cli.output import Json, Working, count, is_sure, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.errors import UsageError
from proctor.formatting import size
from proctor.store import maintenance
from proctor.store.maintenance import StoreCheck, StoreCopy

store_app = typer.Typer(add_completion=False, no_args_is_help=True)
prune_app = typer.Typer(add_completion=False)
apps = {"store": store_app, "prune": prune_app}
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@store_app.callback()
def store() -> None:
    """Check, back up, restore, and copy the store.

    Example:  proctor store backup proctor-backup.db
    """


@store_app.command()
def check(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="Do not read the long texts.")] = False,
    as_json: Json = False,
) -> int:
    """Check the store: file, rows, texts, and signatures of results. Says how to recover what is damaged.

    Example:  proctor store check
    """
    settings = load_settings(**(context.obj or {}))
    _require_store(settings.store_url)
    with Working("checking the store"):
        result = maintenance.check_store(settings.store_url, store_keys(settings), now(), texts=not quick)
    if as_json:
        print_json(result.document())
    else:
        print_check(result)
    return output.SUCCEEDED if result.is_well else output.SOME_DID_NOT


@store_app.command()
def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="File to write.", metavar="FILE")],
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Copy the store to FILE, also while runs are active. An encrypted store stays encrypted.

    Example:  proctor store backup proctor-backup.db
    """
    _, url = locate(**(context.obj or {}))
    _require_store(url)
    with Working("copying the store"):
        copy = maintenance.back_up(url, file, force=force)
    return _print_copy(copy, f"wrote {printable(file)}", as_json=as_json)


@store_app.command()
def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A backup.", metavar="FILE")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the store; the old file is kept under another name.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Put a backup in the place of the store.

    Example:  proctor store restore proctor-backup.db --force
    """
    _, url = locate(**(context.obj or {}))
    with Working("restoring the store"):
        copy = maintenance.restore(file, url, now(), force=force)
    return _print_copy(copy, f"restored {printable(copy.url)}", as_json=as_json)


@store_app.command()
def copy(
    source: Annotated[str, typer.Argument(help="File or URL of the store to copy.", metavar="FROM")],
    target: Annotated[str, typer.Argument(help="File or URL of a new, empty store.", metavar="TO")],
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave out rows that cannot be read.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Copy all tables of a store, from SQLite to PostgreSQL or back, and compare the copy with its source.

    Example:  proctor store copy proctor.db postgresql://db.example/proctor
    """
    with Working("copying tables") as working:
        copied = maintenance.copy_store(source, target, skip_damaged=skip_damaged, on_progress=working.update)
    return _print_copy(copied, f"copied to {printable(copied.url)}", as_json=as_json)


def print_check(result: StoreCheck) -> None:
    """Print what a check of the store has shown."""
    rows = sum(result.rows.values())
    if result.is_well:
        print(f"ok     {printable(result.url)}: {count(rows, 'row')}, nothing is damaged")
    for problem in result.problems:
        number = f" ({problem.count:,})" if problem.count > 1 else ""
        print(f"FAIL   {printable(problem.what)}{number}")
        for example in problem.examples:
            print(f"         {printable(example, width=100)}")
        print(f"       → {printable(problem.remedy)}")
    for remark in result.remarks:
        print(f"       {printable(remark)}")


def _print_copy(copied: StoreCopy, message: str, *, as_json: bool) -> int:
    if as_json:
        print_json(copied.document())
    print_note(f"{message}: {count(sum(copied.rows.values()), 'row')}, verified")
    if copied.kept_aside:
        print_note(f"the old store is now {printable(copied.kept_aside)}")
    for table, problem in copied.skipped.items():
        print_note(f"note: rows of {table} were skipped: {printable(problem)}")
    return output.SOME_DID_NOT if copied.skipped else output.SUCCEEDED


def _require_store(url: str) -> None:
    path = Path(url.removeprefix("sqlite:///"))
    if "://" not in str(url).removeprefix("sqlite:///") and not path.exists():
        log = path.with_name(f"{path.name}-wal")
        if not log.exists():
            raise UsageError(f"there is no store at {path}\nName one with --store or --home.")


@prune_app.command()
def prune(
    context: typer.Context,
    older_than: Annotated[
        str, typer.Option("--older-than", help="Age of a run since its end: 90d, 12w, or 36h.", metavar="AGE")
    ],
    keep_scores: Annotated[
        bool, typer.Option("--keep-scores", help="Delete only texts; keep items, costs, times, and scores.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Json = False,
) -> int:
    """Delete old runs, or only their texts, and free the space. Session branches stay in your repositories.

    Example:  proctor prune --older-than 90d --keep-scores --dry-run
    """
    with terminal_context(context.obj) as ctx:
        before = ctx.now() - age_of(older_than)
        if not (dry_run or yes):
            found = prune_runs(ctx, before, keep_scores=keep_scores, dry_run=True)
            what = "the texts of " if keep_scores else ""
            if found.runs and not is_sure(f"Delete {what}{count(len(found.runs), 'run')}?"):
                return output.SOME_DID_NOT
        with Working("deleting runs"):
            pruned = prune_runs(ctx, before, keep_scores=keep_scores, dry_run=dry_run)
    if as_json:
        print_json(pruned.document())
    else:
        _print_pruned(pruned)
    return output.SUCCEEDED


def _print_pruned(pruned: PrunedRuns) -> None:
    if pruned.runs and pruned.dry_run:
        rows = [(each["runId"], each["createdAt"][:10], size(each["bytes"])) for each in pruned.runs]
        print_table(("RUN", "CREATED", "SIZE"), rows)
    what = "texts of " if pruned.keep_scores else ""
    verb = "would be" if pruned.dry_run else "were"
    total = size(sum(each["bytes"] for each in pruned.runs))
    print_note(f"{what}{count(len(pruned.runs), 'run')} ({total}) {verb} deleted")
    if pruned.file_bytes is not None:
        print_note(f"the store is {size(pruned.file_bytes)} smaller")
    for problem in pruned.problems:
        print_note(f"note: {printable(problem)}")


def age_of(text: str) -> timedelta:
    """Parse an age such as 90d, 12w or 36h."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*([hdw])\s*", text)
    if not match:
        raise UsageError(f"`{text}` is not an age\nWrite a number with h, d, or w: 36h, 90d, 12w.")
    return int(match[1]) * _UNITS[match[2]]
