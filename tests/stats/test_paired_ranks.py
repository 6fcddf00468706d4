"""Ranks by paired comparisons: Bradley-Terry strengths, against published values and by simulation."""

from itertools import combinations

import numpy as np
import pytest

from proctor import stats

TEAMS = ("Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore")
# American League 1987, Agresti: Categorical Data Analysis (2002), table 10.10: games that the row has won.
GAMES = (
    (0, 7, 9, 7, 7, 9, 11),
    (6, 0, 7, 5, 11, 9, 9),
    (4, 6, 0, 7, 7, 8, 12),
    (6, 8, 6, 0, 6, 7, 10),
    (6, 2, 6, 7, 0, 7, 12),
    (4, 4, 5, 6, 6, 0, 6),
    (2, 4, 1, 3, 1, 7, 0),
)


def test_strengths_are_those_of_the_textbook():
    games = [
        (f"{winner}-{loser}-{game}", winner, loser, 1.0)
        for winner, wins in zip(TEAMS, GAMES, strict=True)
        for loser, number in zip(TEAMS, wins, strict=True)
        for game in range(number)
    ]

    ranked = stats.bradley_terry(games, prior=0)

    last = ranked[-1].strength
    strengths = {each.name: each.strength - last for each in ranked}
    published = dict(zip(TEAMS, (1.581, 1.436, 1.294, 1.248, 1.108, 0.684, 0.0), strict=True))
    assert strengths == pytest.approx(published, abs=0.001)
    assert (ranked[0].wins, ranked[0].losses, ranked[0].rank_low, ranked[-1].rank_high) == (50, 28, 1, 7)


@pytest.mark.parametrize(("shared", "ties", "low", "high"), [(0.0, 0.0, 0.93, 0.97), (1.0, 0.3, 0.94, 0.985)])
def test_intervals_cover_the_strengths_and_ranks_hold_together(shared, ties, low, high):
    """400 rankings of four names over 40 tasks; `shared` results are the same in both repeats of a task."""
    truth = np.array([0.6, 0.2, -0.2, -0.6])
    random = np.random.default_rng(7)
    covered, wrong = [], 0
    for _ in range(400):
        games = []
        for task in range(40):
            for i, j in combinations(range(4), 2):
                chance = 1 / (1 + np.exp(truth[j] - truth[i]))
                tie = ties * 2 * min(chance, 1 - chance)
                draws = random.random(2) if random.random() >= shared else [random.random()] * 2
                games += [
                    (
                        task,
                        str(i),
                        str(j),
                        1.0 if u < chance - tie / 2 else 0.5 if u < chance + tie / 2 else 0.0,
                    )
                    for u in draws
                ]
        ranked = stats.bradley_terry(games)
        covered += [each.low <= truth[int(each.name)] <= each.high for each in ranked]
        wrong += any(not each.rank_low <= int(each.name) + 1 <= each.rank_high for each in ranked)
    assert low <= np.mean(covered) <= high
    assert wrong / 400 <= 0.05


def test_who_won_everything_is_finite_and_too_few_tasks_decide_nothing():
    many = [(task, "x", "y", 1.0) for task in range(20)]

    first, second = stats.bradley_terry(many)
    few = stats.bradley_terry(many[:5])

    # 20 wins and half a tie: log-odds of 20.25 to 0.25, divided between the two.
    assert first.strength == pytest.approx(np.log(20.25 / 0.25) / 2)
    assert 0 < first.low < first.strength < first.high
    assert (first.rank_high, second.rank_low) == (1, 2)
    assert [(each.low, each.rank_low, each.rank_high) for each in few] == [(None, 1, 2)] * 2


def test_names_that_were_never_compared_are_refused():
    with pytest.raises(ValueError, match="connected"):
        stats.bradley_terry([(1, "a", "b", 1.0), (1, "c", "d", 0.0)])
