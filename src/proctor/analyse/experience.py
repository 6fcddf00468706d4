"""What completed runs of a scenario have taken on average: calls, tokens and money.

Knows nothing of how a run is played or of prices.
"""

from dataclasses import dataclass

from proctor.analyse.intervals import Estimate, mean_of
from proctor.item import SUCCESS
from proctor.store import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What completed runs of a scenario have taken."""

    runs: int
    calls: Estimate
    tokens: Estimate
    cost_usd: Estimate


def experience(read: Reader, scenario: str) -> Experience:
    """Look up what earlier runs of a scenario took, to say what further ones may take."""
    rows = read.query(
        'SELECT i."tokensTotal", i."costUsd", '
        '(SELECT SUM(s."modelCalls") FROM "sessions" s WHERE s."runId" = i."runId" AND s."itemId" = i."id") '
        'AS "calls" FROM "batch_items" i JOIN "batches" b ON b."runId" = i."runId" '
        'WHERE b."job" = ? AND i."status" = ? AND i."prompt" = ?',
        ("scenario", SUCCESS, scenario),
    )
    return Experience(
        runs=len(rows),
        calls=mean_of([float(row["calls"] or 0) for row in rows]),
        tokens=mean_of([float(row["tokensTotal"]) for row in rows]),
        cost_usd=mean_of([row["costUsd"] for row in rows if row["costUsd"] is not None]),
    )


def as_document(found: Experience) -> dict[str, object]:
    """Earlier runs as JSON."""
    figures = {"calls": found.calls, "tokens": found.tokens, "cost_usd": found.cost_usd}
    return {
        "runs": found.runs,
        **{
            name: {"mean": one.value, "low": one.low, "high": one.high, "n": one.n}
            for name, one in figures.items()
        },
    }
