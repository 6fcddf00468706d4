"""Evaluations: repeated requests, prefixes of ids, changes, keys of their own."""

import json
import shutil
from dataclasses import replace
from datetime import timedelta

import pytest
from stocked import NOW

from databases import query
from proctor.errors import Contradiction, NotFound
from proctor.store import Store, evaluations, timestamp
from proctor.store.evaluations import EvaluationRecord
from proctor.store.keys import Keys, LocalKey

ARN = "arn:aws:kms:us-east-1:1:key/own"
KEYS = Keys(named={ARN: LocalKey(secret=bytes(range(32)), name=ARN)})
LONG = "long text " * 1000


@pytest.fixture
def file(tmp_path, empty_store_file):
    return shutil.copy(empty_store_file, tmp_path / "a.db")


@pytest.fixture
def store(file):
    with Store(str(file), KEYS) as opened:
        yield opened


def create(store, new_id="job-1", second=0, status="running", **more):
    values = {"id": new_id, "arn": f"arn:x/{new_id}", "name": "job", "request": {}, "request_digest": "d"}
    at = NOW + timedelta(seconds=second)
    batch = {"runId": new_id, "createdAt": timestamp(at), "job": "evaluation", "status": status}
    new = EvaluationRecord(**values | {"output_group": "g", "output_stream": new_id} | more)
    return store.evaluations.create(new, batch, at)


def test_a_client_token_is_used_once(store):
    row, is_new = create(store, client_token="t")
    assert (row["id"], row["createdAt"], is_new) == ("job-1", timestamp(NOW), True)
    assert (row["sessionsFound"], row["sessionsIgnored"], row["failure"], row["deletedAt"]) == (
        0,
        0,
        "",
        None,
    )
    row, is_new = create(store, "job-2", client_token="t")
    assert (row["id"], is_new) == ("job-1", False)
    with pytest.raises(Contradiction, match="already used for job-1, with other parameters"):
        create(store, "job-2", client_token="t", request_digest="other")
    assert create(store, "job-2")[1] and create(store, "job-3")[1], "no token is no repetition"
    assert evaluations.is_token_used(store.read, "t")
    assert not evaluations.is_token_used(store.read, "")
    assert not evaluations.is_token_used(store.read, "other")
    store.evaluations.delete("job-1", NOW)
    assert not evaluations.is_token_used(store.read, "t")
    assert query(store, 'SELECT "runId" FROM "batches" ORDER BY 1') == [
        {"runId": f"job-{number}"} for number in (1, 2, 3)
    ]


def test_an_evaluation_is_named_by_its_id_arn_or_an_unambiguous_beginning(store):
    for new_id in ("job-1", "job-10", "other"):
        create(store, new_id)
    row = store.evaluations.row
    assert [row(name)["id"] for name in ("job-1", "arn:x/job-10", "oth")] == ["job-1", "job-10", "other"]
    for name, problem in (
        ("job", "several evaluations begin with job"),
        ("none", "there is no evaluation none"),
        ("", "several evaluations begin with"),
        ("arn:x/", "several evaluations begin with arn:x/"),
    ):
        with pytest.raises(NotFound, match=problem):
            row(name)
    store.evaluations.delete("other", NOW)
    with pytest.raises(NotFound):
        row("other")
    assert row("other", with_deleted=True)["deletedAt"] == timestamp(NOW)


def test_an_empty_name_is_no_evaluation_even_if_there_is_only_one(store):
    create(store)
    with pytest.raises(NotFound, match="there is no evaluation"):
        store.evaluations.row("")


def test_evaluations_are_paged_newest_first(store):
    for number, second in ((1, 0), (2, 1), (3, 1), (4, 2)):
        create(store, f"job-{number}", second)
    page = store.evaluations.page
    assert [row["id"] for row in page()] == ["job-4", "job-3", "job-2", "job-1"]
    assert [row["id"] for row in page(limit=2)] == ["job-4", "job-3"]
    second = timestamp(NOW + timedelta(seconds=1))
    assert [row["id"] for row in page(after=(second, "job-3"))] == ["job-2", "job-1"]
    assert evaluations.jobs_page(store.read, "JOB-", limit=2, offset=1) == (["job-3", "job-2"], 4)
    assert [row["id"] for row in store.evaluations.of_stream("g", "job-2")] == ["job-2"]


def test_evaluations_of_a_run_are_those_that_name_it(store):
    for number in range(7):
        create(store, f"job-{number}", number, request={"runs": ["run", f"x{number}"]})
    found = evaluations.evaluations_of_run
    assert found(store.read, "run") == [f"job-{number}" for number in (6, 5, 4, 3, 2)]
    assert found(store.read, "run", limit=1) == ["job-6"]
    assert (found(store.read, "x3"), found(store.read, "ru")) == (["job-3"], [])


def test_a_changed_request_is_discovered_again(store):
    new = EvaluationRecord(
        id="job-1", arn="arn:x/job-1", name="job", request={"a": 1}, request_digest="d", metadata=[{"n": 1}]
    )
    create(store, request={"a": 1}, metadata=[{"n": 1}])
    store.evaluations.record_discovery("job-1", matched=5, ignored=2, now=NOW)
    store.evaluations.record_failure("job-1", "x" * 2000)
    row = store.evaluations.row("job-1")
    assert (row["sessionsFound"], row["sessionsIgnored"], row["discoveredAt"]) == (5, 2, timestamp(NOW))
    assert row["failure"] == "x" * 1000

    changed = replace(new, request={"a": 2}, metadata=[{"text": LONG}], definitions={"tidy": {"n": 1}})
    store.evaluations.change_request(changed)

    row = store.evaluations.row("job-1")
    assert (row["discoveredAt"], row["failure"], json.loads(row["requestJson"])) == (None, "", {"a": 2})
    assert json.loads(row["definitionsJson"]) == {"tidy": {"n": 1}}
    assert row["createdAt"] == timestamp(NOW)
    assert store.evaluations.metadata("job-1") == [{"text": LONG}]
    store.evaluations.change_request(new)
    assert store.evaluations.metadata("job-1") == [{"n": 1}]


def test_metadata_and_copied_definitions_are_encrypted_with_the_key_of_the_evaluation(file, store):
    metadata = [{"secret": "under-the-stairs"}]
    create(store, kms_key_arn=ARN, metadata=metadata, definitions={"e": {"text": "in-the-cellar"}})
    create(store, "job-2", metadata=[{"secret": LONG}], kms_key_arn=ARN)
    assert store.evaluations.metadata("job-1") == metadata
    assert store.evaluations.metadata("job-2") == [{"secret": LONG}]
    assert "in-the-cellar" in store.evaluations.row("job-1")["definitionsJson"]
    assert {row["scope"] for row in store.data_keys.rows} == {"job-1", "job-2"}
    store.purge()
    content = file.read_bytes()
    assert b"under-the-stairs" not in content
    assert b"in-the-cellar" not in content


def test_unfinished_evaluations_are_those_whose_batch_runs(store):
    for number, (second, status) in enumerate(((3, "running"), (1, "running"), (2, "completed"))):
        create(store, f"job-{number}", second, status)
    rows = evaluations.unfinished_evaluations(store.read)
    assert [row["id"] for row in rows] == ["job-1", "job-0"]
    assert evaluations.count_evaluations(store.read) == 3
    store.evaluations.delete("job-1", NOW)
    assert [row["id"] for row in evaluations.unfinished_evaluations(store.read)] == ["job-0"]
    assert evaluations.count_evaluations(store.read) == 2
