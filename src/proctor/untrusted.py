"""Read JSON that someone else wrote: a provider, an agent, a program.

What comes out can be stored anywhere: no NaN, no infinity, no half characters, no number beyond
what a column holds. Whatever is wrong with the text is a `ValueError`, however deep it is nested.

Knows nothing of what the JSON means.
"""

import json
import math
from typing import Any

# No model has been seen to read a billion tokens; a column holds far more.
MOST = 10**12


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text; a `ValueError` says what is wrong with it."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        found = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            # Half of a pair of escapes is no character: no file and no database takes it.
            whole_characters = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
            found = _DECODER.decode(whole_characters.decode())
    except RecursionError as deep:
        raise ValueError("it is nested too deeply") from deep
    return found


def whole_number(value: Any) -> int:
    """A count as someone else gave it; what cannot be one counts as none."""
    return value if type(value) is int and 0 < value <= MOST else 0


def _nothing(name: str) -> None:  # noqa: ARG001 (the decoder says which of the three it was)
    return None


def _finite(digits: str) -> float | None:
    """`1e400` is valid JSON and becomes an infinity, which is not."""
    value = float(digits)
    return value if math.isfinite(value) else None


_DECODER = json.JSONDecoder(parse_constant=_nothing, parse_float=_finite)
