"""Seal texts on their way into a store, and open them on their way out.

A store has data keys of its own, random ones, which lie in it wrapped by a master key that does not. One is
unwrapped when it is first needed. A run or an evaluator may have one of its own.

Knows nothing of statements, or of what the texts say.
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
from typing import Any, TypeVar

from proctor.errors import KeyMissing, KeyUnusable, StoreError
from proctor.store.database import Connection, Database, Row, insertion
from proctor.store.keys import KEY_BYTES, NONCE_BYTES, Keys, MasterKey, sealing_with
from proctor.store.tables import COLUMNS
from proctor.store.writer import timestamp

# Which columns are sealed where a store has a key, and why the others are not.


SEALED: dict[str, tuple[str, ...]] = {
    "batches": ("planText", "defaultsJson", "optionsJson"),
    "batch_items": ("prompt", "factors", "details", "settings", "error"),
    "sessions": ("name", "error", "notes", "attributesJson", "toolsJson"),
    "iterations": ("testOutput", "output"),
    "messages": ("content",),
    "tool_calls": ("argsJson", "result"),
    "model_calls": ("error", "request", "response"),
    "metrics": ("label",),
    "scores": ("label", "explanation", "error", "votes"),
    "labels": ("label", "note"),
    "merge_history": ("squashMessage", "error"),
    "blobs": ("data",),
    "questions": ("prompt", "answer"),
    "run_resources": ("content",),
    "evaluations": ("requestJson", "metadataJson", "definitionsJson", "failure"),
    "evaluator_definitions": ("description", "configJson"),
    "online_configs": ("description", "documentJson", "failure"),
    "arrivals": ("data",),
    "log_events": ("message",),
}
"""By table, in the order of its columns."""


ALIKE = frozenset(
    {"batch_items.prompt", "sessions.name", "scores.label", "questions.prompt", "arrivals.data"}
)
"""Sealed so that equal texts under one key look equal: queries group by them or look for one. Whoever has
the disk can tell which of them are equal, and no more."""


LEVELS = frozenset({"batch_items.factors"})
"""Objects of which each text is sealed by itself, alike: queries group by one of them."""


PLAIN_LEVELS = frozenset({"model", "agent", "evaluator", "service", "client", "therapist"})
"""Factors whose levels are names, which stand in other columns too or are looked for."""


PLAIN: dict[str, tuple[str, ...]] = {
    "an id, which other rows refer to and queries look for": (
        *("batches.runId", "batch_items.runId", "batch_items.id", "batch_items.sessionId", "sessions.id"),
        *("sessions.runId", "sessions.itemId", "sessions.thread", "sessions.externalId"),
        *("iterations.sessionId", "iterations.traceId", "messages.sessionId", "tool_calls.sessionId"),
        *("tool_calls.callId", "model_calls.sessionId", "model_calls.callId", "metrics.sessionId"),
        *("scores.sessionId", "scores.target", "scores.judgedSessionId", "labels.sessionId"),
        *("labels.target", "merge_history.sessionId", "ledger.sessionId", "ledger.runId", "ledger.itemId"),
        *("questions.runId", "questions.id", "questions.itemId", "questions.sessionId", "pools.runId"),
        *("evaluations.id", "evaluations.arn", "evaluations.clientToken", "evaluator_definitions.id"),
        *("evaluator_definitions.kmsKeyArn", "online_configs.id", "online_configs.runId"),
        *("online_sessions.configId", "online_sessions.sessionId", "resource_tags.arn"),
        *("client_tokens.operation", "client_tokens.token", "client_tokens.resourceId", "arrivals.traceId"),
        *("arrivals.spanId", "arrivals.part", "arrivals.parentId", "arrivals.sessionKey"),
        *("arrivals.sessionId", "data_keys.id", "data_keys.scope", "data_keys.masterKeyId"),
        "run_resources.runId",
    ),
    "a moment": (
        *("batches.createdAt", "batches.finishedAt", "batches.heartbeatAt", "batches.abortRequestedAt"),
        *("batch_items.startedAt", "batch_items.finishedAt", "sessions.startedAt", "sessions.finishedAt"),
        *("iterations.startTime", "iterations.endTime", "messages.timestamp", "tool_calls.timestamp"),
        *("model_calls.timestamp", "scores.timestamp", "labels.at", "merge_history.startedAt"),
        *("merge_history.finishedAt", "ledger.timestamp", "questions.askedAt", "questions.answeredAt"),
        *("pools.heldUntil", "pools.cutAt", "pools.heartbeatAt", "evaluations.createdAt"),
        *("evaluations.discoveredAt", "evaluations.deletedAt", "evaluator_definitions.createdAt"),
        *("evaluator_definitions.updatedAt", "online_configs.enabledAt", "online_configs.createdAt"),
        *(
            "online_configs.updatedAt",
            "online_configs.watchedAt",
            "online_sessions.at",
            "client_tokens.at",
            "arrivals.arrivedAt",
        ),
        *("log_streams.createdAt", "data_keys.createdAt", "data_keys.retiredAt"),
        "data_keys.emptiedAt",
    ),
    "one word of a few, ours": (
        *("batches.job", "batches.status", "batches.reason", "batches.proctorVersion", "batch_items.runner"),
        *("batch_items.status", "batch_items.reason", "sessions.job", "sessions.status"),
        *("sessions.endReason", "sessions.source", "iterations.testResult", "messages.role"),
        *("model_calls.status", "model_calls.priceSource", "scores.level", "scores.errorCode"),
        *("scores.ignored", "labels.level", "merge_history.mode", "merge_history.result", "ledger.kind"),
        *("evaluator_definitions.level", "evaluator_definitions.kind", "online_sessions.decision"),
        "run_resources.kind",
    ),
    "a name that tables are grouped, filtered or sorted by": (
        *("batch_items.agent", "batch_items.model", "sessions.agent"),
        *("sessions.agentVersion", "sessions.model", "sessions.service", "sessions.logGroup"),
        *("iterations.model", "messages.name", "tool_calls.toolName", "model_calls.provider"),
        *("model_calls.model", "model_calls.price", "metrics.name", "scores.evaluator", "scores.dimension"),
        *("labels.evaluator", "labels.dimension", "labels.who", "questions.actor", "pools.name"),
        *("evaluations.name", "evaluations.outputGroup", "evaluations.outputStream"),
        *("evaluator_definitions.name", "online_configs.name", "resource_tags.key", "resource_tags.value"),
        *("arrivals.service", "arrivals.logGroup", "log_streams.logGroup", "log_streams.logStream"),
        *("log_events.logGroup", "log_events.logStream", "run_resources.name"),
    ),
    "where something is on this machine, which lies open there": (
        *("batches.planPath", "batches.owner", "batch_items.repo", "sessions.repo", "sessions.branch"),
        *("sessions.baseBranch", "sessions.worktree", "merge_history.baseBranch"),
        *("merge_history.conflictFiles", "ledger.holder", "online_configs.watchedBy", "pools.owner"),
    ),
    "a digest: whoever knows the whole text can recognise it, nobody can read it": (
        *("batches.planDigest", "batch_items.digest", "batch_items.iterSha", "sessions.baseSha"),
        *("iterations.commitSha", "scores.evaluatorDigest", "merge_history.beforeSha"),
        *("merge_history.afterSha", "evaluations.requestDigest", "client_tokens.digest"),
        "run_resources.digest",
    ),
    "keyed: no text can be recognised by it": (
        *("blobs.digest", "sessions.toolsJsonBlob", "iterations.testOutputBlob", "iterations.outputBlob"),
        *("messages.contentBlob", "tool_calls.argsJsonBlob", "tool_calls.resultBlob"),
        *("model_calls.requestBlob", "model_calls.responseBlob", "scores.explanationBlob"),
        *("labels.noteBlob", "evaluations.metadataJsonBlob", "evaluator_definitions.configJsonBlob"),
        "log_events.messageBlob",
    ),
    "what is needed to open the rest": ("data_keys.contextJson", "data_keys.wrapped"),
}
"""Columns that hold text and stay readable, by the reason."""


EMPTY = ("", "{}", "[]")
"""What says nothing is not sealed: queries ask whether there is an error, a label, a note."""


def is_digest(table: str, column: str) -> bool:
    """Whether a column holds the digest of a long text."""
    return column.endswith("Blob") or (table, column) == ("blobs", "digest")


# What a statement does to sealed columns, read from its text.


MARK = "sealed:1:"
"""How a sealed value begins."""


# Sealed values: what they look like, and the key that makes them.


MARK_BYTES = MARK.encode()


KEYED = "keyed:"
"""How the digest of a long text begins that is sealed."""


class DataKey:
    """One key of a store, in the clear."""

    __slots__ = ("_alike", "_cipher", "_digests", "id", "until")

    def __init__(self, key_id: str, secret: bytes, until: float) -> None:
        self.id, self.until = key_id, until
        # Three uses, three keys: what one gives away says nothing about the others.
        self._cipher = sealing_with(_derived(secret, "texts"))
        self._alike, self._digests = _derived(secret, "alike"), _derived(secret, "digests")

    def sealed(self, place: str, value: bytes, *, is_alike: bool) -> tuple[bytes, bytes]:
        """What stands in front of a sealed value, and the value."""
        head = f"{MARK}{self.id}:{place}:".encode()
        # The nonce of what has to look alike is made from the text itself, and so never used for another.
        nonce = (
            hmac.digest(self._alike, head + value, "sha256")[:NONCE_BYTES]
            if is_alike
            else os.urandom(NONCE_BYTES)
        )
        return head, nonce + self._cipher.encrypt(nonce, value, head)

    def opened(self, place: str, sealed: bytes) -> bytes:
        """The value again. Raises whatever the cipher does when it was changed."""
        head = f"{MARK}{self.id}:{place}:".encode()
        return bytes(self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], head))

    def digest(self, plain: str) -> str:
        """The keyed digest of a text, from its digest."""
        return f"{KEYED}{self.id}:{hmac.digest(self._digests, plain.encode(), 'sha256').hex()}"


def is_sealed(value: Any) -> bool:
    """Whether a value of a row looks like a sealed one."""
    kind = value.__class__
    return (kind is str and value.startswith(MARK)) or (kind is bytes and value.startswith(MARK_BYTES))


def holds_sealed(value: Any) -> bool:
    """Whether a value is sealed, or an object that a sealed text stands in."""
    return is_sealed(value) or (value.__class__ is str and value[:1] == "{" and f'"{MARK}' in value)


def parts_of(value: str | bytes) -> tuple[str, str, bytes] | None:
    """The data key, the column and the sealed text of a value; None when it is no such thing."""
    try:
        if isinstance(value, str):
            _, _, key_id, place, text = value.split(":", 4)
            return key_id, place, base64.b64decode(text, validate=True)
        _, _, head, where, data = value.split(b":", 4)
        return head.decode(), where.decode(), data
    except (ValueError, binascii.Error, UnicodeError):
        return None


def first_sealed(text: str) -> str:
    """The first sealed text in an object."""
    return text[text.find(MARK) :].partition('"')[0]


def _derived(secret: bytes, use: str) -> bytes:
    return hmac.digest(secret, f"proctor {use}".encode(), "sha256")


STORE: Mapping[str, str] = {"proctor": "store"}
"""The context a store's own data keys are wrapped in."""


