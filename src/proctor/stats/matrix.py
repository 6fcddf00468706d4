"""Tasks × levels of a factor: how each level did on each task, and where levels disagree."""

import math
from collections.abc import Sequence

import numpy as np

from proctor.errors import NotFound
from proctor.item import SUCCESS
from proctor.metric import SCORE
from proctor.stats.outcomes import LevelCell, MatrixRow
from proctor.stats.results import Floats, Ints, Results

MOST_LEVELS = 24
"""Columns; a factor with more is compared by a filter."""
MOST_CELL_ITEMS = 50
PREFERRED = ("model", "agent", "variation", "therapist", "client")
"""Factors that are columns by default."""


def factor_of_columns(results: Results, by: str) -> str:
    """The factor whose levels are the columns: the one that is named, or one with several levels."""
    if by:
        results.column(by)
        return by
    several = {name: len(column.labels) for name, column in results.factors.items() if len(column.labels) > 1}
    known = [name for name in PREFERRED if name in several] or sorted(several, key=lambda name: several[name])
    return known[0] if known else next(iter(results.factors), "")


class Matrix:
    """The finished items of a run by task and level. Pages of it are made on demand."""

    def __init__(self, results: Results, by: str) -> None:
        self._results = results
        self.by = factor_of_columns(results, by)
        column = results.column(self.by) if self.by else None
        self.levels: tuple[str, ...] = column.labels[:MOST_LEVELS] if column else ()
        self.has_more_levels = column is not None and len(column.labels) > MOST_LEVELS
        self.scores = tuple(
            sorted(name.removeprefix(SCORE) for name in results.metrics if name.startswith(SCORE))
        )
        codes = column.codes if column else np.zeros(len(results), dtype=np.int64)
        rows = np.flatnonzero((codes >= 0) & (codes < MOST_LEVELS))
        tasks, _ = results.tasks(column) if column else results.tasks()
        self._labels = tasks.labels
        # Sorted by task and level; within a cell in plan order.
        order = np.lexsort((codes[rows], tasks.codes[rows]))
        self._rows, self._codes = rows[order], codes[rows][order]
        self._tasks, self._first = np.unique(tasks.codes[self._rows], return_index=True)
        self._end = np.append(self._first[1:], len(self._rows))

    def __len__(self) -> int:
        return len(self._tasks)

    def tasks(self, *, search: str = "", metric: str = "success", disagree: bool = False) -> Ints:
        """Indexes of the tasks whose names contain a text and, with `disagree`, whose levels differ."""
        chosen = np.arange(len(self), dtype=np.int64)
        if search:
            text = search.lower()
            matches = [text in self._labels[code].lower() for code in self._tasks]
            chosen = chosen[np.asarray(matches, dtype=bool)]
        if disagree:
            spread = self._spread(self._values(metric))
            chosen = chosen[spread[chosen] > 0]
            # The largest differences first; among equal ones in plan order.
            chosen = chosen[np.argsort(-spread[chosen], kind="stable")]
        return chosen

    def rows(self, tasks: Sequence[int] | Ints, score: str = "") -> list[MatrixRow]:
        """The rows of tasks, by their indexes."""
        values = self._values(SCORE + score) if score else np.full(len(self._results), math.nan)
        return [self._row(int(task), values) for task in tasks]

    def _values(self, metric: str) -> Floats:
        values = self._results.metrics.get(metric)
        if values is None:
            raise NotFound(
                f"the items have no {metric}\nThere are: {', '.join(self._results.metrics) or 'none'}."
            )
        return values

    def _spread(self, values: Floats) -> Floats:
        """Of each task, the difference between the highest and the lowest mean of a level; NaN counts not."""
        known = values[self._rows]
        present = ~np.isnan(known)
        task_of = np.repeat(np.arange(len(self)), self._end - self._first)
        cell = task_of * MOST_LEVELS + self._codes
        size = len(self) * MOST_LEVELS
        sums = np.bincount(cell[present], weights=known[present], minlength=size)
        counts = np.bincount(cell[present], minlength=size)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = (sums / counts).reshape(len(self), MOST_LEVELS)
        highest = np.where(np.isnan(means), -np.inf, means).max(axis=1)
        lowest = np.where(np.isnan(means), np.inf, means).min(axis=1)
        return np.asarray(np.where(highest >= lowest, highest - lowest, 0.0), dtype=np.float64)

    def _row(self, task: int, score: Floats) -> MatrixRow:
        span = slice(self._first[task], self._end[task])
        rows, codes = self._rows[span], self._codes[span]
        cells = [self._cell(rows[codes == level], score) for level in range(len(self.levels))]
        return MatrixRow(task=self._labels[self._tasks[task]], cells=tuple(cells))

    def _cell(self, rows: Ints, score: Floats) -> LevelCell | None:
        if not len(rows):
            return None
        verdicts = self._results.metrics[SUCCESS][rows]
        decided = verdicts[~np.isnan(verdicts)]
        return LevelCell(
            item_id=self._results.item_ids[rows[0]],
            item_ids=tuple(self._results.item_ids[row] for row in rows[:MOST_CELL_ITEMS]),
            items=len(rows),
            decided=len(decided),
            passed=int(decided.sum()),
            score=_mean(score[rows]),
            cost_usd=_mean(self._results.metrics["cost"][rows]),
        )


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
