"""Strands: content in span events or event records, as blocks of the model it was written for.

Under `gen_ai_latest_experimental` it writes the newer parts instead, in one event; both are read. A cycle
of its event loop is a span of its own that repeats what the model's and the tools' spans say.
"""

from proctor.telemetry.dialects import _otel
from proctor.telemetry.reading import Reading, Span

SCOPES = ("strands.telemetry.tracer", "strands-agents", "strands")


def speaks(span: Span) -> int:
    """Its own tracers."""
    return 3 if span.scope in SCOPES else 0


def read(span: Span) -> Reading | None:
    """Read a span; without an operation its name says what it is."""
    kind = _otel.kind_of(span) or _by_name(span.name)
    if kind is None:
        return None
    content = _otel.content_of(span)
    return _otel.read_tool(span, content) if kind == "tool" else _otel.read_talk(span, kind, content)


def _by_name(name: str) -> _otel.Kind | None:
    # Versions before it named operations.
    if name.startswith(("invoke_agent ", "Agent: ")):
        return "agent"
    if name.startswith(("execute_tool ", "Tool: ")):
        return "tool"
    return "inference" if name == "Model invoke" else None
