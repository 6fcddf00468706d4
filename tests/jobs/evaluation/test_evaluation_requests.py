"""What an evaluation may be asked for: plans, the interface's documents, and files of ground truth."""

import json
from datetime import UTC, datetime

import pytest

from proctor.errors import PlanError, UsageError
from proctor.jobs.evaluation.prepare import pending_request
from proctor.jobs.evaluation.request import (
    EvaluationRequest,
    LogGroupSessions,
    moment_of,
    read_dataset,
    read_evaluation,
)
from proctor.store import Store
from proctor.store.definitions import Token
from proctor.store.writer import timestamp

START = {
    "batchEvaluationName": "probe",
    "clientToken": "333676e0-2241-424e-8a8a-fa17491846ff",
    "evaluators": [{"evaluatorId": "Builtin.GoalSuccessRate"}, {"evaluatorId": "Builtin.Helpfulness"}],
    "dataSourceConfig": {
        "cloudWatchLogs": {
            "serviceNames": ["Calc.DEFAULT"],
            "logGroupNames": ["/calc"],
            "filterConfig": {
                "sessionIds": ["s-1"],
                "timeRange": {"startTime": "2026-11-08T05:57:20.108644Z", "endTime": 1794722240},
                "sessionTraceIds": [{"sessionId": "s-2", "traceIds": ["a" * 32]}],
            },
        }
    },
    "evaluationMetadata": {"sessionMetadata": [{"sessionId": "s-1", "testScenarioId": "add"}]},
}


def test_a_start_document_of_the_interface_is_a_request():
    request = EvaluationRequest.from_document(START)

    assert request.evaluators == ("Builtin.GoalSuccessRate", "Builtin.Helpfulness")
    assert request.client_token == START["clientToken"]
    assert isinstance(request.sessions, LogGroupSessions)
    assert request.sessions.names == ("/calc",)
    assert request.sessions.services == ("Calc.DEFAULT",)
    assert request.sessions.traces == {"s-2": ("a" * 32,)}
    assert request.sessions.period.start == datetime(2026, 11, 8, 5, 57, 20, 108644, tzinfo=UTC)
    assert request.metadata[0]["testScenarioId"] == "add"
    assert "clientToken" not in request.document and "evaluationMetadata" not in request.document


def test_the_token_is_no_part_of_what_is_asked_and_everything_else_is():
    request = EvaluationRequest.from_document(START)

    same = EvaluationRequest.from_document(START | {"clientToken": "x" * 36})
    other = EvaluationRequest.from_document(START | {"description": "another"})
    truth = {"sessionMetadata": [{"sessionId": "s-1", "testScenarioId": "subtract"}]}

    assert request.digest == same.digest
    assert request.digest != other.digest
    assert request.digest != EvaluationRequest.from_document(START | {"evaluationMetadata": truth}).digest


def test_an_online_configuration_stands_for_the_log_groups_it_watches():
    arn = "arn:aws:bedrock-agentcore:local:000000000000:online-evaluation-config/watch-0123456789"
    source = {"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn": arn}}
    watched = {"logGroupNames": ["/calc"], "serviceNames": ["Calc"]}

    request = EvaluationRequest.from_document(
        START | {"dataSourceConfig": source}, online_source={arn: watched}.__getitem__
    )

    assert request.sessions == LogGroupSessions(names=("/calc",), services=("Calc",))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({}, "the source of sessions should be one of"),
        ({"store": None}, "the source of sessions should be one of"),
        ({"store": {"runIds": ["a"]}, "files": {"paths": ["x"]}}, "there are 2"),
        ({"tape": {}}, "there is no source of sessions called tape"),
        (
            {"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn": "a"}},
            "online configurations are known to `proctor serve` only",
        ),
    ],
)
def test_a_source_of_sessions_that_is_none_is_refused(source, problem):
    with pytest.raises(UsageError, match=problem):
        EvaluationRequest.from_document(START | {"dataSourceConfig": source})


def test_evaluations_are_not_evaluated_unless_they_are_named():
    def sessions(**store):
        return EvaluationRequest.from_document(START | {"dataSourceConfig": {"store": store}}).sessions

    assert sessions(runIds=["r"]).excluded_jobs == ("evaluation",)
    assert sessions(jobs=["evaluation"]).excluded_jobs == ()


@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31T00:00Z", "2026-01-31T02:00+02:00", 1769817600])
def test_a_moment_may_be_written_in_several_ways(text):
    assert moment_of(text) == datetime(2026, 1, 31, tzinfo=UTC)
    with pytest.raises(UsageError, match=r"`soon` is no moment\nWrite it like"):
        moment_of("soon")


