"""Sessions from their rows: the record (`Session`) for exports, its view (`Evidence`) for evaluators.

Each step is a trace. Its id is the source's trace id, else `turn-1`, `turn-2`, …; that of a tool call its
span id, else `call-7`, where 7 is its position among all events of the session.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypedDict, TypeVar

from proctor.evaluator import Evidence, Reference, Trace
from proctor.json_values import JsonMap, as_map, parse_json
from proctor.score import Score
from proctor.session import Event, Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from proctor.store.batches import moment
from proctor.store.tables import (
    ItemRow,
    IterationRow,
    MessageRow,
    ModelCallRow,
    ScoreRow,
    SessionRow,
    ToolCallRow,
)

Kind = TypeVar("Kind")


def message_of(row: MessageRow) -> Message:
    """The message of a row."""
    return Message(role=row["role"], content=row["content"], name=row["name"])


def tool_call_of(row: ToolCallRow) -> ToolCall:
    """The tool call of a row; a call without an id gets one from its position."""
    return ToolCall(
        name=row["toolName"],
        args=parsed(row["argsJson"], dict),
        success=None if row["success"] is None else bool(row["success"]),
        result=row["result"],
        duration_ms=row["durationMs"],
        call_id=row["callId"] or f"call-{row['position']}",
    )


def model_call_of(row: ModelCallRow) -> ModelCall:
    """The model call of a row, without bodies, which are among the messages."""
    return ModelCall(
        model=row["model"],
        provider=row["provider"],
        usage=Usage(
            input_tokens=row["promptTokens"],
            cached_tokens=row["cachedTokens"],
            output_tokens=row["completionTokens"],
            reasoning_tokens=row["reasoningTokens"],
        ),
        cost_usd=row["costUsd"],
        price_source=row["priceSource"],
        latency_ms=row["latencyMs"],
        waiting_ms=row["waitingMs"],
        status=row["status"],
        error=row["error"],
        call_id=row["callId"],
        served_model=row["servedModel"],
        fingerprint=row["fingerprint"],
        request_id=row["requestId"],
        finish_reason=row["finishReason"],
        parameters=row["parametersJson"],
        not_sent=tuple(parsed(row["notSent"], list)),
    )


def parsed(text: str, kind: type[Kind]) -> Kind:
    """Parse stored JSON; empty if it is invalid or of another type."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, kind) else kind()


TraceEvent = Message | ToolCall
ATTRIBUTES = ("job", "agent", "model", "source", "service", "logGroup", "status", "runId", "itemId", "name")
"""Columns of a session that are attributes of its evidence."""


class SessionRows(Protocol):
    """The rows of one session by table, in order, long texts included."""

    def messages(self) -> Sequence[MessageRow]:
        """The messages."""

    def tool_calls(self) -> Sequence[ToolCallRow]:
        """The tool calls."""

    def model_calls(self) -> Sequence[ModelCallRow]:
        """The model calls."""

    def iterations(self) -> Sequence[IterationRow]:
        """The finished steps."""


def evidence_of(session: SessionRow, rows: SessionRows) -> Evidence:
    """The view of a stored session for evaluators."""
    trace_ids = {row["step"]: row["traceId"] for row in rows.iterations()}
    events: list[tuple[int, int, TraceEvent]] = [
        *((row["position"], row["step"], message_of(row)) for row in rows.messages()),
        *((row["position"], row["step"], tool_call_of(row)) for row in rows.tool_calls()),
    ]
    steps: dict[int, list[TraceEvent]] = {step: [] for step in trace_ids}
    for _, step, event in sorted(events, key=lambda each: each[0]):
        steps.setdefault(step, []).append(event)
    return _evidence(
        [_trace(trace_ids.get(step) or f"turn-{step}", steps[step]) for step in sorted(steps)],
        model_calls=[model_call_of(row) for row in rows.model_calls()],
        session_id=session["externalId"] or session["id"],
        tools=[tool for tool in parsed(session["toolsJson"], list) if isinstance(tool, dict)],
        attributes={**_known(session), **parsed(session["attributesJson"], dict), "id": session["id"]},
    )


def evidence_of_session(session: Session, reference: Reference | None = None) -> Evidence:
    """The view of a session that is not stored, for evaluators."""
    events = [[each.event for each in step.events] for step in session.steps]
    known = {
        "agent": session.agent,
        "model": session.model,
        "source": session.source,
        "service": session.service,
        "logGroup": session.log_group,
        "status": session.status,
    }
    return _evidence(
        [
            _trace(step.trace_id or f"turn-{number}", events_of_step)
            for number, (step, events_of_step) in enumerate(
                zip(session.steps, _numbered(events), strict=True), start=1
            )
        ],
        model_calls=[event for step in events for event in step if isinstance(event, ModelCall)],
        session_id=session.external_id,
        tools=session.tools,
        attributes={**{name: value for name, value in known.items() if value}, **session.attributes},
        reference=reference,
    )


def _evidence(
    traces: Sequence[Trace],
    *,
    model_calls: Sequence[ModelCall],
    session_id: str,
    tools: Sequence[Mapping[str, object]],
    attributes: Mapping[str, object],
    reference: Reference | None = None,
) -> Evidence:
    messages = [message for trace in traces for message in trace.messages]
    return Evidence(
        messages=messages,
        tool_calls=[call for trace in traces for call in trace.tool_calls],
        model_calls=model_calls,
        session_id=session_id,
        traces=traces,
        system_prompt=next((message.content for message in messages if message.role == "system"), ""),
        tools=list(tools),
        reference=reference,
        attributes=attributes,
    )


