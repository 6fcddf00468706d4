"""Differences are tested as the textbooks do it, and too little is said to be too little."""

import pytest

from proctor.analyse import contrasts

# Student's sleep data (1908), whose paired t is -4.0621 with p = 0.002833.
ONE = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
TWO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_pairs_are_compared_by_their_differences():
    found = contrasts.paired(ONE, TWO)

    assert found.value == pytest.approx(-1.58)
    assert found.p == pytest.approx(0.002833, rel=1e-3)
    assert (found.low, found.high) == pytest.approx((-2.4598858, -0.7001142))


def test_what_does_not_pair_is_compared_by_welchs_test():
    found = contrasts.welch(ONE, TWO)

    assert found.p == pytest.approx(0.07939, rel=1e-3)
    assert (found.low, found.high) == pytest.approx((-3.3654832, 0.2054832), rel=1e-5)


def test_rates_are_compared_by_fishers_exact_test():
    assert contrasts.fisher(3, 1, 1, 3) == pytest.approx(0.4857143)
    assert contrasts.fisher(8, 2, 1, 5) == pytest.approx(5 / 143)


def test_the_interval_of_a_difference_of_rates_is_newcombes():
    found = contrasts.rates(56, 70, 48, 80)

    assert found.value == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_how_many_runs_would_find_such_a_difference_is_told():
    # Half a standard deviation takes 64 of each, as every table of sample sizes has it.
    values = [-1.0, 1.0] * 100
    half = contrasts.welch([value + 0.5 for value in values], values)
    assert half.runs_needed == pytest.approx(64, abs=2)
    fewer = contrasts.welch([value + 0.5 for value in values], values[:20])
    assert fewer.runs_needed == pytest.approx(64, abs=8)
    # From 40 to 50 of a hundred: 388 of each.
    assert contrasts.rates(50, 100, 40, 100).runs_needed == pytest.approx(388, rel=0.03)
    assert contrasts.rates(50, 100, 50, 100).runs_needed is None
    assert contrasts.paired([1.0, 2.0, 4.0], [1.0, 2.0, 4.0]).runs_needed is None


def test_several_tests_are_corrected_by_holm():
    assert contrasts.holm([0.01, 0.04, None, 0.03]) == pytest.approx([0.03, 0.06, None, 0.06])


def test_one_number_is_too_little_to_test():
    assert contrasts.welch([1.0], [2.0, 3.0]).p is None
    assert contrasts.paired([1.0], [2.0]).p is None


def test_numbers_that_never_vary_are_not_called_significant():
    found = contrasts.welch([3.0, 3.0, 3.0], [5.0, 5.0, 5.0])

    assert (found.value, found.p) == (-2.0, None)


def test_a_factor_is_tested_beside_the_others():
    # Two factors of two levels, three runs each; the first moves the value by 4, the second by nothing.
    rows = [(a, b, n) for a in (0, 1) for b in (0, 1) for n in range(3)]
    values = [10 + 4 * a + n for a, _, n in rows]
    first, second = [[float(a)] for a, _, _ in rows], [[float(b)] for _, b, _ in rows]

    strong = contrasts.factor_test(values, second, first)
    weak = contrasts.factor_test(values, first, second)

    assert strong.p is not None and strong.p < 0.001
    assert strong.explained == pytest.approx(48 / 56)
    assert weak.p == pytest.approx(1.0)


def test_an_interaction_is_found_where_two_factors_work_only_together():
    rows = [(a, b, n) for a in (0, 1) for b in (0, 1) for n in range(4)]
    values = [5 * (a ^ b) + n / 10 for a, b, n in rows]
    base = [[float(a), float(b)] for a, b, _ in rows]
    both = [[float(a * b)] for a, b, _ in rows]

    assert contrasts.factor_test(values, base, both).p < 0.001
