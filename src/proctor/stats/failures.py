"""What a reader should know before believing the figures: failures, stand-ins, retries, notes.

Knows nothing of rates, money or how results are shown.
"""

from dataclasses import dataclass

from proctor.item import ERROR, FAIL, TIMEOUT
from proctor.store.aggregates import Row, Selection

LISTED_FAILURES = 200


LISTED_STAND_INS = 100


# What an agent prints is long; a list of failures needs the first line of it.
SHOWN_CHARACTERS = 300


NOT_PASSED = (FAIL, TIMEOUT, ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An item that did not succeed."""

    item_id: str
    run_id: str
    repo: str
    prompt: str
    model: str
    agent: str
    status: str
    reason: str
    error: str
    """Its first line."""
    session_id: str
    """Of the last attempt; empty when there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MockUsage:
    """An agent or model that only rehearsed."""

    agent: str
    model: str
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCounts:
    """What the sessions amount to, whatever they came to."""

    sessions: int
    retried_items: int
    """Items that needed more than one attempt."""
    work_seconds: float
    waiting_seconds: float
    """Time held back by our own queue or a rate limit."""
    interventions: int
    """How often an agent stopped to ask a human."""
    sessions_with_notes: int
    by_stand_ins: int
    """Sessions in which a stand-in rehearsed."""


def failures(selection: Selection) -> tuple[Failure, ...]:
    """The first of the items that did not succeed, in the order of the plan."""
    text = ", ".join(
        f'SUBSTR(i."{name}", 1, {SHOWN_CHARACTERS}) AS "{name}"'
        for name in ("repo", "prompt", "model", "agent", "error")
    )
    statuses = ", ".join(f"'{status}'" for status in NOT_PASSED)
    found = selection.of_items(
        f'i."id" AS "id", i."runId" AS "runId", {text}, i."status" AS "status", i."reason" AS "reason", '
        'i."sessionId" AS "sessionId"',
        f'AND i."status" IN ({statuses}) ORDER BY i."runId", i."position" LIMIT {LISTED_FAILURES}',
    )
    return tuple(_failure(row) for row in found)


def _failure(row: Row) -> Failure:
    return Failure(
        item_id=row["id"],
        run_id=row["runId"],
        repo=row["repo"],
        prompt=row["prompt"],
        model=row["model"],
        agent=row["agent"],
        status=row["status"],
        reason=row["reason"],
        error=first_line(row["error"]),
        session_id=row["sessionId"] or "",
    )


def stand_ins(selection: Selection) -> tuple[MockUsage, ...]:
    """Who of those that worked was a stand-in, and how often."""
    found = selection.of_sessions(
        's."agent" AS "agent", s."model" AS "model", COUNT(*) AS "n"',
        f'AND s."standIn" = 1 GROUP BY s."agent", s."model" ORDER BY "n" DESC, 1, 2 LIMIT {LISTED_STAND_INS}',
    )
    return tuple(MockUsage(agent=row["agent"], model=row["model"], sessions=row["n"]) for row in found)


def attempts(selection: Selection) -> AttemptCounts:
    """Count the sessions, and what there is to say about them."""
    (found,) = selection.of_sessions(
        'COUNT(*) AS "n", SUM(s."workSeconds") AS "work", SUM(s."waitingSeconds") AS "waiting", '
        'SUM(s."interventions") AS "interventions", '
        'SUM(CASE WHEN s."notes" = \'[]\' THEN 0 ELSE 1 END) AS "noted", '
        # Attempts are numbered from 1, so each item that was retried has exactly one second attempt.
        'SUM(CASE WHEN s."attempt" = 2 THEN 1 ELSE 0 END) AS "retried", '
        'SUM(s."standIn") AS "rehearsed"'
    )
    return AttemptCounts(
        sessions=found["n"],
        retried_items=found["retried"] or 0,
        work_seconds=found["work"] or 0.0,
        waiting_seconds=found["waiting"] or 0.0,
        interventions=found["interventions"] or 0,
        sessions_with_notes=found["noted"] or 0,
        by_stand_ins=found["rehearsed"] or 0,
    )


def first_line(text: str) -> str:
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
