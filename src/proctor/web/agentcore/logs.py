"""Read results where their usual readers look for them: in log streams. Write streams, too.

The operations of CloudWatch Logs that read events, list groups and streams, and put events. Spans that are
put into a stream arrive as sessions of that log group.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.batch.ingest import build_sessions, keep_arrivals
from proctor.errors import Contradiction, NotFound
from proctor.jobs.evaluation.online import MARK
from proctor.jobs.evaluation.results import records_of
from proctor.json_values import parse_json
from proctor.store import evaluations
from proctor.store.batches import moment
from proctor.store.intake import LogEvent
from proctor.telemetry.documents import normalised
from proctor.web.agentcore import service as paging
from proctor.web.agentcore.errors import LogsError, ValidationException
from proctor.web.agentcore.operation import (
    Answer,
    Operation,
    admitted_body,
    answered,
    carry_out,
    parsed_body,
    respond_with,
)
from proctor.web.agentcore.request_shapes import (
    CREATE_LOG_GROUP,
    CREATE_LOG_STREAM,
    DESCRIBE_LOG_GROUPS,
    DESCRIBE_LOG_STREAMS,
    FILTER_LOG_EVENTS,
    GET_LOG_EVENTS,
    PUT_LOG_EVENTS,
)
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import ONLINE, Members, Structure

# Every log group and stream there is: results of evaluations, and what callers wrote themselves.


METRICS = "Bedrock-AgentCore/Evaluations"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One line of a stream, with its times in milliseconds since 1970."""

    stream: str
    timestamp: int
    message: str
    ingested: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStream:
    """One stream. A group that has none has one without a name."""

    group: str
    name: str
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """When the events of a stream were, in milliseconds since 1970."""

    first: int
    last: int
    ingested: int

    def joined(self, other: "TimeWindow | None") -> "TimeWindow":
        """Of both together."""
        if other is None:
            return self
        return TimeWindow(
            first=min(self.first, other.first),
            last=max(self.last, other.last),
            ingested=max(self.ingested, other.ingested),
        )


def all_streams(service: Service) -> list[LogStream]:
    """Every stream by group and name, each once; groups stand first among their streams."""
    found: dict[tuple[str, str], int] = {}

    def add(group: str, name: str, created: str | None) -> None:
        at = _milliseconds(created)
        for key in ((group, ""), (group, name)):
            found[key] = min(at, found.get(key, at))

    for row in evaluations.output_streams(service.store.read):
        add(row["outputGroup"], row["outputStream"], row["at"])
    for stream in service.store.logs.streams():
        add(stream["logGroup"], stream["logStream"], stream["createdAt"])
    for group in evaluations.session_log_groups(service.store.read):
        add(group["logGroup"], "", group["at"])
    return [LogStream(group=group, name=name, created=at) for (group, name), at in sorted(found.items())]


def event_times(service: Service, group: str, names: Sequence[str] | None = None) -> dict[str, TimeWindow]:
    """When the events of streams were, by stream; of some streams, or of all that a group has."""
    found: dict[str, TimeWindow] = {}
    for row in evaluations.result_periods(service.store.read, group, names):
        last = _milliseconds(row["last"])
        found[row["stream"]] = TimeWindow(first=_milliseconds(row["first"]), last=last, ingested=last)
    for stream in service.store.logs.streams():
        first, end, ingested = stream["first"], stream["last"], stream["ingested"]
        if stream["logGroup"] == group and first is not None and end is not None and ingested is not None:
            own = TimeWindow(first=first, last=end, ingested=ingested)
            found[stream["logStream"]] = own.joined(found.get(stream["logStream"]))
    return found


def events_of(service: Service, group: str, stream: str) -> list[StreamEvent]:
    """The events of one stream, oldest first."""
    events = [*_results(service, group, stream), *_written(service, group, stream)]
    return sorted(events, key=lambda event: event.timestamp)


def _written(service: Service, group: str, stream: str) -> Iterator[StreamEvent]:
    for row in service.store.logs.events(group, stream):
        yield StreamEvent(
            stream=stream, timestamp=row["timestamp"], message=row["message"], ingested=row["ingestedAt"]
        )


def _results(service: Service, group: str, stream: str) -> Iterator[StreamEvent]:
    for job in service.store.evaluations.writing_to(group, stream):
        config_id = json.loads(job["requestJson"]).get(MARK, "")
        for record in records_of(service.store, job["id"]):
            yield _result(_with_origin(service, config_id, job, record) if config_id else record, stream)


