"""Log groups and streams are read and written with the log service's own client."""

import base64
import json
from itertools import chain

import pytest
from wire_server import NOON, pages, refused, told
from wire_spans import spans

from databases import query

GROUP, STREAM = "/my/agents", "spans"
ARN = f"arn:aws:logs:us-east-1:000000000000:log-group:{GROUP}"
WHERE = {"logGroupName": GROUP, "logStreamName": STREAM}
AT_NOON = int(NOON.timestamp() * 1000)


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
    return logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)


def texts(page):
    return [event["message"] for event in page["events"]]


def test_spans_that_are_put_into_a_stream_arrive_as_a_session_of_that_group(served, logs):
    put(logs, *map(json.dumps, spans("s-1")), "an ordinary line", "{broken", '{"traceId": 1}', "[" * 100_000)

    (session,) = query(served.store, 'SELECT * FROM "sessions"')

    assert (session["externalId"], session["logGroup"], session["service"]) == ("s-1", GROUP, "Calc.DEFAULT")
    evidence = served.store.read.evidence(session["id"])
    assert evidence.traces[0].prompt == "What is 15 + 27?"
    page = logs.get_log_events(logGroupName=GROUP, logStreamName=STREAM, startFromHead=True)
    assert texts(page)[-4:-1] == ["an ordinary line", "{broken", '{"traceId": 1}']


def test_a_stream_is_read_forward_until_the_token_stays_the_same(logs):
    put(logs, *(f"line {number}" for number in range(25)))
    found, token = [], None

    while True:
        page = logs.get_log_events(
            **WHERE, limit=10, startFromHead=True, **({"nextToken": token} if token else {})
        )
        if page["nextForwardToken"] == token:
            break
        token = page["nextForwardToken"]
        found.append(texts(page))

    assert [len(page) for page in found] == [10, 10, 5]
    assert list(chain(*found)) == [f"line {number}" for number in range(25)]


def test_events_are_told_with_their_times_and_both_tokens(at_noon):
    logs = with_stream(at_noon.logs)
    assert told(put(logs, "a", "b", "c")) == {"nextSequenceToken": "3".zfill(56)}

    assert told(logs.get_log_events(**WHERE, startFromHead=True, limit=2)) == {
        "events": [
            {"timestamp": 1000, "message": "a", "ingestionTime": AT_NOON},
            {"timestamp": 1001, "message": "b", "ingestionTime": AT_NOON},
        ],
        "nextForwardToken": "f/" + "2".zfill(18),
        "nextBackwardToken": "b/" + "0".zfill(18),
    }
    assert texts(logs.get_log_events(logGroupIdentifier=ARN, logStreamName=STREAM)) == ["a", "b", "c"]


@pytest.fixture(scope="module")
def five(shared_logs):
    """A stream of five events, a to e, at 0, 1, 2, 3 and 4 milliseconds."""
    shared_logs.create_log_stream(logGroupName=GROUP, logStreamName="five")
    put(shared_logs, *"abcde", stream="five", first=0)
    return shared_logs


@pytest.fixture(scope="module")
def words(shared_logs):
    """A stream of words, and one of JSON."""
    for stream in ("words", "json"):
        shared_logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    put(shared_logs, "a b", "a c", "b c", stream="words")
    put(
        shared_logs,
        json.dumps({"name": "one", "count": 1, "attributes": {"session.id": "s-1"}}),
        json.dumps({"name": "two", "count": 2, "attributes": {"session.id": "s-2"}, "list": [5, 7]}),
        json.dumps({"name": "three", "missing": None}),
        "no JSON",
        stream="json",
    )
    return shared_logs


