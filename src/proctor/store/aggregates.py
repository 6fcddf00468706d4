"""Which rows a question is about, in SQL that both databases take.

A scope names sessions; the items it stands for are those of its run, or else those that have one
of its sessions. The few words that SQLite and PostgreSQL spell differently are here.

Knows nothing of what is asked about the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor.store import Scope, StoreReader
from proctor.store.items import session_where

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The items and sessions of a scope, ready to be asked about."""

    read: StoreReader
    is_postgres: bool
    items: str
    """A condition on `"batch_items" i`."""
    item_parameters: tuple[Any, ...]
    sessions: str
    """A condition on `"sessions" s`."""
    session_parameters: tuple[Any, ...]
    events: str
    """A condition on the `sessionId` of `t`, with the same parameters as `sessions`."""

    def of_items(self, columns: str, rest: str = "", *, parameters: Sequence[Any] = ()) -> list[Row]:
        """Ask about the items, `i`; `parameters` are those of `columns`."""
        sql = f'SELECT {columns} FROM "batch_items" i WHERE {self.items} {rest}'
        return self.read.query(sql, (*parameters, *self.item_parameters))

    def of_sessions(self, columns: str, rest: str = "") -> list[Row]:
        """Ask about the sessions, `s`."""
        sql = f'SELECT {columns} FROM "sessions" s WHERE {self.sessions} {rest}'
        return self.read.query(sql, self.session_parameters)

    def of_events(self, table: str, columns: str, rest: str = "") -> list[Row]:
        """Ask about what belongs to the sessions, `t`: their tool calls, model calls and so on."""
        sql = f'SELECT {columns} FROM "{table}" t WHERE {self.events} {rest}'
        return self.read.query(sql, self.session_parameters)

    def of_few_events(self, table: str, columns: str, rest: str = "") -> list[Row]:
        """The same for a table that holds far fewer rows than there are sessions."""
        mine = f'SELECT 1 FROM "sessions" s WHERE {self.sessions} AND s."id" = t."sessionId"'
        sql = f'SELECT {columns} FROM "{table}" t WHERE EXISTS ({mine}) {rest}'
        return self.read.query(sql, self.session_parameters)

    def seconds(self, start: str, end: str) -> str:
        """The seconds between two columns of timestamps, as an expression."""
        if self.is_postgres:
            # A plain number: `EXTRACT` alone is a decimal, of which reading keeps only the whole part.
            gap = f"EXTRACT(EPOCH FROM ({end}::timestamptz - {start}::timestamptz))"
            return f"CAST({gap} AS DOUBLE PRECISION)"
        # To the millisecond, as the timestamps are: days are too coarse to give it exactly.
        return f"ROUND((julianday({end}) - julianday({start})) * 86400.0, 3)"

    def factors_without(self, names: Sequence[str]) -> tuple[str, list[str]]:
        """An item's factors but for some, as JSON text in an expression, and its parameters."""
        if not names:
            return 'i."factors"', []
        if self.is_postgres:
            return f'(i."factors"::jsonb{" - CAST(? AS TEXT)" * len(names)})::text', list(names)
        # A path cannot quote these two characters; such a factor stays, and costs time only.
        paths = [f'$."{name}"' for name in names if '"' not in name and "\\" not in name]
        return f'json_remove(i."factors"{", ?" * len(paths)})', paths


def select(read: StoreReader, scope: Scope) -> Selection:
    """Make a scope ready to be asked about."""
    sessions, parameters = session_where(scope)
    of_them = f'SELECT 1 FROM "sessions" s WHERE {sessions} AND s."runId" = i."runId" AND s."itemId" = i."id"'
    items = 'i."runId" = ?' if scope.run_id else f"EXISTS ({of_them})"
    return Selection(
        read=read,
        is_postgres=_is_postgres(read),
        items=items,
        item_parameters=(scope.run_id,) if scope.run_id else tuple(parameters),
        sessions=sessions,
        session_parameters=tuple(parameters),
        events=_of_sessions(read, sessions, tuple(parameters)),
    )


def _of_sessions(read: StoreReader, sessions: str, parameters: tuple[Any, ...]) -> str:
    """How to find what belongs to the sessions: by those in the scope, or by those outside it.

    A set of ids has to be built either way, so it is the smaller one: a large run that is most of the
    store is then read straight through, in a third of the time.
    """
    (count,) = read.query(
        f'SELECT (SELECT COUNT(*) FROM "sessions") AS "all", COUNT(*) AS "mine" FROM "sessions" s '
        f"WHERE {sessions}",
        parameters,
    )
    if count["all"] - count["mine"] < count["mine"] / 2:
        outside = f'SELECT s."id" FROM "sessions" s WHERE ({sessions}) IS NOT TRUE'
        return f't."sessionId" NOT IN ({outside})'
    return f't."sessionId" IN (SELECT s."id" FROM "sessions" s WHERE {sessions})'


def _is_postgres(read: StoreReader) -> bool:
    # SQLite has no truth values: there the comparison is the number 1.
    (answer,) = read.query('SELECT CAST(1 = 1 AS TEXT) AS "truth"')
    return bool(answer["truth"] == "true")
