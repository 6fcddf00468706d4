"""Operations on recommendations: start, get, list, delete; and the task of the server that computes them."""

import json
import logging
import string
from collections.abc import Iterator
from datetime import datetime

from starlette.concurrency import run_in_threadpool

from proctor.agentcore import service as paging
from proctor.agentcore.errors import WireError, validation_error
from proctor.agentcore.evaluate import evaluator_named
from proctor.agentcore.evaluators import is_known
from proctor.agentcore.jobs import moment_text
from proctor.agentcore.operation import operation
from proctor.agentcore.service import Service, new_resource
from proctor.agentcore.shapes import (
    BATCH,
    EVALUATOR_NAMES,
    ONLINE,
    RECOMMENDATION,
    Members,
    ShapeProblem,
    read_arn,
)
from proctor.api import recommendations
from proctor.api.evaluation import evaluation_arn
from proctor.api.recommendations import RecommendationRow
from proctor.errors import ModelError, NotFound, UsageError
from proctor.evaluator import Evaluator
from proctor.evaluators.judging import Judge
from proctor.json_values import JsonMap, JsonObject, as_map, as_sequence, as_text

_log = logging.getLogger("proctor.web")
_ALPHABET = string.ascii_uppercase + string.digits
TYPES = {
    "SYSTEM_PROMPT_RECOMMENDATION": "systemPromptRecommendationConfig",
    "TOOL_DESCRIPTION_RECOMMENDATION": "toolDescriptionRecommendationConfig",
}
MOST_MESSAGE = 2048


async def start(service: Service, request: Members) -> JsonMap:
    """Start a recommendation; a known client token returns the one it started."""
    answer = await run_in_threadpool(_start, service, request)
    service.recommendation_started.set()
    return answer


def _start(service: Service, request: Members) -> JsonMap:
    if violations := list(_violations(service, request)):
        raise validation_error(violations)
    stored = recommendations.start_recommendation(
        service.context,
        new_resource(
            service, "StartRecommendation", RECOMMENDATION, request["name"], request, alphabet=_ALPHABET
        ),
        kind=request["type"],
        config=request["recommendationConfig"],
        most_active=service.limits.active_recommendations,
    )
    return {**_summary(service, stored), "recommendationConfig": json.loads(stored["requestJson"])}


def get(service: Service, request: Members) -> JsonMap:
    """A recommendation, with its result once it has one."""
    row = service.recommendations.get(request["recommendationId"])
    return {
        **_summary(service, row),
        "recommendationConfig": json.loads(row["requestJson"]),
        **({"recommendationResult": json.loads(row["resultJson"])} if row["resultJson"] else {}),
        **({"kmsKeyArn": row["kmsKeyArn"]} if row["kmsKeyArn"] else {}),
    }


def list_all(service: Service, request: Members) -> JsonMap:
    """List recommendations, newest first, a page at a time."""
    limit = request.get("maxResults", paging.PAGE)
    key = paging.key_of("recommendations", request.get("nextToken"), str, str)
    rows = service.recommendations.list(
        after=(key[0], key[1]) if key else None, status=request.get("statusFilter", ""), limit=limit + 1
    )
    answer: JsonObject = {"recommendationSummaries": [_summary(service, row) for row in rows[:limit]]}
    if len(rows) > limit:
        last = rows[limit - 1]
        answer["nextToken"] = paging.page_token_of("recommendations", [last["createdAt"], last["id"]])
    return answer


def delete(service: Service, request: Members) -> JsonMap:
    """Delete a recommendation that is not being computed."""
    recommendation_id = request["recommendationId"]
    arn = service.names.arn(RECOMMENDATION, recommendation_id)
    recommendations.delete_recommendation(service.context, recommendation_id, arn)
    return {"recommendationId": recommendation_id, "status": "DELETING"}


OPERATIONS = (
    operation("StartRecommendation", start),
    operation("GetRecommendation", get),
    operation("ListRecommendations", list_all),
    operation("DeleteRecommendation", delete),
)


async def compute_pending(service: Service) -> None:
    """Compute the recommendations that no process computes, one after the other."""
    while row := await run_in_threadpool(recommendations.claim_recommendation, service.context):
        await _compute(service, row)


