"""Many small changes, few commits; and nothing is written that is not ours to write."""

import os
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone

import pytest

from databases import query
from proctor.errors import OwnershipLost, StoreError
from proctor.store import RetrySelection, Store, batches
from proctor.store.database import open_database
from proctor.store.writer import RowGroups, Writer, is_alive, this_process, timestamp
from proctor.testing import eventually
from stocked import NOW, add_batch, owned

WAIT = 10


def session_row(session_id="s1", **more):
    return {"id": session_id, "runId": "run", "itemId": "i", "job": "coding", "status": "running", **more}


def sessions(store):
    return query(store, 'SELECT * FROM "sessions" ORDER BY "id"')


def test_who_waits_for_a_commit_does_not_wait_for_more_rows(store, monkeypatch):
    """The time for which rows are gathered is too short to be seen."""
    monkeypatch.setattr("proctor.store.writer.GATHER_SECONDS", 600)
    writer = store.writer()
    writer.add("sessions", ("s1",), session_row())
    writer.flush().result(WAIT)
    writer.add("sessions", ("s2",), session_row("s2"))
    writer.close()

    assert [row["id"] for row in sessions(store)] == ["s1", "s2"]


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
    store.change(batches.change, "run", {"heartbeatAt": "2020-01-01T00:00:00.000Z"})
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
        other.change(batches.request_abort, "run", NOW)

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


def test_a_commit_of_any_connection_shows_and_nothing_else_does(url):
    with Store(url) as watching, Store(url) as writing:
        before = watching.commits()
        assert watching.commits() == before

        writing.change(batches.change, "none", {"status": "running"})
        writing.change(batches.add_resources, "none", [])
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


def test_a_flush_commits_what_was_handed_over_and_closing_what_is_left(store, url):
    writer = store.writer()

    def write(thread):
        for number in range(200):
            writer.append("metrics", (f"s{thread}", number, 0, "speed", 1.0, None))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = writer.submit(lambda connection: connection.rows('SELECT COUNT(*) AS "n" FROM "metrics"'))
    assert seen.result(WAIT) == [{"n": 1600}]
    for number, at_once in enumerate((True, False)):
        writer.add("sessions", (f"s{number}",), session_row(f"s{number}"))
        writer.flush(at_once=at_once).result(WAIT)
        with Store(url) as other:
            assert len(sessions(other)) == number + 1
    writer.add("sessions", ("s2",), session_row("s2"))
    writer.close()

    assert len(sessions(store)) == 3
    for late in (
        lambda: writer.add("sessions", ("s3",), session_row("s3")),
        lambda: writer.merge(RowGroups()),
        lambda: writer.flush().result(WAIT),
    ):
        with pytest.raises(StoreError, match="closed"):
            late()


def test_the_last_of_several_changes_holds_whether_the_row_was_written_or_not(store):
    writer = store.writer()
    rows = RowGroups()
    for group in (writer, rows):
        group.add("sessions", (name := "s1" if group is writer else "s2",), session_row(name, name="first"))
        if group is writer:
            writer.flush().result(WAIT)
        group.change("sessions", (name,), {"status": "fail", "branch": "b"})
        group.change("sessions", (name,), {"status": "success"})
    assert rows.count == 1, "an insert"
    rows.change("sessions", ("s1",), {"name": "of a worker"})
    writer.merge(rows)
    writer.close()

    found = [(row["status"], row["branch"], row["name"]) for row in sessions(store)]
    assert found == [("success", "b", "of a worker"), ("success", "b", "first")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("s1", 2**70, 0, "speed", 1.0, None), "store error"),
        (("s1", None, 0, "speed", 1.0, None), "position"),
        # Its table is dropped.
        (("s1", 1, 0, "speed", 1.0, None), "metrics"),
    ],
)
def test_a_commit_that_fails_is_undone_and_reaches_all_who_wait_and_all_who_come_later(store, row, message):
    failed: list[StoreError] = []
    add_batch(store, owner="me")
    writer = store.writer(owned("run", "me", failed=failed.append))
    writer.flush().result(WAIT)
    if message == "metrics":
        with closing(store.database.connect()) as connection:
            connection.run('DROP TABLE "metrics"')
    # Both in one commit.
    rows = RowGroups()
    rows.append("blobs", ("digest", 1, b"x"))
    rows.append("metrics", row)
    writer.merge(rows)
    waiting = [writer.flush(), writer.flush(), writer.submit(lambda connection: 1)]

    for answer in waiting:
        with pytest.raises(StoreError, match=message):
            answer.result(WAIT)
    for late in (
        lambda: writer.append("metrics", ("s1", 1, 0, "speed", 1.0, None)),
        lambda: writer.flush().result(WAIT),
        writer.close,
    ):
        with pytest.raises(StoreError, match=message):
            late()
    assert len(failed) == 1
    assert query(store, 'SELECT * FROM "blobs"') == []


def test_a_database_that_cannot_be_opened_fails_everyone_who_waits(tmp_path):
    failures, path = list[Exception](), tmp_path / "file" / "a.db"
    path.parent.write_text("")
    writer = Writer(open_database(str(path)), owned("run", "me", failed=failures.append))
    eventually(lambda: failures)
    with pytest.raises(StoreError, match="cannot open the store"):
        writer.flush().result(WAIT)
    with pytest.raises(StoreError, match="cannot open the store"):
        writer.close()


def test_a_batch_that_is_deleted_under_its_process_is_lost_to_it(store):
    add_batch(store, owner="me")
    writer = store.writer(owned("run", "me"))
    writer.flush().result(WAIT)
    store.delete_batch("run")

    for _ in range(2):
        with pytest.raises(OwnershipLost):
            writer.flush().result(WAIT)
    with pytest.raises(OwnershipLost):
        writer.close()


def test_the_heartbeat_goes_on_while_nothing_happens_and_is_not_part_of_every_commit(store, url):
    """The row of a batch contains its plan: with each commit, a megabyte was written fifty times a second."""
    beat = 'SELECT "heartbeatAt" FROM "batches"'
    add_batch(store, owner="me")
    writer = store.writer(owned("run", "me"))
    writer.flush().result(WAIT)
    first = query(store, beat)
    eventually(lambda: query(store, beat) != first)
    first, started = query(store, beat), time.monotonic()
    for number in range(3):
        writer.add("sessions", (f"s{number}",), session_row(f"s{number}"))
        writer.flush().result(WAIT)
    if uses_sqlite(url) and time.monotonic() - started < 0.5:
        assert query(store, beat) == first
    # Another connection has written: whose batch it is may have changed.
    store.change(batches.change, "run", {"reason": "seen"})
    writer.flush().result(WAIT)
    assert query(store, beat) != first
    writer.close()
