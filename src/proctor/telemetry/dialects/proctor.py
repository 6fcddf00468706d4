"""Proctor's own spans: all messages are events of the agent's span, in order."""

from typing import cast

from proctor.item import FINISHED
from proctor.json_values import MOST, JsonMap, as_map, as_number, as_sequence, as_text
from proctor.session import ModelCall, Role, ToolCall
from proctor.telemetry.dialects import genai
from proctor.telemetry.documents import nanoseconds
from proctor.telemetry.messages import ParsedMessage, args_of
from proctor.telemetry.span import (
    SessionDetails,
    Span,
    SpanReading,
    model_of,
    provider_of,
    served_in,
    usage_of,
)
from proctor.telemetry.span_writer import SCOPE

ROLES = ("system", "user", "assistant", "tool")


def confidence(span: Span) -> int:
    """Our own scope."""
    return 3 if span.scope == SCOPE else 0


def read(span: Span) -> SpanReading | None:
    """Read back what was written."""
    kind = genai.kind_of(span)
    if kind == "tool":
        return SpanReading(
            kind="tool", tool=str(span.attributes.get("gen_ai.tool.name") or ""), event=_tool(span)
        )
    if kind == "inference":
        return SpanReading(kind="inference", event=_model(span))
    if kind is None:
        return None
    return SpanReading(
        kind="agent",
        agent=str(span.attributes.get("gen_ai.agent.name") or ""),
        has_failed=span.has_failed,
        tools=genai.tools_on(span.attributes),
        transcript=[
            (_message(as_map(event, "attributes")), nanoseconds(event["timeUnixNano"]))
            for event in span.events
        ],
        trace_id=str(span.attributes.get("proctor.trace.id") or ""),
        session_fields=_details(span.attributes),
    )


def _details(attributes: JsonMap) -> SessionDetails:
    details = SessionDetails()
    if name := attributes.get("proctor.session.name"):
        details["name"] = str(name)
    if model := attributes.get("gen_ai.request.model"):
        details["model"] = str(model)
    if attributes.get("proctor.session.stand_in") is True:
        details["is_mock"] = True
    status = str(attributes.get("proctor.session.status") or "")
    if status in FINISHED:
        details["status"] = status
        details["end_reason"] = str(attributes.get("proctor.session.end_reason") or "")
    return details


def _message(fields: JsonMap) -> ParsedMessage:
    role = str(fields.get("role") or "")
    known_role = cast(Role, role if role in ROLES else "user")
    return ParsedMessage(known_role, str(fields.get("content") or ""), name=str(fields.get("name") or ""))


def _tool(span: Span) -> ToolCall:
    attributes, success = span.attributes, span.attributes.get("proctor.success")
    return ToolCall(
        name=str(attributes.get("gen_ai.tool.name") or ""),
        args=args_of(attributes.get("gen_ai.tool.call.arguments")),
        success=success if isinstance(success, bool) else None,
        result=str(attributes.get("gen_ai.tool.call.result") or ""),
        duration_ms=_amount(attributes.get("proctor.duration_ms")),
        call_id=_call_id(span),
    )


def _model(span: Span) -> ModelCall:
    attributes = span.attributes
    return ModelCall(
        # As requested: the model that answered has its own member.
        model=as_text(attributes, "gen_ai.request.model") or model_of(span),
        usage=usage_of(span),
        provider=provider_of(span),
        cost_usd=_amount(attributes.get("proctor.cost_usd")),
        price_source=str(attributes.get("proctor.price_source") or ""),
        latency_ms=_amount(attributes.get("proctor.latency_ms")),
        waiting_ms=_amount(attributes.get("proctor.waiting_ms")) or 0.0,
        status=str(attributes.get("proctor.status") or "ok"),
        error=str(attributes.get("proctor.error") or ""),
        call_id=_call_id(span),
        **served_in(span),
        parameters=str(attributes.get("proctor.request.parameters") or ""),
        not_sent=tuple(map(str, as_sequence(attributes.get("proctor.request.not_sent")))),
    )


def _call_id(span: Span) -> str:
    return str(span.attributes.get("proctor.call.id", span.span_id))


def _amount(value: object) -> float | None:
    """A figure as we wrote it. Anyone may call a scope `proctor` and write anything."""
    amount = as_number(value)
    return amount if amount is not None and 0 <= amount <= MOST else None
