"""Money, durations, counts and untrusted text for terminal, report and page.

Text from agents is hostile: control characters and those that reverse or hide text are removed here.
"""

import math
import re
from collections import deque
from datetime import UTC, datetime, timedelta

from proctor.errors import UsageError

_AGES = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_HAN_OR_HIRAGANA = "\u3005\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_UNSPACED = re.compile(f"[{_HAN_OR_HIRAGANA}]|[{_KATAKANA}]+")
_LETTER = re.compile(r"\w")


def count_words(text: str) -> int:
    """How many words a text has."""
    if text.isascii():
        return _count_spaced(text)
    rest, unspaced = _UNSPACED.subn(" ", text)
    return unspaced + _count_spaced(rest)


def _count_spaced(text: str) -> int:
    # One expression for words would try a run of a million marks from each of them.
    return sum(1 for word in text.split() if _LETTER.search(word))


def is_unspaced(text: str) -> bool:
    """Whether a text begins in a script that puts nothing between its words."""
    return bool(_UNSPACED.match(text))


UNKNOWN = "–"
DUST = 1e-12
# Between these, a whole number with separators; beyond, it is too long to read.
WHOLE_FROM, WHOLE_TO = 9999.5, 1e15


def figure(value: float | None) -> str:
    """0.0042, 43.83, 12,346; a dash for None."""
    if value is None:
        return UNKNOWN
    # What rounding leaves of 0.
    value = 0.0 if abs(value) < DUST else value
    return f"{value:,.0f}" if WHOLE_FROM <= abs(value) < WHOLE_TO else f"{value:.4g}"


# Marks that reverse or hide text, and characters without a picture: a sentence of tags (U+E0000 and on) is
# read by a model, and not seen by a person. Halves of characters and U+FFFE, U+FFFF may not stand in XML.
_HIDING = (
    "\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff"
)
# With control characters but for line ends and tabs.
_INVISIBLE = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_HIDING}]")
_SPACE = re.compile(r"\s+")

# Marks that mean something anywhere; those that do at the start of a line, between words, or in a link.
# A dollar sign before a digit is an amount: it can end no formula, and none can begin without an end.
_MARKDOWN = re.compile(r"[\\`*\[\]|~]|\$(?!\d)|(?<!\w)_|_(?!\w)|:(?=//)|(?<=www)\.|@", re.IGNORECASE)
_LINE_START = re.compile(r"\A(?:[#+=-]|\d+(?=[.)]))")
_TERMINAL = re.compile(f"[\x00-\x1f\x7f-\x9f{_HIDING}]")
_TERMINAL_BUT_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_HIDING}]")


def printable(text: object, *, width: int | None = None, lines: bool = False) -> str:
    """Text without terminal control characters; cut to `width`; on one line unless `lines`."""
    if lines:
        return _TERMINAL_BUT_LINES.sub("�", str(text))
    line = _TERMINAL.sub(" ", str(text))
    return line if width is None or len(line) <= width else line[: width - 1] + "…"


