"""Span dialects, one module each.

A module with `confidence` and `read` is a dialect, found by its file. The most confident one reads a span;
spans of mere transport are skipped.
"""

import pkgutil
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

from proctor.telemetry.messages import ParsedMessage
from proctor.telemetry.span import Span, SpanDialect, SpanReading

TRANSPORT = (
    "httpx",
    "urllib3",
    "urllib",
    "requests",
    "aiohttp_client",
    "starlette",
    "fastapi",
    "asgi",
    "mcp",
    "botocore",
)
"""Instrumentations of what lies below an agent: they see requests, not turns."""
_PREFIXES = ("opentelemetry.instrumentation.", "openinference.instrumentation.")
PROMPT, RESPONSE = "agentcore.invocation.user_prompt", "agentcore.invocation.agent_response"


def read_span(span: Span) -> SpanReading | None:
    """The content of a span; None when it is irrelevant."""
    highest, best = 0, None
    for dialect in () if is_transport(span.scope) else _dialects():
        confidence = dialect.confidence(span)
        if confidence > highest:
            highest, best = confidence, dialect
    return _with_invocation(best.read(span) if best else None, span)


def is_transport(scope: str) -> bool:
    """Whether a scope is of something that only carries requests."""
    for prefix in _PREFIXES:
        if scope.startswith(prefix):
            name = scope.removeprefix(prefix).lower()
            return any(name == each or name.startswith(f"{each}.") for each in TRANSPORT)
    return False


def _with_invocation(reading: SpanReading | None, span: Span) -> SpanReading | None:
    """A reading with the prompt and answer of an agent, which any span may have in two attributes."""
    prompt, answered = span.attributes.get(PROMPT), span.attributes.get(RESPONSE)
    if not prompt and not answered:
        return reading
    inputs = [ParsedMessage("user", str(prompt))] if prompt else []
    outputs = [ParsedMessage("assistant", str(answered))] if answered else []
    if reading is None:
        return SpanReading(kind="agent", inputs=inputs, outputs=outputs, has_failed=span.has_failed)
    if reading.kind != "agent":
        return reading
    return replace(reading, inputs=reading.inputs or inputs, outputs=reading.outputs or outputs)


@cache
def _dialects() -> tuple[SpanDialect, ...]:
    files = pkgutil.iter_modules([str(Path(__file__).parent)])
    names = sorted(module.name for module in files if not module.name.startswith("_"))
    return tuple(import_module(f"{__name__}.{name}") for name in names)
