"""Encrypts and decrypts the texts of a store.

A store contains its random data keys, wrapped by a master key that is outside. A data key is unwrapped when
it is first needed. A run or an evaluator may have its own.
"""

import base64
import binascii
import hmac
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeGuard

from proctor.errors import KeyMissing, KeyUnusable, StoreError
from proctor.json_values import JsonMap
from proctor.store.database import Connection, Database, Row, Transaction
from proctor.store.keys import KEY_BYTES, NONCE_BYTES, Keys, MasterKey, aes_gcm
from proctor.store.signatures import SigningKey
from proctor.store.writer import timestamp

# Which columns are encrypted. `tests/store/test_sealing.py` lists the others, with the reasons.

ENCRYPTED: dict[str, tuple[str, ...]] = {
    "batches": ("planText", "defaultsJson", "optionsJson"),
    "batch_items": ("prompt", "factors", "details", "settings", "error"),
    "sessions": ("name", "error", "notes", "attributesJson", "toolsJson"),
    "iterations": ("testOutput", "output", "setupOutput"),
    "messages": ("content",),
    "tool_calls": ("argsJson", "result"),
    "model_calls": ("error", "request", "response", "parametersJson"),
    "metrics": ("label",),
    "scores": ("label", "explanation", "error", "votes", "ballots"),
    "labels": ("label", "note"),
    "calibrations": ("documentJson",),
    "merge_history": ("squashMessage", "error"),
    "blobs": ("data",),
    "questions": ("prompt", "answer"),
    "run_resources": ("content",),
    "evaluations": ("requestJson", "metadataJson", "definitionsJson", "failure"),
    "evaluator_definitions": ("description", "configJson"),
    "online_configs": ("description", "documentJson", "failure"),
    "datasets": ("description",),
    "dataset_examples": ("contentJson",),
    "recommendations": ("description", "requestJson", "resultJson"),
    "defined_resources": ("description", "documentJson"),
    "arrivals": ("data",),
    "log_events": ("message",),
    "annotations": ("text",),
    "session_filters": ("filterJson",),
}
"""By table, in the order of its columns."""
DETERMINISTIC = frozenset(
    {
        "batch_items.prompt",
        "sessions.name",
        "scores.label",
        "questions.prompt",
        "arrivals.data",
        "annotations.text",
    }
)
"""Encrypted so that equal texts with one key have equal ciphertexts: queries group by them or compare them.
The disk reveals which of them are equal, and no more."""
LEVELS = frozenset({"batch_items.factors"})
"""JSON objects of which each text is encrypted by itself, deterministically: queries group by one of them."""
PLAIN_LEVELS = frozenset({"model", "agent", "evaluator", "service", "client", "therapist"})
"""Factors whose levels are names that are in other columns too or are searched for."""
EMPTY = ("", "{}", "[]")
"""Not encrypted: queries test whether there is an error, a label, a note."""


def is_digest(table: str, column: str) -> bool:
    """Whether a column holds the digest of a long text."""
    return column.endswith("Blob") or (table, column) == ("blobs", "digest")


# Encrypted values.

MARK = "sealed:1:"
"""Prefix of an encrypted value."""
MARK_BYTES = MARK.encode()
KEYED = "keyed:"
"""Prefix of the digest of an encrypted long text."""


class DataKey:
    """An unwrapped data key."""

    __slots__ = ("_alike", "_cipher", "_digests", "id", "signing", "until")

    def __init__(self, key_id: str, secret: bytes, until: float) -> None:
        self.id, self.until = key_id, until
        # Four uses, four keys, so that none reveals anything about the others.
        self._cipher = aes_gcm(_derived(secret, "texts"))
        self._alike, self._digests = _derived(secret, "alike"), _derived(secret, "digests")
        self.signing = SigningKey(key_id, _derived(secret, "signatures"))

    def encrypt(self, place: str, value: bytes, *, is_deterministic: bool) -> tuple[bytes, bytes]:
        """The header and the ciphertext of a value."""
        head = f"{MARK}{self.id}:{place}:".encode()
        # A deterministic nonce is derived from the text, and so never used for another text.
        nonce = (
            hmac.digest(self._alike, head + value, "sha256")[:NONCE_BYTES]
            if is_deterministic
            else os.urandom(NONCE_BYTES)
        )
        return head, nonce + self._cipher.encrypt(nonce, value, head)

    def decrypt(self, place: str, encrypted: bytes) -> bytes:
        """The plain value. Raises the error of the cipher if it was changed."""
        head = f"{MARK}{self.id}:{place}:".encode()
        return self._cipher.decrypt(encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:], head)

    def digest(self, plain: str) -> str:
        """The keyed digest of a text, from its digest."""
        return f"{KEYED}{self.id}:{hmac.digest(self._digests, plain.encode(), 'sha256').hex()}"


