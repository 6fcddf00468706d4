"""How long items took.

The database orders the durations and hands over at most a thousand of them with their ranks: enough
for exact figures of a small batch, and for the plot and figures of a large one to a thousandth.

Knows nothing of outcomes or of how results are shown.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.analyse.intervals import Estimate, mean, median_ranks, sample_std
from proctor.analyse.selection import Row, Selection

KEPT_RANKS = 1000
WANTED_BINS = 12
# A tail longer than this many times the 99th percentile would squeeze everything else into one bar.
LONG_TAIL = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One bar of a histogram."""

    low: float
    high: float
    """Not part of the bar, but for the last one."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """From the start of an item to its end, in seconds, over the items that ended."""

    items: int
    mean: Estimate
    std: float | None
    median: Estimate
    p90: float | None
    longest: float | None
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Some of `n` ordered values, each with its rank, counted from 1. The last is always there."""

    n: int
    ranks: Sequence[int]
    values: Sequence[float]

    def at(self, rank: int) -> float:
        return self.values[bisect.bisect_left(self.ranks, min(max(rank, 1), self.n))]

    def below(self, value: float) -> int:
        """How many of the `n` are smaller."""
        index = bisect.bisect_left(self.values, value)
        return self.ranks[index - 1] if index else 0


def durations(selection: Selection) -> Durations:
    """How long the finished items took, from first to last."""
    rows = _ordered(selection)
    if not rows:
        return Durations(
            items=0,
            mean=Estimate(value=None),
            std=None,
            median=Estimate(value=None),
            p90=None,
            longest=None,
            bins=(),
        )
    n, total, squares = rows[0]["n"], rows[0]["total"], rows[0]["squares"]
    ranked = _Ranked(n, [row["rank"] for row in rows], [max(0.0, row["v"]) for row in rows])
    return Durations(
        items=n,
        mean=mean(n, total, squares),
        std=sample_std(n, total, squares),
        median=_median(ranked),
        p90=ranked.at(math.ceil(0.9 * n)),
        longest=ranked.values[-1],
        bins=_bins(ranked),
    )


def _ordered(selection: Selection) -> list[Row]:
    """Some durations with their ranks, shortest first, each with the sums over all of them."""
    seconds = selection.seconds('i."startedAt"', 'i."finishedAt"')
    # Materialized: the time between two texts costs more than all the rest, and is needed three times.
    return selection.read.query(
        f'WITH "d" AS MATERIALIZED (SELECT {seconds} AS "v" FROM "batch_items" i WHERE {selection.items} '
        'AND i."startedAt" IS NOT NULL AND i."finishedAt" IS NOT NULL), '
        '"sums" AS (SELECT COUNT(*) AS "n", SUM("v") AS "total", SUM("v" * "v") AS "squares" FROM "d"), '
        '"ordered" AS (SELECT "v", ROW_NUMBER() OVER (ORDER BY "v") AS "rank" FROM "d") '
        'SELECT "v", "rank", "n", "total", "squares" FROM "ordered", "sums" WHERE "rank" = 1 '
        f'OR "rank" = "n" OR "rank" % (("n" + {KEPT_RANKS - 1}) / {KEPT_RANKS}) = 0 ORDER BY "rank"',
        selection.item_parameters,
    )


def _median(ranked: _Ranked) -> Estimate:
    n = ranked.n
    middle = (ranked.at((n + 1) // 2) + ranked.at(n // 2 + 1)) / 2
    ranks = median_ranks(n)
    if ranks is None:
        return Estimate(value=middle, n=n)
    return Estimate(value=middle, low=ranked.at(ranks[0]), high=ranked.at(ranks[1]), n=n)


def _bins(ranked: _Ranked) -> tuple[Bin, ...]:
    longest, usual = ranked.values[-1], ranked.at(math.ceil(0.99 * ranked.n))
    top = usual if longest > LONG_TAIL * usual > 0 else longest
    width = nice_step(top / WANTED_BINS) if top > 0 else 1.0
    edges = [index * width for index in range(int(top / width) + 2)]
    counts = [ranked.below(edge) for edge in edges[1:]]
    bins = [
        Bin(low=low, high=high, count=until - before)
        for low, high, before, until in zip(edges, edges[1:], [0, *counts], counts, strict=False)
    ]
    if counts[-1] < ranked.n:
        bins.append(Bin(low=edges[-1], high=longest, count=ranked.n - counts[-1]))
    return tuple(bins)


def nice_step(rough: float) -> float:
    """The next 1, 2 or 5 times a power of ten: steps that people count in."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough * (1 - 1e-9))
