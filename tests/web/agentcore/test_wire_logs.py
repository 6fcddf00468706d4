"""Log groups and streams are read and written with the log service's own client."""

import base64
import json
from itertools import chain

import pytest
from botocore.exceptions import ClientError
from wire_spans import spans

from databases import query

GROUP, STREAM = "/my/agents", "spans"


def refused(call, **members):
    with pytest.raises(ClientError) as caught:
        call(**members)
    return caught.value.response["Error"]["Code"]


def with_stream(logs):
    logs.create_log_group(logGroupName=GROUP)
    logs.create_log_stream(logGroupName=GROUP, logStreamName=STREAM)
    return logs


@pytest.fixture
def logs(served):
    return with_stream(served.logs)


@pytest.fixture(scope="module")
def shared_logs(shared):
    return with_stream(shared.logs)


def put(logs, *messages, stream=STREAM, first=1000):
    events = [{"timestamp": first + number, "message": text} for number, text in enumerate(messages)]
    logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


def texts(page):
    return [event["message"] for event in page["events"]]


def test_spans_that_are_put_into_a_stream_arrive_as_a_session_of_that_group(served, logs):
    put(logs, *map(json.dumps, spans("s-1")), "an ordinary line", "{broken", '{"traceId": 1}')

    (session,) = query(served.store, 'SELECT * FROM "sessions"')

    assert (session["externalId"], session["logGroup"], session["service"]) == ("s-1", GROUP, "Calc.DEFAULT")
    evidence = served.store.read.evidence(session["id"])
    assert evidence.traces[0].prompt == "What is 15 + 27?"
    page = logs.get_log_events(logGroupName=GROUP, logStreamName=STREAM, startFromHead=True)
    assert texts(page)[-3:] == ["an ordinary line", "{broken", '{"traceId": 1}']


def test_a_stream_is_read_forward_until_the_token_stays_the_same(logs):
    put(logs, *(f"line {number}" for number in range(25)))
    where = {"logGroupName": GROUP, "logStreamName": STREAM, "limit": 10, "startFromHead": True}
    pages, token = [], None

    while True:
        page = logs.get_log_events(**where, **({"nextToken": token} if token else {}))
        if page["nextForwardToken"] == token:
            break
        token = page["nextForwardToken"]
        pages.append(texts(page))

    assert [len(page) for page in pages] == [10, 10, 5]
    assert list(chain(*pages)) == [f"line {number}" for number in range(25)]


def test_a_stream_is_read_backward_from_its_end(logs):
    put(logs, *(f"line {number}" for number in range(25)))
    where = {"logGroupName": GROUP, "logStreamName": STREAM, "limit": 10}

    last = logs.get_log_events(**where)
    before = logs.get_log_events(**where, nextToken=last["nextBackwardToken"])

    assert texts(last) == [f"line {number}" for number in range(15, 25)]
    assert texts(before) == [f"line {number}" for number in range(5, 15)]


def test_a_page_of_long_events_holds_what_fits_into_it(logs):
    put(logs, *("x" * 700_000 for _ in range(3)))

    page = logs.get_log_events(logGroupName=GROUP, logStreamName=STREAM, startFromHead=True)

    assert len(page["events"]) == 1


def test_events_are_filtered_by_time_stream_and_words(served, logs):
    logs.create_log_stream(logGroupName=GROUP, logStreamName="other")
    put(logs, "good news", "bad news", "good luck")
    put(logs, "good other", stream="other", first=1001)
    group = {"logGroupName": GROUP}

    assert texts(logs.filter_log_events(**group)) == ["good other", "good news", "bad news", "good luck"]
    assert set(texts(logs.filter_log_events(**group, filterPattern="good"))) == {
        "good news",
        "good luck",
        "good other",
    }
    assert texts(logs.filter_log_events(**group, filterPattern="good -luck", logStreamNames=[STREAM])) == [
        "good news"
    ]
    assert texts(logs.filter_log_events(**group, filterPattern='?bad ?"good luck"')) == [
        "bad news",
        "good luck",
    ]
    assert texts(logs.filter_log_events(**group, logStreamNamePrefix="oth")) == ["good other"]
    assert texts(logs.filter_log_events(**group, startTime=1001, endTime=1002, logStreamNames=[STREAM])) == [
        "bad news"
    ]
    assert refused(logs.filter_log_events, **group, filterPattern="[a, b]") == "InvalidParameterException"
    assert (
        refused(logs.filter_log_events, **group, filterPattern="{ $.a ~ 1 }") == "InvalidParameterException"
    )


def test_filtered_events_come_a_page_at_a_time(logs):
    put(logs, *(f"line {number}" for number in range(25)))

    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP, PaginationConfig={"PageSize": 10}
    )

    assert [event["message"] for page in pages for event in page["events"]] == [
        f"line {n}" for n in range(25)
    ]


