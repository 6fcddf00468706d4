"""What is read and then changed is locked in between; SQLite locks by itself, PostgreSQL has to be told."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pytest

from databases import new_store
from proctor.errors import StoreError
from proctor.session import Message
from proctor.store import MoneyLimits, Store, ledger, timestamp
from proctor.store.database import SqliteConnection
from proctor.store.definitions import Token
from proctor.store.evaluations import EvaluationRecord
from proctor.store.intake import LogEvent
from proctor.store.keys import Keys, LocalKey
from proctor.telemetry.documents import SessionMark
from stocked import NOW, add_batch, owned, session

KEYS = Keys(own=LocalKey(secret=bytes(range(32))))
TIMES = {"createdAt": timestamp(NOW), "updatedAt": timestamp(NOW)}
TOKEN = Token(operation="o", token="", request={})
SPAN = SessionMark(
    trace_id="t",
    span_id="s",
    part="span",
    parent_id="",
    session_key="",
    service="",
    log_group="",
    has_log_group=False,
    started=0,
)
LIMITS = MoneyLimits(run_usd=10.0)


@pytest.fixture
def store(tmp_path, empty_store_file):
    path = shutil.copy(empty_store_file, tmp_path / "a.db")
    with Store(str(path)) as opened:
        add_batch(opened, owner="me", budgetUsd=10.0)
        writer = opened.writer(owned("run", "me"))
        recorder = session(writer, "s1")
        recorder.record(Message(role="user", content="cat"))
        recorder.end("success", "completed", "", work_seconds=1, waiting_seconds=0)
        writer.close()
        opened.definitions.create_config({"id": "oc", "name": "oc", "enabled": 1} | TIMES, {}, TOKEN)
        opened.datasets.create({"id": "ds", "name": "ds", "schemaType": "T"} | TIMES, {"e": {}}, TOKEN)
        opened.logs.create("g", "s", NOW)
        opened.arrivals.save([(SPAN, {})], NOW)
        yield opened


def new_evaluation(store):
    new = EvaluationRecord(id="job", arn="arn:x/job", name="job", request={}, request_digest="d")
    batch = {"runId": "job", "createdAt": timestamp(NOW), "job": "evaluation", "status": "running"}
    store.evaluations.create(new, batch, NOW)


OPERATIONS = {
    "publish": (lambda store: store.datasets.publish("ds", TOKEN, NOW), {"client_tokens", "datasets"}),
    "add": (lambda store: store.datasets.add("ds", {}, TOKEN, NOW), {"client_tokens", "datasets"}),
    "claim": (lambda store: store.recommendations.claim("me", NOW), {"recommendations"}),
    "watch": (lambda store: store.definitions.watch_config("oc", "me", NOW), {"online_configs"}),
    "alert": (lambda store: store.drift.take_alert(NOW, until=timedelta(minutes=1)), {"drift_crossings"}),
    "evaluation": (new_evaluation, {"evaluations"}),
    "delete imported": (lambda store: store.delete_imported(["x"]), {"arrivals"}),
    "build": (lambda store: store.arrivals.build_sessions(lambda *_: None, NOW), {"arrivals"}),
    "log": (
        lambda store: store.logs.put("g", "s", [LogEvent(timestamp_ms=1, message="x")], NOW),
        {"log_events"},
    ),
    "index": (lambda store: store.search_index.update(), {"search_sessions"}),
    "clear": (lambda store: store.search_index.clear(), {"search_sessions"}),
    "delete texts": (lambda store: store.delete_texts("run"), {"search_sessions"}),
    "draw": (
        lambda store: store.change(
            ledger.draw, "run", "me", wanted_usd=1.0, least_usd=0.1, limits=LIMITS, now=NOW
        ),
        {"its turn"},
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_locks_the_tables_that_it_reads_before_it_writes(store, monkeypatch, name):
    """A lock that is missing shows only in a race."""
    operation, expected = OPERATIONS[name]
    if name == "delete texts":
        store.search_index.update()
    locked = []
    monkeypatch.setattr(SqliteConnection, "take_turn_lock", lambda self: locked.append("its turn"))
    # White-box: a lock that is missing shows only in a race.
    monkeypatch.setattr(SqliteConnection, "lock_table", lambda self, table: locked.append(table))
    operation(store)
    assert set(locked) == expected


def test_keys_and_what_they_encrypt_are_locked_while_they_are_replaced(store, monkeypatch):
    locked = []
    monkeypatch.setattr(SqliteConnection, "lock_table", lambda self, table: locked.append(table))
    with Store(store.url, KEYS) as encrypted:
        assert locked == ["data_keys"]
        encrypted.reencrypt()
    assert {"messages", "sessions", "batches", "search_sessions"} <= set(locked)


def test_postgresql_lets_one_transaction_at_a_time_have_a_table_or_a_turn_or_run_a_script(server):
    with Store(new_store(server)) as store:
        first, second = store.database.connect(), store.database.connect()
        second.run("SET lock_timeout = '50ms'")
        for lock in (
            lambda connection: connection.lock_table("datasets"),
            lambda each: each.take_turn_lock(),
            lambda each: each.script("SELECT 1"),
        ):
            first.begin()
            lock(first)
            second.begin()
            with pytest.raises(StoreError, match="lock timeout"):
                lock(second)
            second.rollback()
            first.rollback()
            second.begin()
            lock(second)
            second.rollback()
        for connection in (first, second):
            connection.close()


def test_closing_waits_for_a_transaction_of_another_thread(tmp_path):
    """SQLite ends the process if a connection is closed while another thread commits with it."""
    store, begun, go_on = Store(str(tmp_path / "a.db")), threading.Event(), threading.Event()

    def work(connection):
        connection.rows("SELECT 1")
        begun.set()
        go_on.wait(10)
        return "done"

    with ThreadPoolExecutor(2) as threads:
        result = threads.submit(store.change, work)
        assert begun.wait(10)
        closing = threads.submit(store.close)
        assert not wait([closing], timeout=0.2).done
        go_on.set()
        assert (result.result(), closing.result()) == ("done", None)
