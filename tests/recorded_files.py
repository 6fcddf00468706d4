"""Files with recorded output: one way to write them, one to compare with them, one to record them anew.

`PROCTOR_RECORD_SNAPSHOTS=1 pytest FILE` rewrites what the tests of a file compare with. Read the difference
before committing it.
"""

import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

RECORD_VARIABLE = "PROCTOR_RECORD_SNAPSHOTS"
WIDTH = 110
MOST_LINES = 120
"""Of a difference that are shown."""
MOST_LETTERS = 600
"""Of a text that is written whole."""
LEAST_LETTERS = 45
"""Of an object in whose place there is what differs from the one before."""


def is_recording() -> bool:
    """Whether output is to be recorded, not compared."""
    return os.environ.get(RECORD_VARIABLE) == "1"


def check_text(file: Path, text: str) -> None:
    """Compare a text with a recorded file, or record it."""
    if is_recording():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    recorded = file.read_text(encoding="utf-8") if file.exists() else ""
    if recorded == text:
        return
    lines = difflib.unified_diff(recorded.splitlines(), text.splitlines(), file.name, "now", lineterm="", n=2)
    shown = "\n".join(list(lines)[:MOST_LINES])
    raise AssertionError(
        f"{file.name} differs from what was recorded; {RECORD_VARIABLE}=1 records it\n{shown}"
    )


def check(file: Path, document: object) -> None:
    """Compare a JSON document with a recorded file, or record it."""
    check_text(file, written(document) + "\n")


def check_transcript(file: Path, asked: str, answer: Callable[[str], str]) -> None:
    """Ask all that a file has in lines `$ …` that match `asked`, and compare the answers below them."""
    requests = re.findall(rf"^\$ ((?:{asked}) .*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    check_text(file, "\n".join(f"$ {each}\n{answer(each)}" for each in requests))


def written(document: object) -> str:
    """A JSON document for people: as many members in a line as fit, the names without quotation marks.

    An object that is much like the one before it, in a list or under the next name, is `~{…}` with what
    differs: members with another value, and `-name` of those that it does not have. Of a long text there are
    the beginning, the length and a digest.
    """
    return _lines(_brief(document), _bare)


def written_as_json(document: object) -> str:
    """JSON with as many members in a line as fit."""
    return _lines(document, _quoted)


def mapped(document: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """A document whose texts and numbers are what `change` makes of each, given the name it is under."""
    if isinstance(document, Mapping):
        return {each: mapped(part, change, each) for each, part in document.items()}
    if isinstance(document, list | tuple):
        return [mapped(part, change, name) for part in document]
    return change(name, document)


class _Change(dict[str, Any]):
    """What differs from the object before; a member that is not there has the value `_GONE`."""


class _Written(str):
    """A text as it is written."""


_GONE = _Written()


def _brief(value: Any) -> Any:
    """A document with changes in place of objects that are like the one before."""
    if isinstance(value, Mapping):
        return dict(zip(value, _brief_parts(value.values()), strict=True))
    if isinstance(value, list | tuple):
        return list(_brief_parts(value))
    if isinstance(value, str) and len(value) > MOST_LETTERS:
        digest = hashlib.sha256(value.encode()).hexdigest()[:8]
        return _Written(f"{_quoted(value[:60])}… ({len(value)} letters, {digest})")
    return value


def _brief_parts(parts: Iterable[Any]) -> Iterator[Any]:
    before = None
    for part in parts:
        yield _change(before, part) if _are_alike(before, part) else _brief(part)
        before = part


def _change(before: Any, after: Any) -> _Change:
    changed = {
        name: _change(before[name], part) if _are_alike(before.get(name), part) else _brief(part)
        for name, part in after.items()
        # As JSON: in Python 1 is equal to 1.0 and to true.
        if name not in before or _quoted(before[name]) != _quoted(part)
    }
    return _Change(changed | {name: _GONE for name in before if name not in after})


def _are_alike(one: Any, other: Any) -> bool:
    if not isinstance(one, Mapping) or not isinstance(other, Mapping) or len(str(other)) < LEAST_LETTERS:
        return False
    shared = [name for name in other if name in one]
    return len(shared) * 2 > len({*one, *other}) and any(
        one[name] == other[name] or _are_alike(one[name], other[name]) for name in shared
    )


def _lines(value: Any, name_of: Callable[[str], str], indent: int = 0, column: int = 0) -> str:
    one = _line(value, name_of)
    if indent + column + len(one) < WIDTH or not isinstance(value, Mapping | list | tuple):
        return one
    lines: list[str] = []
    is_full = True
    for name, part in _parts(value, name_of):
        text = name + _lines(part, name_of, indent + 1, len(name))
        # An object in a list has its lines for itself.
        is_alone = "\n" in text or (isinstance(part, Mapping) and part and not isinstance(value, Mapping))
        if is_full or is_alone or indent + len(lines[-1]) + len(text) + 3 >= WIDTH:
            lines.append(text)
        else:
            lines[-1] += f", {text}"
        is_full = bool(is_alone)
    pad = "\n" + " " * (indent + 1)
    start, end = _brackets(value)
    return start + pad + f",{pad}".join(lines) + "\n" + " " * indent + end


def _line(value: Any, name_of: Callable[[str], str]) -> str:
    if isinstance(value, Mapping | list | tuple):
        start, end = _brackets(value)
        return start + ", ".join(name + _line(part, name_of) for name, part in _parts(value, name_of)) + end
    return value if isinstance(value, _Written) else _quoted(value)


def _parts(value: Any, name_of: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    """What is written before each part, and the part."""
    if not isinstance(value, Mapping):
        yield from (("", part) for part in value)
        return
    for name, part in value.items():
        yield (f"-{name_of(name)}" if part is _GONE else f"{name_of(name)}: "), part


def _brackets(value: Any) -> tuple[str, str]:
    if isinstance(value, Mapping):
        return ("~{" if isinstance(value, _Change) else "{"), "}"
    return "[", "]"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _bare(name: str) -> str:
    return name if re.fullmatch(r"[\w.$<>/-]+", name) else _quoted(name)