def test_groups_and_streams_are_listed(served, logs):
    served.logs.create_log_group(logGroupName="/my/other")
    served.logs.create_log_stream(logGroupName=GROUP, logStreamName="empty")
    put(logs, "a line")

    groups = served.logs.describe_log_groups(logGroupNamePrefix="/my/")["logGroups"]
    streams = served.logs.describe_log_streams(logGroupName=GROUP)["logStreams"]
    newest = served.logs.describe_log_streams(logGroupName=GROUP, orderBy="LastEventTime", descending=True)

    assert [group["logGroupName"] for group in groups] == [GROUP, "/my/other"]
    assert [stream["logStreamName"] for stream in streams] == ["empty", STREAM]
    assert streams[1]["lastEventTimestamp"] == 1000 and "lastEventTimestamp" not in streams[0]
    assert newest["logStreams"][0]["logStreamName"] == STREAM
    arn = f"arn:aws:logs:us-east-1:000000000000:log-group:{GROUP}"
    assert served.logs.describe_log_streams(logGroupIdentifier=arn)["logStreams"] == streams


def test_groups_are_listed_a_page_at_a_time(served):
    for number in range(60):
        served.logs.create_log_group(logGroupName=f"/many/{number:02d}")

    pages = served.logs.get_paginator("describe_log_groups").paginate()

    names = [group["logGroupName"] for page in pages for group in page["logGroups"]]
    assert names == [f"/many/{number:02d}" for number in range(60)]


def test_what_is_not_there_or_is_there_already_is_said(served, logs):
    where = {"logGroupName": GROUP, "logStreamName": "none"}
    event = [{"timestamp": 1, "message": "x"}]

    assert refused(logs.get_log_events, **where) == "ResourceNotFoundException"
    assert refused(logs.get_log_events, logGroupName="/no", logStreamName="x") == "ResourceNotFoundException"
    assert refused(logs.put_log_events, **where, logEvents=event) == "ResourceNotFoundException"
    assert refused(logs.describe_log_streams, logGroupName="/no") == "ResourceNotFoundException"
    assert refused(logs.filter_log_events, logGroupName="/no") == "ResourceNotFoundException"
    assert (
        refused(logs.create_log_stream, logGroupName="/no", logStreamName="x") == "ResourceNotFoundException"
    )
    assert refused(logs.create_log_group, logGroupName=GROUP) == "ResourceAlreadyExistsException"
    assert refused(logs.create_log_stream, logGroupName=GROUP, logStreamName=STREAM) == (
        "ResourceAlreadyExistsException"
    )


@pytest.mark.parametrize(
    ("operation", "members"),
    [
        ("get_log_events", {"logGroupName": GROUP, "logStreamName": "a:b"}),
        ("get_log_events", {"logGroupName": GROUP, "logStreamName": STREAM, "nextToken": "x"}),
        ("get_log_events", {"logStreamName": STREAM}),
        ("get_log_events", {"logGroupName": GROUP, "logStreamName": STREAM, "limit": 10_001}),
        ("filter_log_events", {"logGroupName": "no spaces"}),
        ("filter_log_events", {"logGroupName": GROUP, "logStreamNames": ["a"], "logStreamNamePrefix": "a"}),
        ("describe_log_groups", {"limit": 51}),
        ("describe_log_streams", {"logGroupName": GROUP, "orderBy": "Size"}),
        ("put_log_events", {"logGroupName": GROUP, "logStreamName": STREAM, "logEvents": [
            {"timestamp": 2, "message": "b"}, {"timestamp": 1, "message": "a"}]}),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(shared_logs, operation, members):
    assert refused(getattr(shared_logs, operation), **members) == "InvalidParameterException"


@pytest.mark.parametrize(
    "key",
    [["events", "a", "b"], ["events", "~\ud800\0", 0], ["events", "a", -1], ["events", "a", 10**30]],
)
def test_a_token_somebody_made_up_fails_nobody(shared_logs, key):
    put(shared_logs, "a line")
    token = base64.urlsafe_b64encode(json.dumps(key).encode()).decode()

    if key[2] == 0:
        assert shared_logs.filter_log_events(logGroupName=GROUP, nextToken=token)["events"] == []
    else:
        assert (
            refused(shared_logs.filter_log_events, logGroupName=GROUP, nextToken=token)
            == "InvalidParameterException"
        )


def test_an_operation_nobody_knows_is_refused(shared):
    assert refused(shared.logs.delete_log_group, logGroupName=GROUP) == "UnknownOperationException"


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ('{ $.attributes.session.id = "s-1" }', ["one"]),
        ('{ $.attributes.session.id = "s-*" }', ["one", "two"]),
        ('{ $.attributes.session.id != "s-1" }', ["two"]),
        ('{ ($.count >= 2) && ($.name = "two") }', ["two"]),
        ('{ $.count = 1 || $.name = "three" }', ["one", "three"]),
        ("{ $.count NOT EXISTS }", ["three"]),
        ("{ $.missing IS NULL }", ["three"]),
        ("{ $.list[1] = 7 }", ["two"]),
    ],
)
def test_events_are_filtered_by_json_patterns(logs, pattern, kept):
    put(
        logs,
        json.dumps({"name": "one", "count": 1, "attributes": {"session.id": "s-1"}}),
        json.dumps({"name": "two", "count": 2, "attributes": {"session.id": "s-2"}, "list": [5, 7]}),
        json.dumps({"name": "three", "missing": None}),
        "no JSON",
    )

    page = logs.filter_log_events(logGroupName=GROUP, filterPattern=pattern)

    assert [json.loads(text)["name"] for text in texts(page)] == kept
