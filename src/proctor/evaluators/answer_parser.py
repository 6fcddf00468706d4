"""Parse a model's answer: typed fields of a JSON object, or text under labels.

Models wrap a requested JSON object in prose, fences or a second, partial object, and write labels as they
like. Parsing never fails: fields that are absent or of the wrong type are listed, so that the caller can
retry or use the rest.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.errors import UsageError
from proctor.json_values import JsonObject, parse_json
from proctor.model import REASONING_END, REASONING_START

KINDS = ("text", "integer", "number", "truth", "list")
_KIND = re.compile(r"(text|integer|number|truth|list)(?:\s+(-?[\d.]+)\s*\.\.\s*(-?[\d.]+))?")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_TRUE = ("yes", "true", "1", "correct", "ja", "oui", "是", "对")
_FALSE = ("no", "false", "0", "incorrect", "nein", "non", "否", "不是")
LONGEST_TEXT = 20_000
MOST_ENTRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerField:
    """One field of an answer."""

    kind: str
    """One of `KINDS`, or `choice`."""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The field as a prompt describes it."""
        if self.kind == "choice":
            return "one of " + ", ".join(json.dumps(choice, ensure_ascii=False) for choice in self.choices)
        labels = {"text": "text", "integer": "a whole number", "number": "a number", "truth": "true or false"}
        kind = labels.get(self.kind, "a list of texts")
        return kind if self.low is None else f"{kind} from {self.low:g} to {self.high:g}"


TEXT = AnswerField(kind="text")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFields:
    """The fields that could be parsed, and the names of those that could not."""

    values: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def field_of(written: object) -> AnswerField:
    """Parse a field's declaration: `integer 1..10`, `text`, or a list of choices."""
    if isinstance(written, Sequence) and not isinstance(written, str):
        choices = tuple(choice for choice in written if isinstance(choice, str))
        if not choices or len(choices) != len(written):
            raise UsageError("a choice is a list of texts")
        return AnswerField(kind="choice", choices=choices)
    match = _KIND.fullmatch(str(written).strip())
    if not match:
        raise UsageError(
            f"`{written}` is not a valid kind of answer. Use one of: {', '.join(KINDS)}, or a list of texts"
        )
    kind, low, high = match.groups()
    if low is not None and kind not in ("integer", "number"):
        raise UsageError(f"`{written}`: only numbers have a range")
    return AnswerField(kind=kind, low=_bound(low), high=_bound(high))


def instructions_for(fields: Mapping[str, AnswerField]) -> str:
    """The part of a prompt that asks for these fields."""
    lines = [f'  "{name}": {each.description}' for name, each in fields.items()]
    return "Answer with one JSON object and nothing else:\n{\n" + ",\n".join(lines) + "\n}"


def read_answer(text: str, fields: Mapping[str, AnswerField]) -> ParsedFields:
    """Parse `fields` out of an answer."""
    document = _best([document for _, document in _objects(text)], fields)
    if document is None and len(fields) == 1:
        # For a single field, models tend to answer with its bare value.
        (name,) = fields
        document = {name: text.strip().strip('"`')}
    return _fields(document or {}, fields)


def _fields(document: JsonObject, fields: Mapping[str, AnswerField]) -> ParsedFields:
    values, missing = JsonObject(), list[str]()
    names = {_normalized(name): value for name, value in document.items()}
    for name, expected in fields.items():
        value = _value(names.get(_normalized(name)), expected)
        if value is None:
            missing.append(name)
        else:
            values[name] = value
    return ParsedFields(values=values, missing=tuple(missing))


