"""`proctor export --input-dir`: a folder of dialogues as a CSV file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.analyse.crossing import crossing, measures_of
from proctor.cli import ending as codes
from proctor.cli.tables import print_table
from proctor.cli.words import count, print_json, printable, say
from proctor.errors import UsageError
from proctor.export.dialogue_tables import (
    Skipped,
    each_session,
    session_row,
    write_session_csv,
    write_turn_csv,
)
from proctor.figures import figure

LEVELS = ("session", "turn")
NAMED = 10
"""Files that could not be read and are named; the others are only counted."""


def export_dialogues(folder: Path, output: Path | None, *, level: str, stats: bool, as_json: bool) -> int:
    """Write the CSV file, say so, and print statistics if they are wanted."""
    if output is None:
        raise UsageError("say where the table goes\nGive --output results.csv.")
    if level not in LEVELS:
        raise UsageError(f"there is no level `{level}`\nThere are: {', '.join(LEVELS)}.")
    skipped = Skipped()
    if level == "turn":
        written, rows = write_turn_csv(folder, output, skipped), None
    else:
        rows = write_session_csv(folder, output, skipped)
        written = len(rows)
    figures: list[dict[str, Any]] = []
    if stats:
        if rows is None:
            rows = [session_row(session) for session in each_session(folder, skipped=skipped)]
        figures = _statistics(rows)
    if as_json:
        document = {"files": [str(output)], "rows": written, "skipped": skipped.files}
        print_json({**document, **({"statistics": figures} if stats else {})})
    elif stats:
        heads = ("COLUMN", "N", "MEAN", "STD", "MIN", "MAX", "95 % INTERVAL")
        print_table(heads, [_cells(each) for each in figures])
    tell_skipped(skipped)
    say(f"wrote {count(written, 'row')} to {printable(output)}")
    return codes.SUCCEEDED


def tell_skipped(skipped: Skipped) -> None:
    """Say which files could not be read; nothing, when all could."""
    for path, why in list(skipped.files.items())[:NAMED]:
        say(f"skipped {printable(path)}: {printable(why, width=200)}")
    if skipped.files:
        say(f"{count(len(skipped.files), 'file')} in the folder could not be read and left out.")


def _statistics(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name in measures_of(rows):
        values = [row[name] for row in rows if row.get(name) is not None]
        whole = crossing([{**row, "client": "", "therapist": ""} for row in rows], name)
        found.append(
            {
                "column": name,
                "n": whole.overall.n,
                "mean": whole.overall.value,
                "std": whole.cells[0].std,
                "min": min(values),
                "max": max(values),
                "low": whole.overall.low,
                "high": whole.overall.high,
            }
        )
    return found


def _cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    around = "–" if each["low"] is None else f"{figure(each['low'])} to {figure(each['high'])}"
    shown = (figure(each[name]) for name in ("mean", "std", "min", "max"))
    return (each["column"], str(each["n"]), *shown, around)
