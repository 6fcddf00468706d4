"""Datasets of test scenarios: a draft of examples, versions, a link to download them."""

import json
import uuid

import httpx2 as httpx
import pytest
from botocore.exceptions import ClientError

PREDEFINED, SIMULATED, OTHER = (
    "AGENTCORE_EVALUATION_PREDEFINED_V1",
    "AGENTCORE_EVALUATION_SIMULATED_V1",
    "THIRD_PARTY_EVALUATION_V1",
)


def scenario(name, **members):
    return {"scenario_id": name, "turns": [{"input": f"Do {name}.", "expected_response": "Done."}], **members}


def inline(*examples):
    return {"inlineExamples": {"examples": list(examples)}}


TWO = (scenario("book"), scenario("cancel"))


def create(served, name="travel", examples=TWO, **members):
    answer = served.control.create_dataset(
        datasetName=name,
        schemaType=members.pop("schemaType", PREDEFINED),
        source=members.pop("source", None) or inline(*examples),
        **members,
    )
    assert answer["status"] == "CREATING"
    return answer["datasetId"]


def scenarios(served, dataset_id, **members):
    page = served.control.list_dataset_examples(datasetId=dataset_id, **members)
    return [each["scenario_id"] for each in page["examples"]]


def refused(call, **members):
    with pytest.raises(ClientError) as caught:
        call(**members)
    error = caught.value.response
    fields = [each["name"] for each in error.get("fieldList", [])]
    return error["Error"]["Code"], fields or error["Error"]["Message"]


def test_a_dataset_is_created_read_described_and_deleted(served):
    dataset_id = create(served, description="first", tags={"team": "a"})

    got = served.control.get_dataset(datasetId=dataset_id)
    assert (got["status"], got["draftStatus"], got["datasetVersion"]) == ("ACTIVE", "MODIFIED", "DRAFT")
    assert (got["exampleCount"], got["tags"], got["description"]) == (2, {"team": "a"}, "first")
    served.control.update_dataset(datasetId=dataset_id, description="second")
    (listed,) = served.control.list_datasets()["datasets"]
    assert (listed["datasetName"], listed["description"]) == ("travel", "second")

    served.control.delete_dataset(datasetId=dataset_id)
    assert served.control.list_datasets()["datasets"] == []
    assert refused(served.control.get_dataset, datasetId=dataset_id)[0] == "ResourceNotFoundException"
    # Its name is free again.
    create(served)


def test_the_link_gives_every_example_without_a_token_for_five_minutes(served):
    dataset_id = create(served, examples=[scenario(f"s{number}") for number in range(700)])
    link = served.control.get_dataset(datasetId=dataset_id)["downloadUrl"]

    lines = [json.loads(line) for line in httpx.get(link).text.splitlines()]

    assert [line["scenario_id"] for line in lines] == [f"s{number}" for number in range(700)]
    assert len({line["exampleId"] for line in lines}) == 700
    assert httpx.get(link.replace("DRAFT", "1")).status_code == 403
    assert httpx.get(link.partition("?")[0]).status_code == 403


def test_examples_are_added_replaced_and_removed_all_or_none(served):
    dataset_id = create(served)
    first = served.control.list_dataset_examples(datasetId=dataset_id)["examples"][0]["exampleId"]

    added = served.control.add_dataset_examples(datasetId=dataset_id, source=inline(scenario("pay")))
    assert (added["addedCount"], len(added["exampleIds"])) == (1, 1)
    changed = {**scenario("book a flight"), "exampleId": first}
    assert (
        served.control.update_dataset_examples(datasetId=dataset_id, examples=[changed])["updatedCount"] == 1
    )
    assert scenarios(served, dataset_id) == ["book a flight", "cancel", "pay"]

    wrong = {"datasetId": dataset_id, "exampleIds": [first, "nobody"]}
    assert refused(served.control.delete_dataset_examples, **wrong)[0] == "ResourceNotFoundException"
    changes = [{**scenario("x"), "exampleId": first}, {**scenario("y"), "exampleId": "nobody"}]
    code, _ = refused(served.control.update_dataset_examples, datasetId=dataset_id, examples=changes)
    assert code == "ResourceNotFoundException"
    assert scenarios(served, dataset_id) == ["book a flight", "cancel", "pay"]

    served.control.delete_dataset_examples(datasetId=dataset_id, exampleIds=[first])
    assert scenarios(served, dataset_id) == ["cancel", "pay"]


