"""The Vercel AI SDK: `ai.*` attributes, an outer span for a call, an inner one for each request."""

from collections.abc import Mapping

from proctor.json_values import JsonMap, JsonObject
from proctor.telemetry.dialects.genai import Kind
from proctor.telemetry.messages import (
    ParsedMessage,
    ParsedToolCall,
    args_of,
    first,
    parse_messages,
    parse_nested,
    text_of,
    tools_of,
    unquoted,
)
from proctor.telemetry.span import Span, SpanReading

OPERATIONS: Mapping[str, Kind] = {
    **{f"ai.{name}": "agent" for name in ("generateText", "streamText", "generateObject", "streamObject")},
    **{
        f"ai.{outer}.{inner}": "inference"
        for outer, inner in (
            ("generateText", "doGenerate"),
            ("streamText", "doStream"),
            ("generateObject", "doGenerate"),
            ("streamObject", "doStream"),
        )
    },
    "ai.toolCall": "tool",
}


def confidence(span: Span) -> int:
    """Anything that names one of its operations."""
    return 3 if str(span.attributes.get("ai.operationId")) in OPERATIONS else 0


def read(span: Span) -> SpanReading | None:
    """Read a span by the operation it names."""
    attributes = span.attributes
    kind = OPERATIONS[str(attributes["ai.operationId"])]
    if kind == "tool":
        arguments, result = attributes.get("ai.toolCall.args"), attributes.get("ai.toolCall.result")
        return SpanReading(
            kind="tool",
            tool=str(attributes.get("ai.toolCall.name") or span.name),
            tool_args=None if arguments is None else args_of(arguments),
            tool_result=None if result is None else text_of(unquoted(result)),
            tool_call_id=str(attributes.get("ai.toolCall.id") or ""),
            has_failed=span.has_failed,
        )
    prompt = parse_nested(first(attributes, "ai.prompt.messages", "ai.prompt"))
    named = first(attributes, "ai.telemetry.functionId", "resource.name") if kind == "agent" else None
    return SpanReading(
        kind=kind,
        inputs=parse_messages(prompt, "user"),
        outputs=_answer(attributes),
        agent=str(named or ""),
        has_failed=span.has_failed,
        system=str(prompt.get("system") or "") if isinstance(prompt, Mapping) else "",
        tools=_tools(attributes.get("ai.prompt.tools")),
    )


def _answer(attributes: JsonMap) -> list[ParsedMessage]:
    text = str(first(attributes, "ai.response.text", "ai.response.object") or "")
    requested = parse_nested(attributes.get("ai.response.toolCalls"))
    calls = tuple(
        ParsedToolCall(
            str(call.get("toolCallId") or ""), str(call["toolName"]), args_of(first(call, "input", "args"))
        )
        for call in (requested if isinstance(requested, list) else ())
        if isinstance(call, Mapping) and call.get("toolName")
    )
    return [ParsedMessage("assistant", text, calls)] if text or calls else []


def _tools(value: object) -> list[JsonObject]:
    parsed = value if isinstance(value, list) else parse_nested(value)
    return [tool for each in parsed for tool in tools_of(each)] if isinstance(parsed, list) else []
