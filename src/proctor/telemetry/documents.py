"""Spans and event records as flat documents, the one form of all sources.

A span document has its attributes as a plain object, its resource and scope inlined, ids in lower-case hex,
times in nanoseconds, and names where OTLP has numbers. An event record is the same for a log record of a
span; messages are in its body.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proctor.json_values import JsonMap, JsonObject, as_list, as_map, as_text, maps_in, parsed_integer

Document = JsonObject
KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUSES = ("UNSET", "OK", "ERROR")
SESSION_KEYS = (
    "session.id",
    "gen_ai.conversation.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "ai.telemetry.metadata.sessionId",
    "gcp.vertex.agent.session_id",
    "langfuse.session.id",
    "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "mastra.metadata.sessionId",
    "mastra.metadata.threadId",
)
"""Attributes with the id of a session; the first that is set counts."""

# Microsoft's framework names a conversation after its last response: each request has another.
_RESPONSE = "resp_"
# Nanoseconds in a signed 64-bit column go to the year 2262; a larger number is not a time.
LATEST_NANOSECONDS = 2**63
LONGEST_NAME = 512
"""Characters of an id, a service's or a log group's name that are kept."""


def normalized(document: JsonMap) -> Document:
    """A document of another tool in the form of this module; a `ValueError` when it is not valid."""
    flat = dict(document)
    flat["traceId"], flat["spanId"] = hex_id(flat.get("traceId")), hex_id(flat.get("spanId"))
    if not flat["traceId"] or not flat["spanId"]:
        raise ValueError("it has no traceId and spanId")
    flat["resource"] = {"attributes": attributes_of(as_map(flat, "resource").get("attributes"))}
    flat["scope"] = _scope(flat.get("scope"))
    flat["attributes"] = attributes_of(flat.get("attributes"))
    return _span(flat) if is_span(flat) else _record(flat)


def is_span(document: JsonMap) -> bool:
    """Whether this is a span, not an event record."""
    return "startTimeUnixNano" in document or "endTimeUnixNano" in document


def session_key_of(document: JsonMap) -> str:
    """The session id in a document; empty: none."""
    attributes = as_map(document, "attributes")
    named = (str(attributes.get(key) or "").strip() for key in SESSION_KEYS)
    return next((text[:LONGEST_NAME] for text in named if text and not text.startswith(_RESPONSE)), "")


def service_of(document: JsonMap) -> str:
    """The service of a document; empty: unknown."""
    return str(as_map(document, "resource", "attributes").get("service.name") or "")[:LONGEST_NAME]


def log_group_of(document: JsonMap) -> str:
    """The (first) log group of a document; empty: none."""
    named = as_map(document, "resource", "attributes").get("aws.log.group.names")
    if isinstance(named, list):
        named = named[0] if named else ""
    # Several are joined with `&` in OTEL_RESOURCE_ATTRIBUTES, where a comma would end the value.
    return str(named or "").replace("&", ",").split(",")[0].strip()[:LONGEST_NAME]


def part_of(document: JsonMap) -> str:
    """The id of a document within its span: `span`, or a digest of an event record.

    A span that is sent again replaces the earlier one; of equal event records, one is stored.
    """
    if is_span(document):
        return "span"
    parts = [document.get(name) for name in ("eventName", "timeUnixNano", "attributes", "body")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def has_messages(document: JsonMap) -> bool:
    """Whether an event record contains messages; an ordinary log line does not."""
    if isinstance(document.get("body"), dict | list):
        return True
    attributes = as_map(document, "attributes")
    named = str(document.get("eventName") or attributes.get("event.name") or "")
    return named.startswith("gen_ai.") or any(key.startswith("gen_ai.") for key in attributes)


def hex_id(value: object) -> str:
    """An id, in lower case if it is hexadecimal; empty: none."""
    # Console exporters print ids as Python does: 0x5b8e….
    text = str(value or "").strip().removeprefix("0x")[:LONGEST_NAME]
    lowered = text.lower()
    # OTLP writes a missing id as zeros.
    if not text.strip("0"):
        return ""
    return text if lowered.strip("0123456789abcdef") else lowered


def attributes_of(value: object) -> JsonObject:
    """Attributes as a plain object, also from a list of key-value pairs."""
    if isinstance(value, Mapping):
        return {str(key): each for key, each in value.items()}
    return {str(pair["key"]): any_value(pair.get("value")) for pair in maps_in(value) if pair.get("key")}


def any_value(value: object, depth: int = 0) -> object:
    """An OTLP JSON value as plain data. An empty one is None; unknown kinds stay as they are."""
    if not isinstance(value, Mapping) or depth > 60:
        return value if isinstance(value, str | int | float | bool) else None
    for name, as_plain in _PLAIN.items():
        if name in value or (name := _SNAKE[name]) in value:
            return as_plain(value[name], depth)
    return None


def nanoseconds(value: object) -> int:
    """A time in nanoseconds, from a number or its digits; 0: none."""
    number = parsed_integer(value) or 0
    return number if 0 < number < LATEST_NANOSECONDS else 0


def named(value: object, names: tuple[str, ...], prefix: str) -> str:
    """The name of a kind or status, from its number or name."""
    if isinstance(value, str) and not value.isdigit():
        return value.upper().removeprefix(prefix).rpartition(".")[2][:40]
    number = parsed_integer(value) or 0
    return names[number] if 0 <= number < len(names) else names[0]


def _span(document: Document) -> Document:
    started = nanoseconds(document.get("startTimeUnixNano"))
    ended = nanoseconds(document.get("endTimeUnixNano"))
    status = document.get("status")
    code = status.get("code") or status.get("status_code") if isinstance(status, Mapping) else status
    message = status.get("message") or status.get("description") if isinstance(status, Mapping) else ""
    return document | {
        "parentSpanId": hex_id(document.get("parentSpanId")) or None,
        "name": str(document.get("name") or ""),
        "kind": named(document.get("kind"), KINDS, "SPAN_KIND_"),
        "startTimeUnixNano": started or ended,
        "endTimeUnixNano": ended,
        "durationNano": max(0, ended - started) if started and ended else 0,
        "status": {"code": named(code, STATUSES, "STATUS_CODE_")} | ({"message": message} if message else {}),
        "events": [_event(event) for event in maps_in(document, "events")],
    }


def _record(document: Document) -> Document:
    body = document.get("body")
    return document | {
        "timeUnixNano": nanoseconds(document.get("timeUnixNano"))
        or nanoseconds(document.get("observedTimeUnixNano")),
        "body": any_value(body) if _is_wrapped(body) else body,
    }


def _event(event: JsonMap) -> Document:
    return {
        "name": str(event.get("name") or ""),
        "timeUnixNano": nanoseconds(event.get("timeUnixNano")),
        "attributes": attributes_of(event.get("attributes")),
    }


def _is_wrapped(body: object) -> bool:
    """Whether a body is an OTLP value object rather than plain data."""
    return isinstance(body, Mapping) and len(body) == 1 and next(iter(body)) in {*_PLAIN, *_SNAKE.values()}


def _scope(value: object) -> dict[str, str]:
    scope = as_map(value)
    return {"name": str(scope.get("name") or ""), "version": str(scope.get("version") or "")}


def _integer(value: object, _: int) -> int | None:
    return parsed_integer(value)


def _double(value: object, _: int) -> object:
    # OTLP allows "NaN" and "Infinity"; JSON does not.
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _values(value: object, depth: int) -> object:
    return [any_value(each, depth + 1) for each in as_list(value, "values")]


def _pairs(value: object, depth: int) -> object:
    return {
        str(pair.get("key", "")): any_value(pair.get("value"), depth + 1) for pair in maps_in(value, "values")
    }


def _scalar(value: object, _: int) -> object:
    return value if isinstance(value, str | bool) else str(value)


_PLAIN = {
    "stringValue": _scalar,
    "boolValue": _scalar,
    "intValue": _integer,
    "doubleValue": _double,
    "arrayValue": _values,
    "kvlistValue": _pairs,
    "bytesValue": _scalar,
}
_SNAKE = {name: name.replace("Value", "_value") for name in _PLAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMark:
    """The properties of a document that determine its session."""

    trace_id: str
    span_id: str
    part: str
    """`span`, or a digest of the event record."""
    parent_id: str
    session_key: str
    """The session that it names; empty: none."""
    service: str
    log_group: str
    has_log_group: bool
    """Whether it or its sender named the log group; otherwise `log_group` is the default."""
    started: int

    @property
    def key(self) -> tuple[str, str, str]:
        """Its identity."""
        return self.trace_id, self.span_id, self.part


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionName:
    """Identity of a session."""

    external_id: str
    service: str
    log_group: str


def mark_of(document: Document, *, log_group: str = "", fallback: str = "", service: str = "") -> SessionMark:
    """The mark of a document. `log_group` is the one that its sender named, `fallback` the default;
    `service` is for documents that name none."""
    own = log_group_of(document) or log_group
    span = is_span(document)
    return SessionMark(
        trace_id=as_text(document["traceId"]),
        span_id=as_text(document["spanId"]),
        part=part_of(document),
        parent_id=as_text(document["parentSpanId"]) if span else "",
        session_key=session_key_of(document),
        service=service_of(document) or service,
        log_group=own or fallback,
        has_log_group=bool(own),
        started=nanoseconds(document["startTimeUnixNano" if span else "timeUnixNano"]),
    )


def sessions_among(marks: Iterable[SessionMark]) -> dict[SessionName, list[SessionMark]]:
    """Marks by session. Pass whole traces: a missing span may carry the session id."""
    traces: dict[str, list[SessionMark]] = defaultdict(list)
    for mark in marks:
        traces[mark.trace_id].append(mark)
    gathered: dict[tuple[str, str], list[SessionMark]] = defaultdict(list)
    for trace_id, members in traces.items():
        for (external_id, service), group in _of_trace(trace_id, members).items():
            gathered[external_id, service] += group
    named: dict[SessionName, list[SessionMark]] = defaultdict(list)
    for (external_id, service), members in gathered.items():
        for log_group, group in _by_log_group(members).items():
            named[SessionName(external_id=external_id, service=service, log_group=log_group)] += group
    return dict(named)


def _of_trace(trace_id: str, members: Sequence[SessionMark]) -> dict[tuple[str, str], list[SessionMark]]:
    keys, parents, services = _known(members)
    order = sorted(members, key=lambda mark: mark.started)
    trace_key = next((mark.session_key for mark in order if mark.session_key), trace_id)
    trace_service = next((mark.service for mark in order if mark.service), "")
    sessions: dict[tuple[str, str], list[SessionMark]] = defaultdict(list)
    known = dict[str, str]()
    for mark in order:
        key = _inherited(mark.span_id, keys, parents, known) or trace_key
        sessions[key, services.get(mark.span_id) or mark.service or trace_service].append(mark)
    return sessions


def _known(members: Sequence[SessionMark]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Session id (own or from an event record), parent and service of each span."""
    keys, parents, services = dict[str, str](), dict[str, str](), dict[str, str]()
    # Spans last: their own session id takes precedence.
    for mark in sorted(members, key=lambda mark: mark.part == "span"):
        if mark.session_key:
            keys[mark.span_id] = mark.session_key
        if mark.part == "span":
            parents[mark.span_id] = mark.parent_id
            services[mark.span_id] = mark.service
    return keys, parents, services


