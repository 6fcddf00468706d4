"""The leaderboard of a benchmark: who is better, and who cannot be told apart."""

import math
from collections.abc import Sequence
from random import Random

import pytest

from proctor.stats.leaderboard import BenchmarkRun, Ranking, models_of, rankings_of


def run(
    model: str,
    task: str,
    number: int = 1,
    *,
    status: str = "success",
    seconds: float | None = 10.0,
    cost: float | None = None,
    calls: int = 2,
    interventions: int = 0,
) -> BenchmarkRun:
    return BenchmarkRun(
        item_id=f"{model}-{task}-{number}",
        model=model,
        asked=model,
        display_name=model,
        task=task,
        agent="opencode",
        number=number,
        status=status,
        reason="",
        error="",
        work_seconds=seconds,
        wall_seconds=seconds,
        model_calls=calls,
        tool_calls=0,
        interventions=interventions,
        files=1,
        lines_added=1,
        lines_removed=0,
        prompt_tokens=0,
        completion_tokens=0,
        total_tokens=0,
        cost_usd=cost,
        unpriced_calls=0,
        attempts=1,
        session_id="",
        is_stand_in=False,
        finished_at="",
        criteria=(),
        is_unchecked=False,
    )


def ranking(runs: Sequence[BenchmarkRun], key: str) -> Ranking:
    return next(each for each in rankings_of(models_of(runs)) if each.key == key)


def ranks(runs: Sequence[BenchmarkRun], key: str) -> list[tuple[str, int, int]]:
    return [(place.name, place.rank_low, place.rank_high) for place in ranking(runs, key).places]


def times(**models: Sequence[float]) -> list[BenchmarkRun]:
    """Runs of one task."""
    return [
        run(model, "task", number, seconds=seconds)
        for model, values in models.items()
        for number, seconds in enumerate(values, 1)
    ]


def test_success_comes_first_then_speed_value_and_autonomy() -> None:
    keys = [each.key for each in rankings_of(models_of(times(a=[1.0])))]

    assert keys == ["most_successful", "fastest", "best_value", "least_intervention", "most_efficient"]


def test_where_no_run_succeeded_nobody_is_the_most_successful() -> None:
    failed = [run(model, f"t{n}", status="fail") for model in ("a", "b") for n in range(8)]

    assert ranks(failed, "most_successful") == []
    assert ranks([*failed, run("b", "t8")], "most_successful") == [("b", 1, 2), ("a", 1, 2)]


def test_less_is_better_and_a_clear_difference_makes_a_rank() -> None:
    runs = times(slow=[9.0, 9.1, 8.9, 9.2, 9.0, 8.8], fast=[1.0, 1.1, 0.9, 1.0, 1.2, 1.1])

    assert ranks(runs, "fastest") == [("fast", 1, 1), ("slow", 2, 2)]


def test_fewer_than_six_runs_of_one_task_tell_nobody_apart() -> None:
    runs = times(slow=[9.0, 9.1, 8.9], fast=[1.0, 1.1, 0.9])

    assert ranks(runs, "fastest") == [("fast", 1, 2), ("slow", 1, 2)]


def test_those_that_cannot_be_told_apart_share_a_rank_in_the_order_of_their_means() -> None:
    runs = times(
        b=[1.0, 3.0, 2.1, 1.0, 3.0, 2.1, 1.5],
        a=[1.1, 2.9, 2.0, 0.9, 2.9, 2.0, 1.4],
        last=[50.0, 51.0, 52.0, 50.0, 51.0, 52.0, 51.0],
    )

    assert ranks(runs, "fastest") == [("a", 1, 2), ("b", 1, 2), ("last", 3, 3)]


def test_one_run_each_tells_nobody_apart() -> None:
    assert ranks(times(a=[1.0], b=[100.0]), "fastest") == [("a", 1, 2), ("b", 1, 2)]


def test_numbers_that_never_vary_are_no_evidence() -> None:
    # The spread of what could have happened is not known: equal numbers give no interval and no rank.
    runs = times(a=[2.0] * 7, b=[3.0] * 7)

    assert ranks(runs, "fastest") == [("a", 1, 2), ("b", 1, 2)]


def test_over_several_tasks_the_same_tasks_are_compared() -> None:
    # Tasks differ far more than models do; task by task, one is always a little faster.
    runs = [run("fast", f"t{n}", seconds=10.0 * n) for n in range(1, 9)]
    runs += [run("slow", f"t{n}", seconds=10.0 * n * (1.1 + 0.001 * n)) for n in range(1, 9)]

    assert ranks(runs, "fastest") == [("fast", 1, 1), ("slow", 2, 2)]


def test_whoever_has_no_number_has_no_place() -> None:
    runs = [run("a", "t", seconds=1.0), run("b", "t", status="fail", seconds=2.0)]

    assert [place.name for place in ranking(runs, "fastest").places] == ["a"]
    assert [place.name for place in ranking(runs, "most_successful").places] == ["a", "b"]
    assert ranking([], "fastest").places == ()


