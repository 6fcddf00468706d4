"""Differences with their intervals around a line at zero: what is better, what is worse, what is unsure.

Knows nothing of what is compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.report.charts import LETTER, ROW, WIDTH, Say, _line, _svg, _text, _title
from proctor.report.words import short


@dataclass(frozen=True, slots=True, kw_only=True)
class Stem:
    """One difference."""

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    """What stands at the right; empty: the value."""


def forest(title: str, entries: Sequence[Stem], *, say: Say = short) -> str:
    """One row for each difference: a dot, its interval, and zero as a line through all rows."""
    left = min(max((len(entry.label) for entry in entries), default=0) * LETTER + 16, WIDTH * 0.36)
    right = max((len(entry.note or _said(entry.value, say)) for entry in entries), default=0) * LETTER + 14
    ends = [abs(end) for entry in entries for end in (entry.value, entry.low, entry.high) if end is not None]
    reach = max(ends, default=0.0) * 1.08 or 1.0
    middle = left + (WIDTH - left - right) / 2
    scale = (WIDTH - left - right) / 2 / reach
    bottom = 8 + ROW * len(entries)
    drawn = [_line(middle, 4, middle, bottom, "c-axis")]
    for share in (-1.0, -0.5, 0.5, 1.0):
        at = middle + share * reach / 1.08 * scale
        drawn.append(_line(at, 8, at, bottom, "c-grid"))
        if abs(share) == 1.0:
            drawn.append(_text(at, bottom + 17, say(share * reach / 1.08), "c-tick", "middle"))
    drawn.append(_text(middle, bottom + 17, "0", "c-tick", "middle"))
    drawn += [_row(entry, 8 + ROW * number, left, middle, scale, say) for number, entry in enumerate(entries)]
    return _svg(title, bottom + 26, drawn)


def _row(entry: Stem, y: float, left: float, middle: float, scale: float, say: Say) -> str:
    said = entry.note or _said(entry.value, say)
    height = y + ROW / 2 - 1
    parts = [_text(left - 10, y + 19, entry.label, "c-label", "end", longest=int((left - 10) / LETTER))]
    if entry.low is not None and entry.high is not None:
        low, high = middle + entry.low * scale, middle + entry.high * scale
        parts.append(_line(low, height, high, height, "c-whisker"))
        parts += [_line(x, height - 4, x, height + 4, "c-whisker") for x in (low, high)]
    if entry.value is not None:
        x = middle + entry.value * scale
        dot = f'<circle cx="{x:.1f}" cy="{height:.1f}" r="5" class="c-fill c-main">'
        parts.append(f"{dot}{_title(f'{entry.label}: {said}')}</circle>")
    parts.append(_text(WIDTH, y + 19, said, "c-number", "end"))
    return "".join(parts)


def _said(value: float | None, say: Say) -> str:
    return "–" if value is None else say(value)
