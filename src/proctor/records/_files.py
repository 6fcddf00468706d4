"""Files somebody else wrote, read without trusting them: bounded, and never more than a `ValueError`.

Knows nothing of what they hold.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.imported import ImportedSession, Unreadable
from proctor.untrusted import parse_json

MOST_BYTES = 256 * 1024 * 1024
"""Of a file that is one JSON value, of one line, or of one unpacked sample."""
HEAD_BYTES = 64 * 1024
"""Of a file that are looked at to tell what it is."""

Read = Iterator[ImportedSession | Unreadable]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file of JSON lines."""

    number: int
    """Counted from 1."""
    value: Any
    problem: str = ""
    """Why it could not be read. Empty: it could."""
    is_unfinished: bool = False
    """Whether it breaks off at the end of the file, as in a file that is still being written."""


def head_of(path: Path, suffixes: tuple[str, ...] = ()) -> bytes:
    """The beginning of a file; empty when it cannot be read, or its name does not end in a suffix."""
    if suffixes and not path.name.endswith(suffixes):
        return b""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def load_json(path: Path) -> Any:
    """The JSON value that a file is; a `ValueError` or `OSError` says why there is none."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB")
    if not data.strip():
        raise ValueError("it is empty")
    try:
        return parse_json(data)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error


def json_lines(path: Path) -> Iterator[Line]:
    """The lines of a file that say something."""
    number = 0
    with path.open("rb") as file:
        while data := file.readline(MOST_BYTES):
            number += 1
            if not data.strip():
                continue
            try:
                yield Line(number, parse_json(data))
            except ValueError as error:
                is_last = not data.endswith(b"\n") and len(data) < MOST_BYTES
                yield Line(number, None, f"it is no JSON: {error}", is_unfinished=is_last)


def told(path: Path, make: Callable[[], ImportedSession], part: str = "") -> ImportedSession | Unreadable:
    """What `make` makes of a record, or that it cannot be read; `part` names it within its file."""
    try:
        session = make()
        if not session.steps and not session.scores and session.status == "success":
            raise ValueError("nothing was said or done in it")
        return session
    except (ValueError, RecursionError, OSError) as error:
        return unreadable(path, error, part)


def unreadable(path: Path, error: Exception | str, part: str = "") -> Unreadable:
    """That a file cannot be read, and why, in a line."""
    deep = "it is nested too deeply" if isinstance(error, RecursionError) else ""
    said = deep or str(getattr(error, "strerror", None) or error) or type(error).__name__
    return Unreadable(path=str(path), problem=f"{part}: {said}" if part else said)


def place_of(path: Path, name: str) -> str:
    """An id for a record that has none: its name under the folder that tells it from its like.

    Two experiments hold the same tasks in folders of their own, often one folder for each task.
    """
    around = [folder for folder in path.absolute().parent.parts if folder not in (name, path.anchor)]
    return f"{around[-1]}/{name}" if around else name
