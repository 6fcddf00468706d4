"""Batch evaluations from start to results, driven by the stock client, carried out by real processes."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import wire_server
from test_wire_evaluators import JUDGE
from wire_server import ACCOUNT, NOON, pages, refused, told
from wire_spans import spans

from proctor.testing import eventually

GROUP = "/aws/bedrock-agentcore/runtimes/Calc-abc123-DEFAULT"
SOURCE = {"cloudWatchLogs": {"serviceNames": ["Calc.DEFAULT"], "logGroupNames": [GROUP]}}
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
YES = '{"reason": "It is right.", "score": "Yes"}'
EXACT = {"evaluatorId": "Builtin.TrajectoryExactOrderMatch"}


def arrive(served, *sessions, group=GROUP, service="Calc.DEFAULT"):
    documents = [each for session in sessions for each in spans(session, service=service)]
    wire_server.arrive(served.store, documents, group)


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


def test_a_job_judges_the_sessions_of_its_log_groups_and_its_results_stay_when_it_is_deleted(served):
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

    where = job["outputConfig"]["cloudWatchConfig"]
    before = served.logs.get_log_events(**where, startFromHead=True)["events"]
    deleted = served.data.delete_batch_evaluation(batchEvaluationId=started["batchEvaluationId"])
    assert deleted["status"] == "DELETING"
    assert served.logs.get_log_events(**where, startFromHead=True)["events"] == before
    records = [json.loads(event["message"]) for event in before]
    assert {record["name"] for record in records} == {"gen_ai.evaluation.result"}
    first, second = (record["attributes"] for record in records)
    assert {first["session.id"], second["session.id"]} == {"s-1", "s-2"}
    assert first["gen_ai.evaluation.name"] == EXACT["evaluatorId"]
    assert first["gen_ai.evaluation.score.value"] == 1.0
    assert first["aws.bedrock_agentcore.evaluation_level"] == "Session"


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


def test_a_job_is_told_as_it_was_started_until_it_is_deleted(at_noon):
    data = at_noon.data
    started = told(start(data, description="every night", tags={"a": "b"}))
    job_id = started["batchEvaluationId"]
    about = {"batchEvaluationId": job_id}
    identity = {**about, "batchEvaluationArn": f"{ACCOUNT}:batch-evaluate/{job_id}"}
    given = {"evaluators": [EXACT], "description": "every night"}
    group = "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"
    output = {"cloudWatchConfig": {"logGroupName": group, "logStreamName": f"run-{job_id}"}}
    summary = {**identity, "batchEvaluationName": "nightly", "status": "PENDING", "createdAt": NOON, **given}
    assert started == {**summary, "outputConfig": output, "tags": {"a": "b"}}
    summary["updatedAt"] = NOON
    assert data.list_batch_evaluations()["batchEvaluations"] == [summary]
    got = told(data.get_batch_evaluation(**about))
    assert got == {**summary, "dataSourceConfig": SOURCE, "outputConfig": output}

    early = refused(data.delete_batch_evaluation, **about)
    assert (early.code, early.status) == ("ConflictException", 409)
    stopped = told(data.stop_batch_evaluation(**about))
    assert stopped == {**identity, "status": "STOPPED", "description": "every night"}
    assert refused(data.stop_batch_evaluation, **about).code == "ConflictException"
    assert data.get_batch_evaluation(**about)["status"] == "STOPPED"

    assert told(data.delete_batch_evaluation(**about)) == {**identity, "status": "DELETING"}
    assert data.list_batch_evaluations()["batchEvaluations"] == []
    for call in (data.get_batch_evaluation, data.stop_batch_evaluation, data.delete_batch_evaluation):
        refusal = refused(call, **about)
        assert (refusal.code, refusal.status) == ("ResourceNotFoundException", 404)
    plain = start(data)
    assert not {"tags", "description"} & set(plain)
    assert "description" not in data.stop_batch_evaluation(batchEvaluationId=plain["batchEvaluationId"])


TOKEN = "0123456789-abcdefghij-0123456789-abc"


def test_a_start_that_comes_again_with_its_token_starts_nothing_until_the_job_is_deleted(at_noon):
    first = start(at_noon.data, clientToken=TOKEN)["batchEvaluationId"]

    again = start(at_noon.data, clientToken=TOKEN)["batchEvaluationId"]
    other = refused(start, at_noon.data, clientToken=TOKEN, description="another")

    assert again == first
    assert (other.code, other.status) == ("ConflictException", 409)
    assert len(at_noon.data.list_batch_evaluations()["batchEvaluations"]) == 1
    at_noon.data.stop_batch_evaluation(batchEvaluationId=first)
    at_noon.data.delete_batch_evaluation(batchEvaluationId=first)
    assert start(at_noon.data, clientToken=TOKEN)["batchEvaluationId"] != first


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

    data.stop_batch_evaluation(batchEvaluationId=job_id)
    job = ended(data, job_id)

    assert job["status"] == "STOPPED"
    results = job["evaluationResults"]
    assert 2 <= results["numberOfSessionsCompleted"] < 60
    assert results["evaluatorSummaries"][0]["statistics"] == {"averageScore": 1.0}


def test_jobs_are_listed_newest_first_a_page_at_a_time(at_noon, clock):
    made = []
    for number in range(5):
        made.insert(0, start(at_noon.data, batchEvaluationName=f"job_{number}")["batchEvaluationId"])
        clock.forward(seconds=number % 2)

    for size, counts in ((2, [2, 2, 1]), (1, [1] * 5), (4, [4, 1]), (5, [5]), (6, [5])):
        found = pages(at_noon.data.list_batch_evaluations, "batchEvaluations", maxResults=size)
        assert [len(page) for page in found] == counts
        listed = [job["batchEvaluationId"] for page in found for job in page]
        assert sorted(listed) == sorted(made) and (listed[0], listed[-1]) == (made[0], made[-1])


def test_the_number_of_jobs_is_limited_and_a_repeated_start_is_no_new_one(serve):
    limits = {"active_jobs": 1, "jobs": 2, "start_per_second": 0, "stop_per_second": 0}
    served = serve(command=["true"], evaluation={"limits": limits})
    first = start(served.data, clientToken=TOKEN)["batchEvaluationId"]

    refusal = refused(start, served.data)
    assert (refusal.code, refusal.status, refusal.message) == (
        "ServiceQuotaExceededException",
        402,
        "There may be 1 active batch evaluations; wait for one to end, or stop one.",
    )
    assert start(served.data, clientToken=TOKEN)["batchEvaluationId"] == first
    served.data.stop_batch_evaluation(batchEvaluationId=first)
    second = start(served.data, batchEvaluationName="second")["batchEvaluationId"]
    served.data.stop_batch_evaluation(batchEvaluationId=second)
    assert refused(start, served.data).message.startswith("There may be 2 batch evaluations; delete some")
    served.data.delete_batch_evaluation(batchEvaluationId=first)
    assert start(served.data)["status"] == "PENDING"


def test_a_job_whose_process_keeps_failing_is_started_again_every_half_minute_five_times(
    serve, clock, tmp_path
):
    starts = tmp_path / "starts"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho started >> {starts}\nexit 2\n")
    program.chmod(0o755)
    limits = {"take_up_seconds": 0.01, "watch_seconds": 3600}
    served = serve(now=clock, command=[str(program)], evaluation={"limits": limits})

    def count():
        return len(starts.read_text().splitlines()) if starts.exists() else 0

    def stays(number):
        looks = clock.looks
        eventually(lambda: clock.looks > looks + 10)
        return count() == number

    start(served.data)
    # Found dead twice it is started again at once, and from then on after half a minute.
    for number in range(2, 7):
        eventually(lambda number=number: count() == number)
        clock.forward(seconds=29.9)
        assert stays(number)
        clock.forward(seconds=0.1)
    assert stays(6)


def test_too_many_starts_in_a_second_are_throttled(serve):
    now = datetime.now(UTC)
    served = serve(command=["true"], now=lambda: now, evaluation={"limits": {"active_jobs": 100}})
    for _ in range(3):
        start(served.data)

    refusal = refused(start, served.data)
    assert (refusal.code, refusal.status) == ("ThrottlingException", 429)
    assert refusal.message == "Rate exceeded: StartBatchEvaluation takes 3 calls a second."
    now += timedelta(seconds=0.4)
    start(served.data)


def cloud_watch(**members):
    return {"dataSourceConfig": {"cloudWatchLogs": {"serviceNames": ["a"], **members}}}


def online(name):
    arn = f"{ACCOUNT}:online-evaluation-config/{name}" if name else "arn"
    return {"dataSourceConfig": {"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn": arn}}}


BACKWARD = {"timeRange": {"startTime": NEW_YEAR, "endTime": NEW_YEAR - timedelta(days=1)}}
LOGS, OUTPUT = "dataSourceConfig.cloudWatchLogs", "outputConfig.cloudWatchConfig"
ONLINE = "dataSourceConfig.onlineEvaluationConfigSource.onlineEvaluationConfigArn"
EVALUATIONS = "/aws/bedrock-agentcore/evaluations/mine"
WRONG_STARTS = [
    ({"batchEvaluationName": "with-dashes"}, "batchEvaluationName"),
    ({"evaluators": []}, "evaluators"),
    ({"evaluators": [{"evaluatorId": "nobody"}]}, "evaluators.1.member.evaluatorId"),
    ({"evaluators": [EXACT, {"evaluatorId": "gone-0123456789"}]}, "evaluators.2.member.evaluatorId"),
    ({"insights": [{"insightId": "Builtin.Insight.Other"}]}, "insights.1.member.insightId"),
    (cloud_watch(), LOGS),
    (cloud_watch(logGroupNames=["/g"], logGroupNamePrefixes=["/"]), LOGS),
    (cloud_watch(logGroupNames=["no spaces"]), f"{LOGS}.logGroupNames.1.member"),
    (cloud_watch(logGroupNames=["/g"], filterConfig=BACKWARD), f"{LOGS}.filterConfig.timeRange"),
    (online(""), ONLINE),
    (online("gone-0123456789"), ONLINE),
    ({"outputConfig": {"cloudWatchConfig": {"logGroupName": EVALUATIONS}}}, f"{OUTPUT}.logGroupName"),
    ({"outputConfig": {"cloudWatchConfig": {"metricsNamespace": "AWS/Mine"}}}, f"{OUTPUT}.metricsNamespace"),
]
"""Rules beyond the bounds of single members, which are those of the client's model, and a few of these."""


