"""Evaluators of callers' own are kept, listed, changed and deleted through the stock client."""

import base64
import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.exceptions import ClientError

SCALE = {
    "numerical": [
        {"definition": "bad", "value": 0, "label": "No"},
        {"definition": "good", "value": 1, "label": "Yes"},
    ]
}
MODEL = {
    "bedrockEvaluatorModelConfig": {"modelId": "scripted/judge", "inferenceConfig": {"temperature": 0.0}}
}
JUDGE = {
    "llmAsAJudge": {
        "instructions": "Is this polite? {context} {assistant_turn}",
        "ratingScale": SCALE,
        "modelConfig": MODEL,
    }
}


def create(client, name="polite", **changed):
    return client.create_evaluator(
        **{"evaluatorName": name, "level": "TRACE", "evaluatorConfig": JUDGE, **changed}
    )


def refused(call, **members):
    with pytest.raises(ClientError) as caught:
        call(**members)
    return caught.value.response


def test_an_evaluator_is_active_as_soon_as_it_is_created(served):
    made = create(served.control, description="How polite", tags={"team": "quality"})

    found = served.control.get_evaluator(evaluatorId=made["evaluatorId"])

    assert made["status"] == found["status"] == "ACTIVE"
    assert made["evaluatorId"].startswith("polite-") and len(made["evaluatorId"]) == len("polite-") + 10
    assert made["evaluatorArn"].endswith(f":evaluator/{made['evaluatorId']}")
    assert found["evaluatorConfig"] == JUDGE
    assert (found["evaluatorType"], found["level"], found["description"]) == ("Custom", "TRACE", "How polite")
    assert found["lockedForModification"] is False
    assert served.control.list_tags_for_resource(resourceArn=made["evaluatorArn"])["tags"] == {
        "team": "quality"
    }


def test_metadata_alone_can_be_read_without_the_instructions(served):
    made = create(served.control)

    found = served.control.get_evaluator(evaluatorId=made["evaluatorId"], includedData="METADATA_ONLY")

    assert "evaluatorConfig" not in found
    assert found["evaluatorName"] == "polite"


def test_built_in_evaluators_are_listed_and_cannot_be_changed(served):
    pages = served.control.get_paginator("list_evaluators").paginate(PaginationConfig={"PageSize": 7})
    listed = [entry for page in pages for entry in page["evaluators"]]

    assert len(listed) == len({entry["evaluatorId"] for entry in listed}) == 18
    assert {entry["evaluatorType"] for entry in listed} == {"Builtin"}
    helpful = served.control.get_evaluator(evaluatorId="Builtin.Helpfulness")
    assert helpful["evaluatorArn"] == "arn:aws:bedrock-agentcore:::evaluator/Builtin.Helpfulness"
    assert helpful["lockedForModification"] is True
    assert len(helpful["evaluatorConfig"]["llmAsAJudge"]["ratingScale"]["numerical"]) == 7
    matcher = served.control.get_evaluator(evaluatorId="Builtin.TrajectoryInOrderMatch")
    assert "evaluatorConfig" not in matcher and matcher["level"] == "SESSION"
    answer = refused(served.control.delete_evaluator, evaluatorId="Builtin.Helpfulness")
    assert answer["Error"]["Code"] == "ValidationException"
    assert refused(served.control.get_evaluator, evaluatorId="Builtin.Nothing")["Error"]["Code"] == (
        "ResourceNotFoundException"
    )


def test_paging_goes_on_where_it_was_though_others_are_added(served):
    for name in ("anna", "carl", "emil"):
        create(served.control, name)
    first = served.control.list_evaluators(maxResults=19)
    create(served.control, "aaron")

    rest = served.control.list_evaluators(maxResults=19, nextToken=first["nextToken"])

    names = [entry["evaluatorName"] for entry in [*first["evaluators"], *rest["evaluators"]]]
    assert names[18:] == ["anna", "carl", "emil"]
    assert "nextToken" not in rest


def token(*parts):
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nonsense",
        "W10=",
        token("jobs", "a", "b"),
        token("evaluators", "a"),
        token("evaluators", "kept", 1),
    ],
)
def test_a_token_somebody_made_up_is_refused(shared, token):
    answer = refused(shared.control.list_evaluators, nextToken=token)

    assert answer["Error"]["Code"] == "ValidationException"
    assert answer["fieldList"][0]["name"] == "nextToken"


def test_an_update_changes_what_it_names(served):
    made = create(served.control, description="first")
    changed = {**JUDGE["llmAsAJudge"], "instructions": "Is this kind? {assistant_turn}"}

    served.control.update_evaluator(evaluatorId=made["evaluatorId"], evaluatorConfig={"llmAsAJudge": changed})

    found = served.control.get_evaluator(evaluatorId=made["evaluatorId"])
    assert found["evaluatorConfig"]["llmAsAJudge"]["instructions"] == "Is this kind? {assistant_turn}"
    assert found["description"] == "first"


