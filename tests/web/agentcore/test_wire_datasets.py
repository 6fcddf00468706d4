"""Datasets of test scenarios: a draft of examples, versions, a link to download them."""

import json
import re
import uuid
from datetime import timedelta

import httpx2 as httpx
import pytest
from wire_server import ACCOUNT, NOON, pages, refused, told

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
ACTED = {"scenario_id": "a", "input": "hi"}


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


def test_a_dataset_is_told_as_it_was_given_until_it_is_deleted(at_noon, clock):
    control = at_noon.control
    created = told(
        control.create_dataset(
            datasetName="travel",
            schemaType=PREDEFINED,
            source=inline(*TWO),
            description="flights",
            tags={"team": "a"},
        )
    )
    dataset_id = created["datasetId"]
    about = {"datasetId": dataset_id}
    identity = {"datasetArn": f"{ACCOUNT}:dataset/{dataset_id}", **about}
    assert re.fullmatch(r"travel-[a-zA-Z0-9]{10}", dataset_id)
    assert created == {**identity, "status": "CREATING", "createdAt": NOON}
    summary = {
        **identity,
        "datasetName": "travel",
        "status": "ACTIVE",
        "draftStatus": "MODIFIED",
        "schemaType": PREDEFINED,
        "exampleCount": 2,
        "createdAt": NOON,
        "updatedAt": NOON,
        "description": "flights",
    }
    assert control.list_datasets()["datasets"] == [summary]
    got = told(control.get_dataset(**about))
    link = got.pop("downloadUrl")
    expires = NOON + timedelta(minutes=5)
    expected = {**summary, "datasetVersion": "DRAFT", "downloadUrlExpiresAt": expires, "tags": {"team": "a"}}
    assert got == expected
    seconds = int(expires.timestamp())
    path = rf"/dataset-files/{dataset_id}/DRAFT\?expires={seconds}&signature=[0-9a-f]{{64}}"
    assert re.fullmatch(re.escape(at_noon.url) + path, link)

    clock.forward(seconds=5)
    assert told(control.update_dataset(**about)) == {**identity, "updatedAt": clock()}
    assert control.get_dataset(**about)["description"] == "flights"
    control.update_dataset(**about, description="trains")
    got = control.get_dataset(**about)
    assert (got["description"], got["createdAt"], got["updatedAt"]) == ("trains", NOON, clock())

    deleted = told(control.delete_dataset(**about))
    assert deleted == {**identity, "status": "DELETING", "datasetVersion": "DRAFT", "updatedAt": clock()}
    assert control.list_datasets()["datasets"] == []
    assert refused(control.get_dataset, **about).code == "ResourceNotFoundException"
    tags = refused(control.list_tags_for_resource, resourceArn=identity["datasetArn"])
    assert tags.code == "ResourceNotFoundException"
    plain = control.get_dataset(datasetId=create(at_noon))
    assert not {"description", "tags", "kmsKeyArn"} & set(plain)


def test_the_link_gives_every_example_of_its_version_for_five_minutes(at_noon, clock):
    dataset_id = create(at_noon, examples=[scenario(f"ä{number}") for number in range(700)])
    link = at_noon.control.get_dataset(datasetId=dataset_id)["downloadUrl"]

    answer = httpx.get(link)
    lines = [json.loads(line) for line in answer.text.splitlines()]

    assert answer.headers["content-type"].startswith("application/x-ndjson") and "ä0" in answer.text
    assert [line["scenario_id"] for line in lines] == [f"ä{number}" for number in range(700)]
    assert len({line["exampleId"] for line in lines}) == 700
    invalid = (403, "The link is not valid; GetDataset returns a new one.")
    expires = int((NOON + timedelta(minutes=5)).timestamp())
    for wrong in (
        link.replace("DRAFT", "1"),
        link.partition("?")[0],
        link.replace(str(expires), str(expires + 1)),
    ):
        answer = httpx.get(wrong)
        assert (answer.status_code, answer.json()["message"]) == invalid
    clock.forward(minutes=5)
    assert httpx.get(link).status_code == 200
    clock.forward(seconds=1)
    answer = httpx.get(link)
    expired = "The link has expired; GetDataset returns a new one."
    assert (answer.status_code, answer.json()["message"]) == (403, expired)


