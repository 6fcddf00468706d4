"""The HTTP interface as callers know it, recorded in `openapi.txt`: an operation or a schema in each line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from proctor.web.app import create_app
from proctor.web.state import AppState
from recorded_files import check_text

PROSE = {"title", "description", "summary", "tags", "example", "examples", "operationId"}
BOUNDS = {
    "minimum": "≥ ",
    "exclusiveMinimum": "> ",
    "maximum": "≤ ",
    "exclusiveMaximum": "< ",
    "minLength": "from ",
    "maxLength": "to ",
    "minItems": "from ",
    "maxItems": "to ",
    "pattern": "like ",
}


def described(schema: Any) -> str:
    """A schema in one line; what has no notation here is told by its name."""
    if not isinstance(schema, Mapping):
        return json.dumps(schema)
    left = {name: value for name, value in schema.items() if name not in PROSE}
    text = "".join(_kind(left))
    for name, sign in BOUNDS.items():
        text += f" {sign}{left.pop(name)}" if name in left else ""
    text += f" = {json.dumps(left.pop('default'))}" if "default" in left else ""
    return text + "".join(f" {name} {json.dumps(value)}" for name, value in left.items())


def _kind(left: dict[str, Any]) -> Iterator[str]:
    """What kind of value it is, taken from what is left of a schema."""
    if "$ref" in left:
        yield left.pop("$ref").rpartition("/")[2]
    for name in ("anyOf", "oneOf", "allOf"):
        if name in left:
            yield " | ".join(map(described, left.pop(name)))
    if "enum" in left:
        yield " | ".join(map(json.dumps, left.pop("enum")))
        left.pop("type", None)
    kind = left.pop("type", "")
    if kind == "array":
        yield f"[{described(left.pop('items', {}))}]"
    elif kind == "object":
        required = left.pop("required", ())
        members = [
            f"{name}{'' if name in required else '?'}: {described(part)}"
            for name, part in left.pop("properties", {}).items()
        ]
        if "additionalProperties" in left:
            members.append(f"*: {described(left.pop('additionalProperties'))}")
        yield "{" + ", ".join(members) + "}"
    else:
        yield kind
    if "format" in left:
        yield f"({left.pop('format')})"


def line_of(method: str, path: str, operation: dict[str, Any]) -> str:
    """An operation with its parameters, the body of its request and its answers."""
    left = {name: value for name, value in operation.items() if name not in PROSE}
    parts = [f"{method.upper()} {path}"]
    for each in left.pop("parameters", ()):
        sign = {"query": "?", "path": "/", "header": "header "}[each["in"]]
        needed = "!" if each.get("required") and each["in"] != "path" else ""
        parts.append(f"{sign}{each['name']}{needed}: {described(each['schema'])}")
    if "requestBody" in left:
        body = left.pop("requestBody")
        parts.append(f"{'body!' if body.get('required') else 'body'}{_contents(body)}")
    answers: dict[str, list[str]] = {}
    for status, answer in left.pop("responses").items():
        answers.setdefault(_contents(answer), []).append(status)
    rest = "".join(f" {name} {json.dumps(value)}" for name, value in left.items())
    answered = ", ".join(" ".join(statuses) + contents for contents, statuses in answers.items())
    return f"{'; '.join(parts)} → {answered}{rest}"


def _contents(message: dict[str, Any]) -> str:
    return "".join(
        f" {'' if kind == 'application/json' else kind + ' '}{described(content.get('schema', {}))}".rstrip()
        for kind, content in message.get("content", {}).items()
    )


def test_operations_and_schemas_are_those_that_callers_know(site: AppState) -> None:
    answer = TestClient(create_app(site), base_url="http://127.0.0.1:8765").get("/api/openapi.json")

    document = answer.json()
    operations = [
        line_of(method, path, operation)
        for path, operations in sorted(document["paths"].items())
        for method, operation in sorted(operations.items())
    ]
    schemas = [
        f"{name} {described(schema)}" for name, schema in sorted(document["components"]["schemas"].items())
    ]
    others = {name: value for name, value in document["components"].items() if name != "schemas"}
    first = f"OpenAPI {document['openapi']} {json.dumps(others)}".removesuffix(" {}")
    check_text(
        Path(__file__).with_name("openapi.txt"), "\n".join([first, "", *operations, "", *schemas]) + "\n"
    )