def one_line(text: str, longest: int = 120) -> str:
    """Text on one line, without what cannot be seen, cut where it gets too long."""
    line = _SPACE.sub(" ", _INVISIBLE.sub("", text)).strip()
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def in_markdown(text: str, longest: int = 120, *, is_cell: bool = False) -> str:
    """Text that means nothing but itself in Markdown: at the start of a line, or in a cell of a table."""
    safe = one_line(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKDOWN.sub(_escaped, safe)
    return escaped if is_cell else _LINE_START.sub(_escaped, escaped)


def whole(number: float | None) -> str:
    """12,345."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def short(number: float | None) -> str:
    """12.3 k, 4.5 M: for axes and headlines."""
    if number is None:
        return UNKNOWN
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= 0.9995 * size:
            return f"{_digits(number / size)} {unit}"
    return _digits(number)


def percent(share: float | None) -> str:
    """61%, 99.7%."""
    if share is None:
        return UNKNOWN
    value = share * 100
    # 100% and 0% are exact.
    if (value > 99.5 and value < 100) or 0 < value < 0.5:
        return f"{value:.1f}%" if 0.05 < value < 99.95 else (">99.9%" if value > 50 else "<0.1%")
    return f"{value:.0f}%"


TOO_FEW = "needs more tasks"
"""In place of the limits of a share that could be any."""


def interval(low: float | None, high: float | None) -> str:
    """48% to 72%, 73.6% to 74.1%: with more digits where the two would look the same.

    An interval of every possible share says nothing but that there are too few tasks.
    """
    if low is None or high is None:
        return UNKNOWN
    if low <= 0 and high >= 1:
        return TOO_FEW
    digits = next((digits for digits, width in enumerate((0.02, 0.002, 0.0002)) if high - low >= width), 3)
    return f"{low * 100:.{digits}f}% to {high * 100:.{digits}f}%"


def limits_text(low: float | None, high: float | None, needs: int | None = None, unit: str = "run") -> str:
    """0.42 to 0.61: the limits of a mean; without them, what they would need."""
    if low is None or high is None:
        return f"none; needs {needs} {unit}s" if needs else "none"
    return f"{figure(low)} to {figure(high)}"


def relative_change(ratio: float) -> str:
    """+12.5%, −3.0%, ×4.2: a ratio as a change from 1."""
    sign = "+" if ratio > 1 else "−" if ratio < 1 else "±"
    # A ratio of ten is easier to read than a change of 900%.
    return f"×{ratio:.3g}" if ratio >= 3 else f"{sign}{abs(ratio - 1):.1%}"


def chance(p: float | None) -> str:
    """0.034, < 0.001: a p-value."""
    if p is None:
        return UNKNOWN
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def rank(position: int, low: int, high: int) -> str:
    """2, or 2 (1 to 3) with the ranks that are possible."""
    return str(position) if low == high else f"{position} ({low} to {high})"


def usd(amount: float | None, *, unknown: str = UNKNOWN) -> str:
    """$1,234.50, $0.0042, $0.0000029: money with the digits that matter."""
    if amount is None:
        return unknown
    if amount <= 0 or amount >= 0.1:
        return f"${amount:,.2f}"
    if amount < 1e-9:
        return f"${amount:.2g}"
    # Two digits behind the noughts, of which the smallest price of a token has seven.
    places = 4 if amount >= 0.0001 else min(10, 1 - math.floor(math.log10(amount)))
    return f"${amount:.{places}f}".removesuffix("0")


def seconds(amount: float | None) -> str:
    """1.3 ms, 420 ms, 1.37 s, 38 s, 3 min 12 s, 2 h 05 min."""
    if amount is None:
        return UNKNOWN
    if 0 < amount < 0.9995:
        return "< 0.01 ms" if amount < 0.000_01 else f"{_short_ms(amount * 1000)} ms"
    if amount < 9.95:
        return f"{_digits(amount)} s"
    if amount < 59.5:
        return f"{amount:.0f} s"
    minutes, rest = divmod(round(amount), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def _short_ms(amount: float) -> str:
    return f"{amount:.0f}" if amount >= 9.95 else f"{amount:.2g}"


def age(span: timedelta) -> str:
    """40 s, 5 min, 3 h, 12 d: how long ago something was."""
    amount = max(0, int(span.total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if amount >= size:
            return f"{amount // size:,} {unit}"
    return f"{amount} s"


def milliseconds(amount: float | None) -> str:
    """340 ms, 2.4 s."""
    if amount is None:
        return UNKNOWN
    return f"{amount:,.0f} ms" if amount < 1000 else seconds(amount / 1000)


def elapsed(began: datetime | None, ended: datetime | None) -> float | None:
    """Seconds between two times; None: one is missing, or the clock was set back between them."""
    if began is None or ended is None or ended < began:
        return None
    return (ended - began).total_seconds()


def size(count: float) -> str:
    """840 B, 12.4 kB, 3.1 GB: bytes in units of thousands."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"


def moment(timestamp: str) -> str:
    """A timestamp of the store, to the minute."""
    return f"{timestamp[:10]} {timestamp[11:16]} UTC" if timestamp else UNKNOWN


def plural(number: int, one: str, many: str = "") -> str:
    """1 item, 2 items; `many` where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _escaped(mark: re.Match[str]) -> str:
    # A number cannot be escaped, only the dot behind it; a word joiner before it does as well.
    return f"&#8288;{mark[0]}" if mark[0].isdigit() else f"\\{mark[0]}"


def _digits(number: float) -> str:
    text = f"{number:.3g}" if abs(number) < 1000 else f"{number:.0f}"
    return f"{float(text):g}"


KEPT_CHARACTERS = 64 * 1024
"""Of a long output, this much of its beginning and this much of its end are kept."""


class Clip:
    """The beginning and the end of a text of any length, in little memory."""

    def __init__(self, keep: int = KEPT_CHARACTERS) -> None:
        self._keep = keep
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._gone = 0

    def add(self, text: str) -> None:
        """Add the next chunk."""
        room = self._keep - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += len(self._head[-1])
            text = text[room:]
        if text:
            self._tail.append(text)
            self._tail_size += len(text)
            self._trim()

    def _trim(self) -> None:
        while self._tail_size - len(self._tail[0]) >= self._keep:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._gone += gone

    @property
    def text(self) -> str:
        """The whole text, or head and tail with a line between them that counts what is missing."""
        tail = "".join(self._tail)
        cut = max(0, len(tail) - self._keep)
        missing = self._gone + cut
        between = f"\n[… {missing} characters left out …]\n" if missing else ""
        return "".join(self._head) + between + tail[cut:]


def clipped(text: str, keep: int = KEPT_CHARACTERS) -> str:
    """The head and tail of a text."""
    clip = Clip(keep)
    clip.add(text)
    return clip.text


def snake_case(name: str) -> str:
    """`costUsd` and `cost-usd` → `cost_usd`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match.group(1).lower(), name).replace("-", "_")


def age_of(text: str) -> timedelta:
    """Parse an age such as 90d, 12w or 36h."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*([hdw])\s*", text)
    if not match:
        raise UsageError(f"`{text}` is not an age\nWrite a number with h, d, or w: 36h, 90d, 12w.")
    return int(match[1]) * _AGES[match[2]]


def moment_of(text: str, now: datetime | None = None) -> datetime | None:
    """Parse a date or time or, with `now`, an age such as 7d; None when it is empty. Without a zone: UTC."""
    if not text:
        return None
    if now is not None and re.fullmatch(r"\s*\d+\s*[hdw]\s*", text):
        return now - age_of(text)
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        ages = " or, as an age, 7d" if now else ""
        raise UsageError(
            f"`{text}` is not a valid date\nWrite it like 2024-01-31 or 2024-01-31T14:00{ages}."
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
