"""Operations on log groups, streams, events and queries, without a server."""

import json
from datetime import timedelta
from typing import Any

import pytest
from operation_calls import OperationCalls
from wire_spans import spans

from proctor.errors import Contradiction
from proctor.web.agentcore import logs as log_module
from proctor.web.agentcore.errors import LogsError
from proctor.web.agentcore.logs import LogStream, StreamEvent, TimeWindow
from proctor.web.agentcore.service import QueryAnswer, Service

logs = OperationCalls(log_module.OPERATIONS)
GROUP, STREAM = "/my/agents", "spans"
NOON = 1_767_355_200_000
"""The clock of `service` in milliseconds."""
ARN = f"arn:aws:logs:us-east-1:000000000000:log-group:{GROUP}"


def refused(call: Any, service: Service, **members: Any) -> tuple[str, str]:
    with pytest.raises(LogsError) as caught:
        call(service, members)
    assert caught.value.status == 400
    return caught.value.kind, str(caught.value)


def put(service: Service, *messages: str, stream: str = STREAM, first: int = 1000) -> Any:
    events = [{"timestamp": first + number, "message": text} for number, text in enumerate(messages)]
    return logs.put_log_events(service, {"logGroupName": GROUP, "logStreamName": stream, "logEvents": events})


@pytest.fixture
def filled(service: Service) -> Service:
    logs.create_log_group(service, {"logGroupName": GROUP})
    for name in (STREAM, "other", "third"):
        logs.create_log_stream(service, {"logGroupName": GROUP, "logStreamName": name})
    return service


def event(at: int, message: str = "m", stream: str = "s") -> StreamEvent:
    return StreamEvent(stream=stream, timestamp=at, message=message, ingested=at)


# Pages of events


def test_a_window_of_times_spans_both_of_its_parts() -> None:
    one, two = TimeWindow(first=1, last=5, ingested=9), TimeWindow(first=2, last=7, ingested=8)
    assert one.joined(two) == two.joined(one) == TimeWindow(first=1, last=7, ingested=9)
    assert one.joined(None) == one


@pytest.mark.parametrize(
    ("request_", "times"),
    [
        ({}, [0, 5, 9]),
        ({"startTime": 5}, [5, 9]),
        ({"startTime": 6}, [9]),
        ({"endTime": 9}, [0, 5]),
        ({"endTime": 10}, [0, 5, 9]),
        ({"endTime": 0}, []),
        ({"startTime": 5, "endTime": 6}, [5]),
    ],
)
def test_a_time_range_has_its_start_and_not_its_end(request_: Any, times: list[int]) -> None:
    assert [each.timestamp for each in log_module.within([event(at) for at in (0, 5, 9)], request_)] == times


@pytest.mark.parametrize(
    ("request_", "page"),
    [
        ({}, (0, 5)),
        ({"startFromHead": True}, (0, 5)),
        ({"startFromHead": True, "limit": 2}, (0, 2)),
        ({"limit": 2}, (3, 5)),
        ({"limit": 5}, (0, 5)),
        ({"limit": 6}, (0, 5)),
        ({"nextToken": "f/2"}, (2, 5)),
        ({"nextToken": "f/2", "limit": 1}, (2, 3)),
        ({"nextToken": "b/2"}, (0, 2)),
        ({"nextToken": "b/2", "limit": 1}, (1, 2)),
        ({"nextToken": "b/2", "limit": 1, "startFromHead": True}, (1, 2)),
        ({"nextToken": "f/99"}, (5, 5)),
        ({"nextToken": "b/99", "limit": 2}, (3, 5)),
    ],
)
def test_a_page_of_a_stream_begins_where_its_token_says(request_: Any, page: tuple[int, int]) -> None:
    assert log_module.page_of([event(at) for at in range(5)], request_) == page


@pytest.mark.parametrize("token", ["", "x/1", "f/", "f/1x", "f/" + "1" * 19])
def test_a_token_that_no_page_has_returned_is_refused(token: str) -> None:
    with pytest.raises(LogsError, match=r"^The specified nextToken is invalid\.$") as caught:
        log_module.page_of([], {"nextToken": token})
    assert caught.value.kind == "InvalidParameterException"


