"""Resources carry tags of the caller's own."""

import pytest
from botocore.exceptions import ClientError

OURS = "arn:aws:bedrock-agentcore:us-east-1:000000000000"
CONFIG = {"codeBased": {"lambdaConfig": {"lambdaArn": "arn:aws:lambda:us-east-1:123456789012:function:mine"}}}


@pytest.fixture
def arn(served):
    return served.control.create_evaluator(evaluatorName="tagged", level="SESSION", evaluatorConfig=CONFIG)[
        "evaluatorArn"
    ]


def refused(call, **members):
    with pytest.raises(ClientError) as caught:
        call(**members)
    return caught.value.response["Error"]["Code"]


def test_tags_are_added_changed_and_taken_away(served, arn):
    served.control.tag_resource(resourceArn=arn, tags={"team": "a", "stage": "test"})
    served.control.tag_resource(resourceArn=arn, tags={"team": "b"})
    served.control.untag_resource(resourceArn=arn, tagKeys=["stage", "never was"])

    assert served.control.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "b"}


def test_a_resource_has_at_most_fifty_tags(served, arn):
    served.control.tag_resource(resourceArn=arn, tags={f"t{number}": "" for number in range(50)})

    assert refused(served.control.tag_resource, resourceArn=arn, tags={"more": ""}) == (
        "ServiceQuotaExceededException"
    )
    assert len(served.control.list_tags_for_resource(resourceArn=arn)["tags"]) == 50


def test_tags_go_with_what_they_were_on(served, arn):
    served.control.tag_resource(resourceArn=arn, tags={"team": "a"})
    served.control.delete_evaluator(evaluatorId=arn.rpartition("/")[2])

    assert refused(served.control.list_tags_for_resource, resourceArn=arn) == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("arn", "code"),
    [
        (f"{OURS}:evaluator/none-0123456789", "ResourceNotFoundException"),
        (f"{OURS}:batch-evaluate/none-0123456789", "ResourceNotFoundException"),
        (f"{OURS}:online-evaluation-config/none-0123456789", "ResourceNotFoundException"),
        ("arn:aws:bedrock-agentcore:us-east-1:999999999999:runtime/x", "ResourceNotFoundException"),
        ("this is no arn at all, by far", "ValidationException"),
    ],
)
def test_what_is_not_there_has_no_tags(served, arn, code):
    assert refused(served.control.list_tags_for_resource, resourceArn=arn) == code
