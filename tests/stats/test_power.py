"""Tasks needed and differences detectable.

Reference: statsmodels 0.15 `TTestPower().solve_power(effect_size=detect / sd, alpha=0.05, power=0.8)`
rounded up: 117.05 and 253.09 become 118 and 254. scipy 1.17: `stats.chi2.ppf(0.2, 9)` is 5.380053.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.stats import detectable, tasks_for_gate, tasks_needed
from proctor.stats.power import required_tasks, variation
from proctor.stats.samples import t_quantile


def test_the_tasks_for_a_known_variance_are_those_of_statsmodels():
    for repeats, tasks in ((1, 254), (3, 118), (5, 90)):
        assert required_tasks(0.06 + 0.26 / repeats, 0.1) == tasks
        assert required_tasks(0.06 + 0.26 / repeats, -0.1) == tasks
    # A family and more power need more: solve_power(0.2 / sqrt(0.11), alpha=0.05 / 4, power=0.9) is 42.449.
    assert required_tasks(0.11, 0.2, power=0.9, family=4) == 43
    # Few tasks pay for the wider interval: 31 (30.76 in statsmodels) without the addition.
    assert required_tasks(0.06 + 0.26 / 3, 0.2) == 31 + 4
    assert required_tasks(1e-6, 0.5) == 6


def test_a_pilots_variance_is_raised_for_assurance():
    assert required_tasks(0.1, 0.1, pilot=10) == required_tasks(0.1 * 9 / 5.380053, 0.1)
    assert required_tasks(0.1, 0.1, pilot=2) == required_tasks(0.1 / 0.0641848, 0.1)
    assert required_tasks(0.1, 0.1, pilot=1) == required_tasks(0.1, 0.1), "one task has no variance"


def test_a_gate_needs_tasks_enough_to_see_a_collapse():
    needed = {(0.01, 1): 368, (0.02, 1): 183, (0.05, 1): 72, (0.1, 1): 36, (0.2, 1): 17, (0.02, 1 / 3): 60}
    for (margin, loss), tasks in needed.items():
        assert tasks_for_gate(margin, loss) == tasks
        # With one task fewer, a collapse on a share margin/loss stays unseen in more than 2.5% of runs.
        assert (1 - margin / loss) ** (tasks - 1) > 0.025 >= (1 - margin / loss) ** tasks
    assert tasks_for_gate(1, 1) == tasks_for_gate(0.975, 1) == 1


def test_variance_is_separated_into_tasks_and_repeats():
    # Two tasks of four runs: rates 0.75 and 0.5, then 0.5 and 0.75; within x(1 − x)·4/3.
    a, b = [1, 1, 1, 0, 1, 1, 0, 0], [1, 1, 0, 0, 1, 1, 1, 0]
    parts = variation(a, b, [0] * 4 + [1] * 4)

    within = (0.75 * 0.25 + 0.25) * 4 / 3 / 2
    assert parts.within == pytest.approx(2 * within)
    assert parts.observed == pytest.approx(np.var([-0.25, 0.25], ddof=1))
    assert parts.between == pytest.approx(max(0, parts.observed - 2 * within / 4), abs=1e-12)
    assert (parts.tasks, parts.repeats) == (2, 4)


def test_a_gate_raises_the_number_to_what_shows_a_collapse():
    rng = np.random.default_rng(4)
    a = rng.random(40) * 0.02 + 0.5

    assert tasks_needed(a, a[::-1], detect=0.05, lo=0, hi=1).tasks < 72
    assert tasks_needed(a, a[::-1], detect=0.05, lo=0, hi=1, loss=1).tasks == 72


def test_degenerate_pilots_have_words():
    assert "at least two tasks" in tasks_needed([1], [0], detect=0.1).note
    assert tasks_needed([], [], detect=0.1).tasks is None
    assert "Declare the scale" in tasks_needed([1] * 9, [1] * 9, detect=0.1).note
    cautious = tasks_needed([1] * 9, [1] * 9, detect=0.1, lo=0, hi=1)
    assert "No spread" in cautious.note
    assert cautious.tasks > 9
    assert "NaN" in tasks_needed([math.nan, 1], [1, 1], detect=0.1).note
    assert (
        "that both sides have" in tasks_needed([1, 0], [1, 0], task_a=[1, 2], task_b=[3, 4], detect=0.1).note
    )
    assert tasks_needed([1, 0, 1, 0], [0, 1, 1, 0], detect=1e-9).tasks is None
    assert detectable([1], [0]).value is None
    with pytest.raises(ValueError, match="other than 0"):
        tasks_needed([1, 0], [0, 1], detect=0)


@given(st.floats(1e-4, 1), st.floats(0.01, 1), st.integers(1, 10))
def test_the_number_is_the_smallest_that_does(variance, detect, family):
    def is_enough(tasks):
        reach = float(t_quantile(1 - 0.025 / family, tasks - 1)) + float(t_quantile(0.8, tasks - 1))
        return reach <= detect * math.sqrt(tasks / variance)

    tasks = required_tasks(variance, detect, family=family)
    assert tasks >= 6
    assert is_enough(tasks)
    if tasks >= 44:
        assert not is_enough(tasks - 1)


def test_the_spread_that_was_not_seen_is_that_of_two_pseudo_tasks_at_the_ends_of_the_scale():
    """Differences of two runs lie between -(hi - lo) and hi - lo, values of one between lo and hi."""
    same = [2.0] * 6
    for parts, (low, high), value in (
        (variation(same, same, lo=1, hi=3), (-2.0, 2.0), 0.0),
        (variation([1.5] * 6, lo=1, hi=3), (1.0, 3.0), 1.5),
    ):
        with_ends = np.array([value] * 6 + [low, high])
        squares = np.var(with_ends, ddof=1) / len(with_ends)
        assert parts.observed == pytest.approx(squares * 6)
        assert (parts.between, parts.within, parts.tasks) == (None, None, 6)
