"""A session as other tools tell one: each message with the tools it called and the model calls behind it.

We keep messages, tool calls and model calls as events of their own, in the order they happened. Elsewhere a
tool is called by a message: those that follow a message of the agent are put with it, and a model call with
what came of it. Told in order, the parts give back the events as they were.

Knows nothing of formats.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from proctor.imported import ImportedSession
from proctor.score import Score
from proctor.session import Message, ModelCall, Role, ToolCall, Usage

OURS = "proctor"
"""Where in another tool's file we keep what its format has no place for."""


@dataclass(slots=True, kw_only=True)
class Said:
    """One message, or what was done without a word."""

    role: Role = "assistant"
    text: str = ""
    name: str = ""
    at: datetime | None = None
    is_silent: bool = True
    """Whether nothing was said: there are calls only."""
    turn: str | None = None
    """The id of the turn that begins here. None: no turn does."""
    tool_calls: list[tuple[ToolCall, datetime | None]] = field(default_factory=list)
    call_names: list[str] = field(default_factory=list)
    """What each tool call is called: its id, unless another call of the session has the same."""
    model_calls: list[tuple[ModelCall, datetime | None]] = field(default_factory=list)

    @property
    def ours(self) -> dict[str, Any]:
        """What other formats have no place for."""
        named = zip(self.call_names, self.tool_calls, strict=True)
        others = {name: call.call_id for name, (call, _) in named if name != call.call_id}
        known = {"turn": self.turn, "name": self.name or None, "is_silent": self.is_silent or None}
        return {name: value for name, value in known.items() if value is not None} | (
            {"call_ids": others} if others else {}
        )


def said_in(session: ImportedSession) -> Iterator[Said]:
    """What was said and done in a session, in order."""
    taken: set[str] = set()
    for step in session.steps:
        turn: str | None = step.trace_id
        for said in _told([(each.event, each.at) for each in step.happenings]):
            said.turn, turn = turn, None
            said.call_names = [_name(call, taken) for call, _ in said.tool_calls]
            yield said


def about(session: ImportedSession) -> dict[str, Any]:
    """What is known of a session as a whole, for a file that has no place of its own for it."""
    known = {
        "source": session.source,
        "service": session.service,
        "log_group": session.log_group,
        "name": session.name,
        "agent": session.agent,
        "agent_version": session.agent_version,
        "model": session.model,
        "is_stand_in": session.is_stand_in,
        "status": session.status,
        "end_reason": session.end_reason,
        "attributes": dict(session.attributes),
        "notes": list(session.notes),
    }
    return {name: value for name, value in known.items() if value}


def score_document(score: Score) -> dict[str, Any]:
    """A score as plain data, with what is known of it."""
    known = {
        "evaluator": score.evaluator,
        "value": score.value,
        "label": score.label,
        "explanation": score.explanation,
        "level": score.level,
        "target": score.target,
        "evaluator_digest": score.evaluator_digest,
        "error": score.error,
        "cost_usd": score.cost_usd,
        "dimension": score.dimension,
        "error_code": score.error_code,
        "input_tokens": score.input_tokens or None,
        "output_tokens": score.output_tokens or None,
    }
    return {name: value for name, value in known.items() if value not in ("", None)}


def total_usage(session: ImportedSession) -> dict[str, tuple[Usage, float | None]]:
    """Tokens and cost of a session by model; a cost of None: no call of it had a known price."""
    found: dict[str, tuple[Usage, float | None]] = {}
    for step in session.steps:
        for each in step.happenings:
            if isinstance(each.event, ModelCall):
                usage, cost = found.get(each.event.model, (Usage(), None))
                more = each.event.cost_usd
                cost = cost if more is None else (cost or 0.0) + more
                found[each.event.model] = (usage + each.event.usage, cost)
    return found


def moment(at: datetime | None) -> str | None:
    """A moment as other tools write one."""
    return None if at is None else at.isoformat()


def without_nothing(document: Mapping[str, Any]) -> dict[str, Any]:
    """The members that say something: not None, not an empty list or mapping."""
    return {name: value for name, value in document.items() if value is not None and value not in ([], {})}


def _told(events: list[tuple[Any, datetime | None]]) -> Iterator[Said]:
    said: Said | None = None
    for event, at in events:
        if isinstance(event, ModelCall):
            # What came of a call follows it; what is said by others meanwhile does not belong to it.
            if said is not None and not _is_only_models(said):
                yield said
                said = None
            said = said or Said(at=at)
            said.model_calls.append((event, at))
        elif isinstance(event, ToolCall):
            if said is not None and said.role != "assistant":
                yield said
                said = None
            said = said or Said(at=at)
            said.tool_calls.append((event, at))
        elif isinstance(event, Message):
            if said is not None and not (_is_only_models(said) and event.role == "assistant"):
                yield said
                said = None
            said = said or Said(at=at)
            said.role, said.text, said.name, said.is_silent = event.role, event.content, event.name, False
            said.at = at or said.at
    if said is not None:
        yield said


def _name(call: ToolCall, taken: set[str]) -> str:
    name = call.call_id
    if not name or name in taken:
        name = f"{name or 'call'}#{len(taken) + 1}"
    taken.add(name)
    return name


def _is_only_models(said: Said) -> bool:
    return said.is_silent and not said.tool_calls
