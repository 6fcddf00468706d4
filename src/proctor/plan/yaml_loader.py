"""YAML loader that records the position of each value.

Rejects duplicate keys, unknown tags and recursive aliases, and counts expanded aliases before they are
followed, so that a few lines cannot become a billion values. Keys are always text, as written. Problems are
collected; only those that make the rest meaningless stop the loader.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from proctor.plan.source import (
    LINE_BREAK,
    MOST_BYTES,
    KeyPlace,
    PlanSource,
    TextSpan,
    ValuePlace,
    is_secret_name,
    refuse,
    shortened,
)

CORE = "tag:yaml.org,2002:"
Scalar = str | int | float | bool | None
MOST_DIGITS = 400
"""Longer than any meaningful number, shorter than what Python refuses to print (4,300)."""
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
"""NUL and surrogates: not valid in arguments or UTF-8. Only an escape can write them."""
_KINDS: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
}


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar. Raises ValueError, with a message for users, when it is too large."""
    if text in _WORDS:
        return _WORDS[text]
    return _number(text) if text[0] in _NUMBER_STARTS else text


def tagged_scalar(text: str, tag: str) -> Scalar:
    """The value of `text` under an explicit tag such as `!!str`. Raises ValueError when it is invalid."""
    name = tag.removeprefix(CORE)
    if tag == "!" or name == "str":
        return text
    if not tag.startswith(CORE) or name not in _KINDS:
        raise ValueError(f"the tag `{tag}` is not known here")
    value = plain_scalar(text)
    # In Python, `True` is an `int`.
    if not isinstance(value, _KINDS[name]) or (name != "bool" and isinstance(value, bool)):
        raise ValueError(f"the text is no `!!{name}`")
    return float(value) if name == "float" and isinstance(value, int) else value


def check_sayable(text: str) -> None:
    """Raise ValueError for text that is not valid in arguments, files or databases."""
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


MOST_VALUES = 1_000_000
"""Counted as if every alias were written out."""
MOST_LEVELS = 64
LONGEST_SHARED, MOST_SHARED = 16, 10_000
"""Characters of a text that is stored once however often it occurs, and the number of such texts."""
_MERGE = "<<"


