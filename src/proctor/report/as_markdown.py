"""Documents as Markdown. Charts are images where they have files; the HTML page has all of them."""

import re
from collections.abc import Iterable, Iterator, Sequence

from proctor.document import Chart, Details, Document, Matrix, Section, Sentence, Table
from proctor.formatting import in_markdown, plural

LONGEST_CELL = 400
PLOTS = "plots"
"""The folder beside a report with its plots."""


def render(document: Document) -> str:
    """A document as Markdown, with at most one empty line in a row."""
    parts = [f"# {in_markdown(document.title, 300)}", in_markdown(document.subtitle, 400)]
    parts += [f"> **Note:** {in_markdown(warning, 600)}" for warning in document.warnings]
    if document.verdict:
        parts += [f"**{in_markdown(document.verdict.text, 600)}**", in_markdown(document.verdict.note, 2000)]
    parts.append(", ".join(f"{in_markdown(f'{fact.value} {fact.text}', 300)}" for fact in document.facts))
    parts += _sections(document.sections, level=2)
    parts.append("\n".join(f"- {in_markdown(remark, 600)}" for remark in document.remarks))
    parts += ["## Methods", in_markdown(document.method, 8000)] if document.method else []
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(parts)).strip() + "\n"


def _sections(sections: Sequence[Section], level: int) -> Iterator[str]:
    for section in sections:
        if isinstance(section, Sentence):
            yield " ".join(in_markdown(text, 2000) for text in (section.text, section.note) if text)
            continue
        if isinstance(section, Chart):
            caption = in_markdown(section.text, 2000)
            yield f"![{caption}]({PLOTS}/{section.file}.svg)\n\n{caption}" if section.file else ""
        elif isinstance(section, Details):
            yield _heading(section.title, level)
            yield from _sections(section.sections, level + 1)
        elif isinstance(section, Table) and section.rows:
            yield _heading(section.title, level)
            rows = [[f"{cell.text} {cell.note}".rstrip() for cell in row] for row in section.rows]
            yield _table([(each.title, each.is_numeric) for each in section.columns], rows)
            yield _below(section.caption, section.omitted)
        elif isinstance(section, Matrix):
            yield _heading(section.title, level)
            heads = [(section.row_title, False), *((each, False) for each in section.columns)]
            cells = [[name, *(cell.text if cell else "" for cell in row)] for name, row in section.rows]
            yield _table(heads, cells)
            yield _below(section.caption, section.omitted)


def _heading(title: str, level: int) -> str:
    return f"{'#' * level} {in_markdown(title, 200)}" if title else ""


def _table(heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        [in_markdown(title, 60, is_cell=True) for title, _ in heads],
        ["---:" if is_numeric else "---" for _, is_numeric in heads],
    ]
    lines += [[in_markdown(cell, LONGEST_CELL, is_cell=True) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _below(caption: str, omitted: int) -> str:
    more = f"{plural(omitted, 'row')} not listed." if omitted else ""
    return " ".join(part for part in (in_markdown(caption, 1000), more) if part)
