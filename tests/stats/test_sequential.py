"""Intervals that stay valid while a run is watched, and goals that are decided by them."""

import json
import math
import random

import numpy as np
import pytest

from proctor.errors import UsageError
from proctor.stats.sequential import (
    ConfidenceSequence,
    DifferenceGoal,
    LogConfidenceSequence,
    Monitor,
    RankGoal,
    WidthGoal,
    hedged,
    log_wealths,
    stakes_of,
)

OUTCOMES = [int(digit) for digit in "11011101111101111110"]


def wealth(x, v, alpha):
    """Log wealth against one candidate mean after each observation of each run (rows)."""
    return np.array([hedged(log_wealths(row, np.array([v]), stakes_of(row, alpha)))[:, 0] for row in x])


def looks(wealths, alpha, every=5):
    """Whether each run excludes the candidate at any look up to its end."""
    return (wealths[:, every - 1 :: every] >= -math.log(alpha)).any(axis=1)


def beta_success(rng, runs, tasks, repeats, mean, icc):
    """Success rates of tasks with repeats at an intra-class correlation."""
    scale = 1 / icc - 1
    p = rng.beta(mean * scale, (1 - mean) * scale, (runs, tasks))
    return rng.binomial(repeats, p) / repeats


def test_the_sequence_is_that_of_the_reference():
    """Computed with an independent script: candidates 0.0005 + 0.001 j, alpha 0.05."""
    sequence = ConfidenceSequence(0, 1, 0.05).add(*OUTCOMES)

    assert sequence.candidates() == (0.5355, 0.9845)
    assert wealth([np.array(OUTCOMES, float)], 0.5, 0.05)[0, -1] == pytest.approx(3.033777, abs=1e-6)
    interval = sequence.interval()
    assert (interval.low, interval.high, interval.value, interval.n) == (0.535, 0.985, 0.8, 20)


def test_one_by_one_and_at_once_give_the_same_interval_and_so_does_a_restored_state():
    one, many = ConfidenceSequence(), ConfidenceSequence().add(*OUTCOMES * 20)
    for value in OUTCOMES * 20:
        one.add(value)

    restored = ConfidenceSequence.from_state(json.loads(json.dumps(many.state())))

    assert one.interval() == many.interval() == restored.interval()
    assert one.add(1).interval() == restored.add(1).interval()


def test_the_interval_lies_on_the_scale_and_only_shrinks():
    scores, sequence = [5, 4, 5, 5, 3, 5, 4, 5] * 10, ConfidenceSequence(1, 5)
    before = sequence.interval()
    assert (before.value, before.low, before.high) == (None, 1, 5)
    assert before.note == "No task has finished."

    for score in scores:
        now = sequence.add(score).interval()
        assert before.low <= now.low < now.high <= before.high
        before = now

    assert 1 < before.low < 4.5 < before.high < 5


def test_observations_that_no_mean_explains_give_words():
    interval = ConfidenceSequence().add(*[0.0] * 300, *[1.0] * 3000).interval()

    assert (interval.low, interval.high) == (None, None)
    assert "order is not random" in interval.note


@pytest.mark.parametrize(
    ("kind", "most"), [("half", 0.04), ("rare failure", 0.03), ("repeats", 0.035), ("ceiling", 0.02)]
)
def test_looking_every_five_tasks_excludes_the_truth_in_less_than_a_twentieth_of_runs(kind, most):
    """2,000 runs of 100 tasks. A t interval looked at as often fails in 24 to 67 % of them."""
    rng, runs, tasks = np.random.default_rng(9), 2000, 100
    x, truth = {
        "half": lambda: (rng.binomial(1, 0.5, (runs, tasks)), 0.5),
        "rare failure": lambda: (rng.binomial(1, 0.9, (runs, tasks)), 0.9),
        "repeats": lambda: (beta_success(rng, runs, tasks, 3, 0.5, 0.5), 0.5),
        "ceiling": lambda: (
            rng.choice([0, 1 / 3, 2 / 3, 1], (runs, tasks), p=[0.02, 0.03, 0.05, 0.9]),
            0.03 / 3 + 0.05 * 2 / 3 + 0.9,
        ),
    }[kind]()

    excluded = looks(wealth(x.astype(float), truth, 0.05), 0.05).mean()

    assert excluded <= most