def test_examples_are_added_replaced_and_removed_all_or_none(served):
    dataset_id = create(served, examples=[{**scenario("book"), "exampleId": "mine"}, scenario("cancel")])
    first = served.control.list_dataset_examples(datasetId=dataset_id)["examples"][0]["exampleId"]
    assert first != "mine", "it has no id of its caller's choice"

    added = served.control.add_dataset_examples(datasetId=dataset_id, source=inline(scenario("pay")))
    assert (added["addedCount"], len(added["exampleIds"])) == (1, 1)
    changed = {**scenario("book a flight"), "exampleId": first}
    updated = served.control.update_dataset_examples(datasetId=dataset_id, examples=[changed])
    assert updated["updatedCount"] == 1
    assert scenarios(served, dataset_id) == ["book a flight", "cancel", "pay"]

    wrong = {"datasetId": dataset_id, "exampleIds": [first, "nobody"]}
    assert refused(served.control.delete_dataset_examples, **wrong).code == "ResourceNotFoundException"
    changes = [{**scenario("x"), "exampleId": first}, {**scenario("y"), "exampleId": "nobody"}]
    refusal = refused(served.control.update_dataset_examples, datasetId=dataset_id, examples=changes)
    assert refusal.code == "ResourceNotFoundException"
    assert scenarios(served, dataset_id) == ["book a flight", "cancel", "pay"]

    twice = served.control.delete_dataset_examples(datasetId=dataset_id, exampleIds=[first, first])
    assert twice["deletedCount"] == 1, "an id that is named twice is one"
    assert scenarios(served, dataset_id) == ["cancel", "pay"]


def test_examples_that_cannot_replace_others_are_refused(served):
    dataset_id = create(served)
    listed = served.control.list_dataset_examples(datasetId=dataset_id)["examples"]
    book, cancel = (each["exampleId"] for each in listed)

    def violations(*examples):
        call = served.control.update_dataset_examples
        return refused(call, datasetId=dataset_id, examples=list(examples)).fields

    assert violations(
        {**scenario("x"), "exampleId": book}, {"exampleId": cancel, "scenario_id": ""}, scenario("y")
    ) == {
        "examples.3.member.exampleId": "Member must not be null",
        "examples.2.member.scenario_id": "Member must have length greater than or equal to 1",
        "examples.2.member.turns": "Member must not be null",
    }
    expected = {"examples": "Member must not name an example twice"}
    assert violations({**scenario("x"), "exampleId": book}, {**scenario("y"), "exampleId": book}) == expected
    expected = {"scenario_id": "Member must be unique within the dataset"}
    assert violations({**scenario("cancel"), "exampleId": book}) == expected
    # Its own scenario it may keep.
    kept = [{**scenario("book"), "exampleId": book}]
    assert served.control.update_dataset_examples(datasetId=dataset_id, examples=kept)["updatedCount"] == 1


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
    for size, counts in ((1, [1, 1]), (2, [2])):
        found = pages(served.control.list_dataset_versions, "versions", datasetId=dataset_id, maxResults=size)
        assert [len(page) for page in found] == counts
        listed = [(each["datasetVersion"], each["exampleCount"]) for page in found for each in page]
        assert listed == [("2", 3), ("1", 2)]

    deleted = served.control.delete_dataset(datasetId=dataset_id, datasetVersion="2")
    assert (deleted["status"], deleted["datasetVersion"]) == ("UPDATING", "2")
    # No number is used twice.
    assert served.control.create_dataset_version(datasetId=dataset_id)["datasetVersion"] == "3"
    for call in (served.control.get_dataset, served.control.list_dataset_examples):
        for version in ("2", "99999"):
            refusal = refused(call, datasetId=dataset_id, datasetVersion=version)
            assert refusal.code == "ResourceNotFoundException"
    refusal = refused(served.control.delete_dataset, datasetId=dataset_id, datasetVersion="DRAFT")
    assert refusal.message == "The draft cannot be deleted alone."
    assert list(refusal.fields) == ["datasetVersion"]