def _with_origin(
    service: Service, config_id: str, job: Mapping[str, Any], record: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A record of an online configuration: it says which one, and carries its value as an embedded metric."""
    attributes = {
        **record["attributes"],
        "aws.bedrock_agentcore.online_evaluation_config.arn": service.names.arn(ONLINE, config_id),
        "aws.bedrock_agentcore.online_evaluation_config.name": job["name"],
    }
    told = {**record, "attributes": attributes, "onlineEvaluationConfigId": config_id}
    metric, value = (attributes.get(f"gen_ai.evaluation.{part}") for part in ("name", "score.value"))
    if value is None:
        return told
    dimensions = {"service.name": record.get("service.name", ""), "onlineEvaluationConfigId": config_id}
    described = {
        "Namespace": METRICS,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": metric, "Unit": "None"}],
    }
    embedded = {"Timestamp": _seen(record), "CloudWatchMetrics": [described]}
    return {**told, **dimensions, str(metric): value, "_aws": embedded}


def _result(record: Mapping[str, Any], stream: str) -> StreamEvent:
    seen = _seen(record)
    return StreamEvent(stream=stream, timestamp=seen, message=json.dumps(record), ingested=seen)


def _seen(record: Mapping[str, Any]) -> int:
    return int(record.get("observedTimeUnixNano") or record["timeUnixNano"]) // 1_000_000


def _milliseconds(stamp: str | None) -> int:
    at = moment(stamp)
    return int(at.timestamp() * 1000) if at else 0


# Which events a reader of log streams gets next: by time, by words, and no more than fits into a page.


MOST_EVENTS = 10_000


MOST_BYTES = 1024 * 1024
"""Of one page of events, as their readers expect it."""


_TOKEN = re.compile(r"(?P<direction>[fb])/(?P<place>\d{1,18})")


_TERM = re.compile(r'(?P<sign>[?-]?)(?:"(?P<phrase>[^"]*)"|(?P<word>\S+))')


def filtered(
    service: Service, group: str, streams: Sequence[str], asked: Members
) -> tuple[list[tuple[str, StreamEvent]], list[str], str | None]:
    """A page of matching events with their ids, the streams that are done with, and where to go on.

    Stream by stream, so that no more than one stands in memory however many a group has.
    """
    matches = _matcher(asked.get("filterPattern", ""))
    last, skip = paging.key_of("events", asked.get("nextToken"), str, int) or ["", 0]
    found: list[tuple[str, StreamEvent]] = []
    searched: list[str] = []
    room, size = asked.get("limit", MOST_EVENTS), 0
    for name in streams:
        if name < last:
            continue
        events = [event for event in within(events_of(service, group, name), asked) if matches(event.message)]
        for number in range(skip if name == last else 0, len(events)):
            size += len(events[number].message) + 26
            if len(found) == room or (size > MOST_BYTES and found):
                return found, searched, paging.page_token_of("events", [name, number])
            event_id = hashlib.sha256(f"{group}\n{name}\n{number}".encode()).hexdigest()[:56]
            found.append((event_id, events[number]))
        searched.append(name)
    return found, searched, None


def within(events: Sequence[StreamEvent], asked: Members) -> list[StreamEvent]:
    """The events in the time that is asked for."""
    start, end = asked.get("startTime", 0), asked.get("endTime")
    return [event for event in events if event.timestamp >= start and (end is None or event.timestamp < end)]


def page_of(events: Sequence[StreamEvent], asked: Members) -> tuple[int, int]:
    """Which events a page of a stream has: from one place up to another."""
    token = asked.get("nextToken")
    if token is None:
        forward, place = bool(asked.get("startFromHead")), 0 if asked.get("startFromHead") else len(events)
    else:
        found = _TOKEN.fullmatch(token)
        if found is None:
            raise LogsError("InvalidParameterException", "The specified nextToken is invalid.")
        forward, place = found["direction"] == "f", min(int(found["place"]), len(events))
    if forward:
        return place, _page_end(events, place, asked)
    # Backward: as many as fit before the place, still oldest first.
    turned = list(reversed(events[:place]))
    return place - _page_end(turned, 0, asked), place


def _page_end(events: Sequence[StreamEvent], start: int, asked: Members) -> int:
    end, size = start, 0
    most = min(len(events), start + asked.get("limit", MOST_EVENTS))
    while end < most:
        size += len(events[end].message) + 26
        # One event that is larger than a page is a page.
        if size > MOST_BYTES and end > start:
            break
        end += 1
    return end


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a message has all plain terms, none with a minus, and one of those with a question mark."""
    pattern = pattern.strip()
    if pattern.startswith(("{", "[", "%")):
        raise LogsError(
            "InvalidParameterException",
            'Filter patterns are terms here: word, "a phrase", ?either, -without.',
        )
    terms = [(found["sign"], found["phrase"] or found["word"] or "") for found in _TERM.finditer(pattern)]
    without = [term for sign, term in terms if sign == "-"]
    either = [term for sign, term in terms if sign == "?"]
    every = [term for sign, term in terms if not sign]

    def matches(message: str) -> bool:
        return (
            all(term in message for term in every)
            and not any(term in message for term in without)
            and (not either or any(term in message for term in either))
        )

    return matches


TARGET = "Logs_20140328."


DESCRIBED = 50


async def respond(service: Service, request: Request) -> Response:
    """Carry out the log operation that a request names in its header."""

    async def work() -> Response:
        named = request.headers.get("x-amz-target", "")
        operation = BY_NAME.get(named.removeprefix(TARGET)) if named.startswith(TARGET) else None
        if operation is None:
            raise LogsError("UnknownOperationException", f"There is no operation {named[:200]}.")
        body = await admitted_body(service, request, operation)
        try:
            answer = await carry_out(service, operation, parsed_body(body))
        except ValidationException as error:
            raise LogsError("InvalidParameterException", str(error)) from error
        return respond_with(200, answer, media_type="application/x-amz-json-1.1")

    return await answered(work)


def get_log_events(service: Service, asked: Members) -> Mapping[str, Any]:
    """A page of one stream, forward or backward."""
    group = _group(service, asked)
    stream = asked["logStreamName"]
    if not any(found.name == stream for found in group):
        raise LogsError("ResourceNotFoundException", "The specified log stream does not exist.")
    events = within(events_of(service, group[0].group, stream), asked)
    start, end = page_of(events, asked)
    return {
        "events": [
            {"timestamp": event.timestamp, "message": event.message, "ingestionTime": event.ingested}
            for event in events[start:end]
        ],
        "nextForwardToken": f"f/{end:018d}",
        "nextBackwardToken": f"b/{start:018d}",
    }


def filter_log_events(service: Service, asked: Members) -> Mapping[str, Any]:
    """A page of what several streams of a group hold, by time and by words."""
    group = _group(service, asked)
    names, prefix = asked.get("logStreamNames"), asked.get("logStreamNamePrefix", "")
    if names and prefix:
        raise LogsError(
            "InvalidParameterException", "logStreamNames and logStreamNamePrefix exclude each other."
        )
    wanted = [
        stream.name
        for stream in group
        if stream.name and (stream.name in names if names else stream.name.startswith(prefix))
    ]
    if names and len(wanted) < len(set(names)):
        raise LogsError("ResourceNotFoundException", "The specified log stream does not exist.")
    found, searched, token = filtered(service, group[0].group, wanted, asked)
    answer: dict[str, Any] = {
        "events": [
            {
                "logStreamName": event.stream,
                "timestamp": event.timestamp,
                "message": event.message,
                "ingestionTime": event.ingested,
                "eventId": event_id,
            }
            for event_id, event in found
        ],
        "searchedLogStreams": [
            {"logStreamName": name, "searchedCompletely": True} for name in searched[:100]
        ],
    }
    if token is not None:
        answer["nextToken"] = token
    return answer


def describe_log_groups(service: Service, asked: Members) -> Mapping[str, Any]:
    """A page of the groups."""
    prefix, part = asked.get("logGroupNamePrefix", ""), asked.get("logGroupNamePattern", "")
    groups = [
        stream
        for stream in all_streams(service)
        if not stream.name and stream.group.startswith(prefix) and part in stream.group
    ]
    (after,) = paging.key_of("groups", asked.get("nextToken"), str) or [""]
    left = [stream for stream in groups if stream.group > after]
    limit = asked.get("limit", DESCRIBED)
    answer: dict[str, Any] = {
        "logGroups": [
            {
                "logGroupName": stream.group,
                "creationTime": stream.created,
                "arn": f"{_arn(service, stream)}:*",
                "logGroupArn": _arn(service, stream),
                "logGroupClass": "STANDARD",
            }
            for stream in left[:limit]
        ]
    }
    if len(left) > limit:
        answer["nextToken"] = paging.page_token_of("groups", [left[limit - 1].group])
    return answer


def describe_log_streams(service: Service, asked: Members) -> Mapping[str, Any]:
    """A page of the streams of a group."""
    group = _group(service, asked)
    prefix = asked.get("logStreamNamePrefix", "")
    streams = [stream for stream in group if stream.name and stream.name.startswith(prefix)]
    by_time = asked.get("orderBy") == "LastEventTime"
    times = event_times(service, group[0].group) if by_time else {}
    streams.sort(key=lambda stream: (times[stream.name].last if stream.name in times else 0, stream.name))
    if asked.get("descending"):
        streams.reverse()
    (start,) = paging.key_of("streams", asked.get("nextToken"), int) or [0]
    end = start + asked.get("limit", DESCRIBED)
    page = streams[start:end]
    times = times or event_times(service, group[0].group, [stream.name for stream in page])
    answer: dict[str, Any] = {
        "logStreams": [_described(service, stream, times.get(stream.name)) for stream in page]
    }
    if end < len(streams):
        answer["nextToken"] = paging.page_token_of("streams", [end])
    return answer


def put_log_events(service: Service, asked: Members) -> Mapping[str, Any]:
    """Append events to a stream. Spans and event records among them arrive as sessions."""
    events = [
        LogEvent(timestamp_ms=entry["timestamp"], message=entry["message"]) for entry in asked["logEvents"]
    ]
    if any(one.timestamp_ms > two.timestamp_ms for one, two in pairwise(events)):
        raise LogsError(
            "InvalidParameterException", "Log events in a single request must be in chronological order."
        )
    group = asked["logGroupName"]
    try:
        service.store.logs.put(group, asked["logStreamName"], events, service.now)
    except NotFound as error:
        raise LogsError("ResourceNotFoundException", str(error)) from error
    documents = [document for event in events if (document := _document(event.message)) is not None]
    if documents:
        keep_arrivals(service.store, documents, service.now, log_group=group)
        build_sessions(service.store, service.now)
    return {"nextSequenceToken": f"{len(events):056d}"}


def create_log_group(service: Service, asked: Members) -> Mapping[str, Any]:
    """Make a group."""
    return _create(service, asked["logGroupName"], "")


def create_log_stream(service: Service, asked: Members) -> Mapping[str, Any]:
    """Make a stream in a group that is there."""
    _group(service, asked)
    return _create(service, asked["logGroupName"], asked["logStreamName"])


def _operation(name: str, shape: Structure, answer: Answer) -> Operation:
    return Operation(name=name, method="POST", path="/", shape=shape, answer=answer, plane="logs")


OPERATIONS = (
    _operation("GetLogEvents", GET_LOG_EVENTS, get_log_events),
    _operation("FilterLogEvents", FILTER_LOG_EVENTS, filter_log_events),
    _operation("DescribeLogGroups", DESCRIBE_LOG_GROUPS, describe_log_groups),
    _operation("DescribeLogStreams", DESCRIBE_LOG_STREAMS, describe_log_streams),
    _operation("PutLogEvents", PUT_LOG_EVENTS, put_log_events),
    _operation("CreateLogGroup", CREATE_LOG_GROUP, create_log_group),
    _operation("CreateLogStream", CREATE_LOG_STREAM, create_log_stream),
)


BY_NAME = {operation.name: operation for operation in OPERATIONS}


def _document(message: str) -> dict[str, Any] | None:
    """A span or an event record, as someone put it into a stream; None: this is an ordinary line."""
    try:
        found = parse_json(message)
        return normalised(found) if isinstance(found, dict) else None
    except (ValueError, RecursionError):
        return None


def _create(service: Service, group: str, stream: str) -> Mapping[str, Any]:
    if any((found.group, found.name) == (group, stream) for found in all_streams(service)):
        kind = "stream" if stream else "group"
        raise LogsError("ResourceAlreadyExistsException", f"The specified log {kind} already exists")
    try:
        service.store.logs.create(group, stream, service.now)
    except Contradiction as error:
        raise LogsError("ResourceAlreadyExistsException", str(error)) from error
    return {}


def _group(service: Service, asked: Members) -> list[LogStream]:
    """All streams of the group that is asked for."""
    identifier = asked.get("logGroupIdentifier", "")
    name = asked.get("logGroupName") or identifier.removesuffix(":*").rpartition("log-group:")[2]
    if not name:
        raise LogsError("InvalidParameterException", "Give logGroupName or logGroupIdentifier.")
    found = [stream for stream in all_streams(service) if stream.group == name]
    if not found:
        raise LogsError("ResourceNotFoundException", "The specified log group does not exist.")
    return found


def _described(service: Service, stream: LogStream, times: TimeWindow | None) -> dict[str, Any]:
    told = {
        "logStreamName": stream.name,
        "creationTime": stream.created,
        "arn": f"{_arn(service, stream)}:log-stream:{stream.name}",
        "storedBytes": 0,
    }
    if times is not None:
        told |= {
            "firstEventTimestamp": times.first,
            "lastEventTimestamp": times.last,
            "lastIngestionTime": times.ingested,
        }
    return told


def _arn(service: Service, stream: LogStream) -> str:
    return f"arn:aws:logs:{service.names.region}:{service.names.account}:log-group:{stream.group}"