def test_ratios_have_an_approximate_interval_from_thirty_tasks_on():
    """1,000 runs of 200 lognormal ratios looked at after every task from the 30th on."""
    rng, missed = np.random.default_rng(5), 0
    for row in rng.normal(0.2, 1.0, (1000, 200)):
        interval = LogConfidenceSequence(0.05).add(*row).interval()
        missed += interval.low is None or not interval.low <= math.exp(0.2) <= interval.high

    assert missed / 1000 <= 0.05
    early = LogConfidenceSequence().add(*[0.1, 0.3] * 14).interval()
    assert (early.low, early.needs, early.note) == (None, 30, "No interval before 30 tasks.")
    assert early.value == pytest.approx(math.exp(0.2))
    late = LogConfidenceSequence().add(*[0.1, 0.3] * 50)
    assert "approximate" in late.interval().method and late.interval().low > 1
    assert (
        LogConfidenceSequence.from_state(json.loads(json.dumps(late.state()))).interval() == late.interval()
    )
    assert "equal" in LogConfidenceSequence().add(*[0.1] * 40).interval().note


def feed(monitor, cell, values):
    for position, repeats in enumerate(values):
        monitor.add(cell, position, repeats)


def test_a_difference_is_decided_once_the_valid_interval_excludes_zero():
    monitor = Monitor([DifferenceGoal(baseline="old", candidate="new")])
    rng = np.random.default_rng(1)
    (open_,) = monitor.decisions()
    assert (open_.outcome, open_.undecided) == ("open", ("old", "new"))

    for position in range(60):
        monitor.add("old", position, list(rng.binomial(1, 0.3, 3).astype(float)))
        monitor.add("new", position, list(rng.binomial(1, 0.8, 3).astype(float)))

    (decision,) = monitor.decisions()
    assert decision.outcome == "better" and decision.is_decided and monitor.undecided() == []
    interval = monitor.estimate("old", "new")
    assert 0 < interval.low < 0.5 < interval.high and interval.n == 60
    back = monitor.estimate("new", "old")
    assert (back.low, back.high) == (-interval.high, -interval.low)


def test_a_result_counts_once_all_earlier_tasks_of_its_cell_have_finished():
    monitor = Monitor([WidthGoal(cell="a", width=0.2)])

    monitor.add("a", 1, [1.0])
    monitor.add("a", 2, [1.0])
    assert monitor.finished("a") == 0 and monitor.estimate("a").n == 0
    monitor.add("a", 0, [0.0])

    assert monitor.finished("a") == 3 and monitor.estimate("a").value == pytest.approx(2 / 3)
    with pytest.raises(UsageError, match="task 1 of a was already added"):
        monitor.add("a", 1, [1.0])
    with pytest.raises(UsageError, match="no goal is about b"):
        monitor.add("b", 0, [1.0])


def test_errors_that_would_change_the_answer_leave_it_open():
    monitor = Monitor([DifferenceGoal(baseline="old", candidate="new")])
    feed(monitor, "old", [[float(n % 2)] for n in range(80)])
    feed(monitor, "new", [[1.0] if n % 2 else [None] for n in range(80)])

    (decision,) = monitor.decisions()

    # Without its errors the candidate shows no loss; with them as failures it equals the baseline.
    assert decision.outcome == "open"
    assert monitor.estimate("old", "new").left_out == 40
    assert monitor.estimate("old", "new", errors_fail=True).value == 0
    assert monitor.estimate("new").value == 1
    assert monitor.estimate("new", errors_fail=True).value == 0.5
    clear = Monitor([DifferenceGoal(baseline="old", candidate="new")])
    feed(clear, "old", [[0.5, 0.5] for _ in range(80)])
    feed(clear, "new", [[1.0, None] for _ in range(80)])
    assert clear.decisions()[0].outcome == "open"
    assert clear.decisions()[0].reason.endswith("errors decide it")


