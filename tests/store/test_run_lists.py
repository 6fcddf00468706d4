"""The list of batches: filtered, counted and summed in the database, with statuses as they are now."""

from datetime import timedelta

import pytest

from proctor.errors import StoreError
from proctor.item import Item
from proctor.score import Score
from proctor.session import Session
from proctor.store import Scope, aggregates, results, runs, scores, timestamp
from proctor.store import batches as batch_rows
from proctor.store.runs import RunFilter
from proctor.store.writer import this_process
from stocked import NOW, add_batch, at, change_items, record


@pytest.fixture
def batches(store):
    """Five: two that say they run, of which one has no process any more."""
    given = [
        ("alpha", {"status": "completed", "planPath": "/plans/100%.yaml"}),
        ("beta", {"status": "running", "owner": "elsewhere:1:2:3", "heartbeatAt": at(-86_400)}),
        ("gamma", {"status": "running", "owner": this_process()}),
        ("delta", {"status": "interrupted", "job": "dialogue", "planText": "Prompt: Tides"}),
        ("epsilon", {"status": "aborted", "planPath": "/plans/1000.yaml"}),
    ]
    for number, (run_id, row) in enumerate(given):
        add_batch(store, run_id, 3, createdAt=timestamp(NOW + timedelta(hours=number)), **row)
    return store


def names(store, **wanted):
    found = runs.page_of_batches(store.read, RunFilter(**wanted), NOW, limit=100)
    assert runs.count_batches(store.read, RunFilter(**wanted), NOW) == len(found)
    return [row["runId"] for row in found]


def test_the_newest_come_first_and_pages_follow_each_other(batches):
    assert names(batches) == ["epsilon", "delta", "gamma", "beta", "alpha"]
    page = runs.page_of_batches(batches.read, RunFilter(), NOW, limit=2, offset=2)
    assert [row["runId"] for row in page] == ["gamma", "beta"]


def test_a_batch_without_a_process_is_interrupted_whatever_its_row_says(batches):
    assert names(batches, statuses=["running"]) == ["gamma"]
    assert names(batches, statuses=["interrupted"]) == ["delta", "beta"]
    assert names(batches, statuses=["running", "interrupted"]) == ["delta", "gamma", "beta"]
    assert names(batches, statuses=["interrupted", "aborted"]) == ["epsilon", "delta", "beta"]
    assert runs.batch_states(batches.read, NOW)["beta"] == ("interrupted", "")


def test_search_takes_text_as_it_is_in_any_letter_case(batches):
    assert names(batches, search="100%") == ["alpha"]
    assert names(batches, search="TIDES") == ["delta"]
    assert names(batches, search="_") == []
    assert names(batches, search="a", jobs=["dialogue"]) == ["delta"]


def test_totals_are_those_of_each_batch_and_count_what_was_checked(batches):
    ends = [("success", "completed"), ("success", "unchecked"), ("timeout", "timeout")]
    change_items(
        batches, {n: {"status": end, "reason": why} for n, (end, why) in enumerate(ends)}, run_id="alpha"
    )
    change_items(batches, {0: {"tokensTotal": 7, "costUsd": 0.5}}, run_id="alpha")
    change_items(batches, {0: {"status": "error", "reason": "x"}}, run_id="gamma")

    found = runs.totals_of(batches.read, ["alpha", "gamma", "gone"])

    counts = {"queued": 0, "running": 0, "success": 2, "fail": 0, "timeout": 1, "error": 0}
    assert found["alpha"]["counts"] == counts
    columns = ("items", "finished", "tokens", "costUsd", "passed", "judged")
    assert {name: tuple(totals[column] for column in columns) for name, totals in found.items()} == {
        "alpha": (3, 3, 7, 0.5, 1, 2),
        "gamma": (3, 1, 0, None, 0, 0),
        "gone": (0, 0, 0, None, 0, 0),
    }
    assert runs.totals_of(batches.read, []) == {}


