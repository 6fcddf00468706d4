"""Mastra's own exporter: the conventions' attributes, but what an agent was asked and answered in its own."""

from dataclasses import replace

from proctor.telemetry.dialects import genai
from proctor.telemetry.messages import parse_messages
from proctor.telemetry.span import Span, SpanReading

_RUN = "mastra.agent_run"


def confidence(span: Span) -> int:
    """Anything that names one of its kinds of span."""
    return 3 if "mastra.span.type" in span.attributes else 0


def read(span: Span) -> SpanReading | None:
    """Read a span by the conventions."""
    reading = genai.read_genai(span)
    if reading is None or reading.kind != "agent":
        return reading
    asked = parse_messages(span.attributes.get(f"{_RUN}.input"), "user")
    answered = parse_messages(span.attributes.get(f"{_RUN}.output"), "assistant")
    return replace(reading, inputs=reading.inputs or asked, outputs=reading.outputs or answered)
