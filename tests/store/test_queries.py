"""Queries on a small store: exact figures, boundaries and orders."""

import json
import shutil
from datetime import timedelta

import pytest
from stocked import NOW, add_batch, owned, session
from test_sealing import mark

from databases import query
from proctor.errors import StoreError
from proctor.item import Item
from proctor.score import Score
from proctor.session import Iteration, Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from proctor.store import (
    Recorder,
    Store,
    aggregates,
    batches,
    results,
    runs,
    scores,
    timestamp,
    transcripts,
)
from proctor.store.definitions import Token
from proctor.store.evaluations import EvaluationRecord
from proctor.store.item_lists import ItemQuery, Listing, ScoreRange, listing
from proctor.store.items import status_counts
from proctor.store.keys import Keys, SigningKeyFile
from proctor.store.reader import summed
from proctor.store.recorder import _writable
from proctor.store.session_selection import session_contents
from proctor.store.tables import MOST, whole
from proctor.store.writer import RowGroups

LONG = "long text " * 1000


def at(seconds):
    return timestamp(NOW + timedelta(seconds=seconds))


@pytest.fixture
def store(tmp_path, empty_store_file):
    path = shutil.copy(empty_store_file, tmp_path / "a.db")
    with Store(str(path)) as opened:
        yield opened


def put(store, table, *rows):
    """Write rows as they are."""
    writer = store.writer()
    for key, row in rows:
        writer.add(table, key, row)
    writer.close()


def sessions(store, *times, source="batch", run_id="run"):
    for number, (began, ended) in enumerate(times):
        row = {"runId": run_id, "job": "coding", "status": "success", "source": source, "itemId": "i"}
        row |= {"startedAt": began and at(began), "finishedAt": ended and at(ended)}
        session_id = f"{source}-{number}"
        put(store, "sessions", ((session_id,), {"id": session_id} | row))


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ([], 0),
        ([(1, 5)], 4),
        ([(1, 5), (7, 8)], 5),
        ([(1, 5), (2, 4), (3, 9)], 8),
        ([(1, 5), (5, 6)], 5),
        ([(1, 5), (2, 5)], 4),
        ([(1, None)], 99),
        ([(None, 5), (5, 4)], 0),
    ],
)
def test_the_active_time_of_a_run_is_that_in_which_an_item_was_executed(store, times, seconds):
    sessions(store, *times)
    sessions(store, (1, 50), source="imported")
    assert runs.active_seconds(store.read, "run", NOW + timedelta(seconds=100)) == pytest.approx(seconds)


def test_runs_are_filtered_by_what_their_processes_do_now(store):
    for run_id, status, beat in (
        *(("alive", "running", 0), ("dead", "running", -60), ("done", "completed", -60)),
        ("old", "interrupted", -60),
    ):
        add_batch(store, run_id, owner="elsewhere:1:1:x", status=status, heartbeatAt=at(beat))

    def found(*statuses):
        rows = runs.page_of_batches(store.read, runs.RunFilter(statuses=statuses), NOW, limit=9)
        assert runs.count_batches(store.read, runs.RunFilter(statuses=statuses), NOW) == len(rows)
        return [row["runId"] for row in rows]

    assert found("running") == ["alive"]
    assert found("interrupted") == ["dead", "old"]
    assert found("running", "interrupted") == ["alive", "dead", "old"]
    assert found("completed") == ["done"]
    assert [row["runId"] for row in store.read.live_batches(NOW)] == ["alive"]
    store.delete_batch("dead")
    assert found("interrupted") == ["old"]


def test_totals_have_a_cost_only_if_one_is_known():
    rows = [
        {"status": "success", "items": 3, "tokens": 5, "cost": 0.5},
        {"status": "queued", "items": 2, "tokens": None, "cost": None},
        {"status": "running", "items": 1, "tokens": 1, "cost": 0.25},
    ]
    totals = summed(rows)
    assert (totals["items"], totals["finished"], totals["tokens"], totals["costUsd"]) == (6, 3, 6, 0.75)
    assert totals["counts"]["fail"] == 0 and totals["counts"]["success"] == 3
    assert summed(rows[1:2])["costUsd"] is None


