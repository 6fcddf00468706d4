"""Thresholds of metrics: which level a value has reached, on whichever side the critical one lies."""

import pytest

from proctor.scenario.run_files import _level


@pytest.mark.parametrize(
    ("warning", "critical", "value", "level"),
    [
        (5, 8, 4.9, ""),
        (5, 8, 5, "warning"),
        (5, 8, 8, "critical"),
        (5, 2, 5.1, ""),
        (5, 2, 5, "warning"),
        (5, 2, 2, "critical"),
        (5, 5, 6, "critical"),
        (5, 5, 4, ""),
        (5, None, 5, "warning"),
        (None, 5, 5, "critical"),
        (None, None, 5, ""),
        (5, 8, "high", ""),
        (5, 8, None, ""),
    ],
)
def test_a_value_has_the_level_of_the_threshold_it_has_reached(warning, critical, value, level):
    assert _level(warning, critical, value) == level
