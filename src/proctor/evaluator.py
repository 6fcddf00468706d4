"""What an evaluator promises, and what it is given to look at.

The folder `evaluators/` holds those who keep it. Evidence is the same for a session of our own and
for one that another tool recorded: turns, what was done in them, and what was expected of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from proctor.model import Model
from proctor.score import Level, Score
from proctor.session import Message, ModelCall, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One turn of a session: what was asked, what was done, what was answered."""

    id: str
    """The trace id of the source, or `turn-1`, `turn-2`, … where it had none."""
    prompt: str = ""
    answer: str = ""
    """The last thing the assistant said in this turn; empty when it said nothing."""
    tool_calls: Sequence[ToolCall] = ()
    messages: Sequence[Message] = ()
    happened: Sequence[Message | ToolCall] = ()
    """All that was said and done in this turn, in its order. Empty: only the parts above are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What was expected of a session: its ground truth."""

    assertions: Sequence[str] = ()
    trajectory: Sequence[str] | None = None
    """The tools that should be called, in order. None: nobody said; empty: none should be."""
    responses: Mapping[int, str] = field(default_factory=dict)
    """The expected answer of a turn, by its number from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What an evaluator may look at: a session as it was recorded."""

    messages: Sequence[Message] = ()
    tool_calls: Sequence[ToolCall] = ()
    model_calls: Sequence[ModelCall] = field(default_factory=tuple)
    session_id: str = ""
    """The id its source gave it, which is what results name."""
    traces: Sequence[Trace] = ()
    """The turns, oldest first."""
    targets: frozenset[str] = frozenset()
    """Judge only these traces or tool calls, by id. Empty: all."""
    system_prompt: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    """What the agent could have used: `name`, `description`, `parameters`."""
    reference: Reference | None = None
    """None: judged without ground truth."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What else is known: service, model, role, whatever the source said."""

    @property
    def answer(self) -> str:
        """The last thing the assistant said; empty when it said nothing."""
        said = (message.content for message in reversed(self.messages) if message.role == "assistant")
        return next(said, "")


class Evaluator(Protocol):
    """Someone who looks at a session and says how good it was."""

    @property
    def name(self) -> str:
        """What scores, reports and plans call it."""

    @property
    def level(self) -> Level:
        """What one score is about: the session, one of its turns, or one tool call."""

    @property
    def digest(self) -> str:
        """Scores of different digests are not comparable: changes with instructions, scale and judge."""

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """A score for each target at its level, and each dimension of its scale.

        A target that cannot be judged is a score with an `error`. Raise only when nothing can be.
        """


# What attempts stand on, and what those who watch are told of them.


FindEvaluator = Callable[[str, Mapping[str, Any], Model], Evaluator]
"""Finds an evaluator by name for one attempt, whose models it asks; settings say which, and how."""

FindReference = Callable[[str, str], Reference | None]
"""Ground truth of a session by its external id and its scenario; None: there is none."""