def test_the_finished_prefix_of_a_run_ends_before_the_first_unfinished_item(store):
    assert aggregates.finished_prefix(store.read, "none") == 0
    add_batch(store, count=4)
    ids = [row["id"] for row in store.read.items("run")]
    assert aggregates.finished_prefix(store.read, "run") == 0
    for number, expected in ((0, 1), (2, 1), (1, 3), (3, 4)):
        writer = store.writer()
        writer.change("batch_items", ("run", ids[number]), {"status": "success"})
        writer.close()
        assert aggregates.finished_prefix(store.read, "run") == expected
    assert status_counts(store.read, "run") == {
        **dict.fromkeys(status_counts(store.read, "none"), 0),
        "success": 4,
    }
    assert set(status_counts(store.read, "none").values()) == {0}


def test_evidence_is_read_of_as_many_sessions_as_have_so_many_characters(store):
    writer = store.writer()
    for session_id, texts in (("a", ["xx", "yyy"]), ("b", ["z" * 5]), ("c", [LONG]), ("d", [])):
        recorder = session(writer, session_id)
        for text in texts:
            recorder.record(Message(role="user", content=text))
        recorder.record(ToolCall(name="t", result="r" * 5))
    writer.close()

    def first(ids, most):
        return list(store.read.evidence_of_first(ids, most))

    assert first(["a"], 0) == ["a"], "at least one"
    assert first(["a", "b"], 19) == ["a"]
    assert first(["a", "b"], 20) == ["a", "b"]
    assert first(["a", "c", "b"], 10_010) == ["a"]
    assert sorted(first(["a", "c", "b"], 10_015)) == ["a", "c"]
    assert sorted(first(["a", "c", "b"], 10_025)) == ["a", "b", "c"]
    assert first(["c", "a"], 1) == ["c"]
    assert first([], 1) == []
    assert first(["none", "d"], 5) == ["d"]


def test_the_digest_of_a_session_depends_on_each_of_its_parts(store):
    def content(*events, step="t", name="s"):
        writer = store.writer()
        recorder = session(writer, name)
        for event in events:
            recorder.record(event)
        recorder.record(Iteration(trace_id=step))
        writer.close()
        return session_contents(store.read, [name])[name]

    call = {"name": "edit", "args": {"a": 1}, "result": "ok", "call_id": "c", "success": True}
    variants = [
        [Message(role="user", content="hi")],
        [Message(role="assistant", content="hi")],
        [Message(role="user", name="Ann", content="hi")],
        [Message(role="user", content="ho")],
        [Message(role="user", content=LONG)],
        *(
            [ToolCall(**call | change)]
            for change in (
                *({}, {"name": "run"}, {"args": {"a": 2}}, {"result": "no"}, {"result": LONG}),
                *({"call_id": "d"}, {"success": False}, {"success": None}),
            )
        ),
    ]
    made = [content(*events, name=f"s{number}") for number, events in enumerate(variants)]
    made.append(content(*variants[0], step="other", name="last"))
    assert len({each.digest for each in made}) == len(made)
    assert made[0].digest == content(*variants[0], name="same").digest
    assert [(each.characters, each.tool_calls, each.traces) for each in (made[0], made[4], made[5])] == [
        *((2, 0, 1), (len(LONG), 0, 1), (2 + len('{"a": 1}'), 1, 1)),
    ]
    assert content(ToolCall(name="x", result=""), name="empty").characters == 2
    # Digests are kept with results: they do not change.
    assert [made[0].digest, made[5].digest] == [
        "1c33c2bb12482f72d81e289ee08bdc3b",
        "ca2d66d5cf8b6016882bd4c656108f10",
    ]


def test_judged_sessions_are_named_by_their_id_or_that_of_their_source(store):
    add_batch(store, "job")
    item = Item(runner="prompt", prompt="p", model="m")
    store.extend_batch("job", {}, add=[item], settle=(), drop=())
    imported = store.save_imported(Session(external_id="ext", source="otlp"), NOW)
    other = store.save_imported(Session(external_id="other", source="otlp"), NOW)
    writer = store.writer()
    recorder = session(writer, "judge", run_id="job", item_id=item.id)
    for judged in (imported, "own"):
        recorder.score(Score(evaluator="e", value=1.0, judged_session=judged))
    writer.change("batch_items", ("job", item.id), {"sessionId": "judge"})
    writer.close()
    among = ["ext", "other", imported, other, "own"]
    assert scores.judged_sessions(store.read, "job", among) == {"ext", imported, "own"}
    assert scores.judged_sessions(store.read, "job", ["own"]) == {"own"}
    assert scores.judged_sessions(store.read, "other", among) == set()


