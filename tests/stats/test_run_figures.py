"""Figures of runs: rates, pass@k, costs and ranks over tasks, checked against values computed elsewhere."""

import csv
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.errors import NotFound
from proctor.item import Item
from proctor.jobs.imported.table import import_table
from proctor.results.loading import load_results, load_scope
from proctor.stats.figures import (
    factor_figures,
    flaky_tasks,
    rank_levels,
    reliability_ranks,
    run_figures,
    unranked_items,
)
from proctor.stats.results import Labels, Results
from proctor.store import Scope, Store
from stocked import add_batch, change_items

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SIX = ("111", "001", "110", "000", "111", "101")
"""Successes of three runs of six tasks."""


@pytest.fixture
def store(proctor_store):
    return proctor_store


def rows_of(model: str, tasks, **more) -> list[dict[str, object]]:
    """Rows of a table; in `tasks`, 1 is a success, 0 a failure, e an error, t a timeout."""
    statuses = {"1": "success", "0": "fail", "e": "error", "t": "timeout"}
    return [
        {"task": f"t{task}", "model": model, "repeat": number, "status": statuses[letter], **more}
        for task, letters in enumerate(tasks)
        for number, letter in enumerate(letters, 1)
    ]


def results_of(store: Store, rows, run: str = "r") -> Results:
    path = Path(store.url.removeprefix("sqlite:")).parent / f"{run}.csv"
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    import_table(store, [path], run, NOW)
    return load_results(store.read, [run], NOW)


def near(value: float):
    return pytest.approx(value, abs=1e-6)


def test_a_rate_is_over_tasks_as_clustered_errors_give_it(store):
    # statsmodels OLS with cov_type=cluster, and the plus interval of the task means.
    rate = run_figures(results_of(store, rows_of("m", SIX))).overall.success

    assert (rate.value, rate.sem) == (near(0.611111), near(0.159087))
    assert (rate.low, rate.high) == (near(0.195035), near(0.971631))
    assert (rate.n, rate.runs, rate.scope, rate.method) == (6, 18, "tasks like these", "plus")


def test_errors_are_excluded_and_the_rate_with_them_stands_beside(store):
    overall = run_figures(results_of(store, rows_of("m", ["1e", "11", "ee", "0t"]))).overall

    assert overall.counts == {"success": 3, "fail": 1, "timeout": 1, "error": 3}
    # Task 2 has errors only: nothing is known of it, and nothing of it succeeded.
    assert (overall.success.value, overall.success.n) == (near(2 / 3), 3)
    assert (overall.with_errors.value, overall.with_errors.n) == (near((0.5 + 1 + 0 + 0) / 4), 4)


def test_runs_of_two_models_are_no_repeats_of_each_other(store):
    rows = rows_of("a", ["11"] * 6) + rows_of("b", ["00"] * 6)
    figures = run_figures(results_of(store, rows))

    # Drawn from one model, two runs both succeed or both fail; drawn from both, a sixth would be mixed.
    assert [(each.k, each.estimate.value) for each in figures.overall.pass_hat] == [(1, 0.5), (2, 0.5)]
    assert [(each.k, each.estimate.value) for each in figures.overall.pass_at] == [(1, 0.5), (2, 0.5)]
    assert figures.flaky == ()


def test_no_items_and_all_failed_give_words(store):
    batch = {"runId": "none", "createdAt": "2026-03-01T00:00:00.000Z", "job": "coding", "status": "running"}
    store.create_batch(batch, [])
    nothing = run_figures(load_results(store.read, ["none"], NOW))
    failed = run_figures(results_of(store, rows_of("a", ["00"] * 8) + rows_of("b", ["00"] * 8)))

    assert (nothing.overall.success.value, nothing.overall.success.note) == (None, "No values.")
    assert (nothing.factors, nothing.flaky, nothing.front, dict(nothing.reasons)) == ((), (), (), {})
    rate = failed.overall.success
    assert (rate.value, rate.low) == (0.0, 0.0)
    # Mirror image of eight ones: an upper limit of 1 - 0.663538.
    assert rate.high == near(1 - 0.663538)
    assert failed.overall.cost_per_success_usd.value is None
    model = next(factor for factor in failed.factors if factor.name == "model")
    assert [(one.rank, one.rank_low, one.rank_high) for one in model.ranks] == [(1, 1, 2), (1, 1, 2)]


def test_flaky_tasks_are_those_whose_repeats_differ_the_most_even_first(store):
    rows = rows_of("a", ["111", "110", "000"]) + rows_of("b", ["101000", "111", "000"])
    figures = run_figures(results_of(store, rows))

    listed = [(task.words, task.group, task.successes, task.runs) for task in figures.flaky]
    assert listed == [("t1", "a", 2, 3), ("t0", "b", 2, 6)]
    assert figures.flaky_count == 2


