"""Queries of logs as AWS's own clients send them, through the stock client."""

import json
import re
import time

import pytest
from wire_server import arrive, refused, told
from wire_spans import spans

RUNTIME = "/aws/bedrock-agentcore/runtimes/calc-abc-DEFAULT"
SPANS, STRANDS = "aws/spans", "strands.telemetry.tracer"
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
        made.append(span)
    return [*made, record_of(made[0], made[0]["startTimeUnixNano"])]


def record_of(span, at):
    """An event record of a span."""
    return {
        **{key: span[key] for key in ("traceId", "spanId", "resource")},
        "scope": {"name": STRANDS},
        "timeUnixNano": at,
        "attributes": {"session.id": span["attributes"]["session.id"], "event.name": STRANDS},
        "body": {"input": {"messages": [{"role": "user", "content": "hi"}]}},
    }


@pytest.fixture(scope="module")
def filled(shared):
    arrive(shared.store, [*documents("s-1"), *documents("s-2", first=20)], RUNTIME)
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


@pytest.mark.parametrize(
    "query",
    [
        "",
        "select * from x",
        "filter a like /(x+)+$/",
        'parse @message "a*b*" as one',
    ],
)
def test_a_query_that_is_not_understood_is_refused_and_never_answered_with_nothing(filled, query):
    refusal = refused(ask, filled, query)

    assert refusal.code == "MalformedQueryException"
    assert query == "" or refusal.message.startswith("The query is not understood: ")


# Lines of a stream


GROUP, STREAM = "/my/agents", "lines"
WINDOW = {"startTime": 1, "endTime": 10}


@pytest.fixture
def lines(at_noon):
    """The log client, with a stream of events just before, in and after the first ten seconds of 1970."""
    logs = at_noon.logs
    logs.create_log_group(logGroupName=GROUP)
    logs.create_log_group(logGroupName="/other")
    logs.create_log_stream(logGroupName=GROUP, logStreamName=STREAM)
    for at, text in ((999, "before"), (1000, "first"), (10_999, "last"), (11_000, "after")):
        event = {"timestamp": at, "message": text}
        logs.put_log_events(logGroupName=GROUP, logStreamName=STREAM, logEvents=[event])
    return logs


def start(logs, query="fields @message | sort @timestamp asc", **members):
    groups = {} if any(name.startswith("logGroup") for name in members) else {"logGroupName": GROUP}
    return logs.start_query(**groups, **WINDOW, queryString=query, **members)["queryId"]


def results(logs, *words, **members):
    return told(logs.get_query_results(queryId=start(logs, *words, **members)))


def messages(page):
    return [cell["value"] for row in page["results"] for cell in row if cell["field"] == "@message"]


def test_a_query_finds_events_of_whole_seconds(lines):
    def row(text, at):
        return [{"field": "@message", "value": text}, {"field": "@ptr", "value": f"{GROUP}/{STREAM}/{at}"}]

    assert results(lines) == {
        "queryLanguage": "CWLI",
        "status": "Complete",
        "results": [row("first", 1000), row("last", 10_999)],
        "statistics": {"recordsMatched": 2.0, "recordsScanned": 2.0, "bytesScanned": 9.0},
    }
    assert results(lines, "stats count(*) as n")["results"] == [[{"field": "n", "value": "2"}]]
    assert messages(results(lines, limit=1, queryLanguage="CWLI")) == ["first"]


def test_a_query_names_its_groups_in_one_of_three_ways(lines):
    both, arn = ["first", "last"], f"arn:aws:logs:us-east-1:000000000000:log-group:{GROUP}"
    assert messages(results(lines, logGroupNames=[GROUP, GROUP, "/other"])) == both
    assert messages(results(lines, logGroupIdentifiers=[arn])) == both
    assert messages(results(lines, logGroupNames=["/other"])) == []
    assert messages(results(lines, logGroupNames=[SPANS])) == []