async def _compute(service: Service, row: RecommendationRow) -> None:
    succeeded, result = False, JsonObject()
    try:
        evaluator = await run_in_threadpool(_evaluator, service, json.loads(row["requestJson"]))
        result = await recommendations.compute_recommendation(
            service.context,
            row,
            evaluator=evaluator,
            judge=Judge(models=service.models, model=service.judge, parameters={}, structured=False),
            harmful_value=service.harmful_value,
        )
        succeeded = True
    except (UsageError, NotFound, WireError) as error:
        result = _failure(row["type"], "ValidationException", service.redact(str(error)))
    except ModelError as error:
        # Providers may quote the rejected key.
        result = _failure(row["type"], "ModelException", service.redact(str(error)))
    except Exception:
        _log.exception("a recommendation failed")
        message = "The server failed to do this; its log says why."
        result = _failure(row["type"], "InternalServerException", message)
    await run_in_threadpool(
        recommendations.finish_recommendation, service.context, row["id"], result, succeeded=succeeded
    )


def _evaluator(service: Service, config: JsonMap) -> Evaluator | None:
    (inner,) = map(as_map, config.values())
    evaluator_id = _evaluator_id(inner)
    return evaluator_named(service, evaluator_id) if evaluator_id else None


def _evaluator_id(config: JsonMap) -> str:
    for entry in as_sequence(as_map(config, "evaluationConfig").get("evaluators")):
        return as_text(entry, "evaluatorArn").rpartition("/")[2]
    return ""


def _failure(type_: str, code: str, message: str) -> JsonObject:
    member = TYPES[type_].removesuffix("Config") + "Result"
    return {member: {"errorCode": code, "errorMessage": message.replace("\n", " ")[:MOST_MESSAGE]}}


def _violations(service: Service, request: Members) -> Iterator[ShapeProblem]:
    ((member, config),) = request["recommendationConfig"].items()
    path = f"recommendationConfig.{member}"
    if member != TYPES[request["type"]]:
        yield ShapeProblem("recommendationConfig", f"Member must be {TYPES[request['type']]} for this type")
    for name in ("systemPrompt", "toolDescription"):
        if "configurationBundle" in (config.get(name) or {}):
            yield ShapeProblem(
                f"{path}.{name}",
                "Member must contain the text: recommendations are not read from or written to bundles",
            )
    if (config.get("toolDescription") or {}).get("toolDescriptionText", {}).get("tools") == []:
        yield ShapeProblem(
            f"{path}.toolDescription.toolDescriptionText.tools",
            "Member must have length greater than or equal to 1",
        )
    yield from _trace_violations(service, config["agentTraces"], f"{path}.agentTraces")
    for entry in as_sequence(as_map(config, "evaluationConfig").get("evaluators")):
        kind, evaluator_id = read_arn(as_text(entry, "evaluatorArn")) or ("", "")
        if kind != EVALUATOR_NAMES or not is_known(service, evaluator_id):
            yield ShapeProblem(
                f"{path}.evaluationConfig.evaluators.1.member.evaluatorArn",
                "Member must be the ARN of an evaluator that is there",
            )
    try:
        service.models.check(service.judge)
        missing = service.models.missing_key(service.judge)
        problem = f"{service.judge} needs a key, and {missing} is not set" if missing else ""
    except UsageError as error:
        problem = str(error).replace("\n", " ")
    if problem:
        yield ShapeProblem(
            "recommendationConfig",
            f"Member needs a model that writes the recommendation: {problem}. "
            "Set `judge` under [evaluation] in proctor.toml to one that can be reached",
        )


def _trace_violations(service: Service, traces: Members, path: str) -> Iterator[ShapeProblem]:
    ((kind, source),) = traces.items()
    member = {"batchEvaluation": "batchEvaluationArn", "onlineEvaluation": "onlineEvaluationConfigArn"}.get(
        kind
    )
    if member is None:
        return
    arn_kind, resource_id = read_arn(source[member]) or ("", "")
    try:
        if arn_kind == BATCH:
            evaluation_arn(service.context, resource_id)
        elif arn_kind == ONLINE:
            service.definitions.config(resource_id)
        is_there = arn_kind == (BATCH if kind == "batchEvaluation" else ONLINE)
    except NotFound:
        is_there = False
    if not is_there:
        yield ShapeProblem(f"{path}.{kind}.{member}", "Member must be the ARN of an evaluation that is there")


def _arn(service: Service, row: RecommendationRow) -> str:
    return service.names.arn(RECOMMENDATION, row["id"])


def _summary(service: Service, row: RecommendationRow) -> JsonObject:
    return {
        "recommendationId": row["id"],
        "recommendationArn": _arn(service, row),
        "name": row["name"],
        "type": row["type"],
        "status": row["status"],
        "createdAt": _moment(row["createdAt"]),
        "updatedAt": _moment(row["updatedAt"]),
        **({"description": row["description"]} if row["description"] else {}),
    }


def _moment(stamp: str) -> str:
    return moment_text(datetime.fromisoformat(stamp))
