"""Scores: results of evaluators."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["session", "trace", "tool_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One result of an evaluator: a number, a label, or the error that prevented it."""

    evaluator: str
    value: float | None = None
    """A check is 1 or 0. None: a label alone, or an error."""
    label: str = ""
    explanation: str = ""
    level: Level = "session"
    target: str = ""
    """Which trace or tool call, below the session level."""
    evaluator_digest: str = ""
    """Scores of different digests are not comparable."""
    error: str = ""
    cost_usd: float | None = None
    dimension: str = ""
    """Which part of a scale with several dimensions; empty for a plain scale."""
    error_code: str = ""
    """A machine-readable name of the error: `ThrottlingException`, `NO_SPANS`."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Tokens of the judge."""
    ignored: tuple[str, ...] = ()
    """Ground truth that was given and not used: `assertions`, `expectedTrajectory`, `expectedResponse`."""
    judged_session: str = ""
    """The session this is about, by our id. Empty: the one it is recorded with."""
    votes: tuple[float | str, ...] = ()
    """The value of each vote, or its label where labels have no value."""
