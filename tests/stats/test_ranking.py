"""Who is better, and who cannot be told apart."""

import random

import pytest

from proctor.stats.intervals import Estimate
from proctor.stats.leaderboard import ranked, ranked_by_interval


def places(**contestants: list[float]) -> list[tuple[str, int]]:
    return [
        (place.name, place.rank)
        for place in ranked({name: {"task": values} for name, values in contestants.items()})
    ]


def test_less_is_better_and_a_clear_difference_makes_a_rank() -> None:
    assert places(slow=[9.0, 9.1, 8.9], fast=[1.0, 1.1, 0.9]) == [("fast", 1), ("slow", 2)]


def test_those_that_cannot_be_told_apart_share_a_rank_in_the_order_of_their_means() -> None:
    assert places(b=[1.0, 3.0, 2.1], a=[1.1, 2.9, 2.0], last=[50.0, 51.0, 52.0]) == [
        ("a", 1),
        ("b", 1),
        ("last", 3),
    ]


def test_one_run_each_tells_nobody_apart() -> None:
    assert places(a=[1.0], b=[100.0]) == [("a", 1), ("b", 1)]


def test_numbers_that_never_vary_are_what_they_are() -> None:
    assert places(a=[2, 2], b=[3, 3], c=[2, 2]) == [("a", 1), ("c", 1), ("b", 3)]


def test_the_worst_rank_that_is_possible_is_given_too() -> None:
    found = ranked({"a": {"t": [1.0, 1.1]}, "b": {"t": [1.0, 1.2]}, "c": {"t": [90.0, 91.0]}})

    assert [(place.rank, place.worst_rank) for place in found] == [(1, 2), (1, 2), (3, 3)]


def test_over_several_tasks_the_same_tasks_are_compared() -> None:
    # Tasks differ far more than models do; task by task, one is always a little faster.
    tasks = {f"t{n}": 10.0 * n for n in range(1, 8)}
    fast = {task: [base] for task, base in tasks.items()}
    slow = {task: [base + 1 + 0.01 * base] for task, base in tasks.items()}

    assert [place.rank for place in ranked({"slow": slow, "fast": fast})] == [1, 2]


def test_whoever_has_no_number_has_no_place() -> None:
    assert places(a=[1.0], b=[]) == [("a", 1)]
    assert ranked({}) == ()


def test_equal_contestants_are_seldom_told_apart() -> None:
    chance = random.Random(7)
    wrong = 0
    for _ in range(200):
        samples = {name: {"t": [chance.gauss(10, 2) for _ in range(5)]} for name in "abcd"}
        wrong += any(place.rank > 1 for place in ranked(samples))

    # One in twenty is promised; thirty of two hundred would be far beyond chance.
    assert wrong < 25


@pytest.mark.parametrize(
    ("low", "high", "n", "ranks"),
    [(2.5, 4.0, 9, [1, 2]), (1.4, 4.0, 9, [1, 1]), (2.5, 4.0, 1, [1, 1]), (2.5, None, 9, [1, 2])],
)
def test_intervals_that_overlap_tell_nobody_apart(
    low: float, high: float | None, n: int, ranks: list[int]
) -> None:
    cheap = Estimate(value=1.0, low=0.5, high=1.5, n=9)
    dear = Estimate(value=3.0, low=low, high=high, n=n)

    found = ranked_by_interval({"dear": dear, "cheap": cheap})

    assert [place.rank for place in found] == ranks
    assert [place.worst_rank for place in found] == ([1, 2] if ranks == [1, 2] else [2, 2])
