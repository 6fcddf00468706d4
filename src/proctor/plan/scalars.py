"""Say what a YAML scalar means, by the core schema of YAML 1.2.

`no`, `on` and `12:30` are text, `012` is twelve and `0o14` is twelve too: what people mean when they
write a plan, and what the libraries' YAML 1.1 gets wrong.

Knows nothing of files, mappings or plans.
"""

import math
import re

CORE = "tag:yaml.org,2002:"
Scalar = str | int | float | bool | None

MOST_DIGITS = 400
"""Longer than any number that means something, shorter than what Python refuses to print (4,300)."""

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_NUMBER_STARTS = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_UNSAYABLE = re.compile("[\x00\ud800-\udfff]")
"""What no program takes as an argument, and no file as UTF-8. Only an escape can write it."""

_KINDS: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
}


def plain_scalar(text: str) -> Scalar:
    """What unquoted `text` means. Raises ValueError, in words for people, when it means too much."""
    if text in _WORDS:
        return _WORDS[text]
    return _number(text) if text[0] in _NUMBER_STARTS else text


def tagged_scalar(text: str, tag: str) -> Scalar:
    """What `text` means under an explicit tag such as `!!str`. Raises ValueError when it cannot."""
    name = tag.removeprefix(CORE)
    if tag == "!" or name == "str":
        return text
    if not tag.startswith(CORE) or name not in _KINDS:
        raise ValueError(f"the tag `{tag}` is not known here")
    value = plain_scalar(text)
    # `True` is an `int` to Python and not to anybody else.
    if not isinstance(value, _KINDS[name]) or (name != "bool" and isinstance(value, bool)):
        raise ValueError(f"the text is no `!!{name}`")
    return float(value) if name == "float" and isinstance(value, int) else value


def check_sayable(text: str) -> None:
    """Raise ValueError for text that no program, file or database would take."""
    if _UNSAYABLE.search(text):
        raise ValueError("the text holds a character that cannot be passed on (NUL, or half of a pair)")


def _number(text: str) -> Scalar:
    if _INTEGER.fullmatch(text):
        return int(_short(text))
    if _OCTAL.fullmatch(text):
        return int(_short(text)[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(_short(text)[2:], 16)
    return float(text) if _FLOAT.fullmatch(text) else text


def _short(digits: str) -> str:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits is longer than any use of it")
    return digits
