"""How each model of a benchmark stands, cheaply enough to ask several times a second.

Knows nothing of how it is shown.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proctor.item import FINISHED, RUNNING, STATUSES
from proctor.store import Reader
from proctor.store.batches import moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One model, as it stands now."""

    model: str
    counts: Mapping[str, int]
    """Its runs by status; every status is there."""
    elapsed_seconds: float
    """Of its runs together, those under way among them."""
    tokens: int
    cost_usd: float | None
    """None: no price is known so far."""

    @property
    def state(self) -> str:
        """In a word or two: `running`, `success`, `2 of 5 · 1 fail`."""
        total = sum(self.counts.values())
        if total == 1:
            return next(status for status in STATUSES if self.counts[status])
        done = sum(self.counts[status] for status in FINISHED)
        parts = [f"{self.counts[status]} {status}" for status in (*FINISHED, RUNNING) if self.counts[status]]
        return " · ".join([f"{done} of {total}", *parts])


def standing(read: Reader, run_id: str, now: datetime) -> list[Standing]:
    """Every model of a benchmark, in the order in which they were named."""
    rows = read.query(
        'SELECT "factors", "status", "startedAt", "finishedAt", "tokensTotal", "costUsd", "sessionId" '
        'FROM "batch_items" WHERE "runId" = ? ORDER BY "position"',
        (run_id,),
    )
    so_far = _so_far(read, run_id)
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(json.loads(row["factors"])["model"], []).append(row)
    return [_standing(model, mine, so_far, now) for model, mine in grouped.items()]


def _so_far(read: Reader, run_id: str) -> dict[str, dict[str, Any]]:
    """What the sessions under way have used."""
    found = read.query(
        'SELECT c."sessionId" AS "id", SUM(c."promptTokens" + c."completionTokens") AS "tokens", '
        'SUM(c."costUsd") AS "cost" FROM "model_calls" c WHERE c."sessionId" IN '
        '(SELECT s."id" FROM "sessions" s WHERE s."runId" = ? AND s."status" = ?) GROUP BY c."sessionId"',
        (run_id, RUNNING),
    )
    return {row["id"]: row for row in found}


def _standing(
    model: str, rows: list[dict[str, Any]], so_far: Mapping[str, Mapping[str, Any]], now: datetime
) -> Standing:
    counts, elapsed, tokens, costs = dict.fromkeys(STATUSES, 0), 0.0, 0, list[float]()
    for row in rows:
        counts[row["status"]] += 1
        began = moment(row["startedAt"])
        ended = now if row["status"] == RUNNING else moment(row["finishedAt"])
        elapsed += (ended - began).total_seconds() if began and ended else 0.0
        current = so_far.get(row["sessionId"] or "", {})
        tokens += row["tokensTotal"] + (current.get("tokens") or 0)
        costs += [cost for cost in (row["costUsd"], current.get("cost")) if cost is not None]
    return Standing(
        model=model,
        counts=counts,
        elapsed_seconds=max(0.0, elapsed),
        tokens=tokens,
        cost_usd=sum(costs) if costs else None,
    )
