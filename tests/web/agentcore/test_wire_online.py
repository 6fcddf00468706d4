"""Online configurations are kept, and a share of the sessions that arrive is judged without anyone asking."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import wire_server
from botocore.exceptions import ClientError
from test_wire_jobs import ended
from wire_server import ACCOUNT, NOON, pages, refused, told
from wire_spans import spans

from proctor.config import WatchSection
from proctor.errors import UsageError
from proctor.jobs.evaluation.online import OnlineEvaluationState, OnlineWatch
from proctor.store import batches, timestamp
from proctor.store.drift import LineKey
from proctor.store.writer import this_process
from proctor.testing import eventually

GROUP, SERVICE = "/aws/bedrock-agentcore/runtimes/Calc", "Calc.DEFAULT"
ROLE = "arn:aws:iam::123456789012:role/evaluations"
SOURCE = {"cloudWatchLogs": {"logGroupNames": [GROUP], "serviceNames": [SERVICE]}}
HELPFUL = {"evaluatorId": "Builtin.Helpfulness"}
RULE = {"samplingConfig": {"samplingPercentage": 100.0}}
MODEL = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}
SCALE = {"categorical": [{"definition": "it is", "label": "Yes"}, {"definition": "it is not", "label": "No"}]}
NUMBERS = {
    "numerical": [
        {"definition": "it is", "label": "Yes", "value": 1.0},
        {"definition": "it is not", "label": "No", "value": 0.0},
    ]
}


def create(client, name="watching", **changed):
    asked = {
        "onlineEvaluationConfigName": name,
        "rule": RULE,
        "dataSourceConfig": SOURCE,
        "evaluators": [HELPFUL],
        "evaluationExecutionRoleArn": ROLE,
        "enableOnCreate": True,
    }
    return client.create_online_evaluation_config(**{**asked, **changed})


def judge(client, instructions="{assistant_turn}", level="TRACE", scale=SCALE, model="scripted/judge"):
    models = {"bedrockEvaluatorModelConfig": {"modelId": model}}
    config = {"llmAsAJudge": {"instructions": instructions, "ratingScale": scale, "modelConfig": models}}
    made = client.create_evaluator(evaluatorName="mine", level=level, evaluatorConfig=config)
    return made["evaluatorId"]


def arrive(store, *sessions, at=None, group=GROUP, service=SERVICE):
    for session in sessions:
        wire_server.arrive(store, spans(session, service=service), group, at)


def test_a_configuration_is_told_as_it_was_given_until_it_is_deleted(at_noon, clock):
    control = at_noon.control
    rule = {
        "samplingConfig": {"samplingPercentage": 12.5},
        "filters": [{"key": "user.tier", "operator": "Equals", "value": {"stringValue": "gold"}}],
        "sessionConfig": {"sessionTimeoutMinutes": 5},
    }
    made = told(create(control, rule=rule, description="Gold", tags={"team": "a"}))
    config_id = made["onlineEvaluationConfigId"]
    about = {"onlineEvaluationConfigId": config_id}
    arn = f"{ACCOUNT}:online-evaluation-config/{config_id}"
    identity = {"onlineEvaluationConfigArn": arn, **about}
    output = {"cloudWatchConfig": {"logGroupName": f"/aws/bedrock-agentcore/evaluations/results/{config_id}"}}
    state = {"status": "ACTIVE", "executionStatus": "ENABLED"}
    assert made == {**identity, "createdAt": NOON, "outputConfig": output, **state}
    summary = {
        **identity,
        "onlineEvaluationConfigName": "watching",
        "description": "Gold",
        **state,
        "createdAt": NOON,
        "updatedAt": NOON,
    }
    assert control.list_online_evaluation_configs()["onlineEvaluationConfigs"] == [summary]
    document = {
        "rule": rule,
        "dataSourceConfig": SOURCE,
        "evaluators": [HELPFUL],
        "outputConfig": output,
        "evaluationExecutionRoleArn": ROLE,
    }
    assert told(control.get_online_evaluation_config(**about)) == {**summary, **document}
    assert control.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "a"}

    clock.forward(seconds=9)
    updated = control.update_online_evaluation_config(**about, executionStatus="DISABLED")
    disabled = {"status": "ACTIVE", "executionStatus": "DISABLED"}
    assert told(updated) == {**identity, "updatedAt": clock(), **disabled}
    got = told(control.get_online_evaluation_config(**about))
    assert got == {**summary, **document, **disabled, "updatedAt": clock()}

    assert told(control.delete_online_evaluation_config(**about)) == {**identity, "status": "DELETING"}
    for call in (control.get_online_evaluation_config, control.delete_online_evaluation_config):
        assert refused(call, **about).code == "ResourceNotFoundException"
    assert refused(control.list_tags_for_resource, resourceArn=arn).code == "ResourceNotFoundException"


def test_configurations_are_listed_a_page_at_a_time(served):
    for number in range(5):
        create(served.control, f"config_{number}")

    found = pages(served.control.list_online_evaluation_configs, "onlineEvaluationConfigs", maxResults=2)
    names = [[each["onlineEvaluationConfigName"] for each in page] for page in found]
    assert names == [["config_0", "config_1"], ["config_2", "config_3"], ["config_4"]]


def test_a_creation_that_comes_again_is_not_tagged_again_and_another_is_beyond_the_limit(serve):
    served = serve(evaluation={"limits": {"online_configs": 2}})
    token = {"clientToken": "t" * 40, "tags": {"a": "b"}}
    arn = create(served.control, **token)["onlineEvaluationConfigArn"]
    served.control.untag_resource(resourceArn=arn, tagKeys=["a"])

    assert create(served.control, **token)["onlineEvaluationConfigArn"] == arn
    assert served.control.list_tags_for_resource(resourceArn=arn)["tags"] == {}
    create(served.control, "second")
    refusal = refused(create, served.control, "other")

    assert refusal.code == "ServiceQuotaExceededException"
    assert refusal.message == "There may be 2 online configurations."


def test_sessions_count_from_when_a_configuration_was_enabled(at_noon, clock):
    config_id = create(at_noon.control, enableOnCreate=False)["onlineEvaluationConfigId"]

    def update(**members):
        at_noon.control.update_online_evaluation_config(onlineEvaluationConfigId=config_id, **members)
        row = at_noon.store.definitions.config(config_id)
        return row["enabled"], row["enabledAt"]

    assert update(description="x") == (0, None)
    clock.forward(seconds=1)
    assert update(executionStatus="ENABLED") == (1, "2026-01-02T12:00:01.000Z")
    clock.forward(seconds=1)
    assert update(executionStatus="ENABLED") == (1, "2026-01-02T12:00:01.000Z"), "it was enabled before"
    assert update(description="y") == (1, "2026-01-02T12:00:01.000Z")


def test_other_evaluators_or_another_output_begin_a_new_evaluation(at_noon):
    config_id = create(at_noon.control)["onlineEvaluationConfigId"]
    about = {"onlineEvaluationConfigId": config_id}
    definitions = at_noon.store.definitions
    for member, value, is_new in (
        ("description", "x", False),
        ("rule", {"samplingConfig": {"samplingPercentage": 1.0}}, False),
        ("evaluators", [{"evaluatorId": "Builtin.Correctness"}], True),
        ("insights", [{"insightId": "Builtin.Insight.UserIntent"}], True),
        ("outputConfig", {"cloudWatchConfig": {"logGroupName": "/mine"}}, True),
    ):
        definitions.update_config_state(config_id, runId="run", failure="no key")
        (failed,) = at_noon.control.list_online_evaluation_configs()["onlineEvaluationConfigs"]
        assert (failed["status"], failed["failureReason"]) == ("ERROR", "no key")

        at_noon.control.update_online_evaluation_config(**about, **{member: value})

        assert definitions.config(config_id)["runId"] == ("" if is_new else "run")
        got = at_noon.control.get_online_evaluation_config(**about)
        assert got[member] == value and got["status"] == "ACTIVE" and "failureReason" not in got


def test_results_go_to_the_group_of_the_sessions_or_to_one_of_their_own(served):
    def output(name, **members):
        made = create(served.control, name, outputConfig={"cloudWatchConfig": members})
        return made["onlineEvaluationConfigId"], made["outputConfig"]["cloudWatchConfig"]

    beside = {"resultDestination": "SOURCE_LOG_GROUP"}
    assert output("first", **beside)[1] == beside
    assert output("second", logGroupName="/mine")[1] == {"logGroupName": "/mine"}
    config_id, own = output("third", resultDestination="DEDICATED_LOG_GROUP")
    group = f"/aws/bedrock-agentcore/evaluations/results/{config_id}"
    assert own == {"resultDestination": "DEDICATED_LOG_GROUP", "logGroupName": group}


def test_an_evaluator_is_locked_while_an_enabled_configuration_judges_with_it(served):
    evaluator = judge(served.control)
    config_id = create(served.control, evaluators=[{"evaluatorId": evaluator}])["onlineEvaluationConfigId"]

    assert served.control.get_evaluator(evaluatorId=evaluator)["lockedForModification"] is True
    for call in (served.control.delete_evaluator, served.control.update_evaluator):
        assert refused(call, evaluatorId=evaluator).code == "ConflictException"

    served.control.update_online_evaluation_config(
        onlineEvaluationConfigId=config_id, executionStatus="DISABLED"
    )
    assert served.control.get_evaluator(evaluatorId=evaluator)["lockedForModification"] is False
    served.control.delete_evaluator(evaluatorId=evaluator)


@pytest.mark.parametrize(
    ("instructions", "level"),
    [("{assistant_turn} {expected_response}", "TRACE"), ("{context} {assertions}", "SESSION"),
     ("{actual_tool_trajectory}", "SESSION")],
)  # fmt: skip
def test_evaluators_that_need_ground_truth_are_refused(served, instructions, level):
    own = judge(served.control, instructions=instructions, level=level)
    derived = served.control.create_evaluator(
        evaluatorName="derived",
        level=level,
        evaluatorConfig={"derived": {"baseEvaluatorId": own, "modelConfig": MODEL}},
    )["evaluatorId"]

    for evaluator in (own, derived, "Builtin.TrajectoryInOrderMatch"):
        refusal = refused(create, served.control, evaluators=[{"evaluatorId": evaluator}])
        assert refusal.fields == {
            "evaluators.1.member.evaluatorId": (
                f"Member must not need ground truth, which online evaluation has none of: {evaluator}"
            )
        }


def test_all_that_is_wrong_with_a_configuration_is_told_at_once_also_when_it_is_changed(served):
    refusal = refused(
        create,
        served.control,
        evaluators=[HELPFUL, {"evaluatorId": "none-0123456789"}],
        insights=[{"insightId": "Builtin.Insight.UserIntent"}, {"insightId": "Builtin.Insight.Mood"}],
        dataSourceConfig={"cloudWatchLogs": {"serviceNames": ["s"]}},
        outputConfig={"cloudWatchConfig": {"logGroupName": "/aws/bedrock-agentcore/evaluations/x"}},
    )

    assert list(refusal.fields) == [
        "insights.2.member.insightId",
        "evaluators.2.member.evaluatorId",
        "dataSourceConfig.cloudWatchLogs",
        "outputConfig.cloudWatchConfig.logGroupName",
    ]
    assert refusal.fields["evaluators.2.member.evaluatorId"] == (
        "Member must be the id of an evaluator; there is no none-0123456789"
    )
    about = {"onlineEvaluationConfigId": create(served.control)["onlineEvaluationConfigId"]}
    unknown = [{"evaluatorId": "none-0123456789"}]
    refusal = refused(served.control.update_online_evaluation_config, **about, evaluators=unknown)
    assert list(refusal.fields) == ["evaluators.1.member.evaluatorId"]


def watch(served, quiet_seconds=None):
    watching = OnlineEvaluationState(
        judging={"judge": "scripted/judge"},
        version="0",
        region="us-east-1",
        account="000000000000",
        quiet_seconds=quiet_seconds,
    )
    return OnlineWatch(served.store, watching)


def sessions_of(served, run_id):
    request = served.store.evaluations.row(run_id)["requestJson"]
    return set(json.loads(request)["dataSourceConfig"]["store"]["sessionIds"])


@pytest.fixture
def unwatched(serve):
    """A server that does not look for sessions itself within a test."""
    return serve(command=["true"], evaluation={"limits": {"watch_seconds": 3600}})


def test_sessions_are_taken_up_when_they_have_been_quiet_for_long_enough(unwatched):
    create(unwatched.control, rule={**RULE, "sessionConfig": {"sessionTimeoutMinutes": 5}})
    now = datetime.now(UTC)
    looking = watch(unwatched)
    arrive(unwatched.store, "s-1", at=now)
    arrive(unwatched.store, "elsewhere", at=now, group="/other")
    arrive(unwatched.store, "others", at=now, service="Other")

    assert list(looking.look(now + timedelta(minutes=4))) == []
    (run_id,) = looking.look(now + timedelta(minutes=6))

    assert len(sessions_of(unwatched, run_id)) == 1
    assert unwatched.data.list_batch_evaluations()["batchEvaluations"] == []
    assert refused(unwatched.data.get_batch_evaluation, batchEvaluationId=run_id).code == (
        "ResourceNotFoundException"
    )


def test_a_session_of_which_more_comes_is_waited_for(unwatched):
    create(unwatched.control)
    now = datetime.now(UTC)
    looking = watch(unwatched, quiet_seconds=60)
    first, *rest = spans("s-1")
    wire_server.arrive(unwatched.store, [first], GROUP, now)
    wire_server.arrive(unwatched.store, rest, GROUP, now + timedelta(seconds=50))

    assert list(looking.look(now + timedelta(seconds=70))) == []
    assert len(list(looking.look(now + timedelta(seconds=111)))) == 1


def test_what_arrived_before_it_was_enabled_is_not_judged_nor_what_arrives_while_it_is_disabled(unwatched):
    arrive(unwatched.store, "early", at=datetime.now(UTC) - timedelta(minutes=1))
    config_id = create(unwatched.control)["onlineEvaluationConfigId"]
    later = datetime.now(UTC) + timedelta(minutes=10)
    assert list(watch(unwatched, quiet_seconds=1).look(later)) == []

    unwatched.control.update_online_evaluation_config(
        onlineEvaluationConfigId=config_id, executionStatus="DISABLED"
    )
    arrive(unwatched.store, "s-1")
    assert list(watch(unwatched, quiet_seconds=0).look(later)) == []


def test_the_job_grows_when_it_is_done_and_each_session_is_taken_up_once(unwatched):
    create(unwatched.control)
    looking = watch(unwatched, quiet_seconds=0)
    arrive(unwatched.store, "s-1")
    (run_id,) = looking.look(datetime.now(UTC))
    arrive(unwatched.store, "s-2")

    busy = list(looking.look(datetime.now(UTC)))
    first = sessions_of(unwatched, run_id)
    unwatched.store.evaluations.record_discovery(run_id, matched=1, ignored=0, now=datetime.now(UTC))
    unwatched.store.end_batch(run_id, "completed", "", "", datetime.now(UTC))
    (again,) = watch(unwatched, quiet_seconds=0).look(datetime.now(UTC))

    assert busy == [run_id] == [again], "the one that nobody carries out is told again"
    second = sessions_of(unwatched, run_id)
    assert len(first) == len(second) == 1 and first != second


def test_a_job_whose_process_has_died_is_told_again_and_one_at_work_is_not(unwatched):
    create(unwatched.control)
    looking = watch(unwatched, quiet_seconds=0)
    arrive(unwatched.store, "s-1")
    (run_id,) = looking.look(datetime.now(UTC))

    now = datetime.now(UTC)
    alive = {"owner": this_process(), "heartbeatAt": timestamp(now), "status": "running"}
    unwatched.store.change(batches.change, run_id, alive)
    at_work = list(looking.look(now))
    unwatched.store.change(batches.change, run_id, {"owner": "gone:1:1:x", "heartbeatAt": None})
    died = list(looking.look(now))

    assert (at_work, died) == ([], [run_id])


def judging(serve, tmp_path):
    (tmp_path / "judge.yaml").write_text('rules: [{reply: \'{"reason": "so", "score": "Yes"}\'}]\n')
    return serve(
        evaluation={
            "judge": "scripted/judge",
            "limits": {"session_timeout_seconds": 0.2, "watch_seconds": 0.1},
        }
    )


def records(served, group, wanted):
    logs = served.logs

    def look():
        try:
            events = logs.filter_log_events(logGroupName=group)["events"]
        except ClientError:
            return None
        return events if len(events) >= wanted else None

    return [json.loads(event["message"]) for event in eventually(look)]


def test_sessions_that_arrive_are_judged_and_their_results_are_records_and_metrics(serve, tmp_path):
    served = judging(serve, tmp_path)
    evaluator = judge(served.control, scale=NUMBERS)
    made = create(served.control, evaluators=[{"evaluatorId": evaluator}])
    group = made["outputConfig"]["cloudWatchConfig"]["logGroupName"]

    arrive(served.store, "s-1")
    records(served, group, 1)
    arrive(served.store, "s-2")
    found = records(served, group, 2)

    assert {record["attributes"]["session.id"] for record in found} == {"s-1", "s-2"}
    record = found[0]
    assert record["attributes"]["gen_ai.evaluation.score.label"] == "Yes"
    assert record["onlineEvaluationConfigId"] == made["onlineEvaluationConfigId"]
    config = "aws.bedrock_agentcore.online_evaluation_config"
    assert record["attributes"][f"{config}.arn"] == made["onlineEvaluationConfigArn"]
    assert record["attributes"][f"{config}.name"] == "watching"
    assert len({record["attributes"]["aws.bedrock_agentcore.evaluation_job.arn"] for record in found}) == 1
    assert (record["service.name"], record["mine"]) == (SERVICE, 1.0)
    namespace = "Bedrock-AgentCore/Evaluations"
    assert record["_aws"] == {
        "Timestamp": int(record["observedTimeUnixNano"]) // 10**6,
        "CloudWatchMetrics": [
            {
                "Namespace": namespace,
                "Dimensions": [["service.name", "onlineEvaluationConfigId"]],
                "Metrics": [{"Name": "mine", "Unit": "None"}],
            }
        ],
    }

    metrics = served.client("cloudwatch")
    of_service = [{"Name": "service.name", "Value": SERVICE}]

    def data(stat, dimensions):
        metric = {"Namespace": namespace, "MetricName": "mine", "Dimensions": dimensions}
        query = {"Id": "q", "MetricStat": {"Metric": metric, "Period": 3600, "Stat": stat}}
        times = {"StartTime": datetime(2020, 1, 1, tzinfo=UTC), "EndTime": datetime(2040, 1, 1, tzinfo=UTC)}
        (result,) = metrics.get_metric_data(MetricDataQueries=[query], **times)["MetricDataResults"]
        return result

    listed = metrics.list_metrics(Namespace=namespace)["Metrics"]
    assert {metric["MetricName"] for metric in listed} == {"mine"}
    assert sorted(len(metric["Dimensions"]) for metric in listed) == [1, 2, 2, 3]
    assert sum(data("SampleCount", of_service)["Values"]) == 2.0
    assert set(data("Average", of_service)["Values"]) == {1.0}
    assert data("p50", of_service)["StatusCode"] == "Complete"
    # Exactly these dimensions make a metric.
    assert data("Sum", [{"Name": "other", "Value": "x"}])["Values"] == []
    assert refused(data, "Median", of_service).code == "InvalidParameterException"
    assert metrics.list_metrics(Namespace="AWS/EC2")["Metrics"] == []


def test_a_batch_judges_the_sessions_that_a_configuration_watches(serve, tmp_path):
    served = judging(serve, tmp_path)
    made = create(served.control, enableOnCreate=False)
    arrive(served.store, "s-1", "s-2")
    arrive(served.store, "elsewhere", group="/other")
    source = {"onlineEvaluationConfigArn": made["onlineEvaluationConfigArn"]}

    started = served.data.start_batch_evaluation(
        batchEvaluationName="once",
        evaluators=[{"evaluatorId": judge(served.control)}],
        dataSourceConfig={"onlineEvaluationConfigSource": source},
    )
    job = ended(served.data, started["batchEvaluationId"])

    assert job["status"] == "COMPLETED"
    assert job["dataSourceConfig"] == {"onlineEvaluationConfigSource": source}
    assert job["evaluationResults"]["numberOfSessionsCompleted"] == 2


def test_a_configuration_whose_judge_cannot_be_had_says_so_and_loses_no_session(serve, tmp_path):
    served = serve(evaluation={"limits": {"session_timeout_seconds": 0.2, "watch_seconds": 0.1}})
    evaluator = judge(served.control, model="scripted/nowhere")
    config_id = create(served.control, evaluators=[{"evaluatorId": evaluator}])["onlineEvaluationConfigId"]
    arrive(served.store, "s-1")
    control = served.control

    def in_error():
        config = control.get_online_evaluation_config(onlineEvaluationConfigId=config_id)
        return config if config["status"] == "ERROR" else None

    found = eventually(in_error)

    assert "nowhere" in found["failureReason"]
    assert len(served.store.definitions.sessions_of(config_id, "judge")) == 1


def test_a_watch_section_is_a_configuration_that_the_server_keeps(serve, tmp_path):
    (tmp_path / "checks.py").write_text("def fine(event, context=None):\n    return True\n")
    watch = WatchSection(
        name="support",
        service=SERVICE,
        log_groups=(GROUP,),
        evaluators=("Builtin.Helpfulness", "checks:fine"),
        sample_percent=50,
    )
    options = {"command": ["true"], "evaluation": {"limits": {"watch_seconds": 3600}}}
    served = serve(watches=(watch,), **options)
    (made,) = served.control.list_online_evaluation_configs()["onlineEvaluationConfigs"]
    config_id = made["onlineEvaluationConfigId"]
    found = served.store.definitions.config(config_id)["document"]
    assert (made["onlineEvaluationConfigName"], made["executionStatus"]) == ("support", "ENABLED")
    assert found["rule"] == {
        "samplingConfig": {"samplingPercentage": 50},
        "sessionConfig": {"sessionTimeoutMinutes": watch.session_timeout_minutes},
    }
    assert [each["evaluatorId"] for each in found["evaluators"]] == ["Builtin.Helpfulness", "checks:fine"]
    assert found["dataSourceConfig"] == SOURCE
    assert found["evaluationExecutionRoleArn"] == "arn:aws:iam::000000000000:role/proctor"

    # The same section again changes nothing.
    before = served.store.definitions.config(config_id)
    served = serve(watches=(watch, replace(watch, name="plain", evaluators=())), **options)
    after = served.store.definitions.config(config_id)
    assert (after["document"], after["updatedAt"]) == (before["document"], before["updatedAt"])

    # The next start changes it, enables it again, and does not create another one.
    served = serve(watches=(replace(watch, evaluators=("Builtin.Helpfulness",)),), **options)
    served.control.update_online_evaluation_config(
        onlineEvaluationConfigId=config_id, executionStatus="DISABLED"
    )
    served = serve(watches=(replace(watch, sample_percent=100, evaluators=("checks:fine",)),), **options)
    (kept,) = served.control.list_online_evaluation_configs()["onlineEvaluationConfigs"]
    found = served.store.definitions.config(config_id)["document"]
    assert (kept["onlineEvaluationConfigId"], kept["executionStatus"]) == (config_id, "ENABLED")
    assert found["rule"]["samplingConfig"] == {"samplingPercentage": 100}

    with pytest.raises(UsageError, match=r"\[\[watch\]\] other: .*no Nobody"):
        serve(watches=(replace(watch, name="other", evaluators=("Nobody",)),), **options)


def test_sessions_of_a_watched_service_become_a_drift_line_and_an_alert(serve, tmp_path):
    (tmp_path / "checks.py").write_text("def fine(event, context=None):\n    return True\n")
    watch = WatchSection(
        name="support",
        service=SERVICE,
        log_groups=(GROUP,),
        evaluators=("checks:fine",),
        # A mean of 0 is ruled out at once.
        reference=0.0,
        alpha=0.5,
        command=("/bin/sh", "-c", "cat >> alerts.json"),
    )
    limits = {"watch_seconds": 0.2, "session_timeout_seconds": 1}
    served = serve(watches=(watch,), evaluation={"limits": limits})
    arrive(served.store, "s1", "s2", "s3")

    eventually(lambda: [line["sessions"] for line in served.store.drift.lines()] == [3])
    (line,) = served.store.drift.lines()
    assert line["evaluator"] == "checks:fine"
    alerts = tmp_path / "alerts.json"
    eventually(lambda: alerts.exists() and alerts.read_text().endswith("}"))
    document = json.loads(alerts.read_text())
    assert (document["watch"], document["direction"], document["meanAfter"]) == ("support", "up", 1.0)
    key = LineKey(line["configId"], "checks:fine", "")
    (crossing,) = eventually(
        lambda: [row for row in served.store.drift.crossings(key) if row["alert"] == "sent"]
    )
    assert crossing["attempts"] == 1
