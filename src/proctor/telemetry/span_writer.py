"""Writes sessions as spans, for user functions and other tools.

Each step becomes a trace: an agent span with all its messages in order, and a span per tool and model call.
They follow the GenAI conventions; reading them back gives the same session.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from proctor.evaluator import Evidence, Trace
from proctor.json_values import JsonMap, JsonObject, as_map
from proctor.session import Message, ModelCall, Session, Step, TimedEvent, ToolCall
from proctor.telemetry.documents import Document

SCOPE = "proctor"
BEGINNING = 1_000_000_000
"""Nanoseconds. When a session begins whose record has no times: they say only what came first."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def spans_of(evidence: Evidence) -> list[Document]:
    """What an evaluator is shown, as span documents. Ids are those of the evidence; times may only say
    what came first."""
    traces = evidence.traces or [
        Trace(id="turn-1", messages=evidence.messages, tool_calls=evidence.tool_calls)
    ]
    steps = [
        Step(
            trace_id=trace.id,
            events=[
                TimedEvent(event=event) for event in trace.events or [*trace.messages, *trace.tool_calls]
            ],
        )
        for trace in traces
    ]
    # Evidence does not contain the turn of a model call.
    calls = [TimedEvent(event=call) for call in evidence.model_calls]
    first = Step(trace_id=steps[0].trace_id, events=[*steps[0].events, *calls])
    known = evidence.attributes
    return documents_of(
        Session(
            external_id=evidence.session_id,
            source="evidence",
            service=str(known.get("service") or ""),
            log_group=str(known.get("logGroup") or ""),
            agent=str(known.get("agent") or ""),
            model=str(known.get("model") or ""),
            steps=[first, *steps[1:]],
            tools=evidence.tools,
            attributes=known,
        )
    )


def documents_of(session: Session) -> list[Document]:
    """A session as span documents, oldest step first."""
    maker = _SpanBuilder(session)
    for number, step in enumerate(session.steps):
        maker.add(step, is_last=number == len(session.steps) - 1)
    return maker.documents


@dataclass(slots=True)
class _SpanBuilder:
    """Builds the spans of one session, with increasing times."""

    session: Session
    documents: list[Document] = field(default_factory=list)
    began: int = 0
    used: set[str] = field(default_factory=set)

    def add(self, step: Step, *, is_last: bool) -> None:
        """Add the spans of a step: one for the step, and one for each of its calls below it."""
        self.began = max(self.began + 1, _nanoseconds(step.started_at) or self.began + BEGINNING)
        trace_id = self._unused(step.trace_id)
        span_id = _digest(self.session.external_id, trace_id)[:16]
        clock, messages, calls = self.began, list[tuple[Message, int]](), list[Document]()
        for happening in step.events:
            clock = max(clock + 1, _nanoseconds(happening.at))
            if isinstance(happening.event, Message):
                messages.append((happening.event, clock))
            elif isinstance(happening.event, ToolCall | ModelCall):
                calls.append(self._call(happening.event, trace_id, span_id, clock))
        ended = max(clock + 1, _nanoseconds(step.finished_at))
        agent = self._agent(step, messages, is_last=is_last)
        agent |= {"traceId": trace_id, "spanId": span_id, "parentSpanId": None}
        self.documents.append(agent | self._around(self.began, ended))
        self.documents += calls

    def _agent(self, step: Step, messages: Sequence[tuple[Message, int]], *, is_last: bool) -> Document:
        session = self.session
        prompts = [message for message, _ in messages if message.role == "user"]
        answers = [message for message, _ in messages if message.role == "assistant"]
        own = {
            "session.id": session.external_id,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": session.agent,
            "gen_ai.request.model": session.model,
            "gen_ai.input.messages": _messages(prompts),
            "gen_ai.output.messages": _messages(answers[-1:]),
            "gen_ai.tool.definitions": _json([{"type": "function", **tool} for tool in session.tools])
            if session.tools
            else "",
            "proctor.trace.id": step.trace_id,
            "proctor.session.name": session.name,
            "proctor.session.stand_in": session.is_mock,
        }
        if session.status != "success":
            own |= {
                "proctor.session.status": session.status,
                "proctor.session.end_reason": session.end_reason,
            }
        failed = is_last and session.status != "success"
        return {
            "name": f"invoke_agent {session.agent}".strip(),
            "kind": "INTERNAL",
            "attributes": _besides(session.attributes) | {key: each for key, each in own.items() if each},
            "status": {"code": "ERROR", "message": session.error} if failed else {"code": "OK"},
            "events": [_event(message, at) for message, at in messages],
        }

    def _call(self, call: ToolCall | ModelCall, trace_id: str, parent: str, at: int) -> Document:
        number = len(self.used)
        call_id = call.call_id or f"call-{number}"
        span_id = call_id if f"{trace_id}/{call_id}" not in self.used and call_id != parent else ""
        span_id = span_id or _digest(trace_id, call_id, str(number))[:16]
        self.used.add(f"{trace_id}/{span_id}")
        span = _tool_span(call) if isinstance(call, ToolCall) else _model_span(call)
        took = (call.duration_ms if isinstance(call, ToolCall) else call.latency_ms) or 0.0
        own = {"session.id": self.session.external_id, "proctor.call.id": call.call_id}
        span["attributes"] = {**as_map(span, "attributes"), **own}
        ids = {"traceId": trace_id, "spanId": span_id, "parentSpanId": parent}
        return span | ids | {"events": []} | self._around(max(self.began, at - int(took * 1e6)), at)

    def _around(self, started: int, ended: int) -> Document:
        about = {"service.name": self.session.service, "aws.log.group.names": self.session.log_group}
        return {
            "resource": {"attributes": {key: each for key, each in about.items() if each}},
            "scope": {"name": SCOPE, "version": ""},
            "startTimeUnixNano": started,
            "endTimeUnixNano": ended,
            "durationNano": ended - started,
        }

    def _unused(self, trace_id: str) -> str:
        """The id of a step, made unique."""
        while trace_id in self.used or not trace_id:
            trace_id = _digest(self.session.external_id, trace_id, str(len(self.used)))[:32]
        self.used.add(trace_id)
        return trace_id


