"""What a result has to say, in reading order: sentences, tables, charts, matrices, and notes.

Jobs and `api` make documents from figures; `report` renders them as text, Markdown and HTML, and the page
from JSON. Renderers know no job, and jobs no renderer. Charts are SVG with numbered marks: on a page,
hovering one shows its figures, and a click opens the items they are computed from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from proctor.json_values import CamelJson

ItemSelection = Mapping[str, Sequence[str]]
"""Items of the run by the parameters of its item list: `{"factor": ["model=gpt-5"], "status": ["fail"]}`.
Empty: all of them."""
Tone = Literal["plain", "good", "open", "bad"]
_STATUS_TONES: Mapping[str, Tone] = {
    **dict.fromkeys(("success", "completed"), "good"),
    **dict.fromkeys(("timeout", "halted"), "open"),
    **dict.fromkeys(("fail", "error", "aborted", "interrupted"), "bad"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(CamelJson):
    """One figure with its interval, and the items that it is computed from."""

    label: str
    """What it is a figure of: `gpt-5`, `client = a, therapist = b`."""
    text: str
    """The value as people read it; empty: none."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    """Tasks, runs or results behind it; None: does not apply."""
    unit: str = "task"
    """What `n` counts."""
    note: str = ""
    items: ItemSelection | None = None
    """None: no list of items shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence(CamelJson):
    """A conclusion in words."""

    text: str
    note: str = ""
    """What it assumes, or what limits it."""
    tone: Tone = "plain"
    """`good`: decided; `open`: undecided; `bad`: worse than required."""
    offers_stop: bool = False
    """Whether the run can be stopped here."""
    kind: Literal["sentence"] = "sentence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(CamelJson):
    """One cell of a table."""

    text: str
    note: str = ""
    """What follows the text on a page and in Markdown, such as the standard error of a mean."""
    tone: Tone = "plain"
    figure: Figure | None = None
    """Drawn with its interval on the scale of the column."""
    session: str = ""
    """ID of the session that it links to."""

    @classmethod
    def of_status(cls, status: str) -> "Cell":
        """The status of an item or of a run."""
        return cls(text=status, tone=_STATUS_TONES.get(status, "plain"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(CamelJson):
    """A column of a table."""

    title: str
    is_numeric: bool = False
    limits: tuple[float, float] | None = None
    """Ends of the scale on which figures are drawn; None: as text only."""
    is_optional: bool = False
    """Whether the column is shown only on demand."""
    is_prose: bool = False
    """Whether its cells are sentences, which are cut only where there is no room."""
    narrow: str | None = None
    """Its title where there is no room for all columns; empty: it is left out, the later one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(CamelJson):
    """A leaderboard, or a list of scores."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    omitted: int = 0
    """Rows that are not listed."""
    most_in_terminal: int = 0
    """Rows that a terminal shows; 0: all."""
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart(CamelJson):
    """A chart: scatter, heat map, small multiples, trajectories, distribution, or effects."""

    title: str
    svg: str
    """Its marks have the attribute `data-mark`: an index in `marks`."""
    marks: Sequence[Figure] = ()
    caption: str = ""
    file: str = ""
    """Name of its files beside a page, without suffix; empty: there are none."""
    kind: Literal["chart"] = "chart"

    @property
    def text(self) -> str:
        """Title and caption, as below a figure in print."""
        return f"{self.title}. {self.caption}" if self.caption else self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionedChart(CamelJson):
    """A chart by itself, outside of a document."""

    caption: str
    svg: str
    marks: Sequence[Figure] = ()
    """Figures of its marks: the attribute `data-mark` is an index here."""


def numeric(*titles: str) -> list[Column]:
    """Columns of figures."""
    return [Column(title=title, is_numeric=True) for title in titles]


def prose(title: str) -> Column:
    """A column of sentences."""
    return Column(title=title, is_prose=True)


def table(
    columns: Sequence[Column | str], rows: Iterable[Sequence[object]], title: str = "", caption: str = ""
) -> Table:
    """A table of texts and cells; a column may be given by its title alone."""
    return Table(
        title=title,
        columns=[Column(title=column) if isinstance(column, str) else column for column in columns],
        rows=[[value if isinstance(value, Cell) else Cell(text=str(value)) for value in row] for row in rows],
        caption=caption,
    )


def table_of(
    rows: Sequence[Mapping[str, object]],
    *,
    title: str = "",
    texts: Collection[str] = (),
    prose: Collection[str] = (),
    caption: str = "",
    omitted: int = 0,
) -> Table:
    """A table of rows by column title. Columns that are neither `texts` nor `prose` have numbers."""
    columns = [
        Column(title=name, is_numeric=name not in texts and name not in prose, is_prose=name in prose)
        for name in (rows[0] if rows else ())
    ]
    return replace(table(columns, [list(row.values()) for row in rows], title, caption), omitted=omitted)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell(CamelJson):
    """The items of one task and one column."""

    status: str
    """The status of the item; of several, the worst."""
    text: str
    """Such as `2/3`, or the size of the change."""
    note: str = ""
    item_ids: Sequence[str] = ()
    """The worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix(CamelJson):
    """Tasks × agents or models."""

    title: str
    row_title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[MatrixCell | None]]]
    caption: str = ""
    omitted: int = 0
    """Rows that are not listed."""
    kind: Literal["matrix"] = "matrix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Details(CamelJson):
    """Sections below a heading of their own, which a terminal leaves out."""

    title: str
    sections: Sequence["Section"]
    is_folded: bool = False
    """Whether an HTML page shows it on demand only; paper shows it."""
    kind: Literal["details"] = "details"


Section = Sentence | Table | Chart | Matrix | Details


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of a summary: its value, and what it is."""

    value: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A result, in the order in which it is read."""

    title: str = ""
    subtitle: str = ""
    warnings: Sequence[str] = ()
    """What keeps readers from drawing conclusions, such as mock data."""
    verdict: Sentence | None = None
    """The one conclusion."""
    facts: Sequence[Fact] = ()
    """Its size and cost."""
    sections: Sequence[Section] = field(default=())
    remarks: Sequence[str] = ()
    """What limits the figures."""
    method: str = ""
    """How the figures are computed."""


class FigureList:
    """The figures behind the marks of one chart."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def add(self, figure: Figure) -> int:
        """Add a figure; its number, for the mark."""
        self.figures.append(figure)
        return len(self.figures) - 1
