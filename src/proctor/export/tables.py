"""Writes tables as JSON, NDJSON, CSV or Parquet, and reads Parquet.

Rows are streamed, so that a table may be larger than memory.
"""

import csv
import difflib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from proctor.errors import UsageError
from proctor.json_values import JsonObject, require_text
from proctor.store import Scope, StoreReader
from proctor.store.tables import COLUMNS, OF_A_SESSION, OLD_NAMES, ROWS

Row = JsonObject
TABLES = (
    "sessions",
    "iterations",
    "tool_calls",
    "merge_history",
    "batches",
    "batch_items",
    "messages",
    "model_calls",
    "metrics",
    "scores",
    "labels",
    "annotations",
)
"""Everything that can be exported, in the order of the files."""
DOCUMENTED = {
    "batches": ("runId", "createdAt", "defaultsJson"),
    "batch_items": (
        "id",
        "runId",
        "sessionId",
        "repo",
        "prompt",
        "status",
        "error",
        "startedAt",
        "finishedAt",
        "model",
        "iterSha",
        "tokensTotal",
        "toolCalls",
    ),
}
"""Columns that come first, as the documents have them."""
NOT_EXPORTED = ("owner", "heartbeatAt")
"""How processes find each other: of no use in a file."""
FLAGS = ("success", "isMock", "standIn")
OBJECTS = ("factors", "details", "settings", "notes")
"""Columns of JSON text that are objects or lists in formats that have those."""
OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}
"""Settings of duckdb: nothing may be fetched; reading lines and reading and writing Parquet are built in."""
PARQUET_PAGE = 2000
"""Rows read at a time."""
OF_A_STEP = ("tool_calls", "messages", "model_calls")


def columns(table: str) -> tuple[str, ...]:
    """The columns of an exported table, in order."""
    stored = [
        name
        for name in COLUMNS[table]
        if name not in NOT_EXPORTED
        and not (name.endswith("Blob") and name.removesuffix("Blob") in COLUMNS[table])
    ]
    if table in OF_A_SESSION:
        stored.insert(0, "id")
    if table in OF_A_STEP:
        stored.insert(2, "iterationId")
    first = DOCUMENTED.get(table, ())
    return (*first, *(name for name in stored if name not in first), *OLD_NAMES.get(table, {}).values())


def rows(read: StoreReader, table: str, scope: Scope) -> Iterator[JsonObject]:
    """The rows of a scope in one table, long texts included, in little memory."""
    names = columns(table)
    for row in read.table(table, scope):
        yield {name: row[name] for name in names} if table not in OF_A_SESSION else _of_session(row, names)


def _of_session(row: Row, names: tuple[str, ...]) -> Row:
    session, step = row["sessionId"], row.get("step")
    # A step is one row of `iterations`; of anything else a step may have many.
    position = row.get("position", step)
    known = row | {"id": f"{session}:{position}", "iterationId": f"{session}:{step}"}
    return {name: known[name] for name in names}


def with_flags(row: Row) -> Row:
    """The same row with true and false where the store has 1 and 0."""
    return {
        name: bool(value) if name in FLAGS and value is not None else value for name, value in row.items()
    }


def with_objects(row: Row) -> Row:
    """The same row with objects and lists where the store has their text."""
    return {
        name: json.loads(require_text(value)) if name in OBJECTS else value for name, value in row.items()
    }


_TYPES = {int: "BIGINT", int | None: "BIGINT", float: "DOUBLE", float | None: "DOUBLE"}
_NUMBERS: dict[str, str] = {
    name: _TYPES[kind]
    for table in TABLES
    for name, kind in ROWS[table].__annotations__.items()
    if kind in _TYPES
}
"""Types in Parquet of the columns with numbers; a name has one type in all tables."""

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
    duckdb = _duckdb("writing", "choose another format: json, ndjson, csv")
    lines = path.with_suffix(".lines")
    longest = 0
    with lines.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            line = json.dumps(with_flags(row), ensure_ascii=True)
            longest = max(longest, len(line))
            file.write(f"{line}\n")
    with duckdb.connect(config=OFFLINE) as connection:
        connection.execute(_parquet_statement(path, lines, names, longest))
    lines.unlink()


