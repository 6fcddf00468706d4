"""Operations on datasets: create, get, list, update, delete; their versions and examples; the download link.

Everything is done when an operation returns. The statuses `CREATING` and `UPDATING` are those that the
service always returns from its asynchronous operations; a Get after them says `ACTIVE`.
"""

import hashlib
import hmac
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from proctor.agentcore import service as paging
from proctor.agentcore.errors import (
    AccessDeniedException,
    ServiceQuotaExceededException,
    ValidationException,
    validation_error,
)
from proctor.agentcore.operation import BASE_URL, operation, respond_safely
from proctor.agentcore.request_rules import EXAMPLES, WITH_EXAMPLE_ID
from proctor.agentcore.service import Service, new_resource, seconds, token_of
from proctor.agentcore.shapes import DATASET, Members, Shape, ShapeProblem
from proctor.api import definitions
from proctor.api.definitions import DRAFT, StoredDataset, Token
from proctor.errors import NotFound
from proctor.json_values import JsonMap, JsonObject, as_text, parse_json

LINK_PATH = "/dataset-files/{dataset_id}/{version}"
LINK_LIFE = timedelta(minutes=5)
DRAFT_NAME = "DRAFT"
INLINE = "source.inlineExamples.examples"


def create(service: Service, request: Members) -> JsonMap:
    """Create a dataset with the first examples of its draft."""
    examples = _new_examples(service, request, request["schemaType"])
    _check_scenarios(examples.values())
    stored = definitions.create_dataset(
        service.context,
        new_resource(service, "CreateDataset", DATASET, request["datasetName"], request),
        schema_type=request["schemaType"],
        examples=examples,
        most=service.limits.datasets,
    )
    return {**_identity(service, stored), "status": "CREATING", "createdAt": seconds(stored["createdAt"])}


def get(service: Service, request: Members) -> JsonMap:
    """A dataset, with a link to the examples of a version."""
    row = _dataset(service, request)
    version = _version(service, row, request)
    expires = service.now + LINK_LIFE
    tags = service.definitions.tags(_arn(service, row))
    published = service.datasets.version(row["id"], version) if version != DRAFT else row
    return {
        **_summary(service, row),
        "datasetVersion": _name(version),
        "exampleCount": published["examples"],
        "downloadUrl": _link(service, row["id"], version, int(expires.timestamp())),
        "downloadUrlExpiresAt": int(expires.timestamp()),
        **({"kmsKeyArn": row["kmsKeyArn"]} if row["kmsKeyArn"] else {}),
        **({"tags": tags} if tags else {}),
    }


def list_all(service: Service, request: Members) -> JsonMap:
    """List datasets, a page at a time."""
    limit = request.get("maxResults", paging.PAGE)
    (after,) = paging.key_of("datasets", request.get("nextToken"), str) or [""]
    rows = service.datasets.datasets(after=after, limit=limit + 1)
    answer: JsonObject = {"datasets": [_summary(service, row) for row in rows[:limit]]}
    if len(rows) > limit:
        answer["nextToken"] = paging.page_token_of("datasets", [rows[limit - 1]["id"]])
    return answer


def update(service: Service, request: Members) -> JsonMap:
    """Change the description of a dataset."""
    row = _dataset(service, request)
    token = _token("UpdateDataset", request)
    stored = definitions.update_dataset(service.context, row["id"], request.get("description"), token)
    return {**_identity(service, stored), "updatedAt": seconds(stored["updatedAt"])}


def delete(service: Service, request: Members) -> JsonMap:
    """Delete a dataset, or one of its versions."""
    row = _dataset(service, request)
    answer = {**_identity(service, row), "updatedAt": service.now.timestamp()}
    if "datasetVersion" not in request:
        definitions.delete_dataset(service.context, row["id"], _arn(service, row))
        return {**answer, "status": "DELETING", "datasetVersion": DRAFT_NAME}
    version = _version(service, row, request)
    if version == DRAFT:
        raise ValidationException(
            "The draft cannot be deleted alone.",
            violations=[ShapeProblem("datasetVersion", "Member must be the number of a published version")],
        )
    service.datasets.delete_version(row["id"], version, service.now)
    return {**answer, "status": "UPDATING", "datasetVersion": _name(version)}


