"""What a store refuses, in words that name the problem, and what it still takes beside that."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from databases import query
from filled import NOW, filled_store
from proctor.errors import Contradiction, NotFound, StoreError, StoreUnavailable, UsageError
from proctor.store import RetrySelection, Store
from proctor.store.batches import LONGEST_ANSWER
from proctor.store.maintenance import back_up, restore
from proctor.store.session_selection import OwnSessions, Period, session_ids
from proctor.store.transcripts import step_text, text_part
from proctor.store.writer import this_process


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with one finished run, which no test changes."""
    with filled_store(tmp_path_factory.mktemp("shared")) as store:
        yield store


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Store]:
    with filled_store(tmp_path, finished=2) as store:
        yield store


def test_a_run_that_is_running_here_is_not_claimed(fresh: Store) -> None:
    # Long after the last heartbeat of the process that ran it, on another machine.
    later = datetime.now(UTC) + timedelta(days=1)
    fresh.resume_batch("compare", this_process(), RetrySelection(), later)
    with pytest.raises(UsageError, match=rf"run compare is already running in process {os.getpid()}\n"):
        fresh.resume_batch("compare", this_process(), RetrySelection(), later)


def test_a_run_or_session_is_found_by_its_beginning_if_there_is_one_only(shared: Store) -> None:
    assert shared.read.batch("comp", NOW)["runId"] == "compare"
    with pytest.raises(NotFound, match=r"there is no run other\n`proctor runs` lists"):
        shared.read.batch("other", NOW)
    with pytest.raises(NotFound, match="there is no run"):
        shared.read.batch("", NOW)
    (item,) = shared.read.items("compare", limit=1)
    session_id = str(item["sessionId"])
    assert shared.read.session(session_id)["id"] == session_id
    assert shared.read.session(str(item["id"]))["id"] == session_id
    with pytest.raises(NotFound, match="several sessions begin with compare"):
        shared.read.session("compare-")
    with pytest.raises(NotFound, match=r"there is no session nobody\n`proctor sessions list`"):
        shared.read.session("nobody")
    with pytest.raises(NotFound):
        shared.read.session("")


def test_a_text_is_read_in_pieces_from_where_there_is_one(shared: Store) -> None:
    (item,) = shared.read.items("compare", limit=1)
    session_id, read = str(item["sessionId"]), shared.read
    whole = text_part(read, session_id, 1, "content", offset=0, limit=10_000)
    assert (whole.size, whole.is_cut) == (len(whole.text), False)
    cut = text_part(read, session_id, 1, "content", offset=1, limit=3)
    assert (cut.text, cut.size, cut.is_cut) == (whole.text[1:4], whole.size, True)
    end = text_part(read, session_id, 1, "content", offset=whole.size - 2, limit=2)
    assert (end.text, end.is_cut) == (whole.text[-2:], False)
    for position, part in ((9999, "content"), (1, "shape")):
        with pytest.raises(NotFound, match=f"session {session_id} has no {part} at {position}"):
            text_part(read, session_id, position, part, offset=0, limit=10)


def test_the_output_of_a_step_is_that_of_its_commands_or_of_its_tests(fresh: Store) -> None:
    (item,) = fresh.read.items("compare", limit=1)
    session_id = str(item["sessionId"])
    texts = ("built", "3 passed", session_id)
    query(fresh, 'UPDATE "iterations" SET "output" = ?, "testOutput" = ? WHERE "sessionId" = ?', texts)
    assert step_text(fresh.read, session_id, 1, "output") == "built"
    assert step_text(fresh.read, session_id, 1, "testOutput") == "3 passed"
    for step, part in ((99, "output"), (1, "summary")):
        with pytest.raises(NotFound, match=f"has no {part} of step {step}"):
            step_text(fresh.read, session_id, step, part)


def test_sessions_of_this_store_are_selected_by_something(shared: Store) -> None:
    with pytest.raises(UsageError, match=r"no sessions are selected\nGive a run, a job"):
        session_ids(shared.read, OwnSessions())
    with pytest.raises(UsageError, match="no sessions are selected"):
        session_ids(shared.read, OwnSessions(statuses=("fail",), excluded_jobs=("evaluation",)))
    everything = session_ids(shared.read, OwnSessions(run_ids=("compare",), statuses=("success", "error")))
    assert len(everything) == 24
    begun = Period(start=NOW)
    assert len(session_ids(shared.read, OwnSessions(period=begun))) == 30, "all but errors, by a period alone"
    assert session_ids(shared.read, OwnSessions(period=Period(end=NOW))) == []
    assert session_ids(shared.read, OwnSessions(jobs=("coding",), excluded_jobs=("coding",))) == []


