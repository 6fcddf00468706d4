"""Operations on A/B tests: two variants of an agent, compared by the scores of online configurations.

There is no gateway here that splits traffic: which variant a session is of is said by the configuration that
evaluates it, or by the version of the configuration bundle among its attributes.
"""

import uuid
from collections.abc import Iterator
from datetime import datetime

from proctor.agentcore import service as paging
from proctor.agentcore.bundles import has_version
from proctor.agentcore.errors import ConflictException, validation_error
from proctor.agentcore.evaluators import is_known
from proctor.agentcore.operation import operation
from proctor.agentcore.service import Service, new_resource, seconds, token_of
from proctor.agentcore.shapes import (
    AB_TEST,
    BUNDLE,
    EVALUATOR_NAMES,
    ONLINE,
    Members,
    ShapeProblem,
    is_managed,
    read_arn,
)
from proctor.api import definitions
from proctor.api.ab_tests import ComparedEvaluator, VariantSessions, compare_variants
from proctor.api.definitions import DefinedResource
from proctor.errors import NotFound
from proctor.json_values import JsonMap, JsonObject

DOCUMENT = ("gatewayArn", "variants", "gatewayFilter", "evaluationConfig", "roleArn")
"""Members of a test that are stored and returned unchanged."""
CONTROL, TREATMENT = "C", "T1"
RUNNING, STOPPED = "RUNNING", "STOPPED"
MOVES = {
    "NOT_STARTED": (RUNNING,),
    RUNNING: ("PAUSED", STOPPED),
    "PAUSED": (RUNNING, STOPPED),
    STOPPED: (RUNNING,),
}
"""Execution statuses that may follow each; the same one may, too."""
WHOLE = 100


def create(service: Service, request: Members) -> JsonMap:
    """Create a test, which runs at once if the request says so."""
    document: JsonObject = {name: request[name] for name in DOCUMENT if name in request}
    _check(service, document)
    status = RUNNING if request.get("enableOnCreate") else "NOT_STARTED"
    stored = definitions.create_resource(
        service.context,
        new_resource(service, "CreateABTest", AB_TEST, request["name"], request),
        AB_TEST,
        _moved({**document, "executionStatus": "NOT_STARTED"}, status, service.now),
        most=service.limits.ab_tests,
    )
    return {
        **_identity(service, stored),
        "name": stored["name"],
        **_state(stored),
        "createdAt": seconds(stored["createdAt"]),
    }


def get(service: Service, request: Members) -> JsonMap:
    """A test with the results so far."""
    row = _test(service, request)
    document = row["document"]
    return {
        **_summary(service, row),
        **{name: document[name] for name in (*DOCUMENT, "currentRunId") if name in document},
        **{name: seconds(document[name]) for name in ("startedAt", "stoppedAt") if name in document},
        **({"results": _results(service, row)} if "startedAt" in document else {}),
    }


def list_all(service: Service, request: Members) -> JsonMap:
    """List tests, a page at a time."""
    limit = request.get("maxResults", paging.PAGE)
    (after,) = paging.key_of("ab-tests", request.get("nextToken"), str) or [""]
    rows = service.definitions.resources(AB_TEST, after=after, limit=limit + 1)
    answer: JsonObject = {
        "abTests": [
            {**_summary(service, row), "gatewayArn": row["document"]["gatewayArn"]} for row in rows[:limit]
        ]
    }
    if len(rows) > limit:
        answer["nextToken"] = paging.page_token_of("ab-tests", [rows[limit - 1]["id"]])
    return answer


def update(service: Service, request: Members) -> JsonMap:
    """Change a test that does not run, or start, pause or stop it."""
    row = _test(service, request)
    changed = {name: request[name] for name in DOCUMENT if name in request}
    status, now = request.get("executionStatus"), row["document"]["executionStatus"]
    if changed and now == RUNNING:
        raise ConflictException(f"The A/B test {row['id']} runs; pause or stop it first.")
    if status not in (None, now, *MOVES[now]):
        raise ConflictException(f"The A/B test {row['id']} is {now}; it cannot become {status}.")
    document: JsonObject = {**row["document"], **changed}
    _check(service, document)
    stored = definitions.update_resource(
        service.context,
        row,
        _moved(document, status or now, service.now),
        token_of(f"UpdateABTest {row['id']}", request),
        name=request.get("name", row["name"]),
        description=request.get("description", row["description"]),
    )
    return {**_identity(service, stored), **_state(stored), "updatedAt": seconds(stored["updatedAt"])}


def delete(service: Service, request: Members) -> JsonMap:
    """Delete a test that does not run. Scores stay."""
    row = _test(service, request)
    if row["document"]["executionStatus"] == RUNNING:
        raise ConflictException(f"The A/B test {row['id']} runs; stop it first.")
    definitions.delete_resource(service.context, row["id"], service.names.arn(AB_TEST, row["id"]))
    return {**_identity(service, row), "status": "DELETING"}


OPERATIONS = (
    operation("CreateABTest", create),
    operation("GetABTest", get),
    operation("ListABTests", list_all),
    operation("UpdateABTest", update),
    operation("DeleteABTest", delete),
)


def _moved(document: JsonObject, status: str, now: datetime) -> JsonObject:
    """The document after a change of its execution status; a start after an end begins anew."""
    before = document["executionStatus"]
    moved: JsonObject = {**document, "executionStatus": status}
    if status == RUNNING and before in ("NOT_STARTED", STOPPED):
        moved.pop("stoppedAt", None)
        moved |= {"startedAt": now.isoformat(), "currentRunId": str(uuid.uuid4())}
    elif status == STOPPED and before != STOPPED:
        moved["stoppedAt"] = now.isoformat()
    return moved


