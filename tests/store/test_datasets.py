"""Datasets and recommendations: drafts, versions, repeated requests, keys of their own, claims."""

import shutil
from contextlib import closing
from datetime import timedelta

import pytest

from databases import query
from proctor.errors import Contradiction, NotFound
from proctor.store import Store, timestamp
from proctor.store.definitions import Token
from proctor.store.keys import Keys, LocalKey
from proctor.store.writer import this_process
from stocked import NOW

ARN = "arn:aws:kms:us-east-1:1:key/own"
KEYS = Keys(named={ARN: LocalKey(secret=bytes(range(32)), name=ARN)})
LATER = NOW + timedelta(minutes=1)
LONG = "long text " * 1000


@pytest.fixture
def file(tmp_path, empty_store_file):
    return shutil.copy(empty_store_file, tmp_path / "a.db")


@pytest.fixture
def store(file):
    with Store(str(file), KEYS) as opened:
        yield opened


def token(text="", **request):
    return Token(operation="Change", token=text, request=request)


def create(store, name="ds", examples=("a", "b"), **more):
    row = {"id": f"{name}-1", "name": name, "schemaType": "T", "createdAt": timestamp(NOW)}
    contents = {each: {"text": f"{each} {LONG}"} for each in examples}
    return store.datasets.create(row | {"updatedAt": timestamp(NOW)} | more, contents, token())


def ids(store, version=0):
    return [each["id"] for each in store.datasets.all_examples("ds-1", version)]


def test_the_number_of_a_deleted_version_is_not_used_again(store):
    create(store)
    for _ in range(2):
        store.datasets.publish("ds-1", token("t"), NOW)
        store.datasets.publish("ds-1", token(), NOW)
    store.datasets.delete_version("ds-1", 1, LATER)
    assert ids(store, 1) == []
    assert store.datasets.dataset("ds-1")["draftModified"] == 0
    assert store.datasets.dataset("ds-1")["updatedAt"] == timestamp(LATER)
    with pytest.raises(NotFound):
        store.datasets.delete_version("ds-1", 1, LATER)
    assert ids(store, 2) == ["a", "b"]
    # Its token may be used again.
    assert store.datasets.publish("ds-1", token("t"), LATER)["version"] == 4
    for version in (2, 3, 4):
        store.datasets.delete_version("ds-1", version, LATER)
    # Nothing published equals the draft any more.
    assert store.datasets.dataset("ds-1")["draftModified"] == 1
    assert store.datasets.publish("ds-1", token(), LATER)["version"] == 5


def test_a_draft_that_changes_while_it_is_published_is_a_contradiction(store, monkeypatch):
    """A race: the change has to come between reading the draft and writing the version."""
    create(store)
    read = store.datasets.all_examples

    def slow(*arguments):
        yield from read(*arguments)
        store.datasets.add("ds-1", {"late": {}}, token(), LATER)

    monkeypatch.setattr(store.datasets, "all_examples", slow)
    with pytest.raises(Contradiction, match="the dataset ds-1 was changed by another request"):
        store.datasets.publish("ds-1", token(), LATER)
    assert store.datasets.versions("ds-1", before=None, limit=9) == []


def test_a_deleted_dataset_leaves_no_examples_versions_tokens_and_keys(store):
    for name in ("ds", "ds-1x"):
        create(store, name, kmsKeyArn=ARN)
        store.datasets.publish(f"{name}-1", token(f"p {name}"), NOW)
        store.datasets.update(f"{name}-1", {"updatedAt": timestamp(LATER)}, token(f"u {name}"))
    store.datasets.delete("ds-1")
    for table, column in (
        ("datasets", "id"),
        ("dataset_examples", "datasetId"),
        ("dataset_versions", "datasetId"),
        ("client_tokens", "resourceId"),
        ("data_keys", "scope"),
    ):
        rows = query(store, f'SELECT "{column}" AS "id" FROM "{table}"')
        assert {row["id"].partition("/")[0] for row in rows} == {"ds-1x-1"}, table


def advice(store, number=1, client_token="", **more):
    at = timestamp(NOW + timedelta(seconds=number))
    row = {"id": f"r-{number}", "name": "r", "type": "T", "createdAt": at, "updatedAt": at}
    request = {"text": f"request-secret {LONG}"}
    return store.recommendations.create(row | more, request, token(client_token, number=number))


def test_a_recommendation_is_claimed_by_one_live_process(store):
    for number in (2, 1):
        advice(store, number)
    claim = store.recommendations.claim
    assert claim("elsewhere:1:1:a", NOW) == "r-1"
    row = store.recommendations.get("r-1")
    assert (row["status"], row["watchedBy"]) == ("IN_PROGRESS", "elsewhere:1:1:a")
    assert {row["watchedAt"], row["updatedAt"]} == {timestamp(NOW)}
    assert claim("elsewhere:2:2:b", NOW) == "r-2"
    assert claim("elsewhere:3:3:c", NOW) is None
    # Its own are being computed; those of a process that is gone are claimed again.
    late = NOW + timedelta(hours=1)
    assert claim("elsewhere:1:1:a", late) == "r-2"
    assert claim("elsewhere:1:1:a", late) is None
    assert claim("elsewhere:3:3:c", late) == "r-1"
    store.recommendations.finish("r-1", "COMPLETED", {}, late)
    assert store.recommendations.get("r-1")["watchedBy"] == ""
    assert claim(this_process(), late + timedelta(hours=1)) == "r-2"


def test_versions_may_have_any_number(store):
    create(store)
    store.datasets.publish("ds-1", token(), NOW)
    with pytest.raises(NotFound, match="no version 1000000"):
        store.datasets.version("ds-1", 10**30)
    highest = 10**18 - 1
    with closing(store.database.connect()) as connection:
        assert connection.run('UPDATE "dataset_versions" SET "version" = ?', (highest,)) == 1
    assert [row["version"] for row in store.datasets.versions("ds-1", before=None, limit=9)] == [highest]
    assert store.datasets.version("ds-1", highest)["version"] == highest
