"""A store as a whole: check, back up, restore, and copy it, and manage the keys that encrypt it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from proctor.bootstrap import load_settings, locate, now, store_keys
from proctor.context import Settings
from proctor.errors import KeyMissing, UsageError
from proctor.json_values import JsonObject
from proctor.store import Store, maintenance
from proctor.store.database import newest_schema, store_exists
from proctor.store.keys import KEY_BYTES, Keys, KmsKey, MasterKey, key_in, new_key_text, read_keys
from proctor.store.maintenance import StoreCheck, StoreCopy, back_up, copy_store

__all__ = [
    "StoreCheck",
    "StoreCopy",
    "back_up",
    "copy_store",
    "newest_schema",
]


def check_store(settings: Settings, *, texts: bool = True) -> StoreCheck:
    """Check a store, and with `texts` its long texts; changes nothing."""
    # A log without its file is damage, which the check reports.
    if not (store_exists(settings.store_url) or store_exists(f"{settings.store_url}-wal")):
        raise UsageError(f"there is no store at {settings.store_url}\nName one with --store or --home.")
    return maintenance.check_store(settings.store_url, store_keys(settings), now(), texts=texts)


def restore(file: Path, url: str, *, force: bool = False) -> StoreCopy:
    """Put a backup in the place of a store. A file that is replaced is kept under another name."""
    return maintenance.restore(file, url, now(), force=force)


def create_key(file: Path) -> str:
    """Write a new key to a file that only the user can read; its ID."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"no key was written: {error}\nUse a file that does not exist yet.") from error
    with os.fdopen(descriptor, "w") as opened:
        opened.write(new_key_text(os.urandom(KEY_BYTES)))
    return key_in(file).id


class EncryptionStatus(TypedDict):
    """The keys of a store, and what they encrypt."""

    sealed: bool
    keyId: str | None
    isHere: bool
    problem: str
    dataKeys: list[JsonObject]
    ownKeys: int
    unfinished: bool
    tables: dict[str, dict[str, int]]
    """Numbers of values by table, then by how they are encrypted."""


def encryption_status(*, home: str = "", store: str = "") -> EncryptionStatus:
    """The status of a store, also when its key is missing or the wrong one is configured."""
    keys, problem = _configured_keys(home, store)
    # Without keys, which the status does not need.
    with Store(locate(home=home, store=store)[1]) as opened:
        counts = opened.count_encrypted()
        shared = [row for row in opened.data_keys.rows if not row["scope"]]
        current = [row for row in shared if not row["retiredAt"]]
        return {
            "sealed": bool(current),
            "keyId": current[-1]["masterKeyId"] if current else None,
            "isHere": bool(current) and keys is not None and keys.own is not None,
            "problem": problem,
            "dataKeys": [
                {name: row[name] for name in ("id", "masterKeyId", "createdAt", "retiredAt", "emptiedAt")}
                for row in shared
            ],
            "ownKeys": len(opened.data_keys.rows) - len(shared),
            "unfinished": opened.data_keys.unfinished,
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


def _configured_keys(home: str, store: str) -> tuple[Keys | None, str]:
    """The configured keys, or None and why encrypted data cannot be read with them."""
    try:
        settings = load_settings(home=home, store=store)
        keys = read_keys(settings.encryption, settings.user_environment)
        Store(settings.store_url, keys).close()
    except (KeyMissing, UsageError) as error:
        return None, str(error)
    return keys, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRotation:
    """What a rotation of keys has changed."""

    key_id: str
    """The master key from now on."""
    rows: int | None
    """Rows that were encrypted again; None: none were to be."""
    data_keys: int | None
    """Data keys that the new master key wraps; None: there is no new one."""


def rotate_keys(
    settings: Settings,
    *,
    file: Path | None = None,
    variable: str = "",
    arn: str = "",
    re_encrypt: bool = False,
    on_progress: Callable[[str, int], None] = lambda table, rows: None,  # noqa: ARG005
) -> KeyRotation:
    """Wrap the data keys of a store with a new master key (in a file, in a variable, or of AWS KMS), encrypt
    every row again with a new data key, or both.

    An interrupted encryption is resumed. `on_progress` is called with the table and its rows so far.
    """
    new = _new_key(file, variable, arn, settings)
    if new is None and not re_encrypt:
        raise UsageError("nothing to rotate\nPass --new-key-file FILE, --new-kms-key ARN, or --re-encrypt.")
    keys = read_keys(settings.encryption, settings.user_environment)
    if keys.own is None:
        raise UsageError(
            "no key is configured\nSet key_file under [encryption] in proctor.toml; see docs/encryption.md."
        )
    with Store(settings.store_url, keys) as store:
        rows = store.reencrypt(on_progress) if re_encrypt else None
        data_keys = store.data_keys.rewrap(new) if new else None
    return KeyRotation(key_id=(new or keys.own).id, rows=rows, data_keys=data_keys)


def _new_key(file: Path | None, variable: str, arn: str, settings: Settings) -> MasterKey | None:
    if sum(map(bool, (file, variable, arn))) > 1:
        raise UsageError("more than one new key\nPass one of --new-key-file, --new-key-env, --new-kms-key.")
    if file:
        return key_in(file)
    if variable:
        return read_keys({"key_env": variable}, settings.user_environment).own
    return KmsKey(arn=arn) if arn else None
