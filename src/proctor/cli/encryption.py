"""`proctor encryption`: make a key, look how the store is sealed, change keys."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.bootstrap import StorePlaces, environment, keys_of, places
from proctor.cli import output
from proctor.cli.output import Json, count, print_json, print_note, print_table, printable
from proctor.errors import KeyMissing, UsageError
from proctor.store import Store
from proctor.store.keys import KEY_BYTES, KmsKey, MasterKey, key_in, new_key_text, read_keys

encryption_app = typer.Typer(add_completion=False, no_args_is_help=True)


apps = {"encryption": encryption_app}


@encryption_app.callback()
def encryption() -> None:
    """Seal what people, agents and models said, so that nothing of it can be read without the key.

    Example:  proctor encryption status
    """


@encryption_app.command("new-key")
def new_key(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not be there yet.")],
    as_json: Json = False,
) -> int:
    """Make a key and write it to a file that only you can read.

    Example:  proctor encryption new-key ~/.config/proctor/store.key
    """
    path = file.expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"no key was written: {error}\nName a file that is not there yet.") from error
    with os.fdopen(made, "w") as opened:
        opened.write(new_key_text(os.urandom(KEY_BYTES)))
    key = key_in(path)
    if as_json:
        print_json({"file": str(path), "keyId": key.id})
    print_note(f"wrote the key {key.id} to {printable(path)}")
    print_note("Without it, what is sealed under it can never be read again: keep a copy elsewhere.")
    print_note(
        f'Use it: in proctor.toml, section [encryption], write  key_file = "{printable(path.resolve())}"'
    )
    return output.SUCCEEDED


@encryption_app.command()
def status(context: typer.Context, as_json: Json = False) -> int:
    """Say which key the store is sealed under, whether it is here, and what is not sealed.

    Example:  proctor encryption status --json
    """
    where = places(context.obj)
    problem = _problem(where)
    # Without keys: what is asked here needs none, and must be told when the wrong one is given.
    with Store(where.store) as store:
        document = _status(store, where, problem)
    if as_json:
        print_json(document)
    else:
        _show(document)
    return output.SUCCEEDED


@encryption_app.command()
def rotate(
    context: typer.Context,
    new_key_file: Annotated[
        Path | None, typer.Option("--new-key-file", help="Wrap the store's keys with the key in this file.")
    ] = None,
    new_key_env: Annotated[
        str, typer.Option("--new-key-env", help="Wrap them with the key in this environment variable.")
    ] = "",
    new_kms_key: Annotated[
        str, typer.Option("--new-kms-key", help="Wrap them with this key of AWS KMS: its ARN.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Make a new data key, and seal every row of the store with it.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Change the key that the store is sealed under, the one every text is sealed with, or both.

    A new master key takes a moment: only the small keys in the store are wrapped anew. `--again` writes
    every row, and goes on where it was when it is killed.

    Example:  proctor encryption rotate --new-key-file new.key
    """
    new = _new_key(new_key_file, new_key_env, new_kms_key)
    if new is None and not again:
        raise UsageError("say what to change\nGive --new-key-file FILE, --new-kms-key ARN or --again.")
    where = places(context.obj)
    keys = keys_of(where)
    if keys.own is None:
        raise UsageError(
            "no key is given\nName one in proctor.toml, [encryption] key_file; see docs/encryption.md."
        )
    document: dict[str, Any] = {"keyId": keys.own.id}
    with Store(where.store, keys) as store:
        if again:
            document["rows"] = store.seal_anew(_tell)
            print_note(f"sealed {count(document['rows'], 'row')} anew")
        if new is not None:
            document |= {"dataKeys": store.data_keys.rewrap(new), "keyId": new.id}
            print_note(f"wrapped {count(document['dataKeys'], 'data key')} with {new.id}")
            print_note("Name the new key in proctor.toml now: the old one no longer opens the store.")
    if as_json:
        print_json(document)
    return output.SUCCEEDED


def _new_key(file: Path | None, variable: str, arn: str) -> MasterKey | None:
    if sum(map(bool, (file, variable, arn))) > 1:
        raise UsageError("one new key is enough\nKeep one of --new-key-file, --new-key-env, --new-kms-key.")
    if file:
        return key_in(file)
    if variable:
        return read_keys({"key_env": variable}, environment()).own
    return KmsKey(arn=arn) if arn else None


def _problem(where: StorePlaces) -> str:
    """Why what is sealed cannot be read here; empty when it can."""
    try:
        Store(where.store, keys_of(where)).close()
    except (KeyMissing, UsageError) as error:
        return str(error)
    return ""


def _status(store: Store, where: StorePlaces, problem: str) -> dict[str, Any]:
    counts = store.count_sealed()
    mine = [row for row in store.data_keys.rows if not row["scope"]]
    living = [row for row in mine if not row["retiredAt"]]
    own = None if problem else keys_of(where).own
    return {
        "sealed": bool(living),
        "keyId": living[-1]["masterKeyId"] if living else None,
        "isHere": bool(living) and own is not None and not problem,
        "problem": problem,
        "dataKeys": [
            {name: row[name] for name in ("id", "masterKeyId", "createdAt", "retiredAt", "emptiedAt")}
            for row in mine
        ],
        "ownKeys": len(store.data_keys.rows) - len(mine),
        "unfinished": store.data_keys.unfinished,
        "tables": {
            table: {"sealed": found.current, "retired": found.retired, "own": found.own, "plain": found.plain}
            for table, found in counts.items()
        },
    }


def _show(document: dict[str, Any]) -> None:
    if not document["sealed"]:
        print("The store is not sealed. Make a key:  proctor encryption new-key FILE")
    else:
        here = "it is here" if document["isHere"] else "it is not here"
        print(f"The store is sealed under the key {document['keyId']}; {here}.")
    if document["problem"]:
        print(document["problem"])
    if document["unfinished"]:
        print("Sealing everything anew was begun and not finished. Go on:  proctor encryption rotate --again")
    rows = [
        (table, found["sealed"], found["retired"], found["own"], found["plain"])
        for table, found in document["tables"].items()
        if any(found.values())
    ]
    if rows:
        print()
        print_table(("TEXTS IN", "SEALED", "OLD KEY", "OWN KEY", "PLAIN"), rows)
    if document["sealed"] and any(found["plain"] for found in document["tables"].values()):
        print(
            "\nWhat is plain was written before there was a key. Seal it:  proctor encryption rotate --again"
        )


def _tell(table: str, rows: int) -> None:
    if rows % 10_000 < 500:
        print_note(f"{table}: {count(rows, 'row')} so far")
