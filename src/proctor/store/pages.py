"""The items of a batch as a page looks at them: a window of rows, in any order, searched.

Sorting a hundred thousand rows takes the database a quarter of a second, and a reader who scrolls asks
for many windows of the same order. So an order is asked for once, as a list of positions with their
statuses, small enough to be kept; the rows of a window are then looked up by their positions.

Knows nothing of how long such a list is kept, or of how rows are shown.
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor.errors import NotFound
from proctor.item import RUNNING, STATUSES
from proctor.store.conditions import places
from proctor.store.database import Row
from proctor.store.reading import ItemFilter, Reader, item_where

SHOWN_CHARACTERS = 300
"""Of a prompt or an error; all of it is on the session's page."""
PLAIN = (
    *("id", "position", "repeat", "repo", "agent", "model", "factors", "status", "reason", "startedAt"),
    *("finishedAt", "sessionId", "iterSha", "tokensTotal", "toolCalls", "costUsd"),
)
CUT = ("prompt", "error")
COLUMNS = ", ".join(
    [f'"{name}"' for name in PLAIN] + [f'SUBSTR("{name}", 1, {SHOWN_CHARACTERS}) AS "{name}"' for name in CUT]
)
SECONDS = "seconds"
"""The name of an order: how long an item took."""
FACTOR = "factor:"
"""How an order begins that goes by the level of a factor."""
_IN_A_PATH = re.compile(r'[^"\\\x00-\x1f]+')
"""Names that a path into JSON can quote."""
ORDERS = (*(name for name in (*PLAIN, *CUT) if name != "factors"), SECONDS)


@dataclass(frozen=True, slots=True)
class Listing:
    """Which items there are in some order: their positions in the plan, each with its status."""

    positions: "array[int]"
    statuses: bytes
    """Of each position, as an index into `STATUSES`."""

    def counts(self) -> dict[str, int]:
        """How many there are in each status; every status is there."""
        found = Counter(self.statuses)
        return {status: found[index] for index, status in enumerate(STATUSES)}

    def window(self, statuses: Sequence[str], offset: int, limit: int) -> tuple[Sequence[int], int]:
        """The positions of one window of the items in these statuses, and how many such items there are."""
        if not statuses:
            return self.positions[offset : offset + limit], len(self.positions)
        wanted = {STATUSES.index(status) for status in statuses}
        kept = [
            place for place, status in zip(self.positions, self.statuses, strict=True) if status in wanted
        ]
        return kept[offset : offset + limit], len(kept)