@pytest.mark.parametrize(
    ("members", "kind", "message"),
    [
        ({}, "InvalidParameter", "Give logGroupName, logGroupNames or logGroupIdentifiers."),
        ({"logGroupNames": [GROUP, "/no"]}, "ResourceNotFound", "The log group /no does not exist."),
        ({"logGroupName": GROUP, "queryLanguage": "SQL"}, "InvalidParameter",
         "Only the query language CWLI is supported here."),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_query_is_said(lines, members, kind, message):
    refusal = refused(lines.start_query, **WINDOW, queryString="fields @message", **members)

    assert (refusal.code, refusal.message) == (f"{kind}Exception", message)


def test_a_span_that_is_also_an_event_of_a_stream_is_found_once(lines):
    record = record_of(spans("s-1")[0], 5 * 10**9)
    texts = [json.dumps(record), 'a line with "traceId"', '["traceId"]']
    events = [{"timestamp": 5000 + number, "message": text} for number, text in enumerate(texts)]
    lines.put_log_events(logGroupName=GROUP, logStreamName=STREAM, logEvents=events)

    _, found, *rest = messages(results(lines))

    assert json.loads(found)["body"] == record["body"] and rest == [*texts[1:], "last"]


def test_the_rows_of_a_query_are_read_in_pages_for_half_an_hour(lines, clock):
    query_id = start(lines)
    first = lines.get_query_results(queryId=query_id, maxItems=1)
    second = lines.get_query_results(queryId=query_id, maxItems=1, nextToken=first["nextToken"])
    assert (messages(first), messages(second)) == (["first"], ["last"]) and "nextToken" not in second
    assert "nextToken" not in lines.get_query_results(queryId=query_id, maxItems=2)
    assert first["statistics"]["recordsMatched"] == 2.0

    clock.forward(minutes=30)
    start(lines)
    assert messages(lines.get_query_results(queryId=query_id)) == ["first", "last"]
    clock.forward(seconds=1)
    start(lines)
    refusal = refused(lines.get_query_results, queryId=query_id)
    expected = ("ResourceNotFoundException", "There is no such query; its results are kept a while.")
    assert (refusal.code, refusal.message) == expected


def test_a_query_has_ended_when_it_could_be_stopped(lines):
    refusal = refused(lines.stop_query, queryId="no")
    assert (refusal.code, refusal.message) == ("ResourceNotFoundException", "There is no such query.")
    refusal = refused(lines.stop_query, queryId=start(lines))
    expected = ("InvalidParameterException", "The query has already ended: its results can be read.")
    assert (refusal.code, refusal.message) == expected


def test_received_spans_can_be_filtered_and_read_like_other_log_events(filled):
    window = {"startTime": (NOW - 3600) * 1000, "endTime": (NOW + 60) * 1000}

    first = filled.logs.filter_log_events(
        logGroupName=SPANS, filterPattern='"s-1"', limit=count_of("s-1") - 1, **window
    )
    rest = filled.logs.filter_log_events(
        logGroupName=SPANS, filterPattern='"s-1"', nextToken=first["nextToken"], **window
    )
    read = filled.logs.get_log_events(logGroupName=SPANS, logStreamName="otel-rt-logs", startFromHead=True)
    last = filled.logs.get_log_events(logGroupName=SPANS, logStreamName="otel-rt-logs", limit=1)
    before = filled.logs.get_log_events(
        logGroupName=SPANS, logStreamName="otel-rt-logs", limit=1, nextToken=last["nextBackwardToken"]
    )

    found = [json.loads(event["message"])["spanId"] for event in (*first["events"], *rest["events"])]
    assert len(rest["events"]) == 1
    assert sorted(found) == sorted(span["spanId"] for span in spans("s-1"))
    assert len(read["events"]) == count_of("s-1") + count_of("s-2")
    assert [*before["events"], *last["events"]] == read["events"][-2:]


def test_an_operation_of_the_service_that_is_not_here_is_refused_with_a_sentence(filled):
    refusal = refused(filled.control.list_gateways)

    assert (refusal.code, refusal.status) == ("UnknownOperationException", 404)
    assert refusal.message.startswith("GET /gateways/ is no operation of this server.")


def test_spans_with_their_own_content_have_records_in_the_group_of_their_session(shared):
    inline = [span for span in documents("s-inline", first=40) if "body" not in span]
    arrive(shared.store, inline, RUNTIME)

    found = rows(
        ask(
            shared,
            "fields @message | filter attributes.session.id like 's-inline' | sort @timestamp",
            group=RUNTIME,
        )
    )

    agent, tool = (json.loads(row["@message"]) for row in found)
    assert {each["attributes"]["session.id"] for each in (agent, tool)} == {"s-inline"}
    assert agent["body"] == {
        side: {
            "messages": [{"role": role, "content": {part: json.dumps([{"text": text}], ensure_ascii=False)}}]
        }
        for side, role, part, text in (
            ("input", "user", "content", "What is 15 + 27?"),
            ("output", "assistant", "message", "It is 42."),
        )
    }
    (result,) = tool["body"]["output"]["messages"]
    assert json.loads(result["content"]["message"]) == [{"text": "42"}]
