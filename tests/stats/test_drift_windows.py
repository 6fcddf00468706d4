"""Which of many sequences is given up first when a line of values grows."""

from types import SimpleNamespace

import pytest

from proctor.stats.drift import (
    MOST_OBSERVATIONS,
    DriftMonitor,
    DriftSettings,
    Window,
    _Sequence,
    _sparsest,
)
from proctor.stats.sequential import ConfidenceSequence


def test_the_sequence_whose_neighbors_are_closest_in_age_is_missed_least():
    def least(*starts: int) -> int:
        return _sparsest([SimpleNamespace(start=start) for start in starts], 30)

    assert least(0, 10, 19, 20) == 2
    assert least(0, 1, 2, 20) == 1
    assert least(0, 10, 20) == 1, "never the oldest"


@pytest.mark.parametrize(
    ("n", "candidates", "is_over"),
    [
        (MOST_OBSERVATIONS - 1, (0.2, 0.4), False),
        (MOST_OBSERVATIONS, (0.2, 0.4), True),
        (3, None, True),
        (MOST_OBSERVATIONS, None, True),
    ],
)
def test_a_sequence_is_over_with_enough_observations_or_when_no_mean_fits(n, candidates, is_over):
    inner = SimpleNamespace(n=n, candidates=lambda: candidates)
    assert _Sequence(inner, 0, 0.0).is_over is is_over


@pytest.mark.parametrize(
    ("candidates", "low", "high"),
    # A candidate stands for half a step of 0.02 on either side, on a scale from 1 to 5.
    [((0.21, 0.39), 1.8, 2.6), ((0.005, 0.995), 1.0, 5.0)],
)
def test_a_window_has_the_means_of_its_own_and_of_the_earlier_observations(candidates, low, high):
    inner = ConfidenceSequence(1.0, 5.0, step=0.02)
    sequence = _Sequence(inner, 4, 10.0)
    sequence.add([2.0, 3.0])
    sequence.add([4.0, 4.0, 5.0])
    inner.candidates = lambda: candidates

    window = sequence.window()

    assert (window.start, window.n, window.mean, window.mean_before) == (4, 5, pytest.approx(3.6), 2.5)
    assert (window.low, window.high) == pytest.approx((low, high))
    assert _Sequence(inner, 0, 0.0)._mean_before is None
    inner.candidates = lambda: None
    assert sequence.window() is None


def window(low, high, start=0, n=10, mean_before=None):
    return Window(start=start, n=n, mean=(low + high) / 2, mean_before=mean_before, low=low, high=high)


@pytest.mark.parametrize(
    ("low", "high", "margin", "direction"),
    [
        (window(0.7, 0.9), window(0.1, 0.5, start=20), 0.0, "down"),
        (window(0.7, 0.9, start=20), window(0.1, 0.5), 0.0, "up"),
        # Of two that start together, the one with more observations shows the mean of now.
        (window(0.7, 0.9), window(0.1, 0.5, n=11), 0.0, "down"),
        (window(0.7, 0.9, n=11), window(0.1, 0.5), 0.0, "up"),
        (window(0.75, 0.9), window(0.1, 0.5, start=20), 0.25, None),
        (window(0.75, 0.9), window(0.1, 0.5, start=20), 0.24, "down"),
        (window(0.5, 0.9), window(0.1, 0.5, start=20), 0.0, None),
        (None, window(0.1, 0.5), 0.0, None),
        (window(0.5, 0.9), None, 0.0, None),
    ],
)
def test_a_crossing_is_between_windows_whose_intervals_are_apart_by_more_than_the_margin(
    low, high, margin, direction
):
    monitor = DriftMonitor(DriftSettings(margin=margin), position=30)
    monitor._low_window, monitor._high_window = low, high
    monitor._low, monitor._high = low.low if low else 0.0, high.high if high else 1.0

    crossing = monitor._between_windows()

    assert (crossing and crossing.direction) == direction
    if crossing:
        before, after = (low, high) if direction == "down" else (high, low)
        assert (crossing.before, crossing.after, crossing.position) == (before, after, 30)


def test_the_mean_before_a_crossing_is_that_of_the_observations_before_the_later_window():
    monitor = DriftMonitor(DriftSettings())
    monitor._low_window, monitor._low = window(0.7, 0.9), 0.7
    monitor._high_window, monitor._high = window(0.1, 0.5, start=20, mean_before=0.77), 0.5
    assert monitor._between_windows().before.mean == 0.77


@pytest.mark.parametrize(
    ("outside", "low", "high", "direction", "then"),
    [
        # The reference is 0.5, the margin 0.1.
        (None, 0.1, 0.39, "down", "down"),
        (None, 0.1, 0.4, None, None),
        (None, 0.61, 0.9, "up", "up"),
        (None, 0.6, 0.9, None, None),
        # While it stays away, nothing is new; within the margin it is back.
        ("down", 0.1, 0.3, None, "down"),
        ("down", 0.41, 0.59, "up", None),
        ("down", 0.4, 0.59, None, "down"),
        ("down", 0.61, 0.9, "up", "up"),
        ("up", 0.7, 0.9, None, "up"),
        ("up", 0.41, 0.59, "down", None),
        ("up", 0.41, 0.6, None, "up"),
        ("up", 0.1, 0.3, "down", "down"),
    ],
)
def test_a_mean_crosses_its_reference_when_it_leaves_it_and_when_it_comes_back(
    outside, low, high, direction, then
):
    monitor = DriftMonitor(DriftSettings(reference=0.5, margin=0.1))
    monitor._outside = outside
    monitor._low_window = monitor._high_window = window(low, high)

    crossing = monitor._from_reference()

    assert (crossing and crossing.direction) == direction
    assert monitor._outside == then
    assert crossing is None or (crossing.before, crossing.after) == (None, window(low, high))


@pytest.mark.parametrize(
    ("latest", "side"),
    [(None, None), ((0.1, 0.39), "down"), ((0.1, 0.4), None), ((0.61, 0.9), "up"), ((0.6, 0.9), None)],
)
def test_a_monitor_goes_on_from_the_side_of_its_last_crossing(latest, side):
    assert DriftMonitor(DriftSettings(reference=0.5, margin=0.1), latest=latest)._outside == side
    assert DriftMonitor(DriftSettings(margin=0.1), latest=latest)._outside is None