def parquet_rows(path: Path) -> Iterator[dict[str, object]]:
    """The rows of a Parquet file, in memory that does not grow with their number; a `ValueError` if it is
    not readable."""
    duckdb = _duckdb("reading", "save the table as CSV")
    try:
        with duckdb.connect(config=OFFLINE) as connection:
            rows = connection.execute("SELECT * FROM read_parquet(?)", [str(path)])
            names = [str(column[0]) for column in rows.description or ()]
            while page := rows.fetchmany(PARQUET_PAGE):
                yield from (dict(zip(names, row, strict=True)) for row in page)
    except duckdb.Error as error:
        raise ValueError(f"it is not a readable Parquet file: {str(error).splitlines()[0]}") from error


def _duckdb(purpose: str, otherwise: str) -> ModuleType:
    # An extra, and half a second to import.
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(
            f"{purpose} Parquet needs duckdb\nInstall it: pip install 'proctor[parquet]', or {otherwise}."
        ) from error
    module: ModuleType = duckdb
    return module


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
    if name in FLAGS:
        return "BOOLEAN"
    return _NUMBERS.get(name, "VARCHAR")


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _lines(rows: Iterable[Row]) -> Iterator[str]:
    return (json.dumps(with_objects(with_flags(row)), ensure_ascii=False) for row in rows)


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = _CONTROL.sub("", value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.match(text) else text


FORMATS = ("json", "ndjson", "csv", "parquet")
CSV_TABLES = ("iterations", "tool_calls")
"""The tables of a CSV export by default, as documented."""


def export_tables(
    read: StoreReader,
    scope: Scope,
    *,
    out: Path,
    format: str,  # noqa: A002  it is what the command calls it
    tables: Sequence[str] | None = None,
    label: str = "export",
    on_progress: Callable[[int], None] = lambda rows: None,  # noqa: ARG005
) -> list[Path]:
    """Write tables to the folder `out`; returns the files.

    JSON is one file, `batch-<label>.json` (`export.json` when the scope is not a run); the others are one
    file a table, `<table>-<label>.<format>`. CSV holds `iterations` and `tool_calls` unless `tables`
    names others; the other formats hold every table. `on_progress` is called with the number of rows.
    """
    _check(out, format, tables)
    names = list(dict.fromkeys(tables or (CSV_TABLES if format == "csv" else TABLES)))
    return write_into(out, lambda folder: _write(read, scope, folder, format, names, label, on_progress))


def write_into(out: Path, write: Callable[[Path], Sequence[Path]]) -> list[Path]:
    """Move the files that `write` makes in a temporary folder to `out`, once all are complete."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Inside of `out`, so that renaming never copies.
        with tempfile.TemporaryDirectory(dir=out, prefix=".export-") as folder:
            return [path.replace(out / path.name) for path in write(Path(folder))]
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror or error}") from error


def _write(
    read: StoreReader,
    scope: Scope,
    folder: Path,
    form: str,
    tables: Sequence[str],
    label: str,
    on_progress: Callable[[int], None],
) -> list[Path]:
    name, written = file_name(label), 0

    def counted(table: str) -> Iterator[Row]:
        nonlocal written
        for row in rows(read, table, scope):
            written += 1
            on_progress(written)
            yield row

    if form == "json":
        path = folder / (f"batch-{name}.json" if scope.run_id else "export.json")
        write_json(path, ((table, counted(table)) for table in tables))
        return [path]
    paths = [folder / f"{table}-{name}.{form}" for table in tables]
    for table, path in zip(tables, paths, strict=True):
        table_rows = counted(table)
        if form == "ndjson":
            write_ndjson(path, table_rows)
        elif form == "csv":
            write_csv(path, columns(table), table_rows)
        else:
            write_parquet(path, columns(table), table_rows)
    return paths


def _check(out: Path, form: str, tables: Sequence[str] | None) -> None:
    if form not in FORMATS:
        raise UsageError(_unknown("format", form, FORMATS))
    for table in tables or ():
        if table not in TABLES:
            raise UsageError(_unknown("table", table, TABLES))
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file\nTables are written into a folder: give one with --out.")


def _unknown(kind: str, word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"there is no {kind} {word}\n{hint}There are: {', '.join(known)}."


def file_name(label: str) -> str:
    """The label as part of a file's name: a run may be called anything."""
    return re.sub(r"[^\w.@+-]", "-", label)[:100] or "export"