def test_a_version_stays_as_it_was_published(served):
    dataset_id = create(served)

    published = served.control.create_dataset_version(datasetId=dataset_id)
    assert (published["datasetVersion"], published["status"]) == ("1", "UPDATING")
    assert served.control.get_dataset(datasetId=dataset_id)["draftStatus"] == "UNMODIFIED"
    served.control.add_dataset_examples(datasetId=dataset_id, source=inline(scenario("pay")))
    served.control.create_dataset_version(datasetId=dataset_id)

    assert scenarios(served, dataset_id, datasetVersion="1") == ["book", "cancel"]
    assert scenarios(served, dataset_id, datasetVersion="2") == ["book", "cancel", "pay"]
    got = served.control.get_dataset(datasetId=dataset_id, datasetVersion="1")
    assert (got["datasetVersion"], got["exampleCount"]) == ("1", 2)
    assert len(httpx.get(got["downloadUrl"]).text.splitlines()) == 2
    pages = served.control.get_paginator("list_dataset_versions").paginate(
        datasetId=dataset_id, PaginationConfig={"PageSize": 1}
    )
    assert [each["datasetVersion"] for page in pages for each in page["versions"]] == ["2", "1"]

    served.control.delete_dataset(datasetId=dataset_id, datasetVersion="2")
    # No number is used twice.
    assert served.control.create_dataset_version(datasetId=dataset_id)["datasetVersion"] == "3"
    for call in (served.control.get_dataset, served.control.list_dataset_examples):
        code, _ = refused(call, datasetId=dataset_id, datasetVersion="2")
        assert code == "ResourceNotFoundException"
    code, _ = refused(served.control.delete_dataset, datasetId=dataset_id, datasetVersion="DRAFT")
    assert code == "ValidationException"


def test_pages_of_examples_stay_with_their_version(served):
    dataset_id = create(served, examples=[scenario(f"s{number}") for number in range(5)])
    served.control.create_dataset_version(datasetId=dataset_id)

    page = served.control.list_dataset_examples(datasetId=dataset_id, datasetVersion="1", maxResults=2)
    served.control.delete_dataset_examples(
        datasetId=dataset_id,
        exampleIds=[each["exampleId"] for each in page["examples"]],
    )
    found = [each["scenario_id"] for each in page["examples"]]
    while "nextToken" in page:
        page = served.control.list_dataset_examples(datasetId=dataset_id, nextToken=page["nextToken"])
        assert page["datasetVersion"] == "1"
        found += [each["scenario_id"] for each in page["examples"]]

    assert found == [f"s{number}" for number in range(5)]
    assert refused(served.control.list_dataset_examples, datasetId=dataset_id, nextToken="x")[0] == (
        "ValidationException"
    )


def test_a_repeated_request_with_the_same_token_changes_nothing(served):
    tokens = [str(uuid.uuid4()) for _ in range(4)]
    dataset_id = create(served, clientToken=tokens[0])
    assert create(served, clientToken=tokens[0]) == dataset_id
    code, _ = refused(
        served.control.create_dataset,
        datasetName="other",
        schemaType=PREDEFINED,
        source=inline(scenario("book")),
        clientToken=tokens[0],
    )
    assert code == "ConflictException"
    add = {"datasetId": dataset_id, "source": inline(scenario("pay")), "clientToken": tokens[1]}
    answers = [served.control.add_dataset_examples(**add) for _ in range(2)]
    assert answers[0]["exampleIds"] == answers[1]["exampleIds"]
    assert scenarios(served, dataset_id) == ["book", "cancel", "pay"]
    version = {"datasetId": dataset_id, "clientToken": tokens[2]}
    assert [served.control.create_dataset_version(**version)["datasetVersion"] for _ in range(2)] == [
        "1",
        "1",
    ]
    remove = {"datasetId": dataset_id, "exampleIds": answers[0]["exampleIds"], "clientToken": tokens[3]}
    assert [served.control.delete_dataset_examples(**remove)["deletedCount"] for _ in range(2)] == [1, 1]

    served.control.delete_dataset(datasetId=dataset_id)
    assert create(served, clientToken=tokens[0]) != dataset_id


@pytest.mark.parametrize(
    ("schema", "example", "field"),
    [
        (PREDEFINED, {"turns": [{"input": "x"}]}, "scenario_id"),
        (PREDEFINED, {"scenario_id": "a", "turns": []}, "turns"),
        (PREDEFINED, {"scenario_id": "a", "turns": [{"expected_response": "x"}]}, "turns.1.member.input"),
        (PREDEFINED, {**scenario("a"), "expected_trajectory": "search"}, "expected_trajectory"),
        (PREDEFINED, {**scenario("a"), "assertions": [3]}, "assertions.1.member"),
        (SIMULATED, {"scenario_id": "a", "input": "hi"}, "actor_profile"),
        (
            SIMULATED,
            {"scenario_id": "a", "input": "hi", "actor_profile": {"context": "c"}},
            "actor_profile.goal",
        ),
        (
            SIMULATED,
            {
                "scenario_id": "a",
                "input": {"x": 1},
                "actor_profile": {"context": "", "goal": ""},
                "max_turns": 0,
            },
            "max_turns",
        ),
        (OTHER, "text", ""),
    ],
)
def test_an_example_that_does_not_fit_its_schema_is_named(shared, schema, example, field):
    members = {"datasetName": "wrong", "schemaType": schema, "source": inline(scenario("fine"), example)}

    code, fields = refused(shared.control.create_dataset, **members)

    path = "source.inlineExamples.examples.2.member" + (f".{field}" if field else "")
    assert code == "ValidationException"
    assert path in fields
    assert shared.control.list_datasets()["datasets"] == []


