"""What is to be judged in a session at each level: the session, its turns, or its tool calls.

Knows nothing of who judges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.evaluator import Evidence, Trace
from proctor.score import Level
from proctor.session import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing to be judged, and where in the session it stands."""

    level: Level
    id: str = ""
    """The trace's or the call's; empty for the session."""
    turn: int = -1
    """The number of its turn, from 0; -1 for the session."""
    call: int = -1
    """The number of its call within the turn, from 0; -1 above that level."""


def turns_of(evidence: Evidence) -> Sequence[Trace]:
    """The turns of a session; one that knows of none has what was said in it as its only one."""
    if evidence.traces or not (evidence.messages or evidence.tool_calls):
        return evidence.traces
    asked = [message.content for message in evidence.messages if message.role == "user"]
    only = Trace(
        id="turn-1",
        prompt=asked[0] if asked else "",
        answer=evidence.answer,
        tool_calls=evidence.tool_calls,
        messages=evidence.messages,
    )
    return (only,)


def calls_of(evidence: Evidence) -> Sequence[ToolCall]:
    """Every tool call of a session, oldest first."""
    return evidence.tool_calls or [call for trace in evidence.traces for call in trace.tool_calls]


def targets_of(evidence: Evidence, level: Level) -> list[Target]:
    """What is to be judged, oldest first; only what was asked for, where that was said."""
    if level == "session":
        return [Target(level=level)]
    turns = list(enumerate(turns_of(evidence)))
    if level == "trace":
        found = [Target(level=level, id=trace.id, turn=number) for number, trace in turns]
    else:
        found = [
            Target(level=level, id=call.call_id or f"call-{number + 1}.{place + 1}", turn=number, call=place)
            for number, trace in turns
            for place, call in enumerate(trace.tool_calls)
        ]
    return [target for target in found if not evidence.targets or target.id in evidence.targets]


def ignored_of(evidence: Evidence, used: Sequence[str]) -> tuple[str, ...]:
    """The ground truth that was given and that an evaluator has no use for."""
    reference = evidence.reference
    if reference is None:
        return ()
    given = {
        "assertions": bool(reference.assertions),
        "expectedTrajectory": reference.trajectory is not None,
        "expectedResponse": bool(reference.responses),
    }
    return tuple(name for name, is_given in given.items() if is_given and name not in used)