def listing(read: Reader, run_id: str, search: str, order: str, *, descending: bool) -> Listing:
    """All items that hold a text, in an order; what is missing comes last either way."""
    is_postgres = _is_postgres(read)
    where, parameters = item_where(run_id, ItemFilter(search=search))
    by, named = _expression(order, is_postgres)
    direction = "DESC" if descending else "ASC"
    ordering = (
        f'"position" {direction}' if order == "position" else f'{by} {direction} NULLS LAST, "position"'
    )
    # One text of numbers: a hundred thousand rows would take Python as long as the sorting takes.
    code = " ".join(f"WHEN '{status}' THEN {number}" for number, status in enumerate(STATUSES))
    number = f'"position" * {len(STATUSES)} + CASE "status" {code} END AS "number"'
    joined = "STRING_AGG(CAST(\"number\" AS TEXT), ',')" if is_postgres else 'GROUP_CONCAT("number")'
    (found,) = read.query(
        f'SELECT {joined} AS "numbers" FROM '
        f'(SELECT {number} FROM "batch_items" WHERE {where} ORDER BY {ordering}) AS "ordered"',
        (*parameters, *named),
    )
    numbers = [int(one) for one in found["numbers"].split(",")] if found["numbers"] else []
    size = len(STATUSES)
    return Listing(array("q", [one // size for one in numbers]), bytes(one % size for one in numbers))


def rows_at(read: Reader, run_id: str, positions: Sequence[int]) -> list[Row]:
    """The items at these positions of the plan, in the order given."""
    if not positions:
        return []
    rows = read.query(
        f'SELECT {COLUMNS} FROM "batch_items" WHERE "runId" = ? AND "position" IN ({places(positions)})',
        (run_id, *positions),
    )
    found = {row["position"]: _opened(row) for row in rows}
    return [found[position] for position in positions if position in found]


def first_rows(read: Reader, run_id: str, *, offset: int, limit: int) -> list[Row]:
    """One window of all items in plan order, which needs no list."""
    rows = read.query(
        f'SELECT {COLUMNS} FROM "batch_items" WHERE "runId" = ? ORDER BY "position" LIMIT ? OFFSET ?',
        (run_id, limit, offset),
    )
    return [_opened(row) for row in rows]


def items_by_id(read: Reader, run_id: str, ids: Sequence[str]) -> list[Row]:
    """Items by their whole ids, in plan order."""
    if not ids:
        return []
    rows = read.query(
        f'SELECT {COLUMNS} FROM "batch_items" WHERE "runId" = ? AND "id" IN ({places(ids)}) '
        'ORDER BY "position"',
        (run_id, *ids),
    )
    return [_opened(row) for row in rows]


def running_ids(read: Reader, run_id: str, *, limit: int) -> set[str]:
    """The items under way."""
    rows = read.query(
        'SELECT "id" FROM "batch_items" WHERE "runId" = ? AND "status" = ? LIMIT ?', (run_id, RUNNING, limit)
    )
    return {row["id"] for row in rows}


def begun_since(read: Reader, run_id: str, moment: str, *, limit: int) -> set[str]:
    """The items of which an attempt was begun at or after a moment."""
    rows = read.query(
        'SELECT "itemId" FROM "sessions" WHERE "startedAt" >= ? AND "runId" = ? LIMIT ?',
        (moment, run_id, limit),
    )
    return {row["itemId"] for row in rows if row["itemId"]}


def status_counts(read: Reader, run_id: str) -> dict[str, int]:
    """How many items there are in each status; every status is there."""
    found = read.query(
        'SELECT "status", COUNT(*) AS "n" FROM "batch_items" WHERE "runId" = ? GROUP BY "status"', (run_id,)
    )
    return dict.fromkeys(STATUSES, 0) | {row["status"]: row["n"] for row in found}


def makers(read: Reader, run_id: str) -> list[Row]:
    """Who does the work: how many items each pair of agent and model has, the most first."""
    return read.query(
        'SELECT "agent", "model", COUNT(*) AS "items" FROM "batch_items" WHERE "runId" = ? '
        'GROUP BY "agent", "model" ORDER BY "items" DESC, "agent", "model" LIMIT 200',
        (run_id,),
    )


def factor_names(read: Reader, run_id: str) -> list[str]:
    """What items can be grouped by, as far as the first thousand of them tell."""
    rows = read.query(
        'SELECT DISTINCT "factors" FROM (SELECT "factors" FROM "batch_items" WHERE "runId" = ? '
        'ORDER BY "position" LIMIT 1000) AS "some"',
        (run_id,),
    )
    return sorted({name for row in rows for name in json.loads(row["factors"])})


def level_of(factor: str, *, is_postgres: bool, items: str = '"batch_items"') -> tuple[str, list[Any]]:
    """The level an item has of a factor, in SQL, and the parameters of that."""
    if is_postgres:
        return f'CAST({items}."factors" AS jsonb) ->> CAST(? AS TEXT)', [factor]
    if _IN_A_PATH.fullmatch(factor):
        return f'json_extract({items}."factors", ?)', [f'$."{factor}"']
    # Slower, and good for any name.
    return f'(SELECT "value" FROM json_each({items}."factors") WHERE "key" = ?)', [factor]


def _opened(row: Row) -> Row:
    return row | {"factors": json.loads(row["factors"])}


def _expression(order: str, is_postgres: bool) -> tuple[str, list[Any]]:
    """What an order goes by, in SQL, and the parameters of that."""
    if order.startswith(FACTOR):
        return level_of(order.removeprefix(FACTOR), is_postgres=is_postgres)
    if order == SECONDS:
        if is_postgres:
            return 'CAST("finishedAt" AS timestamptz) - CAST("startedAt" AS timestamptz)', []
        return 'julianday("finishedAt") - julianday("startedAt")', []
    if order not in ORDERS:
        raise NotFound(f"items have no column {order}\nThere are: {', '.join(ORDERS)}.")
    return f'"{order}"', []


def _is_postgres(read: Reader) -> bool:
    # SQLite has no truth values: there the comparison is the number 1.
    (answer,) = read.query('SELECT CAST(1 = 1 AS TEXT) AS "truth"')
    return bool(answer["truth"] == "true")
