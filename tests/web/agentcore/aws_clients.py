"""AWS's own clients, unchanged, against the server that the environment names; prints what each returned.

Run by the interpreter of an environment with `bedrock-agentcore` and its starter toolkit.
"""

import json
import logging
import sys
import threading
import time
import uuid

import boto3
from bedrock_agentcore.evaluation import (
    BatchEvaluationRunConfig,
    BatchEvaluationRunner,
    BatchEvaluatorConfig,
    CloudWatchAgentSpanCollector,
    CloudWatchDataSourceConfig,
    DatasetClient,
    DatasetManagementServiceProvider,
    EvaluationClient,
    EvaluationRunConfig,
    EvaluatorConfig,
    OnDemandEvaluationDatasetRunner,
    RecommendationClient,
    ReferenceInputs,
    WaitConfig,
)
from bedrock_agentcore.evaluation.runner.invoker_types import AgentInvokerOutput
from bedrock_agentcore_starter_toolkit import Evaluation
from bedrock_agentcore_starter_toolkit.operations.evaluation.models import ReferenceInputs as ToolkitInputs
from wire_spans import spans

AGENT, SERVICE, GROUP = "calc-abc", "Calc.DEFAULT", "/aws/bedrock-agentcore/runtimes/calc-abc-DEFAULT"
EXACT, GOAL = "Builtin.TrajectoryExactOrderMatch", "Builtin.GoalSuccessRate"
WAIT = WaitConfig(max_wait=60, poll_interval=1)
SCENARIO = {
    "scenario_id": "add",
    "turns": [{"input": "What is 15 + 27?", "expected_response": "42"}],
    "expected_trajectory": ["calculator"],
    "assertions": ["It is right"],
}
_logs = boto3.client("logs")
_lock = threading.Lock()


