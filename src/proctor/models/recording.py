"""Keep the traffic of a batch in a file, exchange by exchange, so that it can be had again offline.

One line of JSON an exchange, written when it has ended: what was asked, and the answer in the very
bytes and pieces it came in. Exchanges belong to a *take*: one attempt at one item, numbered in the
order in which attempts began, and within it they are numbered in the order in which they began.

Knows nothing of providers; the keys it must not write are taken out by whoever hands exchanges over.
"""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from proctor.errors import UsageError
from proctor.models.canonical import canonical, request_digest

VERSION = 1
Channel = Literal["gateway", "process"]
"""How the calls of an attempt came: over HTTP, or from our own code. Each has an order of its own."""
IN_PROCESS = "proctor"
"""The wire of calls that never left this process: our own request and answer as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer, as they went over the wire."""

    wire: str
    """In which format it was asked: `chat`, `responses`, `messages`, `gemini`, or `proctor`."""
    operation: str
    """What was asked for: the path without the model's name."""
    model: str
    request: Any
    """The body, parsed."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those the client needs to read the answer."""
    chunks: Sequence[bytes] = ()
    hidden: Sequence[bytes] = ()
    """What was said to us alone: the tokens of a stream, for which the client had not asked."""
    whole: bool = True
    """False: it was broken off after these chunks."""


class Recording:
    """A file that grows by an exchange at a time. Close it at the end."""

    def __init__(self, file: Path, blot: Callable[[str], str] = str) -> None:
        """Goes on with a file that is there; `blot` takes the user's secrets out of what is written."""
        self.file = file
        self._blot = blot
        self._takes: Counter[tuple[str, str]] = Counter()
        if file.exists():
            for line in lines_of(file):
                key = line["item"], line["channel"]
                self._takes[key] = max(self._takes[key], line["take"])
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._out = file.open("ab")
        except OSError as error:
            raise UsageError(f"cannot record to {file}: {error.strerror}") from error
        if _is_torn(file):
            # A process was killed while it wrote; its half line must not spoil ours.
            self._out.write(b"\n")

    def take(self, item_id: str, channel: Channel, volatile: Sequence[str] = ()) -> "RecordedTake":
        """Begin an attempt at an item; `volatile` texts are its own folders and ids."""
        return RecordedTake(self, item_id, channel, tuple(volatile))

    def _number(self, item_id: str, channel: Channel) -> int:
        self._takes[item_id, channel] += 1
        return self._takes[item_id, channel]

    def close(self) -> None:
        """Be done with the file."""
        self._out.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        self._out.write(self._blot(text).encode("utf-8", "replace") + b"\n")
        # An exchange that was told of has to be there, whatever becomes of this process.
        self._out.flush()


class RecordedTake:
    """The exchanges of one attempt, being recorded."""

    def __init__(
        self, recording: Recording, item_id: str, channel: Channel, volatile: tuple[str, ...]
    ) -> None:
        self._recording = recording
        self._item_id = item_id
        self._channel = channel
        self._volatile = volatile
        self._number = 0
        self._begun = 0
        self._open: set[int] = set()
        self._beside: dict[int, list[int]] = {}

    def begin(self) -> int:
        """The number of an exchange that begins now."""
        if not self._number:
            # Only now: an attempt that asks nothing leaves no trace to be counted by.
            self._number = self._recording._number(self._item_id, self._channel)
        self._begun += 1
        # Calls that are made at the same time have no order worth keeping.
        self._beside[self._begun] = sorted(self._open)
        self._open.add(self._begun)
        return self._begun

    def keep(self, number: int, exchange: Exchange) -> None:
        """Write down how the exchange of that number went."""
        self._open.discard(number)
        body = canonical(exchange.request, self._volatile)
        self._recording._write(
            {
                "v": VERSION,
                "item": self._item_id,
                "channel": self._channel,
                "take": self._number,
                "n": number,
                "beside": self._beside.pop(number, []),
                "wire": exchange.wire,
                "operation": exchange.operation,
                "model": exchange.model,
                "digest": request_digest(exchange.wire, exchange.operation, body),
                "volatile": self._volatile,
                "request": exchange.request,
                "status": exchange.status,
                "headers": dict(exchange.headers),
                "chunks": list(map(_written, exchange.chunks)),
                **({"hidden": list(map(_written, exchange.hidden))} if exchange.hidden else {}),
                "whole": exchange.whole,
            }
        )


def lines_of(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a recording, each with its `offset` and `size`; one cut short by a kill is left out."""
    offset = 0
    try:
        with file.open("rb") as lines:
            for raw in lines:
                line = _parsed(raw)
                if line is not None:
                    yield {**line, "offset": offset, "size": len(raw)}
                elif offset == 0 and raw.endswith(b"\n"):
                    raise UsageError(f"{file} is no recording: its first line is not an exchange")
                offset += len(raw)
    except OSError as error:
        raise UsageError(f"cannot read the recording {file}: {error.strerror}") from error


def exchange_of(line: Mapping[str, Any]) -> Exchange:
    """A line of a recording as the exchange it tells of."""
    return Exchange(
        wire=line["wire"],
        operation=line["operation"],
        model=line["model"],
        request=line["request"],
        status=line["status"],
        headers=line["headers"],
        chunks=tuple(map(_read, line["chunks"])),
        hidden=tuple(map(_read, line.get("hidden", ()))),
        whole=line["whole"],
    )


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and line.get("v") == VERSION else None


def _written(chunk: bytes) -> str | dict[str, str]:
    """Text stays readable; what is none (half of a letter, say) is kept to the bit."""
    try:
        return chunk.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk).decode()}


def _read(chunk: str | Mapping[str, str]) -> bytes:
    try:
        return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"])
    except (binascii.Error, KeyError) as cause:
        raise UsageError("the recording holds a chunk that is neither text nor base64") from cause


def _is_torn(file: Path) -> bool:
    with file.open("rb") as written:
        if not written.seek(0, 2):
            return False
        written.seek(-1, 2)
        return written.read(1) != b"\n"