def test_pages_of_examples_stay_with_their_version(served):
    dataset_id = create(served, examples=[scenario(f"s{number}") for number in range(5)])
    served.control.create_dataset_version(datasetId=dataset_id)

    page = served.control.list_dataset_examples(datasetId=dataset_id, datasetVersion="1", maxResults=2)
    served.control.delete_dataset_examples(
        datasetId=dataset_id, exampleIds=[each["exampleId"] for each in page["examples"]]
    )
    found = [each["scenario_id"] for each in page["examples"]]
    while "nextToken" in page:
        page = served.control.list_dataset_examples(datasetId=dataset_id, nextToken=page["nextToken"])
        assert page["datasetVersion"] == "1"
        found += [each["scenario_id"] for each in page["examples"]]

    assert found == [f"s{number}" for number in range(5)]
    assert refused(scenarios, served, dataset_id, nextToken="x").code == "ValidationException"
    whole = served.control.list_dataset_examples(datasetId=dataset_id, maxResults=3)
    assert len(whole["examples"]) == 3 and "nextToken" not in whole


def test_a_repeated_request_with_the_same_token_changes_nothing(served):
    tokens = [str(uuid.uuid4()) for _ in range(4)]
    dataset_id = create(served, clientToken=tokens[0])
    assert create(served, clientToken=tokens[0]) == dataset_id
    assert refused(create, served, "other", clientToken=tokens[0]).code == "ConflictException"
    add = {"datasetId": dataset_id, "source": inline(scenario("pay")), "clientToken": tokens[1]}
    answers = [served.control.add_dataset_examples(**add) for _ in range(2)]
    assert answers[0]["exampleIds"] == answers[1]["exampleIds"]
    assert scenarios(served, dataset_id) == ["book", "cancel", "pay"]
    version = {"datasetId": dataset_id, "clientToken": tokens[2]}
    versions = [served.control.create_dataset_version(**version)["datasetVersion"] for _ in range(2)]
    assert versions == ["1", "1"]
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
        (SIMULATED, ACTED, "actor_profile"),
        (SIMULATED, {**ACTED, "actor_profile": {"context": "c"}}, "actor_profile.goal"),
        (SIMULATED, {**ACTED, "actor_profile": {"context": "", "goal": ""}, "max_turns": 0}, "max_turns"),
        (OTHER, "text", ""),
    ],
)
def test_an_example_that_does_not_fit_its_schema_is_named(shared, schema, example, field):
    refusal = refused(create, shared, examples=[scenario("fine"), example], schemaType=schema)

    path = "source.inlineExamples.examples.2.member" + (f".{field}" if field else "")
    assert refusal.code == "ValidationException" and path in refusal.fields
    assert shared.control.list_datasets()["datasets"] == []


def test_a_scenario_is_in_a_dataset_once_and_other_schemas_take_any_object(served):
    dataset_id = create(served)
    add = {"datasetId": dataset_id, "source": inline(scenario("pay"), scenario("book"))}
    assert list(refused(served.control.add_dataset_examples, **add).fields) == ["scenario_id"]
    twice = refused(create, served, "b", [scenario("a"), scenario("a")])
    assert (twice.message, list(twice.fields)) == ("Two examples have the scenario_id a.", ["scenario_id"])
    assert scenarios(served, dataset_id) == ["book", "cancel"]
    # Those that have none are not taken for the same.
    create(served, "any", [{"x": 1}, {"x": 2}, {"anything": [1, {"goes": None}]}], schemaType=OTHER)
    actor = {"context": "a traveler", "goal": "a flight", "traits": {"patience": "low"}}
    simulated = {"scenario_id": "s", "input": {"text": "hi"}, "actor_profile": actor, "max_turns": 3}
    dataset_id = create(served, "actors", [simulated], schemaType=SIMULATED)
    (example,) = served.control.list_dataset_examples(datasetId=dataset_id)["examples"]
    assert {name: value for name, value in example.items() if name != "exampleId"} == simulated


