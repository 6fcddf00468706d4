"""A store under a key of AWS KMS, on a stand-in for it on this machine."""

from urllib.request import Request, urlopen

import boto3
import pytest
from stocked import add_batch

from proctor.errors import KeyMissing, KeyUnusable
from proctor.store import Store
from proctor.store.keys import Keys, KmsKey, LocalKey, read_keys

NOBODYS = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"
LOCAL = Keys(own=LocalKey(secret=b"k" * 32))


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