def test_a_batch_is_found_by_the_file_of_its_plan(batches):
    assert runs.batch_of_plan_file(batches.read, "/plans/1000.yaml") == "epsilon"
    assert runs.batch_of_plan_file(batches.read, "/plans/1.yaml") is None
    assert [row["runId"] for row in runs.batches_by_id(batches.read, ["beta", "none"], NOW)] == ["beta"]
    assert runs.distinct_jobs(batches.read) == ["coding", "dialogue"]


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
    writer = store.writer()
    for number, (began, ended) in enumerate([*times, (1, 50)]):
        row = {"id": f"s{number}", "runId": "run", "job": "coding", "status": "success", "itemId": "i"}
        row |= {"startedAt": began and at(began), "finishedAt": ended and at(ended)}
        source = "batch" if number < len(times) else "imported"
        writer.add("sessions", (row["id"],), row | {"source": source})
    writer.close()
    assert runs.active_seconds(store.read, "run", NOW + timedelta(seconds=100)) == pytest.approx(seconds)


def test_the_finished_prefix_of_a_run_ends_before_the_first_unfinished_item(store):
    assert aggregates.finished_prefix(store.read, "none") == 0
    add_batch(store, count=4)
    assert aggregates.finished_prefix(store.read, "run") == 0
    for number, expected in ((0, 1), (2, 1), (1, 3), (3, 4)):
        change_items(store, {number: {"status": "success"}})
        assert aggregates.finished_prefix(store.read, "run") == expected


def test_the_first_finished_items_of_an_agent_and_model_are_read_in_plan_order(store):
    add_batch(store, count=6)
    rows = store.read.items("run")
    change_items(store, {number: {"status": "success", "reason": "completed"} for number in (0, 1, 3, 4, 5)})
    change_items(store, {3: {"model": "other"}})
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


def test_judged_sessions_are_named_by_their_id_or_that_of_their_source(store):
    add_batch(store, "job")
    item = Item(runner="prompt", prompt="p", model="m")
    store.extend_batch("job", {}, add=[item], settle=(), drop=())
    imported = store.save_imported(Session(external_id="ext", source="otlp"), NOW)
    other = store.save_imported(Session(external_id="other", source="otlp"), NOW)
    given = [Score(evaluator="e", value=1.0, judged_session=judged) for judged in (imported, "own")]
    record(store, "judge", *given, run_id="job", item_id=item.id)
    change_items(store, {0: {"sessionId": "judge"}}, run_id="job")
    among = ["ext", "other", imported, other, "own"]
    assert scores.judged_sessions(store.read, "job", among) == {"ext", imported, "own"}
    assert scores.judged_sessions(store.read, "job", ["own"]) == {"own"}
    assert scores.judged_sessions(store.read, "other", among) == set()


def test_a_time_that_cannot_be_read_is_damage():
    assert batch_rows.moment(timestamp(NOW)) == NOW
    assert batch_rows.moment("") is None and batch_rows.moment(None) is None
    with pytest.raises(StoreError, match=r"a time in it cannot be read: 'soon'\nSee what else is damaged"):
        batch_rows.moment("soon")


def test_failed_sessions_without_a_run_are_listed_after_failed_items(store):
    add_batch(store, count=3)
    for row, status in zip(store.read.items("run"), ("fail", "success", "error"), strict=True):
        record(store, f"s{row['position']}", item_id=row["id"])
        change_items(store, {row["position"]: {"status": status, "sessionId": f"s{row['position']}"}})
    for name, status in (("lost", "error"), ("fine", "success")):
        record(store, name, run_id=None, item_id=None, status=status, name=name)
    selection = aggregates.select(store.read, Scope())
    failed = [(row["prompt"], row["status"]) for row in aggregates.failed_items(selection)]
    assert failed == [("question 0", "fail"), ("question 2", "error"), ("lost", "error")]


def test_imported_sessions_are_found_by_their_log_group_and_their_end(store):
    for number, group in enumerate(("g", "g", "h")):
        ended = NOW + timedelta(hours=number)
        one = Session(external_id=f"e{number}", source="otlp", log_group=group, finished_at=ended)
        store.save_imported(one, NOW)
    record(store, "own")

    def found(**wanted):
        ids = store.read.imported_session_ids(**wanted)
        return sorted(store.read.session(each)["externalId"] for each in ids)

    assert (found(), found(log_group="g")) == (["e0", "e1", "e2"], ["e0", "e1"])
    assert found(log_group="g", before=NOW + timedelta(hours=1)) == ["e0"]
