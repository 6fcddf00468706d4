"""A session as a judge reads it: lines of `User:`, `Assistant:`, `Action:` and `Tool:`.

What agents and users wrote may itself give orders, also to a judge. Each piece of it stands between
marks that carry a digest of the piece, so that nothing in it can close them.

Knows nothing of questions or models.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proctor.evaluator import Evidence, Reference, Trace
from proctor.evaluators.skills import Skill
from proctor.evaluators.targets import Target, calls_of, turns_of
from proctor.item import digest_of
from proctor.session import Message, ToolCall

NOTHING = "(nothing)"


def pieces_of(
    evidence: Evidence, target: Target, skill: Skill | None = None, *, sees_all: bool = False
) -> dict[str, str]:
    """All that a question about this target may ask to see, by the placeholder's name.

    What there is none of is missing, so that a question that cannot do without it is not asked.
    """
    pieces = {"context": context(evidence, Target(level="session") if sees_all else target)}
    reference = evidence.reference or Reference()
    if target.level != "trace":
        pieces["available_tools"] = tools(evidence.tools)
    if target.level == "session":
        pieces["actual_tool_trajectory"] = _names(call.name for call in calls_of(evidence))
        if reference.trajectory is not None:
            pieces["expected_tool_trajectory"] = _names(reference.trajectory)
        if reference.assertions:
            pieces["assertions"] = "\n".join(f"{n}. {text}" for n, text in enumerate(reference.assertions, 1))
    if target.level == "trace":
        pieces["assistant_turn"] = turns_of(evidence)[target.turn].answer or NOTHING
        if target.turn in reference.responses:
            pieces["expected_response"] = reference.responses[target.turn]
    if target.level == "tool_call":
        trace = turns_of(evidence)[target.turn]
        pieces["tool_turn"] = "\n".join(_call_lines(trace.tool_calls[target.call]))
        pieces["user_message"] = trace.prompt or NOTHING
    if skill is not None:
        pieces["invoked_skill"] = skill.name
        pieces["skill_content"] = skill.content or NOTHING
        pieces["available_skills"] = skill.offered or NOTHING
    return pieces


def context(evidence: Evidence, target: Target) -> str:
    """What led to the target: the whole session, or all that came before what is judged.

    Before a turn's answer: the earlier turns, and this one up to its answer. Before a tool call: the
    same, up to the call.
    """
    turns = turns_of(evidence)
    if target.level == "session":
        shown = [line for trace in turns for line in _lines(happened(trace))]
    else:
        before = [line for trace in turns[: target.turn] for line in _lines(happened(trace))]
        shown = before + _lines(_leading_to(turns[target.turn], target))
    return "\n".join(shown) or NOTHING


def numbered(evidence: Evidence) -> str:
    """The whole session with the number of each turn before it, for a judge that has to name one."""
    shown = [
        line
        for number, trace in enumerate(turns_of(evidence), 1)
        for line in (f"Turn {number}", *_lines(happened(trace)))
    ]
    return "\n".join(shown) or NOTHING


def happened(trace: Trace) -> Sequence[Message | ToolCall]:
    """What was said and done in a turn; where its order is not known, in the usual one."""
    if trace.happened:
        return trace.happened
    if trace.messages:
        said = list(trace.messages)
        answers = [place for place, each in enumerate(said) if each.role == "assistant"]
        at = answers[-1] if answers else len(said)
        return [*said[:at], *trace.tool_calls, *said[at:]]
    asked = [Message(role="user", content=trace.prompt)] if trace.prompt else []
    answered = [Message(role="assistant", content=trace.answer)] if trace.answer else []
    return [*asked, *trace.tool_calls, *answered]


def tools(offered: Sequence[Mapping[str, Any]]) -> str:
    """What the agent could have used, a line each."""
    lines = []
    for tool in offered:
        told = f"{tool.get('name', '')}: {tool.get('description') or 'not described'}"
        parameters = tool.get("parameters")
        lines.append(f"- {told}" + (f" Parameters: {_json(parameters)}" if parameters else ""))
    return "\n".join(lines) or "(it is not known which tools there were)"


def fenced(name: str, text: str) -> str:
    """Text of others between marks that it cannot hold itself."""
    mark = f"{name}-{digest_of(text)[:10]}"
    return f"<{mark}>\n{text}\n</{mark}>"


def _leading_to(trace: Trace, target: Target) -> list[Message | ToolCall]:
    events = list(happened(trace))
    if target.level == "tool_call":
        calls = [place for place, event in enumerate(events) if isinstance(event, ToolCall)]
        return events[: calls[target.call]]
    answers = [
        place
        for place, event in enumerate(events)
        if isinstance(event, Message) and event.role == "assistant"
    ]
    return events[: answers[-1]] if answers else events


def _lines(events: Iterable[Message | ToolCall]) -> list[str]:
    events = list(events)
    has_calls = any(isinstance(event, ToolCall) for event in events)
    lines: list[str] = []
    for event in events:
        if isinstance(event, ToolCall):
            lines += _call_lines(event)
        elif event.role == "user":
            lines.append(f"User: {event.content}")
        elif event.role == "assistant":
            lines.append(f"Assistant: {event.content}")
        # A result that came as a message is already told with its call.
        elif event.role == "tool" and not has_calls:
            lines.append(f"Tool: {event.content}")
    return lines


def _call_lines(call: ToolCall) -> list[str]:
    failed = " (failed)" if call.success is False else ""
    return [f"Action: {call.name}({_json(call.args)})", f"Tool{failed}: {call.result or NOTHING}"]


def _names(names: Iterable[str]) -> str:
    return "[" + ", ".join(names) + "]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
