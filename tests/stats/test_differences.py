"""Differences, families and gates: values of scipy and statsmodels, properties, words for degenerate data.

Reference values: scipy 1.17 (`stats.ttest_rel`, `ttest_ind(equal_var=False)`, `ttest_1samp`, `fisher_exact`,
`f_oneway`), statsmodels 0.15 (`mcnemar`, `multipletests`, `confint_proportions_2indep`, `compare_f_test`).
"""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proctor.stats import (
    clopper_pearson,
    cohen_h,
    difference,
    factor_test,
    family,
    fisher,
    gate,
    holm,
    mcnemar,
    newcombe,
    newcombe_paired,
    ratio,
)
from proctor.stats.differences import Difference, adjust

# Student's sleep data (1908).
ONE = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
TWO = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
# Pairs: both 20, only the first 2, only the second 9, neither 5.
BEFORE, AFTER = [1] * 22 + [0] * 14, [1] * 20 + [0] * 2 + [1] * 9 + [0] * 5
CHEAP, CHEAPER = [1.0, 2.0, 4.0, 3.0, 1.5, 2.5], [0.8, 1.5, 3.9, 2.2, 1.0, 2.4]


def limits(result):
    return (result.low, result.high)


def is_finite(result):
    numbers = [getattr(result, each.name) for each in fields(result)]
    return all(math.isfinite(number) for number in numbers if isinstance(number, float))


# Reference values.


def test_pairs_of_outcomes_have_the_plus_interval_and_its_p():
    change = difference(BEFORE, AFTER, lo=0, hi=1)

    assert (change.value, *limits(change), change.p) == pytest.approx(
        (0.194444, 0.008261, 0.371050, 0.040940), abs=1e-6
    )
    assert (change.mean_a, change.mean_b, change.n) == (pytest.approx(22 / 36), pytest.approx(29 / 36), 36)
    assert change.is_significant


def test_six_unanimous_tasks_are_significant_and_five_are_not():
    six, five = (difference([0] * tasks, [1] * tasks, lo=0, hi=1) for tasks in (6, 5))

    # The exact sign test has 0.031250.
    assert (six.p, six.low) == pytest.approx((0.030099, 0.107355), abs=1e-6)
    assert six.is_significant
    assert five.p > 0.05 and not five.is_significant
    assert (five.needs, five.low < 0 < five.high) == (6, True)
    assert "Fewer than 6 common tasks: no verdict." in five.note


def test_without_a_scale_pairs_have_students_interval():
    change = difference(ONE, TWO)

    assert (change.value, *limits(change), change.p) == pytest.approx(
        (1.58, 0.7001142, 2.4598858, 0.0028329), abs=1e-6
    )
    assert change.effect_size == pytest.approx(1.58 / 1.229995, rel=1e-5)
    # (2.262157 + 0.883404) · 1.229995 / √10, with quantiles of t at 9 degrees of freedom.
    assert change.detectable == pytest.approx(1.223493, abs=1e-5)
    assert "roughly normal" in change.note


def test_without_pairs_and_scale_it_is_welchs_interval():
    change = difference(ONE, TWO, paired=False)

    assert (change.value, *limits(change), change.p) == pytest.approx(
        (1.58, -0.2054832, 3.3654832, 0.0793941), abs=1e-6
    )
    assert change.effect_size == pytest.approx(1.58 / 1.898624, rel=1e-5)
    assert (change.method, change.tasks) == ("Welch's t", (10, 10))


def test_newcombes_interval_is_the_one_in_his_paper():
    # Newcombe (1998), 56/70 against 48/80.
    assert newcombe(48, 80, 56, 70) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    assert newcombe_paired(20, 2, 9, 5) == pytest.approx((0.194444, 0.012989, 0.360961), abs=1e-6)


