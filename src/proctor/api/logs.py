"""Log groups and streams: results of evaluations, events that callers put, spans and records that arrived."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from proctor.batch.ingest import build_sessions, keep_arrivals
from proctor.context import RunContext
from proctor.jobs.evaluation.online import MARK
from proctor.jobs.evaluation.results import records_of
from proctor.json_values import JsonMap, JsonObject, parse_json
from proctor.store import evaluations
from proctor.store.batches import moment
from proctor.store.intake import LogEvent
from proctor.telemetry.documents import normalized
from proctor.telemetry.event_records import event_record
from proctor.telemetry.sources import SPANS

__all__ = [
    "RECEIVED",
    "LogEvent",
    "LogStream",
    "ResultRecord",
    "StreamEvent",
    "TimeWindow",
    "all_streams",
    "count_spans",
    "create_stream",
    "event_times",
    "put_events",
    "received_documents",
    "result_records",
    "result_streams",
    "root_spans",
    "spans_page",
    "written_events",
]


RECEIVED = "otel-rt-logs"
"""Stream of what was received over OpenTelemetry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One event of a stream; times in milliseconds since 1970."""

    stream: str
    timestamp: int
    message: str
    ingested: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStream:
    """A stream. Each group also has an entry without a stream name."""

    group: str
    name: str
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Time range of the events of a stream, in milliseconds since 1970."""

    first: int
    last: int
    ingested: int

    def joined(self, other: "TimeWindow | None") -> "TimeWindow":
        """The union of both."""
        if other is None:
            return self
        return TimeWindow(
            first=min(self.first, other.first),
            last=max(self.last, other.last),
            ingested=max(self.ingested, other.ingested),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    """A result of an evaluation, and the online configuration that it is of."""

    config_id: str
    """Empty: none."""
    config_name: str
    record: JsonMap


def all_streams(ctx: RunContext) -> list[LogStream]:
    """All streams, of results and of callers, by group and name; each group precedes its streams."""
    created_at: dict[tuple[str, str], int] = {}

    def add(group: str, name: str, created: str | None) -> None:
        at = _milliseconds(created)
        for key in ((group, ""), (group, name)):
            created_at[key] = min(at, created_at.get(key, at))

    for group, name, at in _output_streams(ctx):
        add(group, name, at)
    for stream in ctx.store.logs.streams():
        add(stream["logGroup"], stream["logStream"], stream["createdAt"])
    for sessions in evaluations.session_log_groups(ctx.store.read):
        add(sessions["logGroup"], "", sessions["at"])
    if ctx.store.arrivals.has_spans():
        add(SPANS, RECEIVED, None)
    return [LogStream(group=group, name=name, created=at) for (group, name), at in sorted(created_at.items())]


def event_times(ctx: RunContext, group: str, names: Sequence[str] | None = None) -> dict[str, TimeWindow]:
    """Time ranges of events by stream; of some streams or of all in a group."""
    windows: dict[str, TimeWindow] = {}
    for row in evaluations.result_periods(ctx.store.read, group, names):
        last = _milliseconds(row["last"])
        windows[row["stream"]] = TimeWindow(first=_milliseconds(row["first"]), last=last, ingested=last)
    for stream in ctx.store.logs.streams():
        first, end, ingested = stream["first"], stream["last"], stream["ingested"]
        if stream["logGroup"] == group and first is not None and end is not None and ingested is not None:
            own = TimeWindow(first=first, last=end, ingested=ingested)
            windows[stream["logStream"]] = own.joined(windows.get(stream["logStream"]))
    return windows


def written_events(ctx: RunContext, group: str, stream: str) -> Iterator[StreamEvent]:
    """The events that callers put into a stream."""
    for row in ctx.store.logs.events(group, stream):
        yield StreamEvent(
            stream=stream, timestamp=row["timestamp"], message=row["message"], ingested=row["ingestedAt"]
        )


def result_streams(ctx: RunContext) -> list[tuple[str, str]]:
    """Group and name of the streams that evaluations write to."""
    return [(group, name) for group, name, _ in _output_streams(ctx)]


def result_records(ctx: RunContext, group: str, stream: str) -> Iterator[ResultRecord]:
    """The results of evaluations in a stream, also of deleted ones."""
    for job in ctx.store.evaluations.of_stream(group, stream):
        config_id = json.loads(job["requestJson"]).get(MARK, "")
        for record in records_of(ctx.store, job["id"]):
            yield ResultRecord(config_id=config_id, config_name=job["name"], record=record)


def received_documents(
    ctx: RunContext,
    group: str,
    *,
    first_ms: int,
    last_ms: int,
    session_keys: Sequence[str] = (),
    trace_ids: Sequence[str] = (),
) -> Iterator[tuple[tuple[str, str, str], int, JsonMap]]:
    """Spans (of the group `aws/spans`) or event records of a time range, with identity and time in ms.

    Spans of a trace without event records have one each, made of their own content.
    """
    yield from ctx.store.arrivals.search(
        log_group="" if group == SPANS else group,
        first_ms=first_ms,
        last_ms=last_ms,
        session_keys=session_keys,
        trace_ids=trace_ids,
    )
    if group == SPANS:
        return
    for session_id, at, span in ctx.store.arrivals.spans_without_records(group, first_ms, last_ms):
        is_selected = (not session_keys or session_id in session_keys) and (
            not trace_ids or span["traceId"] in trace_ids
        )
        if is_selected and (record := event_record(span, session_id)) is not None:
            yield (str(span["traceId"]), str(span["spanId"]), "record"), at, record


def count_spans(ctx: RunContext, *, first_ms: int, last_ms: int) -> int:
    """How many spans of a time range were received."""
    return ctx.store.arrivals.count_spans(first_ms=first_ms, last_ms=last_ms)


def spans_page(
    ctx: RunContext, *, first_ms: int, last_ms: int, offset: int, limit: int
) -> Sequence[tuple[int, JsonMap]]:
    """A page of the spans of a time range, each with its time in ms, oldest first."""
    return ctx.store.arrivals.spans_page(first_ms=first_ms, last_ms=last_ms, offset=offset, limit=limit)


def root_spans(ctx: RunContext, trace_ids: Iterable[str]) -> dict[str, str]:
    """The outermost span of each received trace, by trace ID."""
    return ctx.store.arrivals.root_spans(trace_ids)


def create_stream(ctx: RunContext, group: str, stream: str = "") -> None:
    """Create a group, or a stream in one. Raises `Contradiction` if it exists."""
    ctx.store.logs.create(group, stream, ctx.now())


def put_events(ctx: RunContext, group: str, stream: str, events: Sequence[LogEvent]) -> None:
    """Append events to a stream; spans and event records among them become sessions. Raises `NotFound`."""
    ctx.store.logs.put(group, stream, events, ctx.now())
    documents = [document for event in events if (document := _document(event.message)) is not None]
    if documents:
        keep_arrivals(ctx.store, documents, ctx.now(), log_group=group)
        build_sessions(ctx.store, ctx.now())


def _output_streams(ctx: RunContext) -> Iterator[tuple[str, str, str | None]]:
    for row in evaluations.output_streams(ctx.store.read):
        yield row["outputGroup"], row["outputStream"], row["at"]


def _document(message: str) -> JsonObject | None:
    """The span or event record in a message; None: an ordinary line."""
    try:
        document = parse_json(message)
        return normalized(document) if isinstance(document, dict) else None
    except (ValueError, RecursionError):
        return None


def _milliseconds(stamp: str | None) -> int:
    at = moment(stamp)
    return int(at.timestamp() * 1000) if at else 0