def test_other_schemas_take_any_object_and_simulations_their_actor(served):
    actor = {"context": "a traveler", "goal": "a flight", "traits": {"patience": "low"}}
    simulated = {"scenario_id": "s", "input": {"text": "hi"}, "actor_profile": actor, "max_turns": 3}
    create(served, "any", [{"anything": [1, {"goes": None}]}], schemaType=OTHER)
    dataset_id = create(served, "actors", [simulated], schemaType=SIMULATED)

    (example,) = served.control.list_dataset_examples(datasetId=dataset_id)["examples"]

    assert {name: value for name, value in example.items() if name != "exampleId"} == simulated


def test_a_scenario_is_in_a_dataset_once(served):
    dataset_id = create(served)

    add = {"datasetId": dataset_id, "source": inline(scenario("pay"), scenario("book"))}
    assert refused(served.control.add_dataset_examples, **add) == ("ValidationException", ["scenario_id"])
    twice = {"datasetName": "b", "schemaType": PREDEFINED, "source": inline(scenario("a"), scenario("a"))}
    assert refused(served.control.create_dataset, **twice) == ("ValidationException", ["scenario_id"])
    assert scenarios(served, dataset_id) == ["book", "cancel"]


def test_names_are_unique_and_numbers_limited(serve):
    served = serve(evaluation={"limits": {"datasets": 2, "dataset_examples": 3}})
    dataset_id = create(served)

    again = {"datasetName": "travel", "schemaType": PREDEFINED, "source": inline(scenario("x"))}
    assert refused(served.control.create_dataset, **again)[0] == "ConflictException"
    many = {"datasetId": dataset_id, "source": inline(scenario("x"), scenario("y"))}
    assert refused(served.control.add_dataset_examples, **many)[0] == "ServiceQuotaExceededException"
    create(served, "second")
    again["datasetName"] = "third"
    assert refused(served.control.create_dataset, **again)[0] == "ServiceQuotaExceededException"


def test_a_bucket_is_a_folder_of_the_settings(serve, tmp_path):
    (tmp_path / "bucket").mkdir()
    lines = [json.dumps(scenario("one")), "", json.dumps(scenario("two"))]
    (tmp_path / "bucket" / "examples.jsonl").write_text("\n".join(lines))
    (tmp_path / "bucket" / "broken.jsonl").write_text('{"scenario_id": "x"\n')
    (tmp_path / "secret.jsonl").write_text(lines[0])
    served = serve(evaluation={"buckets": {"my-bucket": str(tmp_path / "bucket")}})

    def source(name, bucket="my-bucket"):
        return {"s3Source": {"s3Uri": f"s3://{bucket}/{name}"}}

    dataset_id = create(served, source=source("examples.jsonl"))
    assert scenarios(served, dataset_id) == ["one", "two"]
    (tmp_path / "bucket" / "out.jsonl").symlink_to(tmp_path / "secret.jsonl")
    for wrong in ("none.jsonl", "../secret.jsonl", "out.jsonl", "broken.jsonl", "x" * 1000):
        members = {"datasetName": "w", "schemaType": PREDEFINED, "source": source(wrong)}
        assert refused(served.control.create_dataset, **members)[0] == "ValidationException"
    elsewhere = {"datasetName": "w", "schemaType": PREDEFINED, "source": source("x", "elsewhere")}
    with pytest.raises(ClientError, match=r"\[evaluation.buckets\]"):
        served.control.create_dataset(**elsewhere)


def test_tags_of_datasets(served):
    dataset_id = create(served, tags={"team": "a"})
    arn = served.control.get_dataset(datasetId=dataset_id)["datasetArn"]

    served.control.tag_resource(resourceArn=arn, tags={"stage": "test"})

    assert served.control.list_tags_for_resource(resourceArn=arn)["tags"] == {"team": "a", "stage": "test"}
    served.control.delete_dataset(datasetId=dataset_id)
    assert refused(served.control.list_tags_for_resource, resourceArn=arn)[0] == "ResourceNotFoundException"


def test_datasets_are_listed_in_pages(served):
    ids = sorted(create(served, f"d{number}") for number in range(3))

    pages = served.control.get_paginator("list_datasets").paginate(PaginationConfig={"PageSize": 2})

    assert [each["datasetId"] for page in pages for each in page["datasets"]] == ids
