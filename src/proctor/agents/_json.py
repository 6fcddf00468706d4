"""Look into JSON that an agent printed, where anything may be missing or of another kind.

What is not there, or is not what was expected, is empty: no reader has to ask first.

Knows nothing of any agent's format.
"""

import json
from collections.abc import Mapping
from typing import Any

from proctor.untrusted import parse_json

SHORT = 2000
"""Characters of something shown in passing: a question, an error."""


def json_object(line: str) -> dict[str, Any] | None:
    """The line as a JSON object; None when it is anything else."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def a_map(value: Any, *path: str) -> Mapping[str, Any]:
    """The object at the end of a path of names; empty when there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def a_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def a_text(value: Any) -> str:
    """The value if it is text, else none."""
    return value if isinstance(value, str) else ""


def a_number(value: Any) -> float | None:
    """A length or an amount as the program gave it; nonsense counts as not given."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e15 else None


def an_integer(value: Any) -> int | None:
    """A status or an exit code as the program gave it; None when it gave none."""
    return value if type(value) is int else None


def shown(value: Any) -> str:
    """Anything as a short text for people."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:SHORT]


def joined(content: Any) -> str:
    """The text of a message's content: plain, or in parts that each have some."""
    if isinstance(content, str):
        return content
    parts = (a_text(a_map(part).get("text")) for part in a_list(content))
    return "\n".join(part for part in parts if part)
