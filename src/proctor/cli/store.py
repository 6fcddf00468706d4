"""`proctor store`: check, back up, restore and copy a store; `proctor prune`: delete old runs;
`proctor encryption`: encrypt it and manage its keys."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.api import runs, stores
from proctor.api.deprecated import OLD_NAMES_OF_STORE_CHECKS, with_old_names
from proctor.api.stores import (
    EncryptionStatus,
    StoreCheck,
    StoreCopy,
    back_up,
    check_store,
    copy_store,
    create_key,
    encryption_status,
    rotate_keys,
)
from proctor.bootstrap import load_settings, locate
from proctor.cli import output
from proctor.cli.output import Json, Working, count, is_sure, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.formatting import age_of, size
from proctor.json_values import camel_document, without_none

if TYPE_CHECKING:
    from proctor.api.runs import PrunedRuns

store_app = typer.Typer(add_completion=False, no_args_is_help=True)
prune_app = typer.Typer(add_completion=False)
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


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
    with Working("checking the store"):
        result = check_store(load_settings(**(context.obj or {})), texts=not quick)
    if as_json:
        print_json(with_old_names(result.document(), OLD_NAMES_OF_STORE_CHECKS))
    else:
        _print_check(result)
    return output.SUCCEEDED if result.is_ok else output.SOME_DID_NOT


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
    with Working("copying the store"):
        copy = back_up(url, file, force=force)
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
        copy = stores.restore(file, url, force=force)
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
        copied = copy_store(source, target, skip_damaged=skip_damaged, on_progress=working.update)
    return _print_copy(copied, f"copied to {printable(copied.url)}", as_json=as_json)


def _print_check(result: StoreCheck) -> None:
    rows = sum(result.rows.values())
    if result.is_ok:
        print(f"ok     {printable(result.url)}: {count(rows, 'row')}, nothing is damaged")
    for problem in result.problems:
        number = f" ({problem.count:,})" if problem.count > 1 else ""
        print(f"FAIL   {printable(problem.what)}{number}")
        for example in problem.examples:
            print(f"         {printable(example, width=100)}")
        print(f"       → {printable(problem.remedy)}")
    for note in result.notes:
        print(f"       {printable(note)}")


def _print_copy(copied: StoreCopy, message: str, *, as_json: bool) -> int:
    if as_json:
        print_json(copied.document())
    print_note(f"{message}: {count(sum(copied.rows.values()), 'row')}, verified")
    if copied.kept_aside:
        print_note(f"the old store is now {printable(copied.kept_aside)}")
    for table, problem in copied.skipped.items():
        print_note(f"note: rows of {table} were skipped: {printable(problem)}")
    return output.SOME_DID_NOT if copied.skipped else output.SUCCEEDED


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
            candidates = runs.prune(ctx, before, keep_scores=keep_scores, dry_run=True)
            what = "the texts of " if keep_scores else ""
            if candidates.runs and not is_sure(f"Delete {what}{count(len(candidates.runs), 'run')}?"):
                return output.SOME_DID_NOT
        with Working("deleting runs"):
            pruned = runs.prune(ctx, before, keep_scores=keep_scores, dry_run=dry_run)
    if as_json:
        print_json(pruned.document())
    else:
        _print_pruned(pruned)
    return output.SUCCEEDED


def _print_pruned(pruned: "PrunedRuns") -> None:
    if pruned.runs and pruned.dry_run:
        rows = [(run["runId"], run["createdAt"][:10], size(run["bytes"])) for run in pruned.runs]
        print_table(("RUN", "CREATED", "SIZE"), rows)
    what = "texts of " if pruned.keep_scores else ""
    verb = "would be" if pruned.dry_run else "were"
    total = size(sum(run["bytes"] for run in pruned.runs))
    print_note(f"{what}{count(len(pruned.runs), 'run')} ({total}) {verb} deleted")
    if pruned.file_bytes is not None:
        print_note(f"the store is {size(pruned.file_bytes)} smaller")
    for problem in pruned.problems:
        print_note(f"note: {printable(problem)}")


encryption_app = typer.Typer(add_completion=False, no_args_is_help=True)


@encryption_app.callback()
def encryption() -> None:
    """Encrypt the store; create, inspect, and rotate keys.

    Example:  proctor encryption status
    """


@encryption_app.command("new-key")
def new_key(
    file: Annotated[Path, typer.Argument(help="File to create.", metavar="FILE")],
    as_json: Json = False,
) -> int:
    """Create a key, in a file that only you can read.

    Example:  proctor encryption new-key ~/.config/proctor/store.key
    """
    path = file.expanduser()
    key_id = create_key(path)
    if as_json:
        print_json({"file": str(path), "keyId": key_id})
    print_note(f"wrote the key {key_id} to {printable(path)}")
    print_note("Without it, encrypted data cannot be recovered: keep a copy elsewhere.")
    print_note(
        f'To use it, write in section [encryption] of proctor.toml:  key_file = "{printable(path.resolve())}"'
    )
    return output.SUCCEEDED


@encryption_app.command()
def status(context: typer.Context, as_json: Json = False) -> int:
    """Show the key of the store, whether it is available, and what is not encrypted.

    Example:  proctor encryption status --json
    """
    document = encryption_status(**(context.obj or {}))
    if as_json:
        print_json(document)
    else:
        _print_status(document)
    return output.SUCCEEDED


@encryption_app.command()
def rotate(
    context: typer.Context,
    new_key_file: Annotated[
        Path | None, typer.Option("--new-key-file", help="New master key: a file.", metavar="FILE")
    ] = None,
    new_key_env: Annotated[
        str, typer.Option("--new-key-env", help="New master key: an environment variable.", metavar="NAME")
    ] = "",
    new_kms_key: Annotated[
        str, typer.Option("--new-kms-key", help="New master key: the ARN of an AWS KMS key.", metavar="ARN")
    ] = "",
    re_encrypt: Annotated[
        bool,
        typer.Option(
            "--re-encrypt", "--again", help="Create a new data key, and re-encrypt every row with it."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Rotate the master key of the store, its data key, or both.

    A new master key takes a moment: only the data keys are re-encrypted. `--re-encrypt` rewrites every row,
    and resumes where it was killed.

    Example:  proctor encryption rotate --new-key-file new.key
    """
    with Working("re-encrypting") as working:

        def advance(table: str, rows: int) -> None:
            working.update(rows, title=f"re-encrypting rows of {table}")
            _print_progress(table, rows)

        rotation = rotate_keys(
            load_settings(**(context.obj or {})),
            file=new_key_file,
            variable=new_key_env,
            arn=new_kms_key,
            re_encrypt=re_encrypt,
            on_progress=advance,
        )
    if rotation.rows is not None:
        print_note(f"re-encrypted {count(rotation.rows, 'row')}")
    if rotation.data_keys is not None:
        print_note(f"re-encrypted {count(rotation.data_keys, 'data key')} with {rotation.key_id}")
        print_note("Set the new key in proctor.toml now: the old one no longer opens the store.")
    if as_json:
        print_json(without_none(camel_document(rotation)))
    return output.SUCCEEDED


