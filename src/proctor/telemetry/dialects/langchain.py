"""LangChain and LangGraph: an agent's input and output are the serialized state of its graph.

Two instrumentations exist, each in Python and TypeScript: Traceloop has `inputs` and `outputs` around
LangChain's own notation, OpenInference has the messages at the top.
"""

import re
from dataclasses import replace

from proctor.json_values import as_map, as_text
from proctor.telemetry.dialects import genai, openinference
from proctor.telemetry.messages import parse_nested
from proctor.telemetry.span import Span, SpanReading

SCOPES = (
    "opentelemetry.instrumentation.langchain",
    "@traceloop/instrumentation-langchain",
    "openinference.instrumentation.langchain",
    "@arizeai/openinference-instrumentation-langchain",
    "@aws/aws-distro-opentelemetry-instrumentation-langchain",
)

# A tool's message as Python prints it: content='sunny' name='weather' tool_call_id='call_1'
_PRINTED = re.compile(r"content=(?P<quote>['\"])(?P<text>.*)(?P=quote) name=", re.DOTALL)


def confidence(span: Span) -> int:
    """The scopes of its instrumentations."""
    return 3 if span.scope in SCOPES else 0


def read(span: Span) -> SpanReading | None:
    """Read a span in whichever of the two forms it is."""
    reading = (
        openinference.read_openinference(span) if openinference.kind_of(span) else genai.read_genai(span)
    )
    if reading and reading.kind == "agent" and not reading.agent:
        metadata = as_map(parse_nested(span.attributes.get("metadata")))
        # The nodes of its graph name it too.
        if "langgraph_node" not in metadata:
            reading = replace(reading, agent=as_text(metadata, "lc_agent_name"))
    if reading and reading.kind == "tool" and reading.tool_result:
        printed = _PRINTED.match(reading.tool_result)
        return replace(reading, tool_result=printed["text"]) if printed else reading
    return reading