def is_encrypted(value: object) -> TypeGuard[str | bytes]:
    """Whether a value looks encrypted."""
    if type(value) is str:
        return value.startswith(MARK)
    return type(value) is bytes and value.startswith(MARK_BYTES)


def contains_encrypted(value: object) -> TypeGuard[str | bytes]:
    """Whether a value is encrypted, or a JSON object with an encrypted text."""
    return is_encrypted(value) or (type(value) is str and value[:1] == "{" and f'"{MARK}' in value)


def parts_of(value: str | bytes) -> tuple[str, str, bytes] | None:
    """The data key, the column and the ciphertext of a value; None if it is not encrypted."""
    try:
        if isinstance(value, str):
            _, _, key_id, place, text = value.split(":", 4)
            return key_id, place, base64.b64decode(text, validate=True)
        _, _, head, where, data = value.split(b":", 4)
        return head.decode(), where.decode(), data
    except (ValueError, binascii.Error, UnicodeError):
        return None


def first_encrypted(text: str) -> str:
    """The first encrypted text in a JSON object."""
    return text[text.find(MARK) :].partition('"')[0]


def _derived(secret: bytes, use: str) -> bytes:
    return hmac.digest(secret, f"proctor {use}".encode(), "sha256")


STORE: Mapping[str, str] = {"proctor": "store"}
"""Encryption context of the store's own data keys."""

# A missing key is not requested again for each of a thousand values.
RETRY_SECONDS = 10.0
OWN_KEY_SECONDS = 300.0
"""How long the unwrapped key of a run or an evaluator is cached: access to it may be revoked."""
MOST_CACHED = 4096
"""JSON objects whose encrypted form is cached."""
MOST_UNKNOWN = 10_000
"""Unknown key ids that are looked up only once."""