def test_a_deleted_evaluator_is_gone_and_its_name_free(served):
    made = create(served.control)

    deleted = served.control.delete_evaluator(evaluatorId=made["evaluatorId"])

    assert deleted["status"] == "DELETING"
    for call in (served.control.get_evaluator, served.control.delete_evaluator):
        assert refused(call, evaluatorId=made["evaluatorId"])["Error"]["Code"] == "ResourceNotFoundException"
    assert create(served.control)["evaluatorId"] != made["evaluatorId"]


def test_names_are_taken_once(served):
    create(served.control)

    answer = refused(lambda **_: create(served.control))

    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == (
        "ConflictException",
        409,
    )


def test_a_request_that_comes_again_with_its_token_changes_nothing(served):
    token = "a" * 40
    first = create(served.control, clientToken=token)

    again = create(served.control, clientToken=token)
    other = refused(lambda **_: create(served.control, "other", clientToken=token))

    assert again["evaluatorId"] == first["evaluatorId"]
    assert other["Error"]["Code"] == "ConflictException"
    assert len(served.control.list_evaluators()["evaluators"]) == 19


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"evaluatorName": "no-dashes"}, "evaluatorName"),
        ({"level": "EVERYTHING"}, "level"),
        ({"description": "x" * 201}, "description"),
        ({"kmsKeyArn": "arn:aws:kms:us-east-1:1:key/x"}, "kmsKeyArn"),
        ({"tags": {"bad!key": "x"}}, "tags.key"),
        ({"evaluatorConfig": {"codeBased": {"lambdaConfig": {"lambdaArn": "x"}}}},
         "evaluatorConfig.codeBased.lambdaConfig.lambdaArn"),
        ({"evaluatorConfig": {"llmAsAJudge": {**JUDGE["llmAsAJudge"], "instructions": "no place"}}},
         "evaluatorConfig.llmAsAJudge.instructions"),
        ({"evaluatorConfig": {"llmAsAJudge": {**JUDGE["llmAsAJudge"], "instructions": "{tool_turn}"}}},
         "evaluatorConfig.llmAsAJudge.instructions"),
        ({"evaluatorConfig": {"derived": {"baseEvaluatorId": "Builtin.TrajectoryInOrderMatch",
                                          "modelConfig": MODEL}}},
         "evaluatorConfig.derived.baseEvaluatorId"),
        ({"clientToken": "_" * 40}, "clientToken"),
    ],
)  # fmt: skip
def test_what_the_client_lets_pass_is_refused_by_its_field(shared, changed, field):
    answer = refused(lambda **_: create(shared.control, **changed))

    assert answer["Error"]["Code"] == "ValidationException"
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert answer["reason"] == "FieldValidationFailed"
    assert field in [each["name"] for each in answer["fieldList"]]


def test_everything_wrong_is_told_at_once(shared):
    answer = refused(
        lambda **_: create(shared.control, "no-dashes", level="EVERYTHING", description="x" * 201)
    )

    assert {each["name"] for each in answer["fieldList"]} == {"evaluatorName", "level", "description"}
    assert answer["message"].startswith("3 validation errors detected: Value at ")
    constraint = "failed to satisfy constraint: Member must have length less than or equal to 200"
    assert f"Value at 'description' {constraint}" in answer["message"]


def test_a_caller_cannot_bring_code_along(shared):
    body = {"evaluatorName": "evil", "level": "SESSION",
            "evaluatorConfig": {"codeBased": {"command": ["sh", "-c", "id"]}}}  # fmt: skip
    request = Request(f"{shared.url}/evaluators/create", json.dumps(body).encode(), method="POST")
    with pytest.raises(HTTPError) as caught:
        urlopen(request)

    assert caught.value.code == 400


def test_there_are_as_many_evaluators_as_the_limit_allows(serve):
    served = serve(evaluation={"limits": {"evaluators": 1}})
    create(served.control)

    answer = refused(lambda **_: create(served.control, "other"))

    assert (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]) == (
        "ServiceQuotaExceededException",
        402,
    )


def test_a_judge_that_cannot_run_here_is_refused_when_the_evaluation_starts(serve):
    model = {"bedrockEvaluatorModelConfig": {"modelId": "anthropic.claude-sonnet-4-20250514-v1:0"}}
    config = {"llmAsAJudge": {**JUDGE["llmAsAJudge"], "modelConfig": model}}
    source = {"cloudWatchLogs": {"serviceNames": ["Calc.DEFAULT"], "logGroupNames": ["/g"]}}

    def start(**evaluation):
        served = serve(command=["true"], evaluation={"limits": {"start_per_second": 0}, **evaluation})
        made = served.control.create_evaluator(
            evaluatorName=f"own{len(evaluation)}", level="TRACE", evaluatorConfig=config
        )
        return served.data.start_batch_evaluation(
            batchEvaluationName=f"n{len(evaluation)}",
            evaluators=[{"evaluatorId": made["evaluatorId"]}],
            dataSourceConfig=source,
        )

    with pytest.raises(ClientError) as caught:
        start()
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert start(models={"default": "scripted/ok"})["status"]
