"""Bounds and defaults of all parameters and members of requests, as recorded in `parameter_bounds.json`.

After a change of the interface, record with PROCTOR_RECORD_SNAPSHOTS=1, then read the difference.
"""

import json
import os
from pathlib import Path
from typing import Any

from proctor.web.app import create_app
from proctor.web.state import AppState

FILE = Path(__file__).parent / "parameter_bounds.json"
WORDS = {"description", "title", "summary"}


def plain(schema: Any) -> Any:
    """A schema without what is only read by people."""
    if isinstance(schema, dict):
        return {name: plain(value) for name, value in schema.items() if name not in WORDS}
    return [plain(each) for each in schema] if isinstance(schema, list) else schema


def bounds_of(document: dict[str, Any]) -> dict[str, Any]:
    """By operation: its parameters and the status of its answer; by name: the bodies of requests."""
    found: dict[str, Any] = {}
    bodies: set[str] = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parameters = {
                each["name"]: {
                    "in": each["in"],
                    "required": each.get("required", False),
                    **plain(each["schema"]),
                }
                for each in operation.get("parameters", ())
            }
            success = [status for status in operation["responses"] if status.startswith("2")]
            found[f"{method.upper()} {path}"] = {"status": success, "parameters": parameters}
            bodies |= references(operation.get("requestBody"))
    schemas = document["components"]["schemas"]
    while missing := {name for name in bodies if name not in found}:
        for name in sorted(missing):
            # A name of a member may be one of `WORDS`.
            members = {member: plain(value) for member, value in schemas[name].get("properties", {}).items()}
            found[name] = {**plain(schemas[name]), **({"properties": members} if members else {})}
            bodies |= references(schemas[name])
    return found


def references(schema: Any) -> set[str]:
    """Names of the schemas that a schema refers to."""
    if isinstance(schema, dict):
        own = {schema["$ref"].rpartition("/")[2]} if "$ref" in schema else set[str]()
        return own.union(*map(references, schema.values()))
    return set[str]().union(*map(references, schema)) if isinstance(schema, list) else set()


def test_parameters_have_the_bounds_and_defaults_that_callers_know(site: AppState) -> None:
    found = bounds_of(create_app(site).openapi())
    if os.environ.get("PROCTOR_RECORD_SNAPSHOTS") == "1":
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(found.items())]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert len(found) > 80
    assert found == json.loads(FILE.read_text(encoding="utf-8"))
