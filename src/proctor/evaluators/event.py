"""What a function or program of the user's own is told about a session.

The event has the shape that functions of the cloud's evaluation service get, so that one written for it
runs here unchanged; beside the spans it has the `session` itself, turn by turn, which is easier to read.

Knows nothing of processes.
"""

from typing import Any

from proctor.evaluator import Evidence, Reference
from proctor.evaluators.rendering import happened
from proctor.evaluators.targets import Target, turns_of
from proctor.session import Message, ToolCall
from proctor.telemetry.spans import spans_of

SCHEMA_VERSION = "1.0"
LEVEL_WORDS = {"session": "SESSION", "trace": "TRACE", "tool_call": "TOOL_CALL"}


def base_event(evidence: Evidence, *, name: str, identity: str, level: str) -> dict[str, Any]:
    """The part of an event that is the same for every target of a session."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "evaluatorId": identity,
        "evaluatorName": name,
        "evaluationLevel": LEVEL_WORDS[level],
        "evaluationInput": {"sessionSpans": spans_of(evidence)},
        "session": session_document(evidence),
    }


def event_target(evidence: Evidence, target: Target) -> dict[str, Any]:
    """The part of an event that is about one target: which, and what was expected of it."""
    return {
        "evaluationTarget": _target(evidence, target),
        "evaluationReferenceInputs": _references(evidence, target),
    }


def session_document(evidence: Evidence) -> dict[str, Any]:
    """A session as plain data, which `evidence_of_document` reads again."""
    reference = evidence.reference
    return {
        "sessionId": evidence.session_id,
        "systemPrompt": evidence.system_prompt,
        "tools": [dict(tool) for tool in evidence.tools],
        "turns": [
            {
                "traceId": trace.id,
                "prompt": trace.prompt,
                "answer": trace.answer,
                "events": [_event(each) for each in happened(trace)],
            }
            for trace in turns_of(evidence)
        ],
        "attributes": dict(evidence.attributes),
        "reference": None if reference is None else reference_document(reference),
    }


def reference_document(reference: Reference) -> dict[str, Any]:
    """Ground truth as the wire has it inline."""
    document: dict[str, Any] = {}
    if reference.assertions:
        document["assertions"] = [{"text": text} for text in reference.assertions]
    if reference.trajectory is not None:
        document["expectedTrajectory"] = {"toolNames": list(reference.trajectory)}
    if reference.responses:
        last = max(reference.responses)
        document["turns"] = [
            {"expectedResponse": {"text": reference.responses[number]}}
            if number in reference.responses
            else {}
            for number in range(last + 1)
        ]
    return document


def _event(event: Message | ToolCall) -> dict[str, Any]:
    if isinstance(event, Message):
        named = {"name": event.name} if event.name else {}
        return {"role": event.role, "content": event.content, **named}
    return {
        "tool": event.name,
        "args": dict(event.args),
        "result": event.result,
        "success": event.success,
        "durationMs": event.duration_ms,
        "spanId": event.call_id,
    }


def _target(evidence: Evidence, target: Target) -> dict[str, Any] | None:
    if target.level == "session":
        return None
    found = {"traceIds": [turns_of(evidence)[target.turn].id]}
    return found | {"spanIds": [target.id]} if target.level == "tool_call" else found


def _references(evidence: Evidence, target: Target) -> list[dict[str, Any]]:
    """What was said of the session, and of the turn the target is in."""
    reference = evidence.reference
    if reference is None:
        return []
    turns, session = turns_of(evidence), {"sessionId": evidence.session_id}
    whole = {key: value for key, value in reference_document(reference).items() if key != "turns"}
    entries = [{"context": {"spanContext": session}, **whole}] if whole else []
    for number, expected in sorted(reference.responses.items()):
        if number < len(turns) and (target.level == "session" or number == target.turn):
            place = {**session, "traceId": turns[number].id}
            entries.append({"context": {"spanContext": place}, "expectedResponse": {"text": expected}})
    return entries
