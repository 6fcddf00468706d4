"""Words and figures for people: safe to print, easy to read.

What agents and models wrote is hostile: escape codes could rewrite the screen, and marks that
change the direction of text could hide what stands there.
"""

import json
import re
import sys
from typing import Any

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_UNSEEN_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def printable(text: object, *, width: int | None = None, lines: bool = False) -> str:
    """Text without anything a terminal would obey; cut to `width`; on one line unless `lines`."""
    if lines:
        return _UNSEEN_BUT_LINES.sub("�", str(text))
    line = _UNSEEN.sub(" ", str(text))
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def money(usd: float | None) -> str:
    """An amount in dollars; a price that is not known is not 0."""
    if usd is None:
        return "unknown"
    if 0 < usd < 0.0001:
        return "< $0.0001"
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def seconds(value: float | None) -> str:
    """A duration as people say it."""
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 item`, `2 items`; `plural` where an s is not enough."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def print_json(document: Any) -> None:
    """The one JSON document of a command that was asked for one."""
    print(json.dumps(document, ensure_ascii=False, indent=2, default=str))


def say(words: str) -> None:
    """Something for people, on standard error, where it never mixes with what programs read."""
    print(words, file=sys.stderr, flush=True)
