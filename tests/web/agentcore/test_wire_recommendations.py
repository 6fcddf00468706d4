"""Recommendations of prompts and tool descriptions are computed from sessions and their scores."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from test_wire_online import create
from wire_server import ACCOUNT, NOON, arrive, pages, refused, servers, told
from wire_spans import spans

from proctor.store import Store
from proctor.store.definitions import Token
from proctor.store.writer import timestamp
from proctor.testing import eventually
from proctor.testing.model_server import ModelServer, failure, reply

PROMPT, TOOLS = "SYSTEM_PROMPT_RECOMMENDATION", "TOOL_DESCRIPTION_RECOMMENDATION"
GROUP = "/agents/calc"
SOURCE = {"cloudWatchLogs": {"serviceNames": ["Calc.DEFAULT"], "logGroupNames": [GROUP]}}
GOAL = {"evaluatorId": "Builtin.GoalSuccessRate"}
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
def judged(tmp_path_factory, command_server, empty_store_file):
    """A server whose judge is a script."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "judge.yaml").write_text(RULES)
    with servers(folder, command_server.program, empty_store_file) as start:
        served = start(evaluation={"judge": "scripted/judge", "limits": {"active_recommendations": 50}})
        arrive(served.store, [*spans("s-1"), *spans("s-2")], GROUP)
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
    return served.data.start_recommendation(
        name=members.pop("name", "better"), type=kind, recommendationConfig=config, **members
    )


def finished(served, config, **members):
    started = start(served, config, **members)
    return eventually(lambda: ended(served, started["recommendationId"]))


def ended(served, recommendation_id):
    got = served.data.get_recommendation(recommendationId=recommendation_id)
    return got if got["status"] in ("COMPLETED", "FAILED") else None


def test_each_tool_gets_a_description(judged):
    got = finished(judged, tool_config("add", "print"), kind=TOOLS)

    tools = got["recommendationResult"]["toolDescriptionRecommendationResult"]["tools"]
    expected = [("add", "Adds numbers only."), ("print", "Adds numbers only.")]
    assert [(each["toolName"], each["recommendedToolDescription"]) for each in tools] == expected


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
        batchEvaluationName="sums", evaluators=[GOAL], dataSourceConfig=SOURCE
    )
    arn, about = job["batchEvaluationArn"], {"batchEvaluationId": job["batchEvaluationId"]}
    eventually(lambda: judged.data.get_batch_evaluation(**about)["status"].startswith("COMPLETED"))

    got = finished(judged, prompt_config(traces={"batchEvaluation": {"batchEvaluationArn": arn}}))

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


def test_a_recommendation_is_told_as_it_was_started_until_it_is_deleted(serve, clock, tmp_path):
    (tmp_path / "judge.yaml").write_text(RULES)
    served = serve(now=clock, evaluation={"judge": "scripted/judge"})
    started = told(start(served, prompt_config(), description="a try", tags={"team": "a"}))
    recommendation_id = started["recommendationId"]
    about = {"recommendationId": recommendation_id}
    arn = f"{ACCOUNT}:recommendation/{recommendation_id}"
    summary = {
        **about,
        "recommendationArn": arn,
        "name": "better",
        "type": PROMPT,
        "status": "PENDING",
        "createdAt": NOON,
        "updatedAt": NOON,
        "description": "a try",
    }
    assert started == {**summary, "recommendationConfig": prompt_config()}
    got = told(eventually(lambda: ended(served, recommendation_id)))
    summary["status"] = "COMPLETED"
    assert got == {
        **summary,
        "recommendationConfig": prompt_config(),
        "recommendationResult": {
            "systemPromptRecommendationResult": {
                "recommendedSystemPrompt": "Check every sum.",
                "explanation": "It never checks.",
            }
        },
    }
    assert served.data.list_recommendations()["recommendationSummaries"] == [summary]
    assert served.control.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "a"}

    assert told(served.data.delete_recommendation(**about)) == {**about, "status": "DELETING"}
    assert refused(served.data.get_recommendation, **about).code == "ResourceNotFoundException"
    assert served.data.list_recommendations()["recommendationSummaries"] == []
    assert "description" not in start(served, prompt_config())


def recommendation_in(store, number, at, status=""):
    """A recommendation of another server that is in progress, or has ended so."""
    row = {"id": f"left-000000000{number}", "name": "left", "type": PROMPT, "createdAt": timestamp(at)}
    token = Token(operation="StartRecommendation", token="", request={})
    store.recommendations.create({**row, "updatedAt": timestamp(at)}, prompt_config(), token)
    if status:
        store.recommendations.finish(row["id"], status, {}, at)
    else:
        assert store.recommendations.claim("elsewhere:1:1", at) == row["id"]
    return row["id"]


def test_recommendations_are_listed_newest_first_and_by_status(at_noon, clock):
    ids = []
    for number in range(3):
        ids.insert(0, recommendation_in(at_noon.store, number, clock(), ["COMPLETED", "FAILED"][number % 2]))
        clock.forward(seconds=1)

    for size, counts in ((1, [1, 1, 1]), (2, [2, 1]), (3, [3])):
        found = pages(at_noon.data.list_recommendations, "recommendationSummaries", maxResults=size)
        assert [len(page) for page in found] == counts
        assert [each["recommendationId"] for page in found for each in page] == ids
    failed = at_noon.data.list_recommendations(statusFilter="FAILED")["recommendationSummaries"]
    assert [each["recommendationId"] for each in failed] == [ids[1]]


