"""CloudWatch Logs operations: read results as log events, list groups and streams, put and query events.

Spans that are put into a stream are ingested as sessions of its log group. A query of Logs Insights runs when
it is started; its rows wait for the client in memory. Spans are in the group `aws/spans`, event records and
everything else in the groups they were sent to.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import overload

from starlette.requests import Request
from starlette.responses import Response

from proctor.agentcore import service as paging
from proctor.agentcore.errors import LogsError, ValidationException
from proctor.agentcore.operation import (
    Operation,
    admitted_body,
    execute,
    operation,
    parsed_body,
    respond_safely,
    respond_with,
)
from proctor.agentcore.service import QueryAnswer, Service
from proctor.agentcore.shapes import ONLINE, Members
from proctor.api import logs as log_streams
from proctor.api.logs import RECEIVED, LogEvent, LogStream, ResultRecord, StreamEvent, TimeWindow
from proctor.errors import Contradiction, NotFound
from proctor.json_values import JsonMap, JsonObject, as_map
from proctor.telemetry.documents import mark_of, normalized
from proctor.telemetry.log_query import LogQuery, LogRow, MalformedQuery, json_pattern, parse_query
from proctor.telemetry.sources import SPANS

METRICS = "Bedrock-AgentCore/Evaluations"


def events_of(
    service: Service, group: str, stream: str, request: Members | None = None
) -> Sequence[StreamEvent]:
    """The events of one stream, oldest first, in the time range of a request. Received spans are read page by
    page, where they are looked at."""
    asked = request or {}
    start, end = asked.get("startTime", 0), asked.get("endTime")
    if (group, stream) == (SPANS, RECEIVED):
        return _ReceivedEvents(service, start, LATEST * 1000 if end is None else end - 1)
    records = log_streams.result_records(service.context, group, stream)
    events = [_result(_with_origin(service, each), stream) for each in records]
    events += log_streams.written_events(service.context, group, stream)
    events = [each for each in events if each.timestamp >= start and (end is None or each.timestamp < end)]
    return sorted(events, key=lambda event: event.timestamp)


class _ReceivedEvents(Sequence[StreamEvent]):
    """The spans of a time range, of which one page is in memory."""

    def __init__(self, service: Service, first_ms: int, last_ms: int) -> None:
        self._context = service.context
        self._range = first_ms, last_ms
        self._number = log_streams.count_spans(service.context, first_ms=first_ms, last_ms=last_ms)
        self._page: tuple[int, list[StreamEvent]] = (-1, [])

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> StreamEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[StreamEvent]: ...
    def __getitem__(self, index: int | slice) -> StreamEvent | list[StreamEvent]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._number))]
        page, place = divmod(index, PAGE)
        if self._page[0] != page:
            first, last = self._range
            found = log_streams.spans_page(
                self._context, first_ms=first, last_ms=last, offset=page * PAGE, limit=PAGE
            )
            self._page = (page, [_received(at, document) for at, document in found])
        return self._page[1][place]


def _received(at: int, document: JsonMap) -> StreamEvent:
    message = json.dumps(document, ensure_ascii=False)
    return StreamEvent(stream=RECEIVED, timestamp=at, message=message, ingested=at)


def online_records(service: Service, group: str, stream: str) -> Iterator[JsonMap]:
    """The results of online configurations in a stream, as records with their origin."""
    return (
        _with_origin(service, record)
        for record in log_streams.result_records(service.context, group, stream)
        if record.config_id
    )


def _with_origin(service: Service, result: ResultRecord) -> JsonMap:
    """A record with its online configuration and its value as an embedded metric."""
    config_id, record = result.config_id, result.record
    if not config_id:
        return record
    attributes = {
        **as_map(record, "attributes"),
        "aws.bedrock_agentcore.online_evaluation_config.arn": service.names.arn(ONLINE, config_id),
        "aws.bedrock_agentcore.online_evaluation_config.name": result.config_name,
    }
    members = {**record, "attributes": attributes, "onlineEvaluationConfigId": config_id}
    metric, value = (attributes.get(f"gen_ai.evaluation.{part}") for part in ("name", "score.value"))
    if value is None:
        return members
    dimensions = {"service.name": record.get("service.name", ""), "onlineEvaluationConfigId": config_id}
    described = {
        "Namespace": METRICS,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": metric, "Unit": "None"}],
    }
    embedded = {"Timestamp": time_of_record(record), "CloudWatchMetrics": [described]}
    return {**members, **dimensions, str(metric): value, "_aws": embedded}


def _result(record: JsonMap, stream: str) -> StreamEvent:
    at = time_of_record(record)
    return StreamEvent(stream=stream, timestamp=at, message=json.dumps(record), ingested=at)


def time_of_record(record: JsonMap) -> int:
    """When a result was observed, in milliseconds since 1970."""
    return int(str(record.get("observedTimeUnixNano") or record["timeUnixNano"])) // 1_000_000


MOST_EVENTS = 10_000
PAGE = 1_000
"""Received spans that are read at once."""
MOST_BYTES = 1024 * 1024
"""Maximum size of a page of events."""
_TOKEN = re.compile(r"(?P<direction>[fb])/(?P<place>\d{1,18})")
_TERM = re.compile(r'(?P<sign>[?-]?)(?:"(?P<phrase>[^"]*)"|(?P<word>\S+))')


def filter_events(
    service: Service, group: str, streams: Sequence[str], request: Members
) -> tuple[list[tuple[str, StreamEvent]], list[str], str | None]:
    """A page of matching events with their IDs, the streams searched completely, and the next page token.

    Streams are read one at a time to limit memory.
    """
    matches = _matcher(request.get("filterPattern", ""))
    last, skip = paging.key_of("events", request.get("nextToken"), str, int) or ["", 0]
    events_found: list[tuple[str, StreamEvent]] = []
    searched: list[str] = []
    room, size = request.get("limit", MOST_EVENTS), 0
    for name in streams:
        if name < last:
            continue
        events = events_of(service, group, name, request)
        for number in range(skip if name == last else 0, len(events)):
            event = events[number]
            if not matches(event.message):
                continue
            size += len(event.message) + 26
            if len(events_found) == room or (size > MOST_BYTES and events_found):
                return events_found, searched, paging.page_token_of("events", [name, number])
            event_id = hashlib.sha256(f"{group}\n{name}\n{number}".encode()).hexdigest()[:56]
            events_found.append((event_id, event))
        searched.append(name)
    return events_found, searched, None


def page_of(events: Sequence[StreamEvent], request: Members) -> tuple[int, int]:
    """Start and end of the requested page of a stream."""
    token = request.get("nextToken")
    if token is None:
        forward, offset = (
            bool(request.get("startFromHead")),
            0 if request.get("startFromHead") else len(events),
        )
    else:
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise LogsError("InvalidParameterException", "The specified nextToken is invalid.")
        forward, offset = match["direction"] == "f", min(int(match["place"]), len(events))
    if forward:
        return offset, offset + _fitting(events, range(offset, len(events)), request)
    # Backward: as many as fit before the place, still oldest first.
    return offset - _fitting(events, range(offset - 1, -1, -1), request), offset


def _fitting(events: Sequence[StreamEvent], places: range, request: Members) -> int:
    """How many of the events at these places fit into a page."""
    places, size = places[: request.get("limit", MOST_EVENTS)], 0
    for number, place in enumerate(places):
        size += len(events[place].message) + 26
        # An event larger than a page is a page of its own.
        if size > MOST_BYTES and number:
            return number
    return len(places)


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a message has all plain terms, none with a minus, and one of those with a question mark."""
    pattern = pattern.strip()
    if pattern.startswith("{"):
        try:
            return json_pattern(pattern)
        except MalformedQuery as error:
            raise LogsError("InvalidParameterException", f"The filter pattern is wrong: {error}.") from error
    if pattern.startswith(("[", "%")):
        raise LogsError(
            "InvalidParameterException",
            'Filter patterns are terms or JSON here: word, "a phrase", ?either, -without, { $.a = "b" }.',
        )
    terms = [(match["sign"], match["phrase"] or match["word"] or "") for match in _TERM.finditer(pattern)]
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


