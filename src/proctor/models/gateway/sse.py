"""Server-sent events, as all providers stream in them.

Knows nothing of what the events mean.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from proctor.untrusted import parse_json

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


class Gathered:
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
