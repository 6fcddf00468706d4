"""Traceloop and OpenLLMetry: `traceloop.*` for who was called, `gen_ai.prompt.N` for what was said.

Its instrumentations of the OpenAI agents SDK and of LlamaIndex write the same.
"""

from proctor.telemetry.dialects import genai
from proctor.telemetry.span import Span

read = genai.read_genai


def speaks(span: Span) -> int:
    """Anything with one of its own attributes."""
    own = ("traceloop.span.kind", "llm.request.type", "gen_ai.prompt.0.role", "gen_ai.completion.0.role")
    return 2 if any(key in span.attributes for key in own) else 0
