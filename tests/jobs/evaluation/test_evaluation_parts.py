"""Parts of evaluations on their own: periods, and summaries of evaluators without a value."""

from datetime import UTC, datetime

import pytest

from proctor.jobs.evaluation.recommendation import _is_within
from proctor.store.session_selection import Period

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stamp", "start", "end", "within"),
    [
        ("2026-01-01T00:00:00Z", EARLY, LATE, True),
        ("2025-12-31T23:59:59Z", EARLY, LATE, False),
        ("2026-01-01T23:59:59Z", EARLY, LATE, True),
        ("2026-01-02T00:00:00Z", EARLY, LATE, False),
        ("2025-01-01T00:00:00Z", None, LATE, True),
        ("2027-01-01T00:00:00Z", None, LATE, False),
        ("2027-01-01T00:00:00Z", EARLY, None, True),
        ("2025-01-01T00:00:00Z", EARLY, None, False),
        (None, EARLY, LATE, False),
    ],
)
def test_a_period_begins_with_its_start_and_ends_before_its_end(stamp, start, end, within):
    assert _is_within(stamp, Period(start=start, end=end)) is within


def test_without_a_period_every_time_counts():
    assert _is_within(None, None) and _is_within("2026-01-01T00:00:00Z", None)
