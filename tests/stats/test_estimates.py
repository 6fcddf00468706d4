"""Estimates by task: values of scipy and statsmodels, properties, and words where data are degenerate.

Reference values: scipy 1.17 (`stats.ttest_1samp`, `stats.gmean`), statsmodels 0.15 (`proportion_confint`, OLS
with cov_type="cluster"), or the formula of the docstring worked out by hand where it says so.
"""

import math
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.stats import geometric_mean, mean, mean_cost, pass_at, pass_hat, per_success, wilson
from proctor.stats.intervals import THESE, Rate, anytime_rate, rate_over_tasks
from proctor.stats.samples import f_tail, plus_interval, t_quantile

COSTS = [1.2, 0.8, 3.5, 0.9, 14, 2.2, 1.1, 0.7, 5.6, 1.9]
SIX_BY_THREE = [int(digit) for digit in "111001110000111101"]
BY_THREES = [place // 3 for place in range(18)]


def limits(estimate):
    return (estimate.low, estimate.high)


def is_finite(result):
    """Whether no member is NaN or infinite."""
    numbers = [getattr(result, each.name) for each in fields(result)]
    return all(math.isfinite(number) for number in numbers if isinstance(number, float))


# Reference values.


@pytest.mark.parametrize(
    ("successes", "trials", "level", "expected"),
    [
        (8, 10, 0.95, (0.490162, 0.943318)),
        (10, 10, 0.95, (0.722467, 1.0)),
        (3, 7, 0.90, (0.186443, 0.710523)),
        (0, 4, 0.90, (0.0, 0.403479)),
    ],
)
def test_wilsons_interval_is_that_of_statsmodels(successes, trials, level, expected):
    assert limits(wilson(successes, trials, level=level)) == pytest.approx(expected, abs=1e-6)
    # Without rounding at the ends.
    assert {(wilson(n, n, level=level).high, wilson(0, n, level=level).low) for n in range(1, 99)} == {(1, 0)}


@pytest.mark.parametrize(
    ("values", "ends", "weight", "center", "se", "expected", "p"),
    [
        ([1] * 8, (0, 1), 1, 0.9, 0.1, (0.663538, 1.0), None),
        ([0] * 8, (-1, 1), 1, 0, 0.149071, (-0.352497, 0.352497), 1.0),
        ([1] * 6, (-1, 1), 1, 0.75, 0.25, (0.107355, 1.0), 0.030099),
        (
            [0] * 11 + [place / 20 for place in range(1, 20)],
            (0, 1),
            0.263158,
            0.319828,
            0.060651,
            (0.195781, 0.443874),
            None,
        ),
        (
            [place / 3 for place in (1, 0, 0, 1, 2, 0, -1, 1, 1, 0, 0, 1)],
            (-1, 1),
            0.714286,
            0.148936,
            0.115897,
            (-0.106152, 0.404025),
            0.225167,
        ),
    ],
)
def test_the_plus_interval(values, ends, weight, center, se, expected, p):
    plus = plus_interval(np.array(values, dtype=float), *ends)

    assert (float(plus.weight), float(plus.center), float(plus.se)) == pytest.approx(
        (weight, center, se), abs=1e-6
    )
    assert tuple(map(float, plus.interval())) == pytest.approx(expected, abs=1e-6)
    if p is not None:
        assert float(plus.p(0)) == pytest.approx(p, abs=1e-6)


def test_a_typical_cost_is_the_geometric_mean_with_the_t_interval_of_logs():
    estimate = geometric_mean(COSTS)
    assert (estimate.value, *limits(estimate)) == pytest.approx((1.942032, 0.974586, 3.869838), abs=1e-6)

    # stats.gmean and ttest_1samp(log).confidence_interval(0.9)
    narrower = geometric_mean([3, 1.2, 0.4, 8, 2.2, 5, 0.9], level=0.9)
    assert (narrower.value, *limits(narrower)) == pytest.approx((1.967296, 0.920192, 4.205918), abs=1e-6)


def test_a_mean_cost_encloses_coxs_interval_and_the_bootstrap():
    estimate = mean_cost(COSTS)

    # Cox: exp(lm + lv/2 ± t sqrt(lv/n + lv²/(2(n − 1)))) is 1.322155 to 7.222223.
    assert estimate.value == pytest.approx(3.19)
    assert estimate.low == pytest.approx(1.322155, abs=1e-6)
    assert estimate.high > 7.222223
    assert "no rare, very expensive item is missing from these 10 tasks" in estimate.note
    assert mean_cost(COSTS) == estimate


def test_cost_per_success_has_fiellers_interval():
    estimate = per_success([2, 1.5, 4, 3, 2.5, 6, 1, 2], [3, 2, 1, 2, 3, 0, 3, 2])

    assert (estimate.value, *limits(estimate)) == pytest.approx((1.375, 0.501735, 3.589451), abs=1e-6)


@pytest.mark.parametrize(
    ("k", "hat", "sem", "at"),
    [
        (1, 0.600000, 0.171270, 0.600000),
        (2, 0.483333, 0.186934, 0.716667),
        (3, 0.416667, 0.193936, 0.766667),
        (5, 0.333333, 0.210819, 0.833333),
    ],
)
def test_pass_at_k_and_pass_hat_k_count_subsets(k, hat, sem, at):
    every, some = pass_hat([5, 4, 3, 0, 5, 1], 5, k), pass_at([5, 4, 3, 0, 5, 1], 5, k)

    assert (every.value, every.sem, some.value) == pytest.approx((hat, sem, at), abs=1e-6)
    assert every.low < every.value < every.high
    if k == 2:
        assert limits(every) == pytest.approx((0.060008, 0.914992), abs=1e-6)


def test_the_rate_of_these_tasks_is_wilsons_over_the_runs():
    estimate = mean(SIX_BY_THREE, BY_THREES, lo=0, hi=1, scope="these")

    assert limits(estimate) == pytest.approx(limits(wilson(11, 18)))
    assert (estimate.scope, estimate.method) == (THESE, "Wilson")


def test_these_tasks_without_a_scale_need_repeats():
    assert "needs repeats of every task" in mean([1.0, 2.0, 3.0], scope="these").note

    # Within-task variance 0.5 each: standard error sqrt(0.5 / 6), t(0.975, 3) = 3.182446.
    estimate = mean([1, 2, 5, 6, 8, 9], [0, 0, 1, 1, 2, 2], scope="these")
    reach = 3.182446 * math.sqrt(0.5 / 6)
    assert limits(estimate) == pytest.approx((31 / 6 - reach, 31 / 6 + reach), abs=1e-5)


# What values and labels may be.


def test_in_a_series_nan_is_missing_and_elsewhere_it_is_refused():
    values = [1.0, math.nan, 0.0, 1.0]

    assert mean(pd.Series(values), lo=0, hi=1).left_out == 1
    refused = mean(values, lo=0, hi=1)
    assert (refused.value, refused.low, refused.note) == (None, None, "1 of 4 values is NaN or infinite.")
    assert "NaN or infinite" in geometric_mean([1.0, math.inf, 2.0]).note
    assert per_success(pd.Series([1.0, math.nan, 2, 3, 1, 2]), [1] * 6).left_out == 1


# Degenerate data gives words.


@pytest.mark.parametrize(
    ("ends", "expected"),
    [({"lo": 0.0}, (0.0, None)), ({"hi": 4.0}, (None, 4.0)), ({"lo": -9.0, "hi": None}, (None, None))],
)
def test_an_interval_without_a_whole_scale_ends_where_values_end_on_one_side(ends, expected):
    values = [0.0, 0.0, 0.5, 4.0, 5.5]
    free, cut = mean(values), mean(values, **ends)
    assert free.low < 0 and free.high > 4
    assert cut.low == (free.low if expected[0] is None else expected[0])
    assert cut.high == (free.high if expected[1] is None else expected[1])


def test_huge_values_give_words():
    assert mean([0.0, 1.0, 1e150]).value is not None
    for estimate in (mean, geometric_mean, mean_cost):
        result = estimate([1e300, 2e300, 1e299, 5e300, 1e301, 3e300])
        assert result.value is None
        assert "too large" in result.note
    assert is_finite(mean_cost([1e-150, 1e149, 1e100, 1e-20, 1.0, 1e80]))
    assert is_finite(geometric_mean([1e-150, 1e149, 1e-149]))


# Properties.

scores = st.lists(st.sampled_from([0, 0.25, 0.5, 0.75, 1]) | st.floats(0, 1), min_size=2, max_size=40)


@given(scores)
def test_a_bounded_mean_lies_in_its_interval_on_the_scale(values):
    estimate = mean(values, lo=0, hi=1)

    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert estimate.high - estimate.low > 0
    assert is_finite(estimate)


anything = st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.booleans(), max_size=12)


