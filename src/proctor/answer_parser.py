"""Read the fields out of what a model answered.

A model that was asked for a JSON object wraps it in prose, fences, comments or half a second object.
Whatever can be read is read; what is missing or of the wrong kind is said, so that the caller can
ask again or go on with what it has.

Knows nothing of models, of what the fields mean, or of who asked.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.errors import UsageError
from proctor.json_values import parse_json

KINDS = ("text", "integer", "number", "truth", "list")


_KIND = re.compile(r"(text|integer|number|truth|list)(?:\s+(-?[\d.]+)\s*\.\.\s*(-?[\d.]+))?")


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


_TRUE, _FALSE = ("yes", "true", "1", "correct"), ("no", "false", "0", "incorrect")


LONGEST_TEXT = 20_000


MOST_ENTRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerField:
    """One value that is wanted."""

    kind: str
    """One of `KINDS`, or `choice`."""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        """What to ask for, in words."""
        if self.kind == "choice":
            return "one of " + ", ".join(json.dumps(choice, ensure_ascii=False) for choice in self.choices)
        words = {"text": "text", "integer": "a whole number", "number": "a number", "truth": "true or false"}
        said = words.get(self.kind, "a list of texts")
        return said if self.low is None else f"{said} from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFields:
    """What could be read, and the names of what could not."""

    values: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def field_of(written: Any) -> AnswerField:
    """The field that `integer 1..10`, `text` or a list of choices stands for."""
    if isinstance(written, Sequence) and not isinstance(written, str):
        if not written or not all(isinstance(choice, str) for choice in written):
            raise UsageError("a choice is a list of texts")
        return AnswerField(kind="choice", choices=tuple(written))
    found = _KIND.fullmatch(str(written).strip())
    if not found:
        raise UsageError(
            f"`{written}` is no kind of answer; there are: {', '.join(KINDS)}, or a list of texts"
        )
    kind, low, high = found.groups()
    if low is not None and kind not in ("integer", "number"):
        raise UsageError(f"`{written}`: only numbers have a range")
    return AnswerField(kind=kind, low=_bound(low), high=_bound(high))


def wanted(fields: Mapping[str, AnswerField]) -> str:
    """The sentence that asks a model for these fields."""
    lines = [f'  "{name}": {each.wanted}' for name, each in fields.items()]
    return "Answer with one JSON object and nothing else:\n{\n" + ",\n".join(lines) + "\n}"


def read_answer(text: str, fields: Mapping[str, AnswerField]) -> ParsedFields:
    """What `text` says about `fields`."""
    found = _best_object(text, fields)
    if found is None and len(fields) == 1:
        # Asked for one thing, models like to say just that.
        (name,) = fields
        found = {name: text.strip().strip('"`')}
    values, missing = {}, []
    names = {_bare(name): value for name, value in (found or {}).items()}
    for name, wanted_field in fields.items():
        value = _value(names.get(_bare(name)), wanted_field)
        if value is None:
            missing.append(name)
        else:
            values[name] = value
    return ParsedFields(values=values, missing=tuple(missing))


def _bound(text: str | None) -> float | None:
    return None if text is None else float(text)


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()


def _best_object(text: str, fields: Mapping[str, AnswerField]) -> dict[str, Any] | None:
    """The object that has most of the fields; reasoning before the answer may hold others."""
    wanted_names = {_bare(name) for name in fields}
    best, most = None, 0
    for found in _objects(text):
        matching = len(wanted_names & {_bare(str(name)) for name in found})
        if matching >= most and (matching or best is None):
            best, most = found, matching
    return best


def _objects(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    position, tries = text.find("{"), 0
    # A hostile answer of braces alone must not cost a parse each.
    while position >= 0 and tries < 200:
        tries += 1
        end = _end_of_object(text, position)
        if end is None:
            break
        part = text[position:end]
        parsed = _parsed(part)
        if parsed is not None:
            found.append(parsed)
            position = text.find("{", end)
        else:
            position = text.find("{", position + 1)
    return found


def _parsed(part: str) -> dict[str, Any] | None:
    for attempt in (part, re.sub(r",\s*([}\]])", r"\1", part)):
        try:
            value = parse_json(attempt)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def _end_of_object(text: str, start: int) -> int | None:
    depth, quoted, escaped = 0, False, False
    for position in range(start, len(text)):
        letter = text[position]
        if escaped:
            escaped = False
        elif quoted:
            escaped = letter == "\\"
            quoted = letter != '"'
        elif letter == '"':
            quoted = True
        elif letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return position + 1
    return None


def _value(value: Any, wanted_field: AnswerField) -> Any:
    match wanted_field.kind:
        case "text":
            return None if value is None else _text(value)
        case "list":
            return _list(value)
        case "truth":
            return _truth(value)
        case "choice":
            return _choice(value, wanted_field.choices)
        case _:
            return _number(value, wanted_field)


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:LONGEST_TEXT].strip()


def _list(value: Any) -> list[str] | None:
    if value is None:
        return None
    entries = value if isinstance(value, list) else [value]
    return [_text(entry) for entry in entries[:MOST_ENTRIES]]


def _truth(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    words = re.findall(r"\w+", str(value).casefold())
    said = [word for word in words if word in (*_TRUE, *_FALSE)]
    return said[0] in _TRUE if said else None


def _choice(value: Any, choices: Sequence[str]) -> str | None:
    if not isinstance(value, str | int):
        return None
    said = str(value).strip().casefold()
    exact = [choice for choice in choices if choice.casefold() == said]
    if exact:
        return exact[0]
    named = [choice for choice in choices if re.search(rf"(?<!\w){re.escape(choice.casefold())}(?!\w)", said)]
    # "not Acknowledge but Hesitate" names two, and only its author knows which is meant.
    return named[0] if len(named) == 1 else None


def _number(value: Any, wanted_field: AnswerField) -> float | int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        found = _NUMBER.search(value)
        value = float(found[0]) if found else None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if wanted_field.low is not None and wanted_field.high is not None:
        value = min(max(value, wanted_field.low), wanted_field.high)
    return round(value) if wanted_field.kind == "integer" else float(value)


# What a model says, without what it thinks aloud before it says it.


_OPENED = re.compile(r"\A\s*<(think|thinking)>", re.IGNORECASE)


_CLOSED = re.compile(r"</(?:think|thinking)>", re.IGNORECASE)


def spoken(text: str) -> str:
    """What is meant for others; nothing, when the thoughts never came to an end."""
    closed = list(_CLOSED.finditer(text))
    if closed:
        return text[closed[-1].end() :].lstrip()
    return "" if _OPENED.match(text) else text