def test_an_outline_tells_what_each_event_is_about(store):
    writer = store.writer()
    recorder = session(writer, "s1")
    recorder.record(Message(role="user", content="a" * 200))
    recorder.record(Message(role="assistant", content="b" * 9000))
    recorder.record(ToolCall(name="run", args={"text": "c" * 9000}))
    recorder.record(ModelCall(model="m", usage=Usage(input_tokens=3), cost_usd=0.5))
    writer.close()
    rows = transcripts.outline(store.read, "s1")
    assert [(row["kind"], len(row["text"])) for row in rows] == [
        *(("message", 160), ("message", 160), ("tool_call", 160), ("model_call", 0)),
    ]
    assert [row["text"][:1] for row in rows] == ["a", "b", "{", ""]
    assert (rows[3]["promptTokens"], rows[3]["costUsd"]) == (3, 0.5)
    assert [row["position"] for row in transcripts.outline(store.read, "s1", limit=2)] == [1, 2]
    assert transcripts.head_of_blob(store.read, "none").text == ""
    assert transcripts.extent(store.read, "s1") == (4, 4)
    assert transcripts.extent(store.read, "none") == (0, 0)


def test_heads_and_pieces_of_texts_say_whether_they_go_on(store):
    writer = store.writer()
    recorder = session(writer, "s1")
    texts = ["x" * 4000, "x" * 4001, "é" * 5000, "end"]
    for text in texts:
        recorder.record(Message(role="user", content=text))
    writer.close()
    rows = transcripts.events(store.read, "s1", after=0, limit=9)
    heads = [row["content"] for row in rows]
    assert [(len(head.text), head.is_cut) for head in heads] == [
        (4000, False),
        (4000, True),
        (4000, True),
        (3, False),
    ]
    assert [head.size for head in heads] == [4000, 4001, 10_000, 3]
    assert [row["position"] for row in transcripts.events(store.read, "s1", after=1, limit=2)] == [2, 3]

    def piece(position, offset, limit):
        found = transcripts.text_part(store.read, "s1", position, "content", offset=offset, limit=limit)
        return found.text, found.size, found.is_cut

    assert piece(4, 0, 3) == ("end", 3, False)
    assert piece(4, 0, 2) == ("en", 3, True)
    assert piece(4, 1, 9) == ("nd", 3, False)
    assert piece(3, 4998, 9) == ("éé", 5000, False)


def test_a_time_that_cannot_be_read_is_damage():
    assert batches.moment(timestamp(NOW)) == NOW
    assert batches.moment("") is None and batches.moment(None) is None
    with pytest.raises(StoreError, match=r"a time in it cannot be read: 'soon'\nSee what else is damaged"):
        batches.moment("soon")


def test_the_items_of_a_worker_that_died_are_queued_again(store):
    add_batch(store, count=3)
    ids = [row["id"] for row in store.read.items("run")]
    writer = store.writer(owned("run", ""))
    for number in (0, 1):
        session(writer, f"s{number}", item_id=ids[number]).record(ModelCall(model="m", cost_usd=0.5))
        writer.change("batch_items", ("run", ids[number]), {"status": "running", "reason": "x"})
    session(writer, "loose", item_id=None)
    writer.change("batch_items", ("run", ids[2]), {"status": "running"})
    writer.close()

    lost = store._transaction(lambda connection: batches.queue_lost(connection, "run", ["s0", "loose"], NOW))

    assert sorted(row["id"] for row in lost) == ["loose", "s0"]
    rows = store.read.items("run")
    assert [(row["status"], row["reason"]) for row in rows] == [
        ("queued", ""),
        ("running", "x"),
        ("running", ""),
    ]
    assert rows[0]["costUsd"] == 0.5
    ended = {row["id"]: row for row in query(store, 'SELECT * FROM "sessions"')}
    assert (ended["s0"]["status"], ended["s0"]["endReason"]) == ("error", "interrupted")
    assert (ended["s0"]["error"], ended["s0"]["finishedAt"]) == ("its worker process died", timestamp(NOW))
    assert ended["s1"]["status"] == "running"


