"""A batch is made, owned by one process, taken over, extended, ended and deleted."""

import threading
from datetime import timedelta

import pytest

from databases import query
from proctor.errors import StoreError, UsageError
from proctor.item import Item
from proctor.session import Merge, Message, ModelCall, ToolCall, Usage
from proctor.store import Resource, RetrySelection, Store, batches, timestamp
from proctor.store.tables import OF_A_SESSION
from proctor.store.writer import this_process
from stocked import NOW, add_batch, at, change_items, items, record, session
from waiting import TIME_LIMIT_SECONDS

LONG = "said by both batches\n" * 1000


def everything(store):
    tables = ("batches", "batch_items", "sessions", *OF_A_SESSION, "ledger", "run_resources", "blobs")
    return {table: query(store, f'SELECT * FROM "{table}" ORDER BY 1, 2') for table in tables}


def test_a_batch_is_made_with_all_of_its_items_or_not_at_all(store):
    def broken():
        yield from items(1500)
        raise ValueError("the plan went away")

    row = {"runId": "run", "createdAt": timestamp(NOW), "job": "coding", "status": "running"}
    with pytest.raises(ValueError, match="went away"):
        store.create_batch(row, broken())

    assert query(store, 'SELECT * FROM "batches"') == query(store, 'SELECT * FROM "batch_items"') == []
    assert store.create_batch(row, items(1500)) == 1500


def test_a_batch_has_the_resources_of_its_items_each_once(store):
    row = {"runId": "run", "createdAt": timestamp(NOW), "job": "dialogue", "status": "running"}
    store.create_batch(row, items(1), [Resource("role", "client", "d1", "first")])
    store.change(
        batches.add_resources,
        "run",
        [Resource("role", "client", "d1", "x"), Resource("role", "client", "d2", "y")],
    )

    assert [store.read.resource("run", digest) for digest in ("d1", "d2", "d3")] == ["first", "y", None]
    assert store.read.resource("other", "d1") is None
    store.delete_batch("run")
    assert store.read.resource_digests("run") == set()


def test_two_batches_cannot_have_one_name(store):
    add_batch(store, "run", 1)

    with pytest.raises(UsageError, match="already a run called run"):
        add_batch(store, "run", 1)
    assert len(store.read.items("run")) == 1


def test_a_batch_that_is_carried_out_cannot_be_taken(store):
    add_batch(store, owner=this_process())

    with pytest.raises(UsageError, match=r"is already running in process \d+\nLook at it"):
        store.resume_batch("run", "other:1:1:x", RetrySelection(), NOW)


def test_of_two_who_take_a_batch_at_once_one_gets_it(url):
    with Store(url) as store:
        add_batch(store, owner="gone:1:1:x", heartbeatAt=None)
    together, got, refusals = threading.Barrier(4), list[str](), list[str]()

    def take(number):
        with Store(url) as mine:
            mine.read.batch("run", NOW)
            together.wait(TIME_LIMIT_SECONDS)
            try:
                mine.resume_batch("run", f"me:{number}:1:x", RetrySelection(), NOW)
                got.append(f"me:{number}:1:x")
            except (UsageError, StoreError) as refused:
                refusals.append(str(refused))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with Store(url) as store:
        assert query(store, 'SELECT "owner" FROM "batches"') == [{"owner": owner} for owner in got]
    assert len(refusals) == 3
    assert all("is already running in" in refusal for refusal in refusals)


@pytest.mark.parametrize(
    ("again", "queued"),
    [
        (RetrySelection(), ["aborted", "halted", "interrupted", "queued", "running"]),
        (RetrySelection(errors=True), ["aborted", "error", "halted", "interrupted", "queued", "running"]),
        (
            RetrySelection(failures=True),
            ["aborted", "fail", "halted", "interrupted", "queued", "running", "timeout"],
        ),
    ],
)
def test_resuming_queues_what_has_no_end_of_its_own_and_what_was_asked_for(store, again, queued):
    states = {
        "queued": ("queued", ""),
        "running": ("running", ""),
        "success": ("success", "completed"),
        "fail": ("fail", "checks_failed"),
        "timeout": ("timeout", "timeout"),
        "error": ("error", "setup_failed"),
        "aborted": ("error", "aborted"),
        "interrupted": ("error", "interrupted"),
        "halted": ("error", "halted"),
    }
    given = [Item(runner="prompt", prompt=name) for name in states]
    store.create_batch({"runId": "run", "createdAt": "x", "job": "coding", "status": "halted"}, given)
    writer = store.writer()
    for item, (status, reason) in zip(given, states.values(), strict=True):
        change = {"status": status, "reason": reason, "error": "why", "startedAt": "y", "finishedAt": "z"}
        writer.change("batch_items", ("run", item.id), change)
    writer.close()

    store.resume_batch("run", this_process(), again, NOW)

    found = [row for row in store.read.items("run") if row["status"] == "queued"]
    assert sorted(row["prompt"] for row in found) == queued
    left = [(row["reason"], row["error"], row["finishedAt"]) for row in found if row["prompt"] != "queued"]
    assert set(left) == {("", "", None)}


