"""What is asked of requests is what the client's model says, member by member, bound by bound."""

import re

import boto3
import pytest

from proctor.agentcore import OPERATIONS, logs, metrics
from proctor.agentcore.shapes import (
    Anything,
    Flag,
    Many,
    MapShape,
    Number,
    Structure,
    Text,
    TimestampShape,
    Union,
)

_session = boto3.session.Session(region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
_clients = {
    "data": _session.client("bedrock-agentcore"),
    "control": _session.client("bedrock-agentcore-control"),
    "logs": _session.client("logs"),
    "monitoring": _session.client("cloudwatch"),
}
OTHERWISE = {
    "StartQuery.logGroupNames: 1..50 elements",
    "StartQuery.logGroupIdentifiers: 1..50 elements",
    "GetMetricData.MetricDataQueries: 0..500 elements",
}
"""Members that have limits in the manual of the service and not in the model."""
EITHER_EMPTY = "$|^"
"""How the model writes that a text may be empty; the rest of the pattern is the same."""


def differences(model, ours, path):
    kind = model.type_name
    if kind == "structure":
        if model.is_document_type:
            return [] if isinstance(ours, Anything) else [f"{path}: should be any JSON"]
        return list(_of_structure(model, ours, path))
    if kind == "list":
        if not isinstance(ours, Many):
            return [f"{path}: should be a list"]
        told = f"{path}: {ours.least}..{ours.most} elements, not {_bounds(model)}"
        bounds = [] if _bounds(model) == (ours.least or None, ours.most) else [told]
        return bounds + differences(model.member, ours.of, f"{path}[]")
    if kind == "map":
        found = (
            []
            if isinstance(ours, MapShape) and _bounds(model)[1] == ours.most
            else [f"{path}: {_bounds(model)}"]
        )
        return (
            found
            + differences(model.key, ours.key, f"{path} key")
            + differences(model.value, ours.value, path)
        )
    if kind == "string":
        return list(_of_text(model, ours, path))
    if kind in ("integer", "long", "double", "float"):
        wanted = Number(
            least=model.metadata.get("min"), most=model.metadata.get("max"), whole=kind in ("integer", "long")
        )
        return [] if ours == wanted else [f"{path}: {ours}, not {wanted}"]
    plain = {"boolean": Flag, "timestamp": TimestampShape}[kind]
    return [] if isinstance(ours, plain) else [f"{path}: should be {kind}"]


def _of_structure(model, ours, path):
    is_union = getattr(model, "is_tagged_union", False)
    if not isinstance(ours, Union if is_union else Structure):
        yield f"{path}: should be a {'union' if is_union else 'structure'}"
        return
    missing = set(model.members) - set(ours.members)
    yield from (f"{path}.{name}: missing" for name in missing)
    yield from (f"{path}.{name}: not in the model" for name in set(ours.members) - set(model.members))
    if not is_union and set(model.required_members) != set(ours.required):
        yield f"{path}: requires {model.required_members}, not {ours.required}"
    for name in set(ours.members) & set(model.members):
        yield from differences(model.members[name], ours.members[name], f"{path}.{name}")


def _of_text(model, ours, path):
    if not isinstance(ours, Text):
        yield f"{path}: should be a string"
        return
    if _bounds(model) != (ours.least or None, ours.most):
        yield f"{path}: length {ours.least}..{ours.most}, not {_bounds(model)}"
    if set(model.enum) != set(ours.allowed):
        yield f"{path}: {ours.allowed}, not {model.enum}"
    pattern = model.metadata.get("pattern", "")
    if EITHER_EMPTY in pattern.strip(EITHER_EMPTY):
        # Between two patterns it is a choice of them.
        pattern = pattern.replace(EITHER_EMPTY, "|")
    elif EITHER_EMPTY in pattern:
        pattern = f"({pattern.replace(EITHER_EMPTY, '')})?"
    if pattern != ours.pattern:
        yield f"{path}: pattern {ours.pattern!r}, not {pattern}"


def _bounds(model):
    return model.metadata.get("min") or None, model.metadata.get("max")


@pytest.mark.parametrize(
    "operation",
    [*OPERATIONS, *logs.OPERATIONS, *metrics.OPERATIONS.values()],
    ids=lambda operation: operation.name,
)
def test_requests_are_held_to_the_clients_model(operation):
    model = _clients[operation.plane].meta.service_model.operation_model(operation.name)

    found = differences(model.input_shape, operation.shape, operation.name)
    own = {each for each in OTHERWISE if each.startswith(f"{operation.name}.")}
    assert {each.partition(", not ")[0] for each in found} == own, "run tools/write_service_model.py"
    assert (model.http["method"], model.http.get("responseCode", 200)) == (operation.method, operation.status)
    assert re.sub(r"\?.*", "", model.http["requestUri"]) == operation.path
