"""Differences of values that belong together, held against figures that were worked out elsewhere."""

import random
from statistics import fmean

import pytest

from proctor.errors import UsageError
from proctor.stats.comparison import gate_of
from proctor.stats.contrasts import around, bootstrap, leaning, mcnemar, pairs_needed, sign_flips, yes_or_no


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(0, 0, 1.0), (3, 0, 0.25), (9, 1, 0.021484375), (1, 9, 0.021484375), (5, 5, 1.0)],
)
def test_mcnemars_exact_test_is_that_of_a_fair_coin(gained, lost, p):
    assert mcnemar(gained, lost) == pytest.approx(p)


def test_yes_or_no_differences_have_the_interval_of_bonett_and_price():
    after = [1.0] * 40 + [0.0] * 10
    before = [1.0] * 28 + [0.0] * 12 + [1.0] * 3 + [0.0] * 7

    found = yes_or_no(after, before)

    # n = 50, 12 gained, 3 lost: (13 - 4) / 52 ± 1.96 · sqrt((17/52 - (9/52)²) / 52).
    assert found.value == pytest.approx(9 / 50)
    assert found.low == pytest.approx(0.024963, abs=1e-5)
    assert found.high == pytest.approx(0.321191, abs=1e-5)
    assert found.p == pytest.approx(mcnemar(12, 3))
    assert found.is_paired


def test_an_interval_that_knows_only_equal_pairs_still_has_a_width():
    found = yes_or_no([1.0] * 10, [1.0] * 10)

    assert (found.value, found.p) == (0.0, 1.0)
    assert found.low < -0.1 and found.high > 0.1


def test_the_bootstrap_covers_the_true_mean_of_a_leaning_distribution_about_as_often_as_it_says():
    chance = random.Random(5)
    covered = 0
    for _ in range(120):
        values = [chance.expovariate(1.0) for _ in range(40)]
        low, high = bootstrap(values)
        covered += low <= 1.0 <= high

    assert 105 <= covered <= 119


def test_the_same_values_always_give_the_same_interval():
    values = [0.1, 0.5, 0.2, 3.0, 0.4, 0.3, 0.6, 0.2, 0.9]

    assert bootstrap(values) == bootstrap(values)
    low, high = bootstrap(values)
    assert low < fmean(values) < high


def test_sign_flips_of_few_pairs_are_counted_one_by_one():
    assert sign_flips([1.0, 1.0, 1.0]) == 2 / 8
    assert sign_flips([1.0, -1.0]) == 1.0


def test_sign_flips_of_many_pairs_agree_with_the_exact_count():
    values = [0.3, -0.1, 0.4, 0.2, 0.5, -0.2, 0.6, 0.1, 0.3, 0.2, 0.4, -0.1]

    assert sign_flips([*values, 0.25]) == pytest.approx(sign_flips(values), abs=0.01)


def test_money_is_compared_by_resampling_once_there_are_enough_pairs():
    few = leaning([1.0, 2.0, 3.0], [0.5, 1.0, 1.0])
    many = leaning([float(n) for n in range(1, 13)], [0.5] * 12)

    assert few.test == "paired t-test"
    assert many.test == "sign flips, bootstrap interval"
    assert many.value == 6.0 and many.low > 3.0 and many.p < 0.01


def test_how_many_pairs_a_difference_takes():
    assert pairs_needed([0.1, 0.3, -0.1, 0.1], 0.1) == 21
    assert pairs_needed([0.1, 0.1], 0.1) is None
    assert pairs_needed([0.1, 0.3], 0.0) is None


def test_a_share_of_yes_has_wilsons_interval_and_other_means_students():
    assert around([1.0, 1.0, 1.0, 0.0]) == pytest.approx((0.75, 0.300642, 0.954413), abs=1e-5)
    assert around([0.5, 0.7, 0.9]) == pytest.approx((0.7, 0.203174, 1.196826), abs=1e-5)
    assert around([0.5]) == (0.5, None, None)


def test_a_gate_may_speak_of_any_metric():
    gate = gate_of("score:checks.py:polite/tone >= -.5")

    assert (gate.metric, gate.sign, gate.threshold) == ("score:checks.py:polite/tone", ">=", -0.5)


@pytest.mark.parametrize("text", ["success", ">=1", "success>=much", "success==1", ""])
def test_what_is_no_gate_is_told_with_an_example(text):
    with pytest.raises(UsageError, match=r"is no gate\nWrite a metric"):
        gate_of(text)


@pytest.mark.parametrize("pairs", [20, 30, 60])
def test_many_pairs_that_all_point_one_way_have_the_smallest_chance_that_draws_can_show(pairs):
    # No draw of 4000 reaches them all; the observed signs count as one more.
    assert sign_flips([float(n) for n in range(1, pairs + 1)]) == pytest.approx(1 / 4001)
    assert sign_flips([-1.0] * pairs) == pytest.approx(1 / 4001)


def test_many_pairs_without_a_difference_on_average_have_a_chance_of_one():
    assert sign_flips([1.0, -1.0] * 10) == 1.0
