"""How items ended: by status and reason, failures, attempts, and mock agents and models."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from proctor.item import STATUSES
from proctor.store.aggregates import FailedItem, MockSessions, OutcomeSums, SessionSums


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
    """A mock agent or model."""

    agent: str
    model: str
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCounts:
    """All sessions, whatever their result."""

    sessions: int
    retried_items: int
    """Items that needed more than one attempt."""
    work_seconds: float
    waiting_seconds: float
    """Time queued or paused for a rate limit."""
    interventions: int
    """How often an agent stopped to ask a human."""
    sessions_with_notes: int
    by_stand_ins: int
    """Sessions of mock agents or models."""


def failures(rows: Iterable[FailedItem]) -> tuple[Failure, ...]:
    """The items that did not succeed, in the order of the plan."""
    return tuple(_failure(row) for row in rows)


def _failure(row: FailedItem) -> Failure:
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


def stand_ins(rows: Iterable[MockSessions]) -> tuple[MockUsage, ...]:
    """The mock agents and models, and how many sessions each had."""
    return tuple(MockUsage(agent=row["agent"], model=row["model"], sessions=row["n"]) for row in rows)


def attempts(sums: SessionSums) -> AttemptCounts:
    """The number of sessions, retries, notes and interventions, and their time."""
    return AttemptCounts(
        sessions=sums["n"],
        retried_items=sums["retried"] or 0,
        work_seconds=sums["work"] or 0.0,
        waiting_seconds=sums["waiting"] or 0.0,
        interventions=sums["interventions"] or 0,
        sessions_with_notes=sums["noted"] or 0,
        by_stand_ins=sums["mocks"] or 0,
    )


def first_line(text: str) -> str:
    """The first non-empty line."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """The items with one status and reason."""

    status: str
    reason: str
    items: int


def counts_of(sums: Iterable[OutcomeSums]) -> dict[str, int]:
    """The items by status; every status is there."""
    counts = dict.fromkeys(STATUSES, 0)
    for row in sums:
        counts[row["status"]] += row["items"]
    return counts


def outcomes_of(sums: Iterable[OutcomeSums]) -> tuple[ReasonCount, ...]:
    """The items by status and reason, as far as they have one: best status first, then the most frequent."""
    counted: Counter[tuple[str, str]] = Counter()
    for row in sums:
        if row["reason"]:
            counted[row["status"], row["reason"]] += row["items"]
    ordered = sorted(counted.items(), key=lambda entry: (STATUSES.index(entry[0][0]), -entry[1], entry[0]))
    return tuple(ReasonCount(status=status, reason=reason, items=n) for (status, reason), n in ordered)
