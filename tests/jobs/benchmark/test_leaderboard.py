"""Results of a benchmark: what they are about, and how each model stands while it runs."""

import math
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from benchmark_runs import run
from filled import NOW, carry_out, new_store, task_items
from proctor.item import Item
from proctor.jobs.benchmark.leaderboard import (
    BenchmarkRun,
    Leaderboard,
    Ranking,
    TaskCriterion,
    compare,
    models_of,
    rankings_of,
    runs_of,
    standing,
)
from proctor.score import CHECK
from proctor.stats.intervals import LIKE, THESE, Rate, anytime_rate
from proctor.tasks.task import models_with_agents, ranked_name


def board(*runs: BenchmarkRun, finished_at: datetime | None = None) -> Leaderboard:
    return Leaderboard(
        batch_id="b",
        status="completed",
        task="t",
        created_at=NOW,
        finished_at=finished_at,
        runs=runs,
        models=models_of(runs),
    )


def test_with_a_single_task_figures_are_about_this_task() -> None:
    one, two = board(run("a", "t")), board(run("a", "t"), run("a", "u"))
    assert (one.scope, two.scope) == (THESE, LIKE)
    assert (one.models[0].rate.scope, two.models[0].rate.scope) == (THESE, LIKE)
    assert one.models[0].cost_per_success.scope == THESE
    assert two.tasks == ("t", "u")


def test_the_time_of_a_benchmark_ends_with_it_or_now() -> None:
    later = NOW + timedelta(seconds=90)
    assert board(run("a", "t")).total_seconds(later) == 90.0
    assert board(run("a", "t"), finished_at=NOW + timedelta(seconds=30)).total_seconds(later) == 30.0
    assert board(run("a", "t")).total_seconds(NOW) == 0.0


def test_a_summary_is_of_successful_runs() -> None:
    times = [40.0, 10.0, 20.0, 35.0]
    runs = [
        run("a", "t", completion_time=seconds, prompts_sent=number, human_interventions=2 * number)
        for number, seconds in enumerate(times)
    ]
    lost = run("a", "t", "fail", completion_time=1.0, prompts_sent=100)
    expected = {
        "avg_completion_time": 26.25,
        "median_completion_time": 27.5,
        "avg_prompts": 1.5,
        "avg_interventions": 3.0,
        "min_completion_time": 10.0,
        "max_completion_time": 40.0,
    }
    assert board(*runs, lost).summary_stats() == expected
    assert board(*runs[:3], lost).summary_stats()["median_completion_time"] == 20.0
    assert board(runs[0]).summary_stats()["median_completion_time"] == 40.0
    assert board(lost, run("a", "t", completion_time=None)).summary_stats() == {}


def test_errors_decide_where_counting_them_as_failures_changes_the_order() -> None:
    steady = [run("a", f"t{n}", "success" if n < 3 else "fail") for n in range(4)]
    lucky = [run("b", f"t{n}", "success" if n < 1 else "error") for n in range(4)]
    assert board(*steady, *lucky).errors_decide
    assert not board(*steady, run("b", "t0", "fail"), run("b", "t1", "error")).errors_decide
    assert not board(*steady, run("b", "t0", "success")).errors_decide, "there are no errors"


def test_models_are_ordered_by_success_then_speed_then_name() -> None:
    runs = [
        run("unknown", "t", "error"),
        run("slow", "t", completion_time=20.0),
        run("b", "t", completion_time=10.0),
        run("a", "t", completion_time=10.0),
        run("untimed", "t", completion_time=None),
        run("bad", "t", "fail"),
    ]
    assert [model.name for model in models_of(runs)] == ["a", "b", "slow", "untimed", "bad", "unknown"]


def test_tasks_before_and_after_the_cutoff_are_told_apart() -> None:
    plain = board(run("a", "t"))
    cut = board(run("a", "t", is_after_cutoff=True), run("a", "u", "fail", is_after_cutoff=False))
    assert (plain.has_cutoffs, cut.has_cutoffs) == (False, True)
    (model,) = cut.models
    assert model.rate_after_cutoff is not None and model.rate_before_cutoff is not None
    assert (model.rate_after_cutoff.value, model.rate_before_cutoff.value) == (1.0, 0.0)
    assert model.rate_after_cutoff.scope == THESE, "a single task on each side"
    two = models_of([run("a", "t", is_after_cutoff=True), run("a", "u", is_after_cutoff=True)])[0]
    assert two.rate_after_cutoff is not None and two.rate_after_cutoff.scope == LIKE
    assert two.rate_before_cutoff is None
    older = models_of([run("a", "t", is_after_cutoff=False), run("a", "u", is_after_cutoff=False)])[0]
    assert older.rate_before_cutoff is not None and older.rate_before_cutoff.scope == LIKE
    assert older.rate_after_cutoff is None


