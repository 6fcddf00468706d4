"""Span documents as OTLP's JSON: what collectors write to files, and read.

The wire has fixed ids, so an id that is no hexadecimal number of the right length becomes the beginning of
a digest; what it was stands in the attributes of our own spans.

Knows nothing of files, or of what spans mean.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from proctor.telemetry.documents import KINDS, STATUSES, Document

TRACE_DIGITS, SPAN_DIGITS = 32, 16


def encode_spans(documents: Iterable[Document]) -> dict[str, Any]:
    """One message with all of these spans, each resource and scope once."""
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
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(each) for each in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _attributes(value)}}
    return {} if value is None else {"stringValue": str(value)}
