"""A session as judges see it: lines of `User:`, `Assistant:`, `Action:` and `Tool:`; and the targets to
score."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proctor.evaluator import Evidence, Reference, Trace
from proctor.evaluators.judging import as_one_turn
from proctor.json_values import JsonMap
from proctor.score import Level
from proctor.session import Message, ToolCall

LOADERS = frozenset({"skill", "skills", "loadskill", "useskill", "invokeskill", "activateskill", "readskill"})
"""Names of tools that load a skill, normalized (no case, `_` or `-`)."""
NAMED_BY = ("skill", "skill_name", "skillName", "name", "command")
SPEAKERS = ("User", "Assistant", "Action", "Tool", "Tool (failed)")
"""What turns begin with."""
_FILE = re.compile(r"(?<![^/\\\s\"'])([^/\\\s\"']+)[/\\]SKILL\.md\b")


@dataclass(frozen=True, slots=True)
class Skill:
    """A loaded skill."""

    name: str
    content: str
    """Its instructions: the result of loading it."""
    offered: str = ""
    """Description of the available skills; empty when unknown."""


def skill_of(evidence: Evidence, trace: Trace, position: int) -> Skill | None:
    """The skill that a call loaded; None for other calls."""
    call = trace.tool_calls[position]
    name = _loaded(call)
    return Skill(name, call.result, _offered(evidence)) if name else None


def _loaded(call: ToolCall) -> str:
    if _normalized(call.name) in LOADERS:
        names = [call.args[key] for key in NAMED_BY if isinstance(call.args.get(key), str)]
        return names[0] if names else call.name
    for value in call.args.values():
        match = _FILE.search(value) if isinstance(value, str) else None
        if match:
            return match[1]
    return ""


def _offered(evidence: Evidence) -> str:
    """Skills are listed in the description of the tool that loads them, or in the system prompt."""
    loaders = [tool for tool in evidence.tools if _normalized(str(tool.get("name", ""))) in LOADERS]
    described = [str(tool.get("description") or "") for tool in loaders]
    if described:
        return "\n".join(described)
    return evidence.system_prompt if "skill" in evidence.system_prompt.casefold() else ""


def _normalized(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTarget:
    """One target of an evaluator, with its position in the session."""

    level: Level
    id: str = ""
    """Id of the trace or call; empty for the session."""
    turn: int = -1
    """Number of its turn, from 0; -1 for the session."""
    call: int = -1
    """Number of its call within the turn, from 0; -1 otherwise."""


def turns_of(evidence: Evidence) -> Sequence[Trace]:
    """The turns of a session; without any, its messages and calls as one turn."""
    if evidence.traces or not (evidence.messages or evidence.tool_calls):
        return evidence.traces
    prompts = [message.content for message in evidence.messages if message.role == "user"]
    only = Trace(
        id="turn-1",
        prompt=prompts[0] if prompts else "",
        answer=evidence.answer,
        tool_calls=evidence.tool_calls,
        messages=evidence.messages,
    )
    return (only,)


def calls_of(evidence: Evidence) -> Sequence[ToolCall]:
    """All tool calls of a session, oldest first."""
    return evidence.tool_calls or [call for trace in evidence.traces for call in trace.tool_calls]


def targets_of(evidence: Evidence, level: Level) -> list[EvaluationTarget]:
    """The targets of a level, oldest first, restricted to those selected in the evidence."""
    if level == "session":
        return [EvaluationTarget(level=level)]
    turns = list(enumerate(turns_of(evidence)))
    if level == "trace":
        targets = [EvaluationTarget(level=level, id=trace.id, turn=number) for number, trace in turns]
    else:
        targets = [
            EvaluationTarget(
                level=level, id=call.call_id or f"call-{number + 1}.{index + 1}", turn=number, call=index
            )
            for number, trace in turns
            for index, call in enumerate(trace.tool_calls)
        ]
    return [target for target in targets if not evidence.targets or target.id in evidence.targets]


def ignored_of(evidence: Evidence, used: Sequence[str]) -> tuple[str, ...]:
    """The ground truth that was given and that an evaluator has no use for."""
    reference = evidence.reference
    if reference is None:
        return ()
    supplied = {
        "assertions": bool(reference.assertions),
        "expectedTrajectory": reference.trajectory is not None,
        "expectedResponse": bool(reference.responses),
    }
    return tuple(name for name, is_given in supplied.items() if is_given and name not in used)


NOTHING = "(nothing)"


def pieces_of(
    evidence: Evidence, target: EvaluationTarget, skill: Skill | None = None, *, sees_all: bool = False
) -> dict[str, str]:
    """Values of the placeholders in a question about this target.

    A value that the session does not have is missing, so that a question that requires it is skipped.
    """
    pieces = {"context": context(evidence, EvaluationTarget(level="session") if sees_all else target)}
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


def context(evidence: Evidence, target: EvaluationTarget) -> str:
    """The context of the target: the whole session, or everything before the target.

    Before a turn's answer: the earlier turns, and this one up to its answer. Before a tool call: the
    same, up to the call.
    """
    turns = turns_of(evidence)
    if target.level == "session":
        lines = [line for trace in turns for line in _lines(events_of(trace))]
    else:
        before = [line for trace in turns[: target.turn] for line in _lines(events_of(trace))]
        lines = before + _lines(_leading_to(turns[target.turn], target))
    return "\n".join(lines) or NOTHING


def numbered(evidence: Evidence) -> str:
    """The whole session with the number of each turn before it, for a judge that has to name one."""
    lines = [
        line
        for number, trace in enumerate(turns_of(evidence), 1)
        for line in (f"Turn {number}", *_lines(events_of(trace)))
    ]
    return "\n".join(lines) or NOTHING


def events_of(trace: Trace) -> Sequence[Message | ToolCall]:
    """Messages and tool calls of a turn; in the usual order when the order is unknown."""
    if trace.events:
        return trace.events
    if trace.messages:
        messages = list(trace.messages)
        answers = [place for place, each in enumerate(messages) if each.role == "assistant"]
        at = answers[-1] if answers else len(messages)
        return [*messages[:at], *trace.tool_calls, *messages[at:]]
    prompt = [Message(role="user", content=trace.prompt)] if trace.prompt else []
    answered = [Message(role="assistant", content=trace.answer)] if trace.answer else []
    return [*prompt, *trace.tool_calls, *answered]


def tools(offered: Sequence[JsonMap]) -> str:
    """The tools of the agent, one per line."""
    lines = []
    for tool in offered:
        description = f"{tool.get('name', '')}: {tool.get('description') or 'not described'}"
        parameters = tool.get("parameters")
        lines.append(f"- {description}" + (f" Parameters: {_json(parameters)}" if parameters else ""))
    return "\n".join(lines) or "(it is not known which tools there were)"


def _leading_to(trace: Trace, target: EvaluationTarget) -> list[Message | ToolCall]:
    events = list(events_of(trace))
    if target.level == "tool_call":
        calls = [place for place, event in enumerate(events) if isinstance(event, ToolCall)]
        return events[: calls[target.call]]
    answers = [
        index
        for index, event in enumerate(events)
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
            continue
        content = as_one_turn(event.content, SPEAKERS)
        if event.role == "user":
            lines.append(f"User: {content}")
        elif event.role == "assistant":
            lines.append(f"Assistant: {content}")
        # A result that is a message is already shown with its call.
        elif event.role == "tool" and not has_calls:
            lines.append(f"Tool: {content}")
    return lines


def _call_lines(call: ToolCall) -> list[str]:
    failed = " (failed)" if call.success is False else ""
    name, result = as_one_turn(call.name, SPEAKERS), as_one_turn(call.result, SPEAKERS)
    return [f"Action: {name}({_json(call.args)})", f"Tool{failed}: {result or NOTHING}"]


def _names(names: Iterable[str]) -> str:
    return "[" + ", ".join(names) + "]"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