class Sealer:
    """The data keys of one store. Safe to use from any thread."""

    def __init__(self, keys: Keys, load: Callable[[], list[Row]]) -> None:
        """`load` returns the rows of `data_keys`, oldest first."""
        self.keys = keys
        self._load = load
        self._rows: dict[str, Row]
        self._opened: dict[str, DataKey] = {}
        self._missed: dict[str, tuple[float, KeyMissing]] = {}
        self._unknown: set[str] = set()
        self._levels: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        self.is_active: bool
        """Whether anything in the store may be encrypted."""
        self.current: str
        """The data key for new texts; empty: they are not encrypted."""
        self._scopes: dict[str, str]
        self.reload()

    def reload(self) -> None:
        """Read the data keys again."""
        with self._lock:
            self._rows = {row["id"]: row for row in self._load()}
            current = {row["scope"]: row["id"] for row in self._rows.values() if not row["retiredAt"]}
            self.current = current.pop("", "")
            self._scopes = current
            self._missed.clear()
            self.is_active = bool(self._rows)

    def add(self, row: Row) -> None:
        """Add a data key that is being written."""
        with self._lock:
            self._rows[row["id"]] = row
            self._scopes[row["scope"]] = row["id"]
            self.is_active = True

    def key_for(self, scope: str) -> str:
        """The data key of a run or an evaluator: its own, or the store's."""
        return self._scopes.get(scope, self.current)

    def has_own(self, scope: str) -> bool:
        """Whether a run or an evaluator has a key of its own."""
        return scope in self._scopes

    def knows(self, key_id: str) -> bool:
        """Whether there is such a data key."""
        if key_id not in self._rows and key_id not in self._unknown:
            # Another process may have created it; or the text of an agent only looks encrypted.
            self.reload()
            if key_id not in self._rows and len(self._unknown) < MOST_UNKNOWN:
                self._unknown.add(key_id)
        return key_id in self._rows

    def can_open(self, scope: str) -> bool:
        """Whether the key of a scope is available."""
        try:
            self._key(self.key_for(scope))
        except (KeyMissing, KeyUnusable):
            return False
        return True

    def check(self) -> None:
        """Raise `KeyMissing` if the configured master key does not unwrap the store's current key."""
        if self.current and self.keys.own is not None:
            self._key(self.current)

    def encrypt(self, key_id: str, place: str, value: str | bytes, *, is_deterministic: bool) -> str | bytes:
        """A value as it is written. Empty values are not changed."""
        if value in EMPTY or not value:
            return value
        if place in LEVELS:
            return self._encrypt_levels(key_id, place, str(value))
        if isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            head, encrypted = self._key(key_id).encrypt(place, data, is_deterministic=is_deterministic)
            return (head + base64.b64encode(encrypted)).decode("ascii")
        return b"".join(self._key(key_id).encrypt(place, value, is_deterministic=is_deterministic))

    def encrypt_current(self, place: str, value: str | bytes) -> str | bytes:
        """A value encrypted with the store's current key."""
        return self.encrypt(self.current, place, value, is_deterministic=place in DETERMINISTIC)

    def kinds(self) -> dict[str, list[str]]:
        """The data keys: the store's current one, its retired ones, and those of runs and evaluators."""
        store = [key_id for key_id, row in self._rows.items() if not row["scope"]]
        return {
            "current": [self.current] if self.current else [],
            "retired": [key_id for key_id in store if key_id != self.current],
            "own": [key_id for key_id, row in self._rows.items() if row["scope"]],
        }

    def current_or_own(self) -> list[str]:
        """The data keys whose texts need no re-encryption."""
        kinds = self.kinds()
        return [*kinds["current"], *kinds["own"]]

    def _encrypt_levels(self, key_id: str, place: str, text: str) -> str:
        """A JSON object with each of its texts encrypted."""
        # The items of one plan share most of this.
        if (known := self._levels.get((key_id, text))) is not None:
            return known
        key, levels = self._key(key_id), json.loads(text)
        for name, level in levels.items():
            if isinstance(level, str) and level and name not in PLAIN_LEVELS:
                head, encrypted = key.encrypt(
                    place, level.encode("utf-8", "surrogatepass"), is_deterministic=True
                )
                levels[name] = (head + base64.b64encode(encrypted)).decode("ascii")
        result = json.dumps(levels, ensure_ascii=False, separators=(",", ":"))
        return _cached(self._levels, (key_id, text), result)

    def decrypt_levels(self, text: str) -> str:
        """A JSON object with each of its texts decrypted."""
        if (known := self._levels.get(("", text))) is not None:
            return known
        try:
            levels = json.loads(text)
        except ValueError:
            return text
        opened: dict[str, str | bytes] = {}
        may_cache = True
        for name, level in levels.items():
            parts = parts_of(level) if is_encrypted(level) else None
            if parts and parts[1] in LEVELS and self.knows(parts[0]):
                table, _, column = parts[1].partition(".")
                opened[name] = self.decrypt(level, column, f'"{table}" "{column}"')
                # Access to an own key may be revoked; what it decrypted must not stay in the cache.
                may_cache = may_cache and not self._rows[parts[0]]["scope"]
        # A text that only looks encrypted stays unchanged.
        plain = json.dumps(levels | opened, ensure_ascii=False, separators=(",", ":")) if opened else text
        return _cached(self._levels, ("", text), plain) if may_cache else plain

    def signing_key(self, key_id: str = "") -> SigningKey | None:
        """The key that results are signed with, or the one with this id; None: it is not available.

        It is derived from the store's data key. A store without encryption has a key in a file.
        """
        if not key_id and not self.current:
            return self.keys.signing.key(create=True) if self.keys.signing else None
        if key_id and not self.knows(key_id):
            own = self.keys.signing.key() if self.keys.signing else None
            return own if own and own.id == key_id else None
        try:
            return self._key(key_id or self.current).signing
        except (KeyMissing, KeyUnusable):
            return None

    def keyed(self, key_id: str, digest: str) -> str:
        """The keyed digest of a long text; one that is already keyed is not changed."""
        return digest if digest.startswith(KEYED) else self._key(key_id).digest(digest)

    def encrypted_forms(self, place: str, value: str) -> list[object]:
        """All forms of a text in a deterministic column: plain, and encrypted with each known key."""
        if value in EMPTY:
            return [value]
        with self._lock:
            known = [key for key in self._opened.values() if not self._rows[key.id]["scope"]]
        return [
            value,
            *(self.encrypt(key.id, place, value, is_deterministic=True) for key in known),
        ]

    def decrypt(self, value: str | bytes, column: str, sql: str) -> str | bytes:
        """Decrypt a value; a text that only looks encrypted is not changed."""
        parts = parts_of(value)
        if parts is None or not self.knows(parts[0]):
            return value
        key_id, place, encrypted = parts
        table, _, name = place.partition(".")
        # The authenticated column is not one of the query: the value was moved.
        is_moved = f'"{table}"' not in sql or (column != name and f'"{name}"' not in sql)
        try:
            data = self._key(key_id).decrypt(place, encrypted) if not is_moved else b""
        except (KeyMissing, KeyUnusable):
            raise
        except Exception as error:
            raise _changed(column) from error
        if is_moved:
            raise _changed(column)
        return data if isinstance(value, bytes) else data.decode("utf-8", "surrogatepass")

    def master_of(self, value: str | bytes) -> str:
        """The id of the master key of an encrypted value."""
        inner = value if is_encrypted(value) else first_encrypted(str(value))
        parts = parts_of(inner)
        row = self._rows.get(parts[0]) if parts else None
        return str(row["masterKeyId"]) if row else "(unknown)"

    def new_row(self, scope: str, master: MasterKey, context: Mapping[str, str], when: str) -> Row:
        """The row of a new data key. Raises `KeyUnusable` if the master key cannot be used."""
        wrapped = master.wrap(os.urandom(KEY_BYTES), context)
        return {
            "id": os.urandom(6).hex(),
            "scope": scope,
            "masterKeyId": master.id,
            "contextJson": json.dumps(dict(context)),
            "wrapped": base64.b64encode(wrapped).decode("ascii"),
            "createdAt": when,
            "retiredAt": None,
            "emptiedAt": None,
        }

    def unwrapped(self, row: Row) -> bytes:
        """Unwrap the data key of a row."""
        master = self.keys.find(row["masterKeyId"])
        return master.unwrap(base64.b64decode(row["wrapped"]), json.loads(row["contextJson"]))

    def _key(self, key_id: str) -> DataKey:
        key = self._opened.get(key_id)
        if key and key.until > time.monotonic():
            return key
        with self._lock:
            missed = self._missed.get(key_id)
            if missed and time.monotonic() - missed[0] < RETRY_SECONDS:
                raise missed[1]
            try:
                row = self._rows[key_id]
                until = time.monotonic() + OWN_KEY_SECONDS if row["scope"] else float("inf")
                data_key = self._opened[key_id] = DataKey(key_id, self.unwrapped(row), until)
            except KeyMissing as error:
                self._missed[key_id] = (time.monotonic(), error)
                raise
        return data_key


