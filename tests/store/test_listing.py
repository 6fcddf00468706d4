"""The list of batches: filtered, counted and summed in the database, with statuses as they are now."""

import inspect
from datetime import timedelta

import pytest
from stocked import NOW, add_batch, session

from proctor.score import Score
from proctor.store import StoreReader, evaluations, item_lists, runs, scores, timestamp, transcripts
from proctor.store.datasets import Datasets, Recommendations
from proctor.store.definitions import Definitions
from proctor.store.runs import RunFilter
from proctor.store.writer import this_process


@pytest.fixture
def batches(store):
    """Five: two that say they run, of which one has no process any more."""
    given = [
        ("alpha", {"status": "completed", "planPath": "/plans/100%.yaml"}),
        (
            "beta",
            {
                "status": "running",
                "owner": "elsewhere:1:2:3",
                "heartbeatAt": timestamp(NOW - timedelta(days=1)),
            },
        ),
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


def test_totals_are_those_of_each_batch(batches):
    row = batches.read.items("alpha")[0]
    with_cost = {"status": "success", "tokensTotal": 7, "costUsd": 0.5}
    writer = batches.writer()
    writer.change("batch_items", ("alpha", row["id"]), with_cost)
    writer.close()

    found = runs.totals_of(batches.read, ["alpha", "gamma", "gone"])

    assert found["alpha"]["counts"] == {
        "queued": 2,
        "running": 0,
        "success": 1,
        "fail": 0,
        "timeout": 0,
        "error": 0,
    }
    assert (found["alpha"]["items"], found["alpha"]["finished"]) == (3, 1)
    assert (found["alpha"]["tokens"], found["alpha"]["costUsd"]) == (7, 0.5)
    assert (found["gamma"]["items"], found["gamma"]["costUsd"]) == (3, None)
    assert found["gone"]["items"] == 0
    assert runs.totals_of(batches.read, []) == {}


def test_totals_count_what_was_checked(batches):
    ends = [("success", "completed"), ("success", "unchecked"), ("timeout", "timeout")]
    writer = batches.writer()
    for row, (status, reason) in zip(batches.read.items("alpha"), ends, strict=True):
        writer.change("batch_items", ("alpha", row["id"]), {"status": status, "reason": reason})
    writer.change(
        "batch_items", ("gamma", batches.read.items("gamma")[0]["id"]), {"status": "error", "reason": "x"}
    )
    writer.close()

    totals = runs.totals_of(batches.read, ["alpha", "gamma", "gone"])

    assert [(totals[name]["passed"], totals[name]["judged"]) for name in totals] == [(1, 2), (0, 0), (0, 0)]


def test_a_batch_is_found_by_the_file_of_its_plan(batches):
    assert runs.batch_of_plan_file(batches.read, "/plans/1000.yaml") == "epsilon"
    assert runs.batch_of_plan_file(batches.read, "/plans/1.yaml") is None
    assert [row["runId"] for row in runs.batches_by_id(batches.read, ["beta", "none"], NOW)] == ["beta"]
    assert runs.distinct_jobs(batches.read) == ["coding", "dialogue"]


def test_an_outcome_has_the_label_that_all_scores_of_a_name_share(proctor_store):
    writer = proctor_store.writer()
    recorder = session(writer, "s1")
    for evaluator, label in (
        ("one", "good"),
        ("two", "good"),
        ("two", "bad"),
        ("same", "ok"),
        ("same", "ok"),
    ):
        recorder.score(Score(evaluator=evaluator, value=0.5, label=label))
    recorder.score(Score(evaluator="none", value=0.25))
    writer.close()

    scores = item_lists.outcomes(proctor_store.read, ["s1"], characters=9)["s1"].scores
    assert {name: score["label"] or "" for name, score in scores.items()} == {
        "one": "good",
        "two": "",
        "same": "ok",
        "none": "",
    }


@pytest.mark.parametrize(
    ("listing", "limit"),
    [
        (Datasets.datasets, 100),
        (Datasets.examples, 100),
        (Recommendations.list, 100),
        (Definitions.evaluators, 100),
        (Definitions.configs, 100),
        (evaluations.Evaluations.page, 100),
        (evaluations.evaluations_of_run, 5),
        (evaluations.log_groups, 200),
        (StoreReader.batches, 1000),
        (StoreReader.items, 100),
        (StoreReader.sessions, 1000),
        (runs.trend_runs, 2000),
        (scores.verdicts_of, 500),
        (transcripts.search, 100),
    ],
)
def test_a_listing_has_a_limit_of_its_own_unless_one_is_given(listing, limit):
    """Callers rely on it: a listing without a limit neither fills the memory nor ends unexpectedly early."""
    parameter = inspect.signature(listing).parameters["limit"]
    assert (parameter.default, parameter.kind) == (limit, inspect.Parameter.KEYWORD_ONLY)
