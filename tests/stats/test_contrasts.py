"""Differences are tested as the textbooks do it, and too little is said to be too little."""

import pytest

from proctor.stats.contrasts import fisher, holm, paired, rates, welch
from proctor.stats.differences import factor_test

# Student's sleep data (1908), whose paired t is -4.0621 with p = 0.002833.
ONE = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
TWO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_pairs_are_compared_by_their_differences():
    found = paired(ONE, TWO)

    assert found.value == pytest.approx(-1.58)
    assert found.p == pytest.approx(0.002833, rel=1e-3)
    assert (found.low, found.high) == pytest.approx((-2.4598858, -0.7001142))


def test_what_does_not_pair_is_compared_by_welchs_test():
    found = welch(ONE, TWO)

    assert found.p == pytest.approx(0.07939, rel=1e-3)
    assert (found.low, found.high) == pytest.approx((-3.3654832, 0.2054832), rel=1e-5)


def test_rates_are_compared_by_fishers_exact_test():
    assert fisher(3, 1, 1, 3) == pytest.approx(0.4857143)
    assert fisher(8, 2, 1, 5) == pytest.approx(5 / 143)


def test_the_interval_of_a_difference_of_rates_is_newcombes():
    found = rates(56, 70, 48, 80)

    assert found.value == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_how_many_runs_would_find_such_a_difference_is_told():
    # Half a standard deviation takes 64 of each, as every table of sample sizes has it.
    values = [-1.0, 1.0] * 100
    half = welch([value + 0.5 for value in values], values)
    assert half.runs_needed == pytest.approx(64, abs=2)
    fewer = welch([value + 0.5 for value in values], values[:20])
    assert fewer.runs_needed == pytest.approx(64, abs=8)
    # From 40 to 50 of a hundred: 388 of each.
    assert rates(50, 100, 40, 100).runs_needed == pytest.approx(388, rel=0.03)
    assert rates(50, 100, 50, 100).runs_needed is None
    assert paired([1.0, 2.0, 4.0], [1.0, 2.0, 4.0]).runs_needed is None


def test_several_tests_are_corrected_by_holm():
    assert holm([0.01, 0.04, None, 0.03]) == pytest.approx([0.03, 0.06, None, 0.06])


def test_one_number_is_too_little_to_test():
    assert welch([1.0], [2.0, 3.0]).p is None
    assert paired([1.0], [2.0]).p is None


def test_numbers_that_never_vary_are_not_called_significant():
    found = welch([3.0, 3.0, 3.0], [5.0, 5.0, 5.0])

    assert (found.value, found.p) == (-2.0, None)


def test_a_factor_is_tested_beside_the_others():
    # Two factors of two levels, three runs each; the first moves the value by 4, the second by nothing.
    rows = [(a, b, n) for a in (0, 1) for b in (0, 1) for n in range(3)]
    values = [10 + 4 * a + n for a, _, n in rows]
    first, second = [[float(a)] for a, _, _ in rows], [[float(b)] for _, b, _ in rows]

    strong = factor_test(values, second, first)
    weak = factor_test(values, first, second)

    assert strong.p is not None and strong.p < 0.001
    assert strong.explained == pytest.approx(48 / 56)
    assert weak.p == pytest.approx(1.0)


def test_an_interaction_is_found_where_two_factors_work_only_together():
    rows = [(a, b, n) for a in (0, 1) for b in (0, 1) for n in range(4)]
    values = [5 * (a ^ b) + n / 10 for a, b, n in rows]
    base = [[float(a), float(b)] for a, b, _ in rows]
    both = [[float(a * b)] for a, b, _ in rows]

    assert factor_test(values, base, both).p < 0.001


def test_the_effect_size_of_two_rates_is_cohens_h():
    # Cohen (1988), table 6.2.2: phi is 2.214 at 0.80, 1.772 at 0.60 and 1.369 at 0.40.
    assert rates(56, 70, 48, 80).effect_size == pytest.approx(2.214 - 1.772, abs=0.001)
    assert rates(40, 100, 80, 100).effect_size == pytest.approx(1.369 - 2.214, abs=0.001)
    assert rates(30, 60, 20, 40).effect_size == 0


def test_the_effect_size_of_two_means_is_in_standard_deviations():
    # The differences deviate by 1.229995, the two groups together by 1.898624.
    assert paired(ONE, TWO).effect_size == pytest.approx(-1.58 / 1.229995, rel=1e-5)
    assert welch(ONE, TWO).effect_size == pytest.approx(-1.58 / 1.898624, rel=1e-5)


def test_the_smallest_detectable_difference_is_found_in_four_of_five_cases():
    # Of rates: (1.959964 + 0.841621) · √(104/150 · 46/150) · √(1/70 + 1/80).
    assert rates(56, 70, 48, 80).smallest_detectable == pytest.approx(0.211427, abs=1e-6)
    # Of means: (2.262157 + 0.883404) · 1.229995 / √10, with quantiles of t at 9 degrees of freedom.
    assert paired(ONE, TWO).smallest_detectable == pytest.approx(1.223493, abs=1e-5)


def test_pairs_whose_differences_cancel_out_have_no_difference_and_an_interval():
    difference = paired([1, 2, 3], [3, 2, 1])

    # Differences of -2, 0 and 2: t is 4.302653 at 2 degrees of freedom, the standard error 2 / √3.
    assert (difference.value, difference.p, difference.effect_size) == (0, 1, 0)
    assert (difference.low, difference.high) == pytest.approx((-4.968275, 4.968275), abs=1e-5)
    assert difference.runs_needed is None


def test_a_factor_that_repeats_another_adds_nothing_to_it():
    rows = [(a, n) for a in (0, 1) for n in range(4)]
    values = [5 * a + n for a, n in rows]
    level, inverse = [[float(a)] for a, _ in rows], [[3.0 - 2 * a] for a, _ in rows]

    repeated = factor_test(values, level, inverse)

    assert (repeated.p, repeated.freedom) == (None, 0)
    assert repeated.explained == pytest.approx(0, abs=1e-12)


def test_a_factor_has_one_degree_of_freedom_fewer_than_levels():
    # Means 2, 3 and 4.5 about 19/6: sums of squares 9.5 between and 6 within, so F = 4.75 at 2 and 6.
    values = [1.0, 2.0, 3.0, 2.0, 3.0, 4.0, 3.5, 4.5, 5.5]
    levels = [[float(n // 3 == 1), float(n // 3 == 2)] for n in range(9)]

    share = factor_test(values, [()] * 9, levels)

    assert share.freedom == 2
    assert share.explained == pytest.approx(9.5 / 15.5)
    # With 2 degrees of freedom above, the tail of F has a closed form.
    assert share.p == pytest.approx((1 + 2 * 4.75 / 6) ** -3)


def test_a_factor_that_leaves_no_runs_over_is_not_tested_and_keeps_its_degrees_of_freedom():
    share = factor_test([1.0, 2.0, 4.0], [()] * 3, [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])

    assert (share.p, share.freedom, share.explained) == (None, 2, pytest.approx(1))
