"""Ask the store: totals, pages and single rows.

Everything a page, a table or a command shows is a query over rows; nothing is counted on the side.
Filters, order and paging happen here, in the database, so that a hundred thousand items cost a
reader no more than the page it looks at.

Knows nothing of how the answers are shown.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from proctor.errors import NotFound
from proctor.evaluator import Evidence, Reference
from proctor.item import QUEUED, RUNNING, STATUSES
from proctor.store.batches import UNFINISHED_REASONS, with_true_status
from proctor.store.conditions import beginning, containing, places
from proctor.store.database import Connection, Readers, Row
from proctor.store.ledger import OF_THE_STORE
from proctor.store.tables import COLUMNS, OF_A_SESSION
from proctor.store.writer import timestamp

if TYPE_CHECKING:
    from proctor.imported import ImportedSession

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


class Reader:
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
        from proctor.store.evidence import evidence_of

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

    def recorded(self, session_id: str) -> "ImportedSession":
        """A session, ours or another tool's, in the form in which sessions come in and go out."""
        from proctor.store.recorded import session_of_rows

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
        from proctor.store.evidence import tools_of_request

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
