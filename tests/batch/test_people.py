"""Questions to people, and runs that are aborted without a process."""

import asyncio

import pytest
from work_items import NOW, item

from proctor import context as contexts
from proctor.batch.lifecycle import abort_run
from proctor.store import batches, timestamp
from proctor.testing import eventually_async

ANNOUNCED = "waiting for mayor to answer {} (in the page of the run)"


@pytest.fixture
def asking(store, monkeypatch):
    """Questions of a run with one item: a function that asks, the item, and what was announced."""
    # A look each half second would make these tests last seconds.
    monkeypatch.setattr(contexts, "POLL_SECONDS", 0.001)
    row = {"runId": "run", "createdAt": timestamp(NOW), "job": "scenario", "status": "running"}
    store.create_batch(row | {"owner": "elsewhere:1:1:x", "heartbeatAt": timestamp(NOW)}, [item()])
    announced = []
    questions = contexts.StoreQuestions(store, "run", lambda: NOW, announced.append)
    return lambda: asyncio.create_task(questions.ask(item().id, "mayor", "What now?")), announced


async def test_a_person_is_announced_only_while_there_is_no_answer(store, asking):
    ask, announced = asking
    waiting = ask()
    await eventually_async(lambda: announced)
    (question,) = store.read.rows(dict, 'SELECT * FROM "questions"')
    assert (question["actor"], question["prompt"]) == ("mayor", "What now?")
    assert question["askedAt"] == timestamp(NOW)
    assert announced == [ANNOUNCED.format(question["id"])]
    store.change(batches.answer, "run", question["id"], "yes", NOW)
    assert await waiting == "yes"

    assert await ask() == "yes", "who was cut off asks again"
    assert len(announced) == 1


async def test_a_question_that_nobody_waits_for_is_withdrawn(store, asking):
    ask, announced = asking
    task = ask()
    await eventually_async(lambda: announced)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.read.rows(dict, 'SELECT * FROM "questions"') == []


def test_aborting_a_run_without_a_process_ends_what_its_sessions_had_started(store, asking, monkeypatch):
    ended = []
    # Programs of sessions that really run belong to a living process, which would end them itself.
    monkeypatch.setattr("proctor.processes.end_attempt", ended.append)
    store.change(batches.change, "run", {"heartbeatAt": None})
    writer = store.writer()
    for session_id, status in (("a", "running"), ("b", "success")):
        session = {"id": session_id, "runId": "run", "itemId": "i", "job": "coding", "status": status}
        writer.add("sessions", (session_id,), session)
    writer.close()
    assert abort_run(store, "run", now=lambda: NOW, pause=lambda seconds: None) == "aborted"
    assert [row["status"] for row in store.read.items("run")] == ["error"]
    assert ended == ["a"]
