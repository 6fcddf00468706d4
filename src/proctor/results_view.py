"""The results of a run as typed sections: what a job shows first on the page of its runs.

A job computes them (`Job.results_view`); the page has one component for each kind and knows no job. Charts
are SVG with numbered marks: hovering one shows its figures, a click opens the items they are computed from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

ItemSelection = Mapping[str, Sequence[str]]
"""Items of the run by the parameters of its item list: `{"factor": ["model=gpt-5"], "status": ["fail"]}`.
Empty: all of them."""
Tone = Literal["plain", "good", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFigure:
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
class ResultSentence:
    """A conclusion in words."""

    text: str
    note: str = ""
    """What it assumes, or what limits it."""
    tone: Tone = "plain"
    """`good`: decided; `open`: undecided."""
    offers_stop: bool = False
    """Whether the run can be stopped here."""
    kind: Literal["sentence"] = "sentence"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCell:
    """One cell of a table."""

    text: str
    figure: ResultFigure | None = None
    """Drawn with its interval on the scale of the column."""
    session: str = ""
    """ID of the session that it links to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumn:
    """A column of a table."""

    title: str
    is_numeric: bool = False
    limits: tuple[float, float] | None = None
    """Ends of the scale on which figures are drawn; None: as text only."""
    is_optional: bool = False
    """Whether the column is shown only on demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """A leaderboard, or a list of scores."""

    title: str
    columns: Sequence[ResultColumn]
    rows: Sequence[Sequence[ResultCell]]
    caption: str = ""
    omitted: int = 0
    """Rows that are not listed."""
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultChart:
    """A chart: scatter, heat map, small multiples, trajectories, distribution, or effects."""

    title: str
    svg: str
    """Its marks have the attribute `data-mark`: an index in `marks`."""
    marks: Sequence[ResultFigure] = ()
    caption: str = ""
    kind: Literal["chart"] = "chart"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """The items of one task and one column."""

    status: str
    """The status of the item; of several, the worst."""
    text: str
    """Such as `2/3`, or the size of the change."""
    note: str = ""
    item_ids: Sequence[str] = ()
    """The worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMatrix:
    """Tasks × agents or models."""

    title: str
    row_title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[MatrixCell | None]]]
    caption: str = ""
    omitted: int = 0
    """Rows that are not listed."""
    kind: Literal["matrix"] = "matrix"


Section = ResultSentence | ResultTable | ResultChart | ResultMatrix


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsView:
    """The results of a run, in the order in which they are read."""

    sections: Sequence[Section] = field(default=())
    remarks: Sequence[str] = ()
    """What limits the figures."""


class FigureList:
    """The figures behind the marks of one chart."""

    def __init__(self) -> None:
        self.figures: list[ResultFigure] = []

    def add(self, one: ResultFigure) -> int:
        """Add a figure; its number, for the mark."""
        self.figures.append(one)
        return len(self.figures) - 1