@pytest.mark.parametrize(
    ("request_", "page"),
    [
        ({}, "abcde"),
        ({"startFromHead": True}, "abcde"),
        ({"startFromHead": True, "limit": 2}, "ab"),
        ({"limit": 2}, "de"),
        ({"limit": 5}, "abcde"),
        ({"nextToken": "f/2"}, "cde"),
        ({"nextToken": "f/2", "limit": 1}, "c"),
        ({"nextToken": "b/2"}, "ab"),
        ({"nextToken": "b/2", "limit": 1}, "b"),
        ({"nextToken": "b/2", "limit": 1, "startFromHead": True}, "b"),
        ({"nextToken": "f/99"}, ""),
        ({"nextToken": "b/99", "limit": 2}, "de"),
        ({"startTime": 1}, "bcde"),
        ({"endTime": 4}, "abcd"),
        ({"endTime": 5}, "abcde"),
        ({"endTime": 0}, ""),
        ({"startTime": 1, "endTime": 2}, "b"),
    ],
)
def test_a_page_of_a_stream_begins_where_its_token_says_within_its_times(five, request_, page):
    assert "".join(texts(five.get_log_events(logGroupName=GROUP, logStreamName="five", **request_))) == page


@pytest.mark.parametrize("token", ["x/1", "f/", "f/1x", "f/" + "1" * 19])
def test_a_token_that_no_page_has_returned_is_refused(five, token):
    refusal = refused(five.get_log_events, logGroupName=GROUP, logStreamName="five", nextToken=token)

    expected = ("InvalidParameterException", "The specified nextToken is invalid.")
    assert (refusal.code, refusal.message) == expected


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        # An event takes 26 bytes besides its message.
        ([500_000, 548_576 - 52, 1], 2),
        ([500_000, 548_576 - 51, 1], 1),
        ([1_048_576 - 26, 1], 1),
    ],
)
def test_a_page_has_a_megabyte_of_events_and_at_least_one(shared_logs, sizes, count):
    stream = "-".join(map(str, sizes))
    shared_logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    for number, size in enumerate(sizes):
        put(shared_logs, "x" * size, stream=stream, first=number)

    where = {"logGroupName": GROUP, "logStreamName": stream}
    assert len(shared_logs.get_log_events(**where, startFromHead=True)["events"]) == count
    found = shared_logs.filter_log_events(logGroupName=GROUP, logStreamNames=[stream])
    assert len(found["events"]) == count


def test_events_are_filtered_by_time_and_stream(logs):
    logs.create_log_stream(logGroupName=GROUP, logStreamName="other")
    put(logs, "good news", "bad news", "good luck")
    put(logs, "good other", stream="other", first=1001)

    def found(**members):
        return texts(logs.filter_log_events(logGroupName=GROUP, **members))

    assert found() == ["good other", "good news", "bad news", "good luck"]
    assert found(filterPattern="good", logStreamNames=[STREAM, STREAM]) == ["good news", "good luck"]
    assert found(logStreamNamePrefix="oth") == ["good other"]
    assert found(startTime=1001, endTime=1002, logStreamNames=[STREAM]) == ["bad news"]


@pytest.mark.parametrize(
    ("pattern", "kept"),
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
def test_words_that_a_message_must_have_may_have_and_must_not_have(words, pattern, kept):
    found = words.filter_log_events(logGroupName=GROUP, logStreamNames=["words"], filterPattern=pattern)

    assert texts(found) == kept


def test_events_are_filtered_by_json_patterns(words):
    request = {"logGroupName": GROUP, "logStreamNames": ["json"]}
    page = words.filter_log_events(**request, filterPattern='{ $.attributes.session.id = "s-1" }')
    rest = words.filter_log_events(**request, filterPattern='{ $.count = 2 || $.name = "three" }')

    expected = [["one"], ["two", "three"]]
    assert [[json.loads(text)["name"] for text in texts(found)] for found in (page, rest)] == expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[a, b]", "Filter patterns are terms or JSON here"),
        ("%regex%", "Filter patterns are terms or JSON here"),
        ("{ $.a ~ 1 }", "The filter pattern is wrong: "),
    ],
)
def test_patterns_that_are_not_supported_are_refused_with_those_that_are(shared_logs, pattern, words):
    refusal = refused(shared_logs.filter_log_events, logGroupName=GROUP, filterPattern=pattern)

    assert refusal.code == "InvalidParameterException" and words in refusal.message


