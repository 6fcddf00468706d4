"""The event passed to functions and programs of users, and the score read from their result.

The event has the shape that Lambda functions of the evaluation service get, so that they run here unchanged;
in addition it contains the `session` turn by turn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast, get_args

from proctor.errors import UsageError
from proctor.evaluator import Evidence, Reference, Trace
from proctor.evaluators.rendering import EvaluationTarget, happened, turns_of
from proctor.json_values import JsonMap, JsonObject
from proctor.score import Score
from proctor.session import Message, Role, ToolCall
from proctor.telemetry.span_writer import spans_of

SCHEMA_VERSION = "1.0"
LEVEL_WORDS = {"session": "SESSION", "trace": "TRACE", "tool_call": "TOOL_CALL"}


def base_event(evidence: Evidence, *, name: str, identity: str, level: str) -> JsonObject:
    """The part of an event that all targets of a session share."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "evaluatorId": identity,
        "evaluatorName": name,
        "evaluationLevel": LEVEL_WORDS[level],
        "evaluationInput": {"sessionSpans": spans_of(evidence)},
        "session": session_document(evidence),
    }


def event_target(evidence: Evidence, target: EvaluationTarget) -> JsonObject:
    """The part of an event about one target, with its ground truth."""
    return {
        "evaluationTarget": _target(evidence, target),
        "evaluationReferenceInputs": _references(evidence, target),
    }


def session_document(evidence: Evidence) -> JsonObject:
    """A session as plain data; `evidence_of_document` reads it."""
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


def reference_document(reference: Reference) -> JsonObject:
    """Ground truth in the inline shape of the API."""
    document: JsonObject = {}
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


def _event(event: Message | ToolCall) -> JsonObject:
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


def _target(evidence: Evidence, target: EvaluationTarget) -> JsonObject | None:
    if target.level == "session":
        return None
    ids: JsonObject = {"traceIds": [turns_of(evidence)[target.turn].id]}
    return ids | {"spanIds": [target.id]} if target.level == "tool_call" else ids


def _references(evidence: Evidence, target: EvaluationTarget) -> list[JsonObject]:
    """Ground truth of the session, and of the turn of the target."""
    reference = evidence.reference
    if reference is None:
        return []
    turns, session = turns_of(evidence), {"sessionId": evidence.session_id}
    session_truth = {key: value for key, value in reference_document(reference).items() if key != "turns"}
    entries = [{"context": {"spanContext": session}, **session_truth}] if session_truth else []
    for number, expected in sorted(reference.responses.items()):
        if number < len(turns) and (target.level == "session" or number == target.turn):
            place = {**session, "traceId": turns[number].id}
            entries.append({"context": {"spanContext": place}, "expectedResponse": {"text": expected}})
    return entries


def reference_of(document: object) -> Reference:
    """Ground truth in the inline shape of the API: `assertions`, `expectedTrajectory`, `turns`.

    Texts may also be plain, without `{text: …}`, and a trajectory a plain list of names.
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
        responses={
            number: _text(response) for number, response in enumerate(expected) if response is not None
        },
    )


def evidence_of_document(document: object, reference: Reference | None = None) -> Evidence:
    """The session of a `session_document`."""
    if not isinstance(document, Mapping) or not isinstance(document.get("turns"), list):
        raise UsageError("this is not a session: it has no list of `turns`")
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


def _trace(number: int, turn: object) -> Trace:
    if not isinstance(turn, Mapping):
        raise UsageError(f"turn {number} is not a map")
    events = [_event_from(each) for each in turn.get("events") or () if isinstance(each, Mapping)]
    messages: Sequence[Message] = [each for each in events if isinstance(each, Message)]
    contents = {
        role: [each.content for each in messages if each.role == role] for role in ("user", "assistant")
    }
    return Trace(
        id=str(turn.get("traceId") or f"turn-{number}"),
        prompt=str(turn.get("prompt") or next(iter(contents["user"]), "")),
        answer=str(turn.get("answer") or next(reversed(contents["assistant"]), "")),
        tool_calls=[each for each in events if isinstance(each, ToolCall)],
        messages=messages,
        happened=events,
    )


def _event_from(event: JsonMap) -> Message | ToolCall:
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


def _text(value: object) -> str:
    return str(value.get("text", "")) if isinstance(value, Mapping) else str(value)


LONGEST_LABEL, LONGEST_EXPLANATION = 1000, 20_000
INVALID = "InvalidResult"


def scored(about: Score, outcome: object) -> Score:
    """The score of a target from the result of its function."""
    if isinstance(outcome, bool):
        return replace(about, value=float(outcome), label="pass" if outcome else "fail")
    if isinstance(outcome, int | float):
        return _with_value(about, outcome, "", "")
    if isinstance(outcome, str):
        return (
            replace(about, label=outcome[:LONGEST_LABEL]) if outcome.strip() else _invalid(about, "no label")
        )
    if isinstance(outcome, Mapping):
        return _score_from_map(about, outcome)
    return _invalid(about, f"it is {'nothing' if outcome is None else type(outcome).__name__}")


def failed(about: Score, message: str, code: str) -> Score:
    """The score of a target that could not be evaluated."""
    return replace(about, error=message[:LONGEST_EXPLANATION], error_code=code[:LONGEST_LABEL])


def _score_from_map(about: Score, outcome: JsonMap) -> Score:
    code, message = outcome.get("errorCode"), outcome.get("errorMessage")
    if code or message:
        return failed(about, str(message or code), str(code or "EvaluatorError"))
    label, value = outcome.get("label"), outcome.get("value")
    if label is None and value is None:
        return _invalid(about, "it has neither label nor value")
    if label is not None and not isinstance(label, str | bool | int | float):
        return _invalid(about, "its label is not text")
    explanation = str(outcome.get("explanation") or "")
    label_text = "" if label is None else str(label)
    if value is None:
        return replace(about, label=label_text[:LONGEST_LABEL], explanation=explanation[:LONGEST_EXPLANATION])
    return _with_value(about, value, label_text, explanation)


def _with_value(about: Score, value: object, label: str, explanation: str) -> Score:
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        return _invalid(about, f"its value is not a number: {str(value)[:80]}")
    return replace(
        about, value=number, label=label[:LONGEST_LABEL], explanation=explanation[:LONGEST_EXPLANATION]
    )


def _invalid(about: Score, why: str) -> Score:
    return failed(about, f"the result is not a valid score: {why}", INVALID)