def test_sessions_that_were_cut_off_get_the_sums_of_what_they_had_recorded(store):
    add_batch(store, count=2, owner="gone:1:1:x")
    first, second = store.read.items("run")
    writer = store.writer()
    done = session(writer, "s1", item_id=first["id"], attempt=1)
    done.record(ModelCall(model="m", usage=Usage(input_tokens=7, output_tokens=1), cost_usd=0.5))
    done.end("error", "model_failed", "", work_seconds=1.0, waiting_seconds=0.0)
    cut_off = session(writer, "s2", item_id=first["id"], attempt=2)
    for cost in (0.25, None):
        usage = Usage(input_tokens=10, cached_tokens=3, output_tokens=2, reasoning_tokens=1)
        cut_off.record(ModelCall(model="m", usage=usage, cost_usd=cost))
    cut_off.record(ToolCall(name="edit"))
    session(writer, "s3", item_id=second["id"])
    writer.change(
        "batch_items", ("run", first["id"]), {"status": "running", "tokensTotal": 8, "costUsd": 0.5}
    )
    writer.close()
    heard = NOW + timedelta(minutes=3)
    store.change(batches.change, "run", {"heartbeatAt": timestamp(heard)})

    cut = store.resume_batch("run", this_process(), RetrySelection(), NOW + timedelta(days=1))

    assert sorted(row["id"] for row in cut) == ["s2", "s3"]
    found = store.read.session("s2")
    ended = (found["status"], found["endReason"], found["error"])
    assert ended == ("error", "interrupted", "its process died")
    assert (found["promptTokens"], found["completionTokens"], found["totalTokens"]) == (20, 4, 24)
    assert (found["cachedTokens"], found["reasoningTokens"], found["costUsd"]) == (6, 2, 0.25)
    assert (found["modelCalls"], found["unpricedCalls"], found["toolCalls"]) == (2, 1, 1)
    assert found["finishedAt"] == timestamp(heard)
    assert store.read.session("s3")["costUsd"] is None
    (item, other) = store.read.items("run")
    assert (item["tokensTotal"], item["toolCalls"], item["costUsd"]) == (32, 1, 0.75)
    assert (other["tokensTotal"], other["costUsd"]) == (0, None)


def test_money_of_attempts_that_were_cut_off_is_settled_once_for_what_is_known_to_be_spent(store):
    add_batch(store, count=1, owner="gone:1:1:x", budgetUsd=1.0, status="halted")
    writer = store.writer()
    recorder = session(writer, "open")
    recorder.record(ModelCall(model="m", cost_usd=0.03))
    # Settled, though 0.1 + 0.2 - 0.3 is not quite nothing to a computer.
    for position, (kind, reserved, spent) in enumerate(
        [("reserve", 0.1, 0.0), ("extend", 0.2, 0.0), ("settle", -0.3, 0.25)], 1
    ):
        writer.append("ledger", ("closed", position, "run", "i", timestamp(NOW), kind, reserved, spent, ""))
    writer.append("ledger", ("open", 1, "run", "i", timestamp(NOW), "reserve", 0.4, 0.0, ""))
    writer.append("ledger", ("other", 1, "another run", "i", timestamp(NOW), "reserve", 0.4, 0.0, ""))
    writer.close()

    for _ in range(2):
        store.resume_batch("run", "gone:2:2:x", RetrySelection(), NOW)
        store.change(batches.change, "run", {"status": "halted"})

    reserved, spent = store.read.reserved_and_spent("run")
    assert reserved == pytest.approx(0, abs=1e-12)
    assert spent == pytest.approx(0.28)
    # The calls of a dead process are charged once; the end of their bills may replace that.
    kinds = query(store, 'SELECT "kind" FROM "ledger" WHERE "sessionId" = ? ORDER BY "position"', ("open",))
    assert sorted(row["kind"] for row in kinds) == ["estimate", "reserve"]
    assert store.read.reserved_and_spent("another run") == (0.4, 0.0)