def test_names_are_unique_and_numbers_limited(serve):
    served = serve(evaluation={"limits": {"datasets": 2, "dataset_examples": 3}})
    dataset_id = create(served)
    full = ("ServiceQuotaExceededException", "A dataset may have 3 examples.")

    assert refused(create, served).code == "ConflictException"
    refusal = refused(create, served, "many", [scenario(name) for name in "abcd"])
    assert (refusal.code, refusal.message) == full
    one = {"datasetId": dataset_id, "source": inline(scenario("c")), "clientToken": "t" * 40}
    first = served.control.add_dataset_examples(**one)
    more = {"datasetId": dataset_id, "source": inline(scenario("d"))}
    refusal = refused(served.control.add_dataset_examples, **more)
    assert (refusal.code, refusal.message) == full
    # What was added already is not counted twice.
    assert served.control.add_dataset_examples(**one)["exampleIds"] == first["exampleIds"]
    create(served, "second", [scenario(name) for name in "abc"])
    refusal = refused(create, served, "third")
    assert (refusal.code, refusal.message) == ("ServiceQuotaExceededException", "There may be 2 datasets.")


def test_a_bucket_is_a_folder_of_the_settings(serve, tmp_path):
    bucket = tmp_path / "bucket"
    (bucket / "folder").mkdir(parents=True)
    line = json.dumps(scenario("one"))
    for name, text in {
        "folder/good.jsonl": f"\n{line}\n\n{json.dumps(scenario('two'))}\n",
        "exact.jsonl": line.ljust(2000),
        "large.jsonl": line.ljust(2001),
        "empty.jsonl": "\n \n",
        "broken.jsonl": f"{line}\n\n{{",
        "list.jsonl": "[]",
        "wrong.jsonl": f'{line}\n{{"turns": []}}',
        "../secret.jsonl": line,
    }.items():
        (bucket / name).write_text(text)
    (bucket / "out.jsonl").symlink_to(tmp_path / "secret.jsonl")
    served = serve(evaluation={"buckets": {"my-bucket": "bucket"}, "limits": {"body_bytes": 2000}})

    def created_from(name, bucket="my-bucket"):
        source = {"s3Source": {"s3Uri": f"s3://{bucket}/{name}"}}
        return create(served, f"d{uuid.uuid4().hex}", source=source)

    assert scenarios(served, created_from("folder/good.jsonl")) == ["one", "two"]
    assert scenarios(served, created_from("exact.jsonl")) == ["one"]
    no_file, each_line = "Member must be a file of the bucket", "Member must have a JSON object in each line;"
    for name, constraint in {
        "empty.jsonl": "Member must have at least one example",
        "broken.jsonl": f"{each_line} line 3 is none",
        "list.jsonl": f"{each_line} line 1 is none",
        "large.jsonl": "Member must be at most 2,000 bytes",
        **dict.fromkeys(("none.jsonl", "folder", "../secret.jsonl", "out.jsonl", "x" * 300), no_file),
    }.items():
        assert refused(created_from, name).fields == {"source.s3Source.s3Uri": constraint}
    expected = ["source.s3Source.2.member.scenario_id", "source.s3Source.2.member.turns"]
    assert list(refused(created_from, "wrong.jsonl").fields) == expected
    assert refused(created_from, "x", "elsewhere").fields == {
        "source.s3Source.s3Uri": (
            "Member must be in a bucket that proctor.toml maps to a folder: "
            '[evaluation.buckets] "elsewhere" = "FOLDER"'
        )
    }


def test_datasets_are_listed_in_pages(served):
    ids = sorted(create(served, f"d{number}") for number in range(3))

    for size, counts in ((2, [2, 1]), (3, [3])):
        found = pages(served.control.list_datasets, "datasets", maxResults=size)
        assert [len(page) for page in found] == counts
        assert [each["datasetId"] for page in found for each in page] == ids
