"""Data keys and encrypted values: which key is used, how long it is kept, what does not open."""

import json

import pytest

from clocks import Clock
from proctor.errors import KeyMissing, StoreError
from proctor.store import Store, sealer
from proctor.store.keys import Keys, LocalKey
from proctor.store.sealer import STORE, Sealer, is_encrypted

MASTER = LocalKey(secret=bytes(range(32)))
OTHER = LocalKey(secret=b"another key of thirty-two bytes!")
AT = "2026-03-01T12:00:00.000Z"
QUERY = 'SELECT "content" FROM "messages"'


@pytest.fixture
def clock(monkeypatch):
    """Turned by hand: keys are kept for minutes."""
    made = Clock(1000.0)
    monkeypatch.setattr(sealer.time, "monotonic", made)
    return made


def new_sealer(*scopes, keys=None):
    """A sealer with the store's key and keys of some runs."""
    keys = keys or Keys(own=MASTER)
    rows = []
    made = Sealer(keys, lambda: rows)
    made.stored = rows
    for scope in scopes:
        rows.append(made.new_row(scope, MASTER, STORE, AT))
    made.reload()
    return made


def encrypt(made, text="words", scope="", place="messages.content"):
    return made.encrypt(made.key_for(scope), place, text, is_deterministic=False)


def test_a_run_uses_its_own_key_and_others_that_of_the_store():
    made = new_sealer("", "run")
    store_key, run_key = (row["id"] for row in made.stored)
    assert (made.current, made.key_for("run"), made.key_for("other")) == (store_key, run_key, store_key)
    assert (made.has_own("run"), made.has_own("other"), made.has_own("")) == (True, False, False)
    assert made.kinds() == {"current": [store_key], "retired": [], "own": [run_key]}
    made.stored[0]["retiredAt"] = AT
    made.reload()
    assert (made.current, made.key_for("other")) == ("", "")
    assert made.kinds() == {"current": [], "retired": [store_key], "own": [run_key]}
    assert made.current_or_own() == [run_key]


def test_a_missing_key_is_asked_for_again_after_ten_seconds(clock):
    value = encrypt(made := new_sealer(""))
    locked = Sealer(Keys(own=OTHER), lambda: made.stored)
    for _ in range(2):
        with pytest.raises(KeyMissing, match=f"with the key {MASTER.id}; the configured key is {OTHER.id}"):
            locked.decrypt(value, "content", QUERY)
    assert not locked.can_open("")
    locked.keys = Keys(own=MASTER)
    clock.now += 9.9
    assert not locked.can_open("")
    clock.now += 0.1
    assert locked.can_open("")
    assert locked.decrypt(value, "content", QUERY) == "words"


@pytest.mark.parametrize(("scope", "is_kept"), [("", True), ("run", False)])
def test_the_key_of_a_run_is_unwrapped_again_after_five_minutes(clock, scope, is_kept):
    made = new_sealer(scope)
    value = encrypt(made, scope=scope)
    made.keys = Keys()
    clock.now += 299.9
    assert made.decrypt(value, "content", QUERY) == "words"
    clock.now += 0.2
    if is_kept:
        assert made.decrypt(value, "content", QUERY) == "words"
    else:
        with pytest.raises(KeyMissing, match="and no key is configured"):
            made.decrypt(value, "content", QUERY)


@pytest.mark.parametrize("value", ["words", "half \ud800", b"\x00bytes", "{}x"])
def test_values_are_encrypted_as_what_they_are(value):
    made = new_sealer("")
    encrypted = made.encrypt(made.current, "messages.content", value, is_deterministic=False)
    assert type(encrypted) is type(value) and is_encrypted(encrypted)
    assert made.decrypt(encrypted, "content", QUERY) == value
    assert encrypted != made.encrypt(made.current, "messages.content", value, is_deterministic=False)
    again = [made.encrypt(made.current, "a.b", value, is_deterministic=True) for _ in range(2)]
    assert again[0] == again[1]


def test_a_value_opens_only_in_its_column():
    made = new_sealer("")
    value = encrypt(made)
    assert made.decrypt(value, "text", 'SELECT "content" AS "text" FROM "messages"') == "words"
    for column, sql in (
        ("content", 'SELECT "content" FROM "tool_calls"'),
        ("result", 'SELECT "result" FROM "messages"'),
    ):
        with pytest.raises(StoreError, match=f"a value of {column}: it was changed, or moved there"):
            made.decrypt(value, column, sql)
    with pytest.raises(StoreError, match="it was changed"):
        made.decrypt(
            value.replace("messages.content", "messages.name"), "name", 'SELECT "name" FROM "messages"'
        )
    assert made.decrypt("sealed:1:none:messages.content:AAAA", "content", QUERY).startswith("sealed:1:none")
    assert made.decrypt("sealed:1:", "content", QUERY) == "sealed:1:"


def test_a_new_data_key_needs_a_master_key(tmp_path):
    with Store(str(tmp_path / "a.db")) as store:
        with pytest.raises(KeyMissing, match="no key is configured"):
            store.data_keys.renew()
        assert not store.data_keys.is_encrypted
        assert store.data_keys.can_open("run"), "nothing is encrypted"
    with Store(str(tmp_path / "a.db"), Keys(own=MASTER)) as store:
        assert store.data_keys.is_encrypted
        store.data_keys.renew()
        first, second = store.data_keys.rows
        assert first["retiredAt"] and not second["retiredAt"]
        assert store.data_keys.unfinished
        store.data_keys.mark_purged()
        assert not store.data_keys.unfinished
        first, second = store.data_keys.rows
        assert first["emptiedAt"] and not second["emptiedAt"]
    with Store(str(tmp_path / "a.db")) as store:
        assert not store.data_keys.can_open("run")
        assert store.data_keys.first_with_own(["a", "b"]) == ""


def test_what_was_encrypted_stays_readable():
    row = {
        "id": "key-1",
        "scope": "",
        "masterKeyId": "local:d152f6121ae0127e",
        "contextJson": json.dumps(STORE),
    }
    row |= {"createdAt": AT, "retiredAt": None, "emptiedAt": None}
    row["wrapped"] = "3gxsF6XZ3gAQ1EHQxX3lVhJDYpMtezJMOtBVmTGqO8a0R109VoNnTfhG9tmUfCX7n/thjwAM15oCtTZ8"
    made = Sealer(Keys(own=MASTER), lambda: [row])
    made.reload()

    value = "sealed:1:key-1:messages.content:lDuIqTbhYIetBK5mCpr8kw5kEEboCeEKeqB7xB4DkUAG"
    assert made.decrypt(value, "content", QUERY) == "words"
    # Equal values are found by these.
    value = "sealed:1:key-1:messages.content:IMW8mGZSHpgoKo/pRSj4Vi65gGL2n4hYqy1aba72e7er"
    assert made.encrypt("key-1", "messages.content", "words", is_deterministic=True) == value
    keyed = "keyed:key-1:10612a9742705740d11119537c548b3e4a3b0cf2eff6ae8f839fd4162cc3856e"
    assert made.keyed("key-1", "d" * 64) == made.keyed("key-1", keyed) == keyed
    for nothing in ("", "{}", "[]", b""):
        assert made.encrypt("key-1", "messages.content", nothing, is_deterministic=False) == nothing
