"""Many small changes, few commits; and nothing is written that is not ours to write."""

import os
import sqlite3
import threading
import time
from concurrent.futures import CancelledError, Future
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from stocked import NOW, add_batch, owned

from databases import query
from proctor.errors import OwnershipLost, StoreError
from proctor.store import RetrySelection, Store
from proctor.store.database import open_database
from proctor.store.tables import COLUMNS
from proctor.store.writer import (
    RowGroups,
    Writer,
    is_alive,
    this_process,
    timestamp,
)
from proctor.testing import eventually

WAIT = 10


def session_row(session_id="s1", **more):
    return {"id": session_id, "runId": "run", "itemId": "i", "job": "coding", "status": "running", **more}


def sessions(store):
    return query(store, 'SELECT * FROM "sessions" ORDER BY "id"')


class Counting:
    """A database that keeps the statements it was given."""

    def __init__(self, url):
        self._database, self.url = open_database(url), url
        self.statements = []

    def connect(self):
        connection = self._database.connect()
        real = connection.run_many

        def run_many(sql, parameters):
            rows = list(parameters)
            self.statements.append((sql.split()[0], sql.split('"')[1], len(rows)))
            real(sql, rows)

        connection.run_many = run_many
        return connection


def test_flush_means_that_another_connection_sees_it(store, url):
    writer = store.writer()
    writer.add("sessions", ("s1",), session_row())
    writer.flush().result(WAIT)

    with Store(url) as other:
        assert [row["id"] for row in sessions(other)] == ["s1"]
    writer.close()


def test_who_waits_for_a_commit_does_not_wait_for_more_rows(store, monkeypatch):
    monkeypatch.setattr("proctor.store.writer.GATHER_SECONDS", 600)
    writer = store.writer()
    writer.add("sessions", ("s1",), session_row())
    writer.flush().result(WAIT)
    writer.add("sessions", ("s2",), session_row("s2"))
    writer.close()

    assert [row["id"] for row in sessions(store)] == ["s1", "s2"]


def test_closing_lets_nothing_wait_for_more_rows():
    writer = Writer.__new__(Writer)
    writer._lock, writer._hurry, writer._wake = threading.Lock(), threading.Event(), threading.Event()
    writer._closing = writer._must_check = False
    writer._failure = None
    joined = []
    writer._thread = SimpleNamespace(
        join=lambda: joined.append(writer._hurry.is_set() and writer._wake.is_set())
    )
    writer.close()
    assert joined == [True] and writer._closing and writer._must_check


class Unreachable:
    """A database that cannot be opened once it is allowed to fail."""

    def __init__(self):
        self.may_fail = threading.Event()

    def connect(self):
        self.may_fail.wait(WAIT)
        raise StoreError("unreachable")


def test_a_database_that_cannot_be_opened_fails_everyone_who_waits_and_who_comes_later():
    failures, unreachable = [], Unreachable()
    writer = Writer(unreachable, COLUMNS, owned("run", "me", failed=failures.append))
    waiting = writer.flush()
    unreachable.may_fail.set()
    assert str(waiting.exception(WAIT)) == "unreachable"
    writer._thread.join(WAIT)
    for attempt in (
        lambda: writer.append("metrics", ()),
        lambda: writer.flush().result(WAIT),
        writer.close,
    ):
        with pytest.raises(StoreError, match="unreachable"):
            attempt()
    assert [str(failure) for failure in failures] == ["unreachable"]


def test_rows_that_change_before_they_are_written_are_one_insert(store, url):
    database = Counting(url)
    writer = Writer(database, COLUMNS)
    for number in range(50):
        writer.add("sessions", (f"s{number}",), session_row(f"s{number}"))
        writer.change("sessions", (f"s{number}",), {"status": "success"})
        writer.change("sessions", (f"s{number}",), {"status": "fail", "endReason": "checks_failed"})
    writer.close()

    assert [(kind, table) for kind, table, _ in database.statements if kind != "INSERT"] == []
    assert sum(count for _, _, count in database.statements) == 50
    assert {(row["status"], row["endReason"]) for row in sessions(store)} == {("fail", "checks_failed")}