def test_what_is_wrong_with_a_start_is_told_by_its_field(at_noon):
    client = at_noon.data
    for changed, field in WRONG_STARTS:
        refusal = refused(start, client, **changed)
        assert (refusal.code, refusal.status) == ("ValidationException", 400)
        assert (refusal.reason, list(refusal.fields)) == ("FieldValidationFailed", [field])
    assert client.list_batch_evaluations()["batchEvaluations"] == []


def test_a_judge_that_cannot_be_reached_is_told_before_the_start(serve):
    model = {"bedrockEvaluatorModelConfig": {"modelId": "anthropic.claude-v1:0"}}
    config = {"llmAsAJudge": {**JUDGE["llmAsAJudge"], "modelConfig": model}}

    def start_with(name, **evaluation):
        served = serve(command=["true"], evaluation={"limits": {"start_per_second": 0}, **evaluation})
        made = served.control.create_evaluator(evaluatorName=name, level="TRACE", evaluatorConfig=config)
        return start(served.data, evaluators=[EXACT, {"evaluatorId": made["evaluatorId"]}])

    refusal = refused(start_with, "unreachable", models={"default": "openai/gpt"})
    assert refusal.fields == {
        "evaluators.2.member.evaluatorId": (
            "Member must be an evaluator that can run here: its judge openai/gpt needs a key, and "
            "OPENAI_API_KEY is not set. [evaluation.models] in proctor.toml maps model ids to models that "
            "can be reached."
        )
    }
    assert start_with("reachable", models={"default": "scripted/ok"})["status"] == "PENDING"


@pytest.mark.parametrize(
    "job_id", ["", "x", "a b/c?é", "../../evaluators", "name-0123456789/stop", "nightly"]
)
def test_an_id_that_is_none_is_refused_and_never_taken_for_a_list(shared, job_id):
    refusal = refused(shared.data.get_batch_evaluation, batchEvaluationId=job_id)

    assert (refusal.code, list(refusal.fields)) == ("ValidationException", ["batchEvaluationId"])


def test_results_go_where_the_caller_wants_them(at_noon):
    output = {"cloudWatchConfig": {"logGroupName": "/mine", "logStreamName": "stream"}}

    named = start(at_noon.data, outputConfig=output)
    beside = start(at_noon.data, outputConfig={"cloudWatchConfig": {"resultDestination": "SOURCE_LOG_GROUP"}})

    assert named["outputConfig"] == output
    assert beside["outputConfig"]["cloudWatchConfig"]["logGroupName"] == GROUP