@pytest.mark.parametrize(
    ("sizes", "end"),
    [
        ([1, 1, 1], 3),
        # An event takes 26 bytes besides its message.
        ([500_000, 548_576 - 52, 1], 2),
        ([500_000, 548_576 - 51, 1], 1),
        ([2_000_000, 1], 1),
    ],
)
def test_a_page_has_a_megabyte_of_events_and_at_least_one(sizes: list[int], end: int) -> None:
    events = [event(number, "x" * size) for number, size in enumerate(sizes)]
    assert log_module.page_of(events, {"startFromHead": True}) == (0, end)
    assert log_module.page_of(events[::-1], {}) == (len(sizes) - end, len(sizes))


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("", ["a b", "a c", "b c"]),
        ("  a  ", ["a b", "a c"]),
        ("a b", ["a b"]),
        ("-a", ["b c"]),
        ("a -b", ["a c"]),
        ("?b ?c", ["a b", "a c", "b c"]),
        ("a ?c", ["a c"]),
        ('"b c"', ["b c"]),
        ('-"b c"', ["a b", "a c"]),
    ],
)
def test_words_that_a_message_must_have_may_have_and_must_not_have(pattern: str, texts: list[str]) -> None:
    matches = log_module._matcher(pattern)
    assert [text for text in ("a b", "a c", "b c") if matches(text)] == texts


@pytest.mark.parametrize("pattern", ["[a, b]", "%regex%", " [a]"])
def test_patterns_that_are_not_supported_are_refused_with_those_that_are(pattern: str) -> None:
    with pytest.raises(LogsError, match="Filter patterns are terms or JSON here") as caught:
        log_module._matcher(pattern)
    assert caught.value.kind == "InvalidParameterException"
    with pytest.raises(LogsError, match=r"^The filter pattern is wrong: .+\.$") as caught:
        log_module._matcher("{ $.a ~ 1 }")
    assert caught.value.kind == "InvalidParameterException"


# Groups, streams and events


def test_a_stream_is_described_with_the_times_of_its_events(filled: Service, clock: Any) -> None:
    clock.forward(seconds=2)
    put(filled, "one", "two")
    clock.forward(seconds=1)
    put(filled, "late", first=500)
    streams = logs.describe_log_streams(filled, {"logGroupName": GROUP, "logStreamNamePrefix": "sp"})
    assert streams == {
        "logStreams": [
            {
                "logStreamName": STREAM,
                "creationTime": NOON,
                "arn": f"{ARN}:log-stream:{STREAM}",
                "storedBytes": 0,
                "firstEventTimestamp": 500,
                "lastEventTimestamp": 1001,
                "lastIngestionTime": NOON + 3000,
            }
        ]
    }
    (empty,) = logs.describe_log_streams(filled, {"logGroupName": GROUP, "logStreamNamePrefix": "oth"})[
        "logStreams"
    ]
    assert set(empty) == {"logStreamName", "creationTime", "arn", "storedBytes"}


def test_a_group_is_as_old_as_the_first_of_its_streams(service: Service, clock: Any) -> None:
    service.store.logs.create(GROUP, "b", clock() - timedelta(seconds=5))
    service.store.logs.create(GROUP, "", clock())
    service.store.logs.create(GROUP, "a", clock() + timedelta(seconds=5))
    assert log_module.all_streams(service) == [
        LogStream(group=GROUP, name="", created=NOON - 5000),
        LogStream(group=GROUP, name="a", created=NOON + 5000),
        LogStream(group=GROUP, name="b", created=NOON - 5000),
    ]


def test_streams_are_listed_by_name_or_last_event(filled: Service) -> None:
    put(filled, "x", stream="other", first=3000)
    put(filled, "y", stream=STREAM, first=2000)

    def listed(**members: Any) -> list[str]:
        page = logs.describe_log_streams(filled, {"logGroupName": GROUP, **members})
        return [each["logStreamName"] for each in page["logStreams"]]

    assert listed() == listed(orderBy="LogStreamName") == ["other", STREAM, "third"]
    assert listed(descending=True) == ["third", STREAM, "other"]
    assert listed(orderBy="LastEventTime") == ["third", STREAM, "other"]
    assert listed(orderBy="LastEventTime", descending=True) == ["other", STREAM, "third"]


