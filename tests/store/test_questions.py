"""Questions to people are put and answered through the store, by different processes."""

from datetime import UTC, datetime

import pytest

from databases import query
from proctor.errors import NotFound, UsageError
from proctor.item import Item
from proctor.store import Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIME = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def asked(store):
    """A run with one item, on whose behalf a question was put: the item's id and the question's."""
    item = Item(runner="scenario", prompt="Harbour Fee Talks")
    row = {"runId": "run", "createdAt": TIME, "job": "scenario", "status": "running", "planText": ""}
    row |= {"planPath": "", "planDigest": "", "defaultsJson": "{}", "optionsJson": "{}", "concurrency": 1}
    store.create_batch(row | {"owner": "me", "heartbeatAt": TIME, "proctorVersion": "0"}, [item])
    return item.id, store.ask_question("run", item.id, "ferry", "What does the Ferry Line do?", NOW)


def test_a_question_is_open_until_it_is_answered(store, asked):
    item_id, question_id = asked

    (question,) = store.open_questions("run")
    assert (question["id"], question["itemId"], question["actor"]) == (question_id, item_id, "ferry")
    assert question["prompt"] == "What does the Ferry Line do?"
    assert store.answer_of("run", question_id) is None

    with Store(store.url) as elsewhere:
        assert [row["id"] for row in elsewhere.open_questions()] == [question_id]
        elsewhere.answer_question("run", question_id, " I sail at dawn. ", NOW)

    assert store.answer_of("run", question_id) == "I sail at dawn."
    assert store.open_questions("run") == []


def test_the_first_answer_counts(store, asked):
    _, question_id = asked
    store.answer_question("run", question_id, "I sail.", NOW)

    with pytest.raises(UsageError, match="already been answered"):
        store.answer_question("run", question_id, "I stay.", NOW)

    assert store.answer_of("run", question_id) == "I sail."


def test_an_empty_answer_and_one_to_a_question_nobody_put_are_refused(store, asked):
    _, question_id = asked

    with pytest.raises(UsageError, match="answer is empty"):
        store.answer_question("run", question_id, "  ", NOW)
    with pytest.raises(NotFound, match="has no open question"):
        store.answer_question("run", "another", "I sail.", NOW)


def test_a_question_that_was_taken_back_is_gone_and_one_that_was_answered_stays(store, asked):
    item_id, first = asked
    store.answer_question("run", first, "I sail.", NOW)
    second = store.ask_question("run", item_id, "ferry", "And now?", NOW)

    store.withdraw_question("run", first)
    store.withdraw_question("run", second)

    assert store.answer_of("run", first) == "I sail."
    assert [row["id"] for row in query(store, 'SELECT "id" FROM "questions"')] == [first]


def test_who_was_cut_off_and_asks_again_gets_the_answer_that_was_given(store, asked):
    item_id, question_id = asked
    store.answer_question("run", question_id, "I sail.", NOW)

    again = store.ask_question("run", item_id, "ferry", "What does the Ferry Line do?", NOW)

    assert (again, store.answer_of("run", again)) == (question_id, "I sail.")
    assert store.open_questions("run") == []


def test_a_question_that_is_put_again_is_open_once(store, asked):
    item_id, _ = asked

    again = store.ask_question("run", item_id, "ferry", "What does the Ferry Line do?", NOW)
    other = store.ask_question("run", item_id, "port", "What does the port do?", NOW)

    assert [row["id"] for row in store.open_questions("run")] == [again, other]


def test_nobody_waits_for_an_answer_in_a_run_that_has_stopped(store, asked):
    store.change_batch("run", {"status": "interrupted"})

    assert store.open_questions("run") == []


def test_questions_go_with_their_run(store, asked):
    store.delete_batch("run")

    assert query(store, 'SELECT * FROM "questions"') == []
