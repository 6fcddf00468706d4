"""The marks of plots in SVG, their stylesheet, and the width of their texts.

Plots have no script and no colors: elements have classes (`c-…`) that a stylesheet colors, in light and
dark mode. `STYLE` is such a stylesheet, `COLORS` its colors; a plot in its own file includes both. Every
mark has a tooltip; every plot has a text description.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files

from proctor.formatting import one_line

_TEMPLATES = files("proctor.report").joinpath("templates")
STYLE = _TEMPLATES.joinpath("charts.css").read_text(encoding="utf-8")
COLORS = _TEMPLATES.joinpath("colors.css").read_text(encoding="utf-8")
_ALONE = (
    'svg.chart { font-family: system-ui, "Segoe UI", Roboto, sans-serif; } .c-paper { fill: var(--paper); }'
)
WIDTH = 480
"""Of the drawing; a page scales it. Narrow, so that its letters can be read on a phone."""

# Approximate width of a letter in the label font.
LETTER = 6.6
LABEL_SIZE = 12.0
"""Font size of labels."""
PHONE_SIZE = 13.0
"""Font size of all texts on a phone."""
LINE = 14.0
"""Height of a line of a label."""


def as_file(plot: str) -> str:
    """A plot as a file of its own: with its colors, on paper, in the size it is meant to have."""
    head, _, drawn = plot.partition(">")
    _, _, box = head.partition('viewBox="0 0 ')
    width, height = box.partition('"')[0].split()
    sized = f'{head} width="{width}" height="{height}">'
    paper = f'<rect width="{width}" height="{height}" class="c-paper"/>'
    return f"{sized}<style>{COLORS}{STYLE}{_ALONE}</style>{paper}{drawn}\n"


def svg(title: str, height: float, drawn: Sequence[str], *, width: float = WIDTH) -> str:
    """A plot of these marks. One wider than usual has a class of its own."""
    name = escape(one_line(title, 200), quote=True)
    kind = "chart" if width <= WIDTH else "chart c-wide"
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{name}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(drawn)}</svg>'
    )


def label_mark(
    x: float, middle: float, lines: Sequence[str], anchor: str, *, kind: str = "c-label", title: str = ""
) -> str:
    """A label in several lines around a height."""
    first = middle - (len(lines) - 1) * LINE / 2 + 4
    marks = [
        text_mark(x, first + number * LINE, line, kind, anchor, longest=300)
        for number, line in enumerate(lines)
    ]
    return f"<g>{tooltip(title)}{''.join(marks)}</g>" if title and len(lines) > 1 else "".join(marks)


def text_mark(x: float, y: float, text: str, kind: str, anchor: str, *, longest: int = 60) -> str:
    """A text, in full as a tooltip if it is cut."""
    whole, cut = one_line(text, 300), one_line(text, max(longest, 4))
    more = tooltip(whole) if cut != whole else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(cut)}{more}</text>'
        if cut
        else ""
    )


def rect_mark(
    x: float, y: float, width: float, height: float, kind: str, title: str, *, mark: int | None = None
) -> str:
    """A rectangle with a tooltip."""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" rx="2"'
    return f'<rect {size} class="{escape(kind, quote=True)}"{mark_number(mark)}>{tooltip(title)}</rect>'


def circle_mark(x: float, y: float, radius: float, title: str, *, mark: int | None = None) -> str:
    """A circle with a tooltip."""
    center = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"'
    return f'<circle {center} class="c-fill c-main"{mark_number(mark)}>{tooltip(title)}</circle>'


def mark_number(mark: int | None) -> str:
    """The attribute of a mark that has figures on a page; empty: it has none."""
    return "" if mark is None else f' data-mark="{mark}"'


def line_mark(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def tooltip(text: str) -> str:
    """The tooltip of a mark."""
    return f"<title>{escape(one_line(text, 300))}</title>"


# Width of texts in plots, and labels in several lines: no label is cut or runs into another.


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
