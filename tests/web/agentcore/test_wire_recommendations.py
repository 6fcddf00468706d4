"""Recommendations of prompts and tool descriptions are computed from sessions and their scores."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError
from wire_server import servers
from wire_spans import spans

from proctor.batch.ingest import build_sessions, keep_arrivals
from proctor.store import Store
from proctor.store.definitions import Token
from proctor.store.writer import timestamp
from proctor.telemetry.documents import normalised
from proctor.testing import eventually
from proctor.testing.model_server import ModelServer, failure, reply

PROMPT, TOOLS = "SYSTEM_PROMPT_RECOMMENDATION", "TOOL_DESCRIPTION_RECOMMENDATION"
GROUP = "/agents/calc"
NEW_PROMPT = '{"explanation": "It never checks.", "recommended_system_prompt": "Check every sum."}'
NEW_TOOL = '{"explanation": "It is called for words.", "recommended_description": "Adds numbers only."}'
NO = '{"reasoning": "The sum is wrong.", "score": "No"}'
RULES = f"""
rules:
  - match: "Improve the system prompt"
    reply: '{NEW_PROMPT}'
  - match: "Improve the description of a tool"
    reply: '{NEW_TOOL}'
  - reply: '{NO}'
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory, command_server):
    """A server whose judge is a script."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "judge.yaml").write_text(RULES)
    with servers(folder, command_server.program) as start:
        served = start(evaluation={"judge": "scripted/judge", "limits": {"active_recommendations": 50}})
        arrived = [normalised(each) for name in ("s-1", "s-2") for each in spans(name)]
        keep_arrivals(served.store, arrived, datetime.now(UTC), log_group=GROUP)
        build_sessions(served.store, datetime.now(UTC))
        yield served


def prompt_config(**members):
    traces = members.pop("traces", {"sessionSpans": spans("s-1")})
    return {
        "systemPromptRecommendationConfig": {
            "systemPrompt": {"text": "You add numbers."},
            "agentTraces": traces,
            **members,
        }
    }


def tool_config(*names):
    described = [{"toolName": name, "toolDescription": {"text": f"{name} things"}} for name in names]
    return {
        "toolDescriptionRecommendationConfig": {
            "toolDescription": {"toolDescriptionText": {"tools": described}},
            "agentTraces": {"sessionSpans": spans("s-1")},
        }
    }


def start(served, config, *, kind=PROMPT, **members):
    answer = served.data.start_recommendation(
        name=members.pop("name", "better"), type=kind, recommendationConfig=config, **members
    )
    assert answer["status"] in ("PENDING", "IN_PROGRESS")
    return answer


def finished(served, config, **members):
    started = start(served, config, **members)
    return eventually(lambda: ended(served, started["recommendationId"]))


def ended(served, recommendation_id):
    got = served.data.get_recommendation(recommendationId=recommendation_id)
    return got if got["status"] in ("COMPLETED", "FAILED") else None


def refused(call, **members):
    with pytest.raises(ClientError) as caught:
        call(**members)
    error = caught.value.response
    return error["Error"]["Code"], [each["name"] for each in error.get("fieldList", [])]


def test_a_prompt_is_recommended_from_spans(judged):
    got = finished(judged, prompt_config(), description="a try", tags={"team": "a"})

    assert got["status"] == "COMPLETED", got
    result = got["recommendationResult"]["systemPromptRecommendationResult"]
    assert result == {"recommendedSystemPrompt": "Check every sum.", "explanation": "It never checks."}
    prompt = got["recommendationConfig"]["systemPromptRecommendationConfig"]["systemPrompt"]
    assert (prompt, got["description"]) == ({"text": "You add numbers."}, "a try")
    tags = judged.control.list_tags_for_resource(resourceArn=got["recommendationArn"])["tags"]
    assert tags == {"team": "a"}


def test_each_tool_gets_a_description(judged):
    got = finished(judged, tool_config("add", "print"), kind=TOOLS)

    tools = got["recommendationResult"]["toolDescriptionRecommendationResult"]["tools"]
    assert [(each["toolName"], each["recommendedToolDescription"]) for each in tools] == [
        ("add", "Adds numbers only."),
        ("print", "Adds numbers only."),
    ]


async def test_an_evaluator_judges_the_sessions_first(serve):
    arn = "arn:aws:bedrock-agentcore:::evaluator/Builtin.GoalSuccessRate"
    config = prompt_config(evaluationConfig={"evaluators": [{"evaluatorArn": arn}]})
    async with ModelServer([reply(NO), reply("I do not know."), reply(NEW_PROMPT)]) as models:
        served = serve(
            evaluation={"judge": "openai/judge"},
            environment={"OPENAI_BASE_URL": models.url, "OPENAI_API_KEY": "sk-test"},
        )
        got = await asyncio.to_thread(finished, served, config)

    assert got["status"] == "COMPLETED"
    prompt = models.requests[-1]["messages"][-1]["content"]
    assert "Builtin.GoalSuccessRate: No (0). The sum is wrong." in prompt
    assert "What is 15 + 27?" in prompt and "You add numbers." in prompt
    # Asked once more, because the first answer could not be read.
    assert len(models.requests) == 3


async def test_a_model_that_fails_is_named_without_its_key(serve):
    async with ModelServer([failure(401, "the key sk-test-12345678 is wrong")]) as models:
        served = serve(
            evaluation={"judge": "openai/judge"},
            environment={"OPENAI_BASE_URL": models.url, "OPENAI_API_KEY": "sk-test-12345678"},
        )
        got = await asyncio.to_thread(finished, served, prompt_config())

    error = got["recommendationResult"]["systemPromptRecommendationResult"]
    assert (got["status"], error["errorCode"]) == ("FAILED", "ModelException")
    assert "sk-test-12345678" not in error["errorMessage"]


def test_sessions_of_a_batch_evaluation_come_with_their_results(judged):
    job = judged.data.start_batch_evaluation(
        batchEvaluationName="sums",
        evaluators=[{"evaluatorId": "Builtin.GoalSuccessRate"}],
        dataSourceConfig={"cloudWatchLogs": {"serviceNames": ["Calc.DEFAULT"], "logGroupNames": [GROUP]}},
    )
    eventually(
        lambda: (
            judged.data.get_batch_evaluation(batchEvaluationId=job["batchEvaluationId"])["status"]
            not in ("PENDING", "IN_PROGRESS")
        )
    )

    got = finished(
        judged,
        prompt_config(traces={"batchEvaluation": {"batchEvaluationArn": job["batchEvaluationArn"]}}),
    )

    assert got["status"] == "COMPLETED", got


def test_sessions_of_log_groups_are_filtered(judged):
    times = {
        "startTime": datetime.now(UTC) - timedelta(days=9999),
        "endTime": datetime(2040, 1, 1, tzinfo=UTC),
    }
    source = {"logGroupArns": [f"arn:aws:logs:us-east-1:000000000000:log-group:{GROUP}:*"], **times}
    logs = {**source, "serviceNames": ["Calc.DEFAULT"]}
    other = {"filters": [{"key": "model", "operator": "Equals", "value": {"stringValue": "none"}}]}

    assert finished(judged, prompt_config(traces={"cloudwatchLogs": logs}))["status"] == "COMPLETED"
    got = finished(judged, prompt_config(traces={"cloudwatchLogs": {**logs, "rule": other}}))

    error = got["recommendationResult"]["systemPromptRecommendationResult"]
    assert (got["status"], error["errorCode"]) == ("FAILED", "ValidationException")
    assert "no session" in error["errorMessage"]


def test_recommendations_are_listed_by_status_and_deleted(judged):
    done = finished(judged, prompt_config(), name="listed")
    summaries = judged.data.list_recommendations(statusFilter="COMPLETED")["recommendationSummaries"]
    assert summaries[0]["recommendationId"] == done["recommendationId"]
    assert judged.data.list_recommendations(statusFilter="DELETING")["recommendationSummaries"] == []
    pages = judged.data.get_paginator("list_recommendations").paginate(PaginationConfig={"PageSize": 1})
    times = [each["createdAt"] for page in pages for each in page["recommendationSummaries"]]
    assert times == sorted(times, reverse=True) and len(times) > 1

    judged.data.delete_recommendation(recommendationId=done["recommendationId"])

    code, _ = refused(judged.data.get_recommendation, recommendationId=done["recommendationId"])
    assert code == "ResourceNotFoundException"


def test_a_repeated_start_returns_the_first(judged):
    token = str(uuid.uuid4())
    first = start(judged, prompt_config(), clientToken=token)

    again = judged.data.start_recommendation(
        name="better", type=PROMPT, recommendationConfig=prompt_config(), clientToken=token
    )

    assert again["recommendationId"] == first["recommendationId"]
    code, _ = refused(
        judged.data.start_recommendation,
        name="other",
        type=PROMPT,
        recommendationConfig=prompt_config(),
        clientToken=token,
    )
    assert code == "ConflictException"


@pytest.mark.parametrize(
    ("config", "kind", "field"),
    [
        (tool_config("add"), PROMPT, "recommendationConfig"),
        (
            prompt_config(
                traces={"batchEvaluation": {"batchEvaluationArn": "arn:aws:bedrock-agentcore:x"}},
            ),
            PROMPT,
            "recommendationConfig.systemPromptRecommendationConfig.agentTraces.batchEvaluation.batchEvaluationArn",
        ),
        (
            prompt_config(
                evaluationConfig={
                    "evaluators": [
                        {"evaluatorArn": "arn:aws:bedrock-agentcore:::evaluator/Builtin.NoSuchThing"}
                    ]
                }
            ),
            PROMPT,
            "recommendationConfig.systemPromptRecommendationConfig"
            ".evaluationConfig.evaluators.1.member.evaluatorArn",
        ),
        (
            prompt_config(
                systemPrompt={
                    "configurationBundle": {
                        "bundleArn": "arn:aws:bedrock-agentcore:us-east-1:000000000000:"
                        "configuration-bundle/mine-0123456789",
                        "versionId": "1",
                        "systemPromptJsonPath": "$.prompt",
                    }
                }
            ),
            PROMPT,
            "recommendationConfig.systemPromptRecommendationConfig.systemPrompt",
        ),
    ],
)
def test_what_cannot_be_recommended_is_refused_at_the_start(judged, config, kind, field):
    code, fields = refused(
        judged.data.start_recommendation, name="wrong", type=kind, recommendationConfig=config
    )

    assert (code, field in fields) == ("ValidationException", True), fields


def test_without_a_model_the_start_says_what_is_needed(shared):
    with pytest.raises(ClientError, match="needs a key") as caught:
        shared.data.start_recommendation(name="r", type=PROMPT, recommendationConfig=prompt_config())

    assert "`judge`" in caught.value.response["Error"]["Message"]


def test_a_server_finishes_what_another_has_left(serve, tmp_path):
    (tmp_path / "judge.yaml").write_text(RULES)
    store = Store(str(tmp_path / "proctor.db"))
    at = datetime.now(UTC)
    row = {"id": "left-0123456789", "name": "left", "type": PROMPT, "createdAt": timestamp(at)}
    token = Token(operation="StartRecommendation", token="", request={})
    store.recommendations.create({**row, "updatedAt": timestamp(at)}, prompt_config(), token)
    assert store.recommendations.claim("elsewhere:1:1", at - timedelta(hours=1)) == row["id"]
    store.close()

    served = serve(evaluation={"judge": "scripted/judge"})

    got = eventually(lambda: ended(served, row["id"]))
    assert got["status"] == "COMPLETED"