def create_version(service: Service, request: Members) -> JsonMap:
    """Publish the draft as a new version."""
    row = _dataset(service, request)
    published = service.datasets.publish(row["id"], _token("CreateDatasetVersion", request), service.now)
    return {
        **_identity(service, row),
        "status": "UPDATING",
        "datasetVersion": _name(published["version"]),
        "createdAt": seconds(published["createdAt"]),
    }


def list_versions(service: Service, request: Members) -> JsonMap:
    """List the published versions, newest first."""
    row = _dataset(service, request)
    limit = request.get("maxResults", paging.PAGE)
    key = paging.key_of("dataset-versions", request.get("nextToken"), int)
    rows = service.datasets.versions(row["id"], before=key[0] if key else None, limit=limit + 1)
    answer: JsonObject = {
        "versions": [
            {
                "datasetVersion": _name(row["version"]),
                "exampleCount": row["examples"],
                "createdAt": seconds(row["createdAt"]),
            }
            for row in rows[:limit]
        ]
    }
    if len(rows) > limit:
        answer["nextToken"] = paging.page_token_of("dataset-versions", [rows[limit - 1]["version"]])
    return answer


def list_examples(service: Service, request: Members) -> JsonMap:
    """List the examples of a version; the pages after the first are of the same version."""
    row = _dataset(service, request)
    limit = request.get("maxResults", paging.PAGE)
    key = paging.key_of("dataset-examples", request.get("nextToken"), int, int)
    version, after = key or (_version(service, row, request), 0)
    page = service.datasets.examples(row["id"], version, after=after, limit=limit + 1)
    answer: JsonObject = {
        **_identity(service, row),
        "datasetVersion": _name(version),
        "examples": [{**each["content"], "exampleId": each["id"]} for each in page[:limit]],
    }
    if len(page) > limit:
        answer["nextToken"] = paging.page_token_of("dataset-examples", [version, page[limit - 1]["position"]])
    return answer


def add_examples(service: Service, request: Members) -> JsonMap:
    """Add examples to the draft: all of them, or none."""
    row = _dataset(service, request)
    examples = _new_examples(service, request, row["schemaType"])
    draft = _draft(service, row)
    if not draft.keys() >= examples.keys():
        if len(draft) + len(examples) > service.limits.dataset_examples:
            raise ServiceQuotaExceededException(
                f"A dataset may have {service.limits.dataset_examples} examples."
            )
        _check_scenarios([*draft.values(), *examples.values()])
    token = _token("AddDatasetExamples", request)
    stored = service.datasets.add(row["id"], examples, token, service.now)
    return {**_changed(service, stored), "addedCount": len(examples), "exampleIds": list(examples)}


def update_examples(service: Service, request: Members) -> JsonMap:
    """Replace examples of the draft: all of them, or none."""
    row, examples = _dataset(service, request), request["examples"]
    shapes = (WITH_EXAMPLE_ID, EXAMPLES[row["schemaType"]])
    if violations := [violation for shape in shapes for violation in _violations(examples, shape)]:
        raise validation_error(violations)
    changed: dict[str, JsonMap] = {each["exampleId"]: _content(each) for each in examples}
    if len(changed) < len(examples):
        raise validation_error([ShapeProblem("examples", "Member must not name an example twice")])
    _check_scenarios((_draft(service, row) | changed).values())
    token = _token("UpdateDatasetExamples", request)
    stored = service.datasets.replace(row["id"], changed, token, service.now)
    return {**_changed(service, stored), "updatedCount": len(changed)}