def _check(service: Service, document: Members) -> None:
    if violations := [*_variant_violations(service, document), *_config_violations(service, document)]:
        raise validation_error(violations)


def _variant_violations(service: Service, document: Members) -> Iterator[ShapeProblem]:
    variants = document["variants"]
    if {variant["name"] for variant in variants} != {CONTROL, TREATMENT}:
        yield ShapeProblem("variants", "Member must have one variant C and one T1")
    if sum(variant["weight"] for variant in variants) != WHOLE:
        yield ShapeProblem("variants", "Member must have weights that add up to 100")
    for number, variant in enumerate(variants, start=1):
        path = f"variants.{number}.member.variantConfiguration"
        configuration = variant["variantConfiguration"]
        if len([each for each in configuration.values() if each is not None]) != 1:
            yield ShapeProblem(path, "Member must have either a configurationBundle or a target")
            continue
        bundle = configuration.get("configurationBundle")
        if bundle and not _is_version(service, bundle):
            yield ShapeProblem(
                f"{path}.configurationBundle", "Member must be a version of a bundle of this server"
            )
        if not bundle and "onlineEvaluationConfigArn" in document["evaluationConfig"]:
            yield ShapeProblem(
                f"{path}.target",
                "Member must be a configuration bundle where both variants share a configuration",
            )


def _is_version(service: Service, bundle: Members) -> bool:
    kind, bundle_id = read_arn(bundle["bundleArn"]) or ("", "")
    try:
        return kind == BUNDLE and has_version(service, bundle_id, bundle["bundleVersion"])
    except NotFound:
        return False


def _config_violations(service: Service, document: Members) -> Iterator[ShapeProblem]:
    config = document["evaluationConfig"]
    separate = config.get("perVariantOnlineEvaluationConfig")
    if separate and {entry["name"] for entry in separate} != {CONTROL, TREATMENT}:
        yield ShapeProblem(
            "evaluationConfig.perVariantOnlineEvaluationConfig",
            "Member must name one configuration for C, one for T1",
        )
    for arn in [entry["onlineEvaluationConfigArn"] for entry in separate or (config,)]:
        kind, config_id = read_arn(arn) or ("", "")
        try:
            is_there = kind == ONLINE and bool(service.definitions.config(config_id))
        except NotFound:
            is_there = False
        if not is_there:
            yield ShapeProblem(
                "evaluationConfig",
                "Member must be the ARN of an online evaluation configuration that is there",
            )


def _results(service: Service, row: DefinedResource) -> JsonObject:
    """The scores of the variants since the start, and their differences."""
    document = row["document"]
    until = document.get("stoppedAt") or service.now.isoformat()
    compared = compare_variants(
        service.context,
        _sessions(document, CONTROL),
        _sessions(document, TREATMENT),
        since=datetime.fromisoformat(document["startedAt"]),
        until=datetime.fromisoformat(until),
    )
    return {
        "analysisTimestamp": service.now.timestamp(),
        "evaluatorMetrics": [_metric(service, each) for each in compared],
    }


def _sessions(document: Members, variant: str) -> VariantSessions:
    config = document["evaluationConfig"]
    for entry in config.get("perVariantOnlineEvaluationConfig") or ():
        if entry["name"] == variant:
            return VariantSessions(config_id=_id_of(entry["onlineEvaluationConfigArn"]))
    (own,) = (each for each in document["variants"] if each["name"] == variant)
    version = own["variantConfiguration"]["configurationBundle"]["bundleVersion"]
    return VariantSessions(config_id=_id_of(config["onlineEvaluationConfigArn"]), bundle_version=version)


def _id_of(arn: str) -> str:
    return arn.rpartition("/")[2]


def _metric(service: Service, compared: ComparedEvaluator) -> JsonObject:
    change = compared.difference
    control, treatment = _mean(compared.control), _mean(compared.treatment)
    name = compared.evaluator
    known = (
        name if is_managed(name) or not is_known(service, name) else service.definitions.evaluator(name)["id"]
    )
    optional = {
        "absoluteChange": change.value,
        "percentChange": WHOLE * change.value / control if change.value is not None and control else None,
        "pValue": change.p_adjusted,
    }
    limits = {"lower": change.low, "upper": change.high}
    return {
        "evaluatorArn": service.names.arn(EVALUATOR_NAMES, known),
        "controlStats": {"variantName": CONTROL, "sampleSize": len(compared.control), "mean": control},
        "variantResults": [
            {
                "variantName": TREATMENT,
                "sampleSize": len(compared.treatment),
                "mean": treatment,
                **{member: value for member, value in optional.items() if value is not None},
                **({"confidenceInterval": limits} if None not in limits.values() else {}),
                "isSignificant": change.is_significant,
            }
        ],
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _test(service: Service, request: Members) -> DefinedResource:
    return service.definitions.resource(AB_TEST, request["abTestId"])


def _identity(service: Service, row: DefinedResource) -> JsonObject:
    return {"abTestId": row["id"], "abTestArn": service.names.arn(AB_TEST, row["id"])}


def _state(row: DefinedResource) -> JsonObject:
    return {"status": "ACTIVE", "executionStatus": row["document"]["executionStatus"]}


def _summary(service: Service, row: DefinedResource) -> JsonObject:
    return {
        **_identity(service, row),
        "name": row["name"],
        **({"description": row["description"]} if row["description"] else {}),
        **_state(row),
        "createdAt": seconds(row["createdAt"]),
        "updatedAt": seconds(row["updatedAt"]),
    }
