"""Traceloop and OpenLLMetry: `traceloop.*` for the caller, `gen_ai.prompt.N` for the messages.

Its instrumentations of the OpenAI Agents SDK and of LlamaIndex use the same format.
"""

from proctor.telemetry.dialects import genai
from proctor.telemetry.span import Span

read = genai.read_genai


def confidence(span: Span) -> int:
    """Anything with one of its own attributes."""
    own = ("traceloop.span.kind", "llm.request.type", "gen_ai.prompt.0.role", "gen_ai.completion.0.role")
    return 2 if any(key in span.attributes for key in own) else 0
