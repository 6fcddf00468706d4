"""Decoding and encoding of OTLP: protobuf or JSON, possibly compressed, to and from flat documents.

A message that cannot be read is a `ValueError`; invalid single spans are counted and the rest is kept, as the
protocol requires.
"""

import base64
import hashlib
import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proctor.json_values import JsonMap, JsonObject, as_map, as_text, camel_case, maps_in, parse_json
from proctor.telemetry.documents import KINDS, STATUSES, Document, attributes_of, has_messages, normalized

if TYPE_CHECKING:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

TRACES, LOGS, METRICS = "traces", "logs", "metrics"
SIGNALS = (TRACES, LOGS, METRICS)
_TOP = {"resourceSpans": TRACES, "resourceLogs": LOGS, "resourceMetrics": METRICS}
_SCOPES = {
    TRACES: ("scopeSpans", "instrumentationLibrarySpans", "spans"),
    LOGS: ("scopeLogs", "instrumentationLibraryLogs", "logRecords"),
}
_CHUNK = 1 << 16


class TooLarge(ValueError):
    """Larger than the limit, before or after decompression."""


@dataclass(frozen=True, slots=True)
class DecodedSpans:
    """The content of one message."""

    documents: list[Document]
    rejected: int = 0
    """Spans or records that make no sense: without ids."""
    why: str = ""
    """What is wrong with the first of them."""


def unpacked(data: bytes, *, most: int) -> bytes:
    """gzip or zlib data, decompressed up to `most` bytes."""
    # 32 + 15: the header says which of the two it is.
    machine = zlib.decompressobj(32 + 15)
    out = bytearray()
    try:
        while data:
            out += machine.decompress(data, _CHUNK)
            if len(out) > most:
                raise TooLarge(f"it is more than {most:,} bytes when unpacked")
            data = machine.unconsumed_tail
            if machine.eof and (data := machine.unused_data):
                # Several gzip members in a row are one file.
                machine = zlib.decompressobj(32 + 15)
    except zlib.error as error:
        raise ValueError(f"it is not gzip: {error}") from error
    if not machine.eof:
        raise ValueError("it is not gzip: it breaks off")
    return bytes(out)


def decode_json(text: str | bytes, signal: str | None = None) -> DecodedSpans:
    """The documents of one OTLP JSON message; `signal` None: determined by its first key."""
    return decode_message(parse_json(text), signal)


def decode_message(message: object, signal: str | None = None) -> DecodedSpans:
    """The documents of a parsed message."""
    if not isinstance(message, Mapping):
        raise ValueError("it is not a JSON object")
    kind = signal_of(message)
    if kind is None and signal is None:
        raise ValueError("it holds neither resourceSpans nor resourceLogs")
    if signal is not None and kind not in (None, signal):
        raise ValueError(f"it holds {kind}, not {signal}")
    if kind is None or kind == METRICS:
        return DecodedSpans([])
    return _gathered(_flat(message, kind))


def decode_protobuf(data: bytes, signal: str) -> DecodedSpans:
    """The documents of one OTLP protobuf message."""
    # Late, since commands that read no protobuf should not wait for it.
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    if signal == METRICS:
        return DecodedSpans([])
    try:
        if signal == TRACES:
            return _gathered(_spans_of(ExportTraceServiceRequest.FromString(data)))
        return _gathered(_records_of(ExportLogsServiceRequest.FromString(data)))
    except DecodeError as error:
        raise ValueError(f"it is not OTLP {signal} in protobuf: {error}") from error


def signal_of(message: JsonMap) -> str | None:
    """The signal of a JSON message, by its first key; None: it is not OTLP."""
    for key, signal in _TOP.items():
        if _get(message, key) is not None:
            return signal
    return None


def _gathered(documents: Iterable[JsonMap]) -> DecodedSpans:
    accepted, rejected, why = list[Document](), 0, ""
    for source in documents:
        try:
            document = normalized(source)
        except ValueError as error:
            # A line of a log that belongs to no span is nothing to complain about.
            if "body" not in source:
                rejected, why = rejected + 1, why or f"a span was left out: {error}"
            continue
        if "body" not in source or has_messages(document):
            accepted.append(document)
    return DecodedSpans(accepted, rejected, why)


def _flat(message: JsonMap, signal: str) -> Iterator[JsonMap]:
    top = next(key for key, named in _TOP.items() if named == signal)
    *groups, leaves = _SCOPES[signal]
    for resource in _each(_get(message, top)):
        owner = resource.get("resource")
        about = {"attributes": attributes_of(owner.get("attributes") if isinstance(owner, Mapping) else None)}
        for group in (part for name in groups for part in _each(_get(resource, name))):
            scope = group.get("scope") or group.get("instrumentationLibrary")
            for leaf in _each(_get(group, leaves)):
                members = {camel_case(str(key)): value for key, value in leaf.items()}
                yield members | {"resource": about, "scope": scope} | _marks(leaf, signal)


def _marks(leaf: JsonMap, signal: str) -> JsonObject:
    """Kind markers of a span or record, also where they were left out."""
    if signal == LOGS:
        return {"body": leaf.get("body")}
    return {"startTimeUnixNano": _get(leaf, "startTimeUnixNano") or 0}


