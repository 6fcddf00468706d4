"""Results of a benchmark: what they are about, and how each model stands while it runs."""

import math
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from filled import NOW, carry_out, new_store
from proctor.item import Item
from proctor.stats.intervals import LIKE, THESE, Estimate, Rate, anytime_rate
from proctor.stats.leaderboard import (
    CHECK,
    BenchmarkRun,
    Leaderboard,
    ModelStanding,
    Ranking,
    TaskCriterion,
    _best_first,
    _criteria,
    _linearized,
    _order,
    _ranked,
    _standing,
    _work_seconds,
    compare,
    models_of,
    models_with_agents,
    ranked_name,
    rankings_of,
    runs_of,
    standing,
)
from proctor.stats.ranking import rank_row, ranks
from proctor.store.items import BenchmarkItem

STATUSES = {"queued": 0, "running": 0, "success": 0, "fail": 0, "timeout": 0, "error": 0}


def run(model: str, task: str, status: str = "success", **more: object) -> BenchmarkRun:
    base = BenchmarkRun(
        item_id="i",
        model=model,
        asked=model,
        display_name=model,
        task=task,
        agent="amp",
        number=1,
        status=status,
        reason="",
        error="",
        work_seconds=10.0,
        wall_seconds=12.0,
        model_calls=2,
        tool_calls=3,
        interventions=1,
        files=1,
        lines_added=5,
        lines_removed=1,
        prompt_tokens=10,
        completion_tokens=5,
        total_tokens=15,
        cost_usd=0.5,
        unpriced_calls=0,
        attempts=1,
        session_id="s",
        is_stand_in=False,
        finished_at="",
        criteria=(),
        is_unchecked=False,
    )
    return replace(base, **more)  # type: ignore[arg-type]


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
        run("a", "t", work_seconds=seconds, model_calls=number, interventions=2 * number)
        for number, seconds in enumerate(times)
    ]
    lost = run("a", "t", "fail", work_seconds=1.0, model_calls=100)
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
    assert board(lost, run("a", "t", work_seconds=None)).summary_stats() == {}


def test_errors_decide_where_counting_them_as_failures_changes_the_order() -> None:
    steady = [run("a", f"t{n}", "success" if n < 3 else "fail") for n in range(4)]
    lucky = [run("b", f"t{n}", "success" if n < 1 else "error") for n in range(4)]
    assert board(*steady, *lucky).errors_decide
    assert not board(*steady, run("b", "t0", "fail"), run("b", "t1", "error")).errors_decide
    assert not board(*steady, run("b", "t0", "success")).errors_decide, "there are no errors"
    models = models_of([*steady, *lucky, run("c", "t0", "queued")])
    assert _order(models, with_errors=False) == ["b", "a", "c"]
    assert _order(models, with_errors=True) == ["a", "b", "c"]


