"""Google's Agent Development Kit, as it records itself and as OpenInference records it.

Its own spans keep requests and responses of models as JSON in `gcp.vertex.agent.*`. Their newer schema
follows the GenAI conventions and has none of these.
"""

from collections.abc import Mapping
from dataclasses import replace

from proctor.json_values import JsonMap, as_map, as_text, maps_in
from proctor.telemetry.dialects import genai, openinference
from proctor.telemetry.messages import ParsedMessage, parse_messages, parse_nested, text_of, tools_of
from proctor.telemetry.span import Span, SpanReading, first

SCOPE = "openinference.instrumentation.google_adk"
NATIVE = "gcp.vertex.agent"
_EMPTY = ("", "{}", "<not specified>", "N/A", "null")
"""Values that stand for content that does not apply or was not captured."""


def speaks(span: Span) -> int:
    """Its own scope, or its own attributes where the scope is not known."""
    return 3 if span.scope in (SCOPE, NATIVE) or any(key.startswith(NATIVE) for key in span.attributes) else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; its results and answers stand inside an event's content."""
    if span.scope != SCOPE:
        return _read_native(span)
    reading = openinference.read_openinference(span)
    if reading is None or reading.kind == "inference":
        return reading
    content = _content(first(span.attributes, "output.value"))
    if content is None:
        return reading
    messages = parse_messages(content, "assistant")
    if reading.kind == "agent":
        return replace(reading, outputs=messages)
    results = [result for each in messages for result in each.results]
    if not results:
        return reading
    return replace(reading, tool_result="\n".join(result.text for result in results))


def _read_native(span: Span) -> SpanReading | None:
    request = as_map(_captured(span, "llm_request"))
    if span.name == "call_llm" or request:
        return _read_call(span, request)
    if span.name == "(merged tools)":
        return None
    if span.name == "invocation":
        return SpanReading(kind="agent", has_failed=span.has_failed)
    reading = genai.read_genai(span)
    if reading is None or reading.kind != "tool":
        return reading
    arguments, response = _captured(span, "tool_call_args"), _captured(span, "tool_response")
    if arguments is not None:
        reading = replace(reading, tool_args=as_map(arguments))
    if response is not None:
        is_single = isinstance(response, Mapping) and set(response) == {"result"}
        result = as_map(response)["result"] if is_single else response
        reading = replace(reading, tool_result=text_of(result))
    return reading


def _read_call(span: Span, request: JsonMap) -> SpanReading:
    response = as_map(_captured(span, "llm_response"))
    config = as_map(request, "config")
    declarations = [
        {**declaration, "parameters": first(declaration, "parameters_json_schema", "parameters")}
        for tool in maps_in(config, "tools")
        for declaration in maps_in(tool, "function_declarations")
    ]
    return SpanReading(
        kind="inference",
        inputs=[message for each in maps_in(request, "contents") for message in _messages(each)],
        outputs=_messages(as_map(response, "content")),
        system=genai.instructions(config.get("system_instruction")),
        tools=tools_of(declarations),
        has_failed=span.has_failed,
    )


def _messages(content: JsonMap) -> list[ParsedMessage]:
    """The message of a content; thoughts are not speech."""
    parts = [part for part in maps_in(content, "parts") if part.get("thought") is not True]
    if not parts:
        return []
    return parse_messages({"role": as_text(content, "role") or "model", "parts": parts}, "user")


def _captured(span: Span, name: str) -> object:
    """The JSON in one of its attributes; None: nothing was captured."""
    value = span.attributes.get(f"{NATIVE}.{name}")
    return None if value is None or str(value).strip() in _EMPTY else parse_nested(value)


def _content(value: object) -> object:
    parsed = parse_nested(value)
    content = parsed.get("content") if isinstance(parsed, Mapping) else None
    return content if isinstance(content, Mapping) and "parts" in content else None
