"""The contract of client formats, kept by `chat`, `responses`, `messages` and `gemini`.

They parse requests of clients, write answers for them, complete or streamed, and parse answers of providers
in the same format for the record.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from proctor.json_values import JsonMap, JsonObject, as_list, as_text, parse_json
from proctor.model import Request, WireAnswer
from proctor.models.prices import positive
from proctor.session import Usage


class ClientRequest(NamedTuple):
    """A parsed request of a client."""

    request: Request
    left_out: tuple[str, ...] = ()
    """Features that cannot be translated."""
    failed_tools: frozenset[str] | None = None
    """Ids of tool calls with failed results. None: the format does not mark failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Envelope of an answer."""

    id: str
    """Unique."""
    model: str
    """As the client named it."""
    created: int
    """Unix time in seconds."""
    body: JsonMap
    """The request."""


class WireDialect(Protocol):
    """One client format."""

    def parse_request(self, body: JsonMap, model: str) -> ClientRequest:
        """Parse a request. Missing or wrong values raise the natural error."""

    def wants_stream(self, body: JsonMap, operation: str) -> bool:
        """Whether the answer is streamed."""

    def output_limit(self, body: JsonMap) -> int | None:
        """Maximum length of one answer, with reasoning; None: not set."""

    def with_output_limit(self, body: JsonMap, limit: int) -> JsonObject:
        """The same request with a lower limit."""

    def answer(self, reading: WireAnswer, frame: Frame) -> JsonObject:
        """A complete answer."""

    def stream(self, reading: WireAnswer, frame: Frame) -> Iterator[bytes]:
        """The answer as events of a stream."""

    def read(self, raw: bytes, *, streamed: bool) -> WireAnswer:
        """The content of a (partial) answer in this format."""

    def error(self, status: int, message: str) -> JsonObject:
        """An error in this format."""


NOTHING = WireAnswer("", Usage(), (), "")
"""The content of a missing answer."""


def text_of(content: object) -> str:
    """The text of a message, plain or in parts."""
    if isinstance(content, str):
        return content
    return "".join(as_text(part, "text") for part in as_list(content))


def limit_in(body: JsonMap, *names: str) -> int | None:
    """The first valid limit of several settings."""
    return next((limit for name in names if (limit := positive(body.get(name)))), None)


CONTENT_TYPE = "text/event-stream"
_BETWEEN = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def event(data: object, name: str = "") -> bytes:
    """One event; `name` for formats with named events."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")


def read_events(stream: bytes) -> Iterator[JsonMap]:
    """The JSON objects of a stream; incomplete or invalid ones are skipped."""
    for block in _BETWEEN.split(stream):
        data = _data(block)
        if not data or data == b"[DONE]":
            continue
        try:
            value = parse_json(data)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


class CollectedStream:
    """Assembles events from chunks."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, chunk: bytes) -> list[bytes]:
        """The events that are now complete, with the blank line that ends each."""
        self._rest += chunk
        whole, start = list[bytes](), 0
        for end in _BETWEEN.finditer(self._rest):
            whole.append(self._rest[start : end.end()])
            start = end.end()
        self._rest = self._rest[start:]
        return whole

    @property
    def rest(self) -> bytes:
        """An incomplete event."""
        return self._rest


def _data(block: bytes) -> bytes:
    lines = [line[5:].lstrip(b" ") for line in block.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines).strip()