# A key that could not be had is not asked for again for each of a thousand values.
PATIENCE_SECONDS = 10.0


KEPT_SECONDS = 300.0
"""How long the key of a run or an evaluator is used before it is asked for again: it may have been taken
back since."""


MOST_REMEMBERED = 4096
"""Objects whose sealed form is remembered."""


MOST_MADE_UP = 10_000
"""Names of keys that there are none of, which are looked up once."""


class Sealer:
    """The data keys of one store. Safe to use from any thread."""

    def __init__(self, keys: Keys, load: Callable[[], list[Row]]) -> None:
        """`load` gives the rows of `data_keys`, the oldest first."""
        self.keys = keys
        self._load = load
        self._rows: dict[str, Row] = {}
        self._opened: dict[str, DataKey] = {}
        self._missed: dict[str, tuple[float, KeyMissing]] = {}
        self._made_up: set[str] = set()
        self._levels: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        self.is_active = False
        """Whether anything in the store may be sealed."""
        self.current = ""
        """The data key that what is new is sealed with; empty: it is not sealed."""
        self._scopes: dict[str, str] = {}
        self.reload()

    def reload(self) -> None:
        """Look once more which data keys there are."""
        with self._lock:
            self._rows = {row["id"]: row for row in self._load()}
            living = {row["scope"]: row["id"] for row in self._rows.values() if not row["retiredAt"]}
            self.current = living.pop("", "")
            self._scopes = living
            self._missed.clear()
            self.is_active = bool(self._rows)

    def learn(self, row: Row) -> None:
        """Know a data key that is being written."""
        with self._lock:
            self._rows[row["id"]] = row
            self._scopes[row["scope"]] = row["id"]
            self.is_active = True

    def key_for(self, scope: str) -> str:
        """The data key that a run's or an evaluator's texts are sealed with: its own, or the store's."""
        return self._scopes.get(scope, self.current)

    def has_own(self, scope: str) -> bool:
        """Whether a run or an evaluator has a key of its own."""
        return scope in self._scopes

    def knows(self, key_id: str) -> bool:
        """Whether there is such a data key."""
        if key_id not in self._rows and key_id not in self._made_up:
            # Another process may have made it since; an agent may also have made it up.
            self.reload()
            if key_id not in self._rows and len(self._made_up) < MOST_MADE_UP:
                self._made_up.add(key_id)
        return key_id in self._rows

    def can_open(self, scope: str) -> bool:
        """Whether the key is at hand that a scope's texts are sealed with."""
        try:
            self._key(self.key_for(scope))
        except (KeyMissing, KeyUnusable):
            return False
        return True

    def check(self) -> None:
        """Raise `KeyMissing` when there is a key of the store and the one that was given does not open it."""
        if self.current and self.keys.own is not None:
            self._key(self.current)

    def seal(self, key_id: str, place: str, value: str | bytes, *, is_alike: bool) -> str | bytes:
        """A value as it is written. What says nothing stays as it is."""
        if value in EMPTY or not value:
            return value
        if place in LEVELS:
            return self._sealed_levels(key_id, place, str(value))
        if isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            head, sealed = self._key(key_id).sealed(place, data, is_alike=is_alike)
            return (head + base64.b64encode(sealed)).decode("ascii")
        return b"".join(self._key(key_id).sealed(place, value, is_alike=is_alike))

    def seal_again(self, place: str, value: str | bytes) -> str | bytes:
        """A value under the store's current key."""
        return self.seal(self.current, place, value, is_alike=place in ALIKE)

    def kinds(self) -> dict[str, list[str]]:
        """The data keys: the store's current one, its retired ones, and those of runs and evaluators."""
        store = [key_id for key_id, row in self._rows.items() if not row["scope"]]
        return {
            "current": [self.current] if self.current else [],
            "retired": [key_id for key_id in store if key_id != self.current],
            "own": [key_id for key_id, row in self._rows.items() if row["scope"]],
        }

    def lasting(self) -> list[str]:
        """The data keys whose texts need not be sealed anew."""
        kinds = self.kinds()
        return [*kinds["current"], *kinds["own"]]

    def _sealed_levels(self, key_id: str, place: str, text: str) -> str:
        """An object with each of its texts sealed."""
        # The items of one plan share most of this.
        if (known := self._levels.get((key_id, text))) is not None:
            return known
        key, levels = self._key(key_id), json.loads(text)
        for name, level in levels.items():
            if isinstance(level, str) and level and name not in PLAIN_LEVELS:
                head, sealed = key.sealed(place, level.encode("utf-8", "surrogatepass"), is_alike=True)
                levels[name] = (head + base64.b64encode(sealed)).decode("ascii")
        made = json.dumps(levels, ensure_ascii=False, separators=(",", ":"))
        return _remembered(self._levels, (key_id, text), made)

    def opened_levels(self, text: str) -> str:
        """An object with each of its texts in the clear again."""
        if (known := self._levels.get(("", text))) is not None:
            return known
        try:
            levels = json.loads(text)
        except ValueError:
            return text
        opened: dict[str, str | bytes] = {}
        may_remember = True
        for name, level in levels.items():
            found = parts_of(level) if is_sealed(level) else None
            if found and found[1] in LEVELS and self.knows(found[0]):
                table, _, column = found[1].partition(".")
                opened[name] = self.open(level, column, f'"{table}" "{column}"')
                # A key of its own may be taken back, and what it opened must go with it.
                may_remember = may_remember and not self._rows[found[0]]["scope"]
        # A text that only looks as if something in it were sealed stays as it is, to the letter.
        made = json.dumps(levels | opened, ensure_ascii=False, separators=(",", ":")) if opened else text
        return _remembered(self._levels, ("", text), made) if may_remember else made

    def keyed(self, key_id: str, digest: str) -> str:
        """The digest of a long text as it is written. One that was read from here stays as it is."""
        return digest if digest.startswith(KEYED) else self._key(key_id).digest(digest)

    def forms(self, places: tuple[str, ...], value: Any) -> list[Any]:
        """Every form in which a text may stand in columns that are compared."""
        if not isinstance(value, str) or value in EMPTY:
            return [value]
        with self._lock:
            known = [key for key in self._opened.values() if not self._rows[key.id]["scope"]]
        return [
            value,
            *(self.seal(key.id, place, value, is_alike=True) for key in known for place in places),
        ]

    def open(self, value: str | bytes, column: str, sql: str) -> str | bytes:
        """A sealed value in the clear; a text that only looks like one is left as it is."""
        found = parts_of(value)
        if found is None or not self.knows(found[0]):
            return value
        key_id, place, sealed = found
        table, _, name = place.partition(".")
        # Authenticated, and the column it says it is from is none of those that were asked for: moved.
        is_moved = f'"{table}"' not in sql or (column != name and f'"{name}"' not in sql)
        try:
            data = self._key(key_id).opened(place, sealed) if not is_moved else b""
        except (KeyMissing, KeyUnusable):
            raise
        except Exception as error:
            raise _changed(column) from error
        if is_moved:
            raise _changed(column)
        return data if isinstance(value, bytes) else data.decode("utf-8", "surrogatepass")

    def master_of(self, value: str | bytes) -> str:
        """The id of the master key that a sealed value can be opened with."""
        inner = value if is_sealed(value) else first_sealed(str(value))
        found = parts_of(inner)
        row = self._rows.get(found[0]) if found else None
        return str(row["masterKeyId"]) if row else "(unknown)"

    def new_row(self, scope: str, master: MasterKey, context: Mapping[str, str], when: str) -> Row:
        """A new data key as it is written. Raises `KeyUnusable` when the master key cannot be used."""
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

    def unwrapped(self, row: Mapping[str, Any]) -> bytes:
        """The data key of a row, in the clear."""
        master = self.keys.find(row["masterKeyId"])
        return master.unwrap(base64.b64decode(row["wrapped"]), json.loads(row["contextJson"]))

    def _key(self, key_id: str) -> DataKey:
        found = self._opened.get(key_id)
        if found and found.until > time.monotonic():
            return found
        with self._lock:
            missed = self._missed.get(key_id)
            if missed and time.monotonic() - missed[0] < PATIENCE_SECONDS:
                raise missed[1]
            try:
                row = self._rows[key_id]
                until = time.monotonic() + KEPT_SECONDS if row["scope"] else float("inf")
                made = self._opened[key_id] = DataKey(key_id, self.unwrapped(row), until)
            except KeyMissing as error:
                self._missed[key_id] = (time.monotonic(), error)
                raise
        return made