async def respond(
    service: Service,
    request: Request,
    operations: Mapping[str, Operation],
    *,
    target: str = TARGET,
    media_type: str = "application/x-amz-json-1.1",
) -> Response:
    """Execute the operation that a header of a request names after `target`."""

    async def work() -> Response:
        named = request.headers.get("x-amz-target", "")
        operation = operations.get(named.removeprefix(target)) if named.startswith(target) else None
        if operation is None:
            raise LogsError("UnknownOperationException", f"There is no operation {named[:200]}.")
        body = await admitted_body(service, request, operation)
        try:
            answer = await execute(service, operation, parsed_body(body))
        except ValidationException as error:
            raise LogsError("InvalidParameterException", str(error)) from error
        return respond_with(200, answer, media_type=media_type)

    return await respond_safely(work)


def get_log_events(service: Service, request: Members) -> JsonMap:
    """A page of one stream, forward or backward."""
    group = _group(service, request)
    stream = request["logStreamName"]
    if not any(each.name == stream for each in group):
        raise LogsError("ResourceNotFoundException", "The specified log stream does not exist.")
    events = events_of(service, group[0].group, stream, request)
    start, end = page_of(events, request)
    return {
        "events": [
            {"timestamp": event.timestamp, "message": event.message, "ingestionTime": event.ingested}
            for event in events[start:end]
        ],
        "nextForwardToken": f"f/{end:018d}",
        "nextBackwardToken": f"b/{start:018d}",
    }


