"""Ask the store: totals, pages and single rows.

Everything a page, a table or a command shows is a query over rows; nothing is counted on the side.
Filters, order and paging happen here, in the database, so that a hundred thousand items cost a
reader no more than the page it looks at.

Knows nothing of how the answers are shown.
"""

import json
import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from proctor.errors import NotFound
from proctor.evaluator import Evidence, Reference
from proctor.item import QUEUED, RUNNING, STATUSES
from proctor.store.batches import UNFINISHED_REASONS, with_true_status
from proctor.store.database import Connection, Readers, Row, beginning, containing, places
from proctor.store.ledger import OF_THE_STORE
from proctor.store.tables import COLUMNS, OF_A_SESSION
from proctor.store.writer import timestamp

if TYPE_CHECKING:
    from proctor.session import Session

SEARCHED = ("id", "repo", "prompt", "model", "agent", "error")


CALL_FIGURES = ", ".join(
    f'"{name}"'
    for name in COLUMNS["model_calls"]
    if name not in ("request", "requestBlob", "response", "responseBlob")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Which items of a batch to look at."""

    statuses: Sequence[str] = ()
    """Empty: all."""
    search: str = ""
    """Text that occurs in the id, repository, prompt, model, agent or error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which sessions, and the batches and items that belong to them: one of the three, or all."""

    run_id: str = ""
    session_ids: Sequence[str] = ()
    start: datetime | None = None
    end: datetime | None = None
    """The first moment that no longer counts."""


class StoreReader:
    """Questions to a store, from any thread."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    @property
    def _connection(self) -> Connection:
        return self._readers.connection()

    def batch(self, run_id: str, now: datetime) -> Row:
        """One batch, by its id or an unambiguous beginning of it, with its status as it is now."""
        found = self._connection.rows('SELECT * FROM "batches" WHERE "runId" = ?', (run_id,))
        if not found and run_id:
            found = self._connection.rows(
                'SELECT * FROM "batches" WHERE "runId" LIKE ? ESCAPE \'!\' LIMIT 2', (beginning(run_id),)
            )
        if len(found) != 1:
            several = "several runs begin with" if found else "there is no run"
            raise NotFound(f"{several} {run_id}\n`proctor runs` lists the runs there are.")
        return with_true_status(found[0], now)

    def batches(self, now: datetime, *, limit: int = 1000) -> list[Row]:
        """The batches, newest first, each with its counts by status, tokens and cost."""
        rows = self._connection.rows(
            'SELECT * FROM "batches" ORDER BY "createdAt" DESC, "runId" LIMIT ?', (limit,)
        )
        return [with_true_status(row, now) | {"totals": self.totals(row["runId"])} for row in rows]

    def batch_of_plan(self, plan_path: str, plan_digest: str) -> str | None:
        """The newest batch made from this plan: the same file, or the same text."""
        found = self._connection.rows(
            'SELECT "runId" FROM "batches" WHERE "planPath" = ? OR "planDigest" = ? '
            'ORDER BY "createdAt" DESC LIMIT 1',
            (plan_path, plan_digest),
        )
        return found[0]["runId"] if found else None

    def totals(self, run_id: str) -> Row:
        """How many items are in each status, and what they took together."""
        found = self._connection.rows(
            'SELECT "status", COUNT(*) AS "items", SUM("tokensTotal") AS "tokens", '
            'SUM("toolCalls") AS "tools", SUM("costUsd") AS "cost" '
            'FROM "batch_items" WHERE "runId" = ? GROUP BY "status"',
            (run_id,),
        )
        return summed(found) | {"toolCalls": sum(row["tools"] or 0 for row in found)}

    def reserved_and_spent(self, run_id: str) -> tuple[float, float]:
        """The money a batch holds back for attempts under way, and what it has spent, in USD."""
        (found,) = self._connection.rows(
            'SELECT COALESCE(SUM("reservedUsd"), 0) AS "reserved", COALESCE(SUM("spentUsd"), 0) AS "spent" '
            'FROM "ledger" WHERE "runId" = ? AND "kind" NOT IN (?, ?)',
            (run_id, *OF_THE_STORE),
        )
        return max(0.0, float(found["reserved"])), float(found["spent"])

    def pools(self, run_id: str) -> list[Row]:
        """How much is asked of each provider by a batch that is being carried out."""
        return self._connection.rows('SELECT * FROM "pools" WHERE "runId" = ? ORDER BY "name"', (run_id,))

    def items(
        self,
        run_id: str,
        wanted: ItemFilter = ItemFilter(),  # noqa: B008  it is frozen
        *,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Row]:
        """One page of a batch's items, in plan order."""
        where, parameters = item_where(run_id, wanted)
        return self._connection.rows(
            f'SELECT * FROM "batch_items" WHERE {where} ORDER BY "position" LIMIT ? OFFSET ?',
            (*parameters, limit, offset),
        )

    def count_items(self, run_id: str, wanted: ItemFilter) -> int:
        """How many items a filter leaves."""
        where, parameters = item_where(run_id, wanted)
        (found,) = self._connection.rows(
            f'SELECT COUNT(*) AS "n" FROM "batch_items" WHERE {where}', parameters
        )
        return int(found["n"])

    def queued(self, run_id: str, *, after: int, limit: int) -> list[Row]:
        """The next items to do, in plan order, each with what its earlier attempts came to."""
        # Counted for the page alone: a join would count the attempts of the whole batch each time.
        attempts = 'SELECT COUNT(*) FROM "sessions" s WHERE s."runId" = i."runId" AND s."itemId" = i."id"'
        return self._connection.rows(
            f'SELECT i.*, ({attempts}) AS "attempts", '
            f'({attempts} AND s."endReason" NOT IN ({places(UNFINISHED_REASONS)})) AS "tries" '
            'FROM "batch_items" i WHERE i."runId" = ? AND i."status" = ? AND i."position" > ? '
            'ORDER BY i."position" LIMIT ?',
            (*UNFINISHED_REASONS, run_id, QUEUED, after, limit),
        )

    def item_inputs(self, run_id: str) -> Iterator[Row]:
        """What every item of a batch asks for, and how far it is."""
        return self._connection.stream(
            'SELECT "id", "repeat", "runner", "agent", "model", "prompt", "details", "status", "startedAt" '
            'FROM "batch_items" WHERE "runId" = ? ORDER BY "position"',
            (run_id,),
        )

    def item(self, item_id: str, run_id: str = "") -> list[Row]:
        """The items whose id begins so: the same item may be in several batches."""
        return self._connection.rows(
            'SELECT * FROM "batch_items" WHERE "id" LIKE ? ESCAPE \'!\' AND ("runId" = ? OR ? = \'\') '
            'ORDER BY "startedAt" DESC LIMIT 20',
            (beginning(item_id), run_id, run_id),
        )

    def attempts(self, run_id: str, item_id: str) -> list[Row]:
        """The sessions of one item, first attempt first."""
        return self._connection.rows(
            'SELECT * FROM "sessions" WHERE "runId" = ? AND "itemId" = ? ORDER BY "attempt"',
            (run_id, item_id),
        )

    def session(self, session_id: str) -> Row:
        """One session, by its id or an unambiguous beginning, its name, its branch, or its source's id."""
        names = ("id", "name", "branch", "externalId")
        called = " OR ".join(f'"{name}" = ?' for name in names)
        # What is called exactly so comes before what only begins so.
        found = self._connection.rows(
            f'SELECT * FROM "sessions" WHERE {called} LIMIT 2', (session_id,) * len(names)
        ) or self._connection.rows(
            'SELECT * FROM "sessions" WHERE "id" LIKE ? ESCAPE \'!\' LIMIT 2', (beginning(session_id),)
        )
        if len(found) != 1 or not session_id:
            several = "several sessions begin with" if found else "there is no session"
            raise NotFound(f"{several} {session_id}\n`proctor sessions list` lists them.")
        return found[0]

    def sessions(self, scope: Scope, *, limit: int = 1000) -> list[Row]:
        """The sessions of a scope, newest first."""
        where, parameters = session_where(scope)
        return self._connection.rows(
            f'SELECT * FROM "sessions" s WHERE {where} ORDER BY "startedAt" DESC LIMIT ?',
            (*parameters, limit),
        )

    def of_session(self, table: str, session_id: str) -> list[Row]:
        """All rows of one session in a table, in the order they happened, long texts included."""
        order = "step" if table == "iterations" else "position"
        rows = self._connection.rows(
            f'SELECT * FROM "{_known(table)}" WHERE "sessionId" = ? ORDER BY "{order}"', (session_id,)
        )
        return list(self.whole(rows))

    def evidence(self, session_id: str, reference: Reference | None = None) -> Evidence:
        """A session as evaluators see it, by its id or an unambiguous beginning of it."""
        # Late, here and below: only those who judge or export sessions need it, and every batch reads.
        from proctor.store.sessions import evidence_of

        exact = self._connection.rows('SELECT * FROM "sessions" WHERE "id" = ?', (session_id,))
        (session,) = self.whole(exact or [self.session(session_id)])

        def rows_of(table: str) -> list[Row]:
            # The bodies of model calls repeat what the messages say, and are many times as long.
            if table == "model_calls":
                return self._connection.rows(
                    f'SELECT {CALL_FIGURES} FROM "model_calls" WHERE "sessionId" = ? ORDER BY "position"',
                    (session["id"],),
                )
            return self.of_session(table, session["id"])

        found = evidence_of(session, rows_of, reference)
        return found if found.tools or not found.tool_calls else replace(found, tools=self._tools(session))

    def recorded(self, session_id: str) -> "Session":
        """A session, ours or another tool's, in the form in which sessions come in and go out."""
        from proctor.store.sessions import session_of_rows

        exact = self._connection.rows('SELECT * FROM "sessions" WHERE "id" = ?', (session_id,))
        (session,) = self.whole(exact or [self.session(session_id)])
        judged = self._connection.rows(
            'SELECT * FROM "scores" WHERE ("sessionId" = ? AND "judgedSessionId" = \'\') '
            'OR "judgedSessionId" = ? ORDER BY "timestamp", "sessionId", "position"',
            (session["id"], session["id"]),
        )
        return session_of_rows(
            session, lambda table: self.of_session(table, session["id"]), self.whole(judged)
        )

    def _tools(self, session: Row) -> list[Row]:
        """What an agent of ours could have used: its first request to a model says so, if it was kept."""
        from proctor.store.sessions import tools_of_request

        rows = self._connection.rows(
            'SELECT "request", "requestBlob" FROM "model_calls" WHERE "sessionId" = ? '
            'ORDER BY "position" LIMIT 1',
            (session["id"],),
        )
        return [tool for row in self.whole(rows) for tool in tools_of_request(row["request"])]

    def table(self, name: str, scope: Scope) -> Iterator[Row]:
        """The rows of a table that belong to a scope, long texts included, in little memory."""
        where, parameters = session_where(scope)
        mine = f'FROM "sessions" s WHERE {where}'
        if name == "sessions":
            rows = self._connection.stream(f'SELECT * {mine} ORDER BY "startedAt", "id"', parameters)
        elif name in ("batches", "batch_items") and scope == Scope():
            # Also what has no session yet.
            rows = self._connection.stream(f'SELECT * FROM "{name}" ORDER BY "runId"')
        elif name in ("batches", "batch_items") and scope.run_id:
            rows = self._connection.stream(f'SELECT * FROM "{name}" WHERE "runId" = ?', (scope.run_id,))
        elif name == "batches":
            rows = self._connection.stream(
                f'SELECT * FROM "batches" WHERE "runId" IN (SELECT s."runId" {mine})', parameters
            )
        elif name == "batch_items":
            rows = self._connection.stream(
                'SELECT * FROM "batch_items" i WHERE EXISTS '
                f'(SELECT 1 {mine} AND s."runId" = i."runId" AND s."itemId" = i."id")',
                parameters,
            )
        else:
            rows = self._connection.stream(
                f'SELECT * FROM "{_known(name)}" WHERE "sessionId" IN (SELECT s."id" {mine})', parameters
            )
        return self.whole(rows)

    def whole(self, rows: Iterator[Row] | list[Row]) -> Iterator[Row]:
        """The same rows with their long texts put back in place."""
        for row in rows:
            for name in [name for name in row if name.endswith("Blob")]:
                digest = row.pop(name)
                if digest:
                    row[name.removesuffix("Blob")] = self.blob(digest)
            yield row

    def blob(self, digest: str) -> str:
        """A long text by its digest."""
        found = self._connection.rows('SELECT "data" FROM "blobs" WHERE "digest" = ?', (digest,))
        return zlib.decompress(found[0]["data"]).decode() if found else ""

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Any question in SQL; what statistics are made from."""
        return self._connection.rows(sql, parameters)


def session_where(scope: Scope) -> tuple[str, list[Any]]:
    """A condition on `sessions s` that a scope stands for, and its parameters."""
    parts, parameters = ["1 = 1"], list[Any]()
    if scope.run_id:
        parts.append('s."runId" = ?')
        parameters.append(scope.run_id)
    if scope.session_ids:
        parts.append(f's."id" IN ({places(scope.session_ids)})')
        parameters += scope.session_ids
    if scope.start:
        parts.append('s."startedAt" >= ?')
        parameters.append(timestamp(scope.start))
    if scope.end:
        parts.append('s."startedAt" < ?')
        parameters.append(timestamp(scope.end))
    return " AND ".join(parts), parameters


def item_where(run_id: str, wanted: ItemFilter) -> tuple[str, list[Any]]:
    """A condition on `batch_items` that a filter stands for, and its parameters."""
    parts, parameters = ['"runId" = ?'], [run_id]
    if wanted.statuses:
        parts.append(f'"status" IN ({places(wanted.statuses)})')
        parameters += wanted.statuses
    if wanted.search:
        parts.append("(" + " OR ".join(f"LOWER(\"{name}\") LIKE ? ESCAPE '!'" for name in SEARCHED) + ")")
        parameters += [containing(wanted.search)] * len(SEARCHED)
    return " AND ".join(parts), parameters


def summed(by_status: Iterable[Row]) -> Row:
    """The items of one batch, from their number, tokens and cost in each status there is."""
    found = {row["status"]: row for row in by_status}
    counts = dict.fromkeys(STATUSES, 0) | {status: row["items"] for status, row in found.items()}
    costs = [row["cost"] for row in found.values() if row["cost"] is not None]
    return {
        "counts": counts,
        "items": sum(counts.values()),
        "finished": sum(counts.values()) - counts[QUEUED] - counts[RUNNING],
        "tokens": sum(row["tokens"] or 0 for row in found.values()),
        "costUsd": sum(costs) if costs else None,
    }


def _known(table: str) -> str:
    if table not in OF_A_SESSION:
        raise NotFound(f"there is no table {table}\nThere are: {', '.join(COLUMNS)}.")
    return table


# The items of a batch as a page looks at them: a window of rows, in any order, searched.


SHOWN_CHARACTERS = 300
"""Of a prompt or an error; all of it is on the session's page."""


PLAIN = (
    *("id", "position", "repeat", "repo", "agent", "model", "factors", "status", "reason", "startedAt"),
    *("finishedAt", "sessionId", "iterSha", "tokensTotal", "toolCalls", "costUsd"),
)


CUT = ("prompt", "error")


PAGE_COLUMNS = ", ".join(
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


def listing(read: StoreReader, run_id: str, search: str, order: str, *, descending: bool) -> Listing:
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


def rows_at(read: StoreReader, run_id: str, positions: Sequence[int]) -> list[Row]:
    """The items at these positions of the plan, in the order given."""
    if not positions:
        return []
    rows = read.query(
        f'SELECT {PAGE_COLUMNS} FROM "batch_items" WHERE "runId" = ? AND "position" IN ({places(positions)})',
        (run_id, *positions),
    )
    found = {row["position"]: _opened(row) for row in rows}
    return [found[position] for position in positions if position in found]


def first_rows(read: StoreReader, run_id: str, *, offset: int, limit: int) -> list[Row]:
    """One window of all items in plan order, which needs no list."""
    rows = read.query(
        f'SELECT {PAGE_COLUMNS} FROM "batch_items" WHERE "runId" = ? ORDER BY "position" LIMIT ? OFFSET ?',
        (run_id, limit, offset),
    )
    return [_opened(row) for row in rows]


def items_by_id(read: StoreReader, run_id: str, ids: Sequence[str]) -> list[Row]:
    """Items by their whole ids, in plan order."""
    if not ids:
        return []
    rows = read.query(
        f'SELECT {PAGE_COLUMNS} FROM "batch_items" WHERE "runId" = ? AND "id" IN ({places(ids)}) '
        'ORDER BY "position"',
        (run_id, *ids),
    )
    return [_opened(row) for row in rows]


def running_ids(read: StoreReader, run_id: str, *, limit: int) -> set[str]:
    """The items under way."""
    rows = read.query(
        'SELECT "id" FROM "batch_items" WHERE "runId" = ? AND "status" = ? LIMIT ?', (run_id, RUNNING, limit)
    )
    return {row["id"] for row in rows}


def begun_since(read: StoreReader, run_id: str, moment: str, *, limit: int) -> set[str]:
    """The items of which an attempt was begun at or after a moment."""
    rows = read.query(
        'SELECT "itemId" FROM "sessions" WHERE "startedAt" >= ? AND "runId" = ? LIMIT ?',
        (moment, run_id, limit),
    )
    return {row["itemId"] for row in rows if row["itemId"]}


def status_counts(read: StoreReader, run_id: str) -> dict[str, int]:
    """How many items there are in each status; every status is there."""
    found = read.query(
        'SELECT "status", COUNT(*) AS "n" FROM "batch_items" WHERE "runId" = ? GROUP BY "status"', (run_id,)
    )
    return dict.fromkeys(STATUSES, 0) | {row["status"]: row["n"] for row in found}


def makers(read: StoreReader, run_id: str) -> list[Row]:
    """Who does the work: how many items each pair of agent and model has, the most first."""
    return read.query(
        'SELECT "agent", "model", COUNT(*) AS "items" FROM "batch_items" WHERE "runId" = ? '
        'GROUP BY "agent", "model" ORDER BY "items" DESC, "agent", "model" LIMIT 200',
        (run_id,),
    )


def factor_names(read: StoreReader, run_id: str) -> list[str]:
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


def _is_postgres(read: StoreReader) -> bool:
    # SQLite has no truth values: there the comparison is the number 1.
    (answer,) = read.query('SELECT CAST(1 = 1 AS TEXT) AS "truth"')
    return bool(answer["truth"] == "true")
