"""Sizes of runs, and deletion of their texts."""

from collections.abc import Mapping, Sequence

from proctor.store.database import Connection, literals, places
from proctor.store.tables import COLUMNS, OF_A_SESSION

TEXTS: Mapping[str, Mapping[str, str]] = {
    "tool_calls": {"argsJson": "'{}'", "result": "''"},
    "model_calls": {"request": "''", "response": "''"},
    "iterations": {"testOutput": "''", "output": "''"},
    "scores": {"explanation": "''"},
}
"""Texts of a session that no figure needs, and what they become, by table and column. Rows of `messages` are
deleted."""
_SESSION_TABLES = ("sessions", *OF_A_SESSION)
_MINE = 'SELECT "id" FROM "sessions" WHERE "runId" = ?'


def run_sizes(connection: Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """Bytes of the rows and long texts of runs; a long text that several runs share counts in each."""
    sizes = dict.fromkeys(run_ids, 0)
    if not run_ids:
        return sizes
    chosen = f'"runId" IN ({places(run_ids)})'
    queries = [
        f'SELECT "runId", SUM({_length(table)}) AS "n" FROM "{table}" WHERE {chosen} GROUP BY "runId"'
        for table in ("batches", "batch_items", "run_resources", "signatures", "sessions")
    ]
    queries += [
        f'SELECT s."runId", SUM({_length(table, "t.")}) AS "n" FROM "{table}" t '
        f'JOIN "sessions" s ON s."id" = t."sessionId" WHERE s.{chosen} GROUP BY s."runId"'
        for table in OF_A_SESSION
    ]
    references = " UNION ".join(
        f'SELECT s."runId", t."{column}" AS "digest" FROM "{table}" t JOIN "sessions" s '
        f'ON s."id" = t."{"id" if table == "sessions" else "sessionId"}" '
        f'WHERE s.{chosen} AND t."{column}" IS NOT NULL'
        for table, column in _blob_columns()
    )
    blobs = (
        f'SELECT r."runId", SUM(LENGTH(b."data")) AS "n" FROM ({references}) r '
        'JOIN "blobs" b ON b."digest" = r."digest" GROUP BY r."runId"'
    )
    for query in queries:
        for row in connection.rows(query, run_ids):
            sizes[row["runId"]] += int(row["n"] or 0)
    for row in connection.rows(blobs, [*run_ids] * len(_blob_columns())):
        sizes[row["runId"]] += int(row["n"] or 0)
    return sizes


def delete_texts(connection: Connection, run_id: str) -> None:
    """Delete what was said and done in a run; its items, scores, costs, tokens and times stay."""
    # Imported late: only deleting needs them.
    from proctor.store.key_rotation import delete_unused_blobs
    from proctor.store.search import forget

    forget(connection, _MINE, (run_id,))
    connection.run(f'DELETE FROM "messages" WHERE "sessionId" IN ({_MINE})', (run_id,))
    for table, columns in TEXTS.items():
        assigned = [f'"{column}" = {value}' for column, value in columns.items()]
        assigned += [f'"{column}Blob" = NULL' for column in columns]
        connection.run(
            f'UPDATE "{table}" SET {", ".join(assigned)} WHERE "sessionId" IN ({_MINE})', (run_id,)
        )
    delete_unused_blobs(connection)


def ended_before(connection: Connection, before: str) -> list[str]:
    """Runs that ended before a time, oldest first; one that was killed, by its last heartbeat."""
    states = literals(("running",))
    rows = connection.rows(
        'SELECT "runId" FROM "batches" WHERE COALESCE("finishedAt", "heartbeatAt", "createdAt") < ? '
        f'OR ("status" IN ({states}) AND COALESCE("heartbeatAt", "createdAt") < ?) ORDER BY "createdAt"',
        (before, before),
    )
    return [row["runId"] for row in rows]


def _blob_columns() -> list[tuple[str, str]]:
    return [(table, name) for table in _SESSION_TABLES for name in COLUMNS[table] if name.endswith("Blob")]


def _length(table: str, prefix: str = "") -> str:
    """The number of characters of a row, with 8 for each number."""
    return " + ".join(f'COALESCE(LENGTH(CAST({prefix}"{name}" AS TEXT)), 0)' for name in COLUMNS[table])
