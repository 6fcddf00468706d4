"""Logfire's instrumentation of the OpenAI Agents SDK.

Models have the conventions' attributes, with their messages in the attribute `events`; agents and tools are
named by their templates of messages. Tasks and turns around them repeat their figures.
"""

from dataclasses import replace

from proctor.json_values import as_map
from proctor.telemetry.dialects import genai
from proctor.telemetry.messages import args_of, first, parse_nested, text_of, tools_of
from proctor.telemetry.span import Span, SpanReading

SCOPE = "logfire.openai_agents"


def confidence(span: Span) -> int:
    """Its scope."""
    return 3 if span.scope == SCOPE else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; None for one that only surrounds others."""
    attributes = span.attributes
    kind = str(attributes.get("logfire.msg_template") or span.name).partition(":")[0]
    if kind == "Function":
        result = attributes.get("output")
        return SpanReading(
            kind="tool",
            tool=str(attributes.get("name") or ""),
            tool_args=args_of(attributes.get("input")),
            tool_result=None if result is None else text_of(result),
            has_failed=span.has_failed,
        )
    if kind in ("Agent run", "OpenAI Agents trace"):
        agent = str(attributes.get("name") or "") if kind == "Agent run" else ""
        return SpanReading(kind="agent", agent=agent, has_failed=span.has_failed)
    reading = genai.read_genai(span)
    tools = tools_of(as_map(parse_nested(first(attributes, "response"))).get("tools"))
    return replace(reading, tools=tools) if reading and tools else reading
