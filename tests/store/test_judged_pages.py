"""Evaluation jobs and what they found, listed by the database: searched, sorted, cut."""

from datetime import UTC, datetime

import pytest

from proctor.item import Item
from proctor.score import Score
from proctor.store import Recorder, evaluations, scores, timestamp
from proctor.store.evaluations import EvaluationRecord
from proctor.store.scores import JudgedFilter

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
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
        row = {"runId": new.id, "itemId": item.id, "job": "evaluation", "startedAt": timestamp(NOW)}
        recorder = Recorder(writer, f"j{number}", row, lambda: NOW)
        recorder.score(Score(evaluator=name, value=value, judged_session=about, explanation="so it is"))
        recorder.score(Score(evaluator=name, error="no answer", target="t2", judged_session=about))
        recorder.end("success", "completed", "", work_seconds=1, waiting_seconds=0)
        writer.change("batch_items", (new.id, item.id), {"status": "success", "sessionId": f"j{number}"})
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


def test_the_lowest_scores_come_first_and_what_is_not_judged_last(store, job):
    assert listed(store, job) == (["poor", "fine", "100%_odd", "open"], 4)
    assert listed(store, job, "mean", descending=True)[0][-1] == "open"


def test_where_a_high_value_is_bad_it_counts_as_low(store, job):
    assert listed(store, job, reversed_=("Refuses",))[0] == ["100%_odd", "poor", "fine", "open"]
    assert listed(store, job, evaluator="Refuses", reversed_=("Refuses",))[0][0] == "100%_odd"


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
