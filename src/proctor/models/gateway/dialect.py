"""What a wire format must be able to do for clients that speak it to us.

Four modules keep this promise: `chat`, `responses`, `messages`, `gemini`. They turn a client's
request into our own words, and an answer in our words into what that client expects, whole or as a
stream; and they read what a provider of the same format answered, so that it can be recorded.

Knows nothing of HTTP, accesses or prices.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from proctor.json_values import parse_json
from proctor.model import Request
from proctor.models.wire import WireAnswer
from proctor.session import Usage


class ClientRequest(NamedTuple):
    """A client's request in our own words."""

    request: Request
    left_out: tuple[str, ...] = ()
    """What it asked for that cannot be said in our words."""
    failed_tools: frozenset[str] | None = None
    """The ids of tool calls whose results are marked as failures. None: this format marks none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What an answer says besides what the model said."""

    id: str
    """Unlike that of any other answer."""
    model: str
    """As the client called it."""
    created: int
    """Seconds since 1970."""
    body: Mapping[str, Any]
    """The request that is answered."""


class WireDialect(Protocol):
    """One way in which clients ask."""

    def asked(self, body: Mapping[str, Any], model: str) -> ClientRequest:
        """Read a request. Whatever is missing or of the wrong type raises the natural error."""

    def wants_stream(self, body: Mapping[str, Any], operation: str) -> bool:
        """Whether the answer is to come as a stream."""

    def output_limit(self, body: Mapping[str, Any]) -> int | None:
        """The most tokens the answer may have; None: the client did not say."""

    def with_output_limit(self, body: Mapping[str, Any], limit: int) -> dict[str, Any]:
        """The same request with a lower limit."""

    def answer(self, reading: WireAnswer, frame: Frame) -> dict[str, Any]:
        """A whole answer."""

    def stream(self, reading: WireAnswer, frame: Frame) -> Iterator[bytes]:
        """The same answer as the events of a stream."""

    def read(self, raw: bytes, *, streamed: bool) -> WireAnswer:
        """What an answer in this format says, as far as it has come."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error as clients of this format expect it."""


NOTHING = WireAnswer("", Usage(), (), "")
"""What an answer says that never came."""


def text_of(content: Any) -> str:
    """The text of a message, whether it is given as such or in parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part["text"] for part in content if isinstance(part, Mapping) and _is_text(part))


def limit_in(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of several settings that holds a sensible limit."""
    for name in names:
        value = body.get(name)
        if type(value) is int and value > 0:
            return value
    return None


def _is_text(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("text"), str)


# Server-sent events, as all providers stream in them.


CONTENT_TYPE = "text/event-stream"


_BETWEEN = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def event(data: Any, name: str = "") -> bytes:
    """One event; `name` for formats that say the type of an event beside it as well."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")


def read_events(stream: bytes) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of a stream; what is cut off or makes no sense is left out."""
    for block in _BETWEEN.split(stream):
        data = _data(block)
        if not data or data == b"[DONE]":
            continue
        try:
            found = parse_json(data)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


class CollectedStream:
    """Makes whole events of bytes that arrive in any pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, chunk: bytes) -> list[bytes]:
        """The events that are whole now, each with the blank line that ends it."""
        self._rest += chunk
        whole, start = list[bytes](), 0
        for end in _BETWEEN.finditer(self._rest):
            whole.append(self._rest[start : end.end()])
            start = end.end()
        self._rest = self._rest[start:]
        return whole

    @property
    def rest(self) -> bytes:
        """What has come of an event that never ended."""
        return self._rest


def _data(block: bytes) -> bytes:
    lines = [line[5:].lstrip(b" ") for line in block.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines).strip()