def test_the_ratio_of_costs_has_the_t_interval_of_logs():
    change = ratio(CHEAP, CHEAPER)

    assert (change.value, *limits(change), change.p) == pytest.approx(
        (0.8061940, 0.6866289, 0.9465794, 0.0182434), abs=1e-6
    )
    assert (change.mean_a, change.mean_b) == pytest.approx((2.1169329, 1.7066585), abs=1e-6)
    assert change.is_significant and change.null == 1

    one_of_three = ratio(CHEAP, CHEAPER, family=3)
    assert limits(one_of_three) == pytest.approx((0.6465318, 1.0052850), abs=1e-6)
    assert one_of_three.p_adjusted == pytest.approx(3 * 0.0182434, abs=1e-6)
    assert not one_of_three.is_significant


def test_exact_tests_are_those_of_scipy_and_statsmodels():
    assert mcnemar(2, 9) == pytest.approx(0.065430, abs=1e-6)
    assert mcnemar(9, 2, mid_p=True) == pytest.approx(0.038574, abs=1e-6)
    assert (mcnemar(0, 0), mcnemar(3, 3), mcnemar(5, 0)) == (1, 1, pytest.approx(0.0625))
    assert [mcnemar(*pairs, mid_p=True) for pairs in ((0, 0), (1, 0), (0, 2))] == [1, 0.5, 0.25]
    assert fisher(14, 6, 9, 13) == pytest.approx(0.071804, abs=1e-6)
    assert fisher(3, 1, 1, 3) == pytest.approx(0.4857143)
    assert fisher(8, 2, 1, 5) == pytest.approx(5 / 143)
    assert fisher(0, 0, 3, 4) == pytest.approx(1)
    assert clopper_pearson(8, 10) == pytest.approx((0.443905, 0.974789), abs=1e-6)
    assert clopper_pearson(10, 10) == pytest.approx((0.691503, 1), abs=1e-6)
    assert clopper_pearson(3, 7, level=0.9) == pytest.approx((0.128756, 0.774678), abs=1e-6)


def test_corrections_are_those_of_statsmodels():
    p = [0.001, 0.011, 0.02, 0.04, 0.3]

    assert holm(p) == pytest.approx([0.005, 0.044, 0.06, 0.08, 0.3])
    change = difference([0, 0, 1, 0, 0, 1, 0, 0], [1, 1, 1, 1, 0, 1, 1, 1], lo=0, hi=1)
    assert adjust(change, 5).p_adjusted == pytest.approx(5 * change.p)
    assert adjust(change, 100).p_adjusted == 1
    assert holm([0.01, 0.04, None, 0.03]) == pytest.approx([0.03, 0.06, None, 0.06])


def test_the_effect_size_of_two_rates_is_cohens_h():
    # Cohen (1988), table 6.2.2: phi is 2.214 at 0.80, 1.772 at 0.60 and 1.369 at 0.40.
    assert cohen_h(0.6, 0.8) == pytest.approx(2.214 - 1.772, abs=0.001)
    assert cohen_h(0.8, 0.4) == pytest.approx(1.369 - 2.214, abs=0.001)
    assert cohen_h(0.5, 0.5) == 0


def test_a_factor_is_tested_as_scipy_and_statsmodels_do():
    groups = [[3, 4, 5], [6, 7, 5], [2, 2, 3], [8, 7, 9]]
    values = [float(value) for group in groups for value in group]
    levels = [[float(row == level) for level in (1, 2, 3)] for row in range(4) for _ in range(3)]

    share = factor_test(values, [()] * 12, levels)
    assert (share.p, share.freedom) == (pytest.approx(0.000337190, abs=1e-9), 3)
    mirrored = factor_test(values, [()] * 12, [[-level for level in row] for row in levels])
    assert (mirrored.p, mirrored.freedom) == (pytest.approx(share.p), 3)

    # OLS.compare_f_test: F 32.886780, p 0.0022580749; 83.4006% of the sum of squares.
    y = [10.1, 12.3, 9.8, 14.2, 11.0, 13.5, 15.1, 9.9]
    first, second = [[float(place > 3)] for place in range(8)], [[float(b)] for b in (0, 1, 0, 1, 0, 1, 1, 0)]
    share = factor_test(y, first, second)
    assert (share.p, share.explained) == pytest.approx((0.0022580749, 0.8340062808), abs=1e-9)


