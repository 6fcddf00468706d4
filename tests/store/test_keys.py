"""Master keys: where they are read from, in which forms, which are unusable; and keys of AWS KMS."""

import base64
import os
import sys
from urllib.request import Request, urlopen

import boto3
import pytest

from proctor.errors import KeyMissing, KeyUnusable
from proctor.store import Store
from proctor.store.keys import Keys, KmsKey, LocalKey, aes_gcm, key_in, new_key_text, read_keys
from stocked import add_batch

NOBODYS = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"
LOCAL = Keys(own=LocalKey(secret=b"k" * 32))
OTHER = LocalKey(secret=b"another key of thirty-two bytes!")


@pytest.fixture
def arn(aws, monkeypatch):
    """A key that is there."""
    for name, value in {"ACCESS_KEY_ID": "testing", "SECRET_ACCESS_KEY": "testing"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", aws)
    return boto3.client("kms", region_name="us-east-1").create_key()["KeyMetadata"]["Arn"]


def prompts(store):
    return [row["prompt"] for row in store.read.items("run")]


def test_a_store_under_a_key_of_kms_is_read_as_long_as_the_key_is_there(tmp_path, arn, aws):
    url, keys = str(tmp_path / "a.db"), read_keys({"kms_key": arn}, {})
    with Store(url, keys) as store:
        add_batch(store, count=2)
    with Store(url, keys) as store:
        assert prompts(store) == ["question 0", "question 1"]
        assert [row["masterKeyId"] for row in store.data_keys.rows] == [arn]

    urlopen(Request(f"{aws}/moto-api/reset", method="POST")).close()
    with pytest.raises(KeyMissing, match=f"the key {arn} cannot be used"):
        Store(url, keys)


def test_a_key_that_kms_does_not_have_seals_nothing(tmp_path, arn):
    with pytest.raises(KeyUnusable, match=f"the key {NOBODYS} cannot be used"):
        Store(str(tmp_path / "a.db"), Keys(own=KmsKey(arn=NOBODYS)))
    with Store(str(tmp_path / "a.db")) as store:
        assert store.data_keys.rows == []


def test_a_store_moves_to_kms_and_back(tmp_path, arn):
    url, kms = str(tmp_path / "a.db"), Keys(own=KmsKey(arn=arn))
    with Store(url, LOCAL) as store:
        add_batch(store, count=1)
        store.data_keys.rewrap(kms.own)
    # Whoever has another key of their own may still use one of KMS that their credentials allow.
    with Store(url, LOCAL) as store:
        assert prompts(store) == ["question 0"]
    with Store(url, kms) as store:
        assert prompts(store) == ["question 0"]
        store.data_keys.rewrap(LOCAL.own)
    with Store(url, LOCAL) as store:
        assert prompts(store) == ["question 0"]


def test_a_data_key_does_not_open_in_another_context(arn):
    key = KmsKey(arn=arn)
    wrapped = key.wrap(b"s" * 32, {"a": "1"})

    assert key.unwrap(wrapped, {"a": "1"}) == b"s" * 32
    with pytest.raises(KeyMissing):
        key.unwrap(wrapped, {"a": "2"})
    with pytest.raises(KeyMissing):
        LOCAL.own.unwrap(LOCAL.own.wrap(b"s" * 32, {"a": "1"}), {"a": "2"})


def test_keys_are_read_from_a_file_or_the_environment_in_any_usual_form(tmp_path):
    # Both have characters in which the alphabets of base64 differ.
    for secret in (b"\xff" * 32, (b"\xfb\xef\xbe" * 11)[:32], os.urandom(32)):
        texts = [base64.b64encode(secret), base64.urlsafe_b64encode(secret), new_key_text(secret).encode()]
        for data in [secret, secret.hex().encode(), *texts]:
            (tmp_path / "key").write_bytes(data)
            assert key_in(tmp_path / "key").secret == secret
        for data in texts:
            assert read_keys({}, {"PROCTOR_ENCRYPTION_KEY": data.decode()}).own == LocalKey(secret=secret)
        assert secret.hex() not in repr(LocalKey(secret=secret))


def test_a_key_of_the_settings_comes_before_one_of_the_environment(tmp_path):
    (tmp_path / "key").write_bytes(LOCAL.own.secret)
    environment = {"PROCTOR_ENCRYPTION_KEY": "ff" * 32, "MINE": OTHER.secret.hex()}
    named = {"keys": {"arn:x": {"key_env": "MINE"}}}
    for settings, expected in (
        ({"key_file": str(tmp_path / "key"), "key_env": "MINE"}, LOCAL.own),
        ({"key_env": "MINE"}, OTHER),
        ({}, LocalKey(secret=b"\xff" * 32)),
        ({"kms_key": "arn:y"}, KmsKey(arn="arn:y")),
        ({"kms_key": "arn:x", **named}, LocalKey(secret=OTHER.secret, name="arn:x")),
    ):
        assert read_keys(settings, environment).own == expected
    assert set(read_keys(named, environment).named) == {"arn:x"}
    assert read_keys({}, {}).own is None
    with pytest.raises(KeyUnusable, match="NONE is not set\nSet it to a key"):
        read_keys({"key_env": "NONE"}, environment)


@pytest.mark.parametrize("text", ["", "short", "é" * 20, "ab" * 31])
def test_what_is_no_key_is_told_and_not_shown(tmp_path, text):
    (tmp_path / "key").write_text(text)
    with pytest.raises(KeyUnusable, match="does not contain a key") as told:
        key_in(tmp_path / "key")
    assert not text or text not in str(told.value)
    with pytest.raises(KeyUnusable, match=r"cannot be read.*\n.*no other key can decrypt it"):
        key_in(tmp_path / "none")


def test_keys_are_found_by_their_id():
    keys = Keys(own=LOCAL.own, named={"arn:x": OTHER})
    assert (keys.find(LOCAL.own.id), keys.find("arn:x")) == (LOCAL.own, OTHER)
    assert keys.find("arn:y") == KmsKey(arn="arn:y")
    with pytest.raises(KeyMissing, match=f"the key local:none; the configured key is {LOCAL.own.id}"):
        keys.find("local:none")
    # It is in the store: what was written with a key names it.
    assert LocalKey(secret=bytes(range(32))).id == "local:d152f6121ae0127e"


def test_packages_that_keys_need_are_named_and_an_arn_needs_a_region(monkeypatch):
    with pytest.raises(KeyUnusable, match="the key arn:short cannot be used"):
        KmsKey(arn="arn:short").wrap(b"s" * 32, {})
    aes_gcm.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(KeyUnusable, match=r"pip install 'proctor\[crypto\]'"):
        LOCAL.own.wrap(b"s" * 32, {})
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(KeyUnusable, match=r"pip install 'proctor\[aws\]'"):
        KmsKey(arn="arn:aws:kms:us-east-1:1:key/none").wrap(b"s" * 32, {})