def test_the_cost_of_a_model_is_unknown_where_a_price_is_missing() -> None:
    (model,) = models_of([run("a", "t"), run("a", "u", "queued", cost_usd=None)])
    assert (model.cost_usd, model.cost_per_run_usd) == (0.5, 0.5)
    (model,) = models_of([run("a", "t", unpriced_calls=1)])
    assert (model.cost_usd, model.cost_per_run_usd) == (None, None)
    assert model.cost_per_success.note == "Some prices are missing."
    (model,) = models_of([run("a", "t", "queued", cost_usd=0.0)])
    assert model.cost_per_run_usd is None


@pytest.mark.parametrize(
    ("status", "is_unchecked", "expected"),
    [
        ("success", False, (True, True, True)),
        ("success", True, (False, False, True)),
        ("fail", False, (False, True, True)),
        ("timeout", True, (False, True, True)),
        ("error", False, (False, False, True)),
        ("running", False, (False, False, False)),
    ],
)
def test_a_run_counts_when_something_checked_it(status, is_unchecked, expected):
    one = run("a", "t", status, unchecked=is_unchecked)
    assert (one.succeeded, one.is_judged, one.is_finished) == expected


def test_a_model_with_several_agents_for_a_task_is_ranked_with_each() -> None:
    factors = [
        {"model": "a", "task": "t", "agent": "amp"},
        {"model": "a", "task": "t", "agent": "codex"},
        {"model": "b", "task": "t", "agent": "amp"},
        {"model": "b", "task": "u", "agent": "codex"},
    ]
    split = models_with_agents(factors)
    assert split == {"a"}
    assert [ranked_name(each, split) for each in factors] == ["a (amp)", "a (codex)", "b", "b"]


# While it runs


def test_a_benchmark_is_read_from_the_store(tmp_path: Path) -> None:
    items = [
        Item(
            runner="prompt",
            prompt=task,
            model=f"p/{model}",
            agent="amp",
            factors={"model": model, "task": task, "agent": "Amp"}
            | ({"after_cutoff": "yes"} if task == "t" else {}),
            settings={"displayName": model.upper(), "criteria": ["make test"]} if model == "a" else {},
            repeat=repeat,
        )
        for task in ("t", "u")
        for model in ("a", "b")
        for repeat in (1, 2)
    ]
    with new_store(tmp_path, "bench", items) as store:
        carry_out(store, "bench")
        second = store.read.items("bench")[1]["sessionId"]
        score = 'INSERT INTO "scores" ("sessionId", "position", "evaluator", "value") VALUES (?, 99, ?, 1)'
        with closing(store.database.connect()) as connection:
            connection.run(score, (second, f"{CHECK}make test"))
        runs = runs_of(store.read, "bench")
        whole = compare(store.read, "bench", NOW + timedelta(hours=1))
        now = standing(store.read, "bench", datetime(2027, 1, 1, tzinfo=UTC))
    assert [f"{one.model} {one.task} {one.run} {one.status}" for one in runs] == [
        "a t 1 success",
        "a t 2 success",
        "b t 1 fail",
        "b t 2 success",
        "a u 1 timeout",
        "a u 2 error",
        "b u 1 success",
        "b u 2 success",
    ]
    first, failed = runs[0], runs[5]
    assert (first.asked, first.display_name, first.agent) == ("p/a", "A", "Amp")
    assert runs[2].display_name == "b"
    assert (first.attempts, failed.attempts) == (1, 2)
    assert failed.total_tokens == failed.prompt_tokens + failed.completion_tokens
    assert failed.total_tokens > first.total_tokens > 0
    assert (first.is_after_cutoff, runs[4].is_after_cutoff) == (True, None)
    assert first.criteria[-1] == TaskCriterion(criterion="make test", passed=None)
    assert runs[1].criteria[-1] == TaskCriterion(criterion="make test", passed=True)
    assert not runs[1].unchecked
    assert first.session_id and first.timestamp and not first.stand_in
    assert first.wall_time is not None and first.wall_time > 0
    assert (whole.batch_id, whole.status, whole.scope) == ("bench", "completed", LIKE)
    assert set(whole.task.split(", ")) == {"t", "u"}
    assert whole.created_at == NOW and whole.finished_at is not None
    assert [each.model for each in now] == ["a", "b"]
    assert [each.counts["success"] for each in now] == [2, 3]
    assert [each.state for each in now] == [
        "4 of 4 · 2 success · 1 timeout · 1 error",
        "4 of 4 · 3 success · 1 fail",
    ]
    # Both tasks are repeated: no interval that holds at every look.
    assert [each.rate for each in now] == [Rate(successes=2, trials=3), Rate(successes=3, trials=4)]
    assert sum(each.tokens for each in now) > 0
    assert now[0].elapsed_seconds == pytest.approx(
        sum(one.wall_time or 0.0 for one in runs if one.model == "a")
    )


