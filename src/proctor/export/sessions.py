"""Sessions in the formats of other tools, each format in its own file.

A module named in `SESSION_FORMATS` has one function:

    def write(sessions: Iterable[ImportedSession], out: Path, label: str) -> list[Path]

It is given sessions one by one, keeps none, and says which files there now are.

Knows nothing of the formats.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from proctor.errors import UsageError
from proctor.export.files import file_name
from proctor.imported import ImportedSession
from proctor.store import Reader, Scope
from proctor.store.reading import session_where

SESSION_FORMATS: Mapping[str, str] = {
    "otlp": "proctor.export.otlp",
    "atif": "proctor.export.atif",
    "inspect": "proctor.export.inspect",
}
"""What can be written, and the module that does."""


class Format(Protocol):
    """A module that writes sessions."""

    def write(self, sessions: Iterable[ImportedSession], out: Path, label: str) -> list[Path]:
        """Write sessions to the folder `out`; the files that were made."""


def export_sessions(read: Reader, scope: Scope, *, out: Path, form: str, label: str) -> list[Path]:
    """Write the sessions of a scope to the folder `out` and say which files there now are."""
    writer = cast(Format, import_module(SESSION_FORMATS[form]))
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file\nSessions are written into a folder: give one with --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Beside the files to be, so that renaming never copies.
        with tempfile.TemporaryDirectory(dir=out, prefix=".export-") as folder:
            made = writer.write(_recorded(read, scope), Path(folder), file_name(label))
            return [path.replace(out / path.name) for path in made]
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror or error}") from error


def _recorded(read: Reader, scope: Scope) -> Iterator[ImportedSession]:
    where, parameters = session_where(scope)
    rows = read.query(
        f'SELECT s."id" FROM "sessions" s WHERE {where} ORDER BY s."startedAt", s."id"', parameters
    )
    return (read.recorded(row["id"]) for row in rows)