@given(anything, st.sampled_from([None, "task"]))
def test_no_result_is_ever_nan(values, by_task):
    tasks = [place // 2 for place in range(len(values))] if by_task else None
    results = [
        mean(values, tasks),
        mean(values, tasks, lo=0, hi=1),
        mean(values, tasks, lo=-10, hi=10, scope="these"),
        mean(values, tasks, scope="these"),
        geometric_mean(values, tasks),
        mean_cost(values, tasks, resamples=99),
        per_success(values, [1] * len(values), tasks),
        per_success([1.0] * len(values), values, tasks),
    ]
    for result in results:
        assert is_finite(result)
        assert result.note or (result.low is not None and result.high is not None)
        if result.low is not None and result.high is not None:
            assert result.low <= result.value <= result.high
            assert result.low < result.high


MANY = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0]


@pytest.mark.parametrize(
    ("call", "note"),
    [
        (lambda: mean([], level=0.9), "No values."),
        (lambda: mean([3.0], level=0.9), "One task: no interval for tasks like these; needs at least 6."),
        (lambda: mean([1, 0, 1], lo=0, hi=1, level=0.9), "Fewer than 6 tasks: no verdict."),
        (lambda: mean([3.0, 4.0, 8.0], level=0.9), "Fewer than 5 tasks"),
        (lambda: mean([3.0, 4.0, 8.0, 1.0, 2.0, 3.5], level=0.9), "Fewer than 15 tasks"),
        (lambda: mean([4.0] * 20, level=0.9), "All values are equal: no interval. Declare the scale."),
        (lambda: mean([1, 0, 5], lo=0, hi=1, level=0.9), "1 of 3 values lie outside the scale 0 to 1"),
        (lambda: mean([1.0, math.inf], level=0.9), "1 of 2 values is NaN or infinite."),
        (lambda: mean_cost([-1.0, *MANY], level=0.9), "Negative values: no interval"),
        (lambda: mean_cost(MANY[:4], level=0.9), "Fewer than 5 tasks"),
        (lambda: mean_cost([2.0] * 7, level=0.9), "All tasks have the same value"),
        (lambda: mean_cost([], level=0.9), "No values."),
        (lambda: mean_cost(MANY, level=0.9), "Provided that"),
        (lambda: mean_cost([1, 1, 1, 1, 20], level=0.9), "No upper limit: too few distinct values."),
        (lambda: per_success([], [], level=0.9), "No values."),
        (
            lambda: per_success([1.0, math.inf], [math.inf] * 2, level=0.9),
            "1 of 2 values is NaN or infinite.",
        ),
        (lambda: per_success([1.0, 2.0, 3.0], [1, 1, math.nan], level=0.9), "1 of 3 values is NaN"),
        (lambda: per_success([-1.0, *MANY], [1] * 8, level=0.9), "Negative values"),
        (lambda: per_success(MANY, [-1] * 7, level=0.9), "Negative values"),
        (
            lambda: per_success(MANY, [0] * 7, level=0.9),
            "No success in 7 runs: more than the total cost of 53",
        ),
        (lambda: per_success(MANY[:4], [1] * 4, level=0.9), "Fewer than 5 tasks"),
        (lambda: per_success([2.0] * 7, [1] * 7, level=0.9), "Every task has the same cost"),
        (lambda: per_success(MANY, [0, 0, 0, 0, 0, 0, 1], level=0.9), "No upper limit"),
        (lambda: per_success(MANY, [1, 1, 1, 0, 1, 1, 1], level=0.9), ""),
        (lambda: geometric_mean([-1.0, *MANY], level=0.9), ""),
        (lambda: geometric_mean(MANY[:2], level=0.9), ""),
        (lambda: geometric_mean([2.0] * 7, level=0.9), ""),
        (lambda: geometric_mean([], level=0.9), "No values."),
    ],
)
def test_every_estimate_has_its_level_and_scope_also_without_an_interval(call, note):
    estimate = call()
    assert (estimate.level, estimate.scope) == (0.9, "tasks like these")
    assert estimate.note.startswith(note)