def test_the_last_of_several_changes_to_a_written_row_holds(store):
    writer = store.writer()
    writer.add("sessions", ("s1",), session_row(name="first"))
    writer.flush().result(WAIT)
    writer.change("sessions", ("s1",), {"status": "fail", "branch": "b"})
    writer.change("sessions", ("s1",), {"status": "success"})
    writer.close()

    (row,) = sessions(store)
    assert (row["status"], row["branch"], row["name"]) == ("success", "b", "first")


def test_what_is_asked_for_sees_all_that_was_handed_over_before(store):
    writer = store.writer()
    for number in range(100):
        writer.append("metrics", ("s1", number, 0, "speed", 1.0, None))
    seen = writer.submit(lambda connection: connection.rows('SELECT COUNT(*) AS "n" FROM "metrics"'))

    assert seen.result(WAIT) == [{"n": 100}]
    writer.close()


def test_closing_writes_what_is_left_and_refuses_what_comes_later(store):
    writer = store.writer()
    writer.add("sessions", ("s1",), session_row())
    writer.close()

    assert len(sessions(store)) == 1
    with pytest.raises(StoreError, match="closed"):
        writer.add("sessions", ("s2",), session_row("s2"))
    with pytest.raises(StoreError, match="closed"):
        writer.flush().result(WAIT)


def test_many_threads_may_write_at_once(store):
    writer = store.writer()

    def write(thread):
        for number in range(200):
            writer.append("metrics", (f"s{thread}", number, 0, "speed", 1.0, None))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()

    assert query(store, 'SELECT COUNT(*) AS "n" FROM "metrics"') == [{"n": 1600}]


def test_a_commit_that_fails_reaches_everyone_who_waits_and_everyone_who_comes_later(store):
    failed: list[StoreError] = []
    add_batch(store, owner="me")
    writer = store.writer(owned("run", "me", failed=failed.append))
    writer.flush().result(WAIT)
    writer.add("sessions", ("s1",), session_row(job=None))
    waiting = [writer.flush(), writer.flush(), writer.submit(lambda connection: 1)]

    for answer in waiting:
        with pytest.raises(StoreError):
            answer.result(WAIT)
    with pytest.raises(StoreError):
        writer.append("metrics", ("s1", 1, 0, "speed", 1.0, None))
    with pytest.raises(StoreError):
        writer.flush().result(WAIT)
    with pytest.raises(StoreError):
        writer.close()
    assert len(failed) == 1


def test_nothing_of_a_commit_that_fails_is_kept(store):
    writer = store.writer()
    writer.append("metrics", ("s1", 1, 0, "speed", 1.0, None))
    writer.add("sessions", ("s1",), session_row(job=None))
    with pytest.raises(StoreError):
        writer.close()

    assert query(store, 'SELECT * FROM "metrics"') == []


def test_a_number_no_column_holds_is_an_error_of_the_store_not_a_crash(store):
    writer = store.writer()
    writer.append("metrics", ("s1", 2**70, 0, "speed", 1.0, None))

    with pytest.raises(StoreError):
        writer.close()


def test_one_who_gives_up_waiting_does_not_disturb_the_others(store):
    writer = store.writer()
    writer.flush().result(WAIT)
    given_up: Future[None] = writer.flush()
    given_up.cancel()
    writer.add("sessions", ("s1",), session_row())

    writer.flush().result(WAIT)
    writer.close()
    assert len(sessions(store)) == 1
    with pytest.raises(CancelledError):
        given_up.result(0)


def test_when_another_takes_the_batch_nothing_more_is_written(store):
    failed: list[StoreError] = []
    add_batch(store, owner="nobody:1:1:old", heartbeatAt=None)
    writer = store.writer(owned("run", "nobody:1:1:old", failed=failed.append))
    writer.flush().result(WAIT)
    # The other machine has not heard of us for longer than it waits.
    store.change_batch("run", {"heartbeatAt": "2020-01-01T00:00:00.000Z"})
    store.resume_batch("run", "elsewhere:2:2:new", RetrySelection(), NOW)

    def write():
        # The heartbeat may have found it out already, in which case the first line tells.
        writer.add("sessions", ("s1",), session_row())
        writer.flush().result(WAIT)

    with pytest.raises(OwnershipLost):
        write()
    with pytest.raises(OwnershipLost):
        writer.close()
    assert sessions(store) == []
    assert [type(error) for error in failed] == [OwnershipLost]
    assert query(store, 'SELECT "owner" FROM "batches"') == [{"owner": "elsewhere:2:2:new"}]


