"""Services of an attempt for runners that a test calls itself."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proctor.runner import Services
from proctor.score import Score


class GivenScores:
    """An evaluator that gives these scores, or fails."""

    name, digest, level = "E", "d1", "session"

    def __init__(self, scores: list[Score] | Exception) -> None:
        self.scores = scores

    async def judge(self, evidence: object) -> list[Score]:
        if isinstance(self.scores, Exception):
            raise self.scores
        return self.scores


def plain_services(**given: Any) -> Services:
    """Services with nothing behind them but what the test gives."""
    usual = {
        "session_id": "s1",
        "attempt": 1,
        "home": Path("/nowhere"),
        "environment": {},
        **dict.fromkeys(("models", "access", "agent", "time_limit")),
        "record": lambda event: None,
        "score": lambda score: None,
        "now": lambda: datetime.now(UTC),
    }
    return Services(**{**usual, **given})