def test_the_mean_cost_of_very_many_tasks_has_the_interval_of_the_delta_method():
    estimate = mean_cost(np.random.default_rng(0).lognormal(size=3000))

    assert "delta" in estimate.method and estimate.note == ""
    reach = 1.96 * estimate.sem / estimate.value
    limits = estimate.value * np.exp([-reach, reach])
    assert (estimate.low, estimate.high) == pytest.approx(tuple(limits), rel=0.03)


# Quantiles and rates


def test_quantiles_of_t_and_tails_of_f_are_those_in_the_tables():
    for p, quantiles in {
        0.975: {1: 12.7062, 2: 4.30265, 5: 2.57058, 10: 2.22814, 30: 2.04227, 120: 1.97993, 100_000: 1.95999},
        0.95: {7: 1.89458},
        0.995: {4: 4.60409},
        0.9995: {3: 12.9240},
        0.025: {10: -2.22814},
        0.5: {3: 0.0},
    }.items():
        for freedom, expected in quantiles.items():
            assert float(t_quantile(p, freedom)) == pytest.approx(expected, abs=6e-5), (p, freedom)
    for value, above, below, p in (
        (4.10282, 2, 10, 0.05),
        (3.09839, 3, 20, 0.05),
        (5.63633, 5, 10, 0.01),
        (161.4476, 1, 1, 0.05),
        (5 * (0.95**-0.2 - 1), 2, 10, 0.95),
        (1 / 8.66019, 3, 20, 0.95),
        (1.0, 7, 7, 0.5),
        (0.5, 2, 10, 1.1**-5),
        (0.0, 3, 20, 1.0),
    ):
        assert f_tail(value, above, below) == pytest.approx(p, abs=1e-5), (value, above, below)


