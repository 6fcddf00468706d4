"""Bounds and patterns of all requests, as recorded in `request_bounds.json`: those of the AWS service.

After a change of the service, record with PROCTOR_RECORD_SNAPSHOTS=1, then read the difference.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from proctor.web.agentcore import request_shapes, shapes

FILE = Path(__file__).parent / "request_bounds.json"


def plain(shape: Any) -> Any:
    """A shape without what has its default."""
    if is_dataclass(shape):
        values = {each.name: plain(getattr(shape, each.name)) for each in fields(shape)}
        return {"shape": type(shape).__name__, **{name: value for name, value in values.items() if value}}
    if isinstance(shape, dict):
        return {name: plain(value) for name, value in shape.items()}
    if isinstance(shape, list | tuple | set | frozenset):
        return [plain(each) for each in (sorted(shape) if isinstance(shape, set | frozenset) else shape)]
    return shape


def shapes_in(value: Any) -> Iterable[Any]:
    """The shapes of a constant, which is one or has some by name."""
    return value.values() if isinstance(value, dict) else [value]


def test_requests_have_the_bounds_of_the_service() -> None:
    found = {
        name: plain(value)
        for module in (shapes, request_shapes)
        for name, value in vars(module).items()
        if name.isupper() and any(type(each).__module__ == shapes.__name__ for each in shapes_in(value))
    }
    if os.environ.get("PROCTOR_RECORD_SNAPSHOTS") == "1":
        lines = [
            f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in found.items()
        ]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert len(found) > 40
    assert found == json.loads(FILE.read_text(encoding="utf-8"))
    missing = request_shapes.collected(
        request_shapes.START.flaws({}, ""), request_shapes.something_to_judge({})
    )
    assert [flaw.name for flaw in missing] == ["batchEvaluationName", "dataSourceConfig", "evaluators"]
