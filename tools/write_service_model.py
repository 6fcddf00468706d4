"""Write `service_model.json` of the AWS-compatible service from the models that botocore has.

The file names the operations; to add one, add its name with `{}`. Each entry has a line, so that changes can
be read.
"""

import json
from pathlib import Path
from typing import Any

import botocore
from botocore.loaders import Loader

FILE = Path(__file__).parents[1] / "src/proctor/agentcore/service_model.json"
OF_SHAPES = ("type", "required", "union", "document", "min", "max", "pattern", "enum")
OF_MEMBERS = ("shape", "location", "locationName")


def part(model: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The requests of some operations, with all shapes in them."""
    operations = {name: model["operations"][name] for name in names}
    shapes: dict[str, Any] = {}

    def add(name: str) -> str:
        if name not in shapes:
            source = model["shapes"][name]
            shapes[name] = shape = {key: source[key] for key in OF_SHAPES if key in source}
            if source["type"] == "structure":
                shape["members"] = {
                    member: {key: entry[key] for key in OF_MEMBERS if key in entry}
                    for member, entry in source["members"].items()
                }
            inner = [source[key] for key in ("member", "key", "value") if key in source]
            shape |= {key: source[key]["shape"] for key in ("member", "key", "value") if key in source}
            for entry in (*inner, *source.get("members", {}).values()):
                add(entry["shape"])
        return name

    return {
        "operations": {
            name: {**operation["http"], "input": add(operation["input"]["shape"])}
            for name, operation in operations.items()
        },
        "shapes": dict(sorted(shapes.items())),
    }


def text_of(document: dict[str, Any], depth: int = 3) -> str:
    """JSON, with one line per entry of the third level."""
    if depth == 0:
        return json.dumps(document)
    entries = (f"{json.dumps(name)}: {text_of(entry, depth - 1)}" for name, entry in document.items())
    return "{\n" + ",\n".join(entries) + "\n}"


def main() -> None:
    known = json.loads(FILE.read_text(encoding="utf-8"))
    models = {
        service: part(Loader().load_service_model(service, "service-2"), list(entry["operations"]))
        for service, entry in known.items()
    }
    FILE.write_text(text_of(models) + "\n", encoding="utf-8")
    print(f"wrote {FILE.name} from botocore {botocore.__version__}")


if __name__ == "__main__":
    main()
