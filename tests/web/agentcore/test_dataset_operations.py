"""Operations on datasets, their versions and examples, without a server."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operation_calls import OperationCalls
from starlette.requests import Request

from proctor.errors import NotFound
from proctor.web.agentcore import datasets as dataset_module
from proctor.web.agentcore.errors import ServiceQuotaExceededException, ValidationException
from proctor.web.agentcore.operation import BASE_URL
from proctor.web.agentcore.service import Service

datasets = OperationCalls(dataset_module.OPERATIONS)
PREDEFINED, OTHER = "AGENTCORE_EVALUATION_PREDEFINED_V1", "THIRD_PARTY_EVALUATION_V1"
NOON = 1_767_355_200
"""The clock of `service`."""


def scenario(name: str, **members: Any) -> dict[str, Any]:
    return {"scenario_id": name, "turns": [{"input": "hi"}], **members}


def inline(*examples: Any) -> dict[str, Any]:
    return {"inlineExamples": {"examples": list(examples)}}


def create(service: Service, name: str = "travel", *examples: Any, **members: Any) -> str:
    request = {
        "datasetName": name,
        "schemaType": PREDEFINED,
        "source": inline(*(examples or (scenario("a"), scenario("b")))),
        **members,
    }
    return str(datasets.create(service, request)["datasetId"])


def ids_of(service: Service, dataset_id: str) -> list[str]:
    page = datasets.list_examples(service, {"datasetId": dataset_id})
    return [each["exampleId"] for each in page["examples"]]  # type: ignore[attr-defined]


def flaws(call: Callable[..., Any], *words: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationException) as caught:
        call(*words)
    return [(flaw.name, flaw.constraint) for flaw in caught.value.flaws]


def test_a_new_dataset_is_said_to_be_created_and_is_active(service: Service) -> None:
    created = datasets.create(
        service,
        {
            "datasetName": "travel",
            "schemaType": PREDEFINED,
            "source": inline(scenario("a"), scenario("b")),
            "description": "flights",
            "tags": {"team": "x"},
        },
    )
    dataset_id = created["datasetId"]
    assert re.fullmatch(r"travel-[a-zA-Z0-9]{10}", str(dataset_id))
    identity = {
        "datasetArn": f"arn:aws:bedrock-agentcore:us-east-1:000000000000:dataset/{dataset_id}",
        "datasetId": dataset_id,
    }
    assert created == {**identity, "status": "CREATING", "createdAt": float(NOON)}
    summary = {
        **identity,
        "datasetName": "travel",
        "status": "ACTIVE",
        "draftStatus": "MODIFIED",
        "schemaType": PREDEFINED,
        "exampleCount": 2,
        "createdAt": float(NOON),
        "updatedAt": float(NOON),
        "description": "flights",
    }
    assert datasets.list_all(service, {}) == {"datasets": [summary]}
    got = dict(datasets.get(service, {"datasetId": dataset_id}))
    link = str(got.pop("downloadUrl"))
    assert got == {
        **summary,
        "datasetVersion": "DRAFT",
        "downloadUrlExpiresAt": NOON + 300,
        "tags": {"team": "x"},
    }
    assert re.fullmatch(
        rf"dataset-files/{dataset_id}/DRAFT\?expires={NOON + 300}&signature=[0-9a-f]{{64}}", link
    )


def test_a_dataset_without_description_tags_and_key_has_no_such_members(service: Service) -> None:
    got = datasets.get(service, {"datasetId": create(service)})
    assert not {"description", "tags", "kmsKeyArn"} & set(got)


def test_a_description_is_changed_and_stays_where_none_is_given(service: Service, clock: Any) -> None:
    dataset_id = create(service, description="one")
    clock.forward(seconds=5)
    updated = datasets.update(service, {"datasetId": dataset_id})
    assert updated["updatedAt"] == NOON + 5.0
    assert set(updated) == {"datasetArn", "datasetId", "updatedAt"}
    assert datasets.get(service, {"datasetId": dataset_id})["description"] == "one"
    datasets.update(service, {"datasetId": dataset_id, "description": "two"})
    got = datasets.get(service, {"datasetId": dataset_id})
    assert (got["description"], got["createdAt"], got["updatedAt"]) == ("two", NOON, NOON + 5.0)


def test_a_dataset_is_known_by_its_id_alone(service: Service) -> None:
    create(service)
    with pytest.raises(NotFound, match=r"^there is no dataset travel$"):
        datasets.get(service, {"datasetId": "travel"})


def test_a_deleted_dataset_or_version_is_told_with_its_state(service: Service, clock: Any) -> None:
    dataset_id = create(service, tags={"team": "x"})
    published = datasets.create_version(service, {"datasetId": dataset_id})
    assert published == {
        "datasetArn": f"arn:aws:bedrock-agentcore:us-east-1:000000000000:dataset/{dataset_id}",
        "datasetId": dataset_id,
        "status": "UPDATING",
        "datasetVersion": "1",
        "createdAt": float(NOON),
    }
    clock.forward(seconds=3)
    draft = {"datasetId": dataset_id, "datasetVersion": "DRAFT"}
    with pytest.raises(ValidationException, match=r"^The draft cannot be deleted alone\.$") as caught:
        datasets.delete(service, draft)
    (flaw,) = caught.value.flaws
    assert flaw.name == "datasetVersion"
    version = datasets.delete(service, {"datasetId": dataset_id, "datasetVersion": "1"})
    assert (version["status"], version["datasetVersion"], version["updatedAt"]) == (
        "UPDATING",
        "1",
        NOON + 3.0,
    )
    assert datasets.list_versions(service, {"datasetId": dataset_id}) == {"versions": []}
    gone = datasets.delete(service, {"datasetId": dataset_id})
    assert (gone["status"], gone["datasetVersion"]) == ("DELETING", "DRAFT")
    assert service.store.definitions.tags(str(gone["datasetArn"])) == {}


def test_versions_are_listed_in_pages_newest_first(service: Service, clock: Any) -> None:
    dataset_id = create(service)
    for number in range(3):
        datasets.create_version(service, {"datasetId": dataset_id})
        datasets.add_examples(service, {"datasetId": dataset_id, "source": inline(scenario(f"n{number}"))})
        clock.forward(seconds=1)
    first = datasets.list_versions(service, {"datasetId": dataset_id, "maxResults": 2})
    assert first["versions"] == [
        {"datasetVersion": "3", "exampleCount": 4, "createdAt": NOON + 2.0},
        {"datasetVersion": "2", "exampleCount": 3, "createdAt": NOON + 1.0},
    ]
    rest = {"datasetId": dataset_id, "maxResults": 2, "nextToken": first["nextToken"]}
    assert datasets.list_versions(service, rest) == {
        "versions": [{"datasetVersion": "1", "exampleCount": 2, "createdAt": float(NOON)}]
    }
    assert "nextToken" not in datasets.list_versions(service, {"datasetId": dataset_id, "maxResults": 3})
    got = datasets.get(service, {"datasetId": dataset_id, "datasetVersion": "2"})
    assert (got["exampleCount"], got["datasetVersion"]) == (3, "2")
    assert datasets.get(service, {"datasetId": dataset_id})["exampleCount"] == 5
    with pytest.raises(NotFound, match="has no version"):
        datasets.get(service, {"datasetId": dataset_id, "datasetVersion": "9" * 5000})


def test_datasets_are_listed_in_pages(service: Service) -> None:
    ids = sorted(create(service, f"d{number}") for number in range(3))
    first = datasets.list_all(service, {"maxResults": 2})
    second = datasets.list_all(service, {"maxResults": 2, "nextToken": first["nextToken"]})
    found = [each["datasetId"] for page in (first, second) for each in page["datasets"]]  # type: ignore[attr-defined]
    assert found == ids and len(first["datasets"]) == 2 and "nextToken" not in second  # type: ignore[arg-type]
    assert "nextToken" not in datasets.list_all(service, {"maxResults": 3})


def test_examples_are_listed_in_pages_of_one_version(service: Service) -> None:
    dataset_id = create(service, "three", *(scenario(name) for name in "abc"))
    first = datasets.list_examples(service, {"datasetId": dataset_id, "maxResults": 2})
    assert set(first) == {"datasetArn", "datasetId", "datasetVersion", "examples", "nextToken"}
    assert first["datasetVersion"] == "DRAFT"
    ids = ids_of(service, dataset_id)
    assert first["examples"] == [
        {**scenario("a"), "exampleId": ids[0]},
        {**scenario("b"), "exampleId": ids[1]},
    ]
    rest = {"datasetId": dataset_id, "nextToken": first["nextToken"]}
    second = datasets.list_examples(service, rest)
    assert second["examples"] == [{**scenario("c"), "exampleId": ids[2]}] and "nextToken" not in second
    assert "nextToken" not in datasets.list_examples(service, {"datasetId": dataset_id, "maxResults": 3})


def test_examples_are_added_replaced_and_removed(service: Service, clock: Any) -> None:
    dataset_id = create(service)
    clock.forward(seconds=7)
    changed = {
        "datasetArn": f"arn:aws:bedrock-agentcore:us-east-1:000000000000:dataset/{dataset_id}",
        "datasetId": dataset_id,
        "status": "ACTIVE",
        "updatedAt": NOON + 7.0,
    }
    about = {"datasetId": dataset_id}
    added = datasets.add_examples(service, {**about, "source": inline(scenario("c"), scenario("d"))})
    a, b, c, d = ids_of(service, dataset_id)
    assert added == {**changed, "addedCount": 2, "exampleIds": [c, d]}
    examples = [{**scenario("c2"), "exampleId": c}, {**scenario("d2"), "exampleId": d}]
    assert datasets.update_examples(service, {**about, "examples": examples}) == {
        **changed,
        "updatedCount": 2,
    }
    # An id that is named twice is one.
    assert datasets.delete_examples(service, {**about, "exampleIds": [a, b, a]}) == {
        **changed,
        "deletedCount": 2,
    }
    page = datasets.list_examples(service, about)
    assert page["examples"] == examples


def test_examples_that_cannot_replace_others_are_refused(service: Service) -> None:
    dataset_id = create(service)
    a, b = ids_of(service, dataset_id)

    def update(*examples: Any) -> list[tuple[str, str]]:
        request = {"datasetId": dataset_id, "examples": list(examples)}
        return flaws(datasets.update_examples, service, request)

    assert update({**scenario("x"), "exampleId": a}, {"exampleId": b, "scenario_id": ""}, scenario("y")) == [
        ("examples.3.member.exampleId", "Member must not be null"),
        ("examples.2.member.scenario_id", "Member must have length greater than or equal to 1"),
        ("examples.2.member.turns", "Member must not be null"),
    ]
    assert update({**scenario("x"), "exampleId": a}, {**scenario("y"), "exampleId": a}) == [
        ("examples", "Member must not name an example twice")
    ]
    assert update({**scenario("b"), "exampleId": a}) == [
        ("scenario_id", "Member must be unique within the dataset")
    ]
    # Its own scenario it may keep.
    kept = [{**scenario("a"), "exampleId": a}]
    datasets.update_examples(service, {"datasetId": dataset_id, "examples": kept})


def test_examples_without_a_scenario_are_not_taken_for_the_same(service: Service) -> None:
    dataset_id = create(service, "any", {"x": 1}, {"x": 2}, schemaType=OTHER)
    assert len(ids_of(service, dataset_id)) == 2
    with pytest.raises(ValidationException, match=r"^Two examples have the scenario_id a\.$"):
        create(service, "other", scenario("a"), scenario("a"))


def test_an_example_has_no_id_of_its_callers_choice(service: Service) -> None:
    dataset_id = create(service, "mine", {**scenario("a"), "exampleId": "mine"})
    (example,) = datasets.list_examples(service, {"datasetId": dataset_id})["examples"]  # type: ignore[misc]
    assert example["exampleId"] != "mine"


def test_the_number_of_datasets_and_of_their_examples_is_limited(operate: Any) -> None:
    service = operate(evaluation={"limits": {"datasets": 2, "dataset_examples": 3}})
    with pytest.raises(ServiceQuotaExceededException, match=r"^A dataset may have 3 examples\.$"):
        create(service, "many", *(scenario(name) for name in "abcd"))
    create(service, "full", *(scenario(name) for name in "abc"))
    dataset_id = create(service)
    with pytest.raises(ServiceQuotaExceededException, match=r"^There may be 2 datasets\.$"):
        create(service, "third")
    token = {"clientToken": "t" * 40}
    one = {"datasetId": dataset_id, "source": inline(scenario("c")), **token}
    first = datasets.add_examples(service, one)
    with pytest.raises(ServiceQuotaExceededException, match=r"^A dataset may have 3 examples\.$"):
        datasets.add_examples(service, {"datasetId": dataset_id, "source": inline(scenario("d"))})
    # What was added already is not counted twice.
    assert datasets.add_examples(service, one)["exampleIds"] == first["exampleIds"]
    assert len(ids_of(service, dataset_id)) == 3


def test_examples_come_from_a_file_of_a_bucket(operate: Any, tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    (bucket / "folder").mkdir(parents=True)
    line = json.dumps(scenario("one"))
    (bucket / "folder" / "good.jsonl").write_text(f"\n{line}\n\n{json.dumps(scenario('two'))}\n")
    (bucket / "empty.jsonl").write_text("\n \n")
    (bucket / "broken.jsonl").write_text(f"{line}\n\n{{")
    (bucket / "list.jsonl").write_text("[]")
    (bucket / "exact.jsonl").write_text(line.ljust(200))
    (bucket / "large.jsonl").write_text(line.ljust(201))
    (bucket / "wrong.jsonl").write_text(f'{line}\n{{"turns": []}}')
    limits = {"body_bytes": 200}
    service = operate(evaluation={"buckets": {"my-bucket": "bucket"}, "limits": limits})

    def read(name: str) -> list[Any]:
        return dataset_module._from_bucket(service, f"s3://my-bucket/{name}")

    assert read("folder/good.jsonl") == [scenario("one"), scenario("two")]
    assert read("exact.jsonl") == [scenario("one")]
    uri = "source.s3Source.s3Uri"
    each_line = "Member must have a JSON object in each line; line"
    for name, constraint in {
        "empty.jsonl": "Member must have at least one example",
        "broken.jsonl": f"{each_line} 3 is none",
        "list.jsonl": f"{each_line} 1 is none",
        "large.jsonl": "Member must be at most 200 bytes",
        "folder": "Member must be a file of the bucket",
        "../empty": "Member must be a file of the bucket",
        "x" * 300: "Member must be a file of the bucket",
    }.items():
        assert flaws(read, name) == [(uri, constraint)]
    assert flaws(dataset_module._from_bucket, service, "s3://other/x") == [
        (
            uri,
            "Member must be in a bucket that proctor.toml maps to a folder: "
            '[evaluation.buckets] "other" = "FOLDER"',
        )
    ]
    source = {"s3Source": {"s3Uri": "s3://my-bucket/wrong.jsonl"}}
    request = {"datasetName": "w", "schemaType": PREDEFINED, "source": source}
    assert [name for name, _ in flaws(datasets.create, service, request)] == [
        "source.s3Source.2.member.scenario_id",
        "source.s3Source.2.member.turns",
    ]


async def download(service: Service, dataset_id: str, version: str, **query: Any) -> tuple[int, str]:
    scope = {
        "type": "http",
        "method": "GET",
        "path_params": {"dataset_id": dataset_id, "version": version},
        "query_string": "&".join(f"{name}={value}" for name, value in query.items()).encode(),
        "headers": [],
    }
    response = await dataset_module.download(service, Request(scope))
    if response.status_code != 200:
        return response.status_code, json.loads(response.body)["message"]
    assert response.media_type == "application/x-ndjson"
    parts = [part async for part in response.body_iterator]  # type: ignore[attr-defined]
    return 200, "".join(parts)


def test_a_link_gives_the_examples_of_its_version_until_it_expires(service: Service, clock: Any) -> None:
    dataset_id = create(service, "words", scenario("ä"))
    (example,) = ids_of(service, dataset_id)
    datasets.create_version(service, {"datasetId": dataset_id})
    datasets.delete_examples(service, {"datasetId": dataset_id, "exampleIds": [example]})
    BASE_URL.set("http://here/")
    link = str(datasets.get(service, {"datasetId": dataset_id, "datasetVersion": "1"})["downloadUrl"])
    match = re.fullmatch(
        rf"http://here/dataset-files/{dataset_id}/1\?expires=(\d+)&signature=([0-9a-f]+)", link
    )
    assert match
    signed = {"expires": match[1], "signature": match[2]}

    def fetch(version: str, **query: Any) -> tuple[int, str]:
        return asyncio.run(download(service, dataset_id, version, **query))

    line = json.dumps({**scenario("ä"), "exampleId": example}, ensure_ascii=False)
    assert fetch("1", **signed) == (200, f"{line}\n")
    invalid = (403, "The link is not valid; GetDataset returns a new one.")
    assert fetch("DRAFT", **signed) == fetch("1") == invalid
    assert fetch("1", **{**signed, "expires": int(match[1]) + 1}) == invalid
    clock.forward(minutes=5)
    assert fetch("1", **signed)[0] == 200
    clock.forward(seconds=1)
    assert fetch("1", **signed) == (403, "The link has expired; GetDataset returns a new one.")
    draft = str(datasets.get(service, {"datasetId": dataset_id})["downloadUrl"])
    query = dict(pair.split("=") for pair in draft.partition("?")[2].split("&"))
    assert fetch("DRAFT", **query) == (200, "")


def test_the_operations_of_datasets(service: Service) -> None:
    one, examples = "/datasets/{datasetId}", "/datasets/{datasetId}/examples"
    pages = ("maxResults", "nextToken")
    assert [row[:4] for row in datasets.table] == [
        ("CreateDataset", "POST /datasets", 202, ()),
        ("ListDatasets", "GET /datasets", 200, pages),
        ("GetDataset", f"GET {one}", 200, ("datasetVersion",)),
        ("UpdateDataset", f"PUT {one}", 200, ()),
        ("DeleteDataset", f"DELETE {one}", 202, ("datasetVersion",)),
        ("CreateDatasetVersion", f"POST {one}/versions", 202, ()),
        ("ListDatasetVersions", f"GET {one}/versions", 200, pages),
        ("ListDatasetExamples", f"GET {examples}", 200, ("datasetVersion", *pages)),
        ("AddDatasetExamples", f"POST {examples}/add", 202, ()),
        ("UpdateDatasetExamples", f"POST {examples}/update", 202, ()),
        ("DeleteDatasetExamples", f"POST {examples}/delete", 202, ()),
    ]
    assert {plane for *_, plane in datasets.table} == {"control"}
    assert datasets.list_all(service, {}) == {"datasets": []}
