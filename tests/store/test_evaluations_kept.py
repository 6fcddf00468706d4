"""Evaluations and what they found: named, changed, encrypted, listed, searched and sorted."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from proctor.errors import NotFound
from proctor.item import Item
from proctor.score import Score
from proctor.session import Message, Session, Step, TimedEvent
from proctor.store import Store, evaluations, scores, timestamp
from proctor.store.annotations import Annotation
from proctor.store.evaluations import EvaluationRecord
from proctor.store.keys import Keys, LocalKey
from proctor.store.scores import JudgedFilter
from stocked import LONG, NOW, finish_item, record

DATABASES = ["sqlite"]
SESSIONS = {
    "fine of shop": {"tidy": 0.9, "Refuses": 0.1},
    "poor of shop": {"tidy": 0.2, "Refuses": 0.0},
    "100%_odd of shop": {"tidy": 0.8, "Refuses": 1.0},
    "open of shop": {},
}


@pytest.fixture
def job(store):
    """A job with two evaluators over four sessions, one of which nobody has judged yet; its id."""
    new = EvaluationRecord(id="nightly-a1", arn="arn", name="nightly", request={}, request_digest="d")
    batch = {"runId": new.id, "createdAt": timestamp(NOW), "job": "evaluation", "status": "running"}
    store.evaluations.create(new, batch, NOW)
    items = [_item(words, name) for words in SESSIONS for name in ("tidy", "Refuses")]
    store.extend_batch(new.id, {}, add=items, settle=(), drop=())
    writer = store.writer()
    for number, item in enumerate(items):
        about, name = item.settings["session"], item.settings["evaluator"]
        value = SESSIONS[item.prompt].get(name)
        if value is None:
            continue
        missing = {"error": "no answer", "target": "t2", "ignored": ("goal",)}
        finish_item(
            writer,
            item.id,
            f"j{number}",
            Score(evaluator=name, value=value, judged_session=about, explanation="so it is"),
            Score(evaluator=name, judged_session=about, **missing),
            run_id=new.id,
            job="evaluation",
        )
    writer.close()
    return new.id


def _item(words, name):
    details = {"evaluator": name, "evaluatorDigest": "d", "level": "session"}
    settings = {"session": words.partition(" ")[0], "evaluator": name}
    return Item(runner="evaluation", prompt=words, details=details, settings=settings)


def listed(store, job, order="lowest", *, descending=False, **wanted):
    rows, total = scores.sessions_page(
        store.read, job, JudgedFilter(**wanted), order=order, descending=descending, limit=10, offset=0
    )
    return [row["sessionId"] for row in rows], total


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_the_lowest_scores_come_first_and_what_is_not_judged_last(store, job):
    assert listed(store, job) == (["poor", "fine", "100%_odd", "open"], 4)
    assert listed(store, job, "mean", descending=True)[0][-1] == "open"


def test_where_a_high_value_is_bad_it_counts_as_low(store, job):
    assert listed(store, job, reversed_=("Refuses",))[0] == ["100%_odd", "poor", "fine", "open"]
    assert listed(store, job, evaluator="Refuses", reversed_=("Refuses",))[0][0] == "100%_odd"


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_search_takes_signs_of_the_database_for_what_they_are(store, job):
    assert listed(store, job, search="100%_ODD") == (["100%_odd"], 1)
    assert listed(store, job, search="%") == (["100%_odd"], 1)
    assert listed(store, job, search="nobody") == ([], 0)


def test_a_session_is_told_with_each_evaluator_and_the_reasons(store, job):
    rows = scores.scores_by_session(store.read, job, ["poor of shop", "open of shop"])
    assert {(row["evaluator"], row["mean"], row["failed"]) for row in rows} == {
        ("tidy", 0.2, 1),
        ("Refuses", 0.0, 1),
    }
    verdicts = scores.verdicts_of(store.read, job, "poor")
    assert [row["explanation"] for row in verdicts if row["evaluator"] == "tidy"] == ["so it is", ""]
    ignored = [each for each in scores.ignored_references(store.read, job) if each[1]]
    assert sorted(ignored) == [("Refuses", ["goal"]), ("tidy", ["goal"])]
    assert scores.scores_by_session(store.read, job, []) == []


def test_jobs_are_found_by_a_part_of_their_id_until_they_are_deleted(store, job):
    assert evaluations.jobs_page(store.read, "IGHT", limit=5, offset=0) == ([job], 1)
    assert evaluations.jobs_page(store.read, "_", limit=5, offset=0) == ([], 0)
    store.evaluations.delete(job, NOW)
    assert evaluations.jobs_page(store.read, "", limit=5, offset=0) == ([], 0)


def test_sessions_of_a_job_are_counted_by_how_far_they_are(store, job):
    assert scores.session_counts(store.read, job) == {"completed": 3, "in_progress": 1, "failed": 0}
    assert scores.failed_sessions(store.read, job) == (1, 4)
    (row, *_) = store.read.items(job, limit=1)
    writer = store.writer()
    writer.change("batch_items", (job, row["id"]), {"status": "fail"})
    writer.close()
    assert scores.session_counts(store.read, job) == {"completed": 2, "in_progress": 1, "failed": 1}
    assert scores.failed_sessions(store.read, job) == (2, 4)
    assert scores.failed_sessions(store.read, "nothing") == (0, 0)


def test_a_run_that_is_no_evaluation_has_the_header_of_an_empty_one(store, job):
    empty = {"sessionsIgnored": 0, "requestJson": "{}", "definitionsJson": "{}"}
    assert scores.result_header(store.read, "nothing") == empty
    assert scores.result_header(store.read, job).keys() == empty.keys()


ARN = "arn:aws:kms:us-east-1:1:key/own"


KEYS = Keys(named={ARN: LocalKey(secret=bytes(range(32)), name=ARN)})


def create(store, new_id="job-1", second=0, status="running", **more):
    values = {"id": new_id, "arn": f"arn:x/{new_id}", "name": "job", "request": {}, "request_digest": "d"}
    at = NOW + timedelta(seconds=second)
    batch = {"runId": new_id, "createdAt": timestamp(at), "job": "evaluation", "status": status}
    new = EvaluationRecord(**values | {"output_group": "g", "output_stream": new_id} | more)
    return store.evaluations.create(new, batch, at)


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


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
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
    row, is_new = create(store, request={"a": 1}, metadata=[{"n": 1}])
    columns = ("sessionsFound", "sessionsIgnored", "failure", "deletedAt")
    assert ([row[name] for name in columns], is_new) == ([0, 0, "", None], True)
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


def test_what_is_said_of_the_sessions_of_an_evaluation_is_encrypted_with_its_key(tmp_path):
    file = tmp_path / "a.db"
    with Store(str(file), KEYS) as store:
        create(store, kms_key_arn=ARN, metadata=[{"secret": LONG}])
        assert store.evaluations.metadata("job-1") == [{"secret": LONG}]
        record(store, "judged", run_id="job-1")
        for kind, text in (("note", "behind the door"), ("tag", "a tag")):
            store.annotate(Annotation(session_ids=["judged"], kind=kind, text=text), NOW)
        said = TimedEvent(event=Message(role="user", content="behind the wall"))
        imported = Session(external_id="e", source="otlp", steps=[Step(trace_id="t", events=[said])])
        imported_id = store.save_imported(imported, NOW, "job-1")
        assert store.read.of_session("messages", imported_id)[0]["content"] == "behind the wall"
        store.purge()
    content = file.read_bytes()
    assert b"behind" not in content
    assert b"a tag" in content, "tags are compared across runs"
