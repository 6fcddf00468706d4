"""Haystack as OpenInference records it: the messages of an agent and its models as Python prints them.

Attributes of the models' messages leave out tool calls and results, which the printed ones have.
"""

from dataclasses import replace

from proctor.telemetry.dialects import openinference
from proctor.telemetry.messages import first, parse_messages
from proctor.telemetry.span import Span, SpanReading

SCOPE = "openinference.instrumentation.haystack"


def confidence(span: Span) -> int:
    """Its scope."""
    return 3 if span.scope == SCOPE else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; None for a component between an agent and its models, such as a prompt builder."""
    reading = openinference.read_openinference(span)
    if reading is None or (
        reading.kind == "agent" and span.parent_id and not span.name.endswith("Agent.run")
    ):
        return None
    if reading.kind == "agent":
        # It writes no names: that of the component.
        return replace(reading, agent=span.name.removesuffix(".run"))
    if reading.kind != "inference":
        return reading
    inputs = parse_messages(first(span.attributes, "input.value"), "user")
    outputs = parse_messages(first(span.attributes, "output.value"), "assistant")
    return replace(reading, inputs=inputs or reading.inputs, outputs=outputs or reading.outputs)
