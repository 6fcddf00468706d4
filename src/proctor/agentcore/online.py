"""Operations on online configurations, which evaluate a sample of the sessions as they arrive.

A new configuration is active at once; its execution status says whether it evaluates. Sessions from before it
was enabled are not evaluated.
"""

from collections.abc import Iterator

from proctor.agentcore import service as paging
from proctor.agentcore.errors import WireError, validation_error
from proctor.agentcore.evaluators import known_evaluators, managed
from proctor.agentcore.jobs import insight_violations
from proctor.agentcore.operation import operation
from proctor.agentcore.request_rules import (
    collected,
    output_violations,
    something_to_judge,
    source_violations,
)
from proctor.agentcore.service import Service, new_resource, seconds, token_of
from proctor.agentcore.shapes import ONLINE, Members, ShapeProblem
from proctor.api import definitions
from proctor.api.definitions import OnlineConfig
from proctor.config import WatchSection
from proctor.errors import QuotaReached, UsageError
from proctor.evaluators.definition import FUNCTION
from proctor.evaluators.judging import places_in
from proctor.json_values import JsonMap, JsonObject, as_map, as_text

DOCUMENT = (
    "rule",
    "dataSourceConfig",
    "evaluators",
    "insights",
    "clusteringConfig",
    "outputConfig",
    "evaluationExecutionRoleArn",
)
"""Members of a configuration that are stored and returned unchanged."""
RESULTS_GROUP = "/aws/bedrock-agentcore/evaluations/results/"
"""Prefix of the log groups of results; the configuration ID follows."""
GROUND_TRUTH_PLACES = frozenset(
    {"assertions", "expected_response", "expected_tool_trajectory", "actual_tool_trajectory"}
)
"""Placeholders that need ground truth, which arriving sessions do not have."""


def create(service: Service, request: Members, *, functions: bool = False) -> JsonMap:
    """Create a configuration; with `functions`, evaluators may be functions of this machine."""
    _check(service, request, requested=request, functions=functions)
    name = request["onlineEvaluationConfigName"]
    new = new_resource(service, "CreateOnlineEvaluationConfig", ONLINE, name, request)
    stored = definitions.create_config(
        service.context,
        new,
        document=_with_output({name: request[name] for name in DOCUMENT if name in request}, new.id),
        enabled=request["enableOnCreate"],
        most=service.limits.online_configs,
    )
    return {
        **_identity(service, stored),
        "createdAt": seconds(stored["createdAt"]),
        "outputConfig": stored["document"]["outputConfig"],
        **_state(stored),
    }


def get(service: Service, request: Members) -> JsonMap:
    """Get a configuration."""
    row = service.definitions.config(request["onlineEvaluationConfigId"])
    return {**_summary(service, row), **row["document"]}


def list_all(service: Service, request: Members) -> JsonMap:
    """List configurations, a page at a time."""
    limit = request.get("maxResults", paging.PAGE)
    (after,) = paging.key_of("online", request.get("nextToken"), str) or [""]
    rows = service.definitions.configs(after=after, limit=limit + 1)
    answer: JsonObject = {
        "onlineEvaluationConfigs": [
            {**_summary(service, row), **_some(row["document"], ("insights", "clusteringConfig"))}
            for row in rows[:limit]
        ]
    }
    if len(rows) > limit:
        answer["nextToken"] = paging.page_token_of("online", [rows[limit - 1]["id"]])
    return answer


def update(service: Service, request: Members, *, functions: bool = False) -> JsonMap:
    """Update a configuration, or enable or disable it."""
    config_id = request["onlineEvaluationConfigId"]
    row = service.definitions.config(config_id)
    document = {**row["document"], **{name: request[name] for name in DOCUMENT if name in request}}
    _check(service, document, requested=request, functions=functions)
    status = request.get("executionStatus")
    stored = definitions.update_config(
        service.context,
        row,
        document=_with_output(document, config_id),
        description=request.get("description"),
        enabled=None if status is None else status == "ENABLED",
        # Results of other evaluators or for another output belong to a new evaluation.
        restarts=bool({"evaluators", "insights", "outputConfig"} & set(request)),
        token=token_of(f"UpdateOnlineEvaluationConfig {config_id}", request),
    )
    return {**_identity(service, stored), "updatedAt": seconds(stored["updatedAt"]), **_state(stored)}


def delete(service: Service, request: Members) -> JsonMap:
    """Delete a configuration. Its results stay."""
    row = service.definitions.config(request["onlineEvaluationConfigId"])
    definitions.delete_config(service.context, row["id"], service.names.arn(ONLINE, row["id"]))
    return {**_identity(service, row), "status": "DELETING"}