def _print_status(document: EncryptionStatus) -> None:
    if not document["sealed"]:
        print("The store is not encrypted. Create a key:  proctor encryption new-key FILE")
    else:
        available = "available" if document["isHere"] else "not available"
        print(f"The store is encrypted with the key {document['keyId']} ({available}).")
    if document["problem"]:
        print(document["problem"])
    if document["unfinished"]:
        print("Re-encryption has not finished. Resume it:  proctor encryption rotate --re-encrypt")
    rows = [
        (table, counts["sealed"], counts["retired"], counts["own"], counts["plain"])
        for table, counts in document["tables"].items()
        if any(counts.values())
    ]
    if rows:
        print()
        print_table(("TABLE", "ENCRYPTED", "OLD KEY", "OWN KEY", "PLAIN"), rows)
    if document["sealed"] and any(counts["plain"] for counts in document["tables"].values()):
        print("\nPlain text was written before there was a key.")
        print("Encrypt it:  proctor encryption rotate --re-encrypt")


def _print_progress(table: str, rows: int) -> None:
    """Lines where no progress bar is shown."""
    if not sys.stderr.isatty() and rows % 10_000 < 500:
        print_note(f"{table}: {count(rows, 'row')} so far")


apps = {"store": store_app, "prune": prune_app, "encryption": encryption_app}
