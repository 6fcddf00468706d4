"""How items ended: by status and reason, by task and level; groups of failures, mock agents and models."""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.json_values import CamelJson


def first_line(text: str) -> str:
    """The first non-empty line."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCell(CamelJson):
    """The finished items of one task and level."""

    item_id: str
    """The first of them, in plan order."""
    item_ids: Sequence[str]
    """At most 50, in plan order."""
    items: int
    decided: int
    """Items with a verdict: neither infrastructure errors nor unchecked."""
    passed: int
    score: float | None
    """Mean of the chosen evaluator."""
    cost_usd: float | None
    """Mean."""
    session_id: str | None = None
    """Of the first item, like status, reason and answer."""
    status: str = ""
    reason: str = ""
    answer: str = ""
    """The start of its answer, on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow(CamelJson):
    """One task."""

    task: str
    cells: Sequence[LevelCell | None]
    """By level; null: no finished item."""


MESSAGE_CHARACTERS = 200
"""Of a message that are compared: tails of outputs differ each time."""
QUOTED = '"…"'
_ESCAPED = re.compile(r"\\.")
# An apostrophe within a word is not a quotation mark.
_SINGLE_QUOTES = re.compile(r"(?<!\w)'[^']*(?:'(?!\w)|$)")
_PATH = re.compile(r"[\w.~:-]*/[^\s,;:)\]]*")
_ZEROS = str.maketrans("123456789", "0" * 9)
_ID = re.compile(r"\b[0a-f]{6,}(?:-[0a-f]+)*\b")
_NUMBER = re.compile(r"0+(?:[.,:]0+)*")
_SPACE = re.compile(r"\s+")


def message_pattern(message: str) -> str:
    """A message without what differs from item to item: quoted texts, paths, ids and numbers."""
    text = message[:MESSAGE_CHARACTERS]
    # The conditions are cheap, and most messages have few of these.
    if "\\" in text:
        text = _ESCAPED.sub("", text)
    for mark in '"`':
        if mark in text:
            text = QUOTED.join(text.split(mark)[::2])
    if "'" in text:
        text = _SINGLE_QUOTES.sub(QUOTED, text)
    if "/" in text:
        text = _PATH.sub("<path>", text)
    if "0" in (zeros := text.translate(_ZEROS)):
        text = _NUMBER.sub("#", _ID.sub(lambda match: "<id>" if "0" in match[0] else match[0], zeros))
    return _SPACE.sub(" ", text).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup(CamelJson):
    """Failures with one reason and similar messages."""

    key: str
    """Parameter `group` of lists of items. The same in every run."""
    reason: str
    pattern: str
    """The message, without what differs between the items."""
    example: str
    """The start of the message of the first of them."""
    items: int


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """All failures of a run, by group."""

    groups: tuple[FailureGroup, ...]
    group_of: Mapping[int, int]
    """Index of the group, by the position of an item."""

    def positions(self, key: str) -> set[int]:
        """The positions of the items of one group; none if there is no such group."""
        index = next((at for at, group in enumerate(self.groups) if group.key == key), None)
        return {position for position, at in self.group_of.items() if at == index}

    def of(self, positions: Iterable[int]) -> list[FailureGroup]:
        """The groups with only the items at some positions, the largest first."""
        counts = array("q", bytes(8 * len(self.groups)))
        group_of = self.group_of
        for position in positions:
            if (at := group_of.get(position)) is not None:
                counts[at] += 1
        groups = [
            replace(group, items=count) for group, count in zip(self.groups, counts, strict=True) if count
        ]
        return sorted(groups, key=lambda group: (-group.items, group.reason, group.pattern))


def group_failures(failures: Iterable[tuple[int, str, str]]) -> FailureGroups:
    """Group failures: the position, reason and message of each."""
    examples: list[str] = []
    known: dict[tuple[str, str], int] = {}
    patterns: dict[tuple[str, str], int] = {}
    group_of: dict[int, int] = {}
    for position, reason, message in failures:
        # Many messages are equal: their pattern is computed once.
        at = known.get((reason, message))
        if at is None:
            pattern = message_pattern(message)
            at = patterns.setdefault((reason, pattern), len(examples))
            known[reason, message] = at
            if at == len(examples):
                examples.append(message.strip())
        group_of[position] = at
    sizes = Counter(group_of.values())
    groups = [
        FailureGroup(
            key=_key(reason, pattern), reason=reason, pattern=pattern, example=examples[at], items=sizes[at]
        )
        for (reason, pattern), at in patterns.items()
    ]
    return FailureGroups(tuple(groups), group_of)


def _key(reason: str, pattern: str) -> str:
    return hashlib.blake2b(f"{reason}\n{pattern}".encode("utf-8", "replace"), digest_size=8).hexdigest()
