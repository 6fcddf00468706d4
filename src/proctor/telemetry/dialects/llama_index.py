"""LlamaIndex: steps of its workflows carry printed objects, and each model call stands in several spans.

Of its two instrumentations, OpenInference's has messages on the innermost model span only; Traceloop's names
a tool on the step that called it.
"""

from collections.abc import Mapping
from dataclasses import replace

from proctor.json_values import JsonMap, as_map, as_text, maps_in
from proctor.telemetry.dialects import genai, openinference
from proctor.telemetry.messages import args_of, first, parse_nested, text_of
from proctor.telemetry.span import Span, SpanReading

OPENINFERENCE = "openinference.instrumentation.llama_index"
TRACELOOP = ("opentelemetry.instrumentation.llamaindex", "opentelemetry.instrumentation.llama_index")
_STEP = ("ctx", "ev", "init_state", "start_event")
"""Arguments of the functions of a workflow: objects of the framework, not messages."""


def confidence(span: Span) -> int:
    """The scopes of its instrumentations."""
    return 3 if span.scope == OPENINFERENCE or span.scope in TRACELOOP else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; steps of a workflow that repeat others are left out."""
    return _read_traceloop(span) if span.scope in TRACELOOP else _read_openinference(span)


def _read_openinference(span: Span) -> SpanReading | None:
    kind = openinference.kind_of(span)
    if kind == openinference.MODEL and not any(
        key.startswith(("llm.input_messages.", "llm.output_messages.", "llm.token_count."))
        for key in span.attributes
    ):
        return None
    if kind in openinference.AGENTS and _is_step(span):
        # The outermost one is the agent; its messages are those of its models.
        return None if span.parent_id else SpanReading(kind="agent", has_failed=span.has_failed)
    reading = openinference.read_openinference(span)
    if reading is None or reading.kind != "tool":
        return reading
    return _with_output(reading, as_map(parse_nested(first(span.attributes, "output.value"))))


def _read_traceloop(span: Span) -> SpanReading | None:
    attributes = span.attributes
    if attributes.get("traceloop.span.kind") == "task" and attributes.get("tool.name"):
        called = as_map(parse_nested(attributes.get("traceloop.entity.output")))
        reading = SpanReading(
            kind="tool",
            tool=str(attributes["tool.name"]),
            tool_args=args_of(attributes.get("tool.arguments")),
            tool_call_id=as_text(called, "tool_id"),
            has_failed=span.has_failed,
        )
        return _with_output(reading, as_map(called, "tool_output"))
    return genai.read_genai(span)


def _is_step(span: Span) -> bool:
    arguments = parse_nested(first(span.attributes, "input.value"))
    return isinstance(arguments, Mapping) and any(name in arguments for name in _STEP)


def _with_output(reading: SpanReading, output: JsonMap) -> SpanReading:
    """The reading of a tool with the result in its `ToolOutput`."""
    if not ("blocks" in output and "tool_name" in output):
        return reading
    texts = [text for block in maps_in(output, "blocks") if (text := as_text(block, "text"))]
    result = "\n".join(texts) or text_of(output.get("raw_output"))
    has_failed = reading.has_failed or output.get("is_error") is True
    return replace(reading, tool_result=result, has_failed=has_failed)
