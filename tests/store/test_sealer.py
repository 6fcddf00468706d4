"""Data keys and encrypted values: which key is used, how long it is kept, what does not open."""

import base64
import json
import sys
from dataclasses import replace

import boto3
import pytest

from proctor.errors import KeyMissing, KeyUnusable, StoreError
from proctor.store import Store, sealer
from proctor.store.keys import (
    Keys,
    KmsKey,
    LocalKey,
    SigningKeyFile,
    _kms,
    aes_gcm,
    read_keys,
)
from proctor.store.sealed_database import LockedRow, encrypted_parameters, rewritten_query
from proctor.store.sealer import (
    STORE,
    Sealer,
    contains_encrypted,
    first_encrypted,
    is_encrypted,
)
from proctor.store.signatures import ATTEMPTS_MARK, SigningKey, _Chain, _check_chain, _mac

MASTER = LocalKey(secret=bytes(range(32)))
OTHER = LocalKey(secret=b"another key of thirty-two bytes!")
AT = "2026-03-01T12:00:00.000Z"
QUERY = 'SELECT "content" FROM "messages"'


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(sealer.time, "monotonic", lambda: self.now)


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


def test_a_store_without_keys_is_not_active_until_one_is_added():
    made = new_sealer()
    assert (made.is_active, made.current, made.key_for("run")) == (False, "", "")
    row = made.new_row("run", MASTER, STORE, AT)
    assert (row["scope"], row["createdAt"], row["retiredAt"], row["emptiedAt"]) == ("run", AT, None, None)
    assert row["masterKeyId"] == MASTER.id and json.loads(row["contextJson"]) == STORE
    made.add(row)
    assert made.is_active
    assert made.decrypt(encrypt(made, scope="run"), "content", QUERY) == "words"


def test_a_missing_key_is_asked_for_again_after_ten_seconds(monkeypatch):
    clock = Clock(monkeypatch)
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


def test_reloading_forgets_which_keys_are_missing():
    made = new_sealer("")
    locked = Sealer(Keys(), lambda: made.stored)
    assert not locked.can_open("")
    locked.keys = Keys(own=MASTER)
    assert not locked.can_open("")
    locked.reload()
    assert locked.can_open("")


@pytest.mark.parametrize(("scope", "is_kept"), [("", True), ("run", False)])
def test_the_key_of_a_run_is_unwrapped_again_after_five_minutes(monkeypatch, scope, is_kept):
    clock = Clock(monkeypatch)
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


@pytest.mark.parametrize("value", ["", "{}", "[]", b""])
def test_empty_values_are_not_encrypted(value):
    made = new_sealer("")
    assert made.encrypt(made.current, "messages.content", value, is_deterministic=False) == value


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


def test_digests_are_keyed_once():
    made = new_sealer("")
    keyed = made.keyed(made.current, "d" * 64)
    assert keyed.startswith(f"keyed:{made.current}:") and "d" * 64 not in keyed
    assert made.keyed(made.current, keyed) == keyed


def test_the_master_key_of_a_value_is_named():
    made = new_sealer("")
    value = encrypt(made)
    assert made.master_of(value) == MASTER.id
    assert made.master_of(json.dumps({"a": 1, "b": value})) == MASTER.id
    assert made.master_of("sealed:1:none:a.b:AAAA") == "(unknown)"
    assert made.master_of("words") == "(unknown)"
    assert first_encrypted(f'{{"b":"{value}","c":2}}') == value
    assert contains_encrypted(f'{{"b":"{value}"}}') and not contains_encrypted(f'["{value}"]')
    assert not contains_encrypted(3) and not is_encrypted(None)


def test_results_are_signed_with_a_key_of_the_store_or_of_a_file(tmp_path):
    made = new_sealer("")
    signing = made.signing_key()
    assert signing.id == made.current == made.signing_key(made.current).id
    assert made.signing_key("none") is None
    assert Sealer(Keys(), lambda: made.stored).signing_key() is None
    assert new_sealer(keys=Keys()).signing_key() is None
    file = SigningKeyFile(tmp_path / "home" / "signing.key")
    plain = new_sealer(keys=Keys(signing=file))
    assert plain.signing_key("none") is None
    assert not (tmp_path / "home").exists(), "asking for another key makes none"
    own = plain.signing_key()
    assert plain.signing_key(own.id) == own
    assert SigningKeyFile(tmp_path / "home" / "signing.key").key().id == own.id
    assert file.is_registered("x") is False
    file.register("x")
    file.register("y")
    assert (file.is_registered("x"), file.is_registered("z")) == (True, False)
    assert [path.name for path in sorted((tmp_path / "home").iterdir())] == ["signed-runs", "signing.key"]
    (tmp_path / "home" / "signing.key").write_text("no key")
    assert SigningKeyFile(tmp_path / "home" / "signing.key").key(create=True) is None


