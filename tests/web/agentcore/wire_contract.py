"""Hold a response against the client's own model of its service, member by member.

The client itself lets nearly everything pass: missing members, unknown words, numbers as text.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

MAY_LACK = {("GetEvaluator", "evaluatorConfig")}
"""Required by the model where nothing fits: a built-in that is a program, and the metadata alone."""


def problems_of_response(operation: Any, response: Any) -> list[str]:
    """Everything about a response that the model does not have so."""
    said = response.content
    body = json.loads(said) if said else {}
    return [f"{operation.name}: {problem}" for problem in _problems(operation, response, body)]


def _problems(operation: Any, response: Any, body: Any) -> Iterator[str]:
    if not response.headers.get("x-amzn-RequestId"):
        yield "no request id"
    if response.status_code < 300:
        if response.status_code != operation.http.get("responseCode", 200):
            yield f"status {response.status_code}"
        if operation.output_shape is not None:
            yield from _walk(operation.output_shape, body, "", operation)
        return
    kind = response.headers.get("x-amzn-ErrorType", "")
    if body.pop("__type", kind) != kind:
        yield "the error has two names"
    modeled = {shape.name: shape for shape in operation.error_shapes}
    if kind in modeled:
        shape = modeled[kind]
        expected = shape.metadata.get("error", {}).get("httpStatusCode", 400)
        if response.status_code != expected:
            yield f"{kind} with status {response.status_code}, not {expected}"
        # Errors of the log service have no members in the model; clients read their message all the same.
        members = body if "message" in shape.members else {}
        yield from _walk(shape, members, kind, operation)
        if not body.get("message"):
            yield f"{kind} says nothing"
    elif kind not in UNMODELLED.get(response.status_code, ()):
        yield f"{response.status_code} {kind} is no error of this operation"


UNMODELLED = {
    400: ("InvalidParameterException", "UnknownOperationException", "IncompleteSignatureException"),
    403: (
        "AccessDeniedException",
        "InvalidSignatureException",
        "UnrecognizedClientException",
        "MissingAuthenticationTokenException",
        "IncompleteSignatureException",
    ),
    404: ("UnknownOperationException",),
    413: ("RequestEntityTooLargeException",),
}
"""What every signed service may say, whatever its model lists."""


def _walk(shape: Any, value: Any, path: str, operation: Any) -> Iterator[str]:
    here = path or "the body"
    if value is None:
        yield f"{here} is null"
        return
    yield from _KINDS[shape.type_name](shape, value, here, operation)


def _structure(shape: Any, value: Any, path: str, operation: Any) -> Iterator[str]:
    if shape.is_document_type:
        return
    if not isinstance(value, dict):
        yield f"{path} is no object"
        return
    known = {member.serialization.get("name", name): (name, member) for name, member in shape.members.items()}
    for name in value:
        if name not in known:
            yield f"{path}.{name} is not in the model"
    for name in shape.required_members:
        told = shape.members[name].serialization.get("name", name)
        if told not in value and (operation.name, name) not in MAY_LACK:
            yield f"{path}.{told} is missing"
    if getattr(shape, "is_tagged_union", False) and len(value) != 1:
        yield f"{path} is a union with {len(value)} members"
    for told, (_, member) in known.items():
        if told in value:
            yield from _walk(member, value[told], f"{path}.{told}", operation)


def _list(shape: Any, value: Any, path: str, operation: Any) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path} is no list"
        return
    yield from _within(shape, len(value), path)
    for number, member in enumerate(value):
        yield from _walk(shape.member, member, f"{path}[{number}]", operation)


def _map(shape: Any, value: Any, path: str, operation: Any) -> Iterator[str]:
    yield from _within(shape, len(value), path)
    for name, member in value.items():
        yield from _walk(shape.key, name, f"{path} key", operation)
        yield from _walk(shape.value, member, f"{path}.{name}", operation)


def _string(shape: Any, value: Any, path: str, operation: Any) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"{path} is no string"
        return
    yield from _within(shape, len(value), path)
    if shape.enum and value not in shape.enum:
        yield f"{path}: {value} is not in {shape.enum}"
    pattern = shape.metadata.get("pattern")
    if pattern and not re.search(f"^(?:{pattern})$", value):
        yield f"{path}: {value} does not match {pattern}"


def _number(shape: Any, value: Any, path: str, operation: Any) -> Iterator[str]:
    wanted = int if shape.type_name in ("integer", "long") else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted):
        yield f"{path}: {value!r} is no {shape.type_name}"
        return
    yield from _within(shape, value, path)


def _boolean(shape: Any, value: Any, path: str, operation: Any) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{path} is no boolean"


def _timestamp(shape: Any, value: Any, path: str, operation: Any) -> Iterator[str]:
    if shape.serialization.get("timestampFormat") == "iso8601":
        if not isinstance(value, str) or not re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", value
        ):
            yield f"{path}: {value!r} is not written as ISO 8601"
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**10:
        yield f"{path}: {value!r} is no number of seconds"


def _within(shape: Any, size: float, path: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and size < least:
        yield f"{path}: {size} is below {least}"
    if most is not None and size > most:
        yield f"{path}: {size} is above {most}"


_KINDS: dict[str, Any] = {
    "structure": _structure,
    "list": _list,
    "map": _map,
    "string": _string,
    "integer": _number,
    "long": _number,
    "double": _number,
    "float": _number,
    "boolean": _boolean,
    "timestamp": _timestamp,
}