def test_a_recommendation_in_progress_counts_as_active_and_is_not_deleted(serve, tmp_path):
    (tmp_path / "judge.yaml").write_text(RULES)
    served = serve(evaluation={"judge": "scripted/judge", "limits": {"active_recommendations": 1}})
    recommendation_id = recommendation_in(served.store, 1, datetime.now(UTC))

    refusal = refused(served.data.delete_recommendation, recommendationId=recommendation_id)
    assert (refusal.code, refusal.message) == (
        "ConflictException",
        f"The recommendation {recommendation_id} is in progress; wait for its end.",
    )
    refusal = refused(start, served, prompt_config())
    assert (refusal.code, refusal.message) == (
        "ServiceQuotaExceededException",
        "There may be 1 active recommendations; wait for one to end.",
    )
    served.store.recommendations.finish(recommendation_id, "FAILED", {}, datetime.now(UTC))
    assert finished(served, prompt_config())["status"] == "COMPLETED"


def test_a_repeated_start_returns_the_first(judged):
    token = str(uuid.uuid4())
    first = start(judged, prompt_config(), clientToken=token)

    again = start(judged, prompt_config(), clientToken=token)

    assert again["recommendationId"] == first["recommendationId"]
    other = refused(start, judged, prompt_config(), name="other", clientToken=token)
    assert other.code == "ConflictException"


BUNDLE = {
    "bundleArn": f"{ACCOUNT}:configuration-bundle/mine-0123456789",
    "versionId": "1",
    "systemPromptJsonPath": "$.prompt",
}
NOBODYS = {"evaluatorArn": "arn:aws:bedrock-agentcore:::evaluator/Builtin.NoSuchThing"}
IN_PROMPT = "recommendationConfig.systemPromptRecommendationConfig"
IN_TOOLS = "recommendationConfig.toolDescriptionRecommendationConfig"
NO_EVALUATION = "Member must be the ARN of an evaluation that is there"
NO_EVALUATOR = "Member must be the ARN of an evaluator that is there"
NO_BATCH = f"{ACCOUNT}:batch-evaluate/none-0123456789"


@pytest.mark.parametrize(
    ("config", "violations"),
    [
        (
            tool_config(),
            {
                "recommendationConfig": "Member must be systemPromptRecommendationConfig for this type",
                f"{IN_TOOLS}.toolDescription.toolDescriptionText.tools": (
                    "Member must have length greater than or equal to 1"
                ),
            },
        ),
        (
            prompt_config(
                traces={"batchEvaluation": {"batchEvaluationArn": NO_BATCH}},
                evaluationConfig={"evaluators": [NOBODYS]},
                systemPrompt={"configurationBundle": BUNDLE},
            ),
            {
                f"{IN_PROMPT}.systemPrompt": (
                    "Member must contain the text: recommendations are not read from or written to bundles"
                ),
                f"{IN_PROMPT}.agentTraces.batchEvaluation.batchEvaluationArn": NO_EVALUATION,
                f"{IN_PROMPT}.evaluationConfig.evaluators.1.member.evaluatorArn": NO_EVALUATOR,
            },
        ),
    ],
)
def test_what_cannot_be_recommended_is_refused_at_the_start(judged, config, violations):
    refusal = refused(start, judged, config)

    assert (refusal.code, refusal.fields) == ("ValidationException", violations)


def test_traces_are_of_an_evaluation_of_their_own_kind(judged):
    batch = judged.data.start_batch_evaluation(
        batchEvaluationName="traced", evaluators=[GOAL], dataSourceConfig=SOURCE
    )["batchEvaluationArn"]
    online = create(judged.control, "traced", enableOnCreate=False)["onlineEvaluationConfigArn"]
    times = {"startTime": NOON, "endTime": NOON + timedelta(days=1)}

    def config(kind, member, arn):
        return prompt_config(traces={kind: {member: arn, **(times if kind == "onlineEvaluation" else {})}})

    in_batch = ("batchEvaluation", "batchEvaluationArn")
    in_online = ("onlineEvaluation", "onlineEvaluationConfigArn")
    for place, arn in ((in_batch, batch), (in_online, online)):
        assert start(judged, config(*place, arn))["status"] == "PENDING"
    for place, arn in ((in_batch, online), (in_online, f"{online[:-10]}0123456789")):
        expected = {f"{IN_PROMPT}.agentTraces.{'.'.join(place)}": NO_EVALUATION}
        assert refused(start, judged, config(*place, arn)).fields == expected


def test_without_a_model_the_start_says_what_is_needed(serve):
    served = serve(evaluation={"judge": "openai/gpt"})

    assert refused(start, served, prompt_config()).fields == {
        "recommendationConfig": (
            "Member needs a model that writes the recommendation: openai/gpt needs a key, and "
            "OPENAI_API_KEY is not set. Set `judge` under [evaluation] in proctor.toml to one that can be "
            "reached"
        )
    }


def test_a_server_finishes_what_another_has_left(serve, tmp_path):
    (tmp_path / "judge.yaml").write_text(RULES)
    store = Store(str(tmp_path / "proctor.db"))
    recommendation_id = recommendation_in(store, 1, datetime.now(UTC) - timedelta(hours=1))
    store.close()

    served = serve(evaluation={"judge": "scripted/judge"})

    assert eventually(lambda: ended(served, recommendation_id))["status"] == "COMPLETED"