def test_streams_are_listed_in_pages(filled: Service) -> None:
    first = logs.describe_log_streams(filled, {"logGroupName": GROUP, "limit": 2})
    second = logs.describe_log_streams(
        filled, {"logGroupName": GROUP, "limit": 2, "nextToken": first["nextToken"]}
    )
    assert [each["logStreamName"] for each in first["logStreams"]] == ["other", STREAM]
    assert [each["logStreamName"] for each in second["logStreams"]] == ["third"]
    assert "nextToken" not in second
    assert "nextToken" not in logs.describe_log_streams(filled, {"logGroupName": GROUP, "limit": 3})


def test_groups_are_listed_in_pages_by_prefix_or_part_of_their_name(service: Service) -> None:
    for name in ("/a/x", "/a/y", "/b/x"):
        logs.create_log_group(service, {"logGroupName": name})

    def listed(**members: Any) -> list[str]:
        return [each["logGroupName"] for each in logs.describe_log_groups(service, members)["logGroups"]]

    assert listed() == ["/a/x", "/a/y", "/b/x"]
    assert listed(logGroupNamePrefix="/a") == ["/a/x", "/a/y"]
    assert listed(logGroupNamePrefix="a") == []
    assert listed(logGroupNamePattern="/x") == ["/a/x", "/b/x"]
    first = logs.describe_log_groups(service, {"limit": 2})
    assert first["logGroups"][0] == {
        "logGroupName": "/a/x",
        "creationTime": NOON,
        "arn": "arn:aws:logs:us-east-1:000000000000:log-group:/a/x:*",
        "logGroupArn": "arn:aws:logs:us-east-1:000000000000:log-group:/a/x",
        "logGroupClass": "STANDARD",
    }
    assert [each["logGroupName"] for each in first["logGroups"]] == ["/a/x", "/a/y"]
    assert listed(limit=2, nextToken=first["nextToken"]) == ["/b/x"]
    assert "nextToken" not in logs.describe_log_groups(service, {"limit": 3})


def test_events_are_read_with_both_tokens(filled: Service) -> None:
    assert put(filled, "a", "b", "c") == {"nextSequenceToken": "3".zfill(56)}
    where = {"logGroupName": GROUP, "logStreamName": STREAM}
    assert logs.get_log_events(filled, {**where, "startFromHead": True, "limit": 2}) == {
        "events": [
            {"timestamp": 1000, "message": "a", "ingestionTime": NOON},
            {"timestamp": 1001, "message": "b", "ingestionTime": NOON},
        ],
        "nextForwardToken": "f/" + "2".zfill(18),
        "nextBackwardToken": "b/" + "0".zfill(18),
    }
    by_arn = {"logGroupIdentifier": ARN, "logStreamName": STREAM}
    assert logs.get_log_events(filled, {**by_arn, "startTime": 1001, "endTime": 1002})["events"] == [
        {"timestamp": 1001, "message": "b", "ingestionTime": NOON}
    ]


def test_events_of_several_streams_are_filtered_in_pages(filled: Service) -> None:
    put(filled, "a1", "b", "a2", stream="other")
    put(filled, "a3", "a4")
    request = {"logGroupName": GROUP, "filterPattern": "a", "limit": 2}
    first = logs.filter_log_events(filled, request)
    assert [(each["logStreamName"], each["message"]) for each in first["events"]] == [
        ("other", "a1"),
        ("other", "a2"),
    ]
    assert set(first["events"][0]) == {
        *("logStreamName", "timestamp", "message", "ingestionTime", "eventId"),
    }
    assert (first["events"][0]["timestamp"], first["events"][0]["ingestionTime"]) == (1000, NOON)
    assert first["searchedLogStreams"] == [{"logStreamName": "other", "searchedCompletely": True}]
    second = logs.filter_log_events(filled, {**request, "nextToken": first["nextToken"]})
    assert [each["message"] for each in second["events"]] == ["a3", "a4"]
    assert [each["logStreamName"] for each in second["searchedLogStreams"]] == [STREAM, "third"]
    assert "nextToken" not in second
    everything = logs.filter_log_events(filled, {"logGroupName": GROUP})["events"]
    assert len({each["eventId"] for each in everything}) == 5 and len(everything[0]["eventId"]) == 56
    # The same event has the same id on every page.
    alone = logs.filter_log_events(filled, {"logGroupName": GROUP, "logStreamNames": [STREAM]})["events"]
    assert [each["eventId"] for each in alone] == [each["eventId"] for each in everything[3:]]


