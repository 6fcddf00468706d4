"""Pages of the site that are written from the code: plan schema, Python API, HTTP API, tables of the store.

    python tools/reference.py FOLDER

`make site` makes them each time, so they are in no commit and never out of date.
"""

import ast
import inspect
import json
import re
import sqlite3
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

MAX_SIGNATURE = 80
SCHEMAS = Path(__file__).resolve().parents[1] / "src" / "proctor" / "schemas"
WRITTEN = "Written by `make site` from the code; there is no source to edit."


def pages() -> dict[str, str]:
    """Each page by its path in the site."""
    return {
        "reference/plan-schema.md": plan_schema(),
        "reference/python-api.md": python_api(),
        "reference/http-api.md": http_api(),
        "reference/store-tables.md": store_tables(),
    }


def plan_schema() -> str:
    """Every section of the files of each job, with the type and meaning of each key."""
    parts = [
        "# Plan schema",
        WRITTEN
        + " `proctor schema` prints the same as JSON Schema, which editors use to complete and check plans."
        " The keys are explained in [plans](../plans.md), [benchmarks](../benchmarks.md),"
        " [dialogues](../dialogues.md), [scenarios](../scenarios.md), and [evaluation](../evaluation.md).",
    ]
    for file in sorted(SCHEMAS.glob("*.schema.json")):
        job = file.name.partition(".")[0]
        schema = json.loads(file.read_text(encoding="utf-8"))
        parts += _section(job, job, schema)
        for name, section in sorted(schema.get("$defs", {}).items()):
            parts += _section(job, f"{job}: {name}", section)
    return "\n\n".join(parts) + "\n"


def _section(job: str, title: str, schema: Mapping[str, Any]) -> Iterator[str]:
    properties = schema.get("properties")
    if not properties:
        return
    yield f"{'##' if title == job else '###'} {title}"
    if schema.get("description"):
        yield _text(schema["description"])
    required = schema.get("required", [])
    rows = [
        (
            f"`{key}`",
            _type(value, f"{job}-"),
            "required" if key in required else "",
            _text(value.get("description", "")),
        )
        for key, value in properties.items()
    ]
    yield _table(("key", "type", "", "meaning"), rows)


def _type(schema: Mapping[str, Any], anchor: str = "") -> str:
    """A short name of a JSON Schema type; sections are links to `anchor` and their name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchor}{name.lower()})"
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            kinds = [_type(part, anchor) for part in schema[word] if part.get("type") != "null"]
            return " or ".join(dict.fromkeys(kind for kind in kinds if kind))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}), anchor)}"
    if isinstance(kind, list):
        return " or ".join(str(each) for each in kind)
    return {"object": "map", "string": "text"}.get(kind, str(kind))


def python_api() -> str:
    """The names of `import proctor`: functions first, then classes, then errors."""
    proctor = import_module("proctor")
    names = [name for name in proctor.__all__ if not name.startswith("_")]
    members = {name: getattr(proctor, name) for name in names}
    errors = {n: m for n, m in members.items() if inspect.isclass(m) and issubclass(m, Exception)}
    classes = {n: m for n, m in members.items() if inspect.isclass(m) and n not in errors}
    functions = {n: m for n, m in members.items() if n not in errors and n not in classes}
    parts = ["# Python API", WRITTEN + " [Python](../python.md) shows how to use it.", "## Functions"]
    for name, function in functions.items():
        parts += [f"### proctor.{name}", *_callable(f"proctor.{name}", function)]
    parts.append("## Classes")
    for name, cls in classes.items():
        parts += [f"### proctor.{name}", _doc(cls), *_fields(cls)]
        for member, value in _public(cls):
            parts += _member(member, value)
    parts.append("## Errors")
    parts += [
        _table(("error", "meaning"), [(f"`{name}`", _text(_doc(error))) for name, error in errors.items()])
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _fields(cls: type) -> Iterator[str]:
    """The fields of a dataclass, with the text that stands below each in the source."""
    if not is_dataclass(cls):
        return
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    rows = []
    for position, node in enumerate(body.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.target.id.startswith("_"):
                continue
            after = body.body[position + 1] if position + 1 < len(body.body) else None
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = _text(str(after.value.value))
            rows.append((f"`{node.target.id}`", f"`{_short(ast.unparse(node.annotation))}`", text))
    if rows:
        yield _table(("field", "type", "meaning"), rows)


def _public(cls: type) -> Iterator[tuple[str, Any]]:
    for name in vars(cls):
        if not name.startswith("_") and (
            inspect.isfunction(vars(cls)[name]) or isinstance(vars(cls)[name], property)
        ):
            yield name, vars(cls)[name]


def _member(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield f"**`{name}`** – {_text(_doc(value))}"
    else:
        yield f"**`{name}{' '.join(_signature(value).split())}`** – {_text(_doc(value))}"


def _callable(name: str, function: Any) -> Iterator[str]:
    yield f"```python\n{name}{_signature(function)}\n```"
    yield _doc(function)


def _signature(function: Any) -> str:
    """The signature in short names; one parameter per line where it is long."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(…)"
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    line = _short(str(signature.replace(parameters=parameters)))
    if len(line) <= MAX_SIGNATURE:
        return line
    lines = []
    has_star = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not has_star:
            has_star = True
            lines.append("*")
        has_star = has_star or each.kind is each.VAR_POSITIONAL
        lines.append(_short(str(each)))
    result = signature.return_annotation
    returned = "" if result is signature.empty else f" -> {_short(inspect.formatannotation(result))}"
    return "(\n" + "".join(f"    {line},\n" for line in lines) + f"){returned}"