def read_verdict(
    text: str, fields: Mapping[str, AnswerField], verdicts: Collection[str], material: str
) -> ParsedFields:
    """Parse `fields` out of the answer of a judge, of which `verdicts` decide.

    `material` is what the judge was sent. An object with reasons that stands there was copied, not written by
    the judge, and is ignored. A verdict of which the rest of the answer gives two different ones is missing.
    """
    sent = _squeezed(material)
    own = [
        (part, document)
        for part, document in _objects(_after_reasoning(text))
        if not (_has_text(document, fields, verdicts) and _squeezed(part) in sent)
    ]
    readings = [_fields(document, fields) for _, document in own]
    best = _fields(_best([document for _, document in own], fields) or {}, fields)
    disputed = {
        name
        for name in verdicts
        if len({json.dumps(each.values[name]).casefold() for each in readings if name in each.values}) > 1
    }
    values = {name: value for name, value in best.values.items() if name not in disputed}
    return ParsedFields(values=values, missing=tuple(name for name in fields if name not in values))


def _has_text(document: JsonObject, fields: Mapping[str, AnswerField], verdicts: Collection[str]) -> bool:
    """Whether an object has more to say than its verdicts, which anybody could repeat by chance."""
    values = _fields(document, fields).values
    return any(value for name, value in values.items() if name not in verdicts)


def _squeezed(text: str) -> str:
    """Text without what changes when it is quoted: spaces, line ends and escapes."""
    return re.sub(r"[\s\\]+", "", text)


def _after_reasoning(text: str) -> str:
    """The text after the first end of a reasoning block: a quoted one further on ends nothing."""
    closed = REASONING_END.search(text)
    if closed:
        return text[closed.end() :]
    return "" if REASONING_START.match(text) else text


def _bound(text: str | None) -> float | None:
    return None if text is None else float(text)