def _inherited(
    span_id: str, keys: Mapping[str, str], parents: Mapping[str, str], known: dict[str, str]
) -> str:
    """Session id of the outermost ancestor that names one, or of the span; memoized in `known`.

    A delegated agent may name a session of its own: it is part of the one that called it.
    """
    path = dict[str, None]()
    above = span_id
    while above and above not in path and above not in known:
        path[above] = None
        above = parents.get(above, "")
    key = known.get(above, "")
    for below in reversed(path):
        known[below] = key = key or keys.get(below, "")
    return key


def _by_log_group(members: Sequence[SessionMark]) -> dict[str, list[SessionMark]]:
    """Members by log group. Those without one join those with one."""
    spans = [mark for mark in members if mark.part == "span"]
    log_groups = dict.fromkeys(mark.log_group for mark in (spans or members) if mark.has_log_group)
    if not log_groups:
        log_groups = dict.fromkeys(mark.log_group for mark in members if mark.has_log_group)
    if not log_groups:
        log_groups = dict.fromkeys(mark.log_group for mark in members[:1])
    if len(log_groups) == 1:
        return {next(iter(log_groups)): list(members)}
    group_of_span = {mark.key[:2]: mark.log_group for mark in spans if mark.has_log_group}
    groups: dict[str, list[SessionMark]] = defaultdict(list)
    for mark in members:
        own = mark.log_group if mark.has_log_group else next(iter(log_groups))
        groups[group_of_span.get(mark.key[:2], own)].append(mark)
    return groups
