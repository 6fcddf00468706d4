"""Lists of the items of a run: filtered, sorted and counted in the database, paged by position."""

from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypedDict

from proctor.errors import NotFound
from proctor.item import STATUSES
from proctor.store.database import places
from proctor.store.items import CUT, PLAIN, level_of
from proctor.store.reader import ItemFilter, StoreReader, item_where, uses_postgres

SECONDS = "seconds"
"""Orders by duration."""
FACTOR, SCORE = "factor:", "score:"
"""Prefixes of an order by the level of a factor, or by the score of an evaluator."""
ORDERS = (*(name for name in (*PLAIN, *CUT) if name != "factors"), SECONDS)
MOST_LEVELS = 500
SCORE_NAME = "sc.\"evaluator\" || CASE WHEN sc.\"dimension\" = '' THEN '' ELSE '/' || sc.\"dimension\" END"
"""Name of a score `sc`: the evaluator, with the dimension if it has several."""
_SESSION = '"batch_items"."sessionId"'
# As in statistics: the session's own scores count; without any, those of the last evaluation of it.
_SCORE = (
    f'COALESCE((SELECT AVG(sc."value") FROM "scores" sc WHERE sc."sessionId" = {_SESSION} '
    f"AND {SCORE_NAME} = ?), "
    f'(SELECT AVG(sc."value") FROM "scores" sc WHERE sc."judgedSessionId" = {_SESSION} '
    f'AND {SCORE_NAME} = ? AND sc."value" IS NOT NULL GROUP BY sc."sessionId" '
    'ORDER BY MAX(sc."timestamp") DESC LIMIT 1))'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRange:
    """Items whose score of an evaluator is in a range; both limits belong to it."""

    name: str
    """Evaluator, or evaluator/dimension."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Filter and order of the items of a run. Several values of one member: any of them."""

    search: str = ""
    statuses: Sequence[str] = ()
    models: Sequence[str] = ()
    agents: Sequence[str] = ()
    reasons: Sequence[str] = ()
    factors: Sequence[tuple[str, str]] = ()
    """Name and level; several levels of one factor: any of them."""
    scores: Sequence[ScoreRange] = ()
    """All of them hold."""
    order: str = "position"
    """A column, `factor:NAME` or `score:NAME`."""
    descending: bool = False

    @property
    def is_volatile(self) -> bool:
        """Whether the result can change without a change of the run's items."""
        return bool(self.scores) or self.order.startswith(SCORE)


@dataclass(frozen=True, slots=True)
class Listing:
    """Items in some order: their positions in the plan and their statuses."""

    positions: "array[int]"
    statuses: bytes
    """Of each position, as an index into `STATUSES`."""

    def counts(self) -> dict[str, int]:
        """How many there are in each status; every status is there."""
        counts = Counter(self.statuses)
        return {status: counts[index] for index, status in enumerate(STATUSES)}

    def of(self, statuses: Sequence[str]) -> "array[int]":
        """Positions of the items in these statuses; no statuses: all."""
        if not statuses:
            return self.positions
        codes = {STATUSES.index(status) for status in statuses}
        pairs = zip(self.positions, self.statuses, strict=True)
        return array("q", [position for position, status in pairs if status in codes])


class _Numbers(TypedDict):
    numbers: str | None


def listing(read: StoreReader, run_id: str, query: ItemQuery) -> Listing:
    """The items that match, in every status, sorted; missing values come last in both directions."""
    on_postgres = uses_postgres(read)
    where, parameters = _where(read, run_id, query, on_postgres)
    by, named = _expression(query.order, on_postgres)
    direction = "DESC" if query.descending else "ASC"
    ordering = (
        f'"position" {direction}' if query.order == "position" else f'{by} {direction} NULLS LAST, "position"'
    )
    # One text of numbers: fetching 100,000 rows would take as long as sorting them.
    code = " ".join(f"WHEN '{status}' THEN {number}" for number, status in enumerate(STATUSES))
    number = f'"position" * {len(STATUSES)} + CASE "status" {code} END AS "number"'
    joined = "STRING_AGG(CAST(\"number\" AS TEXT), ',')" if on_postgres else 'GROUP_CONCAT("number")'
    (row,) = read.rows(
        _Numbers,
        f'SELECT {joined} AS "numbers" FROM '
        f'(SELECT {number} FROM "batch_items" WHERE {where} ORDER BY {ordering}) AS "ordered"',
        (*parameters, *named),
    )
    numbers = [int(one) for one in row["numbers"].split(",")] if row["numbers"] else []
    size = len(STATUSES)
    return Listing(array("q", [one // size for one in numbers]), bytes(one % size for one in numbers))


def _where(read: StoreReader, run_id: str, query: ItemQuery, on_postgres: bool) -> tuple[str, list[object]]:
    condition, parameters = item_where(run_id, ItemFilter(search=query.search, reasons=query.reasons))
    parts = [condition]
    for column, values in (("model", query.models), ("agent", query.agents)):
        if values:
            parts.append(f'"{column}" IN ({places(values)})')
            parameters += values
    for factor in dict.fromkeys(name for name, _ in query.factors):
        levels = {level for name, level in query.factors if name == factor}
        part, named = _has_level(read, run_id, factor, levels, on_postgres)
        parts.append(part)
        parameters += named
    for score in query.scores:
        limits = [("<=", score.high), (">=", score.low)]
        known = [(sign, limit) for sign, limit in limits if limit is not None]
        for sign, limit in known:
            parts.append(f"{_SCORE} {sign} ?")
            parameters += [score.name, score.name, limit]
        if not known:
            parts.append(f"{_SCORE} IS NOT NULL")
            parameters += [score.name, score.name]
    return " AND ".join(parts), parameters


class _LevelPlace(TypedDict):
    level: object
    position: int
    items: int


def _has_level(
    read: StoreReader, run_id: str, factor: str, levels: Collection[str], on_postgres: bool
) -> tuple[str, list[object]]:
    """Condition of the items with one of these levels of a factor, and its parameters."""
    # By items that have them: in an encrypted store, the text of a level cannot be compared.
    level, named = level_of(factor, is_postgres=on_postgres)
    first = [row["position"] for row in _levels(read, run_id, factor) if str(row["level"]) in levels]
    if not first:
        return "1 = 0", []
    other, _ = level_of(factor, is_postgres=on_postgres, items="o")
    return (
        f'{level} IN (SELECT {other} FROM "batch_items" o WHERE o."runId" = ? '
        f'AND o."position" IN ({places(first)}))',
        [*named, *named, run_id, *first],
    )


def _levels(read: StoreReader, run_id: str, factor: str) -> list[_LevelPlace]:
    """Each level of a factor, with its first item and the number of its items."""
    level, named = level_of(factor, is_postgres=uses_postgres(read))
    return read.rows(
        _LevelPlace,
        'SELECT "level", MIN("position") AS "position", COUNT(*) AS "items" FROM '
        f'(SELECT {level} AS "level", "position" FROM "batch_items" WHERE "runId" = ?) AS "each" '
        'WHERE "level" IS NOT NULL GROUP BY "level" ORDER BY "position"',
        (*named, run_id),
    )


def _expression(order: str, is_postgres: bool) -> tuple[str, list[object]]:
    """SQL expression of an order, and its parameters."""
    if order.startswith(FACTOR):
        return level_of(order.removeprefix(FACTOR), is_postgres=is_postgres)
    if order.startswith(SCORE):
        return _SCORE, [order.removeprefix(SCORE)] * 2
    if order == SECONDS:
        if is_postgres:
            return 'CAST("finishedAt" AS timestamptz) - CAST("startedAt" AS timestamptz)', []
        return 'julianday("finishedAt") - julianday("startedAt")', []
    if order not in ORDERS:
        raise NotFound(f"items cannot be sorted by {order}\nThey can by: {', '.join(ORDERS)}.")
    return f'"{order}"', []


class _Position(TypedDict):
    position: int


class _SessionPlace(TypedDict):
    position: int
    sessionId: str | None


def position_of(read: StoreReader, run_id: str, session_id: str) -> int | None:
    """Position of the item that a session is an attempt at; None: it is of no item of the run."""
    rows = read.rows(
        _Position,
        'SELECT i."position" FROM "sessions" s JOIN "batch_items" i '
        'ON i."runId" = s."runId" AND i."id" = s."itemId" WHERE s."id" = ? AND s."runId" = ?',
        (session_id, run_id),
    )
    return rows[0]["position"] if rows else None


def sessions_at(read: StoreReader, run_id: str, positions: Sequence[int]) -> list[str | None]:
    """The last session of the items at these positions, in the order given; None: not started."""
    if not positions:
        return []
    rows = read.rows(
        _SessionPlace,
        'SELECT "position", "sessionId" FROM "batch_items" '
        f'WHERE "runId" = ? AND "position" IN ({places(positions)})',
        (run_id, *positions),
    )
    sessions = {row["position"]: row["sessionId"] for row in rows}
    return [sessions.get(position) for position in positions]
