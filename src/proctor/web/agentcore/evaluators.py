"""Keep evaluators: make, look at, list, change and delete them.

Built-in ones are listed with the others and cannot be changed. An evaluator is active as soon as it is kept;
there is nothing to wait for.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from proctor.errors import Contradiction
from proctor.evaluators.builtins import JUDGED, PREFIX, question_of
from proctor.evaluators.definition import problems_of
from proctor.evaluators.matchers import MATCHINGS
from proctor.judging.question import Rating
from proctor.score import Level
from proctor.store.definitions import EVALUATORS
from proctor.store.writer import timestamp
from proctor.web.agentcore import service as paging
from proctor.web.agentcore.errors import (
    ResourceNotFoundException,
    ServiceQuotaExceededException,
    ValidationException,
    told,
)
from proctor.web.agentcore.operation import Operation
from proctor.web.agentcore.request_shapes import (
    CREATE_EVALUATOR,
    GET_EVALUATOR,
    LIST_TAGS,
    ONE_EVALUATOR,
    TAG_RESOURCE,
    UNTAG_RESOURCE,
    UPDATE_EVALUATOR,
)
from proctor.web.agentcore.service import Service, seconds, token_of
from proctor.web.agentcore.shapes import (
    BATCH,
    EVALUATOR_NAMES,
    ONLINE,
    PAGING,
    Members,
    ShapeProblem,
    is_managed,
    new_id,
    read_arn,
)

# The evaluators that come with the service, as callers see them.


MATCHING_WORDS = {
    "Builtin.TrajectoryExactOrderMatch": "whether exactly the expected tools were called, in their order",
    "Builtin.TrajectoryInOrderMatch": "whether the expected tools were called in their order, among others",
    "Builtin.TrajectoryAnyOrderMatch": "whether every expected tool was called, in whatever order",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """One evaluator that comes with the service."""

    level: Level
    judges: str
    instructions: str = ""
    """What the judge is told. Empty: it is a program."""
    ratings: tuple[Rating, ...] = ()
    needs_ground_truth: bool = False


@cache
def managed(harmful_value: float = 1.0) -> dict[str, Managed]:
    """All of them, by id."""
    found = {
        name: Managed(level="session", judges=MATCHING_WORDS[name], needs_ground_truth=True)
        for name in MATCHINGS
    }
    for name, one in JUDGED.items():
        question, _ = question_of(name, harmful_value)
        found[f"{PREFIX}{name}"] = Managed(
            level=one.level,
            judges=one.judges,
            instructions=question.instructions,
            ratings=question.dimensions[0].scale.ratings,
        )
    return found


TYPES = {"llmAsAJudge": "Custom", "codeBased": "CustomCode", "derived": "CustomDerived"}


BUILTIN_SINCE = 1_767_225_600
"""When built-in evaluators are said to have been made: the member is required, and there is no true one."""


def create(service: Service, asked: Members) -> Mapping[str, Any]:
    """Keep a new evaluator."""
    if service.store.definitions.count(EVALUATORS) >= service.limits.evaluators:
        raise ServiceQuotaExceededException(f"There may be {service.limits.evaluators} evaluators.")
    _check(asked)
    now = timestamp(service.now)
    row = {
        "id": new_id(asked["evaluatorName"]),
        "name": asked["evaluatorName"],
        "level": asked["level"],
        "kind": next(iter(asked["evaluatorConfig"])),
        "description": asked.get("description", ""),
        "kmsKeyArn": asked.get("kmsKeyArn", ""),
        "createdAt": now,
        "updatedAt": now,
    }
    kept = service.store.definitions.create_evaluator(
        row, asked["evaluatorConfig"], token_of("CreateEvaluator", asked)
    )
    arn = service.names.arn(EVALUATOR_NAMES, kept["id"])
    if asked.get("tags") and kept["id"] == row["id"]:
        service.store.definitions.tag(arn, asked["tags"])
    return {
        "evaluatorArn": arn,
        "evaluatorId": kept["id"],
        "createdAt": seconds(kept["createdAt"]),
        "status": "ACTIVE",
    }


def get(service: Service, asked: Members) -> Mapping[str, Any]:
    """One evaluator; its configuration too, unless only the rest is asked for."""
    evaluator_id = asked["evaluatorId"]
    with_config = asked.get("includedData") != "METADATA_ONLY"
    if is_managed(evaluator_id):
        return _builtin(service, evaluator_id, with_config=with_config)
    row = service.store.definitions.evaluator(evaluator_id, with_config=with_config)
    config = {"evaluatorConfig": json.loads(row["configJson"])} if with_config else {}
    return {**_summary(service, row), **config}


def list_all(service: Service, asked: Members) -> Mapping[str, Any]:
    """A page of the evaluators: built-in ones first, then those that are kept."""
    limit = asked.get("maxResults", paging.PAGE)
    seen = paging.key_of("evaluators", asked.get("nextToken"), str, str) or ["builtin", ""]
    entries: list[tuple[list[str], Mapping[str, Any]]] = []
    if seen[0] == "builtin":
        entries = [
            (["builtin", name], _builtin(service, name, with_config=False))
            for name in sorted(managed())
            if name > seen[1]
        ]
    after = seen[1] if seen[0] == "kept" else ""
    rows = service.store.definitions.evaluators(after=after, limit=limit + 1)
    entries += [(["kept", row["id"]], _summary(service, row)) for row in rows]
    answer: dict[str, Any] = {"evaluators": [summary for _, summary in entries[:limit]]}
    if len(entries) > limit:
        answer["nextToken"] = paging.page_token_of("evaluators", entries[limit - 1][0])
    return answer


def update(service: Service, asked: Members) -> Mapping[str, Any]:
    """Change an evaluator that no enabled online configuration judges with."""
    evaluator_id = _own_id(asked["evaluatorId"])
    definitions = service.store.definitions
    config = asked.get("evaluatorConfig")
    row = definitions.evaluator(evaluator_id, with_config=not config)
    _check(
        {
            "evaluatorName": row["name"],
            "level": asked.get("level", row["level"]),
            "evaluatorConfig": config or json.loads(row["configJson"]),
        }
    )
    columns = {"description": "description", "level": "level", "kmsKeyArn": "kmsKeyArn"}
    values = {column: asked[member] for member, column in columns.items() if member in asked}
    if config:
        values["kind"] = next(iter(config))
    values["updatedAt"] = timestamp(service.now)
    kept = definitions.update_evaluator(
        evaluator_id, values, config, token_of(f"UpdateEvaluator {evaluator_id}", asked)
    )
    return {
        "evaluatorArn": service.names.arn(EVALUATOR_NAMES, kept["id"]),
        "evaluatorId": kept["id"],
        "updatedAt": seconds(kept["updatedAt"]),
        "status": "ACTIVE",
    }


def delete(service: Service, asked: Members) -> Mapping[str, Any]:
    """Keep an evaluator no longer. Scores it gave stay."""
    evaluator_id = _own_id(asked["evaluatorId"])
    definitions = service.store.definitions
    definitions.evaluator(evaluator_id, with_config=False)
    definitions.delete_evaluator(evaluator_id)
    arn = service.names.arn(EVALUATOR_NAMES, evaluator_id)
    definitions.untag(arn)
    return {"evaluatorArn": arn, "evaluatorId": evaluator_id, "status": "DELETING"}


OPERATIONS = (
    Operation(
        name="CreateEvaluator",
        method="POST",
        path="/evaluators/create",
        status=202,
        shape=CREATE_EVALUATOR,
        answer=create,
        plane="control",
    ),
    Operation(
        name="GetEvaluator",
        method="GET",
        path="/evaluators/{evaluatorId}",
        shape=GET_EVALUATOR,
        query=("includedData",),
        answer=get,
        plane="control",
    ),
    Operation(
        name="ListEvaluators",
        method="POST",
        path="/evaluators",
        shape=PAGING,
        query=("maxResults", "nextToken"),
        answer=list_all,
        plane="control",
    ),
    Operation(
        name="UpdateEvaluator",
        method="PUT",
        path="/evaluators/{evaluatorId}",
        status=202,
        shape=UPDATE_EVALUATOR,
        answer=update,
        plane="control",
    ),
    Operation(
        name="DeleteEvaluator",
        method="DELETE",
        path="/evaluators/{evaluatorId}",
        status=202,
        shape=ONE_EVALUATOR,
        answer=delete,
        plane="control",
    ),
)


def _check(definition: Mapping[str, Any]) -> None:
    """Refuse a definition that no session could be judged by."""
    members = {name: definition[name] for name in ("evaluatorName", "level", "evaluatorConfig")}
    flaws = [ShapeProblem(flaw.name, f"Member {flaw.message}") for flaw in problems_of(members, wire=True)]
    if flaws:
        raise told(flaws)


def _own_id(evaluator_id: str) -> str:
    if is_managed(evaluator_id):
        raise ValidationException(
            f"{evaluator_id} comes with the service and cannot be changed or deleted.",
            flaws=[ShapeProblem("evaluatorId", "Member must be the id of a custom evaluator")],
        )
    return evaluator_id


def _summary(service: Service, row: Mapping[str, Any]) -> dict[str, Any]:
    told_of = {
        "evaluatorArn": service.names.arn(EVALUATOR_NAMES, row["id"]),
        "evaluatorId": row["id"],
        "evaluatorName": row["name"],
        "evaluatorType": TYPES[row["kind"]],
        "provider": "Custom",
        "level": row["level"],
        "status": "ACTIVE",
        "createdAt": seconds(row["createdAt"]),
        "updatedAt": seconds(row["updatedAt"]),
        "lockedForModification": row["locked"],
    }
    optional = {name: row[name] for name in ("description", "kmsKeyArn") if row[name]}
    return {**told_of, **optional}


def _builtin(service: Service, evaluator_id: str, *, with_config: bool) -> dict[str, Any]:
    found = managed(service.harmful_value).get(evaluator_id)
    if found is None:
        raise ResourceNotFoundException(f"There is no evaluator {evaluator_id}.")
    told_of = {
        "evaluatorArn": service.names.arn(EVALUATOR_NAMES, evaluator_id),
        "evaluatorId": evaluator_id,
        "evaluatorName": evaluator_id,
        "evaluatorType": "Builtin",
        "provider": "AWS",
        "level": found.level.upper(),
        "description": found.judges[:200],
        "status": "ACTIVE",
        "createdAt": BUILTIN_SINCE,
        "updatedAt": BUILTIN_SINCE,
        "lockedForModification": True,
    }
    config = _builtin_config(service, found) if with_config else None
    return {**told_of, **({"evaluatorConfig": config} if config else {})}


def _builtin_config(service: Service, found: Managed) -> Mapping[str, Any] | None:
    """How a built-in judges; None for the ones that are programs, which no member of the union describes."""
    if not found.instructions:
        return None
    return {
        "llmAsAJudge": {
            "instructions": found.instructions,
            "ratingScale": {
                "numerical": [
                    {"definition": each.definition, "value": each.value, "label": each.label}
                    for each in found.ratings
                ]
            },
            "modelConfig": {"bedrockEvaluatorModelConfig": {"modelId": service.judge}},
        }
    }


# Tags of resources: words of the caller's own, by ARN.


def tag(service: Service, asked: Members) -> Mapping[str, Any]:
    """Give a resource tags."""
    arn = _known(service, asked["resourceArn"])
    try:
        service.store.definitions.tag(arn, asked["tags"])
    except Contradiction as error:
        raise ServiceQuotaExceededException(str(error)) from error
    return {}


def untag(service: Service, asked: Members) -> Mapping[str, Any]:
    """Take tags from a resource; ones it does not have are no error."""
    service.store.definitions.untag(_known(service, asked["resourceArn"]), asked["tagKeys"])
    return {}


def list_tags(service: Service, asked: Members) -> Mapping[str, Any]:
    """The tags of a resource."""
    return {"tags": service.store.definitions.tags(_known(service, asked["resourceArn"]))}


TAG_OPERATIONS = (
    Operation(
        name="TagResource",
        method="POST",
        path="/tags/{resourceArn}",
        status=204,
        shape=TAG_RESOURCE,
        answer=tag,
        plane="control",
    ),
    Operation(
        name="UntagResource",
        method="DELETE",
        path="/tags/{resourceArn}",
        status=204,
        shape=UNTAG_RESOURCE,
        query=("tagKeys",),
        answer=untag,
        plane="control",
    ),
    Operation(
        name="ListTagsForResource",
        method="GET",
        path="/tags/{resourceArn}",
        shape=LIST_TAGS,
        answer=list_tags,
        plane="control",
    ),
)


def _known(service: Service, arn: str) -> str:
    """The ARN of something that is there. Raises where there is no such thing."""
    kind, resource_id = read_arn(arn) or ("", "")
    if kind == BATCH:
        # Jobs that were started from a command line name a region of their own.
        known = service.store.evaluations.row(resource_id)["arn"]
    elif kind == EVALUATOR_NAMES:
        known = service.names.arn(
            kind, service.store.definitions.evaluator(resource_id, with_config=False)["id"]
        )
    elif kind == ONLINE:
        known = service.names.arn(kind, service.store.definitions.config(resource_id)["id"])
    else:
        known = ""
    if known != arn:
        raise ResourceNotFoundException(f"There is no resource {arn[:200]}.")
    return arn
