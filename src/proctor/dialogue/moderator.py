"""What the moderator of a dialogue says, in the language of the session.

Knows nothing of when it is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MARK = "[Moderator]"
"""Before everything the moderator says, in any language: roles tell its words from the other side's by it."""


@dataclass(frozen=True, slots=True)
class _Words:
    opening: str
    one_left: str
    some_left: str


_ENGLISH = _Words(
    opening="You may start the session now.",
    one_left="1 turn is left in this session. Please begin to bring it to a close.",
    some_left="{left} turns are left in this session. Please begin to bring it to a close.",
)
_IN: Mapping[str, _Words] = {
    "en": _ENGLISH,
    "de": _Words(
        opening="Sie können jetzt mit der Sitzung beginnen.",
        one_left="In dieser Sitzung bleibt noch 1 Runde. Bitte kommen Sie allmählich zum Schluss.",
        some_left="In dieser Sitzung bleiben noch {left} Runden. Bitte kommen Sie allmählich zum Schluss.",
    ),
    "zh": _Words(
        opening="现在可以开始了。",
        one_left="本次会谈还剩 1 轮，请开始收尾。",
        some_left="本次会谈还剩 {left} 轮，请开始收尾。",
    ),
}


def opening(language: str) -> str:
    """What is said to the side that opens."""
    return f"{MARK} {_words(language).opening}"


def reminder(language: str, left: int) -> str:
    """What is said when so many turns are left."""
    words = _words(language)
    return f"{MARK} {words.one_left if left == 1 else words.some_left.format(left=left)}"


def _words(language: str) -> _Words:
    return _IN.get(language) or _IN.get(language.partition("-")[0]) or _ENGLISH
