"""Queries of CloudWatch Logs Insights: start, results, stop.

A query runs when it is started; its rows wait for the client in memory. Spans are in the group `aws/spans`,
event records and everything else in the groups they were sent to.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta

from proctor.json_values import JsonMap, JsonObject
from proctor.telemetry.documents import mark_of, normalised
from proctor.telemetry.log_query import LogQuery, LogRow, MalformedQuery, parse_query
from proctor.telemetry.sources import SPANS
from proctor.web.agentcore import service as paging
from proctor.web.agentcore.logs import all_streams, events_of, log_operation
from proctor.web.agentcore.request_shapes import GET_QUERY_RESULTS, START_QUERY, STOP_QUERY
from proctor.web.agentcore.service import QueryAnswer, Service
from proctor.web.agentcore.shapes import LogsError, Members

KEPT_QUERIES = 100
KEPT_FOR = timedelta(minutes=30)
MOST_IN_PAGE = 10_000
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
    end = start + request.get("maxItems", MOST_IN_PAGE)
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
        for row in rows:
            self.rows += 1
            self.bytes += len(row.message)
            yield row


def _groups(service: Service, request: Members) -> list[str]:
    named = [
        *([request["logGroupName"]] if "logGroupName" in request else []),
        *request.get("logGroupNames", []),
        *(
            each.removesuffix(":*").rpartition("log-group:")[2]
            for each in request.get("logGroupIdentifiers", [])
        ),
    ]
    if not named:
        raise LogsError(
            "InvalidParameterException", "Give logGroupName, logGroupNames or logGroupIdentifiers."
        )
    known = {stream.group for stream in all_streams(service)} | {SPANS}
    if missing := [name for name in named if name not in known]:
        raise LogsError("ResourceNotFoundException", f"The log group {missing[0]} does not exist.")
    return list(dict.fromkeys(named))


def _rows(service: Service, groups: Sequence[str], query: LogQuery, request: Members) -> Iterator[LogRow]:
    """The events of some groups in a time range, each once."""
    first, last = request["startTime"] * 1000, request["endTime"] * 1000 + 999
    known = set[tuple[str, str, str]]()
    for group in groups:
        documents = service.store.arrivals.search(
            log_group="" if group == SPANS else group,
            first_ms=first,
            last_ms=last,
            session_keys=query.equalities.get(_SESSION, ()),
            trace_ids=query.equalities.get("traceId", ()),
        )
        for key, at, document in documents:
            known.add(key)
            message = json.dumps(document, ensure_ascii=False)
            yield LogRow(timestamp=at, message=message, stream="otel-rt-logs", group=group)
        streams = [stream.name for stream in all_streams(service) if stream.group == group and stream.name]
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
        return mark_of(normalised(document)).key if isinstance(document, dict) else None
    except (ValueError, RecursionError):
        return None


def _fields(query: LogQuery, row: LogRow) -> list[JsonMap]:
    fields: list[JsonMap] = [{"field": name, "value": value} for name, value in query.fields_of(row)]
    if not row.is_aggregate:
        fields.append({"field": "@ptr", "value": f"{row.group}/{row.stream}/{row.timestamp}"})
    return fields


OPERATIONS = (
    log_operation("StartQuery", START_QUERY, start_query),
    log_operation("GetQueryResults", GET_QUERY_RESULTS, get_query_results),
    log_operation("StopQuery", STOP_QUERY, stop_query),
)