# Tasks.


def test_a_declared_span_narrows_the_interval_and_is_named():
    wide, narrow = (difference([0.5] * 20, [0.5] * 20, lo=0, hi=1, span=span) for span in (None, 0.25))

    assert narrow.high == pytest.approx(wide.high / 4)
    assert "no task changes by more than 0.25" in narrow.note
    broken = difference([0.0] * 20, [1.0] * 20, lo=0, hi=1, span=0.25)
    assert broken.low is None and "more than the declared span" in broken.note


# Degenerate data.


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ([], [], "Neither side has any values."),
        ([1], [], "One side has no values."),
        ([None], [1.0], "One side has no values."),
        ([math.nan, 1], [1, 1], "Baseline: 1 of 2 values is NaN or infinite."),
        ([1, 0], [math.inf, 1], "Candidate: 1 of 2 values is NaN or infinite."),
        ([1], [0], "One common task: no interval; needs at least 6."),
        ([1, 0, 3], [1, 1, 1], "1 of 6 values lie outside the scale 0 to 1: no interval."),
    ],
)
def test_a_difference_that_cannot_be_given_has_words(a, b, words):
    change = difference(a, b, lo=0, hi=1)

    assert change.note == words
    assert (change.low, change.high, change.p) == (None, None, None)
    assert not change.is_significant


def test_ratios_that_cannot_be_given():
    assert "imported constants" in ratio([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]).note
    assert "imported constants" in ratio([1.0] * 9, [1.0] * 9).note
    assert "Fewer than 3 common tasks" in ratio([1.0, 2.0], [2.0, 3.0]).note
    assert "1 of 3 common tasks have no positive value" in ratio([1.0, 0.0, 2.0], [1.0, 1.0, 2.0]).note
    wild = ratio([1e-149, 1e149, 1e-149], [1e149, 1e-149, 1e140])
    assert is_finite(wild)
    assert wild.high is None and "No upper limit" in wild.note


# Properties.

outcomes = st.lists(
    st.tuples(st.sampled_from([0, 1 / 3, 2 / 3, 1]), st.sampled_from([0, 1 / 3, 2 / 3, 1])),
    min_size=2,
    max_size=60,
)


@given(outcomes, st.booleans(), st.integers(1, 20))
def test_value_interval_and_p_agree(pairs, is_paired, number):
    a, b = [first for first, _ in pairs], [second for _, second in pairs]
    change = difference(a, b, lo=0, hi=1, paired=is_paired, family=number)

    assert -1 <= change.low <= change.value <= change.high <= 1
    assert change.high - change.low > 0
    assert change.p_adjusted == pytest.approx(min(1, number * change.p))
    assert is_finite(change)
    assume(abs(change.p_adjusted - 0.05) > 1e-9)
    assert (change.p_adjusted <= 0.05) == (not change.low <= 0 <= change.high)
    if change.n < 6:
        assert not change.is_significant
    mirrored = difference(b, a, lo=0, hi=1, paired=is_paired, family=number)
    assert limits(mirrored) == pytest.approx((-change.high, -change.low), abs=1e-9)
    assert mirrored.p == pytest.approx(change.p, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)), min_size=3, max_size=30))
def test_a_ratio_turned_around_is_its_inverse(pairs):
    a, b = [first for first, _ in pairs], [second for _, second in pairs]
    change, inverse = ratio(a, b), ratio(b, a)

    assert is_finite(change)
    if change.low is None:
        assert change.note
        return
    assert change.low < change.value < change.high
    assert (inverse.low, inverse.high) == pytest.approx((1 / change.high, 1 / change.low), rel=1e-6)
    assume(abs(change.p - 0.05) > 1e-9)
    assert (change.p <= 0.05) == (not change.low <= 1 <= change.high)