def test_a_check_needs_the_key_only_where_one_is_configured():
    made = new_sealer("")
    Sealer(Keys(), lambda: made.stored).check()
    Sealer(Keys(own=MASTER), lambda: made.stored).check()
    with pytest.raises(KeyMissing):
        Sealer(Keys(own=OTHER), lambda: made.stored).check()


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


# Statements


def test_parameters_for_encrypted_columns_are_found_by_their_place():
    insert = 'INSERT INTO "messages" ("sessionId", "content", "contentBlob") VALUES (?, ?, ?)'
    assert [(each.index, each.place, each.is_digest) for each in encrypted_parameters(insert)] == [
        (1, "messages.content", False),
        (2, "messages.contentBlob", True),
    ]
    update = 'UPDATE "sessions" SET "a" = COALESCE(?, MAX(?, 1)), "name" = ?, "error" = \'\' WHERE "name" = ?'
    (name,) = encrypted_parameters(update)
    assert (name.index, name.place, name.is_deterministic) == (2, "sessions.name", True)
    assert encrypted_parameters('UPDATE "pools" SET "name" = ?') == ()
    assert encrypted_parameters('DELETE FROM "messages" WHERE "content" = ?') == ()
    assert encrypted_parameters('MERGE INTO "pools"') == ()
    with pytest.raises(StoreError, match="cannot be encrypted"):
        encrypted_parameters('MERGE INTO "messages"')


def test_queries_are_rewritten_only_where_encrypted_columns_are_cut_searched_or_compared():
    for sql in (
        'SELECT "runId" FROM "pools" WHERE "name" = ?',
        'SELECT "content" FROM "messages" WHERE "sessionId" = ?',
        'DELETE FROM "sessions" WHERE "name" = ?',
        'SELECT SUBSTR("role", 1, 3) AS "r" FROM "messages"',
        'SELECT 1 FROM "messages" WHERE LOWER("role") LIKE ?',
    ):
        assert rewritten_query(sql) is None
    cut = rewritten_query('SELECT SUBSTR("content", 1, 160) AS "c" FROM "messages"')
    assert (cut.text([]), cut.cuts) == ('SELECT "content" AS "c" FROM "messages"', {"c": 160})
    searched = rewritten_query('SELECT 1 FROM "messages" WHERE LOWER("content") LIKE ?')
    assert "CASE WHEN \"content\" LIKE 'sealed:1:%' THEN ''" in searched.text([])
    compared = rewritten_query('SELECT 1 FROM "sessions" WHERE "id" = ? AND "name" = ? AND "runId" = ?')
    assert [(each.index, each.places) for each in compared.compared] == [(1, ("sessions.name",))]
    assert (
        compared.text([2]) == 'SELECT 1 FROM "sessions" WHERE "id" = ? AND "name" IN (?, ?) AND "runId" = ?'
    )


def test_a_locked_row_raises_for_the_values_that_are_encrypted_alone():
    made = new_sealer("")
    row = LockedRow({"id": "s1", "content": encrypt(made), "n": None}, made)
    for same in (row, row.copy(), row | {"more": 1}):
        assert (same["id"], same.get("n", 3), same.get("none", 3), list(same)[:3]) == (
            *("s1", None, 3, ["id", "content", "n"]),
        )
        for read in (
            lambda each: each["content"],
            lambda each: each.get("content"),
            lambda each: each.pop("content"),
            lambda each: each.items(),
            dict,
        ):
            with pytest.raises(KeyMissing, match=f"with the key {MASTER.id}, which is not available"):
                read(same.copy())
    assert row.pop("none", 7) == 7 and row.pop("id") == "s1"


# Master keys


def test_keys_are_found_by_their_id():
    keys = Keys(own=MASTER, named={"arn:x": OTHER})
    assert keys.find(MASTER.id) is MASTER
    assert keys.find("arn:x") is OTHER
    assert keys.find("arn:y") == KmsKey(arn="arn:y")
    with pytest.raises(KeyMissing, match=f"the key local:none; the configured key is {MASTER.id}"):
        keys.find("local:none")
    assert MASTER.id.startswith("local:") and len(MASTER.id) == len("local:") + 16
    assert LocalKey(secret=bytes(32), name="arn:x").id == "arn:x"


def test_keys_of_settings_are_read_in_order(tmp_path):
    (tmp_path / "key").write_bytes(MASTER.secret)
    text = base64.urlsafe_b64encode(b"\xff" * 32).decode()
    environment = {"PROCTOR_ENCRYPTION_KEY": text, "MINE": OTHER.secret.hex()}
    file, named = {"key_file": str(tmp_path / "key")}, {"keys": {"arn:x": {"key_env": "MINE"}}}
    assert read_keys({**file, "key_env": "MINE"}, environment).own == MASTER
    assert read_keys({"key_env": "MINE"}, environment).own == OTHER
    assert read_keys({}, environment).own == LocalKey(secret=b"\xff" * 32)
    assert read_keys({"kms_key": "arn:y"}, environment).own == KmsKey(arn="arn:y")
    assert read_keys({"kms_key": "arn:x", **named}, environment).own == LocalKey(
        secret=OTHER.secret, name="arn:x"
    )
    assert set(read_keys(named, environment).named) == {"arn:x"}
    with pytest.raises(KeyUnusable, match="NONE is not set\nSet it to a key"):
        read_keys({"key_env": "NONE"}, environment)


