"""Read results where their usual readers look for them: in log streams. Write streams, too.

The operations of CloudWatch Logs that read events, list groups and streams, and put events. Spans that are
put into a stream arrive as sessions of that log group.

Knows nothing of what the events say.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from proctor.batch.arrivals import keep_arrivals, tell_arrivals
from proctor.errors import Contradiction, NotFound
from proctor.store.logs import LogEvent
from proctor.telemetry.documents import normalised
from proctor.untrusted import parse_json
from proctor.web.agentcore import paging
from proctor.web.agentcore.errors import LogsError, ValidationException
from proctor.web.agentcore.log_pages import filtered, page_of, within
from proctor.web.agentcore.logs_shapes import (
    CREATE_LOG_GROUP,
    CREATE_LOG_STREAM,
    DESCRIBE_LOG_GROUPS,
    DESCRIBE_LOG_STREAMS,
    FILTER_LOG_EVENTS,
    GET_LOG_EVENTS,
    PUT_LOG_EVENTS,
)
from proctor.web.agentcore.operation import (
    Answer,
    Members,
    Operation,
    admitted_body,
    answered,
    carry_out,
    parsed_body,
    respond_with,
)
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import Structure
from proctor.web.agentcore.streams import Stream, Times, all_streams, event_times, events_of

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
        answer["nextToken"] = paging.token_of("groups", [left[limit - 1].group])
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
        answer["nextToken"] = paging.token_of("streams", [end])
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
        tell_arrivals(service.store, service.now)
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


def _group(service: Service, asked: Members) -> list[Stream]:
    """All streams of the group that is asked for."""
    identifier = asked.get("logGroupIdentifier", "")
    name = asked.get("logGroupName") or identifier.removesuffix(":*").rpartition("log-group:")[2]
    if not name:
        raise LogsError("InvalidParameterException", "Give logGroupName or logGroupIdentifier.")
    found = [stream for stream in all_streams(service) if stream.group == name]
    if not found:
        raise LogsError("ResourceNotFoundException", "The specified log group does not exist.")
    return found


def _described(service: Service, stream: Stream, times: Times | None) -> dict[str, Any]:
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


def _arn(service: Service, stream: Stream) -> str:
    return f"arn:aws:logs:{service.names.region}:{service.names.account}:log-group:{stream.group}"
