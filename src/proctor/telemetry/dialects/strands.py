"""Strands: content in span events or event records, as blocks of its model's format.

With `gen_ai_latest_experimental` it writes the newer parts in one event; both are read. A cycle of its
event loop is a span that repeats the content of the model and tool spans.
"""

from dataclasses import replace

from proctor.telemetry.dialects import genai
from proctor.telemetry.span import Span, SpanReading

SCOPES = ("strands.telemetry.tracer", "strands-agents", "strands")


def confidence(span: Span) -> int:
    """Its own tracers."""
    return 3 if span.scope in SCOPES else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; without an operation its name says what it is."""
    kind = genai.kind_of(span) or _by_name(span.name)
    if kind is None:
        return None
    content = genai.content_of(span)
    if kind == "tool":
        return genai.read_tool(span, content)
    reading = genai.read_conversation(span, kind, content)
    system = span.attributes.get("system_prompt")
    return replace(reading, system=str(system)) if system and reading and not reading.system else reading


def _by_name(name: str) -> genai.Kind | None:
    # Versions before it named operations.
    if name.startswith(("invoke_agent ", "Agent: ")):
        return "agent"
    if name.startswith(("execute_tool ", "Tool: ")):
        return "tool"
    return "inference" if name == "Model invoke" else None
