"""Which of many sequences is given up first when a line of values grows."""

from types import SimpleNamespace

from proctor.stats.drift import _sparsest


def test_the_sequence_whose_neighbors_are_closest_in_age_is_missed_least():
    def least(*starts: int) -> int:
        return _sparsest([SimpleNamespace(start=start) for start in starts], 30)

    assert least(0, 10, 19, 20) == 2
    assert least(0, 1, 2, 20) == 1
    assert least(0, 10, 20) == 1, "never the oldest"
