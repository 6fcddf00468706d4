"""Read the sections of an answer, however a model has marked them.

`ACTION: …`, `**Action:** …`, `## Action`, `action -` and a JSON object with such names are all the same
answer. What has no label at all is not lost: the caller decides what it stands for.

Knows nothing of what the sections mean.
"""

import re
from collections.abc import Sequence
from typing import Any

from proctor.untrusted import parse_json

LONGEST_ANSWER = 200_000
"""Characters of an answer that are read; a model that writes more is stuck in a loop."""


def sections(text: str, labels: Sequence[str]) -> dict[str, str]:
    """What stands under each of these labels; a label that is not there is not in the result."""
    text = text[:LONGEST_ANSWER]
    as_json = _from_json(text, labels)
    if as_json:
        return as_json
    marks = _all_marks(text, labels)
    found: dict[str, str] = {}
    for index, (_, end, label) in enumerate(marks):
        until = marks[index + 1][0] if index + 1 < len(marks) else len(text)
        said = text[end:until].strip().strip("*").strip()
        # A model that repeats a label has usually thought again; an empty one says nothing.
        if said or label not in found:
            found[label] = said
    return found


def unlabelled(text: str, labels: Sequence[str]) -> str:
    """What stands under no label: all of an answer without any, else what comes before the first.

    What has a label of its own may be meant for nobody else, and never stands in for what is missing.
    """
    text = text[:LONGEST_ANSWER]
    if _from_json(text, labels):
        return ""
    marks = _all_marks(text, labels)
    return (text[: marks[0][0]] if marks else text).strip()


def _all_marks(text: str, labels: Sequence[str]) -> list[tuple[int, int, str]]:
    return sorted((found.start(), found.end(), label) for label in labels for found in _marks(label, text))


def _marks(label: str, text: str) -> list[re.Match[str]]:
    words = r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", label)))
    # At the start of a line, in any of the ways people mark a heading; a colon, or nothing else on the line.
    before = r"^[ \t]*(?:[#>*\-\d.)]*[ \t]*)(?:\*\*|__)?"
    behind = r"(?:\*\*|__)?[ \t]*(?:[:：](?:\*\*|__)?|[ \t]*$|[ \t]+[-–—][ \t])"
    pattern = before + words + behind
    return list(re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE))


def _from_json(text: str, labels: Sequence[str]) -> dict[str, str]:
    found = read_object(text)
    if not isinstance(found, dict):
        return {}
    flat: dict[str, str] = {}
    _flatten(found, flat)
    return {label: flat[_bare(label)] for label in labels if _bare(label) in flat}


def read_object(text: str) -> Any:
    """The JSON value an answer holds, also inside a code fence; None when it holds none."""
    fenced = re.search(r"```(?:json)?\s*(\{.*?\})\s*```", text, re.DOTALL)
    candidate = fenced[1] if fenced else text.strip()
    if not candidate.startswith("{"):
        return None
    try:
        return parse_json(candidate)
    except ValueError:
        return None


def _flatten(part: dict[str, Any], flat: dict[str, str]) -> None:
    for name, value in part.items():
        if isinstance(value, dict):
            _flatten(value, flat)
        elif isinstance(value, list):
            flat[_bare(name)] = "\n".join(f"- {entry}" for entry in value)
        elif value is not None:
            flat[_bare(name)] = str(value)


def _bare(label: str) -> str:
    bare = re.sub(r"[\s_-]+", "", label).lower()
    return {"longterm": "longtermgoals", "shortterm": "shorttermpriorities"}.get(bare, bare)


def listed(text: str) -> list[str]:
    """The entries of a list as models write them: bullets, numbers, or commas on one line."""
    lines = [re.sub(r"^[\s*\-•\d.)]+", "", line).strip() for line in text.splitlines()]
    entries = [line for line in lines if line]
    if len(entries) == 1 and "," in entries[0]:
        entries = [part.strip() for part in entries[0].split(",") if part.strip()]
    return entries


def is_yes(text: str) -> bool:
    """Whether someone said yes."""
    word = re.match(r"\W*(\w+)", text)
    return bool(word) and word[1].lower() in ("yes", "true", "accept", "accepted", "accepts", "y", "1")  # type: ignore[index]
