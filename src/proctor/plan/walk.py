"""Build data from the events of a YAML parser, noting where each part stands.

Refuses keys given twice, unknown tags and endless aliases, and counts what aliases amount to before
they are followed, so that a few lines cannot become a billion values. Keys are always text, as
written. What is wrong is collected; only what makes going on pointless stops the walk.

Knows nothing of text encodings, files or what the data means.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from proctor.plan.scalars import CORE, check_sayable, plain_scalar, tagged_scalar
from proctor.plan.source import KeySpot, Source, Span, Spot, is_secret_name, refuse, shortened

MOST_VALUES = 1_000_000
"""Counted as if every alias were written out."""
MOST_LEVELS = 64

_MERGE = "<<"


@dataclass(slots=True)
class _Open:
    """A mapping or a list whose end has not been seen yet."""

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
    """The key was given before: its value is read and dropped."""
    merged: list[tuple[Any, Spot]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Anchored:
    """What an alias stands for."""

    value: Any
    spot: Spot
    size: int
    height: int
    span: Span
    """Where it is written, from its first character to its last."""


class Walk:
    """Builds data from events, from the first to the last."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self.open: list[_Open] = []
        self.anchors: dict[str, _Anchored | None] = {}
        """None: the anchor's own value is still open, and an alias to it would have no end."""
        self.counted = 0
        self.documents = 0
        self.data: Any = None
        self.spot = Spot(1, 1)
        self.secrets: list[Span] = []
        self.wrong: list[tuple[int, int, str, str]] = []

    def take(self, event: yaml.Event) -> None:
        """Go one event further."""
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

    def source(self) -> Source:
        """All that was read, with what was wrong on the way."""
        read = Source(self.file, self.text, self.data, self.spot, tuple(self.secrets))
        return replace(read, problems=tuple(read.problem_at(*wrong) for wrong in self.wrong))

    def stop(self, line: int, column: int, problem: str, remedy: str = "") -> NoReturn:
        """Give up: raise this with all that was wrong before it."""
        self.wrong.append((line, column, problem, remedy))
        refuse(self.source().problems)

    def is_inside_secret(self) -> bool:
        """Whether what comes next belongs to something that must not be shown."""
        return bool(self.open) and self._is_secret(self.open[-1])

    def _scalar(self, event: ScalarEvent) -> None:
        line, column = _start_of(event)
        top = self.open[-1] if self.open else None
        if top is not None and top.key is None and isinstance(top.values, dict):
            merges = event.value == _MERGE and not event.style and event.tag is None
            if event.style:
                self._meaning(event, line, column)
            self._key(top, event.value, line, column, merges=merges)
            if event.anchor:
                self.anchors[event.anchor] = _Anchored(event.value, Spot(line, column), 1, 1, _span_of(event))
            return
        self._count(1, line, column)
        if self.is_inside_secret():
            self.secrets.append(_span_of(event))
        value, spot = self._meaning(event, line, column), Spot(line, column)
        if event.anchor:
            self.anchors[event.anchor] = _Anchored(value, spot, 1, 1, _span_of(event))
        self._put(value, spot, 1)

    def _meaning(self, event: ScalarEvent, line: int, column: int) -> Any:
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

    def _key(self, top: _Open, key: str, line: int, column: int, *, merges: bool = False) -> None:
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
        new: Callable[[], Any] = dict if is_mapping else list
        secret = self.is_inside_secret()
        if event.anchor:
            self.anchors[event.anchor] = None
        self.open.append(_Open(line, column, new(), new(), secret, event.anchor, self.counted - 1))
        self._check_depth(len(self.open), line, column)

    def _end(self, event: MappingEndEvent | SequenceEndEvent) -> None:
        done = self.open.pop()
        for value, spot in done.merged:
            self._merge(done, value, spot)
        spot = Spot(done.line, done.column, done.spots)
        if done.anchor:
            size = self.counted - done.counted_before
            span = Span(done.line, done.column, *_end_of(event))
            self.anchors[done.anchor] = _Anchored(done.values, spot, size, done.height, span)
        self._put(done.values, spot, done.height)

    def _alias(self, event: AliasEvent) -> None:
        line, column = _start_of(event)
        if event.anchor not in self.anchors:
            remedy = f"Put `&{event.anchor}` in front of what it should stand for, further up."
            self.stop(line, column, f"`*{event.anchor}` stands for nothing", remedy)
        found = self.anchors[event.anchor]
        if found is None:
            self.stop(line, column, f"`*{event.anchor}` stands inside of what it stands for")
        top = self.open[-1] if self.open else None
        if top is not None and top.key is None and isinstance(top.values, dict):
            if not isinstance(found.value, str):
                self.stop(line, column, "only text can be a name", "Write the name out.")
            self._key(top, found.value, line, column)
            return
        self._count(found.size, line, column)
        self._check_depth(len(self.open) + found.height - 1, line, column)
        if self.is_inside_secret():
            self.secrets.append(found.span)
        self._put(found.value, found.spot, found.height)

    def _put(self, value: Any, spot: Spot, height: int) -> None:
        """Give a finished value to the mapping or list it stands in."""
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
            top.spots[top.key] = KeySpot(top.key_line, top.key_column, spot)
        top.key = None

    def _merge(self, into: _Open, value: Any, spot: Spot) -> None:
        """`<<`: what a mapping has not itself, it takes from others, the first of them first."""
        others: Iterable[tuple[Any, Spot]] = [(value, spot)]
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

    def _is_secret(self, top: _Open) -> bool:
        return top.secret or (top.key is not None and is_secret_name(top.key))

    def _count(self, size: int, line: int, column: int) -> None:
        self.counted += size
        if self.counted > MOST_VALUES:
            problem = f"with its aliases written out, the file holds more than {MOST_VALUES:,} values"
            self.stop(line, column, problem, "Use fewer aliases, or lists in a few entries.")

    def _check_depth(self, levels: int, line: int, column: int) -> None:
        if levels > MOST_LEVELS:
            self.stop(line, column, f"this is nested more than {MOST_LEVELS} levels deep")


def _start_of(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _end_of(event: Any) -> tuple[int, int]:
    return event.end_mark.line + 1, event.end_mark.column + 1


def _span_of(event: Any) -> Span:
    return Span(*_start_of(event), *_end_of(event))