@dataclass(slots=True)
class _OpenCollection:
    """A mapping or list that is not closed yet."""

    line: int
    column: int
    values: Any
    """The dict or list being filled."""
    spots: Any
    secret: bool
    anchor: str | None
    counted_before: int
    height: int = 1
    key: str | None = None
    """The key whose value comes next. None in a list, and where a key comes next."""
    key_line: int = 0
    key_column: int = 0
    key_merges: bool = False
    refused: bool = False
    """The key is a duplicate: its value is read and dropped."""
    merged: list[tuple[object, ValuePlace]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Anchored:
    """The value of an anchor."""

    value: object
    spot: ValuePlace
    size: int
    height: int
    span: TextSpan
    """Its position in the text."""


class YamlLoader:
    """Builds data from the events of the parser."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.open: list[_OpenCollection] = []
        self.anchors: dict[str, _Anchored | None] = {}
        """None: the value of the anchor is still open; an alias to it would be recursive."""
        self.counted = 0
        self.documents = 0
        self.data: object = None
        self.spot: ValuePlace | None = None
        self.secrets: list[TextSpan] = []
        self.wrong: list[tuple[int, int, str, str]] = []

    def take(self, event: yaml.Event) -> None:
        """Process one event."""
        if isinstance(event, ScalarEvent):
            self._scalar(event)
        elif isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            self._start(event)
        elif isinstance(event, (MappingEndEvent, SequenceEndEvent)):
            self._end(event)
        elif isinstance(event, AliasEvent):
            self._alias(event)
        elif isinstance(event, DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                line, column = _start_of(event)
                self.stop(line, column, "a second document starts here", "Put each into a file of its own.")

    def source(self) -> PlanSource:
        """The data, with the problems found."""
        read = PlanSource(self.file, self.text, self.data, self.spot, tuple(self.secrets))
        return replace(read, problems=tuple(read.problem_at(*wrong) for wrong in self.wrong))

    def stop(self, line: int, column: int, problem: str, remedy: str = "") -> NoReturn:
        """Raise this problem together with the earlier ones."""
        self.wrong.append((line, column, problem, remedy))
        refuse(self.source().problems)

    def is_inside_secret(self) -> bool:
        """Whether the next value is part of a secret."""
        top = self.open[-1] if self.open else None
        return top is not None and (top.secret or (top.key is not None and is_secret_name(top.key)))

    def _scalar(self, event: ScalarEvent) -> None:
        line, column = _start_of(event)
        top = self.open[-1] if self.open else None
        if top is not None and top.key is None and isinstance(top.values, dict):
            merges = event.value == _MERGE and not event.style and event.tag is None
            if event.style:
                self._meaning(event, line, column)
            self._key(top, event.value, line, column, merges=merges)
            if event.anchor:
                self.anchors[event.anchor] = _Anchored(
                    event.value, ValuePlace(line, column), 1, 1, _span_of(event)
                )
            return
        self._count(1, line, column)
        if self.is_inside_secret():
            self.secrets.append(_span_of(event))
        value, spot = self._meaning(event, line, column), ValuePlace(line, column)
        if event.anchor:
            self.anchors[event.anchor] = _Anchored(value, spot, 1, 1, _span_of(event))
        self._put(value, spot, 1)

    def _meaning(self, event: ScalarEvent, line: int, column: int) -> object:
        try:
            if event.tag is not None:
                value = tagged_scalar(event.value, event.tag)
            elif not event.style:
                return plain_scalar(event.value)
            else:
                value = event.value
            check_sayable(event.value)
        except ValueError as error:
            remedy = "Put it in quotes if it is meant as text." if not event.style else ""
            self.wrong.append((line, column, str(error), remedy))
            return None
        return value

    def _key(self, top: _OpenCollection, key: str, line: int, column: int, *, merges: bool = False) -> None:
        top.key, top.key_line, top.key_column, top.key_merges = key, line, column, merges
        top.refused = key in top.values or (merges and bool(top.merged))
        if top.refused:
            first = top.spots[key].line if key in top.spots else top.line
            remedy = f"Keep one of them. The first is on line {first}."
            self.wrong.append((line, column, f"`{shortened(key, 60)}` is given twice", remedy))

    def _start(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        line, column = _start_of(event)
        top = self.open[-1] if self.open else None
        if top is not None and top.key is None and isinstance(top.values, dict):
            self.stop(line, column, "a list or a mapping cannot be a name", "Names are text.")
        self._count(1, line, column)
        is_mapping = isinstance(event, MappingStartEvent)
        if event.tag not in (None, "!", CORE + ("map" if is_mapping else "seq")):
            self.wrong.append((line, column, f"the tag `{event.tag}` is not known here", "Remove it."))
        new: Callable[[], object] = dict if is_mapping else list
        secret = self.is_inside_secret()
        if event.anchor:
            self.anchors[event.anchor] = None
        self.open.append(_OpenCollection(line, column, new(), new(), secret, event.anchor, self.counted - 1))
        self._check_depth(len(self.open), line, column)

    def _end(self, event: MappingEndEvent | SequenceEndEvent) -> None:
        done = self.open.pop()
        for value, spot in done.merged:
            self._merge(done, value, spot)
        spot = ValuePlace(done.line, done.column, done.spots)
        if done.anchor:
            size = self.counted - done.counted_before
            span = TextSpan(done.line, done.column, *_event_end(event))
            self.anchors[done.anchor] = _Anchored(done.values, spot, size, done.height, span)
        self._put(done.values, spot, done.height)

    def _alias(self, event: AliasEvent) -> None:
        line, column = _start_of(event)
        if event.anchor not in self.anchors:
            remedy = f"Put `&{event.anchor}` in front of what it should stand for, further up."
            self.stop(line, column, f"`*{event.anchor}` stands for nothing", remedy)
        anchor = self.anchors[event.anchor]
        if anchor is None:
            self.stop(line, column, f"`*{event.anchor}` stands inside of what it stands for")
        top = self.open[-1] if self.open else None
        if top is not None and top.key is None and isinstance(top.values, dict):
            if not isinstance(anchor.value, str):
                self.stop(line, column, "only text can be a name", "Write the name out.")
            self._key(top, anchor.value, line, column)
            return
        self._count(anchor.size, line, column)
        self._check_depth(len(self.open) + anchor.height - 1, line, column)
        if self.is_inside_secret():
            self.secrets.append(anchor.span)
        self._put(anchor.value, anchor.spot, anchor.height)

    def _put(self, value: object, spot: ValuePlace, height: int) -> None:
        """Add a finished value to the mapping or list that contains it."""
        if not self.open:
            self.data, self.spot = value, spot
            return
        top = self.open[-1]
        top.height = max(top.height, height + 1)
        if isinstance(top.values, list):
            top.values.append(value)
            top.spots.append(spot)
            return
        if top.key_merges and not top.refused:
            top.merged.append((value, spot))
        elif not top.refused:
            top.values[top.key] = value
            top.spots[top.key] = KeyPlace(top.key_line, top.key_column, spot)
        top.key = None

    def _merge(self, into: _OpenCollection, value: object, spot: ValuePlace) -> None:
        """`<<`: add keys of other mappings that this one lacks; the first mapping takes precedence."""
        others: Iterable[tuple[object, ValuePlace]] = [(value, spot)]
        if isinstance(value, list) and isinstance(spot.inside, list):
            others = zip(value, spot.inside, strict=True)
        for other, other_spot in others:
            if not isinstance(other, dict) or not isinstance(other_spot.inside, dict):
                problem = "`<<` takes a mapping, or a list of mappings"
                self.wrong.append((other_spot.line, other_spot.column, problem, ""))
                continue
            for key, key_spot in other_spot.inside.items():
                if key not in into.values:
                    into.values[key], into.spots[key] = other[key], key_spot

    def _count(self, size: int, line: int, column: int) -> None:
        self.counted += size
        if self.counted > MOST_VALUES:
            problem = f"with its aliases written out, the file holds more than {MOST_VALUES:,} values"
            self.stop(line, column, problem, "Use fewer aliases, or lists in a few entries.")

    def _check_depth(self, levels: int, line: int, column: int) -> None:
        if levels > MOST_LEVELS:
            self.stop(line, column, f"this is nested more than {MOST_LEVELS} levels deep")


def _start_of(event: Event) -> tuple[int, int]:
    mark = event.start_mark
    assert mark, "parsed events have marks"
    return mark.line + 1, mark.column + 1


def _event_end(event: Event) -> tuple[int, int]:
    mark = event.end_mark
    assert mark, "parsed events have marks"
    return mark.line + 1, mark.column + 1


def _span_of(event: Event) -> TextSpan:
    return TextSpan(*_start_of(event), *_event_end(event))


# libyaml if PyYAML was built with it; otherwise the same events, ten times slower.
LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REMEDIES = {
    "mapping values are not allowed": "Put text that holds a colon and a space in quotes.",
    "cannot start any token": "Indent with spaces, not tabs; put text that starts with @, ` or % in quotes.",
    "found unexpected end of stream": "A quote that was opened is not closed.",
    "did not find expected key": "Check that the lines of one mapping start in the same column.",
    "could not find expected ':'": "Write `name: value`, with a space after the colon.",
    "did not find expected '-' indicator": "Check that the entries of one list start in the same column.",
    "did not find expected ',' or": "A bracket or brace that was opened is not closed.",
}


def read_source(text: str | bytes, *, file: str, loader: type[yaml.SafeLoader] = LOADER) -> PlanSource:
    """The data of a YAML text with the position of each part.

    Raises `PlanError` when it is not YAML, or too large. Problems that do not prevent reading are in the
    source's `problems`, to be reported with those found later.
    """
    written = _printable(_decoded(text, file), file)
    try:
        data = _plain_data(written, loader)
    except (_Unusual, yaml.YAMLError, ValueError, OverflowError):
        return _read_with_places(written, file, loader)
    return PlanSource(file, written, data, None, locate=partial(_read_with_places, written, file, loader))


def _events(text: str, loader: type[yaml.SafeLoader]) -> Iterator[Any]:
    """As `yaml.parse`, which asks before each event whether there is one."""
    return iter(loader(text).get_event, None)


class _Unusual(Exception):
    """The text has a problem, or something that only the complete loader supports."""


def _plain_data(text: str, loader: type[yaml.SafeLoader]) -> object:
    """The data of a text without anchors, tags, merges and problems; `_Unusual` for any other.

    Builds what `YamlLoader` builds, without positions: half the time and memory for plans of many entries.
    """
    data: object = None
    parents = list[tuple[Any, str | None]]()
    container: Any = None
    key: str | None = None
    count = documents = 0
    shared: dict[str, str] = {}
    for event in _events(text, loader):
        kind = type(event)
        if kind is ScalarEvent:
            value: Any = event.value
            if event.anchor is not None or event.tag is not None:
                raise _Unusual
            if event.style and _UNSAYABLE.search(value):
                raise _Unusual
            if len(value) <= LONGEST_SHARED and (value in shared or len(shared) < MOST_SHARED):
                # Thousands of entries have the same names and many of the same values.
                value = shared.setdefault(value, value)
            if key is None and type(container) is dict:
                if value in container or value == _MERGE:
                    raise _Unusual
                key = value
                continue
            if not event.style:
                value = plain_scalar(value)
        elif kind is MappingStartEvent or kind is SequenceStartEvent:
            if event.anchor is not None or event.tag is not None or len(parents) >= MOST_LEVELS:
                raise _Unusual
            if key is None and type(container) is dict:
                raise _Unusual
            count += 1
            parents.append((container, key))
            container, key = ({} if kind is MappingStartEvent else []), None
            continue
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            value = container
            container, key = parents.pop()
            count -= 1
        elif kind is AliasEvent:
            raise _Unusual
        else:
            documents += kind is DocumentStartEvent
            continue
        count += 1
        if count > MOST_VALUES or documents > 1:
            raise _Unusual
        if container is None:
            data = value
        elif key is None:
            container.append(value)
        else:
            container[key] = value
            key = None
    return data


def _read_with_places(written: str, file: str, loader: type[yaml.SafeLoader]) -> PlanSource:
    walk = YamlLoader(file, written)
    try:
        for event in yaml.parse(written, Loader=loader):
            walk.take(event)
    except yaml.MarkedYAMLError as error:
        _stop_at_syntax(walk, error)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The parser gives no position for an invalid character or escape.
        walk.stop(1, 1, f"this cannot be read as YAML: {type(error).__name__}")
    return walk.source()


def _decoded(text: str | bytes, file: str) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_BYTES:
        most = MOST_BYTES // 1024 // 1024
        remedy = f"At most {most} MiB are read. Use lists in a few entries instead of many entries."
        refuse([PlanSource(file, "", None, None).problem((), f"the file has {size:,} bytes", remedy)])
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode("utf-8-sig")
        line, column = _end_of(before)
        problem = f"the byte 0x{text[error.start]:02x} is no UTF-8"
        remedy = "Save the file as UTF-8 text."
        refuse([PlanSource(file, "", None, None).problem_at(line, column, problem, remedy)])


def _printable(text: str, file: str) -> str:
    match = _UNPRINTABLE.search(text)
    if match:
        line, column = _end_of(text[: match.start()])
        problem = f"the character U+{ord(match[0]):04X} may not stand in YAML"
        remedy = 'Remove it, or write it as an escape in double quotes, such as "\\x1b".'
        refuse([PlanSource(file, "", None, None).problem_at(line, column, problem, remedy)])
    return text


def _end_of(text: str) -> tuple[int, int]:
    lines = LINE_BREAK.split(text)
    return len(lines), len(lines[-1]) + 1


def _stop_at_syntax(walk: YamlLoader, error: yaml.MarkedYAMLError) -> NoReturn:
    # An unclosed quote is detected at the end of the file; report it where it was opened.
    opened = error.context_mark if "quoted" in str(error.context) else None
    mark = opened or error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem = str(error.problem or error.context or "it breaks off")
    remedy = next((hint for part, hint in _REMEDIES.items() if part in problem), "")
    # The line was not parsed, so any part of it may be secret.
    if walk.is_inside_secret() or _speaks_of_secrets(walk.text, line):
        walk.secrets.append(TextSpan(line, 1, line + 1, 1))
    walk.stop(line, column, f"this is not YAML: {problem}", remedy)


def _speaks_of_secrets(text: str, line: int) -> bool:
    names = re.findall(r"[\w-]+", "".join(LINE_BREAK.split(text)[line - 1 : line]))
    return any(map(is_secret_name, names))
