"""Spans in files: what collectors write, what CloudWatch exports, in JSON or protobuf, perhaps compressed.

A file holds one value a line, or one value in all; a value is a message of OTLP, a flat document, or an
event of a log with one of those inside. What cannot be read is named and skipped.

Knows nothing of sessions, or of where documents go.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

from proctor.imported import Unreadable
from proctor.telemetry.decoding import (
    LOGS,
    TRACES,
    Decoded,
    decode_message,
    decode_protobuf,
    signal_of,
)
from proctor.telemetry.documents import Document, is_span, normalised, says_something
from proctor.untrusted import parse_json

MOST_BYTES = 256 * 1024 * 1024
"""Of one line, or of a file that is one value. A collector's largest message is a few megabytes."""
HEAD_BYTES = 64 * 1024
"""Of a file that are looked at to tell what it is."""
SUFFIXES = (".json", ".jsonl", ".ndjson", ".log", ".pb", ".bin", ".binpb", ".otlp", ".gz")
"""Of files in a folder that are looked at."""
_TELLTALES = (b"resourceSpans", b"resourceLogs", b"resource_spans", b"resource_logs", b"traceId")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
# CloudWatch's exports to S3 put the time before each event: 2026-04-23T07:37:44.011Z {…}
_STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\S+\s+(?=[\[{])")


def files_in(path: Path) -> list[Path]:
    """The files at a path that may hold spans: itself, or all in a folder and below, in order."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(SUFFIXES))


def recognises(path: Path) -> bool:
    """Whether a file looks as if it held spans."""
    try:
        # A pipe would be waited for, and what is looked at in it is gone.
        head = _head(path) if path.is_file() else b""
    except (OSError, EOFError, zlib.error):
        return False
    return any(word in head for word in _TELLTALES) or (_is_binary(head) and path.suffix in SUFFIXES)


def read_documents(path: Path) -> Iterator[Document | Unreadable]:
    """The documents in a file, and what of it could not be read."""
    try:
        is_binary = _is_binary(_head(path))
        with _open(path) as stream:
            if is_binary:
                yield from _told(path, 0, _from_protobuf(stream.read(MOST_BYTES)))
            else:
                yield from _read(stream, path)
    except (OSError, EOFError, zlib.error) as error:
        yield Unreadable(path=str(path), problem=str(getattr(error, "strerror", None) or error))


def documents_in(value: Any) -> Decoded:
    """The documents in one parsed value; a `ValueError` says why there can be none."""
    if isinstance(value, list):
        return _joined(value)
    if not isinstance(value, Mapping):
        raise ValueError("it is no JSON object")
    if signal_of(value) is not None:
        return decode_message(value)
    if "traceId" in value or "spanId" in value:
        document = normalised(value)
        return Decoded([document] if is_span(document) or says_something(document) else [])
    for key in ("events", "results", "sessionSpans", "spans"):
        if isinstance(value.get(key), list):
            return _joined(value[key])
    for key in ("message", "@message"):
        if isinstance(value.get(key), str):
            return _in_log_event(value[key])
    raise ValueError("it holds neither spans nor records: no resourceSpans, resourceLogs or traceId")


def _joined(values: list[Any]) -> Decoded:
    documents, rejected, why = list[Document](), 0, ""
    for value in values:
        try:
            # Logs Insights answers with a list of fields for each event.
            part = documents_in(_as_event(value) if isinstance(value, list) else value)
        except ValueError as error:
            rejected, why = rejected + 1, why or str(error)
        else:
            documents += part.documents
            rejected, why = rejected + part.rejected, why or part.why
    return Decoded(documents, rejected, why)


def _as_event(fields: list[Any]) -> Any:
    if all(isinstance(field, Mapping) and "field" in field for field in fields):
        return {str(field["field"]): field.get("value") for field in fields}
    return fields


def _in_log_event(message: str) -> Decoded:
    """An event of a log: a document, or a line of text that is none of our business."""
    try:
        value = parse_json(message)
    except ValueError:
        return Decoded([])
    is_ours = isinstance(value, Mapping) and ("traceId" in value or signal_of(value) is not None)
    return documents_in(value) if is_ours else Decoded([])


def _read(stream: IO[bytes], path: Path) -> Iterator[Document | Unreadable]:
    first = stream.readline(MOST_BYTES)
    if _is_value(first):
        rest = iter(lambda: stream.readline(MOST_BYTES), b"")
        yield from _lines(chain([first], rest), path)
    else:
        everything = first + stream.read(MOST_BYTES)
        if everything.lstrip()[:1] in (b"[", b"{") and _is_value(everything):
            yield from _told(path, 0, parse_json(everything))
        else:
            yield from _lines(everything.splitlines(), path)


def _lines(lines: Iterable[bytes], path: Path) -> Iterator[Document | Unreadable]:
    for number, line in enumerate(lines, start=1):
        yield from _line(path, number, line)


def _line(path: Path, number: int, line: bytes) -> Iterator[Document | Unreadable]:
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return
    if stamp := _STAMPED.match(text):
        text = text[stamp.end() :]
    try:
        value = parse_json(text)
    except ValueError as error:
        yield Unreadable(path=str(path), line=number, problem=f"it is no JSON: {error}")
    else:
        yield from _told(path, number, value)


def _told(path: Path, number: int, value: Any) -> Iterator[Document | Unreadable]:
    try:
        found = value if isinstance(value, Decoded) else documents_in(value)
    except ValueError as error:
        yield Unreadable(path=str(path), line=number, problem=str(error))
        return
    yield from found.documents
    if found.rejected:
        problem = f"{found.rejected} spans or records could not be read; the first: {found.why}"
        yield Unreadable(path=str(path), line=number, problem=problem)


def _from_protobuf(data: bytes) -> Any:
    """One message, or several with their lengths before them, as collectors write them."""
    whole = _one_message(data)
    if whole is not None:
        return whole
    documents, at = list[Document](), 0
    while at + 4 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        message = _one_message(data[at + 4 : at + 4 + length])
        if message is None or not length:
            return Decoded(documents, 1, f"there is no message of OTLP at byte {at:,}")
        documents += message.documents
        at += 4 + length
    return Decoded(documents)


def _one_message(data: bytes) -> Decoded | None:
    # The bytes do not say which signal they are; read as the wrong one, they hold nothing.
    for signal in (TRACES, LOGS):
        try:
            found = decode_protobuf(data, signal)
        except ValueError:
            continue
        if found.documents:
            return found
    return None


def _is_value(text: bytes) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _is_binary(head: bytes) -> bool:
    # Field 1 of every message of OTLP, or the first byte of a length. The former is also a line's end, but
    # no text goes on with characters that control a terminal.
    return head[:1] in (b"\x0a", b"\x00") and _CONTROL.search(head) is not None


def _head(path: Path) -> bytes:
    with _open(path) as stream:
        return stream.read(HEAD_BYTES)


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path) if is_packed else path.open("rb")  # type: ignore[return-value]
