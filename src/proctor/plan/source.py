"""Data of a user's file with the position of each part, so that problems are shown at line and column.

Messages never show values that may be secret: anything below `env`, and values whose name contains key,
token, password or the like.
"""

import errno
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple, NoReturn

from proctor.errors import Place, PlanError, Problem, UsageError

KeyPath = tuple[str | int, ...]
"""Path of a value: keys of mappings, indices of lists."""
MOST_PROBLEMS = 100
"""Problems reported at once: one wrong name in 10,000 items would make 10,000."""
LONGEST_EXCERPT = 160
LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_SECRET = re.compile(r"key|token|secret|passw|passphrase|credential|^env$", re.IGNORECASE)
_COUNT_OF_TOKENS = re.compile(r"(max|min)[a-z_-]*tokens", re.IGNORECASE)


class ValuePlace(NamedTuple):
    """Position of a value and of its parts. Lines and columns count from 1."""

    line: int
    column: int
    inside: "dict[str, KeyPlace] | list[ValuePlace] | None" = None


class KeyPlace(NamedTuple):
    """Position of a key and of its value."""

    line: int
    column: int
    value: ValuePlace


class TextSpan(NamedTuple):
    """A range of the text; its end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@lru_cache(maxsize=1000)
def is_secret_name(name: str) -> bool:
    """Whether the value of this name may be confidential."""
    return bool(_SECRET.search(name)) and not _COUNT_OF_TOKENS.fullmatch(name)


@dataclass(frozen=True)
class PlanSource:
    """Data of a file with positions. The data may share parts: never change it."""

    file: str
    text: str = field(repr=False)
    data: Any
    known_spot: ValuePlace | None = field(repr=False)
    """Position of the data; None: `locate` finds it."""
    known_secrets: Sequence[TextSpan] = field(repr=False, default=())
    problems: Sequence[Problem] = ()
    """Problems that did not prevent reading: a duplicate key, an unknown tag."""
    locate: "Callable[[], PlanSource] | None" = field(repr=False, default=None, compare=False)
    """Reads the text again with positions, which take half of the time and memory and only problems need."""

    @cached_property
    def _located(self) -> "PlanSource":
        return self.locate() if self.locate else self

    @property
    def spot(self) -> ValuePlace:
        """Position of the data."""
        return self._located.known_spot or ValuePlace(1, 1)

    @property
    def secrets(self) -> Sequence[TextSpan]:
        """Positions of values that must not be shown."""
        return self._located.known_secrets

    def place(self, path: KeyPath, *, of_key: bool = False) -> Place:
        """Position of the value at `path`, or of its key; of the nearest enclosing part if there is none."""
        line, column = self._position(path, of_key)
        return Place(self.file, line, column)

    def deepest(self, path: KeyPath) -> KeyPath:
        """The longest prefix of `path` that exists."""
        spot = self.spot
        for depth, step in enumerate(path):
            below = _below(spot, step)
            if below is None:
                return path[:depth]
            spot = below.value
        return path

    def problem(self, path: KeyPath, problem: str, remedy: str = "", *, of_key: bool = False) -> Problem:
        """A problem of the part at `path`."""
        line, column = self._position(path, of_key)
        return self.problem_at(line, column, problem, remedy)

    def problem_at(self, line: int, column: int, problem: str, remedy: str = "") -> Problem:
        """A problem at a line and column, with that line as its excerpt."""
        at = Place(self.file, line, column)
        return Problem(at=at, problem=problem, remedy=remedy, excerpt=self._excerpt(line))

    def _position(self, path: KeyPath, of_key: bool) -> tuple[int, int]:
        line, column, spot = self.spot.line, self.spot.column, self.spot
        for step in path:
            below = _below(spot, step)
            if below is None:
                return spot.line, spot.column
            line, column, spot = below
        return (line, column) if of_key else (spot.line, spot.column)

    @cached_property
    def _lines(self) -> list[str]:
        return LINE_BREAK.split(self.text)

    @cached_property
    def _secrets_of_line(self) -> Mapping[int, list[TextSpan]]:
        by_line: dict[int, list[TextSpan]] = {}
        for span in self.secrets:
            for line in range(span.line, span.end_line + 1):
                by_line.setdefault(line, []).append(span)
        return by_line

    def _excerpt(self, line: int) -> str:
        if line > len(self._lines):
            return ""
        excerpt = self._lines[line - 1]
        # From right to left, so that the columns of the remaining spans stay valid.
        for span in sorted(self._secrets_of_line.get(line, ()), reverse=True):
            start = span.column - 1 if span.line == line else 0
            end = span.end_column - 1 if span.end_line == line else len(excerpt)
            if start < end:
                excerpt = f"{excerpt[:start]}…{excerpt[end:]}"
        return shortened(excerpt.rstrip(), LONGEST_EXCERPT)


def is_secret(path: KeyPath) -> bool:
    """Whether the value at `path` must not be shown."""
    return any(isinstance(step, str) and is_secret_name(step) for step in path)


def shortened(text: str, length: int) -> str:
    """At most `length` characters of `text`, with an ellipsis where something is left out."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def refuse(problems: Sequence[Problem]) -> NoReturn:
    """Raise all problems together, in order of lines."""
    ordered = sorted(problems, key=lambda problem: (problem.at.file, problem.at.line, problem.at.column))
    unique = list(dict.fromkeys(ordered))
    left_out = len(unique) - MOST_PROBLEMS
    if left_out > 0:
        last = unique[MOST_PROBLEMS - 1].at
        more = "1 more problem" if left_out == 1 else f"{left_out:,} more problems"
        unique[MOST_PROBLEMS:] = [Problem(at=last, problem=f"and {more} after this one")]
    raise PlanError(unique)


