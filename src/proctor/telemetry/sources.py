"""Reads spans from files and CloudWatch Logs: JSON or protobuf, possibly compressed, CSV and Parquet.

A file contains one value per line, one value, or values printed one after the other; a value is an OTLP
message, a flat document, an export of another tool, or a log event around one. A row of a table is a span by
dotted columns, as Phoenix saves its data frame. What cannot be read is reported and skipped.
"""

import csv
import io
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import IO, Protocol

from proctor.errors import NotFound, UsageError
from proctor.json_values import JsonMap, JsonObject, as_list, as_map, as_text, maps_in, parse_json
from proctor.session import Unreadable
from proctor.telemetry.documents import (
    Document,
    has_messages,
    is_span,
    log_group_of,
    normalized,
    service_of,
    session_key_of,
)
from proctor.telemetry.exports import exported
from proctor.telemetry.messages import literal_of, parse_nested
from proctor.telemetry.otlp import LOGS, TRACES, DecodedSpans, decode_message, decode_protobuf, signal_of
from proctor.unpacking import open_gzip

MOST_BYTES = 256 * 1024 * 1024
"""Maximum size of a line, or of a file with one value. A collector's largest message is a few megabytes."""
HEAD_BYTES = 64 * 1024
"""Bytes of a file from which its format is recognized."""
TABLE_SUFFIXES = (".csv", ".parquet")
"""Suffixes of files that are read from a folder if they are tables of spans."""
SUFFIXES = (".json", ".jsonl", ".ndjson", ".log", ".pb", ".bin", ".binpb", ".otlp", ".gz")
"""Suffixes of files that are read from a folder."""
_MARKERS = (
    b"resourceSpans",
    b"resourceLogs",
    b"resource_spans",
    b"resource_logs",
    b"traceId",
    b'"trace_id"',
    b"raw_otel_json",
    b'"context.trace_id"',
    b'"observations"',
    b'"run_type"',
)
# A line with nothing but an opening brace: the output of a console exporter.
_PRINTED = re.compile(rb"^\{\s*$", re.MULTILINE)
MOST_NAMES = 8
"""Member names that a message lists."""
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")

