"""Parts of evaluations on their own: periods, and summaries of evaluators without a value."""

from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from proctor.jobs.evaluation.recommendation import _is_within
from proctor.jobs.evaluation.results import evaluator_summary
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


@dataclass
class Average:
    value: float | None


@pytest.mark.parametrize(("value", "statistics"), [(0.0, {"averageScore": 0.0}), (None, {})])
def test_a_summary_has_an_average_where_there_is_one(value, statistics):
    names = ("asked_as", "evaluated", "failed", "evaluator", "digest", "level", "if_failures_were_zero")
    names = (*names, "sessions", "wavering", "noise_from", "cost_usd", "dimension", "corrected")
    result = SimpleNamespace(**dict.fromkeys(names), average=Average(value), labels={"Yes": 2})
    result.input_tokens, result.output_tokens = 3, 4

    summary = evaluator_summary(result)

    assert summary["statistics"] == statistics and "evaluationDimensionName" not in summary
    assert summary["tokenUsage"] == {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
    assert (summary["interval"], summary["corrected"], summary["labels"]) == (
        {"value": value},
        None,
        {"Yes": 2},
    )
    result.dimension, result.corrected = "tone", Average(1.0)
    summary = evaluator_summary(result)
    assert (summary["evaluationDimensionName"], summary["corrected"]) == ("tone", {"value": 1.0})
