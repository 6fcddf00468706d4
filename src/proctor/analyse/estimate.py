"""What completed runs of a scenario have taken on average: calls, tokens and money.

Knows nothing of how a run is played or of prices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.analyse.intervals import Estimate, mean
from proctor.store import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """What completed runs of a scenario have taken."""

    runs: int
    calls: Estimate
    tokens: Estimate
    cost_usd: Estimate


def experience(read: Reader, scenario: str, models: Sequence[str] = ()) -> Experience:
    """Look up earlier runs of a scenario; with `models`, only those in which just these took part."""
    rows = read.query(
        'SELECT i."model", i."tokensTotal", i."costUsd", '
        '(SELECT SUM(s."modelCalls") FROM "sessions" s WHERE s."runId" = i."runId" AND s."itemId" = i."id") '
        'AS "calls" FROM "batch_items" i JOIN "batches" b ON b."runId" = i."runId" '
        'WHERE b."job" = ? AND i."status" = ? AND i."prompt" = ?',
        ("scenario", "success", scenario),
    )
    wanted = sorted(models)
    mine = [row for row in rows if not wanted or sorted(row["model"].split(", ")) == wanted]
    return Experience(
        runs=len(mine),
        calls=_estimate([float(row["calls"] or 0) for row in mine]),
        tokens=_estimate([float(row["tokensTotal"]) for row in mine]),
        cost_usd=_estimate([row["costUsd"] for row in mine if row["costUsd"] is not None]),
    )


def _estimate(values: Sequence[float]) -> Estimate:
    return mean(len(values), sum(values), sum(value * value for value in values))


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
