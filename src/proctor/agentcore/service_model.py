"""The model of AWS's services that their clients have: route and request shape of each operation.

`service_model.json` is the part of botocore's data about the operations of this server, written by
`tools/write_service_model.py`. It is a copy so that a server needs no botocore, which has 29 MB, and because
operations rely on the unions and enums that they were written for, whatever the installed version allows.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from proctor.agentcore.shapes import (
    Anything,
    Flag,
    Many,
    MapShape,
    Number,
    Shape,
    Structure,
    Text,
    TimestampShape,
    Union,
)

PLANES = {
    "bedrock-agentcore": "data",
    "bedrock-agentcore-control": "control",
    "logs": "logs",
    "cloudwatch": "monitoring",
}
DOCUMENTED = {"LogGroupNames": (1, 50), "LogGroupIdentifiers": (1, 50), "MetricDataQueries": (0, 500)}
"""Lengths of lists in the manual of the services that their models lack."""
EITHER_EMPTY = "$|^"
"""How a model writes that a text may be empty, or, between two patterns, a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationModel:
    """One operation of a service."""

    name: str
    plane: str
    """`data`, `control`, `logs` or `monitoring`."""
    method: str
    path: str
    """With its members: `/evaluators/{evaluatorId}`."""
    shape: Structure
    query: Mapping[str, str]
    """Members in the query string, by the name that they have there."""
    status: int


@cache
def _operations() -> Mapping[str, OperationModel]:
    text = files("proctor.agentcore").joinpath("service_model.json").read_text(encoding="utf-8")
    return {
        name: _operation(name, PLANES[service], http, model["shapes"])
        for service, model in json.loads(text).items()
        for name, http in model["operations"].items()
    }


def operation_model(name: str) -> OperationModel:
    """The model of an operation."""
    return _operations()[name]


def _operation(name: str, plane: str, http: Mapping[str, Any], shapes: Mapping[str, Any]) -> OperationModel:
    shape = _shape(http["input"], shapes)
    assert isinstance(shape, Structure)
    return OperationModel(
        name=name,
        plane=plane,
        method=http["method"],
        path=http["requestUri"].partition("?")[0],
        shape=shape,
        query={
            entry["locationName"]: member
            for member, entry in shapes[http["input"]]["members"].items()
            if entry.get("location") == "querystring"
        },
        status=http.get("responseCode", 200),
    )


def _shape(name: str, shapes: Mapping[str, Any]) -> Shape:
    entry = shapes[name]
    least, most = DOCUMENTED.get(name) or (entry.get("min"), entry.get("max"))
    match entry["type"]:
        case "structure" if "document" in entry:
            return Anything()
        case "structure":
            members = {member: _shape(each["shape"], shapes) for member, each in entry["members"].items()}
            return Union(members) if "union" in entry else Structure(members, entry.get("required", ()))
        case "list":
            return Many(of=_shape(entry["member"], shapes), least=least or 0, most=most)
        case "map":
            value = _shape(entry["value"], shapes)
            return MapShape(key=_text(shapes[entry["key"]]), value=value, most=most)
        case "string":
            return _text(entry)
        case "boolean":
            return Flag()
        case "timestamp":
            return TimestampShape()
        case kind:
            return Number(least=least, most=most, whole=kind in ("integer", "long"))


def _text(entry: Mapping[str, Any]) -> Text:
    pattern = entry.get("pattern", "")
    if EITHER_EMPTY in pattern.strip(EITHER_EMPTY):
        pattern = pattern.replace(EITHER_EMPTY, "|")
    elif EITHER_EMPTY in pattern:
        pattern = f"({pattern.replace(EITHER_EMPTY, '')})?"
    return Text(
        least=entry.get("min", 0), most=entry.get("max"), pattern=pattern, allowed=entry.get("enum", ())
    )