class OfferedTool(TypedDict):
    """A tool that a model was offered."""

    name: str
    description: str
    parameters: JsonMap


def tools_of_request(request: str) -> list[OfferedTool]:
    """The tools in the body of a model request."""
    try:
        body = parse_json(request)
    except ValueError:
        return []
    offered = body.get("tools") if isinstance(body, dict) else None
    offered_tools = [
        tool.get("function", tool) for tool in offered or () if isinstance(offered, list) and _is_map(tool)
    ]
    return [
        {
            "name": str(tool["name"]),
            "description": str(tool.get("description") or ""),
            "parameters": as_map(tool.get("parameters") or tool.get("input_schema")),
        }
        for tool in offered_tools
        if _is_map(tool) and tool.get("name")
    ]


def _trace(name: str, events: Sequence[TraceEvent]) -> Trace:
    messages = [event for event in events if isinstance(event, Message)]
    answers = [message.content for message in messages if message.role == "assistant"]
    return Trace(
        id=name,
        prompt="\n\n".join(_opening(events)),
        answer=answers[-1] if answers else "",
        tool_calls=[event for event in events if isinstance(event, ToolCall)],
        messages=messages,
        events=list(events),
    )


def _opening(events: Sequence[TraceEvent]) -> list[str]:
    """The first user messages of a turn, up to the first other event after them."""
    opening: list[str] = []
    for event in events:
        if isinstance(event, Message) and event.role == "user":
            opening.append(event.content)
        elif opening:
            break
    return opening


def _numbered(steps: Sequence[Sequence[Event]]) -> list[list[TraceEvent]]:
    """Messages and tool calls by step, each call with an id."""
    position, numbered = 0, list[list[TraceEvent]]()
    for step in steps:
        numbered.append([])
        for event in step:
            position += 1
            if isinstance(event, ToolCall):
                numbered[-1].append(replace(event, call_id=event.call_id or f"call-{position}"))
            elif isinstance(event, Message):
                numbered[-1].append(event)
    return numbered


def _known(session: Mapping[str, object]) -> dict[str, object]:
    return {name: session[name] for name in ATTRIBUTES if session.get(name)}


def _is_map(value: object) -> bool:
    return isinstance(value, dict)


def session_of_rows(session: SessionRow, rows: SessionRows, scores: Iterable[ScoreRow] = ()) -> Session:
    """A stored session as `Session`, with its scores."""
    steps: dict[int, list[tuple[int, TimedEvent]]] = {}
    for position, step, timed in _timed_events(rows):
        steps.setdefault(step, []).append((position, timed))
    ended = {row["step"]: row for row in rows.iterations()}
    source = session["source"] or session["job"]
    return Session(
        external_id=session["externalId"] or session["id"],
        source=source,
        service=session["service"],
        log_group=session["logGroup"],
        name=session["name"],
        agent=session["agent"],
        agent_version=session["agentVersion"],
        model=session["model"],
        is_mock=bool(session["isMock"]),
        status=session["status"],
        end_reason=session["endReason"],
        error=session["error"],
        started_at=moment(session["startedAt"]),
        finished_at=moment(session["finishedAt"]),
        steps=[
            _step(number, ended.get(number), steps.get(number, ())) for number in sorted({*steps, *ended})
        ],
        tools=json.loads(session["toolsJson"] or "[]"),
        attributes=json.loads(session["attributesJson"] or "{}"),
        scores=[score_of(row) for row in scores],
        notes=json.loads(session["notes"]),
    )


def with_item(session: Session, item: ItemRow) -> Session:
    """A session with the task, repeat and factors of its item."""
    factors = {name: level for name, level in parsed(item["factors"], dict).items() if isinstance(level, str)}
    task = factors.pop("task", "") or factors.get("scenario", "") or item["prompt"]
    for name in ("agent", "model"):
        factors.pop(name, None)
    return replace(session, task=task, repeat=item["repeat"], factors=factors)


def _step(number: int, row: IterationRow | None, events: Sequence[tuple[int, TimedEvent]]) -> Step:
    return Step(
        trace_id=(row["traceId"] if row else "") or f"turn-{number}",
        events=[timed for _, timed in sorted(events, key=lambda each: each[0])],
        started_at=moment(row["startTime"]) if row else None,
        finished_at=moment(row["endTime"]) if row else None,
    )


def _timed_events(rows: SessionRows) -> Iterator[tuple[int, int, TimedEvent]]:
    for message in rows.messages():
        yield (
            message["position"],
            message["step"],
            TimedEvent(event=message_of(message), at=moment(message["timestamp"])),
        )
    for used in rows.tool_calls():
        yield (
            used["position"],
            used["step"],
            TimedEvent(event=tool_call_of(used), at=moment(used["timestamp"])),
        )
    for call in rows.model_calls():
        yield (
            call["position"],
            call["step"],
            TimedEvent(event=_model_call(call), at=moment(call["timestamp"])),
        )


def _model_call(row: ModelCallRow) -> ModelCall:
    call = model_call_of(row)
    return replace(call, call_id=call.call_id or f"call-{row['position']}")


def score_of(row: ScoreRow) -> Score:
    """The score of a row."""
    return Score(
        evaluator=row["evaluator"],
        value=row["value"],
        label=row["label"],
        explanation=row["explanation"],
        level=row["level"],
        target=row["target"],
        evaluator_digest=row["evaluatorDigest"],
        error=row["error"],
        cost_usd=row["costUsd"],
        dimension=row["dimension"],
        error_code=row["errorCode"],
        input_tokens=row["inputTokens"],
        output_tokens=row["outputTokens"],
    )