def test_filtered_events_of_several_streams_come_a_page_at_a_time(at_noon):
    logs = with_stream(at_noon.logs)
    logs.create_log_stream(logGroupName=GROUP, logStreamName="other")
    logs.create_log_stream(logGroupName=GROUP, logStreamName="third")
    put(logs, "a1", "b", "a2", stream="other")
    put(logs, "a3", "a4")
    request = {"logGroupName": GROUP, "filterPattern": "a", "limit": 2}

    first = logs.filter_log_events(**request)
    second = logs.filter_log_events(**request, nextToken=first["nextToken"])

    assert texts(first) == ["a1", "a2"] and texts(second) == ["a3", "a4"] and "nextToken" not in second
    event = dict(first["events"][0])
    assert len(event.pop("eventId")) == 56
    assert event == {"logStreamName": "other", "timestamp": 1000, "message": "a1", "ingestionTime": AT_NOON}
    assert first["searchedLogStreams"] == [{"logStreamName": "other", "searchedCompletely": True}]
    assert [each["logStreamName"] for each in second["searchedLogStreams"]] == [STREAM, "third"]
    single = pages(logs.filter_log_events, "events", logGroupName=GROUP, limit=1)
    assert [event["message"] for page in single for event in page] == ["a1", "b", "a2", "a3", "a4"]
    # The same event has the same id on every page.
    ids = [event["eventId"] for page in single for event in page]
    alone = logs.filter_log_events(logGroupName=GROUP, logStreamNames=[STREAM])["events"]
    assert len(set(ids)) == 5 and [event["eventId"] for event in alone] == ids[3:]


def test_a_stream_is_described_with_the_times_of_its_events(at_noon, clock):
    logs = with_stream(at_noon.logs)
    logs.create_log_stream(logGroupName=GROUP, logStreamName="other")
    clock.forward(seconds=2)
    put(logs, "one", "two")
    clock.forward(seconds=1)
    put(logs, "late", first=500)

    (stream,) = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix="sp")["logStreams"]
    (empty,) = logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix="oth")["logStreams"]

    assert stream == {
        "logStreamName": STREAM,
        "creationTime": AT_NOON,
        "arn": f"{ARN}:log-stream:{STREAM}",
        "storedBytes": 0,
        "firstEventTimestamp": 500,
        "lastEventTimestamp": 1001,
        "lastIngestionTime": AT_NOON + 3000,
    }
    assert set(empty) == {"logStreamName", "creationTime", "arn", "storedBytes"}


def test_streams_are_listed_by_name_or_last_event(logs):
    for name in ("other", "third"):
        logs.create_log_stream(logGroupName=GROUP, logStreamName=name)
    put(logs, "x", stream="other", first=3000)
    put(logs, "y", first=2000)

    def listed(**members):
        found = pages(logs.describe_log_streams, "logStreams", **members)
        return [[stream["logStreamName"] for stream in page] for page in found]

    group = {"logGroupName": GROUP}
    assert listed(**group) == listed(logGroupIdentifier=ARN) == [["other", STREAM, "third"]]
    assert listed(**group, descending=True) == [["third", STREAM, "other"]]
    assert listed(**group, orderBy="LastEventTime") == [["third", STREAM, "other"]]
    assert listed(**group, orderBy="LastEventTime", descending=True) == [["other", STREAM, "third"]]
    assert listed(**group, limit=2) == [["other", STREAM], ["third"]]
    assert listed(**group, limit=3) == [["other", STREAM, "third"]]


def test_groups_are_listed_in_pages_by_prefix_or_part_of_their_name(at_noon, clock):
    logs = at_noon.logs
    for name in ("/a/x", "/a/y", "/b/x"):
        logs.create_log_group(logGroupName=name)
        clock.forward(seconds=1)

    def listed(**members):
        found = pages(logs.describe_log_groups, "logGroups", **members)
        return [[group["logGroupName"] for group in page] for page in found]

    assert listed(limit=2) == [["/a/x", "/a/y"], ["/b/x"]]
    assert listed(limit=3) == [["/a/x", "/a/y", "/b/x"]]
    assert listed(logGroupNamePrefix="/a/") == [["/a/x", "/a/y"]]
    assert listed(logGroupNamePattern="/x") == [["/a/x", "/b/x"]]
    arn = "arn:aws:logs:us-east-1:000000000000:log-group:/b/x"
    assert logs.describe_log_groups(logGroupNamePrefix="/b/")["logGroups"] == [
        {
            "logGroupName": "/b/x",
            "creationTime": AT_NOON + 2000,
            "arn": f"{arn}:*",
            "logGroupArn": arn,
            "logGroupClass": "STANDARD",
        }
    ]


