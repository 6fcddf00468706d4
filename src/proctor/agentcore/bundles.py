"""Operations on configuration bundles: named configurations with versions, in branches.

Versions are never changed. A bundle is everything that was committed, as one document.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from proctor.agentcore import service as paging
from proctor.agentcore.errors import ConflictException, ResourceNotFoundException, validation_error
from proctor.agentcore.operation import operation
from proctor.agentcore.service import Service, new_resource, seconds, token_of
from proctor.agentcore.shapes import BUNDLE, Members, ShapeProblem
from proctor.api import definitions
from proctor.api.definitions import DefinedResource
from proctor.json_values import JsonMap, JsonObject

MAIN = "mainline"
MOST_VERSIONS = 1000
Version = dict[str, Any]


def create(service: Service, request: Members) -> JsonMap:
    """Create a bundle with its first version."""
    _refuse_key(request)
    stored = definitions.create_resource(
        service.context,
        new_resource(service, "CreateConfigurationBundle", BUNDLE, request["bundleName"], request),
        BUNDLE,
        {"versions": [_new_version(service, request, request["components"], [])]},
        most=service.limits.bundles,
    )
    first = stored.get("document", {})["versions"][0]
    return {
        **_identity(service, stored),
        "versionId": first["versionId"],
        "createdAt": seconds(stored["createdAt"]),
    }


def get(service: Service, request: Members) -> JsonMap:
    """A bundle with the newest version of a branch."""
    row = _bundle(service, request)
    branch = request.get("branchName", MAIN)
    version = _newest(row, branch)
    if version is None:
        raise ResourceNotFoundException(f"The bundle {row['id']} has no branch {branch}.")
    return {
        **_described(service, row, version),
        "createdAt": seconds(row["createdAt"]),
        "updatedAt": seconds(row["updatedAt"]),
    }


def get_version(service: Service, request: Members) -> JsonMap:
    """One version of a bundle."""
    row = _bundle(service, request)
    for version in _versions(row):
        if version["versionId"] == request["versionId"]:
            return {
                **_described(service, row, version),
                "createdAt": seconds(row["createdAt"]),
                "versionCreatedAt": seconds(version["createdAt"]),
            }
    raise ResourceNotFoundException(f"The bundle {row['id']} has no version {request['versionId']}.")


def list_all(service: Service, request: Members) -> JsonMap:
    """List bundles, a page at a time."""
    limit = request.get("maxResults", paging.PAGE)
    (after,) = paging.key_of("bundles", request.get("nextToken"), str) or [""]
    rows = service.definitions.resources(BUNDLE, after=after, limit=limit + 1)
    answer: JsonObject = {
        "bundles": [
            {
                **_identity(service, row),
                "bundleName": row["name"],
                **({"description": row["description"]} if row["description"] else {}),
                "createdAt": seconds(row["createdAt"]),
            }
            for row in rows[:limit]
        ]
    }
    if len(rows) > limit:
        answer["nextToken"] = paging.page_token_of("bundles", [rows[limit - 1]["id"]])
    return answer


def list_versions(service: Service, request: Members) -> JsonMap:
    """List the versions of a bundle, newest first."""
    row = _bundle(service, request)
    limit = request.get("maxResults", paging.PAGE)
    (start,) = paging.key_of("bundle-versions", request.get("nextToken"), int) or [0]
    versions = list(_filtered(row, request.get("filter") or {}))
    answer: JsonObject = {
        "versions": [
            {
                **_identity(service, row),
                "versionId": version["versionId"],
                "lineageMetadata": version["lineageMetadata"],
                "versionCreatedAt": seconds(version["createdAt"]),
            }
            for version in versions[start : start + limit]
        ]
    }
    if len(versions) > start + limit:
        answer["nextToken"] = paging.page_token_of("bundle-versions", [start + limit])
    return answer


def update(service: Service, request: Members) -> JsonMap:
    """Add a version to a branch of a bundle."""
    _refuse_key(request)
    row = _bundle(service, request)
    branch, parents = request.get("branchName", MAIN), list(request["parentVersionIds"])
    newest, known = _newest(row, branch), {each["versionId"]: each for each in _versions(row)}
    if missing := [each for each in parents if each not in known]:
        raise validation_error([ShapeProblem("parentVersionIds", f"Member must be a version: {missing[0]}")])
    if newest and newest["versionId"] not in parents[:1]:
        raise ConflictException(
            f"The newest version of {branch} is {newest['versionId']}; it must be the first parent."
        )
    if len(known) >= MOST_VERSIONS:
        raise ConflictException(f"A bundle has at most {MOST_VERSIONS:,} versions.")
    components = request.get("components") or (known[parents[0]]["components"] if parents else {})
    added = _new_version(service, request, components, parents)
    stored = definitions.update_resource(
        service.context,
        row,
        {"versions": [*_versions(row), added]},
        token_of(f"UpdateConfigurationBundle {row['id']}", request),
        name=request.get("bundleName", row["name"]),
        description=request.get("description", row["description"]),
    )
    return {
        **_identity(service, stored),
        "versionId": _versions(stored)[-1]["versionId"],
        "updatedAt": seconds(stored["updatedAt"]),
    }


def delete(service: Service, request: Members) -> JsonMap:
    """Delete a bundle with its versions."""
    row = _bundle(service, request)
    definitions.delete_resource(service.context, row["id"], service.names.arn(BUNDLE, row["id"]))
    return {**_identity(service, row), "status": "DELETING"}


def has_version(service: Service, bundle_id: str, version_id: str) -> bool:
    """Whether a bundle has this version. Raises `NotFound`."""
    row = service.definitions.resource(BUNDLE, bundle_id)
    return any(version["versionId"] == version_id for version in _versions(row))


OPERATIONS = (
    operation("CreateConfigurationBundle", create),
    operation("GetConfigurationBundle", get),
    operation("GetConfigurationBundleVersion", get_version),
    operation("ListConfigurationBundles", list_all),
    operation("ListConfigurationBundleVersions", list_versions),
    operation("UpdateConfigurationBundle", update),
    operation("DeleteConfigurationBundle", delete),
)


def _refuse_key(request: Members) -> None:
    if request.get("kmsKeyArn"):
        problem = "Member must be absent: bundles are encrypted with the key of the store only"
        raise validation_error([ShapeProblem("kmsKeyArn", problem)])


def _new_version(service: Service, request: Members, components: JsonMap, parents: Sequence[str]) -> Version:
    lineage = {
        "parentVersionIds": list(parents),
        "branchName": request.get("branchName", MAIN),
        "createdBy": request.get("createdBy"),
        "commitMessage": request.get("commitMessage"),
    }
    return {
        "versionId": str(uuid.uuid4()),
        "components": components,
        "lineageMetadata": {name: value for name, value in lineage.items() if value is not None},
        "createdAt": service.now.isoformat(),
    }


def _bundle(service: Service, request: Members) -> DefinedResource:
    return service.definitions.resource(BUNDLE, request["bundleId"])


def _versions(row: DefinedResource) -> list[Version]:
    versions: list[Version] = row["document"]["versions"]
    return versions


def _branch(version: Version) -> str:
    return str(version["lineageMetadata"]["branchName"])


def _newest(row: DefinedResource, branch: str) -> Version | None:
    return next((each for each in reversed(_versions(row)) if _branch(each) == branch), None)


def _filtered(row: DefinedResource, conditions: Members) -> Iterator[Version]:
    branches = set[str]()
    for version in reversed(_versions(row)):
        creator = (version["lineageMetadata"].get("createdBy") or {}).get("name")
        is_newest = _branch(version) not in branches
        branches.add(_branch(version))
        if conditions.get("branchName", _branch(version)) != _branch(version):
            continue
        if conditions.get("createdByName", creator) != creator:
            continue
        if is_newest or not conditions.get("latestPerBranch"):
            yield version


def _identity(service: Service, row: DefinedResource) -> JsonObject:
    return {"bundleArn": service.names.arn(BUNDLE, row["id"]), "bundleId": row["id"]}


def _described(service: Service, row: DefinedResource, version: Version) -> JsonObject:
    return {
        **_identity(service, row),
        "bundleName": row["name"],
        **({"description": row["description"]} if row["description"] else {}),
        "versionId": version["versionId"],
        "components": version["components"],
        "lineageMetadata": version["lineageMetadata"],
    }
