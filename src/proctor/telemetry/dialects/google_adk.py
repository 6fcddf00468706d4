"""Google's Agent Development Kit, as it records itself and as OpenInference records it.

Its own spans keep requests and responses of models as JSON in `gcp.vertex.agent.*`. Their newer schema
follows the GenAI conventions and has none of these.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from proctor.json_values import JsonMap, as_map, as_text, maps_in
from proctor.telemetry.dialects import genai, openinference
from proctor.telemetry.messages import ParsedMessage, first, parse_messages, parse_nested, text_of, tools_of
from proctor.telemetry.span import Span, SpanReading

SCOPE = "openinference.instrumentation.google_adk"
NATIVE = "gcp.vertex.agent"
# The name of an agent's span before ADK 1.14.
_AGENT = re.compile(r"agent_run \[(.+)\]")
_EMPTY = ("", "{}", "<not specified>", "N/A", "null")
"""Values that stand for content that does not apply or was not captured."""


def confidence(span: Span) -> int:
    """Its own scope, or its own attributes where the scope is not known."""
    return 3 if span.scope in (SCOPE, NATIVE) or any(key.startswith(NATIVE) for key in span.attributes) else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; its results and answers stand inside an event's content."""
    if span.scope != SCOPE:
        return _read_overwritten(span) if openinference.kind_of(span) == "LLM" else _read_native(span)
    reading = openinference.read_openinference(span)
    if reading is None or reading.kind == "inference":
        return reading
    output = parse_nested(first(span.attributes, "output.value"))
    if reading.kind == "tool" and isinstance(output, Mapping) and {"name", "response"} <= set(output):
        return replace(reading, tool_result=_result(output["response"]))
    content = _content(output)
    if content is None:
        return reading
    messages = parse_messages(content, "assistant")
    if reading.kind == "agent":
        named = _AGENT.fullmatch(reading.agent)
        return replace(reading, outputs=messages, agent=named[1] if named else reading.agent)
    results = [result for each in messages for result in each.results]
    if not results:
        return reading
    return replace(reading, tool_result="\n".join(result.text for result in results))


def _read_overwritten(span: Span) -> SpanReading | None:
    """The agent's own span, over which OpenInference has written each model call: the last one is left.

    Its tools have spans; of the calls, some stand there twice.
    """
    reading = openinference.read_openinference(span)
    if reading is None:
        return None
    return replace(
        reading,
        inputs=[message for message in reading.inputs if message.role in ("system", "user")],
        outputs=[replace(message, calls=()) for message in reading.outputs],
    )


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
    if response is None and reading.tool_result is not None:
        response = parse_nested(reading.tool_result)
    return reading if response is None else replace(reading, tool_result=_result(response))


def _result(response: object) -> str:
    is_single = isinstance(response, Mapping) and set(response) == {"result"}
    return text_of(as_map(response)["result"] if is_single else response)


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


def _content(parsed: object) -> object:
    content = parsed.get("content") if isinstance(parsed, Mapping) else None
    return content if isinstance(content, Mapping) and "parts" in content else None