def test_the_rate_is_over_tasks_and_has_the_errors_beside_it() -> None:
    # 111 001 110 000 111 101 over six tasks: constants of statsmodels and of the plus interval.
    results = ("111", "001", "110", "000", "111", "101")
    runs = [
        run("m", f"t{task}", number, status="success" if outcome == "1" else "fail")
        for task, outcomes in enumerate(results)
        for number, outcome in enumerate(outcomes)
    ]
    runs.append(run("m", "t0", 9, status="error"))
    (model,) = models_of(runs)

    assert model.rate.value == pytest.approx(0.611111, abs=1e-6)
    assert model.rate.sem == pytest.approx(0.159087, abs=1e-6)
    assert (model.rate.low, model.rate.high) == (
        pytest.approx(0.195035, abs=1e-6),
        pytest.approx(0.971631, abs=1e-6),
    )
    assert (model.rate.n, model.rate.runs, model.rate.scope) == (6, 18, "tasks like these")
    # Three of four in the first task: (3/4 + 1/3 + 2/3 + 0 + 1 + 2/3) / 6.
    assert model.rate_with_errors.value == pytest.approx((0.75 + 1 / 3 + 2 / 3 + 1 + 2 / 3) / 6)
    assert (model.counts["error"], model.rate_with_errors.runs) == (1, 19)


def test_a_single_task_is_about_itself() -> None:
    (model,) = models_of([run("m", "t", n, status="success" if n < 8 else "fail") for n in range(10)])

    # Wilson, 8 of 10.
    assert (model.rate.low, model.rate.high) == (
        pytest.approx(0.490162, abs=1e-6),
        pytest.approx(0.943318, abs=1e-6),
    )
    assert model.rate.scope == "these tasks"


def test_cost_per_success_has_fiellers_interval() -> None:
    costs, successes = (2, 1.5, 4, 3, 2.5, 6, 1, 2), (3, 2, 1, 2, 3, 0, 3, 2)
    runs = [
        run("m", f"t{task}", number, status="success" if number < passed else "fail", cost=cost / 3)
        for task, (cost, passed) in enumerate(zip(costs, successes, strict=True))
        for number in range(3)
    ]
    (model,) = models_of(runs)

    assert model.cost_per_success.value == pytest.approx(1.375)
    assert model.cost_per_success.low == pytest.approx(0.501735, abs=1e-5)
    assert model.cost_per_success.high == pytest.approx(3.589451, abs=1e-5)


def test_a_missing_price_leaves_the_cost_per_success_unknown() -> None:
    (model,) = models_of([run("m", f"t{n}", cost=None) for n in range(6)])

    assert (model.cost_per_success.value, model.cost_usd) == (None, None)


def test_value_is_ranked_by_task_and_an_open_limit_tells_nobody_apart() -> None:
    chance = Random(3)
    runs = []
    for task in range(20):
        for number in range(3):
            size = math.exp(chance.gauss(0, 0.5))
            passed = "success" if chance.random() < 0.7 else "fail"
            runs.append(run("cheap", f"t{task}", number, status=passed, cost=0.1 * size))
            runs.append(
                run("dear", f"t{task}", number, status=passed, cost=size * math.exp(chance.gauss(0, 0.3)))
            )
            lucky = "success" if task == 0 and number == 0 else "fail"
            runs.append(run("lucky", f"t{task}", number, status=lucky, cost=0.5 * size))

    places = {place.name: place for place in ranking(runs, "best_value").places}
    assert [place.name for place in ranking(runs, "best_value").places] == ["cheap", "dear", "lucky"]
    assert (places["cheap"].rank_low, places["cheap"].rank_high) == (1, 2)
    assert (places["dear"].rank_low, places["dear"].rank_high) == (2, 3)
    # One success in sixty runs: its cost per success has no upper limit.
    assert places["lucky"].high is None
    assert (places["lucky"].rank_low, places["lucky"].rank_high) == (1, 3)


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
                    runs.append(
                        run(
                            model,
                            f"t{task}",
                            number,
                            status=status,
                            seconds=seconds,
                            cost=seconds / 10,
                            calls=1 + int(chance.expovariate(0.5)),
                            interventions=int(chance.expovariate(1.0)),
                        )
                    )
        for each in rankings_of(models_of(runs)):
            is_wrong = any(place.rank_low > 1 for place in each.places)
            wrong[each.key] = wrong.get(each.key, 0) + is_wrong
    return {key: count / replications for key, count in wrong.items()}


def test_six_identical_models_on_two_tasks_are_never_told_apart() -> None:
    assert set(separated(1, 2, 3, replications=60).values()) == {0.0}


@pytest.mark.parametrize("tasks", [8, 20])
def test_six_identical_models_are_told_apart_at_most_as_often_as_promised(tasks: int) -> None:
    shares = separated(2, tasks, 3, replications=100)

    # Nominal 0.05; 0.12 is four standard errors of a hundred replications above.
    assert max(shares.values()) <= 0.12, shares
