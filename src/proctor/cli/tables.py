"""Tables for people, on standard output: aligned columns, nothing a terminal would obey."""

from collections.abc import Iterable, Sequence

from proctor.cli.words import printable

WIDEST = 60


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their heads, each column as wide as its longest cell."""
    cells = [[printable(cell, width=WIDEST) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for row in [list(heads), *cells]:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
