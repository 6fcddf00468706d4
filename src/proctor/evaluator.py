"""The contract of evaluators, and their view of a session. Implementations are in `evaluators/`.

`Session` is the record of a session; `Evidence` is what an evaluator sees of it: turns instead of steps, with
the targets to score and the ground truth. Evaluators of users receive it, so its members are public.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from warnings import warn

from proctor.errors import CONTEXT_OVERFLOW, AttemptError
from proctor.json_values import JsonMap
from proctor.model import Model
from proctor.sandbox import Sandbox
from proctor.score import Level, Score
from proctor.session import Message, ModelCall, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One turn of a session for evaluators: prompt, actions, answer."""

    id: str
    """The trace id of the source, or `turn-1`, `turn-2`, … where it has none."""
    prompt: str = ""
    answer: str = ""
    """The assistant's last message in this turn; empty when there is none."""
    tool_calls: Sequence[ToolCall] = ()
    messages: Sequence[Message] = ()
    events: Sequence[Message | ToolCall] = ()
    """All messages and tool calls of this turn in order. Empty: only the fields above are known."""

    @property
    def happened(self) -> Sequence[Message | ToolCall]:
        """Deprecated: `events`."""
        warn("Trace.happened is now Trace.events", DeprecationWarning, stacklevel=2)
        return self.events


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Ground truth of a session."""

    assertions: Sequence[str] = ()
    trajectory: Sequence[str] | None = None
    """Expected tool calls, in order. None: not specified; empty: none expected."""
    responses: Mapping[int, str] = field(default_factory=dict)
    """Expected answer by turn number, from 0."""
    arguments: Mapping[int, tuple[str, JsonMap]] = field(default_factory=dict)
    """Expected arguments by position in the trajectory, with how they are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The view of a session for evaluators, the same for Proctor's own and for imported sessions."""

    messages: Sequence[Message] = ()
    tool_calls: Sequence[ToolCall] = ()
    model_calls: Sequence[ModelCall] = field(default_factory=tuple)
    session_id: str = ""
    """The id of the source, which results refer to."""
    traces: Sequence[Trace] = ()
    """The turns, oldest first."""
    targets: frozenset[str] = frozenset()
    """Score only these traces or tool calls, by id. Empty: all."""
    system_prompt: str = ""
    tools: Sequence[JsonMap] = ()
    """Tools available to the agent: `name`, `description`, `parameters`."""
    reference: Reference | None = None
    """Ground truth; None: there is none."""
    attributes: JsonMap = field(default_factory=dict)
    """Further properties of the session: service, model, role, …."""
    compared_with: "Evidence | None" = None
    """The session of the same task that it is compared with; None: it is scored alone."""

    @property
    def answer(self) -> str:
        """The assistant's last message; empty when there is none."""
        answers = (message.content for message in reversed(self.messages) if message.role == "assistant")
        return next(answers, "")


class Evaluator(Protocol):
    """Scores a session."""

    @property
    def name(self) -> str:
        """Its name in scores, reports and plans."""

    @property
    def level(self) -> Level:
        """What one score is about: the session, one of its turns, or one tool call."""

    @property
    def digest(self) -> str:
        """Changes with instructions, scale and judge: scores of different digests are not comparable."""

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """A score for each target of its level and each dimension of its scale.

        A target that cannot be scored is a score with an `error`. Raise only when nothing can be scored.
        """


ERROR_CODES = {
    "rate_limit": "ThrottlingException",
    "timeout": "TimeoutException",
    "bad_request": "ValidationException",
    CONTEXT_OVERFLOW: "ValidationException",
    "cost_limit": "ServiceQuotaExceededException",
}
"""Codes of scores by the reason of the error that prevented them."""


def failed_score(
    evaluator: Evaluator, problem: AttemptError | str, code: str = "", *, target: str = ""
) -> Score:
    """The score of a target that could not be evaluated."""
    if isinstance(problem, AttemptError):
        code = ERROR_CODES.get(problem.reason, "InternalServerException")
    return Score(
        evaluator=evaluator.name,
        evaluator_digest=evaluator.digest,
        level=evaluator.level,
        target=target,
        error=str(problem),
        error_code=code,
    )


def sandbox_of(evaluator: Evaluator) -> Sandbox | None:
    """The sandbox of the functions and programs that an evaluator runs; None: it runs none."""
    sandbox: Sandbox | None = getattr(evaluator, "sandbox", None)
    return sandbox


def judge_of(evaluator: Evaluator) -> str:
    """The model behind an evaluator, the first of several; empty: it calls none."""
    return next(iter(judges_of(evaluator)), "")


def judges_of(evaluator: Evaluator) -> list[str]:
    """The models that an evaluator calls for a target, each as often as it does at most."""
    judge = getattr(evaluator, "judge_model", None)
    return [model for model in getattr(judge, "models_called", ()) if model]


def asks_second_judge(evaluator: Evaluator) -> bool:
    """Whether the last of its judges is asked for some targets only."""
    judge = getattr(evaluator, "judge_model", None)
    return bool(getattr(judge, "asks_second_judge", False))


FindEvaluator = Callable[[str, JsonMap, Model], Evaluator]
"""Finds an evaluator by name for one attempt, with its settings and the models it calls."""
FindReference = Callable[[str, str], Reference | None]
"""Ground truth of a session by its external id and its scenario; None: there is none."""
