"""What an evaluator promises.

The folder `evaluators/` holds those who keep it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proctor.score import Score
from proctor.session import Message, ModelCall, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an evaluator may look at: a session as it was recorded."""

    messages: Sequence[Message] = ()
    tool_calls: Sequence[ToolCall] = ()
    model_calls: Sequence[ModelCall] = field(default_factory=tuple)

    @property
    def answer(self) -> str:
        """The last thing the assistant said; empty when it said nothing."""
        said = (message.content for message in reversed(self.messages) if message.role == "assistant")
        return next(said, "")


class Evaluator(Protocol):
    """Someone who looks at a session and says how good it was."""

    async def judge(self, evidence: Evidence) -> Score:
        """Score the session. Raise only when the judging itself fails."""
