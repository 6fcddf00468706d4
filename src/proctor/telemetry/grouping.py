"""Which session each document belongs to.

A span belongs to the session it names; without a name to that of the nearest span above it, else to that
of its trace, else the trace itself is a session. Event records go where their span goes. The same session
id in two services or log groups is two sessions.

Knows nothing of what documents say, or of where they are kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proctor.telemetry.documents import (
    Document,
    is_span,
    log_group_of,
    part_of,
    service_of,
    session_key_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What has to be known of a document to say where it belongs."""

    trace_id: str
    span_id: str
    part: str
    """`span`, or what tells one event record of the span from another."""
    parent_id: str
    session_key: str
    """The session it names itself; empty when it names none."""
    service: str
    log_group: str
    is_log_group_said: bool
    """Whether it or its sender named the log group; else it is where things go that do not say."""
    started: int

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by."""
        return self.trace_id, self.span_id, self.part


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionName:
    """What a session is known by."""

    external_id: str
    service: str
    log_group: str


def mark_of(document: Document, *, log_group: str = "", fallback: str = "", service: str = "") -> Mark:
    """The mark of a document. `log_group` is what its sender said, `fallback` where it goes otherwise;
    `service` is for documents that name none."""
    own = log_group_of(document) or log_group
    span = is_span(document)
    return Mark(
        trace_id=document["traceId"],
        span_id=document["spanId"],
        part=part_of(document),
        parent_id=(document["parentSpanId"] or "") if span else "",
        session_key=session_key_of(document),
        service=service_of(document) or service,
        log_group=own or fallback,
        is_log_group_said=bool(own),
        started=document["startTimeUnixNano"] if span else document["timeUnixNano"],
    )


def sessions_among(marks: Iterable[Mark]) -> dict[SessionName, list[Mark]]:
    """All marks by the session they belong to. Give whole traces: a missing span may name the session."""
    traces: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        traces[mark.trace_id].append(mark)
    gathered: dict[tuple[str, str], list[Mark]] = defaultdict(list)
    for trace_id, members in traces.items():
        for (external_id, service), found in _of_trace(trace_id, members).items():
            gathered[external_id, service] += found
    named: dict[SessionName, list[Mark]] = defaultdict(list)
    for (external_id, service), members in gathered.items():
        for log_group, found in _by_log_group(members).items():
            named[SessionName(external_id=external_id, service=service, log_group=log_group)] += found
    return dict(named)


def _of_trace(trace_id: str, members: Sequence[Mark]) -> dict[tuple[str, str], list[Mark]]:
    keys, parents, services = _known(members)
    order = sorted(members, key=lambda mark: mark.started)
    trace_key = next((mark.session_key for mark in order if mark.session_key), trace_id)
    trace_service = next((mark.service for mark in order if mark.service), "")
    found: dict[tuple[str, str], list[Mark]] = defaultdict(list)
    for mark in order:
        key = _inherited(mark.span_id, keys, parents) or trace_key
        found[key, services.get(mark.span_id) or mark.service or trace_service].append(mark)
    return found


def _known(members: Sequence[Mark]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """The session each span names, itself or by an event record; its parent; its service."""
    keys, parents, services = dict[str, str](), dict[str, str](), dict[str, str]()
    # Spans last, so that what they say themselves counts.
    for mark in sorted(members, key=lambda mark: mark.part == "span"):
        if mark.session_key:
            keys[mark.span_id] = mark.session_key
        if mark.part == "span":
            parents[mark.span_id] = mark.parent_id
            services[mark.span_id] = mark.service
    return keys, parents, services


def _inherited(span_id: str, keys: dict[str, str], parents: Mapping[str, str]) -> str:
    """The session named by the span or the nearest one above it; `keys` remembers what was found."""
    visited = dict[str, None]()
    while span_id and span_id not in visited and span_id not in keys:
        visited[span_id] = None
        span_id = parents.get(span_id, "")
    found = keys.get(span_id, "")
    keys.update(dict.fromkeys(visited, found))
    return found


def _by_log_group(members: Sequence[Mark]) -> dict[str, list[Mark]]:
    """Members by log group. Those whose group nobody named go with those whose group was."""
    spans = [mark for mark in members if mark.part == "span"]
    said = dict.fromkeys(mark.log_group for mark in (spans or members) if mark.is_log_group_said)
    if not said:
        said = dict.fromkeys(mark.log_group for mark in members if mark.is_log_group_said)
    if not said:
        said = dict.fromkeys(mark.log_group for mark in members[:1])
    if len(said) == 1:
        return {next(iter(said)): list(members)}
    at_home = {mark.key[:2]: mark.log_group for mark in spans if mark.is_log_group_said}
    found: dict[str, list[Mark]] = defaultdict(list)
    for mark in members:
        own = mark.log_group if mark.is_log_group_said else next(iter(said))
        found[at_home.get(mark.key[:2], own)].append(mark)
    return found