def test_the_interval_for_every_look_is_wider_than_that_for_one_and_ends_at_0_and_1():
    for successes, trials in ((0, 5), (5, 5), (8, 10), (500, 1000)):
        one_look, every_look = wilson(successes, trials), anytime_rate(successes, trials)
        assert every_look.low <= one_look.low <= every_look.value <= one_look.high <= every_look.high
    assert anytime_rate(0, 5).low == 0.0
    assert anytime_rate(5, 5).high == 1.0
    assert anytime_rate(0, 0) == wilson(0, 0) == Rate(successes=0, trials=0)
    assert wilson(0, 0).value is None
    narrow, wide = anytime_rate(8, 10, level=0.5), anytime_rate(8, 10)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    "counts",
    [
        [(3, 3, 2), (0, 3, 1), (2, 3, 4)],
        [(1, 1, 7), (0, 1, 3)],
        [(1, 2, 1), (3, 3, 1), (0, 1, 2)],
    ],
)
def test_a_rate_over_tasks_from_counts_is_that_of_the_runs(counts):
    runs = [
        (task, passed)
        for task, (successes, judged) in enumerate(
            (successes, judged) for successes, judged, tasks in counts for _ in range(tasks)
        )
        for passed in [1] * successes + [0] * (judged - successes)
    ]
    for level in (0.5, 0.95):
        expected = mean([each[1] for each in runs], [each[0] for each in runs], lo=0, hi=1, level=level)
        for rate in (
            rate_over_tasks(counts, level=level),
            rate_over_tasks([*counts, (0, 0, 5), (1, 1, 0)], level=level),
        ):
            assert (rate.n, rate.runs, rate.note) == (expected.n, expected.runs, expected.note)
            limits = (expected.value, expected.low, expected.high, expected.sem, level)
            assert (rate.value, rate.low, rate.high, rate.sem, rate.level) == pytest.approx(limits)


def test_the_rate_of_a_single_task_is_about_this_task():
    one = rate_over_tasks([(8, 10, 1)])

    assert (one.value, one.n, one.runs, one.scope) == (0.8, 1, 10, THESE)
    assert (one.low, one.high) == (wilson(8, 10).low, wilson(8, 10).high)
    assert rate_over_tasks([(8, 10, 1)], level=0.5).low == wilson(8, 10, level=0.5).low
    assert (rate_over_tasks([]).value, rate_over_tasks([(0, 0, 3)]).low) == (None, None)
