"""AWS's own clients work unchanged: the SDK's evaluation clients and the starter toolkit."""

import json
import os
import subprocess
from pathlib import Path

import boto3
import httpx2 as httpx
import pytest
from wire_server import KEY, SECRET, refused, servers

from proctor.config import ServeToken

PYTHON = Path(__file__).parents[3] / "build" / "aws-clients" / "bin" / "python"
YES = '{"reasoning": "It is right.", "score": "Yes"}'
RULES = f"""
rules:
  - match: "Improve the system prompt"
    reply: '{{"explanation": "It works.", "recommended_system_prompt": "Add numbers, and check."}}'
  - match: "Very Helpful"
    reply: '{{"reasoning": "It helps.", "score": "Very Helpful"}}'
  - reply: '{YES}'
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory, command_server, empty_store_file):
    """A server that checks signatures, whose judge is a script."""
    folder = tmp_path_factory.mktemp("judged")
    (folder / "judge.yaml").write_text(RULES)
    with servers(folder, command_server.program, empty_store_file) as start:
        yield start(evaluation={"judge": "scripted/judge"}, access_keys={KEY: SECRET}, token="x" * 32)


def environment(served):
    return {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        **{
            f"AWS_ENDPOINT_URL_{each}": served.url
            for each in ("BEDROCK_AGENTCORE", "BEDROCK_AGENTCORE_CONTROL", "CLOUDWATCH_LOGS", "STS")
        },
        "AGENTCORE_EVAL_ENDPOINT": served.url,
        "AGENTCORE_EVAL_CP_ENDPOINT": served.url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture(scope="module")
def results(judged):
    if not PYTHON.exists():
        pytest.skip("AWS's clients are not installed: `make aws-clients` does that, and needs the network")
    program = Path(__file__).with_name("aws_clients.py")
    done = subprocess.run(
        [PYTHON, program], env=environment(judged), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout.rpartition("\nRESULTS ")[2])


def test_the_evaluation_client_evaluates_a_session(results):
    found = {
        each["evaluatorId"]: (each.get("value"), each.get("label")) for each in results["evaluation_client"]
    }

    assert found == {
        "Builtin.TrajectoryExactOrderMatch": (1.0, "Yes"),
        "Builtin.GoalSuccessRate": (1.0, "Yes"),
        "Builtin.Helpfulness": (0.83, "Very Helpful"),
        "Builtin.ToolSelectionAccuracy": (1.0, "Yes"),
    }


def test_the_toolkit_finds_the_latest_session_and_evaluates_it(results):
    toolkit = results["starter_toolkit"]

    assert toolkit["session"] == "calc-session-1"
    expected = [("Builtin.TrajectoryExactOrderMatch", None), ("Builtin.Helpfulness", None)]
    assert [(each["evaluator"], each["error"]) for each in toolkit["results"]] == expected
    assert toolkit["evaluators"] == 18


def test_the_dataset_client_and_the_provider_of_datasets(results):
    datasets = results["dataset_client"]

    assert datasets["draft"] == ["add", "add again"]
    (published,) = datasets["published"]
    assert (published["scenario_id"], published["expected_trajectory"]) == ("add", ["calculator"])
    assert published["turns"] == [{"input": "What is 15 + 27?", "expected_response": "42"}]
    assert datasets["left"] == []


def test_the_runners_evaluate_a_dataset_of_the_server(results):
    (scenario,) = results["on_demand_runner"]["scenario_results"]
    assert scenario["status"] == "COMPLETED"
    values = [each["value"] for part in scenario["evaluator_results"] for each in part["results"]]
    assert values == [1.0, 1.0]
    batch = results["batch_runner"]
    assert batch["status"] == "COMPLETED"
    assert [each["statistics"]["average_score"] for each in batch["summaries"]] == [1.0, 1.0]
    assert batch["events"] == 2


def test_the_recommendation_client_waits_for_a_result(results):
    assert results["recommendation_client"] == {
        "systemPromptRecommendationResult": {
            "recommendedSystemPrompt": "Add numbers, and check.",
            "explanation": "It works.",
        }
    }


def identity(served, **keys):
    secrets = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, **keys}
    client = boto3.client("sts", endpoint_url=served.url, region_name="us-east-1", **secrets)
    return client, client.get_caller_identity()


def test_the_caller_is_named_before_anything_else(judged):
    client, caller = identity(judged)

    assert (caller["Account"], caller["UserId"]) == ("000000000000", KEY)
    assert caller["Arn"] == f"arn:aws:iam::000000000000:user/{KEY}"
    assert refused(client.get_session_token).code == "InvalidAction"
    assert refused(identity, judged, aws_secret_access_key="wrong").code == "InvalidSignatureException"


def test_names_and_actions_are_escaped_in_xml(serve):
    served = serve(token="t" * 32, tokens=[ServeToken(name="a<b", role="view", token="v" * 32)])
    headers = {"Authorization": "Bearer " + "v" * 32}

    answer = httpx.post(served.url, data={"Action": "GetCallerIdentity"}, headers=headers)
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/xml")
    assert "<UserId>a&lt;b</UserId><Account>000000000000</Account>" in answer.text
    answer = httpx.post(served.url, data={"Action": "AssumeRole<"}, headers=headers)
    assert answer.status_code == 400
    assert "<Type>Sender</Type><Code>InvalidAction</Code>" in answer.text
    assert "<Message>Could not find operation AssumeRole&lt; here.</Message>" in answer.text
    answer = httpx.post(served.url, data={"Action": "GetCallerIdentity"})
    assert answer.status_code == 403
    assert "<Code>MissingAuthenticationTokenException</Code>" in answer.text