numbers = st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True), max_size=9)


@given(numbers, numbers, st.booleans())
def test_no_difference_is_ever_nan(a, b, is_paired):
    for change in (
        difference(a, b, paired=is_paired),
        difference(a, b, lo=-5, hi=5, paired=is_paired),
        ratio(a, b),
    ):
        assert is_finite(change)
        assert change.note or (change.low is not None and change.high is not None)


# Families.


def test_a_family_is_adjusted_together_and_leaves_out_what_tells_nothing_new():
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 2, 40), rng.integers(0, 2, 40)
    c, d = rng.random(40), rng.random(40)
    page = family(
        {
            "success": difference(a, b, lo=0, hi=1),
            "expect": difference(a, b, lo=0, hi=1),
            "failure": difference(1 - a, 1 - b, lo=0, hi=1),
            "points": difference(10 * a, 10 * b, lo=0, hi=10),
            "score": difference(c, d, lo=0, hi=1),
            "constant": difference([1] * 40, [1] * 40, lo=0, hi=1),
            "rare": difference([0.5, 0.1, *[None] * 38], [0.5, 0.2, *[None] * 38], lo=0, hi=1),
            "cost": ratio(c + 1, (d + 1) ** 2),
            "one task": difference([1], [0], lo=0, hi=1),
        }
    )

    assert list(page.members) == ["success", "score", "cost"]
    assert page.left_out == {
        "expect": "a copy of success",
        "failure": "a linear copy of success",
        "points": "a linear copy of success",
        "constant": "all values are equal",
        "rare": "missing in 76 of 80 runs",
        "one task": "One common task: no interval; needs at least 6",
    }
    assert page.size == 3
    for name, member in page.members.items():
        assert member.family == 3
        alone = adjust(member, 1)
        assert member.p_adjusted == pytest.approx(min(1, 3 * alone.p)), name
        assert member.low < alone.low and alone.high < member.high
    assert page.descriptive["expect"].family == 1


# Gates.


def changed(tasks, losses=0, gains=0):
    """A difference of so many tasks, of which some are lost and some are gained."""
    rest = [1.0] * (tasks - losses - gains)
    return difference(
        [1.0] * losses + [0.0] * gains + rest, [0.0] * losses + [1.0] * gains + rest, lo=0, hi=1
    )


@pytest.mark.parametrize(("margin", "fewest"), [(0.01, 368), (0.02, 183), (0.05, 72), (0.10, 36), (0.20, 17)])
def test_an_untouched_candidate_passes_from_the_fewest_tasks_that_show_a_collapse(margin, fewest):
    below, at = gate(changed(fewest - 1), margin), gate(changed(fewest), margin)

    assert (below.verdict, below.needs, below.fewest) == ("inconclusive", fewest, fewest)
    assert f"fewer than {fewest}" in below.note
    assert (at.verdict, at.needs, at.note) == ("pass", None, "Within the margin.")


@given(outcomes, st.sampled_from([0.02, 0.1, 0.3, -0.1]))
def test_a_gate_never_contradicts_its_interval(pairs, margin):
    change = difference([a for a, _ in pairs], [b for _, b in pairs], lo=0, hi=1)
    result = gate(change, margin)

    if result.verdict == "pass":
        assert change.low > -margin and change.n >= 6
    if result.verdict == "fail":
        assert change.high < max(0, -margin)
    if result.verdict == "inconclusive":
        assert result.note
        assert result.needs is None or result.needs > change.n


def anytime(low, high, n=6, null=0.0):
    return Difference(value=0.1, low=low, high=high, n=n, null=null, is_anytime=True)


def test_a_difference_that_is_valid_at_any_time_is_significant_where_it_excludes_none():
    for clear in ((0.01, 0.2), (-0.2, -0.01), (1.01, 1.2, 3, 1.0)):
        assert anytime(*clear).is_significant, clear
    open_ = [(0.0, 0.2), (-0.2, 0.0), (-0.1, 0.2), (None, 0.2), (0.01, None), (0.9, 1.2, 3, 1.0)]
    for unclear in (*open_, (0.01, 0.2, 5), (1.01, 1.2, 2, 1.0)):
        assert not anytime(*unclear).is_significant, unclear


