"""`proctor export --input-dir`: a folder of dialogues as a CSV file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.analyse.crossing import crossing, measures_of
from proctor.cli import ending as codes
from proctor.cli.tables import print_table
from proctor.cli.words import count, print_json, printable, say
from proctor.errors import UsageError
from proctor.export.dialogue_tables import each_session, session_row, write_session_csv, write_turn_csv

LEVELS = ("session", "turn")


def export_dialogues(folder: Path, output: Path | None, *, level: str, stats: bool, as_json: bool) -> int:
    """Write the CSV file, say so, and print statistics if they are wanted."""
    if output is None:
        raise UsageError("say where the table goes\nGive --output results.csv.")
    if level not in LEVELS:
        raise UsageError(f"there is no level `{level}`\nThere are: {', '.join(LEVELS)}.")
    if level == "turn":
        written, rows = write_turn_csv(folder, output), None
    else:
        rows = write_session_csv(folder, output)
        written = len(rows)
    figures: list[dict[str, Any]] = []
    if stats:
        rows = rows if rows is not None else [session_row(session) for session in each_session(folder)]
        figures = _statistics(rows)
    if as_json:
        print_json({"files": [str(output)], "rows": written, **({"statistics": figures} if stats else {})})
    elif stats:
        heads = ("COLUMN", "N", "MEAN", "STD", "MIN", "MAX", "95 % INTERVAL")
        print_table(heads, [_cells(each) for each in figures])
    say(f"wrote {count(written, 'row')} to {printable(output)}")
    return codes.SUCCEEDED


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
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    around = "–" if each["low"] is None else f"{number(each['low'])} to {number(each['high'])}"
    shown = (number(each[name]) for name in ("mean", "std", "min", "max"))
    return (each["column"], str(each["n"]), *shown, around)
