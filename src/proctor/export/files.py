"""Write the tables of a scope to files: exactly the rows asked for.

Files appear whole or not at all: they are written under a temporary name and renamed at the end.

Knows nothing of how rows are made or of commands.
"""

import difflib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from proctor.errors import UsageError
from proctor.export.formats import write_csv, write_json, write_ndjson, write_parquet
from proctor.export.rows import TABLES, columns, rows
from proctor.store import Reader, Scope

FORMATS = ("json", "ndjson", "csv", "parquet")
CSV_TABLES = ("iterations", "tool_calls")
"""What CSV holds unless told otherwise, as documented."""


def export_tables(
    read: Reader,
    scope: Scope,
    *,
    out: Path,
    format: str,  # noqa: A002  it is what the command calls it
    tables: Sequence[str] | None = None,
    label: str = "export",
) -> list[Path]:
    """Write tables to the folder `out` and say which files there now are.

    JSON is one file, `batch-<label>.json` (`export.json` when the scope is no run); the others are one
    file a table, `<table>-<label>.<format>`. CSV holds `iterations` and `tool_calls` unless `tables`
    names others; the other formats hold every table.
    """
    _check(out, format, tables)
    wanted = list(dict.fromkeys(tables or (CSV_TABLES if format == "csv" else TABLES)))
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Beside the files to be, so that renaming never copies.
        with tempfile.TemporaryDirectory(dir=out, prefix=".export-") as folder:
            made = _write(read, scope, Path(folder), format, wanted, label)
            return [path.replace(out / path.name) for path in made]
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror or error}") from error


def _write(
    read: Reader, scope: Scope, folder: Path, form: str, tables: Sequence[str], label: str
) -> list[Path]:
    name = file_name(label)
    if form == "json":
        path = folder / (f"batch-{name}.json" if scope.run_id else "export.json")
        write_json(path, ((table, rows(read, table, scope)) for table in tables))
        return [path]
    paths = [folder / f"{table}-{name}.{form}" for table in tables]
    for table, path in zip(tables, paths, strict=True):
        found = rows(read, table, scope)
        if form == "ndjson":
            write_ndjson(path, found)
        elif form == "csv":
            write_csv(path, columns(table), found)
        else:
            write_parquet(path, columns(table), found)
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
