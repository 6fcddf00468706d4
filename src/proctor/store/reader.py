"""StoreReader: batches, items and sessions by id, pages of them, and totals.

Filters, order and paging happen in the database, so that a hundred thousand items cost a reader no more
than the page it shows. Each query names the shape of its rows.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, cast, overload

from proctor.errors import Contradiction, NotFound
from proctor.item import QUEUED, RUNNING, STATUSES
from proctor.json_values import parse_json, require_map
from proctor.store.batches import UNFINISHED_REASONS, with_current_status
from proctor.store.codec import contains
from proctor.store.database import (
    Connection,
    R,
    Readers,
    Row,
    extended,
    places,
    prefix_pattern,
    substring_pattern,
)
from proctor.store.ledger import SPENT
from proctor.store.tables import (
    BY_PEOPLE,
    COLUMNS,
    OF_A_SESSION,
    BatchRow,
    ItemRow,
    IterationRow,
    MergeRow,
    MessageRow,
    MetricRow,
    ModelCallRow,
    PoolRow,
    ScoreRow,
    SessionRow,
    ToolCallRow,
    is_being_written,
)
from proctor.store.writer import timestamp

if TYPE_CHECKING:
    from proctor.evaluator import Evidence, Reference
    from proctor.session import Session
    from proctor.store.sessions import OfferedTool

SEARCHED = ("id", "repo", "prompt", "model", "agent", "error")
CALL_FIGURES = ", ".join(
    f'"{name}"'
    for name in COLUMNS["model_calls"]
    if name not in ("request", "requestBlob", "response", "responseBlob")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """A filter on the items of a batch."""

    statuses: Sequence[str] = ()
    """Empty: all."""
    reasons: Sequence[str] = ()
    """Empty: all."""
    search: str = ""
    """Text that occurs in the id, repository, prompt, model, agent or error."""
    merges: Sequence[str] = ()
    """How merging ended: `success`, `conflict`, `error`. Empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Sessions of one run, by id or in a period, with their batches and items; empty: all."""

    run_id: str = ""
    session_ids: Sequence[str] = ()
    start: datetime | None = None
    end: datetime | None = None
    """Exclusive."""


class BatchWithTotals(BatchRow):
    """A batch with the totals of its items."""

    totals: "BatchTotals"


class StatusSums(TypedDict):
    """The items of one batch in one status."""

    status: str
    items: int
    tokens: int | None
    cost: float | None


class StatusSumsWithTools(StatusSums):
    """Sums by status, with tool calls."""

    tools: int | None


class ItemTotals(TypedDict):
    """The items of one batch, by status and together."""

    counts: dict[str, int]
    """By status; every status is there."""
    items: int
    finished: int
    tokens: int
    costUsd: float | None
    """None: no cost is known."""


class BatchTotals(ItemTotals):
    """Sums by status, with tool calls."""

    toolCalls: int


class QueuedItem(ItemRow):
    """An item to run."""

    attempts: int
    """Earlier sessions."""
    tries: int
    """Those of them that were not cut off."""
    spentUsd: float
    """What they have spent, or may have spent, by the ledger."""


class ItemInput(TypedDict):
    """The inputs of an item and its status."""

    id: str
    repeat: int
    runner: str
    agent: str
    model: str
    prompt: str
    details: str
    status: str
    startedAt: str | None


class _RequestText(TypedDict):
    sessionId: str
    request: str
    requestBlob: NotRequired[str | None]


class StoreReader:
    """Queries of a store, from any thread."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    @property
    def _connection(self) -> Connection:
        return self._readers.connection()

    def rows(self, shape: type[R], sql: str, parameters: Sequence[object] = ()) -> list[R]:  # noqa: ARG002
        """The rows of a query, of which each has the keys of `shape`. For `store/` only."""
        return cast("list[R]", self._connection.rows(sql, parameters))

    def values(self, kind: type[R], sql: str, parameters: Sequence[object] = ()) -> list[R]:
        """The values of the only column of a query. For `store/` only."""
        return self._connection.values(kind, sql, parameters)

    def value(self, kind: type[R], sql: str, parameters: Sequence[object] = ()) -> R | None:
        """The first of them; None: there is no row, or it is null. For `store/` only."""
        return self._connection.value(kind, sql, parameters)

    def pairs(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, Any]]:
        """The rows of a query with two columns of different names. For `store/` only."""
        return [(first, second) for first, second in self._connection.tuples(sql, parameters)]

    def count(self, source: str, parameters: Sequence[object] = ()) -> int:
        """How many rows a table has, or those that meet a condition after it. For `store/` only."""
        return self._connection.count(source, parameters)

    def is_one_of(self, column: str, place: str, texts: Iterable[str]) -> tuple[str, list[object]]:
        """A condition on an encrypted column, and its parameters. For `store/` only."""
        return self._connection.is_one_of(column, place, texts)

    def server_time(self, now: datetime) -> datetime:
        """The time by which hosts that share the store agree, when the clock of this host says `now`."""
        return self._connection.server_time(now)

    def stream(self, shape: type[R], sql: str, parameters: Sequence[object] = ()) -> Iterator[R]:  # noqa: ARG002
        """The same rows one by one, in memory that does not grow with their number. For `store/` only."""
        return cast("Iterator[R]", self._connection.stream(sql, parameters))

    def columns(self, shape: type[R], sql: str, parameters: Sequence[object] = ()) -> Iterator[R]:  # noqa: ARG002
        """The same rows, some at a time, as columns with the keys of `shape`. For `store/` only."""
        return cast("Iterator[R]", self._connection.columns(sql, parameters))

    def batch(self, run_id: str, now: datetime) -> BatchRow:
        """One batch, by its id or an unambiguous beginning of it, with its current status."""
        rows = self.exact_batch(run_id)
        if not rows and run_id:
            rows = self.rows(
                BatchRow,
                'SELECT * FROM "batches" WHERE "runId" LIKE ? ESCAPE \'!\' LIMIT 2',
                (prefix_pattern(run_id),),
            )
        if len(rows) != 1:
            problem = "several runs begin with" if rows else "there is no run"
            raise NotFound(f"{problem} {run_id}\n`proctor runs` lists the runs there are.")
        return with_current_status(rows[0], self.server_time(now))

    def exact_batch(self, run_id: str) -> list[BatchRow]:
        """The batch with this id, as it was written; none or one."""
        return self.rows(BatchRow, 'SELECT * FROM "batches" WHERE "runId" = ?', (run_id,))

    def batches(self, now: datetime, *, limit: int = 1000) -> list[BatchWithTotals]:
        """The batches, newest first, each with its counts by status, tokens and cost."""
        rows = self.rows(
            BatchRow, 'SELECT * FROM "batches" ORDER BY "createdAt" DESC, "runId" LIMIT ?', (limit,)
        )
        now = self.server_time(now)
        return [
            extended(BatchWithTotals, with_current_status(row, now), totals=self.totals(row["runId"]))
            for row in rows
        ]

    def live_batches(self, now: datetime) -> list[BatchRow]:
        """The batches that a process is running, newest first."""
        rows = self.rows(
            BatchRow, 'SELECT * FROM "batches" WHERE "status" = ? ORDER BY "createdAt" DESC', (RUNNING,)
        )
        now = self.server_time(now)
        current = (with_current_status(row, now) for row in rows)
        return [row for row in current if row["status"] == RUNNING]

    def batch_of_plan(self, plan_path: str, plan_digest: str) -> str | None:
        """The newest batch made from this plan: the same file, or the same text."""
        return self.value(
            str,
            'SELECT "runId" FROM "batches" WHERE ("planPath" = ? AND "planPath" <> \'\') '
            'OR ("planDigest" = ? AND "planDigest" <> \'\') '
            'ORDER BY "createdAt" DESC LIMIT 1',
            (plan_path, plan_digest),
        )

    def last_sessions(self, run_id: str, column: Literal["validity", "servedModels"]) -> list[dict[str, Any]]:
        """A JSON column of the last sessions of a run's items, where it is not empty."""
        texts = self.values(
            str,
            f'SELECT s."{column}" FROM "batch_items" i JOIN "sessions" s ON s."id" = i."sessionId" '
            f'WHERE i."runId" = ? AND s."{column}" <> \'{{}}\'',
            (run_id,),
        )
        return [dict(require_map(parse_json(text))) for text in texts]

    def totals(self, run_id: str) -> BatchTotals:
        """How many items are in each status, and their tokens, tool calls and cost."""
        rows = self.rows(
            StatusSumsWithTools,
            'SELECT "status", COUNT(*) AS "items", SUM("tokensTotal") AS "tokens", '
            'SUM("toolCalls") AS "tools", SUM("costUsd") AS "cost" '
            'FROM "batch_items" WHERE "runId" = ? GROUP BY "status"',
            (run_id,),
        )
        return extended(BatchTotals, summed(rows), toolCalls=sum(row["tools"] or 0 for row in rows))

    def reserved_and_spent(self, run_id: str) -> tuple[float, float]:
        """USD reserved for running attempts of a batch, and USD spent."""
        ((reserved, spent),) = self.pairs(
            'SELECT SUM("reservedUsd") AS "reserved", SUM("spentUsd") AS "spent" '
            f'FROM "ledger" WHERE "runId" = ? AND {SPENT}',
            (run_id,),
        )
        return max(0.0, reserved or 0.0), spent or 0.0

    def pools(self, run_id: str) -> list[PoolRow]:
        """The use of each provider by a running batch, by all its worker processes together."""
        sums = ("inUse", "waiting", "calls", "limited")
        summed = ", ".join(f'CAST(SUM("{name}") AS BIGINT) AS "{name}"' for name in sums)
        latest = ", ".join(f'MAX("{name}") AS "{name}"' for name in ("heldUntil", "cutAt", "heartbeatAt"))
        return self.rows(
            PoolRow,
            'SELECT "name", MIN("owner") AS "owner", "runId", MIN("limit") AS "limit", '
            f'{summed}, SUM("waitedSeconds") AS "waitedSeconds", {latest} '
            'FROM "pools" WHERE "runId" = ? GROUP BY "name", "runId" ORDER BY "name"',
            (run_id,),
        )

    def items(
        self,
        run_id: str,
        selection: ItemFilter = ItemFilter(),  # noqa: B008  it is frozen
        *,
        limit: int = 100,
        offset: int = 0,
    ) -> list[ItemRow]:
        """One page of a batch's items, in plan order."""
        where, parameters = item_where(run_id, selection)
        return self.rows(
            ItemRow,
            f'SELECT * FROM "batch_items" WHERE {where} ORDER BY "position" LIMIT ? OFFSET ?',
            (*parameters, limit, offset),
        )

    def count_items(self, run_id: str, selection: ItemFilter) -> int:
        """Count the items that match a filter."""
        where, parameters = item_where(run_id, selection)
        return self.count(f'"batch_items" WHERE {where}', parameters)

    def queued(self, run_id: str, *, after: int, limit: int) -> list[QueuedItem]:
        """The next items to run, in plan order, each with the number of its earlier attempts."""
        # Counted for the page alone: a join would count the attempts of the whole batch each time.
        of_item = 'FROM "sessions" s WHERE s."runId" = i."runId" AND s."itemId" = i."id"'
        attempts = f"SELECT COUNT(*) {of_item}"
        own = f'"sessionId" IN (SELECT s."id" {of_item})'
        spent = f'SELECT SUM("spentUsd") FROM "ledger" WHERE {own} AND {SPENT}'
        return self.rows(
            QueuedItem,
            f'SELECT i.*, ({attempts}) AS "attempts", '
            f'({attempts} AND s."endReason" NOT IN ({places(UNFINISHED_REASONS)})) AS "tries", '
            f'COALESCE(({spent}), 0) AS "spentUsd" '
            'FROM "batch_items" i WHERE i."runId" = ? AND i."status" = ? AND i."position" > ? '
            'ORDER BY i."position" LIMIT ?',
            (*UNFINISHED_REASONS, run_id, QUEUED, after, limit),
        )

    def item_inputs(self, run_id: str) -> Iterator[ItemInput]:
        """The inputs of every item of a batch, and its status."""
        return self.stream(
            ItemInput,
            'SELECT "id", "repeat", "runner", "agent", "model", "prompt", "details", "status", "startedAt" '
            'FROM "batch_items" WHERE "runId" = ? ORDER BY "position"',
            (run_id,),
        )

    def item(self, item_id: str, run_id: str = "") -> list[ItemRow]:
        """Items whose id has this prefix; the same item may be in several batches."""
        # A prefix is looked for in all items of the batch.
        return (self.exact_item(run_id, item_id) if run_id else []) or self.rows(
            ItemRow,
            'SELECT * FROM "batch_items" WHERE "id" LIKE ? ESCAPE \'!\' AND ("runId" = ? OR ? = \'\') '
            'ORDER BY "startedAt" DESC LIMIT 20',
            (prefix_pattern(item_id), run_id, run_id),
        )

    def exact_item(self, run_id: str, item_id: str) -> list[ItemRow]:
        """The item of a batch with this id; none or one."""
        return self.rows(
            ItemRow, 'SELECT * FROM "batch_items" WHERE "runId" = ? AND "id" = ?', (run_id, item_id)
        )

    def attempts(self, run_id: str, item_id: str) -> list[SessionRow]:
        """The sessions of one item, first attempt first."""
        return self.rows(
            SessionRow,
            'SELECT * FROM "sessions" WHERE "runId" = ? AND "itemId" = ? ORDER BY "attempt"',
            (run_id, item_id),
        )

    def resource(self, run_id: str, digest: str) -> str | None:
        """The content of a batch's resource; None: it has none with this digest."""
        return self.value(
            str, 'SELECT "content" FROM "run_resources" WHERE "runId" = ? AND "digest" = ?', (run_id, digest)
        )

    def resource_digests(self, run_id: str) -> set[str]:
        """The digests of a batch's resources."""
        return set(self.values(str, 'SELECT "digest" FROM "run_resources" WHERE "runId" = ?', (run_id,)))

    def session(self, session_id: str) -> SessionRow:
        """One session, by its id or an unambiguous prefix, its name, its branch, or its source's id; or the
        last attempt of an item, by the item's id or an unambiguous prefix."""
        is_named, names = self.is_one_of("name", "sessions.name", [session_id])
        # The id first, which alone is found without reading all sessions; an exact match before a prefix.
        rows = (
            self.exact_session(session_id)
            or self.rows(
                SessionRow,
                f'SELECT * FROM "sessions" WHERE {is_named} OR "branch" = ? OR "externalId" = ? LIMIT 2',
                (*names, session_id, session_id),
            )
            or self.rows(
                SessionRow,
                'SELECT * FROM "sessions" WHERE "id" LIKE ? ESCAPE \'!\' LIMIT 2',
                (prefix_pattern(session_id),),
            )
        )
        rows = rows or self._last_attempts(session_id)
        if len(rows) != 1 or not session_id:
            problem = "several sessions begin with" if rows else "there is no session"
            raise NotFound(f"{problem} {session_id}\n`proctor sessions list` lists them.")
        return rows[0]

    def _last_attempts(self, item_id: str) -> list[SessionRow]:
        """The newest session of each item whose id begins so."""
        if not item_id:
            return []
        rows = self.rows(
            SessionRow,
            'SELECT s.* FROM "batch_items" i JOIN "sessions" s ON s."id" = i."sessionId" '
            'WHERE i."id" LIKE ? ESCAPE \'!\' ORDER BY s."startedAt" DESC LIMIT 100',
            (prefix_pattern(item_id),),
        )
        # The same item may be in several runs.
        return list({row["itemId"]: row for row in reversed(rows)}.values())

    def exact_session(self, session_id: str) -> list[SessionRow]:
        """The session with this id; none or one."""
        return self.rows(SessionRow, 'SELECT * FROM "sessions" WHERE "id" = ?', (session_id,))

    def sessions(self, scope: Scope, *, limit: int = 1000) -> list[SessionRow]:
        """The sessions of a scope, newest first."""
        where, parameters = session_where(scope)
        return self.rows(
            SessionRow,
            f'SELECT * FROM "sessions" s WHERE {where} ORDER BY "startedAt" DESC LIMIT ?',
            (*parameters, limit),
        )

    def session_ids(self, scope: Scope) -> list[str]:
        """The ids of the sessions of a scope, oldest first."""
        where, parameters = session_where(scope)
        return self.values(
            str, f'SELECT s."id" FROM "sessions" s WHERE {where} ORDER BY s."startedAt", s."id"', parameters
        )

    def imported_session_ids(self, *, log_group: str = "", before: datetime | None = None) -> list[str]:
        """The imported sessions of a log group, or of all; `before`: those that ended earlier."""
        parts, parameters = ['"runId" IS NULL'], list[object]()
        if log_group:
            parts.append('"logGroup" = ?')
            parameters.append(log_group)
        if before is not None:
            parts.append('COALESCE("finishedAt", "startedAt") < ?')
            parameters.append(timestamp(before))
        where = " AND ".join(parts)
        return self.values(
            str, f'SELECT "id" FROM "sessions" WHERE {where} ORDER BY "startedAt", "id"', parameters
        )

    @overload
    def of_session(self, table: Literal["iterations"], session_id: str) -> list[IterationRow]: ...
    @overload
    def of_session(self, table: Literal["messages"], session_id: str) -> list[MessageRow]: ...
    @overload
    def of_session(self, table: Literal["tool_calls"], session_id: str) -> list[ToolCallRow]: ...
    @overload
    def of_session(self, table: Literal["model_calls"], session_id: str) -> list[ModelCallRow]: ...
    @overload
    def of_session(self, table: Literal["metrics"], session_id: str) -> list[MetricRow]: ...
    @overload
    def of_session(self, table: Literal["scores"], session_id: str) -> list[ScoreRow]: ...
    @overload
    def of_session(self, table: Literal["merge_history"], session_id: str) -> list[MergeRow]: ...
    def of_session(self, table: str, session_id: str) -> object:
        """All rows of one session in a table, in the order they happened, long texts included."""
        return self._of_session(table, session_id)

    def parts_of_session(self, session_id: str) -> dict[str, list[Row]]:
        """The rows of one session in every table, by table."""
        return {table: self._of_session(table, session_id) for table in OF_A_SESSION}

    def _of_session(self, table: str, session_id: str) -> list[Row]:
        order = "step" if table == "iterations" else "position"
        rows = self._connection.rows(
            f'SELECT * FROM "{_known(table)}" WHERE "sessionId" = ? ORDER BY "{order}"', (session_id,)
        )
        return list(self.with_long_texts(rows))

    def evidence(self, session_id: str, reference: "Reference | None" = None) -> "Evidence":
        """A session as evaluators see it, by its id or an unambiguous beginning of it."""
        session = self.session(session_id)
        if is_being_written(session):
            raise Contradiction(
                f"spans of session {session['id']} are being written\nTry again in a few seconds."
            )
        return replace(self._evidence_of([session])[session["id"]], reference=reference)

    def evidence_of_first(self, session_ids: Sequence[str], most_characters: int) -> "dict[str, Evidence]":
        """The first of these sessions as evaluators see them, by id: as many as have this many characters
        together, and at least one. Those that are not in the store are left out."""
        ids = self._first_sessions(session_ids, most_characters)
        rows = self.rows(SessionRow, f'SELECT * FROM "sessions" WHERE "id" IN ({places(ids)})', ids)
        return self._evidence_of([row for row in rows if not is_being_written(row)])

    def _first_sessions(self, session_ids: Sequence[str], most_characters: int) -> Sequence[str]:
        if len(session_ids) < 2:
            return session_ids
        sizes = dict.fromkeys(session_ids, 0)
        for table, column in (("messages", "content"), ("tool_calls", "result")):
            for session_id, size in self._connection.tuples(
                f'SELECT t."sessionId", SUM(COALESCE(b."size", LENGTH(t."{column}"))) FROM "{table}" t '
                f'LEFT JOIN "blobs" b ON b."digest" = t."{column}Blob" '
                f'WHERE t."sessionId" IN ({places(session_ids)}) GROUP BY t."sessionId"',
                session_ids,
            ):
                sizes[cast(str, session_id)] += int(cast(int, size))
        total = 0
        for number, session_id in enumerate(session_ids):
            total += sizes[session_id]
            if number and total > most_characters:
                return session_ids[:number]
        return session_ids

    def _evidence_of(self, sessions: Sequence[SessionRow]) -> "dict[str, Evidence]":
        # Imported late, here and below: only evaluation and export need it.
        from proctor.store.sessions import evidence_of

        # The bodies of model calls repeat what the messages say, and are many times as long.
        rows = self._rows_of([session["id"] for session in sessions], CALL_FIGURES)
        evidence = {
            session["id"]: evidence_of(session, rows[session["id"]])
            for session in self.with_long_texts(sessions)
        }
        without_tools = [key for key, each in evidence.items() if each.tool_calls and not each.tools]
        for session_id, tools in self._tools(without_tools).items():
            evidence[session_id] = replace(evidence[session_id], tools=tools)
        return evidence

    def _rows_of(self, ids: Sequence[str], call_columns: str = "*") -> "dict[str, _LoadedSession]":
        """The rows of sessions, by their ids."""
        sessions = {session_id: _LoadedSession() for session_id in ids}
        for table, order in (
            ("messages", "position"),
            ("tool_calls", "position"),
            ("model_calls", "position"),
            ("iterations", "step"),
        ):
            rows = self._connection.rows(
                f'SELECT {call_columns if table == "model_calls" else "*"} FROM "{table}" '
                f'WHERE "sessionId" IN ({places(ids)}) ORDER BY "sessionId", "{order}"',
                ids,
            )
            for row in self.with_long_texts(rows):
                sessions[row["sessionId"]].tables.setdefault(table, []).append(row)
        return sessions

    def recorded(self, session_id: str) -> "Session":
        """A session as `Session`, the form of imports and exports."""
        from proctor.store.sessions import session_of_rows, with_item

        (session,) = self.with_long_texts([self.session(session_id)])
        scores = self.rows(
            ScoreRow,
            'SELECT * FROM "scores" WHERE ("sessionId" = ? AND "scoredSessionId" = \'\') '
            'OR "scoredSessionId" = ? ORDER BY "timestamp", "sessionId", "position"',
            (session["id"], session["id"]),
        )
        (rows,) = self._rows_of([session["id"]]).values()
        recorded = session_of_rows(session, rows, self.with_long_texts(scores))
        items = self.exact_item(session["runId"] or "", session["itemId"] or "")
        return with_item(recorded, items[0]) if items else recorded

    def call_figures(self, session_id: str) -> list[ModelCallRow]:
        """The model calls of a session without their bodies."""
        # The bodies of model calls repeat what the messages say, and are many times as long.
        return self.rows(
            ModelCallRow,
            f'SELECT {CALL_FIGURES} FROM "model_calls" WHERE "sessionId" = ? ORDER BY "position"',
            (session_id,),
        )

    def _tools(self, ids: Sequence[str]) -> "dict[str, list[OfferedTool]]":
        """The tools in the first recorded model request of each session that has one."""
        if not ids:
            return {}
        from proctor.store.sessions import tools_of_request

        rows = self.rows(
            _RequestText,
            'SELECT "sessionId", "request", "requestBlob" FROM "model_calls" WHERE ("sessionId", "position") '
            'IN (SELECT "sessionId", MIN("position") FROM "model_calls" '
            f'WHERE "sessionId" IN ({places(ids)}) GROUP BY "sessionId")',
            ids,
        )
        return {row["sessionId"]: tools_of_request(row["request"]) for row in self.with_long_texts(rows)}

    def table(self, name: str, scope: Scope) -> Iterator[Row]:
        """Stream the rows of a table that belong to a scope, long texts included."""
        where, parameters = session_where(scope)
        mine = f'FROM "sessions" s WHERE {where}'
        if name == "sessions":
            rows = self._connection.stream(f'SELECT * {mine} ORDER BY "startedAt", "id"', parameters)
        elif name in ("batches", "batch_items") and scope == Scope():
            # Items without a session are included.
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
        return self.with_long_texts(rows)

    def with_long_texts(self, rows: Iterable[R]) -> Iterator[R]:
        """The same rows, all of the same columns, with their long texts put back in place."""
        names: list[str] | None = None
        for row in rows:
            columns = cast(Row, row)
            if names is None:
                names = [name for name in columns if name.endswith("Blob")]
            for name in names:
                digest = columns.pop(name)
                if digest:
                    columns[name.removesuffix("Blob")] = self.blob(digest)
            yield row

    def blob(self, digest: str) -> str:
        """A long text by its digest."""
        data = self.value(bytes, 'SELECT "data" FROM "blobs" WHERE "digest" = ?', (digest,))
        return zlib.decompress(data).decode() if data else ""


