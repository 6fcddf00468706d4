"""`proctor store`: check, back up, restore and copy a store; `proctor prune`: delete old runs;
`proctor encryption`: encrypt it and manage its keys."""

import os
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from proctor.batch.deletion import PrunedRuns, prune_runs
from proctor.bootstrap import load_settings, locate, now, store_keys
from proctor.cli import output
from proctor.cli.output import Json, Working, count, is_sure, print_json, print_note, print_table, printable
from proctor.cli.run import terminal_context
from proctor.errors import KeyMissing, UsageError
from proctor.formatting import size
from proctor.json_values import JsonObject
from proctor.store import Store, maintenance
from proctor.store.keys import KEY_BYTES, Keys, KmsKey, MasterKey, key_in, new_key_text, read_keys
from proctor.store.maintenance import StoreCheck, StoreCopy

store_app = typer.Typer(add_completion=False, no_args_is_help=True)
prune_app = typer.Typer(add_completion=False)
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
    if result.is_ok:
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
            candidates = prune_runs(ctx, before, keep_scores=keep_scores, dry_run=True)
            what = "the texts of " if keep_scores else ""
            if candidates.runs and not is_sure(f"Delete {what}{count(len(candidates.runs), 'run')}?"):
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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"no key was written: {error}\nUse a file that does not exist yet.") from error
    with os.fdopen(descriptor, "w") as opened:
        opened.write(new_key_text(os.urandom(KEY_BYTES)))
    key = key_in(path)
    if as_json:
        print_json({"file": str(path), "keyId": key.id})
    print_note(f"wrote the key {key.id} to {printable(path)}")
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
    options = context.obj or {}
    keys, problem = _keys(options)
    _, url = locate(**options)
    # Without keys: the status needs none, and must be shown when the wrong one is configured.
    with Store(url) as store:
        document = _status(store, keys, problem)
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
    again: Annotated[
        bool, typer.Option("--again", help="Create a new data key, and re-encrypt every row with it.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Rotate the master key of the store, its data key, or both.

    A new master key takes a moment: only the data keys are re-encrypted. `--again` rewrites every row, and
    resumes where it was killed.

    Example:  proctor encryption rotate --new-key-file new.key
    """
    new = _new_key(new_key_file, new_key_env, new_kms_key)
    if new is None and not again:
        raise UsageError("nothing to rotate\nPass --new-key-file FILE, --new-kms-key ARN, or --again.")
    settings = load_settings(**(context.obj or {}))
    keys = read_keys(settings.encryption, os.environ)
    if keys.own is None:
        raise UsageError(
            "no key is configured\nSet key_file under [encryption] in proctor.toml; see docs/encryption.md."
        )
    document: JsonObject = {"keyId": keys.own.id}
    with Store(settings.store_url, keys) as store:
        if again:
            with Working("re-encrypting") as working:

                def advance(table: str, done: int) -> None:
                    working.update(done, title=f"re-encrypting rows of {table}")
                    _print_progress(table, done)

                rows = store.reencrypt(advance)
            document["rows"] = rows
            print_note(f"re-encrypted {count(rows, 'row')}")
        if new is not None:
            data_keys = store.data_keys.rewrap(new)
            document |= {"dataKeys": data_keys, "keyId": new.id}
            print_note(f"re-encrypted {count(data_keys, 'data key')} with {new.id}")
            print_note("Set the new key in proctor.toml now: the old one no longer opens the store.")
    if as_json:
        print_json(document)
    return output.SUCCEEDED


def _new_key(file: Path | None, variable: str, arn: str) -> MasterKey | None:
    if sum(map(bool, (file, variable, arn))) > 1:
        raise UsageError("more than one new key\nPass one of --new-key-file, --new-key-env, --new-kms-key.")
    if file:
        return key_in(file)
    if variable:
        return read_keys({"key_env": variable}, os.environ).own
    return KmsKey(arn=arn) if arn else None


def _keys(options: Mapping[str, Any]) -> tuple[Keys | None, str]:
    """The configured keys, or None and why encrypted data cannot be read with them."""
    try:
        settings = load_settings(**options)
        keys = read_keys(settings.encryption, os.environ)
        Store(settings.store_url, keys).close()
    except (KeyMissing, UsageError) as error:
        return None, str(error)
    return keys, ""


class EncryptionStatus(TypedDict):
    """The document of `proctor encryption status --json`."""

    sealed: bool
    keyId: str | None
    isHere: bool
    problem: str
    dataKeys: list[JsonObject]
    ownKeys: int
    unfinished: bool
    tables: dict[str, dict[str, int]]
    """Numbers of values by table, then by how they are encrypted."""


def _status(store: Store, keys: Keys | None, problem: str) -> EncryptionStatus:
    counts = store.count_encrypted()
    shared = [row for row in store.data_keys.rows if not row["scope"]]
    living = [row for row in shared if not row["retiredAt"]]
    return {
        "sealed": bool(living),
        "keyId": living[-1]["masterKeyId"] if living else None,
        "isHere": bool(living) and keys is not None and keys.own is not None,
        "problem": problem,
        "dataKeys": [
            {name: row[name] for name in ("id", "masterKeyId", "createdAt", "retiredAt", "emptiedAt")}
            for row in shared
        ],
        "ownKeys": len(store.data_keys.rows) - len(shared),
        "unfinished": store.data_keys.unfinished,
        "tables": {
            table: {
                "sealed": number.current,
                "retired": number.retired,
                "own": number.own,
                "plain": number.plain,
            }
            for table, number in counts.items()
        },
    }


def _print_status(document: EncryptionStatus) -> None:
    if not document["sealed"]:
        print("The store is not encrypted. Create a key:  proctor encryption new-key FILE")
    else:
        available = "available" if document["isHere"] else "not available"
        print(f"The store is encrypted with the key {document['keyId']} ({available}).")
    if document["problem"]:
        print(document["problem"])
    if document["unfinished"]:
        print("Re-encryption has not finished. Resume it:  proctor encryption rotate --again")
    rows = [
        (table, counts["sealed"], counts["retired"], counts["own"], counts["plain"])
        for table, counts in document["tables"].items()
        if any(counts.values())
    ]
    if rows:
        print()
        print_table(("TABLE", "ENCRYPTED", "OLD KEY", "OWN KEY", "PLAIN"), rows)
    if document["sealed"] and any(counts["plain"] for counts in document["tables"].values()):
        print(
            "\nPlain text was written before there was a key. Encrypt it:  proctor encryption rotate --again"
        )


def _print_progress(table: str, rows: int) -> None:
    """Lines where no progress bar is shown."""
    if not sys.stderr.isatty() and rows % 10_000 < 500:
        print_note(f"{table}: {count(rows, 'row')} so far")


apps = {"store": store_app, "prune": prune_app, "encryption": encryption_app}