def test_the_size_of_a_run_is_that_of_its_rows_and_long_texts(store):
    for run_id, text in (("small", "x"), ("long", LONG)):
        add_batch(store, run_id)
        writer = store.writer()
        session(writer, f"s-{run_id}", run_id=run_id).record(Message(role="user", content=text))
        writer.close()
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
        add_batch(store, run_id, **values)
    assert store.runs_ended_before(NOW) == []
    assert sorted(store.runs_ended_before(NOW + timedelta(seconds=1))) == ["finished", "killed"]


@pytest.mark.parametrize(
    ("values", "is_volatile"),
    [
        ({}, False),
        ({"search": "x", "models": ["m"], "order": "costUsd"}, False),
        ({"tags": ["t"]}, True),
        ({"is_noted": True}, True),
        ({"is_starred": True}, True),
        ({"scores": [ScoreRange(name="tidy")]}, True),
        ({"order": "score:tidy"}, True),
        ({"order": "factor:task"}, False),
    ],
)
def test_a_list_is_volatile_if_notes_or_scores_decide(values, is_volatile):
    assert ItemQuery(**values).is_volatile is is_volatile


def test_items_are_listed_by_a_range_of_a_score(store):
    add_batch(store, count=4)
    rows = store.read.items("run")
    writer = store.writer()
    for number, value in ((0, 0.25), (1, 0.5), (2, 0.75)):
        session(writer, f"s{number}", item_id=rows[number]["id"]).score(Score(evaluator="tidy", value=value))
        writer.change("batch_items", ("run", rows[number]["id"]), {"sessionId": f"s{number}"})
    writer.close()

    def found(**limits):
        return list(
            listing(store.read, "run", ItemQuery(scores=[ScoreRange(name="tidy", **limits)])).positions
        )

    assert (found(), found(low=0.5), found(high=0.5)) == ([0, 1, 2], [1, 2], [0, 1])
    assert (found(low=0.5, high=0.5), found(low=0.8)) == ([1], [])
    by_score = [
        listing(store.read, "run", ItemQuery(order="score:tidy", descending=down)) for down in (False, True)
    ]
    assert [list(each.positions) for each in by_score] == [[0, 1, 2, 3], [2, 1, 0, 3]]


def test_items_are_listed_by_a_range_of_their_duration(store):
    add_batch(store, count=5)
    rows = store.read.items("run")
    writer = store.writer()
    for number, (began, ended) in enumerate([(0, 0), (0, 10), (5, 25), (0, None)]):
        times = {"startedAt": at(began), "finishedAt": at(ended) if ended is not None else None}
        writer.change("batch_items", ("run", rows[number]["id"]), times)
    writer.close()

    def found(*durations):
        return list(listing(store.read, "run", ItemQuery(durations=durations)).positions)

    assert [found((None, None)), found((10.0, None)), found((10.5, None))] == [[0, 1, 2], [1, 2], [2]]
    assert [found((None, 10.0)), found((None, 20.5)), found((0.0, 0.5))] == [[0], [0, 1, 2], [0]]
    assert found((5.0, None), (None, 15.0)) == [1]


def test_the_first_finished_items_of_an_agent_and_model_are_read_in_plan_order(store):
    add_batch(store, count=6)
    rows = store.read.items("run")
    writer = store.writer()
    for number, row in enumerate(rows):
        status = "queued" if number == 2 else "success"
        model = {"model": "other"} if number == 3 else {}
        writer.change("batch_items", ("run", row["id"]), {"status": status, "reason": "completed"} | model)
    writer.close()
    first, other = results.first_positions(store.read, "run")
    assert (first["model"], first["position"], other["model"]) == ("scripted/echo", 0, "other")

    def found(start, limit):
        pages = list(results.first_columns(store.read, "run", start, limit))
        assert {run_id for page in pages for run_id in page["runId"]} == {"run"}
        return [item for page in pages for item in page["id"]]

    ids = [row["id"] for row in rows]
    assert found(first, 3) == [ids[0], ids[1], ids[4]]
    assert found({**first, "position": 1}, 9) == [ids[1], ids[4], ids[5]]
    assert found(other, 9) == [ids[3]]