@dataclass(frozen=True, slots=True)
class _LoadedSession:
    """The rows of one session, by table, in order."""

    tables: dict[str, list[Row]] = field(default_factory=dict)

    def messages(self) -> list[MessageRow]:
        return cast(list[MessageRow], self.tables.get("messages", []))

    def tool_calls(self) -> list[ToolCallRow]:
        return cast(list[ToolCallRow], self.tables.get("tool_calls", []))

    def model_calls(self) -> list[ModelCallRow]:
        return cast(list[ModelCallRow], self.tables.get("model_calls", []))

    def iterations(self) -> list[IterationRow]:
        return cast(list[IterationRow], self.tables.get("iterations", []))


def session_where(scope: Scope) -> tuple[str, list[object]]:
    """The condition on `sessions s` of a scope, and its parameters."""
    parts, parameters = ["1 = 1"], list[object]()
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


def item_where(run_id: str, selection: ItemFilter) -> tuple[str, list[object]]:
    """The condition on `batch_items` of a filter, and its parameters."""
    parts, parameters = ['"runId" = ?'], list[object]([run_id])
    if selection.statuses:
        parts.append(f'"status" IN ({places(selection.statuses)})')
        parameters += selection.statuses
    if selection.reasons:
        parts.append(f'"reason" IN ({places(selection.reasons)})')
        parameters += selection.reasons
    if selection.merges:
        parts.append(f'"merge" IN ({places(selection.merges)})')
        parameters += selection.merges
    if selection.search:
        parts.append("(" + " OR ".join(contains(name) for name in SEARCHED) + ")")
        parameters += [substring_pattern(selection.search)] * len(SEARCHED)
    return " AND ".join(parts), parameters