def _normalized(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()


def _best(documents: Sequence[JsonObject], fields: Mapping[str, AnswerField]) -> JsonObject | None:
    """The object with most of the fields; of equals the last, since reasoning comes before the answer."""
    expected = {_normalized(name) for name in fields}
    best, most = None, 0
    for candidate in documents:
        matching = len(expected & {_normalized(str(name)) for name in candidate})
        if matching >= most and (matching or best is None):
            best, most = candidate, matching
    return best


def _objects(text: str) -> list[tuple[str, JsonObject]]:
    """The JSON objects in a text, each with its source."""
    objects: list[tuple[str, JsonObject]] = []
    position, tries = text.find("{"), 0
    # Bounded: an answer of nothing but braces must not cost one parse per brace.
    while position >= 0 and tries < 200:
        tries += 1
        end = _end_of_object(text, position)
        if end is None:
            break
        part = text[position:end]
        parsed = _parsed(part)
        if parsed is not None:
            objects.append((part, parsed))
            position = text.find("{", end)
        else:
            position = text.find("{", position + 1)
    return objects


def _parsed(part: str) -> JsonObject | None:
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


def _value(value: object, expected: AnswerField) -> object:
    match expected.kind:
        case "text":
            return None if value is None else _text(value)
        case "list":
            return _list(value)
        case "truth":
            return _truth(value)
        case "choice":
            return _choice(value, expected.choices)
        case _:
            return _number(value, expected)


def _text(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:LONGEST_TEXT].strip()


def _list(value: object) -> list[str] | None:
    if value is None:
        return None
    entries = value if isinstance(value, list) else [value]
    return [_text(entry) for entry in entries[:MOST_ENTRIES]]


def _truth(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    words = re.findall(r"\w+", str(value).casefold())
    truths = [word for word in words if word in (*_TRUE, *_FALSE)]
    return truths[0] in _TRUE if truths else None


def _choice(value: object, choices: Sequence[str]) -> str | None:
    if not isinstance(value, str | int):
        return None
    text = str(value).strip().casefold()
    exact = [choice for choice in choices if choice.casefold() == text]
    if exact:
        return exact[0]
    named = [choice for choice in choices if re.search(rf"(?<!\w){re.escape(choice.casefold())}(?!\w)", text)]
    # "not Acknowledge but Hesitate" names two choices: ambiguous, so neither is taken.
    return named[0] if len(named) == 1 else None


def _number(value: object, expected: AnswerField) -> float | int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        digits = _NUMBER.search(value)
        value = float(digits[0]) if digits else None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if expected.low is not None and expected.high is not None:
        value = min(max(value, expected.low), expected.high)
    return round(value) if expected.kind == "integer" else float(value)


LONGEST_ANSWER = 200_000
"""Characters of an answer that are parsed; a model that writes more is stuck in a loop."""


def sections(text: str, labels: Sequence[str]) -> dict[str, str]:
    """The text under each of these labels; absent labels are not in the result."""
    text = text[:LONGEST_ANSWER]
    as_json = _from_json(text, labels)
    if as_json:
        return as_json
    marks = _all_marks(text, labels)
    texts: dict[str, str] = {}
    for index, (_, end, label) in enumerate(marks):
        until = marks[index + 1][0] if index + 1 < len(marks) else len(text)
        content = text[end:until].strip().strip("*").strip()
        # A repeated label usually corrects the first; an empty one does not.
        if content or label not in texts:
            texts[label] = content
    return texts


def unlabeled(text: str, labels: Sequence[str]) -> str:
    """The text under no label: all of an answer without labels, else the part before the first.

    Labeled text may be private and never replaces what is missing.
    """
    text = text[:LONGEST_ANSWER]
    if _from_json(text, labels):
        return ""
    marks = _all_marks(text, labels)
    return (text[: marks[0][0]] if marks else text).strip()


def _all_marks(text: str, labels: Sequence[str]) -> list[tuple[int, int, str]]:
    return sorted((match.start(), match.end(), label) for label in labels for match in _marks(label, text))


def _marks(label: str, text: str) -> list[re.Match[str]]:
    label_pattern = r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", label)))
    # At the start of a line, with any heading markup; then a colon or the end of the line.
    # Nothing can match blanks in two ways: on a line of a hundred thousand, that would take minutes.
    before = r"^[ \t]*(?:[#>*\-\d.)]+[ \t]*)?(?:\*\*|__)?"
    behind = r"(?:\*\*|__)?(?:[ \t]*(?:[:：](?:\*\*|__)?|$)|[ \t]+[-–—][ \t])"
    pattern = before + label_pattern + behind
    return list(re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE))


def _from_json(text: str, labels: Sequence[str]) -> dict[str, str]:
    flat: dict[str, str] = {}
    _flatten(_object_of(text) or {}, flat)
    return {label: flat[_bare(label)] for label in labels if _bare(label) in flat}


def _object_of(text: str) -> JsonObject | None:
    """The JSON object of an answer, also inside a code fence; None when there is none."""
    fenced = re.search(r"```(?:json)?\s*(\{.*?\})\s*```", text, re.DOTALL)
    candidate = fenced[1] if fenced else text.strip()
    return _parsed(candidate) if candidate.startswith("{") else None


def _flatten(part: dict[str, Any], flat: dict[str, str]) -> None:
    for name, value in part.items():
        if isinstance(value, dict):
            _flatten(value, flat)
        elif isinstance(value, list):
            flat[_bare(name)] = "\n".join(f"- {entry}" for entry in value)
        elif value is not None:
            flat[_bare(name)] = str(value)


def _bare(label: str) -> str:
    bare = _normalized(label)
    return {"longterm": "longtermgoals", "shortterm": "shorttermpriorities"}.get(bare, bare)


def listed(text: str, *, by_commas: bool = True) -> list[str]:
    """The entries of a list: bullets, numbers, or commas on one line unless they are sentences."""
    lines = [re.sub(r"^[\s*\-•\d.)]+", "", line).strip() for line in text.splitlines()]
    entries = [line for line in lines if line]
    if by_commas and len(entries) == 1 and "," in entries[0]:
        entries = [part.strip() for part in entries[0].split(",") if part.strip()]
    return entries


def is_yes(text: str) -> bool:
    """Whether an answer is affirmative."""
    word = re.match(r"\W*(\w+)", text)
    return bool(word) and word[1].lower() in ("yes", "true", "accept", "accepted", "accepts", "y", "1")  # type: ignore[index]