def delete_examples(service: Service, request: Members) -> JsonMap:
    """Remove examples from the draft: all of them, or none."""
    row, ids = _dataset(service, request), list(dict.fromkeys(request["exampleIds"]))
    token = _token("DeleteDatasetExamples", request)
    stored = service.datasets.remove(row["id"], ids, token, service.now)
    return {**_changed(service, stored), "deletedCount": len(ids)}


OPERATIONS = (
    operation("CreateDataset", create),
    operation("ListDatasets", list_all),
    operation("GetDataset", get),
    operation("UpdateDataset", update),
    operation("DeleteDataset", delete),
    operation("CreateDatasetVersion", create_version),
    operation("ListDatasetVersions", list_versions),
    operation("ListDatasetExamples", list_examples),
    operation("AddDatasetExamples", add_examples),
    operation("UpdateDatasetExamples", update_examples),
    operation("DeleteDatasetExamples", delete_examples),
)


async def download(service: Service, request: Request) -> Response:
    """The examples of a version as JSON lines, for anyone with the link."""

    async def work() -> Response:
        dataset_id, name = request.path_params["dataset_id"], request.path_params["version"]
        expires = request.query_params.get("expires", "")
        signature = request.query_params.get("signature", "")
        expected = _signature(service, dataset_id, name, expires)
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
            raise AccessDeniedException("The link is not valid; GetDataset returns a new one.")
        if int(expires) < service.now.timestamp():
            raise AccessDeniedException("The link has expired; GetDataset returns a new one.")
        row = await run_in_threadpool(service.datasets.dataset, dataset_id)
        examples = service.datasets.all_examples(row["id"], DRAFT if name == DRAFT_NAME else int(name))
        lines = (
            json.dumps({**example["content"], "exampleId": example["id"]}, ensure_ascii=False) + "\n"
            for example in examples
        )
        return StreamingResponse(lines, media_type="application/x-ndjson")

    return await respond_safely(work)


def _link(service: Service, dataset_id: str, version: int, expires: int) -> str:
    name = _name(version)
    path = LINK_PATH.format(dataset_id=quote(dataset_id), version=name).removeprefix("/")
    signature = _signature(service, dataset_id, name, str(expires))
    return f"{BASE_URL.get()}{path}?expires={expires}&signature={signature}"


def _signature(service: Service, dataset_id: str, version: str, expires: str) -> str:
    text = json.dumps([dataset_id, version, expires])
    return hmac.new(service.link_secret, text.encode(), hashlib.sha256).hexdigest()


def _dataset(service: Service, request: Members) -> StoredDataset:
    row = service.datasets.dataset(request["datasetId"])
    # Unlike the command line, names are not accepted.
    if row["id"] != request["datasetId"]:
        raise NotFound(f"there is no dataset {request['datasetId']}")
    return row


def _version(service: Service, row: StoredDataset, request: Members) -> int:
    name = request.get("datasetVersion", DRAFT_NAME)
    if name == DRAFT_NAME:
        return DRAFT
    # Python reads at most 4,300 digits as a number; no version has twenty.
    return service.datasets.version(row["id"], int(name[:20]))["version"]


def _name(version: int) -> str:
    return DRAFT_NAME if version == DRAFT else str(version)


def _token(operation: str, request: Members) -> Token:
    return token_of(f"{operation} {request['datasetId']}", request)


def _arn(service: Service, row: StoredDataset) -> str:
    return service.names.arn(DATASET, row["id"])


def _identity(service: Service, row: StoredDataset) -> JsonObject:
    return {"datasetArn": _arn(service, row), "datasetId": row["id"]}


def _changed(service: Service, row: StoredDataset) -> JsonObject:
    return {**_identity(service, row), "status": "ACTIVE", "updatedAt": seconds(row["updatedAt"])}