@pytest.mark.parametrize("secret", [b"\xff" * 32, (b"\xfb\xef\xbe" * 11)[:32]])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_keys_are_read_in_both_alphabets_of_base64(secret, encode):
    """Each text has one of the four characters in which the alphabets differ."""
    environment = {"PROCTOR_ENCRYPTION_KEY": encode(secret).decode()}
    assert read_keys({}, environment).own == LocalKey(secret=secret)


def test_packages_that_keys_need_are_named(monkeypatch):
    aes_gcm.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(KeyUnusable, match=r"pip install 'proctor\[crypto\]'"):
        aes_gcm(bytes(32))
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(KeyUnusable, match=r"pip install 'proctor\[aws\]'"):
        _kms("arn:aws:kms:us-east-1:1:key/none")


def test_an_arn_without_a_region_is_unusable():
    with pytest.raises(KeyUnusable, match="the key arn:short cannot be used"):
        _kms("arn:short")


def test_a_service_of_keys_that_does_not_answer_is_given_up_soon(monkeypatch):
    made = []
    monkeypatch.setattr(boto3, "client", lambda *names, **options: made.append((names, options)))
    _kms.cache_clear()
    _kms("arn:aws:kms:eu-west-1:1:key/own")
    _kms.cache_clear()
    ((names, options),) = made
    config = options["config"]
    assert (names, options["region_name"]) == (("kms",), "eu-west-1")
    assert (config.connect_timeout, config.read_timeout) == (5, 10)
    assert config.retries["total_max_attempts"] == 3


# Chains of signatures

SIGNER = SigningKey("k", b"s" * 32)


class Signed:
    """A connection to the signatures of one run: position, item, digest, key, and whether it is genuine."""

    def __init__(self, *entries):
        self.rows, previous = [], ""
        for position, item_id, digest, key_id, is_genuine in entries:
            previous = _mac(SIGNER.secret, "run", position, item_id, digest, previous)
            self.rows.append((position, item_id, digest, key_id, previous if is_genuine else "forged"))

    def tuples(self, sql, parameters):
        return [row for row in self.rows if row[0] > parameters[1]]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], {"is_signed": False}),
        ([(0, "", "b", "k", True)], {"has_begin": True}),
        ([(0, "", "b", "k", True), (1, "a", "d", "k", True)], {"has_begin": True, "digests": {"a": "d"}}),
        ([(1, "a", "d", "k", True), (2, "a", "e", "k", True)], {"digests": {"a": "e"}}),
        ([(2, "a", "d", "k", True)], {"broken": 1}),
        ([(0, "", "b", "k", True), (2, "a", "d", "k", True)], {"has_begin": True, "broken": 1}),
        ([(0, "", "b", "k", False), (1, "a", "d", "k", True)], {"broken": 2}),
        ([(0, "", "b", "k", True), (1, "", "end", "k", True)], {"has_begin": True, "end": "end"}),
        (
            [(0, "", "b", "k", True), (1, "", "end", "k", True), (2, "a", "d", "k", True)],
            {"has_begin": True, "digests": {"a": "d"}},
        ),
        ([(1, "a", "d", "x", True)], {"unknown_keys": {"x": None}, "unchecked": {"a"}}),
        (
            [(1, "a", "d", "x", True), (2, "a", "e", "k", True)],
            {"unknown_keys": {"x": None}, "digests": {"a": "e"}},
        ),
        (
            [(1, "a", "d", "k", True), (2, "a", "e", "x", True)],
            {"unknown_keys": {"x": None}, "unchecked": {"a"}},
        ),
    ],
)
def test_a_chain_of_signatures_is_right_as_far_as_it_follows(entries, expected):
    looked_up = []

    def key(key_id):
        looked_up.append(key_id)
        return SIGNER if key_id == "k" else None

    chain = _check_chain(Signed(*entries), "run", key)
    assert chain == replace(_Chain(is_signed=True), **expected)
    assert len(looked_up) == len(set(looked_up)), "each key is looked up once"


def test_a_chain_covers_attempts_if_one_of_its_digests_says_so():
    assert _Chain(digests={"a": "x", "b": f"{ATTEMPTS_MARK}y"}).covers_attempts
    assert not _Chain(digests={"a": "x"}).covers_attempts


def test_keys_are_derived_from_a_secret_as_ever():
    # What was encrypted with them must stay readable.
    assert sealer._derived(b"k" * 32, "digests").hex() == (
        "86f9a65671c53576767a0673530ddd40868d6986e48a18f0dcf77d941976d334"
    )
