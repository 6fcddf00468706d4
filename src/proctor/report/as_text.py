"""Documents and tables as plain text, in the width of a terminal.

Charts, details, and optional columns are left out; Markdown, HTML and JSON have them.
"""

from collections.abc import Iterable, Iterator, Sequence

from proctor.document import Details, Document, Matrix, Section, Sentence, Table
from proctor.formatting import printable

WIDEST = 60
NARROWEST = 8
"""Characters to which a column of a table is cut at most."""
WIDE = 120
"""Columns of a terminal from which on a table has all its columns."""


def body(document: Document, width: int | None = None, *, has_details: bool = False) -> list[str]:
    """The verdict, sentences and tables of a document as lines. `width` None: as wide as it needs.

    With `has_details` also what a page folds.
    """
    facts = ", ".join(f"{fact.value} {fact.text}" for fact in document.facts)
    lines = [printable(text) for text in (document.verdict.text if document.verdict else "", facts) if text]
    return [*lines, *_sections(document.sections, width, has_details)]


def _sections(sections: Sequence[Section], width: int | None, has_details: bool) -> list[str]:
    lines: list[str] = []
    for section in sections:
        if isinstance(section, Sentence):
            lines.append(printable(section.text))
        elif isinstance(section, Details) and has_details:
            lines += ["", printable(section.title), *_sections(section.sections, width, has_details)]
        elif isinstance(section, Table) and section.rows:
            lines += ["", printable(section.title)] if section.title else []
            lines += _table(section, width, is_whole=has_details)
        elif isinstance(section, Matrix):
            heads = (section.row_title, *section.columns)
            rows = [
                (printable(name, width=WIDEST), *(cell.text if cell else "" for cell in cells))
                for name, cells in section.rows
            ]
            lines += ["", printable(section.title), *table_lines(heads, rows, width)]
    return lines


def notes(document: Document) -> list[str]:
    """What is said around a document: its subtitle, warnings, and remarks."""
    around = [
        document.subtitle,
        *(f"note: {text}" for text in (*document.warnings, *document.remarks) if text),
    ]
    return [printable(text) for text in around if text]


def _table(table: Table, width: int | None, *, is_whole: bool) -> Iterator[str]:
    is_narrow = (width or WIDE) < WIDE
    columns = [number for number, column in enumerate(table.columns) if not column.is_optional]
    titles = {number: table.columns[number].title.upper() for number in columns}
    narrow = {number: table.columns[number].narrow for number in columns}
    if is_narrow:
        titles |= {number: title.upper() for number, title in narrow.items() if title}
    drop = [titles[number] for number in reversed(columns) if narrow[number] == ""] if is_narrow else []
    drop += [titles[number] for number in columns if narrow[number]] if is_narrow else []
    shown = table.rows if is_whole else table.rows[: table.most_in_terminal or None]
    rows = [
        [
            row[number].text if table.columns[number].is_prose else printable(row[number].text, width=WIDEST)
            for number in columns
        ]
        for row in shown
    ]
    yield from table_lines(list(titles.values()), rows, width, drop=drop)
    if hidden := len(table.rows) - len(shown) + table.omitted:
        yield f"… and {hidden:,} more"


def table_lines(
    heads: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None, drop: Sequence[str] = ()
) -> list[str]:
    """Rows with their column headings, as lines."""
    return ["  ".join(line).rstrip() for line in padded_cells(heads, rows, width, drop)]


def padded_cells(
    heads: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None, drop: Sequence[str] = ()
) -> Iterator[list[str]]:
    """The cells of each line of a table, each column as wide as its longest cell.

    No line is wider than `width`: columns without a value and then those of `drop` are left out, in this
    order, and then the widest columns are cut.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    table = {head: [row[column] for row in cells] for column, head in enumerate(heads)}
    if width is not None:
        table = fitted(table, width, drop)
    widths = [max(map(len, (head, *column))) for head, column in table.items()]
    for line in zip(*((head, *column) for head, column in table.items()), strict=True):
        padded = [f"{cell:<{wide}}" for cell, wide in zip(line, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        yield padded


def fitted(table: dict[str, list[str]], width: int, drop: Sequence[str]) -> dict[str, list[str]]:
    """The columns of a table within a width."""
    table = {head: column for head, column in table.items() if any(column)} or table
    widths = {head: max(map(len, (head, *column))) for head, column in table.items()}

    def missing() -> int:
        return sum(widths.values()) + 2 * (len(widths) - 1) - width

    for head in drop:
        if missing() > 0:
            widths.pop(head, None)
    while missing() > 0 and max(widths.values()) > NARROWEST:
        widest = max(widths, key=lambda head: widths[head])
        widths[widest] -= 1
    columns = dict[str, list[str]]()
    for head, wide in widths.items():
        # Two headings that begin alike stay two columns.
        title = head[:wide] if head[:wide] not in columns else f"{head[: wide - 2]}…{head[-1]}"
        columns[title] = [cell if len(cell) <= wide else f"{cell[: wide - 1]}…" for cell in table[head]]
    return columns
