"""How a table is written down: JSON, NDJSON, CSV or Parquet.

Each writer takes rows one by one and keeps none, so that a table may be larger than memory.

Knows nothing of stores, scopes or where files go.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.export.rows import Row, with_flags, with_objects

WHOLE = (
    *("position", "step", "repeat", "attempt", "concurrency", "seed", "changedFiles", "linesAdded"),
    *("linesRemoved", "testExitCode", "exitCode", "promptTokens", "cachedTokens", "completionTokens"),
    *("reasoningTokens", "totalTokens", "tokensTotal", "toolCalls", "modelCalls", "unpricedCalls"),
    "interventions",
)
REAL = (
    *("budgetUsd", "costUsd", "workSeconds", "waitingSeconds", "testDurationMs", "durationMs"),
    *("latencyMs", "waitingMs", "value"),
)
FLAG = ("success", "standIn")

# Spreadsheets run text that begins so. A plain number may: nothing comes of it.
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def write_json(path: Path, tables: Iterable[tuple[str, Iterable[Row]]]) -> None:
    """One document with a list for each table."""
    with path.open("w", encoding="utf-8") as file:
        file.write("{")
        for number, (table, rows) in enumerate(tables):
            file.write(f"{',' if number else ''}\n{json.dumps(table)}: [")
            for index, line in enumerate(_lines(rows)):
                file.write(f"{',' if index else ''}\n  {line}")
            file.write("]")
        file.write("\n}\n")


def write_ndjson(path: Path, rows: Iterable[Row]) -> None:
    """One JSON object a line."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in _lines(rows))


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Row]) -> None:
    """RFC 4180 with a header, safe to open in a spreadsheet."""
    # Half of a character, as a record cut in its middle has it, must not cost the rest of the table.
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([_cell(value) for value in with_flags(row).values()])


def write_parquet(path: Path, names: Sequence[str], rows: Iterable[Row]) -> None:
    """One Parquet file, made by duckdb from a file of lines beside it."""
    # An extra, and half a second to import.
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(
            "writing Parquet needs duckdb\nInstall it: pip install 'proctor[parquet]', "
            "or choose another format: json, ndjson, csv."
        ) from error
    lines = path.with_suffix(".lines")
    longest = 0
    with lines.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            line = json.dumps(with_flags(row), ensure_ascii=True)
            longest = max(longest, len(line))
            file.write(f"{line}\n")
    # Nothing may be fetched from anywhere; reading lines and writing Parquet are built in.
    offline: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "threads": "1",
    }
    with duckdb.connect(config=offline) as connection:
        connection.execute(_parquet_statement(path, lines, names, longest))
    lines.unlink()


def _parquet_statement(path: Path, lines: Path, names: Sequence[str], longest: int) -> str:
    types = ", ".join(f"'{name}': '{parquet_type(name)}'" for name in names)
    # The reader sets aside a few times the largest line; its default of 16 MB suits most tables.
    largest = max(16_777_216, longest + 1024)
    source = (
        f"read_json({_quoted(lines)}, format='newline_delimited', columns={{{types}}}, "
        f"maximum_object_size={largest})"
    )
    return f"COPY (SELECT * FROM {source}) TO {_quoted(path)} (FORMAT parquet)"


def parquet_type(name: str) -> str:
    """What a column of this name holds, in any table."""
    if name in FLAG:
        return "BOOLEAN"
    if name in WHOLE:
        return "BIGINT"
    return "DOUBLE" if name in REAL else "VARCHAR"


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _lines(rows: Iterable[Row]) -> Iterator[str]:
    return (json.dumps(with_objects(with_flags(row)), ensure_ascii=False) for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = _CONTROL.sub("", value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.match(text) else text