def test_a_step_begins_where_it_is_told_to(store):
    times = iter([NOW + timedelta(seconds=second) for second in (1, 5)])
    writer = store.writer()
    recorder = Recorder(
        writer,
        "s1",
        {"runId": "run", "job": "coding", "startedAt": at(0), "status": "running"},
        lambda: next(times),
    )
    recorder.begin_step()
    recorder.record(Iteration())
    writer.close()
    (row,) = store.read.of_session("iterations", "s1")
    assert (row["startTime"], row["endTime"]) == (at(1), at(5))


def test_a_first_event_is_not_before_the_start_of_its_session(store):
    writer = store.writer()
    row = {"runId": "run", "job": "coding", "startedAt": at(10), "status": "running"}
    Recorder(writer, "s1", row, lambda: NOW).record(Message(role="user", content="x"))
    writer.close()
    (message,) = store.read.of_session("messages", "s1")
    assert message["timestamp"] == at(10)


def test_rows_of_another_process_are_written(store):
    add_batch(store, owner="me")
    rows = RowGroups()
    rows.append("metrics", ("s1", 1, 0, "speed", 1.0, None))
    writer = store.writer(owned("run", "me"))
    writer.merge(rows)
    writer.close()
    assert query(store, 'SELECT "value" FROM "metrics"') == [{"value": 1.0}]
    with pytest.raises(StoreError, match="closed"):
        writer.merge(rows)


def test_only_some_positions_of_a_listing_are_taken(store):
    add_batch(store, count=4)
    every = listing(store.read, "run", ItemQuery())
    assert list(every.only({1, 3}).positions) == [1, 3]
    assert every.only({1, 3}).counts()["queued"] == 2
    assert list(every.of(["success"])) == [] and list(every.of(["queued"])) == [0, 1, 2, 3]
    assert isinstance(every.only(()), Listing)


def test_an_imported_session_of_spans_is_built_again_only_when_its_spans_change(store):
    built = []

    def build(name, documents, left_out):
        built.append(name.external_id)
        said = TimedEvent(event=Message(role="user", content="x"))
        return Session(
            external_id=name.external_id,
            source="otlp",
            service=name.service,
            log_group=name.log_group,
            steps=[Step(trace_id="t", events=[said])],
        )

    store.arrivals.save([(mark(), {"a": 1})], NOW)
    assert store.arrivals.has_new()
    assert len(store.arrivals.build_sessions(build, NOW).sessions) == 1
    assert store.arrivals.build_sessions(build, NOW).sessions == []
    assert built == ["ext"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, 0), (-1, 0), (3, 3), (2.9, 2), (MOST, MOST), (MOST + 1, MOST), ("x", 0)],
)
def test_counts_are_whole_and_within_limits(number, expected):
    assert whole(number) == expected


def test_counts_that_cannot_be_are_corrected_one_by_one():
    usage = Usage(input_tokens=-1, cached_tokens=2, output_tokens=3, reasoning_tokens=4)
    assert _writable(usage) == Usage(input_tokens=0, cached_tokens=2, output_tokens=3, reasoning_tokens=4)
    assert _writable(good := Usage(output_tokens=MOST)) is good


def test_an_imported_session_is_an_item_of_its_task_agent_and_model(store):
    store.imported_runs.begin("run", NOW, "0")
    session = Session(
        external_id="x", source="s", task="fix", agent="amp", model="m", factors={"tone": "calm"}
    )
    store.save_imported(session, NOW, "run")
    (row,) = store.read.items("run")
    assert (row["agent"], row["model"]) == ("amp", "m")
    assert json.loads(row["factors"]) == {"task": "fix", "agent": "amp", "model": "m", "tone": "calm"}


