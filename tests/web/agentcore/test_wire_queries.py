"""Queries of logs as AWS's own clients send them, through the stock client."""

import json
import re
import time
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError
from wire_spans import spans

from proctor.batch.ingest import build_sessions, keep_arrivals
from proctor.telemetry.documents import normalised

RUNTIME = "/aws/bedrock-agentcore/runtimes/calc-abc-DEFAULT"
SPANS = "aws/spans"
NOW = int(time.time())
AGENT = "arn:aws:bedrock-agentcore:us-east-1:123456789012:runtime/calc-abc/runtime-endpoint/DEFAULT"


def documents(session_id, *, first=0):
    """Spans of a session that begin now, and one event record."""
    made = []
    for number, span in enumerate(json.loads(json.dumps(spans(session_id)))):
        started = (NOW - 60 + first + number) * 1_000_000_000
        span |= {"startTimeUnixNano": started, "endTimeUnixNano": started + 250_000_000}
        span["resource"]["attributes"] |= {
            "cloud.resource_id": AGENT,
            "aws.service.type": "gen_ai_agent",
            "aws.log.group.names": RUNTIME,
        }
        made.append(normalised(span))
    record = {
        **{key: made[0][key] for key in ("traceId", "spanId", "resource")},
        "scope": {"name": "strands.telemetry.tracer"},
        "timeUnixNano": made[0]["startTimeUnixNano"],
        "attributes": {"session.id": session_id, "event.name": "strands.telemetry.tracer"},
        "body": {"input": {"messages": [{"role": "user", "content": "hi"}]}},
    }
    return [*made, normalised(record)]


@pytest.fixture(scope="module")
def filled(shared):
    arrived = [*documents("s-1"), *documents("s-2", first=20)]
    keep_arrivals(shared.store, arrived, datetime.now(UTC), log_group=RUNTIME)
    build_sessions(shared.store, datetime.now(UTC))
    return shared


def ask(served, query, *, group=SPANS, **more):
    started = served.logs.start_query(
        logGroupName=group, startTime=NOW - 3600, endTime=NOW + 60, queryString=query, **more
    )
    return served.logs.get_query_results(queryId=started["queryId"])


def rows(answer):
    assert answer["status"] == "Complete"
    return [{cell["field"]: cell["value"] for cell in row} for row in answer["results"]]


def count_of(session_id):
    return len(spans(session_id))


@pytest.mark.parametrize("first_filter", ['attributes.session.id = "s-1"', '@message like "s-1"'])
def test_the_evaluation_client_gets_the_documents_of_a_session(filled, first_filter):
    query = f"""fields @timestamp, @message
        | filter {first_filter}
        | filter ispresent(scope.name)
        | filter ispresent(traceId)
        | filter ispresent(spanId)
        | sort @timestamp asc"""

    found, events = rows(ask(filled, query)), rows(ask(filled, query, group=RUNTIME))

    assert len(found) == count_of("s-1") and len(events) == 1
    for row in (*found, *events):
        assert json.loads(row["@message"])["attributes"]["session.id"] == "s-1"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", row["@timestamp"])
    assert [row["@timestamp"] for row in found] == sorted(row["@timestamp"] for row in found)
    assert "body" in json.loads(events[0]["@message"])


def test_the_provider_of_strands_gets_messages_and_the_hierarchy(filled):
    messages = ask(
        filled,
        "fields @message | filter attributes.session.id like 's-2' | sort @timestamp asc | limit 10000",
        group=RUNTIME,
    )
    hierarchy = ask(
        filled, "fields spanId, parentSpanId | filter attributes.session.id like 's-2' | limit 10000"
    )

    assert [set(row) for row in rows(messages)] == [{"@message", "@ptr"}]
    assert len(rows(hierarchy)) == count_of("s-2")
    # What a row does not have is left out: the root has no parent.
    assert sorted("parentSpanId" in row for row in rows(hierarchy))[0] is False


def test_the_toolkit_gets_the_spans_of_a_session_with_computed_fields(filled):
    query = (
        "fields @timestamp, @message, traceId, spanId, name as spanName, kind, status.code as statusCode, "
        "status.message as statusMessage, durationNano/1000000 as durationMs, "
        "attributes.session.id as sessionId, startTimeUnixNano, endTimeUnixNano, parentSpanId, events, "
        "resource.attributes.service.name as serviceName, "
        "resource.attributes.cloud.resource_id as resourceId, "
        "attributes.aws.remote.service as serviceType "
        "| filter attributes.session.id = 's-1' "
        '| parse resource.attributes.cloud.resource_id "runtime/*/" as parsedAgentId '
        "| filter parsedAgentId = 'calc-abc' | sort startTimeUnixNano asc"
    )

    found = rows(ask(filled, query))

    assert len(found) == count_of("s-1")
    assert float(found[0]["durationMs"]) == 250.0
    assert int(found[0]["startTimeUnixNano"]) == (NOW - 60) * 1_000_000_000
    assert (found[0]["sessionId"], found[0]["serviceName"]) == ("s-1", "Calc.DEFAULT")
    assert "serviceType" not in found[0]
    assert rows(ask(filled, query.replace("calc-abc", "other"))) == []