def test_the_standing_of_a_model_has_an_interval_for_every_look_unless_tasks_are_repeated(tmp_path):
    with new_store(tmp_path, "bench", task_items("ab", 6)) as store:
        carry_out(store, "bench", finished=11)
        first, second = standing(store.read, "bench", datetime(2026, 3, 1, 13, tzinfo=UTC))
    # Of a: success, fail, timeout, and again; of b: success, success, error, twice, of which the last runs.
    assert (first.state, first.rate) == ("6 of 6 · 2 success · 2 fail · 2 timeout", anytime_rate(2, 6))
    assert (second.state, second.rate) == ("5 of 6 · 4 success · 1 error · 1 running", anytime_rate(4, 4))
    assert second.elapsed_seconds > first.elapsed_seconds


def test_a_run_without_calls_costs_nothing_for_each_success() -> None:
    runs = [run("m", f"t{task}", cost_usd=None if task == 0 else 1.0) for task in range(8)]
    (model,) = models_of(runs)
    assert model.cost_per_success.value == pytest.approx(7 / 8)


@pytest.mark.parametrize(("tasks", "is_single"), [(1, True), (2, False), (3, False)])
def test_models_are_ranked_on_tasks_from_two_on_and_else_on_runs(tasks: int, is_single: bool) -> None:
    runs = [
        run(model, f"t{number % tasks}", "success" if model == "a" else "fail", run=number)
        for model in "ab"
        for number in range(12)
    ]
    success = next(each for each in rankings_of(models_of(runs)) if each.key == "most_successful")
    # Twelve runs of one task tell them apart; two or three tasks do not.
    limits = [(place.rank_low, place.rank_high) for place in success.places]
    assert limits == ([(1, 1), (2, 2)] if is_single else [(1, 2), (1, 2)])


# Ranks


def ranking(runs: Sequence[BenchmarkRun], key: str) -> Ranking:
    return next(each for each in rankings_of(models_of(runs)) if each.key == key)


def ranks(runs: Sequence[BenchmarkRun], key: str) -> list[tuple[str, int, int]]:
    return [(place.name, place.rank_low, place.rank_high) for place in ranking(runs, key).places]


def times(**models: Sequence[float]) -> list[BenchmarkRun]:
    """Runs of one task."""
    return [
        run(model, "task", run=number, completion_time=seconds)
        for model, values in models.items()
        for number, seconds in enumerate(values, 1)
    ]


def test_where_no_run_succeeded_nobody_is_the_most_successful() -> None:
    failed = [run(model, f"t{n}", status="fail") for model in ("a", "b") for n in range(8)]

    assert ranks(failed, "most_successful") == []
    assert ranks([*failed, run("b", "t8")], "most_successful") == [("b", 1, 2), ("a", 1, 2)]


def test_leaders_are_those_that_nobody_beats() -> None:
    runs = times(
        a=[1.0, 1.1, 0.9, 1.0, 1.2, 1.1], b=[1.1, 1.0, 1.0, 1.1, 1.2, 0.9], c=[9.0, 9.1, 8.9, 9.2, 9.0, 8.8]
    )
    fastest = ranking(runs, "fastest")
    assert (fastest.first, [place.name for place in fastest.leaders]) == ("a", ["a", "b"])
    assert ranks(runs, "fastest") == [("a", 1, 2), ("b", 1, 2), ("c", 3, 3)], "less is better"
    assert ranking([], "fastest").first is None


def test_over_several_tasks_the_same_tasks_are_compared() -> None:
    # Tasks differ far more than models do; task by task, one is always a little faster.
    runs = [run("fast", f"t{n}", completion_time=10.0 * n) for n in range(1, 9)]
    runs += [run("slow", f"t{n}", completion_time=10.0 * n * (1.1 + 0.001 * n)) for n in range(1, 9)]

    assert ranks(runs, "fastest") == [("fast", 1, 1), ("slow", 2, 2)]


def separated(seed: int, tasks: int, repeats: int, *, replications: int) -> dict[str, float]:
    """How often six identical models are told apart, by ranking."""
    chance = Random(seed)
    wrong: dict[str, int] = {}
    for _ in range(replications):
        runs = []
        for task in range(tasks):
            # Tasks differ: an intra-class correlation of one half.
            share = chance.betavariate(0.6, 0.4)
            size = math.exp(chance.gauss(0, 1))
            for model in "abcdef":
                for number in range(repeats):
                    seconds = size * math.exp(chance.gauss(0, 0.5))
                    status = "success" if chance.random() < share else "fail"
                    spent = {"completion_time": seconds, "cost_usd": seconds / 10}
                    spent["prompts_sent"] = 1 + int(chance.expovariate(0.5))
                    spent["human_interventions"] = int(chance.expovariate(1.0))
                    runs.append(run(model, f"t{task}", status, run=number, **spent))
        for each in rankings_of(models_of(runs)):
            is_wrong = any(place.rank_low > 1 for place in each.places)
            wrong[each.key] = wrong.get(each.key, 0) + is_wrong
    return {key: count / replications for key, count in wrong.items()}


def test_six_identical_models_are_told_apart_at_most_as_often_as_promised() -> None:
    shares = separated(2, 8, 3, replications=60)

    # Nominal 0.05; 0.12 is two and a half standard errors of sixty replications above.
    assert max(shares.values()) <= 0.12, shares
