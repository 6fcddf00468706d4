"""Questions to people are put and answered through the store, by different processes."""

from datetime import UTC, datetime

import pytest

from databases import query
from proctor.errors import NotFound, UsageError
from proctor.item import Item
from proctor.store import Store, batches
from proctor.store.batches import LONGEST_ANSWER

DATABASES = ["sqlite"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIME = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def asked(store):
    """A run with one item, on whose behalf a question was put: the item's id and the question's."""
    item = Item(runner="scenario", prompt="Harbour Fee Talks")
    row = {"runId": "run", "createdAt": TIME, "job": "scenario", "status": "running"}
    store.create_batch(row | {"owner": "me", "heartbeatAt": TIME}, [item])
    return item.id, store.change(batches.ask, "run", item.id, "ferry", "What does the Ferry Line do?", NOW)


def test_a_question_is_open_until_it_is_answered_by_any_process(store, asked):
    item_id, question_id = asked

    (question,) = store.open_questions("run")
    assert (question["id"], question["itemId"], question["actor"]) == (question_id, item_id, "ferry")
    assert question["prompt"] == "What does the Ferry Line do?"
    assert store.answer_of("run", question_id) is None

    with Store(store.url) as elsewhere:
        assert [row["id"] for row in elsewhere.open_questions()] == [question_id]
        elsewhere.change(batches.answer, "run", question_id, " I sail at dawn. ", NOW)

    assert store.answer_of("run", question_id) == "I sail at dawn."
    assert store.open_questions("run") == []
    with pytest.raises(UsageError, match=f"the question {question_id} has already been answered"):
        store.change(batches.answer, "run", question_id, "I stay.", NOW)
    assert store.answer_of("run", question_id) == "I sail at dawn."


def test_an_answer_has_some_text_and_not_too_much_and_belongs_to_a_question(store, asked):
    _, question_id = asked

    for text, problem in ((" \n", "the answer is empty"), ("x" * (LONGEST_ANSWER + 1), "the maximum is")):
        with pytest.raises(UsageError, match=problem):
            store.change(batches.answer, "run", question_id, text, NOW)
    with pytest.raises(NotFound, match="run run has no open question another"):
        store.change(batches.answer, "run", "another", "I sail.", NOW)
    assert store.answer_of("run", question_id) is None
    store.change(batches.answer, "run", question_id, "x" * LONGEST_ANSWER, NOW)
    assert store.answer_of("run", question_id) == "x" * LONGEST_ANSWER


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_who_was_cut_off_and_asks_again_gets_the_answer_or_has_one_question_open(store, asked):
    item_id, first = asked
    again = store.change(batches.ask, "run", item_id, "ferry", "What does the Ferry Line do?", NOW)
    other = store.change(batches.ask, "run", item_id, "port", "What does the port do?", NOW)
    assert [row["id"] for row in store.open_questions("run")] == [again, other]
    store.change(batches.answer, "run", again, "I sail.", NOW)

    assert store.change(batches.ask, "run", item_id, "ferry", "What does the Ferry Line do?", NOW) == again
    later = store.change(batches.ask, "run", item_id, "ferry", "And now?", NOW)
    replaced = store.change(batches.ask, "run", item_id, "ferry", "And then?", NOW)
    assert (first, later, replaced) == (f"{item_id}-1", f"{item_id}-3", later)

    for question_id in (again, later):
        store.change(batches.withdraw, "run", question_id)
    assert store.answer_of("run", again) == "I sail.", "one that was answered stays"
    assert [row["id"] for row in query(store, 'SELECT "id" FROM "questions" ORDER BY 1')] == [again, other]


def test_questions_close_when_their_run_stops_and_go_with_it(store, asked):
    store.change(batches.change, "run", {"status": "interrupted"})
    assert store.open_questions("run") == []
    store.delete_batch("run")
    assert query(store, 'SELECT * FROM "questions"') == []
