"""The manual of the JSON interface, as a page of ours: it loads nothing from outside.

Knows nothing of the routes but what they say of themselves.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from proctor.web.answers import page
from proctor.web.site import Site

METHODS = ("get", "post", "put", "delete", "patch")


def router(_: Site) -> APIRouter:
    """The page."""
    made = APIRouter(include_in_schema=False)

    @made.get("/api/docs")
    def shown(request: Request) -> Response:
        document = request.app.openapi()
        groups: dict[str, list[dict[str, Any]]] = {}
        for operation in _operations(document):
            groups.setdefault(operation["group"], []).append(operation)
        schemas = {
            name: list(_members(schema))
            for name, schema in document.get("components", {}).get("schemas", {}).items()
            if schema.get("properties")
        }
        return page(request, "manual.html", title="HTTP interface", groups=groups, schemas=schemas)

    return made


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, entry in document["paths"].items():
        for method in METHODS:
            if method not in entry:
                continue
            said = entry[method]
            yield {
                "group": (said.get("tags") or ["other"])[0],
                "method": method.upper(),
                "path": path,
                "summary": said.get("summary", ""),
                "description": said.get("description", ""),
                "parameters": [_parameter(each) for each in said.get("parameters", ())],
                "body": _schema_of(said.get("requestBody")),
                "answers": [
                    {"status": status, "schema": _schema_of(answer), "said": answer.get("description", "")}
                    for status, answer in said.get("responses", {}).items()
                ],
            }


def _parameter(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": each["name"],
        "where": each["in"],
        "required": each.get("required", False),
        "type": _kind(each.get("schema", {})),
        "said": each.get("description") or each.get("schema", {}).get("description", ""),
    }


def _members(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    needed = schema.get("required", ())
    for name, about in schema["properties"].items():
        yield {
            "name": name,
            "type": _kind(about),
            "required": name in needed,
            "said": about.get("description", ""),
        }


def _schema_of(part: Mapping[str, Any] | None) -> str:
    content = (part or {}).get("content", {})
    return next((_kind(each["schema"]) for each in content.values() if "schema" in each), "")


def _kind(schema: Mapping[str, Any]) -> str:
    """A schema in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_kind, several)))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))
