"""Notes, stars, tags and labels of sessions, and calibrations: what is stored, for whom, and how long."""

from datetime import timedelta
from typing import Any

import pytest

from databases import query
from proctor.errors import NotFound, UsageError
from proctor.score import Score
from proctor.session import Session
from proctor.store import Store, timestamp
from proctor.store.annotations import (
    Annotation,
    CalibrationRecord,
    Label,
    annotations,
    labeled_evaluators,
    labeled_scores,
    labels_state,
    newest_calibration,
    save_calibration,
    tag_counts,
)
from proctor.store.keys import Keys, LocalKey
from stocked import NOW, owned, session

DATABASES = ["sqlite"]
LATER = NOW + timedelta(hours=1)


def stock(store: Store) -> None:
    """Two runs with two sessions each."""
    for run in ("one", "two"):
        row = {"runId": run, "createdAt": "2026-03-01T12:00:00.000Z", "job": "coding", "status": "running"}
        store.create_batch(row | {"owner": "me"}, [])
        writer = store.writer(owned(run, "me"))
        for number in (1, 2):
            session(writer, f"{run}-{number}", run_id=run)
        writer.close()


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_a_tag_is_stored_once_and_a_star_once_for_each_author(store):
    stock(store)
    for author in ("ada", "bob", "ada"):
        store.annotate(Annotation(session_ids=["one-1"], kind="star", author=author), NOW)
        store.annotate(
            Annotation(session_ids=["one-1", "two-1"], kind="tag", text=" wrong\n file ", author=author), NOW
        )
        store.annotate(Annotation(session_ids=["one-1"], kind="note", text="look", author=author), NOW)

    rows = annotations(store.read, ["one-1"])

    assert sorted((row["kind"], row["text"], row["author"]) for row in rows) == [
        *(("note", "look", author) for author in ("ada", "ada", "bob")),
        ("star", "", "ada"),
        ("star", "", "bob"),
        ("tag", "wrong file", "ada"),
    ]
    assert len({row["id"] for row in rows}) == 6
    assert tag_counts(store.read) == [{"text": "wrong file", "sessions": 2}]
    assert tag_counts(store.read, "two") == [{"text": "wrong file", "sessions": 1}]


def test_annotations_go_one_by_one_or_with_their_run(store):
    stock(store)
    store.annotate(Annotation(session_ids=["one-1", "one-2", "two-1"], kind="tag", text="odd"), NOW)
    (first,) = annotations(store.read, ["one-1"])

    store.delete_annotation("one-1", first["id"])
    with pytest.raises(NotFound):
        store.delete_annotation("one-1", first["id"])
    store.delete_batch("one")

    assert [row["sessionId"] for row in query(store, 'SELECT * FROM "annotations"')] == ["two-1"]


def test_an_imported_session_keeps_its_annotations_when_it_is_imported_again_and_not_when_deleted(store):
    imported = Session(external_id="ext", source="otlp")
    session_id = store.save_imported(imported, NOW)
    store.annotate(Annotation(session_ids=[session_id], kind="note", text="mine"), NOW)

    store.save_imported(imported, NOW)
    assert len(annotations(store.read, [session_id])) == 1

    store.delete_imported([session_id])
    assert annotations(store.read, [session_id]) == []


@pytest.mark.parametrize(("kind", "least", "most"), [("tag", 1, 100), ("note", 1, 20_000), ("star", 0, 0)])
def test_a_text_that_is_empty_or_too_long_is_refused(store, kind, least, most):
    stock(store)
    refused = ["x" * (most + 1)] + ["  \n"] * least
    for text in refused:
        with pytest.raises(UsageError):
            store.annotate(Annotation(session_ids=["one-1"], kind=kind, text=text), NOW)

    store.annotate(Annotation(session_ids=["one-1"], kind=kind, text="x" * most), NOW)
    assert [row["text"] for row in annotations(store.read, ["one-1"])] == ["x" * most]


