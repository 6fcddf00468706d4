"""Make what agents say writable: hostile text, numbers that are none.

Knows nothing of what the values mean.
"""

import math

LARGEST_NUMBER = 2**62


def clean(text: str) -> str:
    """Text that every database takes: no NUL, no half of a surrogate pair."""
    if "\0" in text:
        text = text.replace("\0", "�")
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def finite(number: float | None) -> float | None:
    """A number that can be added up, or None: an agent may well print `NaN`."""
    return number if number is not None and math.isfinite(number) else None


def whole(number: int) -> int:
    """A count that fits a column, whatever an agent claims."""
    return max(0, min(int(number), LARGEST_NUMBER))