def test_models_are_ordered_by_success_then_speed_then_name() -> None:
    runs = [
        run("unknown", "t", "error"),
        run("slow", "t", work_seconds=20.0),
        run("b", "t", work_seconds=10.0),
        run("a", "t", work_seconds=10.0),
        run("untimed", "t", work_seconds=None),
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
def test_a_run_counts_when_something_checked_it(
    status: str, is_unchecked: bool, expected: tuple[bool, bool, bool]
) -> None:
    one = run("a", "t", status, is_unchecked=is_unchecked)
    assert (one.succeeded, one.is_judged, one.is_finished) == expected


def test_where_nobody_succeeded_nobody_is_the_most_successful() -> None:
    rankings = {
        each.key: each for each in rankings_of(models_of([run("a", "t", "fail"), run("b", "t", "fail")]))
    }
    assert all(each.first is None and each.leaders == () for each in rankings.values())
    rankings = {each.key: each for each in rankings_of(models_of([run("a", "t"), run("b", "t", "fail")]))}
    assert rankings["most_successful"].first == rankings["best_value"].first == "a"
    assert list(rankings) == [
        "most_successful",
        "fastest",
        "best_value",
        "least_intervention",
        "most_efficient",
    ]


def test_leaders_are_those_that_nobody_beats() -> None:
    (model,) = models_of([run("a", "t")])
    places = tuple(
        rank_row(name, model.rate, 1, limits, note="")
        for name, limits in (("a", (1, 2)), ("b", (1, 3)), ("c", (2, 3)))
    )
    ranking = Ranking(key="k", title="t", what="w", places=places)
    assert [place.name for place in ranking.leaders] == ["a", "b"]


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


def test_criteria_are_those_that_were_checked_and_those_that_were_not() -> None:
    scores = [
        {"evaluator": "check: make test", "value": 1.0, "explanation": "ok"},
        {"evaluator": "expect.contains", "value": 0.0, "explanation": "no"},
        {"evaluator": "tone", "value": 1.0, "explanation": ""},
    ]
    criteria, is_unchecked = _criteria(["make test", "make lint"], scores)
    assert criteria == (
        TaskCriterion(name="make test", passed=True, explanation="ok"),
        TaskCriterion(name="expect.contains", passed=False, explanation="no"),
        TaskCriterion(name="make lint", passed=None),
    )
    assert not is_unchecked
    assert _criteria([], [{"evaluator": "unchecked", "value": None, "explanation": ""}]) == ((), True)


def test_the_time_of_the_agent_is_preferred_to_that_of_the_session() -> None:
    assert _work_seconds({"agentSeconds": 0.0, "workSeconds": 9.0}) == 0.0
    assert _work_seconds({"agentSeconds": None, "workSeconds": 9.0}) == 9.0
    assert _work_seconds({}) is None


# While it runs


def item(status: str, minutes: tuple[int | None, int | None] = (0, 1), **more: object) -> BenchmarkItem:
    at = [
        None if minute is None else (NOW + timedelta(minutes=minute)).isoformat().replace("+00:00", "Z")
        for minute in minutes
    ]
    row: BenchmarkItem = {
        "factors": "{}",
        "repeat": 1,
        "status": status,
        "reason": "",
        "startedAt": at[0],
        "finishedAt": at[1],
        "tokensTotal": 10,
        "costUsd": None,
        "sessionId": None,
    }
    return row | more  # type: ignore[return-value]


def test_the_standing_of_a_model_counts_runs_under_way() -> None:
    rows = [
        item("success", (0, 2), costUsd=0.5),
        item("success", (0, 1), reason="unchecked"),
        item("fail", (0, 1), reason="unchecked"),
        item("running", (3, None), sessionId="s", tokensTotal=0),
        item("running", (4, None), sessionId="other", tokensTotal=0),
        item("queued", (None, None), tokensTotal=0),
    ]
    usage = {
        "s": {"id": "s", "tokens": 7, "cost": 0.25},
        "other": {"id": "other", "tokens": None, "cost": None},
    }
    one = _standing("m", rows, usage, NOW + timedelta(minutes=5))  # type: ignore[arg-type]
    assert one.counts == STATUSES | {"success": 2, "fail": 1, "running": 2, "queued": 1}
    assert one.elapsed_seconds == 60.0 * (2 + 1 + 1 + 2 + 1)
    assert (one.tokens, one.cost_usd, one.unchecked) == (37, 0.75, 1)
    assert one.rate == anytime_rate(1, 2)
    assert one.state == "3 of 6 · 2 success · 1 fail · 2 running"
    repeated = [row | {"repeat": place % 3 + 1} for place, row in enumerate(rows)]
    assert _standing("m", repeated, usage, NOW).rate == Rate(successes=1, trials=2)  # type: ignore[arg-type]
    of_one_task = [row | {"repeat": place + 1} for place, row in enumerate(rows)]
    assert _standing("m", of_one_task, usage, NOW).rate == anytime_rate(1, 2)  # type: ignore[arg-type]
    none = _standing("m", rows[1:2], {}, NOW)
    assert (none.cost_usd, none.state) == (None, "success")


def test_the_standing_of_a_model_without_runs_that_were_checked_has_no_rate() -> None:
    one = ModelStanding(
        model="m", counts=STATUSES | {"timeout": 1, "error": 1}, elapsed_seconds=0.0, tokens=0, cost_usd=None
    )
    assert (one.rate.successes, one.rate.trials) == (0, 1)
    assert one.state == "2 of 2 · 1 timeout · 1 error"


def test_a_benchmark_is_read_from_the_store(tmp_path: Path) -> None:
    items = [
        Item(
            runner="prompt",
            prompt=task,
            model=f"p/{model}",
            agent="amp",
            factors={"model": model, "task": task, "agent": "amp"}
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
        whole = compare(store.read, "bench", NOW)
        now = standing(store.read, "bench", datetime(2027, 1, 1, tzinfo=UTC))
    assert [(one.model, one.task, one.number, one.status) for one in runs] == [
        ("a", "t", 1, "success"),
        ("a", "t", 2, "success"),
        ("b", "t", 1, "fail"),
        ("b", "t", 2, "success"),
        ("a", "u", 1, "timeout"),
        ("a", "u", 2, "error"),
        ("b", "u", 1, "success"),
        ("b", "u", 2, "success"),
    ]
    first, failed = runs[0], runs[5]
    assert (first.asked, first.display_name, first.agent) == ("p/a", "A", "amp")
    assert runs[2].display_name == "b"
    assert (first.attempts, failed.attempts) == (1, 2)
    assert failed.total_tokens == failed.prompt_tokens + failed.completion_tokens
    assert failed.total_tokens > first.total_tokens > 0
    assert (first.is_after_cutoff, runs[4].is_after_cutoff) == (True, None)
    assert first.criteria[-1] == TaskCriterion(name="make test", passed=None)
    assert runs[1].criteria[-1] == TaskCriterion(name="make test", passed=True)
    assert first.session_id and first.finished_at and not first.is_stand_in
    assert first.wall_seconds is not None and first.wall_seconds > 0
    assert (whole.batch_id, whole.status, whole.scope) == ("bench", "completed", LIKE)
    assert set(whole.task.split(", ")) == {"t", "u"}
    assert whole.created_at == NOW and whole.finished_at is not None
    assert [each.model for each in now] == ["a", "b"]
    assert [each.counts["success"] for each in now] == [2, 3]
    assert sum(each.tokens for each in now) > 0
    assert now[0].elapsed_seconds == pytest.approx(
        sum(one.wall_seconds or 0.0 for one in runs if one.model == "a")
    )


def test_a_run_without_calls_costs_nothing_for_each_success() -> None:
    runs = [run("m", f"t{task}", cost_usd=None if task == 0 else 1.0) for task in range(8)]
    (model,) = models_of(runs)
    assert model.cost_per_success.value == pytest.approx(7 / 8)


def test_values_of_tasks_have_the_cost_per_success_as_their_geometric_mean() -> None:
    costs, passed = (0.5, 1.5, 2.0, 4.0), (True, True, False, True)
    runs = [
        run("m", f"t{task}", "success" if ok else "fail", cost_usd=cost)
        for task, (cost, ok) in enumerate(zip(costs, passed, strict=True))
    ]
    (model,) = models_of(runs)
    cells = _linearized(model, is_single=False)
    # Each task moves the logarithm by its share of the cost less its share of the successes.
    assert [math.log(cells[f"t{task}"][0] / (8 / 3)) for task in range(4)] == pytest.approx(
        [cost / 2.0 - ok / 0.75 for cost, ok in zip(costs, passed, strict=True)]
    )
    assert _linearized(models_of([run("m", "t", cost_usd=0.0)])[0], is_single=False) == {}


def test_rates_are_ranked_on_the_scale_from_0_to_1():
    table = {
        name: {f"t{task}": [float((task * 7 + shift) % 10 < share)] for task in range(12)}
        for name, share, shift in (("a", 9, 0), ("b", 5, 3), ("c", 1, 5))
    }
    estimates = {name: Estimate(value=0.5) for name in table}
    ranked = _ranked(table, estimates, kind="rate")
    assert [(each.name, each.rank_low, each.rank_high) for each in ranked] == [
        (each.name, each.rank_low, each.rank_high) for each in ranks(table, lo=0.0, hi=1.0)
    ]
    assert (ranked[0].rank_low, ranked[-1].rank_high) == (1, 3)


@pytest.mark.parametrize(("tasks", "is_single"), [(1, True), (2, False), (3, False)])
def test_models_are_ranked_on_tasks_from_two_on_and_else_on_runs(tasks: int, is_single: bool) -> None:
    runs = [
        run(model, f"t{number % tasks}", "success" if model == "a" else "fail", number=number)
        for model in "ab"
        for number in range(12)
    ]
    success = next(each for each in rankings_of(models_of(runs)) if each.key == "most_successful")
    # Twelve runs of one task tell them apart; two or three tasks do not.
    limits = [(place.rank_low, place.rank_high) for place in success.places]
    assert limits == ([(1, 1), (2, 2)] if is_single else [(1, 2), (1, 2)])


@pytest.mark.parametrize(("tasks", "is_separated"), [(5, False), (6, True)])
def test_six_tasks_that_one_model_solves_and_another_does_not_tell_them_apart(
    tasks: int, is_separated: bool
) -> None:
    """Differences of 1, and a pseudo-task at either end of the scale from -1 to 1: t = 0.75 / 0.25 of six."""
    runs = [
        run(model, f"t{number}", "success" if model == "a" else "fail")
        for model in "ab"
        for number in range(tasks)
    ]
    success = next(each for each in rankings_of(models_of(runs)) if each.key == "most_successful")
    limits = [(place.name, place.rank_low, place.rank_high) for place in success.places]
    assert limits == ([("a", 1, 1), ("b", 2, 2)] if is_separated else [("a", 1, 2), ("b", 1, 2)])


def test_a_model_without_judged_runs_is_last_and_equal_ones_are_by_name() -> None:
    models = models_of(
        [
            run("c", "t", "error"),
            run("b", "t", "fail"),
            run("d", "t", "success", work_seconds=9.0),
            run("a", "t", "fail"),
        ]
    )
    assert _order(models, with_errors=False) == ["d", "a", "b", "c"]
    assert _order(models, with_errors=True) == ["d", "a", "b", "c"]
    assert [model.name for model in sorted(models, key=_best_first)] == ["d", "a", "b", "c"]
    quick, slow = models_of([run("z", "t", work_seconds=3.0), run("a", "t", work_seconds=4.0)])
    assert [each.name for each in sorted([slow, quick], key=_best_first)] == ["z", "a"]


def test_linearized_costs_have_the_cost_per_success_as_their_geometric_mean() -> None:
    costs, won = [0.5, 1.5, 4.0], [True, False, True]
    runs = [
        run("a", f"t{at}", "success" if ok else "fail", cost_usd=cost)
        for at, (cost, ok) in enumerate(zip(costs, won, strict=True))
    ]
    (model,) = models_of([*runs, run("a", "t9", "queued", cost_usd=7.0)])
    cells = _linearized(model, is_single=False)
    ratio = (6.0 / 3) / (2 / 3)
    for at, (cost, ok) in enumerate(zip(costs, won, strict=True)):
        assert cells[f"t{at}"] == [pytest.approx(ratio * math.exp(cost / 2.0 - ok / (2 / 3)))]
    product = math.prod(cell[0] for cell in cells.values())
    assert len(cells) == 3 and product ** (1 / 3) == pytest.approx(ratio) == pytest.approx(3.0)
    (free,) = models_of([run("a", "t", cost_usd=0.0)])
    assert _linearized(free, is_single=False) == {}
