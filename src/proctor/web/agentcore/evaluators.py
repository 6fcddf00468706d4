"""Keep evaluators: make, look at, list, change and delete them.

Built-in ones are listed with the others and cannot be changed. An evaluator is active as soon as it is kept;
there is nothing to wait for.

Knows nothing of how an evaluator judges.
"""

import json
from collections.abc import Mapping
from typing import Any

from proctor.evaluators.definition import problems_of
from proctor.store.definitions import EVALUATORS
from proctor.store.writer import timestamp
from proctor.web.agentcore import paging
from proctor.web.agentcore.builtins import Managed, managed
from proctor.web.agentcore.common_shapes import PAGING
from proctor.web.agentcore.control_shapes import (
    CREATE_EVALUATOR,
    GET_EVALUATOR,
    ONE_EVALUATOR,
    UPDATE_EVALUATOR,
)
from proctor.web.agentcore.errors import (
    ResourceNotFoundException,
    ServiceQuotaExceededException,
    ValidationException,
    told,
)
from proctor.web.agentcore.kept import seconds, token_of
from proctor.web.agentcore.names import EVALUATOR, is_managed, new_id
from proctor.web.agentcore.operation import Members, Operation
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import Flaw

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
    arn = service.names.arn(EVALUATOR, kept["id"])
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
        answer["nextToken"] = paging.token_of("evaluators", entries[limit - 1][0])
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
        "evaluatorArn": service.names.arn(EVALUATOR, kept["id"]),
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
    arn = service.names.arn(EVALUATOR, evaluator_id)
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
    flaws = [Flaw(flaw.name, f"Member {flaw.message}") for flaw in problems_of(members, wire=True)]
    if flaws:
        raise told(flaws)


def _own_id(evaluator_id: str) -> str:
    if is_managed(evaluator_id):
        raise ValidationException(
            f"{evaluator_id} comes with the service and cannot be changed or deleted.",
            flaws=[Flaw("evaluatorId", "Member must be the id of a custom evaluator")],
        )
    return evaluator_id


def _summary(service: Service, row: Mapping[str, Any]) -> dict[str, Any]:
    told_of = {
        "evaluatorArn": service.names.arn(EVALUATOR, row["id"]),
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
        "evaluatorArn": service.names.arn(EVALUATOR, evaluator_id),
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
