"""OpenInference, whichever framework it watches: the OpenAI agents SDK, LlamaIndex, the Claude agent SDK."""

from proctor.telemetry.dialects import _openinference
from proctor.telemetry.reading import Span

read = _openinference.read


def speaks(span: Span) -> int:
    """Anything that names one of its kinds of span."""
    return 2 if _openinference.kind_of(span) else 0