def _changed(column: str) -> StoreError:
    return StoreError(
        f"a sealed value does not open: what stands in {column} was changed, or moved there from elsewhere"
    )


def _remembered(known: dict[tuple[str, str], str], key: tuple[str, str], made: str) -> str:
    if len(known) >= MOST_REMEMBERED:
        known.clear()
    known[key] = made
    return made


# The data keys of a store: made, found, wrapped anew, retired.


T = TypeVar("T")


Transaction = Callable[[Callable[[Connection], T]], T]


_ALL = 'SELECT * FROM "data_keys" ORDER BY "createdAt", "id"'


_LIVING = 'SELECT "id" FROM "data_keys" WHERE "scope" = ? AND "retiredAt" IS NULL'


def rows_of(database: Database) -> list[Row]:
    """All data keys, the oldest first."""
    connection = database.connect()
    try:
        return connection.rows(_ALL)
    finally:
        connection.close()


def insert(connection: Connection, row: Mapping[str, Any]) -> None:
    """Write a data key."""
    columns = COLUMNS["data_keys"]
    connection.run(insertion("data_keys", columns), tuple(row[name] for name in columns))


class DataKeys:
    """Every question about a store's data keys, and every change of one."""

    def __init__(self, transaction: Transaction[Any], sealer: Sealer) -> None:
        self._transaction, self._sealer = transaction, sealer

    @property
    def is_sealed(self) -> bool:
        """Whether what is new in this store is sealed."""
        return bool(self._sealer.current)

    @property
    def rows(self) -> list[Row]:
        """All of them, the oldest first, wrapped as they are."""
        return list(self._transaction(lambda connection: connection.rows(_ALL)))

    def ensure(self) -> None:
        """See to it that the store has a data key where a master key is given, and that the two fit."""
        own = self._sealer.keys.own
        if own is not None and not self._sealer.current:
            self._replace(own, retire=False)
        self._sealer.check()

    def renew(self) -> None:
        """Seal what is new with a new data key; what the old ones have sealed still opens."""
        own = self._sealer.keys.own
        if own is None:
            raise KeyMissing("no key is given\nName one in proctor.toml, [encryption] key_file.")
        self._sealer.check()
        self._replace(own, retire=True)

    @property
    def unfinished(self) -> bool:
        """Whether somebody began to seal everything anew and did not come to the end."""
        return any(row["retiredAt"] and not row["emptiedAt"] for row in self.rows)

    def emptied(self) -> None:
        """Keep that nothing is under retired keys any more."""
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
        """Wrap the store's data keys with another master key; how many there were. Nothing is resealed."""
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
        """A data key of a run's or an evaluator's own, not yet written. `KeyUnusable`: it cannot be."""
        return self._sealer.new_row(scope, self._sealer.keys.find(master_key_id), context, timestamp(now))

    def keep(self, connection: Connection, row: Mapping[str, Any]) -> None:
        """Write a data key of a run's or an evaluator's own, in place of the one it had."""
        connection.run('DELETE FROM "data_keys" WHERE "scope" = ?', (row["scope"],))
        insert(connection, row)
        self._sealer.learn(dict(row))

    def first_with_own(self, scopes: Iterable[str]) -> str:
        """The first of some runs and evaluators that has a key of its own; empty: none has."""
        return next((scope for scope in scopes if self._sealer.has_own(scope)), "")

    def can_open(self, scope: str) -> bool:
        """Whether what a run or an evaluator has sealed can be read here."""
        key = self._sealer.key_for(scope)
        return not key or self._sealer.can_open(scope)

    def _replace(self, own: MasterKey, *, retire: bool) -> None:
        now = timestamp(datetime.now(UTC))
        row = self._sealer.new_row("", own, STORE, now)

        def work(connection: Connection) -> None:
            # Two that open a store at once must not both make its first key.
            connection.hold("data_keys")
            if not retire and connection.rows(_LIVING, ("",)):
                return
            connection.run(
                'UPDATE "data_keys" SET "retiredAt" = ? WHERE "scope" = ? AND "retiredAt" IS NULL', (now, "")
            )
            insert(connection, row)

        self._transaction(work)
        self._sealer.reload()