def test_the_toolkit_gets_a_trace_and_its_runtime_logs(filled):
    (trace, *_) = {row["traceId"] for row in rows(ask(filled, "fields traceId"))}

    of_trace = ask(filled, f"fields spanId, name as spanName | filter traceId = '{trace}' | sort spanId")
    logs = ask(
        filled,
        "fields @timestamp, @message, spanId, traceId, @logStream "
        f"| filter traceId in ['{trace}', 'none'] | sort @timestamp asc",
        group=RUNTIME,
    )

    assert rows(of_trace)
    assert {row["traceId"] for row in rows(logs)} <= {trace}
    assert all(row["@logStream"] == "otel-rt-logs" for row in rows(logs))


def test_the_latest_session_is_found_by_an_aggregate(filled):
    query = (
        'filter resource.attributes.aws.service.type = "gen_ai_agent" '
        '| parse resource.attributes.cloud.resource_id "runtime/*/" as parsedAgentId '
        "| filter parsedAgentId = 'calc-abc' "
        "| stats max(endTimeUnixNano) as maxEnd by attributes.session.id | sort maxEnd desc | limit 1"
    )

    (row,) = rows(ask(filled, query))

    assert row["attributes.session.id"] == "s-2"
    assert row["maxEnd"].isdigit() and "@ptr" not in row


def test_the_summary_of_a_session_counts_and_sums(filled):
    query = (
        "fields traceId, spanId, durationNano/1000000 as durationMs, attributes.session.id as sessionId, "
        "attributes.http.status_code as httpStatusCode "
        "| filter sessionId = 's-1' "
        "| stats count(spanId) as spanCount, count_distinct(traceId) as traceCount, "
        "sum(durationMs) as totalDurationMs, "
        "sum(status.code = 'ERROR' or httpStatusCode >= 400) as errorCount, "
        "sum(status.code = 'OK' and not ispresent(httpStatusCode)) as fine, "
        "min(startTimeUnixNano) as sessionStart, max(endTimeUnixNano) as sessionEnd by sessionId"
    )

    (row,) = rows(ask(filled, query))

    assert (int(row["spanCount"]), row["errorCount"], row["sessionId"]) == (count_of("s-1"), "0", "s-1")
    assert float(row["totalDurationMs"]) == 250.0 * count_of("s-1")
    assert int(row["sessionStart"]) < int(row["sessionEnd"])


def test_long_answers_are_read_in_pages(filled):
    started = filled.logs.start_query(
        logGroupName=SPANS, startTime=0, endTime=NOW + 60, queryString="fields spanId | sort spanId"
    )
    found, token = [], None
    while True:
        page = filled.logs.get_query_results(
            queryId=started["queryId"], maxItems=2, **({"nextToken": token} if token else {})
        )
        assert len(page["results"]) <= 2
        found += rows(page)
        token = page.get("nextToken")
        if token is None:
            break

    assert len(found) == count_of("s-1") + count_of("s-2")
    assert page["statistics"]["recordsMatched"] == len(found)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "select * from x",
        "fields @message | filter",
        "filter attributes.session.id = ",
        "filter a like /(x+)+$/",
        "stats median(x)",
        "filter upper(a) = 'x'",
        'parse @message "a*b*" as one',
        "limit many",
        "fields @message | unmask @message",
    ],
)
def test_a_query_that_is_not_understood_is_refused_and_never_answered_with_nothing(filled, query):
    with pytest.raises(ClientError) as caught:
        ask(filled, query)

    assert caught.value.response["Error"]["Code"] == "MalformedQueryException"


def test_unknown_groups_and_queries_are_named(filled):
    with pytest.raises(filled.logs.exceptions.ResourceNotFoundException):
        ask(filled, "fields @message", group="/nobody")
    with pytest.raises(filled.logs.exceptions.ResourceNotFoundException):
        filled.logs.get_query_results(queryId="none")
    started = filled.logs.start_query(
        logGroupNames=[SPANS, RUNTIME], startTime=0, endTime=1, queryString="fields @message"
    )
    with pytest.raises(filled.logs.exceptions.InvalidParameterException):
        filled.logs.stop_query(queryId=started["queryId"])
