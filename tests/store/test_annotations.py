"""Notes, stars and tags of sessions: what is stored, for whom, and when it is deleted."""

from datetime import UTC, datetime

import pytest
from stocked import owned, session

from databases import query
from proctor.errors import NotFound, UsageError
from proctor.session import Session
from proctor.store import Store
from proctor.store.annotations import Annotation, annotations, tag_counts
from proctor.store.keys import Keys, LocalKey

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stock(store: Store) -> None:
    """Two runs with two sessions each."""
    for run in ("one", "two"):
        row = {"runId": run, "createdAt": "2026-03-01T12:00:00.000Z", "job": "coding", "status": "running"}
        store.create_batch(row | {"owner": "me"}, [])
        writer = store.writer(owned(run, "me"))
        for number in (1, 2):
            session(writer, f"{run}-{number}", run_id=run)
        writer.close()


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
        *(("star", "", "ada"), ("star", "", "bob"), ("tag", "wrong file", "ada")),
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


@pytest.mark.parametrize(
    ("kind", "text"),
    [("tag", "  "), ("tag", "x" * 101), ("note", "\n"), ("note", "x" * 20_001), ("star", "x")],
)
def test_texts_that_are_empty_or_too_long_are_refused(store, kind, text):
    stock(store)
    with pytest.raises(UsageError):
        store.annotate(Annotation(session_ids=["one-1"], kind=kind, text=text), NOW)


@pytest.mark.parametrize(("kind", "length"), [("tag", 100), ("note", 20_000), ("star", 0)])
def test_texts_of_the_greatest_length_are_stored(store, kind, length):
    text = "x" * length
    stock(store)
    store.annotate(Annotation(session_ids=["one-1"], kind=kind, text=text), NOW)

    assert [row["text"] for row in annotations(store.read, ["one-1"])] == [text]


def test_several_sessions_are_annotated_together_or_not_at_all(store):
    stock(store)
    with pytest.raises(NotFound, match="no session gone"):
        store.annotate(Annotation(session_ids=["one-1", "gone"], kind="star"), NOW)

    assert annotations(store.read, ["one-1"]) == []


def test_tags_of_an_encrypted_store_are_encrypted_and_still_compared(url):
    with Store(url, Keys(own=LocalKey(secret=bytes(range(32))))) as store:
        stock(store)
        for _ in range(2):
            store.annotate(Annotation(session_ids=["one-1", "two-1"], kind="tag", text="secret"), NOW)
        store.reencrypt()
        store.annotate(Annotation(session_ids=["one-1", "two-2"], kind="tag", text="secret"), NOW)

        assert tag_counts(store.read) == [{"text": "secret", "sessions": 3}]
        with_tag = 'SELECT "sessionId" FROM "annotations" WHERE "kind" = \'tag\' AND "text" = ?'
        assert len(store.read.rows(dict, with_tag, ("secret",))) == 3