def test_a_batch_that_is_deleted_under_its_process_is_lost_to_it(store):
    add_batch(store, owner="me")
    writer = store.writer(owned("run", "me"))
    writer.flush().result(WAIT)
    store.delete_batch("run")

    with pytest.raises(OwnershipLost):
        writer.flush().result(WAIT)
    with pytest.raises(OwnershipLost):
        writer.close()


def test_the_heartbeat_goes_on_while_nothing_happens(store):
    add_batch(store, owner="me")
    writer = store.writer(owned("run", "me"))
    writer.flush().result(WAIT)
    (first,) = query(store, 'SELECT "heartbeatAt" FROM "batches"')

    eventually(lambda: query(store, 'SELECT "heartbeatAt" FROM "batches"') != [first])
    writer.close()


def test_commits_do_not_write_the_plan_again(store, url):
    """The row of the batch contains it; a heartbeat in each commit wrote a megabyte fifty times a second."""
    if url.startswith("postgresql"):
        pytest.skip("PostgreSQL stores long texts apart")
    add_batch(store, owner="me", planText="x" * 1_000_000)
    writer = store.writer(owned("run", "me"))
    writer.flush().result(WAIT)
    started, row = time.monotonic(), 'SELECT "heartbeatAt" FROM "batches"'
    first = query(store, row)
    for number in range(3):
        writer.add("sessions", (f"s{number}",), {**session_row(), "id": f"s{number}"})
        writer.flush().result(WAIT)
    if time.monotonic() - started < 0.5:
        assert query(store, row) == first
    # Another connection has written: whose batch it is may have changed.
    store.change_batch("run", {"reason": "seen"})
    writer.flush().result(WAIT)
    assert query(store, row) != first
    writer.close()


def test_an_abort_is_seen_within_two_heartbeats_and_told_once(store, url):
    told: list[float] = []
    heard = threading.Event()

    def aborted():
        told.append(time.monotonic())
        heard.set()

    add_batch(store, owner="me")
    writer = store.writer(owned("run", "me", aborted=aborted))
    writer.flush().result(WAIT)
    with Store(url) as other:
        other.request_abort("run", NOW)

    beats = set()

    def is_over():
        beats.add(query(store, 'SELECT "heartbeatAt" FROM "batches"')[0]["heartbeatAt"])
        return heard.is_set() or len(beats) > 3

    eventually(is_over)
    assert heard.is_set(), "the writer did not notice"
    writer.flush().result(WAIT)
    writer.close()
    assert len(told) == 1


def test_equal_texts_from_two_processes_in_opposite_order_do_not_block_each_other(url):
    with Store(url) as store:
        # So many that the two surely write at the same time.
        texts = [(f"digest{number:05}", 1, b"x") for number in range(10_000)]
        writers = [store.writer(), store.writer()]
        for writer, rows in zip(writers, (texts, texts[::-1]), strict=True):
            for row in rows:
                writer.append("blobs", row)
        for writer in writers:
            writer.close()

        assert query(store, 'SELECT COUNT(*) AS "n" FROM "blobs"') == [{"n": 10_000}]


def test_a_store_that_is_damaged_meanwhile_ends_the_writing_with_a_clear_error(tmp_path: Path):
    with Store(str(tmp_path / "proctor.db")) as store:
        writer = store.writer()
        writer.flush().result(WAIT)
        raw = sqlite3.connect(tmp_path / "proctor.db")
        raw.execute('DROP TABLE "metrics"')
        raw.commit()
        writer.append("metrics", ("s1", 1, 0, "speed", 1.0, None))

        with pytest.raises(StoreError, match="no such table: metrics"):
            writer.close()


def test_a_commit_of_any_connection_shows_and_nothing_else_does(url):
    with Store(url) as watching, Store(url) as writing:
        before = watching.commits()
        assert watching.commits() == before

        writing.change_batch("none", {"status": "running"})
        writing.add_resources("none", [])
        assert uses_sqlite(url) or watching.commits() == before

        add_batch(writing, "run")
        eventually(lambda: watching.commits() != before)
        after = watching.commits()
        assert watching.commits() == after