EVENT = [{"timestamp": 1, "message": "x"}]
BACKWARD = [{"timestamp": 2, "message": "b"}, {"timestamp": 1, "message": "a"}]
NO_GROUP, NO_STREAM = ("The specified log group does not exist.", "The specified log stream does not exist.")
NOWHERE = {"logGroupName": "/no", "logStreamName": "x"}


@pytest.mark.parametrize(
    ("operation", "members", "kind", "message"),
    [
        ("get_log_events", {**WHERE, "logStreamName": "no"}, "ResourceNotFound", NO_STREAM),
        ("get_log_events", NOWHERE, "ResourceNotFound", NO_GROUP),
        ("put_log_events", {**WHERE, "logStreamName": "no", "logEvents": EVENT},
         "ResourceNotFound", NO_STREAM),
        ("describe_log_streams", {"logGroupName": "/no"}, "ResourceNotFound", NO_GROUP),
        ("filter_log_events", {"logGroupName": "/no"}, "ResourceNotFound", NO_GROUP),
        ("filter_log_events", {"logGroupName": GROUP, "logStreamNames": [STREAM, "no"]},
         "ResourceNotFound", NO_STREAM),
        ("create_log_stream", NOWHERE, "ResourceNotFound", NO_GROUP),
        ("create_log_group", {"logGroupName": GROUP}, "ResourceAlreadyExists",
         "The specified log group already exists"),
        ("create_log_stream", WHERE, "ResourceAlreadyExists", "The specified log stream already exists"),
        ("get_log_events", {"logStreamName": STREAM}, "InvalidParameter",
         "Give logGroupName or logGroupIdentifier."),
        ("filter_log_events", {"logGroupName": GROUP, "logStreamNames": ["a"], "logStreamNamePrefix": "a"},
         "InvalidParameter", "logStreamNames and logStreamNamePrefix exclude each other."),
        ("put_log_events", {**WHERE, "logEvents": BACKWARD}, "InvalidParameter",
         "Log events in a single request must be in chronological order."),
        ("get_log_events", {**WHERE, "logStreamName": "a:b"}, "InvalidParameter", ""),
        ("get_log_events", {**WHERE, "limit": 10_001}, "InvalidParameter", ""),
        ("filter_log_events", {"logGroupName": "no spaces"}, "InvalidParameter", ""),
        ("describe_log_groups", {"limit": 51}, "InvalidParameter", ""),
        ("describe_log_streams", {"logGroupName": GROUP, "orderBy": "Size"}, "InvalidParameter", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_said(shared_logs, operation, members, kind, message):
    refusal = refused(getattr(shared_logs, operation), **members)

    assert (refusal.code, refusal.status) == (f"{kind}Exception", 400)
    assert message in refusal.message


@pytest.mark.parametrize(
    "key", [["events", "a", "b"], ["events", "~\ud800\0", 0], ["events", "a", -1], ["events", "a", 10**30]]
)
def test_a_token_somebody_made_up_fails_nobody(shared_logs, key):
    put(shared_logs, "a line")
    token = base64.urlsafe_b64encode(json.dumps(key).encode()).decode()

    if key[2] == 0:
        assert shared_logs.filter_log_events(logGroupName=GROUP, nextToken=token)["events"] == []
    else:
        refusal = refused(shared_logs.filter_log_events, logGroupName=GROUP, nextToken=token)
        assert refusal.code == "InvalidParameterException"


def test_an_operation_nobody_knows_is_refused(shared):
    assert refused(shared.logs.delete_log_group, logGroupName=GROUP).code == "UnknownOperationException"