def test_several_sessions_are_annotated_together_or_not_at_all(store):
    stock(store)
    with pytest.raises(NotFound, match="no session gone"):
        store.annotate(Annotation(session_ids=["one-1", "gone"], kind="star"), NOW)

    assert annotations(store.read, ["one-1"]) == []


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_tags_of_an_encrypted_store_are_encrypted_and_still_compared(url):
    with Store(url, Keys(own=LocalKey(secret=bytes(range(32))))) as store:
        stock(store)
        for _ in range(2):
            store.annotate(Annotation(session_ids=["one-1", "two-1"], kind="tag", text="secret"), NOW)
        store.reencrypt()
        store.annotate(Annotation(session_ids=["one-1", "two-2"], kind="tag", text="secret"), NOW)

        assert tag_counts(store.read) == [{"text": "secret", "sessions": 3}]
        is_tag, texts = store.read.is_one_of("text", "annotations.text", ["secret"])
        with_tag = f'SELECT "sessionId" FROM "annotations" WHERE "kind" = \'tag\' AND {is_tag}'
        assert len(store.read.rows(dict, with_tag, texts)) == 3


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_labels_replace_those_of_the_same_person_and_target(store):
    def label(**values: Any) -> Label:
        return Label(**{"session_id": "s", "evaluator": "tidy", "who": "ann", "label": "good"} | values)

    store.save_label(label(), NOW)
    store.save_label(label(label="bad", value=0.25, note="n" * 5000), LATER)
    store.save_label(label(who="bob", value=0.0, label=""), NOW)
    store.save_label(label(evaluator="other", target="t", level="trace", dimension="d"), NOW)
    found = [
        (row["who"], row["label"], row["value"], len(row["note"])) for row in store.labels(evaluator="tidy")
    ]
    assert found == [("bob", "", 0.0, 0), ("ann", "bad", 0.25, 5000)]
    assert len(store.labels(session_ids=["s"])) == 3 and store.labels(session_ids=["x"]) == []
    with pytest.raises(UsageError, match="a label needs a word or a value"):
        store.save_label(label(label=""), NOW)
    assert [tuple(row.values()) for row in labeled_evaluators(store.read)] == [
        ("tidy", "", "session", 2),
        ("other", "d", "trace", 1),
    ]
    assert len(labeled_evaluators(store.read, "other")) == 1
    state = labels_state(store.read, "tidy")
    assert (state["n"], state["at"]) == (2, timestamp(LATER)) and labels_state(store.read)["n"] == 3


def test_a_label_stands_beside_the_scores_of_its_target(store):
    writer = store.writer()
    session(writer, "s1").score(Score(evaluator="tidy", value=0.5, target="t", dimension="d"))
    writer.close()
    known = {"session_id": "s1", "evaluator": "tidy", "who": "ann", "dimension": "d"}
    for target in ("t", "another"):
        store.save_label(Label(**known, target=target, value=0.75), NOW)
    (pair,) = labeled_scores(store.read, "tidy")
    assert (pair["about"], pair["humanValue"], pair["value"]) == ("s1", 0.75, 0.5)
    assert labeled_scores(store.read) == [pair] and labeled_scores(store.read, "nobody") == []


def test_the_newest_calibration_of_a_version_counts(store):
    def calibration(targets: int, **values: Any) -> CalibrationRecord:
        known = {"evaluator": "tidy", "evaluator_digest": "d", "document": {"results": targets}}
        known |= {"targets": targets}
        return CalibrationRecord(**known | values)

    for targets, at in ((1, NOW), (2, LATER), (3, LATER), (4, NOW)):
        store.change(save_calibration, calibration(targets), at)
    store.change(save_calibration, calibration(9, evaluator_digest="e", dimension="x"), NOW)
    newest = newest_calibration(store.read, "tidy", "d")
    assert newest is not None and (newest["targets"], newest["at"]) == (3, timestamp(LATER))
    assert newest_calibration(store.read, "tidy", "e") is None
    other = newest_calibration(store.read, "tidy", "e", "x")
    assert other is not None and other["targets"] == 9
    assert len(query(store, 'SELECT 1 FROM "calibrations"')) == 3
