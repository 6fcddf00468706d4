"""Decoding and encoding of OTLP: protobuf or JSON, possibly compressed, to and from flat documents.

A message that cannot be read is a `ValueError`; invalid single spans are counted and the rest is kept, as the
protocol requires.
"""

import base64
import hashlib
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.json_values import parse_json
from proctor.telemetry.documents import KINDS, STATUSES, Document, attributes_of, normalised, says_something

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


def decode_message(message: Any, signal: str | None = None) -> DecodedSpans:
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
    message: Any = ExportTraceServiceRequest() if signal == TRACES else ExportLogsServiceRequest()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"it is not OTLP {signal} in protobuf: {error}") from error
    return _gathered(_spans_of(message) if signal == TRACES else _records_of(message))


def signal_of(message: Mapping[str, Any]) -> str | None:
    """The signal of a JSON message, by its first key; None: it is not OTLP."""
    for key, signal in _TOP.items():
        if _get(message, key) is not None:
            return signal
    return None


def _gathered(documents: Iterable[Mapping[str, Any]]) -> DecodedSpans:
    accepted, rejected, why = list[Document](), 0, ""
    for each in documents:
        try:
            document = normalised(each)
        except ValueError as error:
            # A line of a log that belongs to no span is nothing to complain about.
            if "body" not in each:
                rejected, why = rejected + 1, why or f"a span was left out: {error}"
            continue
        if "body" not in each or says_something(document):
            accepted.append(document)
    return DecodedSpans(accepted, rejected, why)


def _flat(message: Mapping[str, Any], signal: str) -> Iterator[Mapping[str, Any]]:
    top = next(key for key, named in _TOP.items() if named == signal)
    *groups, leaves = _SCOPES[signal]
    for resource in _each(_get(message, top)):
        owner = resource.get("resource")
        about = {"attributes": attributes_of(owner.get("attributes") if isinstance(owner, Mapping) else None)}
        for group in (part for name in groups for part in _each(_get(resource, name))):
            scope = group.get("scope") or group.get("instrumentationLibrary")
            for leaf in _each(_get(group, leaves)):
                yield _camel(leaf) | {"resource": about, "scope": scope} | _marks(leaf, signal)


def _marks(leaf: Mapping[str, Any], signal: str) -> dict[str, Any]:
    """Kind markers of a span or record, also where they were left out."""
    if signal == LOGS:
        return {"body": leaf.get("body")}
    return {"startTimeUnixNano": _get(leaf, "startTimeUnixNano") or 0}


def _camel(leaf: Mapping[str, Any]) -> dict[str, Any]:
    return {_as_camel(str(key)): value for key, value in leaf.items()}


def _as_camel(key: str) -> str:
    head, *rest = key.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _get(mapping: Mapping[str, Any], name: str) -> Any:
    """A member in either spelling of protobuf JSON."""
    if name in mapping:
        return mapping[name]
    return mapping.get("".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name))


def _each(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; anything else is an error, so that the sender does not consider it stored."""
    if value is None:
        return
    if not isinstance(value, list):
        raise ValueError("it has something else where a list should be")
    for each in value:
        if not isinstance(each, Mapping):
            raise ValueError("it has something else where an object should be")
        yield each


def _spans_of(message: Any) -> Iterator[Document]:
    for about, scope, group in _groups(message.resource_spans, "scope_spans"):
        for span in group.spans:
            yield {
                "resource": about,
                "scope": scope,
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


def _records_of(message: Any) -> Iterator[Document]:
    for about, scope, group in _groups(message.resource_logs, "scope_logs"):
        for record in group.log_records:
            yield {
                "resource": about,
                "scope": scope,
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


def _groups(resources: Any, name: str) -> Iterator[tuple[Document, Document, Any]]:
    for resource in resources:
        about = {"attributes": _pairs(resource.resource.attributes)}
        for group in getattr(resource, name):
            yield about, {"name": group.scope.name, "version": group.scope.version}, group


def _pairs(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
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


# Encoding as OTLP JSON, as collectors read and write it.


TRACE_DIGITS, SPAN_DIGITS = 32, 16


def encode_spans(documents: Iterable[Document]) -> dict[str, Any]:
    """One message with these spans, each resource and scope once."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for document in documents:
        resource, scope = document["resource"]["attributes"], document["scope"]
        key = (repr(sorted(resource.items())), repr(scope))
        if key not in groups:
            groups[key] = {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": dict(scope), "spans": []}],
            }
        groups[key]["scopeSpans"][0]["spans"].append(_span(document))
    return {"resourceSpans": list(groups.values())}


def _span(document: Document) -> dict[str, Any]:
    session = str(document["attributes"].get("session.id") or "")
    trace_id, parent = document["traceId"], document.get("parentSpanId")
    status = document.get("status") or {}
    return {
        "traceId": _hexadecimal(trace_id, TRACE_DIGITS, session),
        "spanId": _hexadecimal(document["spanId"], SPAN_DIGITS, session, trace_id),
        "parentSpanId": _hexadecimal(parent, SPAN_DIGITS, session, trace_id) if parent else "",
        "name": document["name"],
        "kind": KINDS.index(document["kind"]) if document.get("kind") in KINDS else 0,
        "startTimeUnixNano": str(document["startTimeUnixNano"]),
        "endTimeUnixNano": str(document["endTimeUnixNano"]),
        "attributes": _attributes(document["attributes"]),
        "events": [
            {
                "timeUnixNano": str(event["timeUnixNano"]),
                "name": event["name"],
                "attributes": _attributes(event["attributes"]),
            }
            for event in document.get("events") or ()
        ],
        "status": {
            "code": STATUSES.index(status["code"]) if status.get("code") in STATUSES else 0,
            **({"message": status["message"]} if status.get("message") else {}),
        },
    }


def _hexadecimal(value: str, digits: int, *around: str) -> str:
    if len(value) == digits and not value.strip("0123456789abcdef"):
        return value
    return hashlib.sha256("\0".join((*around, value)).encode("utf-8", "replace")).hexdigest()[:digits]


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encoded_value(value)} for key, value in attributes.items()]


def _encoded_value(value: Any) -> dict[str, Any]:
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
