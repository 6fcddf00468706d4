"""What two requests have in common once everything that is only of the moment is taken out.

An agent that is run again tells its model the same things, but with another date, another folder
and other ids in them. Requests are compared in a form where those are replaced by what they are.

Knows nothing of files, wires or agents.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from proctor.item import digest_of

ONLY_OF_THE_MOMENT = frozenset(
    {"model", "user", "metadata", "prompt_cache_key", "safety_identifier", "client_metadata"}
)
"""Keys of a request that do not change what is asked: who asks, in which session, under which name."""

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_PASSING = re.compile(
    "|".join(
        (
            r"(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})",
            r"(?P<date>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?Z|[+-]\d\d:?\d\d)?)?"
            rf"|(?:{_DAY},? )?{_MONTH} \d{{1,2}},? \d{{4}}|\d{{1,2}}/\d{{1,2}}/\d{{4}})",
            # The moment in the name of a session's branch; agents tell their model which branch they are on.
            r"(?P<moment>\b\d{8}-\d{6}\b)",
            r"(?P<time>\d{1,2}:\d\d:\d\d(?: ?[AP]M)?)",
            r"(?P<path>(?:/private)?/(?:tmp|var/folders|var/tmp|dev/shm)/[^\s\"'`<>:;,()\[\]]*)",
            r"(?P<port>(?:127\.0\.0\.1|localhost|\[::1\]):\d+)",
            r"(?P<duration>\d+\.\d+ ?(?:ms|seconds|secs?|s)\b)",
            r"(?P<id>\b(?:call|toolu|msg|resp|rs|fc|item|chatcmpl)[_-][A-Za-z0-9_-]{8,})",
            r"(?P<hex>(?<![0-9A-Za-z])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}(?![0-9A-Za-z]))",
        )
    )
)
# More of a text than this is not shown when two requests differ.
SHOWN_CHARACTERS = 80


def canonical(body: Any, volatile: Iterable[str] = ()) -> Any:
    """`body` without what is only of the moment; `volatile` texts are this session's own folders and ids."""
    own = sorted(filter(None, volatile), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, own))) if own else None
    if isinstance(body, Mapping):
        body = {key: value for key, value in body.items() if key not in ONLY_OF_THE_MOMENT}
    return _masked(body, pattern)


def request_digest(wire: str, operation: str, canonical_body: Any) -> str:
    """The same for requests that ask the same of the same operation."""
    return digest_of([wire, operation, canonical_body])


def first_difference(recorded: Any, now: Any, where: str = "") -> str:
    """Where two canonical requests first differ, for people; empty when they do not."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for key in sorted({*recorded, *now}, key=str):
            below = f"{where}.{key}" if where else str(key)
            if key not in recorded:
                return f"{below} is new: {_shown(now[key])}"
            if key not in now:
                return f"{below} is gone: it was {_shown(recorded[key])}"
            if found := first_difference(recorded[key], now[key], below):
                return found
        return ""
    if isinstance(recorded, list) and isinstance(now, list):
        for number, (before, after) in enumerate(zip(recorded, now, strict=False)):
            if found := first_difference(before, after, f"{where}[{number}]"):
                return found
        if len(recorded) != len(now):
            return f"{where} has {len(now)} entries where {len(recorded)} were recorded"
        return ""
    if recorded == now:
        return ""
    if isinstance(recorded, str) and isinstance(now, str):
        return f"{where}: {_around(recorded, now)}"
    return f"{where}: recorded {_shown(recorded)}, now {_shown(now)}"


def _masked(value: Any, own: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        if own is not None:
            value = own.sub("<own>", value)
        return _PASSING.sub(_name_of, value)
    if isinstance(value, Mapping):
        return {key: _masked(each, own) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_masked(each, own) for each in value]
    return value


def _name_of(found: re.Match[str]) -> str:
    kind = found.lastgroup
    if kind == "path":
        # Which file it is still counts; where its folder lies does not.
        parts = found[0].rstrip("/").split("/")
        return "<path>/" + parts[-1] if len(parts) > 3 else "<path>"
    return f"<{kind}>"


def _around(recorded: str, now: str) -> str:
    """The place in two long texts from which on they differ."""
    same = next(
        (place for place, (a, b) in enumerate(zip(recorded, now, strict=False)) if a != b),
        min(len(recorded), len(now)),
    )
    start = max(0, same - SHOWN_CHARACTERS // 4)
    return f"recorded {_shown(recorded[start:])}, now {_shown(now[start:])} (from character {same + 1} on)"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
