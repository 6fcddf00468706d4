"""Single results of an evaluation, with their reasons: those that give most reason to look.

Knows nothing of averages or of pages.
"""

import json
from dataclasses import dataclass

from proctor.analyse.evaluation import DONE, EvaluatorResult
from proctor.store import Reader

SHOWN = 10
SHOWN_ALIKE = 3
_REVERSED = {"ASC": "DESC", "DESC": "ASC"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTarget:
    """One result, with its reasons."""

    session: str
    """As its source calls it."""
    session_id: str
    target: str
    value: float | None
    label: str
    explanation: str
    error: str = ""


def worst_targets(read: Reader, run_id: str, result: EvaluatorResult) -> list[JudgedTarget]:
    """The results of an evaluator that give most reason to look, with their explanations.

    The best that were reached are none of them, unless all are alike: then a few stand for all.
    """
    order = "DESC" if result.high_is_bad else "ASC"
    found = _targets(read, run_id, result, f'sc."value" IS NOT NULL ORDER BY sc."value" {order}', SHOWN)
    best = _targets(read, run_id, result, f'sc."value" IS NOT NULL ORDER BY sc."value" {_REVERSED[order]}', 1)
    worse = [each for each in found if each.value != best[0].value]
    return worse or found[:SHOWN_ALIKE]


def failed_targets(read: Reader, run_id: str, result: EvaluatorResult) -> list[JudgedTarget]:
    """Results of an evaluator that could not be made, and why."""
    return _targets(read, run_id, result, 'sc."error" <> \'\' ORDER BY sc."error"', SHOWN)


def _targets(
    read: Reader, run_id: str, result: EvaluatorResult, which: str, limit: int
) -> list[JudgedTarget]:
    rows = read.query(
        'SELECT sc.*, i."details", j."externalId" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        'LEFT JOIN "sessions" j ON j."id" = sc."judgedSessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({DONE}) AND sc."evaluator" = ? '
        'AND sc."evaluatorDigest" = ? AND sc."dimension" = ? '
        f'AND {which}, i."position", sc."position" LIMIT ?',
        (run_id, result.evaluator, result.digest, result.dimension, limit),
    )
    return [
        JudgedTarget(
            # One that was deleted since is still known by its name.
            session=row["externalId"] or json.loads(row["details"]).get("session") or row["judgedSessionId"],
            session_id=row["judgedSessionId"],
            target=row["target"],
            value=row["value"],
            label=row["label"],
            explanation=row["explanation"],
            error=row["error"],
        )
        for row in read.whole(rows)
    ]