def test_a_closed_writer_takes_nothing(fresh: Store) -> None:
    writer = fresh.writer()
    writer.close()
    with pytest.raises(StoreError, match="the store is closed"):
        writer.change("batches", ("compare",), {"status": "running"})


def test_a_resource_has_at_most_fifty_tags(fresh: Store) -> None:
    fresh.definitions.tag("arn:a", {f"key {number}": str(number) for number in range(50)})
    fresh.definitions.tag("arn:a", {"key 7": "changed"})
    with pytest.raises(Contradiction, match="a resource has at most 50 tags"):
        fresh.definitions.tag("arn:a", {"one more": ""})
    tags = fresh.definitions.tags("arn:a")
    assert len(tags) == 50 and tags["key 7"] == "changed"


def test_a_configuration_that_is_not_there_is_named(fresh: Store) -> None:
    with pytest.raises(NotFound, match="there is no online evaluation configuration c-1"):
        fresh.definitions.config("c-1")


def test_log_groups_and_streams_are_created_once_and_written_when_there(fresh: Store) -> None:
    logs = fresh.logs
    logs.create("group", "", NOW)
    logs.create("group", "stream", NOW)
    with pytest.raises(Contradiction, match="the log group already exists"):
        logs.create("group", "", NOW)
    with pytest.raises(Contradiction, match="the log stream already exists"):
        logs.create("group", "stream", NOW)
    with pytest.raises(NotFound, match=r"The specified log stream does not exist\."):
        logs.put("group", "other", [], NOW)


def test_a_question_is_answered_once_by_something(fresh: Store) -> None:
    (item,) = fresh.read.items("compare", limit=1)
    item_id = str(item["id"])
    question = fresh.ask_question("compare", item_id, "ann", "How?", NOW)
    assert question == f"{item_id}-1"
    for text, problem in ((" \n", "the answer is empty"), ("x" * (LONGEST_ANSWER + 1), "the maximum is")):
        with pytest.raises(UsageError, match=problem):
            fresh.answer_question("compare", question, text, NOW)
    assert fresh.answer_of("compare", question) is None

    fresh.answer_question("compare", question, "x" * LONGEST_ANSWER, NOW)

    assert fresh.answer_of("compare", question) == "x" * LONGEST_ANSWER
    with pytest.raises(UsageError, match=f"the question {question} has already been answered"):
        fresh.answer_question("compare", question, "again", NOW)
    with pytest.raises(NotFound, match="run compare has no open question q-9"):
        fresh.answer_question("compare", "q-9", "yes", NOW)
    assert fresh.ask_question("compare", item_id, "ann", "How?", NOW) == question, "it has its answer"
    other = fresh.ask_question("compare", item_id, "ann", "Why?", NOW)
    assert other == f"{item_id}-2"
    assert fresh.ask_question("compare", item_id, "ann", "Who?", NOW) == other, "in place of the open one"
    fresh.withdraw_question("compare", other)
    assert fresh.open_questions("compare") == []


def test_a_store_is_restored_from_a_backup_and_from_nothing_else(tmp_path: Path) -> None:
    with filled_store(tmp_path, finished=1) as store:
        url = store.url
    file = tmp_path / "proctor.db"
    with pytest.raises(UsageError, match="there is no backup"):
        restore(tmp_path / "missing", url, NOW)
    with pytest.raises(UsageError, match=r"is the store itself\nName a backup\."):
        restore(file, url, NOW, force=True)
    back_up(url, tmp_path / "copy")
    with pytest.raises(UsageError, match="there is already a store at"):
        restore(tmp_path / "copy", url, NOW)


def test_a_database_of_another_program_is_no_store(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        for name in "dcba":
            connection.execute(f"CREATE TABLE {name} (x)")
    with pytest.raises(StoreUnavailable, match=r"is a SQLite database with other tables \(a, b, c\)"):
        Store(str(path))
