"""Output of programs, read as it arrives in bounded memory.

The text is untrusted: endless, without line ends or a valid encoding. Never more than a fixed amount is
buffered, and a slow reader makes the program wait.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO

from proctor.formatting import Clip

LINE_LIMIT = 8 * 1024 * 1024
"""Bytes of one line that are kept; events with a whole answer have reached 3 MB."""
HELD_BYTES = 1024 * 1024
"""Output that may be buffered before the program has to wait for the reader."""
READ_BYTES = 64 * 1024
"""Capacity of a pipe on Linux."""


def text_decoder() -> Callable[[bytes], str]:
    """Incremental UTF-8 decoder that replaces invalid bytes, and NULs, which databases reject."""
    decode = getincrementaldecoder("utf-8")("replace").decode
    return lambda data: decode(data).replace("\0", "\ufffd")


class Unfinished(str):
    """The beginning of a line that has not continued for a while, such as a prompt on a terminal."""


class LineSplitter:
    """Splits a stream of bytes into lines of text."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Add the next chunk; the lines it completes."""
        if not self._size and len(chunk) <= self._limit and chunk.endswith(b"\n") and b"\0" not in chunk:
            # Whole lines, as programs write them: decoded at once.
            text = chunk[:-1].decode("utf-8", "replace")
            yield from (
                (line.removesuffix("\r") for line in text.split("\n")) if "\r" in text else text.split("\n")
            )
            return
        first, *others = chunk.split(b"\n")
        self._keep(first)
        for part in others:
            yield self._line()
            self._keep(part)

    def block(self, chunk: bytes) -> str:
        """Add the next chunk; the lines it completes as one text, each with its line end.

        Costs the same however short the lines are.
        """
        if len(chunk) > self._limit:
            return "".join(f"{line}\n" for line in self.feed(chunk))
        begun, end, others = chunk.partition(b"\n")
        if not end:
            self._keep(chunk)
            return ""
        first = ""
        if self._size:
            self._keep(begun)
            first, chunk = f"{self._line()}\n", others
        complete, end, begun = chunk.rpartition(b"\n")
        text = (complete + end).decode("utf-8", "replace")
        self._keep(begun)
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        return first + (text.replace("\0", "\ufffd") if "\0" in text else text)

    def rest(self) -> Iterator[str]:
        """The last line, if the stream ended without a line end."""
        if self._size:
            yield self._line()

    @property
    def has_begun(self) -> bool:
        """Whether there is an incomplete line."""
        return self._size > 0

    @property
    def begun(self) -> Unfinished:
        """The incomplete line so far."""
        return Unfinished(b"".join(self._parts).decode("utf-8", "replace").replace("\0", "\ufffd"))

    def _keep(self, part: bytes) -> None:
        # Bytes beyond the limit are counted and dropped.
        room = self._limit - self._size
        self._size += len(part)
        if room > 0 and part:
            self._parts.append(part[:room])

    def _line(self) -> str:
        line = b"".join(self._parts)
        dropped = self._size - len(line)
        self._parts, self._size = [], 0
        text = line.decode("utf-8", "replace").replace("\0", "\ufffd").removesuffix("\r")
        return f"{text}[… {dropped} bytes left out …]" if dropped else text


class PipeReader(ABC):
    """Reads a pipe as data arrives, and closes it at its end.

    Not a transport of the event loop: that of uvloop closes the descriptor of a pipe twice, the second time
    perhaps when it belongs to what another thread has just opened.
    """

    def __init__(self) -> None:
        self._pipe: IO[bytes] | None = None
        """None before it is connected, and after its end."""
        self._changed = asyncio.Event()
        """Set when data has arrived, and at the end."""

    def connect(self, pipe: IO[bytes]) -> None:
        """Read this pipe from now on."""
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._resume()

    def close(self) -> None:
        """Close the pipe, read to the end or not."""
        self._pause()
        if self._pipe:
            self._pipe.close()
        self._pipe = None
        self._changed.set()

    def _resume(self) -> None:
        if self._pipe:
            asyncio.get_running_loop().add_reader(self._pipe, self._read, self._pipe.fileno())

    def _pause(self) -> None:
        if self._pipe:
            asyncio.get_running_loop().remove_reader(self._pipe)

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._receive(data)
        else:
            self.close()

    @abstractmethod
    def _receive(self, data: bytes) -> None:
        """Take what has arrived."""


class StreamReader(PipeReader):
    """Reads a pipe in chunks, for one reader, which the program has to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: deque[bytes] = deque()
        self._held = 0

    def _receive(self, data: bytes) -> None:
        self._chunks.append(data)
        self._held += len(data)
        self._changed.set()
        if self._held > HELD_BYTES:
            self._pause()

    async def chunk(self) -> bytes:
        """The next chunk; empty when the pipe is closed."""
        while not self._chunks:
            if not self._pipe:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = self._chunks.popleft()
        was_full = self._held > HELD_BYTES
        self._held -= len(data)
        if was_full and self._held <= HELD_BYTES:
            self._resume()
        return data

    async def drain(self) -> None:
        """Discard everything up to the end."""
        while await self.chunk():
            pass


class ClippedStreamReader(PipeReader):
    """Reads a pipe and keeps head and tail."""

    def __init__(self) -> None:
        super().__init__()
        self.clip = Clip()
        self._decode = text_decoder()

    def _receive(self, data: bytes) -> None:
        self.clip.add(self._decode(data))

    async def closed(self) -> None:
        """Wait until everything has been read."""
        if self._pipe:
            await self._changed.wait()