def _summary(service: Service, row: StoredDataset) -> JsonObject:
    return {
        **_identity(service, row),
        "datasetName": row["name"],
        "status": "ACTIVE",
        "draftStatus": "MODIFIED" if row["draftModified"] else "UNMODIFIED",
        "schemaType": row["schemaType"],
        "exampleCount": row["examples"],
        "createdAt": seconds(row["createdAt"]),
        "updatedAt": seconds(row["updatedAt"]),
        **({"description": row["description"]} if row["description"] else {}),
    }


def _draft(service: Service, row: StoredDataset) -> dict[str, JsonMap]:
    return {each["id"]: each["content"] for each in service.datasets.all_examples(row["id"])}


def _new_examples(service: Service, request: Members, schema_type: str) -> dict[str, JsonMap]:
    """The examples of a request by new ids: those of a repeated request are the same."""
    source = request["source"]
    if "s3Source" in source:
        examples, path = _from_bucket(service, source["s3Source"]["s3Uri"]), "source.s3Source"
    else:
        examples, path = source["inlineExamples"]["examples"], INLINE
    if violations := list(_violations(examples, EXAMPLES[schema_type], path)):
        raise validation_error(violations)
    contents = [_content(each) for each in examples]
    if len(contents) > service.limits.dataset_examples:
        raise ServiceQuotaExceededException(f"A dataset may have {service.limits.dataset_examples} examples.")
    token, about = request.get("clientToken", ""), request.get("datasetId") or request.get("datasetName")
    if not token:
        return {str(uuid.uuid4()): content for content in contents}
    name = f"{about}/{token}"
    return {
        str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{number}")): content
        for number, content in enumerate(contents)
    }


def _content(example: Mapping[str, object]) -> JsonObject:
    return {name: value for name, value in example.items() if name != "exampleId"}


def _violations(examples: Sequence[object], shape: Shape, path: str = "examples") -> Iterator[ShapeProblem]:
    for number, example in enumerate(examples, start=1):
        yield from shape.violations(example, f"{path}.{number}.member")


def _check_scenarios(contents: Iterable[JsonMap]) -> None:
    """Raise where two examples are of one scenario: AWS's runners refuse such a dataset."""
    known = set[str]()
    for content in contents:
        scenario = as_text(content, "scenario_id")
        if scenario and scenario in known:
            raise ValidationException(
                f"Two examples have the scenario_id {scenario[:200]}.",
                violations=[ShapeProblem("scenario_id", "Member must be unique within the dataset")],
            )
        known.add(scenario)


def _from_bucket(service: Service, uri: str) -> list[JsonObject]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    folder = service.site.evaluation.get("buckets", {}).get(bucket)
    violation = partial(ShapeProblem, "source.s3Source.s3Uri")
    if folder is None:
        raise validation_error(
            [
                violation(
                    "Member must be in a bucket that proctor.toml maps to a folder: "
                    f'[evaluation.buckets] "{bucket}" = "FOLDER"'
                )
            ]
        )
    root = (service.site.folder / Path(folder).expanduser()).resolve()
    path = (root / key).resolve()
    try:
        size = path.stat().st_size if path.is_relative_to(root) and path.is_file() else None
    except OSError:
        # A name that no file can have.
        size = None
    if size is None:
        raise validation_error([violation("Member must be a file of the bucket")])
    if size > service.limits.body_bytes:
        raise validation_error([violation(f"Member must be at most {service.limits.body_bytes:,} bytes")])
    return _lines(path.read_bytes(), violation)


def _lines(content: bytes, violation: Callable[[str], ShapeProblem]) -> list[JsonObject]:
    examples: list[JsonObject] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            example = parse_json(line)
        except (ValueError, RecursionError):
            example = None
        if not isinstance(example, dict):
            raise validation_error(
                [violation(f"Member must have a JSON object in each line; line {number} is none")]
            )
        examples.append(example)
    if not examples:
        raise validation_error([violation("Member must have at least one example")])
    return examples