def test_a_session_whose_spans_tell_nothing_leaves_its_run(store):
    def build(name, documents, left_out):
        if documents[0].get("gone"):
            return None
        return Session(
            external_id=name.external_id, source="otlp", service=name.service, log_group=name.log_group
        )

    store.arrivals.save([(mark(), {"a": 1})], NOW)
    (session_id,) = store.arrivals.build_sessions(build, NOW).sessions
    store.imported_runs.begin("run", NOW, "0")
    assert not store.imported_runs.adopt("run", session_id)
    assert len(store.read.items("run")) == 1
    store.arrivals.save([(mark(), {"gone": True})], NOW)
    assert store.arrivals.build_sessions(build, NOW).sessions == []
    assert store.read.items("run") == []
    assert query(store, 'SELECT "id" FROM "sessions"') == []


def test_a_run_whose_signatures_were_all_removed_is_known_to_have_had_some(tmp_path):
    keys = Keys(signing=SigningKeyFile(tmp_path / "home" / "signing.key"))
    new = EvaluationRecord(id="job", arn="arn:x/job", name="job", request={}, request_digest="d")
    batch = {"createdAt": at(0), "job": "coding", "status": "completed"}
    with Store(str(tmp_path / "a.db")) as unsigned:
        unsigned.create_batch(batch | {"runId": "before"}, [])
    with Store(str(tmp_path / "a.db"), keys) as store:
        store.create_batch(batch | {"runId": "run"}, [])
        store.evaluations.create(new, batch | {"runId": "job"}, NOW)
        connection = store._plain.connect()
        connection.run('DELETE FROM "signatures"')
        connection.close()
        checks = {run_id: store.check_signatures(run_id, NOW) for run_id in ("before", "run", "job")}
    assert {run_id: check.is_signed for run_id, check in checks.items()} == {
        "before": False,
        "run": True,
        "job": True,
    }
    assert checks["run"].is_end_missing and not checks["before"].is_forged


def test_ids_of_sessions_and_entries_of_signed_runs_stay_what_they_were(store):
    """Stores and registers of earlier versions hold them."""
    session = Session(external_id="x", source="s", log_group="g", service="v")
    own = store.save_imported(session, NOW)
    for run_id in ("one", "two"):
        store.imported_runs.begin(run_id, NOW, "0")
        copy = store.save_imported(session, NOW, run_id)
    assert (own, copy) == ("b1d0295adecf74adee870b5dcf0f09bf", "1279c8db1530636b40f4bd18ebfc1d20")
    store._database.url = "postgresql://ann:secret@host/db"
    assert store._entry("run") == "ec013100f1b126e8e698b1eefd2090ce"


def test_a_name_that_is_the_id_of_another_evaluator_is_no_error(store):
    times = {"createdAt": at(0), "updatedAt": at(0)}
    token = Token(operation="o", token="", request={})
    for new_id, name in (("a", "b"), ("b", "c")):
        row = {"id": new_id, "name": name, "level": "TRACE", "kind": "k"} | times
        store.definitions.create_evaluator(row, {"text": LONG}, token)
        store.datasets.create({"id": new_id, "name": name, "schemaType": "T"} | times, {}, token)
    for with_config in (True, False):
        assert store.definitions.evaluator("b", with_config=with_config)["id"] in ("a", "b")
    assert store.datasets.dataset("b")["id"] in ("a", "b")


def test_the_tools_of_sessions_are_those_of_their_first_requests(store):
    def request(*names):
        tools = [{"function": {"name": name, "description": LONG}} for name in names]
        return json.dumps({"tools": tools})

    writer = store.writer()
    for session_id, requests in (("a", [request("x", "y"), request("z")]), ("b", [request("w")]), ("c", [])):
        recorder = session(writer, session_id)
        for body in requests:
            recorder.record(ModelCall(model="m", request=body))
        recorder.record(ToolCall(name="t"))
    recorder = session(writer, "d")
    recorder.record(ModelCall(model="m", request=request("v")))
    writer.close()

    evidence = store.read.evidence_of_first(["a", "b", "c", "d"], 1000)

    assert {name: [tool["name"] for tool in each.tools] for name, each in evidence.items()} == {
        "a": ["x", "y"],
        "b": ["w"],
        "c": [],
        # Without tool calls it is not looked for.
        "d": [],
    }
    assert evidence["b"].tools[0]["description"] == LONG