# CloudWatch's exports to S3 put the time before each event: 2026-04-23T07:37:44.011Z {…}
_STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\S+\s+(?=[\[{])")


def files_in(path: Path) -> list[Path]:
    """The files at a path that may contain spans: itself, or all in a folder and below, in order."""
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file()
        and (file.name.endswith(SUFFIXES) or (file.name.endswith(TABLE_SUFFIXES) and recognizes(file)))
    )


def recognizes(path: Path) -> bool:
    """Whether a file seems to contain spans."""
    try:
        # Reading a pipe could block, and would consume its data.
        head = _head(path) if path.is_file() else b""
    except (OSError, EOFError, zlib.error):
        return False
    if is_parquet(head):
        return COLUMN in path.read_bytes()[-HEAD_BYTES:]
    if is_csv(head):
        return True
    return any(word in head for word in _MARKERS) or (_is_binary(head) and path.suffix in SUFFIXES)


def read_documents(path: Path) -> Iterator[Document | Unreadable]:
    """The documents in a file, and an `Unreadable` for each part that could not be read."""
    try:
        head = _head(path)
        is_binary = _is_binary(head)
        if is_parquet(head):
            yield from _rows(rows_of_parquet(path), path)
            return
        with _open(path) as stream:
            if is_csv(head):
                yield from _rows(rows_of_csv(stream), path)
                return
            if is_binary:
                yield from _documents_in(path, 0, _from_protobuf(stream.read(MOST_BYTES)))
            else:
                yield from _read(stream, path)
            if stream.read(1):
                problem = f"only its first {MOST_BYTES >> 20} MiB were read: it is one value"
                yield Unreadable(path=str(path), problem=problem)
    except (OSError, EOFError, zlib.error) as error:
        yield Unreadable(path=str(path), problem=str(getattr(error, "strerror", None) or error))


def _rows(rows: Iterator[JsonObject], path: Path) -> Iterator[Document | Unreadable]:
    number = 1
    try:
        for number, row in enumerate(rows, start=2):
            yield from _documents_in(path, number, row)
    except ValueError as error:
        yield Unreadable(path=str(path), line=number, problem=str(error))


def documents_in(value: object) -> DecodedSpans:
    """The documents in one parsed value; a `ValueError` if it can have none."""
    if isinstance(value, list):
        return _joined(value)
    if not isinstance(value, Mapping):
        raise ValueError("it is not a JSON object")
    if signal_of(value) is not None:
        return decode_message(value)
    documents = exported(value)
    if documents is not None:
        return _relevant(documents)
    if "traceId" in value or "spanId" in value:
        return _relevant([value])
    for key in ("events", "results", "sessionSpans", "spans", "runs", "data"):
        if isinstance(value.get(key), list):
            return _with_session(_joined(value[key]), value.get("session_id"))
    for key in ("raw_otel_json", "message", "@message"):
        if isinstance(value.get(key), str | Mapping):
            return _in_log_event(value[key])
    if value and all(isinstance(each, list) for each in value.values()):
        # Traces by name: {"trace_1": [span, …]}.
        return _joined([span for spans in value.values() for span in as_list(spans)])
    names = ", ".join(sorted(map(str, value))[:MOST_NAMES]) or "nothing"
    raise ValueError(
        f"it holds neither spans nor records: no resourceSpans, resourceLogs or traceId, but {names}"
    )


def _relevant(values: Iterable[JsonMap]) -> DecodedSpans:
    """Documents of one object, normalized, without ordinary log lines."""
    documents = [normalized(value) for value in values]
    return DecodedSpans([each for each in documents if is_span(each) or has_messages(each)])


def _with_session(spans: DecodedSpans, session_id: object) -> DecodedSpans:
    """Spans with the session of their envelope, if none of them names one."""
    if session_id and not any(session_key_of(document) for document in spans.documents):
        for document in spans.documents:
            document["attributes"] = {**as_map(document, "attributes"), "session.id": str(session_id)}
    return spans


def _joined(values: list[object]) -> DecodedSpans:
    documents, rejected, why = list[Document](), 0, ""
    for value in values:
        try:
            # Logs Insights returns a list of fields per event.
            part = documents_in(_as_event(value) if isinstance(value, list) else value)
        except ValueError as error:
            rejected, why = rejected + 1, why or str(error)
        else:
            documents += part.documents
            rejected, why = rejected + part.rejected, why or part.why
    return DecodedSpans(documents, rejected, why)


def _as_event(fields: list[object]) -> object:
    named = [field for field in maps_in(fields) if "field" in field]
    if len(named) == len(fields):
        return {str(field["field"]): field.get("value") for field in named}
    return fields


def _in_log_event(message: str | JsonMap) -> DecodedSpans:
    """The content of a log event: a document, or an unrelated line of text."""
    try:
        value = parse_json(message) if isinstance(message, str) else message
    except ValueError:
        return DecodedSpans([])
    if not isinstance(value, Mapping):
        return DecodedSpans([])
    is_telemetry = any(key in value for key in ("traceId", "trace_id")) or signal_of(value) is not None
    return documents_in(value) if is_telemetry else DecodedSpans([])


def _read(stream: IO[bytes], path: Path) -> Iterator[Document | Unreadable]:
    first = stream.readline(MOST_BYTES)
    if _is_value(first):
        rest = iter(lambda: stream.readline(MOST_BYTES), b"")
        yield from _lines(chain([first], rest), path)
    else:
        everything = first + stream.read(MOST_BYTES)
        if everything.lstrip()[:1] in (b"[", b"{") and _is_value(everything):
            yield from _documents_in(path, 0, parse_json(everything))
        elif _PRINTED.search(everything):
            yield from _printed(everything, path)
        else:
            yield from _lines(everything.splitlines(), path)


def _printed(text: bytes, path: Path) -> Iterator[Document | Unreadable]:
    """Indented values one after the other, as a console exporter prints them; other output is skipped."""
    value, began = list[bytes](), 0
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.rstrip()
        if bare == b"{" and not value:
            began = number
        if not value and bare != b"{":
            if bare[:1] == b"{":
                yield from _line(path, number, line)
            continue
        value.append(line)
        if bare == b"}":
            yield from _line(path, began, b"\n".join(value))
            value.clear()
    if value:
        yield Unreadable(path=str(path), line=began, problem="it is not JSON: it breaks off")


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
        yield Unreadable(path=str(path), line=number, problem=f"it is not JSON: {error}")
    else:
        yield from _documents_in(path, number, value)


def _documents_in(path: Path, number: int, value: object) -> Iterator[Document | Unreadable]:
    try:
        spans = value if isinstance(value, DecodedSpans) else documents_in(value)
    except ValueError as error:
        yield Unreadable(path=str(path), line=number, problem=str(error))
        return
    yield from spans.documents
    if spans.rejected:
        problem = f"{spans.rejected} spans or records could not be read; the first: {spans.why}"
        yield Unreadable(path=str(path), line=number, problem=problem)


def _from_protobuf(data: bytes) -> object:
    """One message, or several length-delimited ones, as collectors write them."""
    whole = _one_message(data)
    if whole is not None:
        return whole
    documents, at = list[Document](), 0
    while at + 4 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        message = _one_message(data[at + 4 : at + 4 + length])
        if message is None or not length:
            return DecodedSpans(documents, 1, f"there is no message of OTLP at byte {at:,}")
        documents += message.documents
        at += 4 + length
    return DecodedSpans(documents)


def _one_message(data: bytes) -> DecodedSpans | None:
    # The bytes do not name their signal; decoded as the wrong one they are empty.
    for signal in (TRACES, LOGS):
        try:
            spans = decode_protobuf(data, signal)
        except ValueError:
            continue
        if spans.documents:
            return spans
    return None


def _is_value(text: bytes) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def _is_binary(head: bytes) -> bool:
    # The tag of field 1 of every OTLP message, or the first byte of a length. The former is also a line feed,
    # but text contains no control characters.
    return head[:1] in (b"\x0a", b"\x00") and _CONTROL.search(head) is not None


def _head(path: Path) -> bytes:
    with _open(path) as stream:
        return stream.read(HEAD_BYTES)


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
    file = path.open("rb")
    return open_gzip(file) if is_packed else file


SPANS = "aws/spans"
"""Log group of spans whose messages are in other log groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroupQuery:
    """What to read from CloudWatch Logs."""

    names: Sequence[str] = ()
    prefixes: Sequence[str] = ()
    """Every group whose name begins with one of these."""
    service: str = ""
    """Empty: every service."""
    session_ids: Sequence[str] = ()
    """Empty: every session."""
    start: datetime | None = None
    end: datetime | None = None
    """Exclusive."""


class _Paginator(Protocol):
    def paginate(self, **parameters: object) -> Iterable[JsonMap]:
        """All pages of a list, each requested when the one before has been read."""


class LogsClient(Protocol):
    """The part of boto3's CloudWatch Logs client that is used."""

    def get_paginator(self, operation_name: str, /) -> _Paginator:
        """Reads an operation page by page."""


def logs_client(*, region: str = "", endpoint_url: str = "") -> LogsClient:
    """A CloudWatch Logs client with the credentials of boto3."""
    # Imported here: an optional dependency.
    try:
        import boto3
    except ImportError as error:
        raise UsageError(
            "reading CloudWatch Logs needs boto3\nInstall it: pip install 'proctor[aws]'"
        ) from error
    from botocore.exceptions import BotoCoreError

    try:
        client: LogsClient = boto3.client(
            "logs", region_name=region or None, endpoint_url=endpoint_url or None
        )
    except (BotoCoreError, ValueError) as error:
        raise UsageError(
            f"CloudWatch Logs cannot be reached: {error}\nName a region with --region."
        ) from error
    return client


def read_log_groups(client: LogsClient, query: LogGroupQuery) -> Iterator[tuple[str, Document]]:
    """The documents of these groups, with their group."""
    groups = [
        *query.names,
        *(name for prefix in query.prefixes for name in _groups_with_prefix(client, prefix)),
    ]
    if not groups:
        raise NotFound("there is no such log group\nName one with --log-group, or the beginning of several.")
    for group in dict.fromkeys(groups):
        for document in _documents(client, group, query):
            yield log_group_of(document) or group, document
    if SPANS not in groups:
        for document in _separate_spans(client, query):
            home = log_group_of(document)
            if home in groups or not home:
                yield home or groups[0], document


def _separate_spans(client: LogsClient, query: LogGroupQuery) -> Iterator[Document]:
    try:
        yield from _documents(client, SPANS, query)
    except NotFound:
        return


def _documents(client: LogsClient, group: str, query: LogGroupQuery) -> Iterator[Document]:
    for event in _events(client, group, query):
        for document in _in_event(event).documents:
            if _matches(document, query):
                yield document


def _in_event(event: JsonMap) -> DecodedSpans:
    try:
        return documents_in({"message": event.get("message", "")})
    except ValueError:
        # An unrelated log record.
        return DecodedSpans([])


def _matches(document: Document, query: LogGroupQuery) -> bool:
    if query.service and service_of(document) not in ("", query.service):
        return False
    named = session_key_of(document)
    # A span without a session id may belong to one of these by its trace.
    return not query.session_ids or not named or named in query.session_ids


def _events(client: LogsClient, group: str, query: LogGroupQuery) -> Iterator[JsonMap]:
    parameters: JsonObject = {"logGroupName": group}
    if query.start:
        parameters["startTime"] = _milliseconds(query.start)
    if query.end:
        # The end is inclusive in the API.
        parameters["endTime"] = _milliseconds(query.end - timedelta(milliseconds=1))
    if query.service:
        parameters["filterPattern"] = f'"{query.service}"'
    yield from _paged(client, "filter_log_events", "events", parameters, f"the log group {group}")


def _groups_with_prefix(client: LogsClient, prefix: str) -> Iterator[str]:
    parameters: JsonObject = {"logGroupNamePrefix": prefix}
    groups = _paged(
        client, "describe_log_groups", "logGroups", parameters, f"log groups beginning with {prefix}"
    )
    return (as_text(group["logGroupName"]) for group in groups)


def _paged(
    client: LogsClient, operation: str, items: str, parameters: JsonMap, what: str
) -> Iterator[JsonMap]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        for page in client.get_paginator(operation).paginate(**parameters):
            yield from maps_in(page.get(items))
    except ClientError as error:
        details = error.response.get("Error", {})
        if details.get("Code") == "ResourceNotFoundException":
            raise NotFound(f"there is no {what.removeprefix('the ')}") from error
        raise UsageError(
            f"CloudWatch Logs refuses to show {what}: {details.get('Message') or error}"
        ) from error
    except BotoCoreError as error:
        raise UsageError(f"CloudWatch Logs cannot be reached: {error}") from error


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


PARQUET = b"PAR1"
"""First bytes of a Parquet file."""
COLUMN = b"context.trace_id"
"""Column that every table of spans has."""
OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
MOST_CELL = 256 * 1024 * 1024
"""Characters of one cell: whole conversations are in one."""
PAGE = 500


def is_parquet(head: bytes) -> bool:
    """Whether a file with this beginning is Parquet."""
    return head.startswith(PARQUET)


def is_csv(head: bytes) -> bool:
    """Whether a file with this beginning is a CSV table of spans."""
    first = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    return COLUMN in first and b"," in first and not first.lstrip().startswith((b"{", b"["))


def rows_of_csv(stream: IO[bytes]) -> Iterator[JsonObject]:
    """The rows, with parsed cells. Raises `ValueError` for text that is no CSV."""
    csv.field_size_limit(MOST_CELL)
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
    try:
        for row in csv.DictReader(text):
            yield {
                name: _cell(name, value) for name, value in row.items() if name and value not in (None, "")
            }
    except csv.Error as error:
        raise ValueError(f"it is not CSV: {error}") from error


def rows_of_parquet(path: Path) -> Iterator[JsonObject]:
    """The rows of a file. Raises `ValueError` for a file that cannot be read, or without duckdb."""
    try:
        import duckdb
    except ImportError as error:
        raise ValueError("reading Parquet needs duckdb: pip install 'proctor[parquet]'") from error
    try:
        with duckdb.connect(config=OFFLINE) as connection:
            described = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
            names = [column[0] for column in described]
            # Times with a zone need another package; nanoseconds do not.
            columns = ", ".join(
                f"epoch_ns({_quoted(name)})"
                if kind.startswith("TIMESTAMP") and not kind.endswith("]")
                else _quoted(name)
                for name, kind, *_ in described
            )
            answer = connection.execute(f"SELECT {columns} FROM read_parquet(?)", [str(path)])
            while page := answer.fetchmany(PAGE):
                for row in page:
                    cells = zip(names, map(_plain, row), strict=True)
                    yield {name: value for name, value in cells if value is not None}
    except duckdb.Error as error:
        raise ValueError(f"it is not Parquet that can be read: {str(error).partition(chr(10))[0]}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(name: str, text: str) -> object:
    """The value in a cell: lists and objects are written as JSON or in Python's notation."""
    if ".token_count." in name and text.endswith(".0"):
        # A column with empty cells is written as floats.
        return text.removesuffix(".0")
    parsed = parse_nested(text)
    return literal_of(parsed) if isinstance(parsed, str) else parsed


def _plain(value: object) -> object:
    """A Parquet value as JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        # A structure has the members of all rows.
        return {str(name): plain for name, each in value.items() if (plain := _plain(each)) is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
