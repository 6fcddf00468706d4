"""A change of the mean is found whenever one looks, and without a change hardly ever."""

import numpy as np
import pytest

from proctor.stats.drift import BLOCK, DriftMonitor, DriftSettings


def first_crossing(monitor, values, *, chunk=BLOCK):
    """The first crossing of a series, and the number of observations up to it."""
    for start in range(0, len(values), chunk):
        if crossing := monitor.add(values[start : start + chunk]):
            return crossing
    return None


def rates(rng, *parts):
    """Zeros and ones: for each part, a rate and a number of observations."""
    return [float(hit) for rate, count in parts for hit in rng.random(count) < rate]


def test_a_line_is_hardly_ever_crossed_while_nothing_changes():
    rng, alpha, series = np.random.default_rng(7), 0.2, 15
    crossed = sum(
        first_crossing(DriftMonitor(DriftSettings(alpha=alpha)), rates(rng, (rate, 300))) is not None
        for rate in (0.5, 0.8, 0.95)
        for _ in range(series // 3)
    )
    # Looked at after each 25 observations, and the sequences count each observation as a look.
    assert crossed <= alpha * series


def test_a_fall_is_found_soon_after_it_and_not_before():
    rng = np.random.default_rng(8)
    delays = []
    for _ in range(6):
        crossing = first_crossing(DriftMonitor(DriftSettings()), rates(rng, (0.9, 300), (0.5, 300)))
        assert (crossing.direction, crossing.after.mean < 0.75 < crossing.before.mean) == ("down", True)
        assert crossing.after.high < crossing.before.low
        delays.append(crossing.position - 300)
    assert min(delays) > 0 and sorted(delays)[3] <= 125


def test_a_rise_is_found_also_on_another_scale_and_after_a_long_time():
    rng = np.random.default_rng(9)
    values = [1 + 4 * value for value in rates(rng, (0.3, 1500), (0.9, 100))]
    monitor = DriftMonitor(DriftSettings(lo=1, hi=5))

    crossing = first_crossing(monitor, values)

    assert crossing.direction == "up" and 1500 < crossing.position <= 1600
    assert crossing.after.mean > 3.5 and crossing.before.mean == pytest.approx(2.2, abs=0.2)
    assert crossing.after.n < 200, "a sequence that started near the change found it"


def test_the_result_does_not_depend_on_when_one_looks():
    values = rates(np.random.default_rng(10), (0.8, 210))
    monitors = [DriftMonitor(DriftSettings()) for _ in range(3)]
    for monitor, chunk in zip(monitors, (1, 7, 210), strict=True):
        first_crossing(monitor, values, chunk=chunk)

    assert {monitor.interval() for monitor in monitors} == {monitors[0].interval()}
    assert [point.position for point in monitors[0].points] == list(range(25, 201, 25))
    assert monitors[0].points == monitors[1].points
    # In one piece, the bounds after 25 are still those after 25.
    assert monitors[2].points == monitors[0].points


def test_a_margin_leaves_small_changes_out_and_a_reference_takes_the_place_of_the_past():
    values = rates(np.random.default_rng(11), (0.9, 400), (0.7, 600))
    assert first_crossing(DriftMonitor(DriftSettings()), values).direction == "down"
    assert first_crossing(DriftMonitor(DriftSettings(margin=0.3)), values) is None

    low = first_crossing(DriftMonitor(DriftSettings(reference=0.95, margin=0.02)), [0.8, 0.9, 0.7] * 100)
    assert (low.direction, low.before) == ("down", None)
    high = first_crossing(DriftMonitor(DriftSettings(reference=0.5)), [0.8, 0.9, 0.7] * 100)
    assert high.direction == "up"
    assert first_crossing(DriftMonitor(DriftSettings(reference=0.8)), [0.8, 0.9, 0.7] * 100) is None


def test_a_mean_that_stays_away_from_its_reference_is_reported_once_and_again_when_it_is_back():
    settings = DriftSettings(reference=0.9, margin=0.1)
    values = [0.5, 0.4, 0.6] * 100 + [0.9, 1.0, 0.9] * 100 + [0.5, 0.4, 0.6] * 40
    monitor, crossings = DriftMonitor(settings), []
    for start in range(0, len(values), 20):
        if crossing := monitor.add(values[start : start + 20]):
            crossings.append(crossing)
            # A program that starts anew goes on in the same way.
            after = crossing.after
            monitor = DriftMonitor(settings, position=crossing.position, latest=(after.low, after.high))

    assert [each.direction for each in crossings] == ["down", "up", "down"]
    assert [each.position // 300 for each in crossings] == [0, 1, 2]


def test_scores_outside_of_the_scale_count_as_its_ends():
    monitor = DriftMonitor(DriftSettings())
    monitor.add([2.0, -1.0, 0.5])
    assert (monitor.clipped, monitor.position) == (2, 3)
