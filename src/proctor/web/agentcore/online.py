"""Operations on online configurations, which evaluate a sample of the sessions as they arrive.

A new configuration is active at once; its execution status says whether it evaluates. Sessions from before it
was enabled are not evaluated.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from proctor.judging.question import places_in
from proctor.store.definitions import CONFIGS
from proctor.store.writer import timestamp
from proctor.web.agentcore import service as paging
from proctor.web.agentcore.errors import ServiceQuotaExceededException, validation_error
from proctor.web.agentcore.evaluators import managed
from proctor.web.agentcore.operation import Operation
from proctor.web.agentcore.request_shapes import CREATE_ONLINE, ONE_ONLINE, UPDATE_ONLINE
from proctor.web.agentcore.rules import (
    collected,
    known_evaluators,
    output_flaws,
    something_to_judge,
    source_flaws,
)
from proctor.web.agentcore.service import Service, seconds, token_of
from proctor.web.agentcore.shapes import ONLINE, PAGING, Members, ShapeProblem, new_id

DOCUMENT = (
    *("rule", "dataSourceConfig", "evaluators", "insights", "clusteringConfig", "outputConfig"),
    "evaluationExecutionRoleArn",
)
"""Members of a configuration that are stored and returned unchanged."""
RESULTS_GROUP = "/aws/bedrock-agentcore/evaluations/results/"
"""Prefix of the log groups of results; the configuration ID follows."""
GROUND_TRUTH_PLACES = frozenset(
    {"assertions", "expected_response", "expected_tool_trajectory", "actual_tool_trajectory"}
)
"""Placeholders that need ground truth, which arriving sessions do not have."""


def create(service: Service, request: Members) -> Mapping[str, Any]:
    """Create a configuration."""
    definitions = service.store.definitions
    if definitions.count(CONFIGS) >= service.limits.online_configs:
        raise ServiceQuotaExceededException(
            f"There may be {service.limits.online_configs} online configurations."
        )
    _check(service, request, requested=request)
    now = timestamp(service.now)
    config_id = new_id(request["onlineEvaluationConfigName"])
    row = {
        "id": config_id,
        "name": request["onlineEvaluationConfigName"],
        "description": request.get("description", ""),
        "enabled": int(request["enableOnCreate"]),
        "enabledAt": now if request["enableOnCreate"] else None,
        "createdAt": now,
        "updatedAt": now,
    }
    document = _with_output({name: request[name] for name in DOCUMENT if name in request}, config_id)
    stored = definitions.create_config(row, document, token_of("CreateOnlineEvaluationConfig", request))
    arn = service.names.arn(ONLINE, stored["id"])
    if request.get("tags") and stored["id"] == config_id:
        definitions.tag(arn, request["tags"])
    return {
        **_identity(service, stored),
        "createdAt": seconds(stored["createdAt"]),
        "outputConfig": stored["document"]["outputConfig"],
        **_state(stored),
    }


def get(service: Service, request: Members) -> Mapping[str, Any]:
    """Get a configuration."""
    row = service.store.definitions.config(request["onlineEvaluationConfigId"])
    return {**_summary(service, row), **row["document"]}


def list_all(service: Service, request: Members) -> Mapping[str, Any]:
    """List configurations, a page at a time."""
    limit = request.get("maxResults", paging.PAGE)
    (after,) = paging.key_of("online", request.get("nextToken"), str) or [""]
    rows = service.store.definitions.configs(after=after, limit=limit + 1)
    answer: dict[str, Any] = {
        "onlineEvaluationConfigs": [
            {**_summary(service, row), **_some(row["document"], ("insights", "clusteringConfig"))}
            for row in rows[:limit]
        ]
    }
    if len(rows) > limit:
        answer["nextToken"] = paging.page_token_of("online", [rows[limit - 1]["id"]])
    return answer


def update(service: Service, request: Members) -> Mapping[str, Any]:
    """Update a configuration, or enable or disable it."""
    config_id = request["onlineEvaluationConfigId"]
    definitions = service.store.definitions
    row = definitions.config(config_id)
    document = {**row["document"], **{name: request[name] for name in DOCUMENT if name in request}}
    _check(service, document, requested=request)
    now = timestamp(service.now)
    values: dict[str, Any] = {"updatedAt": now, "failure": ""}
    if "description" in request:
        values["description"] = request["description"]
    if "executionStatus" in request:
        enabled = request["executionStatus"] == "ENABLED"
        values["enabled"] = int(enabled)
        if enabled and not row["enabled"]:
            values["enabledAt"] = now
    if "evaluators" in request or "outputConfig" in request:
        # Results of other evaluators or for another output belong to a new evaluation.
        values["runId"] = ""
    stored = definitions.update_config(
        config_id,
        values,
        _with_output(document, config_id),
        token_of(f"UpdateOnlineEvaluationConfig {config_id}", request),
    )
    return {**_identity(service, stored), "updatedAt": seconds(stored["updatedAt"]), **_state(stored)}


def delete(service: Service, request: Members) -> Mapping[str, Any]:
    """Delete a configuration. Its results stay."""
    definitions = service.store.definitions
    row = definitions.config(request["onlineEvaluationConfigId"])
    definitions.delete_config(row["id"])
    definitions.untag(service.names.arn(ONLINE, row["id"]))
    return {**_identity(service, row), "status": "DELETING"}


OPERATIONS = (
    Operation(
        name="CreateOnlineEvaluationConfig",
        method="POST",
        path="/online-evaluation-configs/create",
        status=202,
        shape=CREATE_ONLINE,
        answer=create,
        plane="control",
    ),
    Operation(
        name="GetOnlineEvaluationConfig",
        method="GET",
        path="/online-evaluation-configs/{onlineEvaluationConfigId}",
        shape=ONE_ONLINE,
        answer=get,
        plane="control",
    ),
    Operation(
        name="ListOnlineEvaluationConfigs",
        method="POST",
        path="/online-evaluation-configs",
        shape=PAGING,
        query=("maxResults", "nextToken"),
        answer=list_all,
        plane="control",
    ),
    Operation(
        name="UpdateOnlineEvaluationConfig",
        method="PUT",
        path="/online-evaluation-configs/{onlineEvaluationConfigId}",
        status=202,
        shape=UPDATE_ONLINE,
        answer=update,
        plane="control",
    ),
    Operation(
        name="DeleteOnlineEvaluationConfig",
        method="DELETE",
        path="/online-evaluation-configs/{onlineEvaluationConfigId}",
        status=202,
        shape=ONE_ONLINE,
        answer=delete,
        plane="control",
    ),
)


def _check(service: Service, document: Mapping[str, Any], *, requested: Members) -> None:
    """Raise for an invalid configuration; of the output, only what `requested` sets is checked."""
    flaws = collected(
        something_to_judge(document),
        known_evaluators(service, document),
        _ground_truth_flaws(service, document),
        source_flaws(document),
        output_flaws(requested),
    )
    if flaws:
        raise validation_error(flaws)


def _ground_truth_flaws(service: Service, document: Mapping[str, Any]) -> Iterator[ShapeProblem]:
    for number, entry in enumerate(document.get("evaluators") or (), start=1):
        if _needs_ground_truth(service, entry["evaluatorId"]):
            yield ShapeProblem(
                f"evaluators.{number}.member.evaluatorId",
                f"Member must not need ground truth, which online evaluation has none of: "
                f"{entry['evaluatorId']}",
            )


def _needs_ground_truth(service: Service, evaluator_id: str) -> bool:
    if (builtin := managed().get(evaluator_id)) is not None:
        return builtin.needs_ground_truth
    config = (service.store.definitions.document(evaluator_id) or {}).get("evaluatorConfig") or {}
    if "derived" in config:
        return _needs_ground_truth(service, config["derived"]["baseEvaluatorId"])
    instructions = (config.get("llmAsAJudge") or {}).get("instructions", "")
    return not GROUND_TRUTH_PLACES.isdisjoint(places_in(instructions))


def _with_output(document: Mapping[str, Any], config_id: str) -> dict[str, Any]:
    """The document with the log group of its results filled in."""
    output = dict((document.get("outputConfig") or {}).get("cloudWatchConfig") or {})
    if output.get("resultDestination") != "SOURCE_LOG_GROUP" and not output.get("logGroupName"):
        output["logGroupName"] = f"{RESULTS_GROUP}{config_id}"
    return {**document, "outputConfig": {"cloudWatchConfig": output}}


def _identity(service: Service, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "onlineEvaluationConfigArn": service.names.arn(ONLINE, row["id"]),
        "onlineEvaluationConfigId": row["id"],
    }


def _state(row: Mapping[str, Any]) -> dict[str, Any]:
    members = {
        "status": "ERROR" if row["failure"] else "ACTIVE",
        "executionStatus": "ENABLED" if row["enabled"] else "DISABLED",
    }
    return {**members, **({"failureReason": row["failure"]} if row["failure"] else {})}


def _summary(service: Service, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_identity(service, row),
        "onlineEvaluationConfigName": row["name"],
        **({"description": row["description"]} if row["description"] else {}),
        **_state(row),
        "createdAt": seconds(row["createdAt"]),
        "updatedAt": seconds(row["updatedAt"]),
    }


def _some(document: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: document[name] for name in names if name in document}
