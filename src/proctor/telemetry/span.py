"""A span as dialects see it, and their reading of it.

Frameworks record the same things differently: agent, model and tool calls. A dialect is a module of
`dialects/` that turns a span into a `SpanReading`; everything else sees only those.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypedDict

from proctor.json_values import (
    JsonMap,
    as_cost,
    as_map,
    as_sequence,
    as_text,
    as_whole_number,
    maps_in,
    parsed_integer,
)
from proctor.session import ModelCall, ToolCall, Usage
from proctor.telemetry.documents import Document, nanoseconds
from proctor.telemetry.exports import conventional
from proctor.telemetry.messages import ParsedMessage, first


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span with its event records."""

    trace_id: str
    span_id: str
    parent_id: str
    """Empty: it is a root, as far as is known."""
    scope: str
    name: str
    started: int
    ended: int
    """Nanoseconds; equal to `started` when the end is not known."""
    has_failed: bool
    error: str
    """Message of its status or of an exception; empty: none."""
    attributes: JsonMap
    events: Sequence[JsonMap]
    records: Sequence[JsonMap]
    """In the order of their times."""


class SessionDetails(TypedDict, total=False):
    """Members of a `Session` that a span may state."""

    name: str
    model: str
    is_mock: bool
    status: str
    end_reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanReading:
    """The content of a span, independent of its dialect."""

    kind: Literal["agent", "inference", "tool", "step"]
    """A step is any other operation, like a retrieval; `tool` is its name, `tool_result` its result."""
    inputs: Sequence[ParsedMessage] = ()
    outputs: Sequence[ParsedMessage] = ()
    agent: str = ""
    """The agent's name; empty for a chain or a workflow around agents."""
    tool: str = ""
    tool_args: JsonMap | None = None
    """None: not recorded."""
    tool_result: str | None = None
    tool_call_id: str = ""
    """The id that the model gave the call."""
    has_failed: bool = False
    system: str = ""
    tools: Sequence[JsonMap] = ()
    transcript: Sequence[tuple[ParsedMessage, int]] | None = None
    """All messages of this turn in order, each with its time in nanoseconds.
    None: they have to be collected from the spans."""
    event: ToolCall | ModelCall | None = None
    """The call itself, where the span has all of it. None: it has to be assembled."""
    trace_id: str = ""
    """The id of the turn before it was exported; empty: the id of the trace."""
    session_fields: SessionDetails = field(default_factory=lambda: SessionDetails())
    """Fields of `Session` that the span states; they take precedence over inferred ones."""


class SpanDialect(Protocol):
    """A module of `dialects/`."""

    def confidence(self, span: Span) -> int:
        """Confidence that this span is in its dialect, 0 to 3. The dialect with the highest reads it."""

    def read(self, span: Span) -> SpanReading | None:
        """The content of the span; None when it is irrelevant."""


def span_of(document: Document, records: Sequence[Document]) -> Span:
    """A span from its document and event records."""
    started, name = nanoseconds(document["startTimeUnixNano"]), as_text(document["name"])
    attributes = conventional(as_map(document, "attributes"), name, as_text(document["parentSpanId"]))
    has_failed = as_map(document, "status")["code"] == "ERROR" or bool(attributes.get("error.type"))
    return Span(
        trace_id=as_text(document["traceId"]),
        span_id=as_text(document["spanId"]),
        parent_id=as_text(document["parentSpanId"]),
        scope=as_text(as_map(document, "scope")["name"]),
        name=name,
        started=started,
        ended=max(started, nanoseconds(document["endTimeUnixNano"])),
        has_failed=has_failed,
        error=_error(document) if has_failed else "",
        attributes=attributes,
        events=maps_in(document["events"]),
        records=sorted(records, key=lambda record: nanoseconds(record["timeUnixNano"])),
    )


def usage_of(span: Span) -> Usage:
    """Token counts of a span."""
    counts = {
        field: as_whole_number(parsed_integer(first(span.attributes, *names)))
        for field, names in _USAGE.items()
    }
    read, written = counts["cached_tokens"], counts["cache_write_tokens"]
    # Some exclude cached tokens from the prompt tokens; here they are included.
    if read + written > counts["input_tokens"]:
        counts["input_tokens"] += read + written
    counts["output_tokens"] = max(counts["output_tokens"], counts["reasoning_tokens"])
    return Usage(**counts)


def model_of(span: Span) -> str:
    """The model that answered, or that was requested."""
    return str(first(span.attributes, *_MODEL) or "")


class ServedAttributes(TypedDict):
    """Members of a `ModelCall` that say who answered."""

    served_model: str
    fingerprint: str
    request_id: str
    finish_reason: str


def served_in(span: Span) -> ServedAttributes:
    """Who answered the call in a span, and why the answer ended; empty where the span does not say."""
    attributes = span.attributes
    reasons = as_sequence(attributes.get("gen_ai.response.finish_reasons"))
    return {
        "served_model": as_text(attributes, "gen_ai.response.model"),
        "fingerprint": as_text(attributes, "gen_ai.openai.response.system_fingerprint"),
        "request_id": as_text(attributes, "gen_ai.response.id"),
        "finish_reason": str(reasons[0]) if reasons else "",
    }


def provider_of(span: Span) -> str:
    """The provider of the model."""
    return str(first(span.attributes, *_PROVIDER) or "")


def cost_of(span: Span) -> float | None:
    """The cost of the call in a span, in USD; None: it has none."""
    costs = (as_cost(span.attributes, name) for name in _COST)
    return next((cost for cost in costs if cost is not None), None)


def _error(document: Document) -> str:
    messages = [as_map(document, "status").get("message")]
    for event in maps_in(document["events"]):
        if event["name"] == "exception":
            messages.append(as_map(event, "attributes").get("exception.message"))
    messages.append(as_map(document, "attributes").get("error.type"))
    return next((str(message) for message in messages if message), "it failed")


_USAGE = {
    "input_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "ai.usage.inputTokens",
        "ai.usage.promptTokens",
        "llm.usage.prompt_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.outputTokens",
        "ai.usage.completionTokens",
        "llm.usage.completion_tokens",
    ),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
        "ai.usage.cachedInputTokens",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
        "ai.usage.reasoningTokens",
    ),
}
_MODEL = (
    "gen_ai.response.model",
    "gen_ai.request.model",
    "llm.model_name",
    "ai.response.model",
    "ai.model.id",
    "llm.request.model",
)
_COST = ("operation.cost", "llm.cost.total", "gen_ai.usage.cost")
_PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider")
