"""Whether metrics stand a comparison: `>= 7`, `== true`, `!= war`.

Knows nothing of where the values come from.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from proctor.scenario.definition import CONDITION
from proctor.scenario.state import Value

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def all_hold(conditions: Mapping[str, str], values: Mapping[str, Value]) -> bool:
    """Whether every metric named stands its comparison; one that is missing stands none."""
    return all(holds(text, values.get(name)) for name, text in conditions.items())


def holds(condition: str, value: Value) -> bool:
    """Whether one value stands one comparison."""
    found = CONDITION.fullmatch(condition.strip())
    if found is None or value is None:
        return False
    compare, wanted = _COMPARED[found[1]], _meant(found[2].strip().strip("\"'"))
    if isinstance(value, str) or isinstance(wanted, str):
        return found[1] in ("==", "!=") and compare(str(value).lower(), str(wanted).lower())
    return compare(float(value), float(wanted))


def _meant(text: str) -> float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text