def test_reasons_of_failures_are_counted_the_most_frequent_first(store):
    reasons = run_figures(results_of(store, rows_of("a", ["t001"]))).reasons
    assert list(reasons.items()) == [("checks_failed", 2), ("timeout", 1)]


def test_of_more_than_fifty_flaky_tasks_the_first_are_listed(store):
    listed, count = flaky_tasks(results_of(store, rows_of("a", ["10"] * 51)))
    assert ([task.words for task in listed], count) == ([f"t{task}" for task in range(50)], 51)


def test_ranks_separate_what_the_tasks_separate_and_nothing_else(store):
    good, poor = ["111"] * 20, ["000"] * 18 + ["100"] * 2
    rows = rows_of("good", good) + rows_of("good-too", good) + rows_of("poor", poor)
    results = results_of(store, rows)

    ranked = {one.name: (one.rank, one.rank_low, one.rank_high) for one in rank_levels(results, "model")}
    assert ranked == {"good": (1, 1, 2), "good-too": (1, 1, 2), "poor": (3, 3, 3)}
    reliable, k = reliability_ranks(results, "model")
    assert k == 3
    assert [(one.name, one.value) for one in reliable] == [("good", 1.0), ("good-too", 1.0), ("poor", 0.0)]


def test_the_errors_of_a_model_decide_its_order(store):
    # Without its errors the second model looks perfect: it crashes on everything hard.
    rows = rows_of("honest", ["1"] * 8 + ["0"] * 2) + rows_of("crashing", ["1"] * 5 + ["e"] * 5)
    factor = next(each for each in run_figures(results_of(store, rows)).factors if each.name == "model")

    assert [level.name for level in factor.levels] == ["crashing", "honest"]
    assert [level.with_errors.value for level in factor.levels] == [0.5, 0.8]
    assert factor.errors_decide


def test_evaluation_items_are_no_successes_of_an_agent(store):
    items = [Item(runner="evaluation", prompt=f"s{n}", factors={"model": f"m{n % 2}"}) for n in range(4)]
    add_batch(store, "e", items, job="evaluation")
    change_items(store, {number: {"status": "success"} for number in range(4)}, "e")
    figures = run_figures(load_results(store.read, ["e"], NOW))

    assert figures.overall.success.value is None
    assert figures.overall.counts["success"] == 0
    assert figures.evaluations == 4


def test_an_unknown_metric_or_factor_is_refused_with_those_there_are(store):
    results = results_of(store, rows_of("m", SIX))

    with pytest.raises(NotFound, match="nothing here has a value of beauty\nThere are: success, cost"):
        rank_levels(results, "model", "beauty")
    with pytest.raises(NotFound, match="no factor color"):
        rank_levels(results, "color")


def test_a_scope_without_a_run_has_the_scores_of_its_sessions(store):
    for run, score in (("one", 0.5), ("two", 1.0)):
        results_of(store, rows_of("m", "101101", score=score), run)
    of_one = run_figures(load_results(store.read, ["one"], NOW)).overall.scores
    every = run_figures(load_scope(store.read, Scope(), NOW)).overall.scores

    assert list(every) == list(of_one) != []
    (score,) = every.values()
    assert (score.value, score.n, score.runs) == (0.75, 6, 12)


def test_runs_without_a_score_are_counted_and_errors_are_not(store):
    scored = [{**row, "score": 0.5 + index / 20} for index, row in enumerate(rows_of("m", "1" * 6))]
    unscored = [{**row, "task": f"u{index}"} for index, row in enumerate(rows_of("m", "10e"))]

    (score,) = run_figures(results_of(store, scored + unscored)).overall.scores.values()

    assert (score.n, score.runs, score.left_out) == (6, 6, 2)


def test_items_without_a_level_are_counted_by_run(store):
    with_tone = results_of(store, rows_of("m", SIX, tone="calm"), "all")
    assert unranked_items(with_tone, "tone") == {}
    some = [row | ({"tone": "calm"} if row["task"] == "t0" else {}) for row in rows_of("m", SIX)]
    results_of(store, some, "some")
    both = load_results(store.read, ["all", "some"], NOW)
    assert unranked_items(both, "tone") == {"some": 15}
    # Also where the run without such items is the last one.
    results_of(store, rows_of("m", SIX, tone="calm"), "whole")
    assert unranked_items(load_results(store.read, ["some", "whole"], NOW), "tone") == {"some": 15}


def test_a_factor_of_more_than_fifty_levels_has_no_figures(store):
    results = results_of(store, rows_of("m", ["1"] * 51))
    levels = Labels.of(f"tone {number}" for number in range(51))
    many = replace(results, factors={"tone": levels})
    few = many.where(levels.codes < 50)
    few = replace(few, factors={"tone": Labels.of(levels.labels[:50])})
    assert (factor_figures(many, "tone").is_too_many, factor_figures(many, "tone").levels) == (True, ())
    assert (factor_figures(few, "tone").is_too_many, len(factor_figures(few, "tone").levels)) == (False, 50)