def keep_watches(service: Service) -> None:
    """Create and update the configurations of `[[watch]]` sections that name evaluators."""
    configs = {row["name"]: row for row in _all_configs(service)} if service.watches else {}
    for watch in service.watches:
        try:
            if watch.evaluators:
                _keep_watch(service, watch, configs.get(watch.name))
        except (WireError, QuotaReached) as error:
            raise UsageError(f"[[watch]] {watch.name}: {error}") from error


def _keep_watch(service: Service, watch: WatchSection, row: OnlineConfig | None) -> None:
    document = _watch_document(service, watch)
    if row is None:
        request = {"onlineEvaluationConfigName": watch.name, "enableOnCreate": True, **document}
        create(service, request, functions=True)
        return
    changed = {name: value for name, value in document.items() if row["document"].get(name) != value}
    if changed or not row["enabled"]:
        request = {"onlineEvaluationConfigId": row["id"], "executionStatus": "ENABLED", **changed}
        update(service, request, functions=True)


def _all_configs(service: Service) -> Iterator[OnlineConfig]:
    after = ""
    while page := service.definitions.configs(after=after):
        yield from page
        after = page[-1]["id"]


def _watch_document(service: Service, watch: WatchSection) -> JsonObject:
    return {
        "rule": {
            "samplingConfig": {"samplingPercentage": watch.sample_percent},
            "sessionConfig": {"sessionTimeoutMinutes": watch.session_timeout_minutes},
        },
        "dataSourceConfig": {
            "cloudWatchLogs": {"logGroupNames": list(watch.log_groups), "serviceNames": [watch.service]}
        },
        "evaluators": [{"evaluatorId": name} for name in watch.evaluators],
        "evaluationExecutionRoleArn": f"arn:aws:iam::{service.names.account}:role/proctor",
    }


OPERATIONS = (
    operation("CreateOnlineEvaluationConfig", create),
    operation("GetOnlineEvaluationConfig", get),
    operation("ListOnlineEvaluationConfigs", list_all),
    operation("UpdateOnlineEvaluationConfig", update),
    operation("DeleteOnlineEvaluationConfig", delete),
)


def _check(service: Service, document: Members, *, requested: Members, functions: bool) -> None:
    """Raise for an invalid configuration; of the output, only what `requested` sets is checked."""
    violations = collected(
        something_to_judge(document),
        insight_violations(document),
        known_evaluators(service, _without_functions(document) if functions else document),
        _ground_truth_violations(service, document),
        source_violations(document),
        output_violations(requested),
    )
    if violations:
        raise validation_error(violations)


def _without_functions(document: Members) -> Members:
    """The document without evaluators that are functions of this machine."""
    evaluators = [
        entry
        for entry in document.get("evaluators") or ()
        if not FUNCTION.fullmatch(entry["evaluatorId"].partition("@")[0])
    ]
    return {**document, "evaluators": evaluators}


def _ground_truth_violations(service: Service, document: Members) -> Iterator[ShapeProblem]:
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
    config = as_map(service.definitions.document(evaluator_id), "evaluatorConfig")
    if "derived" in config:
        return _needs_ground_truth(service, as_text(as_map(config, "derived").get("baseEvaluatorId")))
    instructions = as_text(as_map(config, "llmAsAJudge").get("instructions"))
    return not GROUND_TRUTH_PLACES.isdisjoint(places_in(instructions))


def _with_output(document: Members, config_id: str) -> JsonObject:
    """The document with the log group of its results filled in."""
    output = dict((document.get("outputConfig") or {}).get("cloudWatchConfig") or {})
    if output.get("resultDestination") != "SOURCE_LOG_GROUP" and not output.get("logGroupName"):
        output["logGroupName"] = f"{RESULTS_GROUP}{config_id}"
    return {**document, "outputConfig": {"cloudWatchConfig": output}}


def _identity(service: Service, row: OnlineConfig) -> JsonObject:
    return {
        "onlineEvaluationConfigArn": service.names.arn(ONLINE, row["id"]),
        "onlineEvaluationConfigId": row["id"],
    }


def _state(row: OnlineConfig) -> JsonObject:
    members = {
        "status": "ERROR" if row["failure"] else "ACTIVE",
        "executionStatus": "ENABLED" if row["enabled"] else "DISABLED",
    }
    return {**members, **({"failureReason": row["failure"]} if row["failure"] else {})}


def _summary(service: Service, row: OnlineConfig) -> JsonObject:
    return {
        **_identity(service, row),
        "onlineEvaluationConfigName": row["name"],
        **({"description": row["description"]} if row["description"] else {}),
        **_state(row),
        "createdAt": seconds(row["createdAt"]),
        "updatedAt": seconds(row["updatedAt"]),
    }


def _some(document: Members, names: tuple[str, ...]) -> JsonObject:
    return {name: document[name] for name in names if name in document}
