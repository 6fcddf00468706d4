"""Operations on evaluators (create, get, list, update, delete) and on tags.

Built-in evaluators are listed too and cannot be changed. A new evaluator is active at once.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from proctor.agentcore import service as paging
from proctor.agentcore.errors import (
    ResourceNotFoundException,
    ServiceQuotaExceededException,
    ValidationException,
    validation_error,
)
from proctor.agentcore.operation import operation
from proctor.agentcore.service import Service, new_resource, seconds, token_of
from proctor.agentcore.shapes import (
    AB_TEST,
    BATCH,
    BUNDLE,
    DATASET,
    EVALUATOR_NAMES,
    ONLINE,
    RECOMMENDATION,
    Members,
    ShapeProblem,
    is_managed,
    read_arn,
)
from proctor.api import definitions
from proctor.api.definitions import EvaluatorDefinition, ListedEvaluator
from proctor.api.evaluation import evaluation_arn
from proctor.errors import Contradiction
from proctor.evaluators.builtins import JUDGED, PREFIX, question_of
from proctor.evaluators.definition import problems_of
from proctor.evaluators.judging import Rating
from proctor.json_values import JsonMap, JsonObject
from proctor.score import Level

# Those of AWS; clients count on its list.
MATCHING_WORDS = {
    "Builtin.TrajectoryExactOrderMatch": "whether exactly the expected tools were called, in their order",
    "Builtin.TrajectoryInOrderMatch": "whether the expected tools were called in their order, among others",
    "Builtin.TrajectoryAnyOrderMatch": "whether every expected tool was called, in whatever order",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """A built-in evaluator."""

    level: Level
    judges: str
    instructions: str = ""
    """Instructions of the judge. Empty: it is a program."""
    ratings: tuple[Rating, ...] = ()
    needs_ground_truth: bool = False


@cache
def managed(harmful_value: float = 1.0) -> dict[str, Managed]:
    """Built-in evaluators by ID."""
    evaluators = {
        name: Managed(level="session", judges=MATCHING_WORDS[name], needs_ground_truth=True)
        for name in MATCHING_WORDS
    }
    for name, builtin in JUDGED.items():
        question, _ = question_of(name, harmful_value)
        evaluators[f"{PREFIX}{name}"] = Managed(
            level=builtin.level,
            judges=builtin.judges,
            instructions=question.instructions,
            ratings=question.dimensions[0].scale.ratings,
        )
    return evaluators


TYPES = {"llmAsAJudge": "Custom", "codeBased": "CustomCode", "derived": "CustomDerived"}
BUILTIN_SINCE = 1_767_225_600
"""Creation time of built-in evaluators: a required member."""


def create(service: Service, request: Members) -> JsonMap:
    """Create an evaluator."""
    _check(request)
    new = new_resource(service, "CreateEvaluator", EVALUATOR_NAMES, request["evaluatorName"], request)
    stored = definitions.create_evaluator(
        service.context,
        new,
        level=request["level"],
        config=request["evaluatorConfig"],
        most=service.limits.evaluators,
    )
    return {
        "evaluatorArn": service.names.arn(EVALUATOR_NAMES, stored["id"]),
        "evaluatorId": stored["id"],
        "createdAt": seconds(stored["createdAt"]),
        "status": "ACTIVE",
    }


def get(service: Service, request: Members) -> JsonMap:
    """Get an evaluator, with its configuration unless the request excludes it."""
    evaluator_id = request["evaluatorId"]
    with_config = request.get("includedData") != "METADATA_ONLY"
    if is_managed(evaluator_id):
        return _builtin(service, evaluator_id, with_config=with_config)
    row = service.definitions.evaluator(evaluator_id, with_config=with_config)
    config = {"evaluatorConfig": json.loads(row["configJson"])} if with_config else {}
    return {**_summary(service, row), **config}


def list_all(service: Service, request: Members) -> JsonMap:
    """List evaluators, a page at a time: built-in ones first."""
    limit = request.get("maxResults", paging.PAGE)
    position = paging.key_of("evaluators", request.get("nextToken"), str, str) or ["builtin", ""]
    entries: list[tuple[list[str], JsonMap]] = []
    if position[0] == "builtin":
        entries = [
            (["builtin", name], _builtin(service, name, with_config=False))
            for name in sorted(managed())
            if name > position[1]
        ]
    after = position[1] if position[0] == "kept" else ""
    rows = service.definitions.evaluators(after=after, limit=limit + 1)
    entries += [(["kept", row["id"]], _summary(service, row)) for row in rows]
    answer: JsonObject = {"evaluators": [summary for _, summary in entries[:limit]]}
    if len(entries) > limit:
        answer["nextToken"] = paging.page_token_of("evaluators", entries[limit - 1][0])
    return answer


def update(service: Service, request: Members) -> JsonMap:
    """Update an evaluator that no enabled online configuration uses."""
    evaluator_id = _own_id(request["evaluatorId"])
    config = request.get("evaluatorConfig")
    row = service.definitions.evaluator(evaluator_id, with_config=not config)
    _check(
        {
            "evaluatorName": row["name"],
            "level": request.get("level", row["level"]),
            "evaluatorConfig": config or json.loads(row["configJson"]),
        }
    )
    values = {name: request[name] for name in ("description", "level", "kmsKeyArn") if name in request}
    token = token_of(f"UpdateEvaluator {evaluator_id}", request)
    stored = definitions.update_evaluator(service.context, evaluator_id, values, config, token)
    return {
        "evaluatorArn": service.names.arn(EVALUATOR_NAMES, stored["id"]),
        "evaluatorId": stored["id"],
        "updatedAt": seconds(stored["updatedAt"]),
        "status": "ACTIVE",
    }


def delete(service: Service, request: Members) -> JsonMap:
    """Delete an evaluator. Its scores stay."""
    evaluator_id = _own_id(request["evaluatorId"])
    arn = service.names.arn(EVALUATOR_NAMES, evaluator_id)
    definitions.delete_evaluator(service.context, evaluator_id, arn)
    return {"evaluatorArn": arn, "evaluatorId": evaluator_id, "status": "DELETING"}


OPERATIONS = (
    operation("CreateEvaluator", create),
    operation("GetEvaluator", get),
    operation("ListEvaluators", list_all),
    operation("UpdateEvaluator", update),
    operation("DeleteEvaluator", delete),
)


def _check(definition: JsonMap) -> None:
    """Raise for an invalid definition."""
    members = {name: definition[name] for name in ("evaluatorName", "level", "evaluatorConfig")}
    violations = [
        ShapeProblem(violation.name, f"Member {violation.message}")
        for violation in problems_of(members, wire=True)
    ]
    if violations:
        raise validation_error(violations)


def _own_id(evaluator_id: str) -> str:
    if is_managed(evaluator_id):
        raise ValidationException(
            f"{evaluator_id} comes with the service and cannot be changed or deleted.",
            violations=[ShapeProblem("evaluatorId", "Member must be the id of a custom evaluator")],
        )
    return evaluator_id


def _summary(service: Service, row: EvaluatorDefinition | ListedEvaluator) -> JsonObject:
    members = {
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
    return {**members, **optional}


def _builtin(service: Service, evaluator_id: str, *, with_config: bool) -> JsonObject:
    evaluator = managed(service.harmful_value).get(evaluator_id)
    if evaluator is None:
        raise ResourceNotFoundException(f"There is no evaluator {evaluator_id}.")
    members = {
        "evaluatorArn": service.names.arn(EVALUATOR_NAMES, evaluator_id),
        "evaluatorId": evaluator_id,
        "evaluatorName": evaluator_id,
        "evaluatorType": "Builtin",
        "provider": "AWS",
        "level": evaluator.level.upper(),
        "description": evaluator.judges[:200],
        "status": "ACTIVE",
        "createdAt": BUILTIN_SINCE,
        "updatedAt": BUILTIN_SINCE,
        "lockedForModification": True,
    }
    config = _builtin_config(service, evaluator) if with_config else None
    return {**members, **({"evaluatorConfig": config} if config else {})}


def _builtin_config(service: Service, evaluator: Managed) -> JsonMap | None:
    """Configuration of a built-in judge; None for programs, which the union does not cover."""
    if not evaluator.instructions:
        return None
    return {
        "llmAsAJudge": {
            "instructions": evaluator.instructions,
            "ratingScale": {
                "numerical": [
                    {"definition": rating.definition, "value": rating.value, "label": rating.label}
                    for rating in evaluator.ratings
                ]
            },
            "modelConfig": {"bedrockEvaluatorModelConfig": {"modelId": service.judge}},
        }
    }


def tag(service: Service, request: Members) -> JsonMap:
    """Add tags to a resource."""
    arn = _existing(service, request["resourceArn"])
    try:
        service.definitions.tag(arn, request["tags"])
    except Contradiction as error:
        raise ServiceQuotaExceededException(str(error)) from error
    return {}


def untag(service: Service, request: Members) -> JsonMap:
    """Remove tags from a resource; tags it does not have are ignored."""
    service.definitions.untag(_existing(service, request["resourceArn"]), request["tagKeys"])
    return {}


def list_tags(service: Service, request: Members) -> JsonMap:
    """The tags of a resource."""
    return {"tags": service.definitions.tags(_existing(service, request["resourceArn"]))}


TAG_OPERATIONS = (
    operation("TagResource", tag),
    operation("UntagResource", untag),
    operation("ListTagsForResource", list_tags),
)


def _existing(service: Service, arn: str) -> str:
    """The ARN of an existing resource. Raises if there is none."""
    kind, resource_id = read_arn(arn) or ("", "")
    if kind == BATCH:
        # Evaluations from the command line have their own region.
        known = evaluation_arn(service.context, resource_id)
    elif kind == EVALUATOR_NAMES:
        known = service.names.arn(kind, service.definitions.evaluator(resource_id, with_config=False)["id"])
    elif kind == ONLINE:
        known = service.names.arn(kind, service.definitions.config(resource_id)["id"])
    elif kind == DATASET:
        known = service.names.arn(kind, service.datasets.dataset(resource_id)["id"])
    elif kind == RECOMMENDATION:
        known = service.names.arn(kind, service.recommendations.get(resource_id)["id"])
    elif kind in (AB_TEST, BUNDLE):
        known = service.names.arn(kind, service.definitions.resource(kind, resource_id)["id"])
    else:
        known = ""
    if known != arn:
        raise ResourceNotFoundException(f"There is no resource {arn[:200]}.")
    return arn


def known_evaluators(service: Service, request: Members) -> Iterator[ShapeProblem]:
    """Every evaluator exists."""
    for number, entry in enumerate(request.get("evaluators") or (), start=1):
        if not is_known(service, entry["evaluatorId"]):
            yield ShapeProblem(
                f"evaluators.{number}.member.evaluatorId",
                f"Member must be the id of an evaluator; there is no {entry['evaluatorId']}",
            )


def is_known(service: Service, evaluator_id: str) -> bool:
    """Whether an evaluator with this ID exists."""
    return evaluator_id in managed() or service.definitions.document(evaluator_id) is not None
