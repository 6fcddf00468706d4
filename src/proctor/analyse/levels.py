"""What the levels of one factor came to, beside each other: outcomes, money and time.

One pass over the items of a batch. Rates leave errors out, as everywhere; means are over the items that
have a known cost, or a beginning and an end.

Knows nothing of how results are shown.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.analyse.intervals import Estimate, mean
from proctor.analyse.outcomes import MOST_LEVELS, Factor, Level, Tally, best_first, tally_of
from proctor.analyse.selection import Row, Selection
from proctor.store.pages import level_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelFigures:
    """The items of one level."""

    name: str
    """Empty: the items that do not have the factor at all."""
    tally: Tally
    cost_usd: Estimate
    """Of an item."""
    seconds: Estimate
    """From the start of an item to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByFactor:
    """The levels of one factor, best success rate first."""

    name: str
    levels: tuple[LevelFigures, ...]
    """Empty when there are too many to compare, or no items."""
    is_too_many: bool = False

    def as_factor(self) -> Factor:
        """The same, as far as outcomes go."""
        levels = tuple(Level(name=level.name, tally=level.tally) for level in self.levels)
        return Factor(name=self.name, levels=levels, is_too_many=self.is_too_many)


def by_factor(selection: Selection, name: str) -> ByFactor:
    """Put the levels of a factor beside each other."""
    rows = _grouped(selection, name)
    by_level: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_level[row["level"] or ""].append(row)
    if len(by_level) > MOST_LEVELS:
        return ByFactor(name=name, levels=(), is_too_many=True)
    levels = [_figures(level, mine) for level, mine in by_level.items()]
    levels.sort(key=lambda level: best_first(level.name, level.tally))
    return ByFactor(name=name, levels=tuple(levels))


def _grouped(selection: Selection, name: str) -> list[Row]:
    level, named = level_of(name, is_postgres=selection.is_postgres, items="i")
    seconds = selection.seconds('i."startedAt"', 'i."finishedAt"')
    inner = (
        f'SELECT CAST({level} AS TEXT) AS "level", i."status" AS "status", i."tokensTotal" AS "tokens", '
        f'i."costUsd" AS "cost", {seconds} AS "seconds" FROM "batch_items" i WHERE {selection.items}'
    )
    # Materialized: the time between two texts costs more than all the rest, and is needed three times.
    return selection.read.query(
        f'WITH "each" AS MATERIALIZED ({inner}) '
        'SELECT "level", "status", COUNT(*) AS "items", SUM("tokens") AS "tokens", SUM("cost") AS "cost", '
        'SUM("cost" * "cost") AS "costSquares", COUNT("cost") AS "priced", SUM("seconds") AS "seconds", '
        'SUM("seconds" * "seconds") AS "secondsSquares", COUNT("seconds") AS "timed" '
        'FROM "each" GROUP BY "level", "status"',
        (*named, *selection.item_parameters),
    )


def _figures(name: str, rows: Sequence[Row]) -> LevelFigures:
    return LevelFigures(
        name=name,
        tally=tally_of(rows),
        cost_usd=mean(int(_sum(rows, "priced")), _sum(rows, "cost"), _sum(rows, "costSquares")),
        seconds=mean(int(_sum(rows, "timed")), _sum(rows, "seconds"), _sum(rows, "secondsSquares")),
    )


def _sum(rows: Sequence[Row], name: str) -> float:
    return sum(row[name] or 0 for row in rows)
