"""Reads gzip files up to a limit, so that a small file cannot fill the memory when it is unpacked."""

import gzip
import os
from typing import BinaryIO, cast

MOST_RATIO = 50
"""Records compress to a twentieth; a file made to fill the memory compresses to a thousandth."""
LEAST_LIMIT = 32 << 20
"""Files may always be so large when unpacked, in bytes."""


class UnpackedTooLarge(OSError):
    """A file is much larger when unpacked than records are."""


class _Unpacking(gzip.GzipFile):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._packed = file
        self._most = max(LEAST_LIMIT, MOST_RATIO * os.fstat(file.fileno()).st_size)

    def _checked(self, data: bytes) -> bytes:
        if self.tell() > self._most:
            raise UnpackedTooLarge(
                f"larger than {self._most >> 20} MiB when unpacked, {MOST_RATIO} times its size or more; "
                "if that is right, unpack it first with `gunzip`"
            )
        return data

    def read(self, size: int | None = -1) -> bytes:
        """Read, as of any file."""
        # Never more than the limit, whatever is asked for.
        most = self._most + 1 if size is None or size < 0 else min(size, self._most + 1)
        return self._checked(super().read(most))

    def readline(self, size: int | None = -1) -> bytes:
        """Read a line, as of any file."""
        most = self._most + 1 if size is None or size < 0 else min(size, self._most + 1)
        return self._checked(super().readline(most))

    def close(self) -> None:
        """Close it with the packed file."""
        super().close()
        self._packed.close()


def open_gzip(file: BinaryIO) -> BinaryIO:
    """The unpacked contents of an open gzip file, which is closed with it.

    Reading beyond the limit raises `UnpackedTooLarge`, an `OSError`.
    """
    return cast(BinaryIO, _Unpacking(file))
