"""Batch evaluations from start to results, driven by the stock client, carried out by real processes."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError
from wire_spans import spans

from proctor.batch.ingest import build_sessions, keep_arrivals
from proctor.telemetry import normalised
from proctor.testing import eventually

GROUP = "/aws/bedrock-agentcore/runtimes/Calc-abc123-DEFAULT"
SOURCE = {"cloudWatchLogs": {"serviceNames": ["Calc.DEFAULT"], "logGroupNames": [GROUP]}}
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
YES = '{"reason": "It is right.", "score": "Yes"}'
EXACT = {"evaluatorId": "Builtin.TrajectoryExactOrderMatch"}


def arrive(served, *sessions, group=GROUP, service="Calc.DEFAULT"):
    for session in sessions:
        documents = [normalised(each) for each in spans(session, service=service)]
        keep_arrivals(served.store, documents, datetime.now(UTC), log_group=group)
    build_sessions(served.store, datetime.now(UTC))


def truth(*sessions, tools=("calculator",)):
    return {
        "sessionMetadata": [
            {
                "sessionId": session,
                "testScenarioId": "add",
                "groundTruth": {"inline": {"expectedTrajectory": {"toolNames": list(tools)}}},
            }
            for session in sessions
        ]
    }


def start(client, **changed):
    asked = {"batchEvaluationName": "nightly", "evaluators": [EXACT], "dataSourceConfig": SOURCE}
    return client.start_batch_evaluation(**{**asked, **changed})


def ended(client, job_id):
    def look():
        job = client.get_batch_evaluation(batchEvaluationId=job_id)
        return job if job["status"] not in ("PENDING", "IN_PROGRESS", "STOPPING") else None

    return eventually(look)


def refused(call, *words, **members):
    with pytest.raises(ClientError) as caught:
        call(*words, **members)
    answer = caught.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"], answer


@pytest.fixture
def held(serve):
    """A server whose jobs are never carried out: they stay as they were started."""
    return serve(command=["true"], evaluation={"limits": {"start_per_second": 0}})


def test_a_job_judges_the_sessions_of_its_log_groups(served):
    arrive(served, "s-1", "s-2")
    arrive(served, "elsewhere", group="/other")
    arrive(served, "others", service="Other.DEFAULT")

    started = start(
        served.data,
        description="Every night",
        evaluationMetadata=truth("s-1", "s-2"),
        tags={"suite": "nightly"},
    )
    job = ended(served.data, started["batchEvaluationId"])

    assert started["status"] == "PENDING"
    assert started["tags"] == {"suite": "nightly"}
    assert started["batchEvaluationArn"].endswith(f":batch-evaluate/{started['batchEvaluationId']}")
    assert (job["status"], job["description"]) == ("COMPLETED", "Every night")
    assert job["evaluators"] == [EXACT] and job["dataSourceConfig"] == SOURCE
    results = job["evaluationResults"]
    assert (results["totalNumberOfSessions"], results["numberOfSessionsCompleted"]) == (2, 2)
    assert results["numberOfSessionsIgnored"] == 0
    (summary,) = results["evaluatorSummaries"]
    assert summary == {
        "evaluatorId": EXACT["evaluatorId"],
        "statistics": {"averageScore": 1.0},
        "totalEvaluated": 2,
        "totalFailed": 0,
    }
    arn = started["batchEvaluationArn"]
    assert served.control.list_tags_for_resource(resourceArn=arn)["tags"] == {"suite": "nightly"}


def test_each_result_is_read_from_the_log_stream_and_stays_when_the_job_is_deleted(served):
    arrive(served, "s-1", "s-2")
    started = start(served.data, evaluationMetadata=truth("s-1", "s-2"))
    place = ended(served.data, started["batchEvaluationId"])["outputConfig"]["cloudWatchConfig"]
    where = {"logGroupName": place["logGroupName"], "logStreamName": place["logStreamName"]}

    before = served.logs.get_log_events(**where, startFromHead=True)
    deleted = served.data.delete_batch_evaluation(batchEvaluationId=started["batchEvaluationId"])
    after = served.logs.get_log_events(**where, startFromHead=True)

    assert where == {
        "logGroupName": "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default",
        "logStreamName": f"run-{started['batchEvaluationId']}",
    }
    assert deleted["status"] == "DELETING"
    assert before["events"] == after["events"] and len(after["events"]) == 2
    record = json.loads(after["events"][0]["message"])
    assert record["name"] == "gen_ai.evaluation.result"
    assert record["attributes"]["gen_ai.evaluation.name"] == EXACT["evaluatorId"]
    assert record["attributes"]["gen_ai.evaluation.score.value"] == 1.0
    assert record["attributes"]["aws.bedrock_agentcore.evaluation_level"] == "Session"
    assert {json.loads(event["message"])["attributes"]["session.id"] for event in after["events"]} == {
        "s-1",
        "s-2",
    }
    assert refused(served.data.get_batch_evaluation, batchEvaluationId=started["batchEvaluationId"])[:2] == (
        "ResourceNotFoundException",
        404,
    )
    assert served.data.list_batch_evaluations()["batchEvaluations"] == []


def test_one_bad_session_fails_alone(served):
    arrive(served, "good", "without-truth")

    job = ended(served.data, start(served.data, evaluationMetadata=truth("good"))["batchEvaluationId"])

    assert job["status"] == "COMPLETED_WITH_ERRORS"
    assert job["errorDetails"] == ["1 of 2 sessions failed during batch evaluation."]
    (summary,) = job["evaluationResults"]["evaluatorSummaries"]
    assert (summary["totalEvaluated"], summary["totalFailed"]) == (1, 1)


def test_a_job_that_finds_no_session_has_failed(served):
    job = ended(served.data, start(served.data)["batchEvaluationId"])

    assert job["status"] == "FAILED"
    assert "No sessions were found" in job["errorDetails"][0]


def test_an_evaluator_of_the_callers_own_judges_as_it_was_when_the_job_began(serve, tmp_path):
    (tmp_path / "judge.yaml").write_text('rules: [{reply: \'{"reason": "so", "score": "Fine"}\'}]\n')
    served = serve()
    arrive(served, "s-1")
    ratings = [
        {"definition": "x", "value": 0, "label": "Poor"},
        {"definition": "x", "value": 3, "label": "Fine"},
    ]
    scale = {"numerical": ratings}
    model = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}
    judge = {"instructions": "{assistant_turn}", "ratingScale": scale, "modelConfig": model}
    made = served.control.create_evaluator(
        evaluatorName="mine", level="TRACE", evaluatorConfig={"llmAsAJudge": judge}
    )

    started = start(served.data, evaluators=[{"evaluatorId": made["evaluatorId"]}])
    served.control.delete_evaluator(evaluatorId=made["evaluatorId"])
    job = ended(served.data, started["batchEvaluationId"])

    (summary,) = job["evaluationResults"]["evaluatorSummaries"]
    assert summary["evaluatorId"] == made["evaluatorId"]
    assert summary["statistics"] == {"averageScore": 3.0}


def test_filters_choose_sessions_and_a_prefix_chooses_groups(served):
    arrive(served, "s-1", "s-2", "s-3")
    source = {
        "serviceNames": ["Calc.DEFAULT"],
        "logGroupNamePrefixes": ["/aws/bedrock-agentcore/runtimes/"],
        "filterConfig": {
            "sessionIds": ["s-2", "s-3"],
            "timeRange": {"startTime": NEW_YEAR, "endTime": NEW_YEAR + timedelta(days=2000)},
        },
    }

    job = ended(
        served.data, start(served.data, dataSourceConfig={"cloudWatchLogs": source})["batchEvaluationId"]
    )

    assert job["evaluationResults"]["totalNumberOfSessions"] == 2
    assert job["dataSourceConfig"]["cloudWatchLogs"]["filterConfig"]["sessionIds"] == ["s-2", "s-3"]


def test_a_start_that_comes_again_with_its_token_starts_nothing(held):
    token = "0123456789-abcdefghij-0123456789-abc"
    first = start(held.data, clientToken=token)

    again = start(held.data, clientToken=token)
    other = refused(start, held.data, clientToken=token, description="another")

    assert again["batchEvaluationId"] == first["batchEvaluationId"]
    assert other[:2] == ("ConflictException", 409)
    assert len(held.data.list_batch_evaluations()["batchEvaluations"]) == 1


def test_the_token_of_a_deleted_job_starts_a_new_one(held):
    token = "0123456789-abcdefghij-0123456789-abc"
    first = start(held.data, clientToken=token)["batchEvaluationId"]
    held.data.stop_batch_evaluation(batchEvaluationId=first)
    held.data.delete_batch_evaluation(batchEvaluationId=first)

    again = start(held.data, clientToken=token)["batchEvaluationId"]

    assert again != first


def test_a_job_stops_and_can_then_be_deleted(held):
    job_id = start(held.data, description="to stop")["batchEvaluationId"]
    early = refused(held.data.delete_batch_evaluation, batchEvaluationId=job_id)

    stopped = held.data.stop_batch_evaluation(batchEvaluationId=job_id)

    assert early[:2] == ("ConflictException", 409)
    assert (stopped["status"], stopped["description"]) == ("STOPPED", "to stop")
    assert refused(held.data.stop_batch_evaluation, batchEvaluationId=job_id)[:2] == (
        "ConflictException",
        409,
    )
    assert held.data.get_batch_evaluation(batchEvaluationId=job_id)["status"] == "STOPPED"
    held.data.delete_batch_evaluation(batchEvaluationId=job_id)
    for call in (held.data.stop_batch_evaluation, held.data.delete_batch_evaluation):
        assert refused(call, batchEvaluationId=job_id)[:2] == ("ResourceNotFoundException", 404)


def test_a_job_that_is_stopped_in_mid_course_keeps_what_is_judged(serve, tmp_path):
    (tmp_path / "judge.yaml").write_text(f"latency_seconds: 0.4\nrules: [{{reply: '{YES}'}}]\n")
    served = serve(evaluation={"judge": "scripted/judge"})
    arrive(served, *(f"s-{number}" for number in range(60)))
    data = served.data
    job_id = start(data, evaluators=[{"evaluatorId": "Builtin.InstructionFollowing"}])["batchEvaluationId"]

    def completed():
        results = data.get_batch_evaluation(batchEvaluationId=job_id).get("evaluationResults", {})
        return results.get("numberOfSessionsCompleted", 0)

    eventually(lambda: completed() >= 2)

    stopped = data.stop_batch_evaluation(batchEvaluationId=job_id)
    job = ended(data, job_id)

    assert stopped["status"] in ("STOPPING", "STOPPED")
    assert job["status"] == "STOPPED"
    results = job["evaluationResults"]
    assert 2 <= results["numberOfSessionsCompleted"] < 60
    assert results["evaluatorSummaries"][0]["statistics"] == {"averageScore": 1.0}


def test_jobs_are_listed_newest_first_a_page_at_a_time(serve):
    served = serve(command=["true"], evaluation={"limits": {"start_per_second": 0, "active_jobs": 100}})
    made = [
        start(served.data, batchEvaluationName=f"job_{number}")["batchEvaluationId"] for number in range(5)
    ]

    pages = list(
        served.data.get_paginator("list_batch_evaluations").paginate(PaginationConfig={"PageSize": 2})
    )

    assert [len(page["batchEvaluations"]) for page in pages] == [2, 2, 1]
    listed = [job["batchEvaluationId"] for page in pages for job in page["batchEvaluations"]]
    assert listed == list(reversed(made))


def test_active_jobs_are_limited(held):
    for number in range(5):
        start(held.data, batchEvaluationName=f"job_{number}")

    assert refused(start, held.data)[:2] == ("ServiceQuotaExceededException", 402)
    token = "0123456789-abcdefghij-0123456789-abc"
    held.data.stop_batch_evaluation(
        batchEvaluationId=held.data.list_batch_evaluations()["batchEvaluations"][0]["batchEvaluationId"]
    )
    first = start(held.data, clientToken=token)
    assert start(held.data, clientToken=token)["batchEvaluationId"] == first["batchEvaluationId"]


def test_too_many_starts_in_a_second_are_throttled(serve):
    now = datetime.now(UTC)
    served = serve(command=["true"], now=lambda: now, evaluation={"limits": {"active_jobs": 100}})
    for _ in range(3):
        start(served.data)

    assert refused(start, served.data)[:2] == ("ThrottlingException", 429)
    now += timedelta(seconds=0.4)
    start(served.data)


WRONG_STARTS = [
    ({"batchEvaluationName": "with-dashes"}, "batchEvaluationName"),
    ({"batchEvaluationName": "x" * 49}, "batchEvaluationName"),
    ({"evaluators": [EXACT] * 11}, "evaluators"),
    ({"evaluators": []}, "evaluators"),
    ({"evaluators": [{"evaluatorId": "nobody"}]}, "evaluators.1.member.evaluatorId"),
    ({"evaluators": [EXACT, {"evaluatorId": "gone-0123456789"}]}, "evaluators.2.member.evaluatorId"),
    ({"insights": [{"insightId": "Builtin.Insight.Other"}]}, "insights.1.member.insightId"),
    ({"description": "x" * 201}, "description"),
    ({"clientToken": "-" * 40}, "clientToken"),
    ({"kmsKeyArn": "mine"}, "kmsKeyArn"),
    ({"tags": {str(number): "x" for number in range(51)}}, "tags"),
    ({"dataSourceConfig": {"cloudWatchLogs": {"serviceNames": ["a", "b"], "logGroupNames": ["/g"]}}},
     "dataSourceConfig.cloudWatchLogs.serviceNames"),
    ({"dataSourceConfig": {"cloudWatchLogs": {"serviceNames": ["a"]}}}, "dataSourceConfig.cloudWatchLogs"),
    ({"dataSourceConfig": {"cloudWatchLogs": {"serviceNames": ["a"], "logGroupNames": ["/g"],
      "logGroupNamePrefixes": ["/"]}}}, "dataSourceConfig.cloudWatchLogs"),
    ({"dataSourceConfig": {"cloudWatchLogs": {"serviceNames": ["a"], "logGroupNames": ["no spaces"]}}},
     "dataSourceConfig.cloudWatchLogs.logGroupNames.1.member"),
    ({"dataSourceConfig": {"cloudWatchLogs": {"serviceNames": ["a"], "logGroupNames": ["/g"],
      "filterConfig": {"sessionIds": ["x"] * 501}}}},
     "dataSourceConfig.cloudWatchLogs.filterConfig.sessionIds"),
    ({"dataSourceConfig": {"cloudWatchLogs": {"serviceNames": ["a"], "logGroupNames": ["/g"],
      "filterConfig": {"timeRange": {"startTime": NEW_YEAR, "endTime": NEW_YEAR - timedelta(days=1)}}}}},
     "dataSourceConfig.cloudWatchLogs.filterConfig.timeRange"),
    ({"dataSourceConfig": {"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn": "arn"}}},
     "dataSourceConfig.onlineEvaluationConfigSource.onlineEvaluationConfigArn"),
    ({"dataSourceConfig": {"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn":
      "arn:aws:bedrock-agentcore:us-east-1:000000000000:online-evaluation-config/gone-0123456789"}}},
     "dataSourceConfig.onlineEvaluationConfigSource.onlineEvaluationConfigArn"),
    ({"evaluationMetadata": {"sessionMetadata": [{"sessionId": "s"}] * 501}},
     "evaluationMetadata.sessionMetadata"),
    ({"evaluationMetadata": {"sessionMetadata": [{"sessionId": "s", "groundTruth": {"inline": {
      "assertions": [{"text": "x" * 100_001}]}}}]}},
     "evaluationMetadata.sessionMetadata.1.member.groundTruth.inline.assertions.1.member.text"),
    ({"outputConfig": {"cloudWatchConfig": {"resultDestination": "SOMEWHERE"}}},
     "outputConfig.cloudWatchConfig.resultDestination"),
    ({"outputConfig": {"cloudWatchConfig": {"logGroupName": "/aws/bedrock-agentcore/evaluations/mine"}}},
     "outputConfig.cloudWatchConfig.logGroupName"),
    ({"outputConfig": {"cloudWatchConfig": {"logGroupName": "/g", "resultDestination": "SOURCE_LOG_GROUP"}}},
     "outputConfig.cloudWatchConfig.logGroupName"),
    ({"outputConfig": {"cloudWatchConfig": {"metricsNamespace": "AWS/Mine"}}},
     "outputConfig.cloudWatchConfig.metricsNamespace"),
    ({"outputConfig": {"cloudWatchConfig": {"logStreamName": "a:b"}}},
     "outputConfig.cloudWatchConfig.logStreamName"),
]  # fmt: skip


def test_what_is_wrong_with_a_start_is_told_by_its_field(held):
    client = held.data
    for changed, field in WRONG_STARTS:
        code, status, answer = refused(start, client, **changed)
        assert (code, status, answer["reason"]) == ("ValidationException", 400, "FieldValidationFailed")
        assert field in [each["name"] for each in answer["fieldList"]], (field, answer)
    assert client.list_batch_evaluations()["batchEvaluations"] == []


@pytest.mark.parametrize(
    "job_id", ["", "x", "a b/c?é", "../../evaluators", "name-0123456789/stop", "nightly"]
)
def test_an_id_that_is_none_is_refused_and_never_taken_for_a_list(shared, job_id):
    code, status, answer = refused(shared.data.get_batch_evaluation, batchEvaluationId=job_id)

    assert (code, status) == ("ValidationException", 400)
    assert answer["fieldList"][0]["name"] == "batchEvaluationId"


@pytest.mark.parametrize("members", [{"maxResults": 1000}, {"nextToken": "x"}])
def test_a_page_that_cannot_be_is_refused(shared, members):
    assert refused(shared.data.list_batch_evaluations, **members)[:2] == ("ValidationException", 400)


def test_results_go_where_the_caller_wants_them(held):
    output = {"cloudWatchConfig": {"logGroupName": "/mine", "logStreamName": "stream"}}

    named = start(held.data, outputConfig=output)
    beside = start(held.data, outputConfig={"cloudWatchConfig": {"resultDestination": "SOURCE_LOG_GROUP"}})

    assert named["outputConfig"] == output
    assert beside["outputConfig"]["cloudWatchConfig"]["logGroupName"] == GROUP
