"""Questions to people, and runs that are aborted without a process."""

import asyncio

import pytest
from work_items import NOW, item

from proctor import context as contexts
from proctor.batch.lifecycle import abort_run
from proctor.store import Store, timestamp


class Asked:
    """A store in which a question is answered after so many looks; None: never."""

    def __init__(self, looks):
        self.looks, self.calls = looks, []

    def ask_question(self, *question):
        self.calls.append(question)
        return "q1"

    def answer_of(self, run_id, question):
        assert (run_id, question) == ("run", "q1")
        if self.looks is None:
            return None
        self.looks -= 1
        return "yes" if self.looks < 0 else None

    def withdraw_question(self, run_id, question):
        self.calls.append(("withdrawn", run_id, question))


@pytest.mark.parametrize("looks", [0, 1, 3])
async def test_a_person_is_announced_only_while_there_is_no_answer(monkeypatch, looks):
    # How often it looks shows nowhere; a look each half second would make these tests last seconds.
    monkeypatch.setattr(contexts, "POLL_SECONDS", 0)
    store, told = Asked(looks), []
    asking = contexts.StoreQuestions(store, "run", lambda: NOW, told.append)
    assert await asking.ask("i", "mayor", "What now?") == "yes"
    assert store.calls == [("run", "i", "mayor", "What now?", NOW)]
    assert told == ["waiting for mayor to answer q1 (in the page of the run)"][: bool(looks)]


async def test_a_question_that_nobody_waits_for_is_withdrawn():
    store = Asked(None)
    asking = contexts.StoreQuestions(store, "run", lambda: NOW, lambda text: None)
    task = asyncio.create_task(asking.ask("i", "mayor", "What now?"))
    while len(store.calls) < 1:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.calls[-1] == ("withdrawn", "run", "q1")


def test_aborting_a_run_without_a_process_ends_what_its_sessions_had_started(tmp_path, monkeypatch):
    ended = []
    # Programs of sessions that really run belong to a living process, which would end them itself.
    monkeypatch.setattr("proctor.processes.end_attempt", ended.append)
    with Store(str(tmp_path / "a.db")) as store:
        row = {"runId": "run", "createdAt": timestamp(NOW), "job": "coding", "status": "running"}
        store.create_batch(row | {"owner": "elsewhere:1:1:x", "heartbeatAt": None}, [item()])
        writer = store.writer()
        for session_id, status in (("a", "running"), ("b", "success")):
            session = {"id": session_id, "runId": "run", "itemId": "i", "job": "coding", "status": status}
            writer.add("sessions", (session_id,), session)
        writer.close()
        assert abort_run(store, "run", now=lambda: NOW, pause=lambda seconds: None) == "aborted"
        assert [row["status"] for row in store.read.items("run")] == ["error"]
    assert ended == ["a"]
