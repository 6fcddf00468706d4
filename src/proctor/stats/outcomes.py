"""How items ended: by status and reason, groups of failures, mock agents and models."""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proctor.item import STATUSES
from proctor.json_values import CamelJson
from proctor.store.aggregates import MockSessions, OutcomeSums


@dataclass(frozen=True, slots=True, kw_only=True)
class MockUsage(CamelJson):
    """A mock agent or model."""

    agent: str
    model: str
    sessions: int


def stand_ins(rows: Iterable[MockSessions]) -> tuple[MockUsage, ...]:
    """The mock agents and models, and how many sessions each had."""
    return tuple(MockUsage(agent=row["agent"], model=row["model"], sessions=row["n"]) for row in rows)


def first_line(text: str) -> str:
    """The first non-empty line."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def counts_of(sums: Iterable[OutcomeSums]) -> dict[str, int]:
    """The items by status; every status is there."""
    counts = dict.fromkeys(STATUSES, 0)
    for row in sums:
        counts[row["status"]] += row["items"]
    return counts


def outcomes_of(sums: Iterable[OutcomeSums]) -> list[OutcomeSums]:
    """The items by status and reason, as far as they have one: best status first, then the most frequent."""
    counted: Counter[tuple[str, str]] = Counter()
    for row in sums:
        if row["reason"]:
            counted[row["status"], row["reason"]] += row["items"]
    ordered = sorted(counted.items(), key=lambda entry: (STATUSES.index(entry[0][0]), -entry[1], entry[0]))
    return [OutcomeSums(status=status, reason=reason, items=n) for (status, reason), n in ordered]


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


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures with one reason and pattern of message."""

    key: str
    """The same in every run."""
    reason: str
    pattern: str
    example: str
    """The message of the first of them."""


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

    def counts(self, positions: Iterable[int]) -> list[tuple[FailureGroup, int]]:
        """The groups of the items at some positions with their numbers of items, the largest first."""
        counts = array("q", bytes(8 * len(self.groups)))
        group_of = self.group_of
        for position in positions:
            if (at := group_of.get(position)) is not None:
                counts[at] += 1
        pairs = [(group, count) for group, count in zip(self.groups, counts, strict=True) if count]
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0].reason, pair[0].pattern))


def group_failures(failures: Iterable[tuple[int, str, str]]) -> FailureGroups:
    """Group failures: the position, reason and message of each."""
    groups: list[FailureGroup] = []
    known: dict[tuple[str, str], int] = {}
    patterns: dict[tuple[str, str], int] = {}
    group_of: dict[int, int] = {}
    for position, reason, message in failures:
        # Many messages are equal: their pattern is computed once.
        at = known.get((reason, message))
        if at is None:
            pattern = message_pattern(message)
            at = patterns.setdefault((reason, pattern), len(groups))
            known[reason, message] = at
            if at == len(groups):
                groups.append(FailureGroup(_key(reason, pattern), reason, pattern, message.strip()))
        group_of[position] = at
    return FailureGroups(tuple(groups), group_of)


def _key(reason: str, pattern: str) -> str:
    return hashlib.blake2b(f"{reason}\n{pattern}".encode("utf-8", "replace"), digest_size=8).hexdigest()