def _tool_span(call: ToolCall) -> Document:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.arguments": _json(dict(call.args)),
        "gen_ai.tool.call.result": call.result,
        "proctor.success": call.success,
        "proctor.duration_ms": call.duration_ms,
    }
    failed = call.success is False
    return {
        "name": f"execute_tool {call.name}",
        "kind": "INTERNAL",
        "attributes": {key: each for key, each in attributes.items() if each is not None},
        "status": {"code": "ERROR" if failed else "OK"},
    }


def _model_span(call: ModelCall) -> Document:
    usage = call.usage
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": call.model,
        "gen_ai.provider.name": call.provider,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "proctor.cost_usd": call.cost_usd,
        "proctor.price_source": call.price_source,
        "proctor.latency_ms": call.latency_ms,
        "proctor.waiting_ms": call.waiting_ms,
        "proctor.status": call.status,
        "proctor.error": call.error,
        **{name: each for name, each in _served(call).items() if each},
    }
    return {
        "name": f"chat {call.model}",
        "kind": "CLIENT",
        "attributes": {key: each for key, each in attributes.items() if each is not None},
        "status": {"code": "OK"} if call.status == "ok" else {"code": "ERROR", "message": call.error},
    }


def _served(call: ModelCall) -> JsonObject:
    """Who answered and what it was sent, in the words of the semantic conventions where they have one."""
    return {
        "gen_ai.response.model": call.served_model,
        "gen_ai.response.id": call.request_id,
        "gen_ai.openai.response.system_fingerprint": call.fingerprint,
        "gen_ai.response.finish_reasons": [call.finish_reason] if call.finish_reason else [],
        "proctor.request.parameters": call.parameters,
        "proctor.request.not_sent": list(call.not_sent),
    }


def _event(message: Message, at: int) -> Document:
    fields = {"role": message.role, "content": message.content, "name": message.name}
    return {
        "name": f"gen_ai.{message.role}.message",
        "timeUnixNano": at,
        "attributes": {key: each for key, each in fields.items() if each or key == "content"},
    }


def _messages(messages: Iterable[Message]) -> str:
    parts = [
        {"role": message.role, "parts": [{"type": "text", "content": message.content}]}
        for message in messages
    ]
    return _json(parts) if parts else ""


def _besides(attributes: JsonMap) -> JsonObject:
    return {str(key): each for key, each in attributes.items() if isinstance(each, str | int | float | bool)}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def _nanoseconds(moment: datetime | None) -> int:
    if moment is None:
        return 0
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
