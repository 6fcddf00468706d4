"""Tables of spans, CSV and Parquet, as Phoenix's data frame is saved: a row is a span, by dotted columns."""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO

from proctor.json_values import JsonObject
from proctor.telemetry.messages import literal_of, parse_nested

PARQUET = b"PAR1"
"""First bytes of a Parquet file."""
COLUMN = b"context.trace_id"
"""In the header of every such table."""
OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
MOST_CELL = 256 * 1024 * 1024
"""Characters of one cell: whole conversations are in one."""
PAGE = 500


def is_parquet(head: bytes) -> bool:
    """Whether a file that begins so is Parquet."""
    return head.startswith(PARQUET)


def is_csv(head: bytes) -> bool:
    """Whether a file that begins so is a CSV table of spans."""
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
            # Times with a zone need a package of their own; nanoseconds do not.
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
        # A column with empty cells holds floats.
        return text.removesuffix(".0")
    parsed = parse_nested(text)
    return literal_of(parsed) if isinstance(parsed, str) else parsed


def _plain(value: object) -> object:
    """A value of Parquet as JSON has it."""
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
