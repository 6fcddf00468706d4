"""The parts of a task that is written in Markdown: its title, facts, sections and boxes.

    # Task: Fix the typo
    **Difficulty**: Easy
    ## Success Criteria
    - [ ] The word is spelled right

What stands in a fenced block is text, whatever it looks like.

Knows nothing of files, front matter or what a task is for.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_FACT = re.compile(r"^\s*(?:[-*]\s+)?\*\*([^*:]+?):?\*\*\s*:?\s*(.*?)\s*$")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s*)?(.+?)\s*$")
_BOX = re.compile(r"^\s*[-*+]\s+\[[ xX]\]\s*(.+?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of text and where it stands."""

    number: int
    """Counted from 1, in the whole file."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Markdown:
    """A text and its parts."""

    title: str
    """Of the first heading, without the word `Task:`; empty when there is none."""
    is_task: bool
    """Whether the first heading says that it is a task."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What stands behind words in bold, by the word in small letters."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """The text below each heading, by the heading in small letters."""
    boxes: tuple[Line, ...] = ()
    """The entries of the section `Success Criteria`."""


def read_markdown(text: str, *, first_line: int = 1) -> Markdown:
    """Find the parts of a text whose first line has this number in its file."""
    title, is_task, fenced, section = "", False, False, ""
    facts, sections, boxes = dict[str, str](), dict[str, list[str]](), list[Line]()
    for number, line in enumerate(text.split("\n"), first_line):
        if _FENCE.match(line):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading and len(heading[1]) == 1 and not title:
            word, colon, rest = heading[2].partition(":")
            is_task = bool(colon) and word.strip().lower() == "task"
            title = rest.strip() if is_task else heading[2]
        elif heading:
            section = heading[2].strip(": ").lower()
            sections.setdefault(section, [])
        elif section:
            sections[section].append(line)
        if not fenced and not heading:
            if section == "success criteria" and (entry := _BOX.match(line) or _BULLET.match(line)):
                boxes.append(Line(number=number, text=entry[1]))
            elif (fact := _FACT.match(line)) and not section:
                facts.setdefault(fact[1].strip().lower(), fact[2])
    return Markdown(
        title=title,
        is_task=is_task,
        facts=facts,
        sections={name: "\n".join(lines).strip() for name, lines in sections.items()},
        boxes=tuple(boxes),
    )


def bullets(section: str) -> tuple[str, ...]:
    """The entries of a list, each on one line."""
    found, fenced = list[str](), False
    for line in section.split("\n"):
        fenced ^= bool(_FENCE.match(line))
        if not fenced and (entry := _BULLET.match(line)):
            found.append(entry[1])
    return tuple(found)
