"""How items ended, counted from sums of the store."""

from proctor.item import STATUSES
from proctor.stats.outcomes import (
    AttemptCounts,
    Failure,
    MockUsage,
    ReasonCount,
    attempts,
    counts_of,
    failures,
    first_line,
    outcomes_of,
    stand_ins,
)


def test_items_are_counted_by_status_and_every_status_is_there():
    rows = [("success", "completed", 3), ("success", "", 2), ("fail", "loop", 1)]
    sums = [{"status": status, "reason": reason, "items": items} for status, reason, items in rows]
    assert counts_of(sums) == dict.fromkeys(STATUSES, 0) | {"success": 5, "fail": 1}


def test_reasons_are_listed_by_status_then_by_frequency_then_by_name():
    rows = [("error", "setup_failed", 9), ("fail", "b", 2), ("fail", "a", 2), ("fail", "c", 4)]
    rows += [("success", "completed", 1), ("fail", "b", 1), ("queued", "", 8)]
    sums = [{"status": status, "reason": reason, "items": items} for status, reason, items in rows]
    assert outcomes_of(sums) == (
        ReasonCount(status="success", reason="completed", items=1),
        ReasonCount(status="fail", reason="c", items=4),
        ReasonCount(status="fail", reason="b", items=3),
        ReasonCount(status="fail", reason="a", items=2),
        ReasonCount(status="error", reason="setup_failed", items=9),
    )


def test_sums_over_no_session_are_zero():
    sums = {"n": 7, "retried": 1, "work": 2.5, "waiting": 3.5, "interventions": 4, "noted": 5, "mocks": 6}
    assert attempts(sums) == AttemptCounts(
        sessions=7,
        retried_items=1,
        work_seconds=2.5,
        waiting_seconds=3.5,
        interventions=4,
        sessions_with_notes=5,
        by_stand_ins=6,
    )
    assert attempts(dict.fromkeys(sums) | {"n": 0}) == AttemptCounts(
        sessions=0,
        retried_items=0,
        work_seconds=0.0,
        waiting_seconds=0.0,
        interventions=0,
        sessions_with_notes=0,
        by_stand_ins=0,
    )


def test_a_failure_has_the_first_line_of_its_error_and_its_last_session():
    row = {"id": "i", "runId": "r", "repo": "p", "prompt": "q", "model": "m", "agent": "a"}
    row |= {"status": "fail", "reason": "loop", "error": "\n  it fell \nagain", "sessionId": None}
    one, two = failures([row, row | {"sessionId": "s"}])
    expected = {"item_id": "i", "run_id": "r", "repo": "p", "prompt": "q", "model": "m", "agent": "a"}
    assert one == Failure(**expected, status="fail", reason="loop", error="it fell", session_id="")
    assert two.session_id == "s"
    assert first_line(" \n") == ""


def test_mock_agents_are_listed_with_their_sessions():
    rows = [{"agent": "scripted", "model": "m", "n": 3}]
    assert stand_ins(rows) == (MockUsage(agent="scripted", model="m", sessions=3),)


def test_reasons_that_are_as_frequent_are_in_the_order_of_their_names():
    sums = [
        {"status": "fail", "reason": "wrong", "items": 2},
        {"status": "error", "reason": "lost", "items": 9},
        {"status": "fail", "reason": "checks", "items": 1},
        {"status": "fail", "reason": "late", "items": 3},
        {"status": "fail", "reason": "checks", "items": 1},
        {"status": "fail", "reason": "", "items": 7},
    ]
    listed = [(each.status, each.reason, each.items) for each in outcomes_of(sums)]
    expected = [("fail", "late", 3), ("fail", "checks", 2), ("fail", "wrong", 2), ("error", "lost", 9)]
    assert listed == expected
