"""Keep online configurations: a share of the sessions that arrive is judged without anyone asking again.

A configuration is active as soon as it is kept; whether it judges is said by its execution status. Nothing
that arrived before it was enabled is judged.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from proctor.judging.question import places_in
from proctor.store.definitions import CONFIGS
from proctor.store.writer import timestamp
from proctor.web.agentcore import service as paging
from proctor.web.agentcore.errors import ServiceQuotaExceededException, told
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
"""The members of a configuration that are kept and told as they were given."""


RESULTS_GROUP = "/aws/bedrock-agentcore/evaluations/results/"
"""Where results are read from, before the configuration's id."""


GROUND_TRUTH_PLACES = frozenset(
    {"assertions", "expected_response", "expected_tool_trajectory", "actual_tool_trajectory"}
)
"""Nobody knows what to expect of a session that has just arrived."""


def create(service: Service, asked: Members) -> Mapping[str, Any]:
    """Keep a new configuration."""
    definitions = service.store.definitions
    if definitions.count(CONFIGS) >= service.limits.online_configs:
        raise ServiceQuotaExceededException(
            f"There may be {service.limits.online_configs} online configurations."
        )
    _check(service, asked, given=asked)
    now = timestamp(service.now)
    config_id = new_id(asked["onlineEvaluationConfigName"])
    row = {
        "id": config_id,
        "name": asked["onlineEvaluationConfigName"],
        "description": asked.get("description", ""),
        "enabled": int(asked["enableOnCreate"]),
        "enabledAt": now if asked["enableOnCreate"] else None,
        "createdAt": now,
        "updatedAt": now,
    }
    document = _with_output({name: asked[name] for name in DOCUMENT if name in asked}, config_id)
    kept = definitions.create_config(row, document, token_of("CreateOnlineEvaluationConfig", asked))
    arn = service.names.arn(ONLINE, kept["id"])
    if asked.get("tags") and kept["id"] == config_id:
        definitions.tag(arn, asked["tags"])
    return {
        **_identity(service, kept),
        "createdAt": seconds(kept["createdAt"]),
        "outputConfig": kept["document"]["outputConfig"],
        **_state(kept),
    }


def get(service: Service, asked: Members) -> Mapping[str, Any]:
    """One configuration."""
    row = service.store.definitions.config(asked["onlineEvaluationConfigId"])
    return {**_summary(service, row), **row["document"]}


def list_all(service: Service, asked: Members) -> Mapping[str, Any]:
    """A page of the configurations."""
    limit = asked.get("maxResults", paging.PAGE)
    (after,) = paging.key_of("online", asked.get("nextToken"), str) or [""]
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


def update(service: Service, asked: Members) -> Mapping[str, Any]:
    """Change a configuration, or switch it on and off."""
    config_id = asked["onlineEvaluationConfigId"]
    definitions = service.store.definitions
    row = definitions.config(config_id)
    document = {**row["document"], **{name: asked[name] for name in DOCUMENT if name in asked}}
    _check(service, document, given=asked)
    now = timestamp(service.now)
    values: dict[str, Any] = {"updatedAt": now, "failure": ""}
    if "description" in asked:
        values["description"] = asked["description"]
    if "executionStatus" in asked:
        enabled = asked["executionStatus"] == "ENABLED"
        values["enabled"] = int(enabled)
        if enabled and not row["enabled"]:
            values["enabledAt"] = now
    if "evaluators" in asked or "outputConfig" in asked:
        # Results of other evaluators, or for another place, belong to another job.
        values["runId"] = ""
    kept = definitions.update_config(
        config_id,
        values,
        _with_output(document, config_id),
        token_of(f"UpdateOnlineEvaluationConfig {config_id}", asked),
    )
    return {**_identity(service, kept), "updatedAt": seconds(kept["updatedAt"]), **_state(kept)}


def delete(service: Service, asked: Members) -> Mapping[str, Any]:
    """Keep a configuration no longer. What it has judged stays."""
    definitions = service.store.definitions
    row = definitions.config(asked["onlineEvaluationConfigId"])
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


def _check(service: Service, document: Mapping[str, Any], *, given: Members) -> None:
    """Refuse a configuration that could not work; of the output, what was chosen just now."""
    flaws = collected(
        something_to_judge(document),
        known_evaluators(service, document),
        _ground_truth_flaws(service, document),
        source_flaws(document),
        output_flaws(given),
    )
    if flaws:
        raise told(flaws)


def _ground_truth_flaws(service: Service, document: Mapping[str, Any]) -> Iterator[ShapeProblem]:
    for number, entry in enumerate(document.get("evaluators") or (), start=1):
        if _needs_ground_truth(service, entry["evaluatorId"]):
            yield ShapeProblem(
                f"evaluators.{number}.member.evaluatorId",
                f"Member must not need ground truth, which online evaluation has none of: "
                f"{entry['evaluatorId']}",
            )


def _needs_ground_truth(service: Service, evaluator_id: str) -> bool:
    if (found := managed().get(evaluator_id)) is not None:
        return found.needs_ground_truth
    config = (service.store.definitions.document(evaluator_id) or {}).get("evaluatorConfig") or {}
    if "derived" in config:
        return _needs_ground_truth(service, config["derived"]["baseEvaluatorId"])
    instructions = (config.get("llmAsAJudge") or {}).get("instructions", "")
    return not GROUND_TRUTH_PLACES.isdisjoint(places_in(instructions))


def _with_output(document: Mapping[str, Any], config_id: str) -> dict[str, Any]:
    """The same with the place of its results filled in, so that callers know where to look."""
    given = dict((document.get("outputConfig") or {}).get("cloudWatchConfig") or {})
    if given.get("resultDestination") != "SOURCE_LOG_GROUP" and not given.get("logGroupName"):
        given["logGroupName"] = f"{RESULTS_GROUP}{config_id}"
    return {**document, "outputConfig": {"cloudWatchConfig": given}}


def _identity(service: Service, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "onlineEvaluationConfigArn": service.names.arn(ONLINE, row["id"]),
        "onlineEvaluationConfigId": row["id"],
    }


def _state(row: Mapping[str, Any]) -> dict[str, Any]:
    told_of = {
        "status": "ERROR" if row["failure"] else "ACTIVE",
        "executionStatus": "ENABLED" if row["enabled"] else "DISABLED",
    }
    return {**told_of, **({"failureReason": row["failure"]} if row["failure"] else {})}


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
