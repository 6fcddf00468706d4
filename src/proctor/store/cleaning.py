"""Make what agents say writable: hostile text, numbers that are none.

Knows nothing of what the values mean.
"""

import math
from typing import Any

from proctor.processes.streams import clipped
from proctor.untrusted import MOST

LONGEST_ERROR = 8192
"""Characters of an error that are kept, half of them from its end: it is shown in every list."""


def clean(text: str) -> str:
    """Text that every database takes: no NUL, no half of a surrogate pair."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def short(text: str) -> str:
    """The head and tail of what is meant to be a line or two, whatever it really is."""
    return text if len(text) <= LONGEST_ERROR else clipped(text, LONGEST_ERROR // 2)


def finite(number: float | None) -> float | None:
    """A number that can be added up, or None: an agent may well print `NaN`."""
    try:
        return number if number is not None and math.isfinite(number) else None
    except OverflowError:
        return None


def amount(usd: float | None) -> float | None:
    """Money that was spent. Less than nothing cannot have been, and would make a budget larger."""
    usd = finite(usd)
    return usd if usd is None or 0 <= usd <= MOST else None


def whole(number: Any) -> int:
    """A count that fits a column, and whose sum over a batch does, whatever an agent claims."""
    try:
        return max(0, min(int(number), MOST))
    except (ValueError, OverflowError):
        return 0
