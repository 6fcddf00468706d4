"""Intervals against published tables and against their own definitions."""

import pytest

from proctor.stats.intervals import THESE, anytime_rate, mean, rate_over_tasks, wilson
from proctor.stats.samples import f_tail, t_quantile


@pytest.mark.parametrize(
    ("p", "freedom", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 5, 2.57058),
        (0.95, 7, 1.89458),
        (0.975, 10, 2.22814),
        (0.995, 4, 4.60409),
        (0.975, 30, 2.04227),
        (0.975, 120, 1.97993),
        (0.9995, 3, 12.9240),
        (0.975, 100_000, 1.95999),
        (0.025, 10, -2.22814),
        (0.5, 3, 0.0),
    ],
)
def test_the_t_quantile_is_the_one_in_the_tables(p, freedom, expected):
    assert float(t_quantile(p, freedom)) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(
    ("value", "above", "below", "p"),
    [
        (4.10282, 2, 10, 0.05),
        (3.09839, 3, 20, 0.05),
        (5.63633, 5, 10, 0.01),
        (161.4476, 1, 1, 0.05),
        (5 * (0.95**-0.2 - 1), 2, 10, 0.95),
        (1 / 8.66019, 3, 20, 0.95),
        (1.0, 7, 7, 0.5),
        (0.5, 2, 10, 1.1**-5),
        (0.0, 3, 20, 1.0),
    ],
)
def test_the_tail_of_f_is_the_one_in_the_tables(value, above, below, p):
    assert f_tail(value, above, below) == pytest.approx(p, abs=1e-5)


def test_the_interval_for_every_look_is_wider_than_that_for_one_and_ends_at_0_and_1():
    for successes, trials in ((0, 5), (5, 5), (8, 10), (500, 1000)):
        one_look, every_look = wilson(successes, trials), anytime_rate(successes, trials)
        assert every_look.low <= one_look.low <= every_look.value <= one_look.high <= every_look.high
    assert anytime_rate(0, 5).low == 0.0
    assert anytime_rate(5, 5).high == 1.0
    assert anytime_rate(0, 0).value is None
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