def test_an_abort_ends_every_unfinished_item_and_session_and_no_finished_one(store):
    add_batch(store, count=3)
    _, second, third = store.read.items("run")
    change_items(store, {0: {"status": "success", "reason": "completed"}, 1: {"status": "running"}})
    record(store, "s1", item_id=second["id"])

    store.end_batch("run", "aborted", "aborted", "the batch was aborted", NOW)

    found = [(row["status"], row["reason"]) for row in store.read.items("run")]
    assert found == [("success", "completed"), ("error", "aborted"), ("error", "aborted")]
    assert store.read.session("s1")["endReason"] == "aborted"
    assert store.read.batch("run", NOW)["status"] == "aborted"
    assert third["status"] == "queued"


def test_extending_adds_at_the_end_drops_what_is_queued_and_keeps_what_was_begun(store):
    add_batch(store, count=4)
    _kept, _changed, dropped, begun = store.read.items("run")
    change_items(store, {0: {"status": "success", "startedAt": at(0)}, 3: {"startedAt": at(0)}})
    settled = items(2, settings={"retries": 5}, factors={"a": "b"})

    store.extend_batch(
        "run",
        {"concurrency": 9},
        add=[Item(runner="prompt", prompt="new")],
        settle=settled,
        drop=[dropped["id"], begun["id"]],
    )

    found = {row["prompt"]: row for row in store.read.items("run")}
    places = {row["prompt"]: row["position"] for row in found.values()}
    assert list(places.items()) == [("question 0", 0), ("question 1", 1), ("question 3", 3), ("new", 4)]
    assert found["question 1"]["settings"] == '{"retries":5}'
    assert found["question 0"]["settings"] == "{}", "what is finished was carried out as its row says"
    assert (found["question 3"]["status"], found["question 3"]["reason"]) == ("error", "removed")
    assert store.read.batch("run", NOW)["concurrency"] == 9


def test_deleting_a_batch_leaves_every_other_row_and_every_shared_text(store):
    for run_id in ("keep", "go"):
        add_batch(store, run_id, 3)
        writer = store.writer()
        recorder = session(writer, f"{run_id}-s", run_id)
        recorder.record(Message(role="user", content=LONG))
        recorder.record(ToolCall(name="read", result=f"only {run_id} " * 1000))
        recorder.record(ModelCall(model="m"))
        writer.append("ledger", (f"{run_id}-s", 1, run_id, "i", timestamp(NOW), "reserve", 1.0, 0.0, ""))
        writer.append(
            "ledger", (f"{run_id}-never-begun", 1, run_id, "i", timestamp(NOW), "reserve", 1.0, 0.0, "")
        )
        writer.close()
        if run_id == "keep":
            before = everything(store)

    store.delete_batch("go")

    assert everything(store) == before
    assert store.read.of_session("messages", "keep-s")[0]["content"] == LONG


def test_a_text_someone_is_about_to_refer_to_survives_the_deletion_of_all_others(url):
    begun, go_on = threading.Event(), threading.Event()
    with Store(url) as store, Store(url) as other:
        add_batch(store, "go")
        writer = store.writer()
        session(writer, "go-s", "go").record(Message(role="user", content=LONG))
        writer.flush().result(TIME_LIMIT_SECONDS)
        session(writer, "s1", "run").record(Message(role="user", content=LONG))
        # Inside the same transaction, after the message was written and before it is committed.
        writer.submit(lambda connection: begun.set() or go_on.wait(TIME_LIMIT_SECONDS))
        assert begun.wait(TIME_LIMIT_SECONDS)
        deleting = threading.Thread(target=other.delete_batch, args=("go",))
        deleting.start()
        deleting.join(0.3)
        go_on.set()
        deleting.join()
        writer.close()

        assert store.read.of_session("messages", "s1")[0]["content"] == LONG


