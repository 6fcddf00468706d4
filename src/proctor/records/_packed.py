"""The members of a zip file somebody else packed, one at a time and never more than is asked for.

What a member says of its own size is not believed. Members packed with Zstandard, which Inspect writes and
Python's zipfile reads only from 3.14 on, are read too.

Knows nothing of what the members hold.
"""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from proctor.records._files import MOST_BYTES
from proctor.untrusted import parse_json

_ZSTANDARD = 93
_LOCAL = struct.Struct("<4s5H3I2H")
_CHUNK = 1024 * 1024
MOST_MEMBERS = 1_000_000
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OverflowError),
    # How zipfile says that it knows no such packing, and that a member is encrypted.
    RuntimeError,
)


class Packed:
    """An open zip file. What is wrong with it is a `ValueError`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        try:
            self._archive = zipfile.ZipFile(stream)
            # Of two members with one name the later counts.
            self._members = {each.filename: each for each in self._archive.infolist()[:MOST_MEMBERS]}
        except _BROKEN as error:
            raise ValueError(f"it is no zip file that can be read: {error}") from error

    @property
    def names(self) -> list[str]:
        """What the members are called, in their order."""
        return list(self._members)

    def load(self, name: str) -> Any:
        """The JSON value that a member is."""
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
def opened(path: Path) -> Iterator[Packed]:
    """A zip file, open as long as it is looked at."""
    with path.open("rb") as stream:
        yield Packed(stream)


def _unpacked(data: bytes) -> bytes:
    """What Zstandard packed, in one frame or several, a little more than `MOST_BYTES` at most."""
    # Only these files need it; Python has it from 3.14 on.
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