def uses_sqlite(url):
    return not url.startswith("postgresql")


def test_many_rows_of_odd_texts_are_written_as_they_are(store):
    """PostgreSQL copies rows as lines of text from a certain number on."""
    odd = ["", "\\N", "tab\tand\nline", "\\t", "%s ?", "ünï\u2028", "'\"", "\\", None]
    writer = store.writer()
    for position, text in enumerate(odd):
        content = text or ""
        writer.append("messages", ("s1", position, 1, None, "user", "", content, text))
    writer.close()

    rows = query(store, 'SELECT "content", "contentBlob" FROM "messages" ORDER BY "position"')
    assert [(row["content"], row["contentBlob"]) for row in rows] == [(text or "", text) for text in odd]


def test_a_flush_that_may_wait_is_done_with_the_next_commit(store):
    add_batch(store, "run")
    writer = store.writer()
    writer.add("sessions", ("s1",), session_row())
    writer.flush(at_once=False).result(timeout=WAIT)
    assert len(sessions(store)) == 1
    writer.close()


def test_rows_are_counted_once_however_often_they_change_before_they_are_written():
    rows = RowGroups()
    rows.append("ledger", ("a", 1))
    rows.add("sessions", ("s",), {"id": "s", "status": "running"})
    rows.change("sessions", ("s",), {"status": "fail"})
    rows.change("batches", ("r",), {"status": "running"})
    rows.change("batches", ("r",), {"reason": "x"})
    assert rows.count == 3
    assert rows.added == {("sessions", ("s",)): {"id": "s", "status": "fail"}}
    assert rows.changed == {("batches", ("r",)): {"status": "running", "reason": "x"}}
    assert rows.of_table("ledger", ("name", "n")) == [{"name": "a", "n": 1}]
    assert rows.of_table("scores", ("name", "n")) == []


def test_rows_of_another_process_are_merged_in_their_order():
    rows, later = RowGroups(), RowGroups()
    rows.append("ledger", ("a", 1))
    rows.change("batches", ("r",), {"status": "running", "reason": ""})
    later.append("ledger", ("b", 2))
    later.append("scores", ("c",))
    later.add("sessions", ("s",), {"id": "s"})
    later.change("batches", ("r",), {"reason": "x"})
    later.change("batches", ("q",), {"reason": "y"})

    rows.merge(later)

    assert rows.count == 6
    assert rows.appended == {"ledger": [("a", 1), ("b", 2)], "scores": [("c",)]}
    assert rows.added == {("sessions", ("s",)): {"id": "s"}}
    assert rows.changed == {
        ("batches", ("r",)): {"status": "running", "reason": "x"},
        ("batches", ("q",)): {"reason": "y"},
    }


def test_a_time_is_written_in_milliseconds_of_utc():
    east = timezone(timedelta(hours=2))
    moment = datetime(2026, 5, 1, 2, 0, 0, 123_999, tzinfo=east)
    assert timestamp(moment) == timestamp(moment) == "2026-05-01T00:00:00.123Z"
    assert timestamp(datetime(2026, 5, 1, tzinfo=UTC)) == "2026-05-01T00:00:00.000Z"


def test_a_process_is_alive_while_it_runs_or_by_its_heartbeat_elsewhere():
    now = datetime(2026, 5, 1, tzinfo=UTC)
    mine = this_process()
    host, pid, started, _ = mine.rsplit(":", 3)
    assert this_process() != mine and int(pid) == os.getpid()
    assert is_alive(mine, None, now)
    assert not is_alive(f"{host}:{pid}:1:x", now, now), "another process had this number"
    assert not is_alive(f"{host}:4194303:{started}:x", now, now)
    assert not is_alive(f"{host}:{pid}::x", now, now)
    for seconds, expected in ((0, True), (9.999, True), (10, False)):
        assert is_alive("elsewhere:1:1:x", now - timedelta(seconds=seconds), now) is expected
    assert not is_alive("elsewhere:1:1:x", None, now)
    assert is_alive(f"{host}:pid:1:x", now, now), "no number of a process here"
    assert not is_alive("", None, now)
