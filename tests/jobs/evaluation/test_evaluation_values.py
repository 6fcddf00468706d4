"""Ground truth, estimates, alerts and lines of an evaluation, by value."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.jobs.evaluation import drift, prepare, request, results
from proctor.jobs.evaluation.drift import alert_document


def refused(call: Any) -> str:
    with pytest.raises(UsageError) as error:
        call()
    return str(error.value)


COMPLETE = {"batchEvaluationName": "probe", "evaluators": ["a"], "dataSourceConfig": {"store": {}}}


# --- Ground truth ---


def test_examples_are_ground_truth_of_their_scenario() -> None:
    examples = [
        {"scenario_id": "a", "assertions": ["It is kind."], "turns": [{"input": "hi"}]},
        {"scenario_id": "b", "expected_trajectory": []},
        {
            "scenario_id": "c",
            "turns": [{"input": {"x": "é"}, "expected_response": "yes"}, {"expected_response": ""}],
        },
        {"scenario_id": "d", "turns": [{"input": "hi"}]},
        {"assertions": ["lost"]},
    ]
    dataset = request.dataset_of_examples("mine", examples)
    assert (dataset.name, len(dataset.digest)) == ("mine", 16)
    assert dataset.metadata == [
        {"testScenarioId": "a", "groundTruth": {"inline": {"assertions": ["It is kind."]}}},
        {"testScenarioId": "b", "groundTruth": {"inline": {"expectedTrajectory": []}}},
        {
            "testScenarioId": "c",
            "groundTruth": {
                "inline": {"turns": [{"input": '{"x": "é"}', "expectedResponse": "yes"}, {"input": ""}]}
            },
        },
    ]
    assert refused(lambda: request.dataset_of_examples("mine", examples[3:])) == (
        "the dataset mine has no ground truth\nIts examples need a `scenario_id`, and `assertions`, "
        "`expected_trajectory` or `expected_response` of their turns."
    )


# --- Alerts ---

CROSSING: Any = {
    "configId": "c1",
    "evaluator": "tidy",
    "dimension": "tone",
    "position": 120,
    "direction": "down",
    "at": "2026-03-01T12:00:00.000Z",
    "beforeMean": 0.9,
    "beforeLow": 0.8,
    "beforeHigh": 0.95,
    "afterMean": 0.25,
    "afterLow": 0.125,
    "afterHigh": 0.5,
    "afterSessions": 40,
}


def test_an_alert_has_its_numbers_and_one_sentence() -> None:
    document = alert_document("support", CROSSING)
    digest = document.pop("id")
    assert isinstance(digest, str) and len(digest) == 32
    assert document == {
        "kind": "drift",
        "watch": "support",
        "onlineEvaluationConfigId": "c1",
        "evaluator": "tidy",
        "dimension": "tone",
        "direction": "down",
        "at": "2026-03-01T12:00:00.000Z",
        "sessions": 120,
        "meanBefore": 0.9,
        "lowBefore": 0.8,
        "highBefore": 0.95,
        "meanAfter": 0.25,
        "lowAfter": 0.125,
        "highAfter": 0.5,
        "sessionsAfter": 40,
        "text": "support: tidy (tone) went down to 0.25 (0.125 to 0.5, 40 sessions), "
        "before 0.9 (0.8 to 0.95)",
    }
    bare = alert_document("s", {**CROSSING, "dimension": "", "beforeMean": None, "evaluator": "a<b>&c"})
    assert bare["text"] == "s: a&lt;b&gt;&amp;c went down to 0.25 (0.125 to 0.5, 40 sessions)"
    assert bare["id"] != digest
    assert alert_document("other", {**CROSSING, "afterMean": 0.3})["id"] == digest


# --- Items and estimates ---


def test_the_cost_of_an_evaluation_is_known_if_that_of_each_evaluator_is() -> None:
    def row(cost: float | None, model: str = "m") -> prepare.EvaluatorEstimate:
        return prepare.EvaluatorEstimate(
            evaluator="e", level="trace", model=model, results=1, calls=1, tokens=1, cost_usd=cost
        )

    one = prepare.EvaluationEstimate(name="n", sessions=3, ignored=1, evaluators=[row(0.5), row(0.25, "o")])
    assert (one.item_count, one.cost_usd, list(one.workload.values())) == (6, 0.75, [3, 3])
    assert {name: value for name, value in one.document.items() if name != "evaluators"} == {
        "dryRun": True,
        "batchEvaluationName": "n",
        "sessions": 3,
        "ignored": 1,
        "itemCount": 6,
        "costUsd": 0.75,
    }
    assert (
        prepare.EvaluationEstimate(name="n", sessions=3, ignored=0, evaluators=[row(0.5), row(None)]).cost_usd
        is None
    )


def test_ground_truth_of_files_comes_before_that_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "truth.yaml").write_text("sessionMetadata: [{sessionId: s1, testScenarioId: a}]\n")
    document = {
        **COMPLETE,
        "groundTruth": ["truth.yaml", {"datasetId": "kept"}],
        "evaluationMetadata": {"sessionMetadata": [{"sessionId": "s2"}]},
        "dataSourceConfig": {"files": {"paths": ["x", "/y"], "kind": "auto"}},
    }
    pending = prepare.pending_request(document, folder=tmp_path, plan_path="p", plan_text="t")
    found = pending.document
    assert (pending.folder, pending.plan_path, pending.plan_text) == (tmp_path, "p", "t")
    metadata = found["evaluationMetadata"]["sessionMetadata"]
    assert [entry["sessionId"] for entry in metadata] == ["s1", "s2"]
    assert found["groundTruth"][0] == {"datasetId": "kept"} and len(found["groundTruth"]) == 2
    assert found["dataSourceConfig"] == {"files": {"paths": [f"{tmp_path}/x", "/y"], "kind": "auto"}}
    other = prepare.pending_request(document, folder=tmp_path, files_folder=Path("/other"))
    assert other.document["dataSourceConfig"]["files"]["paths"] == ["/other/x", "/y"]
    assert prepare.pending_request(COMPLETE, folder=tmp_path).document == COMPLETE


def line(**changes: Any) -> drift.DriftLine:
    usual: dict[str, Any] = {"config_id": "c1", "name": "n", "evaluator": "tidy", "dimension": ""}
    usual |= {"sessions": 1200, "updated_at": "", "points": (), "crossings": ()}
    return drift.DriftLine(**usual | changes)


def test_the_state_of_a_line_in_words() -> None:
    assert (line().title, line(dimension="tone").title) == ("tidy", "tidy · tone")
    assert line().state == "No change in 1,200 sessions."
    first: Any = {**CROSSING, "beforeMean": None, "direction": "up", "position": 50}
    assert line(crossings=[first]).state == "Went up to 0.25 (detected at session 50)."
    both = line(crossings=[first, {**CROSSING, "position": 1200}])
    assert both.state == "Went down from 0.9 to 0.25 (detected at session 1,200)."


# --- Results ---


def test_evaluators_have_arns() -> None:
    job = "arn:aws:bedrock-agentcore:eu:1:batch-evaluate/x"
    own = "arn:aws:bedrock-agentcore:::evaluator/Builtin.Helpfulness"
    assert results.evaluator_arn(job, "Builtin.Helpfulness") == own
    assert results.evaluator_arn(job, "ThirdParty.X") == "arn:aws:bedrock-agentcore:::evaluator/ThirdParty.X"
    assert results.evaluator_arn(job, "mine") == "arn:aws:bedrock-agentcore:eu:1:evaluator/mine"