def _below(spot: ValuePlace, step: str | int) -> KeyPlace | None:
    inside = spot.inside
    if isinstance(inside, dict) and isinstance(step, str):
        return inside.get(step)
    if isinstance(inside, list) and isinstance(step, int) and 0 <= step < len(inside):
        element = inside[step]
        return KeyPlace(element.line, element.column, element)
    return None


MOST_BYTES = 16 * 1024 * 1024


def bytes_of(path: Path, what: str = "", *, remedy: str = "") -> bytes:
    """The contents of a file; raises `UsageError` when it cannot be read.

    `what` names the file in messages: `the plan`. Reads at most one byte more than is allowed: enough for
    the parser to report that it is too large.
    """
    try:
        with open_regular(path) as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        named = f"{what} {path}" if what else f"{path}"
        raise UsageError(f"cannot read {named}: {error.strerror}\n{remedy}".rstrip()) from error


def text_of(path: Path, *, remedy: str = "", most_bytes: int = MOST_BYTES) -> str:
    """The text of a file, a `.gz` file unpacked.

    Raises `UsageError` when it cannot be read or is too large, `PlanError` at the line that is no UTF-8.
    """
    data = _data_of(path, remedy, most_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = Problem(
            at=Place(str(path), line, 1), problem="this is no UTF-8", remedy="Save the file as UTF-8 text."
        )
        raise PlanError([problem]) from error


def table_text(path: Path, *, remedy: str = "", most_bytes: int = MOST_BYTES) -> tuple[str, str]:
    """The text of a table, and a note on its encoding: spreadsheets also write UTF-16 and Windows-1252."""
    data = _data_of(path, remedy, most_bytes)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace"), ""
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return data.decode("cp1252", "replace"), f"line {line} is not valid UTF-8; read as Windows-1252"


def _data_of(path: Path, remedy: str, most_bytes: int) -> bytes:
    try:
        with open_regular(path) as file:
            data = (_unpacked(file) if path.name.endswith(".gz") else file).read(most_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {path}: {reason}\n{remedy}".rstrip()) from error
    if len(data) > most_bytes:
        raise UsageError(f"{path} is larger than {most_bytes >> 20} MiB\nGive a part of it.")
    return data


def _unpacked(file: BinaryIO) -> BinaryIO:
    # Loaded here: every run reads a plan, and none of them is packed.
    from proctor.unpacking import open_gzip

    return open_gzip(file)


def open_regular(path: Path) -> BinaryIO:
    """Open a file; an `OSError` for a pipe, socket or device, whose reader could wait for ever.

    A shell passes `<(command)` as a pipe below `/dev/fd`.
    """
    if not stat.S_ISREG(path.stat().st_mode) and not str(path).startswith(("/dev/fd/", "/dev/stdin")):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.open("rb")


@lru_cache(maxsize=10_000)
def resolved(written: str, *, folder: Path, home: Path) -> str:
    """The absolute path of `written`, relative to `folder`; `~` is `home`.

    Links are not followed: a repository keeps the name that the user gives it.
    """
    if written == "~" or written.startswith("~/"):
        written = str(home / written[2:])
    return os.path.normpath(folder / written)


def repository_names(paths: Iterable[str]) -> dict[str, str]:
    """The shortest unique suffix of each path: `api`, or `a/api` beside `b/api`."""
    names: dict[str, str] = {}
    unnamed = {path: PurePath(path).parts for path in paths}
    length = 1
    while unnamed:
        tails = Counter(parts[-length:] for parts in unnamed.values())
        done = {
            path for path, parts in unnamed.items() if tails[parts[-length:]] == 1 or length >= len(parts)
        }
        names |= {path: str(PurePath(*unnamed[path][-length:])) for path in done}
        unnamed = {path: parts for path, parts in unnamed.items() if path not in done}
        length += 1
    return names