def test_everything_wrong_with_a_plan_is_told_at_its_place():
    plan = """
batchEvaluationName: 9th
evaluators: [Builtin.Helpfulness, {evaluatorid: x}]
dataSourceConfig: {store: {runId: [a]}}
votes: 0
evaluationMetadata:
  sessionMetadata:
    - sessionId: s-1
      groundTruth: {inline: {turns: [{answer: 4}]}}
"""
    with pytest.raises(PlanError) as raised:
        read_evaluation(plan, file="plan.yaml")

    assert [(each.at.line, each.problem) for each in raised.value.problems] == [
        (
            2,
            "`batchEvaluationName` of the plan should be a letter, then up to 47 letters, digits or "
            "underscores",
        ),
        (3, "`evaluators[2]` of the plan should be text, not a mapping"),
        (4, "`store` of `dataSourceConfig` has no setting `runId`"),
        (5, "`votes` of the plan should be at least 1, not the number 0"),
        (9, "turn 1 of session 1 has no setting `answer`"),
    ]
    assert "Did you mean `runIds`?" in str(raised.value)


def test_a_plan_without_a_source_or_with_two_is_told_so():
    with pytest.raises(PlanError, match="names no source of sessions"):
        read_evaluation("dataSourceConfig: {store: null}", file="plan.yaml")
    with pytest.raises(PlanError, match="names 2 sources of sessions"):
        read_evaluation("dataSourceConfig: {store: {}, files: {paths: [a]}}", file="plan.yaml")


DATASET = """
datasetId: travel
version: 3
sessionMetadata:
  - testScenarioId: book
    groundTruth: {inline: {assertions: [{text: a price is named}], expectedTrajectory: [search]}}
"""


def test_a_file_of_ground_truth_is_one_version_of_a_dataset():
    dataset = read_dataset(DATASET, file="truth.yaml")

    assert dataset.name == "travel@3"
    assert dataset.mention["digest"] == dataset.digest
    assert dataset.digest != read_dataset(DATASET.replace("search", "look"), file="truth.yaml").digest
    with pytest.raises(PlanError, match=r"truth.yaml:2:5: session 1 names neither a session nor a scenario"):
        read_dataset("sessionMetadata:\n  - groundTruth: {inline: {assertions: [a]}}\n", file="truth.yaml")


SCENARIOS = [
    {
        "scenario_id": "book",
        "turns": [{"input": "To Oslo.", "expected_response": "Which day?"}, {"input": {"day": 1}}],
        "expected_trajectory": ["search"],
        "assertions": ["a price is named"],
    },
    {"scenario_id": "greet", "turns": [{"input": "Hello"}], "expected_trajectory": []},
    {"scenario_id": "chat", "turns": [{"input": "Hi"}]},
]


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_scenarios_of_aws_datasets_are_ground_truth(form):
    lines = "\n".join(map(json.dumps, SCENARIOS))
    text = json.dumps({"scenarios": SCENARIOS}) if form == "json" else lines

    dataset = read_dataset(text, file=f"tests/travel.{form}")

    truth = {each["testScenarioId"]: each["groundTruth"]["inline"] for each in dataset.metadata}
    assert dataset.name == f"travel.{form}"
    assert truth == {
        "book": {
            "assertions": ["a price is named"],
            "expectedTrajectory": ["search"],
            "turns": [{"input": "To Oslo.", "expectedResponse": "Which day?"}, {"input": '{"day": 1}'}],
        },
        "greet": {"expectedTrajectory": []},
    }


def test_a_dataset_of_the_store_is_ground_truth_by_name_and_version(tmp_path):
    with Store(str(tmp_path / "proctor.db")) as store:
        at = timestamp(datetime(2026, 1, 1, tzinfo=UTC))
        row = {
            "id": "travel-0123456789",
            "name": "travel",
            "schemaType": "AGENTCORE_EVALUATION_PREDEFINED_V1",
        }
        token = Token(operation="o", token="", request={})
        examples = {f"e{number}": each for number, each in enumerate(SCENARIOS)}
        store.datasets.create({**row, "createdAt": at, "updatedAt": at}, examples, token)
        store.datasets.publish(row["id"], token, datetime(2026, 1, 2, tzinfo=UTC))
        store.datasets.remove(row["id"], ["e0"], token, datetime(2026, 1, 3, tzinfo=UTC))
        document = {"batchEvaluationName": "n", "evaluators": ["e"], "dataSourceConfig": {"store": {}}}

        def scenarios(name):
            pending = pending_request(
                {**document, "groundTruth": name}, folder=tmp_path, store=store
            ).document
            named = [each["testScenarioId"] for each in pending["evaluationMetadata"]["sessionMetadata"]]
            return named, pending["groundTruth"][0]["dataset"]

        assert scenarios("dataset:travel") == (["greet"], "travel")
        assert scenarios("dataset:travel@1") == (["book", "greet"], "travel@1")
        for wrong, reason in (
            ("travel@2", "no version 2"),
            ("travel@99999999999999999999", "no version 9"),
            ("other", "no dataset other"),
            ("travel@x", "`x`"),
        ):
            with pytest.raises(UsageError, match=reason):
                scenarios(f"dataset:{wrong}")
