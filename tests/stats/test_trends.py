"""Runs of one plan over time: what changed beyond chance, and what did not."""

import random
from datetime import UTC, datetime

import pytest

from proctor.item import Item
from proctor.jobs.imported.table import import_table
from proctor.results.loading import load_results
from proctor.stats.figures import trend_metrics, trend_of
from proctor.stats.intervals import geometric_mean, mean
from proctor.store import timestamp
from proctor.store.runs import evaluators_of

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(proctor_store):
    return proctor_store


def add_run(store, run_id, rate, seed, tasks=120):
    """A run whose tasks succeed with this probability."""
    items = [
        Item(runner="prompt", prompt=f"Task {n}", model="m", factors={"model": "m"}) for n in range(tasks)
    ]
    row = {"runId": run_id, "createdAt": timestamp(NOW), "finishedAt": timestamp(NOW), "job": "coding"}
    store.create_batch({**row, "status": "completed"}, items)
    rng, writer = random.Random(seed), store.writer()
    for item in items:
        status = "success" if rng.random() < rate else "fail"
        writer.change(
            "batch_items", (run_id, item.id), {"status": status, "reason": "completed", "costUsd": 0.1}
        )
    writer.close()


def points_of(store, run_ids):
    return trend_of(load_results(store.read, run_ids, NOW), "success")


def test_a_regression_is_told_from_chance_and_from_the_recovery(store):
    rates = [0.8, 0.8, 0.5, 0.8]
    for number, rate in enumerate(rates):
        add_run(store, f"run-{number}", rate, number)
    points = points_of(store, [f"run-{number}" for number in range(4)])

    assert [point.run_id for point in points] == ["run-0", "run-1", "run-2", "run-3"]
    assert [point.estimate.value for point in points] == pytest.approx(rates, abs=0.1)
    assert all(point.estimate.low < point.estimate.value < point.estimate.high for point in points)
    assert points[0].change is None
    assert [point.change.is_significant for point in points[1:]] == [False, True, True]
    assert [(point.change.baseline, point.change.pairs) for point in points[2:]] == [
        ("run-1", 120),
        ("run-2", 120),
    ]
    assert points[2].change.difference.value < 0 < points[3].change.difference.value
    # One family: every p is corrected for all three comparisons.
    for point in points[1:]:
        one = point.change
        assert one.p_corrected == pytest.approx(min(1.0, 3 * one.difference.p))


def test_equal_runs_rarely_show_a_change(store):
    """Of 20 trends without a change, at most three have one: 5% are expected."""
    marked = 0
    for trend in range(20):
        ids = [f"t{trend}-{number}" for number in range(5)]
        for number, run_id in enumerate(ids):
            add_run(store, run_id, 0.6, 100 * trend + number, tasks=30)
        marked += any(point.change and point.change.is_significant for point in points_of(store, ids))
    assert marked <= 3


def test_a_trend_offers_success_before_scores_and_costs(store):
    add_run(store, "one", 0.5, 1, tasks=10)
    results = load_results(store.read, ["one"], NOW)
    assert trend_metrics(results)[:2] == ["success", "cost"]
    # A single run has a figure and nothing to compare with.
    (point,) = trend_of(results, "success")
    assert point.change is None and point.estimate.n == 10


def test_a_trend_of_costs_has_typical_ones_and_a_trend_of_scores_means_on_their_scale(store, tmp_path):
    table = tmp_path / "scores.csv"
    values = [0.1, 0.2, 0.4, 0.8, 0.3, 0.25, 0.9, 1.0]
    lines = [f"t{number},m,1,{value},{value}" for number, value in enumerate(values)]
    table.write_text("\n".join(["task,model,success,cost,score", *lines, "t9,m,1,,"]))
    import_table(store, [table], "one", NOW)
    results = load_results(store.read, ["one"], NOW)

    (cost,), (score,) = trend_of(results, "cost"), trend_of(results, "score:score")

    assert cost.estimate == geometric_mean(values, range(8))
    assert score.estimate == mean(values, range(8), lo=0.0, hi=1.0)


def test_an_evaluation_has_all_evaluators_of_its_items(store):
    names = [f"evaluator {number}" for number in range(40)]
    items = [
        Item(runner="evaluation", prompt=session, details={"evaluator": name}, factors={"evaluator": name})
        for session in ("one", "two")
        # One of them applies to the second session only.
        for name in (names if session == "two" else names[:-1])
    ]
    row = {"createdAt": timestamp(NOW), "job": "evaluation", "status": "completed"}
    store.create_batch({"runId": "judged", **row}, items)
    store.create_batch({"runId": "other", **row}, [Item(runner="prompt", prompt="x", model="m")])

    assert evaluators_of(store.read, ["judged", "other"]) == {"judged": names}
