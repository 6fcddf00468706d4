"""Every question one can ask: pages, filters, totals, and exactly the rows of a scope."""

import os
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from databases import query
from proctor.errors import NotFound
from proctor.item import Item
from proctor.session import Iteration, Message, ModelCall
from proctor.store import Scope, Store, batches, item_of, timestamp
from stocked import NOW, add_batch, at, change_items, items, record, session


@pytest.fixture
def two_batches(store):
    """Two batches of three items; the first two items of each have a session, a day apart."""
    for day, run_id in enumerate(("first", "second")):
        add_batch(store, run_id, 3)
        for row in store.read.items(run_id)[:2]:
            events = Message(role="user", content=row["prompt"]), ModelCall(model="m"), Iteration()
            facts = {"run_id": run_id, "item_id": row["id"], "startedAt": at(86_400 * day)}
            record(store, f"{run_id}-{row['position']}", *events, ends=True, **facts)
    return store


def test_an_item_comes_back_as_it_was_put_in(store):
    item = Item(
        runner="worktree",
        prompt="Füge hinzu: ≠ % _ ?",
        agent="scripted",
        model="m",
        details={"scriptCommand": "make", "env": {"A": "b"}, "n": [1, None, 2.5]},
        settings={"repo": "/projects/shop", "retries": 2},
        factors={"model": "m"},
        repeat=3,
    )
    store.create_batch(
        {"runId": "run", "createdAt": timestamp(NOW), "job": "coding", "status": "running"}, [item]
    )

    (row,) = store.read.items("run")
    assert item_of(row) == item
    assert (row["id"], row["digest"], row["repo"]) == (item.id, item.digest, "/projects/shop")


def test_totals_are_sums_over_the_rows_and_an_unknown_cost_is_not_nothing(store):
    add_batch(store, count=4)
    assert store.read.totals("run")["costUsd"] is None
    changes = {
        0: {"status": "success", "tokensTotal": 10, "toolCalls": 2, "costUsd": 0.5},
        1: {"status": "success", "tokensTotal": 5, "costUsd": 0.25},
        2: {"status": "error", "tokensTotal": 1},
    }
    change_items(store, changes)

    assert store.read.totals("run") == {
        "counts": {"queued": 1, "running": 0, "success": 2, "fail": 0, "timeout": 0, "error": 1},
        "items": 4,
        "finished": 3,
        "tokens": 16,
        "toolCalls": 2,
        "costUsd": 0.75,
    }


def test_averages_keep_their_fractions_in_both_databases(store):
    add_batch(store, count=2)
    change_items(store, {0: {"tokensTotal": 1}, 1: {"tokensTotal": 2}})

    (found,) = query(
        store, 'SELECT AVG("tokensTotal") AS "mean", SUM("tokensTotal") AS "sum" FROM "batch_items"'
    )
    assert found == {"mean": 1.5, "sum": 3}
    assert isinstance(found["sum"], int)


def test_batches_are_listed_newest_first_with_their_totals(store):
    add_batch(store, "old", 2)
    add_batch(store, "new", 3, createdAt=timestamp(NOW + timedelta(days=1)))

    found = store.read.batches(NOW)

    assert [(row["runId"], row["totals"]["items"]) for row in found] == [("new", 3), ("old", 2)]
    assert [row["runId"] for row in store.read.batches(NOW, limit=1)] == ["new"]


SCOPES = {
    "by run": (Scope(run_id="first"), ["first-0", "first-1"], ["first"], 3),
    "by sessions": (
        Scope(session_ids=["first-1", "second-0"]),
        ["first-1", "second-0"],
        ["first", "second"],
        2,
    ),
    "from a date": (Scope(start=NOW + timedelta(hours=1)), ["second-0", "second-1"], ["second"], 2),
    "to a date": (Scope(end=NOW + timedelta(days=1)), ["first-0", "first-1"], ["first"], 2),
    "of an empty day": (Scope(start=NOW + timedelta(days=5), end=NOW + timedelta(days=6)), [], [], 0),
    "everything": (Scope(), ["first-0", "first-1", "second-0", "second-1"], ["first", "second"], 6),
}


@pytest.mark.parametrize("name", SCOPES)
def test_a_scope_gives_exactly_its_rows_of_every_table(two_batches, name):
    scope, sessions, batches, item_count = SCOPES[name]
    read = two_batches.read

    assert [row["id"] for row in read.table("sessions", scope)] == sessions
    assert sorted(row["id"] for row in read.sessions(scope)) == sessions
    assert sorted(row["runId"] for row in read.table("batches", scope)) == batches
    assert len(list(read.table("batch_items", scope))) == item_count
    for table in ("messages", "model_calls", "iterations"):
        assert sorted(row["sessionId"] for row in read.table(table, scope)) == sessions


