"""What is wrong with the value of a script's step; empty when nothing is.

Knows nothing of what the steps do.
"""

from collections.abc import Callable, Mapping
from typing import Any


def text(value: Any) -> str:
    """For steps that are one text."""
    return "" if isinstance(value, str) else "takes a text"


def seconds(value: Any) -> str:
    """For a pause."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return "" if is_number else "takes a number of seconds"


def exit_code(value: Any) -> str:
    """For the way a program ends."""
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 256
    return "" if fits else "takes an exit code from 0 to 255"


def chance(value: Any) -> str:
    """For a step that may not be taken; its own steps are checked as any others."""
    fits = isinstance(value, Mapping) and set(value) == {"p", "steps"} and isinstance(value["p"], int | float)
    return "" if fits and 0 <= value["p"] <= 1 else "takes `p`, from 0 to 1, and `steps`"


def members(required: str, optional: str = "") -> Callable[[Any], str]:
    """A check that a step is a map with these members; the required ones are texts."""
    must, may = required.split(), optional.split()

    def problem(value: Any) -> str:
        if not isinstance(value, Mapping) or set(value) - {*must, *may}:
            return f"takes a map of: {', '.join([*must, *may])}"
        missing = [name for name in must if not isinstance(value.get(name), str)]
        return f"needs {' and '.join(f'`{name}`' for name in missing)} as text" if missing else ""

    return problem


def usage(value: Any) -> str:
    """For a claimed model call."""
    if problem := members("", "model input cached output cost")(value):
        return problem
    numbers = [count for name, count in value.items() if name not in ("model", "cost")]
    return "" if all(isinstance(count, int) and count >= 0 for count in numbers) else "counts tokens"
