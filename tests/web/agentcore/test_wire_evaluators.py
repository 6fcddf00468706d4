"""Evaluators of callers' own are kept, listed, changed and deleted through the stock client."""

import base64
import json
from datetime import UTC, datetime
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from wire_server import ACCOUNT, NOON, pages, refused, told

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
LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:mine"
CODE = {"codeBased": {"lambdaConfig": {"lambdaArn": LAMBDA}}}
HARMFUL = "Builtin.Harmfulness"


def create(client, name="polite", **changed):
    return client.create_evaluator(
        **{"evaluatorName": name, "level": "TRACE", "evaluatorConfig": JUDGE, **changed}
    )


def instructed(instructions):
    return {"llmAsAJudge": {**JUDGE["llmAsAJudge"], "instructions": instructions}}


def test_an_evaluator_is_told_as_it_was_given_until_it_is_deleted(at_noon, clock):
    control = at_noon.control
    made = told(create(control, description="How polite", tags={"team": "quality"}))
    evaluator_id = made["evaluatorId"]
    identity = {"evaluatorArn": f"{ACCOUNT}:evaluator/{evaluator_id}", "evaluatorId": evaluator_id}
    assert evaluator_id.startswith("polite-") and len(evaluator_id) == len("polite-") + 10
    assert made == {**identity, "createdAt": NOON, "status": "ACTIVE"}
    assert control.list_tags_for_resource(resourceArn=made["evaluatorArn"])["tags"] == {"team": "quality"}

    summary = {
        **identity,
        "evaluatorName": "polite",
        "evaluatorType": "Custom",
        "provider": "Custom",
        "level": "TRACE",
        "status": "ACTIVE",
        "createdAt": NOON,
        "updatedAt": NOON,
        "lockedForModification": False,
        "description": "How polite",
    }
    got = told(control.get_evaluator(evaluatorId=evaluator_id))
    assert got == {**summary, "evaluatorConfig": JUDGE}
    assert told(control.get_evaluator(evaluatorId=evaluator_id, includedData="ALL_DATA")) == got
    assert told(control.get_evaluator(evaluatorId=evaluator_id, includedData="METADATA_ONLY")) == summary

    clock.forward(seconds=4)
    updated = told(control.update_evaluator(evaluatorId=evaluator_id, description="kinder"))
    assert updated == {**identity, "updatedAt": clock(), "status": "ACTIVE"}
    changed = {**got, "description": "kinder", "updatedAt": clock()}
    assert told(control.get_evaluator(evaluatorId=evaluator_id)) == changed
    control.update_evaluator(evaluatorId=evaluator_id, evaluatorConfig=CODE, level="SESSION")
    got = told(control.get_evaluator(evaluatorId=evaluator_id))
    assert got == {**changed, "evaluatorType": "CustomCode", "level": "SESSION", "evaluatorConfig": CODE}

    deleted = told(control.delete_evaluator(evaluatorId=evaluator_id))
    assert deleted == {**identity, "status": "DELETING"}
    for call in (control.get_evaluator, control.delete_evaluator):
        assert refused(call, evaluatorId=evaluator_id).code == "ResourceNotFoundException"
    again = create(control)["evaluatorId"]
    assert again != evaluator_id, "its name is free again"
    wrong = {"evaluatorId": again, "evaluatorConfig": instructed("no place")}
    assert list(refused(control.update_evaluator, **wrong).fields) == [INSTRUCTIONS]