def _short(text: str) -> str:
    """Types without the names of their modules, and without quotes around them."""
    text = re.sub(r"\b(?:collections\.abc|pathlib|typing|datetime|proctor(?:\.\w+)*)\.(?=[A-Z])", "", text)
    return re.sub(r"(?<=[:>] )'([^']*)'", r"\1", text)


def _doc(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


def http_api() -> str:
    """Each route of the web application, by path, with its parameters and answers."""
    document = _openapi()
    parts = [
        "# HTTP API",
        WRITTEN
        + " `GET /api/openapi.json` of a running `proctor serve` has the same as OpenAPI; "
        + "[access control](../web.md#access-control) says who may call what. "
        + "Errors are `ErrorAnswer` as application/json.",
    ]
    for path, operations in sorted(document["paths"].items()):
        for method, operation in operations.items():
            parts += _operation(method.upper(), path, operation)
    return "\n\n".join(parts) + "\n"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {method} {path}"
    text = operation.get("description") or operation.get("summary") or ""
    if text:
        yield _text(text)
    rows = [
        (
            f"`{each['name']}`",
            each["in"],
            _type(each.get("schema", {})).partition("(#")[0],
            _text(each.get("description", "")),
        )
        for each in operation.get("parameters", [])
    ]
    if rows:
        yield _table(("parameter", "in", "type", "meaning"), rows)
    body = _body(operation.get("requestBody", {}))
    answers = [
        f"{code}: {_body(answer) or _text(answer.get('description', ''))}"
        for code, answer in operation["responses"].items()
        if not code.startswith(("4", "5"))
    ]
    yield (f"Request body: {body}. " if body else "") + f"Answer: {'; '.join(answers)}."


def _body(part: Mapping[str, Any]) -> str:
    """Media types and schemas of a request or an answer."""
    kinds = []
    for media, content in part.get("content", {}).items():
        name = _type(content.get("schema", {})).replace("[", "").partition("]")[0]
        kinds.append(f"`{name}` as {media}" if name not in ("any", "") else media)
    return ", ".join(kinds)


def _openapi() -> dict[str, Any]:
    from proctor.bootstrap import open_context
    from proctor.web.app import create_app
    from proctor.web.state import AppState

    with tempfile.TemporaryDirectory() as home:
        with open_context([Path(home)], home=home, store=f"{home}/proctor.db") as context:
            document: dict[str, Any] = create_app(AppState(context=context, command=())).openapi()
            return document


def store_tables() -> str:
    """Each table with its columns and SQL types, from a store as it is made now."""
    from proctor.store import Store
    from proctor.store.tables import COLUMNS

    parts = [
        "# Store tables",
        WRITTEN
        + " [Store](../record.md) explains them. Types are SQLite's; PostgreSQL has the same columns.",
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/proctor.db"
        with Store(file):
            pass
        with sqlite3.connect(file) as database:
            for table in COLUMNS:
                rows = [
                    (f"`{name}`", kind or "any", "key" if key else "required" if required else "")
                    for _, name, kind, required, _, key in database.execute(f'PRAGMA table_info("{table}")')
                ]
                parts += [f"## {table}", _table(("column", "type", ""), rows)]
        database.close()
    return "\n\n".join(parts) + "\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _text(text: str) -> str:
    """Prose on one line; what looks like HTML is shown as it is."""
    return re.sub(r"<(?=\w)", "&lt;", " ".join(text.split()))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for name, content in pages().items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(content, encoding="utf-8")
