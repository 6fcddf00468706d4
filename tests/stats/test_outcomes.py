"""How items ended, counted from sums of the store."""

from proctor.stats.outcomes import (
    Failure,
    ReasonCount,
    failures,
    first_line,
    outcomes_of,
)


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


def test_a_failure_has_the_first_line_of_its_error_and_its_last_session():
    row = {"id": "i", "runId": "r", "repo": "p", "prompt": "q", "model": "m", "agent": "a"}
    row |= {"status": "fail", "reason": "loop", "error": "\n  it fell \nagain", "sessionId": None}
    one, two = failures([row, row | {"sessionId": "s"}])
    expected = {"item_id": "i", "run_id": "r", "repo": "p", "prompt": "q", "model": "m", "agent": "a"}
    assert one == Failure(**expected, status="fail", reason="loop", error="it fell", session_id="")
    assert two.session_id == "s"
    assert first_line(" \n") == ""
