"""Sessions in CloudWatch Logs, read from a stand-in for AWS on this machine."""

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from spans_by_hand import agent, record, text

from databases import query
from proctor.batch.ingest import import_log_groups
from proctor.errors import NotFound, UsageError
from proctor.telemetry.sources import LogGroupQuery

RUNTIME = "/aws/bedrock-agentcore/runtimes/Calc-1-DEFAULT"
NOW = datetime.now(UTC)
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@pytest.fixture
def logs(aws, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("logs", region_name="us-east-1", endpoint_url=aws)
    yield client
    for group in client.describe_log_groups()["logGroups"]:
        client.delete_log_group(logGroupName=group["logGroupName"])


def put(logs, group, *documents, stream="spans", at=NOW):
    if not logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        logs.create_log_group(logGroupName=group)
    if not logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=stream)["logStreams"]:
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
    moment = int(at.timestamp() * 1000)
    events = [
        {"timestamp": moment, "message": each if isinstance(each, str) else json.dumps(each)}
        for each in documents
    ]
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


def agent_of(session="s-1", **more):
    return agent(trace=session, session=session, asked=f"hello from {session}", **more)


def found(store):
    rows = query(store, 'SELECT * FROM "sessions" ORDER BY "externalId"')
    return [(row["externalId"], row["logGroup"]) for row in rows]


def test_spans_with_their_content_are_read_from_the_agents_own_group(logs, store):
    put(logs, RUNTIME, agent_of("s-1"), "started listening", '{"level": "info"}', agent_of("s-2"))

    done = import_log_groups(store, logs, LogGroupQuery(names=[RUNTIME]), NOW)

    assert found(store) == [("s-1", RUNTIME), ("s-2", RUNTIME)]
    assert len(done.session_ids) == 2 and done.documents == 2


def test_spans_that_stand_apart_are_joined_with_their_records(logs, store):
    apart = agent()
    apart["resource"]["attributes"]["aws.log.group.names"] = RUNTIME
    foreign = agent_of("other")
    foreign["resource"]["attributes"]["aws.log.group.names"] = "/aws/another"
    body = {"input": {"messages": [text("user", "hi")]}, "output": {"messages": [text("assistant", "ho")]}}
    put(logs, "aws/spans", apart, foreign)
    put(logs, RUNTIME, record("invoke_agent A", body=body), stream="otel-rt-logs")

    (session_id,) = import_log_groups(store, logs, LogGroupQuery(names=[RUNTIME]), NOW).session_ids

    assert found(store) == [("s-1", RUNTIME)]
    assert store.read.evidence(session_id).traces[0].prompt == "hi"


def test_only_the_service_sessions_and_time_that_were_asked_for_are_read(logs, store):
    put(logs, RUNTIME, agent_of("mine"), agent_of("theirs", service="Else.DEFAULT"), agent_of("another"))
    put(logs, RUNTIME, agent_of("old"), at=NOW - timedelta(days=2))

    hour = timedelta(hours=1)
    asked = {"service": "Calc.DEFAULT", "session_ids": ["mine", "theirs", "old"]}
    query = LogGroupQuery(names=[RUNTIME], start=NOW - hour, end=NOW + hour, **asked)
    import_log_groups(store, logs, query, NOW)

    assert found(store) == [("mine", RUNTIME)]


def test_groups_may_be_named_by_their_beginning(logs, store):
    put(logs, f"{RUNTIME}-a", agent_of("s-1"))
    put(logs, f"{RUNTIME}-b", agent_of("s-2"))
    put(logs, "/elsewhere", agent_of("s-3"))

    import_log_groups(store, logs, LogGroupQuery(prefixes=[RUNTIME]), NOW)

    assert found(store) == [("s-1", f"{RUNTIME}-a"), ("s-2", f"{RUNTIME}-b")]


def test_every_page_is_read(logs, store):
    for start in range(0, 240, 40):
        put(logs, RUNTIME, *(agent_of(f"s-{number:03}") for number in range(start, start + 40)))

    done = import_log_groups(store, logs, LogGroupQuery(names=[RUNTIME]), NOW)

    assert len(done.session_ids) == 240


def test_a_group_that_is_not_there_is_said(logs, store):
    with pytest.raises(NotFound, match="there is no log group /missing"):
        import_log_groups(store, logs, LogGroupQuery(names=["/missing"]), NOW)
    with pytest.raises(UsageError, match="no such log group"):
        import_log_groups(store, logs, LogGroupQuery(prefixes=["/missing"]), NOW)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "FilterLogEvents"),
            "CloudWatch Logs refuses to show the log group g: no",
        ),
        (
            EndpointConnectionError(endpoint_url="http://x"),
            'CloudWatch Logs cannot be reached: Could not connect to the endpoint URL: "http://x"',
        ),
    ],
)
def test_a_service_that_refuses_or_is_gone_is_told(store, error, message):
    class Refusing:
        """A client whose every page is this error."""

        def get_paginator(self, operation):
            return self

        def paginate(self, **parameters):
            raise error

    with pytest.raises(UsageError) as caught:
        import_log_groups(store, Refusing(), LogGroupQuery(names=["g"]), NOW)

    assert str(caught.value) == message


def test_the_command_reads_a_group(logs, aws, proctor):
    put(logs, RUNTIME, agent_of("s-1"))

    where = ("--service", "Calc.DEFAULT", "--region", "us-east-1", "--endpoint-url", aws)
    done = proctor("import", "cloudwatch", "--log-group", RUNTIME, *where, "--json", environment=KEYS)

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["sessions"]) == 1


def test_log_groups_are_fetched_and_judged_in_one_command(aws, logs, proctor):
    put(logs, RUNTIME, agent_of("s-1"), agent_of("s-2"))
    proctor.environment |= KEYS | {"AWS_ENDPOINT_URL": aws, "AWS_DEFAULT_REGION": "us-east-1"}
    asked = ["--name", "fetched", "--evaluator", "Builtin.TrajectoryAnyOrderMatch", "--log-group", RUNTIME]

    done = proctor.json("evaluate", "start", *asked, "--service", "Calc.DEFAULT", "--cloudwatch")

    assert done["evaluationResults"]["totalNumberOfSessions"] == 2
