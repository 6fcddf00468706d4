"""Sessions and ground truth that stand in a document, read as evidence.

Knows nothing of files or of who judges.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from proctor.errors import UsageError
from proctor.evaluator import Evidence, Reference, Trace
from proctor.session import Message, Role, ToolCall


def reference_of(document: Any) -> Reference:
    """Ground truth as the wire has it inline: `assertions`, `expectedTrajectory`, `turns`.

    Texts may also stand without their `{text: …}`, and a trajectory as a plain list of names.
    """
    if not isinstance(document, Mapping):
        raise UsageError("ground truth is a map with assertions, expectedTrajectory and turns")
    known = ("assertions", "expectedTrajectory", "turns")
    if unknown := [name for name in document if name not in known]:
        raise UsageError(f"ground truth has no `{unknown[0]}`\nThere are: {', '.join(known)}.")
    trajectory = document.get("expectedTrajectory")
    if isinstance(trajectory, Mapping):
        trajectory = trajectory.get("toolNames") or []
    turns = document.get("turns") or []
    expected = [turn.get("expectedResponse") if isinstance(turn, Mapping) else None for turn in turns]
    return Reference(
        assertions=tuple(_text(each) for each in document.get("assertions") or ()),
        trajectory=None if trajectory is None else tuple(_text(name) for name in trajectory),
        responses={number: _text(said) for number, said in enumerate(expected) if said is not None},
    )


def evidence_of_document(document: Any, reference: Reference | None = None) -> Evidence:
    """A session that was written as `session_document` writes it."""
    if not isinstance(document, Mapping) or not isinstance(document.get("turns"), list):
        raise UsageError("this is no session: it has no list of `turns`")
    traces = [_trace(number, turn) for number, turn in enumerate(document["turns"], 1)]
    truth = document.get("reference")
    return Evidence(
        session_id=str(document.get("sessionId", "")),
        messages=[message for trace in traces for message in trace.messages],
        tool_calls=[call for trace in traces for call in trace.tool_calls],
        traces=traces,
        system_prompt=str(document.get("systemPrompt") or ""),
        tools=[tool for tool in document.get("tools") or () if isinstance(tool, Mapping)],
        reference=reference or (reference_of(truth) if truth else None),
        attributes=document.get("attributes") or {},
    )


def _trace(number: int, turn: Any) -> Trace:
    if not isinstance(turn, Mapping):
        raise UsageError(f"turn {number} is no map")
    events = [_event(each) for each in turn.get("events") or () if isinstance(each, Mapping)]
    messages: Sequence[Message] = [each for each in events if isinstance(each, Message)]
    said = {role: [each.content for each in messages if each.role == role] for role in ("user", "assistant")}
    return Trace(
        id=str(turn.get("traceId") or f"turn-{number}"),
        prompt=str(turn.get("prompt") or next(iter(said["user"]), "")),
        answer=str(turn.get("answer") or next(reversed(said["assistant"]), "")),
        tool_calls=[each for each in events if isinstance(each, ToolCall)],
        messages=messages,
        happened=events,
    )


def _event(event: Mapping[str, Any]) -> Message | ToolCall:
    if "tool" in event:
        args, success = event.get("args"), event.get("success")
        return ToolCall(
            name=str(event["tool"]),
            args=args if isinstance(args, Mapping) else {},
            result=str(event.get("result") or ""),
            success=success if isinstance(success, bool) else None,
            call_id=str(event.get("spanId") or ""),
        )
    role = event.get("role")
    return Message(
        role=cast(Role, role) if role in get_args(Role) else "assistant",
        content=str(event.get("content") or ""),
        name=str(event.get("name") or ""),
    )


def _text(value: Any) -> str:
    return str(value.get("text", "")) if isinstance(value, Mapping) else str(value)
