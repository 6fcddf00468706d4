"""Validity of sessions as data: counts of what makes one less valid, and rules to exclude it."""

import re
from collections.abc import Iterable, Mapping
from typing import get_args

from proctor.formatting import plural
from proctor.json_values import JsonMap, as_map, as_whole_number
from proctor.session import Event, Invalid, InvalidKind, Record, invalidity

INVALID_KINDS: tuple[InvalidKind, ...] = get_args(InvalidKind)
_IN_WORDS: Mapping[str, tuple[str, str]] = {
    "defaulted_states": ("defaulted state", "defaulted states"),
    "invalid_decisions": ("invalid decision", "invalid decisions"),
    "refusals": ("refusal", "refusals"),
    "filtered": ("filtered answer", "filtered answers"),
    "truncated": ("truncated answer", "truncated answers"),
    "unreadable_verdicts": ("unreadable verdict", "unreadable verdicts"),
    "regenerated_answers": ("regenerated answer", "regenerated answers"),
}


class InvalidCounter:
    """Counts what makes a session less valid, while its events are recorded."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.counts: dict[str, int] = {}

    def record(self, event: Event) -> None:
        """Record an event, and count it."""
        if invalid := invalidity(event):
            kind, count = invalid
            self.counts[kind] = self.counts.get(kind, 0) + count
        self._record(event)

    def take(self) -> dict[str, int]:
        """The counts since the last call."""
        counts, self.counts = self.counts, {}
        return counts


def record_again(counts: Mapping[str, int], record: Record) -> None:
    """Record what has been counted before a session resumed."""
    for kind in INVALID_KINDS:
        if count := counts.get(kind, 0):
            record(Invalid(kind=kind, count=count))


InvalidCount = dict[str, int]
"""How often something made sessions less valid (`events`), and how many `sessions`."""


def sum_counts(sessions: Iterable[Mapping[str, int]]) -> dict[str, InvalidCount]:
    """The counts of sessions, by kind; kinds that did not occur are left out."""
    totals: dict[str, InvalidCount] = {}
    for counts in sessions:
        for kind, events in counts.items():
            before = totals.get(kind, {"events": 0, "sessions": 0})
            totals[kind] = {"events": before["events"] + events, "sessions": before["sessions"] + 1}
    return {kind: totals[kind] for kind in INVALID_KINDS if kind in totals}


def sum_served(sessions: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """By requested model, the calls that each model answered in sessions."""
    served: dict[str, dict[str, int]] = {}
    for session in sessions:
        for requested, counts in session.items():
            known = served.setdefault(requested, {})
            for name, calls in counts.items():
                known[name] = known.get(name, 0) + calls
    return served


def served_of(document: JsonMap) -> dict[str, dict[str, int]]:
    """By requested model, the calls that each model answered, of a session or run."""
    return {
        model: {name: as_whole_number(calls, name) for name in as_map(calls)}
        for model, calls in as_map(document, "served_models").items()
    }


def served_text(served: JsonMap) -> str | None:
    """Who answered as which model: `openai/gpt-4o: gpt-4o-2024-08-06`. None: no provider said."""
    return "; ".join(f"{model}: {', '.join(sorted(as_map(served, model)))}" for model in served) or None


def count_columns(document: JsonMap) -> dict[str, int | None]:
    """How often each kind of event made a session less valid; documents of other tools do not say."""
    is_known = "validity" in document
    return {kind: as_whole_number(document, "validity", kind) if is_known else None for kind in INVALID_KINDS}


def validity_text(counts: Mapping[str, InvalidCount]) -> str:
    """The counts in words: `12 invalid decisions in 3 sessions`."""
    return ", ".join(
        f"{plural(count['events'], *_IN_WORDS[kind])} in {plural(count['sessions'], 'session')}"
        for kind, count in counts.items()
    )


_CONDITION = re.compile(r"\s*(>=?)\s*(\d{1,9})\s*")


def rule_text(rule: Mapping[str, object]) -> str:
    """A rule in words: `more than 0 refusals, or at least 3 invalid decisions`."""
    parts = []
    for kind, condition in rule.items():
        if (match := _CONDITION.fullmatch(str(condition))) and kind in _IN_WORDS:
            parts.append(f"{'at least' if match[1] == '>=' else 'more than'} {match[2]} {_IN_WORDS[kind][1]}")
    return ", or ".join(parts)


def exclusion_reason(rule: Mapping[str, object], counts: Mapping[str, object]) -> str:
    """Why `exclude_when` excludes a session with these counts; empty: it does not."""
    reasons = []
    for kind, condition in rule.items():
        match, events = _CONDITION.fullmatch(str(condition)), as_whole_number(counts, kind)
        if match and kind in _IN_WORDS and events >= int(match[2]) + (match[1] == ">"):
            reasons.append(plural(events, *_IN_WORDS[kind]))
    return ", ".join(reasons)