def _changed(column: str) -> StoreError:
    return StoreError(
        f"cannot decrypt a value of {column}: it was changed, or moved there from another column"
    )


def _cached(known: dict[tuple[str, str], str], key: tuple[str, str], value: str) -> str:
    if len(known) >= MOST_CACHED:
        known.clear()
    known[key] = value
    return value


# The data keys of a store.

_ALL = 'SELECT * FROM "data_keys" ORDER BY "createdAt", "id"'
_CURRENT = 'SELECT "id" FROM "data_keys" WHERE "scope" = ? AND "retiredAt" IS NULL'


def rows_of(database: Database) -> list[Row]:
    """All data keys, the oldest first."""
    connection = database.connect()
    try:
        return connection.rows(_ALL)
    finally:
        connection.close()


class DataKeys:
    """Queries and changes of a store's data keys."""

    def __init__(self, transaction: Transaction, sealer: Sealer) -> None:
        self._transaction, self._sealer = transaction, sealer

    @property
    def is_encrypted(self) -> bool:
        """Whether new texts are encrypted."""
        return bool(self._sealer.current)

    @property
    def rows(self) -> list[Row]:
        """All data keys, wrapped, oldest first."""
        return self._transaction(lambda connection: connection.rows(_ALL))

    def ensure(self, *, can_write: bool = True) -> None:
        """Create the first data key if a master key is configured, and check that the two match."""
        own = self._sealer.keys.own
        if own is not None and not self._sealer.current and can_write:
            self._replace(own, retire=False)
        self._sealer.check()

    def renew(self) -> None:
        """Use a new data key for new texts; the old ones still decrypt theirs."""
        own = self._sealer.keys.own
        if own is None:
            raise KeyMissing("no key is configured\nSet one in proctor.toml, [encryption] key_file.")
        self._sealer.check()
        self._replace(own, retire=True)

    @property
    def unfinished(self) -> bool:
        """Whether a re-encryption was interrupted."""
        return any(row["retiredAt"] and not row["emptiedAt"] for row in self.rows)

    def mark_purged(self) -> None:
        """Record that nothing is encrypted with retired keys any more."""
        now = timestamp(datetime.now(UTC))
        self._transaction(
            lambda connection: connection.run(
                'UPDATE "data_keys" SET "emptiedAt" = ? '
                'WHERE "retiredAt" IS NOT NULL AND "emptiedAt" IS NULL',
                (now,),
            )
        )
        self._sealer.reload()

    def rewrap(self, new: MasterKey) -> int:
        """Wrap the store's data keys with another master key; return their number."""
        mine = [row for row in self.rows if not row["scope"]]
        wrapped = [
            (new.id, base64.b64encode(new.wrap(self._sealer.unwrapped(row), STORE)).decode(), row["id"])
            for row in mine
        ]
        self._transaction(
            lambda connection: connection.run_many(
                'UPDATE "data_keys" SET "masterKeyId" = ?, "wrapped" = ? WHERE "id" = ?', wrapped
            )
        )
        return len(wrapped)

    def make(self, scope: str, master_key_id: str, context: Mapping[str, str], now: datetime) -> Row:
        """A new data key of a run or an evaluator, not yet written. Raises `KeyUnusable` if that fails."""
        return self._sealer.new_row(scope, self._sealer.keys.find(master_key_id), context, timestamp(now))

    def write(self, connection: Connection, row: JsonMap) -> None:
        """Write the data key of a run or an evaluator, replacing its previous one."""
        connection.run('DELETE FROM "data_keys" WHERE "scope" = ?', (row["scope"],))
        connection.insert("data_keys", row)
        self._sealer.add(dict(row))

    def first_with_own(self, scopes: Iterable[str]) -> str:
        """The first of some runs and evaluators with its own key; empty: none."""
        return next((scope for scope in scopes if self._sealer.has_own(scope)), "")

    def can_open(self, scope: str) -> bool:
        """Whether the texts of a run or an evaluator can be decrypted."""
        key = self._sealer.key_for(scope)
        return not key or self._sealer.can_open(scope)

    def _replace(self, own: MasterKey, *, retire: bool) -> None:
        now = timestamp(datetime.now(UTC))
        row = self._sealer.new_row("", own, STORE, now)

        def work(connection: Connection) -> None:
            # Two processes that open a store at once must not both create its first key.
            connection.lock_table("data_keys")
            if not retire and connection.rows(_CURRENT, ("",)):
                return
            connection.run(
                'UPDATE "data_keys" SET "retiredAt" = ? WHERE "scope" = ? AND "retiredAt" IS NULL', (now, "")
            )
            connection.insert("data_keys", row)

        self._transaction(work)
        self._sealer.reload()
