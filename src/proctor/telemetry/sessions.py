"""Builds sessions from documents.

Each trace is a step, with its messages, model calls and tool calls in order. Agents send the whole
conversation with each request, so only new messages are added.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime

from proctor.json_values import JsonMap, JsonObject, as_map, as_text
from proctor.session import ModelCall, Session, Step, TimedEvent
from proctor.telemetry.dialects import read_span
from proctor.telemetry.documents import Document, is_span, mark_of, sessions_among
from proctor.telemetry.span import Span, SpanReading, span_of
from proctor.telemetry.transcript import UNKNOWN_MODEL, SpanTranscript, TraceReader

SOURCE = "otlp"
MOST_ATTRIBUTES = 100
LONGEST_ATTRIBUTE = 200
_TELLING = (
    *("message", "prompt", "completion", "input", "output", "content", "value", "instructions", "entity"),
    *("arguments", "args", "result", "definitions", "text", "exception", "parameters", "description"),
    *("json_schema", "query", "response", "body", "tools", "metadata"),
)
"""Parts of the names of attributes that hold what was said, which belongs into the transcript alone."""
_FIGURES = ("usage", "token_count", "duration", "time")
"""Parts of the names of figures that are of one span and not of the session."""


def sessions_of(documents: Iterable[Document], *, service: str = "", log_group: str = "") -> list[Session]:
    """The sessions in these documents; `service` and `log_group` are defaults."""
    by_key = {}
    marks = {}
    for document in documents:
        mark = mark_of(document, fallback=log_group, service=service)
        by_key[mark.key], marks[mark.key] = document, mark
    built = (
        session_of(
            [by_key[mark.key] for mark in members],
            external_id=name.external_id,
            service=name.service,
            log_group=name.log_group,
        )
        for name, members in sessions_among(marks.values()).items()
    )
    return [session for session in built if session is not None]


def session_of(
    documents: Sequence[Document],
    *,
    external_id: str,
    service: str = "",
    log_group: str = "",
    left_out: int = 0,
) -> Session | None:
    """One session from its documents; None when none of them tells of an agent's work.

    `left_out` is how many more there are that nobody looks at.
    """
    transcript = SpanTranscript()
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in _spans(documents):
        traces[span.trace_id].append(span)
    turns = [TraceReader(spans, _read(spans), transcript) for spans in traces.values()]
    turns = sorted((turn for turn in turns if turn.has_work), key=lambda turn: turn.started)
    if not turns:
        return None
    transcripts = [turn.tell() for turn in turns]
    steps = [
        Step(
            trace_id=turn.name,
            events=[TimedEvent(event=event, at=moment(at)) for at, event in transcript.events(happened)],
            started_at=moment(turn.started),
            finished_at=moment(turn.ended),
        )
        for turn, happened in zip(turns, transcripts, strict=True)
    ]
    roots = [(root, turn.read[root.span_id]) for turn in turns for root in turn.roots]
    failed = next((span for span, reading in roots if reading.has_failed), None)
    session = Session(
        external_id=external_id,
        source=SOURCE,
        service=service,
        log_group=log_group,
        name=external_id,
        agent=next((reading.agent for _, reading in roots if reading.agent), ""),
        model=_most_used(steps),
        status="fail" if failed else "success",
        end_reason="agent_failed" if failed else "completed",
        error=failed.error if failed else "",
        started_at=steps[0].started_at,
        finished_at=max((step.finished_at for step in steps if step.finished_at), default=None),
        steps=steps,
        tools=_tools(reading for turn in turns for reading in turn.read.values()),
        attributes=_attributes(documents, {key for turn in turns for key in turn.keys}),
        notes=[f"{left_out:,} more spans and records were left out"] if left_out else [],
    )
    for _, reading in roots:
        session = replace(session, **reading.session_fields)
    return session


def moment(nanoseconds: int) -> datetime | None:
    """A time from nanoseconds; None: unknown."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC) if nanoseconds else None
    except (OverflowError, ValueError, OSError):
        return None


def _read(spans: Sequence[Span]) -> dict[str, SpanReading]:
    """Readings of the spans of one trace, by span id, which is unique only there."""
    return {span.span_id: reading for span in spans if (reading := read_span(span)) is not None}


def _spans(documents: Sequence[Document]) -> list[Span]:
    records: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for document in documents:
        if not is_span(document):
            records[_key(document)].append(document)
    spans = [span_of(document, records[_key(document)]) for document in documents if is_span(document)]
    return sorted(spans, key=lambda span: (span.started, -span.ended, span.span_id))


def _key(document: Document) -> tuple[str, str]:
    return as_text(document["traceId"]), as_text(document["spanId"])


def _most_used(steps: Sequence[Step]) -> str:
    events = (happening.event for step in steps for happening in step.events)
    models = Counter(
        event.model for event in events if isinstance(event, ModelCall) and event.model != UNKNOWN_MODEL
    )
    return models.most_common(1)[0][0] if models else ""


def _tools(readings: Iterable[SpanReading]) -> list[JsonMap]:
    """Each tool once, in its most detailed description."""
    tools: dict[str, JsonMap] = {}
    for tool in (tool for reading in readings for tool in reading.tools):
        name = str(tool["name"])
        if name not in tools or len(tool) > len(tools[name]):
            tools[name] = tool
    return list(tools.values())


def _attributes(documents: Sequence[Document], read: Set[tuple[str, str]]) -> JsonObject:
    """Further short attributes for filters, without messages."""
    attributes: JsonObject = {}
    for document in documents:
        if _key(document) in read and is_span(document):
            for path in (("attributes",), ("resource", "attributes")):
                for key, value in _short(as_map(document, *path)):
                    attributes.setdefault(key, value)
            if len(attributes) >= MOST_ATTRIBUTES:
                break
    return dict(list(attributes.items())[:MOST_ATTRIBUTES])


def _short(attributes: JsonMap) -> Iterator[tuple[str, object]]:
    for key, value in attributes.items():
        is_telling = any(word in key.lower() for word in _TELLING)
        is_short = isinstance(value, str) and len(value) <= LONGEST_ATTRIBUTE and not is_telling
        is_figure = isinstance(value, bool | int | float) and not any(word in key for word in _FIGURES)
        if (is_short or is_figure) and not key.startswith("proctor."):
            yield key, value