@pytest.mark.parametrize(
    ("needs", "n", "words"),
    [
        (None, 3, ""),
        (6, 3, "A verdict needs at least 6 tasks."),
        (1200, 8, "A verdict needs about 1,200 tasks if the true difference is about as observed."),
        (7, 3, "A verdict needs about 7 tasks if the true difference is about as observed."),
        (8, 8, ""),
        (7, 8, ""),
    ],
)
def test_what_a_verdict_needs_is_said_with_its_condition(needs, n, words):
    assert Difference(value=0.1, n=n, needs=needs).needs_words == words
    significant = Difference(value=0.1, n=max(n, 6), needs=9_999, p_adjusted=0.001)
    assert significant.needs_words == ""


def test_a_difference_is_significant_up_to_a_p_of_five_percent_and_from_six_tasks_on():
    change = difference([0] * 8, [1] * 8, lo=0.0, hi=1.0)
    for p, tasks, expected in ((0.05, 8, True), (0.0500001, 8, False), (0.05, 5, False), (None, 8, False)):
        assert replace(change, p_adjusted=p, n=tasks).is_significant is expected


def interval(low, high, n=6, **more):
    """A difference with nothing but its interval."""
    return Difference(value=0.0, low=low, high=high, n=n, **more)


NEAR = "The difference lies near the margin: more tasks may not decide it."
SCALED = {"scale": (-1.0, 1.0)}
RATIO = {"null": 1.0}


@pytest.mark.parametrize(
    ("change", "margin", "expected"),
    [
        # At the margin is not within it, and at no difference is not worse.
        (interval(-0.1, 0.1), 0.1, ("inconclusive", NEAR, None, None)),
        (interval(-0.0999, 0.1), 0.1, ("pass", "Within the margin.", None, None)),
        (interval(-0.1, 0.0), 0.1, ("inconclusive", NEAR, None, None)),
        (interval(-0.2, -0.001), 0.1, ("fail", "Significantly worse.", None, None)),
        (interval(-0.05, -0.001), 0.1, ("pass", "Worse, but within the margin.", None, None)),
        (interval(-0.05, 0.0), 0.1, ("pass", "Within the margin.", None, None)),
        (interval(-0.2, 0.0), 0.0, ("inconclusive", NEAR, None, None)),
        (interval(-0.2, -0.1), 0.0, ("fail", "Significantly worse.", None, None)),
        (interval(0.0, 0.2), 0.0, ("inconclusive", NEAR, None, None)),
        (interval(0.01, 0.2), 0.0, ("pass", "Within the margin.", None, None)),
        # A required improvement.
        (interval(0.1, 0.2), -0.1, ("inconclusive", NEAR, None, None)),
        (interval(0.11, 0.2), -0.1, ("pass", "Improved as required.", None, None)),
        (interval(0.0, 0.1), -0.1, ("inconclusive", NEAR, None, None)),
        (interval(0.0, 0.099), -0.1, ("fail", "The required improvement is excluded.", None, None)),
        (interval(-0.2, -0.1), -0.1, ("fail", "Significantly worse.", None, None)),
        # One limit, or none.
        (interval(None, None), 0.1, ("inconclusive", "No interval.", 6, None)),
        (interval(None, None, needs=9, note="why."), 0.1, ("inconclusive", "why.", 9, None)),
        (interval(None, -0.1), 0.1, ("fail", "Significantly worse.", None, None)),
        (interval(None, 0.1), 0.1, ("inconclusive", NEAR, None, None)),
        (interval(0.1, None), 0.1, ("pass", "Within the margin.", None, None)),
        # The largest loss of a task, and the tasks that show a collapse.
        (interval(-1.0, 1.0, **SCALED), 1.0, ("pass", "No loss can exceed the margin.", None, None)),
        (interval(-1.0, 1.0, **SCALED), 0.99, ("inconclusive", NEAR, None, 1)),
        (interval(-0.01, 0.01, 72, **SCALED), 0.05, ("pass", "Within the margin.", None, 72)),
        (interval(-0.01, 0.01, is_anytime=True, **SCALED), 0.05, ("pass", "Within the margin.", None, None)),
        (interval(-0.01, 0.01, **SCALED), 0.0, ("inconclusive", NEAR, None, None)),
        # A margin of 0 demands no improvement, only that there is no loss.
        (interval(0.01, 0.2, **SCALED), 0.0, ("pass", "Within the margin.", None, None)),
        (interval(-0.2, -0.01), 0.0, ("fail", "Significantly worse.", None, None)),
        # Ratios: a share, and less is better.
        (interval(0.9, 1.05, **RATIO), 0.1, ("pass", "Within the margin.", None, None)),
        (interval(0.9, 1.1, **RATIO), 0.1, ("inconclusive", NEAR, None, None)),
        (interval(1.01, 1.2, **RATIO), 0.1, ("fail", "Significantly worse.", None, None)),
        (interval(0.5, 0.79, **RATIO), -0.2, ("pass", "Improved as required.", None, None)),
        (interval(0.0, 0.79, **RATIO), -0.2, ("pass", "Improved as required.", None, None)),
        (interval(0.81, 0.9, **RATIO), -0.2, ("fail", "The required improvement is excluded.", None, None)),
        (interval(0.5, 0.8, **RATIO), -1.0, ("fail", "The required improvement is excluded.", None, None)),
        (interval(0.9, None, **RATIO), 0.1, ("inconclusive", NEAR, None, None)),
        (interval(0.9, 1.05, **RATIO, **SCALED), 1.5, ("pass", "Within the margin.", None, 1)),
    ],
)
def test_a_gate_at_its_limits(change, margin, expected):
    result = gate(change, margin)

    assert (result.verdict, result.note, result.needs, result.fewest) == expected
    assert result.difference is change and result.with_errors is None