def put(session_id):
    """Log the spans of a session as the runtime of an agent does."""
    now = time.time_ns()
    documents = spans(session_id)
    for number, document in enumerate(documents):
        document["scope"] = {"name": "strands.telemetry.tracer", "version": "1"}
        document |= {"startTimeUnixNano": now + number, "endTimeUnixNano": now + number + 1000}
        document["resource"]["attributes"] |= {
            "cloud.resource_id": f"arn:aws:bedrock-agentcore:us-east-1:1:runtime/{AGENT}/endpoint/DEFAULT",
            "aws.service.type": "gen_ai_agent",
        }
    events = [{"timestamp": now // 10**6, "message": json.dumps(each)} for each in documents]
    with _lock:
        _logs.put_log_events(logGroupName=GROUP, logStreamName="otel", logEvents=events)


def invoke(request):
    """The agent: it always calls the calculator once."""
    put(request.session_id)
    return AgentInvokerOutput(agent_output="It is 42.")


def evaluation_client(session_id):
    truth = ReferenceInputs(
        expected_trajectory=["calculator"], assertions=["It is right"], expected_response="42"
    )
    return EvaluationClient().run(
        evaluator_ids=[EXACT, GOAL, "Builtin.Helpfulness", "Builtin.ToolSelectionAccuracy"],
        session_id=session_id,
        agent_id=AGENT,
        reference_inputs=truth,
    )


def starter_toolkit(session_id):
    """The session is not named: the latest one is found."""
    client = Evaluation(region="us-east-1")
    results = client.run(
        agent_id=AGENT,
        evaluators=[EXACT, "Builtin.Helpfulness"],
        reference_inputs=ToolkitInputs(expected_trajectory=["calculator"]),
    )
    found = [
        {"evaluator": each.evaluator_id, "value": each.value, "error": each.error} for each in results.results
    ]
    listed = client.list_evaluators(max_results=50)["evaluators"]
    return {"session": results.session_id, "results": found, "evaluators": len(listed)}


def dataset_client(_):
    client = DatasetClient()
    name = f"calc_{uuid.uuid4().hex[:8]}"
    made = client.create_dataset_and_wait(
        wait_config=WAIT,
        dataset_name=name,
        schema_type="AGENTCORE_EVALUATION_PREDEFINED_V1",
        source={"inlineExamples": {"examples": [SCENARIO]}},
    )
    dataset_id = made["datasetId"]
    client.create_dataset_version_and_wait(wait_config=WAIT, datasetId=dataset_id)
    more = {"inlineExamples": {"examples": [{**SCENARIO, "scenario_id": "add again"}]}}
    client.add_examples_and_wait(wait_config=WAIT, datasetId=dataset_id, source=more)
    drafts = DatasetManagementServiceProvider(dataset_id).get_dataset().scenarios
    published = DatasetManagementServiceProvider(dataset_id, "1").get_dataset().scenarios
    (_, last) = client.list_dataset_examples(datasetId=dataset_id)["examples"]
    client.update_examples_and_wait(wait_config=WAIT, datasetId=dataset_id, examples=[last])
    client.delete_examples_and_wait(wait_config=WAIT, datasetId=dataset_id, exampleIds=[last["exampleId"]])
    client.delete_dataset_and_wait(wait_config=WAIT, datasetId=dataset_id)
    return {
        "draft": [each.scenario_id for each in drafts],
        "published": [each.model_dump() for each in published],
        "left": client.list_datasets()["datasets"],
    }


def _dataset():
    client = DatasetClient()
    made = client.create_dataset_and_wait(
        wait_config=WAIT,
        datasetName=f"run_{uuid.uuid4().hex[:8]}",
        schemaType="AGENTCORE_EVALUATION_PREDEFINED_V1",
        source={"inlineExamples": {"examples": [SCENARIO]}},
    )
    return DatasetManagementServiceProvider(made["datasetId"]).get_dataset()


def on_demand_runner(_):
    collector = CloudWatchAgentSpanCollector(
        log_group_name=GROUP, region="us-east-1", max_wait_seconds=20, poll_interval_seconds=1
    )
    config = EvaluationRunConfig(
        evaluator_config=EvaluatorConfig(evaluator_ids=[EXACT, GOAL]), evaluation_delay_seconds=0
    )
    result = OnDemandEvaluationDatasetRunner(region="us-east-1").run(config, _dataset(), invoke, collector)
    return result.model_dump()


def batch_runner(_):
    runner = BatchEvaluationRunner(region="us-east-1")
    config = BatchEvaluationRunConfig(
        batch_evaluation_name="calc_batch",
        evaluator_config=BatchEvaluatorConfig(evaluator_ids=[EXACT, GOAL]),
        data_source=CloudWatchDataSourceConfig(
            service_names=[SERVICE], log_group_names=[GROUP], ingestion_delay_seconds=0
        ),
        polling_interval_seconds=1,
        polling_timeout_seconds=60,
    )
    result = runner.run_dataset_evaluation(config, _dataset(), invoke)
    events = runner.fetch_evaluation_events(result)
    return {
        "status": result.status,
        "summaries": [each.model_dump() for each in result.evaluation_results.evaluator_summaries],
        "events": len(events),
    }


def recommendation_client(session_id):
    client = RecommendationClient()
    got = client.start_recommendation_and_wait(
        wait_config=WAIT,
        name="calc-prompt",
        type="SYSTEM_PROMPT_RECOMMENDATION",
        recommendationConfig={
            "systemPromptRecommendationConfig": {
                "systemPrompt": {"text": "You add numbers."},
                "agentTraces": {"sessionSpans": spans(session_id)},
                "evaluationConfig": {
                    "evaluators": [{"evaluatorArn": f"arn:aws:bedrock-agentcore:::evaluator/{GOAL}"}]
                },
            }
        },
    )
    client.delete_recommendation(recommendationId=got["recommendationId"])
    return got["recommendationResult"]


CLIENTS = (
    evaluation_client,
    starter_toolkit,
    dataset_client,
    on_demand_runner,
    batch_runner,
    recommendation_client,
)


def main():
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    _logs.create_log_group(logGroupName=GROUP)
    _logs.create_log_stream(logGroupName=GROUP, logStreamName="otel")
    put("calc-session-1")
    results = {}
    for client in CLIENTS:
        results[client.__name__] = client("calc-session-1")
    # The toolkit prints to the standard output.
    print(f"\nRESULTS {json.dumps(results, default=str)}")


if __name__ == "__main__":
    main()
