"""`proctor encryption`: create, inspect, and rotate the keys of an encrypted store."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from proctor.bootstrap import load_settings, locate
from proctor.cli import output
from proctor.cli.output import Json, Working, count, print_json, print_note, print_table, printable
from proctor.errors import KeyMissing, UsageError
from proctor.json_values import JsonObject
from proctor.store import Store
from proctor.store.keys import KEY_BYTES, Keys, KmsKey, MasterKey, key_in, new_key_text, read_keys

encryption_app = typer.Typer(add_completion=False, no_args_is_help=True)
apps = {"encryption": encryption_app}


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
    mine = [row for row in store.data_keys.rows if not row["scope"]]
    living = [row for row in mine if not row["retiredAt"]]
    return {
        "sealed": bool(living),
        "keyId": living[-1]["masterKeyId"] if living else None,
        "isHere": bool(living) and keys is not None and keys.own is not None,
        "problem": problem,
        "dataKeys": [
            {name: row[name] for name in ("id", "masterKeyId", "createdAt", "retiredAt", "emptiedAt")}
            for row in mine
        ],
        "ownKeys": len(store.data_keys.rows) - len(mine),
        "unfinished": store.data_keys.unfinished,
        "tables": {
            table: {
                "sealed": counted.current,
                "retired": counted.retired,
                "own": counted.own,
                "plain": counted.plain,
            }
            for table, counted in counts.items()
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
