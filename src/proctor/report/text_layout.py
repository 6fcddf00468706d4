"""Width of texts in plots, and labels in several lines: no label is cut or runs into another.

Widths are those of Helvetica; `SPACIOUS` is what wider fonts of browsers need.
"""

import re
import unicodedata
from functools import lru_cache

SPACIOUS = 1.2
"""DejaVu Sans, the widest of the usual fonts, takes this much of the width of Helvetica."""
_WIDTHS = (
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
)  # fmt: skip
"""Thousandths of the font size, of the characters from space to tilde."""
_OTHERS = {"–": 556, "—": 1000, "−": 584, "×": 584, "±": 584, "·": 278, "…": 1000, "’": 222, "\u00a0": 278}
# Not within a version number: `opus-4.5`, `qwen3:8b`.
_BREAKS = re.compile(r"(?<=[\s,;/=_-])|(?<=[.:])(?!\d)")


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """The width of a text in the units of its font size."""
    return sum(map(_width, text)) * size / 1000


def _width(character: str) -> int:
    index = ord(character) - 32
    if 0 <= index < len(_WIDTHS):
        return _WIDTHS[index]
    if character in _OTHERS:
        return _OTHERS[character]
    if unicodedata.combining(character):
        return 0
    return 1000 if unicodedata.east_asian_width(character) in "WF" else 600


def wrapped(text: str, width: float, size: float) -> list[str]:
    """A text in lines of at most this width: between words, behind `, / = - _`, or else anywhere."""
    lines, current = list[str](), ""
    for word in _BREAKS.split(" ".join(text.split())):
        if current and _fits(current + word, width, size):
            current += word
            continue
        if current.strip():
            lines.append(current.strip())
        current = word.lstrip()
        while not _fits(current, width, size) and len(current) > 1:
            fitting = next(
                n for n in range(len(current) - 1, 0, -1) if n == 1 or _fits(current[:n], width, size)
            )
            lines.append(current[:fitting])
            current = current[fitting:]
    return [*lines, current.strip()] if current.strip() else lines


def _fits(text: str, width: float, size: float) -> bool:
    return text_width(text.rstrip(), size) * SPACIOUS <= width