def filter_log_events(service: Service, request: Members) -> JsonMap:
    """A page of events of several streams, filtered by time and pattern."""
    group = _group(service, request)
    names, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix", "")
    if names and prefix:
        raise LogsError(
            "InvalidParameterException", "logStreamNames and logStreamNamePrefix exclude each other."
        )
    selected = [
        stream.name
        for stream in group
        if stream.name and (stream.name in names if names else stream.name.startswith(prefix))
    ]
    if names and len(selected) < len(set(names)):
        raise LogsError("ResourceNotFoundException", "The specified log stream does not exist.")
    events, searched, token = filter_events(service, group[0].group, selected, request)
    answer: JsonObject = {
        "events": [
            {
                "logStreamName": event.stream,
                "timestamp": event.timestamp,
                "message": event.message,
                "ingestionTime": event.ingested,
                "eventId": event_id,
            }
            for event_id, event in events
        ],
        "searchedLogStreams": [
            {"logStreamName": name, "searchedCompletely": True} for name in searched[:100]
        ],
    }
    if token is not None:
        answer["nextToken"] = token
    return answer


def describe_log_groups(service: Service, request: Members) -> JsonMap:
    """A page of the groups."""
    prefix, part = request.get("logGroupNamePrefix", ""), request.get("logGroupNamePattern", "")
    groups = [
        stream
        for stream in log_streams.all_streams(service.context)
        if not stream.name and stream.group.startswith(prefix) and part in stream.group
    ]
    (after,) = paging.key_of("groups", request.get("nextToken"), str) or [""]
    left = [stream for stream in groups if stream.group > after]
    limit = request.get("limit", DESCRIBED)
    answer: JsonObject = {
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


def describe_log_streams(service: Service, request: Members) -> JsonMap:
    """A page of the streams of a group."""
    group = _group(service, request)
    prefix = request.get("logStreamNamePrefix", "")
    streams = [stream for stream in group if stream.name and stream.name.startswith(prefix)]
    by_time = request.get("orderBy") == "LastEventTime"
    times = log_streams.event_times(service.context, group[0].group) if by_time else {}
    streams.sort(key=lambda stream: (times[stream.name].last if stream.name in times else 0, stream.name))
    if request.get("descending"):
        streams.reverse()
    (start,) = paging.key_of("streams", request.get("nextToken"), int) or [0]
    end = start + request.get("limit", DESCRIBED)
    page = streams[start:end]
    times = times or log_streams.event_times(
        service.context, group[0].group, [stream.name for stream in page]
    )
    answer: JsonObject = {
        "logStreams": [_described(service, stream, times.get(stream.name)) for stream in page]
    }
    if end < len(streams):
        answer["nextToken"] = paging.page_token_of("streams", [end])
    return answer


def put_log_events(service: Service, request: Members) -> JsonMap:
    """Append events to a stream. Spans and event records among them are ingested as sessions."""
    events = [
        LogEvent(timestamp_ms=entry["timestamp"], message=entry["message"]) for entry in request["logEvents"]
    ]
    if any(one.timestamp_ms > two.timestamp_ms for one, two in pairwise(events)):
        raise LogsError(
            "InvalidParameterException", "Log events in a single request must be in chronological order."
        )
    try:
        log_streams.put_events(service.context, request["logGroupName"], request["logStreamName"], events)
    except NotFound as error:
        raise LogsError("ResourceNotFoundException", str(error)) from error
    return {"nextSequenceToken": f"{len(events):056d}"}


def create_log_group(service: Service, request: Members) -> JsonMap:
    """Create a group."""
    return _create(service, request["logGroupName"], "")


def create_log_stream(service: Service, request: Members) -> JsonMap:
    """Create a stream in an existing group."""
    _group(service, request)
    return _create(service, request["logGroupName"], request["logStreamName"])


def _create(service: Service, group: str, stream: str) -> JsonMap:
    if any((each.group, each.name) == (group, stream) for each in log_streams.all_streams(service.context)):
        kind = "stream" if stream else "group"
        raise LogsError("ResourceAlreadyExistsException", f"The specified log {kind} already exists")
    try:
        log_streams.create_stream(service.context, group, stream)
    except Contradiction as error:
        raise LogsError("ResourceAlreadyExistsException", str(error)) from error
    return {}


def _group(service: Service, request: Members) -> list[LogStream]:
    """All streams of the requested group."""
    identifier = request.get("logGroupIdentifier", "")
    name = request.get("logGroupName") or identifier.removesuffix(":*").rpartition("log-group:")[2]
    if not name:
        raise LogsError("InvalidParameterException", "Give logGroupName or logGroupIdentifier.")
    streams = [stream for stream in log_streams.all_streams(service.context) if stream.group == name]
    if not streams:
        raise LogsError("ResourceNotFoundException", "The specified log group does not exist.")
    return streams


def _described(service: Service, stream: LogStream, times: TimeWindow | None) -> JsonObject:
    members = {
        "logStreamName": stream.name,
        "creationTime": stream.created,
        "arn": f"{_arn(service, stream)}:log-stream:{stream.name}",
        "storedBytes": 0,
    }
    if times is not None:
        members |= {
            "firstEventTimestamp": times.first,
            "lastEventTimestamp": times.last,
            "lastIngestionTime": times.ingested,
        }
    return members


def _arn(service: Service, stream: LogStream) -> str:
    return f"arn:aws:logs:{service.names.region}:{service.names.account}:log-group:{stream.group}"


KEPT_QUERIES = 100
KEPT_FOR = timedelta(minutes=30)
MOST_IN_PAGE = 10_000
LATEST = 9_000_000_000
"""Seconds; in milliseconds, databases take them as a number."""
_SESSION = "attributes.session.id"


def start_query(service: Service, request: Members) -> JsonMap:
    """Run a query over one or several groups."""
    if request.get("queryLanguage", "CWLI") != "CWLI":
        raise LogsError("InvalidParameterException", "Only the query language CWLI is supported here.")
    try:
        query = parse_query(request["queryString"])
    except MalformedQuery as error:
        raise LogsError("MalformedQueryException", f"The query is not understood: {error}.") from error
    groups = _groups(service, request)
    scanned = _Scan()
    rows = query.run(
        scanned.count(_rows(service, groups, query, request)), request.get("limit", MOST_IN_PAGE)
    )
    answers, query_id = service.queries, str(uuid.uuid4())
    for old in [each for each, answer in answers.items() if service.now - answer.at > KEPT_FOR]:
        answers.pop(old, None)
    while len(answers) >= KEPT_QUERIES:
        answers.pop(next(iter(answers)), None)
    answers[query_id] = QueryAnswer(
        rows=[_fields(query, row) for row in rows],
        scanned=scanned.rows,
        scanned_bytes=scanned.bytes,
        at=service.now,
    )
    return {"queryId": query_id}


def get_query_results(service: Service, request: Members) -> JsonMap:
    """A page of the rows of a query."""
    answer = service.queries.get(request["queryId"])
    if answer is None:
        raise LogsError("ResourceNotFoundException", "There is no such query; its results are kept a while.")
    (start,) = paging.key_of("query", request.get("nextToken"), int) or [0]
    end = start + (request.get("maxItems") or MOST_IN_PAGE)
    page: JsonObject = {
        "queryLanguage": "CWLI",
        "status": "Complete",
        "results": answer.rows[start:end],
        "statistics": {
            "recordsMatched": float(len(answer.rows)),
            "recordsScanned": float(answer.scanned),
            "bytesScanned": float(answer.scanned_bytes),
        },
    }
    if end < len(answer.rows):
        page["nextToken"] = paging.page_token_of("query", [end])
    return page


def stop_query(service: Service, request: Members) -> JsonMap:
    """A query has ended when its id is known: it cannot be stopped."""
    if request["queryId"] not in service.queries:
        raise LogsError("ResourceNotFoundException", "There is no such query.")
    raise LogsError("InvalidParameterException", "The query has already ended: its results can be read.")


class _Scan:
    """Counts what a query reads."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0

    def count(self, rows: Iterator[LogRow]) -> Iterator[LogRow]:
        """Pass rows on, and count them and their bytes."""
        for row in rows:
            self.rows += 1
            self.bytes += len(row.message)
            yield row


def _groups(service: Service, request: Members) -> list[str]:
    named = [
        *([request["logGroupName"]] if "logGroupName" in request else []),
        *request.get("logGroupNames", []),
        *(
            identifier.removesuffix(":*").rpartition("log-group:")[2]
            for identifier in request.get("logGroupIdentifiers", [])
        ),
    ]
    if not named:
        raise LogsError(
            "InvalidParameterException", "Give logGroupName, logGroupNames or logGroupIdentifiers."
        )
    known = {stream.group for stream in log_streams.all_streams(service.context)} | {SPANS}
    if missing := [name for name in named if name not in known]:
        raise LogsError("ResourceNotFoundException", f"The log group {missing[0]} does not exist.")
    return list(dict.fromkeys(named))


def _rows(service: Service, groups: Sequence[str], query: LogQuery, request: Members) -> Iterator[LogRow]:
    """The events of some groups in a time range, each once."""
    first, last = (min(request[name], LATEST) * 1000 for name in ("startTime", "endTime"))
    last += 999
    known = set[tuple[str, str, str]]()
    for group in groups:
        documents = log_streams.received_documents(
            service.context,
            group,
            first_ms=first,
            last_ms=last,
            session_keys=query.equalities.get(_SESSION, ()),
            trace_ids=query.equalities.get("traceId", ()),
        )
        for key, at, document in documents:
            known.add(key)
            message = _received(at, document).message
            yield LogRow(timestamp=at, message=message, stream=RECEIVED, group=group)
        streams = [
            stream.name
            for stream in log_streams.all_streams(service.context)
            if stream.group == group and stream.name and (group, stream.name) != (SPANS, RECEIVED)
        ]
        for stream in streams:
            for event in events_of(service, group, stream):
                if first <= event.timestamp <= last and _key(event.message) not in known:
                    yield LogRow(timestamp=event.timestamp, message=event.message, stream=stream, group=group)


def _key(message: str) -> tuple[str, str, str] | None:
    """Identity of the document in a message; None: it is none."""
    if "traceId" not in message:
        return None
    try:
        document = json.loads(message)
        return mark_of(normalized(document)).key if isinstance(document, dict) else None
    except (ValueError, RecursionError):
        return None


def _fields(query: LogQuery, row: LogRow) -> list[JsonMap]:
    fields: list[JsonMap] = [{"field": name, "value": value} for name, value in query.fields_of(row)]
    if not row.is_aggregate:
        fields.append({"field": "@ptr", "value": f"{row.group}/{row.stream}/{row.timestamp}"})
    return fields


OPERATIONS = (
    operation("GetLogEvents", get_log_events),
    operation("FilterLogEvents", filter_log_events),
    operation("DescribeLogGroups", describe_log_groups),
    operation("DescribeLogStreams", describe_log_streams),
    operation("PutLogEvents", put_log_events),
    operation("CreateLogGroup", create_log_group),
    operation("CreateLogStream", create_log_stream),
    operation("StartQuery", start_query),
    operation("GetQueryResults", get_query_results),
    operation("StopQuery", stop_query),
)
