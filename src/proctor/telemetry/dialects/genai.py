"""The GenAI semantic conventions of OpenTelemetry, whoever follows them."""

from proctor.telemetry.dialects import _otel
from proctor.telemetry.reading import Span

read = _otel.read


def speaks(span: Span) -> int:
    """Anything that names an operation of these conventions."""
    return 1 if _otel.kind_of(span) else 0
