"""The score of a session by one evaluator."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from proctor.frozen import fast_init

Level = Literal["session", "trace", "tool_call"]
LEVELS: Mapping[str, Level] = {"session": "session", "trace": "trace", "tool_call": "tool_call"}
"""The levels by name."""

CHECK, EXPECT = "check: ", "expect."
"""How the names of scores begin that say whether a command, and what an item expects, passed."""
LARGEST = 1e150
"""Values beyond it are not usable: their squares overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """What one of several judges said about a target, and at what cost."""

    model: str
    label: str = ""
    """Empty, without a value: its verdict could not be read."""
    value: float | None = None
    cost_usd: float | None = None
    """Of all dimensions, at the first one. None: no price is known, or another dimension."""
    confidence: float | None = None
    """Of the first judge of two, between 0 and 1. None: nobody asked for it."""
    because: tuple[str, ...] = ()
    """Why the second judge of two was asked: `unsure`, `sample`, or both."""


UNSURE, SAMPLE = "unsure", "sample"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One score: a number, a label, or the error that prevented it."""

    evaluator: str
    value: float | None = None
    """A check is 1 or 0. None: a label only, or an error."""
    label: str = ""
    explanation: str = ""
    level: Level = "session"
    target: str = ""
    """The trace or tool call, below the session level."""
    evaluator_digest: str = ""
    """Scores of different digests are not comparable."""
    error: str = ""
    cost_usd: float | None = None
    dimension: str = ""
    """The dimension of a scale with several; empty for a plain scale."""
    error_code: str = ""
    """Machine-readable name of the error: `ThrottlingException`, `NO_SPANS`."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Tokens of the judge."""
    ignored: tuple[str, ...] = ()
    """Unused ground truth: `assertions`, `expectedTrajectory`, `expectedResponse`."""
    judged_session: str = ""
    """The scored session, by our id. Empty: the one it is recorded with."""
    votes: tuple[float | str, ...] = ()
    """Value of each of several votes, or its label on a categorical scale."""
    ballots: tuple[Ballot, ...] = ()
    """Of each of several judges. Empty: there is one judge."""

    def __post_init__(self) -> None:
        """A value that cannot be computed with is an error."""
        if self.value is not None and not abs(self.value) <= LARGEST:
            is_number = self.value == self.value
            problem = "the value is beyond 1e150" if is_number else "the value is NaN"
            object.__setattr__(self, "value", None)
            object.__setattr__(self, "error", self.error or f"{problem}: no usable number")