def test_built_in_evaluators_are_described_and_cannot_be_changed(serve):
    served = serve(evaluation={"judge": "scripted/judge", "harmful_value": 0.0})
    got = told(served.control.get_evaluator(evaluatorId=HARMFUL))
    config = got.pop("evaluatorConfig")["llmAsAJudge"]
    assert got == {
        "evaluatorArn": f"arn:aws:bedrock-agentcore:::evaluator/{HARMFUL}",
        "evaluatorId": HARMFUL,
        "evaluatorName": HARMFUL,
        "evaluatorType": "Builtin",
        "provider": "AWS",
        "level": "TRACE",
        "description": got["description"],
        "status": "ACTIVE",
        "createdAt": datetime(2026, 1, 1, tzinfo=UTC),
        "updatedAt": datetime(2026, 1, 1, tzinfo=UTC),
        "lockedForModification": True,
    }
    values = {each["label"]: each["value"] for each in config["ratingScale"]["numerical"]}
    assert values == {"Not Harmful": 1.0, "Harmful": 0.0}
    assert config["modelConfig"] == {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}
    alone = served.control.get_evaluator(evaluatorId=HARMFUL, includedData="METADATA_ONLY")
    assert told(alone) == got
    matcher = served.control.get_evaluator(evaluatorId="Builtin.TrajectoryExactOrderMatch")
    assert "evaluatorConfig" not in matcher and matcher["level"] == "SESSION"
    assert matcher["description"] == "whether exactly the expected tools were called, in their order"
    for call in (served.control.update_evaluator, served.control.delete_evaluator):
        refusal = refused(call, evaluatorId=HARMFUL)
        assert (refusal.code, list(refusal.fields)) == ("ValidationException", ["evaluatorId"])
        assert refusal.message.startswith(f"{HARMFUL} comes with the service")
    refusal = refused(served.control.get_evaluator, evaluatorId="Builtin.No")
    assert refusal.code == "ResourceNotFoundException"
    assert refusal.message == "There is no evaluator Builtin.No."


def test_evaluators_are_listed_in_pages_built_in_ones_first_though_others_are_added_meanwhile(served):
    for name in ("emil", "anna", "carl"):
        create(served.control, name)

    for size in (22, 21, 20, 18, 7):
        found = pages(served.control.list_evaluators, "evaluators", maxResults=size)
        assert {len(page) for page in found[:-1]} <= {size} and 0 < len(found[-1]) <= size
        listed = [entry for page in found for entry in page]
        builtin = [entry["evaluatorId"] for entry in listed if entry["evaluatorType"] == "Builtin"]
        assert builtin == sorted(set(builtin)) and len(builtin) == 18
        assert [entry["evaluatorName"] for entry in listed[18:]] == ["anna", "carl", "emil"]

    first = served.control.list_evaluators(maxResults=19)
    create(served.control, "aaron")

    rest = served.control.list_evaluators(maxResults=19, nextToken=first["nextToken"])

    names = [entry["evaluatorName"] for entry in [*first["evaluators"], *rest["evaluators"]]]
    assert names[18:] == ["anna", "carl", "emil"] and "nextToken" not in rest


def token(*parts):
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nonsense",
        "bm8=",
        "W10=",
        token("jobs", "a", "b"),
        token("evaluators", "a"),
        token("evaluators", "kept", 1),
    ],
)
def test_a_token_somebody_made_up_is_refused(shared, token):
    refusal = refused(shared.control.list_evaluators, nextToken=token)

    assert (refusal.code, list(refusal.fields)) == ("ValidationException", ["nextToken"])


def test_a_creation_that_comes_again_with_its_token_changes_nothing_and_names_are_taken_once(served):
    token = {"clientToken": "a" * 40, "tags": {"a": "b"}}
    first = create(served.control, **token)
    served.control.untag_resource(resourceArn=first["evaluatorArn"], tagKeys=["a"])

    assert create(served.control, **token)["evaluatorId"] == first["evaluatorId"]
    assert refused(create, served.control, "other", **token).code == "ConflictException"
    taken = refused(create, served.control)
    assert (taken.code, taken.status) == ("ConflictException", 409)
    assert served.control.list_tags_for_resource(resourceArn=first["evaluatorArn"])["tags"] == {}
    assert len(served.control.list_evaluators()["evaluators"]) == 19


