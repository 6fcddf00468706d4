"""A measured figure, and a table of them.

Knows nothing of how anything is measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured."""

    name: str
    value: float
    unit: str
    beside: float | None = None
    """The same of the yardstick, in the same run. None: there is none."""
    promise: float | None = None
    """What the value should at least be, or at most where `lower_is_better`. None: nothing is promised."""
    lower_is_better: bool = False

    @property
    def is_kept(self) -> bool | None:
        """Whether the promise holds; None when there is none."""
        if self.promise is None:
            return None
        return self.value <= self.promise if self.lower_is_better else self.value >= self.promise

    def document(self) -> dict[str, object]:
        """As plain data."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "beside": self.beside,
            "promise": self.promise,
            "kept": self.is_kept,
        }


HEADS = ("what", "here", "bare", "promise", "")


def table(figures: Iterable[Figure]) -> str:
    """All figures in one Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in (HEADS, ("---", "---:", "---:", "---:", "---"))]
    return "\n".join([*lines, *map(row_of, figures)])


def row_of(figure: Figure) -> str:
    """One figure as a row of the table."""
    kept = {None: "", True: "kept", False: "**missed**"}[figure.is_kept]
    bound = (
        ""
        if figure.promise is None
        else ("≤ " if figure.lower_is_better else "≥ ") + _spoken(figure.promise, figure.unit)
    )
    beside = "" if figure.beside is None else _spoken(figure.beside, figure.unit)
    return f"| {figure.name} | {_spoken(figure.value, figure.unit)} | {beside} | {bound} | {kept} |"


def _spoken(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number} {unit}" if unit and not unit.startswith("/") else f"{number}{unit}"
