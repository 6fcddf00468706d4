"""Seal texts on their way into a store, and open them on their way out.

A store has data keys of its own, random ones, which lie in it wrapped by a master key that does not. One is
unwrapped when it is first needed. A run or an evaluator may have one of its own.

Knows nothing of statements, or of what the texts say.
"""

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from proctor.errors import KeyMissing, KeyUnusable, StoreError
from proctor.keys import KEY_BYTES, Keys, MasterKey
from proctor.store.sealed_columns import ALIKE, EMPTY, LEVELS, PLAIN_LEVELS
from proctor.store.sealed_values import KEYED, DataKey, first_sealed, is_sealed, parts_of

Row = dict[str, Any]
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
