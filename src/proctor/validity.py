"""Validity of sessions as data: counts of what makes one less valid, and rules to exclude it."""

import re
from collections.abc import Iterable, Mapping
from typing import get_args

from proctor.formatting import plural
from proctor.session import InvalidKind

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


def validity_text(counts: Mapping[str, InvalidCount]) -> str:
    """The counts in words: `12 invalid decisions in 3 sessions`."""
    return ", ".join(
        f"{plural(count['events'], *_IN_WORDS[kind])} in {plural(count['sessions'], 'session')}"
        for kind, count in counts.items()
    )


_CONDITION = re.compile(r"\s*(>=?)\s*(\d{1,9})\s*")


def condition_problem(condition: str) -> str:
    """Why a condition of `exclude_when` cannot be read; empty: it can."""
    if _CONDITION.fullmatch(condition):
        return ""
    return f"`{condition}` is not a condition\nWrite a number with an operator: `> 0` or `>= 3`."


def exclusion_reason(rule: Mapping[str, str], counts: Mapping[str, int]) -> str:
    """Why `exclude_when` excludes a session with these counts; empty: it does not."""
    reasons = []
    for kind, condition in rule.items():
        match, events = _CONDITION.fullmatch(condition), counts.get(kind, 0)
        if match and (events >= int(match[2]) if match[1] == ">=" else events > int(match[2])):
            reasons.append(f"{plural(events, *_IN_WORDS[kind])} ({match[1]} {match[2]})")
    return ", ".join(reasons)
