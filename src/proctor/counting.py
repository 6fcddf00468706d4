"""Count the words of a text, in scripts with spaces between words and in those without.

Between spaces each piece with a letter or digit is a word: `well-being` and `don't` are one each, a
dash alone is none. In Chinese and Japanese nothing stands between words, and where one ends is a
matter of opinion; so, as word processors do, each Han character and each hiragana counts as one, and a
run of katakana, which writes a borrowed word, as one. Korean has spaces.

Knows nothing of who said the text.
"""

import re

_HAN_OR_HIRAGANA = "\u3005\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_UNSPACED = re.compile(f"[{_HAN_OR_HIRAGANA}]|[{_KATAKANA}]+")
_SPACED = re.compile(r"\S*\w\S*")


def count_words(text: str) -> int:
    """How many words a text has."""
    if text.isascii():
        return sum(1 for _ in _SPACED.finditer(text))
    rest, unspaced = _UNSPACED.subn(" ", text)
    return unspaced + sum(1 for _ in _SPACED.finditer(rest))


def is_unspaced(text: str) -> bool:
    """Whether a text begins in a script that puts nothing between its words."""
    return bool(_UNSPACED.match(text))