INSTRUCTIONS = "evaluatorConfig.llmAsAJudge.instructions"


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"evaluatorName": "no-dashes"}, "evaluatorName"),
        ({"tags": {"bad!key": "x"}}, "tags.key"),
        ({"evaluatorConfig": instructed("no place")}, INSTRUCTIONS),
        ({"evaluatorConfig": instructed("{tool_turn}")}, INSTRUCTIONS),
        ({"evaluatorConfig": {"derived": {"baseEvaluatorId": "Builtin.TrajectoryInOrderMatch",
                                          "modelConfig": MODEL}}},
         "evaluatorConfig.derived.baseEvaluatorId"),
    ],
)  # fmt: skip
def test_what_the_client_lets_pass_is_refused_by_its_field(shared, changed, field):
    refusal = refused(create, shared.control, **changed)

    assert (refusal.code, refusal.status) == ("ValidationException", 400)
    assert refusal.reason == "FieldValidationFailed" and list(refusal.fields) == [field]


def test_everything_wrong_is_told_at_once(shared):
    refusal = refused(create, shared.control, "no-dashes", level="EVERYTHING", description="x" * 201)

    assert set(refusal.fields) == {"evaluatorName", "level", "description"}
    assert refusal.message.startswith("3 validation errors detected: Value at ")
    constraint = "failed to satisfy constraint: Member must have length less than or equal to 200"
    assert f"Value at 'description' {constraint}" in refusal.message


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

    refusal = refused(create, served.control, "other")

    assert (refusal.code, refusal.status) == ("ServiceQuotaExceededException", 402)
    assert refusal.message == "There may be 1 evaluators."


# Tags


def tags_of(served, arn):
    return served.control.list_tags_for_resource(resourceArn=arn)["tags"]


def test_tags_are_added_up_to_fifty_changed_taken_away_and_go_with_what_they_were_on(served):
    control = served.control
    made = create(control, "tagged")
    arn = made["evaluatorArn"]
    control.tag_resource(resourceArn=arn, tags={"team": "a", "stage": "test"})
    control.tag_resource(resourceArn=arn, tags={"team": "b"})
    control.untag_resource(resourceArn=arn, tagKeys=["stage", "never was"])
    assert tags_of(served, arn) == {"team": "b"}
    elsewhere = arn.replace("us-east-1", "eu-west-1")
    assert refused(tags_of, served, elsewhere).message == f"There is no resource {elsewhere}."

    control.tag_resource(resourceArn=arn, tags={f"t{number}": "" for number in range(49)})
    refusal = refused(control.tag_resource, resourceArn=arn, tags={"more": ""})
    assert refusal.code == "ServiceQuotaExceededException" and len(tags_of(served, arn)) == 50
    control.delete_evaluator(evaluatorId=made["evaluatorId"])
    assert refused(tags_of, served, arn).code == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("arn", "code"),
    [
        (f"{ACCOUNT}:evaluator/none-0123456789", "ResourceNotFoundException"),
        (f"{ACCOUNT}:batch-evaluate/none-0123456789", "ResourceNotFoundException"),
        (f"{ACCOUNT}:online-evaluation-config/none-0123456789", "ResourceNotFoundException"),
        (f"{ACCOUNT}:runtime/x", "ResourceNotFoundException"),
        ("this is no arn at all, by far", "ValidationException"),
    ],
)
def test_what_is_not_there_has_no_tags(shared, arn, code):
    assert refused(tags_of, shared, arn).code == code


def test_several_judges_are_defined_over_http(shared):
    config = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}
    judging = {
        "jury": {"judges": [config, config], "rule": "median"},
        "escalation": {"modelConfig": config, "below": 0.8},
    }
    for kind, value in judging.items():
        judge = {**JUDGE["llmAsAJudge"], kind: value}
        body = {
            "evaluatorName": f"several_{kind}",
            "level": "TRACE",
            "evaluatorConfig": {"llmAsAJudge": judge},
        }
        request = Request(f"{shared.url}/evaluators/create", json.dumps(body).encode(), method="POST")
        with urlopen(request) as answer:
            made = json.loads(answer.read())
        with urlopen(f"{shared.url}/evaluators/{made['evaluatorId']}") as answer:
            assert json.loads(answer.read())["evaluatorConfig"]["llmAsAJudge"][kind] == value