def test_a_page_of_filtered_events_goes_on_within_a_stream(filled: Service) -> None:
    put(filled, "a", "b", "c")
    request = {"logGroupName": GROUP, "limit": 1}
    found, token = list[str](), None
    for _ in range(3):
        page = logs.filter_log_events(filled, {**request, **({"nextToken": token} if token else {})})
        found += [each["message"] for each in page["events"]]
        token = page.get("nextToken")
    assert (found, token) == (["a", "b", "c"], None)


def test_a_page_of_filtered_events_has_a_megabyte_at_most(
    filled: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MOST_BYTES", 2 * 26 + 4)
    put(filled, "aa", "bb", "c")
    page = logs.filter_log_events(filled, {"logGroupName": GROUP})
    assert [each["message"] for each in page["events"]] == ["aa", "bb"]
    monkeypatch.setattr(log_module, "MOST_BYTES", 2 * 26 + 3)
    page = logs.filter_log_events(filled, {"logGroupName": GROUP})
    assert [each["message"] for each in page["events"]] == ["aa"]
    monkeypatch.setattr(log_module, "MOST_BYTES", 1)
    page = logs.filter_log_events(filled, {"logGroupName": GROUP})
    assert [each["message"] for each in page["events"]] == ["aa"]


def test_what_is_wrong_with_a_request_is_said(filled: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    group = {"logGroupName": GROUP}
    no_stream = ("ResourceNotFoundException", "The specified log stream does not exist.")
    no_group = ("ResourceNotFoundException", "The specified log group does not exist.")
    assert refused(logs.get_log_events, filled, **group, logStreamName="no") == no_stream
    assert refused(logs.get_log_events, filled, logGroupName="/no", logStreamName="no") == no_group
    assert refused(logs.get_log_events, filled, logStreamName="no") == (
        "InvalidParameterException",
        "Give logGroupName or logGroupIdentifier.",
    )
    assert refused(logs.filter_log_events, filled, **group, logStreamNames=[STREAM, "no"]) == no_stream
    # A name may be given twice.
    assert logs.filter_log_events(filled, {**group, "logStreamNames": [STREAM, STREAM]})["events"] == []
    assert refused(
        logs.filter_log_events, filled, **group, logStreamNames=["a"], logStreamNamePrefix="a"
    ) == ("InvalidParameterException", "logStreamNames and logStreamNamePrefix exclude each other.")
    assert refused(logs.create_log_group, filled, **group) == (
        "ResourceAlreadyExistsException",
        "The specified log group already exists",
    )
    assert refused(logs.create_log_stream, filled, **group, logStreamName=STREAM) == (
        "ResourceAlreadyExistsException",
        "The specified log stream already exists",
    )
    assert refused(logs.create_log_stream, filled, logGroupName="/no", logStreamName="x") == no_group
    late = [{"timestamp": 2, "message": "b"}, {"timestamp": 1, "message": "a"}]
    assert refused(logs.put_log_events, filled, **group, logStreamName=STREAM, logEvents=late) == (
        "InvalidParameterException",
        "Log events in a single request must be in chronological order.",
    )
    same = [{"timestamp": 2, "message": "b"}, {"timestamp": 2, "message": "a"}]
    logs.put_log_events(filled, {**group, "logStreamName": STREAM, "logEvents": same})
    assert refused(logs.put_log_events, filled, **group, logStreamName="no", logEvents=same) == no_stream
    # Another server has created it meanwhile.
    monkeypatch.setattr(log_module, "all_streams", lambda service: [])

    def create(*_: object) -> None:
        raise Contradiction("the log group already exists")

    monkeypatch.setattr(filled.store.logs, "create", create)
    assert refused(logs.create_log_group, filled, **group) == (
        "ResourceAlreadyExistsException",
        "the log group already exists",
    )


def test_spans_in_a_stream_become_sessions_of_its_group_and_other_lines_do_not(filled: Service) -> None:
    put(filled, *map(json.dumps, spans("s-1")), '{"traceId": 1}', "[1]", "[" * 100_000)
    groups = [each for each in log_module.all_streams(filled) if not each.name]
    assert [each.group for each in groups] == [GROUP]
    (session,) = filled.store.read.rows(dict, 'SELECT * FROM "sessions"')
    assert (session["logGroup"], session["externalId"]) == (GROUP, "s-1")


# Results of online configurations


def test_a_result_of_an_online_configuration_has_its_origin_and_a_metric(service: Service) -> None:
    record = {
        "observedTimeUnixNano": "5000000000",
        "timeUnixNano": "1000000000",
        "service.name": "shop",
        "attributes": {"gen_ai.evaluation.name": "warm", "gen_ai.evaluation.score.value": 0.5},
    }
    job: Any = {"name": "support"}
    members = log_module._with_origin(service, "c-1", job, record)
    assert members == {
        **record,
        "attributes": {
            **record["attributes"],  # type: ignore[dict-item]
            "aws.bedrock_agentcore.online_evaluation_config.arn": (
                "arn:aws:bedrock-agentcore:us-east-1:000000000000:online-evaluation-config/c-1"
            ),
            "aws.bedrock_agentcore.online_evaluation_config.name": "support",
        },
        "onlineEvaluationConfigId": "c-1",
        "warm": 0.5,
        "_aws": {
            "Timestamp": 5000,
            "CloudWatchMetrics": [
                {
                    "Namespace": "Bedrock-AgentCore/Evaluations",
                    "Dimensions": [["service.name", "onlineEvaluationConfigId"]],
                    "Metrics": [{"Name": "warm", "Unit": "None"}],
                }
            ],
        },
    }
    plain = {"timeUnixNano": "1999999", "attributes": {"gen_ai.evaluation.name": "warm"}}
    without_value = log_module._with_origin(service, "c-1", job, plain)
    assert set(without_value) == {"timeUnixNano", "attributes", "onlineEvaluationConfigId"}
    assert log_module.time_of_record(plain) == 1
    del record["service.name"]
    nowhere = log_module._with_origin(service, "c-1", job, record)
    assert nowhere["service.name"] == ""


# Queries


def ask(service: Service, query: str = "fields @message", **members: Any) -> Any:
    groups = {} if members.keys() & {"logGroupNames", "logGroupIdentifiers"} else {"logGroupName": GROUP}
    request = {**groups, "startTime": 1, "endTime": 10, "queryString": query, **members}
    query_id = logs.start_query(service, request)["queryId"]
    return logs.get_query_results(service, {"queryId": query_id})


def messages(page: Any) -> list[str]:
    return [cell["value"] for row in page["results"] for cell in row if cell["field"] == "@message"]


def test_a_query_finds_events_of_whole_seconds(filled: Service) -> None:
    for at, text in ((999, "before"), (1000, "first"), (10_999, "last"), (11_000, "after")):
        put(filled, text, first=at, stream="other")
    page = ask(filled, "fields @message | sort @timestamp asc")
    assert page == {
        "queryLanguage": "CWLI",
        "status": "Complete",
        "results": [
            [
                {"field": "@message", "value": "first"},
                {"field": "@ptr", "value": f"{GROUP}/other/1000"},
            ],
            [
                {"field": "@message", "value": "last"},
                {"field": "@ptr", "value": f"{GROUP}/other/10999"},
            ],
        ],
        "statistics": {"recordsMatched": 2.0, "recordsScanned": 2.0, "bytesScanned": 9.0},
    }
    assert ask(filled, "stats count(*) as n")["results"] == [[{"field": "n", "value": "2"}]]
    assert len(ask(filled, limit=1)["results"]) == 1


def test_a_query_names_its_groups_in_one_of_three_ways(filled: Service) -> None:
    logs.create_log_group(filled, {"logGroupName": "/other"})
    put(filled, "x")
    assert messages(ask(filled)) == ["x"]
    assert messages(ask(filled, logGroupNames=[GROUP, GROUP, "/other"])) == ["x"]
    assert messages(ask(filled, logGroupIdentifiers=[ARN])) == ["x"]
    assert messages(ask(filled, logGroupNames=["/other"])) == []
    assert ask(filled, logGroupNames=["aws/spans"])["results"] == []
    request = {"startTime": 1, "endTime": 2, "queryString": "fields @message"}
    assert refused(logs.start_query, filled, **request) == (
        "InvalidParameterException",
        "Give logGroupName, logGroupNames or logGroupIdentifiers.",
    )
    assert refused(logs.start_query, filled, **request, logGroupNames=[GROUP, "/no"]) == (
        "ResourceNotFoundException",
        "The log group /no does not exist.",
    )


def test_a_span_that_is_also_an_event_of_a_stream_is_found_once(filled: Service) -> None:
    arrived = spans("s-1")
    record = {
        "traceId": arrived[0]["traceId"],
        "spanId": arrived[0]["spanId"],
        "resource": arrived[0]["resource"],
        "scope": {"name": "strands.telemetry.tracer"},
        "timeUnixNano": 5 * 10**9,
        "attributes": {"session.id": "s-1", "event.name": "strands.telemetry.tracer"},
        "body": {"input": {"messages": [{"role": "user", "content": "hi"}]}},
    }
    put(filled, json.dumps(record), 'a line with "traceId"', '["traceId"]')
    found = messages(ask(filled))
    assert len(found) == 3
    assert [json.loads(text)["body"] for text in found if text.startswith("{")] == [record["body"]]


def test_queries_in_another_language_or_that_mean_nothing_are_refused(filled: Service) -> None:
    request = {"logGroupName": GROUP, "startTime": 1, "endTime": 2}
    assert refused(logs.start_query, filled, **request, queryString="x", queryLanguage="SQL") == (
        "InvalidParameterException",
        "Only the query language CWLI is supported here.",
    )
    kind, message = refused(logs.start_query, filled, **request, queryString="fields (")
    assert kind == "MalformedQueryException" and message.startswith("The query is not understood: ")
    ask(filled, queryLanguage="CWLI")


def test_the_rows_of_a_query_are_read_in_pages_for_half_an_hour(filled: Service, clock: Any) -> None:
    put(filled, "a", "b", "c")
    request = {
        "logGroupName": GROUP,
        "startTime": 1,
        "endTime": 10,
        "queryString": "fields @message | sort @timestamp asc",
    }
    query_id = logs.start_query(filled, request)["queryId"]
    first = logs.get_query_results(filled, {"queryId": query_id, "maxItems": 2})
    second = logs.get_query_results(
        filled, {"queryId": query_id, "maxItems": 2, "nextToken": first["nextToken"]}
    )
    assert (messages(first), messages(second)) == (["a", "b"], ["c"]) and "nextToken" not in second
    assert "nextToken" not in logs.get_query_results(filled, {"queryId": query_id, "maxItems": 3})
    assert first["statistics"]["recordsMatched"] == 3.0
    clock.forward(minutes=30)
    ask(filled)
    logs.get_query_results(filled, {"queryId": query_id})
    clock.forward(seconds=1)
    ask(filled)
    assert refused(logs.get_query_results, filled, queryId=query_id) == (
        "ResourceNotFoundException",
        "There is no such query; its results are kept a while.",
    )


def test_the_rows_of_a_hundred_queries_are_kept(filled: Service, clock: Any) -> None:
    answer = QueryAnswer(rows=[], scanned=0, scanned_bytes=0, at=clock())
    filled.queries.update({f"q{number}": answer for number in range(99)})
    ask(filled)
    assert len(filled.queries) == 100 and "q0" in filled.queries
    ask(filled)
    assert len(filled.queries) == 100 and "q0" not in filled.queries and "q1" in filled.queries


def test_a_query_has_ended_when_it_could_be_stopped(filled: Service) -> None:
    assert refused(logs.stop_query, filled, queryId="no") == (
        "ResourceNotFoundException",
        "There is no such query.",
    )
    ask(filled)
    assert refused(logs.stop_query, filled, queryId=next(iter(filled.queries))) == (
        "InvalidParameterException",
        "The query has already ended: its results can be read.",
    )


def test_the_operations_of_the_log_service(service: Service) -> None:
    assert [name for name, *_ in logs.table] == [
        *("GetLogEvents", "FilterLogEvents", "DescribeLogGroups", "DescribeLogStreams", "PutLogEvents"),
        *("CreateLogGroup", "CreateLogStream", "StartQuery", "GetQueryResults", "StopQuery"),
    ]
    assert {tuple(rest) for _, *rest in logs.table} == {("POST /", 200, (), "logs")}
    assert logs.describe_log_groups(service, {}) == {"logGroups": []}