def test_a_gate_of_what_should_be_low_is_mirrored():
    for low, high, verdict in (
        (-0.2, 0.05, "pass"),
        (None, 0.05, "pass"),
        (0.05, 0.2, "fail"),
        (0.05, None, "fail"),
        *((low, high, "inconclusive") for low, high in ((-0.05, 0.2), (-0.2, 0.1), (0.0, 0.2))),
    ):
        mirrored = interval(None if high is None else -high, None if low is None else -low)
        assert gate(interval(low, high), 0.1, lower_is_better=True).verdict == verdict
        assert gate(mirrored, 0.1).verdict == verdict


def test_errors_that_decide_are_counted():
    good, bad = interval(0.0, 0.1), interval(-0.3, -0.2)
    for errors, words in (
        (0, "Infrastructure errors decide it"),
        (1, "1 infrastructure error decides it"),
        (2, "2 infrastructure errors decide it"),
    ):
        result = gate(good, 0.1, with_errors=bad, errors=errors)
        expected = f"{words}: pass with errors excluded, fail with errors as failures."
        assert (result.verdict, result.note, result.needs) == ("inconclusive", expected, None)
        assert (result.difference, result.with_errors) == (good, bad)
    assert gate(good, 0.1, with_errors=bad).note.startswith("Infrastructure errors decide it: pass")


def test_a_metric_missing_in_more_than_a_fifth_of_runs_is_no_member():
    change = difference(ONE, TWO)
    for missing, total in ((0, 10), (2, 10)):
        assert list(family({"score": replace(change, missing=missing, total=total)}).members) == ["score"]
    for missing, total in ((3, 10), (1, 4)):
        page = family({"score": replace(change, missing=missing, total=total)})
        assert (page.members, page.left_out) == ({}, {"score": f"missing in {missing} of {total} runs"})