@pytest.mark.parametrize(
    ("factor", "noise", "higher_is_better", "outcome"),
    [
        (0.5, 0.2, False, "better"),
        (2.0, 0.2, False, "worse"),
        (1.02, 0.2, False, "within margin"),
        # A margin of a fifth ends at 1.2, and at 1 / 1.2 where more is better.
        (1.18, 0.02, False, "within margin"),
        (1.22, 0.02, False, "worse"),
        (2.0, 0.2, True, "better"),
        (0.85, 0.02, True, "within margin"),
        (0.815, 0.02, True, "worse"),
    ],
)
def test_amounts_are_compared_as_ratios_of_which_less_or_more_is_better(
    factor, noise, higher_is_better, outcome
):
    goal = DifferenceGoal(baseline="old", candidate="new", margin=0.2)
    monitor = Monitor([goal], ratio=True, higher_is_better=higher_is_better)
    rng = np.random.default_rng(2)
    for position, cost in enumerate(rng.lognormal(0, 1, 120)):
        monitor.add("old", position, [cost])
        monitor.add("new", position, [cost * factor * math.exp(rng.normal(0, noise))])

    assert monitor.decisions()[0].outcome == outcome
    assert monitor.estimate("old", "new").value == pytest.approx(factor, rel=0.1)
    with pytest.raises(UsageError, match="no positive amount"):
        monitor.add("old", 200, [0.0])


def test_ranks_settle_the_first_place_before_all_of_them():
    rates = {"a": 0.9, "b": 0.3, "c": 0.3}
    top = Monitor([RankGoal(cells=tuple(rates), places=1)])
    every = Monitor([RankGoal(cells=tuple(rates))])
    rng = np.random.default_rng(6)
    for position in range(120):
        for cell, rate in rates.items():
            repeats = list(rng.binomial(1, rate, 2).astype(float))
            top.add(cell, position, repeats)
            every.add(cell, position, repeats)

    assert top.decisions()[0].outcome == "settled" and top.decisions()[0].reason == "the order is a"
    (decision,) = every.decisions()
    assert decision.outcome == "open" and set(every.undecided()) == {"b", "c"}
    assert every.ranks() == {"a": (1, 1), "b": (2, 3), "c": (2, 3)}


def test_each_of_several_goals_has_its_share_of_the_error_rate_and_one_pair_only_one():
    pair = DifferenceGoal(baseline="a", candidate="b")
    monitor = Monitor([pair, RankGoal(cells=("b", "a", "c")), WidthGoal(cell="a", width=0.1)])

    # Three pairs and one cell.
    assert monitor.estimate("a", "b").level == monitor.estimate("a").level == pytest.approx(1 - 0.05 / 4)
    assert monitor.estimate("b").level == 0.95


def test_many_tasks_between_two_looks_give_the_intervals_of_one_at_a_time():
    goal = DifferenceGoal(baseline="old", candidate="new")
    rng = random.Random(4)
    rows = [(float(rng.random() < 0.4), None if n == 50 else float(rng.random() < 0.6)) for n in range(600)]
    together, single = Monitor([goal]), Monitor([goal])
    for position, (old, new) in enumerate(rows):
        for monitor in (together, single):
            monitor.add("old", position, [old])
            monitor.add("new", position, [new])
        single.decisions()
    for errors_fail in (False, True):
        one = together.estimate("old", "new", errors_fail=errors_fail)
        other = single.estimate("old", "new", errors_fail=errors_fail)
        assert (one.n, one.value) == (other.n, pytest.approx(other.value))
        assert (one.low, one.high) == (other.low, other.high)