def summed(by_status: Sequence[StatusSums]) -> ItemTotals:
    """The totals of one batch, from the sums of each status."""
    counts = dict.fromkeys(STATUSES, 0) | {row["status"]: row["items"] for row in by_status}
    costs = [row["cost"] for row in by_status if row["cost"] is not None]
    return {
        "counts": counts,
        "items": sum(counts.values()),
        "finished": sum(counts.values()) - counts[QUEUED] - counts[RUNNING],
        "tokens": sum(row["tokens"] or 0 for row in by_status),
        "costUsd": sum(costs) if costs else None,
    }


def _known(table: str) -> str:
    if table not in (*OF_A_SESSION, *BY_PEOPLE):
        raise NotFound(f"there is no table {table}\nThere are: {', '.join(COLUMNS)}.")
    return table


def seconds_between(start: str, end: str, *, is_postgres: bool) -> str:
    """The seconds between two columns of timestamps, as an expression; 0 where the clock was set back."""
    if is_postgres:
        # A plain number: `EXTRACT` alone is a decimal, of which reading keeps only the whole part.
        gap = f"EXTRACT(EPOCH FROM ({end}::timestamptz - {start}::timestamptz))"
        # Not `GREATEST`, to which a time that is missing is the lowest one.
        return f"CAST(CASE WHEN {gap} < 0 THEN 0 ELSE {gap} END AS DOUBLE PRECISION)"
    # To the millisecond, as the timestamps are: days are too coarse to give it exactly.
    return f"MAX(0.0, ROUND((julianday({end}) - julianday({start})) * 86400.0, 3))"


def uses_postgres(read: StoreReader) -> bool:
    """Whether the store is a PostgreSQL database."""
    # SQLite has no booleans: the comparison yields 1 there.
    return read.value(str, "SELECT CAST(1 = 1 AS TEXT)") == "true"
