"""Bounded reading of untrusted files: every failure is a `ValueError` or `OSError`."""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from proctor.json_values import JsonMap, as_map, parse_json
from proctor.records._transcript import TranscriptBuilder
from proctor.session import Session, Unreadable

MOST_BYTES = 256 * 1024 * 1024
"""Of a file that is one JSON value, of one line, or of one unpacked sample."""
HEAD_BYTES = 64 * 1024
"""Of a file that are looked at to tell what it is."""
Read = Iterator[Session | Unreadable]


@dataclass(frozen=True, slots=True)
class JsonLine:
    """One line of a JSON Lines file."""

    number: int
    """Counted from 1."""
    value: object
    problem: str = ""
    """Why it could not be read. Empty: it could."""
    is_unfinished: bool = False
    """Whether it breaks off at the end of the file, as in a file that is still being written."""


def head_of(path: Path, suffixes: tuple[str, ...] = ()) -> bytes:
    """The beginning of a file; empty when it cannot be read or has another suffix."""
    if suffixes and not path.name.endswith(suffixes):
        return b""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def load_json(path: Path) -> object:
    """The JSON value of a file; a `ValueError` or `OSError` when there is none."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB")
    if not data.strip():
        raise ValueError("it is empty")
    try:
        return parse_json(data)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error


def json_lines(path: Path) -> Iterator[JsonLine]:
    """The nonempty lines of a file."""
    number = 0
    with path.open("rb") as file:
        while data := file.readline(MOST_BYTES):
            number += 1
            if not data.strip():
                continue
            try:
                yield JsonLine(number, parse_json(data))
            except ValueError as error:
                is_last = not data.endswith(b"\n") and len(data) < MOST_BYTES
                yield JsonLine(number, None, f"it is not JSON: {error}", is_unfinished=is_last)


class LineSession(Protocol):
    """A session that is read from the lines of a file, one by one."""

    transcript: TranscriptBuilder
    notes: list[str]

    def take(self, line: JsonMap) -> None:
        """Read one line."""

    def finish(self) -> Session:
        """The session, after the last line."""


def read_lines(path: Path, session: LineSession) -> Read:
    """The session of a file of JSON lines, and the lines that could not be read."""
    try:
        for line in json_lines(path):
            if line.is_unfinished:
                session.notes.append("the last line is not finished: the file was being written")
            elif line.problem:
                yield Unreadable(path=str(path), line=line.number, problem=line.problem)
            else:
                session.take(as_map(line.value))
    except OSError as error:
        yield unreadable(path, error)
        return
    yield session.finish() if session.transcript.steps else unreadable(path, "it has no messages")


def read_session(path: Path, make: Callable[[], Session], part: str = "") -> Session | Unreadable:
    """The session that `make` returns, or an `Unreadable`; `part` names it within its file."""
    try:
        session = make()
        if not session.steps and not session.scores and session.status == "success":
            raise ValueError("nothing was said or done in it")
        return session
    except (ValueError, RecursionError, OSError) as error:
        return unreadable(path, error, part)


def unreadable(path: Path, error: Exception | str, part: str = "") -> Unreadable:
    """An `Unreadable` with a one-line reason."""
    deep = "it is nested too deeply" if isinstance(error, RecursionError) else ""
    message = deep or str(getattr(error, "strerror", None) or error) or type(error).__name__
    return Unreadable(path=str(path), problem=f"{part}: {message}" if part else message)


def place_of(path: Path, name: str) -> str:
    """An id for a record that has none: its name under the folder that tells it from its like.

    Two experiments hold the same tasks in folders of their own, often one folder for each task.
    """
    around = [folder for folder in path.absolute().parent.parts if folder not in (name, path.anchor)]
    return f"{around[-1]}/{name}" if around else name


_ZSTANDARD = 93
_LOCAL = struct.Struct("<4s5H3I2H")
_CHUNK = 1024 * 1024
MOST_MEMBERS = 1_000_000
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OverflowError),
    # How zipfile says that it knows no such packing, and that a member is encrypted.
    RuntimeError,
)


class ZipMembers:
    """An open zip file; every problem with it is a `ValueError`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        try:
            self._archive = zipfile.ZipFile(stream)
            # Of two members with one name the later counts.
            self._members = {each.filename: each for each in self._archive.infolist()[:MOST_MEMBERS]}
        except _BROKEN as error:
            raise ValueError(f"it is not a readable zip file: {error}") from error

    @property
    def names(self) -> list[str]:
        """Names of the members, in order."""
        return list(self._members)

    def load(self, name: str) -> object:
        """The JSON value of a member."""
        try:
            return parse_json(self._bytes(self._members[name]))
        except _BROKEN as error:
            raise ValueError(f"it cannot be unpacked: {error}") from error

    def _bytes(self, member: zipfile.ZipInfo) -> bytes:
        if member.compress_type == _ZSTANDARD:
            data = _unpacked(self._raw(member))
        else:
            with self._archive.open(member) as file:
                data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB when unpacked")
        return data

    def _raw(self, member: zipfile.ZipInfo) -> bytes:
        if member.flag_bits & 0x1:
            raise ValueError("it is encrypted")
        self._stream.seek(member.header_offset)
        header = self._stream.read(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
            raise ValueError("it has no beginning")
        *_, name_length, extra_length = _LOCAL.unpack(header)
        self._stream.seek(name_length + extra_length, 1)
        if member.compress_size > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB")
        return self._stream.read(member.compress_size)


@contextmanager
def open_zip(path: Path) -> Iterator[ZipMembers]:
    """An open zip file, closed at the end of the block."""
    with path.open("rb") as stream:
        yield ZipMembers(stream)


def _unpacked(data: bytes) -> bytes:
    """Zstandard data, in one or more frames, decompressed to little more than `MOST_BYTES`."""
    # Imported here: only these files need it; part of Python from 3.14 on.
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from backports import zstd
    parts, size = list[bytes](), 0
    while data and size <= MOST_BYTES:
        frame, fed = zstd.ZstdDecompressor(), data
        try:
            while not frame.eof and size <= MOST_BYTES:
                part = frame.decompress(fed, _CHUNK)
                if not part and not frame.eof and frame.needs_input:
                    raise ValueError("it breaks off")
                parts.append(part)
                size, fed = size + len(part), b""
        except zstd.ZstdError as error:
            raise ValueError(f"it cannot be unpacked: {error}") from error
        data = frame.unused_data if frame.eof else b""
    return b"".join(parts)
