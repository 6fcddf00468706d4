"""The spans that a received session was built from, as a tree, with their figures and raw attributes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from proctor.context import RunContext
from proctor.errors import NotFound
from proctor.json_values import CamelJson, JsonObject
from proctor.models.prices import listed_price
from proctor.telemetry.dialects import read_span
from proctor.telemetry.documents import is_span
from proctor.telemetry.span import Span, cost_of, model_of, provider_of, span_of, usage_of

MOST_SPANS = 2_000
Key = tuple[str, str]
"""Trace and span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanNode(CamelJson):
    """One span of a session."""

    trace_id: str
    span_id: str
    depth: int
    """0: a root of its trace, as far as is known."""
    name: str
    kind: str
    """`agent`, `inference`, `tool` or `step`; empty: nothing is read from it."""
    label: str
    """The agent, model or tool; empty: unknown."""
    start_ms: float
    """Since the first span of the session."""
    duration_ms: float
    input_tokens: int
    """Of its own model call."""
    output_tokens: int
    cost_usd: float | None
    """Of its own model call, as recorded or by the price list; null: unknown, or none."""
    total_tokens: int
    """With all spans below it."""
    total_cost_usd: float | None
    has_failed: bool
    error: str
    descendants: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpans(CamelJson):
    """The spans of a session, each before those below it, in the order of their start."""

    spans: Sequence[SpanNode]
    """Empty: it was not built from spans."""
    total: int
    duration_ms: float


def session_spans(ctx: RunContext, session_id: str) -> SessionSpans:
    """The spans that a session was built from, by its whole ID."""
    spans = {
        (span.trace_id, span.span_id): span
        for span in (
            span_of(document, [])
            for document in ctx.store.arrivals.documents(session_id)
            if is_span(document)
        )
    }
    begin = min((span.started for span in spans.values()), default=0)
    end = max((span.ended for span in spans.values()), default=0)
    below: dict[Key | None, list[Key]] = defaultdict(list)
    for key, span in spans.items():
        parent = (span.trace_id, span.parent_id)
        below[parent if parent in spans and parent != key else None].append(key)
    nodes = list(_nodes(spans, below, begin))
    return SessionSpans(spans=nodes[:MOST_SPANS], total=len(spans), duration_ms=(end - begin) / 1e6)


def _nodes(
    spans: Mapping[Key, Span], below: Mapping[Key | None, Sequence[Key]], begin: int
) -> Iterator[SpanNode]:
    """Depth first, without recursion: traces of frameworks are deep."""
    order: list[tuple[Key, int]] = []
    waiting = [(key, 0) for key in reversed(below.get(None, ()))]
    while waiting:
        key, depth = waiting.pop()
        order.append((key, depth))
        waiting += [(child, depth + 1) for child in reversed(below.get(key, ()))]
    own = {key: _own(spans[key]) for key, _ in order}
    tokens = {key: each.tokens for key, each in own.items()}
    costs = {key: each.cost_usd for key, each in own.items()}
    descendants = dict.fromkeys(own, 0)
    for key, _ in reversed(order):
        for child in below.get(key, ()):
            tokens[key] += tokens[child]
            descendants[key] += 1 + descendants[child]
            if (cost := costs[child]) is not None:
                costs[key] = (costs[key] or 0.0) + cost
    for key, depth in order:
        span, figures = spans[key], own[key]
        yield SpanNode(
            trace_id=span.trace_id,
            span_id=span.span_id,
            depth=depth,
            name=span.name,
            kind=figures.kind,
            label=figures.label,
            start_ms=(span.started - begin) / 1e6,
            duration_ms=(span.ended - span.started) / 1e6,
            input_tokens=figures.input_tokens,
            output_tokens=figures.output_tokens,
            cost_usd=figures.cost_usd,
            total_tokens=tokens[key],
            total_cost_usd=costs[key],
            has_failed=span.has_failed or figures.has_failed,
            error=span.error,
            descendants=descendants[key],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    kind: str = ""
    label: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    has_failed: bool = False

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def _own(span: Span) -> _Figures:
    """What a span says of itself. Sums of others, which agents and workflows repeat, do not count."""
    try:
        reading = read_span(span)
    except Exception:
        # Senders are untrusted; the session says why it cannot be read.
        reading = None
    if reading is None:
        return _Figures()
    if reading.kind != "inference":
        return _Figures(kind=reading.kind, label=reading.agent or reading.tool, has_failed=reading.has_failed)
    usage, model, cost = usage_of(span), model_of(span), cost_of(span)
    if cost is None and model and usage.total_tokens:
        moment = datetime.fromtimestamp(span.started / 1e9, UTC).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        price = listed_price(provider_of(span), model, at=moment)
        cost = price.for_call(usage)[0] if price else None
    return _Figures(
        kind=reading.kind,
        label=model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=cost,
        has_failed=reading.has_failed,
    )


def span_document(ctx: RunContext, session_id: str, trace_id: str, span_id: str) -> JsonObject:
    """One span as it was received, with all its attributes and events."""
    for document in ctx.store.arrivals.documents(session_id):
        if (document.get("traceId"), document.get("spanId")) == (trace_id, span_id) and is_span(document):
            return document
    raise NotFound(f"session {session_id} has no span {span_id}")