def _get(mapping: JsonMap, name: str) -> object:
    """A member in either spelling of protobuf JSON."""
    if name in mapping:
        return mapping[name]
    return mapping.get("".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name))


def _each(value: object) -> Iterator[JsonMap]:
    """The objects of a list; anything else is an error, so that the sender does not consider it stored."""
    if value is None:
        return
    if not isinstance(value, list):
        raise ValueError("it has something else where a list should be")
    for entry in value:
        if not isinstance(entry, Mapping):
            raise ValueError("it has something else where an object should be")
        yield entry


def _spans_of(message: "ExportTraceServiceRequest") -> Iterator[Document]:
    for resource in message.resource_spans:
        for group in resource.scope_spans:
            owner = _owner(resource.resource, group.scope)
            for span in group.spans:
                yield owner | {
                    "name": span.name,
                    "kind": span.kind,
                    "traceId": span.trace_id.hex(),
                    "spanId": span.span_id.hex(),
                    "parentSpanId": span.parent_span_id.hex(),
                    "flags": span.flags,
                    "startTimeUnixNano": span.start_time_unix_nano,
                    "endTimeUnixNano": span.end_time_unix_nano,
                    "attributes": _pairs(span.attributes),
                    "status": {"code": span.status.code, "message": span.status.message},
                    "events": [
                        {"name": e.name, "timeUnixNano": e.time_unix_nano, "attributes": _pairs(e.attributes)}
                        for e in span.events
                    ],
                }


def _records_of(message: "ExportLogsServiceRequest") -> Iterator[Document]:
    for resource in message.resource_logs:
        for group in resource.scope_logs:
            owner = _owner(resource.resource, group.scope)
            for record in group.log_records:
                yield owner | {
                    "eventName": record.event_name,
                    "traceId": record.trace_id.hex(),
                    "spanId": record.span_id.hex(),
                    "timeUnixNano": record.time_unix_nano or record.observed_time_unix_nano,
                    "observedTimeUnixNano": record.observed_time_unix_nano,
                    "severityNumber": record.severity_number,
                    "severityText": record.severity_text,
                    "attributes": _pairs(record.attributes),
                    "body": _value(record.body),
                }


def _owner(resource: "Resource", scope: "InstrumentationScope") -> Document:
    return {
        "resource": {"attributes": _pairs(resource.attributes)},
        "scope": {"name": scope.name, "version": scope.version},
    }


def _pairs(pairs: "Iterable[KeyValue]") -> JsonObject:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: "AnyValue") -> object:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    content = getattr(value, kind)
    if kind == "kvlist_value":
        return _pairs(content.values)
    if kind == "array_value":
        return [_value(each) for each in content.values]
    if kind == "bytes_value":
        return base64.b64encode(content).decode()
    return None if kind == "double_value" and not math.isfinite(content) else content


TRACE_DIGITS, SPAN_DIGITS = 32, 16


def encode_spans(documents: Iterable[Document]) -> JsonObject:
    """One message with these spans, each resource and scope once."""
    groups: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for document in documents:
        resource = as_map(document, "resource", "attributes")
        groups[repr(sorted(resource.items())), repr(document["scope"])].append(document)
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(as_map(spans[0], "resource", "attributes"))},
                "scopeSpans": [{"scope": dict(as_map(spans[0], "scope")), "spans": list(map(_span, spans))}],
            }
            for spans in groups.values()
        ]
    }


def _span(document: Document) -> JsonObject:
    attributes, status = as_map(document, "attributes"), as_map(document, "status")
    session = str(attributes.get("session.id") or "")
    trace_id, parent = as_text(document["traceId"]), as_text(document, "parentSpanId")
    kind, code = as_text(document, "kind"), as_text(status, "code")
    return {
        "traceId": _hexadecimal(trace_id, TRACE_DIGITS, session),
        "spanId": _hexadecimal(as_text(document["spanId"]), SPAN_DIGITS, session, trace_id),
        "parentSpanId": _hexadecimal(parent, SPAN_DIGITS, session, trace_id) if parent else "",
        "name": document["name"],
        "kind": KINDS.index(kind) if kind in KINDS else 0,
        "startTimeUnixNano": str(document["startTimeUnixNano"]),
        "endTimeUnixNano": str(document["endTimeUnixNano"]),
        "attributes": _attributes(attributes),
        "events": [
            {
                "timeUnixNano": str(event["timeUnixNano"]),
                "name": event["name"],
                "attributes": _attributes(as_map(event, "attributes")),
            }
            for event in maps_in(document, "events")
        ],
        "status": {
            "code": STATUSES.index(code) if code in STATUSES else 0,
            **({"message": status["message"]} if status.get("message") else {}),
        },
    }


def _hexadecimal(value: str, digits: int, *around: str) -> str:
    if len(value) == digits and not value.strip("0123456789abcdef"):
        return value
    return hashlib.sha256("\0".join((*around, value)).encode("utf-8", "replace")).hexdigest()[:digits]


def _attributes(attributes: JsonMap) -> list[JsonObject]:
    return [{"key": key, "value": _encoded_value(value)} for key, value in attributes.items()]


def _encoded_value(value: object) -> JsonObject:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_encoded_value(each) for each in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _attributes(value)}}
    return {} if value is None else {"stringValue": str(value)}