def test_two_stores_may_read_while_one_is_written(store, url):
    add_batch(store, count=2000)
    writer = store.writer()
    with Store(url) as other:
        for row in items(2000):
            writer.change("batch_items", ("run", row.id), {"status": "success"})
        counts = other.read.totals("run")["counts"]
        assert counts["queued"] + counts["success"] == 2000
        writer.close()
        assert other.read.totals("run")["counts"]["success"] == 2000


def test_a_closed_store_has_closed_the_connections_of_all_threads(tmp_path):
    """Otherwise its file could not be deleted on some systems, and a server would run out of handles."""
    path = tmp_path / "closed.db"

    def handles():
        found = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
        return [name for name in found if name.startswith(str(path))]

    with Store(str(path)) as opened:
        threads = [threading.Thread(target=opened.read.session_ids, args=(Scope(),)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(handles()) >= 3

    assert handles() == []


def test_an_item_is_found_by_its_id_or_a_prefix_in_one_run_or_in_all(two_batches):
    first, second = (two_batches.read.items(run)[0] for run in ("first", "second"))

    for name in (first["id"], first["id"][:12]):
        assert [row["runId"] for row in two_batches.read.item(name, "first")] == ["first"]
    assert first["id"] in {row["id"] for row in two_batches.read.item(first["id"])}
    assert two_batches.read.item(second["id"][:-1] + "!", "second") == []


def test_a_batch_is_found_by_the_beginning_of_its_name(store):
    for run_id in ("nightly-1", "nightly-2", "a_b", "aXb", "night"):
        add_batch(store, run_id)

    for word, run_id in (("nightly-2", "nightly-2"), ("a_", "a_b"), ("night", "night")):
        assert store.read.batch(word, NOW)["runId"] == run_id
    with pytest.raises(NotFound, match="several runs begin with nightly"):
        store.read.batch("nightly", NOW)
    for nothing in ("", "%", "x"):
        with pytest.raises(NotFound, match=rf"there is no run {nothing}\n`proctor runs` lists"):
            store.read.batch(nothing, NOW)


def test_a_session_is_found_by_its_id_name_branch_or_item(two_batches):
    store = two_batches
    writer = store.writer()
    for session_id, more in (
        ("zz9", {"name": "batch/fix/1", "branch": "fix_1"}),
        ("zy1", {"name": "zx"}),
        ("zx", {}),
        ("zw1", {}),
        ("zw2", {"name": "zw"}),
    ):
        session(writer, session_id, "first", **more)
    for run_id in ("first", "second"):
        for row in store.read.items(run_id)[:2]:
            writer.change("batch_items", (run_id, row["id"]), {"sessionId": f"{run_id}-{row['position']}"})
    writer.close()
    first, second, third = store.read.items("first")

    for word, expected in (
        *((word, "zz9") for word in ("zz9", "zz", "batch/fix/1", "fix_1")),
        # An id comes before a name, and a name before a beginning.
        ("zx", "zx"),
        ("zw", "zw2"),
        # Of an item, the last attempt of the newest run.
        (first["id"], "second-0"),
        (second["id"][:12], "second-1"),
    ):
        assert store.read.session(word)["id"] == expected
    with pytest.raises(NotFound, match="several sessions begin with first"):
        store.read.session("first")
    with pytest.raises(NotFound):
        store.read.session("")
    for nothing in ("%", "fix%1", third["id"]):
        with pytest.raises(NotFound, match=rf"there is no session {nothing}\n`proctor sessions list`"):
            store.read.session(nothing)


def test_a_table_is_read_while_other_questions_are_asked_and_may_be_left_half_way(two_batches):
    rows = two_batches.read.table("messages", Scope())
    first = next(rows)
    assert two_batches.read.totals("first")["items"] == 3
    assert len([first, *rows]) == 4

    rows = two_batches.read.table("messages", Scope())
    next(rows)
    rows.close()
    two_batches.change(batches.change, "first", {"concurrency": 7})
    assert two_batches.read.batch("first", NOW)["concurrency"] == 7
    with pytest.raises(NotFound, match="there is no table"):
        list(two_batches.read.table('sessions"; DROP TABLE "sessions', Scope()))
