"""Google's Agent Development Kit as OpenInference records it: its own events around each message."""

from collections.abc import Mapping
from dataclasses import replace

from proctor.telemetry.dialects import openinference
from proctor.telemetry.messages import parse_messages, parse_nested
from proctor.telemetry.span import Span, SpanReading, first

SCOPE = "openinference.instrumentation.google_adk"


def speaks(span: Span) -> int:
    """Its own scope."""
    return 3 if span.scope == SCOPE else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; its results and answers stand inside an event's content."""
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


def _content(value: object) -> object:
    parsed = parse_nested(value)
    content = parsed.get("content") if isinstance(parsed, Mapping) else None
    return content if isinstance(content, Mapping) and "parts" in content else None
