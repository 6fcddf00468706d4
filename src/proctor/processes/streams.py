"""Output of programs, read as it comes in bounded memory.

The text is untrusted: endless, without line ends or a valid encoding. Never more than a fixed amount is
buffered, and a slow reader makes the program wait.
"""

import asyncio
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

LINE_LIMIT = 8 * 1024 * 1024
"""Bytes of one line that are kept; a model's answer with everything in it has been seen at 3 MB."""


KEPT_CHARACTERS = 64 * 1024
"""Of a long output, this much of its beginning and this much of its end are kept."""


HELD_BYTES = 1024 * 1024
"""Output that may be buffered before the program has to wait for the reader."""


class Clip:
    """The beginning and the end of a text of any length, in little memory."""

    def __init__(self, keep: int = KEPT_CHARACTERS) -> None:
        self._keep = keep
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._gone = 0

    def add(self, text: str) -> None:
        """Add the next chunk."""
        room = self._keep - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += len(self._head[-1])
            text = text[room:]
        if text:
            self._tail.append(text)
            self._tail_size += len(text)
            self._trim()

    def _trim(self) -> None:
        while self._tail_size - len(self._tail[0]) >= self._keep:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._gone += gone

    @property
    def text(self) -> str:
        """The whole text, or head and tail with a line between them that counts what is missing."""
        tail = "".join(self._tail)
        cut = max(0, len(tail) - self._keep)
        missing = self._gone + cut
        between = f"\n[… {missing} characters left out …]\n" if missing else ""
        return "".join(self._head) + between + tail[cut:]


def clipped(text: str, keep: int = KEPT_CHARACTERS) -> str:
    """The head and tail of a text."""
    clip = Clip(keep)
    clip.add(text)
    return clip.text


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
        first, *others = chunk.split(b"\n")
        self._keep(first)
        for part in others:
            yield self._line()
            self._keep(part)

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
        kept = b"".join(self._parts)
        dropped = self._size - len(kept)
        self._parts, self._size = [], 0
        text = kept.decode("utf-8", "replace").replace("\0", "\ufffd").removesuffix("\r")
        return f"{text}[… {dropped} bytes left out …]" if dropped else text


class StreamReader(asyncio.Protocol):
    """Reads a pipe in chunks, for one reader."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._transport: asyncio.ReadTransport | None = None
        self._changed = asyncio.Event()
        self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._held += len(data)
        self._changed.set()
        if self._held > HELD_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        self._is_closed = True
        self._changed.set()

    async def chunk(self) -> bytes:
        """The next chunk; empty when the pipe is closed."""
        while not self._chunks:
            if self._is_closed:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = self._chunks.popleft()
        self._held -= len(data)
        if self._held <= HELD_BYTES and self._transport is not None:
            self._transport.resume_reading()
        return data

    async def drain(self) -> None:
        """Discard everything up to the end."""
        while await self.chunk():
            pass

    def close(self) -> None:
        """Close the pipe, read to the end or not."""
        if self._transport is not None:
            self._transport.close()


class ClippedStreamReader(asyncio.Protocol):
    """Reads a pipe and keeps head and tail."""

    def __init__(self) -> None:
        self.clip = Clip()
        self._decode = text_decoder()
        self._transport: asyncio.BaseTransport | None = None
        self._closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.clip.add(self._decode(data))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        self._closed.set()

    async def closed(self) -> None:
        """Wait until everything has been read."""
        if self._transport is not None:
            await self._closed.wait()

    def close(self) -> None:
        """Close the pipe, read to the end or not."""
        if self._transport is not None:
            self._transport.close()


T = TypeVar("T")


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` even when cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as late:
            cancelled = late
    if cancelled is not None:
        raise cancelled
    return task.result()