def test_the_items_of_a_worker_that_died_are_queued_again(store):
    add_batch(store, count=3)
    ids = [row["id"] for row in store.read.items("run")]
    for number in (0, 1):
        record(store, f"s{number}", ModelCall(model="m", cost_usd=0.5), item_id=ids[number])
        change_items(store, {number: {"status": "running", "reason": "x"}})
    record(store, "loose", item_id=None)
    change_items(store, {2: {"status": "running"}})

    writer = store.writer()
    lost = writer.submit(
        lambda connection: batches.queue_lost(connection, "run", ["s0", "loose"], NOW)
    ).result()
    writer.close()

    assert sorted(row["id"] for row in lost) == ["loose", "s0"]
    rows = store.read.items("run")
    states = [(row["status"], row["reason"]) for row in rows]
    assert states == [("queued", ""), ("running", "x"), ("running", "")]
    assert rows[0]["costUsd"] == 0.5
    ended = {row["id"]: row for row in query(store, 'SELECT * FROM "sessions"')}
    assert (ended["s0"]["status"], ended["s0"]["endReason"]) == ("error", "interrupted")
    assert (ended["s0"]["error"], ended["s0"]["finishedAt"]) == ("its worker process died", timestamp(NOW))
    assert ended["s1"]["status"] == "running"


def test_the_size_of_a_run_is_that_of_its_rows_and_long_texts(store):
    for run_id, text in (("small", "x"), ("long", LONG)):
        add_batch(store, run_id)
        record(store, f"s-{run_id}", Message(role="user", content=text), run_id=run_id)
    sizes = store.run_sizes(["small", "long", "none"])
    (blob,) = query(store, 'SELECT LENGTH("data") AS "n" FROM "blobs"')
    digest = 64
    # The names are one character shorter, in the batch, the session and the message.
    assert sizes["long"] - sizes["small"] == blob["n"] + digest - len("x") - 4
    assert sizes["none"] == 0 and sizes["small"] > 100
    assert store.run_sizes([]) == {}


def test_a_run_has_ended_when_it_finished_or_its_process_was_last_seen(store):
    for run_id, values in {
        "finished": {"status": "completed", "finishedAt": at(0)},
        "killed": {"heartbeatAt": at(0)},
        "alive": {"heartbeatAt": at(5)},
        "new": {"status": "completed", "finishedAt": at(5)},
    }.items():
        add_batch(store, run_id)
        store.change(batches.change, run_id, values)
    assert store.runs_ended_before(NOW) == []
    assert sorted(store.runs_ended_before(NOW + timedelta(seconds=1))) == ["finished", "killed"]


def test_a_request_to_stop_is_the_first_one_and_a_batch_does_not_end_before_it_began(store):
    add_batch(store)
    for moment in (NOW, NOW + timedelta(hours=1)):
        store.change(batches.request_abort, "run", moment)
    store.end_batch("run", "aborted", "abort", "", NOW - timedelta(days=1))
    row = store.read.batch("run", NOW)
    assert (row["abortRequestedAt"], row["finishedAt"]) == (timestamp(NOW), timestamp(NOW))


def test_a_merge_after_the_end_is_numbered_after_the_others(store):
    record(store, "s1", Merge(base_branch="main", result="error"))
    for _ in range(2):
        merge = Merge(base_branch="main", result="conflict", conflict_files=("a.py",))
        store.change(batches.save_merge, "s1", merge, NOW + timedelta(seconds=5))
    rows = query(store, 'SELECT "position", "startedAt", "result" FROM "merge_history" ORDER BY 1')
    assert [tuple(row.values()) for row in rows] == [
        (1, at(0), "error"),
        (2, at(5), "conflict"),
        (3, at(5), "conflict"),
    ]


def test_texts_of_a_run_are_deleted_its_results_stay_and_its_space_is_given_back(store):
    for run_id in ("run", "other"):
        add_batch(store, run_id, count=500)
        said = Message(role="user", content="said")
        used = ToolCall(name="t", args={"a": 1}, result="done" * 5000)
        record(store, f"s-{run_id}", said, used, run_id=run_id)
    size, before = store.run_sizes(["run"])["run"], store.read.items("run")

    store.delete_texts("run")

    assert [row["sessionId"] for row in query(store, 'SELECT * FROM "messages"')] == ["s-other"]
    (call,) = store.read.of_session("tool_calls", "s-run")
    assert (call["argsJson"], call["result"]) == ("{}", "")
    assert store.read.items("run") == before
    assert store.run_sizes(["run"])["run"] < size
    full = store.file_bytes()
    store.delete_batch("run")
    store.delete_batch("other")
    store.purge()
    assert full is None or store.file_bytes() < full
